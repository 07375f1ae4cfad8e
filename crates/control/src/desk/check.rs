//! Whether resources are a configuration: they are put together and read as a file would be, and what is wrong is told by their names.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::Value as Json;

use holdfast_config::{Config, Faults, Frame, MAX_LISTED, ResourceKind, Resources, Source, assemble, load};

use super::error::Fault;

/// A good configuration, and what is doubtful about it.
pub(super) struct Checked {
    pub(super) config: Config,
    pub(super) warnings: String,
}

/// Whether a configuration may name files. Asks of the admin API may not: they would make this process read what it can read for whoever can ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Files {
    None,
    Read,
}

/// Reads resources as a configuration.
pub(super) fn check(frame: &Frame, resources: &Resources, files: Files) -> Result<Checked, Vec<Fault>> {
    let misshapen = misshapen(resources);
    if !misshapen.is_empty() {
        return Err(misshapen);
    }
    let text = assemble(&frame.rest, resources);
    let read_file = |path: &Path| match files {
        Files::Read => (frame.read_file)(path),
        Files::None => Err(io::Error::other("only a configuration file may name files; write the document itself")),
    };
    let source = Source { folder: &frame.folder, read_file: &read_file, ..Source::text("table", &text) };
    let names = Names::of(resources);
    let loaded = load(&source).map_err(|faults| names.told(&faults))?;
    let warnings = names.told(&loaded.warnings);
    let lines: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    Ok(Checked { config: loaded.config, warnings: lines.join("\n") })
}

/// The field of an owner's content that would be another resource.
const fn part(kind: ResourceKind) -> Option<(ResourceKind, &'static str)> {
    match kind {
        ResourceKind::Pool => Some((ResourceKind::Replica, "replicas")),
        ResourceKind::Model => Some((ResourceKind::Version, "versions")),
        ResourceKind::Tenant => Some((ResourceKind::Pin, "pins")),
        _ => None,
    }
}

/// Who owns a resource: the kind, and the name.
pub(super) fn owner(kind: ResourceKind, name: &str) -> Option<(ResourceKind, &str)> {
    let owner = match kind {
        ResourceKind::Replica => ResourceKind::Pool,
        ResourceKind::Version => ResourceKind::Model,
        ResourceKind::Pin => ResourceKind::Tenant,
        _ => return None,
    };
    Some((owner, name.split_once('/').map_or(name, |(of, _)| of)))
}

/// The kind of what a resource of this kind owns.
pub(super) fn owned(kind: ResourceKind) -> Option<ResourceKind> {
    part(kind).map(|(kind, _)| kind)
}

/// What could not be put together: names of a wrong form, parts without their owner, content that holds what is a resource of its own.
fn misshapen(resources: &Resources) -> Vec<Fault> {
    let faults = resources.iter().filter_map(|((kind, name), content)| {
        misshapen_one(resources, *kind, name, content)
            .map(|reason| Fault::new(format!("{} {name}", kind.as_str()), reason))
    });
    faults.take(MAX_LISTED).collect()
}

fn misshapen_one(resources: &Resources, kind: ResourceKind, name: &str, content: &Json) -> Option<String> {
    let word = kind.as_str();
    let alone = matches!(kind, ResourceKind::Plan | ResourceKind::Experiment);
    let parts = if part(kind).is_some() || alone { 1 } else { 2 };
    if name.split('/').count() != parts {
        return Some(if parts == 1 {
            format!("the name of a {word} has no '/'")
        } else {
            format!("the name of a {word} is its owner's and its own with a '/' between")
        });
    }
    if let Some((of, owner)) = owner(kind, name)
        && !resources.contains_key(&(of, owner.to_owned()))
    {
        return Some(format!("there is no {} {owner:?}", of.as_str()));
    }
    let Json::Object(fields) = content else {
        let pin = kind == ResourceKind::Pin && content.is_string();
        return (!pin).then(|| match kind {
            ResourceKind::Pin => "the content of a pin is a version, in quotes".to_owned(),
            _ => format!("the content of a {word} is an object"),
        });
    };
    if kind == ResourceKind::Pin {
        return Some("the content of a pin is a version, in quotes".to_owned());
    }
    let own = ["name", if kind == ResourceKind::Version { "version" } else { "name" }];
    let named = own.into_iter().chain(part(kind).map(|(_, field)| field));
    named.into_iter().find(|field| fields.contains_key(*field)).map(|field| match part(kind) {
        Some((part, parts)) if parts == field => {
            format!("has {field:?}; each {} is a resource of its own", part.as_str())
        }
        _ => format!("has {field:?}, which its name says"),
    })
}

/// The names in the order in which they are put together, to tell a path by names instead of numbers.
struct Names<'r> {
    owners: BTreeMap<&'static str, Vec<&'r str>>,
    parts: BTreeMap<(ResourceKind, &'r str), Vec<&'r str>>,
}

impl<'r> Names<'r> {
    fn of(resources: &'r Resources) -> Self {
        let mut names = Self { owners: BTreeMap::new(), parts: BTreeMap::new() };
        for (kind, name) in resources.keys() {
            let section = match kind {
                ResourceKind::Pool => "pools",
                ResourceKind::Model => "models",
                ResourceKind::Plan => "plans",
                ResourceKind::Tenant => "tenants",
                ResourceKind::Experiment => "experiments",
                ResourceKind::Pin | ResourceKind::Split => continue,
                ResourceKind::Replica | ResourceKind::Version => {
                    if let Some((of, name)) = name.split_once('/') {
                        names.parts.entry((*kind, of)).or_default().push(name);
                    }
                    continue;
                }
            };
            names.owners.entry(section).or_default().push(name);
        }
        names
    }

    fn told(&self, faults: &Faults) -> Vec<Fault> {
        let told = faults.listed.iter().map(|fault| Fault {
            path: self.path(&fault.path).unwrap_or_else(|| fault.path.clone()),
            reason: self.reason(&fault.reason),
            nearest: fault.nearest.clone(),
        });
        told.collect()
    }

    /// `tenants[2].pins.m` as `tenants[acme].pins.m`.
    fn path(&self, path: &str) -> Option<String> {
        let (section, rest) = path.split_once('[')?;
        let (index, rest) = rest.split_once(']')?;
        let owner = self.owners.get(section)?.get(index.parse::<usize>().ok()?)?;
        let part = |kind, field: &str| {
            let (index, rest) = rest.strip_prefix(field)?.split_once(']')?;
            let name = self.parts.get(&(kind, *owner))?.get(index.parse::<usize>().ok()?)?;
            Some(format!("{section}[{owner}]{field}{name}]{rest}"))
        };
        part(ResourceKind::Replica, ".replicas[")
            .or_else(|| part(ResourceKind::Version, ".versions["))
            .or_else(|| Some(format!("{section}[{owner}]{rest}")))
    }

    /// The paths in the words of a fault, the same way.
    fn reason(&self, reason: &str) -> String {
        let word = |word: &str| self.path(word).unwrap_or_else(|| word.to_owned());
        reason.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests;
