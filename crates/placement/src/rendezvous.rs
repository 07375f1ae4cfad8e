//! Weighted rendezvous hashing (highest random weight), in integers only.
//!
//! A member's score for a key is `-log2(u) / weight`, where `u` in (0, 1] is the hash of (key, member); the lowest score owns the key, and the
//! order of scores is the order of preference. With this form the shares are proportional to the weights and a change of one member moves no
//! key between two others (D. G. Thaler and C. V. Ravishankar, 1998; the logarithm is the exponential-race form of weighted sampling).
//!
//! The logarithm is computed bit by bit in fixed point, so that two machines never differ in a last digit of a float.

use std::cmp::Ordering;

use crate::hash::{Purpose, stable_hash};
use crate::members::MemberList;

/// Bits after the binary point.
const FRACTION: u32 = 48;

/// Rendezvous hashing over a member list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendezvous {
    members: MemberList,
}

#[derive(Clone, Copy)]
struct Score {
    member: u32,
    hash: u64,
    cost: u64,
    weight: u32,
}

impl Rendezvous {
    /// Over these members.
    #[must_use]
    pub fn new(members: MemberList) -> Self {
        Self { members }
    }

    /// The members.
    #[must_use]
    pub fn members(&self) -> &MemberList {
        &self.members
    }

    /// Replaces `out` by the first `n` owners of the key. Cost: one hash and one logarithm per member, and a sort.
    pub fn first(&self, key: u64, n: usize, out: &mut Vec<u32>) {
        let key = key.to_le_bytes();
        let mut weights = self.members.owning().map(|(_, m)| m.weight);
        let first = weights.next();
        let cost = if weights.all(|w| Some(w) == first) { even_cost } else { neg_log2 };
        let mut scores: Vec<Score> = self
            .members
            .owning()
            .map(|(member, m)| {
                let parts: [&[u8]; 2] = [&key, m.name.as_bytes()];
                let hash = stable_hash(Purpose::Rendezvous, &parts);
                Score { member, hash, cost: cost(hash), weight: m.weight.0 }
            })
            .collect();
        scores.sort_unstable_by(Score::compare);
        out.clear();
        out.extend(scores.iter().take(n).map(|s| s.member));
    }
}

impl Score {
    /// `cost / weight` by cross-multiplication; then the higher hash; then the name's order.
    fn compare(a: &Self, b: &Self) -> Ordering {
        let left = u128::from(a.cost) * u128::from(b.weight);
        let right = u128::from(b.cost) * u128::from(a.weight);
        left.cmp(&right).then(b.hash.cmp(&a.hash)).then(a.member.cmp(&b.member))
    }
}

/// In place of the logarithm where all weights are equal: the logarithm never increases with the hash, so the order is that of the hashes.
fn even_cost(hash: u64) -> u64 {
    u64::MAX - hash
}

/// `-log2((hash + 1) / 2^64)` with [`FRACTION`] bits after the point: 0 for the highest hash, 64 for the lowest. Never increases with `hash`.
///
/// Method: the whole part is the position of the highest bit; each squaring of the mantissa yields one bit of the fraction.
fn neg_log2(hash: u64) -> u64 {
    let value = u128::from(hash) + 1;
    let whole = value.ilog2();
    if whole == 64 {
        return 0;
    }
    // The mantissa in [1, 2) with 63 bits after the point.
    let mut mantissa = value << (63 - whole);
    let mut log = u64::from(whole);
    for _ in 0..FRACTION {
        mantissa = (mantissa * mantissa) >> 63;
        let bit = mantissa >> 64;
        mantissa >>= bit;
        log = (log << 1) | u64::from(bit != 0);
    }
    (64 << FRACTION) - log
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn logarithms_at_known_points() {
        assert_eq!(neg_log2(u64::MAX), 0);
        assert_eq!(neg_log2(0), 64 << FRACTION);
        assert_eq!(neg_log2((1 << 63) - 1), 1 << FRACTION);
        assert_eq!(neg_log2((1 << 40) - 1), 24 << FRACTION);
    }

    proptest! {
        #[test]
        fn equal_weights_need_no_logarithm(a in any::<u64>(), b in any::<u64>(), weight in 1u32..9) {
            let score = |member, hash, cost| Score { member, hash, cost, weight };
            let by = |cost: fn(u64) -> u64| Score::compare(&score(0, a, cost(a)), &score(1, b, cost(b)));
            prop_assert_eq!(by(even_cost), by(neg_log2));
        }

        #[test]
        fn logarithm_is_close_and_monotone(hash in any::<u64>(), step in 0u64..1 << 50) {
            let exact = 64.0 - (hash as f64 + 1.0).log2();
            let ours = neg_log2(hash) as f64 / (1u64 << FRACTION) as f64;
            prop_assert!((exact - ours).abs() < 1e-9, "{} {}", exact, ours);
            prop_assert!(neg_log2(hash) >= neg_log2(hash.saturating_add(step)));
        }
    }
}
