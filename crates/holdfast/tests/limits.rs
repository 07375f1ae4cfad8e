//! Limits end to end: what a refused client is told, that nobody else notices, that everything comes back, and that a change needs no restart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use holdfast_testkit::http::Answer;
use holdfast_testkit::raw::RawClient;
use holdfast_testkit::script::Script;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Stub, eventually};
use http::Method;
use serde_json::{Value, json};

const INFER: &str = "/v2/models/screen/infer";
const PATIENCE: Duration = Duration::from_secs(20);

struct Rig {
    gateway: Holdfast,
    _stub: Stub,
}

impl Rig {
    /// A gateway with a plan for `acme`; `bolt` has none. A request whose body says so is never answered.
    async fn start(top: &str, plan: &str) -> Self {
        let correct = V2::loaded(&[("screen", "1")]);
        let stub = Stub::start(move |request| match request.body.windows(5).any(|bytes| bytes == b"hangs") {
            true => Script::never(),
            false => correct.answer(request),
        })
        .await;
        let url = stub.url();
        let config = format!(
            "truth: store\nauth: {{ trusted_header: x-tenant, trusted_user_header: x-user }}\n{top}\npools:\n  - {{ name: p, protocol: open-inference, residency: static, \
             replicas: [{{ name: r1, url: \"{url}\", holds: [{{ model: screen, version: \"1\" }}] }}] }}\nmodels:\n  \
             - {{ name: screen, pool: p, versions: [{{ version: \"1\" }}] }}\nplans:\n  - {{ name: standard, {plan} }}\ntenants:\n  \
             - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }}, plan: standard }}\n  \
             - {{ name: bolt, subset: 1, pins: {{ screen: \"1\" }} }}\n"
        );
        let gateway = Holdfast::start(Path::new(env!("CARGO_BIN_EXE_holdfast")), &config).await;
        eventually("the model to be ready", PATIENCE, async || {
            let ready = gateway.data.get("/v2/models/screen/ready", &[("x-tenant", "bolt")]).await;
            (ready.status.as_u16() == 200).then_some(())
        })
        .await;
        Self { gateway, _stub: stub }
    }

    async fn infer(&self, tenant: &str, user: &str) -> Answer {
        self.send(&[("x-tenant", tenant), ("x-user", user)], r#"{"inputs":[]}"#).await
    }

    async fn send(&self, fields: &[(&str, &str)], body: &str) -> Answer {
        let body = Bytes::copy_from_slice(body.as_bytes());
        self.gateway.data.send(Method::POST, INFER, fields, body).await.expect("an answer")
    }

    async fn limits(&self) -> Value {
        self.gateway.admin_get("/v1/limits?tenant=acme").await
    }
}

fn row<'v>(limits: &'v Value, scope: &str, limit: &str) -> &'v Value {
    let rows = limits["tenants"][0]["limits"].as_array().expect("limits");
    rows.iter().find(|row| row["scope"] == scope && row["limit"] == limit).expect("the limit")
}

#[tokio::test]
async fn a_refused_client_is_told_all_that_it_needs_and_nobody_else_notices() {
    let rig = Rig::start("", "user: { requests: 2/h }, tenant: { requests: 100/h }").await;
    let served = rig.infer("acme", "u").await.expect(200);
    assert_eq!(
        served.header("ratelimit-policy"),
        "\"user-requests\";q=2;w=3600;qu=\"requests\", \"tenant-requests\";q=100;w=3600;qu=\"requests\""
    );
    assert_eq!(served.header("ratelimit"), "\"user-requests\";r=1;t=1800, \"tenant-requests\";r=99;t=36");
    let _ = rig.infer("acme", "u").await.expect(200);
    let refused = rig.infer("acme", "u").await.expect(429);
    assert_eq!(refused.header("x-holdfast-error"), "rate_limited");
    assert_eq!(refused.header("x-holdfast-limit"), "user-requests");
    assert_eq!(refused.header("ratelimit-policy"), "\"user-requests\";q=2;w=3600;qu=\"requests\"");
    let retry: u64 = refused.header("retry-after").parse().expect("whole seconds");
    assert!((1..=1_800).contains(&retry), "half an hour makes a token: {retry}");
    assert_eq!(refused.header("ratelimit"), format!("\"user-requests\";r=0;t={retry}"));
    assert_eq!(
        ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"].map(|name| refused.header(name)),
        ["2", "0", &retry.to_string()]
    );
    let of_requests = ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
    assert_eq!(of_requests.map(|name| refused.header(name)), ["2", "0", &format!("{retry}s")]);
    assert!(
        refused.json()["error"].as_str().unwrap().contains("over the user's limit of requests"),
        "{}",
        refused.text()
    );
    assert_eq!(refused.header("x-holdfast-version"), "1", "it is stamped like any answer");
    for _ in 0..50 {
        let _ = rig.infer("acme", "u").await.expect(429);
    }
    let _ = rig.infer("acme", "v").await.expect(200);
    let _ = rig.infer("bolt", "u").await.expect(200);
    let limits = rig.limits().await;
    let tenant = row(&limits, "tenant", "requests");
    assert_eq!((&tenant["available"], &tenant["over_admission_bound"]), (&json!(97), &json!(0)), "{limits:#}");
    assert_eq!(row(&limits, "user", "requests")["users"], 2);
    let metrics = rig.gateway.metrics().await;
    let labels = [("scope", "user"), ("limit", "requests"), ("mode", "refused")];
    assert_eq!(metrics.value("holdfast_limited_total", &labels), Some(51.0));
    let receipt = eventually("the receipt", PATIENCE, async || {
        let id = refused.header("x-holdfast-request-id");
        let told = rig.gateway.admin.get(&format!("/v1/receipts/{id}"), &[]).await;
        (told.status == 200).then(|| told.json())
    })
    .await;
    assert_eq!(receipt["limits"], json!({ "admitted": false, "over": "user-requests" }), "{receipt:#}");
    let explained = rig.gateway.admin_get("/v1/explain?tenant=acme&model=screen").await;
    assert_eq!(explained["limits"]["limits"].as_array().map(Vec::len), Some(2), "{explained:#}");
    let listed = rig.gateway.cli(&["limits", "list"]).await;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let said = async |words: &[&str]| {
        let done = rig.gateway.cli(words).await;
        assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let line = |text: &str, begins: &str| {
        let line = text.lines().find(|line| line.starts_with(begins)).unwrap_or_else(|| panic!("{begins}: {text}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // What was decided about it is not only for programs.
    let receipt = said(&["receipt", refused.header("x-holdfast-request-id")]).await;
    assert_eq!(line(&receipt, "limits"), "limits admitted false, over user-requests");
    let explained = said(&["explain", "--tenant", "acme", "--model", "screen"]).await;
    assert_eq!(line(&explained, "tenant  -"), "tenant - requests 100/h 100 97 left", "{explained}");
    assert_eq!(line(&explained, "user    -"), "user - requests 2/h 2 2 users", "{explained}");
    for words in [&["limits", "plan", "list"][..], &["limits", "plan", "show", "standard"]] {
        let plans = said(words).await;
        assert_eq!(line(&plans, "standard  enforce  user"), "standard enforce user - 2/h - - - -", "{plans}");
    }
    assert!(!rig.gateway.cli(&["limits", "plan", "show", "none"]).await.status.success());
    let plans = rig.gateway.cli_json(&["limits", "plan", "list"]).await;
    assert_eq!(plans["plans"][0]["spec"]["tenant"]["requests"], "100/h", "{plans}");
    assert!(listed.contains("standard") && listed.contains("100/h") && !listed.contains("bolt"), "{listed}");
}

/// What is left is told with every answer, of the limit that is nearest first; a limit of bytes is what clients of language models know as tokens.
#[tokio::test]
async fn an_admitted_client_is_told_what_is_left() {
    let plan = "user: { requests: 5/h, concurrency: 3 }, tenant: { bytes: 1KiB/h, bytes_burst: 64KiB }";
    let rig = Rig::start("", plan).await;
    let body = format!(r#"{{"inputs":[],"id":"{}"}}"#, "x".repeat(1_003));
    assert_eq!(body.len(), 1_024);
    let fields = [("x-tenant", "acme"), ("x-user", "u")];
    let served = rig.send(&fields, &body).await.expect(200);
    let state = served.header("ratelimit");
    assert!(
        state.starts_with("\"user-concurrency\";r=2, \"user-requests\";r=4;t=720, \"tenant-bytes\";r=6"),
        "{state}"
    );
    let policy = served.header("ratelimit-policy");
    assert!(policy.contains("\"user-concurrency\";q=3;qu=\"concurrent-requests\""), "{policy}");
    assert!(policy.contains("\"tenant-bytes\";q=1024;w=3600;qu=\"content-bytes\""), "{policy}");
    // Four fifths of one are less than nearly all of the other.
    let first = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    assert_eq!(first.map(|name| served.header(name)), ["5", "4", "720"]);
    let requests = ["x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"];
    assert_eq!(requests.map(|name| served.header(name)), ["5", "4", "720s"]);
    assert_eq!(served.header("x-ratelimit-limit-tokens"), "1024");
    let left: u64 = served.header("x-ratelimit-remaining-tokens").parse().expect("a number");
    assert!((63 * 1_024..64 * 1_024).contains(&left), "what was sent is gone: {left}");
    // Also of what the model server refuses; and nobody is told of what refuses nothing.
    let nothing = rig.send(&[("x-tenant", "bolt"), ("x-user", "u")], &body).await.expect(200);
    assert!(nothing.header("ratelimit").is_empty() && nothing.header("x-ratelimit-limit").is_empty());
    let shadow = json!({ "spec": { "mode": "shadow", "user": { "requests": "1/h" } } });
    let _ = rig.gateway.admin.put("/v1/plans/standard", &[], &shadow).await.expect(200);
    eventually("shadow mode", PATIENCE, async || (rig.limits().await["tenants"][0]["mode"] == "shadow").then_some(()))
        .await;
    assert!(rig.infer("acme", "u").await.expect(200).header("ratelimit").is_empty());
}

#[tokio::test]
async fn who_shall_not_be_told_what_is_left_is_told_of_refusals_only() {
    let rig = Rig::start("limits: { tell: refusals }", "user: { requests: 1/h }").await;
    assert!(rig.infer("acme", "u").await.expect(200).header("ratelimit").is_empty());
    assert!(rig.infer("acme", "u").await.expect(429).header("ratelimit").contains("r=0"));
}

#[tokio::test]
async fn what_runs_is_counted_and_comes_back_however_it_ends() {
    let rig = Rig::start("", "tenant: { concurrency: 2, requests: 1000/s }").await;
    let hangs = r#"{"inputs":[],"id":"hangs"}"#;
    let fields = |budget| [("x-tenant", "acme"), ("x-user", "u"), ("x-request-timeout-ms", budget)];
    // One is given up by its client, the other runs out of time.
    let mut leaves = RawClient::connect(rig.gateway.data.addr()).await;
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nhost: g\r\nx-tenant: acme\r\nx-user: u\r\ncontent-length: {}\r\n\r\n{hangs}",
        hangs.len()
    );
    leaves.write(head).await;
    let late = async { rig.send(&fields("4000"), hangs).await.expect(504) };
    let refused = async {
        let full = async || (row(&rig.limits().await, "tenant", "concurrency")["running"] == 2).then_some(());
        eventually("both to run", PATIENCE, full).await;
        let refused = rig.infer("acme", "v").await.expect(429);
        assert_eq!(refused.header("x-holdfast-limit"), "tenant-concurrency");
        assert_eq!(refused.header("ratelimit-policy"), "\"tenant-concurrency\";q=2;qu=\"concurrent-requests\"");
        assert_eq!(refused.header("retry-after"), "1");
        leaves.reset();
        let one = async || (row(&rig.limits().await, "tenant", "concurrency")["running"] == 1).then_some(());
        eventually("the one that left to be gone", PATIENCE, one).await;
        let _ = rig.infer("acme", "v").await.expect(200);
    };
    tokio::join!(late, refused);
    let none = async || (row(&rig.limits().await, "tenant", "concurrency")["running"] == 0).then_some(());
    eventually("nothing to run", PATIENCE, none).await;
}

#[tokio::test]
async fn a_plan_is_changed_without_a_restart_and_what_was_used_stays_used() {
    let rig = Rig::start("", "tenant: { requests: 10/h }").await;
    for _ in 0..7 {
        let _ = rig.infer("acme", "u").await.expect(200);
    }
    let put = |spec: Value| {
        let admin = &rig.gateway.admin;
        async move { admin.put("/v1/plans/standard", &[], &json!({ "spec": spec })).await }
    };
    let _ = put(json!({ "tenant": { "requests": "20/h" } })).await.expect(200);
    let changed = async || (row(&rig.limits().await, "tenant", "requests")["burst"] == 20).then_some(());
    eventually("the other limit", PATIENCE, changed).await;
    assert_eq!(row(&rig.limits().await, "tenant", "requests")["available"], 13, "7 of 20 are used");
    let _ = put(json!({ "tenant": { "requests": "8/h" } })).await.expect(200);
    let one_left = async || (row(&rig.limits().await, "tenant", "requests")["available"] == 1).then_some(());
    eventually("the smaller limit", PATIENCE, one_left).await;
    let _ = rig.infer("acme", "u").await.expect(200);
    let _ = rig.infer("acme", "u").await.expect(429);
    let gone = rig.gateway.admin.send(Method::DELETE, "/v1/plans/standard", &[], Bytes::new()).await.unwrap();
    assert_eq!(gone.status.as_u16(), 422, "a tenant names it: {}", gone.text());
    let _ = put(json!({ "mode": "shadow", "tenant": { "requests": "8/h" } })).await.expect(200);
    eventually("shadow mode", PATIENCE, async || (rig.limits().await["tenants"][0]["mode"] == "shadow").then_some(()))
        .await;
    let _ = rig.infer("acme", "u").await.expect(200);
    let labels = [("scope", "tenant"), ("limit", "requests"), ("mode", "shadow")];
    assert_eq!(rig.gateway.metrics().await.value("holdfast_limited_total", &labels), Some(1.0));
    assert_eq!(put(json!({ "tenant": { "requests": "NaN" } })).await.status.as_u16(), 422);
}

#[tokio::test]
async fn bodies_count_by_their_bytes_and_one_that_never_fits_is_too_large() {
    let rig = Rig::start("", "tenant: { bytes: 1KiB/h, bytes_burst: 4KiB }").await;
    let body = |size: usize| format!(r#"{{"inputs":[],"id":"{}"}}"#, "x".repeat(size - 21));
    let fields = [("x-tenant", "acme"), ("x-user", "u")];
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(rig.send(&fields, &body(1_024)).await.status.as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429]);
    let refused = rig.send(&fields, &body(1_024)).await.expect(429);
    assert_eq!(refused.header("x-ratelimit-limit-tokens"), "1024", "{}", refused.text());
    assert_eq!(refused.header("x-ratelimit-reset-tokens"), format!("{}s", refused.header("retry-after")));
    let refused = rig.send(&fields, &body(4_097)).await.expect(413);
    assert_eq!(refused.header("x-holdfast-error"), "too_large");
    let bytes = row(&rig.limits().await, "tenant", "bytes").clone();
    assert_eq!(bytes["available"], 0, "{bytes}");
}

#[tokio::test]
async fn a_users_name_has_one_form_or_is_refused() {
    let rig = Rig::start("", "user: { requests: 1/h }").await;
    for fields in [
        &[("x-tenant", "acme"), ("x-user", "")][..],
        &[("x-tenant", "acme"), ("x-user", "a b")],
        &[("x-tenant", "acme"), ("x-user", "a"), ("x-user", "b")],
        &[("x-tenant", "acme"), ("x-user", &"a".repeat(257))],
    ] {
        let refused = rig.send(fields, "{}").await.expect(401);
        assert_eq!(refused.header("x-holdfast-error"), "unauthenticated");
    }
    let mut raw = RawClient::connect(rig.gateway.data.addr()).await;
    raw.write("POST /v2/models/screen/infer HTTP/1.1\r\nhost: g\r\nx-tenant: acme\r\nx-user: caf\u{e9}\r\ncontent-length: 2\r\n\r\n{}").await;
    assert_eq!(raw.answer("POST").await.expect("an answer").status, 401);
    // Who hides its name shares one bucket with all who do.
    let _ = rig.send(&[("x-tenant", "acme")], r#"{"inputs":[]}"#).await.expect(200);
    let _ = rig.send(&[("x-tenant", "acme")], r#"{"inputs":[]}"#).await.expect(429);
    let _ = rig.infer("acme", "u").await.expect(200);
}

#[tokio::test]
async fn an_address_opens_connections_no_faster_than_it_may() {
    let rig =
        Rig::start("limits: { attempts_per_address: { rate: 1/h, burst: 12 } }", "tenant: { requests: 1000/s }").await;
    let mut statuses = Vec::new();
    for _ in 0..14 {
        let mut raw = RawClient::connect(rig.gateway.data.addr()).await;
        raw.write("GET /livez HTTP/1.1\r\nhost: g\r\n\r\n").await;
        let Ok(answer) = raw.answer("GET").await else { continue };
        if answer.status == 429 {
            assert_eq!(
                (answer.header("x-holdfast-error"), answer.header("retry-after")),
                ("connection_limited", "3600")
            );
        }
        statuses.push(answer.status);
    }
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    assert!((1..=11).contains(&admitted), "the fixture has connected too: {statuses:?}");
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
    let refused = rig.gateway.metrics().await.value("holdfast_connections_refused_total", &[("reason", "attempts")]);
    assert!(refused.is_some_and(|count| count >= 1.0));
}
