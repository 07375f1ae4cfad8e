//! An immutable map from names to values whose copies share structure.
//!
//! Entries lie in pages behind `Arc`, each page sorted by the name's hash. Replacing some values copies their pages and the list of pages,
//! never the rest, so a change to one of 100,000 tenants costs microseconds and memory for one page. Look-up is one hash, one page, one binary
//! search; there is no random seed, so the same input gives the same layout everywhere.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

/// A value that knows its own name.
pub trait Keyed {
    /// The name it is found by.
    fn key(&self) -> &str;
}

impl<T: Keyed> Keyed for Arc<T> {
    fn key(&self) -> &str {
        (**self).key()
    }
}

/// About this many entries share a page.
const PAGE: usize = 64;

type Page<V> = Arc<[(u64, V)]>;

/// The map. See the module.
#[derive(Clone, Debug)]
pub struct Paged<V> {
    /// A power of two of pages; the top bits of a hash choose one.
    pages: Vec<Page<V>>,
    shift: u32,
    len: usize,
}

fn hash(key: &str) -> u64 {
    xxh3_64(key.as_bytes())
}

impl<V: Keyed + Clone> Paged<V> {
    /// Builds the map. Of two values with one name the later one wins.
    #[must_use]
    pub fn build(values: impl IntoIterator<Item = V>) -> Self {
        let mut all: Vec<(u64, V)> = values.into_iter().map(|v| (hash(v.key()), v)).collect();
        all.sort_by(|(a, x), (b, y)| a.cmp(b).then_with(|| x.key().cmp(y.key())));
        // The sort is stable: among equal names the later value is last.
        let mut entries: Vec<(u64, V)> = Vec::with_capacity(all.len());
        for entry in all {
            match entries.last_mut() {
                Some(last) if last.0 == entry.0 && last.1.key() == entry.1.key() => *last = entry,
                _ => entries.push(entry),
            }
        }
        let bits = (entries.len() / PAGE).next_power_of_two().trailing_zeros();
        let len = entries.len();
        let mut pages: Vec<Vec<(u64, V)>> = (0..1usize << bits).map(|_| Vec::new()).collect();
        for entry in entries {
            if let Some(page) = pages.get_mut(page_of(entry.0, bits)) {
                page.push(entry);
            }
        }
        Self { pages: pages.into_iter().map(Arc::from).collect(), shift: bits, len }
    }

    /// The value of this name.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&V> {
        let wanted = hash(key);
        let page = self.pages.get(page_of(wanted, self.shift))?;
        let at = page.partition_point(|(h, _)| *h < wanted);
        page.get(at..)?.iter().take_while(|(h, _)| *h == wanted).map(|(_, v)| v).find(|v| v.key() == key)
    }

    /// A copy in which these values stand in place of those with the same names. Names that are not in the map are ignored.
    #[must_use]
    pub fn replaced(&self, values: impl IntoIterator<Item = V>) -> Self {
        let mut pages = self.pages.clone();
        for value in values {
            let wanted = hash(value.key());
            let Some(page) = pages.get_mut(page_of(wanted, self.shift)) else { continue };
            let Some(at) = page.iter().position(|(h, v)| *h == wanted && v.key() == value.key()) else { continue };
            // A page that this call has copied already is changed in place.
            if Arc::get_mut(page).is_none() {
                *page = page.iter().cloned().collect();
            }
            if let Some(slot) = Arc::get_mut(page).and_then(|p| p.get_mut(at)) {
                slot.1 = value;
            }
        }
        Self { pages, shift: self.shift, len: self.len }
    }

    /// How many values there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All values, in the order of their hashes.
    pub fn iter(&self) -> impl Iterator<Item = &V> {
        self.pages.iter().flat_map(|page| page.iter().map(|(_, v)| v))
    }
}

fn page_of(hash: u64, bits: u32) -> usize {
    // A shift by 64 is not defined: one page takes all.
    if bits == 0 { 0 } else { (hash >> (64 - bits)) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Named(String, u32);

    impl Keyed for Named {
        fn key(&self) -> &str {
            &self.0
        }
    }

    #[test]
    fn a_replacement_copies_one_page_only() {
        let map = Paged::build((0..10_000).map(|i| Named(format!("t{i}"), 0)));
        let next = map.replaced([Named("t77".into(), 9), Named("absent".into(), 9)]);
        assert_eq!(next.get("t77"), Some(&Named("t77".into(), 9)));
        assert_eq!(map.get("t77"), Some(&Named("t77".into(), 0)), "the old map is as it was");
        let copied = map.pages.iter().zip(&next.pages).filter(|(a, b)| !Arc::ptr_eq(a, b)).count();
        assert_eq!((copied, next.len()), (1, 10_000));
    }

    proptest! {
        #[test]
        fn behaves_like_a_map(names in proptest::collection::vec("[a-f]{1,3}", 0..400), changed in proptest::collection::vec("[a-f]{1,3}", 0..40)) {
            let mut model = std::collections::BTreeMap::new();
            for (i, name) in names.iter().enumerate() { model.insert(name.clone(), i as u32); }
            let map = Paged::build(names.iter().enumerate().map(|(i, n)| Named(n.clone(), i as u32)));
            for name in &changed { if let Some(v) = model.get_mut(name) { *v = 9999; } }
            let map = map.replaced(changed.iter().map(|n| Named(n.clone(), 9999)));
            prop_assert_eq!(map.len(), model.len());
            for (name, value) in &model { prop_assert_eq!(map.get(name).map(|n| n.1), Some(*value)); }
            prop_assert_eq!(map.iter().count(), model.len());
            prop_assert!(map.get("zzz").is_none());
        }
    }
}
