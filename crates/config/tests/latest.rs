//! `latest` names no version, wherever a version is named.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use holdfast_config::{Source, load};
use support::good_but;

/// Writes a version in its place.
type Place = Box<dyn Fn(&str) -> String>;

#[test]
fn latest_is_refused_wherever_a_version_is_named() {
    let rules = |version: &str| {
        let target = "target: [{ field: \"header:x-client\", begins: beta/ }]";
        format!(
            "subset: 2, rules: [{{ name: beta, model: screen, version: {version}, {target} }}], pins: {{ screen: \"1\" }}, allow"
        )
    };
    let pins = r#"subset: 2, pins: { screen: "1" }, allow"#;
    let places: [(&str, Place, &str); 6] = [
        (
            r#"allow: { screen: ["2"] }"#,
            Box::new(|v| format!("allow: {{ screen: [{v}] }}")),
            "tenants[0].allow.screen[0]",
        ),
        (
            r#"allow: { screen: ["2"] }"#,
            Box::new(|v| format!("allow: {{ screen: [\"2\", {v}] }}")),
            "tenants[0].allow.screen[1]",
        ),
        (
            "model: rank, version: a",
            Box::new(|v| format!("model: rank, version: {v}")),
            "pools[1].replicas[0].holds[0].version",
        ),
        (
            "versions: [{ version: a }]",
            Box::new(|v| format!("versions: [{{ version: {v} }}]")),
            "models[1].versions[0].version",
        ),
        ("pins: { rank: a }", Box::new(|v| format!("pins: {{ rank: {v} }}")), "tenants[1].pins.rank"),
        (pins, Box::new(rules), "tenants[0].rules[0].version"),
    ];
    for (from, to, path) in &places {
        for latest in ["latest", "Latest", "LATEST", "\"latest\""] {
            let text = good_but(from, &to(latest));
            let faults = load(&Source::text("t.yaml", &text)).err().unwrap_or_else(|| panic!("{path} {latest}"));
            let fault = faults.listed.iter().find(|fault| fault.path == *path);
            let fault = fault.unwrap_or_else(|| panic!("{path} {latest}: {faults}"));
            assert!(fault.reason.contains("names no immutable version"), "{path} {latest}: {fault}");
        }
    }
    // The same places take the name of a version.
    let text = good_but(pins, &(places[5].1)("\"2\""));
    assert!(load(&Source::text("t.yaml", &text)).is_ok());
}
