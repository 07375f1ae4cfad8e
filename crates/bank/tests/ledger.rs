//! The ledger of submissions: in a file, and in a real Redis. The first one wins, whoever comes at the same time, and what was said to be kept is kept.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use holdfast_bank::access::Access;
use holdfast_bank::file::{File, First};
use holdfast_bank::ledger::{self, Ledger};
use holdfast_bank::{Down, Options, Store};
use holdfast_testkit::{RedisServer, TempDir, eventually};

const PATIENCE: Duration = Duration::from_secs(20);

fn key(n: u8) -> [u8; 16] {
    [n; 16]
}

async fn fresh(file: &File, n: u8, record: &str, until: u64, now: u64) {
    let Ok(First::Fresh(durable)) = file.first(key(n), record.as_bytes().to_vec(), until, now).await else {
        panic!("{n} was to be new");
    };
    assert_eq!(durable.await, Ok(Ok(())));
}

async fn held(file: &File, n: u8, now: u64) -> String {
    match file.first(key(n), b"another".to_vec(), now + 1_000, now).await {
        Ok(First::Held(record, durable)) => {
            if let Some(durable) = durable {
                assert_eq!(durable.await, Ok(Ok(())));
            }
            String::from_utf8(record).unwrap()
        }
        other => panic!("{n}: {other:?}"),
    }
}

#[tokio::test]
async fn a_file_keeps_the_first_over_restarts_until_its_time() {
    let dir = TempDir::new();
    let path = dir.join("ledger.redb");
    let file = File::open(&path, 100).unwrap();
    fresh(&file, 1, "one", 1_000, 0).await;
    fresh(&file, 2, "two", 500, 0).await;
    assert_eq!(held(&file, 1, 10).await, "one");
    assert!(File::open(&path, 100).is_err(), "one process has it");
    drop(file);
    // Its threads let go of it when their queues have ended.
    let file = eventually("the file to be free", PATIENCE, async || File::open(&path, 100).ok()).await;
    assert_eq!((file.entries(), held(&file, 1, 999).await, held(&file, 2, 499).await), (2, "one".into(), "two".into()));
    fresh(&file, 2, "another two", 2_000, 500).await;
    assert_eq!(held(&file, 2, 600).await, "another two");
    // What is over goes with the next commit.
    fresh(&file, 3, "three", 9_000, 1_001).await;
    assert_eq!(file.entries(), 2);
}

#[tokio::test]
async fn a_full_file_says_so_and_holds_what_it_has() {
    let dir = TempDir::new();
    let file = File::open(&dir.join("ledger.redb"), 2).unwrap();
    fresh(&file, 1, "one", 1_000, 0).await;
    fresh(&file, 2, "two", 1_000, 0).await;
    assert!(matches!(file.first(key(3), b"three".to_vec(), 1_000, 0).await, Err(Down::Answered(_))));
    assert_eq!(held(&file, 1, 1).await, "one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_at_once_one_is_first() {
    let dir = TempDir::new();
    let file = Arc::new(File::open(&dir.join("ledger.redb"), 1_000).unwrap());
    for n in 0..20 {
        let asks: Vec<_> = (0..16)
            .map(|who: u8| {
                let file = file.clone();
                tokio::spawn(async move {
                    match file.first(key(n), vec![who], 1_000, 0).await.unwrap() {
                        First::Fresh(durable) => (who, true, durable.await),
                        First::Held(record, Some(durable)) => (record[0], false, durable.await),
                        First::Held(record, None) => (record[0], false, Ok(Ok(()))),
                    }
                })
            })
            .collect();
        let mut told = Vec::new();
        for ask in asks {
            told.push(ask.await.unwrap());
        }
        assert_eq!(told.iter().filter(|(_, fresh, _)| *fresh).count(), 1, "{told:?}");
        assert!(told.iter().all(|(who, _, durable)| *who == told[0].0 && *durable == Ok(Ok(()))), "{told:?}");
    }
}

async fn store(redis: &RedisServer, seed: u64) -> Arc<Store> {
    let (url, within) = (redis.url(), Duration::from_millis(500));
    let options = Options {
        url,
        namespace: "test".into(),
        within,
        gateways: 1,
        seed,
        keeps: "ledger",
        access: Access::default(),
    };
    let store = Store::new(options).unwrap();
    tokio::spawn(store.clone().run());
    eventually("a connection", PATIENCE, async || store.state().up.then_some(())).await;
    store
}

const KEEP: Duration = Duration::from_secs(60);

/// A store that was empty a moment ago is not believed. Then two gateways agree; what is lost is known to be lost; what is told again comes back.
#[tokio::test]
async fn gateways_agree_and_a_store_that_forgot_is_not_believed() {
    let redis = RedisServer::start().await;
    let (one, other) = (store(&redis, 1).await, store(&redis, 2).await);
    let ledger = Ledger::default();
    let first = async |store: &Store, name: &str, record: &[u8]| {
        ledger.first(store, (name, 7), record, KEEP).await.unwrap().first
    };
    assert_eq!(first(&one, "a", b"1").await, ledger::First::Unsettled);
    // The store is as old as it has to be.
    let age = |redis: &RedisServer| {
        let _ = redis.command(&["SET", "holdfast:test:{7}:born", "1000000"]);
    };
    age(&redis);
    assert_eq!(first(&one, "a", b"1").await, ledger::First::Fresh);
    assert_eq!(first(&other, "a", b"2").await, ledger::First::Held(b"1".to_vec()));
    assert_eq!(first(&one, "a", b"3").await, ledger::First::Held(b"1".to_vec()));
    let left: i64 = redis.command(&["PTTL", "holdfast:test:{7}:submission:a"]).trim_start_matches(':').parse().unwrap();
    assert!((1..=60_000).contains(&left), "{left}");
    let _ = redis.command(&["FLUSHALL"]);
    let told = ledger.first(&other, ("a", 7), b"2", KEEP).await.unwrap();
    assert_eq!(told.first, ledger::First::Unsettled);
    assert!(told.born > 1_000_000, "it is known when it forgot");
    assert_eq!(ledger.again(&one, ("a", 7), b"1", KEEP).await.unwrap().first, ledger::First::Fresh);
    assert_eq!(first(&other, "a", b"2").await, ledger::First::Held(b"1".to_vec()));
}

#[tokio::test]
async fn a_store_that_hangs_fails_a_call_by_its_deadline() {
    let redis = RedisServer::start().await;
    let store = store(&redis, 1).await;
    redis.proc.freeze();
    let told = Ledger::default().first(&store, ("a", 7), b"1", KEEP).await;
    assert!(matches!(told, Err(Down::Late | Down::Away)), "{told:?}");
    redis.proc.thaw();
    eventually("the store to answer", PATIENCE, async || store.born(7).await.ok()).await;
}
