//! One question for three ways to place keys: who owns this key, in order of preference?

use crate::members::MemberList;
use crate::rendezvous::Rendezvous;
use crate::ring::Ring;
use crate::slots::SlotMap;

/// A way to place keys on members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owners {
    /// The hash ring.
    Ring(Ring),
    /// Weighted rendezvous hashing.
    Rendezvous(Rendezvous),
    /// The fixed slot map.
    Slots(SlotMap),
}

impl Owners {
    /// The members that the indexes refer to.
    #[must_use]
    pub fn members(&self) -> &MemberList {
        match self {
            Self::Ring(o) => o.members(),
            Self::Rendezvous(o) => o.members(),
            Self::Slots(o) => o.members(),
        }
    }

    /// Replaces `out` by the first `n` owners of the key (a [`crate::hash::stable_hash`] for a purpose), as indexes of [`Self::members`]. Members
    /// of weight 0 are never among them.
    pub fn first(&self, key: u64, n: usize, out: &mut Vec<u32>) {
        match self {
            Self::Ring(o) => o.first(key, n, out),
            Self::Rendezvous(o) => o.first(key, n, out),
            Self::Slots(o) => o.first(key, n, out),
        }
    }

    /// All owners of the key, in order of preference.
    #[must_use]
    pub fn order(&self, key: u64) -> Vec<u32> {
        let mut out = Vec::new();
        self.first(key, usize::MAX, &mut out);
        out
    }

    /// The owner of the key. None: no member has a weight.
    #[must_use]
    pub fn owner(&self, key: u64) -> Option<u32> {
        let mut out = Vec::with_capacity(1);
        self.first(key, 1, &mut out);
        out.first().copied()
    }
}
