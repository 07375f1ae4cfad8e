//! A model server with a WebSocket beside its Open Inference answers: it echoes, and does what some words ask of it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

#[derive(Default)]
pub struct Seen {
    pub handshakes: Mutex<Vec<(String, HeaderMap)>>,
    pub messages: AtomicUsize,
    /// Codes that it was closed with.
    pub closes: Mutex<Vec<Option<u16>>>,
    pub refuses: std::sync::atomic::AtomicBool,
}

pub struct Echo {
    pub addr: SocketAddr,
    pub seen: Arc<Seen>,
    accepting: tokio::task::JoinHandle<()>,
}

impl Echo {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let all = seen.clone();
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let seen = all.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request| answer(request, seen.clone()));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await;
                });
            }
        });
        Self { addr, seen, accepting }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(mut request: Request<Incoming>, seen: Arc<Seen>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let mut response = Response::new(Full::default());
    if let Some(key) = request.headers().get("sec-websocket-key") {
        if seen.refuses.load(Relaxed) {
            *response.status_mut() = StatusCode::FORBIDDEN;
            return Ok(response);
        }
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let accept = derive_accept_key(key.as_bytes());
        let fields = response.headers_mut();
        fields.insert("sec-websocket-accept", accept.parse().unwrap());
        fields.insert("upgrade", "websocket".parse().unwrap());
        fields.insert("connection", "upgrade".parse().unwrap());
        if let Some(protocol) = request.headers().get("sec-websocket-protocol") {
            let first = protocol.to_str().unwrap().split(',').next().unwrap().trim();
            fields.insert("sec-websocket-protocol", first.parse().unwrap());
        }
        seen.handshakes.lock().unwrap().push((path, request.headers().clone()));
        let upgrade = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let io = TokioIo::new(upgrade.await.unwrap());
            echo(WebSocketStream::from_raw_socket(io, Role::Server, None).await, seen).await;
        });
        return Ok(response);
    }
    let body = match path.as_str() {
        "/v2" => json!({ "name": "echo", "version": "0", "extensions": [] }),
        _ if path.starts_with("/v2/health") => json!({}),
        _ => {
            json!({ "name": "screen", "ready": true, "versions": ["1"], "inputs": [], "outputs": [], "model_name": "screen", "model_version": "1" })
        }
    };
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    *response.body_mut() = Full::from(body.to_string());
    Ok(response)
}

async fn echo(mut socket: WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>, seen: Arc<Seen>) {
    let mut code = None;
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Close(close) => code = close.map(|close| u16::from(close.code)),
            Message::Text(text) => {
                seen.messages.fetch_add(1, Relaxed);
                match text.as_str() {
                    "close" => {
                        let close = CloseFrame { code: 4001.into(), reason: "asked for".into() };
                        let _ = socket.close(Some(close)).await;
                    }
                    "vanish" => return,
                    "flood" => {
                        for _ in 0..1_200 {
                            if socket.send(Message::text("x".repeat(100_000))).await.is_err() {
                                return;
                            }
                        }
                    }
                    _ => drop(socket.send(Message::Text(text)).await),
                }
            }
            Message::Binary(data) => {
                seen.messages.fetch_add(1, Relaxed);
                let _ = socket.send(Message::Binary(data)).await;
            }
            _ => {}
        }
    }
    seen.closes.lock().unwrap().push(code);
}
