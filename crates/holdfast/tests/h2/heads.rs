//! Heads that are not sent to their end: they have `timeouts.head`, as those of HTTP/1.1 have, and not the time of an idle connection.

use std::time::Duration;

use holdfast_testkit::Script;
use tokio::time::Instant;

use crate::fixture::{Differs, Rig};
use crate::frames::{CONTINUATION, END_HEADERS, END_STREAM, HEADERS, PING, RawH2, SETTINGS, block, frame, infer};

const SHORT_HEADS: &str = "timeouts: { keepalive_idle: 10m, head: 1s }";

/// Whether the server ends the connection, long before an idle one would be ended.
async fn is_ended(raw: &mut RawH2) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(120) {
        if raw.next_within(Duration::from_secs(60)).await.is_none() {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn half_a_head_has_the_time_of_a_head() {
    let rig = Rig::with(Differs { top: SHORT_HEADS, ..Differs::default() }, |_| None).await;
    let addr = rig.gateway.data.addr();
    let whole = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&infer(&[])));
    let mut idle = RawH2::connect(addr).await;
    let mut block_open = RawH2::connect(addr).await;
    block_open.write(&frame(HEADERS, END_STREAM, 1, &block(&infer(&[])))).await;
    let mut frame_open = RawH2::connect(addr).await;
    frame_open.write(&whole[..whole.len() - 3]).await;
    let mut header_open = RawH2::connect(addr).await;
    header_open.write(&whole[..5]).await;
    let mut no_settings = RawH2::bare(addr, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    let mut half_settings =
        RawH2::bare(addr, &[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &frame(SETTINGS, 0, 0, &[])[..4]].concat()).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
    let mut acknowledges = RawH2::bare(addr, &[preface, &frame(SETTINGS, 1, 0, &[])].concat()).await;
    let mut asks_first = RawH2::bare(addr, &[preface, &whole, &frame(SETTINGS, 0, 0, &[])].concat()).await;
    let mut split = RawH2::bare(addr, preface).await;
    split.write(&frame(SETTINGS, 1, 0, &[])).await;
    for (what, raw) in [
        ("no settings of its own", &mut acknowledges),
        ("something before its settings", &mut asks_first),
        ("no settings of its own, later", &mut split),
        ("a header block", &mut block_open),
        ("a frame", &mut frame_open),
        ("a frame's header", &mut header_open),
        ("no settings", &mut no_settings),
        ("half the settings", &mut half_settings),
    ] {
        assert!(is_ended(raw).await, "{what}");
    }
    // Who owes nothing stays: a connection without a request is kept for its own time.
    idle.write(&frame(PING, 0, 0, b"12345678")).await;
    assert!(idle.until(|f| f.kind == PING && f.flags == 1).await.is_some());
    assert_eq!(rig.stub.executions(), 0);
}

#[tokio::test]
async fn a_head_that_comes_drop_by_drop_ends_as_well_and_also_beside_a_request() {
    let rig = Rig::with(Differs { top: SHORT_HEADS, ..Differs::default() }, |_| {
        Some(Script::json(200, &serde_json::json!({})).after(Duration::from_secs(600)))
    })
    .await;
    let mut raw = RawH2::connect(rig.gateway.data.addr()).await;
    let head = block(&infer(&[]));
    raw.write(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &head)).await;
    raw.write(&frame(HEADERS, END_STREAM, 3, &block(&infer(&[])))).await;
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(120), "it may go on for ever");
        // Each piece is in time, and the head has no end.
        raw.write(&frame(CONTINUATION, 0, 3, &block(&[("x-a", "b")]))).await;
        if raw.is_over_within(Duration::from_millis(300)).await {
            break;
        }
    }
    assert!(rig.stub.executions() <= 1);
}
