//! The fixed slot map: a power of two of slots, one owner each, for data that is moved and not merely missed.
//!
//! A change of members moves nothing by itself. [`SlotMap::plan`] lists the fewest moves that lead to shares by weight; each is applied as
//! one step with a version of its own, so a move can be shown, paused between any two steps, and refused when it is out of date. A slot has
//! one owner at every moment, so there is one writer.

use std::fmt;

use holdfast_types::Revision;

use crate::hash::{Purpose, stable_hash};
use crate::members::MemberList;
use crate::rendezvous::Rendezvous;

/// The most slots are `2^MAX_BITS` = 16,384.
pub const MAX_BITS: u32 = 14;

/// A slot map over a member list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMap {
    version: Revision,
    bits: u32,
    members: MemberList,
    /// The owner of each slot, as an index of `members`. None: its owner has left and it has not been moved yet.
    owners: Box<[Option<u32>]>,
}

/// One step: a slot goes from one owner to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The slot.
    pub slot: u32,
    /// Its owner before. None: nobody.
    pub from: Option<Box<str>>,
    /// Its owner after.
    pub to: Box<str>,
}

/// Why a map or a step is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotError {
    /// More than [`MAX_BITS`].
    TooManySlots,
    /// No such slot.
    NoSuchSlot,
    /// The slot's owner is not the one that the step starts from.
    Stale,
    /// The new owner is not a member.
    NotAMember,
}

impl fmt::Display for SlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooManySlots => "a slot map has at most 16384 slots",
            Self::NoSuchSlot => "there is no such slot",
            Self::Stale => "the slot has another owner by now",
            Self::NotAMember => "the new owner is not a member",
        })
    }
}

impl std::error::Error for SlotError {}

impl SlotMap {
    /// A map of `2^bits` slots, filled by weight. Which slot goes where is a function of the names and weights alone.
    ///
    /// # Errors
    /// [`SlotError::TooManySlots`].
    pub fn new(bits: u32, members: MemberList) -> Result<Self, SlotError> {
        if bits > MAX_BITS {
            return Err(SlotError::TooManySlots);
        }
        let owners = vec![None; 1 << bits].into();
        let mut map = Self { version: Revision(0), bits, members, owners };
        for step in map.plan() {
            map.step(&step)?;
        }
        map.version = Revision(1);
        Ok(map)
    }

    /// The version: it grows by one with every step and every change of members.
    #[must_use]
    pub fn version(&self) -> Revision {
        self.version
    }

    /// The members.
    #[must_use]
    pub fn members(&self) -> &MemberList {
        &self.members
    }

    /// How many slots there are.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.owners.len()
    }

    /// The slot of a key.
    #[must_use]
    pub fn slot_of(&self, key: u64) -> u32 {
        let hash = stable_hash(Purpose::Slot, &[key.to_le_bytes()]);
        u32::try_from(hash.checked_shr(64 - self.bits).unwrap_or(0)).unwrap_or(0)
    }

    /// The owner of a slot, as an index of the members.
    #[must_use]
    pub fn owner(&self, slot: u32) -> Option<u32> {
        self.owners.get(slot as usize).copied().flatten()
    }

    /// Replaces `out` by the first `n` owners of the key: the slot's owner, then the distinct owners of the slots after it.
    pub fn first(&self, key: u64, n: usize, out: &mut Vec<u32>) {
        out.clear();
        let (before, after) = self.owners.split_at((self.slot_of(key) as usize).min(self.owners.len()));
        for owner in after.iter().chain(before).flatten() {
            if out.len() >= n.min(self.members.members().len()) {
                return;
            }
            if !out.contains(owner) {
                out.push(*owner);
            }
        }
    }

    /// The same slots over another member list. Nothing moves: who stays keeps its slots, also at weight 0; the slots of who has left have no
    /// owner until they are moved.
    #[must_use]
    pub fn with_members(&self, members: MemberList) -> Self {
        let owners =
            self.owners.iter().map(|o| o.and_then(|o| self.members.get(o)).and_then(|m| members.index_of(&m.name)));
        let owners = owners.collect();
        Self { version: Revision(self.version.0.saturating_add(1)), bits: self.bits, members, owners }
    }

    /// The fewest steps to shares by weight: slots without an owner first, then from whoever has too many.
    #[must_use]
    pub fn plan(&self) -> Vec<Move> {
        let mut room = self.shortfalls();
        let ranks = Rendezvous::new(self.members.clone());
        let mut order = Vec::new();
        let mut steps = Vec::new();
        let orphans = self.numbered().filter(|(_, owner)| owner.is_none());
        let owned = self.numbered().filter(|(_, owner)| owner.is_some());
        for (slot, from) in orphans.chain(owned) {
            let surplus = from.is_none_or(|f| room.get(f as usize).is_some_and(|r| *r < 0));
            if !surplus {
                continue;
            }
            ranks.first(u64::from(slot), usize::MAX, &mut order);
            let Some(to) = order.iter().copied().find(|m| room.get(*m as usize).is_some_and(|r| *r > 0)) else {
                continue;
            };
            let (Some(target), name) = (self.members.get(to), from.and_then(|f| self.members.get(f))) else { continue };
            steps.push(Move { slot, from: name.map(|m| m.name.clone()), to: target.name.clone() });
            for (member, change) in [(Some(to), -1), (from, 1)] {
                if let Some(r) = member.and_then(|m| room.get_mut(m as usize)) {
                    *r += change;
                }
            }
        }
        steps
    }

    /// Carries out one step.
    ///
    /// # Errors
    /// The step does not start from the present owner, or leads to nobody.
    pub fn step(&mut self, step: &Move) -> Result<(), SlotError> {
        let from = match &step.from {
            Some(name) => Some(self.members.index_of(name).ok_or(SlotError::Stale)?),
            None => None,
        };
        let to = self.members.index_of(&step.to).ok_or(SlotError::NotAMember)?;
        let owner = self.owners.get_mut(step.slot as usize).ok_or(SlotError::NoSuchSlot)?;
        if *owner != from {
            return Err(SlotError::Stale);
        }
        *owner = Some(to);
        self.version = Revision(self.version.0.saturating_add(1));
        Ok(())
    }

    fn numbered(&self) -> impl Iterator<Item = (u32, Option<u32>)> {
        (0u32..).zip(self.owners.iter().copied())
    }

    /// For each member: slots due by weight less slots held. The remainders of the division go to who has most already (so that fewest
    /// move), then to the largest remainder, then by name.
    fn shortfalls(&self) -> Vec<i64> {
        let slots = self.owners.len() as u128;
        let total: u128 = self.members.members().iter().map(|m| u128::from(m.weight.0)).sum();
        let mut held = vec![0i64; self.members.members().len()];
        for owner in self.owners.iter().flatten() {
            if let Some(h) = held.get_mut(*owner as usize) {
                *h += 1;
            }
        }
        if total == 0 {
            return vec![0; held.len()];
        }
        let share = |weight: u32| (u128::from(weight) * slots / total, u128::from(weight) * slots % total);
        let mut due: Vec<i64> =
            self.members.members().iter().map(|m| i64::try_from(share(m.weight.0).0).unwrap_or(0)).collect();
        let left = usize::try_from(i64::try_from(slots).unwrap_or(0) - due.iter().sum::<i64>()).unwrap_or(0);
        let mut order: Vec<(i64, u128, usize)> = (0usize..)
            .zip(self.members.members().iter().zip(held.iter().zip(&due)))
            .filter(|(_, (m, _))| share(m.weight.0).1 > 0)
            .map(|(i, (m, (h, d)))| ((h - d).clamp(0, 1), share(m.weight.0).1, i))
            .collect();
        order.sort_unstable_by_key(|(surplus, rest, index)| (-surplus, std::cmp::Reverse(*rest), *index));
        for (_, _, index) in order.into_iter().take(left) {
            if let Some(d) = due.get_mut(index) {
                *d += 1;
            }
        }
        due.iter().zip(&held).map(|(due, held)| due - held).collect()
    }
}
