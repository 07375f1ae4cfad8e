//! The parts of a configuration that route, as single resources: what a table's history is made of.
//!
//! A pool, a replica, a model, a version, a plan, a tenant, an experiment and a pin are one resource each, so that a change of one is small and says what it is. A
//! resource's content is JSON with sorted keys and what the file says, defaults left out. [`split`] and [`assemble`] are inverse: what is
//! assembled reads as the configuration that was split, but for the order in which things are listed, which decides nothing.
//!
//! Overrides of the environment are in it, as if the file said what they say.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value as Json};

use crate::fault::{Faults, Sink};
use crate::tree::{self, Key, Node, Style, Value, is_null};
use crate::{Loaded, Source, env, load};

/// What a resource is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKind {
    /// A pool, without its replicas.
    Pool,
    /// A replica of a pool; its name is `POOL/REPLICA`.
    Replica,
    /// A model, without its versions.
    Model,
    /// A version of a model; its name is `MODEL/VERSION`.
    Version,
    /// A plan: a named set of limits.
    Plan,
    /// A tenant, without its pins.
    Tenant,
    /// An experiment, with the history of what its arms were given.
    Experiment,
    /// A tenant's pin of a model; its name is `TENANT/MODEL`, its content the version.
    Pin,
    /// A share of a pin's traffic that goes to another version; its name is the pin's, its content `{"version": .., "percent": ..}`. Only in
    /// tables in force: no file says it, and [`assemble`] passes it over.
    Split,
}

impl ResourceKind {
    /// All of them, owners before what they own.
    pub const ALL: [Self; 9] = [
        Self::Pool,
        Self::Replica,
        Self::Model,
        Self::Version,
        Self::Plan,
        Self::Tenant,
        Self::Experiment,
        Self::Pin,
        Self::Split,
    ];

    /// The word for it in stores, listings and URLs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Replica => "replica",
            Self::Model => "model",
            Self::Version => "version",
            Self::Plan => "plan",
            Self::Tenant => "tenant",
            Self::Experiment => "experiment",
            Self::Pin => "pin",
            Self::Split => "split",
        }
    }

    /// The kind that this word stands for.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Resources by kind and name, each with its content.
pub type Resources = BTreeMap<(ResourceKind, String), Json>;

/// A good configuration, and the resources of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The configuration.
    pub loaded: Loaded,
    /// What of it routes.
    pub resources: Resources,
    /// Everything else, as the content of a file.
    pub rest: Json,
}

/// Reads and checks a configuration, and takes it apart.
///
/// # Errors
/// As [`load`].
pub fn split(source: &Source<'_>) -> Result<Split, Faults> {
    let loaded = load(source)?;
    let mut unheard = Sink::new(source.name, source.text, &[]);
    let tree = tree::parse(source.text, &mut unheard).map(|mut tree| {
        env::apply(&mut tree, source.environment, &mut unheard);
        tree
    });
    let file = tree.map_or(Json::Null, |tree| json(&tree, false));
    let Json::Object(mut rest) = file else { return Ok(Split { loaded, resources: Resources::new(), rest: file }) };
    let mut resources = Resources::new();
    for (section, owner) in SECTIONS {
        for item in items(rest.remove(section)) {
            take_apart(&owner, item, &mut resources);
        }
    }
    Ok(Split { loaded, resources, rest: Json::Object(rest) })
}

/// Puts a configuration together: a text for [`load`].
#[must_use]
pub fn assemble(rest: &Json, resources: &Resources) -> String {
    let mut file = rest.as_object().cloned().unwrap_or_default();
    for (section, owner) in SECTIONS {
        let mut owners: BTreeMap<&str, Map<String, Json>> = BTreeMap::new();
        for ((_, name), content) in resources.iter().filter(|((kind, _), _)| *kind == owner.kind) {
            let mut whole = content.as_object().cloned().unwrap_or_default();
            whole.insert("name".to_owned(), name.as_str().into());
            owners.insert(name, whole);
        }
        for ((_, name), content) in resources.iter().filter(|((kind, _), _)| Some(*kind) == owner.part) {
            // A part whose owner is gone is left out: nothing says what it is a part of.
            let Some((of, name)) = name.split_once('/') else { continue };
            if let Some(whole) = owners.get_mut(of) {
                (owner.put)(whole, name, content);
            }
        }
        let list: Vec<Json> = owners.into_values().map(Json::Object).collect();
        if !list.is_empty() {
            file.insert(section.to_owned(), Json::Array(list));
        }
    }
    Json::Object(file).to_string()
}

/// A section's items, and what each of them owns.
struct Owner {
    kind: ResourceKind,
    /// None: it owns nothing.
    part: Option<ResourceKind>,
    field: &'static str,
    /// The parts by name.
    parts: fn(Json) -> Vec<(String, Json)>,
    put: fn(&mut Map<String, Json>, &str, &Json),
}

impl Owner {
    /// It owns nothing.
    const fn alone(kind: ResourceKind) -> Self {
        Self { kind, part: None, field: "", parts: |_| Vec::new(), put: |_, _, _| {} }
    }
}

const SECTIONS: [(&str, Owner); 5] = [
    (
        "pools",
        Owner {
            kind: ResourceKind::Pool,
            part: Some(ResourceKind::Replica),
            field: "replicas",
            parts: |replicas| named(replicas, "name"),
            put: |pool, name, replica| put_item(pool, "replicas", "name", name, replica),
        },
    ),
    (
        "models",
        Owner {
            kind: ResourceKind::Model,
            part: Some(ResourceKind::Version),
            field: "versions",
            parts: |versions| named(versions, "version"),
            put: |model, name, version| put_item(model, "versions", "version", name, version),
        },
    ),
    ("plans", Owner::alone(ResourceKind::Plan)),
    ("experiments", Owner::alone(ResourceKind::Experiment)),
    (
        "tenants",
        Owner {
            kind: ResourceKind::Tenant,
            part: Some(ResourceKind::Pin),
            field: "pins",
            parts: |pins| if let Json::Object(pins) = pins { pins.into_iter().collect() } else { Vec::new() },
            put: |tenant, model, version| {
                let pins = tenant.entry("pins").or_insert_with(|| Json::Object(Map::new()));
                if let Json::Object(pins) = pins {
                    pins.insert(model.to_owned(), version.clone());
                }
            },
        },
    ),
];

fn take_apart(owner: &Owner, item: Json, resources: &mut Resources) {
    let Json::Object(mut whole) = item else { return };
    let Some(Json::String(name)) = whole.remove("name") else { return };
    if let Some(kind) = owner.part {
        let parts = whole.remove(owner.field).map(owner.parts).unwrap_or_default();
        resources.extend(parts.into_iter().map(|(part, content)| ((kind, format!("{name}/{part}")), content)));
    }
    resources.insert((owner.kind, name), Json::Object(whole));
}

/// The items of a list by the field that names them, which is not in their content.
fn named(list: Json, key: &str) -> Vec<(String, Json)> {
    let name = |item: Json| {
        let Json::Object(mut fields) = item else { return None };
        let Some(Json::String(name)) = fields.remove(key) else { return None };
        Some((name, Json::Object(fields)))
    };
    items(Some(list)).into_iter().filter_map(name).collect()
}

fn put_item(whole: &mut Map<String, Json>, field: &str, key: &str, name: &str, content: &Json) {
    let mut item = content.as_object().cloned().unwrap_or_default();
    item.insert(key.to_owned(), name.into());
    if let Json::Array(list) = whole.entry(field).or_insert_with(|| Json::Array(Vec::new())) {
        list.push(Json::Object(item));
    }
}

fn items(list: Option<Json>) -> Vec<Json> {
    if let Some(Json::Array(items)) = list { items } else { Vec::new() }
}

/// The value as JSON. What YAML reads as a number, a truth value or null is one here too; all else is text. The environment knows no quotes:
/// what it says is text where only text can be meant (`versions`), and read as YAML elsewhere.
fn json(node: &Node<'_>, versions: bool) -> Json {
    match &node.value {
        Value::Reported => Json::Null,
        Value::List(items) => Json::Array(items.iter().map(|item| json(item, versions)).collect()),
        Value::Map(entries) => {
            let value = |(key, value): &(Key<'_>, Node<'_>)| {
                let name = key.text.to_string();
                let json = json(value, versions || matches!(&*name, "version" | "pins"));
                (name, json)
            };
            Json::Object(entries.iter().map(value).collect())
        }
        Value::Scalar(text, Style::Quoted) => Json::String(text.to_string()),
        Value::Scalar(text, Style::Environment) if versions => Json::String(text.to_string()),
        Value::Scalar(text, Style::Plain | Style::Environment) => plain(text),
    }
}

fn plain(text: &str) -> Json {
    match text {
        _ if is_null(text) => Json::Null,
        "true" | "True" | "TRUE" => Json::Bool(true),
        "false" | "False" | "FALSE" => Json::Bool(false),
        _ => text.parse::<Number>().map_or_else(|_| Json::String(text.to_owned()), Json::Number),
    }
}
