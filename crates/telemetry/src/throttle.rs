//! Repeated warnings: at most one line for each key in an interval, with the number of those left out.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_types::Mono;
use parking_lot::Mutex;

#[derive(Debug)]
struct Seen {
    last: Mono,
    suppressed: u64,
}

#[derive(Debug, Default)]
struct State<K> {
    keys: BTreeMap<K, Seen>,
    /// Stands for all keys that have no place of their own.
    rest: Option<Seen>,
}

/// Decides which of a repeated warning's occurrences is written. Keys are bounded in number; those over the bound share one allowance.
#[derive(Debug)]
pub struct Throttled<K> {
    interval: Duration,
    most: usize,
    state: Mutex<State<K>>,
}

impl<K: Ord> Throttled<K> {
    /// At most one line for each of `most` keys in each `interval`.
    #[must_use]
    pub const fn new(interval: Duration, most: usize) -> Self {
        Self { interval, most, state: Mutex::new(State { keys: BTreeMap::new(), rest: None }) }
    }

    /// Whether to write the line now: Some(the number of lines of this key left out since the last one), or None.
    pub fn pass(&self, now: Mono, key: K) -> Option<u64> {
        let mut state = self.state.lock();
        if let Some(seen) = state.keys.get_mut(&key) {
            return seen.pass(now, self.interval);
        }
        if state.keys.len() >= self.most {
            // A key whose interval is over is as good as new, but for a count that nobody may ever ask for.
            state.keys.retain(|_, seen| now.since(seen.last) < self.interval);
        }
        if state.keys.len() < self.most {
            state.keys.insert(key, Seen { last: now, suppressed: 0 });
            return Some(0);
        }
        match &mut state.rest {
            Some(rest) => rest.pass(now, self.interval),
            empty => {
                *empty = Some(Seen { last: now, suppressed: 0 });
                Some(0)
            }
        }
    }
}

impl Seen {
    fn pass(&mut self, now: Mono, interval: Duration) -> Option<u64> {
        if now.since(self.last) < interval {
            self.suppressed = self.suppressed.saturating_add(1);
            return None;
        }
        self.last = now;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::ZERO.after(Duration::from_secs(seconds))
    }

    #[test]
    fn one_line_in_an_interval_and_the_next_tells_the_rest() {
        let throttled = Throttled::new(Duration::from_secs(10), 4);
        assert_eq!([0, 1, 9].map(|s| throttled.pass(at(s), "a")), [Some(0), None, None]);
        assert_eq!(throttled.pass(at(5), "b"), Some(0), "keys do not share an interval");
        assert_eq!([10, 11, 20].map(|s| throttled.pass(at(s), "a")), [Some(2), None, Some(1)]);
    }

    #[test]
    fn keys_over_the_bound_share_one_allowance() {
        let throttled = Throttled::new(Duration::from_secs(10), 2);
        let first = [0, 1, 2, 3, 4].map(|key| throttled.pass(at(0), key));
        assert_eq!(first, [Some(0), Some(0), Some(0), None, None]);
        // The two first keys are over their interval, so that their places are free again.
        assert_eq!(throttled.pass(at(10), 9), Some(0));
        assert_eq!(throttled.state.lock().keys.len(), 1);
    }
}
