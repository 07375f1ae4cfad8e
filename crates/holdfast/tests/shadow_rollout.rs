//! A shadow as whole processes: live traffic is copied to the new version before it flips. One that says something else stops the roll-out with its
//! report, one that says the same goes through, and no client notices either.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use std::time::{Duration, Instant};

use fleet::{Fleet, INFER, judgements, pin_of, probe};
use holdfast_testkit::eventually;
use holdfast_testkit::http::Client;
use holdfast_testkit::load::{Load, Target};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// Every request is copied, fifty comparisons are needed, none may differ, and the copying lasts a second at least.
const SHADOW: &str = "1000/50/0/1s-2m";

async fn pin_set(fleet: &Fleet, version: &str) -> (bool, String) {
    let args = ["pin", "set", "acme", "screen", version, "--shadow", SHADOW, "--wait", "--timeout", "2m"];
    let output = fleet.gateway.cli(&args).await;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

async fn shadowed(fleet: &Fleet, outcome: &str) -> f64 {
    fleet.gateway.metrics().await.sum("holdfast_shadow_total", &[("outcome", outcome)])
}

#[tokio::test]
async fn a_version_that_differs_stops_with_its_report_and_one_that_agrees_goes_through() {
    let tenants = json!([{"name": "acme", "subset": 2, "pins": {"screen": "1"}}]);
    let fleet = Fleet::start((2, &[]), 3, tenants, |config| config["truth"] = json!("store")).await;
    // Version 3 is version 1 under another name.
    let file = |version: u32| fleet.repository.join(&format!("screen-{version}")).join("model.json");
    let text = std::fs::read_to_string(file(1)).unwrap();
    let text = text.replace("screen-1", "screen-3").replace(r#""version": "1""#, r#""version": "3""#);
    std::fs::write(file(3), text).unwrap();
    fleet.wait_held("1", 2).await;
    let old = judgements(1).await["1"].clone();
    let target = Target::new("acme", INFER, &probe());
    let running = Load::start(Client::new(fleet.gateway.data.addr()), 50, vec![target]);

    let (went, told) = pin_set(&fleet, "2").await;
    assert!(!went && told.contains("copied requests were answered otherwise; 0 of 1000 may be"), "{told}");
    let rollout = fleet.gateway.admin_get("/v1/rollouts/1").await;
    assert_eq!((&rollout["phase"], &rollout["pins"][0]["stage"]), (&json!("failed"), &json!("failed")), "{rollout}");
    let table = fleet.gateway.admin_get("/v1/table").await;
    assert_eq!(pin_of(&table, "acme"), "1");
    assert!(table["pending"][0]["why"].as_str().unwrap().contains("answered otherwise"), "{table}");
    assert!(shadowed(&fleet, "differed").await >= 1.0);
    assert_eq!(shadowed(&fleet, "agreed").await, 0.0);

    let shown = fleet.gateway.admin_get("/v1/shadows?rollout=1").await;
    let pin = &shown["shadows"][0];
    assert!(pin["differed"].as_u64() >= Some(1) && pin["agreed"] == 0, "{shown}");
    let difference = &pin["differences"][0];
    assert!(difference["kind"].is_string(), "{shown}");
    let id = difference["request_id"].as_str().unwrap();
    assert_eq!(fleet.gateway.admin_get(&format!("/v1/receipts/{id}")).await["version"], "1", "{shown}");
    assert_eq!(fleet.gateway.admin_get("/v1/shadows?rollout=99").await["shadows"], json!([]));

    let begun = Instant::now();
    let (went, told) = pin_set(&fleet, "3").await;
    assert!(went, "{told}");
    assert!(begun.elapsed() >= Duration::from_secs(1), "the shortest time of the copying");
    assert!(shadowed(&fleet, "agreed").await >= 50.0);
    assert_eq!(pin_of(&fleet.gateway.admin_get("/v1/table").await, "acme"), "3");
    let seen = running.count(|_| true);
    eventually("answers after the flip", PATIENCE, async || (running.count(|_| true) > seen + 50).then_some(())).await;
    let report = running.stop().await;
    for record in &report.0 {
        assert_eq!(record.status, 200, "{}", record.error);
        let body: Value = serde_json::from_slice(&record.body).unwrap();
        assert_eq!(body["outputs"], old, "version {} to a client", record.version);
    }
    assert!(report.0.iter().any(|r| r.version == "3") && report.0.iter().all(|r| r.version != "2"));
}
