//! What counts as a load and what as in use, whatever a server says and whatever a reload calls it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use fleet::{Fleet, PATIENCE, holders, probe};
use holdfast_testkit::http::{Answer, Client};
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::wait::always;
use holdfast_testkit::{Holdfast, ModelServer, Script, Stub, eventually};
use serde_json::{Value, json};

/// One tenant, pinned to version 1, that may name the others up to `count`.
fn acme(subset: usize, count: usize) -> Value {
    let allow: Vec<String> = (2..=count).map(|v| v.to_string()).collect();
    json!([{"name": "acme", "subset": subset, "pins": {"screen": "1"}, "allow": {"screen": allow}}])
}

fn path(version: &str) -> String {
    format!("/v2/models/screen/versions/{version}/infer")
}

async fn ask_within(gateway: &Holdfast, version: &str, budget: &str) -> Answer {
    let headers = [("x-tenant", "acme"), ("x-request-timeout-ms", budget)];
    gateway.data.post(&path(version), &headers, &probe()).await
}

async fn loads_in_flight(servers: &[ModelServer]) -> u64 {
    let mut sum = 0;
    for server in servers {
        sum += server.stats().await["loads"]["in_flight"].as_u64().unwrap();
    }
    sum
}

#[tokio::test]
async fn a_load_slower_than_its_time_out_keeps_its_slot_until_it_has_ended() {
    let fleet = Fleet::start((1, &["--load-time", "4s"]), 3, acme(1, 3), |config| {
        config["pools"][0]["loads"] = json!({"per_replica": 1, "timeout": "1s"});
    })
    .await;
    // The warm-up of version 1 is over its time after a second. Nothing else may begin meanwhile, however much is asked for.
    eventually("the alarm", PATIENCE, async || {
        for version in ["2", "3"] {
            assert_eq!(ask_within(&fleet.gateway, version, "50").await.status, 503);
        }
        let metrics = fleet.gateway.metrics().await;
        (metrics.sum("holdfast_alarms_total", &[("kind", "load_overdue")]) >= 1.0).then_some(())
    })
    .await;
    eventually("all to be loaded after all, one after the other", Duration::from_secs(40), async || {
        let mut held = 0;
        for version in ["1", "2", "3"] {
            held += usize::from(ask_within(&fleet.gateway, version, "50").await.status == 200);
        }
        assert_eq!(fleet.servers[0].stats().await["loads"]["max_in_flight"], 1);
        (held == 3).then_some(())
    })
    .await;
}

#[tokio::test]
async fn servers_that_change_their_names_are_given_no_second_load() {
    let mut fleet = Fleet::start((2, &["--load-time", "1500ms"]), 3, acme(2, 3), |config| {
        config["pools"][0]["loads"] = json!({"per_replica": 1});
    })
    .await;
    eventually("both to load", PATIENCE, async || (loads_in_flight(&fleet.servers).await == 2).then_some(())).await;
    let before = fleet.revision().await;
    fleet.edit(|config| {
        let replicas = config["pools"][0]["replicas"].as_array_mut().unwrap();
        let urls: Vec<Value> = replicas.iter().map(|r| r["url"].clone()).collect();
        replicas[0]["url"] = urls[1].clone();
        replicas[1]["url"] = urls[0].clone();
    });
    eventually("the swap", PATIENCE, async || (fleet.revision().await > before).then_some(())).await;
    for version in ["2", "3", "1"] {
        let _ = ask_within(&fleet.gateway, version, "30000").await.expect(200);
    }
    for server in &fleet.servers {
        assert_eq!(server.stats().await["loads"]["max_in_flight"], 1);
    }
}

#[tokio::test]
async fn what_a_request_uses_under_a_former_name_of_the_server_is_not_unloaded() {
    let mut fleet = Fleet::start((1, &[]), 2, acme(1, 2), |config| {
        config["pools"][0]["replicas"][0]["memory"] = json!("3GiB");
        config["pools"][0]["memory"] = json!("overcommit");
        config["pools"][0]["thrash_window"] = json!("100ms");
    })
    .await;
    fleet.wait_held("1", 1).await;
    fleet.servers[0].faults(&json!({"infer_delay": "3s"})).await;
    let gateway = Arc::new(Client::new(fleet.gateway.data.addr()));
    let ask = |version: &str| {
        let (gateway, path) = (gateway.clone(), path(version));
        tokio::spawn(async move { gateway.post(&path, &[("x-tenant", "acme")], &probe()).await })
    };
    let slow = ask("1");
    eventually("the request at the server", PATIENCE, async || {
        (fleet.gateway.metrics().await.sum("holdfast_replica_in_flight", &[]) >= 1.0).then_some(())
    })
    .await;
    fleet.edit(|config| config["pools"][0]["replicas"][0]["name"] = json!("renamed"));
    eventually("the new name to hold it", PATIENCE, async || {
        (holders(&fleet.gateway, "1").await == ["renamed"]).then_some(())
    })
    .await;
    // Room for version 2 is to be made of version 1, which is in use.
    let next = ask("2");
    while !slow.is_finished() {
        let stats = fleet.servers[0].stats().await;
        assert!(stats["unloads"] == 0 || stats["requests"]["in_flight"] == 0, "{stats}");
    }
    assert_eq!(slow.await.unwrap().expect(200).header("x-holdfast-version"), "1");
    assert_eq!(next.await.unwrap().expect(200).header("x-holdfast-version"), "2");
}

#[tokio::test]
async fn a_load_that_is_answered_before_it_is_done_is_one_load_until_the_version_is_ready() {
    // Answers each load at once. What it has loaded so is ready only when the test says so.
    let v2 = Arc::new(V2::unloaded(&[("screen-1", "1"), ("screen-2", "2"), ("screen-3", "3")]));
    let (answering, asked) = (v2.clone(), Arc::new(AtomicU64::new(0)));
    let counting = asked.clone();
    let stub = Stub::start(move |request| {
        if request.path.ends_with("/load") {
            counting.fetch_add(1, SeqCst);
            return Script::with_headers(200, &[], b"");
        }
        answering.answer(request)
    })
    .await;
    let mut config = fleet::config(&[stub.url()], 3, acme(1, 3));
    config["pools"][0]["loads"] = json!({"per_replica": 1, "timeout": "2s"});
    let gateway = Holdfast::start(fleet::binary(), &fleet::text(&config)).await;
    for version in ["2", "3"] {
        assert_eq!(ask_within(&gateway, version, "300").await.status, 503);
    }
    eventually("the load to have failed", PATIENCE, async || {
        (gateway.metrics().await.sum("holdfast_loads_total", &[("outcome", "failed")]) >= 1.0).then_some(())
    })
    .await;
    let loads = asked.load(SeqCst);
    assert!(loads <= 3, "{loads} loads were asked for in two seconds and a little");
}

#[tokio::test]
async fn a_version_pinned_in_force_stays_until_its_successor_is_there() {
    let mut fleet = Fleet::start((1, &["--load-time", "50ms"]), 2, acme(1, 2), |config| {
        config["pools"][0]["replicas"][0]["memory"] = json!("3GiB");
        config["pools"][0]["memory"] = json!("guaranteed");
        config["pools"][0]["thrash_window"] = json!("0s");
        config["tenants"][0]["allow"] = json!({});
    })
    .await;
    fleet.wait_held("1", 1).await;
    let before = fleet.gateway.metrics().await.sum("holdfast_config_reload_total", &[]);
    fleet.pin(0, "2");
    eventually("the reload", PATIENCE, async || {
        (fleet.gateway.metrics().await.sum("holdfast_config_reload_total", &[]) > before).then_some(())
    })
    .await;
    always("served by the old pin", Duration::from_secs(2), async || {
        let answer = fleet.infer("acme").await;
        answer.status == 200 && answer.header("x-holdfast-version") == "1"
    })
    .await;
    assert_eq!(fleet.servers[0].stats().await["unloads"], 0);
}
