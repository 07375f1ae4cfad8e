//! Sockets over TLS (`wss:`): by the upgrade of HTTP/1.1, and as streams of HTTP/2 (RFC 8441). Their tenant is whom the certificate names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use holdfast_testkit::http::Client;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Authority, Proc, Signed, Stub, TempDir, eventually, free_port, serve_in};
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper::ext::Protocol;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

const PATIENCE: Duration = Duration::from_secs(20);

struct World {
    proc: Proc,
    servers: Authority,
    clients: Authority,
    data: u16,
    admin: Client,
    _dir: TempDir,
    _stub: Stub,
}

impl World {
    async fn start() -> Self {
        let correct = V2::loaded(&[("screen", "1")]);
        let stub = Stub::start(move |request| correct.answer(request)).await;
        let (dir, servers, clients) = (TempDir::new(), Authority::new(), Authority::new());
        let (chain, key) = servers.server(&["127.0.0.1"]).files(dir.path(), "own");
        let trusted = clients.file(dir.join("clients.pem"));
        let (data, admin) = (free_port(), free_port());
        let config = json!({
            "listen": {
                "data": format!("127.0.0.1:{data}"), "admin": format!("127.0.0.1:{admin}"),
                "data_tls": {"certificates": chain, "key": key, "clients": trusted, "required": false},
            },
            "auth": {"certificates": [{"name": "uri=spiffe://prod/tenant/{tenant}"}]},
            "stream": {},
            "timeouts": {"request_max": "60s", "request": "20s", "drain": "6s"},
            "truth": "file",
            "pools": [{"name": "p", "protocol": "open-inference", "residency": "static",
                "replicas": [{"name": "r1", "url": stub.url(), "holds": [{"model": "screen", "version": "1"}]}]}],
            "models": [{"name": "screen", "pool": "p", "versions": [{"version": "1"}]}],
            "tenants": [{"name": "acme", "subset": 1, "pins": {"screen": "1"}}],
        });
        let proc = serve(&dir, &config);
        let admin = Client::new(([127, 0, 0, 1], admin).into());
        let world = Self { proc, servers, clients, data, admin, _dir: dir, _stub: stub };
        eventually("the replica to be proven", PATIENCE, async || {
            let told = world.admin.send(http::Method::GET, "/v1/replicas", &[], Bytes::new()).await.ok()?;
            told.text().contains("\"screen\"").then_some(())
        })
        .await;
        world
    }

    fn acme(&self) -> Signed {
        self.clients.client("somebody", &["spiffe://prod/tenant/acme"])
    }

    /// A connection over which this protocol was agreed on.
    async fn connect(&self, who: Option<&Signed>, protocol: &[u8]) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.servers.pem().as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match who {
            None => builder.with_no_client_auth(),
            Some(who) => {
                let chain = vec![CertificateDer::from_pem_slice(who.certificate.as_bytes()).unwrap()];
                builder
                    .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(who.key.as_bytes()).unwrap())
                    .unwrap()
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(("127.0.0.1", self.data)).await.unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol));
        stream
    }

    /// By the upgrade of HTTP/1.1; or the status of the refusal.
    async fn upgrade(&self, who: Option<&Signed>) -> Result<WebSocketStream<TlsStream<TcpStream>>, u16> {
        let mut request = format!("wss://127.0.0.1:{}/v1/stream", self.data).into_client_request().unwrap();
        request.headers_mut().insert("x-tenant", "acme".parse().unwrap());
        match tokio_tungstenite::client_async(request, self.connect(who, b"http/1.1").await).await {
            Ok((socket, _)) => Ok(socket),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(other) => panic!("{other}"),
        }
    }

    async fn sockets(&self, count: f64) {
        eventually("the sockets to be counted", PATIENCE, async || {
            let text = self.admin.get("/metrics", &[]).await.expect(200).text();
            let metrics = holdfast_testkit::Metrics::parse(&text).unwrap();
            (metrics.sum("holdfast_stream_sockets", &[]) == count).then_some(())
        })
        .await;
    }
}

/// Streams of one connection.
struct H2(http2::SendRequest<Empty<Bytes>>);

impl H2 {
    async fn over(stream: TlsStream<TcpStream>) -> Self {
        let (sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(async move { drop(driver.await) });
        let mut this = Self(sender);
        // The server's settings have come once something is answered.
        let request = http::Request::get("https://g/livez").body(Empty::new()).unwrap();
        assert_eq!(this.0.send_request(request).await.unwrap().status(), 200);
        this
    }

    async fn open(&mut self) -> Result<WebSocketStream<impl AsyncRead + AsyncWrite + Unpin + use<>>, u16> {
        let request = http::Request::builder()
            .method(http::Method::CONNECT)
            .uri("https://g/v1/stream")
            .header("sec-websocket-version", "13")
            .header("x-tenant", "acme")
            .extension(Protocol::from_static("websocket"));
        let response = self.0.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
        if response.status() != 200 {
            return Err(response.status().as_u16());
        }
        let io = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        Ok(WebSocketStream::from_raw_socket(io, Role::Client, None).await)
    }
}

fn serve(dir: &TempDir, config: &Value) -> Proc {
    serve_in(Path::new(env!("CARGO_BIN_EXE_holdfast")), dir, config)
}

/// The next message that is no ping.
async fn next<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>) -> Message {
    loop {
        let told = tokio::time::timeout(PATIENCE, socket.next()).await.expect("in time").expect("a message").unwrap();
        if !matches!(told, Message::Ping(_) | Message::Pong(_)) {
            return told;
        }
    }
}

/// A message that is answered by its id, larger than a record of TLS.
async fn is_answered<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>, id: u64) {
    let input = json!({ "inputs": [{ "name": "x", "datatype": "BYTES", "shape": [1], "data": ["y".repeat(40_000)] }] });
    let message = json!({ "id": id, "model": "screen", "input": input });
    socket.send(Message::text(message.to_string())).await.unwrap();
    let Message::Text(text) = next(socket).await else { panic!("no text") };
    let frame: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&frame["id"], &frame["stamps"]["version"]), (&json!(id), &json!("1")), "{frame}");
}

async fn closes_with<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut WebSocketStream<S>, code: u16) {
    let told = next(socket).await;
    assert!(matches!(&told, Message::Close(Some(close)) if u16::from(close.code) == code), "{told:?}");
    // Answers the close.
    let _ = socket.flush().await;
}

#[tokio::test]
async fn sockets_over_tls_are_answered_and_told_to_go() {
    let mut world = World::start().await;
    let acme = world.acme();
    let mut upgraded = world.upgrade(Some(&acme)).await.unwrap();
    let mut h2 = H2::over(world.connect(Some(&acme), b"h2").await).await;
    let (mut one, mut two) = (h2.open().await.unwrap(), h2.open().await.unwrap());
    world.sockets(3.0).await;
    for id in 0..3 {
        is_answered(&mut upgraded, id).await;
        is_answered(&mut one, id + 10).await;
        is_answered(&mut two, id + 20).await;
    }
    // A client that is gone without a word leaves nothing, and the others alone.
    drop(two);
    world.sockets(2.0).await;
    is_answered(&mut one, 30).await;
    world.proc.sigterm();
    closes_with(&mut upgraded, 1001).await;
    closes_with(&mut one, 1001).await;
    drop((upgraded, one, h2));
    let status = world.proc.wait_exit(PATIENCE).await;
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn a_socket_over_tls_is_nobodys_without_a_certificate() {
    let world = World::start().await;
    let foreign = world.clients.client("x", &["spiffe://other/tenant/acme"]);
    for who in [None, Some(&foreign)] {
        // The field that names a tenant is no proof here.
        assert_eq!(world.upgrade(who).await.err(), Some(401));
        let mut h2 = H2::over(world.connect(who, b"h2").await).await;
        assert_eq!(h2.open().await.err(), Some(401));
    }
    world.sockets(0.0).await;
}
