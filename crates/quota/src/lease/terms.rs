//! On what terms a gateway holds leases of a limit.

use std::time::Duration;

use super::size::{Sharing, chunk};
use crate::limit::Limit;

/// How long the one chunk of a limit that is too small to share is held for a request that did not come for it.
const SMALL_IDLE: Duration = Duration::from_millis(50);

/// On what terms a gateway holds leases of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The limit.
    pub limit: Limit,
    /// Live gateways, at least 1: who is alone goes by the limit divided by them.
    pub gateways: u32,
    /// How the limit is cut.
    pub sharing: Sharing,
    /// What is held and not more than this is filled up before it is used up. 0: only when a request finds too little.
    pub low_water: u64,
    /// An order that is not answered for this long has failed.
    pub answer_within: Duration,
    /// After a failure the store is tried again this much later. Different from gateway to gateway, so that they do not come back together.
    pub retry: Duration,
    /// Tokens that were not used for this long go back.
    pub idle: Duration,
}

impl Terms {
    /// The usual terms.
    #[must_use]
    pub fn new(limit: Limit, gateways: u32) -> Self {
        Self {
            limit,
            gateways: gateways.max(1),
            sharing: Sharing::default(),
            low_water: 0,
            answer_within: Duration::from_millis(20),
            retry: Duration::from_millis(500),
            idle: Duration::from_secs(1),
        }
    }

    pub(super) fn chunk(&self) -> u64 {
        chunk(self.limit.rate.whole_per_second(), if self.is_small() { 1 } else { self.gateways }, self.sharing)
    }

    /// Whether the limit is too small for every gateway to hold a token: one chunk of it is out at a time, and who holds it owns the limit for that long.
    pub(super) fn is_small(&self) -> bool {
        !self.sharing.is_shareable(self.limit.rate.whole_per_second(), self.gateways)
    }

    pub(super) fn idle(&self) -> Duration {
        if self.is_small() { self.idle.min(SMALL_IDLE) } else { self.idle }
    }
}
