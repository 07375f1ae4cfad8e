//! The sequential test under peeking, its coverage, and the check of a sample's ratio against scipy.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::excessive_precision, reason = "tests")]

mod random;

use holdfast_assign::stats::{LEAST, Sequential, Sums, chi2_sf, ratio_p};
use proptest::prelude::*;
use random::Random;

impl Random {
    /// Of mean 0 and variance 1, by Box and Muller.
    fn normal(&mut self) -> f64 {
        (-2.0 * (1.0 - self.share()).ln()).sqrt() * (2.0 * std::f64::consts::PI * self.share()).cos()
    }
}

#[test]
fn the_chi_squared_distribution_is_scipys() {
    for (x, degrees, sf) in [
        (0.5, 1, 0.479_500_122_186_953_37),
        (3.841_458_820_694_124, 1, 0.049_999_999_999_999_89),
        (10.0, 1, 0.001_565_402_258_002_549),
        (0.1, 2, 0.951_229_424_500_714),
        (5.991_464_547_107_979, 2, 0.050_000_000_000_000_07),
        (50.0, 9, 1.077_238_202_257_469_3e-7),
        (9.0, 10, 0.532_103_576_374_715_1),
        (200.0, 3, 4.218_541_107_192_018e-43),
        (1_000.0, 999, 0.485_131_489_274_901_46),
    ] {
        let got: f64 = chi2_sf(x, degrees);
        assert!(((got - sf) / sf).abs() < 1e-9, "{x} {degrees}: {got} is not {sf}");
    }
    for (counts, shares, p) in [
        (&[5_120u64, 4_880][..], &[1u64, 1][..], 0.016_395_071_849_192_25),
        (&[900, 100, 0], &[8, 1, 1], 3.723_363_121_750_5e-25),
        (&[5_000, 2_600, 2_400], &[2, 1, 1], 0.018_315_638_888_734_182),
    ] {
        let got = ratio_p(counts, shares).unwrap();
        assert!(((got - p) / p).abs() < 1e-9, "{counts:?}: {got} is not {p}");
    }
    assert_eq!(ratio_p(&[1, 2], &[1]), None);
    assert_eq!(ratio_p(&[5, 0], &[1, 0]), None, "one arm has no ratio");
    assert_eq!(ratio_p(&[5, 1], &[1, 0]), None, "nobody belongs there");
    assert_eq!(ratio_p(&[0, 0], &[1, 1]), None);
    assert!(ratio_p(&[5, 5, 0], &[1, 1, 0]).is_some_and(|p| p > 0.99));
}

#[test]
fn sums_are_numpys_and_pass_over_what_is_no_number() {
    let mut sums = Sums::default();
    assert_eq!(sums.variance(), None);
    for value in [1.0, 2.0, f64::NAN, 3.5, f64::INFINITY, -4.0, 1e6] {
        assert_eq!(sums.add(value), value.is_finite());
    }
    assert_eq!(sums.count, 5);
    assert!((sums.mean - 200_000.5).abs() < 1e-6 && (sums.variance().unwrap() / 199_999_750_008.0 - 1.0).abs() < 1e-12);
}

/// Peeks every 50 values of each arm up to 3,000. Whether a difference was found, and whether the true one was in every look's common interval.
fn run(seed: u64, difference: f64, draw: fn(&mut Random, f64) -> f64) -> (bool, bool) {
    let mut random = Random(seed.wrapping_mul(0x1234_5678_9abc_def1));
    let (mut first, mut second) = (Sums::default(), Sums::default());
    let mut test = Sequential::new(0.05, 0.1).unwrap();
    let mut covers = true;
    for _ in 0..60 {
        for _ in 0..50 {
            first.add(draw(&mut random, 0.0));
            second.add(draw(&mut random, difference));
        }
        test.look(&first, &second);
        covers &= test.interval().is_some_and(|(low, high)| low <= difference && difference <= high);
    }
    (test.is_found(), covers)
}

const RUNS: u64 = 2_000;

#[test]
fn peeking_raises_no_more_false_alarms_than_was_said() {
    let normal: fn(&mut Random, f64) -> f64 = |random, mean| mean + random.normal();
    let rate: fn(&mut Random, f64) -> f64 = |random, more| f64::from(u8::from(random.share() < 0.2 + more));
    for draw in [normal, rate] {
        let runs: Vec<(bool, bool)> = (0..RUNS).map(|seed| run(seed, 0.0, draw)).collect();
        let alarms = runs.iter().filter(|(found, _)| *found).count();
        let covered = runs.iter().filter(|(_, covers)| *covers).count();
        assert!(alarms as u64 <= RUNS * 5 / 100, "{alarms} of {RUNS}");
        assert!(covered as u64 >= RUNS * 95 / 100, "{covered} of {RUNS}");
        // It is a test all the same: an alarm and an interval without zero are one thing.
        assert_eq!(alarms as u64 + covered as u64, RUNS);
    }
}

#[test]
fn a_difference_is_found_and_its_interval_covers_it() {
    let normal: fn(&mut Random, f64) -> f64 = |random, mean| mean + random.normal();
    let runs: Vec<(bool, bool)> = (0..400).map(|seed| run(seed, 0.2, normal)).collect();
    let found = runs.iter().filter(|(found, _)| *found).count();
    let covered = runs.iter().filter(|(_, covers)| *covers).count();
    assert!(found >= 390, "{found} of 400");
    assert!(covered >= 380, "{covered} of 400");
}

#[test]
fn too_little_says_nothing() {
    let mut test = Sequential::new(0.05, 0.1).unwrap();
    let mut few = Sums::default();
    for n in 1..LEAST {
        few.add(n as f64);
    }
    assert_eq!(test.look(&few, &few), None);
    let mut same = Sums::default();
    for _ in 0..1_000 {
        same.add(1.0);
    }
    assert_eq!(test.look(&same, &same), None, "values that do not vary");
    assert!(!test.is_found() && test.p() >= 1.0);
    for (alpha, effect) in
        [(0.0, 1.0), (1.0, 1.0), (f64::NAN, 1.0), (0.05, 0.0), (0.05, f64::NAN), (0.05, f64::INFINITY)]
    {
        assert!(Sequential::new(alpha, effect).is_none(), "{alpha} {effect}");
    }
}

proptest! {
    #[test]
    fn parts_together_are_the_whole(values in proptest::collection::vec(-1e3..1e3f64, 2..100), at in 0usize..100) {
        let at = at.min(values.len());
        let sum = |values: &[f64]| values.iter().fold(Sums::default(), |mut sums, value| { sums.add(*value); sums });
        let (whole, parts) = (sum(&values), sum(&values[..at]).with(&sum(&values[at..])));
        prop_assert_eq!(whole.count, parts.count);
        prop_assert!((whole.mean - parts.mean).abs() < 1e-9);
        prop_assert!((whole.variance().unwrap() - parts.variance().unwrap()).abs() < 1e-6 * (1.0 + whole.variance().unwrap()));
    }

    #[test]
    fn a_p_value_never_rises_and_an_interval_never_widens(values in proptest::collection::vec((-5.0..5.0f64, -5.0..5.0f64), 200..600)) {
        let (mut first, mut second) = (Sums::default(), Sums::default());
        let mut test = Sequential::new(0.05, 0.5).unwrap();
        let mut last = (1.0, f64::INFINITY);
        for (a, b) in values {
            first.add(a);
            second.add(b);
            if let Some(look) = test.look(&first, &second) {
                prop_assert!(look.p.is_finite() && look.low <= look.difference && look.difference <= look.high);
            }
            let width = test.interval().map_or(0.0, |(low, high)| high - low);
            prop_assert!(test.p() <= last.0 && width <= last.1);
            last = (test.p(), width);
        }
    }
}
