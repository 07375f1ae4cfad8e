//! Counters and gauges: one word of memory behind a handle that is cheap to clone.
//!
//! All operations are relaxed: a scrape needs each value, not an order between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use crate::registry::{Kind, Sink};

/// What a [`crate::Family`] can be made of.
pub trait Metric: Clone + Send + Sync + 'static {
    /// What makes a new one, beside its labels.
    type Setup: Copy + Send + Sync + 'static;
    /// Its type in the exposition.
    const KIND: Kind;
    /// A new one, at zero.
    fn make(setup: Self::Setup) -> Self;
    /// Writes its samples, given its labels as they are written in the exposition.
    fn write(&self, sink: &mut Sink<'_>, labels: &str);
    /// Whether anyone beside the family holds the handle.
    fn is_held(&self) -> bool;
}

/// A count that only grows.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The count.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Metric for Counter {
    type Setup = ();
    const KIND: Kind = Kind::Counter;

    fn make((): ()) -> Self {
        Self::default()
    }

    fn write(&self, sink: &mut Sink<'_>, labels: &str) {
        sink.integer("", labels, "", i128::from(self.get()));
    }

    fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// A value that goes up and down.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<AtomicI64>);

impl Gauge {
    /// Adds `n`, which may be negative.
    #[inline]
    pub fn add(&self, n: i64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Sets the value.
    #[inline]
    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    /// Sets the value from an unsigned one, held at `i64::MAX`.
    #[inline]
    pub fn set_u64(&self, value: u64) {
        self.set(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// The value.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }

    /// Adds one until the guard is dropped: the count comes back down whatever aborts its holder.
    #[must_use = "the count goes back down when the guard is dropped"]
    pub fn track(&self) -> GaugeGuard {
        self.add(1);
        GaugeGuard(self.clone())
    }
}

impl Metric for Gauge {
    type Setup = ();
    const KIND: Kind = Kind::Gauge;

    fn make((): ()) -> Self {
        Self::default()
    }

    fn write(&self, sink: &mut Sink<'_>, labels: &str) {
        sink.integer("", labels, "", i128::from(self.get()));
    }

    fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// One counted thing; see [`Gauge::track`].
#[derive(Debug)]
pub struct GaugeGuard(Gauge);

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}
