//! Leadership and the fencing of those who led before.

use crate::support::{Bench, PATIENCE, flip, in_force, put, record};
use holdfast_store::{Commit, Error};
use holdfast_testkit::eventually;

pub async fn one_leads_and_terms_grow(bench: Bench) {
    let name = Bench::name();
    let first = bench.open(&name).await;
    let second = bench.second(&name, &first).await;
    let leader = first.lead().await.unwrap().expect("the first leads");
    assert_eq!(leader.term(), 1);
    leader.check().await.unwrap();
    assert!(second.lead().await.unwrap().is_none(), "there is one leader");
    leader.check().await.unwrap();
    drop(leader);
    let next = eventually("the seat", PATIENCE, async || second.lead().await.unwrap()).await;
    assert_eq!((next.term(), first.head().await.unwrap().term), (2, 2));
    next.check().await.unwrap();
    assert!(first.lead().await.unwrap().is_none());
    second.close().await.unwrap();
    let over = eventually("the end of the leadership", PATIENCE, async || next.check().await.err()).await;
    assert!(matches!(over, Error::NotLeader { term: 2 }) && !next.holds(), "{over:?}");
}

pub async fn who_led_before_is_refused(bench: Bench) {
    let store = bench.fresh().await;
    let leader = store.lead().await.unwrap().unwrap();
    let old = leader.term();
    let commit = |term, n: u64| {
        let change = Some(flip(vec![put(in_force("a"), n)]));
        Commit { change, term, ..Commit::default() }
    };
    let done = store.commit(commit(Some(old), 1)).await.unwrap();
    assert_eq!(done.header.unwrap().term, Some(old));
    drop(leader);
    let new = eventually("the seat", PATIENCE, async || store.lead().await.unwrap()).await.term();
    assert!(new > old);
    let before = store.head().await.unwrap();
    let late = store.commit(commit(Some(old), 2)).await;
    assert!(matches!(late, Err(Error::Fenced { term, highest }) if (term, highest) == (old, new)), "{late:?}");
    let records = Commit { records: vec![record("a", None, Some("x"))], term: Some(old), ..Commit::default() };
    assert!(matches!(store.commit(records).await, Err(Error::Fenced { .. })));
    assert_eq!(store.head().await.unwrap(), before, "a refused leader leaves nothing");
    store.commit(commit(Some(new), 3)).await.unwrap();
    store.commit(commit(None, 4)).await.unwrap();
    store.commit(commit(Some(new + 5), 5)).await.unwrap();
    assert!(matches!(store.commit(commit(Some(new), 6)).await, Err(Error::Fenced { .. })), "a higher term was seen");
}
