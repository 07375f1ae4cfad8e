//! How often a replica has to load what it does not hold, where not all that hashes to it fits. A figure for people who plan.
//!
//! Least recent use over independent requests, by the approximation of H. Che, Y. Tung and Z. Wang (2002): there is one time after which whatever was not
//! asked for is gone; it is where the expected memory of what was asked for within it fills the replica.

use std::collections::BTreeMap;

use holdfast_types::Bytes;

use crate::fit::Pin;

/// A version as a replica sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// The memory that it takes.
    pub size: Bytes,
    /// Requests for it in a unit of time, not negative.
    pub rate: f64,
}

/// Loads in a unit of time on one replica. None at all where everything fits.
#[must_use]
pub fn loads(memory: Bytes, versions: &[Asked]) -> f64 {
    let wanted: Vec<&Asked> = versions.iter().filter(|v| v.rate > 0.0).collect();
    let all = wanted.iter().fold(0u64, |sum, v| sum.saturating_add(v.size.0));
    if all <= memory.0 {
        return 0.0;
    }
    let rate = |time: f64| wanted.iter().map(|v| v.rate * (-v.rate * time).exp()).sum::<f64>();
    let filled = |time: f64| wanted.iter().map(|v| v.size.0 as f64 * (1.0 - (-v.rate * time).exp())).sum::<f64>();
    let slowest = wanted.iter().map(|v| v.rate).fold(f64::INFINITY, f64::min);
    // After 50 times the rarest one's mean pause everything would have been asked for.
    let (mut low, mut high) = (0.0, 50.0 / slowest);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if filled(middle) < memory.0 as f64 {
            low = middle;
        } else {
            high = middle;
        }
    }
    rate(low)
}

/// Loads in a unit of time on all replicas, where each key (with a rate of its own) asks its holders evenly.
#[must_use]
pub fn of_layout(memories: &[Option<Bytes>], sizes: &[Bytes], pins: &[Pin], rates: &[f64]) -> f64 {
    let mut asked: Vec<BTreeMap<u32, f64>> = vec![BTreeMap::new(); memories.len()];
    for (pin, rate) in pins.iter().zip(rates) {
        let holders = pin.order.get(..pin.k.min(pin.order.len())).unwrap_or_default();
        for replica in holders {
            if let Some(versions) = asked.get_mut(*replica as usize) {
                *versions.entry(pin.version).or_default() += rate / holders.len() as f64;
            }
        }
    }
    let size = |version: u32| sizes.get(version as usize).copied().unwrap_or_default();
    let of = |versions: BTreeMap<u32, f64>, memory: Option<Bytes>| {
        let versions: Vec<Asked> = versions.into_iter().map(|(v, rate)| Asked { size: size(v), rate }).collect();
        memory.map_or(0.0, |memory| loads(memory, &versions))
    };
    asked.into_iter().zip(memories).map(|(versions, memory)| of(versions, *memory)).sum()
}
