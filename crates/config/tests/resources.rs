//! A configuration taken apart and put together again.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use holdfast_config::{Config, ResourceKind, Source, Split, assemble, load, split};
use proptest::prelude::*;
use serde_json::json;
use support::GOOD;

fn apart(text: &str) -> Split {
    split(&Source::text("test.yaml", text)).unwrap()
}

fn together(split: &Split) -> Config {
    let text = assemble(&split.rest, &split.resources);
    load(&Source::text("assembled", &text)).unwrap_or_else(|faults| panic!("{faults}\n{text}")).config
}

/// The order in which things are listed decides nothing.
fn sorted(mut config: Config) -> Config {
    config.pools.sort_by(|a, b| a.name.cmp(&b.name));
    config.pools.iter_mut().for_each(|pool| pool.replicas.sort_by(|a, b| a.name.cmp(&b.name)));
    config.models.sort_by(|a, b| a.name.cmp(&b.name));
    config.models.iter_mut().for_each(|model| model.versions.sort_by(|a, b| a.version.cmp(&b.version)));
    config.tenants.sort_by(|a, b| a.name.cmp(&b.name));
    config
}

#[test]
fn each_resource_has_its_name_and_no_more_than_the_file_says() {
    let split = apart(GOOD);
    let names: Vec<String> = split.resources.keys().map(|(kind, name)| format!("{} {name}", kind.as_str())).collect();
    assert_eq!(
        names,
        [
            "pool fixed",
            "pool screening",
            "replica fixed/s1",
            "replica screening/r1",
            "replica screening/r2",
            "model rank",
            "model screen",
            "version rank/a",
            "version screen/1",
            "version screen/2",
            "tenant acme",
            "tenant globex",
            "pin acme/screen",
            "pin globex/rank",
        ]
    );
    let content = |kind, name: &str| split.resources[&(kind, name.to_owned())].clone();
    assert_eq!(content(ResourceKind::Pin, "acme/screen"), "1");
    assert_eq!(content(ResourceKind::Tenant, "acme"), json!({"subset": 2, "allow": {"screen": ["2"]}}));
    assert_eq!(
        content(ResourceKind::Replica, "screening/r2"),
        json!({"url": "http://127.0.0.1:9002", "memory": "24GiB", "weight": 0})
    );
    assert!(split.rest.get("limits").is_some() && split.rest.get("pools").is_none(), "{}", split.rest);
}

#[test]
fn what_is_put_together_is_what_was_taken_apart() {
    let split = apart(GOOD);
    assert_eq!(sorted(together(&split)), sorted(split.loaded.config.clone()));
    let again = apart(&assemble(&split.rest, &split.resources));
    assert_eq!((again.resources, again.rest), (split.resources, split.rest));
}

#[test]
fn parts_without_their_owner_are_left_out() {
    let mut split = apart(GOOD);
    split.resources.retain(|(kind, name), _| (*kind, name.as_str()) != (ResourceKind::Tenant, "globex"));
    let config = together(&split);
    assert_eq!(config.tenants.len(), 1);
}

#[test]
fn kinds_have_words() {
    for kind in ResourceKind::ALL {
        assert_eq!(ResourceKind::parse(kind.as_str()), Some(kind));
    }
    assert_eq!(ResourceKind::parse("Pool"), None);
}

proptest! {
    /// Names that look like numbers or flags, and what is quoted, stay what they are.
    #[test]
    fn names_of_all_forms_survive(versions in prop::collection::btree_set("[a-z0-9][a-z0-9._-]{0,8}", 1..6), tenant in "[a-z0-9][a-z0-9._-]{0,8}") {
        prop_assume!(versions.iter().all(|v| !v.eq_ignore_ascii_case("latest")));
        let rows: Vec<String> = versions.iter().map(|v| format!("{{ version: \"{v}\", size: 1GiB }}")).collect();
        let first = versions.first().unwrap();
        let text = format!(
            "pools: [{{ name: p, protocol: open-inference, residency: repository, replicas: [{{ name: r, url: \"http://127.0.0.1:1\" }}] }}]\n\
             models: [{{ name: m, pool: p, versions: [{}] }}]\ntenants: [{{ name: \"{tenant}\", pins: {{ m: \"{first}\" }} }}]\n",
            rows.join(", ")
        );
        let split = apart(&text);
        prop_assert_eq!(sorted(together(&split)), sorted(split.loaded.config));
    }
}

#[test]
fn what_the_environment_overrides_is_taken_apart_as_overridden() {
    let text = "pools:\n- {name: b, protocol: open-inference, residency: static, replicas: [{name: r, url: \"http://127.0.0.1:1\", holds: []}]}\n\
                - {name: a, protocol: open-inference, residency: static, replicas: [{name: r, url: \"http://127.0.0.1:2\", holds: []}]}\n\
                models:\n- {name: m, pool: b, versions: [{version: x}]}\n\
                tenants:\n- {name: t, pins: {m: x}}\n";
    let environment: Vec<_> = [
        ("POOLS__0__REPLICAS__0__URL", "http://127.0.0.1:9"),
        ("POOLS__0__REPLICAS__0__WEIGHT", "3"),
        ("MODELS__0__VERSIONS__0__VERSION", "7"),
        ("TENANTS__0__PINS__M", "7"),
        ("LIMITS__BODY", "1MiB"),
        ("LIMITS__WAITING", "5"),
    ]
    .map(|(name, value)| (format!("HOLDFAST__{name}"), value.to_owned()))
    .into();
    let source = Source { environment: &environment, ..Source::text("test.yaml", text) };
    let taken = split(&source).unwrap();
    let again = load(&Source::text("again", &assemble(&taken.rest, &taken.resources))).unwrap().config;
    let (mut wanted, mut got) = (taken.loaded.config, again);
    wanted.pools.sort_by(|a, b| a.name.cmp(&b.name));
    got.pools.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(got, wanted);
    assert_eq!(
        got.pools[1].replicas[0].endpoint.to_string(),
        "127.0.0.1:9",
        "the first in the file, not in the alphabet"
    );
}
