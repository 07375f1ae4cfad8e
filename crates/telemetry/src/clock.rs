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
    fn the_wall_clock_is_past_2020() {
        assert!(Clock::wall_millis() > 1_577_836_800_000);
    }
}
