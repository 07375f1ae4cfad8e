//! Clients that open no window for what they have asked for.

use std::time::Duration;

use bytes::Bytes;
use holdfast_testkit::{Script, eventually};
use http::Method;
use tokio::net::TcpStream;

use crate::fixture::{BODY, Differs, INFER, Rig};
use crate::{connect, request, send};

#[tokio::test]
async fn a_client_that_opens_no_window_does_not_keep_a_replica() {
    let rig = Rig::with(Differs::default(), |_| {
        let json =
            format!(r#"{{"model_name":"screen","model_version":"1","outputs":[],"pad":"{}"}}"#, "x".repeat(200_000));
        Some(Script::json(200, &serde_json::from_str(&json).unwrap()))
    })
    .await;
    let stream = TcpStream::connect(rig.gateway.data.addr()).await.unwrap();
    let (sender, connection) = h2::client::Builder::new().initial_window_size(0).handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut request = request(Method::POST, INFER, "acme");
    request.headers_mut().insert("x-request-timeout-ms", "700".parse().unwrap());
    let (response, mut body) = sender.ready().await.unwrap().send_request(request, false).unwrap();
    body.send_data(Bytes::from_static(BODY.as_bytes()), true).unwrap();
    let answer = response.await.unwrap();
    assert_eq!(answer.status(), 200);
    eventually("the replica to be let go at the deadline", Duration::from_secs(10), async || {
        let replicas = rig.gateway.admin_get("/v1/replicas").await;
        (replicas["replicas"][0]["in_flight"] == 0).then_some(())
    })
    .await;
    // Only now: until here the client has kept its stream open.
    drop(answer);
}

#[tokio::test]
async fn a_client_that_opens_no_window_loses_its_connection_and_one_that_reads_keeps_it() {
    let top = "timeouts: { keepalive_idle: 1s }";
    let rig = Rig::with(Differs { top, ..Differs::default() }, |_| None).await;
    let stream = TcpStream::connect(rig.gateway.data.addr()).await.unwrap();
    let (sender, connection) = h2::client::Builder::new().initial_window_size(0).handshake(stream).await.unwrap();
    // The library answers pings, and asks for nothing but the answers' heads.
    let ended = tokio::spawn(connection);
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut ready = sender.clone().ready().await.unwrap();
        let (response, mut body) = ready.send_request(request(Method::POST, INFER, "acme"), false).unwrap();
        body.send_data(Bytes::from_static(BODY.as_bytes()), true).unwrap();
        held.push(response.await.unwrap());
    }
    let metrics = rig.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_in_flight", &[]), 5.0, "whole answers wait for a window");
    let reads = connect(&rig).await;
    let ended = tokio::time::timeout(Duration::from_secs(20), async {
        while !ended.is_finished() {
            let served = send(&reads, request(Method::POST, INFER, "acme"), BODY).await.unwrap();
            assert_eq!(served.status, 200, "on a connection that is used");
        }
    });
    ended.await.expect("the connection ends");
    eventually("everything to be given back", Duration::from_secs(10), async || {
        (rig.gateway.metrics().await.sum("holdfast_in_flight", &[]) == 0.0).then_some(())
    })
    .await;
    drop(held);
}
