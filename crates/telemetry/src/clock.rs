//! The only clock reader: the crates that decide take time as an argument, the crates that do IO ask here.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_types::Mono;
use tokio::time::Instant;

/// The process's clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock;

/// The instant that [`Mono`] counts from: that of the first reading. Tokio's instant, so that a test that pauses the runtime's clock
/// pauses this one too; outside of such a test it is the operating system's monotonic clock.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    // One nanosecond earlier, so that no reading is `Mono::ZERO`, which callers may use for "never".
    *ORIGIN.get_or_init(|| Instant::now().checked_sub(Duration::from_nanos(1)).unwrap_or_else(Instant::now))
}

impl Clock {
    /// Monotonic time since the process's origin.
    #[must_use]
    pub fn now() -> Mono {
        let origin = origin();
        Mono::ZERO.after(Instant::now().saturating_duration_since(origin))
    }

    /// The instant of a reading, for timers that take one. A reading too far ahead for the platform is held at 30 years.
    #[must_use]
    pub fn instant(at: Mono) -> Instant {
        const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);
        let since = at.since(Mono::ZERO);
        origin() + since.min(FAR)
    }

    /// Milliseconds since 1970 (UTC). Zero for a clock set before 1970.
    #[must_use]
    pub fn wall_millis() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Both clocks at one moment. Tells the wall time of other monotonic readings, so that one reading of the wall clock serves many.
#[derive(Clone, Copy, Debug)]
pub struct Wall {
    at: Mono,
    millis: u64,
}

impl Wall {
    /// Now.
    #[must_use]
    pub fn read() -> Self {
        Self::of(Clock::now(), Clock::wall_millis())
    }

    pub(crate) const fn of(at: Mono, millis: u64) -> Self {
        Self { at, millis }
    }

    /// Milliseconds since 1970 at a monotonic reading, before or after this one. Exact as long as nobody set the wall clock in between.
    #[must_use]
    pub fn millis_at(&self, at: Mono) -> u64 {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        self.millis.saturating_sub(millis(self.at.since(at))).saturating_add(millis(at.since(self.at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_never_go_back_and_map_to_instants() {
        let first = Clock::now();
        let second = Clock::now();
        assert!(Mono::ZERO < first && first <= second);
        assert_eq!(Clock::instant(second) - Clock::instant(first), second.since(first));
        // A deadline of "never" is an instant too.
        assert!(Clock::instant(Mono::MAX) > Clock::instant(second));
    }

    #[test]
    fn one_look_at_both_clocks_tells_the_time_before_and_after_it() {
        let (at, second) = (Mono::ZERO.after(Duration::from_secs(10)), Duration::from_secs(1));
        let wall = Wall::of(at, 5_000);
        assert_eq!(wall.millis_at(at), 5_000);
        assert_eq!(wall.millis_at(at.after(second)), 6_000);
        assert_eq!(wall.millis_at(Mono::ZERO.after(second * 9)), 4_000);
        assert_eq!(wall.millis_at(Mono::ZERO), 0, "before 1970 there is nothing");
        let (before, now) = (Clock::wall_millis(), Wall::read().millis_at(Clock::now()));
        assert!((before.saturating_sub(1_000)..before + 60_000).contains(&now), "{before} {now}");
    }

    #[test]
    fn the_wall_clock_is_past_2020() {
        assert!(Clock::wall_millis() > 1_577_836_800_000);
    }
}
