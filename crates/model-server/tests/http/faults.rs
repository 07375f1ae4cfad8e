//! Each fault, as a client meets it.

use std::time::{Duration, Instant};

use holdfast_model_server::{Options, PROBE};
use http::StatusCode;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Bench, one_text, request, send, verdict};

async fn bench() -> Bench {
    Bench::new(|options: &mut Options| options.load_all = true).await
}

#[tokio::test]
async fn faults_are_switched_over_http_and_shown_as_sent() {
    let bench = bench().await;
    let faults = json!({ "infer_delay": "30ms", "error_rate": 1.0, "error_status": 429, "limit": 2 });
    let answer = bench.post("/control/faults", faults.to_string()).await;
    assert_eq!((answer.status, answer.json()), (StatusCode::OK, faults.clone()));
    assert_eq!(bench.get("/control/faults").await.json(), faults);
    let before = Instant::now();
    for _ in 0..2 {
        let answer = bench.judge("x").await;
        assert_eq!((answer.status, answer.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, Some("1")));
    }
    assert!(before.elapsed() >= Duration::from_millis(60), "both were delayed");
    assert_eq!(bench.judge("x").await.status, StatusCode::OK, "the limit is used up");
    assert_eq!(bench.server.stats().executions[0].count, 1, "a refusal does no work");
    bench.post("/control/faults", "").await;
    assert_eq!(bench.get("/control/faults").await.json(), json!({}));
}

#[tokio::test]
async fn a_hanging_request_ends_when_its_client_leaves() {
    let bench = bench().await;
    bench.faults(&["hang=true"]);
    let asked = send(bench.server.address(), request("POST", "/v2/models/screen-1/infer", one_text("x")));
    tokio::select! {
        answer = asked => panic!("{answer:?}"),
        stats = bench.until("the request", |stats| stats.requests.in_flight == 1) => assert_eq!(stats.cancels, 0),
    }
    let stats = bench.until("the cancel", |stats| stats.requests.in_flight == 0).await;
    assert_eq!((stats.cancels, stats.executions[0].count), (1, 1), "work begun is counted");
}

#[tokio::test]
async fn a_server_with_a_hanging_request_can_be_stopped() {
    let bench = bench().await;
    bench.faults(&["hang=true"]);
    let asked = send(bench.server.address(), request("POST", "/v2/models/screen-1/infer", one_text("x")));
    let asked = tokio::spawn(asked);
    bench.until("the request", |stats| stats.requests.in_flight == 1).await;
    bench.server.stop().await;
    assert!(asked.await.unwrap().is_err());
}

#[tokio::test]
async fn errors_come_in_their_share() {
    let bench = bench().await;
    bench.faults(&["error_rate=0.5"]);
    let mut failed = 0;
    for _ in 0..40 {
        failed += u32::from(bench.judge("x").await.status == StatusCode::INTERNAL_SERVER_ERROR);
    }
    assert!((10..=30).contains(&failed), "{failed} of 40");
}

#[tokio::test]
async fn wrong_versions_really_judge_and_say_so_or_lie() {
    let bench = bench().await;
    assert_eq!(verdict(&bench.judge(PROBE).await), ("clean".to_owned(), "1".to_owned()));
    bench.faults(&["wrong_version_rate=1"]);
    let honest = bench.judge(PROBE).await.json();
    let name = honest["model_name"].as_str().unwrap();
    assert!(name.starts_with("screen-") && name != "screen-1", "the nearest other name answers: {name}");
    bench.faults(&["wrong_weights_rate=1"]);
    let lie = bench.judge(PROBE).await.json();
    assert_eq!((&lie["model_name"], &lie["model_version"]), (&json!("screen-1"), &json!("1")));
    assert_eq!(lie["outputs"], honest["outputs"], "the same other version judged");
}

#[tokio::test]
async fn with_nothing_else_held_a_wrong_version_is_only_claimed() {
    let bench = Bench::new(|options: &mut Options| options.load = vec!["screen-1".parse().unwrap()]).await;
    bench.faults(&["wrong_version_rate=1"]);
    assert_eq!(verdict(&bench.judge(PROBE).await), ("clean".to_owned(), "2".to_owned()));
}

#[tokio::test]
async fn the_version_can_be_left_out() {
    let bench = bench().await;
    bench.faults(&["omit_version=true"]);
    let json = bench.judge("x").await.json();
    assert_eq!((json.get("model_version"), &json["model_name"]), (None, &json!("screen-1")));
}

#[tokio::test]
async fn readiness_can_lie() {
    let bench = Bench::new(|_| {}).await;
    bench.faults(&["ready_lies=true"]);
    assert_eq!(bench.get("/v2/models/screen-1/ready").await.status, StatusCode::OK);
    assert_eq!(bench.get("/v2/models/none/ready").await.status, StatusCode::NOT_FOUND);
    assert_eq!(bench.index(r#"{"ready":true}"#).await.len(), 6);
    let answer = bench.judge("x").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    bench.load("screen-1").await;
    assert_eq!(bench.judge("x").await.status, StatusCode::NOT_FOUND, "what is held is denied too");
}

#[tokio::test]
async fn loads_can_fail() {
    let bench = Bench::new(|_| {}).await;
    bench.faults(&["load_fails=CUDA out of memory", "limit=1"]);
    let answer = bench.load("screen-1").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.error(), "failed to load 'screen-1', CUDA out of memory");
    assert!(bench.index("").await.contains(&"screen-1:1 UNAVAILABLE CUDA out of memory".to_owned()));
    assert_eq!(bench.load("screen-1").await.status, StatusCode::OK);
    let loads = bench.until("the end", |stats| stats.loads.in_flight == 0).await.loads;
    assert_eq!((loads.failed, loads.finished), (1, 1));
}

#[tokio::test]
async fn loads_can_hang_until_an_unload() {
    let bench = Bench::new(|_| {}).await;
    bench.faults(&["load_hangs=true", "limit=1"]);
    let unload = async {
        bench.until("the load", |stats| stats.loads.in_flight == 1).await;
        assert_eq!(bench.load("screen-2").await.status, StatusCode::OK, "the second meets no fault");
        bench.post("/v2/repository/models/screen-1/unload", "").await
    };
    let (loaded, unloaded) = tokio::join!(bench.load("screen-1"), unload);
    assert_eq!((loaded.status, unloaded.status), (StatusCode::BAD_REQUEST, StatusCode::OK));
}

/// Sends one inference on a bare socket, and reads until the end or the break.
async fn read_raw(bench: &Bench) -> (Vec<u8>, Option<std::io::ErrorKind>) {
    let mut stream = tokio::net::TcpStream::connect(bench.server.address()).await.unwrap();
    let body = one_text("x");
    let head = format!("POST /v2/models/screen-1/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all([head, body].concat().as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    let end = stream.read_to_end(&mut bytes).await;
    (bytes, end.err().map(|why| why.kind()))
}

#[tokio::test]
async fn a_connection_is_reset_after_the_stated_bytes() {
    let bench = bench().await;
    bench.faults(&["reset_after_bytes=100"]);
    let (bytes, end) = read_raw(&bench).await;
    assert_eq!(end, Some(std::io::ErrorKind::ConnectionReset));
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert_eq!(body.len(), 100);
    assert!(bench.try_post("/v2/models/screen-1/infer", one_text("x")).await.is_err());
    bench.faults(&["reset_after_bytes=1000000"]);
    assert_eq!(bench.judge("x").await.status, StatusCode::OK, "shorter answers are whole");
    let stats = bench.until("the end", |stats| stats.requests.in_flight == 0).await;
    assert_eq!(stats.cancels, 0, "the server broke off, no client left");
}

#[tokio::test]
async fn answers_can_come_in_pieces() {
    let bench = bench().await;
    let whole = bench.judge("x").await;
    bench.faults(&[r#"stream_chunks={"bytes":50,"every":"5ms"}"#]);
    let before = Instant::now();
    let pieces = bench.judge("x").await;
    assert_eq!(pieces.body, whole.body);
    assert_eq!((pieces.header("transfer-encoding"), pieces.header("content-length")), (Some("chunked"), None));
    let pauses = u32::try_from((whole.body.len() - 1) / 50).unwrap();
    assert!(before.elapsed() >= pauses * Duration::from_millis(5));
}

#[tokio::test]
async fn a_client_that_leaves_between_pieces_is_counted() {
    let bench = bench().await;
    bench.faults(&[r#"stream_chunks={"bytes":50,"every":"1h"}"#]);
    let mut stream = tokio::net::TcpStream::connect(bench.server.address()).await.unwrap();
    let body = one_text("x");
    let head = format!("POST /v2/models/screen-1/infer HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all([head, body].concat().as_bytes()).await.unwrap();
    let mut first = [0; 64];
    stream.read_exact(&mut first).await.unwrap();
    drop(stream);
    let stats = bench.until("the cancel", |stats| stats.requests.in_flight == 0).await;
    assert_eq!(stats.cancels, 1);
}

#[tokio::test]
async fn a_long_answer_can_change_its_name_at_the_end() {
    let bench = bench().await;
    bench.faults(&["late_mismatch=true"]);
    let answer = bench.judge("x").await;
    assert!(answer.body.starts_with(br#"{"model_name":"screen-1","model_version":"1","id""#));
    assert!(answer.body.len() > 64 << 10);
    assert_ne!(answer.json()["model_name"], "screen-1", "the last of two equal keys");
}
