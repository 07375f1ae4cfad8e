//! Where a request ends: what is ambiguous is refused, and no byte of it becomes a request to a replica.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_testkit::eventually;
use holdfast_testkit::raw::{RawAnswer, RawClient, RawError};

use super::fixture::{BODY, Differs, INFER, Rig, assert_error, head, post, running_threads};

/// How often one looks whether threads are idle.
const LOOKS: usize = 60;

/// A request that must never arrive anywhere, to be hidden in the body of another.
fn hidden() -> String {
    format!("POST {INFER}?smuggled HTTP/1.1\r\nhost: gateway\r\nx-tenant: acme\r\ncontent-length: 2\r\n\r\n{{}}")
}

/// Sends a request, expects it to be refused with 400 and the connection to end, and nothing to have reached the replica.
async fn refused(rig: &Rig, bytes: &str) {
    let before = rig.stub.executions();
    let mut client = rig.raw().await;
    client.write(bytes).await;
    let answer = client.answer("POST").await.unwrap_or_else(|e| panic!("{bytes:?}: {e}"));
    assert_error(&answer, 400, "bad_request");
    assert_eq!(answer.header("connection"), "close", "{bytes:?}");
    let rest = client.rest().await.unwrap();
    assert!(rest.is_empty(), "{bytes:?}: after the refusal came {:?}", String::from_utf8_lossy(&rest));
    assert_eq!(rig.stub.executions(), before, "{bytes:?}: a replica was asked");
}

#[tokio::test]
async fn a_request_with_both_lengths_is_refused_in_either_order() {
    let rig = Rig::plain().await;
    let smuggled = hidden();
    let length = format!("content-length: {}\r\n", smuggled.len() + 5);
    let chunked = "transfer-encoding: chunked\r\n";
    for fields in [format!("{length}{chunked}"), format!("{chunked}{length}")] {
        let head = head(&format!("POST {INFER}"), &fields);
        refused(&rig, &format!("{head}0\r\n\r\n{smuggled}")).await;
    }
    assert_eq!(rig.infer().await, 200, "the listener is well");
    assert_eq!(rig.stub.count(|r| r.path.contains("smuggled")), 0);
}

#[tokio::test]
async fn a_malformed_length_is_refused_and_two_equal_ones_are_merged() {
    let rig = Rig::plain().await;
    for value in ["+5", "0x5", "5,5", "5, 6", "-1", "5 5", "12345678901234567890", "", "5.0", "1e1"] {
        refused(&rig, &format!("{}{{}}   ", head(&format!("POST {INFER}"), &format!("content-length: {value}\r\n"))))
            .await;
    }
    let errors = rig.gateway.metrics().await.sum("holdfast_errors_total", &[("kind", "bad_request")]);
    assert!(errors >= 10.0, "refusals are counted: {errors}");
    let two = format!("content-length: {0}\r\ncontent-length: 3\r\n", BODY.len());
    refused(&rig, &format!("{}{BODY}", head(&format!("POST {INFER}"), &two))).await;
    let mut client = rig.raw().await;
    let equal = format!("content-length: {0}\r\n", BODY.len());
    client.write(post(&equal)).await;
    assert_eq!(client.answer("POST").await.unwrap().status, 200);
    let sent = rig.stub.requests().pop().unwrap();
    let lengths = sent.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case("content-length")).count();
    assert_eq!((lengths, sent.body.as_slice()), (1, BODY.as_bytes()));
}

#[tokio::test]
async fn other_ways_to_blur_a_head_are_refused() {
    let rig = Rig::plain().await;
    let line = format!("POST {INFER}");
    let chunks = "2\r\n{}\r\n0\r\n\r\n";
    for fields in [
        "transfer-encoding: xchunked\r\n",
        "transfer-encoding: chunked, identity\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding:\x0bchunked\r\n",
        "transfer-encoding : chunked\r\n",
        "transfer_encoding: chunked\r\n",
        "x: y\r\n folded: z\r\ntransfer-encoding: chunked\r\n",
        "x: y\ntransfer-encoding: chunked\r\n",
        "x: a\rb\r\ntransfer-encoding: chunked\r\n",
        "host: other\r\ntransfer-encoding: chunked\r\n",
        "x\0y: z\r\ntransfer-encoding: chunked\r\n",
    ] {
        refused(&rig, &format!("{}{chunks}", head(&line, fields))).await;
    }
    for request_line in [
        format!("POST {INFER}"),
        format!("POST {INFER} HTTP/1.2"),
        format!("POST  {INFER} HTTP/1.1 "),
        format!("PO ST {INFER} HTTP/1.1"),
        format!("POST\t{INFER} HTTP/1.1"),
        format!("POST {INFER} http/1.1"),
        format!("POST {INFER} HTTP/0.9"),
    ] {
        refused(&rig, &format!("{request_line}\r\nhost: gateway\r\nx-tenant: acme\r\ncontent-length: 2\r\n\r\n{{}}"))
            .await;
    }
    for target in ["v2/models/screen", "/v2/models/screen#part", "/v2/models/<screen>", "http:///v2", "?v2"] {
        refused(&rig, &head(&format!("GET {target}"), "")).await;
    }
    for host in ["a b", "a/b", "a@b"] {
        refused(&rig, &format!("GET /livez HTTP/1.1\r\nhost: {host}\r\n\r\n")).await;
    }
    refused(&rig, &format!("POST {INFER} HTTP/1.1\r\nx-tenant: acme\r\ncontent-length: 2\r\n\r\n{{}}")).await;
    // What comes first need not be text at all: a TLS hello, for one, has to get an answer that a person can read.
    refused(&rig, "\x16\x03\x01\x02\0\x01\0\x01\r\n\r\n").await;
}

#[tokio::test]
async fn broken_chunks_end_the_connection_and_hide_no_request() {
    let rig = Rig::plain().await;
    let line = head(&format!("POST {INFER}"), "transfer-encoding: chunked\r\n");
    let smuggled = hidden();
    let both =
        format!("{}0\r\n\r\n", head(&format!("POST {INFER}"), "content-length: 5\r\ntransfer-encoding: chunked\r\n"));
    for chunks in [
        format!("zz\r\n{smuggled}"),
        format!("2\r\n{{}}xx0\r\n\r\n{smuggled}"),
        format!("2\n{{}}\r\n0\r\n\r\n{smuggled}"),
        format!("2\r\n{{}}\n0\n\n{smuggled}"),
        format!("ffffffffffffffffff\r\n{smuggled}"),
        format!("-2\r\n{smuggled}"),
        format!("0x2\r\n{{}}\r\n0\r\n\r\n{smuggled}"),
        // What a lenient parser would let pass, and then the next head with it.
        format!("2 \r\n{{}}\r\n0\r\n\r\n{both}"),
        format!("2\t;a\r\n{{}}\r\n0\r\n\r\n{both}"),
        format!("2;{}\r\n{{}}\r\n0\r\n\r\n{both}", "a".repeat(3_000)),
        format!("2\r\n{{}}\r\n0\r\nx: {}\r\n\r\n{both}", "a".repeat(100_000)),
        format!("00000000000000002\r\n{{}}\r\n0\r\n\r\n{both}"),
    ] {
        let mut client = rig.raw().await;
        client.write(format!("{line}{chunks}")).await;
        let mut answers = Vec::new();
        while let Ok(answer) = client.answer("POST").await {
            answers.push(answer.status);
        }
        assert!(matches!(answers.as_slice(), [] | [400]), "{chunks:?}: {answers:?}");
    }
    assert_eq!(rig.stub.executions(), 0, "{:?}", rig.stub.requests());
}

#[tokio::test]
async fn half_a_chunk_size_line_leaves_no_task_spinning() {
    let rig = Rig::plain().await;
    let line = head(&format!("POST {INFER}"), "transfer-encoding: chunked\r\n");
    for ending in ["4\r", "4", "", "4\r\nab"] {
        for _ in 0..50 {
            let mut client = rig.raw().await;
            client.write(format!("{line}{ending}")).await;
        }
    }
    let gateway = &rig.gateway;
    eventually("the connections to end", Duration::from_secs(10), async || {
        let metrics = gateway.metrics().await;
        (metrics.sum("holdfast_in_flight", &[]) == 0.0
            && metrics.sum("holdfast_connections", &[("listener", "data")]) <= 1.0)
            .then_some(())
    })
    .await;
    // A thread that spins wants a processor whenever one looks, whether the machine gives it one or not.
    let pid = rig.gateway.proc.pid();
    let mut busy = BTreeMap::<u32, usize>::new();
    for _ in 0..LOOKS {
        tokio::time::sleep(Duration::from_millis(20)).await;
        running_threads(pid).into_iter().for_each(|thread| *busy.entry(thread).or_default() += 1);
    }
    assert!(busy.values().all(|seen| *seen < LOOKS * 3 / 4), "threads of an idle gateway at work: {busy:?} of {LOOKS}");
    assert_eq!(rig.stub.executions(), 0);
}

#[tokio::test]
async fn an_upgrade_is_no_tunnel_and_what_follows_it_is_checked_like_any_request() {
    for status in [200, 403] {
        let rig = Rig::with(Differs::default(), move |r| {
            (r.header("x-which") == "first")
                .then(|| holdfast_testkit::Script::json(status, &serde_json::json!({"outputs": []})))
        })
        .await;
        let upgrade =
            post("x-which: first\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n");
        // The second request names no tenant: it must be refused for that, not passed on.
        let second = format!("POST {INFER}?second HTTP/1.1\r\nhost: gateway\r\ncontent-length: 2\r\n\r\n{{}}");
        let mut client = rig.raw().await;
        client.write(format!("{upgrade}{second}")).await;
        assert_eq!(client.answer("POST").await.unwrap().status, status);
        match client.answer("POST").await {
            Ok(answer) => assert_error(&answer, 401, "unauthenticated"),
            Err(ended) => assert_eq!(ended, RawError::Closed),
        }
        assert_eq!(rig.stub.count(|r| r.path.contains("second")), 0);
        let first = rig.stub.requests().into_iter().find(|r| r.header("x-which") == "first").unwrap();
        assert_eq!((first.header("upgrade"), first.header("sec-websocket-version")), ("", "13"));
    }
}

#[tokio::test]
async fn pipelined_requests_are_all_answered_in_order() {
    let rig = Rig::plain().await;
    let numbered = |n: usize| {
        let body = format!(r#"{{"id":"{n}","inputs":[]}}"#);
        let length = body.len();
        head(&format!("POST {INFER}"), &format!("content-length: {length}\r\n")) + &body
    };
    for count in [2, 5] {
        let mut client = rig.raw().await;
        client.write((0..count).map(numbered).collect::<String>()).await;
        in_order(&mut client, count).await;
    }
    let both = numbered(0) + &numbered(1);
    // Inside the second head, inside its blank line, and inside the first body.
    let second = both.len() - numbered(1).len();
    for cut in [second + 9, both.len() - numbered(1).len() + numbered(1).find("\r\n\r\n").unwrap() + 2, second - 3] {
        let (first, rest) = both.split_at(cut);
        let mut client = rig.raw().await;
        client.write_segments(&[first.as_bytes(), rest.as_bytes()]).await;
        in_order(&mut client, 2).await;
    }
    // Byte by byte.
    let mut client = rig.raw().await;
    for byte in both.as_bytes() {
        client.write([*byte]).await;
    }
    in_order(&mut client, 2).await;
}

async fn in_order(client: &mut RawClient, count: usize) {
    for n in 0..count {
        let answer = client.answer("POST").await.unwrap();
        let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!((answer.status, json["id"].as_str()), (200, Some(n.to_string().as_str())));
    }
}

#[tokio::test]
async fn requests_before_a_refused_head_are_answered() {
    let rig = Rig::plain().await;
    let mut client = rig.raw().await;
    let bad = head(&format!("POST {INFER}"), "content-length: +5\r\n");
    client.write(format!("{}{}{bad}12345{}", post(""), post(""), hidden())).await;
    let statuses = answers(&mut client).await;
    assert_eq!(statuses.iter().map(|a| a.status).collect::<Vec<_>>(), [200, 200, 400]);
    assert_error(&statuses[2], 400, "bad_request");
    assert_eq!(rig.stub.executions(), 2);
}

async fn answers(client: &mut RawClient) -> Vec<RawAnswer> {
    let mut all = Vec::new();
    while let Ok(answer) = client.answer("POST").await {
        all.push(answer);
    }
    all
}

#[tokio::test]
async fn a_body_on_a_reading_method_never_reaches_a_replica() {
    let rig = Rig::plain().await;
    let smuggled = hidden();
    let path = "/v2/models/screen";
    for method in ["GET", "HEAD"] {
        let sized = head(&format!("{method} {path}"), &format!("content-length: {}\r\n", smuggled.len()));
        let chunked = head(&format!("{method} {path}"), "transfer-encoding: chunked\r\n");
        let size = smuggled.len();
        for bytes in [format!("{sized}{smuggled}"), format!("{chunked}{size:x}\r\n{smuggled}\r\n0\r\n\r\n")] {
            let mut client = rig.raw().await;
            client.write(&bytes).await;
            let answer = client.answer(method).await.unwrap();
            assert_eq!((answer.status, answer.header("x-holdfast-error")), (400, "bad_request"), "{bytes}");
        }
        let mut client = rig.raw().await;
        client.write(head(&format!("{method} {path}"), "content-length: 0\r\n")).await;
        assert_eq!(client.answer(method).await.unwrap().status, 200, "a body of no bytes is no body");
    }
    assert_eq!(rig.stub.executions(), 0);
    let model_calls =
        rig.stub.requests().into_iter().filter(|r| r.path.starts_with(path) && !r.path.ends_with("/ready"));
    for request in model_calls {
        assert_eq!((request.header("content-length"), request.body.len()), ("", 0), "{request:?}");
    }
}
