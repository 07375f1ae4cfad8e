//! Bounds and deadlines of connections, heads and bodies: each one has to act, not only to be set.

use std::time::{Duration, Instant};

use holdfast_testkit::raw::{RawClient, RawError};
use holdfast_testkit::{Holdfast, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fixture::{BODY, Differs, INFER, Rig, assert_error, head, post};

async fn connections(gateway: &Holdfast) -> f64 {
    gateway.metrics().await.sum("holdfast_connections", &[("listener", "data")])
}

#[tokio::test]
async fn a_head_that_does_not_come_closes_the_connection_at_its_deadline_and_disturbs_nobody() {
    let top = "timeouts: { head: 1s, keepalive_idle: 15s }\nlimits: { connections_per_address: 2000 }";
    let rig = Rig::with(Differs { top, ..Differs::default() }, |_| None).await;
    let begun = Instant::now();
    let mut clients = Vec::new();
    for n in 0..500 {
        let mut client = rig.raw().await;
        // A third sends nothing, a third the beginning of a request line, a third stops inside the fields.
        match n % 3 {
            0 => {}
            1 => client.write("P").await,
            _ => client.write(format!("POST {INFER} HTTP/1.1\r\nhost: g")).await,
        }
        clients.push(client);
    }
    // One that goes on byte by byte: progress does not move the deadline.
    let slow = tokio::spawn(drip(rig.raw().await));
    for _ in 0..20 {
        assert_eq!(rig.infer().await, 200);
    }
    for (n, mut client) in clients.into_iter().enumerate() {
        let rest = client.rest().await.unwrap_or_else(|e| panic!("client {n}: {e}"));
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 408"), "{:?}", String::from_utf8_lossy(&rest));
    }
    assert!(begun.elapsed() >= Duration::from_millis(900), "nobody is closed before the deadline");
    slow.await.unwrap();
    eventually("the places to come back", Duration::from_secs(10), async || {
        (connections(&rig.gateway).await <= 1.0).then_some(())
    })
    .await;
    assert_eq!(rig.infer().await, 200);
}

async fn drip(mut client: RawClient) {
    let bytes = post("x-filler: 0123456789012345678901234567890123456789012345678901234567890123456789\r\n");
    let begun = Instant::now();
    for byte in bytes.bytes().cycle() {
        client.write([byte]).await;
        // Refused or closed; either way the head is not waited for.
        if client.closes_within(Duration::from_millis(50)).await || client.has_more() {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "a head goes on after 30 s where 1 s is the deadline");
    }
    let ended = client.answer("POST").await;
    assert!(!matches!(&ended, Ok(answer) if answer.status == 200), "{ended:?}");
}

/// The first byte of HTTP/2 is also that of a POST: what follows decides the protocol, and buys no more time.
#[tokio::test]
async fn the_time_of_a_first_head_runs_once_whatever_its_protocol_turns_out_to_be() {
    let top = "timeouts: { head: 15s, keepalive_idle: 5m }";
    let rig = Rig::with(Differs { top, ..Differs::default() }, |_| None).await;
    let request = post("");
    let ends_after = async |rest: &str| {
        let begun = Instant::now();
        let mut client = rig.raw().await;
        client.write("P").await;
        tokio::time::sleep(Duration::from_secs(14)).await;
        client.write(rest).await;
        let ended = client.rest().await.unwrap();
        assert!(!ended.starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&ended));
        begun.elapsed()
    };
    let served = async {
        let mut client = rig.raw().await;
        client.write_segments(&[b"P", &request.as_bytes()[1..]]).await;
        client.answer("POST").await.unwrap().status
    };
    let (h1, h2, status) = tokio::join!(ends_after(&request[1..40]), ends_after("RI * HTTP/2.0\r\n"), served);
    assert_eq!(status, 200);
    for elapsed in [h1, h2] {
        // A time that had begun anew would end after 29 s.
        assert!(elapsed > Duration::from_millis(14_900) && elapsed < Duration::from_secs(27), "{elapsed:?}");
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_at_its_time_and_a_used_one_is_not() {
    let rig = Rig::with(Differs { top: "timeouts: { keepalive_idle: 6s }", ..Differs::default() }, |_| None).await;
    let mut idle = rig.raw().await;
    let since = Instant::now();
    idle.write(post("")).await;
    assert_eq!(idle.answer("POST").await.unwrap().status, 200);
    let mut idle = tokio::spawn(async move { idle.rest().await });
    let mut used = rig.raw().await;
    let mut served = 0;
    // Used all the while, each time long before its time has come.
    loop {
        used.write(post("")).await;
        assert_eq!(used.answer("POST").await.unwrap().status, 200, "request {served}, {:?}", since.elapsed());
        served += 1;
        if let Ok(ended) = tokio::time::timeout(Duration::from_millis(100), &mut idle).await {
            assert!(ended.unwrap().unwrap().is_empty());
            break;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "it is never closed");
    }
    assert!(since.elapsed() >= Duration::from_millis(5_900), "{:?}", since.elapsed());
    used.write(post("")).await;
    assert_eq!(used.answer("POST").await.unwrap().status, 200, "after {served}");
}

#[tokio::test]
async fn hundreds_of_idle_connections_are_counted_and_end() {
    let top = "timeouts: { keepalive_idle: 5s }\nlimits: { connections_per_address: 2000 }";
    let rig = Rig::with(Differs { top, ..Differs::default() }, |_| None).await;
    let mut clients = Vec::new();
    for _ in 0..500 {
        let mut client = rig.raw().await;
        client.write(head("GET /livez", "")).await;
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(client.answer("GET").await.unwrap().status, 200);
    }
    let open = connections(&rig.gateway).await;
    assert!(open >= 400.0, "the count is visible: {open}");
    for client in &mut clients {
        assert!(client.rest().await.unwrap().is_empty());
    }
    eventually("the count to fall", Duration::from_secs(10), async || {
        (connections(&rig.gateway).await <= 1.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_body_that_stops_coming_is_answered_408_in_both_ways_of_reading_it() {
    let top = "timeouts: { body_idle: 400ms }\nlimits: { buffer: 4KiB }";
    let rig = Rig::with(Differs { top, ..Differs::default() }, |_| None).await;
    let line = format!("POST {INFER}");
    // Kept in memory: nothing has been sent to a replica. Streamed: the replica never sees an end.
    for (length, sent) in [(100, 0), (100, 50), (1_000_000, 20_000)] {
        let mut client = rig.raw().await;
        client.write(head(&line, &format!("content-length: {length}\r\n"))).await;
        client.write(vec![b' '; sent]).await;
        let answer = client.answer("POST").await.unwrap_or_else(|e| panic!("{length}, {sent}: {e}"));
        assert_error(&answer, 408, "bad_request");
        assert_eq!(answer.header("connection"), "close");
        assert!(client.rest().await.unwrap().is_empty());
    }
    let mut client = rig.raw().await;
    client.write(head(&line, "transfer-encoding: chunked\r\n") + "5\r\nabc").await;
    assert_error(&client.answer("POST").await.unwrap(), 408, "bad_request");
    // Slow but steady is no fault.
    let mut client = rig.raw().await;
    client.write(head(&line, &format!("content-length: {}\r\n", BODY.len()))).await;
    for byte in BODY.bytes() {
        client.write([byte]).await;
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    assert_eq!(client.answer("POST").await.unwrap().status, 200);
    assert_eq!(rig.stub.executions(), 1, "only a whole body is executed");
}

#[tokio::test]
async fn connections_past_the_bound_of_an_address_are_refused_with_a_hint() {
    let rig =
        Rig::with(Differs { top: "limits: { connections_per_address: 8 }", ..Differs::default() }, |_| None).await;
    refuses_past(&rig, 8, "address").await;
}

#[tokio::test]
async fn connections_past_the_bound_in_all_are_refused_with_a_hint() {
    let rig = Rig::with(Differs { top: "limits: { connections: 8 }", ..Differs::default() }, |_| None).await;
    refuses_past(&rig, 8, "total").await;
}

async fn refuses_past(rig: &Rig, bound: usize, reason: &str) {
    let mut held = Vec::new();
    // The test's ordinary client holds some already.
    let mut refused = None;
    for _ in 0..=bound {
        let mut client = rig.raw().await;
        client.write(head("GET /livez", "")).await;
        match client.answer("GET").await {
            Ok(answer) if answer.status == 200 => held.push(client),
            Ok(answer) => refused = Some((answer, client)),
            Err(e) => panic!("no answer at all: {e}"),
        }
    }
    let (answer, mut client) = refused.expect("one is too many");
    assert!(held.len() <= bound && held.len() + 2 >= bound, "{}", held.len());
    assert_error(&answer, 429, "connection_limited");
    assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|s| s >= 1), "{answer:?}");
    assert!(client.rest().await.unwrap().is_empty());
    let metrics = rig.gateway.metrics().await;
    assert!(metrics.sum("holdfast_connections_refused_total", &[("reason", reason)]) >= 1.0);
    assert!(metrics.sum("holdfast_errors_total", &[("kind", "connection_limited")]) >= 1.0);
    drop(held);
    eventually("a place", Duration::from_secs(10), async || {
        let mut client = rig.raw().await;
        client.write(head("GET /livez", "")).await;
        client.answer("GET").await.is_ok_and(|a| a.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_body_over_the_bound_is_refused_by_its_length_or_when_it_passes_the_bound() {
    for buffer in ["1KiB", "64KiB"] {
        let top = if buffer == "1KiB" {
            "limits: { body: 20KiB, buffer: 1KiB }"
        } else {
            "limits: { body: 20KiB, buffer: 64KiB }"
        };
        let rig = Rig::with(Differs { top, ..Differs::default() }, |_| None).await;
        let line = format!("POST {INFER}");
        let mut client = rig.raw().await;
        client.write(head(&line, "content-length: 20481\r\n")).await;
        let answer = client.answer("POST").await.unwrap();
        assert_error(&answer, 413, "too_large");
        assert_eq!(answer.header("connection"), "close");
        let mut client = rig.raw().await;
        client.write(head(&line, "transfer-encoding: chunked\r\n")).await;
        for _ in 0..30 {
            client.write(format!("400\r\n{}\r\n", " ".repeat(1024))).await;
        }
        assert_error(&client.answer("POST").await.unwrap(), 413, "too_large");
        assert_eq!(rig.stub.executions(), 0, "buffer {buffer}");
        let exact = format!("{BODY}{}", " ".repeat(20_480 - BODY.len()));
        let mut client = rig.raw().await;
        client.write(head(&line, "content-length: 20480\r\n") + &exact).await;
        assert_eq!(client.answer("POST").await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_client_that_is_still_sending_is_not_reset_before_it_can_read_its_refusal() {
    let rig = Rig::with(Differs { top: "limits: { body: 20KiB, buffer: 1KiB }", ..Differs::default() }, |_| None).await;
    let line = format!("POST {INFER}");
    for start in [head(&line, "content-length: 9000000\r\n"), head(&line, "content-length: +5\r\n")] {
        let mut client = TcpStream::connect(rig.gateway.data.addr()).await.unwrap();
        client.write_all(start.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // To the end of the answer's direction; the other one is still open.
        client.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&answer));
        for part in 0..10 {
            client.write_all(&[b' '; 1024]).await.unwrap_or_else(|e| panic!("part {part} after the refusal: {e}"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    // It is not read for ever: neither much nor long.
    let mut client = TcpStream::connect(rig.gateway.data.addr()).await.unwrap();
    client.write_all(head(&line, "content-length: 900000000\r\n").as_bytes()).await.unwrap();
    let block = vec![b' '; 65_536];
    let mut taken = 0;
    while taken < 64 << 20 && client.write_all(&block).await.is_ok() {
        taken += block.len();
    }
    assert!(taken < 64 << 20, "{taken} bytes were taken after the refusal");
}

#[tokio::test]
async fn a_head_over_its_bounds_is_answered_431() {
    let top = "limits: { head: 4KiB, headers: 20, uri: 1KiB }";
    let rig = Rig::with(Differs { top, ..Differs::default() }, |_| None).await;
    let long = "a".repeat(5_000);
    let many: String = (0..30).map(|n| format!("x-{n}: 1\r\n")).collect();
    let cases = [
        head(&format!("POST {INFER}"), &format!("x-long: {long}\r\n")),
        head(&format!("POST {INFER}"), &many),
        head(&format!("POST {INFER}?q={}", "a".repeat(1_100)), ""),
        // Without an end: the bound is what ends it.
        format!("POST {INFER} HTTP/1.1\r\nhost: g\r\nx-long: {long}{long}{long}{long}"),
        format!("GET /{long}{long}{long}{long}"),
    ];
    for request in cases {
        let mut client = rig.raw().await;
        client.write(&request).await;
        let answer = client.answer("POST").await.unwrap_or_else(|e| panic!("{request}: {e}"));
        assert_error(&answer, 431, "too_large");
        assert_eq!(answer.header("connection"), "close");
        assert!(matches!(client.rest().await, Ok(rest) if rest.is_empty()));
    }
    let mut client = rig.raw().await;
    client.write(post(&format!("x-long: {}\r\n", "a".repeat(3_000)))).await;
    assert_eq!(client.answer("POST").await.unwrap().status, 200);
    assert_eq!(rig.stub.executions(), 1);
}

#[tokio::test]
async fn a_connection_of_its_age_is_asked_to_go_between_two_requests() {
    let rig = Rig::with(Differs { top: "timeouts: { connection_max_age: 1s }", ..Differs::default() }, |_| None).await;
    let mut client = rig.raw().await;
    let begun = Instant::now();
    let mut answered = 0;
    let ended = loop {
        client.write(post("")).await;
        match client.answer("POST").await {
            Ok(answer) => {
                assert_eq!(answer.status, 200);
                answered += 1;
                if answer.header("connection") == "close" {
                    break None;
                }
            }
            Err(ended) => break Some(ended),
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "it is never asked to go");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(answered > 0 && ended.is_none_or(|e| e == RawError::Closed));
    assert!(begun.elapsed() >= Duration::from_millis(900));
    assert_eq!(rig.stub.executions(), answered);
}
