//! The OpenAPI document, made from the table of routes, so that it cannot name a path that is not there or leave one out.
//!
//! What the gateway itself answers on the same port is in it too: whoever reads it sees one port.

use std::sync::LazyLock;

use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value as Json, json};

use holdfast_config::ResourceKind;

use super::routes::{Op, ROUTES, Route, Steer, Takes};
use super::schemas;

/// The gateway's own resources: path, query, type of the answer, summary.
const GATEWAY: [(&str, &[&str], &str, &str); 13] = [
    ("/livez", &[], "application/json", "Whether the process lives"),
    ("/readyz", &["verbose"], "application/json", "Whether the gateway serves"),
    ("/healthz", &[], "application/json", "The same as /livez"),
    ("/metrics", &[], "text/plain", "Metrics, as Prometheus text"),
    ("/v1/table", &["limit", "after"], "application/json", "The table in force in this process"),
    ("/v1/replicas", &[], "application/json", "Replicas as this process sees them"),
    ("/v1/alarms", &[], "application/json", "The last alarms"),
    ("/v1/usage", &["limit", "after"], "application/json", "Usage by tenant"),
    ("/v1/limits", &["tenant", "limit", "after"], "application/json", "Limits and what is used of them"),
    (
        "/v1/explain",
        &["tenant", "model", "version", "route", "header"],
        "application/json",
        "What a request would get, and why",
    ),
    ("/v1/receipts", &["tenant", "limit"], "application/json", "What was decided for the last requests, newest first"),
    ("/v1/shadows", &["rollout"], "application/json", "What copied traffic of a roll-out has shown at this gateway"),
    ("/v1/receipts/{id}", &[], "application/json", "What was decided for one of the last requests"),
];
/// What is there beside the table of routes and the gateway's own resources.
const BACKUP: &str = "/v1/backup";

static TEXT: LazyLock<Bytes> = LazyLock::new(|| document().to_string().into());

/// The document as text.
pub(super) fn text() -> Bytes {
    TEXT.clone()
}

/// The document.
#[must_use]
pub fn document() -> Json {
    let mut paths = Map::new();
    for route in &ROUTES {
        put(&mut paths, route.path, &route.method, operation(route));
    }
    for (path, query, kind, summary) in GATEWAY {
        put(&mut paths, path, &Method::GET, of_gateway(path, query, kind, summary));
    }
    put(&mut paths, BACKUP, &Method::POST, backup());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast admin API", "version": env!("CARGO_PKG_VERSION"), "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "The truth of the routing table, its history, roll-outs and gateways. See docs/api.md.",
        },
        "servers": [{ "url": "/" }],
        "security": [{ "bearer": [] }, {}],
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
            "responses": { "Problem": {
                "description": "A refusal, as problem details (RFC 9457)",
                "content": { "application/problem+json": { "schema": reference("Problem") } },
            } },
        },
    })
}

fn put(paths: &mut Map<String, Json>, path: &str, method: &Method, operation: Json) {
    let item = paths.entry(path).or_insert_with(|| json!({}));
    if let Some(item) = item.as_object_mut() {
        item.insert(method.as_str().to_ascii_lowercase(), operation);
    }
}

fn reference(schema: &str) -> Json {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

fn of_gateway(path: &str, query: &[&str], kind: &str, summary: &str) -> Json {
    let schema = if kind == "text/plain" { json!({ "type": "string" }) } else { json!({}) };
    // A path that ends in a parameter shows one of what is before it.
    let name = match path.rsplit('/').next().unwrap_or_default() {
        "{id}" => "receipt",
        name => name,
    };
    let needs = |name: &str| path == "/v1/explain" && name == "model";
    let text = || json!({ "type": "string" });
    let in_query = |name: &&str| json!({ "name": name, "in": "query", "required": needs(name), "schema": text() });
    let mut parameters: Vec<Json> = query.iter().map(in_query).collect();
    if path.ends_with("{id}") {
        parameters.push(json!({ "name": "id", "in": "path", "required": true, "schema": text() }));
    }
    json!({
        "operationId": format!("gateway_{name}"), "summary": summary, "tags": ["gateway"], "parameters": parameters,
        "responses": {
            "200": { "description": "Done", "content": { kind: { "schema": schema } } },
            "default": { "$ref": "#/components/responses/Problem" },
        },
    })
}

fn backup() -> Json {
    let problem = || json!({ "$ref": "#/components/responses/Problem" });
    json!({
        "operationId": "backup", "summary": "A backup of the table, its history and the records of roll-outs", "tags": ["backup"],
        "description": "Needs the role admin. One at a time.", "parameters": [],
        "responses": {
            "200": { "description": "Done", "content": { "application/octet-stream": { "schema": { "type": "string", "format": "binary" } } } },
            "401": problem(), "403": problem(), "default": problem(),
        },
    })
}

fn operation(route: &Route) -> Json {
    let mut told = json!({
        "operationId": id(route), "summary": route.summary, "tags": [tag(route.op)],
        "description": format!("Needs the role {}.", route.role.as_str()),
        "x-role": route.role.as_str(), "parameters": parameters(route), "responses": responses(route),
    });
    if let (Some(body), Some(told)) = (body(route), told.as_object_mut()) {
        told.insert("requestBody".to_owned(), body);
    }
    told
}

fn id(route: &Route) -> String {
    let word = |kind: ResourceKind| kind.as_str();
    match route.op {
        Op::Document => "openapi".to_owned(),
        // Replicas are listed for each pool.
        Op::List(kind) => format!("list_{}s", word(kind)),
        Op::Get(kind) => format!("get_{}", word(kind)),
        Op::Put(kind) => format!("put_{}", word(kind)),
        Op::Delete(kind) => format!("delete_{}", word(kind)),
        Op::Apply => "apply".to_owned(),
        Op::Revert => "revert".to_owned(),
        Op::Revisions => "list_revisions".to_owned(),
        Op::Revision => "get_revision".to_owned(),
        Op::Diff => "diff".to_owned(),
        Op::Rollouts => "list_rollouts".to_owned(),
        Op::Rollout => "get_rollout".to_owned(),
        Op::Events => "follow_rollout".to_owned(),
        Op::Steer(Steer::Abort) => "abort_rollout".to_owned(),
        Op::Steer(Steer::Pause) => "pause_rollout".to_owned(),
        Op::Steer(Steer::Resume) => "resume_rollout".to_owned(),
        Op::Steer(Steer::Revert) => "revert_rollout".to_owned(),
        Op::Nodes => "list_nodes".to_owned(),
        Op::RevokeToken => "revoke_token".to_owned(),
        Op::RotateKeys => "rotate_token_keys".to_owned(),
    }
}

const fn tag(op: Op) -> &'static str {
    match op {
        Op::Document => "document",
        Op::List(kind) | Op::Get(kind) | Op::Put(kind) | Op::Delete(kind) => kind.as_str(),
        Op::Apply | Op::Revert | Op::Revisions | Op::Revision | Op::Diff => "revision",
        Op::Rollouts | Op::Rollout | Op::Events | Op::Steer(_) => "rollout",
        Op::Nodes => "node",
        Op::RevokeToken | Op::RotateKeys => "token",
    }
}

fn parameters(route: &Route) -> Json {
    let names = route.path.split('/').filter_map(|p| p.strip_prefix('{')?.strip_suffix('}'));
    let mut all: Vec<Json> = names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": schemas::in_path(name) }))
        .collect();
    let needed = |name: &str| route.op == Op::Diff && matches!(name, "from" | "to");
    all.extend(route.query.iter().map(|name| {
        json!({ "name": name, "in": "query", "required": needed(name), "schema": schemas::in_query(route.op, name) })
    }));
    let header = |name: &str, words: &str, schema: Json| json!({ "name": name, "in": "header", "required": false, "description": words, "schema": schema });
    let tag = json!({ "type": "string", "pattern": "^(\\*|(W/)?\"[0-9]{1,19}\")$" });
    match route.op {
        Op::Get(_) => all.push(header("If-None-Match", "The revision that is known already", tag)),
        Op::Put(_) => {
            all.push(header("If-Match", "The revision that the change is made against, or * for any", tag));
            let star = json!({ "type": "string", "const": "*" });
            all.push(header("If-None-Match", "Only if it is not there yet", star));
        }
        Op::Delete(_) => {
            all.push(header("If-Match", "The revision that the change is made against, or * for any", tag));
        }
        Op::Apply | Op::Revert => {
            all.push(header("If-Match", "A revision: refused if what is desired has changed since", tag));
        }
        _ => {}
    }
    all.into()
}

fn body(route: &Route) -> Option<Json> {
    let schema = match route.op {
        Op::Put(ResourceKind::Pin) => reference("PutPin"),
        Op::Put(kind) => reference(&format!("Put{}", schemas::title(kind))),
        Op::Revert => reference("Revert"),
        Op::Steer(Steer::Revert) => reference("SteerRevert"),
        Op::Steer(_) => json!({ "type": "object", "additionalProperties": false }),
        Op::Apply => reference("State"),
        Op::RevokeToken => reference("RevokeToken"),
        Op::RotateKeys => reference("RotateKeys"),
        _ => return None,
    };
    let content = match route.takes {
        Takes::State => {
            json!({ "application/yaml": { "schema": schema }, "application/json": { "schema": schema } })
        }
        _ => json!({ "application/json": { "schema": schema } }),
    };
    Some(json!({ "required": route.takes != Takes::Maybe, "content": content }))
}

fn responses(route: &Route) -> Json {
    let (kind, schema) = match route.op {
        Op::Document => ("application/json", json!({ "type": "object" })),
        Op::List(of) => ("application/json", schemas::page(reference(schemas::title(of)))),
        Op::Get(of) => ("application/json", reference(schemas::title(of))),
        Op::Revert => ("application/json", reference("Reverted")),
        Op::Put(_) | Op::Delete(_) | Op::Apply => ("application/json", reference("Done")),
        Op::Revisions => ("application/json", reference("Revisions")),
        Op::Revision => ("application/json", reference("Revision")),
        Op::Diff => ("application/json", reference("Diff")),
        Op::Rollouts => ("application/json", reference("Rollouts")),
        Op::Rollout | Op::Steer(_) => ("application/json", reference("Rollout")),
        Op::Events => ("text/event-stream", json!({ "type": "string" })),
        Op::Nodes => ("application/json", reference("Nodes")),
        Op::RevokeToken | Op::RotateKeys => ("application/json", json!({ "type": "object" })),
    };
    let mut all = Map::new();
    let good = json!({ "description": "Done", "content": { kind: { "schema": schema } } });
    if matches!(route.op, Op::Put(_)) {
        all.insert("201".to_owned(), good.clone());
    }
    all.insert("200".to_owned(), good);
    if matches!(route.op, Op::Get(_)) {
        all.insert("304".to_owned(), json!({ "description": "Not changed" }));
    }
    for (status, _) in refusals(route) {
        all.insert(status.to_owned(), json!({ "$ref": "#/components/responses/Problem" }));
    }
    Json::Object(all)
}

/// What a request may be refused with.
fn refusals(route: &Route) -> impl Iterator<Item = (&'static str, bool)> {
    let named = route.path.contains('{')
        || matches!(route.op, Op::Diff | Op::Revert | Op::RevokeToken | Op::RotateKeys)
        || route.query.contains(&"at");
    let changes = route.method != Method::GET;
    let conditional = matches!(route.op, Op::Put(_) | Op::Delete(_) | Op::Apply | Op::Revert);
    let body = route.takes != Takes::Nothing;
    [
        ("400", true),
        ("401", true),
        ("403", true),
        ("404", named),
        ("406", true),
        ("408", body),
        ("409", changes),
        ("412", conditional),
        ("413", body),
        ("415", body),
        ("422", changes),
        ("429", route.op == Op::Events),
        ("500", true),
        ("503", true),
        ("504", changes),
    ]
    .into_iter()
    .filter(|(_, may)| *may)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_leads_somewhere_and_every_operation_has_its_name() {
        let document = document();
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(document.pointer(reference).is_some(), "{reference}");
        }
        let mut ids: Vec<&str> =
            text.split("\"operationId\":\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let all = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), all), (ROUTES.len() + GATEWAY.len() + 1, ROUTES.len() + GATEWAY.len() + 1));
    }

    #[test]
    fn what_the_port_answers_beside_the_table_of_routes_is_there() {
        let document = document();
        assert!(document.pointer("/paths/~1v1~1backup/post").is_some());
        let id = document.pointer("/paths/~1v1~1receipts~1{id}/get/parameters/0");
        assert_eq!(id.and_then(|id| id["in"].as_str()), Some("path"));
        assert!(document.pointer("/paths/~1v1~1receipts/get").is_some());
        let step = document.pointer("/components/schemas/RolloutOptions/properties/canary/items/properties/percent");
        assert_eq!(step.map(|step| (&step["minimum"], &step["maximum"])), Some((&1.into(), &99.into())));
    }

    #[test]
    fn names_in_paths_are_those_of_the_kind() {
        for route in &ROUTES {
            if let Op::Get(kind) | Op::Put(kind) | Op::Delete(kind) = route.op {
                let found: Vec<_> =
                    route.path.split('/').filter_map(|p| p.strip_prefix('{')?.strip_suffix('}')).collect();
                assert_eq!(found, super::super::render::parts(kind), "{}", route.path);
            }
        }
    }
}
