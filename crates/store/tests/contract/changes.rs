//! Changes, conflicts, writers at the same time, and following the head.

use crate::support::{
    Bench, PATIENCE, all, at, change, desired, digest_of, flip, gone, in_force, json, key, put, record,
};
use holdfast_store::{Commit, Error, Purpose, Space, Store, digest};
use holdfast_types::Revision;
use std::sync::Arc;
use std::time::Duration;

pub async fn an_empty_store(bench: Bench) {
    let store = bench.fresh().await;
    let head = store.head().await.unwrap();
    let empty = digest::Buckets::default().root();
    assert_eq!((head.revision, head.desired, head.in_force, head.term), (Revision(0), Revision(0), Revision(0), 0));
    assert_eq!((head.digests.desired, head.digests.in_force), (empty, empty));
    for space in Space::ALL {
        assert!(all(&*store, space, None, 10).await.is_empty());
        assert!(all(&*store, space, Some(Revision(0)), 10).await.is_empty());
    }
    assert!(store.history(None, 10).await.unwrap().is_empty());
    assert!(store.diff(Revision(0), Revision(0), None, 10).await.unwrap().items.is_empty());
    assert_eq!(store.watch().last(), Revision(0));
    for revision in [0, 1] {
        let edits = store.edits(Revision(revision), None, 10).await;
        assert!(matches!(edits, Err(Error::NoRevision { .. })), "{revision}: {edits:?}");
    }
    let future = store.read(Space::Desired, Some(Revision(1)), None, 10).await;
    assert!(matches!(future, Err(Error::NoRevision { .. })), "{future:?}");
}

pub async fn a_change_is_one_revision_and_survives(bench: Bench) {
    let name = Bench::name();
    let store = bench.open(&name).await;
    let edits =
        vec![put(desired("b/m"), "2"), put(in_force("a/m"), "1"), put(desired("a/m"), "1"), gone(desired("c/m"))];
    let header = store.append(change(0, edits)).await.unwrap();
    assert_eq!((header.revision, header.parent, header.edits, header.term), (Revision(1), Revision(0), 3, None));
    assert_eq!((header.author.as_str(), header.reason.as_str(), header.at_ms), ("ann", "after 0", 1_700_000_000_000));
    assert_eq!(header.purpose, Purpose::Change);
    store.append(flip(vec![put(in_force("b/m"), "2")])).await.unwrap();
    store.close().await.unwrap();

    let store = bench.open(&name).await;
    let head = store.head().await.unwrap();
    assert_eq!((head.revision, head.desired, head.in_force), (Revision(2), Revision(1), Revision(2)));
    assert_eq!(head.digests.desired, head.digests.in_force, "both spaces hold the same now");
    assert_eq!(head.digests.desired, digest_of(&*store, Space::Desired, None).await);
    let read = all(&*store, Space::InForce, None, 10).await;
    let shown: Vec<_> = read.iter().map(|r| (r.key.name(), r.revision.0, r.value.as_bytes())).collect();
    assert_eq!(shown, [("a/m", 1, b"\"1\"".as_slice()), ("b/m", 2, b"\"2\"")]);
    let edits = store.edits(Revision(1), None, 10).await.unwrap().items;
    assert_eq!(edits, [put(desired("a/m"), "1"), put(desired("b/m"), "2"), put(in_force("a/m"), "1")]);
    let history = store.history(None, 10).await.unwrap();
    assert_eq!(history.iter().map(|h| h.revision.0).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(history[1], header);
    assert_eq!(store.history(Some(Revision(2)), 10).await.unwrap(), [header]);
}

pub async fn a_conflict_names_what_changed(bench: Bench) {
    let store = bench.fresh().await;
    store.append(change(0, vec![put(desired("a/m"), "1")])).await.unwrap();
    store.append(change(1, vec![put(desired("a/m"), "2"), put(desired("z/m"), "1")])).await.unwrap();
    let before = store.head().await.unwrap();
    let refused = store.append(change(1, vec![put(desired("q/m"), "9")])).await.unwrap_err();
    let Error::Conflict(conflict) = &refused else { panic!("{refused:?}") };
    assert_eq!(
        (conflict.seen, conflict.head, conflict.desired, conflict.more),
        (Revision(1), Revision(2), Revision(2), false)
    );
    assert_eq!(conflict.since, store.history(None, 1).await.unwrap());
    assert_eq!(conflict.places, [(Revision(2), desired("a/m")), (Revision(2), desired("z/m"))]);
    assert!(!refused.retryable() && refused.public().contains("desired pin a/m at 2"), "{}", refused.public());
    assert_eq!(store.head().await.unwrap(), before, "a refused change leaves nothing");

    for n in 2..30 {
        store.append(change(n, vec![put(desired("a/m"), n)])).await.unwrap();
    }
    let Err(Error::Conflict(long)) = store.append(change(3, vec![])).await else { panic!("no conflict") };
    assert!(long.more && long.since.len() == 16 && long.places.len() == 16, "bounded");
    assert_eq!((long.since[0].revision, long.head), (Revision(4), Revision(30)));
    let future = store.append(change(31, vec![])).await;
    assert!(matches!(future, Err(Error::NoRevision { .. })), "{future:?}");
}

pub async fn flips_do_not_stand_in_the_way_of_changes(bench: Bench) {
    let store = bench.fresh().await;
    store.append(change(0, vec![put(desired("a/m"), "1")])).await.unwrap();
    for n in 0..3 {
        store.append(flip(vec![put(in_force("a/m"), n)])).await.unwrap();
    }
    let header = store.append(change(1, vec![put(desired("a/m"), "2")])).await.unwrap();
    assert_eq!((header.revision, header.parent), (Revision(5), Revision(1)));
    let late = holdfast_store::Change { base: Some(Revision(4)), ..flip(vec![put(in_force("a/m"), "2")]) };
    assert!(matches!(store.append(late).await, Err(Error::Conflict(_))), "a flip that names its base is held to it");
    let wrong = store.append(flip(vec![put(desired("a/m"), "3")])).await;
    assert!(matches!(wrong, Err(Error::Invalid { .. })), "{wrong:?}");
}

pub async fn of_two_writers_one_wins(bench: Bench) {
    let name = Bench::name();
    let first = bench.open(&name).await;
    let second = bench.second(&name, &first).await;
    for base in 0..10 {
        let one = first.append(change(base, vec![put(desired("a/m"), format!("one {base}"))]));
        let two = second.append(change(base, vec![put(desired("a/m"), format!("two {base}"))]));
        let (one, two) = tokio::join!(one, two);
        assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
        let lost = one.and(two).unwrap_err();
        let Error::Conflict(conflict) = lost else { panic!("{lost:?}") };
        assert_eq!(conflict.head, Revision(base + 1));
    }
    assert_eq!(second.head().await.unwrap(), first.head().await.unwrap());
}

/// Each writer reads a number, adds one, and writes it against the revision that it read.
pub async fn no_increment_of_many_writers_is_lost(bench: Bench) {
    const WRITERS: usize = 4;
    const EACH: u64 = 12;
    let name = Bench::name();
    let first = bench.open(&name).await;
    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        let store = bench.second(&name, &first).await;
        writers.push(tokio::spawn(async move {
            let mut done = 0;
            while done < EACH {
                let head = store.head().await.unwrap();
                let now = store.get(desired("n"), Some(head.revision)).await.unwrap();
                let now = now.map_or(0, |resource| resource.value.value().unwrap().as_u64().unwrap());
                match store.append(change(head.revision.0, vec![put(desired("n"), now + 1)])).await {
                    Ok(_) => done += 1,
                    Err(Error::Conflict(_)) => {}
                    Err(e) => panic!("{e}"),
                }
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let sum = WRITERS as u64 * EACH;
    let last = first.get(desired("n"), None).await.unwrap().unwrap();
    assert_eq!((last.value, last.revision), (json(sum), Revision(sum)));
    assert_eq!(first.head().await.unwrap().digests.desired, digest_of(&*first, Space::Desired, None).await);
}

pub async fn a_large_change_is_one_revision(bench: Bench) {
    const MANY: usize = 5_000;
    let store = bench.fresh().await;
    let big = "x".repeat(holdfast_store::MAX_VALUE_BYTES - 2);
    let mut edits: Vec<_> = (0..MANY).map(|n| put(at(Space::Desired, "tenant", &format!("t{n}")), n)).collect();
    edits.push(put(at(Space::Desired, "model", "big"), big.as_str()));
    let header = store.append(change(0, edits)).await.unwrap();
    assert_eq!(header.edits, MANY as u64 + 1);
    assert_eq!(header.digests.desired, digest_of(&*store, Space::Desired, None).await);
    assert_eq!(store.get(at(Space::Desired, "model", "big"), None).await.unwrap().unwrap().value, json(big));
    let (mut seen, mut after) = (0, None);
    loop {
        let page = store.edits(Revision(1), after, 700).await.unwrap();
        seen += page.items.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, MANY + 1);
    let half = (0..MANY).step_by(2).map(|n| gone(at(Space::Desired, "tenant", &format!("t{n}")))).collect();
    let header = store.append(change(1, half)).await.unwrap();
    assert_eq!(header.digests.desired, digest_of(&*store, Space::Desired, None).await);
    assert_eq!(all(&*store, Space::Desired, None, 1_000).await.len(), MANY / 2 + 1);
    assert_eq!(all(&*store, Space::Desired, Some(Revision(1)), 1_000).await.len(), MANY + 1);
}

/// Shorter than the 15 s after which a head is looked at without being told.
const NEWS: Duration = Duration::from_secs(10);

pub async fn the_head_is_followed(bench: Bench) {
    let name = Bench::name();
    let writer = bench.open(&name).await;
    let reader = bench.second(&name, &writer).await;
    let mut watch = reader.watch();
    writer.append(change(0, vec![put(desired("a"), 0)])).await.unwrap();
    let seen = tokio::time::timeout(NEWS, watch.changed()).await.expect("a notification").unwrap();
    assert_eq!(seen, Revision(1));
    for n in 1..20 {
        writer.append(change(n, vec![put(desired("a"), n)])).await.unwrap();
    }
    let (mut last, mut looks) = (Revision(1), 0);
    while last < Revision(20) {
        let next = tokio::time::timeout(NEWS, watch.changed()).await.expect("a notification").unwrap();
        assert!(next > last, "{next} after {last}");
        (last, looks) = (next, looks + 1);
    }
    assert!(looks <= 19);
    let mut late = reader.watch();
    let at_once = tokio::time::timeout(PATIENCE, late.changed()).await.expect("the head at once").unwrap();
    assert_eq!(at_once, Revision(20));
    drop((writer, reader));
    let over = tokio::time::timeout(PATIENCE, late.changed()).await.expect("the end of the watch");
    assert!(matches!(over, Err(Error::Closed)), "{over:?}");
}

pub async fn a_closed_store_says_so(bench: Bench) {
    let name = Bench::name();
    let store = bench.open(&name).await;
    store.append(change(0, vec![put(desired("a"), 0)])).await.unwrap();
    store.close().await.unwrap();
    assert!(matches!(store.head().await, Err(Error::Closed)));
    assert!(matches!(store.append(change(1, vec![])).await, Err(Error::Closed)));
    let again: Arc<dyn Store> = bench.open(&name).await;
    assert_eq!(again.get(desired("a"), None).await.unwrap().unwrap().key, key("pin", "a"));
}

pub async fn what_is_in_force_is_compared_where_it_is_named(bench: Bench) {
    let store = bench.fresh().await;
    store.append(change(0, vec![put(desired("a"), "1"), put(in_force("a"), "1")])).await.unwrap();
    store.append(flip(vec![put(in_force("a"), "2")])).await.unwrap();
    store.append(change(1, vec![put(desired("a"), "3")])).await.unwrap();
    let before = store.head().await.unwrap();
    assert_eq!((before.desired, before.in_force), (Revision(3), Revision(2)));
    let seen = |last| Commit {
        change: Some(change(3, vec![put(in_force("a"), "4")])),
        records: vec![record("a", None, Some("x"))],
        in_force: Some(Revision(last)),
        ..Commit::default()
    };
    for stale in [0, 1, 3, 9] {
        let refused = store.commit(seen(stale)).await;
        let told = matches!(refused, Err(Error::Moved { seen, in_force }) if (seen.0, in_force.0) == (stale, 2));
        assert!(told, "{stale}: {refused:?}");
        // A record alone is held to it too.
        let records = Commit { change: None, ..seen(stale) };
        assert!(matches!(store.commit(records).await, Err(Error::Moved { .. })));
    }
    assert_eq!(store.head().await.unwrap(), before, "what is refused leaves nothing");
    store.commit(seen(2)).await.unwrap();
    assert_eq!(store.head().await.unwrap().in_force, Revision(4));
}
