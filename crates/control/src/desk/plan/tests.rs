//! What is in force after a change, rule by rule.

use super::*;
use holdfast_config::ResourceKind;
use holdfast_config::ResourceKind::Tenant;

/// `m@p` is a model in a pool, `m/1` a version, `t` a tenant, `t/m=1` a pin, `t/m~2:10` a split of it.
fn entries(words: &str) -> Entries {
    let entry = |word: &str| {
        if let Some((pin, (version, percent))) =
            word.split_once('~').map(|(pin, to)| (pin, to.split_once(':').unwrap()))
        {
            let percent: u8 = percent.parse().unwrap();
            let value = serde_json::json!({ "version": version, "percent": percent });
            return ((Split, Arc::from(pin)), Arc::new(value));
        }
        let (kind, name, value): (ResourceKind, &str, Json) = match (word.split_once('='), word.split_once('@')) {
            (Some((pin, version)), _) => (Pin, pin, version.into()),
            (_, Some((model, pool))) => (Model, model, serde_json::json!({ "pool": pool })),
            _ if word.contains('/') => (Version, word, serde_json::json!({})),
            _ => (Tenant, word, serde_json::json!({})),
        };
        ((kind, Arc::from(name)), Arc::new(value))
    };
    words.split_whitespace().map(entry).collect()
}

fn words(entries: &Entries) -> String {
    let word = |((kind, name), value): ((ResourceKind, String), Json)| match kind {
        Pin => format!("{name}={}", value.as_str().unwrap()),
        Model => format!("{name}@{}", pool_of(&value).unwrap()),
        Split => format!("{name}~{}:{}", named_by(&value).unwrap(), value["percent"]),
        _ => name,
    };
    entries.resources().into_iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn what_is_in_force_follows_what_is_desired_but_for_changed_pins() {
    let table = [
        // desired; in force before; in force after
        ("m@p m/1 a a/m=1", "", "m@p m/1 a a/m=1", "the first content"),
        ("m@p m/1 m/2 a a/m=2", "m@p m/1 a a/m=1", "m@p m/1 m/2 a a/m=1", "a changed pin is held"),
        ("m@p m/2 a a/m=2", "m@p m/1 a a/m=1", "m@p m/1 m/2 a a/m=1", "its version is kept"),
        ("m@p m/2 a", "m@p m/1 a a/m=1", "m@p m/2 a", "a pin that is taken away goes at once, and its version"),
        ("m@p m/2 b b/m=2", "m@p m/1 a a/m=1", "m@p m/2 b b/m=2", "a tenant's pins go with it, another's come"),
        ("m@p m/2 a a/m=2 b b/m=2", "m@p m/1 a a/m=1", "m@p m/1 m/2 a b a/m=1 b/m=2", "a new pin is in force at once"),
        (
            "m@p m/2 a a/m=2 b",
            "m@p m/1 a a/m=1 b b/m=1",
            "m@p m/1 m/2 a b a/m=1",
            "one pin is enough to keep a version",
        ),
        ("m@p m/1 m/2 a a/m=1", "m@p m/1 m/2 a a/m=1", "m@p m/1 m/2 a a/m=1", "a change that was taken back"),
        (
            "m@p m/3 a a/m=3",
            "m@p m/1 m/2 a a/m=1",
            "m@p m/1 m/3 a a/m=1",
            "a change of a change goes from what is in force",
        ),
        ("m@p m/1 a", "m@p m/1 n@p n/1 a a/n=1", "m@p m/1 a", "a model that is gone"),
        ("m@q m/1 a a/m=1", "m@p m/1 a a/m=1", "m@q m/1 a a/m=1", "a model moves while no pin changes"),
        ("m@q m/2 a b b/m=2", "m@p m/1 a a/m=1", "m@q m/2 a b b/m=2", "a model moves, and its only pin goes"),
        (
            "m@p m/1 m/2 a b a/m=2",
            "m@p m/1 m/2 a a/m=1 a/m~2:10",
            "m@p m/1 m/2 a b a/m=1 a/m~2:10",
            "a held pin keeps its split",
        ),
        (
            "m@p m/1 m/2 a a/m=1",
            "m@p m/1 m/2 a a/m=1 a/m~2:10",
            "m@p m/1 m/2 a a/m=1 a/m~2:10",
            "a split ends by an activation, also when the wish has gone back",
        ),
        (
            "m@p m/3 a a/m=3",
            "m@p m/1 m/2 a a/m=1 a/m~2:10",
            "m@p m/1 m/2 m/3 a a/m=1 a/m~2:10",
            "a split keeps its version",
        ),
        ("m@p m/1 m/2 a", "m@p m/1 m/2 a a/m=1 a/m~2:10", "m@p m/1 m/2 a", "a split goes with its pin"),
        ("m@p m/1 b", "m@p m/1 m/2 a b a/m=1 a/m~2:10", "m@p m/1 b", "a split goes with its tenant, and its version"),
        ("n@p n/1 a", "m@p m/1 m/2 n@p n/1 a a/m=1 a/m~2:10", "n@p n/1 a", "a split goes with its model"),
    ];
    for (desired, before, after, why) in table {
        let next = whole(&entries(desired), &entries(before)).unwrap();
        assert_eq!(words(&next), after, "{why}");
    }
}

#[test]
fn a_model_does_not_move_while_its_pins_do() {
    let refused = |desired, before| whole(&entries(desired), &entries(before)).map(|_| ()).unwrap_err();
    let fault = refused("m@q m/1 m/2 a a/m=2", "m@p m/1 m/2 a a/m=1");
    assert_eq!(fault.path, "models[m].pool");
    let words = "model m moves from pool p to pool q, and the pin of tenant a changes from 1 to 2: that cannot be done without a gap; \
                 change the pins first, wait until none is pending, then move the model";
    assert_eq!(fault.reason, words);
    let first = refused("m@q m/1 m/2 b a b/m=2 a/m=2", "m@p m/1 m/2 a a/m=1 b b/m=1");
    assert!(first.reason.contains("tenant a "), "{first:?}");
    let split = refused("m@q m/1 m/2 a a/m=1", "m@p m/1 m/2 a a/m=1 a/m~2:10");
    assert!(split.reason.contains("the pin of tenant a changes from 2 to 1"), "{split:?}");
    // The other models' pins are none of its business.
    whole(&entries("m@q m/1 n@p n/1 n/2 a a/m=1 a/n=2"), &entries("m@p m/1 n@p n/1 a a/m=1 a/n=1")).unwrap();
}

#[test]
fn edits_of_pins_alone_come_to_the_same() {
    let before = "m@p m/1 m/2 a a/m=1 b c c/m=2";
    let table = [
        ("a/m", Some("2"), "m@p m/1 m/2 a b c a/m=1 c/m=2"),
        ("a/m", None, "m@p m/1 m/2 a b c c/m=2"),
        ("b/m", Some("1"), "m@p m/1 m/2 a b c a/m=1 b/m=1 c/m=2"),
        ("b/m", None, "m@p m/1 m/2 a b c a/m=1 c/m=2"),
        ("c/m", Some("2"), "m@p m/1 m/2 a b c a/m=1 c/m=2"),
    ];
    for (pin, to, after) in table {
        let edit = Edit { kind: Pin, name: pin.into(), value: to.map(|to| Arc::new(to.into())) };
        let mut desired = entries(before);
        desired.apply(edit.clone());
        let next = tenants(&desired, &entries(before), &[edit]);
        assert_eq!(words(&next), after, "{pin} {to:?}");
        assert_eq!(next, whole(&desired, &entries(before)).unwrap(), "{pin} {to:?}");
    }
    // A split goes with its pin, and what was kept for it.
    let split = "m@p m/0 m/1 a a/m=1 a/m~0:10 b b/m=1";
    for (pin, to, after) in [
        ("a/m", None, "m@p m/1 a b b/m=1"),
        ("b/m", Some("0"), split),
        ("a/m", Some("2"), split),
        ("a/m", Some("1"), split),
    ] {
        let edit = Edit { kind: Pin, name: pin.into(), value: to.map(|to| Arc::new(to.into())) };
        let mut desired = entries("m@p m/1 a a/m=1 b b/m=1");
        desired.apply(edit.clone());
        let next = tenants(&desired, &entries(split), &[edit]);
        assert_eq!(words(&next), after.replace("a a/m=1 a/m~0:10 b b/m=1", "a b a/m=1 b/m=1 a/m~0:10"), "{pin} {to:?}");
        assert_eq!(next, whole(&desired, &entries(split)).unwrap(), "{pin} {to:?}");
    }
    // Version 0 is kept for the pin of a alone.
    let kept = "m@p m/0 m/1 a a/m=0";
    let edit = Edit { kind: Pin, name: "a/m".into(), value: None };
    assert_eq!(words(&tenants(&entries("m@p m/1 a"), &entries(kept), &[edit])), "m@p m/1 a");
}

#[test]
fn an_activation_moves_pins_and_lets_go_of_what_nothing_needs() {
    let go = |desired, before, moves: &[(&str, &str)]| {
        let moves = moves.iter().map(|(pin, to)| Move { pin: (*pin).into(), version: (*to).into(), share: 100 });
        activate(&entries(desired), &entries(before), moves).map(|next| words(&next))
    };
    let (desired, before) = ("m@p m/2 a a/m=2 b b/m=2", "m@p m/1 m/2 a a/m=1 b b/m=1");
    assert_eq!(go(desired, before, &[("a/m", "2")]).unwrap(), "m@p m/1 m/2 a b a/m=2 b/m=1");
    assert_eq!(go(desired, before, &[("a/m", "2"), ("b/m", "2")]).unwrap(), "m@p m/2 a b a/m=2 b/m=2");
    assert_eq!(go(desired, before, &[("a/m", "1")]).unwrap(), before.replace("a a/m=1 b b/m=1", "a b a/m=1 b/m=1"));
    assert_eq!(go(desired, before, &[("a/m", "3")]).unwrap_err(), "version 3 of model m is not in the table in force");
    assert_eq!(go(desired, before, &[("c/m", "2")]).unwrap_err(), "pin c/m is not in force, so it cannot be moved");
    // A version that is desired stays, pinned or not.
    assert_eq!(go("m@p m/1 m/2 a a/m=2", "m@p m/1 m/2 a a/m=1", &[("a/m", "2")]).unwrap(), "m@p m/1 m/2 a a/m=2");
}

#[test]
fn an_activation_gives_a_share_takes_it_back_or_makes_it_the_whole() {
    let go = |before, version: &str, share| {
        let moves = [Move { pin: "a/m".into(), version: version.into(), share }];
        activate(&entries("m@p m/3 a a/m=3"), &entries(before), moves.into_iter()).map(|next| words(&next))
    };
    let (whole, split) = ("m@p m/1 m/3 a a/m=1", "m@p m/1 m/3 a a/m=1 a/m~3:10");
    let table = [
        (whole, "3", 10, split),
        (split, "3", 50, "m@p m/1 m/3 a a/m=1 a/m~3:50"),
        (split, "3", 99, "m@p m/1 m/3 a a/m=1 a/m~3:99"),
        (split, "3", 100, "m@p m/3 a a/m=3"),
        (whole, "3", 100, "m@p m/3 a a/m=3"),
        (split, "1", 0, whole),
        (whole, "1", 0, whole),
        ("m@p m/1 m/3 a a/m=3", "1", 0, whole),
        // What was kept for a split alone goes with it.
        ("m@p m/1 m/2 m/3 a a/m=1 a/m~2:10", "1", 0, whole),
        ("m@p m/1 m/2 m/3 a a/m=1 a/m~2:10", "3", 1, "m@p m/1 m/3 a a/m=1 a/m~3:1"),
    ];
    for (before, version, share, after) in table {
        assert_eq!(go(before, version, share).unwrap(), after, "{before}: {share} % of {version}");
    }
    let refused = [
        (whole, "1", 10, "pin a/m is at version 1, which cannot have a share of it beside"),
        (whole, "2", 10, "version 2 of model m is not in the table in force"),
        (whole, "3", 101, "101 is no share of pin a/m in percent"),
        ("m@p m/1 m/3 a", "3", 10, "pin a/m is not in force, so it cannot be moved"),
    ];
    for (before, version, share, words) in refused {
        assert_eq!(go(before, version, share).unwrap_err(), words);
    }
}

#[test]
fn an_emptied_content_is_told_from_an_empty_one() {
    let pool = |n: &str| ((Pool, Arc::from(n)), Arc::new(Json::Null));
    let (none, some): (Entries, Entries) = (Entries::default(), [pool("p")].into_iter().collect());
    assert_eq!(
        [emptied(&none, &some), emptied(&none, &none), emptied(&some, &some), emptied(&some, &none)],
        [true, false, false, false]
    );
}
