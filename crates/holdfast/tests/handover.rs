//! Keys whose replicas change with the configuration: who held a pinned version serves it until one of the new ones can.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use std::time::Duration;

use fleet::{Fleet, INFER, PATIENCE, holders, is_shed, probe, subset};
use holdfast_testkit::eventually;
use holdfast_testkit::http::Client;
use holdfast_testkit::load::{Load, Target};
use serde_json::{Value, json};

fn acme() -> Value {
    json!([{"name": "acme", "subset": 1, "pins": {"screen": "1"}}])
}

/// Two servers that load slowly, of which only `r1` is configured so that it owns the key. It holds the version.
async fn held_by_r1(shape: impl FnOnce(&mut Value)) -> Fleet {
    let fleet = Fleet::start((2, &["--load-time", "3s"]), 1, acme(), |config| {
        config["pools"][0]["replicas"][1]["weight"] = json!(0);
        config["timeouts"] = json!({"request": "1s"});
        shape(config);
    })
    .await;
    eventually("r1 to hold the version", PATIENCE, async || {
        (holders(&fleet.gateway, "1").await == ["r1"]).then_some(())
    })
    .await;
    fleet
}

/// A steady load of requests that bring less time than a load takes.
fn impatient(fleet: &Fleet) -> Load {
    let client = Client::new(fleet.gateway.data.addr());
    Load::start(client, 50, vec![Target::new("acme", INFER, &probe())])
}

async fn rows(fleet: &Fleet) -> Vec<Value> {
    fleet.gateway.admin_get("/v1/replicas").await["replicas"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_key_that_moves_is_served_by_its_former_holder_until_the_new_one_is_ready() {
    let mut fleet = held_by_r1(|_| {}).await;
    let running = impatient(&fleet);
    fleet.edit(|config| {
        config["pools"][0]["replicas"][0]["weight"] = json!(0);
        config["pools"][0]["replicas"][1]["weight"] = json!(1);
    });
    eventually("the key to move", PATIENCE, async || (subset(&fleet.gateway, "acme").await == ["r2"]).then_some(()))
        .await;
    let told = fleet.gateway.admin_get("/v1/explain?tenant=acme&model=screen").await;
    assert_eq!(told["leaving"][0]["replica"], "r1", "{told}");
    assert!(told["now"].as_str().unwrap().contains("would be sent to r1"), "{told}");
    let ready = fleet.gateway.data.get("/v2/models/screen/ready", &[("x-tenant", "acme")]).await;
    assert_eq!(ready.status, 200, "who can be served is told so: {ready:?}");
    eventually("r2 to serve", PATIENCE, async || {
        (fleet.infer("acme").await.expect(200).header("x-holdfast-replica") == "r2").then_some(())
    })
    .await;
    let report = running.stop().await;
    assert_eq!(report.count(|r| r.status == 200), report.0.len(), "{:?}", report.outcomes());
    let told = fleet.gateway.admin_get("/v1/explain?tenant=acme&model=screen").await;
    assert_eq!(told["leaving"], Value::Null, "handed over: {told}");
    // The former holder was asked for nothing beyond the load at the start.
    assert_eq!(fleet.servers[0].stats().await["loads"]["started"], 1);
}

#[tokio::test]
async fn a_replica_taken_out_of_the_file_drains_until_another_holds_what_it_held() {
    let mut fleet = held_by_r1(|_| {}).await;
    let running = impatient(&fleet);
    fleet.edit(|config| {
        config["pools"][0]["replicas"].as_array_mut().unwrap().remove(0);
        config["pools"][0]["replicas"][0]["weight"] = json!(1);
    });
    let draining = eventually("r1 to drain", PATIENCE, async || {
        rows(&fleet).await.into_iter().find(|row| row["replica"] == "r1" && row["draining"] == true)
    })
    .await;
    assert_eq!((&draining["up"], &draining["holds"][0]["shown"]), (&json!(true), &json!(true)), "{draining}");
    assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-replica"), "r1");
    eventually("r1 to be let go", PATIENCE, async || (rows(&fleet).await.len() == 1).then_some(())).await;
    assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-replica"), "r2");
    let report = running.stop().await;
    assert_eq!(report.count(|r| r.status == 200), report.0.len(), "{:?}", report.outcomes());
    assert_eq!(fleet.servers[0].stats().await["loads"]["started"], 1, "a replica that drains loads nothing");
}

#[tokio::test]
async fn a_replica_that_drains_is_let_go_at_its_deadline() {
    let mut fleet = held_by_r1(|config| config["pools"][0]["drain"] = json!("2s")).await;
    fleet.servers[1].faults(&json!({"load_hangs": true})).await;
    fleet.edit(|config| {
        config["pools"][0]["replicas"].as_array_mut().unwrap().remove(0);
        config["pools"][0]["replicas"][0]["weight"] = json!(1);
    });
    eventually("r1 to drain", PATIENCE, async || {
        rows(&fleet).await.iter().any(|row| row["draining"] == true).then_some(())
    })
    .await;
    assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-replica"), "r1");
    eventually("r1 to be let go", Duration::from_secs(5), async || (rows(&fleet).await.len() == 1).then_some(())).await;
    let headers = [("x-tenant", "acme"), ("x-request-timeout-ms", "300")];
    let answer = fleet.gateway.data.post(INFER, &headers, &probe()).await;
    assert!(is_shed(&answer, "no_holder"), "{answer:?}");
}

#[tokio::test]
async fn a_replica_that_comes_back_into_the_file_drains_no_more() {
    let mut fleet = held_by_r1(|_| {}).await;
    let before = fleet.config.clone();
    fleet.edit(|config| {
        config["pools"][0]["replicas"].as_array_mut().unwrap().remove(0);
        config["pools"][0]["replicas"][0]["weight"] = json!(1);
    });
    eventually("r1 to drain", PATIENCE, async || {
        rows(&fleet).await.iter().any(|row| row["draining"] == true).then_some(())
    })
    .await;
    fleet.edit(|config| *config = before);
    eventually("r1 to be a replica again", PATIENCE, async || {
        let rows = rows(&fleet).await;
        (rows.len() == 2 && rows.iter().all(|row| row["draining"] == false)).then_some(())
    })
    .await;
    eventually("the key to be back", PATIENCE, async || (subset(&fleet.gateway, "acme").await == ["r1"]).then_some(()))
        .await;
    assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-replica"), "r1");
    assert_eq!(fleet.servers[0].stats().await["loads"]["started"], 1, "it held the version all along");
}

#[tokio::test]
async fn a_static_replica_taken_out_of_the_file_goes_on_serving_what_the_file_said_it_holds() {
    let holds = json!([{"model": "screen", "version": "1"}]);
    let fleet = Fleet::start((2, &["--load-all"]), 1, acme(), |config| {
        let pool = &mut config["pools"][0];
        (pool["residency"], pool["upstream"]) = (json!("static"), json!({"model": "{model}-{version}", "version": ""}));
        pool["replicas"][0]["holds"] = holds.clone();
        (pool["replicas"][1]["holds"], pool["replicas"][1]["weight"]) = (holds.clone(), json!(0));
    });
    let mut fleet = fleet.await;
    let _ = fleet.infer("acme").await.expect(200);
    // So that r2 cannot take over.
    fleet.servers[1].proc.kill9();
    eventually("r2 to be down", PATIENCE, async || (holders(&fleet.gateway, "1").await == ["r1"]).then_some(())).await;
    fleet.edit(|config| {
        config["pools"][0]["replicas"].as_array_mut().unwrap().remove(0);
        config["pools"][0]["replicas"][0]["weight"] = json!(1);
    });
    eventually("r1 to drain", PATIENCE, async || {
        rows(&fleet).await.iter().any(|row| row["draining"] == true).then_some(())
    })
    .await;
    // Long enough for several polls of the one that drains.
    holdfast_testkit::wait::always("served by r1", Duration::from_secs(3), async || {
        fleet.infer("acme").await.header("x-holdfast-replica") == "r1"
    })
    .await;
}
