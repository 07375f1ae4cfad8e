//! The analysis of windows: against scipy, under peeking, and what windows that are left out cost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod random;

use holdfast_assign::analysis::{Excluded, Metric, Terms, compare, cost, is_out, ratios};
use holdfast_assign::stats::{Sequential, Sums, ratio_p};
use holdfast_assign::window::Window;
use random::Random;

const SCIPYS: &str = include_str!("../vectors/stats.tsv");

fn near(got: f64, want: f64) -> bool {
    (got - want).abs() <= 1e-6 * want.abs().max(1e-9)
}

fn rows(kind: &str) -> Vec<Vec<&'static str>> {
    let rows = SCIPYS.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter(|row| row[0] == kind).map(|row| row[1..].to_vec()).collect()
}

fn numbers(row: &[&str]) -> Vec<f64> {
    row.iter().map(|number| number.parse().unwrap()).collect()
}

/// `vectors/stats.py` integrates the mixture and searches for the interval's ends; here are the closed forms.
#[test]
fn looks_ratios_and_rates_are_scipys() {
    let looks = rows("look");
    assert_eq!(looks.len(), 32);
    for row in looks {
        let n = numbers(&row);
        let sums = |at: usize| Sums::of(n[at] as u64, n[at + 1], n[at + 2]).unwrap();
        let mut test = Sequential::standard(n[6], n[7]).unwrap();
        let look = test.look(&sums(0), &sums(3)).unwrap();
        let (got, want) = ([look.difference, look.p, look.low, look.high], &n[8..]);
        for (got, want) in got.into_iter().zip(want) {
            // The difference of two means of ten thousand has lost digits by then.
            assert!(near(got, *want) || (got - want).abs() < 1e-9 * n[1].abs(), "{got} is not {want}: {row:?}");
        }
    }
    for row in rows("ratio") {
        let list = |text: &str| text.split(',').map(|n| n.parse().unwrap()).collect::<Vec<u64>>();
        let (p, want) = (ratio_p(&list(row[0]), &list(row[1])).unwrap(), row[2].parse().unwrap());
        assert!(near(p, want), "{p} is not {want}: {row:?}");
    }
    for row in rows("rate") {
        let n = numbers(&row);
        let sums = Sums::rate(n[0] as u64, n[1] as u64);
        assert!(near(sums.mean, n[2]) && (sums.variance().unwrap() - n[3]).abs() < 1e-12, "{row:?}");
    }
    assert_eq!(Sums::rate(0, 3), Sums::default());
}

const RUNS: u64 = 2_000;
const WINDOWS: u64 = 40;
const EACH: u64 = 50;
const WIDTH: u64 = 1_000;

/// How many of the runs found a difference at some look, and how many had the true one outside of their interval at some look.
fn runs(alpha: f64, metric: &Metric, draw: impl Fn(&mut Random, bool) -> f64, truth: f64) -> (u64, u64) {
    let terms = Terms { alpha, effect: 0.1, others: 1 };
    let (mut found, mut missed) = (0, 0);
    for run in 0..RUNS {
        let mut random = Random(run.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ 77);
        let mut arms = [Vec::new(), Vec::new()];
        for start in (0..WINDOWS).map(|window| window * WIDTH) {
            for (arm, windows) in arms.iter_mut().enumerate() {
                let mut window = window(start, 0, 0);
                let sums = window.outcomes.entry("m".into()).or_default();
                (0..EACH).for_each(|_| assert!(sums.add(draw(&mut random, arm == 1))));
                windows.push(window);
            }
        }
        let windows = arms.each_ref().map(|windows| windows.iter().collect::<Vec<_>>());
        let told = compare(&windows[0], &windows[1], metric, WIDTH, &terms).unwrap();
        assert_eq!(told.looks.len() as u64, WINDOWS - 1, "one window is too little to say anything");
        found += u64::from(told.is_found);
        missed += u64::from(told.is_torn || told.looks.iter().any(|(_, look)| truth < look.low || look.high < truth));
    }
    (found, missed)
}

/// Under no difference, looked at after every window, it is found in a part of the runs that is alpha at most; and the interval covers the true difference
/// at all looks of at least the others, whatever the difference is.
#[test]
fn peeking_raises_no_more_false_alarms_than_alpha_and_intervals_cover() {
    let metric = Metric::Outcome("m".into());
    for alpha in [0.05, 0.2] {
        let most = (alpha * RUNS as f64) as u64;
        let rate = |random: &mut Random, _| f64::from(u8::from(random.share() < 0.2));
        let (found, missed) = runs(alpha, &metric, rate, 0.0);
        assert!(found <= most && missed <= most, "rates at {alpha}: {found} and {missed} of {most}");
        let skewed = |random: &mut Random, _| -(1.0 - random.share()).ln();
        let (found, missed) = runs(alpha, &metric, skewed, 0.0);
        assert!(found <= most && missed <= most, "exponential at {alpha}: {found} and {missed} of {most}");
    }
    let lifted = |random: &mut Random, second| f64::from(u8::from(random.share() < if second { 0.35 } else { 0.2 }));
    let (found, missed) = runs(0.05, &metric, lifted, 0.15);
    assert!(found > RUNS * 9 / 10, "what is there is found: {found}");
    assert!(missed <= RUNS / 20, "{missed}");
}

fn window(start: u64, requests: u64, errors: u64) -> Window {
    Window { start, requests, errors, ..Window::default() }
}

#[test]
fn a_window_that_touches_an_excluded_time_is_out() {
    let at = |start| window(start, 0, 0);
    let excluded = [Excluded { from: 2_500, to: 3_000 }, Excluded { from: 9_000, to: 9_001 }];
    let out: Vec<u64> = (0..12).map(|n| n * 1_000).filter(|start| is_out(&at(*start), 1_000, &excluded)).collect();
    assert_eq!(out, [2_000, 9_000]);
}

#[test]
fn what_is_left_out_costs_values_and_time() {
    let all: Vec<Window> = (0..10).map(|n| window(n * 1_000, if n == 3 { 40 } else { 100 }, 1)).collect();
    let all: Vec<&Window> = all.iter().collect();
    let excluded = [Excluded { from: 3_000, to: 5_000 }];
    let told = cost(&all, &Metric::Errors, 1_000, &excluded);
    assert_eq!((told.windows, told.values), (2, 140));
    assert!(near(told.share, 140.0 / 940.0) && near(told.delay.unwrap(), 1_400.0), "{told:?}");
    assert!(near(told.wider.unwrap(), (940.0_f64 / 800.0).sqrt() - 1.0), "{told:?}");
    let none = cost(&all, &Metric::Errors, 1_000, &[]);
    assert_eq!((none.windows, none.values, none.delay, none.wider), (0, 0, Some(0.0), Some(0.0)));
    let everything = cost(&all, &Metric::Errors, 1_000, &[Excluded { from: 0, to: 10_000 }]);
    assert_eq!((everything.delay, everything.wider, everything.share), (None, None, 1.0));
}

#[test]
fn metrics_of_the_gateway_and_of_clients_are_compared_alike() {
    let series = |errors: u64, value: f64| {
        (0..6).map(move |n| {
            let mut window = window(n * 1_000, 500, errors);
            for at in 0..100 {
                window.latency.add(1_000.0 + f64::from(at));
                window.outcomes.entry("spent".into()).or_default().add(value + f64::from(at % 10));
            }
            window
        })
    };
    let (a, b): (Vec<Window>, Vec<Window>) = (series(5, 10.0).collect(), series(50, 10.0).collect());
    let (a, b): (Vec<&Window>, Vec<&Window>) = (a.iter().collect(), b.iter().collect());
    let metrics = Metric::all(a.iter().chain(&b).copied());
    assert_eq!(metrics, [Metric::Errors, Metric::Latency, Metric::Outcome("spent".into())]);
    let terms = Terms { alpha: 0.05, effect: 0.1, others: 2 };
    let told: Vec<_> = metrics.iter().map(|metric| compare(&a, &b, metric, 1_000, &terms).unwrap()).collect();
    assert!(told[0].is_found && !told[1].is_found && !told[2].is_found, "{told:?}");
    assert_eq!((told[0].first, told[0].second), (Sums::rate(3_000, 30), Sums::rate(3_000, 300)));
    let last = told[0].looks.last().unwrap();
    assert_eq!(last.0, 6_000, "a look is at the end of its window");
    assert!(last.1.low > 0.0 && last.1.low < 0.09 && last.1.high > 0.09, "{last:?}");
    assert!(compare(&a, &b, &Metric::Errors, 1_000, &Terms { alpha: 1.5, ..terms }).is_none());
}

#[test]
fn people_are_compared_with_their_shares_in_all_and_by_reason() {
    let arm = |user: u64, device: u64| {
        let mut window = Window::default();
        window.people.insert("user".into(), user);
        window.people.insert("device".into(), device);
        window
    };
    // Users and devices are each out of their ratio, and together they hide it.
    let arms = [arm(5_400, 4_600), arm(4_600, 5_400)];
    let windows: Vec<Vec<&Window>> = arms.iter().map(|window| vec![window]).collect();
    let told = ratios(&windows, &[1, 1]);
    let reasons: Vec<Option<&str>> = told.iter().map(|one| one.reason.as_deref()).collect();
    assert_eq!(reasons, [None, Some("device"), Some("user")]);
    assert!(told[0].p.unwrap() > 0.99 && told[1].p.unwrap() < 1e-6 && told[2].p.unwrap() < 1e-6, "{told:?}");
    assert!(ratios(&windows, &[1, 0]).iter().all(|one| one.is_impossible && one.p.is_none()));
}
