//! What an idle WebSocket costs the gateway's process: opens sockets step by step and prints the resident memory at each, and the slope.
//!
//! `cargo run --release -p holdfast --example idle_sockets -- BINARY tcp|h2 COUNT [once]`. With `once` each socket is used for one message first, under limits at all scopes, so that
//! what limits keep of a socket is there too. The open-file limit bounds `tcp`, of which each takes one here and one in the gateway; `h2` puts 500 on a connection.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a measuring tool")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Stub, eventually};
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

const STEPS: usize = 6;
const ON_A_CONNECTION: usize = 500;
/// A message in a client's frame: the mask is of zeros.
const MESSAGE: &[u8] = br#"{"id":1,"model":"screen","input":{"inputs":[]}}"#;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    let binary = PathBuf::from(args.next().expect("BINARY"));
    let (kind, count) =
        (args.next().expect("tcp or h2"), args.next().expect("COUNT").parse::<usize>().expect("a number"));
    let once = args.next().as_deref() == Some("once");
    let correct = V2::loaded(&[("screen", "1")]);
    let stub = Stub::start(move |request| correct.answer(request)).await;
    let gateway = Holdfast::start(&binary, &config(&stub.url())).await;
    eventually("the replica to be proven", Duration::from_secs(20), async || {
        let told = gateway.admin_get("/v1/replicas").await.to_string();
        told.contains("\"1\"").then_some(())
    })
    .await;
    let mut clients = Clients { gateway: &gateway, once, tcp: Vec::new(), h2: Vec::new(), streams: Vec::new() };
    let mut points = vec![(0usize, rss(gateway.proc.pid()))];
    println!("sockets  KiB");
    println!("{:7}  {}", 0, points[0].1);
    for step in 1..=STEPS {
        let want = count * step / STEPS;
        while clients.len() < want {
            if kind == "tcp" { clients.tcp().await } else { clients.h2().await }
        }
        eventually("the sockets to be counted", Duration::from_secs(60), async || {
            let open = gateway.metrics().await.sum("holdfast_stream_sockets", &[]);
            (open == want as f64).then_some(())
        })
        .await;
        // What was needed for opening is given back a little later.
        tokio::time::sleep(Duration::from_secs(2)).await;
        points.push((want, rss(gateway.proc.pid())));
        println!("{want:7}  {}", points[step].1);
    }
    println!(
        "slope: {:.0} bytes for each socket over all steps, {:.0} without the first",
        slope(&points),
        slope(&points[1..])
    );
}

fn config(url: &str) -> String {
    format!(
        "auth: {{ trusted_header: x-tenant, trusted_user_header: x-user }}\nstream: {{ sockets_per_user: 1000000, opens_per_minute: 1000000, ping: 1h }}\n\
         limits: {{ connections: 100000, connections_per_address: 100000, streams_per_connection: 1000 }}\nreceipts: {{ keep: 0 }}\naudit: {{ enabled: false }}\nlog: {{ access: off }}\n\
         pools:\n  - {{ name: p, protocol: open-inference, residency: static, replicas: [{{ name: r1, url: \"{url}\", holds: [{{ model: screen, version: \"1\" }}] }}] }}\n\
         models:\n  - {{ name: screen, pool: p, versions: [{{ version: \"1\" }}] }}\nplans:\n  \
         - {{ name: standard, connection: {{ requests: 20/s, burst: 40 }}, user: {{ requests: 1000000/s }}, tenant: {{ requests: 1000000/s }} }}\n\
         tenants:\n  - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }}, plan: standard }}\n"
    )
}

type Stream = TokioIo<hyper::upgrade::Upgraded>;

struct Clients<'g> {
    gateway: &'g Holdfast,
    once: bool,
    tcp: Vec<TcpStream>,
    h2: Vec<http2::SendRequest<Empty<Bytes>>>,
    streams: Vec<Stream>,
}

impl Clients<'_> {
    fn len(&self) -> usize {
        self.tcp.len() + self.streams.len()
    }

    async fn tcp(&mut self) {
        // Several addresses: one has some 28,000 ports.
        let host = u8::try_from(1 + self.tcp.len() / 10_000).unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0))).unwrap();
        let mut stream = socket.connect(self.gateway.data.addr()).await.unwrap();
        let request = "GET /v1/stream HTTP/1.1\r\nhost: g\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
             sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nx-tenant: acme\r\nx-user: u\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
        if self.once {
            use_once(&mut stream).await;
        }
        self.tcp.push(stream);
    }

    async fn h2(&mut self) {
        if self.streams.len() == self.h2.len() * ON_A_CONNECTION {
            let stream = TcpStream::connect(self.gateway.data.addr()).await.unwrap();
            let (mut sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            tokio::spawn(async move { drop(driver.await) });
            let request = http::Request::get("http://g/livez").body(Empty::new()).unwrap();
            assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
            self.h2.push(sender);
        }
        let request =
            http::Request::builder().method("CONNECT").uri("http://g/v1/stream").header("sec-websocket-version", "13");
        let request = request.header("x-tenant", "acme").header("x-user", "u");
        let request = request.extension(hyper::ext::Protocol::from_static("websocket")).body(Empty::new()).unwrap();
        let response = self.h2.last_mut().unwrap().send_request(request).await.unwrap();
        assert_eq!(response.status(), 200, "{response:?}");
        let mut stream = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        if self.once {
            use_once(&mut stream).await;
        }
        self.streams.push(stream);
    }
}

/// One message and its answer.
async fn use_once(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin)) {
    let mut frame = vec![0x81, 0x80 | u8::try_from(MESSAGE.len()).unwrap(), 0, 0, 0, 0];
    frame.extend_from_slice(MESSAGE);
    stream.write_all(&frame).await.unwrap();
    let mut head = [0; 4];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[..2], [0x81, 126], "a text of 126 bytes to 64 KiB");
    let mut body = vec![0; usize::from(u16::from_be_bytes([head[2], head[3]]))];
    stream.read_exact(&mut body).await.unwrap();
    assert!(body.starts_with(br#"{"id":1,"status":200"#), "{}", String::from_utf8_lossy(&body));
}

/// By least squares, in bytes.
fn slope(points: &[(usize, u64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |value: fn(&(usize, u64)) -> f64| points.iter().map(value).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.0 as f64), mean(|point| point.1 as f64));
    let over = points.iter().map(|point| (point.0 as f64 - x) * (point.1 as f64 - y)).sum::<f64>();
    over / points.iter().map(|point| (point.0 as f64 - x).powi(2)).sum::<f64>() * 1024.0
}

/// Resident memory in KiB.
fn rss(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
