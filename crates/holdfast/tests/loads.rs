//! What counts as a load and what as in use, whatever a server says and whatever a reload calls it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use fleet::{Fleet, PATIENCE, acme, ask_within, holders, loads, path, probe};
use holdfast_testkit::http::Client;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::wait::always;
use holdfast_testkit::{Holdfast, Script, Stub, eventually};
use serde_json::{Value, json};

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
    eventually("both to load", PATIENCE, async || (loads(&fleet.servers, "in_flight").await == 2).then_some(())).await;
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

#[tokio::test]
async fn a_gateway_that_is_started_anew_counts_the_loads_that_it_finds() {
    let mut fleet = Fleet::start((1, &["--load-time", "3s"]), 4, acme(1, 4), |_| {}).await;
    eventually("a load", PATIENCE, async || (loads(&fleet.servers, "in_flight").await == 1).then_some(())).await;
    for round in 1..=2 {
        fleet.gateway.restart().await;
        for version in ["2", "3", "4"] {
            assert_eq!(ask_within(&fleet.gateway, version, "50").await.status, 503);
        }
        eventually("the load to be seen", PATIENCE, async || {
            (fleet.replica("r1").await["loads_in_flight"] == 1).then_some(())
        })
        .await;
        assert_eq!(fleet.servers[0].stats().await["loads"]["started"], 1, "restart {round}");
    }
    let _ = ask_within(&fleet.gateway, "1", "15000").await.expect(200);
    for version in ["2", "3", "4"] {
        let _ = ask_within(&fleet.gateway, version, "30000").await.expect(200);
    }
    let stats = fleet.servers[0].stats().await;
    assert_eq!((&stats["loads"]["max_in_flight"], &stats["loads"]["started"]), (&json!(1), &json!(4)), "{stats}");
}

#[tokio::test]
async fn a_load_that_is_refused_and_goes_on_all_the_same_keeps_its_slot() {
    // Answers each load with an error, and loads all the same: slowly, as its index says.
    let state = Arc::new(AtomicU64::new(0));
    let (now, v2) = (state.clone(), Arc::new(V2::unloaded(&[("screen-1", "1"), ("screen-2", "2")])));
    let stub = Stub::start(move |request| {
        if request.path.ends_with("/load") {
            now.fetch_add(1, SeqCst);
            return Script::with_headers(504, &[], b"{\"error\":\"gateway time-out\"}");
        }
        if request.path.ends_with("/index") && now.load(SeqCst) > 0 {
            return Script::with_headers(200, &[], b"[{\"name\":\"screen-1\",\"state\":\"LOADING\"}]");
        }
        v2.answer(request)
    })
    .await;
    let mut config = fleet::config(&[stub.url()], 2, acme(1, 2));
    config["pools"][0]["health"]["interval"] = json!("500ms");
    let gateway = Holdfast::start(fleet::binary(), &fleet::text(&config)).await;
    eventually("the load", PATIENCE, async || (state.load(SeqCst) > 0).then_some(())).await;
    always("no second load", Duration::from_secs(3), async || {
        assert_eq!(ask_within(&gateway, "2", "100").await.status, 503);
        state.load(SeqCst) == 1
    })
    .await;
    assert_eq!(fleet::replica(&gateway, "r1").await["loads_in_flight"], 1);
}

#[tokio::test]
async fn what_was_loaded_under_a_former_upstream_name_counts_and_is_unloaded() {
    // The servers have each version under two names.
    let mut fleet = Fleet::start((1, &["--load-time", "100ms", "--memory", "6GiB"]), 2, acme(1, 2), |config| {
        config["pools"][0]["replicas"][0]["memory"] = json!("4GiB");
        config["pools"][0]["thrash_window"] = json!("100ms");
    })
    .await;
    for version in ["1", "2"] {
        let _ = ask_within(&fleet.gateway, version, "10000").await.expect(200);
        let (from, to) = (format!("screen-{version}"), format!("other-{version}"));
        fleet::copy_model(&fleet.repository, &from, &to);
    }
    fleet.edit(|config| config["pools"][0]["upstream"] = json!({"model": "other-{version}"}));
    for version in ["1", "2"] {
        eventually("the other name to serve", PATIENCE, async || {
            let answer = ask_within(&fleet.gateway, version, "10000").await;
            let told = fleet.gateway.admin_get("/v1/explain?tenant=acme&model=screen").await;
            (answer.status == 200 && told["upstream"]["model"] == "other-1").then_some(())
        })
        .await;
    }
    eventually("the former names to be gone", PATIENCE, async || {
        let row = fleet.replica("r1").await;
        (fleet.servers[0].stats().await["unloads"] == 2 && row["strangers"] == json!([])).then_some(())
    })
    .await;
    let stats = fleet.servers[0].stats().await;
    assert_eq!(stats["loads"]["refused"], 0, "never more than its memory: {stats}");
    // Somebody loads a former name again: it takes the room that it is known to take.
    let _ = fleet.servers[0].http.post("/v2/repository/models/screen-1/load", &[], &json!({})).await.expect(200);
    eventually("the stranger to count", PATIENCE, async || {
        let row = fleet.replica("r1").await;
        (row["strangers"] == json!(["screen-1"]) && row["held"] == 6u64 << 30).then_some(())
    })
    .await;
}
