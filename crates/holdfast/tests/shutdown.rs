//! A gateway that is told to stop: what is in flight finishes, nobody's request fails, and it ends in time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]
#![allow(dead_code, reason = "the fixture is shared")]

#[path = "http/fixture.rs"]
mod fixture;
#[path = "h2/frames.rs"]
mod frames;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_testkit::raw::{RawClient, RawError};
use holdfast_testkit::stub::StubRequest;
use holdfast_testkit::v2_stub::infer_answer;
use holdfast_testkit::{Script, eventually};
use tokio::task::JoinSet;

use fixture::{BODY, Differs, Rig, assert_error, head, post};
use frames::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, RawH2, block, frame, infer};

/// Correct answers, after a while.
fn slow(after: Duration) -> impl Fn(&StubRequest) -> Option<Script> + Send + Sync + 'static {
    move |request| Some(Script::json(200, &infer_answer(request, "screen", "1")).after(after))
}

/// A process that has nothing to wait for ends in this time even on a busy machine. Drains that are not to run out are ten times as long.
const EXIT: Duration = Duration::from_secs(30);

/// A little less than what a connection without a request is kept for after the signal.
const GRACE: Duration = Duration::from_millis(1_900);

async fn in_flight(rig: &Rig, wanted: usize) {
    eventually("the requests to be at the replica", Duration::from_secs(10), async || {
        (rig.stub.executions() >= wanted).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_is_in_flight_finishes_and_the_process_ends_before_its_deadline() {
    let mut rig =
        Rig::with(Differs { top: "timeouts: { drain: 5m }", ..Differs::default() }, slow(Duration::from_secs(2))).await;
    let mut busy = Vec::new();
    for _ in 0..5 {
        let mut client = rig.raw().await;
        client.write(post("")).await;
        busy.push(client);
    }
    // One that is still sending its body, and one that has asked nothing yet.
    let mut sending = rig.raw().await;
    let all = post("");
    let (first, rest) = all.split_at(all.len() - 5);
    sending.write(first).await;
    let mut idle = rig.raw().await;
    idle.write(head("GET /readyz", "")).await;
    assert_eq!(idle.answer("GET").await.unwrap().status, 200);
    in_flight(&rig, 5).await;
    rig.gateway.proc.sigterm();
    let told = Instant::now();
    // Not ready at once, on the connection that is there and on the admin port.
    eventually("readyz to say so", Duration::from_secs(5), async || {
        (rig.gateway.admin.get("/readyz", &[]).await.status.as_u16() == 503).then_some(())
    })
    .await;
    idle.write(head("GET /readyz", "")).await;
    match idle.answer("GET").await {
        Ok(answer) => assert_eq!((answer.status, answer.header("connection")), (503, "close")),
        // Only a test that was itself held up may find it closed: it is kept for two seconds.
        Err(ended) => {
            assert!(ended == RawError::Closed && told.elapsed() > GRACE, "{ended} after {:?}", told.elapsed());
        }
    }
    assert!(idle.rest().await.unwrap().is_empty());
    sending.write(rest).await;
    busy.push(sending);
    for mut client in busy {
        let answer = client.answer("POST").await.unwrap();
        assert_eq!((answer.status, answer.header("connection")), (200, "close"));
        assert!(client.rest().await.unwrap().is_empty());
    }
    let status = rig.gateway.proc.wait_exit(EXIT).await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(rig.stub.executions(), 6);
}

/// Sends one request after the other until the gateway cannot be reached any more. Counts answers and failures.
async fn busy_client(addr: std::net::SocketAddr, answered: Arc<AtomicU64>, failed: Arc<AtomicU64>) {
    loop {
        let Ok(mut client) = RawClient::try_connect(addr).await else { return };
        let mut idle_since = Instant::now();
        loop {
            client.write(post("")).await;
            let idle = idle_since.elapsed();
            match client.answer("POST").await {
                Ok(answer) if answer.status == 200 => {
                    answered.fetch_add(1, Ordering::SeqCst);
                    if answer.header("connection") == "close" {
                        break;
                    }
                    idle_since = Instant::now();
                }
                // Only a test that was itself held up may find it closed.
                Err(RawError::Closed) if idle > GRACE => break,
                other => {
                    eprintln!("failed: {other:?}");
                    failed.fetch_add(1, Ordering::SeqCst);
                    return;
                }
            }
        }
    }
}

#[tokio::test]
async fn twenty_busy_clients_see_no_failure() {
    let mut rig =
        Rig::with(Differs { top: "timeouts: { drain: 5m }", ..Differs::default() }, slow(Duration::from_millis(20)))
            .await;
    let (answered, failed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut clients = JoinSet::new();
    for _ in 0..20 {
        clients.spawn(busy_client(rig.gateway.data.addr(), answered.clone(), failed.clone()));
    }
    eventually("all clients to be busy", Duration::from_secs(10), async || {
        (answered.load(Ordering::SeqCst) > 200).then_some(())
    })
    .await;
    rig.gateway.proc.sigterm();
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    let status = rig.gateway.proc.wait_exit(EXIT).await;
    assert_eq!((status.code(), failed.load(Ordering::SeqCst)), (Some(0), 0));
    assert_eq!(rig.stub.executions() as u64, answered.load(Ordering::SeqCst), "answered as often as executed");
}

#[tokio::test]
async fn http_2_connections_are_told_to_go_and_their_streams_finish() {
    let mut rig =
        Rig::with(Differs { top: "timeouts: { drain: 5m }", ..Differs::default() }, slow(Duration::from_secs(2))).await;
    let mut connections = Vec::new();
    for _ in 0..5 {
        let mut raw = RawH2::connect(rig.gateway.data.addr()).await;
        raw.write(&frame(HEADERS, END_HEADERS, 1, &block(&infer(&[])))).await;
        raw.write(&frame(DATA, END_STREAM, 1, BODY.as_bytes())).await;
        connections.push(raw);
    }
    in_flight(&rig, 5).await;
    rig.gateway.proc.sigterm();
    for mut raw in connections {
        assert_goes_in_order(&mut raw).await;
    }
    let status = rig.gateway.proc.wait_exit(EXIT).await;
    assert_eq!(status.code(), Some(0));
    assert_eq!(rig.stub.executions(), 5, "a stream opened after the last GOAWAY is not processed");
}

/// GOAWAY with the last stream, that stream's answer, and nothing for one that is opened after it.
async fn assert_goes_in_order(raw: &mut RawH2) {
    let (mut last, mut served, mut late) = (None, false, false);
    while let Some(f) = raw.next().await {
        match f.kind {
            GOAWAY => {
                assert_eq!(f.code(), 0);
                last = Some(f.last_stream());
                if f.last_stream() == 1 && !late {
                    late = true;
                    raw.write(&frame(HEADERS, END_HEADERS, 3, &block(&infer(&[])))).await;
                    raw.write(&frame(DATA, END_STREAM, 3, BODY.as_bytes())).await;
                }
            }
            PING if f.flags == 0 => raw.write(&frame(PING, 1, 0, &f.payload)).await,
            HEADERS => {
                assert_eq!((f.stream, f.payload.first()), (1, Some(&0x88)));
                served = true;
            }
            RST_STREAM => assert_eq!(f.stream, 3),
            _ => {}
        }
    }
    assert_eq!((last, served, late), (Some(1), true, true));
}

#[tokio::test]
async fn being_told_twice_ends_the_process_at_once() {
    let mut rig =
        Rig::with(Differs { top: "timeouts: { drain: 10m }", ..Differs::default() }, |_| Some(Script::never())).await;
    let mut client = rig.raw().await;
    client.write(post("")).await;
    in_flight(&rig, 1).await;
    rig.gateway.proc.sigterm();
    eventually("the drain to begin", Duration::from_secs(5), async || {
        (rig.gateway.admin.get("/readyz", &[]).await.status.as_u16() == 503).then_some(())
    })
    .await;
    assert!(rig.gateway.proc.exited().is_none(), "the first signal waits for the request");
    rig.gateway.proc.sigterm();
    let status = rig.gateway.proc.wait_exit(EXIT).await;
    assert_eq!(status.code(), Some(1));
    assert_eq!(client.answer("POST").await.unwrap_err(), RawError::Closed);
}

#[tokio::test]
async fn a_request_that_outlives_the_drain_ends_with_it_and_the_exit_code_says_so() {
    let mut rig =
        Rig::with(Differs { top: "timeouts: { drain: 2s }", ..Differs::default() }, |_| Some(Script::never())).await;
    let mut client = rig.raw().await;
    client.write(post("")).await;
    in_flight(&rig, 1).await;
    rig.gateway.proc.sigterm();
    let told = Instant::now();
    let status = rig.gateway.proc.wait_exit(EXIT).await;
    assert_eq!(status.code(), Some(1));
    assert!(told.elapsed() >= Duration::from_millis(1_900), "not before its time: {:?}", told.elapsed());
    assert_eq!(client.answer("POST").await.unwrap_err(), RawError::Closed);
    let output = rig.gateway.proc.output();
    assert!(output.contains("drain"), "it says why: {output}");
}

#[tokio::test]
async fn clients_that_do_nothing_do_not_hold_the_process_up() {
    let top = "timeouts: { drain: 5m, head: 5m, keepalive_idle: 5m }";
    let mut rig = Rig::with(Differs { top, ..Differs::default() }, |_| None).await;
    let mut held = Vec::new();
    for n in 0..40 {
        let mut client = rig.raw().await;
        match n % 4 {
            0 => {}
            1 => client.write("POST /v2/mod").await,
            2 => client.write("PRI * HTTP/2.0").await,
            _ => {
                client.write(head("GET /livez", "")).await;
                assert_eq!(client.answer("GET").await.unwrap().status, 200);
            }
        }
        held.push(client);
    }
    let mut h2 = RawH2::connect(rig.gateway.data.addr()).await;
    rig.gateway.proc.sigterm();
    let status = rig.gateway.proc.wait_exit(EXIT).await;
    assert_eq!(status.code(), Some(0));
    for mut client in held {
        assert!(client.rest().await.unwrap().is_empty());
    }
    h2.rest().await;
}

#[tokio::test]
async fn a_new_request_during_the_drain_is_answered_or_refused_but_never_left_waiting() {
    let mut rig =
        Rig::with(Differs { top: "timeouts: { drain: 5m }", ..Differs::default() }, slow(Duration::from_secs(2))).await;
    let mut first = rig.raw().await;
    first.write(post("")).await;
    in_flight(&rig, 1).await;
    rig.gateway.proc.sigterm();
    let mut refused = false;
    while rig.gateway.proc.exited().is_none() {
        let Ok(mut client) = RawClient::try_connect(rig.gateway.data.addr()).await else {
            refused = true;
            break;
        };
        client.write(head("GET /v2/models/absent", "")).await;
        let answer =
            client.answer("GET").await.unwrap_or_else(|e| panic!("a connection was taken and not served: {e}"));
        assert_error(&answer, 404, "unknown_model");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(refused, "new connections are refused while old requests finish");
    assert_eq!(first.answer("POST").await.unwrap().status, 200);
    assert_eq!(rig.gateway.proc.wait_exit(EXIT).await.code(), Some(0));
}

/// A file of host aliases that is a pipe: whoever looks up a name that has no dot waits until something is written into it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[tokio::test]
async fn a_name_service_that_hangs_does_not_hold_the_process_up() {
    use holdfast_testkit::{Holdfast, TempDir};

    let dir = TempDir::new();
    let pipe = dir.join("aliases");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let config = fixture::config("http://hangs:9", &Differs { top: "timeouts: { drain: 5m }", ..Differs::default() });
    let env = [("HOSTALIASES", pipe.to_str().unwrap())];
    let mut gateway = Holdfast::start_with(std::path::Path::new(env!("CARGO_BIN_EXE_holdfast")), &config, &env).await;
    // Opened once the gateway has opened it; held, so that the gateway reads from it and finds nothing.
    let (opened, held) = std::sync::mpsc::channel();
    std::thread::spawn(move || opened.send(std::fs::OpenOptions::new().write(true).open(pipe).unwrap()));
    let mut writer = None;
    eventually(
        "a look-up to hang (names have to be looked up by glibc's own `dns`)",
        Duration::from_secs(20),
        async || {
            writer = held.try_recv().ok();
            writer.is_some().then_some(())
        },
    )
    .await;
    eventually("the metrics to say so", Duration::from_secs(20), async || {
        (gateway.metrics().await.sum("holdfast_replica_name_failing_time_seconds", &[("replica", "r1")]) > 0.0)
            .then_some(())
    })
    .await;
    gateway.proc.sigterm();
    let status = gateway.proc.wait_exit(EXIT).await;
    assert_eq!(status.code(), Some(0));
    drop(writer);
}
