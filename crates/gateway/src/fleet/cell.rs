//! One version on one replica, as the request path sees it: may it be sent requests, and how many are there?
//!
//! A sender counts itself in first and looks at the flag second. Whoever hides the version clears the flag first and looks at the count second. So
//! either the sender sees that the version is hidden, or the hider sees that it is in use; both by sequentially consistent operations.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use holdfast_placement::residency::{ReplicaIx, VersionIx};
use holdfast_types::Mono;

use super::echo::Echo;
use super::replica::Replica;

/// Hears that nothing uses a hidden version any more.
pub trait OnDrained: Send + Sync {
    /// Called from whichever thread ended the last use. Must not block.
    fn drained(&self, replica: ReplicaIx, version: VersionIx);
}

/// See the module.
pub struct Cell {
    /// The replica.
    pub replica: Arc<Replica>,
    /// The version.
    pub version: VersionIx,
    /// Whether its answers give the ids of requests back.
    pub echo: Echo,
    /// Whether its answers give the gateway's own ids of requests back, in a field of their heads.
    pub tags: Echo,
    holds: AtomicBool,
    hiding: AtomicBool,
    in_flight: AtomicU32,
    last_used: AtomicU64,
    on_drained: Weak<dyn OnDrained>,
}

/// One request on a cell and its replica. Dropping it counts down.
pub struct InFlight(Arc<Cell>);

/// Why a request was not counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotIn {
    /// The version may not be sent requests any more.
    Hidden,
    /// The replica has as many requests as it may have.
    Full,
}

/// One copy of a request. It keeps the version from being unloaded as a request does, but takes no place of one. Dropping it counts down.
pub struct CopyInFlight(Arc<Cell>);

impl Cell {
    pub(super) fn new(replica: Arc<Replica>, version: VersionIx, on_drained: Weak<dyn OnDrained>) -> Self {
        Self {
            replica,
            version,
            echo: Echo::default(),
            tags: Echo::default(),
            holds: AtomicBool::new(false),
            hiding: AtomicBool::new(false),
            in_flight: AtomicU32::new(0),
            last_used: AtomicU64::new(0),
            on_drained,
        }
    }

    /// Whether the replica holds the version, proven.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.holds.load(SeqCst)
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(SeqCst)
    }

    /// When a request last began. None: never.
    #[must_use]
    pub fn last_used(&self) -> Option<Mono> {
        Some(Mono(self.last_used.load(SeqCst))).filter(|at| *at != Mono::ZERO)
    }

    /// Lets requests in.
    pub fn show(&self) {
        self.hiding.store(false, SeqCst);
        self.holds.store(true, SeqCst);
    }

    /// Lets no more requests in. True if nothing is in use already; else [`OnDrained`] is told when it is so.
    #[must_use]
    pub fn hide(&self) -> bool {
        self.holds.store(false, SeqCst);
        self.hiding.store(true, SeqCst);
        self.in_flight.load(SeqCst) == 0
    }

    /// Counts a request in, if the version may be sent requests and the replica has a place for it.
    ///
    /// # Errors
    /// [`NotIn`]. Nothing is counted then.
    pub fn enter(self: &Arc<Self>, now: Mono) -> Result<InFlight, NotIn> {
        if !self.replica.count_in() {
            return Err(NotIn::Full);
        }
        self.in_flight.fetch_add(1, SeqCst);
        let guard = InFlight(self.clone());
        if !self.holds() {
            return Err(NotIn::Hidden);
        }
        self.last_used.store(now.0, std::sync::atomic::Ordering::Relaxed);
        Ok(guard)
    }

    /// Counts a copy in, if the version may be sent requests. It is no use of the version that would keep it from eviction later.
    #[must_use]
    pub fn enter_copy(self: &Arc<Self>) -> Option<CopyInFlight> {
        self.in_flight.fetch_add(1, SeqCst);
        self.replica.count_copy_in();
        let guard = CopyInFlight(self.clone());
        self.holds().then_some(guard)
    }

    fn leave(&self) {
        if self.in_flight.fetch_sub(1, SeqCst) == 1
            && self.hiding.load(SeqCst)
            && let Some(hearer) = self.on_drained.upgrade()
        {
            hearer.drained(self.replica.ix, self.version);
        }
    }
}

impl InFlight {
    /// Where the request is.
    #[must_use]
    pub fn cell(&self) -> &Arc<Cell> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.replica.count_out();
        self.0.leave();
    }
}

impl CopyInFlight {
    /// Where the copy is.
    #[must_use]
    pub fn cell(&self) -> &Arc<Cell> {
        &self.0
    }
}

impl Drop for CopyInFlight {
    fn drop(&mut self) {
        self.0.replica.count_copy_out();
        self.0.leave();
    }
}
