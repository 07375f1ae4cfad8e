use super::*;
use holdfast_decide::rollout::{Rollout, SavedSide};
use holdfast_types::Mono;
use proptest::prelude::*;

fn text(json: &Json) -> String {
    String::from_utf8(json.as_bytes().to_vec()).unwrap()
}

fn side(version: &str) -> SavedSide {
    let names = |n: &[&str]| n.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    SavedSide {
        pool: "gpu".to_owned(),
        version: version.to_owned(),
        order: names(&["r1", "r2", "r3"]),
        subset: 2,
        lost: names(&["r2"]),
        touched: names(&["r1", "r3"]),
    }
}

fn example() -> Saved {
    let shadow = Shadow {
        share: 10,
        compare: 100,
        differ: 5,
        at_least: Duration::from_secs(1),
        at_most: Duration::from_secs(2),
    };
    let canary = vec![CanaryStep { percent: 5, wait: Duration::from_secs(60) }];
    let pin = SavedPin {
        tenant: "acme".to_owned(),
        model: "screen".to_owned(),
        old: Some(side("1")),
        new: side("2"),
        stage: "flipping".to_owned(),
        since: Duration::from_nanos(1_500_000_001),
        share: 5,
        active: true,
        back: true,
        cold: true,
        overtaken: true,
        canary: 1,
        flipped: 41,
        words: Some("no \"room\"".to_owned()),
    };
    let first =
        SavedPin { tenant: "globex".to_owned(), old: None, stage: "warming".to_owned(), words: None, ..pin.clone() };
    Saved {
        format: 1,
        id: 7,
        version: 3,
        term: 2,
        age: Duration::from_nanos(2_000_000_003),
        options: Options { atomic: true, shadow: Some(shadow), canary, ..Options::default() },
        pins: vec![pin, SavedPin { active: false, back: false, cold: false, overtaken: false, canary: 0, ..first }],
        flip: Some(SavedFlip {
            step: 2,
            state: "reading".to_owned(),
            base: 40,
            pins: vec![(0, 0)],
            since: Duration::from_secs(2),
        }),
        next_step: 3,
        paused: Some(Duration::from_secs(1)),
        pending: Some("abort".to_owned()),
    }
}

fn meta() -> Meta {
    let (author, reason) = ("ann".into(), "better".into());
    Meta { author, reason, created_ms: 1_700_000_000_000, desired: 39, replaced: true, back: None }
}

/// What this release writes. Changed only together with [`FORM`]; the old texts stay, to be read.
const HEAD_1: &str = include_str!("golden/head_1.json");
const PART_1: &str = include_str!("golden/part_1.json");

#[test]
fn the_form_is_frozen() {
    let (head, parts) = write(&example(), &meta()).unwrap();
    assert_eq!(text(&head), HEAD_1.trim());
    assert_eq!(parts.iter().map(text).collect::<Vec<_>>(), [PART_1.trim()]);
}

#[test]
fn a_record_of_the_first_form_is_read() {
    let read = head(&Json::parse(HEAD_1.as_bytes()).unwrap()).unwrap();
    assert_eq!((&read.meta, read.is_over(), read.is_paused()), (&meta(), false, true));
    assert_eq!(saved(&read, &[Json::parse(PART_1.as_bytes()).unwrap()]).unwrap(), example());
}

#[test]
fn what_is_no_record_says_so() {
    let json = |text: &str| Json::parse(text.as_bytes()).unwrap();
    assert_eq!(head(&json(r#"{"form":2}"#)), Err(FormError::Form(2)));
    assert!(matches!(head(&json("{}")), Err(FormError::Damaged(_))));
    assert!(matches!(head(&json(r#"{"form":1}"#)), Err(FormError::Damaged(_))));
    let (first, parts) = write(&example(), &meta()).unwrap();
    let first = head(&first).unwrap();
    assert!(matches!(saved(&first, &[]), Err(FormError::Damaged(_))));
    let strange = text(&parts[0]).replace(r#""order":[0,1,2]"#, r#""order":[0,1,9]"#);
    assert!(matches!(saved(&first, &[json(&strange)]), Err(FormError::Damaged(_))));
}

#[test]
fn pins_at_their_bounds_fit_in_parts() {
    let long = |c: char, n: usize| format!("{n:03}{}", c.to_string().repeat(125));
    let order: Vec<String> = (0..64).map(|n| long('r', n)).collect();
    let side = |n: usize| SavedSide {
        order: order.clone(),
        touched: order.clone(),
        lost: order.clone(),
        ..side(&long('v', n))
    };
    let pin = |n: usize| SavedPin {
        tenant: long('t', n),
        model: long('m', n),
        old: Some(side(1)),
        new: side(2),
        words: Some("\u{1}".repeat(512)),
        ..example().pins[0].clone()
    };
    let big = Saved { pins: (0..200).map(pin).collect(), ..example() };
    let (first, parts) = write(&big, &meta()).unwrap();
    assert_eq!(saved(&head(&first).unwrap(), &parts).unwrap(), big);
    assert!(parts.len() > 4 && parts.len() < 200, "{} parts", parts.len());
}

#[test]
fn the_machine_goes_on_from_what_was_read() {
    let mut resumable = example();
    resumable.pins[1].stage = "ready".to_owned();
    let machine = Rollout::resume(Mono(1), 5, &resumable).unwrap();
    let (first, parts) = write(&resumable, &meta()).unwrap();
    let again = Rollout::resume(Mono(1), 5, &saved(&head(&first).unwrap(), &parts).unwrap()).unwrap();
    assert_eq!(machine, again);
}

fn sides() -> impl Strategy<Value = SavedSide> {
    let names = || proptest::collection::vec("[a-z][a-z0-9]{0,6}", 0..6);
    ("[a-z]{1,8}", "[0-9a-z]{1,8}", names(), any::<u32>(), names(), names()).prop_map(
        |(pool, version, order, subset, lost, touched)| SavedSide { pool, version, order, subset, lost, touched },
    )
}

fn pins() -> impl Strategy<Value = SavedPin> {
    let stages = prop_oneof![Just("warming"), Just("flipping"), Just("done"), Just("failed")];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let rest = (any::<u64>(), any::<u8>(), flags, any::<u32>(), any::<u64>(), proptest::option::of(".{0,40}"));
    ("[a-z]{1,8}", "[a-z]{1,8}", proptest::option::of(sides()), sides(), stages, rest).prop_map(
        |(tenant, model, old, new, stage, (since, share, (active, back, cold, overtaken), canary, flipped, words))| {
            let since = Duration::from_nanos(since);
            let stage = stage.to_owned();
            SavedPin {
                tenant,
                model,
                old,
                new,
                stage,
                since,
                share,
                active,
                back,
                cold,
                overtaken,
                canary,
                flipped,
                words,
            }
        },
    )
}

proptest! {
    #[test]
    fn whatever_is_written_is_read(pins in proptest::collection::vec(pins(), 0..20), age in any::<u64>(), atomic in any::<bool>(), flip in any::<bool>()) {
        let mut record = Saved { pins, age: Duration::from_nanos(age), ..example() };
        record.options.atomic = atomic;
        if flip {
            (record.flip, record.paused, record.pending, record.options.shadow) = (None, None, None, None);
        }
        let (first, parts) = write(&record, &meta()).unwrap();
        prop_assert_eq!(saved(&head(&first).unwrap(), &parts).unwrap(), record);
    }

    #[test]
    fn no_text_makes_it_panic(text in r#"\{"form":1[ -~]{0,60}\}"#) {
        if let Ok(json) = Json::parse(text.as_bytes()) {
            let _ = head(&json);
            let _ = saved(&head(&write(&example(), &meta()).unwrap().0).unwrap(), &[json]);
        }
    }
}
