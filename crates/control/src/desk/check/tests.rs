//! What is refused, and by which names it is told.

use std::sync::Arc;

use super::*;
use holdfast_config::{Frame, ResourceKind::*, split};
use serde_json::json;

const TEXT: &str = "
auth: { trusted_header: x-tenant }
pools:
  - { name: p, protocol: open-inference, residency: repository, replicas: [{ name: r, url: 'http://127.0.0.1:1' }] }
models:
  - { name: m, pool: p, versions: [{ version: '1', size: 1 }, { version: '2', size: 1 }] }
tenants:
  - { name: acme, pins: { m: '1' } }
  - { name: bolt }
";

fn good() -> (Frame, Resources) {
    let split = split(&Source::text("c.yaml", TEXT)).unwrap();
    (Frame::new(split.rest), split.resources)
}

fn faults(kind: ResourceKind, name: &str, content: Json) -> Vec<String> {
    let (frame, mut resources) = good();
    resources.insert((kind, name.to_owned()), content);
    check(&frame, &resources, Files::None).map(|_| ()).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn what_a_configuration_would_refuse_is_told_by_names() {
    let (frame, resources) = good();
    assert_eq!(check(&frame, &resources, Files::None).map(|c| c.warnings).unwrap_or_else(|f| panic!("{f:?}")), "");
    let table: [(ResourceKind, &str, Json, &str); 9] = [
        (Pin, "acme/m", json!("9"), r#"tenants[acme].pins.m: model "m" has no version "9"; the nearest is "2""#),
        (Pin, "bolt/k", json!("1"), r#"tenants[bolt].pins.k: there is no model "k"; the nearest is "m""#),
        (Pin, "acme/m", json!("latest"), "latest"),
        (Model, "n", json!({ "pool": "p" }), "models[n].versions: is missing"),
        (Model, "m", json!({ "pool": "q" }), r#"models[m].pool: there is no pool "q""#),
        (Version, "m/3", json!({}), "models[m].versions[3].size: is missing"),
        (Replica, "p/s", json!({ "url": "http://127.0.0.1:1" }), "pools[p].replicas[s]"),
        (Replica, "p/s", json!({ "url": "http://127.0.0.1:1" }), "pools[p].replicas[r]"),
        (Tenant, "ACME", json!({}), "differs only in case from"),
    ];
    for (kind, name, content, want) in table {
        let told = faults(kind, name, content);
        assert!(told.iter().any(|fault| fault.contains(want)), "{name}: {told:?} has no {want}");
    }
}

#[test]
fn what_cannot_be_put_together_is_refused_and_not_left_out() {
    let version = "the content of a pin is a version, in quotes";
    let table: [(ResourceKind, &str, Json, &str); 13] = [
        (Pin, "nobody/m", json!("1"), r#"pin nobody/m: there is no tenant "nobody""#),
        (Version, "k/1", json!({ "size": 1 }), r#"version k/1: there is no model "k""#),
        (Replica, "q/r", json!({ "url": "http://127.0.0.1:2" }), r#"replica q/r: there is no pool "q""#),
        (Pin, "acme/m", json!(1), version),
        (Pin, "acme/m", json!({ "version": "1" }), version),
        (Pin, "acme", json!("1"), "the name of a pin is its owner's and its own with a '/' between"),
        (Pin, "acme/m/x", json!("1"), "the name of a pin is its owner's and its own"),
        (Tenant, "a/b", json!({}), "the name of a tenant has no '/'"),
        (Tenant, "acme", json!("x"), "the content of a tenant is an object"),
        (
            Tenant,
            "acme",
            json!({ "pins": { "m": "2" } }),
            r#"tenant acme: has "pins"; each pin is a resource of its own"#,
        ),
        (
            Model,
            "m",
            json!({ "pool": "p", "versions": [] }),
            r#"has "versions"; each version is a resource of its own"#,
        ),
        (Tenant, "acme", json!({ "name": "bolt" }), r#"has "name", which its name says"#),
        (Version, "m/1", json!({ "size": 1, "version": "2" }), r#"has "version", which its name says"#),
    ];
    for (kind, name, content, want) in table {
        let told = faults(kind, name, content);
        assert!(told.iter().any(|fault| fault.contains(want)), "{name}: {told:?} has no {want}");
    }
}

#[test]
fn only_a_file_may_name_files() {
    let (mut frame, mut resources) = good();
    frame.read_file = Arc::new(|_| Ok(b"{\"a\": 1}".to_vec()));
    let golden = json!({ "size": 1, "golden": [{ "input": "/etc/secret.json", "output": { "a": 1 } }] });
    resources.insert((Version, "m/1".to_owned()), golden);
    let config =
        check(&frame, &resources, Files::Read).map(|checked| checked.config).unwrap_or_else(|f| panic!("{f:?}"));
    assert_eq!(config.models[0].versions[0].golden[0].input, json!({ "a": 1 }));
    let refused = check(&frame, &resources, Files::None).map(|_| ()).unwrap_err();
    assert_eq!(refused[0].path, "models[m].versions[1].golden[0].input");
    assert!(refused[0].reason.contains("only a configuration file may name files"), "{refused:?}");
}
