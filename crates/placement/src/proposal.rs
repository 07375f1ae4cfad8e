//! How many replicas each pinned key should have, from traffic and memory, over the real orders.
//!
//! Everybody gets one holder: without it a pin cannot be served; then, if the terms say so, everybody another one before anybody gets more. Then those whose
//! traffic on one holder is large get more, the largest first. What room is left goes to second holders, the busiest keys first, so that the loss of one
//! replica leaves fewer keys without any. Nobody is given a place that is not there: the next replica of the key's order must have room, a reserve left free.
//!
//! Integers only: a proposal that becomes a configuration has to be the same on every machine.

use std::collections::{BTreeSet, BinaryHeap};

use holdfast_types::Bytes;

/// A pinned key that is to be given replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish<'a> {
    /// The pinned version, as an index into the sizes.
    pub version: u32,
    /// The replicas in the key's order of preference, as indexes into the memories.
    pub order: &'a [u32],
    /// Its traffic, in whatever unit all have in common.
    pub traffic: u64,
}

/// The terms of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The most replicas of one key.
    pub most: usize,
    /// Holders that every key is given before any key gets more, as far as there is room; 1 at least.
    pub first: usize,
    /// The traffic that one key may bring to one of its holders before it is given another.
    pub enough: u64,
    /// Memory to be left free on each replica, such as the largest version, so that a pin can change.
    pub reserve: Bytes,
}

/// Who is on which replica so far.
struct Layout<'a> {
    memories: &'a [Option<Bytes>],
    sizes: &'a [Bytes],
    held: Vec<BTreeSet<u32>>,
    used: Vec<u64>,
}

impl Layout<'_> {
    fn size(&self, version: u32) -> u64 {
        self.sizes.get(version as usize).map_or(0, |s| s.0)
    }

    fn has_room(&self, replica: u32, version: u32, reserve: Bytes) -> bool {
        let at = replica as usize;
        let (Some(held), Some(used), Some(memory)) = (self.held.get(at), self.used.get(at), self.memories.get(at))
        else {
            return false;
        };
        let after = used.saturating_add(self.size(version)).saturating_add(reserve.0);
        held.contains(&version) || memory.is_none_or(|memory| after <= memory.0)
    }

    fn place(&mut self, replica: u32, version: u32) {
        let (at, size) = (replica as usize, self.size(version));
        if let (Some(held), Some(used)) = (self.held.get_mut(at), self.used.get_mut(at))
            && held.insert(version)
        {
            *used = used.saturating_add(size);
        }
    }
}

/// A key that may grow: by its traffic per holder, then by its place in the list.
#[derive(PartialEq, Eq)]
struct Growing {
    traffic: u64,
    k: usize,
    index: usize,
}

impl Ord for Growing {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let part = |own: &Self, theirs: &Self| u128::from(own.traffic) * theirs.k as u128;
        part(self, other).cmp(&part(other, self)).then(other.index.cmp(&self.index))
    }
}

impl PartialOrd for Growing {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The proposed k of each key: 0 only where its order is empty.
#[must_use]
pub fn propose(memories: &[Option<Bytes>], sizes: &[Bytes], wishes: &[Wish<'_>], terms: Terms) -> Vec<usize> {
    let none = vec![BTreeSet::new(); memories.len()];
    let mut layout = Layout { memories, sizes, held: none, used: vec![0; memories.len()] };
    let mut ks: Vec<usize> = wishes.iter().map(|wish| wish.order.len().min(1)).collect();
    for wish in wishes {
        if let Some(first) = wish.order.first() {
            layout.place(*first, wish.version);
        }
    }
    let enough = |growing: &Growing| u128::from(growing.traffic) > u128::from(terms.enough) * growing.k as u128;
    for copies in 2..=terms.first {
        grow(&mut layout, wishes, &mut ks, terms, |growing| growing.k < copies);
    }
    grow(&mut layout, wishes, &mut ks, terms, enough);
    grow(&mut layout, wishes, &mut ks, terms, |growing| growing.k < 2);
    ks
}

/// Gives one more holder after the other to whoever has most traffic on each, while `wants` it and its next replica has room. A key whose next replica
/// is full stays as it is: a subset is a beginning of the order, without gaps.
fn grow(
    layout: &mut Layout<'_>,
    wishes: &[Wish<'_>],
    ks: &mut [usize],
    terms: Terms,
    wants: impl Fn(&Growing) -> bool,
) {
    let all = wishes.iter().zip(ks.iter()).enumerate();
    let all = all.filter(|(_, (_, k))| **k > 0).map(|(index, (w, k))| Growing { traffic: w.traffic, k: *k, index });
    let mut heap: BinaryHeap<Growing> = all.filter(&wants).collect();
    while let Some(growing) = heap.pop() {
        let (Some(wish), Some(k)) = (wishes.get(growing.index), ks.get_mut(growing.index)) else { continue };
        let Some(next) = wish.order.get(growing.k).filter(|_| growing.k < terms.most) else { continue };
        if !layout.has_room(*next, wish.version, terms.reserve) {
            continue;
        }
        layout.place(*next, wish.version);
        *k = growing.k + 1;
        let grown = Growing { k: *k, ..growing };
        if wants(&grown) {
            heap.push(grown);
        }
    }
}
