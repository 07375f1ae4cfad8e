//! Experiments and rules: what is refused and where, what is meant where nothing is said, and what an edit makes of the history.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod support;

use holdfast_assign::{Field, KeyFrom};
use holdfast_config::{Config, Loaded, ResourceKind, Source, Status, assemble, load, split, table_input, with_history};
use serde_json::{Value as Json, json};
use support::{GOOD, good_but};

const LINES: usize = 37;

fn read(sections: &str) -> Result<Loaded, Vec<String>> {
    assert_eq!(GOOD.lines().count(), LINES, "the lines below are counted from here");
    let text = format!("{GOOD}{sections}");
    let told = |faults: holdfast_config::Faults| {
        let told =
            faults.listed.iter().map(|f| format!("{}:{} {}: {}", f.line as usize - LINES, f.column, f.path, f.reason));
        told.collect()
    };
    load(&Source::text("t.yaml", &text)).map_err(told)
}

fn good(sections: &str) -> Config {
    read(sections).unwrap_or_else(|faults| panic!("{sections}\n{}", faults.join("\n"))).config
}

/// One experiment, as flow fields beside its name, model and arms.
fn one(fields: &str) -> String {
    let arms = "arms: [{ name: a, version: \"1\" }, { name: b, version: \"2\" }]";
    format!("experiments:\n  - {{ name: ab, model: screen, {arms}, {fields} }}\n")
}

#[test]
fn what_is_sticky_needs_secrets_to_be_signed_with() {
    let warned = |text: String| read(&text).unwrap().warnings.to_string();
    let told = warned(one("sticky: { keep: 1d }"));
    assert!(told.contains("experiments[0].sticky") && told.contains("route_token"), "{told}");
    assert_eq!(warned(format!("route_token: {{}}\n{}", one("sticky: {}"))), warned(one("status: draft")));
}

#[test]
fn what_is_meant_where_nothing_is_said() {
    let config = good("experiments: [{ name: ab, model: screen, arms: [{ name: only, version: \"2\" }] }]\n");
    let [found] = &config.experiments[..] else { panic!("{:?}", config.experiments) };
    let experiment = &found.experiment;
    assert_eq!((found.status, experiment.running, experiment.salt.as_str()), (Status::Draft, false, "ab"));
    assert_eq!(experiment.keys, [KeyFrom::User, KeyFrom::Device]);
    assert_eq!((found.allocation().version(), found.allocation().coverage()), (1, 10_000));
    assert_eq!((experiment.start, experiment.end, &experiment.layer, &experiment.holdout), (None, None, &None, &None));
    assert!(experiment.target.0.is_empty());
}

#[test]
fn all_that_can_be_said() {
    let config = good(
        "experiments:\n  - name: ab\n    model: screen\n    status: running\n    salt: older-name\n    bucket_version: 3\n    key: [device, tenant]\n    \
         coverage: 12.5\n    start: 2027-01-31T08:00:00Z\n    end: 2027-02-01T00:00:00Z\n    layer: { name: l, from: 10, to: 30 }\n    \
         holdout: { name: h, percent: 0.5 }\n    sticky: { keep: 30d }\n    target:\n      - { field: tenant, is: [acme, globex] }\n      - { field: \"header:X-Client\", begins: ios/ }\n      \
         - { field: \"scope:beta\", present: true }\n      - { field: plan, not: [free] }\n    arms:\n      - { name: a, version: \"1\", weight: 1 }\n      \
         - { name: b, version: \"2\", weight: 3 }\n      - { name: c, version: \"2\", weight: 0 }\n",
    );
    let found = &config.experiments[0];
    let experiment = &found.experiment;
    assert_eq!((found.status, experiment.running, experiment.salt.as_str()), (Status::Running, true, "older-name"));
    assert_eq!(experiment.keys, [KeyFrom::Device, KeyFrom::Tenant]);
    assert_eq!((experiment.start, experiment.end), (Some(1_801_382_400_000), Some(1_801_440_000_000)));
    let layer = experiment.layer.as_ref().unwrap();
    assert_eq!((layer.name.as_str(), layer.range.from, layer.range.to), ("l", 1_000, 3_000));
    assert_eq!(experiment.holdout, Some(("h".to_owned(), 50)));
    assert_eq!(experiment.sticky_ms, Some(30 * 86_400_000));
    assert_eq!(experiment.target.0[1].0, Field::Header("x-client".to_owned()));
    assert_eq!((found.allocation().version(), found.allocation().coverage()), (3, 1_250));
    assert_eq!(found.allocation().shares(3), [1_250 * 2_500, 1_250 * 7_500, 0]);
    let input = table_input(&config, &holdfast_config::Pins::new());
    assert_eq!((input.experiments.len(), input.experiments[0].arms.len()), (1, 3));
    let ended = good(&one("status: ended"));
    assert!(table_input(&ended, &holdfast_config::Pins::new()).experiments.is_empty());
}

#[test]
fn every_fault_has_its_place() {
    let arms = |arms: &str| format!("experiments:\n  - {{ name: ab, model: screen, arms: [{arms}] }}\n");
    let two = |first: &str, second: &str| {
        format!("{}  - {{ name: cd, model: screen, arms: [{{ name: a, version: \"1\" }}], {second} }}\n", one(first))
    };
    for (text, faults) in [
        (one("status: run"), &["2:102 experiments[0].status: \"run\" is not known here"][..]),
        (one("bucket_version: 0"), &["experiments[0].bucket_version: is \"0\"; it must be from 1"]),
        (one("key: []"), &["experiments[0].key: has 0 items"]),
        (one("key: [user, user]"), &["experiments[0].key: names a key twice"]),
        (one("key: [session]"), &["experiments[0].key[0]: \"session\" is not known here"]),
        (one("coverage: 101"), &["experiments[0].coverage: is \"101\"; expected a percentage"]),
        (one("coverage: -1"), &["experiments[0].coverage: is \"-1\""]),
        (one("coverage: 0.001"), &["experiments[0].coverage: is \"0.001\""]),
        (one("start: tomorrow"), &["experiments[0].start: \"tomorrow\" is no moment in UTC"]),
        (one("start: 2027-01-31T08:00:00Z, end: 2027-01-31T08:00:00Z"), &["experiments[0].end: is not after start"]),
        (one("layer: { name: l, from: 20, to: 20 }"), &["experiments[0].layer: has nobody"]),
        (one("layer: { from: 20, to: 30 }"), &["experiments[0].layer.name: is missing"]),
        (one("holdout: { name: h }"), &["experiments[0].holdout.percent: is missing"]),
        (one("target: [{ field: tenant }]"), &["experiments[0].target[0]: has not exactly one of is, not"]),
        (one("target: [{ field: tenant, is: [a], not: [b] }]"), &["experiments[0].target[0]: has not exactly one"]),
        (one("target: [{ field: cookie, is: [a] }]"), &["experiments[0].target[0].field: \"cookie\" is not one of"]),
        (
            one("target: [{ field: \"header:a b\", is: [a] }]"),
            &["experiments[0].target[0].field: \"header:a b\" names a header"],
        ),
        (one("target: [{ field: tenant, is: [] }]"), &["experiments[0].target[0].is: has 0 items"]),
        (one("audience: all"), &["experiments[0].audience: there is no field \"audience\" here"]),
        (arms(""), &["experiments[0].arms: has 0 items; it must have at least 1"]),
        (
            arms("{ name: a, version: \"9\" }"),
            &["2:59 experiments[0].arms[0].version: model \"screen\" has no version \"9\""],
        ),
        (
            arms("{ name: a, version: latest }"),
            &["experiments[0].arms[0].version: \"latest\" names no immutable version"],
        ),
        (arms("{ name: a, version: \"1\", weight: 0 }"), &["experiments[0].arms: all weights are zero"]),
        (
            arms("{ name: a, version: \"1\", weight: -1 }"),
            &["experiments[0].arms[0].weight: \"-1\" is not a whole number"],
        ),
        (
            arms("{ name: a, version: \"1\", weight: 4294967296 }"),
            &["experiments[0].arms[0].weight: is \"4294967296\""],
        ),
        (
            arms("{ name: a, version: \"1\", weight: 0.1 }"),
            &["experiments[0].arms[0].weight: \"0.1\" is not a whole number"],
        ),
        (
            arms("{ name: a, version: \"1\", weight: 1 }, { name: b, version: \"2\", weight: 10000 }"),
            &["experiments[0].arms[0].weight: is less than 1 of 10000"],
        ),
        (
            arms("{ name: a, version: \"1\" }, { name: A, version: \"2\" }"),
            &["experiments[0].arms[1].name: \"A\" differs only in case from \"a\""],
        ),
        (
            "experiments: [{ name: ab, model: scren, arms: [{ name: a, version: \"1\" }] }]\n".to_owned(),
            &["1:34 experiments[0].model: there is no model \"scren\""],
        ),
        (
            "experiments: [{ model: screen, arms: [{ name: a, version: \"1\" }] }]\n".to_owned(),
            &["experiments[0].name: is missing"],
        ),
        // Who could be in both.
        (two("status: draft", "status: draft"), &["experiments[1].model: could be tried on the same people"]),
        (
            two("layer: { name: l, to: 50 }", "layer: { name: m, from: 50 }"),
            &["experiments[1].model: could be tried on the same people"],
        ),
        (
            two("layer: { name: l, to: 50 }", "layer: { name: l, from: 49.99 }"),
            &["experiments[1].layer: meets the part of layer \"l\" that experiments[0] has"],
        ),
        (
            two("layer: { name: l, to: 50 }", "layer: { name: l, from: 50 }, key: [device]"),
            &["experiments[1].key: is not the key of experiments[0]"],
        ),
        (
            two("target: [{ field: tenant, is: [acme] }]", "target: [{ field: tenant, is: [globex, acme] }]"),
            &["experiments[1].model: could be tried"],
        ),
        (
            two(
                "layer: { name: l, to: 50 }, holdout: { name: h, percent: 1 }",
                "layer: { name: l, from: 50 }, holdout: { name: h, percent: 2 }",
            ),
            &["experiments[1].holdout.percent: experiments[0] has another share for holdout \"h\""],
        ),
        // A history that does not hold together.
        (
            one("status: running, coverage: 5, given: [{ to: 500, arms: [{ name: a, from: 0, to: 9000 }] }]"),
            &["experiments[0].given: is not end to end"],
        ),
        (
            one("status: running, coverage: 5, given: [{ to: 500, arms: [{ name: z, from: 0, to: 10000 }] }]"),
            &["experiments[0].given: names arm \"z\""],
        ),
        (
            one("status: running, coverage: 5, given: [{ to: 500, arms: [{ name: a, to: 10000 }] }]"),
            &["experiments[0].arms: 500 of 10000 have been given an arm"],
        ),
    ] {
        let Err(found) = read(&text) else { panic!("no fault: {text}") };
        assert_eq!(found.len(), faults.len(), "{text}\n{}", found.join("\n"));
        for (found, want) in found.iter().zip(faults) {
            assert!(found.contains(want), "{want:?} is not in {found:?}: {text}");
        }
    }
    for good_one in [
        two("target: [{ field: tenant, is: [acme] }]", "target: [{ field: tenant, is: [globex] }]"),
        two("layer: { name: l, to: 50 }", "layer: { name: l, from: 50 }"),
        two("status: ended", "status: running"),
    ] {
        let _ = good(&good_one);
    }
    let warned = read(&one("target: [{ field: tenant, is: [acne] }]")).unwrap().warnings.to_string();
    assert!(warned.contains("names tenant \"acne\", which there is not"), "{warned}");
}

#[test]
fn rules_of_tenants() {
    let with = |rules: &str| good_but("pins: { screen: \"1\" }", &format!("rules: {rules}, pins: {{ screen: \"1\" }}"));
    let text = with(
        "[{ name: beta, model: screen, version: \"2\", target: [{ field: user, is: [ann] }] }, { name: rest, model: rank, version: a }]",
    );
    let config = load(&Source::text("t.yaml", &text)).unwrap().config;
    let rules = &config.tenants[0].rules;
    assert_eq!((rules.len(), rules[0].version.as_str(), rules[1].model.as_str()), (2, "2", "rank"));
    let input = table_input(&config, &holdfast_config::Pins::new());
    assert_eq!((input.rules.len(), input.rules[0].tenant.as_str()), (2, "acme"));
    for (rules, want) in [
        (
            "[{ name: a, model: screen, version: \"9\" }]",
            "tenants[0].rules[0].version: model \"screen\" has no version",
        ),
        ("[{ name: a, model: nothing, version: \"1\" }]", "tenants[0].rules[0].model: there is no model"),
        ("[{ model: screen, version: \"1\" }]", "tenants[0].rules[0].name: is missing"),
        (
            "[{ name: a, model: screen, version: \"1\" }, { name: A, model: screen, version: \"2\" }]",
            "tenants[0].rules[1].name: \"A\" differs only in case",
        ),
        ("[{ name: a, model: screen, version: \"1\", target: [{ field: user }] }]", "tenants[0].rules[0].target[0]"),
    ] {
        let faults = load(&Source::text("t.yaml", &with(rules))).unwrap_err().to_string();
        assert!(faults.contains(want), "{want:?} is not in {faults}");
    }
}

#[test]
fn an_experiment_is_a_resource_and_comes_back_as_it_was() {
    let text = format!("{GOOD}{}", one("status: running, coverage: 12.5, start: 2027-01-31T08:00:00Z"));
    let before = split(&Source::text("t.yaml", &text)).unwrap();
    let content = &before.resources[&(ResourceKind::Experiment, "ab".to_owned())];
    assert_eq!((&content["coverage"], &content["start"]), (&json!(12.5), &json!("2027-01-31T08:00:00Z")));
    let after = load(&Source::text("t.yaml", &assemble(&before.rest, &before.resources))).unwrap().config;
    assert_eq!(after.experiments, before.loaded.config.experiments);
}

fn content(coverage: f64, weights: [u32; 2], more: &Json) -> Json {
    let arm = |name: &str, version: &str, weight: u32| json!({ "name": name, "version": version, "weight": weight });
    let mut content = json!({
        "model": "screen", "status": "running", "coverage": coverage,
        "arms": [arm("a", "1", weights[0]), arm("b", "2", weights[1])],
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        content[field] = value.clone();
    }
    content
}

/// What an edit leads to: `given`, or the field and a part of the reason.
fn edited(before: &Json, asked: &Json) -> Result<Json, (String, String)> {
    with_history("ab", Some(before), asked).map(|content| content["given"].clone())
}

#[test]
fn a_ramp_keeps_what_was_given_and_nothing_that_follows_is_written() {
    let none = &json!({});
    let first = content(20.0, [1, 1], none);
    assert_eq!(with_history("ab", None, &first), Ok(first.clone()), "what is new has no history yet");
    assert_eq!(with_history("ab", Some(&first), &first), Ok(first.clone()), "nor has what does not change");
    assert_eq!(edited(&first, &content(60.0, [1, 1], none)), Ok(Json::Null), "it follows from the weights");
    // Down again: those who leave come back to the arm that they had.
    let high = content(60.0, [1, 1], none);
    let halves = json!([{ "name": "a", "from": 0, "to": 5000 }, { "name": "b", "from": 5000, "to": 10000 }]);
    let low = with_history("ab", Some(&high), &content(20.0, [1, 1], none)).unwrap();
    assert_eq!(low["given"], json!([{ "to": 6000, "arms": halves }]));
    assert_eq!(with_history("ab", Some(&low), &content(20.0, [1, 1], none)).unwrap(), low, "the same file again");
    // Other weights are for new people.
    let refused = edited(&low, &content(60.0, [1, 3], none)).unwrap_err();
    assert!(refused.0 == "arms" && refused.1.contains("6000 of 10000 have been given"), "{refused:?}");
    let grown = with_history("ab", Some(&low), &content(80.0, [1, 3], none)).unwrap();
    let quarters = json!([{ "name": "a", "from": 0, "to": 2500 }, { "name": "b", "from": 2500, "to": 10000 }]);
    assert_eq!(grown["given"], json!([{ "to": 6000, "arms": halves }, { "to": 8000, "arms": quarters }]));
    // What is written can be read, and says the same.
    let text = format!("{GOOD}experiments: [{}]\n", {
        let mut whole = grown.clone();
        whole["name"] = json!("ab");
        whole
    });
    let config = load(&Source::text("t.yaml", &text)).unwrap_or_else(|faults| panic!("{faults}")).config;
    let allocation = config.experiments[0].allocation();
    assert_eq!((allocation.given().len(), allocation.coverage()), (2, 8_000));
    assert_eq!([allocation.arm(5_999, 3_000), allocation.arm(6_000, 3_000)], [Some(0), Some(1)]);
    // A history that its author writes is not believed once there is one.
    let forged = content(80.0, [1, 3], &json!({ "given": [{ "to": 8000, "arms": quarters }] }));
    assert_eq!(edited(&grown, &forged), Ok(grown["given"].clone()));
    // A higher bucket version forgets.
    let anew = content(80.0, [9, 1], &json!({ "bucket_version": 2, "given": grown["given"] }));
    assert_eq!(edited(&grown, &anew), Ok(Json::Null));
}

#[test]
fn what_would_move_somebody_is_refused() {
    let before = content(20.0, [1, 1], &json!({ "key": ["user"] }));
    let arms = |all: &[(&str, &str, u32)]| -> Json {
        let arms =
            all.iter().map(|(name, version, weight)| json!({ "name": name, "version": version, "weight": weight }));
        json!({ "arms": arms.collect::<Vec<_>>(), "key": ["user"] })
    };
    let with = |more: Json| content(20.0, [1, 1], &more);
    for (asked, field, why) in [
        (with(json!({ "key": ["device", "user"] })), "key", "does not begin as it did"),
        (with(json!({ "key": ["user"], "salt": "other" })), "salt", "is not \"ab\" any more"),
        (with(json!({ "key": ["user"], "model": "rank" })), "model", "is another one"),
        (with(json!({ "key": ["user"], "status": "draft" })), "status", "is draft, but arms have been given"),
        (with(arms(&[("a", "1", 1), ("b", "1", 1)])), "arms", "arm \"b\" is version 2, and people have been given it"),
        (with(arms(&[("a", "1", 1)])), "arms", "people have been given arm \"b\"; give it the weight 0"),
        (with(arms(&[("a", "1", 1), ("c", "2", 1)])), "arms", "people have been given arm \"b\""),
        (
            with(arms(&[("a", "1", 2), ("b", "2", 1)])),
            "arms",
            "2000 of 10000 have been given an arm with other weights",
        ),
    ] {
        let (at, reason) = edited(&before, &asked).expect_err(why);
        assert!(at == field && reason.contains(why), "{at}: {reason}");
        // With a higher bucket version everything may change.
        let mut anew = asked.clone();
        anew["bucket_version"] = json!(2);
        assert_eq!(edited(&before, &anew), Ok(Json::Null), "{asked}");
    }
    // Who is kept by a token stays so, and who would be moved by its end is not.
    let (sticky, plain) = (with(json!({ "sticky": { "keep": "1d" } })), with(json!({})));
    assert!(edited(&plain, &sticky).is_ok());
    let (at, reason) = edited(&sticky, &plain).unwrap_err();
    assert!(at == "sticky" && reason.contains("is taken away"), "{at}: {reason}");
    let later = content(20.0, [1, 1], &json!({ "bucket_version": 3 }));
    assert_eq!(edited(&later, &before).unwrap_err().0, "bucket_version");
    // What moves nobody is fine: keys at the end, arms in another order, a new arm that nobody has, what tells who is in.
    for asked in [
        with(json!({ "key": ["user", "device"] })),
        with(arms(&[("b", "2", 1), ("a", "1", 1)])),
        with(arms(&[("a", "1", 1), ("b", "2", 1), ("c", "2", 0)])),
        with(json!({ "key": ["user"], "status": "paused" })),
        with(json!({ "key": ["user"], "status": "ended" })),
        with(json!({ "key": ["user"], "layer": { "name": "l", "to": 50 } })),
        with(json!({ "key": ["user"], "target": [{ "field": "tenant", "is": ["acme"] }] })),
    ] {
        assert!(edited(&before, &asked).is_ok(), "{asked}: {:?}", edited(&before, &asked));
    }
    let turned = edited(&before, &with(arms(&[("b", "2", 1), ("a", "1", 1)]))).unwrap();
    let kept = json!([{ "name": "b", "from": 5000, "to": 10000 }, { "name": "a", "from": 0, "to": 5000 }]);
    assert_eq!(turned, json!([{ "to": 2000, "arms": kept }]), "the order in the list moves nobody");
    // As long as it is a draft nothing has been given.
    let draft = content(20.0, [1, 1], &json!({ "status": "draft" }));
    assert_eq!(edited(&draft, &content(50.0, [3, 1], &json!({}))), Ok(Json::Null));
    assert_eq!(edited(&draft, &content(50.0, [3, 1], &json!({ "status": "draft" }))), Ok(Json::Null));
}
