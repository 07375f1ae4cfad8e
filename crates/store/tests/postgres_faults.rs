//! What a PostgreSQL server can do to a store: hang, die, come back, end connections, and keep what was promised all the while.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "support/deaf.rs"]
mod deaf;
mod support;

use holdfast_store::{Applied, Commit, Error, Postgres, PostgresOptions, Space, Store};
use holdfast_testkit::{PostgresServer, Proc, eventually};
use holdfast_types::Revision;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{PATIENCE, all, at, change, desired, digest_of, flip, in_force, put};

const LEADING: &str = "HOLDFAST_TEST_LEADING";

const DEADLINE: Duration = Duration::from_secs(3);
/// What a call may take beyond its deadline on a busy machine.
const SLACK: Duration = Duration::from_secs(8);

fn options(server: &PostgresServer) -> PostgresOptions {
    PostgresOptions { deadline: DEADLINE, connect: Duration::from_secs(1), ..PostgresOptions::new(server.url()) }
}

async fn open(server: &PostgresServer) -> Arc<Postgres> {
    Arc::new(Postgres::open(options(server)).await.unwrap())
}

fn forty(value: u64) -> Vec<holdfast_store::Edit> {
    (0..40).map(|n| put(at(Space::Desired, "tenant", &format!("t{n}")), value)).collect()
}

/// The whole of the store agrees with itself, and no change is there by half.
async fn sound(store: &dyn Store) -> u64 {
    let head = eventually("an answer", PATIENCE, async || store.head().await.ok()).await;
    assert_eq!(head.digests.desired, digest_of(store, Space::Desired, None).await);
    let found = all(store, Space::Desired, None, 1_000).await;
    assert!(found.is_empty() || found.len() == 40, "half a change: {}", found.len());
    assert!(found.iter().all(|resource| resource.revision == head.revision));
    assert_eq!(store.history(None, 1_000).await.unwrap().len() as u64, head.revision.0);
    head.revision.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_is_an_error_in_time_and_nothing_is_half_written() {
    let server = PostgresServer::start().await;
    let store = open(&server).await;
    store.append(change(0, forty(0))).await.unwrap();
    let leader = store.lead().await.unwrap().unwrap();
    server.freeze();
    let begin = Instant::now();
    let (read, write, check) = tokio::join!(store.head(), store.append(change(1, forty(1))), leader.check());
    assert!(begin.elapsed() < DEADLINE + SLACK, "{:?}", begin.elapsed());
    for error in [read.unwrap_err(), write.unwrap_err()] {
        assert!(matches!(error, Error::Timeout { .. } | Error::Unavailable { .. }), "{error:?}");
        assert_eq!(error.applied(), Applied::No, "no commit was on its way: {error}");
        assert!(error.retryable());
    }
    assert!(matches!(check, Err(Error::NotLeader { .. })), "who cannot ask does not lead");
    // With every connection thrown away, new ones are accepted by the kernel and never answered.
    let begin = Instant::now();
    let refused = store.head().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. } | Error::Timeout { .. }), "{refused:?}");
    assert!(begin.elapsed() < DEADLINE + SLACK);
    server.thaw();
    assert_eq!(sound(&*store).await, 1);
    store.append(change(1, forty(2))).await.unwrap();
    assert_eq!(sound(&*store).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_again_and_again_keeps_what_it_answered() {
    let mut server = PostgresServer::start().await;
    let store = open(&server).await;
    let mut watch = store.watch();
    let mut promised = 0;
    for round in 0..4 {
        let stop = Arc::new(AtomicBool::new(false));
        let writer = tokio::spawn(append_until(Arc::clone(&store), promised, Arc::clone(&stop)));
        let target = Revision(promised + 3);
        eventually("some commits", PATIENCE, async || (store.watch().last() >= target).then_some(())).await;
        server.kill9();
        stop.store(true, Ordering::Release);
        let answered = writer.await.unwrap();
        let begin = Instant::now();
        let gone = store.head().await.unwrap_err();
        assert!(matches!(gone, Error::Unavailable { .. }) && gone.retryable(), "{gone:?}");
        assert!(begin.elapsed() < DEADLINE + SLACK);
        server.restart().await;
        let head = sound(&*store).await;
        assert!(head >= answered && head <= answered + 1, "round {round}: {answered} was answered, {head} is there");
        promised = head;
    }
    // The listener has come back by itself.
    store.append(change(promised, forty(9))).await.unwrap();
    let end = Revision(promised + 1);
    eventually("the listener", PATIENCE, async || (watch.changed().await.unwrap() >= end).then_some(())).await;
}

/// Appends until told to stop or the server is gone; the last revision that was answered.
async fn append_until(store: Arc<Postgres>, mut head: u64, stop: Arc<AtomicBool>) -> u64 {
    while !stop.load(Ordering::Acquire) {
        match store.append(change(head, forty(head))).await {
            Ok(header) => head = header.revision.0,
            // Tried again after a lost answer it would be in conflict with itself: the answer is open, and said to be.
            Err(error) => {
                assert!(matches!(error, Error::Unavailable { .. } | Error::Timeout { .. }), "{error:?}");
                return head;
            }
        }
    }
    head
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_the_server_ends_are_made_again() {
    let server = PostgresServer::start().await;
    let store = open(&server).await;
    let mut head = 0;
    for round in 0..3_u64 {
        head = store.append(change(head, forty(round))).await.unwrap().revision.0;
        let ended = server
            .sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'holdfast'");
        assert!(ended.parse::<u32>().unwrap() >= 1, "{ended}");
        assert_eq!(store.head().await.unwrap().revision, Revision(head), "a read goes over a new connection");
    }
    // A process that dies by itself takes all connections of the server with it, for a moment.
    let pid = server.sql("SELECT min(pid) FROM pg_stat_activity WHERE application_name = 'holdfast'");
    server.kill9_backend(&pid);
    assert_eq!(sound(&*store).await, head);
    let next = eventually("a commit", PATIENCE, async || store.append(change(head, forty(7))).await.ok()).await;
    assert_eq!(next.revision, Revision(head + 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_connection_is_ended_knows_and_another_follows() {
    let server = PostgresServer::start().await;
    let (first, second) = (open(&server).await, open(&server).await);
    let mut leader = first.lead().await.unwrap().unwrap();
    let holder = "SELECT pid FROM pg_locks WHERE locktype = 'advisory'";
    let _ = server.sql(&format!("SELECT pg_terminate_backend(pid) FROM ({holder}) l"));
    tokio::time::timeout(PATIENCE, leader.lost()).await.expect("the loss is noticed without a check");
    assert!(!leader.holds() && leader.check().await.is_err());
    let next = eventually("the next leader", PATIENCE, async || second.lead().await.unwrap()).await;
    assert!(next.term() > leader.term());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_is_stuck_behind_a_lock_gives_up_and_readers_do_not_care() {
    let server = PostgresServer::start().await;
    let store = open(&server).await;
    store.append(change(0, forty(0))).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.unwrap();
    let driver = tokio::spawn(connection);
    client.batch_execute("BEGIN; SELECT state FROM holdfast.meta FOR UPDATE").await.unwrap();
    let begin = Instant::now();
    // More writers than there are connections.
    let writers = (0..8_u64).map(|n| (Arc::clone(&store), change(1, forty(n))));
    let writers: Vec<_> =
        writers.map(|(store, change)| tokio::spawn(async move { store.append(change).await })).collect();
    let mut reads = 0;
    for writer in writers {
        while !writer.is_finished() {
            assert_eq!(store.head().await.unwrap().revision, Revision(1));
            reads += 1;
        }
        let stuck = writer.await.unwrap().unwrap_err();
        assert!(matches!(stuck, Error::Timeout { applied: Applied::No, .. }), "{stuck:?}");
    }
    assert!(begin.elapsed() < DEADLINE + SLACK && reads > 10, "{reads} reads in {:?}", begin.elapsed());
    client.batch_execute("ROLLBACK").await.unwrap();
    store.append(change(1, forty(2))).await.unwrap();
    assert_eq!(sound(&*store).await, 2);
    driver.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_calls_than_may_wait_are_refused_at_once() {
    let server = PostgresServer::start().await;
    let small = PostgresOptions { connections: 1, queue: 2, ..options(&server) };
    let store = Arc::new(Postgres::open(small).await.unwrap());
    server.freeze();
    let calls: Vec<_> =
        (0..8).map(|_| Arc::clone(&store)).map(|s| tokio::spawn(async move { s.head().await })).collect();
    let mut refused = 0;
    for call in calls {
        match call.await.unwrap() {
            Err(Error::Overloaded { waiting: 2 }) => refused += 1,
            Err(Error::Timeout { .. } | Error::Unavailable { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(refused, 5, "one at work, two waiting");
    server.thaw();
    eventually("an answer", PATIENCE, async || store.head().await.ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_there_is_an_error_in_time_without_the_password() {
    let mut server = PostgresServer::start().await;
    let wrong = server.url().replace(PostgresServer::PASSWORD, "hunter2");
    let refused = Postgres::open(PostgresOptions { url: wrong, ..options(&server) }).await.unwrap_err();
    assert!(matches!(refused, Error::Backend { .. }), "a wrong password is not tried again: {refused:?}");
    let store = open(&server).await;
    server.kill9();
    let begin = Instant::now();
    let gone = Postgres::open(options(&server)).await.unwrap_err();
    assert!(matches!(gone, Error::Unavailable { .. }), "{gone:?}");
    assert!(begin.elapsed() < DEADLINE + SLACK);
    let gone_later = store.head().await.unwrap_err();
    for text in [format!("{refused} {refused:?}"), format!("{gone} {gone:?} {gone_later} {gone_later:?} {store:?}")] {
        assert!(!text.contains("hunter2") && !text.contains(PostgresServer::PASSWORD), "{text}");
    }
    assert!(!gone.public().contains("127.0.0.1"), "{}", gone.public());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_schema_is_refused_and_nothing_is_touched() {
    let server = PostgresServer::start().await;
    let store = open(&server).await;
    store.append(change(0, vec![put(desired("a"), "1"), put(in_force("a"), "1")])).await.unwrap();
    let _ = server.sql("UPDATE holdfast.meta SET schema = 7");
    let before = server.sql("SELECT * FROM holdfast.meta");
    let refused = Postgres::open(options(&server)).await.unwrap_err();
    assert!(matches!(refused, Error::NewerSchema { found: 7, known: 1 }), "{refused:?}");
    assert_eq!(server.sql("SELECT * FROM holdfast.meta"), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_open_a_new_store_at_once() {
    let server = PostgresServer::start().await;
    let slow = PostgresOptions { deadline: PATIENCE, connect: PATIENCE, ..options(&server) };
    let opens: Vec<_> = (0..6).map(|_| tokio::spawn(Postgres::open(slow.clone()))).collect();
    for open in opens {
        open.await.unwrap().unwrap();
    }
    assert_eq!(server.sql("SELECT count(*) FROM holdfast.meta"), "1");
}

/// Notifications are not kept for those who are away: after each reconnect the head is looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changed_while_nobody_listened_is_seen() {
    let server = PostgresServer::start().await;
    let (reader, writer) = (open(&server).await, open(&server).await);
    let watch = reader.watch();
    writer.append(change(0, forty(0))).await.unwrap();
    eventually("the first revision", PATIENCE, async || (watch.last() == Revision(1)).then_some(())).await;
    for head in 1..4 {
        let ended = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                     WHERE application_name = 'holdfast' AND query LIKE 'LISTEN%' OR query LIKE 'SELECT state%'";
        let (ended, appended) = (server.sql(ended), writer.append(change(head, forty(head))).await);
        assert!(ended.parse::<u32>().unwrap() >= 1 && appended.is_ok(), "{ended} {appended:?}");
        eventually("the news", PATIENCE, async || (watch.last() == Revision(head + 1)).then_some(())).await;
    }
}

/// The one case in which nobody can know: COMMIT has reached the server, its answer has not reached the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_a_commit_is_said_to_be_open_and_not_sent_again() {
    let server = PostgresServer::start().await;
    let direct = open(&server).await;
    let proxy = deaf::Proxy::start(server.port()).await;
    let url = server.url().replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.port()));
    let store = Postgres::open(PostgresOptions { url, ..options(&server) }).await.unwrap();
    store.append(change(0, forty(0))).await.unwrap();
    for (cut, base) in [(false, 1), (true, 2)] {
        proxy.swallow_answers_to_commits(cut);
        let begin = Instant::now();
        let lost = store.append(change(base, forty(base))).await.unwrap_err();
        assert!(matches!(lost, Error::Timeout { .. } | Error::Unavailable { .. }), "{lost:?}");
        assert_eq!((lost.applied(), lost.retryable()), (Applied::Maybe, false), "{lost}");
        assert!(lost.to_string().contains("compare with the head") && begin.elapsed() < DEADLINE + SLACK, "{lost}");
        proxy.let_through();
        assert_eq!(sound(&*direct).await, base + 1, "it had happened, once");
        assert_eq!(
            store.history(None, 1).await.unwrap()[0].reason,
            format!("after {base}"),
            "the head tells whose it is"
        );
    }
    store.append(change(3, forty(9))).await.unwrap();
}

/// With an address in its environment this is the child of the test below, and leads until it is killed.
#[tokio::test]
async fn child_leads_until_it_is_killed() {
    let Some(url) = std::env::var_os(LEADING) else { return };
    let url = url.into_string().unwrap();
    let store = Postgres::open(PostgresOptions { deadline: DEADLINE, ..PostgresOptions::new(url) }).await.unwrap();
    let leader = store.lead().await.unwrap().unwrap();
    println!("leads term {}", leader.term());
    loop {
        // On purpose without a check before: the term alone has to hold it back.
        let change = Some(holdfast_store::Change { base: None, ..flip(vec![put(in_force("a"), leader.term())]) });
        match store.commit(Commit { change, term: Some(leader.term()), ..Commit::default() }).await {
            Ok(_) => println!("committed"),
            Err(Error::Fenced { highest, .. }) => println!("fenced by {highest}, holds {}", leader.holds()),
            Err(error) => println!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_freezes_loses_the_seat_and_is_refused_when_it_wakes() {
    let server = PostgresServer::start().await;
    let store = open(&server).await;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_leads_until_it_is_killed", "--nocapture"]).env(LEADING, server.url());
    let child = Proc::start("leading child", command);
    eventually("a commit of the child", PATIENCE, async || child.output().contains("committed").then_some(())).await;
    assert!(store.lead().await.unwrap().is_none());
    child.freeze();
    let leader = eventually("the seat", PATIENCE, async || store.lead().await.ok().flatten()).await;
    assert_eq!(leader.term(), 2);
    leader.check().await.unwrap();
    let before = store.head().await.unwrap();
    child.thaw();
    eventually("the refusal", PATIENCE, async || child.output().contains("fenced by 2").then_some(())).await;
    eventually("the news", PATIENCE, async || child.output().contains("holds false").then_some(())).await;
    assert_eq!(store.head().await.unwrap(), before);
    leader.check().await.unwrap();
}
