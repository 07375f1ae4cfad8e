//! Steady open-loop load: requests leave at a fixed rate, whether or not earlier ones have been answered.
//!
//! A closed loop slows down with the server and so hides a stall; this one does not. Latency counts from the moment a request was due.

use crate::http::Client;
use bytes::Bytes;
use http::Method;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Requests in flight at once; one that would exceed it is recorded as not sent.
const MAX_IN_FLIGHT: usize = 2_000;
/// Records kept. At the end of it the load stops.
const MAX_RECORDS: usize = 2_000_000;

/// One kind of request; the load goes round all of them.
#[derive(Debug, Clone)]
pub struct Target {
    /// Tenant, sent as `x-tenant`.
    pub tenant: String,
    /// Path.
    pub path: String,
    /// JSON body.
    pub body: Bytes,
}

impl Target {
    /// A target.
    #[must_use]
    pub fn new(tenant: &str, path: &str, body: &Value) -> Self {
        Self { tenant: tenant.to_owned(), path: path.to_owned(), body: Bytes::from(body.to_string()) }
    }
}

/// What became of one request.
#[derive(Debug, Clone)]
pub struct Record {
    /// Tenant.
    pub tenant: String,
    /// When it was due, from the start of the load.
    pub due: Duration,
    /// When its answer was complete, from the start of the load.
    pub done: Duration,
    /// Status; 0 when there was no complete answer.
    pub status: u16,
    /// `x-holdfast-version`.
    pub version: String,
    /// `x-holdfast-revision`.
    pub revision: Option<u64>,
    /// `x-holdfast-error`, or what broke the connection.
    pub error: String,
    /// The body of the answer.
    pub body: Bytes,
}

/// Status, version header, error header.
pub type Outcome = (u16, String, String);

/// All records of a load, in the order in which they were answered.
#[derive(Debug, Clone, Default)]
pub struct Report(pub Vec<Record>);

impl Report {
    /// Number of requests by outcome.
    #[must_use]
    pub fn outcomes(&self) -> BTreeMap<Outcome, usize> {
        let mut counts = BTreeMap::new();
        for r in &self.0 {
            *counts.entry((r.status, r.version.clone(), r.error.clone())).or_insert(0) += 1;
        }
        counts
    }

    /// Number of requests that `filter` accepts.
    #[must_use]
    pub fn count(&self, filter: impl Fn(&Record) -> bool) -> usize {
        self.0.iter().filter(|r| filter(r)).count()
    }

    /// The latency below which `share` (0 to 1) of the answered requests lie.
    #[must_use]
    pub fn latency(&self, share: f64) -> Duration {
        let mut all: Vec<Duration> =
            self.0.iter().filter(|r| r.status != 0).map(|r| r.done.saturating_sub(r.due)).collect();
        all.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a rank"
        )]
        let rank = ((all.len() as f64 * share).ceil() as usize).saturating_sub(1);
        all.get(rank.min(all.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

/// A load that is running.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    /// What has come in so far; the task adds to it.
    report: Arc<Mutex<Report>>,
    task: tokio::task::JoinHandle<()>,
}

impl Load {
    /// Starts `per_second` requests a second through `client`, going round `targets`.
    ///
    /// # Panics
    /// When `per_second` is 0 or there is no target.
    #[must_use]
    pub fn start(client: Client, per_second: u32, targets: Vec<Target>) -> Self {
        assert!(per_second > 0 && !targets.is_empty(), "a load needs a rate and a target");
        let stop = Arc::new(AtomicBool::new(false));
        let report = Arc::default();
        let task = tokio::spawn(run(Arc::new(client), per_second, targets, Arc::clone(&stop), Arc::clone(&report)));
        Self { stop, report, task }
    }

    /// How many requests that `filter` accepts have come to their end so far.
    pub fn count(&self, filter: impl Fn(&Record) -> bool) -> usize {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).count(filter)
    }

    /// Sends no more, waits for what is in flight, and reports.
    ///
    /// # Panics
    /// When the load itself failed.
    pub async fn stop(self) -> Report {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.expect("the load runs to its end");
        std::mem::take(&mut *self.report.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A load of a fixed length.
///
/// # Panics
/// As [`Load::start`].
pub async fn open_loop(client: Client, per_second: u32, length: Duration, targets: Vec<Target>) -> Report {
    let load = Load::start(client, per_second, targets);
    tokio::time::sleep(length).await;
    load.stop().await
}

async fn run(
    client: Arc<Client>,
    per_second: u32,
    targets: Vec<Target>,
    stop: Arc<AtomicBool>,
    report: Arc<Mutex<Report>>,
) {
    let start = Instant::now();
    let mut in_flight = JoinSet::new();
    let add = |record| report.lock().unwrap_or_else(PoisonError::into_inner).0.push(record);
    for n in 0..MAX_RECORDS {
        let due = Duration::from_secs(1).mul_f64(n as f64 / f64::from(per_second));
        tokio::time::sleep_until((start + due).into()).await;
        while let Some(Ok(record)) = in_flight.try_join_next() {
            add(record);
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let Some(target) = targets.get(n % targets.len()) else { break };
        if in_flight.len() < MAX_IN_FLIGHT {
            in_flight.spawn(exchange(Arc::clone(&client), target.clone(), start, due));
        } else {
            add(failed(target.tenant.clone(), due, due, format!("not sent: {MAX_IN_FLIGHT} in flight")));
        }
    }
    while let Some(Ok(record)) = in_flight.join_next().await {
        add(record);
    }
}

async fn exchange(client: Arc<Client>, target: Target, start: Instant, due: Duration) -> Record {
    let headers = [("x-tenant", target.tenant.as_str()), ("content-type", "application/json")];
    let outcome = client.send(Method::POST, &target.path, &headers, target.body.clone()).await;
    let done = start.elapsed();
    match outcome {
        Err(error) => failed(target.tenant, due, done, error),
        Ok(answer) => Record {
            due,
            done,
            status: answer.status.as_u16(),
            version: answer.header("x-holdfast-version").to_owned(),
            revision: answer.header("x-holdfast-revision").parse().ok(),
            error: answer.header("x-holdfast-error").to_owned(),
            body: answer.body,
            tenant: target.tenant,
        },
    }
}

fn failed(tenant: String, due: Duration, done: Duration, error: String) -> Record {
    Record { tenant, due, done, status: 0, version: String::new(), revision: None, error, body: Bytes::new() }
}
