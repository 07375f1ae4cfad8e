//! Loads under way on a replica, as far as they are a reason to send a request to another holder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::replica::Replica;

/// A load weighs as much as this many requests in flight: of two holders that are as busy the one that loads nothing is preferred, and a busy one is not
/// driven beyond its share for it.
const WEIGHS: u32 = 2;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Loads {
    /// Begun by this gateway.
    own: AtomicU32,
    /// In the server's last index: others' loads too, and late.
    told: AtomicU32,
}

impl Loads {
    /// As requests in flight.
    pub(super) fn weigh(&self) -> u32 {
        self.own.load(Relaxed).max(self.told.load(Relaxed)).saturating_mul(WEIGHS)
    }
}

/// A load that this gateway has begun. Dropping it ends it.
pub struct Loading(Arc<Replica>);

impl Replica {
    /// A load begins.
    #[must_use]
    pub fn begin_load(self: &Arc<Self>) -> Loading {
        self.loads.own.fetch_add(1, Relaxed);
        Loading(self.clone())
    }

    /// The server's index lists so many loads.
    pub fn tells_of_loads(&self, count: usize) {
        self.loads.told.store(u32::try_from(count).unwrap_or(u32::MAX), Relaxed);
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.0.loads.own.fetch_sub(1, Relaxed);
    }
}
