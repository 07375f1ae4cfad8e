//! The two ends of a request: a client that sends one after the other over a kept connection, and an upstream with one canned answer.
//!
//! Both are as cheap as they can be, and all of it runs on one thread, so that the order of things is the same in every run. Sockets over
//! loopback, since the gateway's way through them is a part of what a request costs. On its own (`direct`) it is what to take away from a
//! request's count.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The canned answer, of the Open Inference Protocol.
pub(crate) const ANSWER: &str = concat!(
    r#"{"model_name":"m","model_version":"7","id":"0123456789abcdef","outputs":[{"name":"y","shape":[1,4],"#,
    r#""datatype":"FP32","data":[0.1,0.2,0.3,0.4]}],"parameters":{"note":"a canned answer of about 200 bytes"}}"#
);

/// What both bodies end with, and nothing before their end does.
const END: &[u8] = br#""}}"#;
/// Tenants that ask in turn.
const TENANTS: usize = 100;
/// Requests before the measured ones: three of each tenant.
const WARM_UP: u32 = 300;

pub(crate) fn run(count: u32) {
    block_on(|| upstream(FIRST), count);
}

/// Runs a client against whatever `serve` starts and tells the address of, on a runtime of this thread.
pub(crate) fn block_on<F: Future<Output = SocketAddr>>(serve: impl FnOnce() -> F, count: u32) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut client = runtime.block_on(async {
        let mut client = Client::connect(serve().await).await;
        client.laps(1).await;
        // What other threads do with the first request, they have done by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.laps(WARM_UP).await;
        client
    });
    crate::measured_laps(&mut || runtime.block_on(client.laps(count)));
}

/// Where upstreams listen. Always the same, since addresses are texts and keys in the gateway; not where others would listen.
pub(crate) const FIRST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 83, 0, 1)), 18_000);
pub(crate) const SECOND: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 83, 0, 2)), 18_000);

/// Starts an upstream; tells where it is.
pub(crate) async fn upstream(address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(address).await.expect("the address of the upstream is free");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).expect("no delay");
            tokio::spawn(answer_all(stream));
        }
    });
    address
}

/// Answers every request, whatever it is, until the other side goes.
async fn answer_all(mut stream: TcpStream) {
    let head = format!(
        "HTTP/1.1 200 OK\r\nserver: canned\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        ANSWER.len()
    );
    let whole = [head.as_bytes(), ANSWER.as_bytes()].concat();
    let mut request = Vec::with_capacity(4096);
    while matches!(stream.read_buf(&mut request).await, Ok(1..)) {
        let end = if request.starts_with(b"GET ") { b"\r\n\r\n" } else { END };
        if request.ends_with(end) {
            request.clear();
            if stream.write_all(&whole).await.is_err() {
                return;
            }
        }
    }
}

struct Client {
    stream: TcpStream,
    requests: Vec<Vec<u8>>,
    answer: Vec<u8>,
}

impl Client {
    async fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).await.expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        Self { stream, requests: (0..TENANTS).map(request).collect(), answer: Vec::with_capacity(4096) }
    }

    async fn laps(&mut self, count: u32) {
        for lap in 0..count as usize {
            self.stream.write_all(&self.requests[lap % TENANTS]).await.expect("the request is taken");
            self.answer.clear();
            while !self.answer.ends_with(END) {
                let read = self.stream.read_buf(&mut self.answer).await.expect("an answer");
                assert!(read > 0, "the connection ended");
            }
            assert!(self.answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&self.answer));
        }
    }
}

/// A request with a body of 1,024 bytes.
fn request(tenant: usize) -> Vec<u8> {
    let head =
        r#"{"id":"r","inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}],"parameters":{"pad":""#;
    let tail = r#""}}"#;
    let body = format!("{head}{}{tail}", "x".repeat(1_024 - head.len() - tail.len()));
    format!(
        "POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1:19020\r\nContent-Type: application/json\r\n\
         x-tenant: t{tenant}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
