//! Every way in which a socket ends, after which nothing of it is left.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use crate::rig::{Heard, PATIENCE, Rig, Ws, close_codes, frame, handshake, message};
use holdfast_testkit::raw::RawClient;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_tells_each_socket_once_spread_over_its_time_and_finishes_what_runs() {
    let mut rig = Rig::start("sockets_per_user: 10000, opens_per_minute: 100000", "user: {}").await;
    let mut raw = Vec::new();
    for _ in 0..49 {
        raw.push(rig.raw("acme").await);
    }
    let mut busy = Ws::of(&rig.gateway, "acme").await;
    let mut whole = message(1, "screen");
    (whole["input"]["id"], whole["timeout_ms"]) = (json!("hangs"), json!(800));
    busy.say(&whole).await;
    let infers = async || (rig.stub.executions() > 0).then_some(());
    holdfast_testkit::eventually("the message to be at the replica", PATIENCE, infers).await;
    let begun = std::time::Instant::now();
    rig.gateway.proc.sigterm();

    // A handshake is refused before it is one, with a word on when to come again.
    let mut refused = None;
    while refused.is_none() {
        let Ok(mut late) = RawClient::try_connect(rig.gateway.data.addr()).await else { break };
        late.write(handshake("acme")).await;
        match late.answer("GET").await {
            Ok(answer) if answer.status == 101 => {}
            other => refused = other.ok(),
        }
    }
    let refused = refused.expect("an answer during the drain");
    assert_eq!(
        (refused.status, refused.header("x-holdfast-error"), refused.header("retry-after")),
        (503, "draining", "1")
    );

    let mut ends = JoinSet::new();
    for mut client in raw {
        ends.spawn(async move {
            let mut bytes = Vec::new();
            // The first byte of a close frame is there before the end of the connection.
            bytes.extend(client.rest().await.expect("an end"));
            (close_codes(&bytes), std::time::Instant::now())
        });
    }
    let answer = busy.hear().await;
    let Heard::Frame(answer) = answer else { panic!("{answer:?} instead of what was running") };
    assert_eq!(answer["error"]["kind"], "upstream_timeout", "it was finished");
    let (more, code) = busy.rest().await;
    assert_eq!((more.len(), code), (0, Some(1001)));
    let mut times = Vec::new();
    while let Some(ended) = ends.join_next().await {
        let (codes, at) = ended.unwrap();
        assert_eq!(codes, [1001], "once");
        times.push(at.duration_since(begun));
    }
    let (first, last) = (times.iter().min().unwrap(), times.iter().max().unwrap());
    assert!(*last - *first > Duration::from_millis(600), "not all at once: {first:?} to {last:?}");
    let status = rig.gateway.proc.wait_exit(Duration::from_secs(20)).await;
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn a_message_that_runs_longer_than_a_drain_is_cut_with_1012() {
    let mut rig = Rig::start("", "user: {}").await;
    let mut busy = Ws::of(&rig.gateway, "acme").await;
    let mut whole = message(1, "screen");
    (whole["input"]["id"], whole["timeout_ms"]) = (json!("hangs"), json!(60_000));
    busy.say(&whole).await;
    let infers = async || (rig.stub.executions() > 0).then_some(());
    holdfast_testkit::eventually("the message to be at the replica", PATIENCE, infers).await;
    rig.gateway.proc.sigterm();
    let (frames, code) = busy.rest().await;
    assert_eq!((frames.len(), code), (0, Some(1012)));
    let status = rig.gateway.proc.wait_exit(Duration::from_secs(20)).await;
    assert!(status.success(), "before the hard deadline: {status}");
}

/// A small generator: the same moments in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// One client: some messages of all kinds, and then it leaves, at any byte and in any manner.
async fn visit(addr: std::net::SocketAddr, mut draw: Draw) {
    let Ok(mut client) = RawClient::try_connect(addr).await else { return };
    let mut bytes = handshake(if draw.below(3) == 0 { "bolt" } else { "acme" }).into_bytes();
    let opened = bytes.len();
    for id in 0..draw.below(12) {
        let mut whole = message(id, if draw.below(8) == 0 { "nothing" } else { "screen" });
        match draw.below(4) {
            0 => (whole["input"]["id"], whole["timeout_ms"]) = (json!("hangs"), json!(5_000)),
            1 => whole["input"]["id"] = json!("large"),
            2 => whole["type"] = json!("droppable"),
            _ => {}
        }
        bytes.extend(frame(0x81, whole.to_string().as_bytes()));
        if draw.below(6) == 0 {
            bytes.extend(frame(0x89, b"ping"));
        }
    }
    match draw.below(6) {
        0 => bytes.extend(frame(0x88, &[3, 0xe8])),
        1 => bytes.extend(frame(0x82, b"binary")),
        2 => bytes.extend([0xff; 40]),
        3 => bytes.extend(frame(0x01, b"{\"id\":")),
        _ => bytes.truncate(opened + draw.below((bytes.len() - opened + 1) as u64) as usize),
    }
    let (head, rest) = bytes.split_at(opened);
    client.write(head).await;
    if draw.below(4) > 0 {
        let _ = client.answer("GET").await;
    }
    client.write(rest).await;
    tokio::time::sleep(Duration::from_millis(draw.below(120))).await;
    match draw.below(3) {
        0 => client.reset(),
        1 => client.half_close().await,
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_that_end_at_any_moment_leave_nothing_behind() {
    let stream = "sockets_per_user: 1000, opens_per_minute: 100000, concurrency: 4, ladder: { violations: 4 }";
    let plan = "connection: { requests: 50/s }, user: { requests: 100000/s, concurrency: 1000 }, tenant: { requests: 100000/s, bytes: 1GiB/s, concurrency: 1000 }";
    let rig = Rig::start(stream, plan).await;
    let addr = rig.gateway.data.addr();
    let mut running = JoinSet::new();
    for client in 0..400u64 {
        while running.len() >= 50 {
            running.join_next().await.unwrap().unwrap();
        }
        running.spawn(visit(addr, Draw(client * 7919 + 17)));
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
    rig.settled().await;
    let served = rig.count("holdfast_stream_messages_total", &[("outcome", "served")]).await;
    assert!(served > 100.0, "only {served} messages were served");
    assert_eq!(rig.count("holdfast_invariant_violations_total", &[]).await, 0.0);
    let opened = rig.count("holdfast_stream_handshakes_total", &[("outcome", "opened")]).await;
    let closed = rig.count("holdfast_stream_closes_total", &[]).await;
    assert!(opened > 100.0 && closed <= opened, "{opened} opened, {closed} closed");
    let mut socket = Ws::user(&rig.gateway, "acme", "after").await;
    socket.ask(1, "screen").await;
    assert_eq!(socket.frame().await["status"], 200);
    socket.leave().await;
}
