//! The shapes in the OpenAPI document. What a resource's content may be is taken from the schema of the configuration.

use serde_json::{Map, Value as Json, json};

use holdfast_config::ResourceKind::{self, Experiment, Model, Pin, Plan, Pool, Replica, Split, Tenant, Version};

use super::render;
use super::routes::Op;

/// The name of a kind's schema.
pub(super) const fn title(kind: ResourceKind) -> &'static str {
    match kind {
        Pool => "Pool",
        Replica => "Replica",
        Model => "Model",
        Version => "Version",
        Plan => "Plan",
        Tenant => "Tenant",
        Experiment => "Experiment",
        Pin => "Pin",
        Split => "Split",
    }
}

const ID: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$";

fn id() -> Json {
    json!({ "type": "string", "pattern": ID })
}

fn number() -> Json {
    json!({ "type": "integer", "minimum": 0 })
}

fn revision() -> Json {
    json!({ "type": "integer", "minimum": 0, "description": "A revision of the table" })
}

fn text() -> Json {
    json!({ "type": "string" })
}

fn or_null(schema: Json) -> Json {
    json!({ "anyOf": [schema, { "type": "null" }] })
}

/// An object that always has these members.
fn object(members: &[(&str, Json)]) -> Json {
    let names: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    let members: Map<String, Json> =
        members.iter().map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    json!({ "type": "object", "required": names, "properties": members })
}

/// An object of which only these members are known, and these needed.
fn asked(needed: &[&str], members: &[(&str, Json)]) -> Json {
    let mut schema = object(members);
    schema["required"] = json!(needed);
    schema["additionalProperties"] = Json::Bool(false);
    schema
}

/// One of the two, and why.
fn revoke_token() -> Json {
    let token = json!({ "type": "string", "pattern": "^[0-9a-f]{32}$", "description": "The claim jti" });
    let key =
        json!({ "type": "string", "pattern": "^(hfk_)?[0-9a-f]{12}$", "description": "The prefix of an API key" });
    let mut schema = asked(&[], &[("token", token), ("key", key), ("reason", text())]);
    schema["oneOf"] = json!([{ "required": ["token"] }, { "required": ["key"] }]);
    schema
}

fn list(items: Json) -> Json {
    json!({ "type": "array", "items": items })
}

fn named(schema: &str) -> Json {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// A page of resources.
pub(super) fn page(item: Json) -> Json {
    let space = json!({ "enum": ["desired", "in_force"] });
    object(&[("revision", revision()), ("space", space), ("items", list(item)), ("next", or_null(text()))])
}

/// A name in a path.
pub(super) fn in_path(name: &str) -> Json {
    match name {
        "revision" | "rollout" => json!({ "type": "integer", "minimum": 0, "maximum": i64::MAX }),
        "version" => json!({ "type": "string", "pattern": ID, "not": { "pattern": "^[Ll][Aa][Tt][Ee][Ss][Tt]$" } }),
        _ => id(),
    }
}

/// A parameter of a query.
pub(super) fn in_query(op: Op, name: &str) -> Json {
    match name {
        "limit" => json!({ "type": "integer", "minimum": 1, "maximum": 1000, "default": 100 }),
        "at" => json!({ "type": "integer", "minimum": 1, "maximum": i64::MAX }),
        "from" | "to" => json!({ "type": "integer", "minimum": 0, "maximum": i64::MAX }),
        "space" => json!({ "enum": ["desired", "in_force"], "default": "desired" }),
        "dry_run" | "running" | "pending" => json!({ "type": "boolean", "default": false }),
        "tenant" => id(),
        "pin" => json!({ "type": "string", "pattern": "^[^/]+/.+$", "description": "TENANT/MODEL" }),
        "reason" => json!({ "type": "string", "maxLength": 1024 }),
        "options" => {
            json!({ "type": "string", "contentMediaType": "application/json", "description": "RolloutOptions" })
        }
        "after" => match op {
            Op::Revisions | Op::Rollouts => json!({ "type": "integer", "minimum": 1, "maximum": i64::MAX }),
            Op::List(kind) => {
                let part = "[A-Za-z0-9][A-Za-z0-9._-]{0,60}";
                let parts = vec![part; render::parts(kind).len()].join("/");
                json!({ "type": "string", "pattern": format!("^{parts}$"), "description": "\"next\" of the page before" })
            }
            _ => json!({ "type": "string", "pattern": "^(desired|in_force):pin:[a-z0-9]{1,8}/[a-z0-9]{1,8}$",
                         "description": "\"next\" of the page before" }),
        },
        _ => text(),
    }
}

/// What the configuration says of the items of a list, without the members that are resources of their own or in the name.
fn content(kind: ResourceKind) -> Json {
    let schema = holdfast_config::schema();
    let (pointer, without): (&str, &[&str]) = match kind {
        Pool => ("/properties/pools/items", &["name", "replicas"]),
        Replica => ("/properties/pools/items/properties/replicas/items", &["name"]),
        Model => ("/properties/models/items", &["name", "versions"]),
        Version => ("/properties/models/items/properties/versions/items", &["version"]),
        Plan => ("/properties/plans/items", &["name"]),
        Tenant => ("/properties/tenants/items", &["name", "pins"]),
        Experiment => ("/properties/experiments/items", &["name"]),
        Pin => return in_path("version"),
        Split => return json!({ "type": "object" }),
    };
    let mut found = schema.pointer(pointer).cloned().unwrap_or_else(|| json!({ "type": "object" }));
    for name in without {
        if let Some(members) = found.get_mut("properties").and_then(Json::as_object_mut) {
            members.remove(*name);
        }
        if let Some(needed) = found.get_mut("required").and_then(Json::as_array_mut) {
            needed.retain(|needed| needed != name);
        }
    }
    found
}

fn resource(kind: ResourceKind) -> Json {
    let mut members = vec![("name", text())];
    if render::parts(kind).len() > 1 {
        members.extend(render::parts(kind).iter().map(|part| (*part, id())));
    }
    match kind {
        Pin => members.push(("version", text())),
        _ => {
            members.push(("revision", revision()));
            members.push(("spec", json!({ "type": "object" })));
        }
    }
    let mut schema = object(&members);
    if kind == Pin {
        schema["properties"]["revision"] = revision();
        schema["properties"]["in_force"] = or_null(text());
        schema["properties"]["in_force_revision"] = or_null(revision());
        schema["properties"]["waits"] = or_null(text());
    }
    schema
}

fn put(kind: ResourceKind) -> Json {
    let member = if kind == Pin { "version" } else { "spec" };
    let mut members = vec![
        (member, content(kind)),
        ("reason", json!({ "type": "string", "maxLength": 1024 })),
        ("revision", or_null(json!({ "type": "integer", "minimum": 0, "maximum": i64::MAX }))),
    ];
    if kind == Pin {
        members.push(("options", named("RolloutOptions")));
    }
    asked(&[member], &members)
}

fn state() -> Json {
    let schema = holdfast_config::schema();
    let section = |name: &str| schema.pointer(&format!("/properties/{name}")).cloned().unwrap_or_default();
    let mut state =
        object(&[("pools", section("pools")), ("models", section("models")), ("tenants", section("tenants"))]);
    state["required"] = json!([]);
    state
}

fn options() -> Json {
    let share = |most: u64| json!({ "type": "integer", "minimum": 0, "maximum": most });
    let positive = || json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX });
    let percent = json!({ "type": "integer", "minimum": 1, "maximum": 99 });
    let step = asked(&["percent", "wait_ms"], &[("percent", percent), ("wait_ms", number())]);
    let shadow = asked(
        &["share", "compare", "at_most_ms"],
        &[
            ("share", json!({ "type": "integer", "minimum": 1, "maximum": 1000 })),
            ("compare", positive()),
            ("differ", share(1000)),
            ("at_least_ms", number()),
            ("at_most_ms", number()),
        ],
    );
    asked(
        &[],
        &[
            ("atomic", json!({ "type": "boolean" })),
            ("canary", list(step)),
            ("while", json!({ "type": "string", "maxLength": 1024 })),
            ("samples", positive()),
            ("shadow", or_null(shadow)),
            ("loads", positive()),
            ("load_ms", positive()),
            ("tries", positive()),
            ("warm_ms", positive()),
            ("prepare_ms", positive()),
            ("drain_ms", positive()),
            ("retain_ms", number()),
        ],
    )
}

fn header() -> Json {
    object(&[
        ("revision", revision()),
        ("purpose", json!({ "enum": ["change", "activation"] })),
        ("parent", revision()),
        ("author", text()),
        ("reason", text()),
        ("at_ms", number()),
        ("edits_total", number()),
        ("term", or_null(number())),
        ("digests", object(&[("desired", text()), ("in_force", text())])),
    ])
}

fn rollout() -> Json {
    let pin = object(&[
        ("tenant", id()),
        ("model", id()),
        ("from", or_null(text())),
        ("to", text()),
        ("stage", text()),
        ("share", number()),
        ("back", json!({ "type": "boolean" })),
        ("cold", json!({ "type": "boolean" })),
        ("since_ms", number()),
        ("waiting_for", list(object(&[("for", text())]))),
        ("words", or_null(text())),
    ]);
    let mut schema = object(&[
        ("rollout", number()),
        ("phase", text()),
        ("paused", json!({ "type": "boolean" })),
        ("over", json!({ "type": "boolean" })),
        ("since_ms", number()),
        ("author", text()),
        ("reason", text()),
        ("created_ms", number()),
        ("pins_total", number()),
        ("stages", json!({ "type": "object", "additionalProperties": number() })),
        ("waiting_for", list(object(&[("for", text())]))),
        ("words", or_null(text())),
        ("back", or_null(object(&[("author", text()), ("reason", text())]))),
    ]);
    schema["properties"]["pins"] = list(pin);
    schema
}

/// All of them by name.
pub(super) fn all() -> Json {
    let mut all = Map::new();
    // Splits are what roll-outs make of pins, and no resource of their own.
    for kind in ResourceKind::ALL.into_iter().filter(|kind| *kind != Split) {
        all.insert(title(kind).to_owned(), resource(kind));
        all.insert(format!("Put{}", title(kind)), put(kind));
    }
    let place = [("space", text()), ("kind", text()), ("name", text())];
    let with = |more: &[(&str, Json)]| object(&[place.as_slice(), more].concat());
    let difference = with(&[("before", json!({})), ("after", json!({}))]);
    let change = object(&[("kind", text()), ("name", text()), ("before", json!({})), ("after", json!({}))]);
    let pending = object(&[("tenant", id()), ("model", id()), ("to", text())]);
    let node = object(&[
        ("gateway", text()),
        ("live", json!({ "type": "boolean" })),
        ("silent_ms", number()),
        ("in_force", revision()),
        ("oldest", revision()),
        ("refused", or_null(object(&[("revision", revision()), ("words", text())]))),
        ("replicas_total", number()),
        ("replicas_in_service", number()),
    ]);
    let mut shown = header();
    shown["properties"]["edits"] = list(with(&[("value", json!({}))]));
    shown["properties"]["next"] = or_null(text());
    let reason = || json!({ "type": "string", "maxLength": 1024 });
    let to = || or_null(json!({ "type": "integer", "minimum": 1, "maximum": i64::MAX }));
    for (name, schema) in [
        ("Problem", problem()),
        (
            "Done",
            object(&[
                ("revision", or_null(revision())),
                ("changes", list(change)),
                ("changes_total", number()),
                ("pending", list(pending)),
                ("warnings", list(text())),
            ]),
        ),
        ("Reverted", reverted()),
        ("Revision", shown),
        (
            "Revisions",
            object(&[
                ("head", revision()),
                ("desired", revision()),
                ("in_force", revision()),
                ("items", list(header())),
                ("next", or_null(text())),
            ]),
        ),
        (
            "Diff",
            object(&[("from", revision()), ("to", revision()), ("items", list(difference)), ("next", or_null(text()))]),
        ),
        ("Rollout", rollout()),
        ("Rollouts", object(&[("items", list(named("Rollout"))), ("next", or_null(text()))])),
        ("Nodes", object(&[("in_force", revision()), ("items", list(node))])),
        ("RolloutOptions", options()),
        (
            "Revert",
            asked(
                &[],
                &[
                    ("to", to()),
                    ("skip_gone", json!({ "type": "boolean", "default": false })),
                    ("reason", reason()),
                    ("options", named("RolloutOptions")),
                ],
            ),
        ),
        ("SteerRevert", asked(&[], &[("confirmed", json!({ "type": "boolean" }))])),
        ("RevokeToken", revoke_token()),
        ("RotateKeys", asked(&[], &[("at_once", json!({ "type": "boolean" }))])),
        ("State", state()),
    ] {
        all.insert(name.to_owned(), schema);
    }
    Json::Object(all)
}

/// What is not gone back to, and why.
fn gone() -> Json {
    list(object(&[("pin", text()), ("version", text()), ("reason", text())]))
}

fn reverted() -> Json {
    let cold = list(object(&[("pin", text()), ("version", text())]));
    let moved = object(&[
        ("pin", text()),
        ("in_force", or_null(text())),
        ("desired", or_null(text())),
        ("to", or_null(text())),
    ]);
    let own = object(&[
        ("to", revision()),
        ("moves", list(moved)),
        ("moves_total", number()),
        ("cold", cold),
        ("cold_total", number()),
        ("skipped", gone()),
        ("skipped_total", number()),
    ]);
    json!({ "allOf": [named("Done"), own] })
}

fn problem() -> Json {
    let mut schema = object(&[
        ("type", text()),
        ("title", text()),
        ("status", json!({ "type": "integer", "minimum": 400, "maximum": 599 })),
        ("detail", text()),
    ]);
    let fault = object(&[("path", text()), ("reason", text())]);
    schema["properties"]["code"] = text();
    schema["properties"]["faults"] = list(fault);
    schema["properties"]["gone"] = gone();
    schema["properties"]["gone_total"] = number();
    schema
}
