//! How large a lease is, and by how much shared limits may be passed because of it.

/// How a shared limit is cut into leases. Both parts are in ten thousandths, so that every machine computes the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// The chunk, as a part of the limit per second, for few gateways: 250 is 2.5 %.
    pub chunk: u32,
    /// The most that all gateways together may hold, as a part of the limit per second: 4,000 is 40 %.
    pub fraction: u32,
}

impl Default for Sharing {
    fn default() -> Self {
        Self { chunk: 250, fraction: 4_000 }
    }
}

const WHOLE: u128 = 10_000;

impl Sharing {
    /// The most that all gateways together may hold, in tokens, rounded down.
    #[must_use]
    pub fn ceiling(self, limit_per_second: u64) -> u64 {
        part(limit_per_second, self.fraction, 0)
    }

    /// The chunk for few gateways, in tokens, rounded half up, at least 1.
    #[must_use]
    pub fn nominal(self, limit_per_second: u64) -> u64 {
        part(limit_per_second, self.chunk, WHOLE / 2).max(1)
    }

    /// Whether every gateway can hold a token without passing the ceiling together. A limit for which it is not so has one gateway that owns it.
    #[must_use]
    pub fn is_shareable(self, limit_per_second: u64, gateways: u32) -> bool {
        gateways <= 1 || self.ceiling(limit_per_second) >= u64::from(gateways)
    }
}

fn part(limit: u64, share: u32, rounding: u128) -> u64 {
    u64::try_from((u128::from(limit) * u128::from(share) + rounding) / WHOLE).unwrap_or(u64::MAX)
}

/// The tokens of one lease: `clamp(2.5 % of the limit per second, 1, fraction x limit / gateways)`. What a gateway holds and has on order never passes it.
///
/// At 1,000/s it is 25 up to 16 gateways, and 8 for 50 of them. Zero gateways count as one.
///
/// ```
/// use holdfast_quota::lease::{Sharing, chunk};
/// assert_eq!([4, 16, 50, 10_000].map(|gateways| chunk(1_000, gateways, Sharing::default())), [25, 25, 8, 1]);
/// assert_eq!(chunk(50_000, 4, Sharing::default()), 1_250);
/// ```
#[must_use]
pub fn chunk(limit_per_second: u64, gateways: u32, sharing: Sharing) -> u64 {
    let most = sharing.ceiling(limit_per_second) / u64::from(gateways.max(1));
    sharing.nominal(limit_per_second).min(most).max(1)
}

/// The time in which a limit makes so many tokens, in nanoseconds, rounded up: what a gateway that was granted nothing waits at least.
///
/// 25 ms for 25 tokens at 1,000/s, 0.5 ms at 50,000/s. A limit of nothing makes none: the longest time there is.
#[must_use]
pub fn chunk_nanos(chunk: u64, limit_per_second: u64) -> u64 {
    let nanos = u128::from(chunk) * 1_000_000_000;
    u64::try_from(nanos.div_ceil(u128::from(limit_per_second.max(1)))).unwrap_or(u64::MAX)
}

/// By how many tokens the gateways together may pass `burst + rate x time`, once: what all of them may hold (RATE-1).
///
/// `gateways x chunk` for a limit that is shared, so never more than the larger of `gateways x 1` and the ceiling of [`Sharing`]; one chunk for a limit that one gateway owns.
/// It is about requests that cost one chunk at most; one larger request may be held together beyond it (see `Holder::spend`).
///
/// ```
/// use holdfast_quota::lease::{Sharing, over_admission_bound};
/// assert_eq!(over_admission_bound(1_000, 4, Sharing::default()), 100);
/// assert_eq!(over_admission_bound(1_000, 50, Sharing::default()), 400);
/// assert_eq!(over_admission_bound(20, 50, Sharing::default()), 1);
/// ```
#[must_use]
pub fn over_admission_bound(limit_per_second: u64, gateways: u32, sharing: Sharing) -> u64 {
    if sharing.is_shareable(limit_per_second, gateways) {
        u64::from(gateways.max(1)).saturating_mul(chunk(limit_per_second, gateways, sharing))
    } else {
        chunk(limit_per_second, 1, sharing)
    }
}

/// The same while the store does not answer: every gateway may admit a token of its own now and then, also of a limit that one gateway owns otherwise.
///
/// It is about a store that is away for all. A gateway that is cut off alone goes on by `limit / gateways` for as long as that lasts, while the others have all
/// of the limit; that is on top, and is charged when it is back.
///
/// ```
/// use holdfast_quota::lease::{Sharing, over_admission_bound_alone};
/// assert_eq!(over_admission_bound_alone(1_000, 50, Sharing::default()), 400);
/// assert_eq!(over_admission_bound_alone(20, 50, Sharing::default()), 50);
/// ```
#[must_use]
pub fn over_admission_bound_alone(limit_per_second: u64, gateways: u32, sharing: Sharing) -> u64 {
    u64::from(gateways.max(1)).saturating_mul(chunk(limit_per_second, gateways, sharing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_the_worked_cases() {
        let sharing = Sharing::default();
        assert_eq!(chunk_nanos(25, 1_000), 25_000_000);
        assert_eq!(chunk_nanos(25, 50_000), 500_000);
        assert_eq!(chunk_nanos(1, 3), 333_333_334);
        // The largest chunk of the worked case, 100 for each of 4 gateways, is exactly at the ceiling.
        assert_eq!(chunk(1_000, 4, Sharing { chunk: 1_000, ..sharing }), 100);
        assert_eq!(chunk(1_000, 5, Sharing { chunk: 1_000, ..sharing }), 80);
        assert!((1_000..=1_500).contains(&chunk(50_000, 10, sharing)));
    }

    #[test]
    fn extremes_stay_within_the_formula() {
        let sharing = Sharing::default();
        assert_eq!(chunk(0, 0, sharing), 1);
        assert!(chunk(u64::MAX, 1, sharing) < u64::MAX / 39);
        assert!(sharing.is_shareable(3, 1) && !sharing.is_shareable(3, 2) && sharing.is_shareable(5, 2));
        for gateways in 1..200 {
            for limit in [1, 7, 20, 100, 1_000, 50_000] {
                let bound = over_admission_bound(limit, gateways, sharing);
                assert!(bound <= sharing.ceiling(limit).max(1), "{limit}/s over {gateways}: {bound}");
            }
        }
    }
}
