//! A gateway that starts: from a control plane, or from its last good table.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod support;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use holdfast_config::ResourceKind::{Pin, Tenant};
use holdfast_plane::{Edit, Table};
use holdfast_testkit::{TempDir, eventually, free_port, wait::always};
use holdfast_types::Revision;
use holdfast_wire::follower::{Follower, FollowerSettings, Freshness};
use holdfast_wire::saved::{Folder, SavedError};
use support::*;

/// One that was dropped may hold its folder for a moment more.
async fn gateway(settings: FollowerSettings, folder: &TempDir) -> Gateway {
    let folder = eventually("the folder", SOON, async || Folder::open(folder.path()).ok()).await;
    let (follower, end) = Follower::start(settings, Some(folder)).unwrap();
    Gateway { follower, end }
}

/// Reads the folder's table once nobody has it any more.
async fn saved(folder: &TempDir) -> Arc<Table> {
    let folder = eventually("the folder", SOON, async || Folder::open(folder.path()).ok()).await;
    let held = tokio::task::spawn_blocking(move || folder.load()).await.unwrap().unwrap();
    held.unwrap().table().clone()
}

/// Runs a gateway until this table is saved.
async fn save(truth: &Arc<Truth>, folder: &TempDir, table: &Arc<Table>) {
    let server = Server::start(truth);
    let gateway = gateway(follower_settings(vec![server.url()]), folder).await;
    gateway.has(table).await;
    let file = folder.join("last-good.table");
    eventually("the file", SOON, async || file.exists().then_some(())).await;
}

fn nobody() -> Vec<String> {
    vec![format!("http://127.0.0.1:{}", free_port())]
}

fn some_table() -> Arc<Table> {
    let many =
        (0..3_000).map(|n| Edit { kind: Tenant, name: format!("t{n}").into(), value: Some(Arc::new(json!({"n": n}))) });
    edited(&table(6, pins(&[("a/m", "1")])), many)
}

#[tokio::test]
async fn without_a_control_plane_a_gateway_starts_from_its_last_good_table() {
    let (first, folder) = (some_table(), TempDir::new());
    save(&Truth::new(first.clone()), &folder, &first).await;
    assert_eq!(saved(&folder).await, first);
    let settings = FollowerSettings { start_within: Duration::from_millis(200), ..follower_settings(nobody()) };
    let gateway = gateway(settings, &folder).await;
    gateway.has(&first).await;
    assert!(gateway.follower.freshness().borrow().is_stale());
}

#[tokio::test]
async fn a_control_plane_that_answers_comes_first() {
    let (first, folder) = (some_table(), TempDir::new());
    let truth = Truth::new(first.clone());
    save(&truth, &folder, &first).await;
    let second = edited(&first, [edit(Pin, "a/m", None)]);
    truth.tell(second.clone());
    let server = Server::start(&truth);
    let patient = Duration::from_secs(3_600);
    let again =
        gateway(FollowerSettings { start_within: patient, ..follower_settings(vec![server.url()]) }, &folder).await;
    let (file, before) = (folder.join("last-good.table"), fs::read(folder.join("last-good.table")).unwrap());
    again.has(&second).await;
    eventually("another file", SOON, async || (fs::read(&file).unwrap() != before).then_some(())).await;
    drop(again);
    assert_eq!(saved(&folder).await, second);
    // The same table: nothing has to come for it to be served.
    let again =
        gateway(FollowerSettings { start_within: patient, ..follower_settings(vec![server.url()]) }, &folder).await;
    again.has(&second).await;
    assert_eq!(*again.follower.freshness().borrow(), Freshness::Current { control: server.url().into() });
}

#[tokio::test]
async fn after_a_restart_an_older_control_plane_is_refused() {
    let (first, folder) = (some_table(), TempDir::new());
    save(&Truth::new(first.clone()), &folder, &first).await;
    let old = Truth::new(table(3, pins(&[("a/m", "old")])));
    let server = Server::start(&old);
    let settings = follower_settings(vec![server.url()]);
    let gateway = gateway(FollowerSettings { start_within: Duration::from_millis(200), ..settings }, &folder).await;
    gateway.has(&first).await;
    always("the saved table", Duration::from_millis(500), async || gateway.view().table.revision == first.revision)
        .await;
}

#[tokio::test]
async fn what_the_gateway_does_not_serve_is_not_saved() {
    let (first, folder) = (some_table(), TempDir::new());
    let truth = Truth::new(first.clone());
    let server = Server::start(&truth);
    let gateway = gateway(follower_settings(vec![server.url()]), &folder).await;
    gateway.has(&first).await;
    eventually("the file", SOON, async || folder.join("last-good.table").exists().then_some(())).await;
    // Comes, and is never in force.
    truth.tell(edited(&first, [edit(Pin, "a/m", None)]));
    eventually("the second", SOON, async || (gateway.view().table.revision == Revision(8)).then_some(())).await;
    drop(gateway);
    assert_eq!(saved(&folder).await, first);
}

#[tokio::test]
async fn a_torn_a_foreign_and_a_later_file_are_refused_with_a_word() {
    let (first, folder) = (some_table(), TempDir::new());
    save(&Truth::new(first.clone()), &folder, &first).await;
    saved(&folder).await;
    let opened = Folder::open(folder.path()).unwrap();
    assert!(matches!(Folder::open(folder.path()), Err(SavedError::Locked { .. })), "one gateway at a time");
    let good = fs::read(opened.file()).unwrap();
    let refusal = |bytes: &[u8]| {
        fs::write(opened.file(), bytes).unwrap();
        opened.load().unwrap_err()
    };
    for cut in [20, 40, good.len() / 2, good.len() - 33, good.len() - 1] {
        assert!(matches!(refusal(&good[..cut]), SavedError::Torn { .. }), "cut at {cut}");
    }
    for at in (19..good.len()).step_by(good.len() / 50) {
        let mut bent = good.clone();
        bent[at] ^= 1;
        let word = refusal(&bent);
        assert!(matches!(word, SavedError::Torn { .. }), "bent at {at}: {word}");
    }
    assert!(matches!(refusal(&[good.clone(), vec![0]].concat()), SavedError::Torn { .. }));
    assert!(matches!(refusal(b"version: 1\nlisten: 0.0.0.0:80\n"), SavedError::Foreign(_)));
    assert!(matches!(refusal(b""), SavedError::Foreign(_)));
    let mut later = good.clone();
    later[15] = 2;
    assert!(matches!(refusal(&later), SavedError::Later { version: 2, .. }));
    // A gateway starts without it.
    drop(opened);
    let settings = FollowerSettings { start_within: Duration::from_millis(10), ..follower_settings(nobody()) };
    let gateway = gateway(settings, &folder).await;
    always("nothing", Duration::from_millis(200), async || gateway.view().table.revision == Revision(0)).await;
    drop(gateway);
    fs::write(folder.join("last-good.table"), good).unwrap();
    assert_eq!(saved(&folder).await, first);
}
