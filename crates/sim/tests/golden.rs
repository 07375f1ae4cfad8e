//! The figures of the worked cases, and the promise of RATE-1, over seeded runs.

use std::time::Duration;

use holdfast_quota::lease::Sharing;
use holdfast_sim::lease::{Run, Scenario, run};
use holdfast_sim::{Row, rows};

/// As many as the report has.
const SEEDS: u64 = 60;

fn of_chunk(chunk: u32) -> Scenario {
    Scenario { sharing: Sharing { chunk: chunk * 10, ..Sharing::default() }, ..Scenario::worked() }
}

fn one(scenario: Scenario) -> Row {
    let row = rows(&[scenario], SEEDS, 1).remove(0);
    assert_eq!(row.broken, 0);
    assert!(row.over_admission_worst <= row.over_admission_bound);
    row
}

#[test]
fn the_worked_case() {
    for (chunk, worst, calls) in [
        (1, 1_000.5..=1_003.5, 1_434.0..=1_446.0),
        (25, 1_010.0..=1_017.0, 265.0..=274.0),
        (100, 1_035.0..=1_051.0, 118.0..=124.0),
    ] {
        let row = one(of_chunk(chunk));
        assert_eq!(row.chunk, u64::from(chunk));
        assert!(worst.contains(&row.worst_second_mean), "{row:?}");
        assert!(calls.contains(&row.store_calls_per_second_mean), "{row:?}");
    }
}

#[test]
fn the_initial_burst_drains_in_about_1_7_seconds() {
    let run = run(&of_chunk(25), 1);
    // 1,600 in the first second, 1,000 in the third.
    assert!(run.admitted[0] > 1_500 && (1_300..1_500).contains(&run.admitted[1]), "{:?}", run.admitted);
    assert!((950..1_050).contains(&run.admitted[2]), "{:?}", run.admitted);
    // Into the second second what is offered is admitted, 600 more than the limit; after that the limit is.
    let drained = |seed| 1.0 + (self::run(&of_chunk(25), seed).admitted[1] as f64 - 1_000.0) / 600.0;
    let mean = (1..=60).map(drained).sum::<f64>() / 60.0;
    // 1,000 / 600 on paper; what gateways hold and have not spent is no part of it.
    assert!((1.6..1.75).contains(&mean), "{mean}");
}

#[test]
fn fifty_gateways_stay_under_two_hundred_calls_without_unfairness() {
    let row = one(Scenario::worked().through(50));
    assert!(row.store_calls_per_second_mean < 200.0 && row.store_calls_per_second_spread.1 < 200.0, "{row:?}");
    assert!(row.worst_second_mean < 1_050.0, "{row:?}");
    assert!(row.fairness_mean.0 > 0.85 && row.fairness_mean.1 < 1.15, "{row:?}");
}

#[test]
fn fifty_gateways_that_wait_a_chunks_time_make_750_to_820() {
    let sharing = Sharing { fraction: 20_000, ..Sharing::default() };
    let row = one(Scenario { turns_from: u32::MAX, sharing, ..Scenario::worked().through(50) });
    assert_eq!(row.chunk, 25);
    assert!((750.0..=820.0).contains(&row.store_calls_per_second_mean), "{row:?}");
}

#[test]
fn unequal_gateways_get_their_share_by_turns() {
    let shares = (0..50).map(|at| if at < 5 { 10 } else { 1 }).collect();
    let row = one(Scenario { shares, ..Scenario::worked() });
    assert!(row.store_calls_per_second_mean < 200.0, "{row:?}");
    assert!(row.fairness_mean.0 > 0.8 && row.fairness_mean.1 < 1.5, "{row:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let scenario = Scenario { delay: Duration::from_micros(700), away: 3_000..5_000, ..Scenario::worked().through(9) };
    assert_eq!(run(&scenario, 7), run(&scenario, 7));
    assert_ne!(run(&scenario, 7), run(&scenario, 8));
}

/// What was admitted from a second on, per second.
fn rate(run: &Run, from: usize, to: usize) -> usize {
    run.admitted[from..to].iter().sum::<u64>() as usize / (to - from)
}

#[test]
fn a_store_that_is_away_costs_neither_service_nor_the_limit() {
    for gateways in [1, 4, 9, 50] {
        for (loses, delay) in [(false, 0), (true, 0), (false, 900), (true, 900)] {
            for seed in 1..=4 {
                let shares = (0..gateways).map(|_| 1).collect();
                let delay = Duration::from_micros(delay);
                let scenario = Scenario { shares, away: 4_100..7_300, loses, delay, ..Scenario::worked() };
                let run = run(&scenario, seed);
                let what = format!("{gateways} gateways, seed {seed}, loses {loses}, {delay:?}: {run:?}");
                assert_eq!(run.broken, None, "{what}");
                assert!(rate(&run, 5, 7) > 900, "alone they serve on: {what}");
                assert!(rate(&run, 8, 10) > 850, "and together again: {what}");
                // What the bucket held when the store went away may be spent when it is back; a bucket that had filled up meanwhile would make
                // it 1,500 and more.
                assert!(run.admitted[4..].iter().all(|second| *second < 1_200), "no spike: {what}");
            }
        }
    }
}
