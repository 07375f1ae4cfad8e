//! What is ordered, and what has come of it so far.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::watch;

use holdfast_decide::rollout::RolloutId;
use holdfast_plane::Shadowed;
use holdfast_types::Version;

use super::difference::Difference;
use crate::route_state::RouteState;

/// Differences that are kept of one pin: the first ones.
const NOTED: usize = 16;

/// One order over one table.
pub(super) struct Order {
    pub(super) course: Arc<Course>,
    /// Requests of a thousand.
    pub(super) share: u16,
    /// Where copies go.
    pub(super) version: Version,
    /// The route there.
    pub(super) state: Arc<RouteState>,
    /// Replicas of it that may be asked.
    pub(super) subset: usize,
}

/// What became of a request that was chosen to be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The other version said the same.
    Agreed,
    /// It said something else, an error among it.
    Differed,
    /// It was asked and gave no whole answer.
    Failed,
    /// It was not asked, or nobody wants to know its answer any more.
    Dropped,
    /// The request or an answer is too large, or the client got no answer that could be compared.
    NotComparable,
}

impl Outcome {
    /// In the order of their numbers.
    pub(super) const ALL: [Self; 5] = [Self::Agreed, Self::Differed, Self::Failed, Self::Dropped, Self::NotComparable];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Agreed => "agreed",
            Self::Differed => "differed",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
            Self::NotComparable => "not_comparable",
        }
    }
}

/// A difference, and whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// The id of the client's request.
    pub request: String,
    /// What differs.
    pub difference: Difference,
}

/// What copies of one pin's traffic have shown at this gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShadowReport {
    /// Which of the roll-out's pins.
    pub pin: usize,
    /// Answers that agreed.
    pub agreed: u64,
    /// Answers that differed.
    pub differed: u64,
    /// Copies that got no whole answer. They count as differing.
    pub failed: u64,
    /// Copies that were not sent.
    pub dropped: u64,
    /// Requests and answers that could not be compared.
    pub not_comparable: u64,
    /// The first differences.
    pub differences: Vec<Noted>,
}

/// The copying of one pin's traffic in one roll-out, over all orders for it.
pub(super) struct Course {
    pub(super) rollout: RolloutId,
    pub(super) pin: usize,
    counts: [AtomicU64; Outcome::ALL.len()],
    noted: Mutex<Vec<Noted>>,
    stopped: watch::Sender<bool>,
}

impl Course {
    pub(super) fn new(rollout: RolloutId, pin: usize) -> Self {
        let stopped = watch::Sender::new(false);
        Self { rollout, pin, counts: Default::default(), noted: Mutex::default(), stopped }
    }

    /// Ends what is under way.
    pub(super) fn stop(&self) {
        self.stopped.send_replace(true);
    }

    pub(super) fn resume(&self) {
        self.stopped.send_replace(false);
    }

    /// Waits until it is stopped. Cancel safe.
    pub(super) async fn over(&self) {
        // It cannot fail: the sender is here.
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }

    pub(super) fn count(&self, outcome: Outcome) {
        if let Some(count) = self.counts.get(outcome as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    /// Keeps a difference, if there is room for it.
    pub(super) fn note(&self, request: &[u8], difference: Difference) {
        let mut noted = self.noted.lock();
        if noted.len() < NOTED {
            noted.push(Noted { request: String::from_utf8_lossy(request).into_owned(), difference });
        }
    }

    pub(super) fn totals(&self) -> Shadowed {
        let [agreed, differed, failed, ..] = self.counts.each_ref().map(|count| count.load(Relaxed));
        // No answer is an error of the new version like any other.
        let differed = differed + failed;
        Shadowed { rollout: self.rollout, pin: self.pin, compared: agreed + differed, differed }
    }

    pub(super) fn report(&self) -> ShadowReport {
        let [agreed, differed, failed, dropped, not_comparable] =
            self.counts.each_ref().map(|count| count.load(Relaxed));
        let differences = self.noted.lock().clone();
        ShadowReport { pin: self.pin, agreed, differed, failed, dropped, not_comparable, differences }
    }
}
