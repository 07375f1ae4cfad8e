//! A queue that is fair by weight: whoever waits gets at least its weight's part of what is served, and what others leave is lent.
//!
//! Start-time fair queueing (P. Goyal, H. M. Vin, H. Cheng, "Start-time fair queueing", 1996), in integers. Each item begins, in a time of its own, where
//! its key's last one ended, or now if the key was idle; it takes its cost divided by the weight. The item that begins first is next. The time goes on
//! with what is served, so who was idle has saved nothing, and who waits is never behind by more than the items that are served whole.
//!
//! FAIR-1 ([`Witness`]): of what is served in any interval in which a key waits, it gets its weight's part, less `part x (keys + 1) + 1` of the largest
//! items.

use std::collections::{BTreeMap, VecDeque};

/// A cost of one at the weight one, in the queue's time.
const ONE: u64 = 1 << 20;

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Items of one key.
    pub each: usize,
    /// Items of all.
    pub all: usize,
}

/// Why an item is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// As many wait of its key as may.
    Key,
    /// As many wait as may.
    All,
}

/// An item that waits: to be given back when whoever waits goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Where a key's first item begins, and its number: of two that begin at one time the older is next.
type Head = (u64, Ticket);

#[derive(Clone, Debug)]
struct Flow<T> {
    weight: u32,
    /// Where its first item begins, or the next one would.
    start: u64,
    items: VecDeque<(Ticket, u64, T)>,
}

/// The queue. Every operation costs the logarithm of the keys that wait. Only the first item of a key has a beginning, so that one that goes away costs
/// those behind it nothing.
#[derive(Clone, Debug)]
pub struct FairQueue<K, T> {
    bounds: Bounds,
    flows: BTreeMap<K, Flow<T>>,
    heads: BTreeMap<Head, K>,
    /// Where the item began that was served last.
    time: u64,
    put: u64,
    waiting: usize,
}

impl<K: Ord + Clone, T> FairQueue<K, T> {
    /// An empty queue.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self { bounds, flows: BTreeMap::new(), heads: BTreeMap::new(), time: 0, put: 0, waiting: 0 }
    }

    /// Items that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Items of a key that wait.
    #[must_use]
    pub fn waiting(&self, key: &K) -> usize {
        self.flows.get(key).map_or(0, |flow| flow.items.len())
    }

    /// Puts an item in. A weight of 0 counts as 1, a cost of 0 as 1: what costs nothing would never end.
    ///
    /// # Errors
    /// [`Full`]; the item comes back.
    pub fn push(&mut self, key: K, weight: u32, cost: u64, item: T) -> Result<Ticket, (Full, T)> {
        if self.waiting >= self.bounds.all {
            return Err((Full::All, item));
        }
        if self.waiting(&key) >= self.bounds.each {
            return Err((Full::Key, item));
        }
        self.put += 1;
        let (ticket, time) = (Ticket(self.put), self.time);
        let flow =
            self.flows.entry(key.clone()).or_insert_with(|| Flow { weight: 1, start: 0, items: VecDeque::new() });
        flow.weight = weight.max(1);
        if flow.items.is_empty() {
            flow.start = flow.start.max(time);
            self.heads.insert((flow.start, ticket), key);
        }
        flow.items.push_back((ticket, cost.max(1), item));
        self.waiting += 1;
        Ok(ticket)
    }

    /// Takes the next item out.
    pub fn pop(&mut self) -> Option<(K, T)> {
        self.pop_if(|_, _| true)
    }

    /// Takes the next item out of a key whose first item may be served now. Those that are passed over lose nothing: they come first when they can.
    pub fn pop_if(&mut self, mut may: impl FnMut(&K, &T) -> bool) -> Option<(K, T)> {
        let first = |key: &K| self.flows.get(key)?.items.front().map(|(_, _, item)| item);
        let key = self.heads.values().find(|key| first(key).is_some_and(|item| may(key, item)))?.clone();
        let flow = self.flows.get_mut(&key)?;
        let (ticket, cost, item) = flow.items.pop_front()?;
        self.heads.remove(&(flow.start, ticket));
        self.time = self.time.max(flow.start);
        flow.start = flow.start.saturating_add(cost.saturating_mul(ONE) / u64::from(flow.weight));
        self.goes_on(&key);
        Some((key, item))
    }

    /// Whoever waited has gone: the item comes back, and costs its key nothing.
    pub fn cancel(&mut self, key: &K, ticket: Ticket) -> Option<T> {
        let flow = self.flows.get_mut(key)?;
        let at = flow.items.binary_search_by_key(&ticket, |(ticket, ..)| *ticket).ok()?;
        let (_, _, item) = flow.items.remove(at)?;
        self.heads.remove(&(flow.start, ticket));
        self.goes_on(key);
        Some(item)
    }

    /// One item less: the key's next one is its first, or nothing of it waits.
    fn goes_on(&mut self, key: &K) {
        self.waiting -= 1;
        if let Some(flow) = self.flows.get(key)
            && let Some((next, ..)) = flow.items.front()
        {
            self.heads.insert((flow.start, *next), key.clone());
        }
        // Keys that neither wait nor have had more than their part; looked for when there are many, so that the map is bounded by what waits.
        if self.flows.len() > 64 + 2 * self.heads.len() {
            let time = self.time;
            self.flows.retain(|_, flow| !flow.items.is_empty() || flow.start > time);
        }
    }
}

/// FAIR-1 as a predicate, over all intervals in which one key waits.
#[derive(Clone, Debug)]
pub struct Witness {
    weight: u64,
    total: u64,
    /// The key's part of what was served, less what it got, in `total` parts of a cost; and the least that it was since the key waits.
    behind: i128,
    least: i128,
    bound: i128,
    worst: i128,
    waits: bool,
}

impl Witness {
    /// A witness of a key of this weight among keys whose weights sum to `total`, of which there are `keys`, with items of at most `largest`.
    #[must_use]
    pub fn new(weight: u32, total: u32, keys: u32, largest: u64) -> Self {
        let (weight, total) = (u64::from(weight), u64::from(total.max(1)));
        let parts = i128::from(weight) * (i128::from(keys) + 1) + i128::from(total);
        let bound = parts * i128::from(largest);
        Self { weight, total, behind: 0, least: 0, bound, worst: 0, waits: false }
    }

    /// An item was served, and whether the key waited until then.
    ///
    /// # Errors
    /// By how much of a cost, rounded up, the key is behind its part by more than the bound, in some interval that ends now.
    pub fn served(&mut self, its_own: bool, cost: u64, waits: bool) -> Result<(), u64> {
        if !waits {
            self.waits = false;
            return Ok(());
        }
        if !self.waits {
            (self.waits, self.behind, self.least) = (true, 0, 0);
        }
        self.behind += i128::from(self.weight) * i128::from(cost);
        if its_own {
            self.behind -= i128::from(self.total) * i128::from(cost);
        }
        self.least = self.least.min(self.behind);
        self.worst = self.worst.max(self.behind - self.least);
        let over = self.behind - self.least - self.bound;
        if over <= 0 {
            return Ok(());
        }
        Err(u64::try_from(over.unsigned_abs().div_ceil(u128::from(self.total))).unwrap_or(u64::MAX))
    }

    /// By how much of a cost the key was behind its part in the worst interval, rounded up.
    #[must_use]
    pub fn worst(&self) -> u64 {
        u64::try_from(self.worst.unsigned_abs().div_ceil(u128::from(self.total))).unwrap_or(u64::MAX)
    }
}
