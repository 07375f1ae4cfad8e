//! What a limit is: a rate and a burst; and the one meaning of zero, none and unlimited.

use std::time::Duration;

/// Tokens per span of time, exactly: a third of 1,000/s is `1,000 per 3 s` and loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    tokens: u64,
    /// Nanoseconds, 1 to 2^62, so that a whole `u64` of tokens fits a level.
    per: u64,
}

const SECOND: u64 = 1_000_000_000;
const LONGEST: u64 = 1 << 62;

impl Rate {
    /// So many per second.
    #[must_use]
    pub const fn per_second(tokens: u64) -> Self {
        Self { tokens, per: SECOND }
    }

    /// So many per span, which is held between a nanosecond and 146 years.
    #[must_use]
    pub fn new(tokens: u64, per: Duration) -> Self {
        Self { tokens, per: u64::try_from(per.as_nanos()).unwrap_or(LONGEST).clamp(1, LONGEST) }
    }

    /// An equal part of the rate: a fraction, never rounded to none. Zero parts count as one.
    #[must_use]
    pub fn divided(self, parts: u32) -> Self {
        Self { per: self.per.saturating_mul(u64::from(parts.max(1))).min(LONGEST), ..self }
    }

    /// The tokens made per nanosecond, in parts of [`Rate::unit`].
    pub(crate) const fn speed(self) -> u64 {
        self.tokens
    }

    /// The parts that one token has.
    pub(crate) const fn unit(self) -> u64 {
        self.per
    }

    /// The tokens of one span.
    #[must_use]
    pub const fn tokens(self) -> u64 {
        self.tokens
    }

    /// The span.
    #[must_use]
    pub const fn per(self) -> Duration {
        Duration::from_nanos(self.per)
    }

    /// Whole tokens per second, rounded down.
    #[must_use]
    pub fn whole_per_second(self) -> u64 {
        u64::try_from(u128::from(self.tokens) * u128::from(SECOND) / u128::from(self.per)).unwrap_or(u64::MAX)
    }

    /// The time that makes so many tokens, rounded up to a nanosecond. None: this rate never does.
    #[must_use]
    pub fn time_for(self, tokens: u64) -> Option<Duration> {
        let parts = u128::from(tokens) * u128::from(self.per);
        nanos_for(parts, self.tokens)
    }
}

/// The time for so many parts at so many parts per nanosecond.
pub(crate) fn nanos_for(parts: u128, speed: u64) -> Option<Duration> {
    if speed == 0 {
        return (parts == 0).then_some(Duration::ZERO);
    }
    Some(Duration::from_nanos(u64::try_from(parts.div_ceil(u128::from(speed))).unwrap_or(u64::MAX)))
}

/// A rate, and how much may be used at once after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What comes back over time.
    pub rate: Rate,
    /// The most that is there at once, in tokens.
    pub burst: u64,
}

impl Limit {
    /// So many per second, with a burst.
    #[must_use]
    pub const fn per_second(tokens: u64, burst: u64) -> Self {
        Self { rate: Rate::per_second(tokens), burst }
    }
}

/// What is allowed. `0` in a configuration is [`Allowance::Nothing`], `unlimited` is [`Allowance::Unlimited`]. A field that is left out says nothing:
/// what is less specific decides, and where nobody says anything there is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allowance {
    /// No limit, and no bucket.
    #[default]
    Unlimited,
    /// Everything is refused, and waiting does not help. What costs nothing passes.
    Nothing,
    /// A token bucket.
    Limited(Limit),
}

impl Allowance {
    /// A limit as it is written: a rate of 0 or a burst of 0 is nothing at all.
    #[must_use]
    pub const fn of(limit: Limit) -> Self {
        if limit.rate.tokens == 0 || limit.burst == 0 { Self::Nothing } else { Self::Limited(limit) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_rate_is_a_fraction_and_never_none() {
        let third = Rate::per_second(1).divided(3);
        assert_eq!(third.time_for(1), Some(Duration::from_secs(3)));
        assert_eq!(Rate::per_second(1_000).divided(50).time_for(1), Some(Duration::from_millis(50)));
        assert_eq!(Rate::per_second(1).divided(u32::MAX).divided(u32::MAX).speed(), 1);
        assert_eq!(Rate::per_second(7).divided(0), Rate::per_second(7));
    }

    #[test]
    fn zero_is_nothing_and_only_unlimited_is_unlimited() {
        assert_eq!(Allowance::of(Limit::per_second(0, 10)), Allowance::Nothing);
        assert_eq!(Allowance::of(Limit::per_second(10, 0)), Allowance::Nothing);
        assert_eq!(Allowance::of(Limit::per_second(1, 1)), Allowance::Limited(Limit::per_second(1, 1)));
        assert_eq!(Allowance::default(), Allowance::Unlimited);
        assert_eq!(Rate::per_second(0).time_for(1), None);
    }
}
