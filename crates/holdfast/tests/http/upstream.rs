//! Connections to a replica: kept, discarded when in doubt, and never the reason for a second execution.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_testkit::raw::{RawClient, RawError, find};
use holdfast_testkit::script::Step;
use holdfast_testkit::stub::StubOptions;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Script, Stub, eventually};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::fixture::{BODY, Differs, INFER, Rig, assert_error, config, head, post, start};

fn answer() -> String {
    json!({"model_name": "screen", "model_version": "1", "outputs": []}).to_string()
}

#[tokio::test]
async fn a_client_that_closes_after_each_request_does_not_close_the_replicas_connections() {
    let rig = Rig::plain().await;
    let before = rig.stub.connections();
    for _ in 0..100 {
        let mut client = rig.raw().await;
        client.write(post("Connection: close\r\n")).await;
        let answer = client.answer("POST").await.unwrap();
        assert_eq!((answer.status, answer.header("connection")), (200, "close"));
        assert!(client.rest().await.unwrap().is_empty(), "the client's own connection does close");
    }
    let opened = rig.stub.connections() - before;
    assert!(opened <= 8, "100 clients opened {opened} connections to the replica");
    let sent = rig.stub.requests();
    assert!(sent.iter().filter(|r| r.path.contains("/infer")).all(|r| r.header("connection").is_empty()));
}

#[tokio::test]
async fn a_client_of_http_1_0_is_answered_without_chunks() {
    // A long answer of unknown length: nothing but chunks or the end of the connection can frame it.
    let rig = Rig::with(Differs::default(), |_| {
        let chunk = format!("{:x}\r\n{}\r\n", answer().len(), answer());
        Some(Script::raw(format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunk}0\r\n\r\n")))
    })
    .await;
    let mut client = rig.raw().await;
    client.write(post("").replace(" HTTP/1.1", " HTTP/1.0")).await;
    let bytes = client.rest().await.unwrap();
    let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    assert!(text.starts_with("http/1.0 200") || text.starts_with("http/1.1 200"), "{text}");
    assert!(!text.contains("transfer-encoding"), "{text}");
    assert!(text.ends_with(&answer().to_ascii_lowercase()), "{text}");
}

#[tokio::test]
async fn a_replica_that_closes_idle_connections_never_makes_a_request_run_twice() {
    let stub = StubOptions { idle_close: Some(Duration::from_millis(200)), ..StubOptions::default() };
    let differs =
        Differs { stub, pool: "    health: { interval: 50ms, timeout: 40ms, fall: 1000 }", ..Differs::default() };
    let rig = Arc::new(Rig::with(differs, |_| None).await);
    let mut senders = Vec::new();
    let bad = Arc::new(AtomicU64::new(0));
    for lane in 0..25_u64 {
        let (rig, bad) = (rig.clone(), bad.clone());
        senders.push(tokio::spawn(async move {
            let mut client = rig.raw().await;
            for n in 0..20_u64 {
                // Around the moment at which the replica closes: 180 to 220 ms after the last use.
                tokio::time::sleep(Duration::from_millis(180 + (lane * 7 + n * 3) % 41)).await;
                client.write(post(&format!("x-number: {lane}-{n}\r\n"))).await;
                let answer = client.answer("POST").await.unwrap();
                match (answer.status, answer.header("x-holdfast-error")) {
                    (200, _) => {}
                    (502, "upstream_error") => drop(bad.fetch_add(1, Ordering::Relaxed)),
                    other => panic!("{lane}-{n}: {other:?} {}", answer.text()),
                }
            }
        }));
    }
    for sender in senders {
        sender.await.unwrap();
    }
    let numbers: Vec<String> = rig
        .stub
        .requests()
        .iter()
        .filter(|r| r.path.contains("/infer"))
        .map(|r| r.header("x-number").to_owned())
        .collect();
    let distinct: BTreeSet<&String> = numbers.iter().collect();
    assert_eq!(distinct.len(), numbers.len(), "a request was executed twice");
    let bad = bad.load(Ordering::Relaxed);
    assert!(numbers.len() as u64 + bad >= 500, "{} executed, {bad} refused", numbers.len());
    assert!(bad <= 100, "{bad} of 500 failed: closed connections are not noticed");
}

/// The gateway sleeps while requests come and its replica closes the connections that were kept. It finds the requests first, and connections that seem open.
#[tokio::test]
async fn a_request_that_meets_a_close_before_it_is_written_is_sent_on_a_fresh_connection_and_nobody_sees_it() {
    const CLIENTS: usize = 16;
    let stub = StubOptions { idle_close: Some(Duration::from_millis(500)), ..StubOptions::default() };
    let pool = "    health: { fall: 1000 }\n    connections: { warm: 0 }\n    retries: { budget: 100 }";
    let rig = Rig::with(Differs { stub, pool, top: "workers: 1", ..Differs::default() }, |_| None).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(rig.raw().await);
    }
    let mut first = rig.raw().await;
    let (mut sent, mut broken, mut met) = (0, 0, 0.0);
    for _ in 0..40 {
        // Each has a connection of its own after this.
        ask_together(&mut clients).await;
        rig.gateway.proc.freeze();
        // What wakes the worker is in its hands before it looks for the rest: a request that needs no replica.
        first.write(head("GET /livez", "")).await;
        for client in &mut clients {
            client.write(post("")).await;
        }
        eventually("the replica to close", Duration::from_secs(30), async || {
            (rig.stub.open_connections() == 0).then_some(())
        })
        .await;
        rig.gateway.proc.thaw();
        assert_eq!(first.answer("GET").await.unwrap().status, 200);
        for client in &mut clients {
            let answer = client.answer("POST").await.unwrap();
            // A close that was still on its way when the request was written: whether it was read nobody can say.
            let is_broken = answer.status == 502 && answer.text().contains("the replica broke the connection");
            assert!(answer.status == 200 || is_broken, "{}", answer.text());
            broken += usize::from(is_broken);
        }
        sent += 2 * CLIENTS;
        met = rig.gateway.metrics().await.sum("holdfast_retries_total", &[("reason", "closed")]);
        if met > 0.0 {
            break;
        }
    }
    assert!(met > 0.0, "no request met a close that was not seen yet");
    assert_eq!(rig.stub.executions(), sent - broken, "each request that was answered was executed once");
}

async fn ask_together(clients: &mut [RawClient]) {
    for client in &mut *clients {
        client.write(post("")).await;
    }
    for client in clients {
        assert_eq!(client.answer("POST").await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_replica_that_breaks_the_protocol_after_the_body_executes_once() {
    for (n, broken) in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "\0\0\x12\x04\0\0\0\0\0\0\x03",
        "",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        let rig = Rig::with(Differs::default(), move |_| Some(Script::raw(broken).then(Step::Close))).await;
        let mut client = rig.raw().await;
        client.write(post("")).await;
        assert_error(&client.answer("POST").await.unwrap(), 502, "upstream_error");
        assert_eq!(rig.stub.executions(), 1, "case {n}");
        assert_eq!(livez(&mut client).await, 200, "the client's connection is well");
    }
}

async fn livez(client: &mut RawClient) -> u16 {
    client.write(head("GET /livez", "")).await;
    client.answer("GET").await.unwrap().status
}

#[tokio::test]
async fn a_request_that_may_have_run_is_not_sent_again() {
    let rig = Rig::with(Differs::default(), |_| Some(Script::close())).await;
    let mut client = rig.raw().await;
    client.write(post("")).await;
    assert_error(&client.answer("POST").await.unwrap(), 502, "upstream_error");
    assert_eq!(rig.stub.executions(), 1, "no model is taken for idempotent unasked");
}

#[tokio::test]
async fn bytes_after_an_answer_without_a_body_are_nobodys_answer() {
    for (kind, first) in [
        ("304", "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\n\r\nleftovers!"),
        ("204", "HTTP/1.1 204 No Content\r\n\r\nleftovers!"),
        (
            "200",
            "HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"outputs\":[]}HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nleftovers",
        ),
        ("late", "HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"outputs\":[]}"),
    ] {
        let rig = Rig::with(Differs::default(), move |r| {
            let script = Script::raw(first);
            let late = kind == "late";
            (r.header("x-which") == "first").then(|| {
                if late { script.then(Step::Pause(Duration::from_millis(30))).then_send("leftovers") } else { script }
            })
        })
        .await;
        let mut client = rig.raw().await;
        client.write(post("x-which: first\r\n")).await;
        let got = client.answer("POST").await.unwrap();
        assert!(matches!(got.status, 200 | 204 | 304 | 502), "{kind}: {}", got.status);
        assert!(!got.text().contains("leftovers"), "{kind}: {}", got.text());
        let first = rig.stub.requests().into_iter().find(|r| r.header("x-which") == "first").unwrap();
        for n in 0..20 {
            client.write(post(&format!("x-which: {n}\r\n"))).await;
            let next = client.answer("POST").await.unwrap_or_else(|e| panic!("{kind}, {n}: {e}"));
            // What came late may have broken a connection that the gateway had just taken: that request fails, honestly.
            assert!(next.status == 200 || (kind == "late" && next.status == 502), "{kind}, {n}: {}", next.status);
            assert!(!next.text().contains("leftovers"), "{kind}, {n}: {}", next.text());
        }
        let reused =
            rig.stub.requests().into_iter().filter(|r| r.connection == first.connection && r.number > first.number);
        let reused = reused.filter(|r| kind != "late" || r.header("x-which") != "0").count();
        assert_eq!(reused, 0, "{kind}: the connection was used again");
    }
}

#[tokio::test]
async fn a_body_after_an_answer_to_head_is_nobodys_answer() {
    // Metadata is fetched with GET whatever the client asks, so a replica has no chance to answer HEAD with a body.
    let rig = Rig::plain().await;
    let mut client = rig.raw().await;
    for _ in 0..3 {
        client.write(head("HEAD /v2/models/screen", "")).await;
        assert_eq!(client.answer("HEAD").await.unwrap().status, 200);
        client.write(post("")).await;
        assert_eq!(client.answer("POST").await.unwrap().status, 200);
    }
    assert_eq!(rig.stub.count(|r| r.method == "HEAD"), 0);
}

#[tokio::test]
async fn interim_answers_of_a_replica_are_swallowed() {
    let interim = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n".repeat(3);
    let rig = Rig::with(Differs::default(), move |_| {
        Some(Script::raw(format!("{interim}HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}", answer().len(), answer())))
    })
    .await;
    let mut client = rig.raw().await;
    for _ in 0..3 {
        client.write(post("")).await;
        let got = client.answer("POST").await.unwrap();
        assert_eq!((got.status, got.header("link")), (200, ""));
    }
}

#[tokio::test]
async fn an_answer_without_a_body_has_no_framing_of_one() {
    for status in [204_u16, 304] {
        let rig = Rig::with(Differs::default(), move |r| {
            (r.header("x-which") == "first")
                .then(|| Script::raw(format!("HTTP/1.1 {status} Bodyless\r\nx-kept: 1\r\n\r\n")))
        })
        .await;
        let mut client = rig.raw().await;
        for _ in 0..2 {
            client.write(post("x-which: first\r\n") + &post("")).await;
            let got = client.answer("POST").await.unwrap();
            assert_eq!(got.header("transfer-encoding"), "", "{status}");
            assert!(got.status == status || got.status == 502, "{status} became {}", got.status);
            assert_eq!(client.answer("POST").await.unwrap().status, 200, "the next request is served");
        }
    }
}

#[tokio::test]
async fn an_answer_cut_short_does_not_look_complete() {
    let long =
        format!(r#"{{"model_name":"screen","model_version":"1","outputs":[{{"data":"{}"}}]}}"#, "x".repeat(300_000));
    let whole = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{long}", long.len());
    let chunked =
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{long}\r\n0\r\n\r\n", long.len());
    for bytes in [whole, chunked] {
        for ending in [Step::Close, Step::Reset] {
            let script = Script::raw(bytes.clone()).cut_at(200_000, ending.clone());
            let rig = Rig::with(Differs::default(), move |_| Some(script.clone())).await;
            let mut client = rig.raw().await;
            client.write(post("")).await;
            match client.answer("POST").await {
                Err(RawError::Cut(_)) => {}
                Ok(answer) => assert_error(&answer, 502, "upstream_error"),
                other => panic!("{other:?}"),
            }
            assert_eq!(rig.stub.executions(), 1);
        }
    }
}

/// A replica that answers an inference as soon as it has read the head, and then reads the body, or nothing more.
async fn hasty(status: &'static str, reads_on: bool) -> (std::net::SocketAddr, Arc<AtomicU64>) {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Arc::new(AtomicU64::new(0));
    let counted = heads.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_hastily(stream, status, reads_on, counted.clone()));
        }
    });
    (address, heads)
}

async fn answer_hastily(mut stream: tokio::net::TcpStream, status: &str, reads_on: bool, heads: Arc<AtomicU64>) {
    let mut seen = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = find(&seen, b"\r\n\r\n") {
                break end + 4;
            }
            if !stream.read_buf(&mut seen).await.is_ok_and(|n| n > 0) {
                return;
            }
        };
        let head = String::from_utf8_lossy(&seen[..end]).to_ascii_lowercase();
        seen.drain(..end);
        let is_infer = head.contains("/infer");
        heads.fetch_add(u64::from(is_infer), Ordering::SeqCst);
        let (status, body) = (if is_infer { status } else { "200 OK" }, r#"{"error":"no"}"#);
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let _ = stream.write_all(answer.as_bytes()).await;
        if is_infer && !reads_on {
            // Neither reads nor closes.
            return std::future::pending().await;
        }
        let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")).map_or(0, |l| l.parse().unwrap());
        while seen.len() < length {
            if !stream.read_buf(&mut seen).await.is_ok_and(|n| n > 0) {
                return;
            }
        }
        seen.drain(..length);
    }
}

#[tokio::test]
async fn an_answer_that_comes_while_the_client_still_sends_is_passed_on_at_once_if_it_is_an_error() {
    for reads_on in [true, false] {
        for (status, code, kind) in [
            ("413 Too Large", 413, ""),
            ("503 Busy", 503, "overloaded"),
            ("500 Broken", 502, "upstream_error"),
            // No judgement of what has not come yet.
            ("200 OK", 502, "upstream_error"),
        ] {
            let (address, heads) = hasty(status, reads_on).await;
            let differs =
                Differs { top: "limits: { buffer: 4KiB }\ntimeouts: { body_idle: 2s }", ..Differs::default() };
            let gateway = start(&config(&format!("http://{address}"), &differs)).await;
            let mut client = RawClient::connect(gateway.data.addr()).await;
            let length = 8 << 20;
            client.write(head(&format!("POST {INFER}"), &format!("content-length: {length}\r\n"))).await;
            client.write(vec![b' '; 20_000]).await;
            let answer = client.answer("POST").await.unwrap_or_else(|e| panic!("{status}, {reads_on}: {e}"));
            assert_eq!((answer.status, answer.header("x-holdfast-error")), (code, kind), "{status}");
            assert_eq!(heads.load(Ordering::SeqCst), 1, "sent once");
            drop(client);
            eventually("everything to be given back", Duration::from_secs(10), async || {
                let metrics = gateway.metrics().await;
                (metrics.sum("holdfast_in_flight", &[]) == 0.0).then_some(())
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_replicas_error_names_the_model_as_its_client_does() {
    let v2 = V2::loaded(&[("screen-1", "1")]);
    let stub = Stub::start(move |request| {
        let told = |status| Script::json(status, &json!({ "error": "line 1\nscreen-1 has no input like screen-10." }));
        match request.header("x-wants") {
            "" => v2.answer(request),
            "400" => told(400),
            _ => told(500),
        }
    })
    .await;
    let pool = "    upstream: { model: \"{model}-{version}\", version: \"\" }";
    let gateway = start(&config(&stub.url(), &Differs { pool, ..Differs::default() })).await;
    let mut client = RawClient::connect(gateway.data.addr()).await;
    client.write(post("x-wants: 400\r\n")).await;
    let answer = client.answer("POST").await.unwrap();
    assert_eq!(answer.status, 400);
    assert_eq!(answer.text(), r#"{"error":"line 1\nscreen has no input like screen-10."}"#);
    client.write(post("x-wants: 500\r\n")).await;
    let answer = client.answer("POST").await.unwrap();
    assert_error(&answer, 502, "upstream_error");
    assert!(answer.text().contains("screen has") && !answer.text().contains("screen-1 "), "{}", answer.text());
    client.write(post("")).await;
    assert_eq!(client.answer("POST").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_connection_on_which_a_request_body_is_unfinished_is_not_given_to_another_request() {
    let (address, _) = hasty("400 Bad", true).await;
    let differs = Differs { top: "limits: { buffer: 4KiB }\ntimeouts: { body_idle: 5s }", ..Differs::default() };
    let gateway = start(&config(&format!("http://{address}"), &differs)).await;
    let mut first = RawClient::connect(gateway.data.addr()).await;
    first.write(head(&format!("POST {INFER}"), "content-length: 1000000\r\n")).await;
    first.write(vec![b' '; 20_000]).await;
    assert_eq!(first.answer("POST").await.unwrap().status, 400);
    for _ in 0..10 {
        let mut second = RawClient::connect(gateway.data.addr()).await;
        second.write(post("x-request-timeout-ms: 3000\r\n")).await;
        let answer = second.answer("POST").await.unwrap();
        assert_eq!((answer.status, answer.text().as_str()), (400, r#"{"error":"no"}"#), "{BODY}");
    }
}

#[tokio::test]
async fn requests_over_the_bound_on_connections_wait_for_their_turn() {
    let differs = Differs { top: "workers: 1", pool: "    connections: { per_replica: 2 }", ..Differs::default() };
    let rig = Rig::with(differs, |_| {
        let value = json!({"model_name": "screen", "model_version": "1", "outputs": []});
        Some(Script::json(200, &value).after(Duration::from_millis(40)))
    })
    .await;
    let asking = (0..30).map(|_| rig.infer());
    let statuses = futures_of(asking).await;
    assert_eq!(statuses, vec![200; 30], "a burst is served in turn, not refused");
    let replicas = rig.gateway.admin_get("/v1/replicas").await;
    assert!(replicas["replicas"][0]["connections"].as_u64() <= Some(2), "{replicas}");
    assert_eq!(replicas["replicas"][0]["in_flight"], 0);
}

/// All of them at once, in order.
async fn futures_of<F: Future<Output = u16>>(all: impl Iterator<Item = F>) -> Vec<u16> {
    let mut all: Vec<_> = all.map(|f| (Box::pin(f), None)).collect();
    std::future::poll_fn(|cx| {
        for (future, done) in all.iter_mut().filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(status) = future.as_mut().poll(cx) {
                *done = Some(status);
            }
        }
        if all.iter().all(|(_, done)| done.is_some()) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    all.into_iter().filter_map(|(_, done)| done).collect()
}
