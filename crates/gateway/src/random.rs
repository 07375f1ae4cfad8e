//! Randomness for ties, jitter and ids: splitmix64, seeded once from the operating system. Not for secrets.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A small generator. One per task or worker.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A freshly seeded generator.
    #[must_use]
    pub fn new() -> Self {
        // The standard library's map seed is the one source of entropy that needs no dependency.
        Self(RandomState::new().build_hasher().finish())
    }

    /// The next 64 bits (Steele, Lea and Flood, 2014).
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 (included) to 1 (not).
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new()
    }
}
