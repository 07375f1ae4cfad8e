//! How many requests may be sent a second time, so that retries cannot multiply an overload.
//!
//! A share of the requests of the last ten seconds, and three a second at least, so that a quiet pool can retry at all. Counted in halves of five
//! seconds; a window is the present half and the whole one before it.
//!
//! All workers count into the same words, and none waits for another. The retries of a window are one word, so that they never exceed what the
//! requests counted so far allow, whatever happens at the same time. A request that is counted while a half ends may count in the next one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use holdfast_types::Mono;

const HALF: Duration = Duration::from_secs(5);
const FLOOR: u64 = 3 * 10;

/// The number of a half, in as many bits as fit beside its counts: enough for two and a half years until one comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Half(u64);

impl Half {
    const BITS: u32 = 24;
    /// About ten minutes.
    const LATE: u64 = 128;

    const fn wrapped(number: u64) -> Self {
        Self(number & ((1 << Self::BITS) - 1))
    }

    fn at(now: Mono) -> Self {
        Self::wrapped(now.since(Mono::ZERO).as_secs() / HALF.as_secs())
    }

    const fn before(self) -> Self {
        Self::wrapped(self.0.wrapping_sub(1))
    }

    /// How many halves it comes after another; None if it comes shortly before: a request counts by the time at which it began.
    fn after(self, other: Self) -> Option<u64> {
        let distance = Self::wrapped(self.0.wrapping_sub(other.0)).0;
        (distance < (1 << Self::BITS) - Self::LATE).then_some(distance)
    }
}

/// Requests of a half: its number in the upper bits, the count in the lower 40.
#[derive(Debug, Default)]
struct Requests(AtomicU64);

impl Requests {
    const COUNT: u32 = 40;

    fn add(&self, half: Half) {
        let mut word = self.0.load(Relaxed);
        // The place of a half that is over is taken by whoever comes first. One that comes late counts in the half that is there.
        while half.after(Half(word >> Self::COUNT)).is_some_and(|distance| distance > 0) {
            match self.0.compare_exchange_weak(word, half.0 << Self::COUNT | 1, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
        self.0.fetch_add(1, Relaxed);
    }

    fn of(&self, half: Half) -> u64 {
        let word = self.0.load(Relaxed);
        if word >> Self::COUNT == half.0 { word & ((1 << Self::COUNT) - 1) } else { 0 }
    }
}

/// Retries of the half of this number and of the one before: 24, 20 and 20 bits.
#[derive(Clone, Copy)]
struct Retries {
    half: Half,
    before: u64,
    now: u64,
}

impl Retries {
    /// The most that one half has: no more are allowed then, whatever the share.
    const MOST: u64 = (1 << 20) - 1;

    const fn unpack(word: u64) -> Self {
        Self { half: Half(word >> 40), before: (word >> 20) & Self::MOST, now: word & Self::MOST }
    }

    const fn pack(self) -> u64 {
        self.half.0 << 40 | self.before << 20 | self.now
    }

    /// The same in a later half.
    fn turned(self, half: Half) -> Self {
        match half.after(self.half) {
            // One that comes late counts in the half that is there.
            None | Some(0) => self,
            Some(1) => Self { half, before: self.now, now: 0 },
            Some(_) => Self { half, before: 0, now: 0 },
        }
    }
}

/// The budget of one pool.
#[derive(Debug)]
pub struct RetryBudget {
    percent: u64,
    /// Even halves count in the first, odd ones in the second.
    requests: [Requests; 2],
    retries: AtomicU64,
}

impl RetryBudget {
    /// `percent` of the requests may be retries.
    #[must_use]
    pub fn new(percent: u32) -> Self {
        Self { percent: u64::from(percent), requests: Default::default(), retries: AtomicU64::new(0) }
    }

    /// Counts a request.
    pub fn request(&self, now: Mono) {
        let half = Half::at(now);
        self.requests_in(half).add(half);
    }

    /// Takes a retry out of the budget. False: there is none left.
    #[must_use]
    pub fn retry(&self, now: Mono) -> bool {
        let mut word = self.retries.load(Relaxed);
        loop {
            let retries = Retries::unpack(word).turned(Half::at(now));
            if retries.now == Retries::MOST || retries.before + retries.now >= self.allowed(retries.half) {
                return false;
            }
            let taken = Retries { now: retries.now + 1, ..retries };
            match self.retries.compare_exchange_weak(word, taken.pack(), Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    /// How many retries the requests of this half and the one before allow.
    fn allowed(&self, half: Half) -> u64 {
        let count = |half| self.requests_in(half).of(half);
        let share = (count(half) + count(half.before())) * self.percent / 100;
        share.max(if self.percent == 0 { 0 } else { FLOOR })
    }

    const fn requests_in(&self, half: Half) -> &Requests {
        let [even, odd] = &self.requests;
        if half.0.is_multiple_of(2) { even } else { odd }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn at(seconds: u64) -> Mono {
        Mono::ZERO.after(Duration::from_secs(100 + seconds))
    }

    fn granted(budget: &RetryBudget, now: Mono) -> usize {
        (0..10_000).take_while(|_| budget.retry(now)).count()
    }

    #[test]
    fn a_share_of_the_requests_and_a_floor() {
        let budget = RetryBudget::new(20);
        assert_eq!(granted(&budget, at(0)), 30, "a quiet pool may retry");
        for _ in 0..1_000 {
            budget.request(at(1));
        }
        assert_eq!(granted(&budget, at(1)), 200 - 30);
        assert_eq!(granted(&budget, at(6)), 0, "the older half still counts");
        assert_eq!(granted(&budget, at(30)), 30, "what is past is past");
    }

    #[test]
    fn none_means_none() {
        assert!(!RetryBudget::new(0).retry(at(0)));
    }

    #[test]
    fn two_halves_count_and_what_is_older_does_not() {
        let budget = RetryBudget::new(10);
        for second in 0..40 {
            (0..100).for_each(|_| budget.request(at(second)));
        }
        // The half from 35 on and the one before it.
        assert_eq!(granted(&budget, at(39)), 100);
        // The half from 40 on has no request; the one before has 500 requests and 100 retries.
        assert_eq!(granted(&budget, at(40)), 0);
        // Of that, nothing is left two halves on.
        assert_eq!(granted(&budget, at(45)), 30);
    }

    #[test]
    fn whoever_comes_late_counts_in_the_half_that_is_there() {
        let budget = RetryBudget::new(100);
        (0..100).for_each(|_| budget.request(at(10)));
        assert!(budget.retry(at(10)));
        budget.request(at(0));
        assert_eq!(granted(&budget, at(9)), 100, "101 requests, one of which has been retried");
        assert!(!budget.retry(at(10)), "nothing was forgotten");
    }

    #[test]
    fn the_number_of_a_half_may_come_again() {
        let last = Half::wrapped(u64::MAX);
        assert_eq!(Half::wrapped(0).after(last), Some(1));
        assert_eq!(last.after(Half::wrapped(0)), None);
        assert_eq!(Half::wrapped(0).before(), last);
        let budget = RetryBudget::new(50);
        // Halves before the number comes again.
        let at = |halves: u32| Mono::ZERO.after(HALF * ((1 << Half::BITS) - halves));
        for halves in [501, 500] {
            (0..1_000).for_each(|_| budget.request(at(halves)));
        }
        assert_eq!(granted(&budget, at(500)), 1_000, "a first use after years");
        (0..1_000).for_each(|_| budget.request(at(1)));
        assert_eq!(granted(&budget, at(0)), 500);
        assert_eq!(granted(&budget, at(0).after(HALF * 2)), 30);
    }

    #[test]
    fn workers_at_once_never_take_more_than_there_is() {
        for round in 0..50 {
            let budget = RetryBudget::new(20);
            // Half of the threads are already in the next half, which is in the same window.
            let take = |thread: u64| {
                let mut taken = 0;
                for n in 0..500 {
                    let now = at(round * 10 + (thread + n) % 2 * 5);
                    budget.request(now);
                    taken += u64::from(budget.retry(now));
                }
                taken
            };
            let taken: u64 = thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || take(thread))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            let all = taken + granted(&budget, at(round * 10 + 5)) as u64;
            assert_eq!(all, 4 * 500 / 5, "every request was counted, and a fifth of them could be retried");
        }
    }
}
