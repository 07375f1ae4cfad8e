//! A gateway with sockets, and clients of another make (tokio-tungstenite) and of none (raw bytes).

use std::path::Path;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use holdfast_testkit::raw::RawClient;
use holdfast_testkit::script::Script;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Stub, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

pub const PATIENCE: Duration = Duration::from_secs(30);

/// A socket.
pub struct Ws<S = TcpStream>(pub WebSocketStream<S>);

/// What a socket hears.
#[derive(Debug)]
pub enum Heard {
    Frame(Value),
    Closed(Option<u16>),
    /// The connection ended without a close frame.
    Gone,
}

impl Ws {
    /// Opens one, or gives the status and the fields of the refusal.
    pub async fn try_open(
        gateway: &Holdfast,
        fields: &[(&str, &str)],
    ) -> Result<Self, http::Response<Option<Vec<u8>>>> {
        let mut request = format!("ws://{}/v1/stream", gateway.data.addr()).into_client_request().unwrap();
        for (name, value) in fields {
            request.headers_mut().append(http::HeaderName::try_from(*name).unwrap(), value.parse().unwrap());
        }
        let stream = TcpStream::connect(gateway.data.addr()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((socket, response)) => {
                assert!(response.headers().contains_key("x-holdfast-request-id"), "{response:?}");
                Ok(Self(socket))
            }
            Err(Error::Http(response)) => Err(*response),
            Err(other) => panic!("{other}"),
        }
    }

    pub async fn open(gateway: &Holdfast, fields: &[(&str, &str)]) -> Self {
        Self::try_open(gateway, fields).await.unwrap_or_else(|refused| panic!("{refused:?}"))
    }

    pub async fn of(gateway: &Holdfast, tenant: &str) -> Self {
        Self::open(gateway, &[("x-tenant", tenant)]).await
    }

    pub async fn user(gateway: &Holdfast, tenant: &str, user: &str) -> Self {
        Self::open(gateway, &[("x-tenant", tenant), ("x-user", user)]).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Ws<S> {
    pub async fn say(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).await.unwrap();
    }

    /// Asks a model that echoes.
    pub async fn ask(&mut self, id: impl Into<Value>, model: &str) {
        self.say(&message(id, model)).await;
    }

    pub async fn hear(&mut self) -> Heard {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.0.next()).await.expect("a frame in time");
            match next {
                Some(Ok(Message::Text(text))) => return Heard::Frame(serde_json::from_str(&text).expect("JSON")),
                Some(Ok(Message::Close(close))) => {
                    // Answers the close.
                    let _ = self.0.flush().await;
                    return Heard::Closed(close.map(|close| u16::from(close.code)));
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(other)) => panic!("{other:?}"),
                Some(Err(_)) | None => return Heard::Gone,
            }
        }
    }

    /// The next frame.
    pub async fn frame(&mut self) -> Value {
        match self.hear().await {
            Heard::Frame(frame) => frame,
            other => panic!("{other:?} instead of a frame"),
        }
    }

    /// Everything until the socket is closed, and the code.
    pub async fn rest(&mut self) -> (Vec<Value>, Option<u16>) {
        let mut frames = Vec::new();
        loop {
            match self.hear().await {
                Heard::Frame(frame) => frames.push(frame),
                Heard::Closed(code) => return (frames, code),
                Heard::Gone => return (frames, None),
            }
        }
    }

    pub async fn leave(mut self) {
        let close = tokio_tungstenite::tungstenite::protocol::CloseFrame { code: CloseCode::Normal, reason: "".into() };
        let _ = self.0.close(Some(close)).await;
        let _ = self.rest().await;
    }
}

pub fn message(id: impl Into<Value>, model: &str) -> Value {
    json!({ "id": id.into(), "model": model, "input": { "inputs": [] } })
}

pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_holdfast"))
}

/// A gateway before one stub that knows `screen` and `other`. An input with `hangs` in it is never answered, one with `large` by two megabytes.
pub struct Rig {
    pub gateway: Holdfast,
    pub stub: Stub,
}

impl Rig {
    /// `stream` is the section's content, `plan` that of the plan of `acme`; `bolt` has none.
    pub async fn start(stream: &str, plan: &str) -> Self {
        Self::with("auth: { trusted_header: x-tenant, trusted_user_header: x-user }", stream, plan).await
    }

    pub async fn with(top: &str, stream: &str, plan: &str) -> Self {
        let correct = V2::loaded(&[("screen", "1"), ("other", "3")]);
        let stub = Stub::start(move |request| {
            let says = |word: &str| request.body.windows(word.len()).any(|bytes| bytes == word.as_bytes());
            if says("hangs") {
                return Script::never();
            }
            let script = correct.answer(request);
            if says("large") {
                let body = json!({ "model_name": "screen", "model_version": "1", "outputs": [{ "name": "o", "datatype": "BYTES", "shape": [1], "data": ["x".repeat(2_000_000)] }] });
                return Script::json(200, &body);
            }
            if says("lies") {
                return Script::json(200, &json!({ "model_name": "screen", "model_version": "9", "outputs": [] }));
            }
            script
        })
        .await;
        let url = stub.url();
        let config = format!(
            "{top}\nstream: {{ {stream} }}\ntimeouts: {{ request_max: 60s, request: 20s, drain: 6s }}\npools:\n  - {{ name: p, protocol: open-inference, residency: static, \
             replicas: [{{ name: r1, url: \"{url}\", holds: [{{ model: screen, version: \"1\" }}, {{ model: other, version: \"3\" }}] }}] }}\nmodels:\n  \
             - {{ name: screen, pool: p, versions: [{{ version: \"1\" }}] }}\n  \
             - {{ name: other, pool: p, versions: [{{ version: \"3\" }}] }}\nplans:\n  - {{ name: standard, {plan} }}\ntenants:\n  \
             - {{ name: acme, subset: 1, pins: {{ screen: \"1\", other: \"3\" }}, plan: standard }}\n  \
             - {{ name: bolt, subset: 1, pins: {{ screen: \"1\" }} }}\n"
        );
        let gateway = Holdfast::start(binary(), &config).await;
        eventually("the replica to be proven", PATIENCE, async || {
            let told = gateway.admin_get("/v1/replicas").await.to_string();
            told.contains("\"3\"").then_some(())
        })
        .await;
        Self { gateway, stub }
    }

    /// Waits until a counter or gauge has this value.
    pub async fn becomes(&self, metric: &str, labels: &[(&str, &str)], value: f64) {
        let mut last = f64::NAN;
        let waited = holdfast_testkit::wait::try_eventually(PATIENCE, async || {
            last = self.gateway.metrics().await.sum(metric, labels);
            (last == value).then_some(())
        });
        let seen = waited.await;
        assert!(seen.is_some(), "{metric} {labels:?} is {last}, not {value}");
    }

    pub async fn count(&self, metric: &str, labels: &[(&str, &str)]) -> f64 {
        self.gateway.metrics().await.sum(metric, labels)
    }

    /// Nothing of any socket or message is left.
    pub async fn settled(&self) {
        self.becomes("holdfast_stream_sockets", &[], 0.0).await;
        for gauge in ["holdfast_in_flight", "holdfast_replica_in_flight"] {
            self.becomes(gauge, &[], 0.0).await;
        }
        eventually("nothing to run", PATIENCE, async || {
            let limits = self.gateway.admin_get("/v1/limits").await;
            let rows = limits["tenants"].as_array().into_iter().flatten();
            let mut rows = rows.flat_map(|tenant| tenant["limits"].as_array().into_iter().flatten());
            rows.all(|row| row["running"].as_u64().unwrap_or(0) == 0).then_some(())
        })
        .await;
    }

    /// A connection that has had its handshake, for bytes of any kind.
    pub async fn raw(&self, tenant: &str) -> RawClient {
        let mut client = RawClient::connect(self.gateway.data.addr()).await;
        client.write(handshake(tenant)).await;
        let head = client.answer("GET").await.expect("an answer");
        assert_eq!(head.status, 101, "{head:?}");
        client
    }
}

pub fn handshake(tenant: &str) -> String {
    format!(
        "GET /v1/stream HTTP/1.1\r\nhost: g\r\nconnection: keep-alive, Upgrade\r\nupgrade: WebSocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nx-tenant: {tenant}\r\n\r\n"
    )
}

/// A client's frame.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        0..126 => out.push(0x80 | payload.len() as u8),
        126..65_536 => {
            out.push(0x80 | 126);
            out.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        }
        length => {
            out.push(0x80 | 127);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    let key = [3u8, 7, 31, 127];
    out.extend_from_slice(&key);
    out.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ key[at % 4]));
    out
}

/// The codes of the close frames among a server's frames.
pub fn close_codes(mut bytes: &[u8]) -> Vec<u16> {
    let mut codes = Vec::new();
    while let [first, length, rest @ ..] = bytes {
        let (length, rest) = match (*length, rest) {
            (126, [a, b, rest @ ..]) => (usize::from(u16::from_be_bytes([*a, *b])), rest),
            (127, rest) if rest.len() >= 8 => (u64::from_be_bytes(rest[..8].try_into().unwrap()) as usize, &rest[8..]),
            (length, rest) => (usize::from(length), rest),
        };
        let Some(payload) = rest.get(..length) else { break };
        if *first == 0x88 {
            codes.push(payload.get(..2).map_or(1005, |code| u16::from_be_bytes([code[0], code[1]])));
        }
        bytes = &rest[length..];
    }
    codes
}

/// The resident memory of a process in KiB.
pub fn rss(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
}
