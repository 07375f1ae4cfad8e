//! The hash ring: each member has 100 points (virtual nodes) by default, times its weight; a key belongs to the first point at or after it.
//!
//! The standard deviation of the members' shares is about `1 / sqrt(points)` of an even share: 10 % at 100. A join of one to N moves about
//! `1 / (N + 1)` of the keys, all of them to the new member; a loss moves about `1 / N`, all of them from the lost one.

use std::fmt;

use crate::hash::{Purpose, stable_hash};
use crate::members::MemberList;

/// Points of a member of weight 1.
pub const VIRTUAL_NODES: u32 = 100;

/// The most points of a ring.
pub const MAX_POINTS: u64 = 4_000_000;

/// Why a ring is refused: this many points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPoints(pub u64);

impl fmt::Display for TooManyPoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the weights make {} points on the ring; at most {MAX_POINTS} are allowed", self.0)
    }
}

impl std::error::Error for TooManyPoints {}

/// A ring over a member list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    members: MemberList,
    /// (position, member), sorted. Two points at one position are in the order of the members' names.
    points: Box<[(u64, u32)]>,
}

impl Ring {
    /// The ring of these members. Cost: one hash per point, and a sort.
    ///
    /// # Errors
    /// The weights make more than [`MAX_POINTS`].
    pub fn new(members: MemberList, virtual_nodes: u32) -> Result<Self, TooManyPoints> {
        let count = |weight: u32| u64::from(weight) * u64::from(virtual_nodes);
        let total = members.owning().fold(0u64, |sum, (_, m)| sum.saturating_add(count(m.weight.0)));
        if total > MAX_POINTS {
            return Err(TooManyPoints(total));
        }
        let mut points = Vec::with_capacity(usize::try_from(total).unwrap_or(0));
        for (index, member) in members.owning() {
            for node in (0u32..).take(usize::try_from(count(member.weight.0)).unwrap_or(0)) {
                let parts: [&[u8]; 2] = [member.name.as_bytes(), &node.to_le_bytes()];
                points.push((stable_hash(Purpose::RingPoint, &parts), index));
            }
        }
        points.sort_unstable();
        Ok(Self { members, points: points.into() })
    }

    /// The members.
    #[must_use]
    pub fn members(&self) -> &MemberList {
        &self.members
    }

    /// The points: (position, member), sorted. A member's arcs end at its points.
    pub(crate) fn points(&self) -> &[(u64, u32)] {
        &self.points
    }

    /// Replaces `out` by the first `n` owners of the key: the distinct members met from the key's position onwards.
    pub fn first(&self, key: u64, n: usize, out: &mut Vec<u32>) {
        out.clear();
        let start = self.points.partition_point(|(position, _)| *position < key);
        let (before, after) = self.points.split_at(start);
        for (_, member) in after.iter().chain(before) {
            if out.len() >= n.min(self.members.members().len()) {
                return;
            }
            if !out.contains(member) {
                out.push(*member);
            }
        }
    }
}
