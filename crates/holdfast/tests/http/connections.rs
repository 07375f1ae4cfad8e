//! Connections to a replica, and requests on it, are bounded over all workers together.

use std::time::Duration;

use bytes::Bytes;
use holdfast_testkit::eventually;
use holdfast_testkit::http::Client;
use holdfast_testkit::script::Script;
use http::Method;
use serde_json::Value;
use tokio::task::JoinSet;

use super::fixture::{BODY, Differs, INFER, Rig, TENANT};

const PATIENCE: Duration = Duration::from_secs(30);
const CLIENTS: usize = 16;

async fn replica(rig: &Rig) -> Value {
    rig.gateway.admin_get("/v1/replicas").await["replicas"][0].clone()
}

/// As many requests, each on a connection of its own, so that every worker has some. Their statuses and kinds of failure come as they end.
fn crowd(rig: &Rig) -> JoinSet<(u16, String)> {
    let mut crowd = JoinSet::new();
    for _ in 0..CLIENTS {
        let client = Client::new(rig.gateway.data.addr());
        crowd.spawn(async move {
            let answer = client.send(Method::POST, INFER, &TENANT, Bytes::from_static(BODY.as_bytes())).await.unwrap();
            (answer.status.as_u16(), answer.header("x-holdfast-error").to_owned())
        });
    }
    crowd
}

fn executing(rig: &Rig) -> usize {
    rig.stub.count(|request| request.path.contains("/infer"))
}

#[tokio::test]
async fn all_workers_together_have_no_more_connections_to_a_replica_than_it_may_have() {
    let pool = "    connections: { per_replica: 3, warm: 0, idle: 1h }";
    let differs = Differs { top: "workers: 4", pool, ..Differs::default() };
    let rig = Rig::with(differs, |request| (request.header("x-wants") != "answer").then(Script::never)).await;
    let waiting = crowd(&rig);
    eventually("all to be on the replica or wait for it", PATIENCE, async || {
        let told = replica(&rig).await;
        (told["in_flight"] == CLIENTS && executing(&rig) >= 3).then_some(())
    })
    .await;
    assert_eq!((executing(&rig), replica(&rig).await["connections"].as_u64()), (3, Some(3)));
    drop(waiting);
    eventually("who has left to be gone", PATIENCE, async || (replica(&rig).await["in_flight"] == 0).then_some(()))
        .await;
    // Connections that are idle at one worker serve another's requests: there are no more than three of them from now on, whoever asks.
    let before = rig.stub.connections();
    for _ in 0..CLIENTS {
        let client = Client::new(rig.gateway.data.addr());
        let fields = [TENANT[0], ("x-wants", "answer")];
        let answer = client.send(Method::POST, INFER, &fields, Bytes::from_static(BODY.as_bytes())).await.unwrap();
        assert_eq!(answer.status, 200);
        let open = replica(&rig).await["connections"].as_u64();
        assert!((1..=3).contains(&open.unwrap()), "{open:?}");
    }
    let opened = rig.stub.connections() - before;
    assert!(opened <= 3, "{opened} connections for {CLIENTS} requests");
}

#[tokio::test]
async fn a_replica_is_never_sent_more_requests_at_once_than_it_may_have() {
    let differs = Differs { top: "workers: 4", replica: ", concurrency: 2", ..Differs::default() };
    let rig = Rig::with(differs, |_| Some(Script::never())).await;
    let mut crowd = crowd(&rig);
    for _ in 2..CLIENTS {
        let refused = crowd.join_next().await.unwrap().unwrap();
        assert_eq!(refused, (503, "overloaded".to_owned()));
    }
    eventually("two to run", PATIENCE, async || (executing(&rig) == 2).then_some(())).await;
    assert_eq!(replica(&rig).await["in_flight"], 2);
}

#[tokio::test]
async fn connections_are_opened_before_they_are_needed_and_closed_when_they_are_not() {
    let pool = "    connections: { warm: 5, idle: 1h }\n    health: { interval: 100ms, timeout: 100ms }";
    let rig = Rig::with(Differs { top: "workers: 3", pool, ..Differs::default() }, |_| None).await;
    let open = async |rig: &Rig| replica(rig).await["connections"].as_u64().unwrap();
    eventually("five to be open", PATIENCE, async || (open(&rig).await == 5).then_some(())).await;
    for _ in 0..CLIENTS {
        assert_eq!(rig.infer().await, 200);
        assert!(open(&rig).await >= 5);
    }
    let pool = "    connections: { warm: 0, idle: 100ms }";
    let rig = Rig::with(Differs { pool, ..Differs::default() }, |_| None).await;
    assert_eq!(rig.infer().await, 200);
    eventually("none to be open", PATIENCE, async || (open(&rig).await == 0).then_some(())).await;
}
