//! Which fields cross the gateway, which methods and paths it answers, and who owns the 100-continue handshake.

use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_testkit::Script;
use holdfast_testkit::raw::{Framing, RawError};
use holdfast_testkit::stub::StubRequest;
use http::Method;
use serde_json::json;

use super::fixture::{BODY, Differs, INFER, Rig, TENANT, assert_error, head, post};

fn names(request: &StubRequest) -> Vec<String> {
    let mut names: Vec<_> = request.headers.iter().map(|(n, _)| n.to_ascii_lowercase()).collect();
    names.sort();
    names
}

fn last_infer(rig: &Rig) -> StubRequest {
    rig.stub.requests().into_iter().rfind(|r| r.path.contains("/infer")).unwrap()
}

#[tokio::test]
async fn what_a_client_says_in_the_gateways_name_never_reaches_a_replica() {
    let rig = Rig::plain().await;
    let mut client = rig.raw().await;
    client
        .write(post(
            "X-Holdfast-Tenant: globex\r\nx-holdfast-tenant: globex\r\nX-HOLDFAST-VERSION: 1\r\nx-holdfast-anything: 1\r\n\
             x-holdfast-request-id: forged\r\n",
        ))
        .await;
    assert_eq!(client.answer("POST").await.unwrap().status, 200);
    let seen = last_infer(&rig);
    let ours: Vec<_> = seen.headers.iter().filter(|(n, _)| n.to_ascii_lowercase().starts_with("x-holdfast-")).collect();
    let tenants: Vec<_> = ours.iter().filter(|(n, _)| n.eq_ignore_ascii_case("x-holdfast-tenant")).collect();
    assert_eq!(tenants.len(), 1);
    assert_eq!(tenants[0].1, "acme");
    assert!(ours.iter().all(|(_, v)| v != "globex" && v != "forged"), "{ours:?}");
    assert!(ours.iter().all(|(n, _)| !n.ends_with("anything") && !n.ends_with("ERSION")), "{ours:?}");
    assert_eq!(seen.header("x-tenant"), "", "the trusted field is for the gateway alone");
}

#[tokio::test]
async fn a_tenant_named_twice_is_nobody() {
    let rig = Rig::plain().await;
    for extra in ["x-tenant: acme\r\n", "X-Tenant: globex\r\n", "X-TENANT: acme, globex\r\n"] {
        let mut client = rig.raw().await;
        client.write(post(extra)).await;
        assert_error(&client.answer("POST").await.unwrap(), 401, "unauthenticated");
    }
    assert_eq!(rig.stub.executions(), 0);
}

#[tokio::test]
async fn trailers_of_a_request_are_read_and_dropped() {
    let rig = Rig::plain().await;
    let mut client = rig.raw().await;
    let size = BODY.len();
    let trailers = "x-tenant: globex\r\nx-holdfast-tenant: globex\r\ncontent-length: 5\r\nx-note: 1\r\n";
    let fields = "transfer-encoding: chunked\r\ntrailer: x-note\r\n";
    let first = head(&format!("POST {INFER}"), fields);
    client.write(format!("{first}{size:x}\r\n{BODY}\r\n0\r\n{trailers}\r\n{}", post(""))).await;
    for _ in 0..2 {
        assert_eq!(client.answer("POST").await.unwrap().status, 200);
    }
    let received = rig.stub.requests();
    for request in received.iter().filter(|r| r.path.contains("/infer")) {
        assert_eq!((request.header("x-holdfast-tenant"), request.header("x-note")), ("acme", ""));
        assert_eq!((request.header("trailer"), request.body.as_slice()), ("", BODY.as_bytes()));
    }
    assert_eq!(rig.stub.executions(), 2);
}

#[tokio::test]
async fn fields_for_one_hop_are_stripped_both_ways() {
    let rig = Rig::with(Differs::default(), |_| {
        let fields = [
            ("connection", "x-inner, keep-alive"),
            ("x-inner", "secret"),
            ("keep-alive", "timeout=5"),
            ("proxy-authenticate", "Basic"),
            ("upgrade", "h2c"),
            ("x-holdfast-version", "9"),
            ("x-holdfast-error", "forged"),
            ("x-outer", "kept"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
        ];
        let answer = json!({"model_name": "screen", "model_version": "1", "outputs": []});
        Some(Script::with_headers(200, &fields, answer.to_string().as_bytes()))
    })
    .await;
    let mut client = rig.raw().await;
    client
        .write(post(
            "Connection: X-Mine, x-also , keep-alive\r\nConnection: x-third\r\nx-mine: 1\r\nX-ALSO: 2\r\nx-third: 3\r\n\
             keep-alive: timeout=9\r\nproxy-connection: keep-alive\r\nte: trailers\r\nupgrade: h2c\r\nhttp2-settings: AAA\r\n\
             proxy-authorization: Basic eA==\r\nx-kept: 4\r\ntraceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n",
        ))
        .await;
    let answer = client.answer("POST").await.unwrap();
    assert_eq!((answer.status, answer.header("x-outer")), (200, "kept"));
    assert_eq!(answer.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!((answer.all("x-holdfast-version"), answer.header("x-holdfast-error")), (vec!["1"], ""));
    for gone in ["x-inner", "keep-alive", "proxy-authenticate", "upgrade"] {
        assert_eq!(answer.header(gone), "", "{gone}");
    }
    let seen = last_infer(&rig);
    for gone in
        ["x-mine", "x-also", "x-third", "keep-alive", "proxy-connection", "te", "upgrade", "proxy-authorization"]
    {
        assert_eq!(seen.header(gone), "", "{gone} in {:?}", names(&seen));
    }
    assert_eq!(seen.header("x-kept"), "4");
    assert!(seen.header("traceparent").starts_with("00-0af7651916cd43dd8448eb211c80319c-"), "{:?}", names(&seen));
}

#[tokio::test]
async fn connection_cannot_name_a_field_away_that_frames_or_routes() {
    let rig = Rig::plain().await;
    let mut client = rig.raw().await;
    client.write(post("connection: content-length, host, x-tenant, content-type, x-holdfast-tenant\r\n")).await;
    assert_eq!(client.answer("POST").await.unwrap().status, 200);
    let seen = last_infer(&rig);
    assert_eq!(seen.body, BODY.as_bytes());
    assert_eq!((seen.header("x-holdfast-tenant"), seen.header("host")), ("acme", rig.stub.addr().to_string().as_str()));
}

#[tokio::test]
async fn methods_that_do_not_fit_are_refused_and_the_connection_goes_on() {
    let rig = Rig::plain().await;
    let mut client = rig.raw().await;
    for (line, status) in [
        (format!("OPTIONS {INFER}"), 405),
        (format!("DELETE {INFER}"), 405),
        (format!("PUT {INFER}"), 405),
        (format!("TRACE {INFER}"), 405),
        (format!("GET {INFER}"), 405),
        ("POST /v2".to_owned(), 405),
        ("POST /livez".to_owned(), 405),
        ("DELETE /v2/models/screen".to_owned(), 405),
        ("BREW /v2/models/screen".to_owned(), 405),
        ("GET /v2/models/screen/nothing".to_owned(), 404),
        ("POST /v2/repository/index".to_owned(), 404),
        ("GET /../etc/passwd".to_owned(), 404),
    ] {
        client.write(head(&line, "")).await;
        let method = line.split(' ').next().unwrap();
        let answer = client.answer(method).await.unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_error(&answer, status, "bad_request");
        assert!(!answer.text().contains("traceparent") && !answer.text().contains("acme"), "{line} echoes nothing");
    }
    client.write("OPTIONS * HTTP/1.1\r\nhost: gateway\r\n\r\n").await;
    assert!(matches!(client.answer("OPTIONS").await.unwrap().status, 404 | 405));
    client.write("CONNECT inner:22 HTTP/1.1\r\nhost: inner:22\r\n\r\n").await;
    let answer = client.answer("CONNECT").await.unwrap();
    assert!(matches!(answer.status, 400..=405), "no tunnel: {}", answer.status);
    assert_eq!(rig.stub.executions(), 0);
}

#[tokio::test]
async fn a_head_request_gets_a_head_and_the_next_request_is_served() {
    let rig = Rig::plain().await;
    let mut client = rig.raw().await;
    for (path, status) in [
        ("/livez", 200),
        ("/readyz", 200),
        ("/v2", 200),
        ("/v2/health/ready", 200),
        ("/v2/models/screen", 200),
        ("/v2/models/screen/ready", 200),
        ("/v2/models/absent", 404),
        ("/nothing", 404),
        (INFER, 405),
    ] {
        client.write(head(&format!("HEAD {path}"), "") + &head(&format!("GET {path}"), "")).await;
        let answer = client.answer("HEAD").await.unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!((answer.status, answer.framing), (status, Framing::None), "{path}");
        let full = client.answer("GET").await.unwrap_or_else(|e| panic!("the request after HEAD {path}: {e}"));
        assert_eq!(full.status, status, "{path}");
        assert!(!full.body.is_empty(), "{path}");
        let told = answer.header("content-length");
        // A request id of another length cannot change a body's length.
        assert!(told.is_empty() || told == full.body.len().to_string(), "{path}: HEAD says {told}");
        assert_eq!(answer.header("transfer-encoding"), "", "{path}");
    }
}

#[tokio::test]
async fn percent_encoding_names_the_same_model_and_malformed_encoding_is_refused() {
    let rig = Rig::plain().await;
    for path in ["/v2/models/s%63reen/infer", "/v2/models/%73%63%72%65%65%6E/infer", "/v2/models/screen/infer?a=%20b"] {
        let sent =
            rig.gateway.data.send(Method::POST, path, &TENANT, Bytes::from_static(BODY.as_bytes())).await.unwrap();
        assert_eq!((sent.status.as_u16(), sent.header("x-holdfast-model")), (200, "screen"), "{path}");
    }
    assert!(last_infer(&rig).path.ends_with("/infer?a=%20b"), "a query is passed on as it is");
    let before = rig.stub.executions();
    for (path, status) in [
        ("/v2/models/s%6/infer", 400),
        ("/v2/models/s%zzreen/infer", 400),
        ("/v2/models/%ff%fe/infer", 400),
        ("/v2/models/screen%00/infer", 400),
        ("/v2/models/..%2f..%2fv2%2frepository/infer", 400),
        ("/v2/models/screen%2Fversions%2F9/infer", 400),
        ("/v2/models/screen%0d%0ax-holdfast-tenant:%20b/infer", 400),
    ] {
        let mut client = rig.raw().await;
        client.write(head(&format!("POST {path}"), "content-length: 2\r\n") + "{}").await;
        let answer = client.answer("POST").await.unwrap();
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert_eq!(answer.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case("x-holdfast-tenant")).count(), 0);
    }
    assert_eq!(rig.stub.executions(), before);
}

#[tokio::test]
async fn a_target_in_absolute_form_is_read_by_its_path() {
    let rig = Rig::plain().await;
    let mut client = rig.raw().await;
    client.write(post("").replace("POST /v2", "POST http://elsewhere.test:81/v2")).await;
    assert_eq!(client.answer("POST").await.unwrap().status, 200);
    let seen = last_infer(&rig);
    assert!(seen.path.starts_with("/v2/models/screen/"), "{}", seen.path);
    assert_eq!(seen.header("host"), rig.stub.addr().to_string());
}

#[tokio::test]
async fn a_client_that_waits_for_100_gets_exactly_one_before_any_time_has_run_out() {
    // A replica that sends its own 100, one that sends none, one that sends several and another 1xx.
    for interim in [
        "",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n",
    ] {
        // Nothing that the gateway could wait for ends sooner than in minutes.
        let top = "timeouts: { head: 5m, body_idle: 5m, request: 5m, request_max: 5m }";
        let rig = Rig::with(Differs { top, ..Differs::default() }, move |_| {
            let answer = json!({"model_name": "screen", "model_version": "1", "outputs": []}).to_string();
            let head = format!("{interim}HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
            Some(Script::raw(head))
        })
        .await;
        let mut client = rig.raw().await;
        let length = BODY.len();
        for _ in 0..2 {
            let asked = Instant::now();
            client
                .write(head(&format!("POST {INFER}"), &format!("expect: 100-continue\r\ncontent-length: {length}\r\n")))
                .await;
            assert_eq!(client.answer("POST").await.unwrap().status, 100);
            assert!(asked.elapsed() < Duration::from_secs(15), "{:?}", asked.elapsed());
            client.write(BODY).await;
            let answer = client.answer("POST").await.unwrap();
            assert_eq!(answer.status, 200, "the next thing after the one 100 is the final answer ({interim:?})");
        }
        assert!(rig.stub.requests().iter().all(|r| r.header("expect").is_empty()));
    }
}

#[tokio::test]
async fn a_request_that_is_refused_early_gets_no_100() {
    let rig = Rig::with(Differs { top: "limits: { body: 1KiB, buffer: 1KiB }", ..Differs::default() }, |_| None).await;
    let expect = "expect: 100-continue\r\n";
    let cases = [
        (head(&format!("POST {INFER}"), &format!("{expect}content-length: 5000\r\n")), 413),
        (head("POST /v2/models/absent/infer", &format!("{expect}content-length: 5\r\n")), 404),
        (head(&format!("DELETE {INFER}"), &format!("{expect}content-length: 5\r\n")), 405),
        (format!("POST {INFER} HTTP/1.1\r\nhost: g\r\n{expect}content-length: 5\r\n\r\n"), 401),
        (head(&format!("POST {INFER}"), &format!("x-request-timeout-ms: no\r\n{expect}content-length: 5\r\n")), 400),
    ];
    for (request, status) in cases {
        let mut client = rig.raw().await;
        client.write(&request).await;
        let answer = client.answer("POST").await.unwrap();
        assert_eq!(answer.status, status, "{request}");
        // The client does not know whether the body is still wanted: only an end of the connection is unambiguous.
        client.write(post("")).await;
        match client.answer("POST").await {
            Err(RawError::Closed) => {}
            other => panic!("{request}: then {other:?}"),
        }
    }
    assert_eq!(rig.stub.executions(), 0);
}

#[tokio::test]
async fn a_budget_is_honoured_bounded_and_must_be_a_number() {
    // Each time is far from the one that would be wrong: a budget of 150 ms from a minute, one second from a day.
    let short = "timeouts: { request: 1s, request_max: 1s }";
    let mut last = None;
    for (top, budget, least) in
        [("timeouts: { request: 5m, request_max: 5m }", "150", 150), (short, "86400000", 1_000), (short, "1000", 1_000)]
    {
        let rig = last.insert(Rig::with(Differs { top, ..Differs::default() }, |_| Some(Script::never())).await);
        let begun = Instant::now();
        let headers = [("x-tenant", "acme"), ("x-request-timeout-ms", budget)];
        let sent =
            rig.gateway.data.send(Method::POST, INFER, &headers, Bytes::from_static(BODY.as_bytes())).await.unwrap();
        let took = begun.elapsed();
        assert_eq!((sent.status.as_u16(), sent.header("x-holdfast-error")), (504, "upstream_timeout"), "{budget}");
        assert!(took >= Duration::from_millis(least) && took < Duration::from_secs(25), "{budget}: {took:?}");
    }
    let rig = last.expect("the last one");
    let before = rig.stub.executions();
    for garbage in ["0", "-1", "1.5", "1e3", "", "100ms", "+100", "99999999999999999999", "100, 200", "\u{661}"] {
        let mut client = rig.raw().await;
        client.write(post(&format!("x-request-timeout-ms: {garbage}\r\n"))).await;
        assert_error(&client.answer("POST").await.unwrap(), 400, "bad_request");
    }
    let mut client = rig.raw().await;
    client.write(post("x-request-timeout-ms: 100\r\nX-Request-Timeout-Ms: 100\r\n")).await;
    assert_error(&client.answer("POST").await.unwrap(), 400, "bad_request");
    assert_eq!(rig.stub.executions(), before);
    assert!(rig.stub.requests().iter().all(|r| r.header("x-request-timeout-ms").is_empty()));
}
