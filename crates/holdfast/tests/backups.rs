//! Backup and restore of a state folder: what was in force is in force again, and what is no whole backup changes nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod operation_support;

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use holdfast_testkit::{Holdfast, TempDir, eventually};
use operation_support::world::{INFER, World};
use operation_support::{binary, model_server, one_pool, repository, served, tenant};
use serde_json::Value;

/// Runs an offline command over a configuration, and a state folder other than the one it names.
fn offline(what: &str, file: &Path, config: &Path, state: Option<&Path>) -> Output {
    let mut command = Command::new(binary());
    command.arg(what).arg(file).arg("--config").arg(config);
    if let Some(state) = state {
        command.env("HOLDFAST__STATE", state);
    }
    command.output().unwrap()
}

fn ends(output: &Output, code: i32, says: &str) {
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{told}");
    assert!(told.contains(says), "not {says:?} in: {told}");
}

async fn table(holdfast: &Holdfast) -> [Value; 3] {
    let table = holdfast.admin_get("/v1/table").await;
    ["revision", "digest", "tenants"].map(|field| table[field].clone())
}

async fn stop(holdfast: &mut Holdfast) {
    holdfast.proc.sigterm();
    assert_eq!(holdfast.proc.wait_exit(Duration::from_secs(20)).await.code(), Some(0));
}

#[tokio::test]
async fn a_restored_folder_serves_what_was_in_force() {
    let repository = repository(&["screen"], &["1", "2"]);
    let server = model_server(&repository, "r1", &[]).await;
    let head = format!("truth: file\n{}", one_pool(&[&server], &["1", "2"]));
    let mut holdfast = Holdfast::start(binary(), &format!("{head}tenants:\n{}", tenant("acme", "1"))).await;
    served(&holdfast, "acme", INFER).await;
    // A pin that flips, so that there is a history in which what is desired and what is in force differ for a while.
    holdfast.edit_config(|_| format!("{head}tenants:\n{}{}", tenant("acme", "2"), tenant("globex", "1")));
    eventually("the flip", Duration::from_secs(20), async || {
        (served(&holdfast, "acme", INFER).await == "2").then_some(())
    })
    .await;
    served(&holdfast, "globex", INFER).await;
    let before = table(&holdfast).await;
    let (config, dir) = (holdfast.config_path(), TempDir::new());
    let (file, new) = (dir.join("backup"), dir.join("new"));

    ends(&offline("backup", &file, &config, None), 1, "in use by another process");
    assert!(!file.exists());
    stop(&mut holdfast).await;
    ends(&offline("backup", &file, &config, None), 0, before[1].as_str().unwrap());
    ends(&offline("backup", &file, &config, None), 1, "is there already");
    ends(&offline("backup", &dir.join("none"), &config, Some(&dir.join("nothing"))), 1, "there is nothing to back up");
    assert!(!dir.join("nothing").exists(), "a question about a folder does not make it");

    ends(&offline("restore", &file, &config, None), 1, "into an empty store only");
    let whole = std::fs::read(&file).unwrap();
    let mut turned = whole.clone();
    let middle = turned.len() / 2;
    turned[middle] ^= 1;
    let newer = [&b"holdfast-backup 2\n"[..], &whole[18..]].concat();
    for (bytes, says) in [
        (&whole[..whole.len() - 1], "damaged"),
        (&turned[..], "damaged"),
        (&newer[..], "has format 2, this release reads format 1: use a newer release"),
        (&b"tenants: []"[..], "is no backup"),
    ] {
        let bad = dir.join("bad");
        std::fs::write(&bad, bytes).unwrap();
        ends(&offline("restore", &bad, &config, Some(&new)), 1, says);
        assert!(!new.exists(), "a process that starts there would take an empty store for the truth");
    }
    // What was there before stays, also in a folder without a table.
    std::fs::create_dir(&new).unwrap();
    std::fs::write(new.join("other"), "mine").unwrap();
    ends(&offline("restore", &dir.join("bad"), &config, Some(&new)), 1, "is no backup");
    let left: Vec<_> = std::fs::read_dir(&new).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["other"]);
    ends(&offline("restore", &file, &config, Some(&new)), 0, before[1].as_str().unwrap());
    for (file, says) in [("bad", "is no backup"), ("backup", "into an empty store only")] {
        ends(&offline("restore", &dir.join(file), &config, Some(&new)), 1, says);
    }
    assert!(new.join("table.redb").exists());

    // The store is the truth: of the file, which names other tenants, only the settings count.
    std::fs::remove_dir_all(holdfast.state_path()).unwrap();
    std::fs::rename(&new, holdfast.state_path()).unwrap();
    let settings = head.replace("truth: file", "truth: store");
    holdfast.edit_config(|_| format!("{settings}tenants:\n{}", tenant("initech", "1")));
    holdfast.restart().await;
    assert_eq!(served(&holdfast, "acme", INFER).await, "2");
    assert_eq!(table(&holdfast).await, before);
}

#[tokio::test]
async fn a_running_gateway_gives_backups_while_changes_go_on() {
    let mut world = World::new().await;
    let dir = TempDir::new();
    let mut digests = std::collections::BTreeSet::new();
    for round in 0..4 {
        let file = dir.join(&format!("backup-{round}"));
        let more = format!("{}tenants:\n{}{}", world.head, tenant("acme", "1"), tenant(&format!("t{round}"), "2"));
        world.holdfast.edit_config(|_| more);
        world.holdfast.proc.sighup();
        let output = world.holdfast.cli(&["backup", file.to_str().unwrap()]).await;
        ends(&output, 0, "written");
        let new = dir.join(&format!("new-{round}"));
        let restored = offline("restore", &file, &world.holdfast.config_path(), Some(&new));
        ends(&restored, 0, "in force    digest ");
        digests.insert(String::from_utf8(restored.stdout).unwrap());
        served(&world.holdfast, &format!("t{round}"), INFER).await;
    }
    assert!(digests.len() >= 2, "each is of its moment: {digests:?}");
    let left = std::fs::read_dir(world.holdfast.state_path().join("outgoing")).unwrap().count();
    assert_eq!(left, 0, "nothing is left of what was given out");

    let file = dir.join("backup-0");
    let before = std::fs::read(&file).unwrap();
    ends(&world.holdfast.cli(&["backup", file.to_str().unwrap()]).await, 1, "is there already");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    let shown = world.holdfast.admin.get("/v1/backup", &[]).await;
    assert_eq!(shown.status, 405, "a backup is no view: {shown:?}");
    world.holdfast.proc.limit_files(Some(0));
    let full = dir.join("full");
    ends(&world.holdfast.cli(&["backup", full.to_str().unwrap()]).await, 1, "503");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().filter(|e| e.as_ref().unwrap().path() == full).count(), 0);
    world.holdfast.proc.limit_files(None);
    ends(&world.holdfast.cli(&["backup", full.to_str().unwrap()]).await, 0, "written");
    world.holdfast.proc.kill9();
    ends(&world.holdfast.cli(&["backup", dir.join("gone").to_str().unwrap()]).await, 1, "is it running");
}
