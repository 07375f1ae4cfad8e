//! Clients that mean no good: broken frames, messages without an end, floods, and those who never read.

use std::time::Duration;

use holdfast_testkit::eventually;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rig::{PATIENCE, Rig, Ws, close_codes, frame, handshake, message, rss};

#[tokio::test]
async fn what_breaks_a_rule_is_closed_with_its_code() {
    let rig = Rig::start("message: 4KiB, fragments: 16", "user: {}").await;
    let unmasked = vec![0x81, 2, b'{', b'}'];
    for (what, bytes, code) in [
        ("a frame without a mask", unmasked, 1002),
        ("a reserved bit", frame(0xc1, b"{}"), 1002),
        ("garbage", b"GET / HTTP/1.1\r\nhost: g\r\n\r\n".to_vec(), 1002),
        ("binary", frame(0x82, b"{}"), 1003),
        ("no UTF-8", frame(0x81, &[b'"', 0xff]), 1007),
        ("a long message", frame(0x81, &[b' '; 5_000]), 1009),
        ("an announced one", vec![0x81, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4], 1009),
        ("a close", frame(0x88, &[3, 0xe9]), 1001),
        ("a close without a code", frame(0x88, &[]), 1005),
        ("a close with a bad code", frame(0x88, &[3, 0xed]), 1002),
    ] {
        let mut client = rig.raw("acme").await;
        client.write(bytes).await;
        client.half_close().await;
        let rest = client.rest().await.expect("an end");
        assert_eq!(close_codes(&rest), [code], "{what}: {}", rest.escape_ascii());
    }
    rig.becomes("holdfast_stream_closes_total", &[("code", "1009")], 2.0).await;
    rig.settled().await;
}

#[tokio::test]
async fn a_message_that_never_ends_ends_at_its_bound() {
    let rig = Rig::start("message: 64KiB, fragments: 100000", "user: {}").await;
    let before = rss(rig.gateway.proc.pid());
    let mut client = rig.raw("acme").await;
    let fragment = frame(0x00, &[b' '; 1_000]);
    client.write(frame(0x01, b"{")).await;
    for _ in 0..10_000 {
        client.write(&fragment).await;
    }
    let rest = client.rest().await.expect("an end");
    assert_eq!(close_codes(&rest), [1009]);
    let grown = rss(rig.gateway.proc.pid()).saturating_sub(before);
    assert!(grown < 8 * 1024, "{grown} KiB for ten megabytes of a message of 64 KiB");
    rig.settled().await;
}

#[tokio::test]
async fn a_flood_of_pings_that_nobody_reads_the_answers_of_is_closed_and_takes_no_memory() {
    let rig = Rig::start("", "user: {}").await;
    let before = rss(rig.gateway.proc.pid());
    let mut socket = TcpStream::connect(rig.gateway.data.addr()).await.unwrap();
    socket.write_all(handshake("acme").as_bytes()).await.unwrap();
    let flood = frame(0x89, &[7; 125]).repeat(100);
    for _ in 0..1_000 {
        // It is over long before that.
        if socket.write_all(&flood).await.is_err() {
            break;
        }
    }
    rig.becomes("holdfast_stream_closes_total", &[("code", "1008")], 1.0).await;
    let grown = rss(rig.gateway.proc.pid()).saturating_sub(before);
    assert!(grown < 8 * 1024, "{grown} KiB");
    let mut honest = Ws::of(&rig.gateway, "acme").await;
    honest.ask(1, "screen").await;
    assert_eq!(honest.frame().await["status"], 200);
    honest.leave().await;
    rig.settled().await;
}

#[tokio::test]
async fn a_client_that_does_not_read_takes_a_bounded_buffer_and_is_gone_after_a_while() {
    let rig = Rig::start("stall: 1s, buffer: 64KiB, concurrency: 4", "tenant: { concurrency: 100 }").await;
    let mut reader = Ws::of(&rig.gateway, "acme").await;
    let before = rss(rig.gateway.proc.pid());
    let mut deaf = TcpStream::connect(rig.gateway.data.addr()).await.unwrap();
    deaf.write_all(handshake("acme").as_bytes()).await.unwrap();
    let mut head = [0; 12];
    deaf.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 101");
    let mut most = 0;
    // A hundred megabytes are asked for.
    for id in 0..50 {
        let mut whole = message(id, "screen");
        whole["input"]["id"] = json!("large");
        let bytes = frame(0x81, whole.to_string().as_bytes());
        if tokio::time::timeout(Duration::from_millis(50), deaf.write_all(&bytes)).await.is_err() {
            break;
        }
        reader.ask(id, "screen").await;
        assert_eq!(reader.frame().await["status"], 200, "nobody else waits for it");
        most = most.max(rss(rig.gateway.proc.pid()).saturating_sub(before));
    }
    rig.becomes("holdfast_stream_closes_total", &[("code", "1008")], 1.0).await;
    most = most.max(rss(rig.gateway.proc.pid()).saturating_sub(before));
    // Four answers of two megabytes being served, one in the buffer, and what an allocator keeps.
    assert!(most < 48 * 1024, "{most} KiB");
    reader.leave().await;
    eventually("the deaf one to be gone", PATIENCE, async || {
        let limits = rig.gateway.admin_get("/v1/limits").await;
        (limits["stream"]["sockets"] == 0).then_some(())
    })
    .await;
    rig.settled().await;
}

#[tokio::test]
async fn a_client_that_says_nothing_any_more_is_asked_and_then_gone() {
    let rig = Rig::start("ping: 2s", "user: {}").await;
    let silent = rig.raw("acme").await;
    let mut answers = Ws::of(&rig.gateway, "acme").await;
    // The one that reads, and so answers pings, stays.
    tokio::select! {
        heard = answers.hear() => panic!("{heard:?}: pings are no frames for the client"),
        () = rig.becomes("holdfast_stream_closes_total", &[("code", "none")], 1.0) => {}
    }
    drop(silent);
    answers.ask(1, "screen").await;
    assert_eq!(answers.frame().await["status"], 200);
    answers.leave().await;
    rig.settled().await;
}

#[tokio::test]
async fn messages_that_are_none_do_not_come_for_ever() {
    let rig = Rig::start("ladder: { violations: 5 }", "user: {}").await;
    let mut socket = Ws::user(&rig.gateway, "acme", "u").await;
    for _ in 0..20 {
        socket.say(&json!("nonsense")).await;
    }
    let (frames, code) = socket.rest().await;
    assert_eq!((frames.len(), code), (5, Some(1008)), "{frames:?}");
    let refused = Ws::try_open(&rig.gateway, &[("x-tenant", "acme"), ("x-user", "u")]).await.map(|_| ());
    assert_eq!(refused.expect_err("kept out").status().as_u16(), 429);
    rig.settled().await;
}
