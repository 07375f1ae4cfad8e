//! The stable hash: XXH3-64 with seed 0 over length-prefixed parts, the first of which is a salt that names the purpose.
//!
//! Each part is written as its length in bytes (u32, little endian) and then its bytes, so `("ab", "c")` and `("a", "bc")` differ. Each
//! purpose has its own salt, so that two decisions about one key are independent of one another. Salts and encoding never change within a
//! major version: `vectors/hash.tsv` has the values, made by an independent implementation (`vectors/check.py`).
//!
//! Not for anything that an attacker may want to steer: the hash has no secret.

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// What a hash is for. Each purpose has a salt of its own; the number in it grows if the meaning of the parts ever changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// (tenant, model, version) to a key whose owners are the subset.
    Subset,
    /// A model server's address to a key whose first owner among the seated gateways starts loads there.
    LoadOwner,
    /// A key to a slot of the fixed slot map.
    Slot,
    /// (member, number of the virtual node) to a point on the ring.
    RingPoint,
    /// (key, member) to the member's score for the key.
    Rendezvous,
    /// A cache entry's name to its key.
    CacheKey,
    /// A limiter bucket's name to its key.
    LimiterKey,
    /// (tenant, model, submission) to the submission's place in the traffic of a split pin.
    SplitLot,
    /// (tenant, model, submission) to the submission's place in the traffic of which a share is copied.
    ShadowLot,
}

impl Purpose {
    /// All purposes.
    pub const ALL: [Self; 9] = [
        Self::Subset,
        Self::LoadOwner,
        Self::Slot,
        Self::RingPoint,
        Self::Rendezvous,
        Self::CacheKey,
        Self::LimiterKey,
        Self::SplitLot,
        Self::ShadowLot,
    ];

    /// The salt: the first part of what is hashed.
    #[must_use]
    pub const fn salt(self) -> &'static str {
        match self {
            Self::Subset => "holdfast/subset/1",
            Self::LoadOwner => "holdfast/load-owner/1",
            Self::Slot => "holdfast/slot/1",
            Self::RingPoint => "holdfast/ring-point/1",
            Self::Rendezvous => "holdfast/rendezvous/1",
            Self::CacheKey => "holdfast/cache-key/1",
            Self::LimiterKey => "holdfast/limiter-key/1",
            Self::SplitLot => "holdfast/split-lot/1",
            Self::ShadowLot => "holdfast/shadow-lot/1",
        }
    }
}

/// Inputs up to this length are hashed in one go from the stack.
const SHORT: usize = 256;

/// The hash of the parts for a purpose. No allocation. Parts longer than 4 GiB share one length prefix.
#[must_use]
pub fn stable_hash<P: AsRef<[u8]>>(purpose: Purpose, parts: &[P]) -> u64 {
    let mut short = Short { bytes: [0; SHORT], len: 0 };
    let fits = short.part(purpose.salt().as_bytes()) && parts.iter().all(|p| short.part(p.as_ref()));
    match short.bytes.get(..short.len) {
        Some(all) if fits => xxh3_64(all),
        _ => streamed(purpose, parts),
    }
}

fn streamed<P: AsRef<[u8]>>(purpose: Purpose, parts: &[P]) -> u64 {
    let mut hasher = Xxh3::new();
    let salt = purpose.salt().as_bytes();
    for part in std::iter::once(salt).chain(parts.iter().map(AsRef::as_ref)) {
        hasher.update(&prefix(part));
        hasher.update(part);
    }
    hasher.digest()
}

fn prefix(part: &[u8]) -> [u8; 4] {
    u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes()
}

struct Short {
    bytes: [u8; SHORT],
    len: usize,
}

impl Short {
    /// Appends a part; false if it does not fit.
    fn part(&mut self, part: &[u8]) -> bool {
        self.push(&prefix(part)) && self.push(part)
    }

    fn push(&mut self, bytes: &[u8]) -> bool {
        let end = self.len.saturating_add(bytes.len());
        let Some(room) = self.bytes.get_mut(self.len..end) else { return false };
        room.copy_from_slice(bytes);
        self.len = end;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The vectors are a file, so that other languages can read them; `vectors/check.py` makes the same values with another implementation.
    #[test]
    fn the_published_vectors_hold() {
        let mut lines = 0;
        for line in include_str!("../vectors/hash.tsv").lines().filter(|l| !l.starts_with('#')) {
            let mut fields = line.split('\t');
            let salt = fields.next().unwrap();
            let want = u64::from_str_radix(fields.next().unwrap(), 16).unwrap();
            let parts: Vec<Vec<u8>> = fields.map(unhex).collect();
            let purpose = Purpose::ALL.into_iter().find(|p| p.salt() == salt).unwrap();
            assert_eq!(stable_hash(purpose, &parts), want, "{line}");
            assert_eq!(streamed(purpose, &parts), want, "streamed: {line}");
            lines += 1;
        }
        assert!(lines >= 20, "the file holds vectors");
    }

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn vectors_in_the_source() {
        assert_eq!(stable_hash(Purpose::Subset, &["acme", "screen", "1"]), FIRST);
        assert_eq!(stable_hash::<&str>(Purpose::Slot, &[]), EMPTY);
    }

    const FIRST: u64 = 0x663b_a82e_34ef_e0d9;
    const EMPTY: u64 = 0x183f_2d79_bd13_1aa2;

    #[test]
    fn salts_differ() {
        let mut salts = Purpose::ALL.map(Purpose::salt);
        salts.sort_unstable();
        assert!(salts.windows(2).all(|w| w[0] != w[1]));
    }

    proptest! {
        #[test]
        fn where_a_part_ends_matters(a in "[a-z]{1,8}", b in "[a-z]{1,8}", cut in 0usize..16) {
            let joined = format!("{a}{b}");
            let cut = cut % joined.len();
            prop_assume!(cut != a.len());
            let other = joined.split_at(cut);
            prop_assert_ne!(
                stable_hash(Purpose::Subset, &[a.as_str(), &b]),
                stable_hash(Purpose::Subset, &[other.0, other.1])
            );
        }

        #[test]
        fn short_and_streamed_agree(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..4)) {
            prop_assert_eq!(stable_hash(Purpose::CacheKey, &parts), streamed(Purpose::CacheKey, &parts));
        }
    }
}
