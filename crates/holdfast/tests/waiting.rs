//! How many requests may wait for loads (`limits.waiting`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use fleet::{Fleet, PATIENCE, acme, assert_not_kept_waiting, is_shed, load_takes, loads, path, probe};
use holdfast_testkit::eventually;
use holdfast_testkit::http::{Answer, Client};
use serde_json::json;

async fn fleet(waiting: u64) -> Fleet {
    let fleet = Fleet::start((1, &[]), 2, acme(1, 2), |config| {
        config["limits"] = json!({"waiting": waiting});
        // The bound is one for all of them.
        config["workers"] = json!(2);
        // As many places at the replica as may wait: were they held by who waits, nobody else would be served.
        config["pools"][0]["replicas"][0]["concurrency"] = json!(2);
    })
    .await;
    fleet.wait_held("1", 1).await;
    load_takes(&fleet.repository, "2", "12s");
    fleet
}

async fn ask(fleet: &Fleet, version: &str) -> Answer {
    fleet.gateway.infer("acme", &path(version), &probe()).await
}

async fn waiting(fleet: &Fleet) -> f64 {
    fleet.gateway.metrics().await.sum("holdfast_waiting_requests", &[])
}

#[tokio::test]
async fn one_more_than_may_wait_is_shed_at_once_and_takes_no_place_from_those_who_wait() {
    let fleet = fleet(2).await;
    let data = fleet.gateway.data.addr();
    let served = [(); 2].map(|()| {
        tokio::spawn(async move { Client::new(data).post(&path("2"), &[("x-tenant", "acme")], &probe()).await })
    });
    eventually("two to wait", PATIENCE, async || (waiting(&fleet).await == 2.0).then_some(())).await;
    for _ in 0..3 {
        let answer = ask(&fleet, "2").await;
        assert!(is_shed(&answer, "no_holder") && answer.text().contains("(too_many_waiters)"), "{answer:?}");
        assert_not_kept_waiting(&fleet.gateway, &answer).await;
    }
    assert_eq!(fleet.replica("r1").await["in_flight"], 0, "who waits has no place at the replica");
    // Who need not wait is served.
    let _ = ask(&fleet, "1").await.expect(200);
    assert_eq!(waiting(&fleet).await, 2.0);
    assert_eq!(loads(&fleet.servers, "in_flight").await, 1, "all of that was before the load had ended");
    for waits in served {
        assert_eq!(waits.await.unwrap().expect(200).header("x-holdfast-version"), "2");
    }
    assert_eq!(waiting(&fleet).await, 0.0, "the places are given back");
    assert_eq!(loads(&fleet.servers, "started").await, 2);
}

/// What a tenant has in place of a refusal is no version's answer, and is told from one.
#[tokio::test]
async fn an_answer_of_the_tenants_own_takes_the_place_of_a_refusal_and_names_no_version() {
    let fleet = Fleet::start((1, &[]), 2, acme(1, 2), |config| {
        config["limits"] = json!({"waiting": 0});
        config["tenants"][0]["fallback"] = json!({"screen": {"outputs": [{"name": "label", "data": ["unknown"]}]}});
    })
    .await;
    fleet.wait_held("1", 1).await;
    load_takes(&fleet.repository, "2", "60s");
    for _ in 0..2 {
        let answer = ask(&fleet, "2").await.expect(200);
        assert_eq!(answer.header("x-holdfast-fallback"), "no_holder", "{answer:?}");
        assert_eq!((answer.header("x-holdfast-version"), answer.header("x-holdfast-replica")), ("", ""));
        assert_ne!(answer.header("retry-after"), "");
        let body = answer.json();
        assert_eq!((&body["model_name"], body.get("model_version")), (&json!("screen"), None), "{body}");
        assert_eq!(
            (&body["parameters"]["fallback"], &body["outputs"][0]["data"][0]),
            (&json!(true), &json!("unknown"))
        );
    }
    // What can be served is, by its version, and what is wrong is told.
    let served = ask(&fleet, "1").await.expect(200);
    assert_eq!((served.header("x-holdfast-version"), served.header("x-holdfast-fallback")), ("1", ""));
    let unknown = ask(&fleet, "7").await;
    assert_eq!((unknown.status.is_client_error(), unknown.header("x-holdfast-fallback")), (true, ""), "{unknown:?}");
    let metrics = fleet.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_errors_total", &[("kind", "no_holder")]), 2.0, "for the books it is a failure");
}

#[tokio::test]
async fn where_none_may_wait_each_is_shed_until_the_version_is_held() {
    let fleet = fleet(0).await;
    // Warmed without anybody who waits.
    let _ = ask(&fleet, "1").await.expect(200);
    let answer = ask(&fleet, "2").await;
    assert!(is_shed(&answer, "no_holder") && answer.text().contains("(too_many_waiters)"), "{answer:?}");
    assert_not_kept_waiting(&fleet.gateway, &answer).await;
    assert_eq!(waiting(&fleet).await, 0.0);
}
