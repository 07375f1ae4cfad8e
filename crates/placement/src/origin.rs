//! What a cache tier's origin has to bear when keys move. Figures for people who plan.
//!
//! Moved keys are missed, not copied. The model: keys of one popularity, read at random, each entry living for a TTL from its fill. A key that is read
//! `x` times per TTL on average is missed once in `1 + x` reads, so the hit rate tells `x`. A moved key is missed until its first read; after the time `t`
//! the share `exp(-x t / ttl)` of moved keys still waits for theirs, beside the misses that there always are. In a real tier hot keys return sooner and cold
//! ones later; the first moment is the same under any popularity.

/// A cache tier before its origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tier {
    /// Reads in a second.
    pub reads: f64,
    /// The share of reads that the tier answers, 0 to 1.
    pub hit_rate: f64,
    /// How long an entry lives, in whatever unit times are asked in.
    pub ttl: f64,
}

impl Tier {
    /// What reaches the origin when nothing moves.
    #[must_use]
    pub fn origin(self) -> f64 {
        self.reads * (1.0 - self.hit_rate)
    }

    /// What reaches it in addition in the first moment after a share of the keys has moved.
    #[must_use]
    pub fn extra(self, moved: f64) -> f64 {
        self.reads * self.hit_rate * moved
    }

    /// The same some time later.
    #[must_use]
    pub fn extra_after(self, moved: f64, time: f64) -> f64 {
        if self.hit_rate <= 0.0 || self.ttl <= 0.0 {
            return 0.0;
        }
        let missed = 1.0 - self.hit_rate;
        // A tier that always hits has keys that are read without end: all are back at once.
        let waiting = if missed > 0.0 { (-(self.hit_rate / missed) * time / self.ttl).exp() } else { 0.0 };
        let first = time <= 0.0;
        let beyond = if first { self.hit_rate } else { (waiting - missed).max(0.0) };
        self.reads * moved * beyond
    }

    /// When nothing is left of it: within a TTL, whatever the hit rate.
    #[must_use]
    pub fn settled_after(self) -> f64 {
        let missed = 1.0 - self.hit_rate;
        if missed <= 0.0 || self.hit_rate <= 0.0 {
            return 0.0;
        }
        (self.ttl * missed / self.hit_rate * -missed.ln()).clamp(0.0, self.ttl)
    }
}
