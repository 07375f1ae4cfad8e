//! A sliding window for promises of the form "no more than N in any 60 s". It never counts too little.
//!
//! The window is cut into `K - 1` parts. The part that is only partly inside counts whole, so up to one part's length too much is counted, and never less
//! than what was admitted in the window.

use std::time::Duration;

use holdfast_types::Mono;

/// The counts of a window in `K` parts (at least 2), the newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window<const K: usize> {
    parts: [u64; K],
    /// The number of the newest part since the clock's origin.
    newest: u64,
}

impl<const K: usize> Default for Window<K> {
    fn default() -> Self {
        Self { parts: [0; K], newest: 0 }
    }
}

impl<const K: usize> Window<K> {
    /// Counts the cost if no more than `most` are then counted for the window; says whether.
    pub fn take(&mut self, now: Mono, window: Duration, most: u64, cost: u64) -> bool {
        self.turn(now, window);
        let fits = self.sum().checked_add(cost).is_some_and(|sum| sum <= most);
        if fits && let Some(part) = self.parts.first_mut() {
            *part += cost;
        }
        fits
    }

    /// What is counted for the window that ends now.
    pub fn count(&mut self, now: Mono, window: Duration) -> u64 {
        self.turn(now, window);
        self.sum()
    }

    fn sum(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(*part))
    }

    fn turn(&mut self, now: Mono, window: Duration) {
        let window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let part = window.div_ceil(u64::try_from(K).unwrap_or(u64::MAX).saturating_sub(1).max(1)).max(1);
        let number = now.0 / part;
        if number < self.newest {
            // The clock was set back. By less than the window: nothing ages until it has caught up. By more: all of it ages anew from here, so that
            // nobody is shut out for longer than a window, and nothing is forgotten.
            if self.newest - number >= u64::try_from(K).unwrap_or(u64::MAX) {
                let all = self.sum();
                self.parts = [0; K];
                self.parts[0] = all;
                self.newest = number;
            }
            return;
        }
        let steps = usize::try_from(number - self.newest).unwrap_or(K).min(K);
        self.parts.rotate_right(steps);
        self.parts[..steps].fill(0);
        self.newest = number;
    }
}
