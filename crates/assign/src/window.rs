//! What an arm has shown, in windows of time: people, requests, failures, latency and outcomes, in bounded memory.
//!
//! Windows begin at multiples of their width, so those of several gateways can be put together: everything in them is joined by adding, in whatever order.
//! A value is not kept; of it remain count, mean and sum of squares ([`Sums`]) and, of a latency, one more in a slot of a [`Sketch`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::stats::Sums;

/// Latencies in slots whose width grows with them (as in HdrHistogram, with three bits of precision): a quantile is wrong by 6.25 % at most. At most 280 slots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch(BTreeMap<u16, u64>);

/// Below it each value has a slot of its own.
const EXACT: u64 = 16;
/// What is longer (19 hours, in microseconds) counts as this.
const LONGEST: u64 = (1 << 36) - 1;

impl Sketch {
    /// Takes a value.
    pub fn add(&mut self, value: u64) {
        *self.0.entry(slot(value)).or_default() += 1;
    }

    /// Takes what another one has.
    pub fn join(&mut self, other: &Self) {
        other.0.iter().for_each(|(slot, count)| *self.0.entry(*slot).or_default() += count);
    }

    /// The value below which this part of all are; the middle of its slot. None: there is none.
    #[must_use]
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let all: u64 = self.0.values().sum();
        // The rank of the nearest-rank definition; a part is no exact number anyhow.
        let rank = ((part * all as f64).ceil() as u64).clamp(1, all.max(1));
        let mut seen = 0;
        self.0.iter().find_map(|(slot, count)| {
            seen += count;
            (seen >= rank).then(|| middle(*slot))
        })
    }

    /// Slots and how many values each has.
    pub fn slots(&self) -> impl Iterator<Item = (u16, u64)> {
        self.0.iter().map(|(slot, count)| (*slot, *count))
    }

    /// From slots as [`Sketch::slots`] gives them. What is no slot is left out.
    #[must_use]
    pub fn of(slots: impl IntoIterator<Item = (u16, u64)>) -> Self {
        let most = slot(LONGEST);
        Self(slots.into_iter().filter(|(slot, count)| *slot <= most && *count > 0).collect())
    }
}

fn slot(value: u64) -> u16 {
    let value = value.min(LONGEST);
    if value < EXACT {
        return u16::try_from(value).unwrap_or(0);
    }
    let power = value.ilog2();
    let eighth = (value >> (power - 3)) & 7;
    u16::try_from(u64::from(power - 4) * 8 + eighth).unwrap_or(u16::MAX).saturating_add(16)
}

fn middle(slot: u16) -> f64 {
    let Some(above) = slot.checked_sub(16) else { return f64::from(slot) };
    let (power, eighth) = (above / 8 + 4, above % 8);
    let width = f64::from(power - 3).exp2();
    (f64::from(8 + eighth) + 0.5) * width
}

/// What a window holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Window {
    /// When it begins, in milliseconds since 1970.
    pub start: u64,
    /// People who were given the arm, by how: the key that gave it.
    pub people: BTreeMap<Box<str>, u64>,
    /// Requests that have ended.
    pub requests: u64,
    /// Those of them that failed.
    pub errors: u64,
    /// How long those took that did not, in microseconds.
    pub latency: Sums,
    /// The same in slots.
    pub sketch: Sketch,
    /// What clients have told, by metric.
    pub outcomes: BTreeMap<Box<str>, Sums>,
}

impl Window {
    /// Takes what another window has, of whatever time.
    pub fn join(&mut self, other: &Self) {
        for (how, count) in &other.people {
            *self.people.entry(how.clone()).or_default() += count;
        }
        self.requests += other.requests;
        self.errors += other.errors;
        self.latency = self.latency.with(&other.latency);
        self.sketch.join(&other.sketch);
        for (metric, sums) in &other.outcomes {
            let kept = self.outcomes.entry(metric.clone()).or_default();
            *kept = kept.with(sums);
        }
    }

    /// All people.
    #[must_use]
    pub fn everybody(&self) -> u64 {
        self.people.values().sum()
    }
}

/// The bounds of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How long a window is, in milliseconds. At least 1.
    pub width: u64,
    /// The most windows.
    pub keep: usize,
    /// The most metrics that clients tell, over all windows.
    pub metrics: usize,
}

/// The windows of one arm, by their beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series(VecDeque<Window>);

/// Why an outcome is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// It is no finite number.
    Value,
    /// There are as many metrics as there may be.
    Metrics,
    /// Its time is before all windows that are kept.
    Time,
}

impl Series {
    /// From windows in whatever order. Of two that begin together both count.
    #[must_use]
    pub fn of(windows: impl IntoIterator<Item = Window>) -> Self {
        let mut all: BTreeMap<u64, Window> = BTreeMap::new();
        for window in windows {
            all.entry(window.start)
                .or_insert_with(|| Window { start: window.start, ..Window::default() })
                .join(&window);
        }
        Self(all.into_values().collect())
    }

    /// The windows.
    pub fn windows(&self) -> impl DoubleEndedIterator<Item = &Window> {
        self.0.iter()
    }

    /// The window of a time. Old ones go when a new one begins. None: it would be older than all that are kept.
    pub fn at(&mut self, now: u64, bounds: Bounds) -> Option<&mut Window> {
        let width = bounds.width.max(1);
        let start = now - now % width;
        let place = self.0.partition_point(|window| window.start < start);
        if self.0.get(place).is_none_or(|window| window.start != start) {
            if place == 0 && self.0.len() >= bounds.keep.max(1) {
                return None;
            }
            self.0.insert(place, Window { start, ..Window::default() });
        }
        self.forget(self.0.back().map_or(start, |last| last.start), bounds);
        let place = self.0.partition_point(|window| window.start < start);
        self.0.get_mut(place).filter(|window| window.start == start)
    }

    /// Forgets what is older than the bounds allow at this time.
    pub fn forget(&mut self, now: u64, bounds: Bounds) {
        let reach = bounds.width.saturating_mul(bounds.keep as u64);
        while self.0.len() > bounds.keep.max(1)
            || self.0.front().is_some_and(|first| first.start.saturating_add(reach) <= now)
        {
            self.0.pop_front();
        }
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes what a client tells.
    ///
    /// # Errors
    /// [`NotTaken`]; nothing has changed then.
    pub fn outcome(&mut self, now: u64, metric: &str, value: f64, bounds: Bounds) -> Result<(), NotTaken> {
        if !value.is_finite() {
            return Err(NotTaken::Value);
        }
        // What is known in its own window, as most are, is not looked for in the others.
        let known = |windows: &VecDeque<Window>| {
            let names = windows.iter().flat_map(|window| window.outcomes.keys());
            let all: BTreeSet<&str> = names.map(|name| &**name).collect();
            all.contains(metric) || all.len() < bounds.metrics
        };
        let newest = self.0.back().is_some_and(|window| window.outcomes.contains_key(metric));
        if !newest && !known(&self.0) {
            return Err(NotTaken::Metrics);
        }
        let window = self.at(now, bounds).ok_or(NotTaken::Time)?;
        window.outcomes.entry(metric.into()).or_default().add(value);
        Ok(())
    }
}
