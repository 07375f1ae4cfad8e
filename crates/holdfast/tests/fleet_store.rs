//! The PostgreSQL of a fleet: backed up while it is used and while nothing uses it, restored into an empty one, and away while changes are asked for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;
mod fleet_of;

use std::path::Path;
use std::process::{Command, Output};

use fleet::{PATIENCE, binary, pin_of};
use fleet_of::{Roles, Shape};
use holdfast_testkit::{TempDir, eventually};
use serde_json::json;

/// Runs a command over files.
fn run(args: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(binary()).args(args).envs(environment.iter().copied()).output().unwrap()
}

fn ends(output: &Output, code: i32, says: &str) -> String {
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{told}");
    assert!(told.contains(says), "not {says:?} in: {told}");
    told
}

/// What a command tells of a backup, but for the file.
fn content(told: &str) -> Vec<String> {
    told.lines()
        .filter(|line| !line.starts_with("written") && !line.starts_with("restored"))
        .map(str::to_owned)
        .collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
async fn what_is_backed_up_of_a_fleet_is_restored_into_an_empty_postgres() {
    let mut fleet = Roles::start(Shape { controls: 1, gateways: 1, load: "50ms" }).await;
    let desk = fleet.desk().await;
    fleet.wait_pin("1").await;
    fleet.pin(&desk, "2").await;
    fleet.wait_pin("2").await;
    let dir = TempDir::new();
    let (live, cold, bad) = (dir.join("live"), dir.join("cold"), dir.join("bad"));
    let config = fleet.controls[0].config_path();
    let (admin, config) = (fleet.controls[0].admin_url(), text(&config));
    ends(&run(&["backup", text(&live), "--admin", &admin], &[]), 0, "written");

    // The same of the database itself, while nobody writes there.
    fleet.controls[0].proc.kill9();
    drop(desk);
    let revision = fleet.gateways[0].revision().await;
    let told = ends(&run(&["backup", text(&cold), "--config", config], &[]), 0, "written");
    ends(&run(&["backup", text(&cold), "--config", config], &[]), 1, "is there already");

    // Into what is not empty nothing is restored, nor what is damaged into anything.
    ends(
        &run(&["restore", text(&cold), "--config", config], &[]),
        1,
        "give an empty database, or another `store.schema`",
    );
    let elsewhere = [("HOLDFAST__STORE__SCHEMA", "restored")];
    let mut bytes = std::fs::read(&cold).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&bad, bytes).unwrap();
    ends(&run(&["restore", text(&bad), "--config", config], &elsewhere), 1, "nothing was changed");
    let schemas = "select count(*) from pg_namespace where nspname = 'restored'";
    assert_eq!(fleet.postgres.sql(schemas), "0", "nothing was made for a backup that is none");
    ends(&run(&["backup", text(&bad), "--config", config], &elsewhere), 1, "there is nothing to back up");
    let restored = ends(&run(&["restore", text(&cold), "--config", config], &elsewhere), 0, "restored");
    assert_eq!(content(&told), content(&restored), "the same revisions, digest, edits and records");
    ends(&run(&["restore", text(&live), "--config", config], &elsewhere), 1, "into an empty store only");
    let gateway = fleet.gateways[0].config_path();
    ends(&run(&["restore", text(&live), "--config", text(&gateway)], &[]), 2, "has no table of its own");

    // A control plane over it goes on where the other one was, and its gateway takes its word.
    let file = std::fs::read_to_string(config).unwrap();
    let moved = file.replace("\"postgres\":", "\"schema\":\"restored\",\"postgres\":");
    assert_ne!(file, moved);
    std::fs::write(config, moved).unwrap();
    fleet.controls[0].restart().await;
    fleet.controls[0].wait_ready().await;
    eventually("the gateway to find what it has confirmed", PATIENCE, async || {
        let told = fleet.gateways[0].ready().await;
        (told["stale"] == false && told["revision"].as_u64()? >= revision).then_some(())
    })
    .await;
    assert_eq!(fleet.gateways[0].infer("acme").await.header("x-holdfast-version"), "2");
    let _ = fleet.controls[0].put("/v1/pins/acme/screen", &json!({"version": "3"})).await.expect(200);
    fleet.wait_pin("3").await;
}

#[tokio::test]
async fn a_change_that_the_store_cannot_take_is_refused_clearly_and_leaves_nothing() {
    let mut fleet = Roles::start(Shape { controls: 1, gateways: 1, load: "50ms" }).await;
    fleet.wait_pin("1").await;
    let before = fleet.gateways[0].revision().await;
    fleet.postgres.kill9();
    let refused = eventually("a change to be refused", PATIENCE, async || {
        let answer = fleet.controls[0].put("/v1/pins/acme/screen", &json!({"version": "2"})).await;
        // One that was under way when the server died may have been made: then nobody says that it was not.
        (answer.status == 503).then_some(answer)
    })
    .await;
    let told = refused.json();
    assert_eq!((&told["code"], &told["status"]), (&json!("unavailable"), &json!(503)), "{told}");
    assert!(told["detail"].as_str().unwrap().contains("the store cannot be reached"), "{told}");
    assert_eq!(refused.header("content-type"), "application/problem+json");
    assert!(refused.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1), "{refused:?}");
    let admin = fleet.controls[0].admin_url();
    let set = ["pin", "set", "acme", "screen", "2", "--admin", &admin];
    ends(&run(&set, &[]), 1, "the store cannot be reached");
    // What is known is still told, and traffic goes on.
    assert_eq!(fleet.controls[0].get("/livez").await.status, 200);
    assert_eq!(fleet.gateways[0].infer("acme").await.header("x-holdfast-version"), "1");

    fleet.postgres.restart().await;
    fleet.controls[0].wait_ready().await;
    let pin = fleet.controls[0].get("/v1/pins/acme/screen").await.expect(200).json();
    assert_eq!((&pin["version"], &pin["in_force"]), (&json!("1"), &json!("1")), "nothing is half-written: {pin}");
    assert_eq!(fleet.gateways[0].revision().await, before);
    assert_eq!(pin_of(&fleet.gateways[0].get("/v1/table").await.json(), "acme"), "1");
    let _ = fleet.controls[0].put("/v1/pins/acme/screen", &json!({"version": "2"})).await.expect(200);
    fleet.wait_pin("2").await;
}
