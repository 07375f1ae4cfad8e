//! The process log on a real standard error: the test runs itself as a child process and reads what the child wrote.

use std::process::Command;

use holdfast_telemetry::{LogError, LogFormat, LogLevel, init_logging};

const CHILD: &str = "HOLDFAST_TEST_LOG_CHILD";
const LINES: usize = 500;

#[test]
fn the_child_logs() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let guard = init_logging(LogLevel::Debug, LogFormat::Json).unwrap();
    for line in 0..LINES {
        tracing::debug!(target: "holdfast_gateway", line, "numbered");
    }
    tracing::debug!(target: "h2::codec", authorization = "canary-91c2", "received");
    assert!(matches!(init_logging(LogLevel::Info, LogFormat::Text), Err(LogError::AlreadySet(_))));
    assert_eq!(guard.dropped().get(), 0);
}

#[test]
fn a_dropped_guard_has_written_every_line_in_order() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_child_logs", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let stderr = String::from_utf8(child.stderr).unwrap();
    assert!(child.status.success(), "{stderr}");
    assert!(!stderr.contains("canary-91c2"), "a library's debug event was written");
    let lines: Vec<serde_json::Value> = stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let numbers: Vec<u64> = lines.iter().filter_map(|line| line["line"].as_u64()).collect();
    assert_eq!(numbers, (0..LINES as u64).collect::<Vec<_>>());
}
