//! What the arms of experiments have shown at this gateway: people, requests, latency and outcomes, in windows of time and in bounded memory.
//!
//! | file | what |
//! |---|---|
//! | `mod` | what is kept, by arm, and what a request adds to it |
//! | `told` | outcomes that clients tell, by the route token of their request |
//! | `file` | the form of it as JSON, for who asks and for the file that it survives a restart in |
//!
//! The sums are `holdfast_assign::window`'s. A request of an experiment takes one short lock when it ends; all others ask one option. What is kept of an arm is
//! of one bucket version: when a higher one is seen, the windows begin anew, and tokens of tables before that count for nothing.

mod file;
mod told;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use holdfast_assign::window::{Bounds, NotTaken, Series};
use holdfast_config::Results as Config;
use holdfast_decide::{ArmFacts, Cause, KeyFrom};
use holdfast_telemetry::{Clock, Counter, Endpoint, Family, Label, Once, Outcome, Registry};
use holdfast_types::Revision;

pub use file::ArmResults;
pub use told::{OutcomeCall, tell};

/// So many parts, each with a lock of its own.
const PARTS: usize = 16;
/// How often what has changed is written.
const SAVE: Duration = Duration::from_secs(10);
/// In `state`.
const FILE: &str = "results.json";

/// See the module.
pub struct Results {
    bounds: Bounds,
    most: usize,
    arms: [Mutex<BTreeMap<Name, Shown>>; PARTS],
    count: AtomicUsize,
    people: Once,
    ids: Once,
    counted: Family<Counter, 1>,
    file: PathBuf,
    changed: AtomicBool,
}

/// Experiment and arm.
type Name = (Arc<str>, Arc<str>);

/// What is kept of one arm.
#[derive(Clone, Debug, PartialEq)]
struct Shown {
    bucket_version: u32,
    /// The first table that it was seen with under this bucket version.
    since: Revision,
    series: Series,
}

impl Results {
    /// With what an earlier process has left. A file that cannot be read is told and passed over: nothing that routes depends on it.
    pub fn open(config: &Config, state: &Path, registry: &Registry) -> Arc<Self> {
        let bounds = Bounds {
            width: u64::try_from(config.window.as_millis()).unwrap_or(u64::MAX),
            keep: config.keep as usize,
            metrics: config.metrics as usize,
        };
        let counted = registry.family(
            "holdfast_outcomes_total",
            "Outcomes that clients told, by what became of them.",
            [Label::closed("outcome")],
            (),
        );
        let remember = config.remember as usize;
        let me = Self {
            bounds,
            most: config.arms as usize,
            arms: Default::default(),
            count: AtomicUsize::new(0),
            people: Once::new(remember),
            ids: Once::new(remember),
            counted,
            file: state.join(FILE),
            changed: AtomicBool::new(false),
        };
        match file::read(&me.file, bounds.width) {
            Ok(kept) => kept.into_iter().for_each(|(name, shown)| me.put(name, shown)),
            Err(why) => {
                tracing::error!(file = %me.file.display(), %why, "what arms have shown could not be read, and begins anew");
            }
        }
        Arc::new(me)
    }

    fn put(&self, name: Name, shown: Shown) {
        if let Some(part) = self.part(&name.0, &name.1)
            && part.lock().insert(name, shown).is_none()
        {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn part(&self, experiment: &str, arm: &str) -> Option<&Mutex<BTreeMap<Name, Shown>>> {
        let hash = xxh3_64_with_seed(arm.as_bytes(), xxh3_64_with_seed(experiment.as_bytes(), 0));
        self.arms.get((hash >> 60) as usize % PARTS)
    }

    /// Does something with an arm, as the table of this revision has it. None: there are as many arms as there may be, or the table is an older one than
    /// that with the arm's bucket version.
    fn with<T>(&self, arm: &ArmFacts, under: Revision, act: impl FnOnce(&mut Shown) -> T) -> Option<T> {
        let mut part = self.part(&arm.experiment, &arm.arm)?.lock();
        let name = (arm.experiment.clone(), arm.arm.clone());
        if !part.contains_key(&name) {
            if self.count.fetch_add(1, Ordering::Relaxed) >= self.most {
                self.count.fetch_sub(1, Ordering::Relaxed);
                return None;
            }
            let shown = Shown { bucket_version: arm.bucket_version, since: under, series: Series::default() };
            part.insert(name.clone(), shown);
        }
        let shown = part.get_mut(&name)?;
        if arm.bucket_version > shown.bucket_version {
            *shown = Shown { bucket_version: arm.bucket_version, since: under, series: Series::default() };
        }
        if arm.bucket_version < shown.bucket_version {
            return None;
        }
        self.changed.store(true, Ordering::Relaxed);
        Some(act(shown))
    }

    /// Notes a person who was given an arm, once while remembered.
    pub fn person(&self, arm: &ArmFacts, under: Revision, by: KeyFrom, subject: u64) {
        if !self.people.is_first(subject ^ arm.number.rotate_left(32)) {
            return;
        }
        let (now, bounds) = (Clock::wall_millis(), self.bounds);
        self.with(arm, under, |shown| {
            if let Some(window) = shown.series.at(now, bounds) {
                *window.people.entry(by.as_str().into()).or_default() += 1;
            }
        });
    }

    /// Notes a request that has ended, if an arm chose its version. A failed one has no latency: an arm that fails fast is not fast.
    #[cold]
    pub fn request(&self, cause: &Cause, under: Revision, outcome: &Outcome) {
        let Some(arm) = cause.arm.as_ref().filter(|_| outcome.endpoint == Endpoint::Infer) else { return };
        let (now, bounds) = (Clock::wall_millis(), self.bounds);
        let micros = u64::try_from(outcome.timing.total.as_micros()).unwrap_or(u64::MAX);
        self.with(arm, under, |shown| {
            let Some(window) = shown.series.at(now, bounds) else { return };
            window.requests += 1;
            if outcome.is_error() {
                window.errors += 1;
            } else {
                window.latency.add(micros as f64);
                window.sketch.add(micros);
            }
        });
    }

    /// Takes an outcome of a request that was resolved under a table. A word for what became of it.
    fn outcome(&self, arm: &ArmFacts, (table, under): (Revision, Revision), metric: &str, value: f64) -> &'static str {
        let (now, bounds) = (Clock::wall_millis(), self.bounds);
        let taken = self.with(arm, table, |shown| match under < shown.since {
            true => "old",
            false => match shown.series.outcome(now, metric, value, bounds) {
                Ok(()) => "counted",
                Err(NotTaken::Metrics | NotTaken::Value) => "full",
                Err(NotTaken::Time) => "old",
            },
        });
        taken.unwrap_or("full")
    }

    /// What the arms of an experiment have shown.
    pub fn told(&self, experiment: &str) -> Value {
        let arms = self.all(|name| &*name.0 == experiment);
        let arms: Vec<Value> = arms.iter().map(|(name, shown)| file::arm(name, shown)).collect();
        json!({ "experiment": experiment, "window_ms": self.bounds.width, "arms": arms })
    }

    fn all(&self, which: impl Fn(&Name) -> bool) -> Vec<(Name, Shown)> {
        let mut all = Vec::new();
        for part in &self.arms {
            let part = part.lock();
            all.extend(part.iter().filter(|(name, _)| which(name)).map(|(name, shown)| (name.clone(), shown.clone())));
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Writes what has changed, and forgets what is too old, until the process ends.
    pub async fn run(self: Arc<Self>) {
        loop {
            tokio::time::sleep(SAVE).await;
            self.forget(Clock::wall_millis());
            self.save().await;
        }
    }

    fn forget(&self, now: u64) {
        for part in &self.arms {
            let mut part = part.lock();
            let before = part.len();
            part.values_mut().for_each(|shown| shown.series.forget(now, self.bounds));
            part.retain(|_, shown| !shown.series.is_empty());
            self.count.fetch_sub(before - part.len(), Ordering::Relaxed);
        }
    }

    /// Writes it, if it has changed.
    pub async fn save(self: &Arc<Self>) {
        if !self.changed.swap(false, Ordering::Relaxed) {
            return;
        }
        let me = self.clone();
        let saved =
            tokio::task::spawn_blocking(move || file::write(&me.file, me.bounds.width, &me.all(|_| true))).await;
        let failed = match saved {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.changed.store(true, Ordering::Relaxed);
        tracing::error!(file = %self.file.display(), why = %failed, "what arms have shown could not be written");
    }
}

#[cfg(test)]
mod tests;
