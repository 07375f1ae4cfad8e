//! A small keep-alive HTTP/1.1 client for tests.
//!
//! It adds no header of its own but `host` (and `content-type` for JSON), follows no redirect, and never sends a request twice once a byte
//! of it may have been written: a test that counts executions can trust it.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// One that has been idle for longer is not used: it may be met by the server's own limit (30 s on the admin port) just then, and no test asks for that by chance.
const REST: Duration = Duration::from_secs(10);
/// Idle connections kept.
const KEPT_IDLE: usize = 256;
/// Time for one whole exchange. Longer than any budget that a test gives the gateway.
const EXCHANGE: Duration = Duration::from_secs(60);

/// A complete answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Answer {
    /// A header as text; `""` when it is absent, so that it can be compared in one expression.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("")
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none; the message shows the body.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("not JSON ({e}), status {}: {}", self.status, self.text()))
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The answer itself when it has this status.
    ///
    /// # Panics
    /// Otherwise, with headers and body in the message.
    #[must_use]
    pub fn expect(self, status: u16) -> Self {
        assert!(
            self.status.as_u16() == status,
            "expected {status}, got {}\n{:#?}\n{}",
            self.status,
            self.headers,
            self.text()
        );
        self
    }
}

/// A client of one address. Concurrent calls use connections of their own; finished ones are kept for the next call.
#[derive(Debug)]
pub struct Client {
    addr: SocketAddr,
    idle: Mutex<Vec<(SendRequest<Full<Bytes>>, Instant)>>,
}

impl Client {
    /// A client of `addr`; connects on first use.
    #[must_use]
    pub fn new(addr: SocketAddr) -> Self {
        Self { addr, idle: Mutex::new(Vec::new()) }
    }

    /// The address that this client talks to.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// GET.
    ///
    /// # Panics
    /// When no complete answer comes.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.must(Method::GET, path, headers, Bytes::new()).await
    }

    /// POST of a JSON value.
    ///
    /// # Panics
    /// When no complete answer comes.
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.must(Method::POST, path, &with_json(headers), Bytes::from(body.to_string())).await
    }

    /// PUT of a JSON value.
    ///
    /// # Panics
    /// When no complete answer comes.
    pub async fn put(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.must(Method::PUT, path, &with_json(headers), Bytes::from(body.to_string())).await
    }

    async fn must(&self, method: Method, path: &str, headers: &[(&str, &str)], body: Bytes) -> Answer {
        match self.send(method.clone(), path, headers, body).await {
            Ok(answer) => answer,
            Err(e) => panic!("{method} {path} to {}: {e}", self.addr),
        }
    }

    /// One exchange with any method, headers and body.
    ///
    /// # Errors
    /// A text that says what failed: connect, send, a cut body, or no answer within a minute.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection: the server sees a client that left.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer, String> {
        match tokio::time::timeout(EXCHANGE, self.exchange(method, path, headers, body)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("no complete answer after {EXCHANGE:?}")),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Answer, String> {
        let mut request = Request::builder().method(method).uri(path).header("host", self.addr.to_string());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Full::new(body)).map_err(|e| format!("bad request: {e}"))?;
        loop {
            let mut connection = self.connection().await?;
            let response = match connection.try_send_request(request).await {
                Ok(response) => response,
                Err(mut e) => match e.take_message() {
                    // A kept connection that the server closed meanwhile: nothing was written, so another one may be used.
                    Some(unsent) => {
                        request = unsent;
                        continue;
                    }
                    None => return Err(format!("send: {}", chain(e.error()))),
                },
            };
            let (parts, body) = response.into_parts();
            let body = body.collect().await.map_err(|e| format!("body: {}", chain(&e)))?.to_bytes();
            self.keep(connection);
            return Ok(Answer { status: parts.status, headers: parts.headers, body });
        }
    }

    async fn connection(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        while let Some(mut kept) = self.take() {
            if kept.ready().await.is_ok() {
                return Ok(kept);
            }
        }
        let stream = TcpStream::connect(self.addr).await.map_err(|e| format!("connect: {e}"))?;
        let _ = stream.set_nodelay(true);
        let (sender, driver) = handshake(TokioIo::new(stream)).await.map_err(|e| format!("handshake: {e}"))?;
        // Ends with the connection, which ends when the sender is dropped.
        tokio::spawn(driver);
        Ok(sender)
    }

    fn take(&self) -> Option<SendRequest<Full<Bytes>>> {
        let (connection, since) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        (since.elapsed() < REST).then_some(connection)
    }

    fn keep(&self, connection: SendRequest<Full<Bytes>>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT_IDLE && !connection.is_closed() {
            idle.push((connection, Instant::now()));
        }
    }
}

fn with_json<'a>(headers: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut all = vec![("content-type", "application/json")];
    all.extend_from_slice(headers);
    all
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
