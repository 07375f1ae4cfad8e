//! Statuses of a replica that are not what they seem: a 404 that means a version is gone or does not, a success that is no answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use holdfast_testkit::stub::StubRequest;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Script, Stub};
use serde_json::json;

use super::fixture::{Differs, TENANT, assert_error, config, head, post, start};
use holdfast_testkit::raw::{RawAnswer, RawClient};

/// Seldom polled, so that nothing is mended by chance.
const POOL: &str = "    health: { interval: 60s, timeout: 500ms, fall: 1 }";
const OWN: &str = r#"{"error":"no such customer: 17"}"#;

struct Rig {
    gateway: Holdfast,
    stub: Stub,
}

/// `special` answers where it wants to, once the gateway has seen the version ready.
async fn rig(special: impl Fn(&StubRequest) -> Option<Script> + Send + Sync + 'static) -> Rig {
    let (v2, begun) = (V2::loaded(&[("screen", "1")]), Arc::new(AtomicBool::new(false)));
    let has_begun = begun.clone();
    let stub = Stub::start(move |request| {
        let script = if has_begun.load(SeqCst) { special(request) } else { None };
        script.unwrap_or_else(|| v2.answer(request))
    })
    .await;
    let gateway = start(&config(&stub.url(), &Differs { pool: POOL, ..Differs::default() })).await;
    begun.store(true, SeqCst);
    Rig { gateway, stub }
}

impl Rig {
    async fn ask(&self, request: String) -> RawAnswer {
        let mut client = RawClient::connect(self.gateway.data.addr()).await;
        client.write(request).await;
        client.answer("POST").await.unwrap()
    }

    async fn is_ready(&self) -> bool {
        self.gateway.data.get("/v2/models/screen/ready", &TENANT).await.status == 200
    }

    async fn attempts(&self, outcome: &str) -> f64 {
        self.gateway.metrics().await.sum("holdfast_upstream_attempts_total", &[("outcome", outcome)])
    }

    fn asked_ready(&self) -> usize {
        self.stub.count(|r| r.path.ends_with("/ready") && r.path.contains("/models/"))
    }
}

fn not_found(text: &str) -> Script {
    Script::json(404, &json!({ "error": text }))
}

#[tokio::test]
async fn a_models_own_404_is_passed_on_and_hides_nothing() {
    let rig = rig(|r| (r.header("x-which") == "wrong").then(|| not_found("no such customer: 17"))).await;
    let before = rig.asked_ready();
    for n in 1..=5 {
        let answer = rig.ask(post("x-which: wrong\r\n")).await;
        assert_eq!((answer.status, answer.header("x-holdfast-error")), (404, ""), "{}", answer.text());
        assert_eq!(answer.text(), OWN);
        assert!(rig.is_ready().await, "for all others, {n}");
        assert_eq!(rig.ask(post("")).await.status, 200);
        assert_eq!(rig.asked_ready(), before + n, "asked once each time");
    }
    assert_eq!((rig.attempts("not_loaded").await, rig.attempts("client_error").await), (0.0, 5.0));
}

#[tokio::test]
async fn a_404_for_metadata_hides_nothing() {
    let is_metadata = |r: &StubRequest| r.method == "GET" && !r.path.ends_with("/ready");
    let rig = rig(move |r| is_metadata(r).then(|| not_found("Model screen not found"))).await;
    for _ in 0..3 {
        let answer = rig.ask(head("GET /v2/models/screen", "")).await;
        assert_eq!((answer.status, answer.header("x-holdfast-error")), (404, ""));
        assert!(rig.is_ready().await);
        assert_eq!(rig.ask(post("")).await.status, 200);
    }
    assert_eq!(rig.attempts("not_loaded").await, 0.0);
}

#[tokio::test]
async fn a_404_that_the_replica_confirms_is_a_version_that_is_gone() {
    // The server's own words are enough; other words need its word about readiness.
    let hangs: fn() -> Script = Script::never;
    for (text, ready) in [("Model screen not found", hangs), ("nothing here", || not_found("nothing here"))] {
        let rig = rig(move |r| match r.path.ends_with("/infer") {
            true => Some(not_found(text)),
            false => r.path.ends_with("/ready").then(ready),
        })
        .await;
        let answer = rig.ask(post("x-request-timeout-ms: 2000\r\n")).await;
        assert_error(&answer, 503, "no_holder");
        assert_eq!(rig.attempts("not_loaded").await, 1.0, "{text}");
        assert!(!rig.is_ready().await);
    }
}

#[tokio::test]
async fn a_404_that_cannot_be_confirmed_in_time_is_passed_on() {
    let rig = rig(|r| match r.path.ends_with("/infer") {
        true => Some(not_found("no such customer: 17")),
        false => r.path.ends_with("/ready").then(Script::never),
    })
    .await;
    let begun = Instant::now();
    let answer = rig.ask(post("x-request-timeout-ms: 500\r\n")).await;
    assert_eq!((answer.status, answer.text().as_str()), (404, OWN));
    assert!(begun.elapsed() < Duration::from_secs(15));
    assert_eq!(rig.gateway.admin_get("/v1/replicas").await["replicas"][0]["up"], true, "off the health path");
}

#[tokio::test]
async fn a_success_that_is_no_whole_answer_is_none() {
    for status in [201_u16, 202, 203, 204, 205, 206, 299] {
        let rig = rig(move |r| {
            let whole = json!({"model_name": "screen", "model_version": "1", "outputs": []}).to_string();
            let body = if matches!(status, 204 | 205) { "" } else { whole.as_str() };
            let fields = [("content-type", "application/json"), ("content-range", "bytes 0-60/200")];
            (r.header("x-which") == "odd").then(|| Script::with_headers(status, &fields, body.as_bytes()))
        })
        .await;
        let answer = rig.ask(post("x-which: odd\r\n")).await;
        assert_error(&answer, 502, "upstream_error");
        assert!(answer.text().contains(&status.to_string()), "{}", answer.text());
        assert_eq!(rig.stub.executions(), 1, "{status} is not sent again");
        assert_eq!(rig.ask(post("")).await.status, 200, "after {status}");
        assert_eq!(rig.attempts("bad_answer").await, 1.0, "{status}");
    }
}
