//! Which keys carry more than their share, in a bounded room, and what to do about one.
//!
//! [`Sketch`] is Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005): as many counters
//! as it has room. A key without one takes the least counter, and what that had counted is its error. So a key's true count lies between `count - error`
//! and `count`, and every key with more than `total / room` has a counter. [`Watch`] looks at it window after window and says once that a key is hot, and
//! once that it is not any more. All of it is in integers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_types::Mono;

/// How much a key has, at most and at least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Not more than this.
    pub most: u64,
    /// By how much that may be too much.
    pub error: u64,
}

impl Count {
    /// Not less than this.
    #[must_use]
    pub const fn least(self) -> u64 {
        self.most.saturating_sub(self.error)
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Sketch {
    room: usize,
    counters: BTreeMap<u64, Count>,
    /// By count, so that the least is found without a search.
    order: BTreeSet<(u64, u64)>,
    total: u64,
}

impl Sketch {
    /// With room for so many keys, one at least.
    #[must_use]
    pub fn new(room: usize) -> Self {
        Self { room: room.max(1), counters: BTreeMap::new(), order: BTreeSet::new(), total: 0 }
    }

    /// So much more of a key (a hash of it).
    pub fn add(&mut self, key: u64, amount: u64) {
        self.total = self.total.saturating_add(amount);
        let known = match self.counters.get(&key) {
            Some(known) => {
                self.order.remove(&(known.most, key));
                *known
            }
            None if self.counters.len() < self.room => Count::default(),
            None => {
                let Some((most, least)) = self.order.pop_first() else { return };
                self.counters.remove(&least);
                Count { most, error: most }
            }
        };
        let count = Count { most: known.most.saturating_add(amount), ..known };
        self.counters.insert(key, count);
        self.order.insert((count.most, key));
    }

    /// What a key has. A key without a counter has what the least counter has, at most.
    #[must_use]
    pub fn count(&self, key: u64) -> Count {
        let least = || self.order.first().filter(|_| self.counters.len() >= self.room).map_or(0, |(most, _)| *most);
        self.counters.get(&key).copied().unwrap_or_else(|| Count { most: least(), error: least() })
    }

    /// What all keys have.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Keys with a counter, the largest first.
    pub fn top(&self) -> impl Iterator<Item = (u64, Count)> {
        self.order.iter().rev().map(|(_, key)| (*key, self.count(*key)))
    }

    /// What was before counts half from now on: a key that has gone cold is forgotten in a few windows.
    pub fn halve(&mut self) {
        self.total /= 2;
        self.order.clear();
        self.counters.retain(|_, count| {
            *count = Count { most: count.most / 2, error: count.error.div_ceil(2) };
            count.most > 0
        });
        self.order.extend(self.counters.iter().map(|(key, count)| (count.most, *key)));
    }
}

/// When a key is hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The room of the sketch. More than `1,000 / cold_permille`, or no key is ever surely cold.
    pub room: usize,
    /// How often it is looked.
    pub window: Duration,
    /// A key is hot that surely has so many thousandths of the traffic.
    pub hot_permille: u64,
    /// A hot key is cold again that has less than so many thousandths, and surely so.
    pub cold_permille: u64,
    /// Of so many windows in a row.
    pub windows: u32,
    /// A window with less than this says nothing.
    pub least: u64,
}

/// What a look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A key is hot since now, with at least so many thousandths of the traffic.
    Hot {
        /// Its hash.
        key: u64,
        /// Its part.
        permille: u64,
    },
    /// It is hot no more.
    Cold {
        /// Its hash.
        key: u64,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Watch {
    rules: Rules,
    sketch: Sketch,
    next: Option<Mono>,
    /// In how many windows in a row each key was on the other side of its line.
    rows: BTreeMap<u64, u32>,
    hot: BTreeSet<u64>,
}

impl Watch {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let sketch = Sketch::new(rules.room);
        Self { rules, sketch, next: None, rows: BTreeMap::new(), hot: BTreeSet::new() }
    }

    /// Whether a key is hot.
    #[must_use]
    pub fn is_hot(&self, key: u64) -> bool {
        self.hot.contains(&key)
    }

    /// So much more of a key; and what a look found, if one was due.
    pub fn add(&mut self, now: Mono, key: u64, amount: u64) -> Vec<Notice> {
        let due = *self.next.get_or_insert(now.after(self.rules.window)) <= now;
        let found = if due { self.look(now) } else { Vec::new() };
        self.sketch.add(key, amount);
        found
    }

    fn look(&mut self, now: Mono) -> Vec<Notice> {
        self.next = Some(now.after(self.rules.window));
        let total = self.sketch.total();
        let mut found = Vec::new();
        if total >= self.rules.least.max(1) {
            let permille = |part: u64| u64::try_from(u128::from(part) * 1_000 / u128::from(total)).unwrap_or(u64::MAX);
            let seen: Vec<(u64, Count)> = self.sketch.top().collect();
            let turns = |(key, count): &(u64, Count)| match self.hot.contains(key) {
                true => false,
                false => permille(count.least()) >= self.rules.hot_permille,
            };
            let mut turning: Vec<(u64, u64)> =
                seen.iter().filter(|one| turns(one)).map(|(key, count)| (*key, permille(count.least()))).collect();
            let cold = self.hot.iter().filter(|key| permille(self.sketch.count(**key).most) < self.rules.cold_permille);
            turning.extend(cold.map(|key| (*key, 0)));
            self.rows.retain(|key, _| turning.iter().any(|(turns, _)| turns == key));
            for (key, permille) in turning {
                let row = self.rows.entry(key).or_default();
                *row += 1;
                if *row >= self.rules.windows.max(1) {
                    self.rows.remove(&key);
                    found.push(self.turn(key, permille));
                }
            }
        }
        self.sketch.halve();
        found
    }

    fn turn(&mut self, key: u64, permille: u64) -> Notice {
        if self.hot.remove(&key) {
            return Notice::Cold { key };
        }
        self.hot.insert(key);
        Notice::Hot { key, permille }
    }
}

/// Whether the events of a key need an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any of them may come before any other.
    None,
    /// They are taken in the order in which they came.
    Kept,
}

/// What to do about a hot key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Spread over so many sub-keys.
    Salt(u64),
    /// A partition of its own that takes so many events in a second. An ordered key is never salted.
    Dedicate(u64),
}

/// For a key with so many events in a second, where a partition takes `capacity` of them. Sub-keys are so many that each has a tenth of a partition's
/// capacity at most, since some of them meet; a partition of its own has room for half as many events again.
#[must_use]
pub fn remedy(order: Order, rate: u64, capacity: u64) -> Remedy {
    match order {
        Order::None => Remedy::Salt(rate.saturating_mul(10).div_ceil(capacity.max(1)).max(2)),
        Order::Kept => Remedy::Dedicate(rate.saturating_add(rate / 2).max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULES: Rules = Rules {
        room: 32,
        window: Duration::from_secs(1),
        hot_permille: 200,
        cold_permille: 100,
        windows: 2,
        least: 100,
    };

    proptest! {
        #[test]
        fn a_count_is_between_its_bounds_and_who_has_much_has_a_counter(
            seen in prop::collection::vec((0u64..40, 1u64..5), 1..400), room in 1usize..12,
        ) {
            let (mut sketch, mut truth) = (Sketch::new(room), BTreeMap::<u64, u64>::new());
            for (key, amount) in seen {
                sketch.add(key, amount);
                *truth.entry(key).or_default() += amount;
            }
            prop_assert_eq!(sketch.total(), truth.values().sum::<u64>());
            prop_assert!(sketch.top().count() <= room);
            for (key, amount) in &truth {
                let count = sketch.count(*key);
                prop_assert!(count.least() <= *amount && *amount <= count.most, "{} {:?}", amount, count);
                if *amount > sketch.total() / room as u64 {
                    prop_assert!(sketch.top().any(|(known, _)| known == *key));
                }
            }
        }
    }

    /// One second with so many of a hot key and 1,000 of others.
    fn second(watch: &mut Watch, now: &mut Mono, hot: u64) -> Vec<Notice> {
        let mut found = Vec::new();
        for n in 0..1_000u64 {
            *now = now.after(Duration::from_millis(1));
            found.extend(watch.add(*now, 1_000 + n % 50, 1));
            if hot > 0 && n % (1_000 / hot).max(1) == 0 {
                found.extend(watch.add(*now, 7, (hot / 1_000).max(1)));
            }
        }
        found
    }

    #[test]
    fn a_hot_key_is_told_of_once_and_once_when_it_is_over() {
        let (mut watch, mut now) = (Watch::new(RULES), Mono(0));
        for _ in 0..5 {
            assert_eq!(second(&mut watch, &mut now, 20), [], "two in a hundred");
        }
        let told: Vec<Notice> = (0..6).flat_map(|_| second(&mut watch, &mut now, 1_000)).collect();
        assert!(matches!(told[..], [Notice::Hot { key: 7, permille: 200.. }]), "{told:?}");
        assert!(watch.is_hot(7));
        let told: Vec<Notice> = (0..12).flat_map(|_| second(&mut watch, &mut now, 0)).collect();
        assert_eq!((told, watch.is_hot(7)), (vec![Notice::Cold { key: 7 }], false));
    }

    #[test]
    fn one_burst_is_no_hot_key() {
        let (mut watch, mut now) = (Watch::new(RULES), Mono(0));
        second(&mut watch, &mut now, 0);
        assert_eq!(watch.add(now, 7, 5_000), []);
        // Half of it still counts in the window after: what is told of after more windows than that lasts was more than a burst.
        let rare = Rules { windows: 6, ..RULES };
        let mut slow = Watch::new(rare);
        slow.add(now, 7, 5_000);
        let told: Vec<Notice> = (0..12).flat_map(|_| second(&mut slow, &mut now, 0)).collect();
        assert_eq!(told, []);
    }

    #[test]
    fn an_ordered_key_is_never_salted() {
        assert_eq!(remedy(Order::None, 9_000, 1_000), Remedy::Salt(90));
        assert_eq!(remedy(Order::None, 0, 0), Remedy::Salt(2));
        assert_eq!(remedy(Order::Kept, 9_000, 1_000), Remedy::Dedicate(13_500));
    }
}
