//! The place of a key, from 0 to 9,999: XXH3-64 with seed 0 over length-prefixed parts, the first of which is a salt that names the purpose.
//!
//! Each part is its length in bytes (u32, little endian) and its bytes. The place is `hash * 10,000 / 2^64`, rounded down, so each place has the same share
//! of all hashes. Salts and encoding never change within a major version: `vectors/places.tsv` has values made by an independent implementation
//! (`vectors/check.py`). Whether somebody is in, and which arm they get, are two purposes: with one hash for both, those in a small share would all be of one arm.

use xxhash_rust::xxh3::Xxh3;

/// How many places there are.
pub const PLACES: u16 = 10_000;

/// What a place is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Whether somebody is in the experiment.
    Inclusion,
    /// Which arm somebody gets who is in.
    Arm,
    /// Which experiment of a layer may have somebody.
    Layer,
    /// Whether somebody is kept out of all experiments.
    Holdout,
    /// No place: the hash that stands for somebody in events.
    Subject,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Inclusion, Self::Arm, Self::Layer, Self::Holdout, Self::Subject];

    /// The first part of what is hashed.
    #[must_use]
    pub const fn salt(self) -> &'static str {
        match self {
            Self::Inclusion => "holdfast/experiment-inclusion/1",
            Self::Arm => "holdfast/experiment-arm/1",
            Self::Layer => "holdfast/experiment-layer/1",
            Self::Holdout => "holdfast/experiment-holdout/1",
            Self::Subject => "holdfast/experiment-subject/1",
        }
    }
}

/// The place of these parts for a purpose.
#[must_use]
pub fn place(purpose: Purpose, parts: &[&[u8]]) -> u16 {
    let wide = u128::from(hash(purpose, parts)) * u128::from(PLACES);
    // Below 10,000: the product is below 10,000 * 2^64.
    u16::try_from(wide >> 64).unwrap_or(PLACES - 1)
}

/// The hash that a place is made of.
#[must_use]
pub fn hash(purpose: Purpose, parts: &[&[u8]]) -> u64 {
    let mut hasher = Xxh3::new();
    for part in std::iter::once(purpose.salt().as_bytes()).chain(parts.iter().copied()) {
        hasher.update(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
        hasher.update(part);
    }
    hasher.digest()
}
