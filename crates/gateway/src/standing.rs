//! Whether the table that is served is known to be the control plane's.
//!
//! A gateway that hears no control plane serves on: what was in force is the best there is. It says so: in `/readyz?verbose`, in a metric, and,
//! once nothing has confirmed the table for longer than a poll takes, in each answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use holdfast_types::Mono;

use crate::server::Gateway;

/// The moment that stands for "it is current".
const CURRENT: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub struct Standing {
    /// Since when nothing confirms the table, in nanoseconds.
    since: AtomicU64,
    /// What is younger is no news for clients.
    patience: Duration,
    /// The control plane that confirms the table, or why none does.
    words: Mutex<Arc<str>>,
    /// Whether control planes are in other processes.
    remote: bool,
}

impl Standing {
    /// The control plane is in this process: the table is always the one it told.
    #[must_use]
    pub fn local() -> Arc<Self> {
        Arc::new(Self { since: CURRENT.into(), patience: Duration::MAX, words: Mutex::new("".into()), remote: false })
    }

    /// Control planes are elsewhere. Clients are told of a table that nothing has confirmed for longer than `patience`.
    #[must_use]
    pub fn remote(now: Mono, patience: Duration) -> Arc<Self> {
        let words = Mutex::new("no control plane has answered".into());
        Arc::new(Self { since: now.0.into(), patience, words, remote: true })
    }

    /// This control plane confirms the table.
    pub fn confirm(&self, control: &Arc<str>) {
        *self.words.lock() = control.clone();
        self.since.store(CURRENT, Ordering::Relaxed);
    }

    /// Nothing confirms the table since then.
    pub fn doubt(&self, since: Mono, why: &Arc<str>) {
        *self.words.lock() = why.clone();
        self.since.store(since.0.min(CURRENT - 1), Ordering::Relaxed);
    }

    /// For how long nothing has confirmed the table. None: it is current.
    #[must_use]
    pub fn age(&self, now: Mono) -> Option<Duration> {
        let since = self.since.load(Ordering::Relaxed);
        (since != CURRENT).then(|| now.since(Mono(since)))
    }

    /// The age that clients are told of. The clock is read only if there may be something to tell.
    pub(crate) fn stale(&self, now: impl FnOnce() -> Mono) -> Option<Duration> {
        if self.since.load(Ordering::Relaxed) == CURRENT {
            return None;
        }
        self.age(now()).filter(|age| *age > self.patience)
    }

    /// For people; nothing where the control plane is in this process.
    pub(crate) fn told(&self, now: Mono, wall_millis: u64) -> Map<String, Value> {
        if !self.remote {
            return Map::new();
        }
        let (age, words) = (self.age(now), self.words.lock().clone());
        let since = age.map(|age| wall_millis.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)));
        let (control, why) = if age.is_some() { (None, Some(&*words)) } else { (Some(&*words), None) };
        let told = json!({
            "stale": age.is_some(), "stale_seconds": age.map(|age| age.as_secs()), "stale_since_unix_ms": since,
            "stale_why": why, "control": control,
        });
        if let Value::Object(told) = told { told } else { Map::new() }
    }
}

impl Gateway {
    /// Whether the first table has still to come. In one process it never has: an empty one is a table too.
    pub(crate) fn lacks_table(&self) -> bool {
        self.standing.remote && self.tables.load().told.revision.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn clients_are_told_only_of_what_has_lasted() {
        let standing = Standing::remote(Mono(0), Duration::from_secs(5));
        let stale = |at: u64| standing.stale(|| Mono(at * SECOND)).map(|age| age.as_secs());
        assert_eq!((stale(5), stale(6)), (None, Some(6)));
        assert_eq!(standing.age(Mono(SECOND)), Some(Duration::from_secs(1)));
        standing.confirm(&"http://control:1".into());
        assert_eq!((stale(100), standing.age(Mono(100 * SECOND))), (None, None));
        assert_eq!(standing.told(Mono(0), 0)["control"], "http://control:1");
        standing.doubt(Mono(90 * SECOND), &"it is gone".into());
        assert_eq!(stale(100), Some(10));
        let told = standing.told(Mono(100 * SECOND), 1_000_000);
        assert_eq!((&told["stale_since_unix_ms"], &told["stale_why"]), (&json!(990_000), &json!("it is gone")));
        assert!(Standing::local().told(Mono(SECOND), 0).is_empty());
    }
}
