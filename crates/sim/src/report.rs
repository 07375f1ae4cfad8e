//! Many runs of one scenario, as one row of a report.

use holdfast_quota::lease::{chunk, over_admission_bound};

use crate::lease::{Run, Scenario, run};

/// What many runs of one scenario say together.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The chunk, in tokens.
    pub chunk: u64,
    /// How many gateways.
    pub gateways: u32,
    /// How many runs, each with its own seed.
    pub seeds: u64,
    /// The most admitted in one of the seconds 3 to 9: mean over the runs.
    pub worst_second_mean: f64,
    /// The same: the smallest and the largest of the runs.
    pub worst_second_spread: (u64, u64),
    /// Calls to the store per second, over the whole run: mean over the runs.
    pub store_calls_per_second_mean: f64,
    /// The same: the smallest and the largest of the runs.
    pub store_calls_per_second_spread: (f64, f64),
    /// By how many tokens `burst + rate x time` was passed in the worst interval of all runs.
    pub over_admission_worst: u64,
    /// By how many it may be passed.
    pub over_admission_bound: u64,
    /// What the gateway that fared worst, and the one that fared best, got of what it was offered, relative to what all got: mean over the runs.
    pub fairness_mean: (f64, f64),
    /// Requests, and messages to the store and back, of all runs: the steps of the simulation.
    pub events: u64,
    /// Runs that passed the bound.
    pub broken: u64,
}

/// One row for each scenario, over `seeds` seeds from `first` on.
#[must_use]
pub fn rows(scenarios: &[Scenario], seeds: u64, first: u64) -> Vec<Row> {
    scenarios.iter().map(|scenario| row(scenario, seeds.max(1), first)).collect()
}

fn row(scenario: &Scenario, seeds: u64, first: u64) -> Row {
    let runs: Vec<Run> = (0..seeds).map(|at| run(scenario, first.wrapping_add(at))).collect();
    let mean = |of: &dyn Fn(&Run) -> u64| runs.iter().map(of).sum::<u64>() as f64 / seeds as f64;
    let spread = |of: &dyn Fn(&Run) -> u64| {
        let all = || runs.iter().map(of);
        (all().min().unwrap_or(0), all().max().unwrap_or(0))
    };
    let (gateways, seconds) = (scenario.gateways(), scenario.seconds.max(1) as f64);
    let (least, most) = spread(&|run| run.calls);
    Row {
        chunk: chunk(scenario.limit, gateways, scenario.sharing),
        gateways,
        seeds,
        worst_second_mean: mean(&Run::worst_second),
        worst_second_spread: spread(&Run::worst_second),
        store_calls_per_second_mean: mean(&|run| run.calls) / seconds,
        store_calls_per_second_spread: (least as f64 / seconds, most as f64 / seconds),
        over_admission_worst: spread(&|run| run.over).1,
        over_admission_bound: over_admission_bound(scenario.limit, gateways, scenario.sharing),
        fairness_mean: (mean(&|run| run.fairness().0) / 100.0, mean(&|run| run.fairness().1) / 100.0),
        events: runs.iter().map(|run| run.offered_by.iter().sum::<u64>() + 2 * run.calls).sum(),
        broken: runs.iter().map(|run| u64::from(run.broken.is_some())).sum(),
    }
}
