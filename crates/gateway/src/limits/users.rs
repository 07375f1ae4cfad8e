//! The buckets of a tenant's users under one limit, in bounded memory.
//!
//! A user is a keyed hash of 128 bits: 48 bytes each, whatever the name. A bucket is forgotten only when it is full, so forgetting grants nothing; when there is
//! no room, new users share one bucket, so that inventing users is of no use. The map is cut into parts once it is large, since a map that grows
//! moves all that it holds.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use holdfast_quota::bucket::{Bucket, Wait};
use holdfast_quota::limit::Limit;
use holdfast_types::Mono;

/// Bounds over all tenants.
#[derive(Debug)]
pub struct Room {
    most: AtomicU32,
    most_of_one: AtomicU32,
    used: AtomicU32,
}

impl Default for Room {
    fn default() -> Self {
        Self { most: AtomicU32::new(1_000_000), most_of_one: AtomicU32::new(100_000), used: AtomicU32::new(0) }
    }
}

impl Room {
    /// Sets the bounds. Who has a place keeps it until its bucket is full.
    pub fn bound(&self, most: u32, most_of_one: u32) {
        self.most.store(most, Relaxed);
        self.most_of_one.store(most_of_one, Relaxed);
    }

    fn take(&self, of_one: usize) -> bool {
        let is_free = |used: u32| (used < self.most.load(Relaxed)).then(|| used + 1);
        of_one < self.most_of_one.load(Relaxed) as usize && self.used.fetch_update(Relaxed, Relaxed, is_free).is_ok()
    }

    fn is_free(&self, of_one: usize) -> bool {
        of_one < self.most_of_one.load(Relaxed) as usize && self.used.load(Relaxed) < self.most.load(Relaxed)
    }

    fn give_back(&self, count: usize) {
        self.used.fetch_sub(u32::try_from(count).unwrap_or(u32::MAX), Relaxed);
    }
}

/// The key is a good hash already.
#[derive(Default)]
pub struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }
}

type Part = HashMap<u128, Bucket, BuildHasherDefault<AsIs>>;

/// Whose bucket something was taken from. Who took it has to remember, for a user may get a bucket of its own meanwhile, or lose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The user's own.
    Own,
    /// The one of all users that have none.
    Others,
}

/// See the module.
pub struct Users {
    room: Arc<Room>,
    parts: Vec<Part>,
    len: usize,
    others: Option<Bucket>,
    /// Before this time no room is looked for: a flood of users must not have the map read at each request.
    sweep: Mono,
    /// The part that was looked through last.
    next: usize,
}

/// From this size on there are `PARTS` parts.
const LARGE: usize = 4_096;
const PARTS: usize = 64;
const BETWEEN_SWEEPS: std::time::Duration = std::time::Duration::from_millis(250);

impl Users {
    pub fn new(room: Arc<Room>) -> Self {
        Self { room, parts: vec![Part::default()], len: 0, others: None, sweep: Mono::ZERO, next: 0 }
    }

    /// How many are told apart, and whether some share a bucket.
    pub fn counts(&self) -> (usize, bool) {
        (self.len, self.others.is_some())
    }

    /// The memory of the map: places, and a byte of control for each.
    #[cfg(test)]
    pub fn memory(&self) -> usize {
        let place = size_of::<(u128, Bucket)>() + 1;
        self.parts.iter().map(|part| (part.capacity() * 8 / 7 + 16) * place).sum()
    }

    /// Takes the cost from the user's bucket, or nothing; and says whose bucket it was.
    pub fn take(&mut self, limit: Limit, now: Mono, user: u128, cost: u64) -> Result<Whose, Wait> {
        let (bucket, whose) = self.bucket(limit, now, user);
        bucket.take(limit, now, cost).map(|()| whose)
    }

    /// The same, on credit if need be.
    pub fn borrow(&mut self, limit: Limit, now: Mono, user: u128, cost: u64) -> Result<Whose, Wait> {
        let (bucket, whose) = self.bucket(limit, now, user);
        bucket.borrow(limit, now, cost).map(|()| whose)
    }

    /// Gives back where it was taken. A bucket that was forgotten meanwhile was full.
    pub fn give_back(&mut self, limit: Limit, now: Mono, (user, whose): (u128, Whose), tokens: u64) {
        let bucket = if whose == Whose::Others { self.others.as_mut() } else { self.known(user) };
        if let Some(bucket) = bucket {
            bucket.give_back(limit, now, tokens);
        }
    }

    /// Takes a cost that has arisen already, where the first part of it was taken.
    pub fn charge(&mut self, limit: Limit, now: Mono, (user, whose): (u128, Whose), cost: u64) {
        let bucket = match whose {
            Whose::Others => self.others.get_or_insert_with(|| Bucket::full(limit, now)),
            Whose::Own => self.bucket(limit, now, user).0,
        };
        bucket.charge(limit, now, cost);
    }

    /// What is left to a user, without noting that anybody asked.
    pub fn available(&self, limit: Limit, now: Mono, user: u128) -> u64 {
        let known = self.parts.get(self.part_of(user)).and_then(|part| part.get(&user));
        // Who would be new where there is no room has what the others have.
        let others = || self.others.as_ref().filter(|_| !self.room.is_free(self.len));
        known.or_else(others).map_or(limit.burst, |bucket| bucket.available(limit, now))
    }

    /// Another limit; what is in use stays in use.
    pub fn change(&mut self, from: Limit, to: Limit, now: Mono) {
        let buckets = self.parts.iter_mut().flat_map(Part::values_mut);
        buckets.chain(&mut self.others).for_each(|bucket| bucket.change(from, to, now));
    }

    /// Forgets everybody: there is no limit any more.
    pub fn clear(&mut self) {
        self.room.give_back(std::mem::take(&mut self.len));
        (self.parts, self.others) = (vec![Part::default()], None);
    }

    /// Forgets those whose buckets are full, in the next so many parts: a large map is gone through bit by bit, since everybody of the tenant waits meanwhile.
    pub fn sweep(&mut self, limit: Limit, now: Mono, parts: usize) {
        let count = self.parts.len();
        for _ in 0..parts.min(count) {
            self.next = (self.next + 1) % count;
            let Some(part) = self.parts.get_mut(self.next) else { continue };
            let before = part.len();
            part.retain(|_, bucket| !bucket.is_full(limit, now));
            if part.len() < part.capacity() / 8 {
                part.shrink_to(part.len() * 2);
            }
            let gone = before - part.len();
            self.len -= gone;
            self.room.give_back(gone);
        }
        self.others.take_if(|bucket| bucket.is_full(limit, now));
    }

    fn known(&mut self, user: u128) -> Option<&mut Bucket> {
        let at = self.part_of(user);
        self.parts.get_mut(at)?.get_mut(&user)
    }

    fn part_of(&self, user: u128) -> usize {
        // The map uses the lower half.
        (user >> 64) as usize % self.parts.len()
    }

    fn bucket(&mut self, limit: Limit, now: Mono, user: u128) -> (&mut Bucket, Whose) {
        let at = self.part_of(user);
        let is_known = self.parts.get(at).is_some_and(|part| part.contains_key(&user));
        if !is_known && !self.has_room(limit, now) {
            return (self.others.get_or_insert_with(|| Bucket::full(limit, now)), Whose::Others);
        }
        if !is_known {
            self.len += 1;
            if self.len == LARGE {
                self.cut();
            }
        }
        let at = self.part_of(user);
        match self.parts.get_mut(at) {
            Some(part) => (part.entry(user).or_insert_with(|| Bucket::full(limit, now)), Whose::Own),
            // There is always a part.
            None => (self.others.get_or_insert_with(|| Bucket::full(limit, now)), Whose::Others),
        }
    }

    fn has_room(&mut self, limit: Limit, now: Mono) -> bool {
        if self.room.take(self.len) {
            return true;
        }
        if now >= self.sweep {
            self.sweep(limit, now, PARTS / 8);
            self.sweep = now.after(BETWEEN_SWEEPS);
        }
        self.room.take(self.len)
    }

    fn cut(&mut self) {
        if self.parts.len() == PARTS {
            return;
        }
        let whole = std::mem::replace(&mut self.parts, (0..PARTS).map(|_| Part::default()).collect());
        for (user, bucket) in whole.into_iter().flatten() {
            let at = self.part_of(user);
            if let Some(part) = self.parts.get_mut(at) {
                part.insert(user, bucket);
            }
        }
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        self.room.give_back(self.len);
    }
}
