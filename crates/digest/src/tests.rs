use super::*;
use proptest::prelude::*;

type Key = (String, String);

fn key(kind: &str, name: &str) -> Key {
    (kind.to_owned(), name.to_owned())
}

/// Stored digests rest on these values: they never change. They were made by other implementations of XXH3 and BLAKE3, in Python.
#[test]
fn frozen_vectors() {
    assert_eq!(
        [bucket(&key("pin", "acme/screen")), bucket(&key("tenant", "acme")), bucket(&key("a", "b"))],
        [190, 620, 980]
    );
    assert_eq!(leaf(b"{}").to_string(), "6e46dd10defc9b56c29a6ec56b508c21f54c08192194e4df25bf36f0c9c3c279");
    assert_eq!(of_empty_bucket().to_string(), "686fc20268a9e50ec0410a22b18792b148058e80418cd923c1835c6e3fc9aae3");
    assert_eq!(
        Buckets::default().root().to_string(),
        "d5bda9ff2678f7b883ef9c5230f79251ad6f5584b39d99a674cad454a348f87c"
    );
    let one = key("pin", "acme/screen");
    assert_eq!(
        of_bucket(&BTreeMap::from([(one.clone(), leaf(b"\"1\""))])).to_string(),
        "54151899bfe5a1d1ec11b1da8fc4a2e26a5b4dc4fe7135e542ca8914a68e7ff0"
    );
    let two = key("tenant", "acme");
    let resources = [(&one, b"\"1\"".as_slice()), (&two, b"{\"subset\":2}")];
    assert_eq!(of_space(resources).to_string(), "dd137d3c198f4b74723825357837adbcecb4bbadea3e005c883a86c228592d25");
}

#[test]
fn a_digest_is_read_as_it_is_shown() {
    let digest = leaf(b"x");
    assert_eq!(digest.to_string().parse(), Ok(digest));
    for bad in ["", "ab", &"g".repeat(64), &"a".repeat(65)] {
        assert_eq!(bad.parse::<Digest>(), Err(NotADigest), "{bad:?}");
    }
}

#[test]
fn buckets_are_even() {
    let mut counts = vec![0_u32; usize::from(BUCKETS)];
    for n in 0..102_400 {
        counts[usize::from(bucket(&key("tenant", &format!("t{n}"))))] += 1;
    }
    // A hundred expected in each: seven standard deviations leave a wide margin for 1,024 draws.
    assert!(counts.iter().all(|c| (30..=170).contains(c)), "{:?}", (counts.iter().min(), counts.iter().max()));
}

#[test]
fn parts_do_not_run_into_one_another() {
    let digest = |kind, name, value: &[u8]| of_space([(&key(kind, name), value)]);
    let all = [digest("ab", "c", b"1"), digest("a", "bc", b"1"), digest("ab", "c", b"2"), digest("ab", "c1", b"")];
    let distinct: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
}

proptest! {
    /// Bucket by bucket, in whatever order and with whatever comes and goes, the digest is that of the content from scratch.
    #[test]
    fn incremental_equals_from_scratch(edits in prop::collection::vec((0_u8..40, prop::option::of(0_u8..4)), 0..120)) {
        let mut content: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        let mut leaves: BTreeMap<u16, BTreeMap<Key, Digest>> = BTreeMap::new();
        let (mut buckets, mut tree) = (Buckets::default(), Tree::default());
        for (name, value) in edits {
            let key = key("pin", &format!("t{name}"));
            tree.set(key.clone(), value.map(|value| leaf(&[value])));
            let entries = leaves.entry(bucket(&key)).or_default();
            if let Some(value) = value {
                entries.insert(key.clone(), leaf(&[value]));
                content.insert(key.clone(), vec![value]);
            } else {
                entries.remove(&key);
                content.remove(&key);
            }
            buckets.set(bucket(&key), of_bucket(entries));
            let scratch = of_space(content.iter().map(|(k, v)| (k, v.as_slice())));
            prop_assert_eq!((buckets.root(), tree.root()), (scratch, scratch));
        }
        let backwards = of_space(content.iter().rev().map(|(k, v)| (k, v.as_slice())));
        prop_assert_eq!(buckets.root(), backwards);
    }
}
