//! Billing-grade quotas: exact decrements of one shared number, and metering that never holds up a request.

use std::collections::BTreeMap;

/// Who decrements. A new process is a new one, for its numbers begin anew.
pub type Spender = u64;

/// What became of a decrement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Taken; so much is left.
    Yes {
        /// What is left.
        left: u64,
    },
    /// Not taken; so much is left.
    No {
        /// What is left.
        left: u64,
    },
    /// A number older than the last: the answer to it is not known any more, and nothing was done.
    Stale,
    /// More spenders than are told apart; nothing was done.
    Crowded,
}

/// A quota that is exact: no lease, no estimate. Each decrement has a number that grows by spender, and one that comes twice, since its answer was lost, is
/// done once and answered alike.
#[derive(Clone, Debug)]
pub struct Quota {
    left: u64,
    most_spenders: usize,
    last: BTreeMap<Spender, (u64, Taken)>,
}

impl Quota {
    /// So much is left. At most `most_spenders` are told apart.
    #[must_use]
    pub const fn new(left: u64, most_spenders: usize) -> Self {
        Self { left, most_spenders, last: BTreeMap::new() }
    }

    /// Takes the cost or nothing.
    pub fn take(&mut self, spender: Spender, number: u64, cost: u64) -> Taken {
        match self.last.get(&spender) {
            Some(&(last, answer)) if number == last => return answer,
            Some(&(last, _)) if number < last => return Taken::Stale,
            None if self.last.len() >= self.most_spenders => return Taken::Crowded,
            _ => {}
        }
        let answer = match self.left.checked_sub(cost) {
            Some(left) => {
                self.left = left;
                Taken::Yes { left }
            }
            None => Taken::No { left: self.left },
        };
        self.last.insert(spender, (number, answer));
        answer
    }

    /// Adds to it: a new period, a purchase. What was used stays used.
    pub fn add(&mut self, more: u64) {
        self.left = self.left.saturating_add(more);
    }

    /// A spender has ended; its numbers are forgotten.
    pub fn forget(&mut self, spender: Spender) {
        self.last.remove(&spender);
    }

    /// What is left.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.left
    }
}

/// Usage on its way to who bills it. Adding never waits and never fails; memory is bounded, and what finds no room for a row of its own is counted in one
/// common row, so that the sum is always right.
#[derive(Clone, Debug)]
pub struct Meter<K> {
    most: usize,
    open: BTreeMap<K, u64>,
    others: u64,
    sent: Option<Batch<K>>,
    next: u64,
}

/// What was used since the last batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<K> {
    /// The batch's number: one that arrives twice is counted once.
    pub number: u64,
    /// Usage by key.
    pub rows: Vec<(K, u64)>,
    /// Usage of keys that there was no room for.
    pub others: u64,
}

impl<K: Ord + Clone> Meter<K> {
    /// At most `most` keys between two batches.
    #[must_use]
    pub const fn new(most: usize) -> Self {
        Self { most, open: BTreeMap::new(), others: 0, sent: None, next: 1 }
    }

    /// Adds usage.
    pub fn add(&mut self, key: &K, units: u64) {
        if let Some(row) = self.open.get_mut(key) {
            *row = row.saturating_add(units);
        } else if self.open.len() < self.most {
            self.open.insert(key.clone(), units);
        } else {
            self.others = self.others.saturating_add(units);
        }
    }

    /// The batch to send: the last one again, unchanged, until it is acknowledged; then what has come together since. None: there is nothing.
    pub fn batch(&mut self) -> Option<&Batch<K>> {
        if self.sent.is_none() && (!self.open.is_empty() || self.others > 0) {
            let rows = std::mem::take(&mut self.open).into_iter().collect();
            self.sent = Some(Batch { number: self.next, rows, others: std::mem::take(&mut self.others) });
            self.next += 1;
        }
        self.sent.as_ref()
    }

    /// The batch of this number has arrived.
    pub fn arrived(&mut self, number: u64) {
        self.sent.take_if(|batch| batch.number == number);
    }
}
