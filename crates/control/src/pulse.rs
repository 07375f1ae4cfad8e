//! How the store is doing: what became of the last calls, noted by a [`Watched`] store that everybody else calls.
//!
//! Reads and writes are told apart: a disk that is full lets itself be read. After a write that failed the store is down until a write has
//! succeeded; since nobody may ask for one, [`Pulse::run`] tries one that changes nothing.

mod watched;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use holdfast_store::{Error, ErrorKind, Store};
use holdfast_telemetry::Clock;
use holdfast_types::Mono;
use parking_lot::Mutex;

pub use watched::Watched;

use crate::rollouts::Now;

/// How often a store that is down is tried.
const TRY: Duration = Duration::from_secs(1);
/// How often one is asked that nobody else has asked.
const QUIET: Duration = Duration::from_secs(10);

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Read,
    Write,
}

/// How the store is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreState {
    /// The last read and the last write succeeded.
    pub ok: bool,
    /// Why not, for the operator.
    pub error: Option<String>,
    /// The same without the backend's own words, for whoever may ask.
    pub public: Option<String>,
    /// Since when, in milliseconds since 1970 (UTC).
    pub since_ms: u64,
}

#[derive(Clone, Debug)]
struct Fault {
    error: String,
    public: String,
}

#[derive(Debug)]
struct Inner {
    reads: Option<Fault>,
    writes: Option<Fault>,
    since_ms: u64,
    heard: Mono,
    commit: Option<Duration>,
}

/// See the module.
pub struct Pulse {
    now: Now,
    inner: Mutex<Inner>,
}

impl Pulse {
    /// Of a store that has just been opened.
    #[must_use]
    pub fn new(now: Now) -> Arc<Self> {
        let (heard, since_ms) = (now(), Clock::wall_millis());
        Arc::new(Self { now, inner: Mutex::new(Inner { reads: None, writes: None, since_ms, heard, commit: None }) })
    }

    /// How the store is doing.
    #[must_use]
    pub fn state(&self) -> StoreState {
        let inner = self.inner.lock();
        let fault = inner.writes.as_ref().or(inner.reads.as_ref());
        StoreState {
            ok: fault.is_none(),
            error: fault.map(|f| f.error.clone()),
            public: fault.map(|f| f.public.clone()),
            since_ms: inner.since_ms,
        }
    }

    /// How long ago the store has answered last.
    #[must_use]
    pub fn age(&self) -> Duration {
        (self.now)().since(self.inner.lock().heard)
    }

    /// How long the last commit took that the store answered.
    #[must_use]
    pub fn last_commit(&self) -> Option<Duration> {
        self.inner.lock().commit
    }

    fn note(&self, work: Work, error: Option<&Error>) {
        let fault = error.filter(|e| is_fault(e)).map(|e| Fault { error: e.to_string(), public: e.public() });
        let mut inner = self.inner.lock();
        let was = inner.reads.is_none() && inner.writes.is_none();
        if fault.is_none() {
            inner.heard = (self.now)();
        }
        match (work, fault) {
            (Work::Read, fault) => inner.reads = fault,
            (Work::Write, None) => (inner.reads, inner.writes) = (None, None),
            (Work::Write, fault) => inner.writes = fault,
        }
        let is = inner.reads.is_none() && inner.writes.is_none();
        if was != is {
            inner.since_ms = Clock::wall_millis();
            let why = inner.writes.as_ref().or(inner.reads.as_ref()).map(|f| f.error.clone());
            drop(inner);
            match why {
                Some(why) => tracing::error!(%why, "the store is down: changes are refused, traffic goes on"),
                None => tracing::info!("the store is up again"),
            }
        }
    }

    fn committed(&self, took: Duration) {
        self.inner.lock().commit = Some(took);
    }

    /// Asks a store that is down, or that nobody asks, until `stop` is done. The store is the watched one.
    pub async fn run(self: Arc<Self>, store: Arc<dyn Store>, stop: impl Future<Output = ()> + Send) {
        let asking = async {
            loop {
                tokio::time::sleep(TRY).await;
                let writes = self.inner.lock().writes.is_some();
                if self.state().ok && self.age() < QUIET {
                    continue;
                }
                // What became of it is noted on its way.
                let Ok(head) = store.head().await else { continue };
                if writes {
                    // Goes to the disk and back, and forgets nothing that was not forgotten before.
                    let _ = store.prune(head.floor, 1, None).await;
                }
            }
        };
        tokio::select! {
            () = stop => {}
            () = asking => {}
        }
    }
}

/// Whether the store itself is in trouble. All other errors are its answers.
const fn is_fault(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Timeout
            | ErrorKind::Overloaded
            | ErrorKind::Unavailable
            | ErrorKind::InUse
            | ErrorKind::NewerSchema
            | ErrorKind::Corrupt
            | ErrorKind::Closed
            | ErrorKind::Backend
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_store::Applied;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn unavailable() -> Error {
        Error::Unavailable { what: "no space left on /secret".to_owned(), applied: Applied::No }
    }

    #[test]
    fn a_read_does_not_make_good_a_write_that_failed() {
        let pulse = Pulse::new(Arc::new(|| Mono::ZERO));
        pulse.note(Work::Write, Some(&unavailable()));
        pulse.note(Work::Read, None);
        let state = pulse.state();
        assert!(!state.ok && state.error.is_some_and(|e| e.contains("no space left")), "the operator is told why");
        assert!(state.public.is_some_and(|e| !e.contains("secret")), "others are not");
        pulse.note(Work::Write, None);
        assert!(pulse.state().ok);
        pulse.note(Work::Read, Some(&unavailable()));
        assert!(!pulse.state().ok);
        pulse.note(Work::Read, None);
        assert!(pulse.state().ok);
    }

    #[test]
    fn a_refusal_is_an_answer_and_the_age_counts_from_the_last_one() {
        let time = Arc::new(AtomicU64::new(1));
        let clock = time.clone();
        let pulse = Pulse::new(Arc::new(move || Mono::ZERO.after(Duration::from_secs(clock.load(Ordering::Relaxed)))));
        time.store(5, Ordering::Relaxed);
        assert_eq!(pulse.age(), Duration::from_secs(4));
        pulse.note(Work::Write, Some(&Error::Fenced { term: 1, highest: 2 }));
        assert!(pulse.state().ok);
        assert_eq!(pulse.age(), Duration::ZERO);
        time.store(9, Ordering::Relaxed);
        pulse.note(Work::Write, Some(&unavailable()));
        assert_eq!(pulse.age(), Duration::from_secs(4));
    }
}
