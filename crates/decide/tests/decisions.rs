//! The decision at its boundaries: facts in, version and reason out; and how one table becomes the next.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use holdfast_decide::{
    Ask, BuildError, ModelInput, PinChange, PoolInput, Reason, Refusal, Replayed, Snapshot, Split, TableInput,
    TenantInput, Unavailable, decide, explain, is_shadowed, replay,
};
use holdfast_types::{IdError, ModelName, PoolName, ReplicaName, Revision, TenantId, Version, Weight};

fn model(name: &str) -> ModelName {
    ModelName::parse(name).unwrap()
}

fn version(name: &str) -> Version {
    Version::parse(name).unwrap()
}

fn tenant(name: &str, subset: u8, pins: &[(&str, &str)], allow: &[(&str, &str)]) -> TenantInput {
    let pairs = |list: &[(&str, &str)]| list.iter().map(|(m, v)| (model(m), version(v))).collect();
    TenantInput {
        name: TenantId::parse(name).unwrap(),
        subset,
        unavailable: Unavailable::Wait,
        pins: pairs(pins),
        allow: pairs(allow),
    }
}

fn input(replicas: &[&str]) -> TableInput {
    let members = replicas.iter().map(|r| (ReplicaName::parse(r).unwrap(), Weight(1))).collect();
    let a_model = |name: &str, versions: &[&str]| ModelInput {
        name: model(name),
        pool: 0,
        idempotent: false,
        versions: versions.iter().map(|v| (version(v), Arc::from(format!("{name}-{v}")), Arc::from(""))).collect(),
    };
    TableInput {
        pools: vec![PoolInput { name: PoolName::parse("p").unwrap(), members }],
        models: vec![a_model("screen", &["1", "2", "3"]), a_model("fraud", &["1"])],
        tenants: vec![
            tenant("acme", 2, &[("screen", "1")], &[("screen", "2")]),
            tenant("globex", 1, &[("screen", "2"), ("fraud", "1")], &[("screen", "2")]),
            tenant("none", 1, &[], &[("screen", "3")]),
        ],
        ..TableInput::default()
    }
}

fn table() -> Snapshot {
    Snapshot::build(Revision(7), input(&["r1", "r2", "r3", "r4"])).unwrap()
}

#[test]
fn facts_to_decisions() {
    let table = table();
    let pin = |v| Ok((v, Reason::Pin));
    let explicit = |v| Ok((v, Reason::Explicit));
    type Row<'a> = (&'a str, &'a str, Option<&'a str>, Result<(&'a str, Reason), Refusal>);
    let rows: [Row<'_>; 24] = [
        ("acme", "screen", None, pin("1")),
        ("globex", "screen", None, pin("2")),
        ("globex", "fraud", None, pin("1")),
        ("acme", "screen", Some("1"), explicit("1")),
        ("acme", "screen", Some("2"), explicit("2")),
        ("globex", "screen", Some("2"), explicit("2")),
        ("none", "screen", Some("3"), explicit("3")),
        ("acme", "screen", Some("3"), Err(Refusal::VersionNotAllowed)),
        ("globex", "screen", Some("1"), Err(Refusal::VersionNotAllowed)),
        ("acme", "screen", Some("999"), Err(Refusal::VersionNotAllowed)),
        ("acme", "screen", Some("latest"), Err(Refusal::BadVersion(IdError::Latest))),
        ("acme", "screen", Some("LATEST"), Err(Refusal::BadVersion(IdError::Latest))),
        ("acme", "screen", Some(""), Err(Refusal::BadVersion(IdError::Empty))),
        ("acme", "screen", Some("1 "), Err(Refusal::BadVersion(IdError::BadCharacter(' ')))),
        ("acme", "fraud", None, Err(Refusal::NotPinned)),
        ("acme", "fraud", Some("1"), Err(Refusal::VersionNotAllowed)),
        ("none", "screen", None, Err(Refusal::NotPinned)),
        ("acme", "nothing", None, Err(Refusal::UnknownModel)),
        ("acme", "Screen", None, Err(Refusal::UnknownModel)),
        ("acme", "", None, Err(Refusal::BadModel(IdError::Empty))),
        ("acme", "a/b", None, Err(Refusal::BadModel(IdError::BadCharacter('/')))),
        ("Acme", "screen", None, Err(Refusal::UnknownTenant)),
        ("", "screen", None, Err(Refusal::UnknownTenant)),
        ("nobody", "nothing", Some("latest"), Err(Refusal::UnknownTenant)),
    ];
    for (tenant, model, version, want) in rows {
        let decided = decide(&table, &Ask { tenant, model, version, submission: b"" });
        let got = decided.map(|d| (d.route.version.as_str(), d.reason));
        assert_eq!(got, want, "{tenant} {model} {version:?}");
        if let Ok(decision) = decided {
            assert_eq!((decision.revision, &*decision.route.upstream_version), (Revision(7), ""));
            assert_eq!(&*decision.route.upstream_model, format!("{model}-{}", decision.route.version));
        }
        let (steps, explained) = explain(&table, &Ask { tenant, model, version, submission: b"" });
        assert_eq!(explained.map(|d| d.route.version.as_str()), want.map(|(v, _)| v));
        assert!(!steps.is_empty());
    }
}

/// A submission that was resolved before goes to that version, whatever is pinned or allowed now, or nowhere.
#[test]
fn a_replay_looks_at_no_pin() {
    let table = table();
    let way = |tenant: &str, model: &str, version: &str| {
        replay(&table, tenant, model, version).map(|found| match found {
            Replayed::Kept(route) => (route.version.to_string(), true),
            Replayed::Made(tenant, model, version) => {
                let route = table.route_for(tenant, model, version);
                assert_eq!(&*route.upstream_model, format!("{}-{}", model.name, route.version));
                (route.version.to_string(), false)
            }
        })
    };
    assert_eq!(way("acme", "screen", "1"), Ok(("1".to_owned(), true)), "the pin");
    assert_eq!(way("acme", "screen", "2"), Ok(("2".to_owned(), true)), "one that may be named");
    assert_eq!(way("acme", "screen", "3"), Ok(("3".to_owned(), false)), "neither");
    assert_eq!(way("none", "fraud", "1"), Ok(("1".to_owned(), false)));
    assert_eq!(way("acme", "screen", "4"), Err(Refusal::VersionGone));
    assert_eq!(way("acme", "nothing", "1"), Err(Refusal::UnknownModel));
    assert_eq!(way("nobody", "screen", "1"), Err(Refusal::UnknownTenant));
}

#[test]
fn no_refusal_names_a_version() {
    let all = [
        Refusal::UnknownTenant,
        Refusal::BadModel(IdError::Empty),
        Refusal::BadVersion(IdError::Latest),
        Refusal::UnknownModel,
        Refusal::NotPinned,
        Refusal::VersionNotAllowed,
        Refusal::VersionGone,
    ];
    let statuses = all.map(|r| r.failure().http_status());
    assert_eq!(statuses, [403, 400, 400, 404, 404, 403, 503]);
    for refusal in all {
        assert!(!refusal.failure().detail.contains(|c: char| c.is_ascii_digit()), "{refusal:?}");
    }
}

#[test]
fn a_route_has_the_subset_and_spares_and_every_part_of_the_key_moves_it() {
    let names: Vec<String> = (0..40).map(|i| format!("r{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let table = Snapshot::build(Revision(1), input(&names)).unwrap();
    let route = |tenant, version| {
        let ask = Ask { tenant, model: "screen", version: Some(version), submission: b"" };
        decide(&table, &ask).map(|d| d.route.clone()).unwrap()
    };
    let first = route("acme", "1");
    assert_eq!((first.subset, first.order.len()), (2, 16));
    assert_ne!(first.order, route("acme", "2").order, "another version is another key");
    assert_ne!(route("acme", "2").order[..4], route("globex", "2").order[..4], "another tenant is another key");
    let again = Snapshot::build(Revision(9), input(&names.iter().rev().copied().collect::<Vec<_>>())).unwrap();
    let ask = Ask { tenant: "acme", model: "screen", version: None, submission: b"" };
    assert_eq!(decide(&again, &ask).unwrap().route.order, first.order, "the order of listing changes nothing");
}

#[test]
fn a_changed_pin_is_the_next_table_and_touches_nothing_else() {
    let old = table();
    let ask = |tenant| Ask { tenant, model: "screen", version: None, submission: b"" };
    let kept = decide(&old, &ask("globex")).unwrap().route.clone();
    let change =
        |v: &str| PinChange { tenant: TenantId::parse("acme").unwrap(), model: model("screen"), version: version(v) };
    let new = old.with_pins(Revision(8), &[change("2")]).unwrap();
    let seen =
        |table: &Snapshot| decide(table, &ask("acme")).map(|d| (d.route.version.to_string(), d.revision)).unwrap();
    assert_eq!(seen(&old), ("1".into(), Revision(7)), "who holds the old table sees the old pin");
    assert_eq!(seen(&new), ("2".into(), Revision(8)));
    assert!(Arc::ptr_eq(&kept, decide(&new, &ask("globex")).unwrap().route), "other routes are shared");
    let named = |table: &Snapshot, v| decide(table, &Ask { version: Some(v), ..ask("acme") }).map(|d| d.reason);
    assert_eq!(named(&new, "1"), Err(Refusal::VersionNotAllowed), "the old pin was allowed only as the pin");
    let back = new.with_pins(Revision(9), &[change("1")]).unwrap();
    assert_eq!(named(&back, "2"), Ok(Reason::Explicit), "what is allowed on its own stays allowed");
    let missing = old.with_pins(Revision(8), &[change("99")]);
    assert!(matches!(missing, Err(BuildError::NoVersion(..))));
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let twice = input(&["r1", "r1"]);
    assert!(matches!(Snapshot::build(Revision(1), twice), Err(BuildError::Members(_))));
    let mut no_pool = input(&["r1"]);
    no_pool.models[0].pool = 5;
    assert!(matches!(Snapshot::build(Revision(1), no_pool), Err(BuildError::NoPool(_))));
    let mut dangling = input(&["r1"]);
    dangling.tenants.push(tenant("x", 1, &[("screen", "77")], &[]));
    assert!(matches!(Snapshot::build(Revision(1), dangling), Err(BuildError::NoVersion(..))));
}

#[test]
fn a_split_pin_sends_its_share_elsewhere_and_a_growing_one_keeps_whom_it_had() {
    let (tenant, model) = (TenantId::parse("acme").unwrap(), ModelName::parse("screen").unwrap());
    let version = |v| Version::parse(v).unwrap();
    let table = table();
    let split = |percent| {
        let split = Split { tenant: tenant.clone(), model: model.clone(), version: version("2"), percent };
        table.with_splits(&[split]).unwrap()
    };
    let to_new = |table: &Snapshot| -> Vec<bool> {
        let ids: Vec<String> = (0..4_000).map(|n| format!("order-{n}")).collect();
        let new = |id: &String| {
            let ask = Ask { tenant: "acme", model: "screen", version: None, submission: id.as_bytes() };
            decide(table, &ask).unwrap().route.version == version("2")
        };
        ids.iter().map(new).collect()
    };
    let mut before = to_new(&split(0));
    assert!(before.iter().all(|new| !new));
    for percent in [1, 10, 50, 99] {
        let now = to_new(&split(percent));
        let share = now.iter().filter(|new| **new).count() * 100 / 4_000;
        assert!(share.abs_diff(usize::from(percent)) <= 2, "{share} of {percent}");
        assert!(before.iter().zip(&now).all(|(before, now)| *now || !before), "who was in it stays in it");
        before = now;
    }
    let table = split(10);
    let entry = table.tenant("acme").unwrap();
    assert_eq!(
        table.splits(entry).map(|(m, v, p)| (m.name.as_str(), v.version.as_str(), p)).collect::<Vec<_>>(),
        [("screen", "2", 10)]
    );
    assert_eq!(
        table.pins(entry).filter(|(m, _)| m.name == model).map(|(_, v)| v.version.as_str()).collect::<Vec<_>>(),
        ["1"]
    );
    // The whole ends the split, and so does nothing.
    let change = PinChange { tenant: tenant.clone(), model: model.clone(), version: version("2") };
    let whole = table.with_pins(Revision(9), &[change]).unwrap();
    assert!(to_new(&whole).iter().all(|new| *new) && whole.splits(whole.tenant("acme").unwrap()).next().is_none());
    let back = Split { tenant, model, version: version("2"), percent: 0 };
    let none = table.with_splits(&[back]).unwrap();
    assert!(to_new(&none).iter().all(|new| !new) && none.splits(none.tenant("acme").unwrap()).next().is_none());
}

#[test]
fn a_share_of_the_submissions_is_copied_always_the_same_ones() {
    let ids: Vec<String> = (0..20_000).map(|n| format!("order-{n}")).collect();
    let copied = |tenant: &str, model: &str, share| -> Vec<bool> {
        ids.iter().map(|id| is_shadowed(tenant, model, id.as_bytes(), share)).collect()
    };
    let mut before = copied("acme", "screen", 0);
    assert!(before.iter().all(|copied| !copied));
    for share in [1, 10, 250, 999, 1000] {
        let now = copied("acme", "screen", share);
        let seen = now.iter().filter(|copied| **copied).count() * 1000 / ids.len();
        assert!(seen.abs_diff(usize::from(share)) <= 10, "{seen} of {share}");
        assert!(before.iter().zip(&now).all(|(before, now)| *now || !before), "who was in it stays in it");
        before = now;
    }
    assert!(before.iter().all(|copied| *copied), "all of a thousand are all");
    let half = copied("acme", "screen", 500);
    for other in [copied("globex", "screen", 500), copied("acme", "rank", 500)] {
        let same = half.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(same.abs_diff(ids.len() / 2) < ids.len() / 20, "{same}: other keys choose on their own");
    }
    // A split and a copy choose on their own, too: half of those that a split sends elsewhere are copied, and half of the others.
    let split =
        Split { tenant: TenantId::parse("acme").unwrap(), model: model("screen"), version: version("2"), percent: 50 };
    let table = table().with_splits(&[split]).unwrap();
    let elsewhere = |id: &String| {
        let ask = Ask { tenant: "acme", model: "screen", version: None, submission: id.as_bytes() };
        decide(&table, &ask).unwrap().route.version == version("2")
    };
    let both = ids.iter().zip(&half).filter(|(id, copied)| **copied && elsewhere(id)).count();
    assert!(both.abs_diff(ids.len() / 4) < ids.len() / 40, "{both}");
}

#[test]
fn a_pin_that_moves_leaves_the_splits_of_other_models_alone() {
    let split = Split {
        tenant: TenantId::parse("globex").unwrap(),
        model: model("screen"),
        version: version("3"),
        percent: 20,
    };
    let table = table().with_splits(&[split]).unwrap();
    let change = PinChange { tenant: TenantId::parse("globex").unwrap(), model: model("fraud"), version: version("1") };
    let next = table.with_pins(Revision(8), &[change]).unwrap();
    let splits = next.splits(next.tenant("globex").unwrap()).map(|(m, v, p)| (m.name.as_str(), v.version.as_str(), p));
    assert_eq!(splits.collect::<Vec<_>>(), [("screen", "3", 20)]);
}
