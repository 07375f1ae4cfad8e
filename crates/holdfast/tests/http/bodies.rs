//! Large bodies go through as they come: memory stays flat, and no byte is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_testkit::raw::{RawClient, find};
use holdfast_testkit::{Script, eventually};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::fixture::{Differs, INFER, Rig, assert_error, config, head, rss, start};

/// A replica that counts the bytes of request bodies and sums them up, and answers with as many as it is told.
struct Sink {
    address: std::net::SocketAddr,
    bytes: Arc<AtomicU64>,
    sum: Arc<AtomicU64>,
    chunked: Arc<AtomicBool>,
}

impl Sink {
    async fn start(answer_bytes: u64) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let sink = Self {
            address: listener.local_addr().unwrap(),
            bytes: Arc::default(),
            sum: Arc::default(),
            chunked: Arc::default(),
        };
        let (bytes, sum, chunked) = (sink.bytes.clone(), sink.sum.clone(), sink.chunked.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, bytes.clone(), sum.clone(), chunked.clone(), answer_bytes));
            }
        });
        sink
    }
}

async fn serve(
    mut stream: TcpStream,
    bytes: Arc<AtomicU64>,
    sum: Arc<AtomicU64>,
    chunked: Arc<AtomicBool>,
    answer: u64,
) {
    let mut pending = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = find(&pending, b"\r\n\r\n") {
                break end + 4;
            }
            if !stream.read_buf(&mut pending).await.is_ok_and(|n| n > 0) {
                return;
            }
        };
        let head = String::from_utf8_lossy(&pending[..end]).to_ascii_lowercase();
        pending.drain(..end);
        let length =
            head.lines().find_map(|l| l.strip_prefix("content-length: ")).map(|l| l.trim().parse::<u64>().unwrap());
        if !head.contains("/infer") {
            let body = r#"{"name":"screen","ready":true}"#;
            let _ = stream
                .write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes())
                .await;
            continue;
        }
        match length {
            Some(length) => sized(&mut stream, &mut pending, length, &bytes, &sum).await,
            None => {
                chunked.store(true, Ordering::SeqCst);
                unsized_(&mut stream, &mut pending, &bytes, &sum).await;
            }
        }
        let start = r#"{"model_name":"screen","model_version":"1","outputs":[],"pad":""#;
        let all = start.len() as u64 + answer + 2;
        let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {all}\r\n\r\n{start}").as_bytes()).await;
        let block = vec![b'x'; 65_536];
        let mut left = answer;
        while left > 0 {
            let now = left.min(block.len() as u64);
            if stream.write_all(&block[..usize::try_from(now).unwrap()]).await.is_err() {
                return;
            }
            left -= now;
        }
        let _ = stream.write_all(b"\"}").await;
    }
}

fn count(part: &[u8], bytes: &AtomicU64, sum: &AtomicU64) {
    bytes.fetch_add(part.len() as u64, Ordering::SeqCst);
    sum.fetch_add(part.iter().map(|b| u64::from(*b)).sum(), Ordering::SeqCst);
}

async fn sized(stream: &mut TcpStream, pending: &mut Vec<u8>, mut left: u64, bytes: &AtomicU64, sum: &AtomicU64) {
    let mut block = vec![0; 65_536];
    count(pending, bytes, sum);
    left -= pending.len() as u64;
    pending.clear();
    while left > 0 {
        let Ok(read @ 1..) = stream.read(&mut block).await else { return };
        count(&block[..read], bytes, sum);
        left -= read as u64;
    }
}

async fn unsized_(stream: &mut TcpStream, pending: &mut Vec<u8>, bytes: &AtomicU64, sum: &AtomicU64) {
    loop {
        let line = loop {
            if let Some(at) = find(pending, b"\r\n") {
                break String::from_utf8_lossy(&pending.drain(..at + 2).collect::<Vec<_>>()).trim().to_owned();
            }
            if !stream.read_buf(pending).await.is_ok_and(|n| n > 0) {
                return;
            }
        };
        let size = usize::from_str_radix(&line, 16).unwrap();
        while pending.len() < size + 2 {
            if !stream.read_buf(pending).await.is_ok_and(|n| n > 0) {
                return;
            }
        }
        count(&pending[..size], bytes, sum);
        pending.drain(..size + 2);
        if size == 0 {
            return;
        }
    }
}

const MIB: u64 = 1 << 20;

/// Blocks of a body that differ from one another, with what they sum up to.
fn block(n: u64) -> Vec<u8> {
    vec![b'a' + u8::try_from(n % 26).unwrap(); 1 << 20]
}

#[tokio::test]
async fn a_body_just_under_the_bound_streams_through_with_flat_memory() {
    let sink = Sink::start(0).await;
    let gateway = start(&config(&format!("http://{}", sink.address), &Differs::default())).await;
    let before = rss(gateway.proc.pid());
    let mut client = RawClient::connect(gateway.data.addr()).await;
    let length = 64 * MIB - 1;
    client.write(head(&format!("POST {INFER}"), &format!("content-length: {length}\r\n"))).await;
    let (mut sum, mut most) = (0, before);
    for n in 0..64 {
        let mut part = block(n);
        if n == 63 {
            part.pop();
        }
        sum += part.iter().map(|b| u64::from(*b)).sum::<u64>();
        client.write(&part).await;
        most = most.max(rss(gateway.proc.pid()));
    }
    assert_eq!(client.answer("POST").await.unwrap().status, 200);
    assert_eq!((sink.bytes.load(Ordering::SeqCst), sink.sum.load(Ordering::SeqCst)), (length, sum));
    assert!(!sink.chunked.load(Ordering::SeqCst), "the length is passed on");
    assert!(most < before + 24 * MIB, "memory grew from {before} to {most} bytes");
}

#[tokio::test]
async fn an_upload_of_unknown_length_streams_through_in_chunks() {
    let sink = Sink::start(0).await;
    let gateway = start(&config(&format!("http://{}", sink.address), &Differs::default())).await;
    let before = rss(gateway.proc.pid());
    let mut client = RawClient::connect(gateway.data.addr()).await;
    client.write(head(&format!("POST {INFER}"), "transfer-encoding: chunked\r\n")).await;
    let mut most = before;
    for n in 0..32 {
        client.write([format!("{:x}\r\n", 1 << 20).into_bytes(), block(n), b"\r\n".to_vec()].concat()).await;
        most = most.max(rss(gateway.proc.pid()));
    }
    client.write("0\r\n\r\n").await;
    assert_eq!(client.answer("POST").await.unwrap().status, 200);
    assert_eq!(sink.bytes.load(Ordering::SeqCst), 32 * MIB);
    assert!(sink.chunked.load(Ordering::SeqCst));
    assert!(most < before + 24 * MIB, "memory grew from {before} to {most} bytes");
    // A short one of unknown length has been read whole by then, so its length is known.
    client.write(head(&format!("POST {INFER}"), "transfer-encoding: chunked\r\n") + "2\r\n{}\r\n0\r\n\r\n").await;
    assert_eq!(client.answer("POST").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_client_that_reads_slowly_holds_the_replica_back_and_not_memory() {
    let size = 96 * MIB;
    let sink = Sink::start(size).await;
    let gateway = start(&config(&format!("http://{}", sink.address), &Differs::default())).await;
    let before = rss(gateway.proc.pid());
    let mut client = TcpStream::connect(gateway.data.addr()).await.unwrap();
    client.write_all(super::fixture::post("").as_bytes()).await.unwrap();
    let mut block = vec![0; 65_536];
    let (mut read, mut most) = (0, before);
    // Nothing is read for a while: whatever is not held back has time to pile up.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        most = most.max(rss(gateway.proc.pid()));
    }
    while read < size {
        let Ok(n @ 1..) = client.read(&mut block).await else { panic!("ended after {read}") };
        read += n as u64;
    }
    assert!(most < before + 24 * MIB, "memory grew from {before} to {most} bytes");
}

#[tokio::test]
async fn a_client_that_stops_reading_loses_its_connection_and_a_slow_one_does_not() {
    let sink = Sink::start(96 * MIB).await;
    let differs = Differs { top: "timeouts: { keepalive_idle: 1s }", ..Differs::default() };
    let gateway = start(&config(&format!("http://{}", sink.address), &differs)).await;
    let mut stopped = TcpStream::connect(gateway.data.addr()).await.unwrap();
    stopped.write_all(super::fixture::post("").as_bytes()).await.unwrap();
    let mut slow = TcpStream::connect(gateway.data.addr()).await.unwrap();
    slow.write_all(super::fixture::post("").as_bytes()).await.unwrap();
    let mut block = vec![0; 4 << 20];
    for _ in 0..20 {
        slow.read_exact(&mut block).await.expect("it reads a part every 200 ms, which is enough");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    drop(slow);
    eventually(
        "the one that stopped to be let go, and its connection to the replica",
        Duration::from_secs(10),
        async || {
            let metrics = gateway.metrics().await;
            (metrics.sum("holdfast_in_flight", &[]) == 0.0).then_some(())
        },
    )
    .await;
    let mut all = 0;
    while let Ok(read @ 1..) = stopped.read(&mut block).await {
        all += read;
    }
    assert!((all as u64) < 96 * MIB, "what it gets is not the whole answer");
}

#[tokio::test]
async fn a_replica_is_not_blamed_for_a_body_that_does_not_come() {
    let differs = Differs {
        top: "limits: { buffer: 4KiB }\ntimeouts: { request: 1s, body_idle: 20s }",
        pool: "    health: { interval: 60s, timeout: 500ms, fall: 1 }",
        ..Differs::default()
    };
    let rig = Rig::with(differs, |r| (r.header("x-which") == "hang").then(Script::never)).await;
    let is_up = async || rig.gateway.admin_get("/v1/replicas").await["replicas"][0]["up"].as_bool().unwrap();
    let length = "content-length: 3000000\r\n";
    let mut slow = rig.raw().await;
    slow.write(head(&format!("POST {INFER}"), length)).await;
    slow.write(vec![b' '; 20_000]).await;
    assert_error(&slow.answer("POST").await.unwrap(), 504, "upstream_timeout");
    assert!(is_up().await, "it was never asked the whole question");
    assert_eq!(rig.infer().await, 200);
    // A body that has come changes whose fault it is.
    let mut whole = rig.raw().await;
    whole.write(head(&format!("POST {INFER}"), &format!("x-which: hang\r\n{length}"))).await;
    whole.write(vec![b' '; 3_000_000]).await;
    assert_error(&whole.answer("POST").await.unwrap(), 504, "upstream_timeout");
    assert!(!is_up().await);
}
