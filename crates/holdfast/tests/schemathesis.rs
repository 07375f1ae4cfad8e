//! The admin API against its own OpenAPI document: Schemathesis makes requests of it, good and bad ones, and compares the answers.
//!
//! Seeded and bounded: the same requests each time, and a minute or so of them. `make test` installs it beside MLServer; a test that skips itself
//! proves nothing, so this one fails where it is missing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod operation_support;

use std::time::Duration;

use holdfast_testkit::{Holdfast, TempDir, mlserver};
use operation_support::{binary, model_server, one_pool, repository, tenant};

/// Of the whole run, on a busy machine.
const LIMIT: Duration = Duration::from_secs(115);
const SEED: &str = "20261130";
/// First what each parameter's bounds call for, then at random until the time is over: some thousand requests.
const SECONDS: &str = "60";

#[tokio::test]
async fn the_api_is_what_its_document_says() {
    let repository = repository(&["screen"], &["1", "2"]);
    let server = model_server(&repository, "r1", &[]).await;
    let config = format!(
        "truth: store\nlog: {{ access: off }}\n{}tenants:\n{}{}",
        one_pool(&[&server], &["1", "2"]),
        tenant("acme", "1"),
        tenant("globex", "2")
    );
    let holdfast = Holdfast::start(binary(), &config).await;
    let dir = TempDir::new();
    let mut run = tokio::process::Command::new(mlserver::tool("schemathesis"));
    run.args(["run", &format!("http://{}/openapi.json", holdfast.admin.addr())]);
    run.args(["--seed", SEED, "--max-time", SECONDS, "--phases", "coverage,fuzzing", "--workers", "1"]);
    // What a document cannot say (that a name has to be there, that the whole has to fit together) is refused with 4xx. A stream of events has no end.
    run.args(["--exclude-checks", "positive_data_acceptance", "--exclude-path-regex", "events"]);
    run.args(["--request-timeout", "20", "--no-shrink", "--continue-on-failure", "--no-color"]);
    run.current_dir(dir.path()).kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT, run.output()).await.expect("the run to end in time").unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(holdfast.admin.get("/livez", &[]).await.status == 200, "it lives on");
    assert!(!holdfast.proc.output().contains("panicked"));
}
