//! Caps that are no rates: how many at once, and how many attempts from one address.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_types::Mono;

use crate::bucket::Bucket;
use crate::limit::Limit;

/// How many run at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Running {
    count: u32,
}

impl Running {
    /// Starts one if there is room under the cap (None: without one). A cap that was lowered ends nothing; it is reached as what runs ends.
    pub fn start(&mut self, cap: Option<u32>) -> bool {
        let free = cap.is_none_or(|cap| self.count < cap);
        if free {
            self.count = self.count.saturating_add(1);
        }
        free
    }

    /// One has ended.
    pub fn end(&mut self) {
        self.count = self.count.saturating_sub(1);
    }

    /// How many run.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count
    }
}

/// Connection attempts for each address, in bounded memory. An address is a number: of IPv6 the caller takes the network part, or one host has 2^64 of them.
#[derive(Clone, Debug)]
pub struct Attempts {
    limit: Limit,
    most: usize,
    by_address: BTreeMap<u128, Bucket>,
    /// For all addresses that there was no room for.
    others: Bucket,
    /// Before this time no room is looked for: a flood must not have the whole table read at each attempt.
    sweep: Mono,
}

const BETWEEN_SWEEPS: Duration = Duration::from_millis(100);

impl Attempts {
    /// At most `most` addresses are told apart.
    #[must_use]
    pub fn new(limit: Limit, most: usize, now: Mono) -> Self {
        Self { limit, most, by_address: BTreeMap::new(), others: Bucket::full(limit, now), sweep: now }
    }

    /// Goes over to another limit; what is used stays used.
    pub fn change(&mut self, limit: Limit, now: Mono) {
        if limit != self.limit {
            let buckets = self.by_address.values_mut().chain(std::iter::once(&mut self.others));
            buckets.for_each(|bucket| bucket.change(self.limit, limit, now));
            self.limit = limit;
        }
    }

    /// Counts an attempt; says whether it is within the limit. When the table is full of addresses that are not quiet, new ones share one bucket: a flood of
    /// addresses costs new addresses, and never frees one that is over its limit.
    pub fn attempt(&mut self, now: Mono, address: u128) -> bool {
        let limit = self.limit;
        if !self.by_address.contains_key(&address) && self.by_address.len() >= self.most {
            if now >= self.sweep {
                self.by_address.retain(|_, bucket| !bucket.is_full(limit, now));
                self.sweep = now.after(BETWEEN_SWEEPS);
            }
            if self.by_address.len() >= self.most {
                return self.others.take(limit, now, 1).is_ok();
            }
        }
        self.by_address.entry(address).or_insert_with(|| Bucket::full(limit, now)).take(limit, now, 1).is_ok()
    }

    /// How many addresses are told apart now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }
}
