//! A lease as one of the purses of a request, beside the buckets of this process.

use holdfast_types::Mono;

use super::holder::{Effect, Holder, Verdict};
use crate::bucket::{Purse, Wait};

/// A holder and the place for what it wants done. A request that waits for an open order is refused here, and the verdict says so; who can wait asks the holder
/// itself first.
pub struct Leased<'a> {
    /// The lease.
    pub holder: &'a mut Holder,
    /// What it wants done.
    pub effects: &'a mut Vec<Effect>,
    /// What it said last.
    pub verdict: Option<Verdict>,
}

impl Purse for Leased<'_> {
    fn take(&mut self, now: Mono, cost: u64) -> Result<(), Wait> {
        let verdict = self.holder.spend(now, cost, self.effects);
        self.verdict = Some(verdict);
        match verdict {
            Verdict::Pass => Ok(()),
            Verdict::Ordered(wait) | Verdict::Refused(wait) => Err(wait),
        }
    }

    fn give_back(&mut self, now: Mono, tokens: u64) {
        self.holder.give_back(now, tokens);
    }

    fn charge(&mut self, now: Mono, cost: u64) {
        self.holder.charge(now, cost);
    }
}
