//! An upstream for faults that no real server shows on demand.
//!
//! It reads HTTP/1.1 requests and answers each by a script: bytes to write, pauses, then keep, close, reset or hold the connection. It
//! counts what it has received, so that a test can prove that nothing was executed twice.

use crate::raw::{find, parse_headers};
use crate::script::{Script, Step};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Requests kept for inspection.
const KEPT_REQUESTS: usize = 10_000;
/// Largest request that is read.
const MAX_REQUEST: usize = 64 * 1024 * 1024;

/// A request as received, its body complete.
#[derive(Debug, Clone)]
pub struct StubRequest {
    /// Method.
    pub method: String,
    /// Request target as sent.
    pub path: String,
    /// Header lines in order.
    pub headers: Vec<(String, String)>,
    /// Body without framing.
    pub body: Vec<u8>,
    /// Number of the connection, from 0.
    pub connection: u64,
    /// Number of the request on its connection, from 0.
    pub on_connection: u64,
    /// Number of the request on this stub, from 0.
    pub number: u64,
}

impl StubRequest {
    /// The first value of a header, or `""`.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map_or("", |(_, v)| v.as_str())
    }
}

/// Behaviour of the connections themselves.
#[derive(Debug, Clone, Copy, Default)]
pub struct StubOptions {
    /// End a connection on which no request has begun for this long.
    pub idle_close: Option<Duration>,
    /// Accept connections and read nothing from them.
    pub never_read: bool,
}

type Handler = dyn Fn(&StubRequest) -> Script + Send + Sync;

struct Shared {
    handler: Box<Handler>,
    options: StubOptions,
    connections: AtomicU64,
    open: AtomicU64,
    requests: AtomicU64,
    seen: Mutex<VecDeque<StubRequest>>,
}

/// A running stub. Dropping it closes its listener and every connection.
pub struct Stub {
    addr: SocketAddr,
    shared: Arc<Shared>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Stub {
    /// Starts a stub on a free loopback port; `handler` writes the script for each request.
    ///
    /// # Panics
    /// When no socket can be bound.
    pub async fn start(handler: impl Fn(&StubRequest) -> Script + Send + Sync + 'static) -> Self {
        Self::start_with(StubOptions::default(), handler).await
    }

    /// Like [`Stub::start`], with options.
    ///
    /// # Panics
    /// When no socket can be bound.
    pub async fn start_with(
        options: StubOptions,
        handler: impl Fn(&StubRequest) -> Script + Send + Sync + 'static,
    ) -> Self {
        let listener = crate::proc::listen().await;
        let addr = listener.local_addr().expect("a bound address");
        let shared = Arc::new(Shared {
            handler: Box::new(handler),
            options,
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            seen: Mutex::new(VecDeque::new()),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { addr, shared, accepting }
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its address as a URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Connections open now.
    #[must_use]
    pub fn open_connections(&self) -> u64 {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Complete requests received so far that `filter` accepts, among the last ten thousand.
    #[must_use]
    pub fn count(&self, filter: impl Fn(&StubRequest) -> bool) -> usize {
        self.lock_seen().iter().filter(|r| filter(r)).count()
    }

    /// Complete requests received whose path ends with `/infer`.
    #[must_use]
    pub fn executions(&self) -> usize {
        self.count(|r| r.path.ends_with("/infer"))
    }

    /// The last complete requests, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<StubRequest> {
        self.lock_seen().iter().cloned().collect()
    }

    fn lock_seen(&self) -> std::sync::MutexGuard<'_, VecDeque<StubRequest>> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, which ends all connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let number = shared.connections.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serve(stream, number, Arc::clone(&shared)));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(mut stream: TcpStream, connection: u64, shared: Arc<Shared>) {
    shared.open.fetch_add(1, Ordering::SeqCst);
    let _open = Open(Arc::clone(&shared));
    let _ = stream.set_nodelay(true);
    if shared.options.never_read {
        return std::future::pending().await;
    }
    let mut pending = Vec::new();
    for on_connection in 0.. {
        let Some(mut request) = read_request(&mut stream, &mut pending, shared.options.idle_close).await else {
            return;
        };
        request.connection = connection;
        request.on_connection = on_connection;
        request.number = shared.requests.fetch_add(1, Ordering::SeqCst);
        remember(&shared, &request);
        let script = (shared.handler)(&request);
        if !play(&mut stream, script).await {
            return;
        }
    }
}

fn remember(shared: &Shared, request: &StubRequest) {
    let mut seen = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.len() == KEPT_REQUESTS {
        seen.pop_front();
    }
    seen.push_back(request.clone());
}

/// Carries out a script; `false` when the connection is over.
async fn play(stream: &mut TcpStream, script: Script) -> bool {
    for step in script.into_steps() {
        match step {
            Step::Send(bytes) => {
                if stream.write_all(&bytes).await.is_err() {
                    return false;
                }
            }
            Step::Pause(delay) => tokio::time::sleep(delay).await,
            // A counter that is gone will never get there: then the answer is given, and the test sees that it came early.
            Step::Until(least, mut count) => drop(count.wait_for(|count| *count >= least).await),
            Step::Close => return false,
            Step::Reset => {
                let _ = stream.set_zero_linger();
                return false;
            }
            Step::Hang => {
                // Reads on, so that the connection is seen to end when the other side gives up.
                let mut sink = [0_u8; 256];
                while matches!(stream.read(&mut sink).await, Ok(n) if n > 0) {}
                return false;
            }
        }
    }
    true
}

/// Reads one request with its body (`content-length` or chunked); `None` when the connection is over or idle for too long.
async fn read_request(stream: &mut TcpStream, pending: &mut Vec<u8>, idle: Option<Duration>) -> Option<StubRequest> {
    let head_end = loop {
        if let Some(at) = find(pending, b"\r\n\r\n") {
            break at + 4;
        }
        match idle.filter(|_| pending.is_empty()) {
            Some(limit) => tokio::time::timeout(limit, fill(stream, pending)).await.ok()??,
            None => fill(stream, pending).await?,
        }
    };
    let head: Vec<u8> = pending.drain(..head_end).collect();
    let text = String::from_utf8_lossy(&head).into_owned();
    let mut first = text.split("\r\n").next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers = parse_headers(&text).ok()?;
    let mut request =
        StubRequest { method, path, headers, body: Vec::new(), connection: 0, on_connection: 0, number: 0 };
    request.body = if request.header("transfer-encoding").eq_ignore_ascii_case("chunked") {
        read_chunked(stream, pending).await?
    } else {
        let length = request.header("content-length").parse().unwrap_or(0);
        take(stream, pending, length).await?
    };
    Some(request)
}

async fn read_chunked(stream: &mut TcpStream, pending: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let size = usize::from_str_radix(line(stream, pending).await?.split(';').next()?.trim(), 16).ok()?;
        if size == 0 {
            while !line(stream, pending).await?.is_empty() {}
            return Some(body);
        }
        body.extend(take(stream, pending, size).await?);
        take(stream, pending, 2).await?;
    }
}

async fn line(stream: &mut TcpStream, pending: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(at) = find(pending, b"\r\n") {
            let line: Vec<u8> = pending.drain(..at + 2).take(at).collect();
            return String::from_utf8(line).ok();
        }
        fill(stream, pending).await?;
    }
}

async fn take(stream: &mut TcpStream, pending: &mut Vec<u8>, length: usize) -> Option<Vec<u8>> {
    while pending.len() < length {
        fill(stream, pending).await?;
    }
    Some(pending.drain(..length).collect())
}

async fn fill(stream: &mut TcpStream, pending: &mut Vec<u8>) -> Option<()> {
    if pending.len() > MAX_REQUEST {
        return None;
    }
    pending.reserve(16 * 1024);
    stream.read_buf(pending).await.ok().filter(|n| *n > 0).map(drop)
}
