//! How many keys change their owner when the members do. Figures for people who plan; measured on the structures that decide.

use crate::hash::{Purpose, stable_hash};
use crate::members::MemberList;
use crate::owners::Owners;
use crate::ring::Ring;
use crate::slots::SlotMap;

/// A share as parts of a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The parts.
    pub parts: u128,
    /// The whole, in the same parts.
    pub of: u128,
}

impl Share {
    /// The share as a number of 0 to 1.
    #[must_use]
    pub fn of_one(self) -> f64 {
        if self.of == 0 { 0.0 } else { self.parts as f64 / self.of as f64 }
    }
}

/// The least share that any placement moves from `from` to `to` members of one weight, and what ring, rendezvous and slots come to: the
/// part of those who come, or of those who go.
#[must_use]
pub fn least(from: u32, to: u32) -> Share {
    Share { parts: u128::from(from.abs_diff(to)), of: u128::from(from.max(to)) }
}

/// What `hash modulo members` moves. Of every `lcm(from, to)` hashes in a row, those below the smaller number keep their owner, and no others:
/// a hash that leaves one rest by both leaves it by their common multiple.
#[must_use]
pub fn modulo(from: u32, to: u32) -> Share {
    let (a, b) = (u128::from(from), u128::from(to));
    let multiple = a / gcd(a, b).max(1) * b;
    Share { parts: multiple - a.min(b).min(multiple), of: multiple }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// What moves from one ring to another: exact, by the lengths of the arcs that have another owner.
#[must_use]
pub fn ring(before: &Ring, after: &Ring) -> Share {
    let mut ends: Vec<u64> = before.points().iter().chain(after.points()).map(|p| p.0).collect();
    ends.sort_unstable();
    ends.dedup();
    let (mut parts, mut last) = (0u128, None);
    for &end in &ends {
        if owner(before, end) != owner(after, end) {
            parts += match last {
                Some(start) => u128::from(end) - u128::from(start),
                // The first arc goes over zero: what lies after the last point is its, too.
                None => u128::from(end) + 1 + u128::from(u64::MAX - ends.last().copied().unwrap_or(end)),
            };
        }
        last = Some(end);
    }
    Share { parts, of: 1 << 64 }
}

fn owner(ring: &Ring, key: u64) -> Option<&str> {
    let at = ring.points().partition_point(|(position, _)| *position < key);
    let point = ring.points().get(at).or_else(|| ring.points().first());
    point.and_then(|(_, member)| ring.members().get(*member)).map(|m| &*m.name)
}

/// What moves when a slot map gets other members and all of its steps are done.
#[must_use]
pub fn slots(map: &SlotMap, members: MemberList) -> Share {
    let after = map.with_members(members);
    Share { parts: after.plan().len() as u128, of: map.slots() as u128 }
}

/// What moves of so many keys, for placements without arcs.
#[must_use]
pub fn sampled(before: &Owners, after: &Owners, keys: u32) -> Share {
    let (mut parts, mut out) = (0, Vec::with_capacity(1));
    for index in 0..keys {
        let key = stable_hash(Purpose::CacheKey, &[index.to_le_bytes()]);
        let mut name = |owners: &Owners| {
            owners.first(key, 1, &mut out);
            out.first().and_then(|m| owners.members().get(*m)).map(|m| m.name.clone())
        };
        if name(before) != name(after) {
            parts += 1;
        }
    }
    Share { parts, of: u128::from(keys) }
}

/// How unevenly members of one weight share a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The mean square of what a member's share is off an even one, as a part of an even one.
    pub variance: f64,
    /// The largest share, in even ones.
    pub largest: f64,
}

/// The spread of a ring's shares: exact, by the lengths of the arcs.
#[must_use]
pub fn spread(ring: &Ring) -> Spread {
    let mut arcs = vec![0.0f64; ring.members().members().len()];
    let count = arcs.len() as f64;
    let mut last = ring.points().last().map_or(0, |p| p.0);
    for &(end, member) in ring.points() {
        if let Some(arc) = arcs.get_mut(member as usize) {
            // The first arc goes over zero.
            *arc += end.wrapping_sub(last) as f64 / 2f64.powi(64) * count;
        }
        last = end;
    }
    let variance = arcs.iter().map(|share| (share - 1.0).powi(2)).sum::<f64>() / count.max(1.0);
    Spread { variance, largest: arcs.iter().copied().fold(0.0, f64::max) }
}
