//! The pause that a replica asked of one route, which is one tenant's way to one version: others may be asked for none.
//!
//! How long the replica asked for is told to clients, who may stay away for as long as they like. The gateway itself stays away for [`MOST`] at
//! most: what a server says about one request must not take it away for long.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use holdfast_telemetry::Clock;
use holdfast_types::Mono;

/// The longest time for which no request is sent because of one answer.
pub const MOST: Duration = Duration::from_secs(5);

/// One member of one route. Costs one atomic read while there is no pause.
#[derive(Debug, Default)]
pub struct Pause {
    /// Until when the replica asked to be left alone.
    asked: AtomicU64,
    /// Until when it is. 0: it is not.
    until: AtomicU64,
}

impl Pause {
    /// Takes note of what the replica asked for.
    pub fn begin(&self, now: Mono, wait: Duration) {
        self.asked.store(now.after(wait).0, Relaxed);
        self.until.store(now.after(wait.min(MOST)).0, Relaxed);
    }

    /// Whether the replica is left alone.
    pub fn is_on(&self) -> bool {
        let until = self.until.load(Relaxed);
        until != 0 && self.is_on_at(Clock::now(), until)
    }

    #[cold]
    fn is_on_at(&self, now: Mono, until: u64) -> bool {
        let on = now.0 < until;
        if !on {
            // The clock need not be read again for it. Another pause may have begun meanwhile.
            let _ = self.until.compare_exchange(until, 0, Relaxed, Relaxed);
        }
        on
    }

    /// How much of what the replica asked for is left, if it is left alone; else nothing.
    pub fn left(&self, now: Mono) -> Duration {
        let until = self.until.load(Relaxed);
        if now.0 < until { Mono(self.asked.load(Relaxed)).since(now) } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::ZERO.after(Duration::from_secs(seconds))
    }

    #[test]
    fn clients_are_told_all_of_it_and_the_replica_is_left_alone_for_a_part() {
        let pause = Pause::default();
        let is_on = |second| match pause.until.load(Relaxed) {
            0 => false,
            until => pause.is_on_at(at(second), until),
        };
        assert!(!is_on(1) && pause.left(at(1)).is_zero());
        pause.begin(at(100), Duration::from_secs(60));
        assert_eq!(pause.left(at(101)), Duration::from_secs(59));
        assert!(is_on(104) && !is_on(105) && !is_on(104), "it has been found over");
        assert!(pause.left(at(106)).is_zero());
        pause.begin(at(200), Duration::from_secs(2));
        assert_eq!(pause.left(at(201)), Duration::from_secs(1));
        assert!(is_on(201) && !is_on(202));
        pause.begin(at(300), Duration::ZERO);
        assert!(!is_on(300));
    }
}
