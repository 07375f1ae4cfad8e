//! Histograms of durations with fixed bounds: an observation is two relaxed adds, and finding its bucket looks at two or three bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::metric::Metric;
use crate::registry::{Kind, Sink};

/// The most buckets, the last (unbounded) one included.
const MAX_BUCKETS: usize = 24;

/// The bounds of a histogram's buckets.
#[derive(Debug)]
pub struct Scale {
    /// Upper bounds in nanoseconds, inclusive; `u64::MAX` from `steps` on.
    bounds: [u64; MAX_BUCKETS],
    /// The same in seconds, as they are written.
    texts: [&'static str; MAX_BUCKETS],
    /// How many bounds there are.
    steps: usize,
    /// By the bit length of a value: the first bucket that a value of that length can fall into.
    first: [u8; 65],
}

impl Scale {
    /// A scale of ascending upper bounds: nanoseconds, and the same in seconds as text. At most 23; more are left out.
    #[must_use]
    pub const fn new<const STEPS: usize>(steps: [(u64, &'static str); STEPS]) -> Self {
        let count = if STEPS < MAX_BUCKETS { STEPS } else { MAX_BUCKETS - 1 };
        let mut bounds = [u64::MAX; MAX_BUCKETS];
        let mut texts = ["+Inf"; MAX_BUCKETS];
        let mut i = 0;
        while i < count {
            (bounds[i], texts[i]) = steps[i];
            i += 1;
        }
        let mut first = [0; 65];
        let (mut bits, mut bucket) = (1, 0);
        while bits <= 64 {
            while bounds[bucket] < 1 << (bits - 1) {
                bucket += 1;
            }
            first[bits] = bucket as u8;
            bits += 1;
        }
        Self { bounds, texts, steps: count, first }
    }

    /// The bucket of a value: the first whose bound is not below it.
    #[inline]
    fn bucket(&self, nanos: u64) -> usize {
        let bits = (u64::BITS - nanos.leading_zeros()) as usize;
        let start = self.first.get(bits).map_or(0, |f| usize::from(*f));
        let beyond = self.bounds.iter().skip(start).take_while(|bound| **bound < nanos).count();
        start + beyond
    }
}

/// Latencies: 20 us to 60 s in steps of 2 to 3.
pub static LATENCY: Scale = Scale::new([
    (20_000, "0.00002"),
    (50_000, "0.00005"),
    (100_000, "0.0001"),
    (200_000, "0.0002"),
    (500_000, "0.0005"),
    (1_000_000, "0.001"),
    (2_000_000, "0.002"),
    (5_000_000, "0.005"),
    (10_000_000, "0.01"),
    (20_000_000, "0.02"),
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (200_000_000, "0.2"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_000_000_000, "2"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
    (30_000_000_000, "30"),
    (60_000_000_000, "60"),
]);

/// Model loads: 50 ms to 10 minutes.
pub static LOAD: Scale = Scale::new([
    (50_000_000, "0.05"),
    (100_000_000, "0.1"),
    (200_000_000, "0.2"),
    (500_000_000, "0.5"),
    (1_000_000_000, "1"),
    (2_000_000_000, "2"),
    (5_000_000_000, "5"),
    (10_000_000_000, "10"),
    (20_000_000_000, "20"),
    (30_000_000_000, "30"),
    (60_000_000_000, "60"),
    (120_000_000_000, "120"),
    (300_000_000_000, "300"),
    (600_000_000_000, "600"),
]);

#[derive(Debug)]
struct Core {
    scale: &'static Scale,
    /// Nanoseconds. Wraps after 584 years of observed time in all, which a scraper takes for a restart.
    sum: AtomicU64,
    buckets: [AtomicU64; MAX_BUCKETS],
}

/// Counts durations by size.
#[derive(Clone, Debug)]
pub struct Histogram(Arc<Core>);

impl Histogram {
    /// An empty one.
    #[must_use]
    pub fn new(scale: &'static Scale) -> Self {
        Self(Arc::new(Core { scale, sum: AtomicU64::new(0), buckets: Default::default() }))
    }

    /// Counts one duration.
    #[inline]
    pub fn observe(&self, took: Duration) {
        self.observe_nanos(took.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(took.subsec_nanos())));
    }

    /// Counts one duration in nanoseconds.
    #[inline]
    pub fn observe_nanos(&self, nanos: u64) {
        if let Some(bucket) = self.0.buckets.get(self.0.scale.bucket(nanos)) {
            bucket.fetch_add(1, Relaxed);
        }
        self.0.sum.fetch_add(nanos, Relaxed);
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.buckets.iter().map(|b| b.load(Relaxed)).sum()
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.0.sum.load(Relaxed))
    }
}

impl Metric for Histogram {
    type Setup = &'static Scale;
    const KIND: Kind = Kind::Histogram;

    fn make(setup: Self::Setup) -> Self {
        Self::new(setup)
    }

    fn write(&self, sink: &mut Sink<'_>, labels: &str) {
        let scale = self.0.scale;
        let mut count = 0;
        for (bucket, bound) in self.0.buckets.iter().zip(scale.texts).take(scale.steps + 1) {
            count += bucket.load(Relaxed);
            sink.integer("_bucket", labels, bound, i128::from(count));
        }
        sink.seconds("_sum", labels, self.0.sum.load(Relaxed));
        // The last bucket is the count by construction: a scrape never sees the two differ, although they are read while others add.
        sink.integer("_count", labels, "", i128::from(count));
    }

    fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        for scale in [&LATENCY, &LOAD] {
            for (i, bound) in scale.bounds.into_iter().take(scale.steps).enumerate() {
                assert_eq!([bound - 1, bound, bound + 1].map(|n| scale.bucket(n)), [i, i, i + 1], "{bound}");
            }
            assert_eq!([0, 1, u64::MAX].map(|n| scale.bucket(n)), [0, 0, scale.steps]);
        }
    }

    #[test]
    fn the_first_look_agrees_with_a_search_from_the_start() {
        let slow = |n: u64| LATENCY.bounds.iter().take_while(|b| **b < n).count();
        for bits in 0..64 {
            for n in [(1_u64 << bits) - 1, 1 << bits, (1 << bits) + 1, (1 << bits) + (1 << bits) / 3] {
                assert_eq!(LATENCY.bucket(n), slow(n), "{n}");
            }
        }
    }

    #[test]
    fn texts_are_the_bounds_in_seconds() {
        for scale in [&LATENCY, &LOAD] {
            for (bound, text) in scale.bounds.into_iter().zip(scale.texts).take(scale.steps) {
                let seconds: f64 = text.parse().unwrap();
                assert_eq!((seconds * 1e9).round() as u64, bound, "{text}");
            }
            assert!(scale.bounds.is_sorted());
        }
    }

    #[test]
    fn a_scale_too_long_keeps_its_unbounded_bucket() {
        let mut steps = [(0, "x"); 40];
        for (i, step) in steps.iter_mut().enumerate() {
            step.0 = i as u64 + 1;
        }
        let scale = Scale::new(steps);
        assert_eq!((scale.bucket(23), scale.bucket(24), scale.bucket(u64::MAX)), (22, 23, 23));
    }

    #[test]
    fn threads_add_up_exactly() {
        let histogram = Histogram::new(&LATENCY);
        std::thread::scope(|scope| {
            for t in 0..4_u64 {
                let mine = histogram.clone();
                scope.spawn(move || (0..10_000).for_each(|i| mine.observe_nanos(t * 1_000_000 + i)));
            }
        });
        assert_eq!(histogram.count(), 40_000);
        let each: u64 = (0..10_000).sum();
        assert_eq!(histogram.sum(), Duration::from_nanos(4 * each + 10_000 * 6_000_000));
    }
}
