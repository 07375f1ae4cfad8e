//! What a limit would have refused of traffic that is known: the bucket that decides in production, fed from a record.

use std::time::Duration;

use holdfast_types::Mono;

use crate::bucket::{Metered, Purse, Wait};
use crate::limit::Allowance;

/// What came of it so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests.
    pub requests: u64,
    /// What they cost together.
    pub cost: u64,
    /// Requests that would have been refused.
    pub refused: u64,
    /// What these would have cost.
    pub refused_cost: u64,
    /// Of these the ones that no waiting would have helped: they cost more than the burst, or nothing is allowed.
    pub never: u64,
    /// The longest time that a refused request would have been told to wait.
    pub longest_wait: Duration,
}

/// One bucket under replay.
#[derive(Clone, Copy, Debug)]
pub struct Replay {
    bucket: Metered,
    tally: Tally,
}

impl Replay {
    /// A bucket that is full.
    #[must_use]
    pub fn new(allowance: Allowance, now: Mono) -> Self {
        Self { bucket: Metered::new(allowance, now), tally: Tally::default() }
    }

    /// One more request, not before the last one. Whether it passes.
    pub fn offer(&mut self, now: Mono, cost: u64) -> bool {
        let tally = &mut self.tally;
        tally.requests += 1;
        tally.cost = tally.cost.saturating_add(cost);
        let Err(wait) = self.bucket.take(now, cost) else { return true };
        tally.refused += 1;
        tally.refused_cost = tally.refused_cost.saturating_add(cost);
        match wait {
            Wait::For(time) => tally.longest_wait = tally.longest_wait.max(time),
            Wait::Never => tally.never += 1,
        }
        false
    }

    /// What came of it.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }
}
