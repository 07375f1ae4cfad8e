//! One read or one write over N replicas, as pure state: whom it has heard, and whether that is enough.
//!
//! A write first reads, from as many as a read needs, which version is the highest, and writes the next one; so of two acknowledged writes the later
//! one is the higher (H. Attiya, A. Bar-Noy, D. Dolev, "Sharing memory robustly in message-passing systems", 1995). A read takes the highest version that
//! it hears of, and says who has an older one: those are repaired.

use std::collections::{BTreeMap, BTreeSet};

use crate::shape::Quorum;

/// A version: a number that grows, and who wrote it, so that no two are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// One more than the highest that the writer has heard of.
    pub number: u64,
    /// The writer.
    pub writer: u32,
}

impl Stamp {
    /// The version that a writer gives after this one.
    #[must_use]
    pub const fn next(self, writer: u32) -> Self {
        Self { number: self.number.saturating_add(1), writer }
    }
}

/// How far an operation is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress<T> {
    /// It waits for more answers.
    Waits,
    /// It is done: this is what came of it. Said once.
    Done(T),
    /// So many are lost that it can not be done. Said once.
    Lost,
}

/// Answers of replicas, until enough have come or too few are left.
#[derive(Clone, Debug)]
struct Count {
    of: u32,
    needed: u32,
    heard: BTreeSet<u32>,
    lost: BTreeSet<u32>,
    over: bool,
}

impl Count {
    fn new(of: u32, needed: u32) -> Self {
        Self { of, needed, heard: BTreeSet::new(), lost: BTreeSet::new(), over: false }
    }

    /// True: with this one there are enough.
    fn hears(&mut self, replica: u32) -> bool {
        let fresh = replica < self.of && !self.lost.contains(&replica) && self.heard.insert(replica);
        let enough = fresh && !self.over && self.heard.len() >= self.needed as usize;
        self.over |= enough;
        enough
    }

    /// True: without this one there are too few.
    fn loses(&mut self, replica: u32) -> bool {
        let fresh = replica < self.of && !self.heard.contains(&replica) && self.lost.insert(replica);
        let few = fresh && !self.over && self.of as usize - self.lost.len() < self.needed as usize;
        self.over |= few;
        few
    }
}

/// A read of one key.
#[derive(Clone, Debug)]
pub struct Read {
    count: Count,
    versions: BTreeMap<u32, Stamp>,
}

impl Read {
    /// Ask all replicas; the answers of R of them are enough.
    #[must_use]
    pub fn new(shape: Quorum) -> Self {
        Self { count: Count::new(shape.n(), shape.r()), versions: BTreeMap::new() }
    }

    /// A replica has answered with the version that it has.
    pub fn answered(&mut self, replica: u32, version: Stamp) -> Progress<Stamp> {
        self.versions.entry(replica).or_insert(version);
        match self.count.hears(replica) {
            true => Progress::Done(self.newest()),
            false => Progress::Waits,
        }
    }

    /// A replica will not answer.
    pub fn lost(&mut self, replica: u32) -> Progress<Stamp> {
        if self.count.loses(replica) { Progress::Lost } else { Progress::Waits }
    }

    /// The highest version that was heard of.
    #[must_use]
    pub fn newest(&self) -> Stamp {
        self.versions.values().max().copied().unwrap_or_default()
    }

    /// Those that have answered with an older one: they are to be given the newest.
    pub fn stale(&self) -> impl Iterator<Item = u32> {
        let newest = self.newest();
        self.versions.iter().filter(move |(_, version)| **version < newest).map(|(replica, _)| *replica)
    }
}

/// The second half of a write: the version is known, W replicas have to take it.
#[derive(Clone, Debug)]
pub struct Write {
    count: Count,
    /// What is written.
    pub version: Stamp,
}

impl Write {
    /// Give it to all replicas; W that have taken it are enough.
    #[must_use]
    pub fn new(shape: Quorum, version: Stamp) -> Self {
        Self { count: Count::new(shape.n(), shape.w()), version }
    }

    /// A replica has taken it.
    pub fn taken(&mut self, replica: u32) -> Progress<Stamp> {
        if self.count.hears(replica) { Progress::Done(self.version) } else { Progress::Waits }
    }

    /// A replica will not take it.
    pub fn lost(&mut self, replica: u32) -> Progress<Stamp> {
        if self.count.loses(replica) { Progress::Lost } else { Progress::Waits }
    }

    /// Those that have not taken it, as far as is known: a hint for each is kept and replayed.
    pub fn missed(&self) -> impl Iterator<Item = u32> {
        (0..self.count.of).filter(|replica| !self.count.heard.contains(replica))
    }
}

/// QUORUM-1 as a predicate: a read that began after a write was acknowledged is answered with that write, or a later one.
#[derive(Clone, Debug, Default)]
pub struct Witness {
    acknowledged: BTreeMap<u64, Stamp>,
}

impl Witness {
    /// A write of a key is acknowledged.
    pub fn written(&mut self, key: u64, version: Stamp) {
        let known = self.acknowledged.entry(key).or_default();
        *known = version.max(*known);
    }

    /// The least that a read of the key that begins now may be answered with.
    #[must_use]
    pub fn floor(&self, key: u64) -> Stamp {
        self.acknowledged.get(&key).copied().unwrap_or_default()
    }

    /// A read that began at this floor is answered.
    ///
    /// # Errors
    /// It misses an acknowledged write: the one that it should have met.
    pub fn read(floor: Stamp, version: Stamp) -> Result<(), Stamp> {
        if version >= floor { Ok(()) } else { Err(floor) }
    }
}
