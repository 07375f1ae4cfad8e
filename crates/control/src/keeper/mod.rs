//! Keeps the history bounded: where this control plane leads, the store forgets what configuration does not ask to keep ([`floor`]).
//!
//! Little is done at a time, and at times that differ from process to process: a prune waits in the same queue as commits.

mod floor;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_config::History;
use holdfast_store::{MAX_PAGE, Result, Store};
use holdfast_telemetry::Clock;
use holdfast_types::Revision;
use parking_lot::RwLock;
use tokio::sync::Notify;

use crate::rollouts::{Rollouts, Sessions};
pub use floor::{Seen, floor};

/// The most headers, and the most edits, that one step takes away. A step's write then takes some milliseconds.
const STEP: usize = 1_000;

/// How often it works.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// The pause while there is more to do.
    pub step: Duration,
    /// The pause when there is not.
    pub rest: Duration,
}

impl Default for Rhythm {
    fn default() -> Self {
        Self { step: Duration::from_secs(1), rest: Duration::from_secs(600) }
    }
}

/// See the module.
pub struct Keeper {
    store: Arc<dyn Store>,
    sessions: Arc<Sessions>,
    rollouts: Arc<Rollouts>,
    history: RwLock<History>,
    changed: Notify,
    floor: AtomicU64,
    rhythm: Rhythm,
}

impl Keeper {
    /// Nothing is forgotten before [`Keeper::run`].
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        sessions: Arc<Sessions>,
        rollouts: Arc<Rollouts>,
        history: History,
        rhythm: Rhythm,
    ) -> Arc<Self> {
        let (history, changed, floor) = (RwLock::new(history), Notify::new(), AtomicU64::new(0));
        Arc::new(Self { store, sessions, rollouts, history, changed, floor, rhythm })
    }

    /// Keeps more or less from now on.
    pub fn set(&self, history: History) {
        let before = std::mem::replace(&mut *self.history.write(), history.clone());
        if before != history {
            self.changed.notify_one();
        }
    }

    /// The oldest revision that is kept, as far as it is known here.
    #[must_use]
    pub fn floor(&self) -> Revision {
        Revision(self.floor.load(Ordering::Relaxed))
    }

    /// Works until `stop` is done. `share` gives numbers from 0 to 1, to spread the pauses.
    pub async fn run(self: Arc<Self>, mut share: impl FnMut() -> f64 + Send, stop: impl Future<Output = ()> + Send) {
        let work = async {
            let (mut term, mut more) = (None, true);
            loop {
                let pause = pause(if more { self.rhythm.step } else { self.rhythm.rest }, share());
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.changed.notified() => {}
                }
                let leads = self.rollouts.term();
                // What a leader before has left undone is done first.
                let left = more || leads != term;
                term = leads;
                more = match leads {
                    Some(leads) => self.told(leads, left).await,
                    None => true,
                };
            }
        };
        tokio::select! {
            () = stop => {}
            () = work => {}
        }
    }

    async fn told(&self, term: u64, left: bool) -> bool {
        match self.step(term, left).await {
            Ok(more) => more,
            Err(error) => {
                tracing::warn!(%error, "the history was not pruned; it is tried again");
                false
            }
        }
    }

    /// Takes away a little; `left`: something may be left of an earlier step. Whether there may be more to do.
    ///
    /// # Errors
    /// The store gives no answer, or the term is over.
    pub async fn step(&self, term: u64, left: bool) -> Result<bool> {
        let head = self.store.head().await?;
        let first = head.floor.0;
        self.floor.store(first, Ordering::Relaxed);
        let end = Revision(first.saturating_add(MAX_PAGE as u64));
        let mut oldest = self.store.history(Some(end), MAX_PAGE).await?;
        oldest.retain(|header| header.revision.0 >= first);
        oldest.reverse();
        let in_flight = self.sessions.oldest();
        let seen = Seen { head: &head, oldest: &oldest, in_flight, now_ms: Clock::wall_millis() };
        let history = self.history.read().clone();
        let to = floor(&history, &seen);
        if to.is_none() && !left {
            return Ok(false);
        }
        let pruned = self.store.prune(to.unwrap_or(head.floor), STEP, Some(term)).await?;
        self.floor.store(pruned.floor.0, Ordering::Relaxed);
        if to.is_some() {
            tracing::info!(floor = pruned.floor.0, removed = pruned.removed, "old revisions are forgotten");
        }
        // After a step that has raised the floor, the next page of headers is looked at.
        Ok(pruned.more || to.is_some())
    }
}

/// From half of it to one and a half.
fn pause(mean: Duration, share: f64) -> Duration {
    mean.mul_f64(0.5 + share.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
