//! What can happen to a redb file: a process killed in the middle of commits, a second process, files that are no stores.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod support;

use holdfast_store::{Embedded, EmbeddedOptions, Error, Space, Store};
use holdfast_testkit::{Proc, TempDir, eventually};
use holdfast_types::Revision;
use redb::{ReadableDatabase, TableDefinition};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{PATIENCE, all, at, change, desired, digest_of, put};

const FILE: &str = "HOLDFAST_TEST_STORE";

/// With a file in its environment this is the child of the tests below, and appends until it is killed. By itself it shows that the child's
/// work is in order.
#[tokio::test]
async fn child_appends_until_it_is_killed() {
    let (_dir, file, most) = match std::env::var_os(FILE) {
        // A folder of its own would be left behind by the kill.
        Some(file) => (None, PathBuf::from(file), u64::MAX),
        None => {
            let dir = TempDir::new();
            let file = dir.join("store");
            (Some(dir), file, 3)
        }
    };
    let store = open(&file).await.unwrap();
    println!("opened");
    let mut head = store.head().await.unwrap().revision.0;
    while head < most {
        let edits = (0..40).map(|n| put(at(Space::Desired, "tenant", &format!("t{n}")), head + n)).collect();
        head = store.append(change(head, edits)).await.unwrap().revision.0;
        println!("acked {head}");
    }
    assert_eq!(all(&store, Space::Desired, None, 1_000).await.len(), 40);
}

fn child(file: &Path) -> Proc {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_appends_until_it_is_killed", "--nocapture"]).env(FILE, file);
    Proc::start("appending child", command)
}

fn acked(child: &Proc) -> Option<u64> {
    let output = child.output();
    output.lines().rev().find_map(|line| line.split_once("acked ")?.1.trim().parse().ok())
}

async fn open(file: &Path) -> Result<Embedded, Error> {
    Embedded::open(file, EmbeddedOptions { deadline: PATIENCE, ..EmbeddedOptions::default() }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_killed_in_mid_append_loses_nothing_that_was_answered() {
    let dir = TempDir::new();
    let file = dir.join("store");
    let mut floor = 0;
    for round in 0..30_u64 {
        let mut child = child(&file);
        // Sometimes right after the file appears, sometimes some commits later.
        let until = floor + round % 4;
        if round == 0 {
            eventually("the file", PATIENCE, async || child.output().contains("opened").then_some(())).await;
        } else {
            eventually("commits", PATIENCE, async || acked(&child).filter(|n| *n > until)).await;
        }
        child.kill9();
        let promised = acked(&child).unwrap_or(floor);
        let store = open(&file).await.unwrap();
        let head = store.head().await.unwrap();
        assert!(head.revision.0 >= promised, "round {round}: {promised} was answered, {} is there", head.revision);
        assert!(head.revision.0 <= promised + 1, "round {round}: at most one commit was on its way");
        assert_eq!(head.digests.desired, digest_of(&store, Space::Desired, None).await, "round {round}");
        let found: Vec<_> = all(&store, Space::Desired, None, 1_000).await;
        assert!(found.is_empty() || found.len() == 40, "round {round}: half a change: {}", found.len());
        assert!(found.iter().all(|resource| resource.revision == head.revision), "round {round}");
        let history = store.history(None, 1_000).await.unwrap();
        assert_eq!(history.len() as u64, head.revision.0, "round {round}");
        floor = head.revision.0;
        store.close().await.unwrap();
    }
    assert!(floor >= 29, "the child got somewhere: {floor}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_is_refused_and_the_first_goes_on() {
    let dir = TempDir::new();
    let file = dir.join("store");
    let mut child = child(&file);
    let before = eventually("a commit", PATIENCE, async || acked(&child)).await;
    let refused = open(&file).await.unwrap_err();
    assert!(matches!(&refused, Error::InUse { path } if path.ends_with("store")), "{refused:?}");
    assert!(!refused.public().contains("store/") && !refused.retryable());
    eventually("more commits", PATIENCE, async || acked(&child).filter(|n| *n > before + 2)).await;
    child.kill9();
    open(&file).await.unwrap();
}

#[tokio::test]
async fn a_second_handle_of_one_process_is_refused_until_the_first_is_closed() {
    let dir = TempDir::new();
    let file = dir.join("store");
    let first = open(&file).await.unwrap();
    assert!(matches!(open(&file).await, Err(Error::InUse { .. })));
    first.close().await.unwrap();
    open(&file).await.unwrap();
}

#[tokio::test]
async fn what_is_no_store_is_refused_and_left_alone() {
    let dir = TempDir::new();
    let file = dir.join("store");
    let whole = {
        let store = open(&file).await.unwrap();
        store.append(change(0, vec![put(desired("a"), "1")])).await.unwrap();
        store.close().await.unwrap();
        std::fs::read(&file).unwrap()
    };
    let mut head_lost = whole.clone();
    head_lost[..512].fill(0);
    for (what, bytes) in [
        ("empty", Vec::new()),
        ("text", b"revision: 7\n".repeat(1_000)),
        ("short", whole[..100].to_vec()),
        ("zeroed", vec![0; whole.len()]),
        ("head lost", head_lost),
    ] {
        std::fs::write(&file, &bytes).unwrap();
        let refused = open(&file).await;
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{what}: {refused:?}");
        assert_eq!(std::fs::read(&file).unwrap(), bytes, "{what} was changed");
    }
    std::fs::write(&file, whole).unwrap();
    assert_eq!(open(&file).await.unwrap().head().await.unwrap().revision, Revision(1));
}

#[tokio::test]
async fn a_redb_file_of_something_else_is_refused() {
    let dir = TempDir::new();
    let file = dir.join("other");
    let other = redb::Database::create(&file).unwrap();
    let transaction = other.begin_write().unwrap();
    transaction.open_table(TableDefinition::<u64, u64>::new("meta")).unwrap().insert(1, 2).unwrap();
    transaction.commit().unwrap();
    drop(other);
    assert!(matches!(open(&file).await, Err(Error::Corrupt { .. })));
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_nothing_is_touched() {
    const META: TableDefinition<'static, &'static str, &'static [u8]> = TableDefinition::new("meta");
    let dir = TempDir::new();
    let file = dir.join("store");
    let store = open(&file).await.unwrap();
    store.append(change(0, vec![put(desired("a"), "1")])).await.unwrap();
    store.close().await.unwrap();
    let set = |schema: u64| {
        let database = redb::Database::open(&file).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(META).unwrap().insert("schema", schema.to_be_bytes().as_slice()).unwrap();
        transaction.commit().unwrap();
    };
    let schema = || {
        let database = redb::Database::open(&file).unwrap();
        let meta = database.begin_read().unwrap().open_table(META).unwrap();
        let row = meta.get("schema").unwrap().unwrap();
        u64::from_be_bytes(row.value().try_into().unwrap())
    };
    set(7);
    let refused = open(&file).await.unwrap_err();
    assert!(matches!(refused, Error::NewerSchema { found: 7, known: 1 }), "{refused:?}");
    assert!(refused.to_string().contains("newer release"), "{refused}");
    assert_eq!(schema(), 7);
    set(0);
    assert!(matches!(open(&file).await, Err(Error::Corrupt { .. })));
    set(1);
    assert_eq!(open(&file).await.unwrap().head().await.unwrap().revision, Revision(1));
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_an_error() {
    let dir = TempDir::new();
    let refused = open(&dir.join("missing/store")).await;
    assert!(matches!(refused, Err(Error::Backend { .. })), "{refused:?}");
}

const FULL: &str = "HOLDFAST_TEST_FULL";

/// With a file in its environment this is the child of the next test: it appends, and says what became of each try.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_goes_on_when_the_disk_fails() {
    let Some(file) = std::env::var_os(FULL) else { return };
    // Without a handler the signal of a file that is too long ends the process.
    let _handled = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::from_raw(25)).unwrap();
    let store = open(Path::new(&file)).await.unwrap();
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        let appended = async {
            let head = store.head().await?.revision.0;
            let edits = (0..40).map(|n| put(at(Space::Desired, "tenant", &format!("t{n}")), head + n)).collect();
            store.append(change(head, edits)).await
        };
        match appended.await {
            Ok(header) => println!("acked {}", header.revision),
            Err(error) => println!("refused {:?} {error}", error.kind()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_changes_and_the_store_heals_when_it_has_room() {
    let dir = TempDir::new();
    let file = dir.join("store");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child_goes_on_when_the_disk_fails", "--nocapture"]).env(FULL, &file);
    let mut child = Proc::start("child on a full disk", command);
    let mut last = 0;
    // No room at all, and no more than there is.
    for room in [0, std::fs::metadata(&file).map_or(4_096, |meta| meta.len())] {
        last = eventually("commits", PATIENCE, async || acked(&child).filter(|n| *n > last + 3)).await;
        child.limit_files(Some(room));
        let refused = async || child.output().lines().next_back().is_some_and(|l| l.contains("refused")).then_some(());
        eventually("refusals", PATIENCE, refused).await;
        let told = child.output();
        assert!(told.lines().filter(|l| l.contains("refused")).all(|l| l.contains("refused Unavailable")), "{told}");
        child.limit_files(None);
    }
    let healed = eventually("commits again", PATIENCE, async || acked(&child).filter(|n| *n > last + 3)).await;
    child.kill9();
    assert!(open(&file).await.unwrap().head().await.unwrap().revision.0 >= healed);
}

#[tokio::test]
async fn a_file_that_is_put_away_takes_no_change_until_it_is_back() {
    let dir = TempDir::new();
    let (file, away) = (dir.join("store"), dir.join("away"));
    let store = open(&file).await.unwrap();
    store.append(change(0, vec![put(desired("a"), "1")])).await.unwrap();
    std::fs::rename(&file, &away).unwrap();
    let refused = store.append(change(1, vec![put(desired("a"), "2")])).await.unwrap_err();
    assert!(refused.retryable() && refused.to_string().contains("put it back"), "{refused}");
    assert_eq!(store.head().await.unwrap().revision, Revision(1), "what it holds can still be read");
    store.backup(dir.join("backup")).await.unwrap();
    std::fs::write(&file, "another").unwrap();
    assert!(store.append(change(1, vec![put(desired("a"), "2")])).await.is_err(), "that is another file");
    std::fs::rename(&away, &file).unwrap();
    let healed = eventually("a change to be taken", PATIENCE, async || {
        store.append(change(1, vec![put(desired("a"), "2")])).await.ok()
    })
    .await;
    assert_eq!(healed.revision, Revision(2));
}
