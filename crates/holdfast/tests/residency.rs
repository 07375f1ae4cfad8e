//! Who holds what under requests: cold loads, their bounds, evictions, failures of loads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fleet::{
    Fleet, PATIENCE, acme, ask_within, assert_not_kept_waiting, is_shed, judgements, load_takes, loads, path, probe,
};
use holdfast_testkit::eventually;
use holdfast_testkit::http::Answer;
use serde_json::json;
use tokio::task::JoinSet;

impl Fleet {
    async fn ask(&self, version: &str) -> Answer {
        self.gateway.infer("acme", &path(version), &probe()).await
    }

    async fn ask_within(&self, version: &str, budget: &str) -> Answer {
        ask_within(&self.gateway, version, budget).await
    }
}

#[tokio::test]
async fn a_hundred_wait_for_one_load_and_the_first_to_leave_takes_nobody_with_it() {
    let fleet = Fleet::start((2, &["--load-time", "1500ms"]), 2, acme(2, 2), |_| {}).await;
    fleet.wait_held("1", 2).await;
    let before = loads(&fleet.servers, "started").await;
    let gateway = std::sync::Arc::new(holdfast_testkit::http::Client::new(fleet.gateway.data.addr()));
    let ask = move |gateway: std::sync::Arc<holdfast_testkit::http::Client>| async move {
        gateway.post(&path("2"), &[("x-tenant", "acme")], &probe()).await
    };
    let first = tokio::spawn(ask(gateway.clone()));
    eventually("the load to begin", PATIENCE, async || (loads(&fleet.servers, "in_flight").await == 1).then_some(()))
        .await;
    let mut rest = JoinSet::new();
    for _ in 0..99 {
        rest.spawn(ask(gateway.clone()));
    }
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    for answer in rest.join_all().await {
        let answer = answer.expect(200);
        assert_eq!(answer.header("x-holdfast-version"), "2");
    }
    assert_eq!(loads(&fleet.servers, "started").await - before, 1);
    let metrics = fleet.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_waiting_requests", &[]), 0.0);
}

#[tokio::test]
async fn a_stampede_of_versions_stays_within_the_bounds_of_loads() {
    let fleet = Fleet::start((3, &["--load-time", "150ms"]), 13, acme(3, 13), |config| {
        config["loads"] = json!({"fleet": 2});
    })
    .await;
    fleet.wait_held("1", 3).await;
    let judgements = judgements(13).await;
    let gateway = std::sync::Arc::new(holdfast_testkit::http::Client::new(fleet.gateway.data.addr()));
    let mut all = JoinSet::new();
    for n in 0..60 {
        let (gateway, version) = (gateway.clone(), (2 + n % 12).to_string());
        all.spawn(async move {
            let answer = gateway.post(&path(&version), &[("x-tenant", "acme")], &probe()).await;
            (version, answer)
        });
    }
    let mut most = 0;
    while !all.is_empty() {
        tokio::select! {
            Some(done) = all.join_next() => {
                let (version, answer) = done.unwrap();
                assert_eq!(answer.expect(200).json()["outputs"], judgements[&version]);
            }
            told = fleet.gateway.admin_get("/v1/replicas") => {
                let now: u64 = {
                    let mut sum = 0;
                    for server in &fleet.servers {
                        sum += server.stats().await["loads"]["in_flight"].as_u64().unwrap();
                    }
                    sum
                };
                most = most.max(now);
                assert!(told["loads_in_flight"].as_u64().unwrap() <= 2, "{told}");
            }
        }
    }
    // The servers are asked one after the other, so a load that ends here and one that begins there may both be seen.
    assert!((1..=3).contains(&most), "{most} loads at once");
    for server in &fleet.servers {
        assert_eq!(server.stats().await["loads"]["max_in_flight"], 1);
    }
    assert_eq!(loads(&fleet.servers, "started").await, 3 + 12, "one load for each version");
}

#[tokio::test]
async fn a_load_that_takes_longer_than_the_budget_sheds_at_once_and_goes_on() {
    let fleet = Fleet::start((1, &["--load-time", "1500ms"]), 3, acme(1, 3), |_| {}).await;
    // Measures what a load takes.
    let _ = fleet.infer("acme").await.expect(200);
    let answer = fleet.ask_within("2", "1400").await;
    assert!(is_shed(&answer, "no_holder") && answer.text().contains("(budget)"), "{answer:?}");
    assert_not_kept_waiting(&fleet.gateway, &answer).await;
    assert_eq!(answer.header("x-holdfast-version"), "2", "it was resolved");
    eventually("the load that was begun", PATIENCE, async || {
        let answer = fleet.ask_within("2", "700").await;
        assert!(answer.status == 200 || is_shed(&answer, "no_holder"), "{answer:?}");
        (answer.status == 200).then_some(())
    })
    .await;
    assert_eq!(loads(&fleet.servers, "started").await, 2, "however often it was asked for");
}

#[tokio::test]
async fn a_tenant_that_would_rather_be_shed_is_never_kept_waiting() {
    let fleet = Fleet::start((1, &["--load-time", "2s"]), 2, acme(1, 2), |config| {
        config["tenants"][0]["unavailable"] = json!("shed");
    })
    .await;
    fleet.wait_held("1", 1).await;
    let answer = fleet.ask("2").await;
    assert!(is_shed(&answer, "no_holder"), "{answer:?}");
    assert!(answer.text().contains("(shed)"), "{answer:?}");
    assert_not_kept_waiting(&fleet.gateway, &answer).await;
    eventually("the load that the refusal began", PATIENCE, async || {
        let answer = fleet.ask("2").await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn nothing_that_is_in_use_is_unloaded_when_memory_is_tight() {
    let flags = ["--load-time", "50ms", "--memory", "4GiB"];
    let fleet = Fleet::start((1, &flags), 4, acme(1, 4), |config| {
        config["pools"][0]["replicas"][0]["memory"] = json!("4GiB");
        config["pools"][0]["thrash_window"] = json!("100ms");
    })
    .await;
    let _ = fleet.infer("acme").await.expect(200);
    let judgements = judgements(4).await;
    fleet.servers[0].faults(&json!({"infer_delay": "30ms"})).await;
    let gateway = std::sync::Arc::new(holdfast_testkit::http::Client::new(fleet.gateway.data.addr()));
    let mut all = JoinSet::new();
    for worker in 0..8 {
        let gateway = gateway.clone();
        all.spawn(async move {
            let mut seen = Vec::new();
            for n in 0..25 {
                let version = (1 + (worker / 2 + n / 5) % 4).to_string();
                let answer = gateway.post(&path(&version), &[("x-tenant", "acme")], &probe()).await;
                seen.push((version, answer));
            }
            seen
        });
    }
    let (mut served, mut shed) = (BTreeMap::<String, usize>::new(), 0);
    for (version, answer) in all.join_all().await.into_iter().flatten() {
        if is_shed(&answer, "no_holder") {
            shed += 1;
            continue;
        }
        assert_eq!(answer.expect(200).json()["outputs"], judgements[&version]);
        *served.entry(version).or_default() += 1;
    }
    let stats = fleet.servers[0].stats().await;
    assert!(stats["unloads"].as_u64().unwrap() >= 2, "memory was tight: {stats}");
    assert_eq!(stats["loads"]["refused"], 0, "no load was asked for without room");
    assert!(served.len() >= 3, "{served:?}, {shed} shed");
    let metrics = fleet.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_upstream_attempts_total", &[("outcome", "not_loaded")]), 0.0, "{served:?}");
}

#[tokio::test]
async fn an_active_set_that_is_too_large_is_served_in_part_without_a_storm_of_loads() {
    let flags = ["--load-time", "100ms", "--memory", "20GiB"];
    let fleet = Fleet::start((1, &flags), 12, acme(1, 12), |config| {
        config["pools"][0]["replicas"][0]["memory"] = json!("20GiB");
    })
    .await;
    let (mut served, mut shed) = (0, 0);
    let end = Instant::now() + Duration::from_secs(5);
    let mut rounds = 0;
    while Instant::now() < end || rounds < 6 {
        rounds += 1;
        for version in 1..=12 {
            let answer = fleet.ask_within(&version.to_string(), "2000").await;
            match answer.status.as_u16() {
                200 => served += 1,
                _ => {
                    assert!(is_shed(&answer, "no_holder"), "{answer:?}");
                    shed += 1;
                }
            }
        }
    }
    let started = loads(&fleet.servers, "started").await;
    assert!(started <= 12 + 4, "{started} loads in {rounds} rounds");
    assert!(served >= 9 * rounds - 12 && shed > 0, "{served} served, {shed} shed in {rounds} rounds");
    let metrics = fleet.gateway.metrics().await;
    assert!(metrics.sum("holdfast_alarms_total", &[("kind", "thrash")]) >= 1.0);
}

#[tokio::test]
async fn loads_that_fail_back_off_and_the_version_is_served_once_they_do_not() {
    let fleet = Fleet::start((1, &["--load-time", "20ms"]), 2, acme(1, 2), |_| {}).await;
    fleet.wait_held("1", 1).await;
    fleet.servers[0].faults(&json!({"load_fails": "the disk is on fire"})).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        let answer = fleet.ask_within("2", "300").await;
        assert!(is_shed(&answer, "no_holder"), "{answer:?}");
    }
    let failed = loads(&fleet.servers, "failed").await;
    // The pauses grow, so that twice the time brings few more.
    let most = 6 + begun.elapsed().as_secs() / 4;
    assert!((1..=most).contains(&failed), "{failed} loads failed in {:?}", begun.elapsed());
    let missing = fleet.replica("r1").await["missing"].clone();
    assert!(missing[0]["why"].as_str().unwrap().contains("the disk is on fire"), "{missing}");
    assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-version"), "1", "others are served meanwhile");
    // Nobody waits for the next attempt, and what is foretold is what is told.
    let mut refused = fleet.ask_within("2", "20000").await;
    eventually("three failures in a row", PATIENCE * 2, async || {
        refused = fleet.ask_within("2", "20000").await;
        assert!(is_shed(&refused, "no_holder"), "{refused:?}");
        refused.text().contains("(backoff)").then_some(())
    })
    .await;
    assert_not_kept_waiting(&fleet.gateway, &refused).await;
    let told = fleet.gateway.admin_get("/v1/explain?tenant=acme&model=screen&version=2").await;
    assert!(told["now"].as_str().unwrap().contains("at once 503 no_holder, retry after"), "{told}");
    let member = &told["subset"][0];
    assert_eq!((&member["state"], &member["reason"]), (&json!("missing"), &json!("backoff")), "{told}");
    assert!(member["why"].as_str().unwrap().contains("the disk is on fire"), "{told}");
    assert!(member["retry_in_seconds"].as_u64().unwrap() <= 60 && member["failures"].as_u64().unwrap() >= 3, "{told}");
    fleet.servers[0].faults(&json!({})).await;
    eventually("the next attempt", Duration::from_secs(60), async || {
        (fleet.ask("2").await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_load_that_hangs_is_given_up_and_another_candidate_loads() {
    let mut fleet = Fleet::start((2, &["--load-time", "100ms"]), 2, acme(2, 2), |config| {
        config["pools"][0]["loads"] = json!({"timeout": "1s"});
    })
    .await;
    fleet.wait_held("1", 2).await;
    fleet.servers[0].faults(&json!({"load_hangs": true})).await;
    fleet.servers[1].faults(&json!({"load_hangs": true})).await;
    let client = holdfast_testkit::http::Client::new(fleet.gateway.data.addr());
    let waiting = tokio::spawn(async move {
        let headers = [("x-tenant", "acme"), ("x-request-timeout-ms", "12000")];
        client.post(&path("2"), &headers, &probe()).await
    });
    let stuck = eventually("a load that hangs", PATIENCE, async || {
        let first = fleet.servers[0].stats().await["loads"]["in_flight"] == 1;
        let second = fleet.servers[1].stats().await["loads"]["in_flight"] == 1;
        (first || second).then_some(if first { 0 } else { 1 })
    })
    .await;
    fleet.servers[1 - stuck].faults(&json!({})).await;
    let answer = waiting.await.unwrap().expect(200);
    assert_eq!(answer.header("x-holdfast-replica"), format!("r{}", 2 - stuck));
    let _ = fleet.infer("acme").await.expect(200);
    fleet.servers[stuck].proc.kill9();
}

#[tokio::test]
async fn a_replica_that_dies_while_loading_takes_no_waiter_with_it() {
    let mut fleet = Fleet::start((2, &["--load-time", "2s"]), 2, acme(2, 2), |_| {}).await;
    fleet.wait_held("1", 2).await;
    let client = holdfast_testkit::http::Client::new(fleet.gateway.data.addr());
    let waiting = tokio::spawn(async move { client.post(&path("2"), &[("x-tenant", "acme")], &probe()).await });
    let loading = eventually("the load", PATIENCE, async || {
        let first = fleet.servers[0].stats().await["loads"]["in_flight"] == 1;
        let second = fleet.servers[1].stats().await["loads"]["in_flight"] == 1;
        (first || second).then_some(if first { 0 } else { 1 })
    })
    .await;
    fleet.servers[loading].proc.kill9();
    let answer = waiting.await.unwrap().expect(200);
    assert_eq!(answer.header("x-holdfast-version"), "2");
    assert_eq!(answer.header("x-holdfast-replica"), format!("r{}", 2 - loading));
}

#[tokio::test]
async fn of_two_holders_the_one_that_loads_nothing_is_preferred() {
    let fleet = Fleet::start((2, &["--load-time", "3s"]), 2, acme(2, 2), |_| {}).await;
    fleet.wait_held("1", 2).await;
    let client = holdfast_testkit::http::Client::new(fleet.gateway.data.addr());
    let waiting = tokio::spawn(async move { client.post(&path("2"), &[("x-tenant", "acme")], &probe()).await });
    let busy = async |server: usize| fleet.servers[server].stats().await["loads"]["in_flight"] == 1;
    let loading = eventually("the load", PATIENCE, async || match (busy(0).await, busy(1).await) {
        (true, _) => Some(0),
        (_, true) => Some(1),
        _ => None,
    })
    .await;
    let other = format!("r{}", 2 - loading);
    let mut seen = 0;
    while !waiting.is_finished() {
        let answer = fleet.infer("acme").await.expect(200);
        // Only while the load is known to have run all the time.
        if busy(loading).await && !waiting.is_finished() {
            assert_eq!(answer.header("x-holdfast-replica"), other, "request {seen} during the load");
            seen += 1;
        }
    }
    let _ = waiting.await.unwrap().expect(200);
    assert!(seen > 2, "{seen} requests during the load");
}

#[tokio::test]
async fn a_slow_load_disturbs_nobody_who_asks_for_another_version() {
    let fleet = Fleet::start((1, &["--load-time", "50ms"]), 2, acme(1, 2), |_| {}).await;
    fleet.wait_held("1", 1).await;
    load_takes(&fleet.repository, "2", "12s");
    let client = holdfast_testkit::http::Client::new(fleet.gateway.data.addr());
    let waiting = tokio::spawn(async move { client.post(&path("2"), &[("x-tenant", "acme")], &probe()).await });
    eventually("the load", PATIENCE, async || (loads(&fleet.servers, "in_flight").await == 1).then_some(())).await;
    for _ in 0..10 {
        let answer = fleet.infer("acme").await.expect(200);
        assert_not_kept_waiting(&fleet.gateway, &answer).await;
    }
    assert_eq!(loads(&fleet.servers, "in_flight").await, 1, "they were served before the load had ended");
    let _ = waiting.await.unwrap().expect(200);
}

#[tokio::test]
async fn taking_the_only_holder_out_of_the_file_fails_no_request() {
    let mut fleet = Fleet::start((2, &["--load-time", "500ms"]), 1, acme(1, 1), |_| {}).await;
    let holder = fleet.infer("acme").await.expect(200).header("x-holdfast-replica").to_owned();
    let at = usize::from(holder == "r2");
    fleet.servers[at].faults(&json!({"infer_delay": "1s"})).await;
    let client = std::sync::Arc::new(holdfast_testkit::http::Client::new(fleet.gateway.data.addr()));
    let ask = |client: std::sync::Arc<holdfast_testkit::http::Client>| async move {
        client.post(fleet::INFER, &[("x-tenant", "acme")], &probe()).await
    };
    let mut all = JoinSet::new();
    (0..5).for_each(|_| drop(all.spawn(ask(client.clone()))));
    eventually("requests at the holder", PATIENCE, async || {
        (fleet.servers[at].stats().await["requests"]["in_flight"] == 5).then_some(())
    })
    .await;
    fleet.edit(|config| drop(config["pools"][0]["replicas"].as_array_mut().unwrap().remove(at)));
    eventually("the file to be taken", PATIENCE, async || {
        let rows = fleet.gateway.admin_get("/v1/replicas").await;
        (rows["replicas"].as_array().unwrap().len() == 1).then_some(())
    })
    .await;
    (0..20).for_each(|_| drop(all.spawn(ask(client.clone()))));
    let (mut old, mut new) = (0, 0);
    for answer in all.join_all().await {
        let answer = answer.expect(200);
        if answer.header("x-holdfast-replica") == holder { old += 1 } else { new += 1 }
    }
    assert_eq!((old, new), (5, 20), "what was in flight ends where it began, the rest waits for the load");
}

#[tokio::test]
async fn a_version_taken_out_of_the_file_is_unloaded_after_its_last_request_and_may_come_back() {
    let mut fleet = Fleet::start((1, &[]), 2, acme(1, 2), |_| {}).await;
    let _ = fleet.ask("2").await.expect(200);
    fleet.servers[0].faults(&json!({"infer_delay": "2s"})).await;
    let client = holdfast_testkit::http::Client::new(fleet.gateway.data.addr());
    let slow = tokio::spawn(async move { client.post(&path("2"), &[("x-tenant", "acme")], &probe()).await });
    eventually("the request at the replica", PATIENCE, async || {
        (fleet.servers[0].stats().await["requests"]["in_flight"] == 1).then_some(())
    })
    .await;
    let both = fleet.config.clone();
    fleet.edit(|config| {
        config["tenants"][0]["allow"] = json!({});
        drop(config["models"][0]["versions"].as_array_mut().unwrap().pop());
    });
    eventually("the file to be taken", PATIENCE, async || {
        let told = fleet.gateway.admin_get("/v1/explain?tenant=acme&model=screen&version=2").await;
        (told["error"] == "version_not_allowed").then_some(())
    })
    .await;
    let stats = fleet.servers[0].stats().await;
    assert_eq!((&stats["unloads"], &stats["requests"]["in_flight"]), (&json!(0), &json!(1)), "it is in use");
    let _ = slow.await.unwrap().expect(200);
    eventually("the unload", PATIENCE, async || (fleet.servers[0].stats().await["unloads"] == 1).then_some(())).await;
    fleet.servers[0].faults(&json!({})).await;
    fleet.edit(|config| *config = both);
    eventually("the version to be served again", PATIENCE, async || {
        let answer = fleet.ask("2").await;
        assert!(answer.status == 200 || answer.status == 403, "{answer:?}");
        (answer.status == 200).then_some(())
    })
    .await;
    assert_eq!(loads(&fleet.servers, "started").await, 3);
}

#[tokio::test]
async fn an_unload_by_somebody_else_is_made_good_without_an_error() {
    let fleet = Fleet::start((1, &["--load-time", "300ms"]), 1, acme(1, 1), |_| {}).await;
    let _ = fleet.infer("acme").await.expect(200);
    let targets = vec![holdfast_testkit::load::Target::new("acme", fleet::INFER, &probe())];
    let client = holdfast_testkit::http::Client::new(fleet.gateway.data.addr());
    let running = holdfast_testkit::load::Load::start(client, 60, targets);
    for round in 1..=2 {
        let _ = fleet.servers[0].http.post("/v2/repository/models/screen-1/unload", &[], &json!({})).await.expect(200);
        eventually("the version to be loaded again", PATIENCE, async || {
            (loads(&fleet.servers, "finished").await == 1 + round).then_some(())
        })
        .await;
        fleet.wait_held("1", 1).await;
    }
    let report = running.stop().await;
    assert_eq!(report.count(|r| r.status == 200), report.0.len(), "{:?}", report.outcomes());
}
