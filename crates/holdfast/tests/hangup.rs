//! Clients that leave with bytes unread in front of the end of their stream: what waited for them ends at once, not with the budget.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod operation_support;

use std::time::Duration;

use holdfast_testkit::raw::{RawClient, RawError};
use holdfast_testkit::{Holdfast, ModelServer, TempDir, eventually};
use serde_json::json;

use operation_support::{ask, binary, model_server, repository, served, versions};

const PINNED: &str = "/v2/models/screen/infer";
const COLD: &str = "/v2/models/screen/versions/2/infer";
/// The budget of a request is 60 s here: whatever ends within this time has not ended by it.
const SOON: Duration = Duration::from_secs(10);

fn request(path: &str, letters: usize) -> Vec<u8> {
    let body = ask(&"x".repeat(letters)).to_string();
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: h\r\nx-tenant: acme\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// A gateway before a server with these options; version 1 is pinned and held, version 2 has to be loaded.
async fn world(more: &[&str]) -> (Holdfast, ModelServer, TempDir) {
    let repository = repository(&["screen"], &["1", "2"]);
    let server = model_server(&repository, "r1", more).await;
    let config = format!(
        "auth: {{ trusted_header: x-tenant }}\ntimeouts: {{ request: 60s }}\nlimits: {{ buffer: 8KiB }}\npools:\n  - {{ name: p, protocol: open-inference, \
         residency: repository, replicas: [{{ name: r1, url: \"{}\", memory: 24GiB }}] }}\nmodels:\n  \
         - {{ name: screen, pool: p, versions: {} }}\ntenants:\n  \
         - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }}, allow: {{ screen: [\"2\"] }} }}\n",
        server.url(),
        versions(&["1", "2"])
    );
    let holdfast = Holdfast::start(binary(), &config).await;
    eventually("the pinned version", SOON * 3, async || {
        (holdfast.infer("acme", PINNED, &ask("coffee")).await.status == 200).then_some(())
    })
    .await;
    (holdfast, server, repository)
}

async fn waiting(holdfast: &Holdfast, gauge: &str, count: f64) {
    eventually(&format!("{gauge} to be {count}"), SOON, async || {
        (holdfast.metrics().await.sum(gauge, &[]) == count).then_some(())
    })
    .await;
}

/// One after another, each of these is sent by a client that leaves while its request is counted in `gauge`.
async fn leave(holdfast: &Holdfast, gauge: &str, sent: &[Vec<u8>]) {
    for bytes in sent {
        for resets in [false, true] {
            let mut client = RawClient::connect(holdfast.data.addr()).await;
            client.write(bytes).await;
            waiting(holdfast, gauge, 1.0).await;
            if resets {
                client.reset();
            } else {
                drop(client);
            }
            waiting(holdfast, gauge, 0.0).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_with_bytes_unread_does_not_wait_for_a_load() {
    let (holdfast, server, _repository) = world(&[]).await;
    server.faults(&json!({ "load_hangs": true })).await;
    let pipelined = [request(COLD, 9), request(COLD, 9)].concat();
    let half_a_head = [&request(COLD, 9)[..], b"POST / HTT"].concat();
    let refused = [&request(COLD, 9)[..], b"GET / HTTP/1.1\r\n\r\n"].concat();
    let large = request(COLD, 40_000);
    let cut = request(COLD, 90_000)[..40_000].to_vec();
    leave(&holdfast, "holdfast_waiting_requests", &[pipelined, half_a_head, refused, large, cut]).await;
    assert_eq!(holdfast.metrics().await.sum("holdfast_in_flight", &[]), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_with_bytes_unread_ends_its_request_at_the_replica() {
    let (holdfast, server, _repository) = world(&[]).await;
    server.faults(&json!({ "infer_delay": "120s" })).await;
    let pipelined = [request(PINNED, 9), request(PINNED, 9)].concat();
    leave(&holdfast, "holdfast_replica_in_flight", &[pipelined]).await;
    eventually("the replica to see them leave", SOON, async || {
        let stats = server.stats().await;
        (stats["cancels"].as_u64().unwrap() >= 2 && stats["requests"]["in_flight"] == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stays_is_answered_in_order_whatever_it_has_sent_ahead() {
    let (holdfast, _server, _repository) = world(&["--load-time", "1s"]).await;
    let mut client = RawClient::connect(holdfast.data.addr()).await;
    let all = [request(COLD, 9), request(COLD, 40_000), request(PINNED, 9)].concat();
    client.write(all).await;
    for version in ["2", "2", "1"] {
        let answer = client.answer("POST").await.unwrap();
        assert_eq!((answer.status, answer.header("x-holdfast-version")), (200, version), "{answer:?}");
    }
    assert_eq!(served(&holdfast, "acme", PINNED).await, "1");
}

/// TCP cannot tell a client that sends no more from one that has left, and it counts as one that has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_ends_its_side_while_it_waits_counts_as_one_that_left() {
    let (holdfast, server, _repository) = world(&[]).await;
    server.faults(&json!({ "load_hangs": true })).await;
    for bytes in [request(COLD, 9), [request(COLD, 9), request(COLD, 9)].concat()] {
        let mut client = RawClient::connect(holdfast.data.addr()).await;
        client.write(bytes).await;
        waiting(&holdfast, "holdfast_waiting_requests", 1.0).await;
        client.half_close().await;
        assert_eq!(client.answer("POST").await.unwrap_err(), RawError::Closed);
        waiting(&holdfast, "holdfast_waiting_requests", 0.0).await;
    }
}
