//! The README's own blocks, run one after the other as a reader would, with free ports in place of those that are written there.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use holdfast_testkit::{TempDir, free_port};
use tokio::process::Command;

/// A block in a fence: its language and its lines.
struct Block {
    language: String,
    text: String,
}

/// The blocks below these headings, in order.
fn blocks(readme: &str, headings: &[&str]) -> Vec<Block> {
    let mut found = Vec::new();
    let (mut within, mut open) = (false, None::<Block>);
    for line in readme.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(language), None) => open = Some(Block { language: language.to_owned(), text: String::new() }),
            (Some(_), Some(block)) if within => found.push(block),
            (None, Some(block)) => open = Some(Block { text: block.text + line + "\n", ..block }),
            (None, None) if line.starts_with('#') => within = headings.contains(&line.trim_start_matches(['#', ' '])),
            _ => {}
        }
    }
    found
}

#[tokio::test]
async fn a_reader_who_pastes_the_blocks_gets_an_answer_and_a_changed_pin() {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let ports: Vec<String> = (0..4).map(|_| free_port().to_string()).collect();
    let here = |text: &str| {
        ["7400", "7401", "9001", "9002"]
            .iter()
            .zip(&ports)
            .fold(text.to_owned(), |text, (was, is)| text.replace(was, is))
    };
    let dir = TempDir::new();
    let mut script = "set -eu\n".to_owned();
    for block in blocks(&readme, &["Route a request", "Change a pin"]) {
        match block.language.as_str() {
            "yaml" => std::fs::write(dir.join("holdfast.yaml"), here(&block.text)).unwrap(),
            // The binary under test is on the path already.
            _ if block.text.contains("export PATH") => {}
            _ => script += &format!("echo '--- a block'\n{}", here(&block.text)),
        }
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_holdfast")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(dir.path()).env("PATH", path);
    bash.env("HOLDFAST_ADMIN", here("http://127.0.0.1:7401")).kill_on_drop(true);
    let ran = tokio::time::timeout(Duration::from_secs(120), bash.output()).await.expect("an end").unwrap();
    let (said, errors) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    let all = format!("{script}\n---\n{said}\n---\n{errors}");
    assert!(ran.status.success(), "{}\n{all}", ran.status);
    let [servers, answer, changed, reverted] = said.split("--- a block\n").skip(1).collect::<Vec<_>>()[..] else {
        panic!("four blocks of commands: {all}")
    };
    assert!(servers.contains("screen"), "{all}");
    for line in ["HTTP/1.1 200", "x-holdfast-version: 1", "x-holdfast-reason: pin"] {
        assert!(answer.to_lowercase().contains(&line.to_lowercase()), "{line}: {all}");
    }
    assert!(changed.contains("fewer false alarms"), "the history tells the reason: {all}");
    // What was pinned first is in force again.
    let (reverts, explained) = reverted.split_at(reverted.find("acme").expect(&all));
    assert!(!reverts.is_empty() && explained.contains("screen 1") || explained.contains("version 1"), "{all}");
}
