//! Records of state machines, alone and together with a change.

use crate::support::{Bench, change, desired, flip, in_force, json, put, record};
use holdfast_store::{Commit, Error, Store};
use holdfast_types::Revision;

async fn version(store: &dyn Store, id: &str) -> Option<u64> {
    store.record("rollout".to_owned(), id.to_owned()).await.unwrap().map(|record| record.version)
}

pub async fn a_record_is_compared_and_set(bench: Bench) {
    let name = Bench::name();
    let store = bench.open(&name).await;
    assert_eq!(version(&*store, "a").await, None);
    let first = store.write_record(record("a", None, Some("warm"))).await.unwrap().unwrap();
    let exists = store.write_record(record("a", None, Some("warm"))).await.unwrap_err();
    assert!(
        matches!(&exists, Error::RecordConflict { expected: None, found, .. } if *found == Some(first)),
        "{exists:?}"
    );
    let second = store.write_record(record("a", Some(first), Some("flip"))).await.unwrap().unwrap();
    assert!(second > first);
    for stale in [record("a", Some(first), Some("x")), record("a", Some(first), None), record("b", Some(1), Some("x"))]
    {
        let refused = store.write_record(stale).await;
        assert!(matches!(refused, Err(Error::RecordConflict { .. })), "{refused:?}");
    }
    store.close().await.unwrap();
    let store = bench.open(&name).await;
    let kept = store.record("rollout".to_owned(), "a".to_owned()).await.unwrap().unwrap();
    assert_eq!((kept.version, kept.value), (second, json("flip")));
    assert_eq!(store.write_record(record("a", Some(second), None)).await.unwrap(), None);
    assert_eq!(version(&*store, "a").await, None);
    let third = store.write_record(record("a", None, Some("again"))).await.unwrap().unwrap();
    assert!(third > second, "a version is never used twice");
    assert_eq!(store.head().await.unwrap().revision, Revision(0), "records are no revisions");
}

pub async fn a_change_and_its_records_are_one(bench: Bench) {
    let store = bench.fresh().await;
    store.append(change(0, vec![put(desired("a"), "1")])).await.unwrap();
    let first = store.write_record(record("a", None, Some("warm"))).await.unwrap();
    let before = store.head().await.unwrap();

    let change_of = |base| Some(change(base, vec![put(desired("a"), "2"), put(in_force("a"), "2")]));
    let stale_record = Commit {
        change: change_of(1),
        records: vec![record("b", None, Some("x")), record("a", Some(99), Some("x"))],
        ..Commit::default()
    };
    assert!(matches!(store.commit(stale_record).await, Err(Error::RecordConflict { .. })));
    let stale_change =
        Commit { change: change_of(0), records: vec![record("a", first, Some("x"))], ..Commit::default() };
    assert!(matches!(store.commit(stale_change).await, Err(Error::Conflict(_))));
    assert_eq!(store.head().await.unwrap(), before);
    assert_eq!((version(&*store, "a").await, version(&*store, "b").await), (first, None));

    let both = Commit {
        change: Some(flip(vec![put(in_force("a"), "1")])),
        records: vec![record("b", None, Some("new")), record("a", first, None)],
        ..Commit::default()
    };
    let done = store.commit(both).await.unwrap();
    assert_eq!(done.header.unwrap().revision, Revision(2));
    assert!(done.versions.len() == 2 && done.versions[0] > first && done.versions[1].is_none(), "{:?}", done.versions);
    assert_eq!((version(&*store, "a").await, version(&*store, "b").await), (None, done.versions[0]));
}

pub async fn records_are_listed_in_pages(bench: Bench) {
    let store = bench.fresh().await;
    let ids = ["a", "a-1", "a/1", "a/2", "b", "c"];
    let records = ids.iter().rev().map(|id| record(id, None, Some(id))).collect();
    store.commit(Commit { records, ..Commit::default() }).await.unwrap();
    let other = holdfast_store::RecordWrite { kind: "rollout_x".to_owned(), ..record("a", None, Some("x")) };
    store.write_record(other).await.unwrap();
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.records("rollout".to_owned(), after.clone(), 4).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.id.clone());
        found.extend(page);
    }
    assert_eq!(found.iter().map(|r| r.id.as_str()).collect::<Vec<_>>(), ids);
    assert!(found.iter().all(|r| r.value == json(&r.id)));
    assert!(matches!(store.records("No Kind".to_owned(), None, 4).await, Err(Error::Invalid { .. })));
}
