//! Sockets that are passed through to a model server.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use holdfast_testkit::{Holdfast, eventually};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::echo::Echo;
use crate::ends::{Draw, visit};
use crate::rig::{Heard, PATIENCE, Ws, binary, rss};

struct Rig {
    gateway: Holdfast,
    echo: Echo,
}

impl Rig {
    async fn start(stream: &str, plan: &str) -> Self {
        Self::with(stream, plan, "").await
    }

    async fn with(stream: &str, plan: &str, pool: &str) -> Self {
        let echo = Echo::start().await;
        let config = format!(
            "auth: {{ trusted_header: x-tenant, trusted_user_header: x-user }}\n\
             stream: {{ routes: [{{ path: /v1/chat, model: screen, upstream: \"/chat/{{model}}/{{version}}\" }}, {{ path: /v1/gone, model: nothing }}], {stream} }}\n\
             timeouts: {{ request: 5s, drain: 4s }}\npools:\n  - {{ name: p, protocol: open-inference, residency: static, {pool} health: {{ interval: 2s, timeout: 2s }}, \
             replicas: [{{ name: r1, url: \"http://{}\", holds: [{{ model: screen, version: \"1\" }}] }}] }}\nmodels:\n  \
             - {{ name: screen, pool: p, versions: [{{ version: \"1\" }}] }}\nplans:\n  - {{ name: standard, {plan} }}\ntenants:\n  \
             - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }}, plan: standard }}\n",
            echo.addr
        );
        let gateway = Holdfast::start(binary(), &config).await;
        eventually("the replica to be proven", PATIENCE, async || {
            let ready = gateway.data.get("/v2/models/screen/ready", &[("x-tenant", "acme")]).await;
            (ready.status == 200).then_some(())
        })
        .await;
        Self { gateway, echo }
    }

    async fn try_open(&self, path: &str, fields: &[(&str, &str)]) -> Result<(Ws, http::HeaderMap), http::StatusCode> {
        let mut request = format!("ws://{}{path}", self.gateway.data.addr()).into_client_request().unwrap();
        for (name, value) in [("x-tenant", "acme"), ("x-user", "u")].iter().chain(fields) {
            request.headers_mut().insert(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let stream = TcpStream::connect(self.gateway.data.addr()).await.unwrap();
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, response)) => Ok((Ws(socket), response.headers().clone())),
            Err(Error::Http(response)) => Err(response.status()),
            Err(other) => panic!("{other}"),
        }
    }

    async fn open(&self) -> Ws {
        self.try_open("/v1/chat", &[]).await.unwrap().0
    }

    async fn settled(&self) {
        eventually("nothing to be left", PATIENCE, async || {
            let metrics = self.gateway.metrics().await;
            let gauges = ["holdfast_stream_sockets", "holdfast_in_flight", "holdfast_replica_in_flight"];
            gauges.iter().all(|gauge| metrics.sum(gauge, &[]) == 0.0).then_some(())
        })
        .await;
    }
}

async fn next(socket: &mut WebSocketStream<TcpStream>) -> Message {
    loop {
        let message =
            tokio::time::timeout(PATIENCE, socket.next()).await.expect("in time").expect("a message").unwrap();
        if !matches!(message, Message::Ping(_) | Message::Pong(_)) {
            return message;
        }
    }
}

#[tokio::test]
async fn messages_of_both_kinds_come_back_as_they_were_sent() {
    let rig = Rig::start("message: 4MiB, answer: 4MiB", "user: {}").await;
    let fields = [("sec-websocket-protocol", "chat.v2, chat.v1"), ("cookie", "a=1")];
    let (mut socket, told) = rig.try_open("/v1/chat", &fields).await.unwrap();
    assert_eq!(told["sec-websocket-protocol"], "chat.v2", "the model server has chosen");
    assert_eq!(
        (&told["x-holdfast-version"], &told["x-holdfast-model"]),
        (&"1".parse().unwrap(), &"screen".parse().unwrap())
    );
    let large = "é".repeat(1_000_000);
    for message in [
        Message::text("hello"),
        Message::text(""),
        Message::binary(vec![0, 255, 1]),
        Message::binary(Vec::new()),
        Message::text(large),
        Message::text(r#"{"type":"unknown","id":1}"#),
    ] {
        socket.0.send(message.clone()).await.unwrap();
        assert_eq!(next(&mut socket.0).await, message);
    }
    {
        let handshakes = rig.echo.seen.handshakes.lock().unwrap();
        let (path, seen) = &handshakes[0];
        assert_eq!(path, "/chat/screen/1");
        assert_eq!((&seen["x-holdfast-tenant"], seen.get("x-tenant")), (&"acme".parse().unwrap(), None));
        assert_eq!((seen["cookie"].to_str().unwrap(), seen.get_all("sec-websocket-key").iter().count()), ("a=1", 1));
    }
    assert_eq!(rig.gateway.metrics().await.sum("holdfast_replica_in_flight", &[]), 1.0, "the version is in use");
    socket.leave().await;
    rig.settled().await;
    let answered = eventually("the request", PATIENCE, async || {
        let receipts = rig.gateway.admin_get("/v1/receipts?tenant=acme&limit=1").await;
        (receipts["receipts"][0]["status"] == 101).then(|| receipts["receipts"][0].clone())
    })
    .await;
    assert_eq!(answered["version"], "1", "one request for all of it: {answered:#}");
}

#[tokio::test]
async fn close_codes_go_both_ways_and_a_model_server_that_vanishes_is_said() {
    let rig = Rig::start("", "user: {}").await;
    let mut socket = rig.open().await;
    let close = CloseFrame { code: 4000.into(), reason: "done".into() };
    socket.0.close(Some(close)).await.unwrap();
    assert_eq!(socket.rest().await.1, Some(4000));
    let mut socket = rig.open().await;
    socket.0.send(Message::text("close")).await.unwrap();
    assert_eq!(socket.rest().await.1, Some(4001));
    let mut socket = rig.open().await;
    socket.0.send(Message::text("vanish")).await.unwrap();
    assert_eq!(socket.rest().await.1, Some(1013));
    // A client that vanishes is told to the model server.
    drop(rig.open().await);
    eventually("four ends at the model server", PATIENCE, async || {
        let closes = rig.echo.seen.closes.lock().unwrap().clone();
        (closes == [Some(4000), Some(4001), Some(1001)]).then_some(())
    })
    .await;
    rig.settled().await;
}

#[tokio::test]
async fn who_cannot_be_served_is_told_before_there_is_a_socket() {
    let rig = Rig::start("", "user: {}").await;
    assert_eq!(rig.try_open("/v1/gone", &[]).await.map(|_| ()), Err(http::StatusCode::NOT_FOUND), "no such model");
    assert_eq!(rig.try_open("/v1/chat", &[("x-tenant", "nobody")]).await.map(|_| ()), Err(http::StatusCode::FORBIDDEN));
    rig.echo.seen.refuses.store(true, Relaxed);
    assert_eq!(rig.try_open("/v1/chat", &[]).await.map(|_| ()), Err(http::StatusCode::BAD_GATEWAY));
    rig.settled().await;
}

#[tokio::test]
async fn messages_come_under_the_ladder() {
    let rig = Rig::start("types: { tick: { coalesce: true } }", "user: { requests: 8/h }").await;
    let mut socket = rig.open().await;
    let text = |kind: &str, id: u64| json!({ "type": kind, "id": id }).to_string();
    for id in 0..7 {
        socket.0.send(Message::text(text("normal", id))).await.unwrap();
        assert_eq!(next(&mut socket.0).await, Message::text(text("normal", id)));
    }
    // One is left: droppable ones go, silently; of a stream the first takes it, and is the last.
    socket.0.send(Message::text(text("droppable", 7))).await.unwrap();
    socket.0.send(Message::text(text("tick", 8))).await.unwrap();
    assert_eq!(next(&mut socket.0).await, Message::text(text("tick", 8)));
    for id in 9..12 {
        socket.0.send(Message::text(text("tick", id))).await.unwrap();
    }
    socket.0.send(Message::text(text("normal", 12))).await.unwrap();
    let (warned, refused) = (socket.frame().await, socket.frame().await);
    assert_eq!((&warned["type"], &warned["limit"]), (&json!("rate_limited"), &json!("user-requests")));
    assert_eq!((&refused["id"], &refused["error"]["kind"]), (&json!(12), &json!("rate_limited")), "{refused}");
    socket.0.send(Message::text(text("critical", 13))).await.unwrap();
    assert_eq!(next(&mut socket.0).await, Message::text(text("critical", 13)), "on credit");
    for id in 14..40 {
        // It may be closed in the middle.
        let _ = socket.0.feed(Message::text(text("normal", id))).await;
    }
    let _ = socket.0.flush().await;
    assert_eq!(socket.rest().await.1, Some(1008));
    assert_eq!(rig.try_open("/v1/chat", &[]).await.map(|_| ()), Err(http::StatusCode::TOO_MANY_REQUESTS), "kept out");
    let ladder = rig.gateway.admin_get("/v1/limits").await["tenants"][0]["ladder"].clone();
    assert_eq!(
        (&ladder["dropped"], &ladder["coalesced"], &ladder["closed"]),
        (&json!(1), &json!(2), &json!(1)),
        "{ladder}"
    );
    rig.settled().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_its_model_server_up_and_nobody_else() {
    let rig = Rig::start("buffer: 64KiB, stall: 1s", "user: {}").await;
    let before = rss(rig.gateway.proc.pid());
    let mut deaf = rig.open().await;
    deaf.0.send(Message::text("flood")).await.unwrap();
    let mut other = rig.open().await;
    for _ in 0..20 {
        other.0.send(Message::text("hello")).await.unwrap();
        assert_eq!(next(&mut other.0).await, Message::text("hello"));
    }
    eventually("the deaf one to be gone", PATIENCE, async || {
        let closed = rig.gateway.metrics().await.sum("holdfast_stream_closes_total", &[("code", "1008")]);
        (closed == 1.0).then_some(())
    })
    .await;
    let grown = rss(rig.gateway.proc.pid()).saturating_sub(before);
    assert!(grown < 16 * 1024, "{grown} KiB of 120 megabytes");
    other.leave().await;
    drop(deaf);
    rig.settled().await;
}

#[tokio::test]
async fn a_drain_leaves_it_as_long_as_it_may_and_closes_it_with_1012() {
    let mut rig = Rig::start("", "user: {}").await;
    let mut socket = rig.open().await;
    rig.gateway.proc.sigterm();
    let begun = std::time::Instant::now();
    socket.0.send(Message::text("still here")).await.unwrap();
    assert_eq!(next(&mut socket.0).await, Message::text("still here"));
    match socket.hear().await {
        Heard::Closed(code) => assert_eq!(code, Some(1012)),
        other => panic!("{other:?}"),
    }
    assert!(begun.elapsed() > Duration::from_millis(1_500), "not at once: {:?}", begun.elapsed());
    let status = rig.gateway.proc.wait_exit(Duration::from_secs(20)).await;
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_that_end_at_any_moment_leave_nothing_behind() {
    let plan = "user: { requests: 100000/s, concurrency: 1000 }, tenant: { requests: 100000/s, bytes: 1GiB/s, concurrency: 1000 }";
    let rig = Rig::start("sockets_per_user: 1000, opens_per_minute: 100000, buffer: 64KiB, stall: 1s", plan).await;
    let addr = rig.gateway.data.addr();
    let mut running = JoinSet::new();
    for client in 0..200u64 {
        while running.len() >= 30 {
            running.join_next().await.unwrap().unwrap();
        }
        running.spawn(visit(addr, Draw(client * 7919 + 23), "/v1/chat", &["flood", "vanish", "close"]));
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    rig.settled().await;
    let metrics = rig.gateway.metrics().await;
    let opened = metrics.sum("holdfast_stream_handshakes_total", &[("outcome", "opened")]);
    let served = metrics.sum("holdfast_stream_messages_total", &[("outcome", "served")]);
    assert!(opened > 50.0 && served > 50.0, "only {opened} were opened, with {served} messages");
    let mut socket = rig.open().await;
    socket.0.send(Message::text("hello")).await.unwrap();
    assert_eq!(next(&mut socket.0).await, Message::text("hello"));
    socket.leave().await;
    rig.settled().await;
}

#[tokio::test]
async fn a_socket_is_one_of_the_connections_that_a_replica_may_have() {
    let rig = Rig::with("", "user: {}", "connections: { per_replica: 2, warm: 2 },").await;
    let (first, second) = (rig.open().await, rig.open().await);
    let refused = rig.try_open("/v1/chat", &[]).await.err();
    assert_eq!(refused, Some(http::StatusCode::SERVICE_UNAVAILABLE), "none came free within its budget");
    first.leave().await;
    let third = rig.open().await;
    second.leave().await;
    third.leave().await;
    rig.settled().await;
}
