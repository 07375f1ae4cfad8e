//! The token bucket: two numbers, exact integer arithmetic, the time as an argument.
//!
//! A level is counted in parts of a token so small that each nanosecond makes a whole number of them; nothing is ever rounded away, so that how often a
//! bucket is looked at changes nothing. The limit is not in the bucket: a million buckets of one plan share it.

use std::time::Duration;

use holdfast_types::Mono;

use crate::limit::{Allowance, Limit, nanos_for};

/// When it is worth to come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// After this time, if nobody else comes in between.
    For(Duration),
    /// Never: nothing is allowed, or one request asks for more than the burst.
    Never,
}

/// The state of one bucket, 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// In parts of [`Rate::unit`](crate::limit::Rate); below zero after a cost that was known only afterwards.
    level: i128,
    at: Mono,
}

impl Bucket {
    /// One that holds its burst.
    #[must_use]
    pub fn full(limit: Limit, now: Mono) -> Self {
        Self { level: parts(limit, limit.burst), at: now }
    }

    /// One that holds nothing: what a bucket is after it was lost.
    #[must_use]
    pub const fn empty(now: Mono) -> Self {
        Self { level: 0, at: now }
    }

    /// Takes the cost, or nothing at all.
    ///
    /// # Errors
    /// The wait until it would be there.
    pub fn take(&mut self, limit: Limit, now: Mono, cost: u64) -> Result<(), Wait> {
        self.refill(limit, now);
        let cost = parts(limit, cost);
        if cost > self.level && cost > 0 {
            return Err(wait(limit, self.level, cost));
        }
        self.level -= cost;
        Ok(())
    }

    /// Takes the cost; or on credit, if that leaves a debt of one burst at most.
    ///
    /// # Errors
    /// The wait until it would be there.
    pub fn borrow(&mut self, limit: Limit, now: Mono, cost: u64) -> Result<(), Wait> {
        let taken = self.take(limit, now, cost);
        if taken.is_err() && self.lends(limit, now, cost) {
            self.charge(limit, now, cost);
            return Ok(());
        }
        taken
    }

    /// Takes up to `most` whole tokens, and says how many.
    pub fn take_up_to(&mut self, limit: Limit, now: Mono, most: u64) -> u64 {
        let taken = self.available(limit, now).min(most);
        self.refill(limit, now);
        self.level -= parts(limit, taken);
        taken
    }

    /// Takes a cost that has arisen already, down to a debt of one burst. What is beyond that is let off, so that nobody is shut out for longer than two bursts
    /// take to come back.
    pub fn charge(&mut self, limit: Limit, now: Mono, cost: u64) {
        self.refill(limit, now);
        self.level = self.level.saturating_sub(parts(limit, cost)).max(-parts(limit, limit.burst));
    }

    /// Whether a cost that is not there would leave a debt of one burst at most.
    #[must_use]
    pub fn lends(&self, limit: Limit, now: Mono, cost: u64) -> bool {
        let mut seen = *self;
        seen.refill(limit, now);
        seen.level.saturating_sub(parts(limit, cost)) >= -parts(limit, limit.burst)
    }

    /// Puts back what was taken and not used; never above the burst.
    pub fn give_back(&mut self, limit: Limit, now: Mono, tokens: u64) {
        self.refill(limit, now);
        self.level = self.level.saturating_add(parts(limit, tokens)).min(parts(limit, limit.burst));
    }

    /// The whole tokens that are there.
    #[must_use]
    pub fn available(&self, limit: Limit, now: Mono) -> u64 {
        let mut seen = *self;
        seen.refill(limit, now);
        u64::try_from(seen.level / i128::from(limit.rate.unit())).unwrap_or(0)
    }

    /// The wait until the cost is there, if nobody else takes any.
    #[must_use]
    pub fn wait(&self, limit: Limit, now: Mono, cost: u64) -> Wait {
        let mut seen = *self;
        seen.refill(limit, now);
        wait(limit, seen.level, parts(limit, cost))
    }

    /// Goes over to another limit. What is in use stays in use: 700 of 1,000 used are 700 of 800 used. What is used beyond the new burst is let off.
    pub fn change(&mut self, from: Limit, to: Limit, now: Mono) {
        self.refill(from, now);
        let used = parts(from, from.burst).saturating_sub(self.level);
        let (old, new) = (i128::from(from.rate.unit()), i128::from(to.rate.unit()));
        // Rounded up, so that a change back and forth makes no tokens.
        let whole = (used / old).saturating_mul(new);
        let rest = (used % old).saturating_mul(new);
        let used = whole.saturating_add(rest / old + i128::from(rest % old > 0));
        self.level = parts(to, to.burst).saturating_sub(used).max(0);
    }

    /// Lets the time since the last look pass without making tokens.
    pub fn skip_to(&mut self, now: Mono) {
        self.at = self.at.max(now);
    }

    /// Whether it holds its burst, so that it need not be kept.
    #[must_use]
    pub fn is_full(&self, limit: Limit, now: Mono) -> bool {
        let mut seen = *self;
        seen.refill(limit, now);
        seen.level >= parts(limit, limit.burst)
    }

    /// A clock that is set forward brings one burst at most. One that is set back brings nothing, and stops the refill for as long as a whole refill takes
    /// at most: by more than that, the bucket goes on from the new time.
    fn refill(&mut self, limit: Limit, now: Mono) {
        let most = parts(limit, limit.burst);
        if now < self.at {
            let back = self.at.since(now);
            if nanos_for(most.unsigned_abs(), limit.rate.speed()).is_none_or(|whole| back > whole) {
                self.at = now;
            }
            return;
        }
        let made = i128::from(now.0 - self.at.0).saturating_mul(i128::from(limit.rate.speed()));
        self.level = self.level.saturating_add(made).min(most);
        self.at = now;
    }
}

fn parts(limit: Limit, tokens: u64) -> i128 {
    // 2^64 tokens of 2^62 parts fit.
    i128::from(tokens) * i128::from(limit.rate.unit())
}

fn wait(limit: Limit, level: i128, cost: i128) -> Wait {
    let missing = cost.saturating_sub(level).max(0).unsigned_abs();
    if cost > parts(limit, limit.burst) {
        return Wait::Never;
    }
    nanos_for(missing, limit.rate.speed()).map_or(Wait::Never, Wait::For)
}

/// Something that tokens are taken from: a bucket of this process, or a lease of a shared one.
pub trait Purse {
    /// Takes the cost, or nothing at all.
    ///
    /// # Errors
    /// The wait until it would be there.
    fn take(&mut self, now: Mono, cost: u64) -> Result<(), Wait>;
    /// Puts back what was taken and not used.
    fn give_back(&mut self, now: Mono, tokens: u64);
    /// Takes a cost that has arisen already.
    fn charge(&mut self, now: Mono, cost: u64);
}

/// A bucket together with what is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Metered {
    allowance: Allowance,
    bucket: Bucket,
}

impl Metered {
    /// One that nothing was taken from.
    #[must_use]
    pub fn new(allowance: Allowance, now: Mono) -> Self {
        Self { allowance, bucket: full(allowance, now) }
    }

    /// What is allowed.
    #[must_use]
    pub const fn allowance(&self) -> Allowance {
        self.allowance
    }

    /// Goes over to another allowance; between two limits what is in use stays in use.
    pub fn change(&mut self, to: Allowance, now: Mono) {
        match (self.allowance, to) {
            (Allowance::Limited(from), Allowance::Limited(to)) => self.bucket.change(from, to, now),
            _ => self.bucket = full(to, now),
        }
        self.allowance = to;
    }

    /// Takes the cost; or on credit, if it would leave a debt of one burst at most.
    ///
    /// # Errors
    /// As for [`Purse::take`].
    pub fn borrow(&mut self, now: Mono, cost: u64) -> Result<(), Wait> {
        match self.allowance {
            Allowance::Limited(limit) => self.bucket.borrow(limit, now, cost),
            Allowance::Unlimited | Allowance::Nothing => self.take(now, cost),
        }
    }

    /// The whole tokens that are there. None: without limit.
    #[must_use]
    pub fn available(&self, now: Mono) -> Option<u64> {
        match self.allowance {
            Allowance::Unlimited => None,
            Allowance::Nothing => Some(0),
            Allowance::Limited(limit) => Some(self.bucket.available(limit, now)),
        }
    }
}

fn full(allowance: Allowance, now: Mono) -> Bucket {
    match allowance {
        Allowance::Limited(limit) => Bucket::full(limit, now),
        Allowance::Unlimited | Allowance::Nothing => Bucket::empty(now),
    }
}

impl Purse for Metered {
    fn take(&mut self, now: Mono, cost: u64) -> Result<(), Wait> {
        match self.allowance {
            Allowance::Unlimited => Ok(()),
            Allowance::Nothing if cost == 0 => Ok(()),
            Allowance::Nothing => Err(Wait::Never),
            Allowance::Limited(limit) => self.bucket.take(limit, now, cost),
        }
    }

    fn give_back(&mut self, now: Mono, tokens: u64) {
        if let Allowance::Limited(limit) = self.allowance {
            self.bucket.give_back(limit, now, tokens);
        }
    }

    fn charge(&mut self, now: Mono, cost: u64) {
        if let Allowance::Limited(limit) = self.allowance {
            self.bucket.charge(limit, now, cost);
        }
    }
}
