//! Backups: from either backend into either, and nothing from a damaged one.

use crate::support::{Bench, all, at, change, desired, flip, gone, in_force, put, record};
use holdfast_store::{Error, Space, Store};
use holdfast_types::Revision;

async fn fill(store: &dyn Store) {
    let edits = (0..700).map(|n| put(at(Space::Desired, "tenant", &format!("t{n}")), n)).collect();
    store.append(change(0, edits)).await.unwrap();
    store
        .append(change(1, vec![put(desired("a"), "1"), put(in_force("a"), "1"), put(desired("b"), "1")]))
        .await
        .unwrap();
    store.append(change(2, vec![put(desired("a"), "2"), gone(desired("b"))])).await.unwrap();
    store.append(flip(vec![put(in_force("a"), "2"), gone(at(Space::InForce, "tenant", "t1"))])).await.unwrap();
    store.append(change(3, vec![put(desired("b"), "back"), gone(at(Space::Desired, "tenant", "t5"))])).await.unwrap();
    let version = store.write_record(record("a/m", None, Some("warm"))).await.unwrap();
    store.write_record(record("b/m", None, Some("flip"))).await.unwrap();
    store.write_record(record("a/m", version, None)).await.unwrap();
}

/// Everything that a store gives out.
async fn content(store: &dyn Store) -> String {
    let head = store.head().await.unwrap();
    let mut text = format!("{head:?}\n{:?}\n", store.history(None, 1_000).await.unwrap());
    for revision in 0..=head.revision.0 {
        for space in Space::ALL {
            for resource in all(store, space, Some(Revision(revision)), 1_000).await {
                let value = String::from_utf8_lossy(resource.value.as_bytes()).into_owned();
                text += &format!("{revision} {space} {} {} {value}\n", resource.key, resource.revision);
            }
        }
        if revision > 0 {
            text += &format!("{:?}\n", store.edits(Revision(revision), None, 1_000).await.unwrap().items);
        }
    }
    text + &format!("{:?}", store.records("rollout".to_owned(), None, 1_000).await.unwrap())
}

pub async fn a_backup_is_the_same_store_elsewhere(bench: Bench) {
    let elsewhere = Bench::embedded();
    let (store, other, back) = (bench.fresh().await, elsewhere.fresh().await, bench.fresh().await);
    fill(&*store).await;
    let (first, second) = (bench.file("first"), bench.file("second"));
    let written = store.backup(first.clone()).await.unwrap();
    assert_eq!((written.revision, written.headers, written.records), (Revision(5), 5, 1));
    assert_eq!(other.restore(first.clone()).await.unwrap(), written);
    assert_eq!(other.watch().last(), Revision(5));
    assert_eq!(content(&*other).await, content(&*store).await);
    other.backup(second.clone()).await.unwrap();
    assert_eq!(std::fs::read(&first).unwrap(), std::fs::read(&second).unwrap(), "one content has one backup");
    back.restore(second).await.unwrap();
    assert_eq!(content(&*back).await, content(&*store).await);

    let next = change(5, vec![put(desired("c"), "1"), gone(at(Space::Desired, "tenant", "t7"))]);
    let expected = store.append(next.clone()).await.unwrap();
    for restored in [back, other] {
        assert_eq!(restored.append(next.clone()).await.unwrap(), expected, "a restored store goes on alike");
        assert_eq!(restored.write_record(record("z", None, Some("x"))).await.unwrap(), Some(3));
    }
}

pub async fn a_damaged_backup_changes_nothing(bench: Bench) {
    let (store, target) = (bench.fresh().await, bench.fresh().await);
    fill(&*store).await;
    let file = bench.file("whole");
    store.backup(file.clone()).await.unwrap();
    let whole = std::fs::read(&file).unwrap();
    let damaged = bench.file("damaged");
    let mut versions: Vec<(String, Vec<u8>)> = Vec::new();
    for part in 0..16 {
        let place = whole.len() * part / 16 + 3;
        versions.push((format!("cut at {place}"), whole[..place].to_vec()));
        let mut flipped = whole.clone();
        flipped[place] ^= 0x10;
        versions.push((format!("one bit at {place}"), flipped));
    }
    versions.push(("empty".to_owned(), Vec::new()));
    versions.push(("cut before the last byte".to_owned(), whole[..whole.len() - 1].to_vec()));
    versions.push(("one byte more".to_owned(), [whole.as_slice(), b"x"].concat()));
    versions.push(("twice".to_owned(), [whole.as_slice(), whole.as_slice()].concat()));
    for (what, bytes) in versions {
        std::fs::write(&damaged, bytes).unwrap();
        let refused = target.restore(damaged.clone()).await;
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{what}: {refused:?}");
        assert_eq!(target.head().await.unwrap(), holdfast_store::Head::default(), "{what}");
    }
    let missing = target.restore(bench.file("missing")).await;
    assert!(matches!(missing, Err(Error::Backend { .. })), "{missing:?}");
    target.restore(file).await.unwrap();
    assert_eq!(content(&*target).await, content(&*store).await);
}

pub async fn a_backup_goes_into_an_empty_store_only(bench: Bench) {
    let (store, used, led) = (bench.fresh().await, bench.fresh().await, bench.fresh().await);
    fill(&*store).await;
    let file = bench.file("backup");
    store.backup(file.clone()).await.unwrap();
    let again = store.backup(file.clone()).await;
    assert!(matches!(again, Err(Error::Invalid { .. })), "a backup replaces no file: {again:?}");

    used.append(change(0, vec![put(desired("mine"), "1")])).await.unwrap();
    let refused = used.restore(file.clone()).await;
    assert!(matches!(refused, Err(Error::NotEmpty { head: Revision(1) })), "{refused:?}");
    assert_eq!(all(&*used, Space::Desired, None, 10).await.len(), 1);

    let leader = led.lead().await.unwrap().unwrap();
    led.restore(file).await.unwrap();
    assert_eq!(led.head().await.unwrap().term, leader.term(), "terms never go backwards");
    let parts = std::fs::read_dir(bench.file("").as_path()).unwrap().flatten();
    let left: Vec<_> = parts.map(|e| e.file_name()).filter(|n| n.to_string_lossy().contains(".new-")).collect();
    assert!(left.is_empty(), "parts left behind: {left:?}");
}

/// A small store in format 1, in hexadecimal digits. The file of a format never changes; a format that is another one gets a file of its own beside
/// it, and the test restores both: what it prints on failure is that file's content.
const FIRST: &str = include_str!("../golden/backup-1.txt");

/// Digits in one line.
const WIDTH: usize = 120;

fn digits(bytes: &[u8]) -> String {
    let all: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let lines = all.as_bytes().chunks(WIDTH).map(|line| String::from_utf8_lossy(line).into_owned() + "\n");
    lines.collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    let all: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    all.chunks(2).map(byte).collect()
}

pub async fn a_backup_of_format_1_is_restored_by_every_later_release(bench: Bench) {
    let (store, file) = (bench.fresh().await, bench.file("now"));
    store
        .append(change(0, vec![put(desired("a"), "1"), put(in_force("a"), "1"), put(desired("b"), "1")]))
        .await
        .unwrap();
    store.append(change(1, vec![put(desired("a"), "2"), gone(desired("b"))])).await.unwrap();
    store.append(flip(vec![put(in_force("a"), "2")])).await.unwrap();
    store.write_record(record("a/m", None, Some("warm"))).await.unwrap();
    store.backup(file.clone()).await.unwrap();
    let now = digits(&std::fs::read(&file).unwrap());
    assert_eq!(now, FIRST, "this release writes what the latest file has, or has a file of its own:\n{now}");

    let (restored, file) = (bench.fresh().await, bench.file("then"));
    std::fs::write(&file, bytes(FIRST)).unwrap();
    assert_eq!(restored.restore(file).await.unwrap().revision, Revision(3));
    assert_eq!(content(&*restored).await, content(&*store).await);
}
