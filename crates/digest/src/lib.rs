//! The digest of a table's content: equal digests mean equal content, and a change costs what it changes.
//!
//! The store computes it of each of its spaces, and a gateway again of what it was sent. A resource's *leaf* is the BLAKE3 hash of its value. Keys fall into [`BUCKETS`] buckets by XXH3-64 of their parts. A bucket's digest is
//! BLAKE3 over its entries in order of their keys; the root is BLAKE3 over all buckets in order. So one edit rereads one bucket's keys and
//! leaves, about a thousandth of the content, and no values. Salts, contexts and encoding never change: stored digests rest on them.
//!
//! Bucket: `xxh3_64(part("holdfast/store-bucket/1") part(kind) part(name)) mod 1024`, where `part` is the length (u32, little endian) and
//! the bytes. Entry: `part(kind) part(name) leaf`. Both BLAKE3 uses are in key-derivation mode with a context of their own.

mod tree;

pub use tree::Tree;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use xxhash_rust::xxh3::Xxh3;

/// What a resource is called. Its order is that of the bytes of the kind, then of the name: digests rest on it.
pub trait Keyed: Ord {
    /// The kind.
    fn kind(&self) -> &str;
    /// The name.
    fn name(&self) -> &str;
}

impl<K: AsRef<str> + Ord, N: AsRef<str> + Ord> Keyed for (K, N) {
    fn kind(&self) -> &str {
        self.0.as_ref()
    }

    fn name(&self) -> &str {
        self.1.as_ref()
    }
}

/// Buckets of one space.
pub const BUCKETS: u16 = 1_024;

const SALT: &[u8] = b"holdfast/store-bucket/1";
const BUCKET_CONTEXT: &str = "holdfast store bucket 1";
const ROOT_CONTEXT: &str = "holdfast store root 1";

/// 32 bytes that stand for content. Shown as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A text is not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotADigest;

impl fmt::Display for NotADigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a digest is 64 hexadecimal digits")
    }
}

impl std::error::Error for NotADigest {}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        blake3::Hash::from_hex(text).map(|hash| Self(*hash.as_bytes())).map_err(|_| NotADigest)
    }
}

/// The leaf of a value.
#[must_use]
pub fn leaf(value: &[u8]) -> Digest {
    Digest(*blake3::hash(value).as_bytes())
}

/// The bucket of a key, below [`BUCKETS`].
#[must_use]
pub fn bucket<K: Keyed>(key: &K) -> u16 {
    let mut hash = Xxh3::new();
    for part in [SALT, key.kind().as_bytes(), key.name().as_bytes()] {
        hash.update(&length(part));
        hash.update(part);
    }
    // The remainder is below 1,024.
    u16::try_from(hash.digest() % u64::from(BUCKETS)).unwrap_or(0)
}

fn length(part: &[u8]) -> [u8; 4] {
    u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes()
}

/// The digest of a bucket's entries. The map's order is the order of the format.
#[must_use]
pub fn of_bucket<K: Keyed>(entries: &BTreeMap<K, Digest>) -> Digest {
    let mut hash = blake3::Hasher::new_derive_key(BUCKET_CONTEXT);
    for (key, leaf) in entries {
        for part in [key.kind().as_bytes(), key.name().as_bytes()] {
            hash.update(&length(part));
            hash.update(part);
        }
        hash.update(&leaf.0);
    }
    Digest(*hash.finalize().as_bytes())
}

/// The digest of a bucket without entries.
#[must_use]
pub fn of_empty_bucket() -> Digest {
    of_bucket::<(&str, &str)>(&BTreeMap::new())
}

/// The digests of one space's buckets; at first all are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets(Vec<Digest>);

impl Default for Buckets {
    fn default() -> Self {
        Self(vec![of_empty_bucket(); usize::from(BUCKETS)])
    }
}

impl Buckets {
    /// Puts a bucket's digest; a number that is no bucket's changes nothing.
    pub fn set(&mut self, bucket: u16, digest: Digest) {
        if let Some(slot) = self.0.get_mut(usize::from(bucket)) {
            *slot = digest;
        }
    }

    /// The digest of the whole space.
    #[must_use]
    pub fn root(&self) -> Digest {
        let mut hash = blake3::Hasher::new_derive_key(ROOT_CONTEXT);
        for digest in &self.0 {
            hash.update(&digest.0);
        }
        Digest(*hash.finalize().as_bytes())
    }
}

/// The digest of a whole space from scratch: what every incremental path must come to.
#[must_use]
pub fn of_space<'a, K: Keyed + Clone + 'a>(resources: impl IntoIterator<Item = (&'a K, &'a [u8])>) -> Digest {
    let mut by_bucket: BTreeMap<u16, BTreeMap<K, Digest>> = BTreeMap::new();
    for (key, value) in resources {
        by_bucket.entry(bucket(key)).or_default().insert(key.clone(), leaf(value));
    }
    let mut buckets = Buckets::default();
    for (number, entries) in &by_bucket {
        buckets.set(*number, of_bucket(entries));
    }
    buckets.root()
}

#[cfg(test)]
mod tests;
