//! The demo comes out as it tells, and leaves nothing behind, however it ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use holdfast_testkit::{Proc, TempDir, eventually};

fn demo(temp: &TempDir, more: &[&str]) -> Proc {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(["demo", "--seconds", "1"]).args(more).env("TMPDIR", temp.path());
    Proc::start("demo", command)
}

/// Processes whose parent is this one.
fn children(parent: u32) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let is_child = |process: &PathBuf| {
        let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        // After the command's name, in parentheses, come the state and the parent.
        let rest = stat.rsplit(')').next().unwrap_or_default();
        rest.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    processes.filter(is_child).collect()
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[tokio::test]
async fn every_scene_comes_out_as_told() {
    let temp = TempDir::new();
    let mut demo = demo(&temp, &[]);
    let status = demo.wait_exit(Duration::from_secs(60)).await;
    let output = demo.output();
    assert_eq!(status.code(), Some(0), "{output}");
    assert_eq!(output.matches("   => ").count(), 5, "{output}");
    // From the end of the second scene to the first line of traffic in the fourth, nothing but the third adds to what is counted.
    let third = output.split("A request that cannot wait").nth(1).unwrap();
    assert!(third.contains("=> refused after"), "{output}");
    let next = third.lines().find(|line| line.contains(" requests, ")).unwrap();
    assert!(!next.contains("no_holder"), "what was refused on purpose is no error: {next}");
    assert!(output.contains("wrong versions: 0\n") && output.contains("What to try next"), "{output}");
    assert!(!output.contains('\u{1b}'), "no terminal, no control characters: {output}");
    assert_eq!(entries(temp.path()), 0, "files are left");
}

#[tokio::test]
async fn an_interrupt_ends_every_process_and_removes_the_files() {
    let temp = TempDir::new();
    let mut demo = demo(&temp, &[]);
    let running = eventually("the gateway to run", Duration::from_secs(20), async || {
        let running = children(demo.pid());
        (demo.output().contains("1. ") && running.len() == 4).then_some(running)
    })
    .await;
    let status = Command::new("kill").args(["-INT", &demo.pid().to_string()]).status().unwrap();
    assert!(status.success());
    assert_eq!(demo.wait_exit(Duration::from_secs(10)).await.code(), Some(1), "it did not come to its end");
    for process in running {
        assert!(!process.exists(), "{} is still there", process.display());
    }
    assert_eq!(entries(temp.path()), 0, "files are left");
}

#[tokio::test]
async fn what_is_kept_is_a_configuration_that_is_good() {
    let temp = TempDir::new();
    let mut demo = demo(&temp, &["--keep"]);
    assert_eq!(demo.wait_exit(Duration::from_secs(60)).await.code(), Some(0), "{}", demo.output());
    let folder = std::fs::read_dir(temp.path()).unwrap().next().unwrap().unwrap().path();
    assert!(demo.output().contains(&folder.display().to_string()), "it says where the files are");
    let check = Command::new(env!("CARGO_BIN_EXE_holdfast")).arg("check").arg(folder.join("holdfast.yaml")).output();
    let check = check.unwrap();
    assert_eq!((check.status.code(), check.stderr.len()), (Some(0), 0), "{}", String::from_utf8_lossy(&check.stderr));
}
