//! How many requests may be sent a second time, so that retries cannot multiply an overload.
//!
//! A share of the requests of the last ten seconds, and three a second at least, so that a quiet pool can retry at all. Counted in two halves
//! of five seconds each, the older one whole: the share is never exceeded by more than what the older half's age lets in.

use std::time::Duration;

use parking_lot::Mutex;

use holdfast_types::Mono;

const HALF: Duration = Duration::from_secs(5);
const FLOOR: u64 = 3 * 10;

#[derive(Debug, Default)]
struct Window {
    since: Mono,
    requests: [u64; 2],
    retries: [u64; 2],
}

/// The budget of one pool.
#[derive(Debug)]
pub struct RetryBudget {
    percent: u64,
    window: Mutex<Window>,
}

impl RetryBudget {
    /// `percent` of the requests may be retries.
    #[must_use]
    pub fn new(percent: u32) -> Self {
        Self { percent: u64::from(percent), window: Mutex::default() }
    }

    /// Counts a request.
    pub fn request(&self, now: Mono) {
        let mut window = self.window.lock();
        window.turn(now);
        window.requests[1] += 1;
    }

    /// Takes a retry out of the budget. False: there is none left.
    #[must_use]
    pub fn retry(&self, now: Mono) -> bool {
        let mut window = self.window.lock();
        window.turn(now);
        let requests: u64 = window.requests.iter().sum();
        let retries: u64 = window.retries.iter().sum();
        let allowed = (requests * self.percent / 100).max(if self.percent == 0 { 0 } else { FLOOR });
        let ok = retries < allowed;
        window.retries[1] += u64::from(ok);
        ok
    }
}

impl Window {
    fn turn(&mut self, now: Mono) {
        let age = now.since(self.since);
        if age < HALF {
            return;
        }
        let older = if age < HALF * 2 { (self.requests[1], self.retries[1]) } else { (0, 0) };
        (self.requests, self.retries) = ([older.0, 0], [older.1, 0]);
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::ZERO.after(Duration::from_secs(100 + seconds))
    }

    #[test]
    fn a_share_of_the_requests_and_a_floor() {
        let budget = RetryBudget::new(20);
        let granted = |now| (0..10_000).take_while(|_| budget.retry(now)).count();
        assert_eq!(granted(at(0)), 30, "a quiet pool may retry");
        for _ in 0..1_000 {
            budget.request(at(1));
        }
        assert_eq!(granted(at(1)), 200 - 30);
        assert_eq!(granted(at(6)), 0, "the older half still counts");
        assert_eq!(granted(at(30)), 30, "what is past is past");
    }

    #[test]
    fn none_means_none() {
        assert!(!RetryBudget::new(0).retry(at(0)));
    }
}
