//! RATE-1 as a predicate: what was admitted in any interval is at most `burst + rate x time + extra`.
//!
//! All intervals are looked at together: a bucket as large as the bound, which everything admitted is poured out of, is empty exactly when some interval
//! that ends now is at the bound.

use holdfast_types::Mono;

use crate::limit::Limit;

/// A history that passes the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// By how many tokens, rounded up.
    pub by: u64,
    /// When.
    pub at: Mono,
}

/// What was admitted so far under one limit.
#[derive(Clone, Debug)]
pub struct Witness {
    limit: Limit,
    extra: u64,
    /// How much of the bound is left, in parts of a token.
    left: i128,
    least: i128,
    at: Mono,
}

impl Witness {
    /// A witness for a limit that may be passed by `extra` tokens, once ([`crate::lease::over_admission_bound`]).
    #[must_use]
    pub fn new(limit: Limit, extra: u64, now: Mono) -> Self {
        let left = bound(limit, extra);
        Self { limit, extra, left, least: left, at: now }
    }

    /// Notes that a cost was admitted. Times never go back.
    ///
    /// # Errors
    /// Some interval that ends now has more than the bound.
    pub fn admitted(&mut self, now: Mono, cost: u64) -> Result<(), Broken> {
        let passed = now.0.saturating_sub(self.at.0);
        self.at = self.at.max(now);
        let made = i128::from(passed).saturating_mul(i128::from(self.limit.rate.speed()));
        self.left = self.left.saturating_add(made).min(bound(self.limit, self.extra));
        self.left -= i128::from(cost) * self.unit();
        self.least = self.least.min(self.left);
        if self.left < 0 {
            return Err(Broken { by: whole_up(self.left.unsigned_abs(), self.unit()), at: now });
        }
        Ok(())
    }

    /// By how many tokens `burst + rate x time` was passed in the worst interval, rounded up.
    #[must_use]
    pub fn worst(&self) -> u64 {
        let passed = bound(self.limit, self.extra) - self.least - bound(self.limit, 0);
        if passed <= 0 { 0 } else { whole_up(passed.unsigned_abs(), self.unit()) }
    }

    fn unit(&self) -> i128 {
        i128::from(self.limit.rate.unit())
    }
}

fn bound(limit: Limit, extra: u64) -> i128 {
    (i128::from(limit.burst) + i128::from(extra)).saturating_mul(i128::from(limit.rate.unit()))
}

fn whole_up(parts: u128, unit: i128) -> u64 {
    u64::try_from(parts.div_ceil(unit.unsigned_abs())).unwrap_or(u64::MAX)
}
