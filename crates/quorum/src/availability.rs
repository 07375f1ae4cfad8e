//! The chance that at least k of n replicas are up.
//!
//! Unavailability is summed from its own terms, smallest case first, and never taken as one less availability: at five nines that difference would be
//! made of rounding.

/// Replicas that fail together: a rack, a zone, a region.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// How many are in it.
    pub replicas: u32,
    /// The chance that the group as such is up.
    pub up: f64,
}

/// The chances of exactly 0, 1, ... n replicas being up, each by itself with chance `a`.
#[must_use]
pub fn independent(n: u32, a: f64) -> Vec<f64> {
    (0..n).fold(vec![1.0], |so_far, _| combined(&so_far, &[1.0 - a, a]))
}

/// The same where a replica is up if its group is and it is itself, with chance `a`. Groups fail independently of one another.
#[must_use]
pub fn grouped(groups: &[Group], a: f64) -> Vec<f64> {
    groups.iter().fold(vec![1.0], |so_far, group| {
        let mut within: Vec<f64> = independent(group.replicas, a).iter().map(|p| p * group.up).collect();
        if let Some(none) = within.first_mut() {
            *none += 1.0 - group.up;
        }
        combined(&so_far, &within)
    })
}

/// The chance that fewer than `k` are up, of the chances of exactly 0, 1, ... n.
#[must_use]
pub fn unavailability(up: &[f64], k: u32) -> f64 {
    up.iter().take(k as usize).sum::<f64>().clamp(0.0, 1.0)
}

/// The chance that at least `k` are up.
#[must_use]
pub fn availability(up: &[f64], k: u32) -> f64 {
    up.iter().skip(k as usize).sum::<f64>().clamp(0.0, 1.0)
}

/// The sum of two independent counts.
fn combined(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; (a.len() + b.len()).saturating_sub(1)];
    for (i, p) in a.iter().enumerate() {
        for (slot, q) in out.iter_mut().skip(i).zip(b) {
            *slot += p * q;
        }
    }
    out
}

/// The chance that at least `k` of independent events with these chances happen.
pub(crate) fn at_least(k: u32, chances: impl Iterator<Item = f64>) -> f64 {
    let counts = chances.fold(vec![1.0], |so_far, p| combined(&so_far, &[1.0 - p, p]));
    availability(&counts, k)
}
