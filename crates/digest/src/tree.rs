//! The leaves and the bucket digests of one space in memory, kept up to date edit by edit.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{BUCKETS, Buckets, Digest, Keyed, bucket, of_bucket, of_empty_bucket};

/// A persistent tree: a copy costs nothing, an edit of a copy about a thousandth of the content.
#[derive(Clone, Debug)]
pub struct Tree<K>(Arc<Vec<Arc<Bucket<K>>>>);

#[derive(Clone, Debug)]
struct Bucket<K> {
    leaves: BTreeMap<K, Digest>,
    /// `None`: edited since it was computed last.
    digest: Option<Digest>,
}

impl<K> Default for Tree<K> {
    fn default() -> Self {
        let empty = Arc::new(Bucket { leaves: BTreeMap::new(), digest: Some(of_empty_bucket()) });
        Self(Arc::new(vec![empty; usize::from(BUCKETS)]))
    }
}

impl<K: Keyed + Clone> Tree<K> {
    /// Puts a resource's leaf; `None` takes the resource away.
    pub fn set(&mut self, key: K, leaf: Option<Digest>) {
        let slot = Arc::make_mut(&mut self.0).get_mut(usize::from(bucket(&key)));
        let Some(bucket) = slot.map(Arc::make_mut) else { return };
        bucket.digest = None;
        let _ = match leaf {
            Some(leaf) => bucket.leaves.insert(key, leaf),
            None => bucket.leaves.remove(&key),
        };
    }

    /// The digest of the whole space. Costs what was edited since it was asked for last.
    pub fn root(&mut self) -> Digest {
        let mut buckets = Buckets::default();
        for (number, slot) in (0..BUCKETS).zip(Arc::make_mut(&mut self.0)) {
            let digest = slot.digest.unwrap_or_else(|| {
                let digest = of_bucket(&slot.leaves);
                Arc::make_mut(slot).digest = Some(digest);
                digest
            });
            buckets.set(number, digest);
        }
        buckets.root()
    }
}
