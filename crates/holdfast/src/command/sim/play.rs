//! Many runs of a scenario on all cores, and what they come to.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use holdfast_sim::scenario::{Broken, Report, Scenario, Shortened};

/// The figures of one run, and which one it is.
type Row = (u64, Vec<(&'static str, f64)>);

/// What all runs say together.
pub struct Played {
    /// Runs that were made.
    pub runs: u64,
    /// By figure: name, least, sum, most.
    pub figures: Vec<(&'static str, f64, f64, f64)>,
    /// The run of the first seed, without a log.
    pub first: Option<Report>,
    /// The run with the lowest seed that went wrong.
    pub wrong: Option<Wrong>,
}

/// A run that went wrong.
pub struct Wrong {
    /// Its seed.
    pub seed: u64,
    /// How.
    pub how: Broken,
    /// How with only the acts that it needs.
    pub shortened: Broken,
    /// Its acts, those that it needs to go wrong.
    pub acts: Vec<String>,
    /// Of how many.
    pub of: usize,
    /// What happened, at the end of it.
    pub log: Vec<String>,
    /// The whole of it.
    pub report: Report,
}

/// Plays seeds from `first` on, on all cores, until one goes wrong. `told` hears how many are done.
pub fn play(scenario: &Scenario, first: u64, seeds: u64, told: &(dyn Fn(u64) + Sync)) -> Played {
    let (next, done, wrong) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let figures: Mutex<Vec<Row>> = Mutex::new(Vec::new());
    let kept: Mutex<Option<Report>> = Mutex::new(None);
    let worker = || {
        let none = BTreeSet::new();
        loop {
            let nth = next.fetch_add(1, Relaxed);
            // Seeds before one that went wrong are played to their end, so that the first one is found whatever the number of cores.
            if nth >= seeds || nth > wrong.load(Relaxed) {
                return;
            }
            let report = scenario.run(first.wrapping_add(nth), &none, false);
            if scenario.wrong(&report).is_some() {
                wrong.fetch_min(nth, Relaxed);
            }
            if let Ok(mut figures) = figures.lock() {
                figures.push((nth, report.figures.clone()));
            }
            if nth == 0
                && let Ok(mut kept) = kept.lock()
            {
                *kept = Some(report);
            }
            done.fetch_add(1, Relaxed);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        while !workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            told(done.load(Relaxed));
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut rows = figures.into_inner().unwrap_or_default();
    let last = wrong.load(Relaxed);
    rows.retain(|(nth, _)| *nth <= last);
    // The sum of floating numbers depends on their order.
    rows.sort_by_key(|(nth, _)| *nth);
    let wrong = (last < u64::MAX).then(|| what_is_wrong(scenario, first.wrapping_add(last))).flatten();
    let first = kept.into_inner().unwrap_or_default();
    Played { runs: rows.len() as u64, figures: together(&rows), first, wrong }
}

fn together(rows: &[Row]) -> Vec<(&'static str, f64, f64, f64)> {
    let names = rows.first().map(|(_, figures)| figures.clone()).unwrap_or_default();
    let of = |(ix, (name, _)): (usize, &(&'static str, f64))| {
        let all = || rows.iter().filter_map(move |(_, figures)| figures.get(ix).map(|f| f.1));
        (*name, all().fold(f64::INFINITY, f64::min), all().sum(), all().fold(f64::NEG_INFINITY, f64::max))
    };
    names.iter().enumerate().map(of).collect()
}

fn what_is_wrong(scenario: &Scenario, seed: u64) -> Option<Wrong> {
    let Shortened { without, whole: how, broken: shortened, report } = scenario.shortened(seed)?;
    let acts = report.acts.iter().enumerate().filter(|(ix, _)| !without.contains(ix)).map(|(_, act)| act.clone());
    let log = report.log[report.log.len().saturating_sub(40)..].to_vec();
    Some(Wrong { seed, how, shortened, acts: acts.collect(), of: report.acts.len(), log, report })
}
