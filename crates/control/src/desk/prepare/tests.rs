//! Random changes and activations keep what the module promises; and what is refused for what else is in force.

use super::*;
use holdfast_config::Frame;
use holdfast_config::{Source, split};
use holdfast_plane::Edit;
use holdfast_store::{Head, Space};
use proptest::prelude::*;
use serde_json::json;

fn start(memory: &str) -> (Frame, Resources) {
    let text = format!(
        "auth: {{ trusted_header: x-tenant }}\npools:\n\
         \x20 - {{ name: p, protocol: open-inference, residency: repository, memory: {memory}, replicas: [{{ name: r, url: 'http://127.0.0.1:1', memory: 4GiB }}] }}\n\
         \x20 - {{ name: q, protocol: open-inference, residency: repository, replicas: [{{ name: r, url: 'http://127.0.0.1:2' }}] }}\n\
         models:\n\
         \x20 - {{ name: m, pool: p, versions: [{{ version: '1', size: 2GiB }}, {{ version: '2', size: 2GiB }}, {{ version: '3', size: 3GiB }}] }}\n\
         \x20 - {{ name: n, pool: q, versions: [{{ version: '1', size: 1 }}, {{ version: '2', size: 1 }}] }}\n\
         tenants:\n  - {{ name: a, pins: {{ m: '1' }} }}\n  - {{ name: b, pins: {{ m: '1', n: '1' }} }}\n  - {{ name: c }}\n"
    );
    let split = split(&Source::text("c.yaml", &text)).unwrap();
    (Frame::new(split.rest), split.resources)
}

fn put(kind: ResourceKind, name: &str, value: Json) -> Edit {
    Edit { kind, name: name.into(), value: Some(Arc::new(value)) }
}

fn gone(kind: ResourceKind, name: &str) -> Edit {
    Edit { kind, name: name.into(), value: None }
}

fn take(truth: &mut Truth, desired: &Entries, in_force: &Entries) {
    let edits = truth.desired.changes(desired).into_iter().map(|edit| (Space::Desired, edit));
    let edits: Vec<_> =
        edits.chain(truth.in_force.changes(in_force).into_iter().map(|e| (Space::InForce, e))).collect();
    truth.apply(edits, Head::default());
}

fn seeded(memory: &str) -> (Frame, Truth) {
    let (frame, resources) = start(memory);
    let mut truth = Truth::default();
    let first = prepare(&frame, &truth, &What::Whole(resources), &Retired::new(), Files::Read)
        .unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(first.desired, first.in_force, "nothing served before, so nothing is held back");
    take(&mut truth, &first.desired, &first.in_force);
    (frame, truth)
}

fn ask(frame: &Frame, truth: &Truth, edits: Vec<Edit>) -> Result<Prepared, String> {
    prepare(frame, truth, &What::Edits(edits), &Retired::new(), Files::None).map_err(|e| e.to_string())
}

fn change(frame: &Frame, truth: &mut Truth, edits: Vec<Edit>) -> Result<Vec<Pending>, String> {
    let prepared = ask(frame, truth, edits)?;
    take(truth, &prepared.desired, &prepared.in_force);
    Ok(prepared.pending)
}

/// What the module promises of every truth.
fn keeps_its_promises(frame: &Frame, truth: &Truth) {
    for (space, entries) in [("desired", &truth.desired), ("in force", &truth.in_force)] {
        check(frame, &entries.resources(), Files::None)
            .map(|_| ())
            .unwrap_or_else(|faults| panic!("{space}: {faults:?}"));
    }
    let mut on_the_way = 0;
    for (name, current) in truth.in_force.of_kind(Pin) {
        let version = format!("{}/{}", name.split_once('/').unwrap().1, current.as_str().unwrap());
        assert!(truth.in_force.get(Version, &version).is_some(), "{name} is at {version}");
        let wanted = truth.desired.get(Pin, name).unwrap_or_else(|| panic!("{name} was taken away"));
        on_the_way += usize::from(wanted != current);
        assert_eq!(truth.pending.contains_key(name), wanted != current, "{name}");
    }
    assert_eq!(truth.pending.len(), on_the_way);
    assert_eq!(truth.desired.of_kind(Split).count(), 0);
    for (name, value) in truth.in_force.of_kind(Split) {
        let version = plan::named_by(value).unwrap();
        let current = truth.in_force.get(Pin, name).unwrap_or_else(|| panic!("{name} is split and no pin"));
        assert!(current.as_str() != Some(version) && (1..=99).contains(&value["percent"].as_u64().unwrap()));
        let version = format!("{}/{version}", name.split_once('/').unwrap().1);
        assert!(truth.in_force.get(Version, &version).is_some(), "{name} is split to {version}");
    }
    let both = |kind| (truth.desired.of_kind(kind).count(), truth.in_force.of_kind(kind).count());
    for kind in [Pool, Replica, Model, Tenant, Pin] {
        assert_eq!(both(kind).0, both(kind).1, "{kind:?}");
    }
    for name in plan::kept(&truth.desired, &truth.in_force) {
        let (model, version) = name.split_once('/').unwrap();
        let names = |(pin, at): (&Arc<str>, &Arc<Json>)| {
            pin.ends_with(&format!("/{model}")) && plan::named_by(at) == Some(version)
        };
        let mut pins = truth.in_force.of_kind(Pin).chain(truth.in_force.of_kind(Split));
        assert!(pins.any(names), "{name} is kept for nothing");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Edits(Vec<Edit>),
    Activate(Vec<(usize, u8)>),
}

fn edit() -> impl Strategy<Value = Edit> {
    let pin = (0..4_usize, 0..2_usize, 0..5_usize).prop_map(|(t, m, v)| {
        let name = format!("{}/{}", ["a", "b", "c", "d"][t], ["m", "n"][m]);
        if v == 0 { gone(Pin, &name) } else { put(Pin, &name, json!(v.to_string())) }
    });
    let version = (0..2_usize, 1..5_u8, any::<bool>()).prop_map(|(m, v, there)| {
        let name = format!("{}/{v}", ["m", "n"][m]);
        if there { put(Version, &name, json!({ "size": 1 + u32::from(v) })) } else { gone(Version, &name) }
    });
    let tenant = (0..4_usize, 0..3_u8).prop_map(|(t, subset)| {
        let name = ["a", "b", "c", "d"][t];
        if subset == 0 { gone(Tenant, name) } else { put(Tenant, name, json!({ "subset": subset })) }
    });
    let model =
        (0..2_usize, 0..2_usize).prop_map(|(m, p)| put(Model, ["m", "n"][m], json!({ "pool": (["p", "q"][p]) })));
    prop_oneof![6 => pin, 3 => version, 2 => tenant, 1 => model]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => prop::collection::vec(edit(), 1..4).prop_map(Step::Edits),
        1 => prop::collection::vec((0..8_usize, prop_oneof![Just(0), 1..100_u8, Just(100)]), 1..3).prop_map(Step::Activate),
    ]
}

/// The same change by way of everything.
fn by_the_whole(frame: &Frame, truth: &Truth, edits: &[Edit]) -> Result<Prepared, DeskError> {
    whole(frame, truth, edited(&truth.desired, edits)?, &Retired::new(), Files::None)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]
    #[test]
    fn changes_and_activations_keep_the_promises(steps in prop::collection::vec(step(), 1..16)) {
        let (frame, mut truth) = seeded("overcommit");
        for step in steps {
            match step {
                Step::Edits(edits) => {
                    let whole = edited(&truth.desired, &edits).and_then(|_| by_the_whole(&frame, &truth, &edits));
                    let Ok(prepared) = ask(&frame, &truth, edits.clone()) else {
                        prop_assert!(whole.is_err(), "only the quick way refuses {edits:?}");
                        continue;
                    };
                    let whole = whole.map_err(|e| TestCaseError::fail(format!("the quick way takes {edits:?}: {e}")))?;
                    prop_assert_eq!(&whole.in_force, &prepared.in_force);
                    prop_assert_eq!((&whole.changes, &whole.pending), (&prepared.changes, &prepared.pending));
                    take(&mut truth, &prepared.desired, &prepared.in_force);
                    // What was asked is what is desired.
                    for Edit { kind, name, value } in edits {
                        prop_assert_eq!(truth.desired.get(kind, &name), value.as_ref());
                    }
                }
                Step::Activate(which) => {
                    let all: Vec<(Arc<str>, Arc<str>)> = truth
                        .pending.iter().map(|(pin, to)| (pin.clone(), Arc::from(to.to.as_str()))).collect();
                    let mut moves = BTreeMap::new();
                    for (n, share) in which {
                        let Some((pin, to)) = all.get(n).cloned() else { continue };
                        let current = truth.in_force.get(Pin, &pin).unwrap().as_str().unwrap();
                        let version = if share == 0 { current.into() } else { to };
                        moves.insert(pin.clone(), plan::Move { pin, version, share });
                    }
                    let next = plan::activate(&truth.desired, &truth.in_force, moves.values().cloned()).unwrap();
                    let desired = truth.desired.clone();
                    take(&mut truth, &desired, &next);
                    for plan::Move { pin, version, share } in moves.into_values() {
                        prop_assert_eq!(truth.pending.contains_key(&pin), share < 100);
                        let split = truth.in_force.get(Split, &pin);
                        prop_assert_eq!(split.is_some(), (1..=99).contains(&share));
                        prop_assert!(split.is_none_or(|s| s["version"] == *version && s["percent"] == share));
                    }
                }
            }
            keeps_its_promises(&frame, &truth);
        }
    }
}

#[test]
fn an_owner_takes_with_it_what_it_owns() {
    let (frame, mut truth) = seeded("overcommit");
    change(&frame, &mut truth, vec![gone(Tenant, "b")]).unwrap();
    assert_eq!((truth.in_force.get(Pin, "b/m"), truth.desired.get(Pin, "b/n")), (None, None));
    let with_its_pool = change(&frame, &mut truth, vec![gone(Pool, "q"), gone(Model, "n")]).unwrap();
    assert_eq!(
        (with_its_pool.len(), truth.in_force.of_kind(Replica).count(), truth.in_force.get(Version, "n/1")),
        (0, 1, None)
    );
    let refused = change(&frame, &mut truth, vec![gone(Pool, "p")]).unwrap_err();
    assert!(refused.contains("no pools any more"), "{refused}");
    let twice = change(&frame, &mut truth, vec![gone(Pin, "a/m"), put(Pin, "a/m", json!("2"))]).unwrap_err();
    assert_eq!(twice, "pin a/m: is edited twice");
}

#[test]
fn a_kept_version_is_not_called_as_another_one() {
    let (frame, mut truth) = seeded("overcommit");
    let up = vec![gone(Version, "m/1"), put(Pin, "a/m", json!("2")), put(Pin, "b/m", json!("2"))];
    assert_eq!(change(&frame, &mut truth, up).unwrap().len(), 2);
    assert!(truth.in_force.get(Version, "m/1").is_some() && truth.desired.get(Version, "m/1").is_none());
    // Upstream m-1 may be loaded still: no other version may be called so.
    let other = vec![put(Model, "m-1", json!({ "pool": "p" })), put(Version, "m-1/x", json!({ "size": 1 }))];
    change(&frame, &mut truth, other).unwrap();
    let same = vec![
        put(
            Pool,
            "p",
            json!({ "protocol": "open-inference", "residency": "repository", "upstream": { "model": "same-{version}" } }),
        ),
        put(Version, "m-1/1", json!({ "size": 1 })),
    ];
    let refused = change(&frame, &mut truth, same).unwrap_err();
    assert!(refused.contains("until the changed pins have flipped"), "{refused}");
    let retired = [(("p".parse_pool(), "m-7".to_owned()), ("k".parse_model(), "9".parse_version()))].into();
    let seven = What::Edits(vec![put(Version, "m/7", json!({ "size": 1 }))]);
    let refused = prepare(&frame, &truth, &seven, &retired, Files::None).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains(r#"version 7 of m would be "m-7" upstream, as version 9 of k is"#), "{refused}");
}

trait Parse {
    fn parse_pool(&self) -> holdfast_types::PoolName;
    fn parse_model(&self) -> holdfast_types::ModelName;
    fn parse_version(&self) -> holdfast_types::Version;
}

impl Parse for str {
    fn parse_pool(&self) -> holdfast_types::PoolName {
        holdfast_types::PoolName::parse(self).unwrap()
    }
    fn parse_model(&self) -> holdfast_types::ModelName {
        holdfast_types::ModelName::parse(self).unwrap()
    }
    fn parse_version(&self) -> holdfast_types::Version {
        holdfast_types::Version::parse(self).unwrap()
    }
}

#[test]
fn guaranteed_pins_need_room_beside_those_in_force() {
    let (frame, mut truth) = seeded("guaranteed");
    // 2 GiB in force and 2 GiB on its way are 4 GiB to the byte.
    assert_eq!(change(&frame, &mut truth, vec![put(Pin, "a/m", json!("2"))]).unwrap().len(), 1);
    let refused = change(&frame, &mut truth, vec![put(Pin, "b/m", json!("3"))]).unwrap_err();
    assert!(refused.contains("pool p guarantees its pins, but they do not fit"), "{refused}");
    let (frame, mut truth) = seeded("guaranteed");
    let both = vec![put(Pin, "a/m", json!("3")), put(Pin, "b/m", json!("3"))];
    let refused = change(&frame, &mut truth, both).unwrap_err();
    assert!(refused.contains("r: in force 2GiB + new 3GiB = 5GiB of 4GiB"), "{refused}");
}

#[test]
fn a_split_needs_room_and_is_nothing_to_ask_for() {
    let (frame, mut truth) = seeded("guaranteed");
    change(&frame, &mut truth, vec![put(Pin, "a/m", json!("2"))]).unwrap();
    let share = plan::Move { pin: "a/m".into(), version: "2".into(), share: 10 };
    let next = plan::activate(&truth.desired, &truth.in_force, [share].into_iter()).unwrap();
    let desired = truth.desired.clone();
    take(&mut truth, &desired, &next);
    // 2 GiB in force and 2 GiB of the split: nothing goes beside them, whatever is desired by now.
    let refused = change(&frame, &mut truth, vec![put(Pin, "a/m", json!("3"))]).unwrap_err();
    assert!(refused.contains("they do not fit"), "{refused}");
    change(&frame, &mut truth, vec![put(Pin, "a/m", json!("1"))]).unwrap();
    assert!(truth.in_force.get(Split, "a/m").is_some() && truth.pending.is_empty());
    let asked = put(Split, "b/m", json!({ "version": "2", "percent": 10 }));
    let refused = ask(&frame, &truth, vec![asked]).map(|_| ()).unwrap_err();
    assert_eq!(
        refused,
        "split b/m: cannot be asked for: a share of a pin's traffic comes with the canary of its roll-out"
    );
}

#[test]
fn a_change_of_a_tenant_is_not_blind_to_the_others() {
    let (frame, mut truth) = seeded("overcommit");
    let refused = change(&frame, &mut truth, vec![put(Tenant, "A", json!({}))]).unwrap_err();
    assert!(refused.contains("differs only in case from"), "{refused}");
    change(&frame, &mut truth, vec![put(Tenant, "A", json!({})), gone(Tenant, "a")]).unwrap();
    let orphan = vec![put(Pin, "b/m", json!("1")), gone(Tenant, "b")];
    assert_eq!(
        change(&frame, &mut truth, orphan).unwrap_err(),
        r#"pin b/m: there is no tenant "b"; the nearest is "A""#
    );
    // Where pins are guaranteed a larger subset or another tenant's pin may not fit.
    let (frame, mut truth) = seeded("guaranteed");
    let new = vec![put(Tenant, "z", json!({})), put(Pin, "z/m", json!("3"))];
    assert!(change(&frame, &mut truth, new).unwrap_err().contains("they do not fit"));
}
