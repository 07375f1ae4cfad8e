//! HTTP/2 without TLS on the data port: requests, limits of a connection and of a stream, and clients that mean harm.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(dead_code, reason = "the fixture is shared")]

#[path = "http/fixture.rs"]
mod fixture;
#[path = "h2/frames.rs"]
mod frames;
#[path = "h2/heads.rs"]
mod heads;
#[path = "h2/windows.rs"]
mod windows;

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use holdfast_testkit::stub::StubOptions;
use holdfast_testkit::wait::try_eventually;
use holdfast_testkit::{Script, eventually};
use http::{HeaderMap, Method, Request};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use fixture::{BODY, Differs, INFER, Rig, rss};
use frames::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frame, GOAWAY, HEADERS, PING, PRIORITY,
    REFUSED_STREAM, RST_STREAM, RawH2, SETTINGS, WINDOW_UPDATE, block, frame, infer,
};

struct Reply {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Reply {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }
}

async fn connect(rig: &Rig) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(rig.gateway.data.addr()).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    // Ends with the connection, which ends when the last sender is dropped.
    tokio::spawn(connection);
    sender
}

fn request(method: Method, path: &str, tenant: &str) -> Request<()> {
    let request = Request::builder().method(method).uri(format!("http://gateway{path}")).version(http::Version::HTTP_2);
    request.header("x-tenant", tenant).body(()).unwrap()
}

async fn send(sender: &SendRequest<Bytes>, request: Request<()>, body: &str) -> Result<Reply, h2::Error> {
    let mut sender = sender.clone().ready().await?;
    let (response, mut stream) = sender.send_request(request, body.is_empty())?;
    if !body.is_empty() {
        stream.send_data(Bytes::copy_from_slice(body.as_bytes()), true)?;
    }
    let (parts, mut incoming) = response.await?.into_parts();
    let mut body = Vec::new();
    while let Some(part) = incoming.data().await {
        let part = part?;
        incoming.flow_control().release_capacity(part.len())?;
        body.extend_from_slice(&part);
    }
    Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body })
}

#[tokio::test]
async fn requests_with_prior_knowledge_are_served_and_refused_like_any_other() {
    let rig = Rig::plain().await;
    let sender = connect(&rig).await;
    let served = send(&sender, request(Method::POST, INFER, "acme"), BODY).await.unwrap();
    let json: serde_json::Value = serde_json::from_slice(&served.body).unwrap();
    assert_eq!((served.status, served.header("x-holdfast-version"), json["id"].as_str()), (200, "1", Some("a")));
    for (method, path, tenant, status, kind) in [
        (Method::GET, "/v2/models/screen", "acme", 200, ""),
        (Method::HEAD, "/v2/models/screen", "acme", 200, ""),
        (Method::GET, "/livez", "acme", 200, ""),
        (Method::GET, "/v2/models/absent", "acme", 404, "unknown_model"),
        (Method::GET, "/v2/models/screen", "nobody-here", 403, "forbidden"),
        (Method::GET, "/v2/models/screen", "", 401, "unauthenticated"),
        (Method::DELETE, "/v2/models/screen", "acme", 405, "bad_request"),
        (Method::GET, "/nothing", "acme", 404, "bad_request"),
    ] {
        let reply = send(&sender, request(method.clone(), path, tenant), "").await.unwrap();
        assert_eq!((reply.status, reply.header("x-holdfast-error")), (status, kind), "{method} {path}");
        assert_eq!(reply.body.is_empty(), method == Method::HEAD, "{method} {path}");
        assert_eq!(reply.header("connection"), "");
    }
    let body_on_get = send(&sender, request(Method::GET, "/v2/models/screen", "acme"), "{}").await.unwrap();
    assert_eq!(body_on_get.status, 400);
}

#[tokio::test]
async fn streams_of_one_connection_are_served_side_by_side() {
    // The replica answers none before it has all of them.
    let (arrived, all_here) = tokio::sync::watch::channel(0);
    let rig = Rig::with(Differs::default(), move |request| {
        arrived.send_modify(|count| *count += 1);
        let answer = holdfast_testkit::v2_stub::infer_answer(request, "screen", "1");
        Some(Script::json(200, &answer).once_at_least(60, all_here.clone()))
    })
    .await;
    let sender = connect(&rig).await;
    let mut calls = JoinSet::new();
    for n in 0..60 {
        let sender = sender.clone();
        calls.spawn(async move {
            let body = format!(r#"{{"id":"{n}","inputs":[]}}"#);
            let reply = send(&sender, request(Method::POST, INFER, "acme"), &body).await.unwrap();
            let json: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
            assert_eq!((reply.status, json["id"].as_str()), (200, Some(n.to_string().as_str())));
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    assert_eq!(rig.stub.executions(), 60);
}

#[tokio::test]
async fn what_a_client_says_in_the_gateways_name_never_reaches_a_replica() {
    let rig = Rig::plain().await;
    let mut raw = RawH2::connect(rig.gateway.data.addr()).await;
    let fields =
        infer(&[("x-holdfast-tenant", "globex"), ("x-holdfast-anything", "1"), ("te", "trailers"), ("x-kept", "1")]);
    raw.write(&frame(HEADERS, END_HEADERS, 1, &block(&fields))).await;
    raw.write(&frame(DATA, 0, 1, BODY.as_bytes())).await;
    raw.write(&frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        1,
        &block(&[("x-holdfast-tenant", "globex"), ("x-note", "1")]),
    ))
    .await;
    let head = raw.until(|f| f.kind == HEADERS && f.stream == 1).await.unwrap();
    assert_eq!(head.payload.first(), Some(&0x88), "status 200, as an index of the static table");
    let seen = rig.stub.requests().into_iter().rfind(|r| r.path.contains("/infer")).unwrap();
    let ours: Vec<_> = seen.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case("x-holdfast-tenant")).collect();
    assert_eq!((ours.len(), ours[0].1.as_str()), (1, "acme"));
    for gone in ["x-holdfast-anything", "te", "x-note", "x-tenant"] {
        assert_eq!(seen.header(gone), "", "{gone}");
    }
    assert_eq!(seen.header("x-kept"), "1");
}

#[tokio::test]
async fn a_request_that_would_be_another_one_in_http_1_is_refused() {
    let rig = Rig::plain().await;
    let smuggled = "x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nPOST /v2/models/screen/infer?smuggled HTTP/1.1";
    let mut wrong: Vec<(Vec<(&str, &str)>, &str)> = vec![
        (infer(&[("transfer-encoding", "chunked")]), "a connection's field"),
        (infer(&[("connection", "close")]), "a connection's field"),
        (infer(&[("content-length", "1")]), "another length than the body's"),
        (infer(&[("content-length", "5"), ("content-length", "22")]), "two lengths"),
        (infer(&[("x-bad", smuggled)]), "a line end in a value"),
        (infer(&[("x-bad: y\r\nx", "1")]), "a line end in a name"),
        (infer(&[("X-Upper", "1")]), "upper case"),
        (infer(&[(":path", "/v2/models/screen/infer?smuggled")]), "a pseudo field after the others"),
        (infer(&[("x-tenant", "globex")]), "two tenants"),
        (infer(&[("content_length", "5")]), "a look-alike of a length"),
        (infer(&[("transfer.encoding", "chunked")]), "a look-alike of a coding"),
    ];
    let mut target = infer(&[]);
    target[3].1 = "/v2/models/screen/infer?caf\u{e9}";
    wrong.push((target, "a target that is not ASCII"));
    let mut path = infer(&[]);
    path[3].1 = "/v2/models/screen/infer HTTP/1.1\r\nx: y";
    wrong.push((path, "a line end in the path"));
    let mut method = infer(&[]);
    method[0].1 = "POST /v2/models/screen/infer HTTP/1.1\r\nx:";
    wrong.push((method, "a line end in the method"));
    for (fields, what) in wrong {
        let mut raw = RawH2::connect(rig.gateway.data.addr()).await;
        raw.write(&frame(HEADERS, END_HEADERS, 1, &block(&fields))).await;
        raw.write(&frame(DATA, END_STREAM, 1, BODY.as_bytes())).await;
        let end = raw.until(|f| f.kind == GOAWAY || (f.stream == 1 && matches!(f.kind, RST_STREAM | HEADERS))).await;
        let is_success = end.is_some_and(|f| f.kind == HEADERS && f.payload.first() == Some(&0x88));
        assert!(!is_success, "{what} was served");
    }
    assert_eq!(rig.stub.count(|r| r.path.contains("smuggled")), 0);
    assert_eq!(rig.stub.executions(), 0, "{:?}", rig.stub.requests());
}

#[tokio::test]
async fn opening_and_cancelling_streams_in_a_row_ends_the_connection_and_costs_nothing() {
    let rig = Rig::with(Differs::default(), |_| Some(Script::never())).await;
    let before = rss(rig.gateway.proc.pid());
    let mut raw = RawH2::connect(rig.gateway.data.addr()).await;
    let fields = block(&infer(&[]));
    for batch in 0..200_u32 {
        let mut bytes = Vec::new();
        for n in 0..100 {
            let id = (batch * 100 + n) * 2 + 1;
            bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, id, &fields));
            bytes.extend(frame(RST_STREAM, 0, id, &CANCEL.to_be_bytes()));
        }
        raw.write(&bytes).await;
    }
    let goaway = raw.until(|f| f.kind == GOAWAY).await;
    // A reset of the connection may overtake the frame; the connection has ended either way.
    assert!(goaway.as_ref().is_none_or(|f| f.code() == ENHANCE_YOUR_CALM), "{goaway:?}");
    if let Some(goaway) = &goaway {
        assert!(goaway.last_stream() < 2_000, "it ended only at stream {}", goaway.last_stream());
    }
    raw.rest().await;
    eventually("everything to be given back", Duration::from_secs(10), async || {
        let metrics = rig.gateway.metrics().await;
        (metrics.sum("holdfast_in_flight", &[]) == 0.0 && rig.stub.open_connections() <= 8).then_some(())
    })
    .await;
    let after = rss(rig.gateway.proc.pid());
    assert!(after < before + (16 << 20), "memory grew from {before} to {after} bytes");
    assert!(rig.stub.executions() < 2_000, "{} requests reached the replica", rig.stub.executions());
    assert_eq!(rig.gateway.data.get("/livez", &[]).await.status.as_u16(), 200);
    assert_eq!(library_lines(&rig), "");
}

#[tokio::test]
async fn cancelled_streams_end_their_requests_at_the_replica() {
    let rig = Rig::with(Differs::default(), |_| Some(Script::never())).await;
    let mut raw = RawH2::connect(rig.gateway.data.addr()).await;
    let fields = block(&infer(&[]));
    for round in 0..20_u32 {
        let before = rig.stub.executions();
        for n in 0..10 {
            let id = (round * 10 + n) * 2 + 1;
            raw.write(&frame(HEADERS, END_HEADERS, id, &fields)).await;
            raw.write(&frame(DATA, END_STREAM, id, BODY.as_bytes())).await;
        }
        eventually("the replica to have them", Duration::from_secs(10), async || {
            (rig.stub.executions() >= before + 10).then_some(())
        })
        .await;
        for n in 0..10 {
            raw.write(&frame(RST_STREAM, 0, (round * 10 + n) * 2 + 1, &CANCEL.to_be_bytes())).await;
        }
        eventually("the replica's connections to end", Duration::from_secs(10), async || {
            let metrics = rig.gateway.metrics().await;
            (metrics.sum("holdfast_in_flight", &[]) == 0.0 && rig.stub.open_connections() <= 4).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_client_that_gives_up_nearly_all_that_it_asks_is_told_to_go() {
    let rig = Rig::with(Differs::default(), |_| Some(Script::never())).await;
    let mut raw = RawH2::connect(rig.gateway.data.addr()).await;
    let fields = block(&infer(&[]));
    let mut id = 1_u32;
    let ended = loop {
        let first = id;
        for _ in 0..50 {
            raw.write(&frame(HEADERS, END_HEADERS | END_STREAM, id, &fields)).await;
            id += 2;
        }
        // Each has cost the replica something by the time that it is given up: no burst that the protocol library would notice.
        let wanted = usize::try_from(id / 2).unwrap();
        let all_there = async || (rig.stub.executions() >= wanted).then_some(());
        if try_eventually(Duration::from_secs(3), all_there).await.is_none() {
            break raw.until(|f| f.kind == GOAWAY).await;
        }
        for stream in (first..id).step_by(2) {
            raw.write(&frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes())).await;
        }
        raw.write(&frame(PING, 0, 0, b"are you?")).await;
        match raw.until(|f| f.kind == GOAWAY || (f.kind == PING && f.flags == 1)).await {
            Some(f) if f.kind == PING => {}
            other => break other,
        }
        assert!(id < 4_000, "nobody minds");
    };
    assert!(ended.is_none_or(|f| f.kind == GOAWAY) && id > 900, "{id}");
    raw.rest().await;
    eventually("everything to be given back", Duration::from_secs(10), async || {
        let metrics = rig.gateway.metrics().await;
        (metrics.sum("holdfast_in_flight", &[]) == 0.0 && rig.stub.open_connections() <= 8).then_some(())
    })
    .await;
    assert!(rig.stub.executions() < 1_500, "{}", rig.stub.executions());
    assert_eq!(rig.gateway.data.get("/livez", &[]).await.status.as_u16(), 200);
}

#[tokio::test]
async fn floods_of_frames_that_ask_for_nothing_do_not_grow_memory() {
    let rig = Rig::plain().await;
    let before = rss(rig.gateway.proc.pid());
    for one in [
        frame(PING, 0, 0, b"12345678"),
        frame(PING, 1, 0, b"unasked!"),
        frame(SETTINGS, 0, 0, &[]),
        frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]),
        frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 16]),
        frame(0xfa, 0, 0, b"of no known kind"),
    ] {
        let mut raw = RawH2::connect(rig.gateway.data.addr()).await;
        let many = one.repeat(1_000);
        // Nothing is read meanwhile, so what the gateway would answer has no way out; nor does it have to take all of it.
        for _ in 0..100 {
            if tokio::time::timeout(Duration::from_millis(500), raw.write(&many)).await.is_err() {
                break;
            }
        }
        let after = rss(rig.gateway.proc.pid());
        assert!(after < before + (16 << 20), "kind {}: memory grew from {before} to {after} bytes", one[3]);
    }
    assert_eq!(rig.infer().await, 200);
    assert_eq!(library_lines(&rig), "");
}

/// What the protocol library has written into the process log.
fn library_lines(rig: &Rig) -> String {
    let output = rig.gateway.proc.output();
    output.lines().filter(|line| line.contains(r#""target":"h2"#)).collect()
}

#[tokio::test]
async fn endless_continuations_end_the_connection_also_when_they_are_empty() {
    let rig = Rig::plain().await;
    for payload in [&[][..], &block(&[("x", "y")])] {
        let mut raw = RawH2::connect(rig.gateway.data.addr()).await;
        raw.write(&frame(HEADERS, 0, 1, &block(&infer(&[])))).await;
        let flood: Vec<u8> = (0..10_000).flat_map(|_| frame(CONTINUATION, 0, 1, payload)).collect();
        raw.write(&flood).await;
        let frames = raw.rest().await;
        assert!(frames.iter().all(|f| f.kind != HEADERS), "no answer: {frames:?}");
    }
    assert_eq!(rig.stub.executions(), 0);
    assert_eq!(rig.infer().await, 200);
}

#[tokio::test]
async fn too_large_a_head_costs_its_own_stream_only() {
    let rig = Rig::with(Differs::default(), |request| {
        let answer = holdfast_testkit::v2_stub::infer_answer(request, "screen", "1");
        Some(Script::json(200, &answer).after(Duration::from_millis(400)))
    })
    .await;
    let mut raw = RawH2::connect(rig.gateway.data.addr()).await;
    for n in 0..9 {
        raw.write(&frame(HEADERS, END_HEADERS, n * 2 + 1, &block(&infer(&[])))).await;
        raw.write(&frame(DATA, END_STREAM, n * 2 + 1, BODY.as_bytes())).await;
    }
    let long = "a".repeat(64 << 10);
    let large = block(&infer(&[("x-long", &long)]));
    let parts: Vec<&[u8]> = large.chunks(16_384).collect();
    for (n, part) in parts.iter().enumerate() {
        let flags = if n + 1 == parts.len() { END_HEADERS } else { 0 };
        let bytes =
            if n == 0 { frame(HEADERS, flags | END_STREAM, 19, part) } else { frame(CONTINUATION, flags, 19, part) };
        raw.write(&bytes).await;
    }
    let mut served = Vec::new();
    let mut refused: Option<Frame> = None;
    while served.len() < 9 || refused.is_none() {
        let frame =
            raw.until(|f| matches!(f.kind, HEADERS | RST_STREAM | GOAWAY)).await.expect("the connection goes on");
        assert_ne!(frame.kind, GOAWAY, "{frame:?}");
        match frame.stream {
            19 => refused = Some(frame),
            other => {
                assert_eq!((frame.kind, frame.payload.first()), (HEADERS, Some(&0x88)), "stream {other}");
                served.push(other);
            }
        }
    }
    let refused = refused.unwrap();
    assert!(refused.kind == RST_STREAM || refused.payload.first() != Some(&0x88), "{refused:?}");
    assert_eq!(rig.stub.executions(), 9);
}

#[tokio::test]
async fn streams_past_the_bound_are_refused_as_not_processed() {
    let differs = Differs { top: "limits: { streams_per_connection: 10 }", ..Differs::default() };
    let rig = Rig::with(differs, |_| Some(Script::never())).await;
    let mut raw = RawH2::connect(rig.gateway.data.addr()).await;
    // Without a body: a frame of one that comes after the refusal would be answered in its place.
    for n in 0..12 {
        raw.write(&frame(HEADERS, END_HEADERS | END_STREAM, n * 2 + 1, &block(&infer(&[])))).await;
    }
    for stream in [21, 23] {
        let reset = raw.until(|f| matches!(f.kind, RST_STREAM | GOAWAY)).await.unwrap();
        assert_eq!((reset.kind, reset.stream, reset.code()), (RST_STREAM, stream, REFUSED_STREAM));
    }
    eventually("ten at the replica", Duration::from_secs(10), async || (rig.stub.executions() == 10).then_some(()))
        .await;
}

#[tokio::test]
async fn a_connection_that_asks_for_nothing_ends_whatever_it_has_begun() {
    let top = "timeouts: { keepalive_idle: 500ms, head: 500ms }";
    let rig = Rig::with(Differs { top, ..Differs::default() }, |_| None).await;
    // Only the preface; half a head; half of the preface.
    let mut only = RawH2::connect(rig.gateway.data.addr()).await;
    let mut half = RawH2::connect(rig.gateway.data.addr()).await;
    half.write(&frame(HEADERS, 0, 1, &block(&infer(&[])))).await;
    let mut preface = rig.raw().await;
    preface.write("PRI * HTTP/2.0\r\n").await;
    assert!(preface.rest().await.unwrap().is_empty());
    for raw in [&mut only, &mut half] {
        let frames = raw.rest().await;
        assert!(frames.iter().all(|f| f.kind != HEADERS), "{frames:?}");
    }
    assert_eq!(rig.stub.executions(), 0);
}

#[tokio::test]
async fn a_connection_of_its_age_is_told_to_go_and_its_streams_finish() {
    let differs = Differs { top: "timeouts: { connection_max_age: 1s }", ..Differs::default() };
    let rig = Rig::with(differs, |request| {
        let answer = holdfast_testkit::v2_stub::infer_answer(request, "screen", "1");
        Some(Script::json(200, &answer).after(Duration::from_secs(2)))
    })
    .await;
    let mut raw = RawH2::connect(rig.gateway.data.addr()).await;
    raw.write(&frame(HEADERS, END_HEADERS, 1, &block(&infer(&[])))).await;
    raw.write(&frame(DATA, END_STREAM, 1, BODY.as_bytes())).await;
    let mut told = false;
    let served = loop {
        match raw.next().await.expect("the answer comes first") {
            f if f.kind == GOAWAY => {
                told = true;
                assert_eq!(f.code(), 0);
            }
            // The first GOAWAY is followed by a ping; its answer makes the second one final.
            f if f.kind == PING && f.flags == 0 => raw.write(&frame(PING, 1, 0, &f.payload)).await,
            f if f.kind == HEADERS => break f,
            _ => {}
        }
    };
    assert!(told, "before the answer");
    assert_eq!(served.payload.first(), Some(&0x88));
    raw.rest().await;
}

#[tokio::test]
async fn bounds_of_a_body_hold_on_a_stream_and_spare_the_others() {
    let top = "timeouts: { body_idle: 500ms }\nlimits: { body: 20KiB, buffer: 1KiB }";
    let differs = Differs { top, stub: StubOptions::default(), ..Differs::default() };
    let rig = Rig::with(differs, |_| None).await;
    let sender = connect(&rig).await;
    let large = " ".repeat(20_481);
    let refused = send(&sender, request(Method::POST, INFER, "acme"), &large).await.unwrap();
    assert_eq!((refused.status, refused.header("x-holdfast-error")), (413, "too_large"));
    let mut ready = sender.clone().ready().await.unwrap();
    let (response, mut body) = ready.send_request(request(Method::POST, INFER, "acme"), false).unwrap();
    body.send_data(Bytes::from_static(b"{"), false).unwrap();
    let slow = response.await.unwrap();
    assert_eq!(slow.status().as_u16(), 408);
    let exact = format!("{BODY}{}", " ".repeat(20_480 - BODY.len()));
    let served = send(&sender, request(Method::POST, INFER, "acme"), &exact).await.unwrap();
    assert_eq!(served.status, 200);
    assert_eq!(rig.stub.executions(), 1);
}
