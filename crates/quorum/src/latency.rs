//! How long the k-th fastest of n answers takes.
//!
//! An operation that needs k answers waits for the k-th fastest (the k-th order statistic). A mean hides what that does to the slow end, so the figures
//! are quantiles; and replicas in other regions have a distance on top, which soon rules everything else.

use std::fmt;

use crate::availability::at_least;

/// How long one replica takes, as points of its distribution: within this time, this share of its answers. Straight lines between points, from
/// (0, 0) to the first; what lies beyond the last takes as long as the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    points: Vec<(f64, f64)>,
}

/// Why points are no distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LatencyError {
    /// No point at all.
    Empty,
    /// A share that is not within 0 and 1, or a time that is negative or no number.
    Range {
        /// The share.
        share: f64,
        /// The time.
        time: f64,
    },
    /// Shares and times grow from point to point; this one does not.
    Order {
        /// The share.
        share: f64,
        /// The time.
        time: f64,
    },
}

impl fmt::Display for LatencyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it has no point"),
            Self::Range { share, time } => {
                write!(f, "{}:{time} is not a percentage of 0 to 100 and a time from 0 on", share * 100.0)
            }
            Self::Order { share, time } => {
                write!(f, "{}:{time} does not lie above the point before it, in percentage and time", share * 100.0)
            }
        }
    }
}

impl std::error::Error for LatencyError {}

impl Latency {
    /// From points (share of 0 to 1, time), in whatever unit.
    ///
    /// # Errors
    /// [`LatencyError`].
    pub fn new(points: &[(f64, f64)]) -> Result<Self, LatencyError> {
        if points.is_empty() {
            return Err(LatencyError::Empty);
        }
        let mut before = None;
        for &(share, time) in points {
            if !(0.0..=1.0).contains(&share) || !time.is_finite() || time < 0.0 {
                return Err(LatencyError::Range { share, time });
            }
            if before.is_some_and(|(s, t)| share <= s || time <= t) {
                return Err(LatencyError::Order { share, time });
            }
            before = Some((share, time));
        }
        Ok(Self { points: points.to_vec() })
    }

    /// The longest time.
    #[must_use]
    pub fn longest(&self) -> f64 {
        self.points.last().map_or(0.0, |p| p.1)
    }

    /// The share of answers that take `time` at most.
    #[must_use]
    pub fn within(&self, time: f64) -> f64 {
        if time >= self.longest() {
            return 1.0;
        }
        let mut from = (0.0, 0.0);
        for &to in &self.points {
            if time < to.1 {
                // A first point with share 0 is the shortest time; below it there is nothing.
                let part = if to.1 > from.1 { (time - from.1) / (to.1 - from.1) } else { 0.0 };
                return (from.0 + (to.0 - from.0) * part).clamp(0.0, 1.0);
            }
            from = to;
        }
        1.0
    }
}

/// Replicas at distances (added to each one's time), all with one distribution.
#[derive(Clone, Copy, Debug)]
pub struct Fleet<'a> {
    /// How long a replica takes.
    pub latency: &'a Latency,
    /// What is added for each replica. Its length is the number of replicas.
    pub distances: &'a [f64],
}

impl Fleet<'_> {
    /// The chance that `k` answers are there within `time`.
    #[must_use]
    pub fn within(self, k: u32, time: f64) -> f64 {
        at_least(k, self.distances.iter().map(|d| if time < *d { 0.0 } else { self.latency.within(time - d) }))
    }

    /// The longest that any operation can take.
    #[must_use]
    pub fn longest(self) -> f64 {
        self.latency.longest() + self.distances.iter().copied().fold(0.0, f64::max)
    }

    /// The time within which the share `q` of operations have their `k` answers.
    #[must_use]
    pub fn quantile(self, k: u32, q: f64) -> f64 {
        let (mut low, mut high) = (0.0, self.longest());
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if self.within(k, middle) >= q {
                high = middle;
            } else {
                low = middle;
            }
        }
        high
    }

    /// The mean time to `k` answers: the area over the distribution, by trapezoids.
    #[must_use]
    pub fn mean(self, k: u32) -> f64 {
        const STEPS: u32 = 2_000;
        let step = self.longest() / f64::from(STEPS);
        let late = |at: u32| 1.0 - self.within(k, step * f64::from(at));
        let inner: f64 = (1..STEPS).map(late).sum();
        step * (inner + f64::midpoint(late(0), late(STEPS)))
    }
}
