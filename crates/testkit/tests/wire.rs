//! The raw client, the stub and the load against one another: each must show a fault as it is, as later tests trust them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use holdfast_testkit::http::Client;
use holdfast_testkit::load::{Target, open_loop};
use holdfast_testkit::raw::{Framing, RawClient, RawError};
use holdfast_testkit::stub::StubOptions;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Script, Step, Stub, eventually};
use serde_json::json;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn reads_each_framing() {
    let stub = Stub::start(|r| match r.path.as_str() {
        "/length" => Script::with_headers(200, &[], b"abc"),
        "/chunked" => Script::raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
            .then_send("2;x=y\r\nde\r\n0\r\ntrailer: 1\r\n\r\n"),
        "/none" => Script::raw("HTTP/1.1 204 No Content\r\n\r\n"),
        "/early" => Script::raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nz"),
        "/head" => Script::raw("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n"),
        _ => Script::raw("HTTP/1.1 200 OK\r\n\r\nall of it").then(Step::Close),
    })
    .await;
    let mut client = RawClient::connect(stub.addr()).await;
    for (method, path, status, framing, body) in [
        ("GET", "/length", 200, Framing::Length(3), "abc"),
        ("GET", "/chunked", 200, Framing::Chunked, "abcde"),
        ("GET", "/none", 204, Framing::None, ""),
        ("HEAD", "/head", 200, Framing::None, ""),
        ("GET", "/close", 200, Framing::UntilClose, "all of it"),
    ] {
        client.write(format!("{method} {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        let answer = client.answer(method).await.unwrap();
        assert_eq!((answer.status, answer.framing, answer.text().as_str()), (status, framing, body), "{path}");
    }
    let mut client = RawClient::connect(stub.addr()).await;
    client.write("GET /early HTTP/1.1\r\n\r\n").await;
    assert_eq!(client.answer("GET").await.unwrap().status, 100);
    assert_eq!(client.answer("GET").await.unwrap().text(), "z");
}

#[tokio::test]
async fn pipelined_and_split_requests_are_answered_in_order() {
    let stub = Stub::start(|r| Script::with_headers(200, &[], r.path.as_bytes())).await;
    let mut client = RawClient::connect(stub.addr()).await;
    client.write("GET /1 HTTP/1.1\r\n\r\nPOST /2 HTTP/1.1\r\ncontent-length: 2\r\n\r\nhiGET /3 HTTP/1.1\r\n\r\n").await;
    client
        .write_segments(&[b"POST /4 HTTP/1.1\r\ntransfer-enc", b"oding: chunked\r\n\r\n1\r\na\r\n", b"0\r\n\r\n"])
        .await;
    for path in ["/1", "/2", "/3", "/4"] {
        assert_eq!(client.answer("GET").await.unwrap().text(), path);
    }
    let bodies: Vec<Vec<u8>> = stub.requests().into_iter().map(|r| r.body).collect();
    assert_eq!(bodies, [b"".to_vec(), b"hi".to_vec(), b"".to_vec(), b"a".to_vec()]);
    assert_eq!(stub.connections(), 1);
}

#[tokio::test]
async fn a_cut_answer_is_told_from_none_and_from_a_whole_one() {
    let stub = Stub::start(|r| match r.path.as_str() {
        "/cut" => Script::with_headers(200, &[], &[b'x'; 100]).cut_at(60, Step::Close),
        "/reset" => Script::with_headers(200, &[], b"abc").cut_at(5, Step::Reset),
        "/extra" => Script::with_headers(304, &[], b"").then_send("0123456789"),
        _ => Script::close(),
    })
    .await;
    let ask = async |path: &str| {
        let mut client = RawClient::connect(stub.addr()).await;
        client.write(format!("GET {path} HTTP/1.1\r\n\r\n")).await;
        (client.answer("GET").await, client)
    };
    assert!(matches!(ask("/cut").await.0, Err(RawError::Cut(_))));
    assert!(matches!(ask("/reset").await.0, Err(RawError::Cut(_))));
    assert_eq!(ask("/none").await.0.unwrap_err(), RawError::Closed);
    let (answer, mut client) = ask("/extra").await;
    assert_eq!(answer.unwrap().status, 304);
    client.half_close().await;
    assert_eq!(client.rest().await.unwrap(), b"0123456789", "the left-over bytes are seen, not hidden");
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_the_client_goes_on_with_a_new_one() {
    let options = StubOptions { idle_close: Some(Duration::from_millis(50)), ..StubOptions::default() };
    let stub = Stub::start_with(options, |_| Script::json(200, &json!({"ok": true}))).await;
    let client = Client::new(stub.addr());
    for round in 1..=3 {
        assert_eq!(client.get("/", &[]).await.expect(200).json(), json!({"ok": true}));
        eventually("the idle close", 5 * SECOND, async || (stub.open_connections() == 0).then_some(())).await;
        assert_eq!(stub.connections(), round);
    }
    let mut raw = RawClient::connect(stub.addr()).await;
    assert!(raw.closes_within(5 * SECOND).await);
}

#[tokio::test]
async fn a_client_that_leaves_is_seen_by_a_hanging_stub() {
    let stub = Stub::start(|_| Script::never()).await;
    let client = Client::new(stub.addr());
    let call = client.send(http::Method::GET, "/", &[], bytes::Bytes::new());
    assert!(tokio::time::timeout(Duration::from_millis(100), call).await.is_err());
    eventually("the end of the connection", 5 * SECOND, async || (stub.open_connections() == 0).then_some(())).await;
    assert_eq!(stub.requests().len(), 1);
}

#[tokio::test]
async fn the_v2_stub_keeps_to_the_protocol() {
    let v2 = V2::unloaded(&[("screen-1", "1"), ("screen-2", "2")]);
    let stub = Stub::start(move |r| v2.answer(r)).await;
    let client = Client::new(stub.addr());
    let _ = client.post("/v2/models/screen-1/infer", &[], &json!({"id": "a"})).await.expect(404);
    let _ = client.post("/v2/repository/models/screen-1/load", &[], &json!({})).await.expect(200);
    let answer = client.post("/v2/models/screen-1/infer", &[], &json!({"id": "a"})).await.expect(200).json();
    assert_eq!(
        (&answer["model_name"], &answer["model_version"], &answer["id"]),
        (&json!("screen-1"), &json!("1"), &json!("a"))
    );
    let index = client.post("/v2/repository/index", &[], &json!({})).await.expect(200).json();
    assert_eq!((&index[0]["state"], &index[1]["state"]), (&json!("READY"), &json!("UNAVAILABLE")));
    let _ = client.get("/v2/models/screen-1/versions/2/ready", &[]).await.expect(404);
    assert_eq!(stub.executions(), 2);
}

#[tokio::test]
async fn the_load_keeps_its_rate_and_counts_outcomes() {
    let stub = Stub::start(|r| match r.number % 4 {
        0 => Script::with_headers(429, &[("x-holdfast-error", "rate_limited")], b""),
        1 => Script::close(),
        _ => Script::with_headers(200, &[("x-holdfast-version", "2"), ("x-holdfast-revision", "7")], b"")
            .after(Duration::from_millis(150)),
    })
    .await;
    let targets = vec![Target::new("a", "/x", &json!({})), Target::new("b", "/y", &json!({}))];
    let report = open_loop(Client::new(stub.addr()), 200, SECOND, targets).await;
    let sent = report.0.len();
    assert!((190..=210).contains(&sent), "{sent} requests, although half of them take 150 ms");
    assert_eq!(report.count(|r| r.tenant == "a"), sent.div_ceil(2));
    let outcomes = report.outcomes();
    assert_eq!(outcomes.len(), 3, "{outcomes:?}");
    let fine = outcomes[&(200, "2".to_owned(), String::new())];
    assert!(fine.abs_diff(sent / 2) <= 2, "{outcomes:?}");
    assert_eq!(report.count(|r| r.revision == Some(7)), fine);
    assert!(report.count(|r| r.status == 0 && r.error.starts_with("send:")).abs_diff(sent / 4) <= 2);
    assert!(report.latency(0.99) >= Duration::from_millis(150));
}
