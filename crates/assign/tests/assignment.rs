//! Nobody moves, nobody is favoured: ramps, weights, edges, layers, holdouts, targets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;

use holdfast_assign::split::SplitError;
use holdfast_assign::stats::{chi2_sf, ratio_p};
use holdfast_assign::{
    Allocation, Condition, Edit, Experiment, Facts, Field, KeyFrom, Layer, Out, Outcome, PLACES, Range, Refused,
    Segment, Split, Target,
};
use proptest::prelude::*;

/// What is known of somebody.
#[derive(Default)]
struct Who {
    user: Option<String>,
    device: Option<String>,
    fields: BTreeMap<&'static str, &'static str>,
    now: u64,
}

impl Facts for Who {
    fn key(&self, from: KeyFrom) -> Option<&str> {
        match from {
            KeyFrom::User => self.user.as_deref(),
            KeyFrom::Device => self.device.as_deref(),
            KeyFrom::Tenant => None,
        }
    }

    fn field(&self, field: &Field) -> Option<&str> {
        let name = match field {
            Field::Tenant => "tenant",
            Field::Model => "model",
            Field::Plan => "plan",
            Field::User => return self.key(KeyFrom::User),
            Field::Device => return self.key(KeyFrom::Device),
            Field::Header(name) | Field::Claim(name) | Field::Scope(name) => name,
        };
        self.fields.get(name).copied()
    }

    fn now_ms(&self) -> u64 {
        self.now
    }
}

fn user(number: usize) -> Who {
    Who { user: Some(format!("user-{number}")), ..Who::default() }
}

fn edit(version: u32, coverage: u16, weights: &[u32]) -> Edit {
    Edit { version, coverage, split: Split::of(weights).unwrap() }
}

fn experiment(salt: &str, coverage: u16, weights: &[u32]) -> Experiment {
    Experiment {
        salt: salt.into(),
        running: true,
        start: None,
        end: None,
        keys: vec![KeyFrom::User, KeyFrom::Device],
        target: Target::default(),
        layer: None,
        holdout: None,
        sticky_ms: None,
        allocation: Allocation::new(edit(1, coverage, weights)).unwrap(),
    }
}

fn arm(experiment: &Experiment, who: &Who) -> Option<usize> {
    match experiment.assign(who) {
        Outcome::Arm(arm, _) | Outcome::Kept(arm, _) => Some(arm),
        Outcome::Out(_) => None,
    }
}

const IDS: usize = 300_000;

#[test]
fn the_mix_inside_a_small_share_is_the_mix_of_all() {
    let experiment = experiment("mix", 1_000, &[1, 1, 1]);
    let mut counts = [0u64; 4];
    (0..IDS).for_each(|id| counts[arm(&experiment, &user(id)).unwrap_or(3)] += 1);
    let inside = ratio_p(&counts[..3], &experiment.allocation.shares(3)).unwrap();
    assert!(inside > 0.001, "{counts:?}: {inside}");
    let share = ratio_p(&[IDS as u64 - counts[3], counts[3]], &[1, 9]).unwrap();
    assert!(share > 0.001, "{counts:?}: {share}");
}

#[test]
fn two_experiments_are_independent() {
    let (one, two) = (experiment("one", 5_000, &[1, 1, 1]), experiment("two", PLACES, &[1, 2]));
    let mut table = [[0f64; 2]; 3];
    for id in 0..IDS {
        if let (Some(a), Some(b)) = (arm(&one, &user(id)), arm(&two, &user(id))) {
            table[a][b] += 1.0;
        }
    }
    let all: f64 = table.iter().flatten().sum();
    let mut chi2 = 0.0;
    for row in &table {
        for (column, count) in row.iter().enumerate() {
            let expected = row.iter().sum::<f64>() * table.iter().map(|r| r[column]).sum::<f64>() / all;
            chi2 += (count - expected).powi(2) / expected;
        }
    }
    assert!(chi2_sf(chi2, 2) > 0.001, "{table:?}: {chi2}");
}

#[test]
fn a_ramp_moves_nobody_between_arms() {
    let mut experiment = experiment("ramp", PLACES, &[50, 30, 20]);
    let first: Vec<Option<usize>> = (0..20_000).map(|id| arm(&experiment, &user(id))).collect();
    assert!(first.iter().all(Option::is_some), "100 % reaches everybody");
    for coverage in [2_000, 6_000, 0, 1, PLACES] {
        experiment.allocation = experiment.allocation.edited(edit(1, coverage, &[50, 30, 20])).unwrap();
        let mut inside = 0;
        for (id, was) in first.iter().enumerate() {
            let now = arm(&experiment, &user(id));
            assert!(now.is_none() || now == *was, "{id} moved at {coverage}");
            inside += u32::from(now.is_some());
        }
        let expected = 20_000.0 * f64::from(coverage) / f64::from(PLACES);
        assert!((f64::from(inside) - expected).abs() <= 5.0 * (expected + 1.0).sqrt(), "{inside} at {coverage}");
    }
    // Another bucket version is another throw.
    experiment.allocation = experiment.allocation.edited(edit(2, PLACES, &[50, 30, 20])).unwrap();
    let moved = first.iter().enumerate().filter(|(id, was)| arm(&experiment, &user(*id)) != **was).count();
    assert!(moved > 10_000, "{moved}");
}

#[test]
fn other_weights_are_for_new_people_only() {
    let start = Allocation::new(edit(1, 2_000, &[1, 1])).unwrap();
    assert_eq!(start.edited(edit(1, 2_000, &[9, 1])), Err(Refused::Moves(2_000)));
    assert_eq!(start.edited(edit(1, 1_000, &[9, 1])), Err(Refused::Moves(2_000)), "they may come back");
    assert_eq!(start.edited(edit(0, 2_000, &[1, 1])), Err(Refused::Version));
    assert_eq!(start.edited(edit(1, PLACES + 1, &[1, 1])), Err(Refused::Coverage));
    assert_eq!(start.edited(edit(1, 5_000, &[1])), Err(Refused::ArmGone(1)));
    let grown = start.edited(edit(1, 5_000, &[9, 1])).unwrap();
    assert_eq!(grown.given().len(), 2);
    for place in 0..PLACES {
        assert_eq!(grown.arm(1_999, place), start.arm(1_999, place), "given");
        assert_eq!(grown.arm(2_000, place), Some(usize::from(place >= 9_000)), "new");
    }
    assert_eq!(grown.shares(2), [2_000 * 5_000 + 3_000 * 9_000, 2_000 * 5_000 + 3_000 * 1_000]);
    // A new arm at the end with no weight changes nothing, and gets its people with the next growth.
    let third = grown.edited(edit(1, 5_000, &[9, 1, 0])).unwrap();
    assert_eq!(third.given(), grown.given());
    assert_eq!(third.edited(edit(1, PLACES, &[1, 1, 8])).unwrap().arm(7_000, 9_999), Some(2));
    assert!(start.edited(edit(2, 2_000, &[9, 1])).unwrap().given().len() == 1, "a new bucket version forgets");
    let mut often = Allocation::new(edit(1, 1, &[1, 1])).unwrap();
    for step in 2..=64 {
        often = often.edited(edit(1, step, &[u32::from(step), 1 + u32::from(step % 2)])).unwrap();
    }
    assert_eq!(often.edited(edit(1, 65, &[1, 9])), Err(Refused::TooMany));
}

#[test]
fn weights_are_proportions() {
    let ends = |weights: &[u32]| -> Result<Vec<u16>, SplitError> {
        Split::of(weights).map(|split| split.ranges().iter().map(|range| range.to).collect())
    };
    assert_eq!(ends(&[1, 1, 1]), Ok(vec![3_333, 6_666, 10_000]));
    assert_eq!(ends(&[33, 33, 33]), ends(&[1, 1, 1]));
    assert_eq!(ends(&[200, 100]), Ok(vec![6_666, 10_000]));
    assert_eq!(ends(&[1, 999]), Ok(vec![10, 10_000]));
    assert_eq!(ends(&[u32::MAX, u32::MAX]), Ok(vec![5_000, 10_000]));
    assert_eq!(ends(&[0, 90]), Ok(vec![0, 10_000]));
    assert_eq!(ends(&[90, 0]), Ok(vec![10_000, 10_000]));
    assert_eq!(ends(&[0, 0]), Err(SplitError::Zero));
    assert_eq!(ends(&[0]), Err(SplitError::Zero));
    assert_eq!(ends(&[]), Err(SplitError::Arms));
    assert_eq!(ends(&[1; 65]), Err(SplitError::Arms));
    assert_eq!(ends(&[1_000_000, 1]), Ok(vec![9_999, 10_000]), "the last one has what is left");
    assert_eq!(ends(&[1, 1_000_000]), Err(SplitError::TooSmall(0)));
    let split = Split::of(&[0, 90]).unwrap();
    assert!((0..PLACES).all(|place| split.arm(place) == Some(1)), "zero is none");
    assert_eq!(split.arm(PLACES), None);
    let ranges = Split::of(&[1, 9]).unwrap();
    assert_eq!([0, 999, 1_000, 9_999].map(|place| ranges.arm(place)), [Some(0), Some(0), Some(1), Some(1)]);
}

#[test]
fn parts_of_a_layer_have_nobody_in_common_and_a_holdout_is_left_alone() {
    let part = |from, to| Some(Layer { name: "checkout".into(), range: Range { from, to } });
    let mut one = experiment("one", PLACES, &[1, 1]);
    let mut two = experiment("two", PLACES, &[1, 1]);
    (one.layer, two.layer) = (part(0, 4_000), part(4_000, 10_000));
    one.holdout = Some(("all".into(), 500));
    two.holdout.clone_from(&one.holdout);
    let (mut neither, mut in_one) = (0u64, 0u64);
    for id in 0..50_000 {
        match (one.assign(&user(id)), two.assign(&user(id))) {
            (Outcome::Arm(..), Outcome::Arm(..)) => panic!("{id} is in both"),
            (Outcome::Arm(..), other) => {
                assert_eq!(other, Outcome::Out(Out::Layer));
                in_one += 1;
            }
            (Outcome::Out(Out::Holdout), other) => {
                assert_eq!(other, Outcome::Out(Out::Holdout));
                neither += 1;
            }
            _ => {}
        }
    }
    assert!(ratio_p(&[neither, 50_000 - neither], &[500, 9_500]).unwrap() > 0.001, "{neither}");
    assert!(ratio_p(&[in_one, 50_000 - neither - in_one], &[4, 6]).unwrap() > 0.001, "{in_one}");
    assert!(!Range { from: 0, to: 4_000 }.meets(Range { from: 4_000, to: 10_000 }));
    assert!(Range { from: 0, to: 4_001 }.meets(Range { from: 4_000, to: 10_000 }));
    assert!(!Range { from: 5, to: 5 }.meets(Range::ALL));
}

#[test]
fn keys_fall_back_in_order_and_a_user_is_no_device() {
    let experiment = experiment("keys", PLACES, &[1, 1]);
    let both = |id: usize| Who { user: Some(format!("u{id}")), device: Some(format!("d{id}")), ..Who::default() };
    let moved = (0..1_000).filter(|id| {
        let user_only = Who { device: None, ..both(*id) };
        assert_eq!(experiment.assign(&both(*id)), experiment.assign(&user_only), "the user decides");
        let named = Who { device: both(*id).user, ..Who::default() };
        matches!(experiment.assign(&named), Outcome::Arm(_, KeyFrom::Device))
            && arm(&experiment, &named) != arm(&experiment, &user_only)
    });
    assert!((300..700).contains(&moved.count()));
    for none in [Who::default(), Who { user: Some(String::new()), ..Who::default() }] {
        assert_eq!(experiment.assign(&none), Outcome::Out(Out::NoKey));
    }
}

#[test]
fn targets() {
    let one_of = |all: &[&str]| Condition::In(all.iter().map(|one| (*one).to_owned()).collect());
    let none_of = |all: &[&str]| Condition::NotIn(all.iter().map(|one| (*one).to_owned()).collect());
    let mut experiment = experiment("target", PLACES, &[1]);
    let who = |fields: &[(&'static str, &'static str)]| Who { fields: fields.iter().copied().collect(), ..user(1) };
    let acme = [("tenant", "acme"), ("plan", "gold"), ("x-client", "ios/17")];
    for (field, condition, holds) in [
        (Field::Tenant, one_of(&["acme", "globex"]), true),
        (Field::Tenant, one_of(&["Acme"]), false),
        (Field::Plan, none_of(&["free"]), true),
        (Field::Plan, none_of(&["gold"]), false),
        (Field::Header("x-client".into()), Condition::Begins("ios/".into()), true),
        (Field::Header("x-client".into()), Condition::Begins("android/".into()), false),
        (Field::Claim("beta".into()), Condition::Present, false),
        (Field::Claim("beta".into()), Condition::Absent, true),
        (Field::Claim("beta".into()), none_of(&["no"]), true),
        (Field::Claim("beta".into()), one_of(&["yes"]), false),
        (Field::Model, Condition::Present, false),
    ] {
        experiment.target = Target(vec![(field, condition)]);
        let outcome = experiment.assign(&who(&acme));
        assert_eq!(outcome == Outcome::Arm(0, KeyFrom::User), holds, "{:?}", experiment.target);
        assert!(holds || outcome == Outcome::Out(Out::Target));
    }
    experiment.running = false;
    assert_eq!(experiment.assign(&who(&acme)), Outcome::Out(Out::NotRunning));
}

#[test]
fn a_start_is_in_and_an_end_is_not() {
    let mut experiment = experiment("time", PLACES, &[1]);
    let at = |experiment: &Experiment, now| experiment.assign(&Who { now, ..user(1) });
    (experiment.start, experiment.end) = (Some(1_000), Some(2_000));
    let (is_in, out) = (Outcome::Arm(0, KeyFrom::User), Outcome::Out(Out::Time));
    for (now, want) in [(0, out), (999, out), (1_000, is_in), (1_999, is_in), (2_000, out), (u64::MAX, out)] {
        assert_eq!(at(&experiment, now), want, "{now}");
    }
    experiment.end = None;
    assert_eq!((at(&experiment, 999), at(&experiment, u64::MAX)), (out, is_in));
}

#[test]
fn arms_in_another_order_keep_their_people() {
    let before = Allocation::new(edit(1, 4_000, &[30, 70, 0])).unwrap();
    // The second arm is listed first now, the one that nobody has is gone, and there is a new one.
    let to = |arm| [Some(1), Some(0), None].get(arm).copied().flatten();
    let now = before.reordered(3, to).unwrap();
    for (inclusion, place) in [(0, 0), (0, 2_999), (3_999, 3_000), (1, 9_999), (4_000, 0)] {
        assert_eq!(now.arm(inclusion, place), before.arm(inclusion, place).and_then(to), "{inclusion} {place}");
    }
    assert_eq!(before.reordered(1, |arm| (arm == 0).then_some(0)), Err(Refused::ArmGone(1)));
    // The same shares under other places are no change of the weights.
    let asked = edit(1, 6_000, &[70, 30, 0]);
    let asked = Edit { split: now.like_last(asked.split), ..asked };
    let grown = now.edited(asked).unwrap();
    assert_eq!(grown.given().len(), 1);
    assert_eq!(grown.arm(5_000, 100), Some(1));
}

#[test]
fn a_history_that_does_not_hold_together_is_no_history() {
    let segment = |from, to, ranges: &[(u16, u16)]| {
        let ranges = ranges.iter().map(|(from, to)| Range { from: *from, to: *to }).collect();
        Some(Segment { range: Range { from, to }, split: Split::given(ranges)? })
    };
    assert!(segment(0, 1, &[(0, 4_000), (5_000, PLACES)]).is_none(), "a hole");
    assert!(segment(0, 1, &[(0, 6_000), (5_000, PLACES)]).is_none(), "an overlap");
    assert!(segment(0, 1, &[(0, 6_000)]).is_none() && segment(0, 1, &[]).is_none());
    let whole = |from, to| segment(from, to, &[(5_000, PLACES), (0, 5_000)]).unwrap();
    let restored = |coverage, given: &[(u16, u16)]| {
        Allocation::restored(1, coverage, given.iter().map(|(from, to)| whole(*from, *to)).collect())
    };
    assert!(restored(300, &[(0, 100), (100, 500)]).is_ok() && restored(0, &[]).is_ok());
    for (coverage, given) in
        [(1, &[][..]), (501, &[(0, 500)]), (5, &[(1, 500)]), (5, &[(0, 9), (10, 20)]), (0, &[(0, 0)])]
    {
        assert_eq!(restored(coverage, given), Err(Refused::History), "{coverage} {given:?}");
    }
}

proptest! {
    #[test]
    fn ranges_cover_the_whole_once(weights in proptest::collection::vec(0u32..1_000, 1..20)) {
        let Ok(split) = Split::of(&weights) else { return Ok(()) };
        let mut next = 0;
        for (range, weight) in split.ranges().iter().zip(&weights) {
            prop_assert_eq!(range.from, next);
            prop_assert!(range.to >= range.from && (*weight > 0) != range.is_empty());
            next = range.to;
        }
        prop_assert_eq!(next, PLACES);
    }

    #[test]
    fn no_history_of_edits_moves_anybody(
        edits in proptest::collection::vec((0u32..2, 0u16..=PLACES, proptest::collection::vec(0u32..5, 2..4)), 1..25),
        places in proptest::collection::vec((0u16..PLACES, 0u16..PLACES), 1..40),
    ) {
        let mut now = Allocation::new(edit(1, 3_000, &[1, 1])).unwrap();
        // What each place was given under the present bucket version.
        let mut given: BTreeMap<(u16, u16), usize> = BTreeMap::new();
        for (raise, coverage, weights) in edits {
            let Ok(split) = Split::of(&weights) else { continue };
            let asked = Edit { version: now.version() + raise, coverage, split };
            let Ok(next) = now.edited(asked) else { continue };
            if next.version() > now.version() {
                given.clear();
            }
            now = next;
            for (inclusion, place) in &places {
                let arm = now.arm(*inclusion, *place);
                prop_assert_eq!(arm.is_some(), *inclusion < now.coverage());
                if let Some(arm) = arm {
                    prop_assert_eq!(*given.entry((*inclusion, *place)).or_insert(arm), arm);
                }
            }
        }
    }
}
