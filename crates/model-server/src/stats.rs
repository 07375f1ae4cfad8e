//! What this server saw and did, counted where it happens.
//!
//! A count of things in flight is held by a guard and falls when the guard is dropped, so a client that leaves at any point is counted
//! down too, and counted as a cancel. Executions are counted when the model's work begins: work whose client left is work done.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The most (model, version) pairs with a count of their own; those beyond share the name `other`.
pub const MAX_PAIRS: usize = 10_000;
const MAX_HEADERS: usize = 100;

/// The answer of `GET /control/stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// The server's name.
    pub name: String,
    /// Memory, in bytes.
    pub memory: Memory,
    /// What is held, by name and version.
    pub held: Vec<Held>,
    /// How often the model's work began, by model and version.
    pub executions: Vec<Executions>,
    /// Loads.
    pub loads: Loads,
    /// Unload calls that dropped something.
    pub unloads: u64,
    /// Inference requests.
    pub requests: Requests,
    /// Clients that left before their answer was complete.
    pub cancels: u64,
    /// The names of the headers of the last inference request, in the order received, in lower case.
    pub last_request_headers: Vec<String>,
}

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// All there is.
    pub total: u64,
    /// Held and being loaded.
    pub used: u64,
    /// The rest.
    pub free: u64,
}

/// One version held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The model.
    pub model: String,
    /// The version.
    pub version: String,
    /// `blake3:` and the hash of its file.
    pub digest: String,
}

/// How often one version's work began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executions {
    /// The model.
    pub model: String,
    /// The version.
    pub version: String,
    /// The count.
    pub count: u64,
}

/// Counts of loads. A load that is joined by a second request, or finds everything held, is not another load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loads {
    /// Begun.
    pub started: u64,
    /// Ended well.
    pub finished: u64,
    /// Ended in a failure.
    pub failed: u64,
    /// Ended by an unload, by a client that left, or by the server's end.
    pub cancelled: u64,
    /// Refused for want of memory.
    pub refused: u64,
    /// Under way.
    pub in_flight: u64,
    /// The most ever under way at once.
    pub max_in_flight: u64,
}

/// Counts of inference requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// Received, of any outcome.
    pub received: u64,
    /// Not yet answered in full.
    pub in_flight: u64,
    /// The most ever in flight at once.
    pub max_in_flight: u64,
}

/// The counters. Cheap to share; one short lock.
#[derive(Clone, Debug, Default)]
pub struct Counters(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    executions: BTreeMap<(String, String), u64>,
    loads: Loads,
    unloads: u64,
    requests: Requests,
    cancels: u64,
    headers: Vec<String>,
}

impl Counters {
    /// Begins an inference request; see [`Work`].
    #[must_use]
    pub fn request(&self, headers: &http::HeaderMap) -> Work {
        let mut counts = self.0.lock();
        counts.requests.received += 1;
        counts.requests.in_flight += 1;
        counts.requests.max_in_flight = counts.requests.max_in_flight.max(counts.requests.in_flight);
        counts.headers = headers.keys().take(MAX_HEADERS).map(|name| name.as_str().to_owned()).collect();
        drop(counts);
        Work { counters: self.clone(), done: false, kind: Kind::Request }
    }

    /// Begins to wait, for a client, for something other than an inference; see [`Work`].
    #[must_use]
    pub fn wait(&self) -> Work {
        Work { counters: self.clone(), done: false, kind: Kind::Wait }
    }

    /// The model's work begins.
    pub fn execution(&self, model: &str, version: &str) {
        let mut counts = self.0.lock();
        let key = (model.to_owned(), version.to_owned());
        let full = counts.executions.len() >= MAX_PAIRS && !counts.executions.contains_key(&key);
        let key = if full { ("other".to_owned(), String::new()) } else { key };
        *counts.executions.entry(key).or_default() += 1;
    }

    /// A load begins; it ends when the guard is told how, or else as cancelled.
    #[must_use]
    pub fn load(&self) -> LoadCount {
        let mut counts = self.0.lock();
        counts.loads.started += 1;
        counts.loads.in_flight += 1;
        counts.loads.max_in_flight = counts.loads.max_in_flight.max(counts.loads.in_flight);
        LoadCount { counters: self.clone(), end: LoadEnd::Cancelled }
    }

    /// A load was refused for want of memory.
    pub fn refused(&self) {
        self.0.lock().loads.refused += 1;
    }

    /// An unload dropped something.
    pub fn unload(&self) {
        self.0.lock().unloads += 1;
    }

    /// Copies the counts into `stats`; the rest of it is the caller's.
    pub fn fill(&self, stats: &mut Stats) {
        let counts = self.0.lock();
        stats.executions = counts
            .executions
            .iter()
            .map(|((model, version), count)| Executions {
                model: model.clone(),
                version: version.clone(),
                count: *count,
            })
            .collect();
        stats.loads = counts.loads;
        stats.unloads = counts.unloads;
        stats.requests = counts.requests;
        stats.cancels = counts.cancels;
        stats.last_request_headers.clone_from(&counts.headers);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    Wait,
}

/// Work that a client waits for. Dropped before [`Work::done`] it counts as a cancel.
#[derive(Debug)]
pub struct Work {
    counters: Counters,
    done: bool,
    kind: Kind,
}

impl Work {
    /// The answer is complete.
    pub fn done(&mut self) {
        self.done = true;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut counts = self.counters.0.lock();
        counts.requests.in_flight -= u64::from(self.kind == Kind::Request);
        counts.cancels += u64::from(!self.done);
    }
}

#[derive(Clone, Copy, Debug)]
enum LoadEnd {
    Finished,
    Failed,
    Cancelled,
}

/// A load under way.
#[derive(Debug)]
pub struct LoadCount {
    counters: Counters,
    end: LoadEnd,
}

impl LoadCount {
    /// The versions are held.
    pub fn finished(mut self) {
        self.end = LoadEnd::Finished;
    }

    /// The load failed.
    pub fn failed(mut self) {
        self.end = LoadEnd::Failed;
    }
}

impl Drop for LoadCount {
    fn drop(&mut self) {
        let mut counts = self.counters.0.lock();
        let loads = &mut counts.loads;
        loads.in_flight -= 1;
        match self.end {
            LoadEnd::Finished => loads.finished += 1,
            LoadEnd::Failed => loads.failed += 1,
            LoadEnd::Cancelled => loads.cancelled += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_bring_every_count_back() {
        let counters = Counters::default();
        let (mut first, second) =
            (counters.request(&http::HeaderMap::new()), counters.request(&http::HeaderMap::new()));
        first.done();
        drop(first);
        drop(second);
        drop(counters.load());
        counters.load().finished();
        counters.load().failed();
        let mut stats = Stats::default();
        counters.fill(&mut stats);
        assert_eq!(stats.requests, Requests { received: 2, in_flight: 0, max_in_flight: 2 });
        assert_eq!(stats.cancels, 1);
        let loads =
            Loads { started: 3, finished: 1, failed: 1, cancelled: 1, refused: 0, in_flight: 0, max_in_flight: 1 };
        assert_eq!(stats.loads, loads);
    }
}
