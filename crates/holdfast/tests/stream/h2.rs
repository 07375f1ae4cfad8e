//! Sockets over HTTP/2 (RFC 8441): many on one connection, each by itself.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper::ext::Protocol;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::rig::{Rig, Ws};

struct H2 {
    sender: http2::SendRequest<Empty<Bytes>>,
    driver: tokio::task::JoinHandle<()>,
}

impl H2 {
    async fn connect(rig: &Rig) -> Self {
        let stream = TcpStream::connect(rig.gateway.data.addr()).await.unwrap();
        let (sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let driver = tokio::spawn(async move { drop(driver.await) });
        let mut this = Self { sender, driver };
        // The server's settings have come once something is answered.
        let request = Request::get("http://g/livez").body(Empty::new()).unwrap();
        assert_eq!(this.sender.send_request(request).await.unwrap().status(), 200);
        this
    }

    async fn ask(
        &mut self,
        path: &str,
        protocol: Option<&'static str>,
        fields: &[(&str, &str)],
    ) -> http::Response<hyper::body::Incoming> {
        let mut request = Request::builder().method(Method::CONNECT).uri(format!("http://g{path}"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        if let Some(protocol) = protocol {
            request = request.extension(Protocol::from_static(protocol));
        }
        self.sender.send_request(request.body(Empty::new()).unwrap()).await.unwrap()
    }

    async fn open(&mut self, tenant: &str) -> Ws<TokioIo<Upgraded>> {
        let fields = [("x-tenant", tenant), ("sec-websocket-version", "13")];
        let response = self.ask("/v1/stream", Some("websocket"), &fields).await;
        assert_eq!(response.status(), 200, "{response:?}");
        let io = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
        Ws(WebSocketStream::from_raw_socket(io, Role::Client, None).await)
    }
}

#[tokio::test]
async fn many_sockets_on_one_connection_beside_requests() {
    let rig = Rig::start("", "user: {}").await;
    let mut h2 = H2::connect(&rig).await;
    let mut sockets = Vec::new();
    for at in 0..50 {
        sockets.push(h2.open(if at % 2 == 0 { "acme" } else { "bolt" }).await);
    }
    rig.becomes("holdfast_stream_sockets", &[], 50.0).await;
    for (id, socket) in sockets.iter_mut().enumerate() {
        socket.ask(id as u64, "screen").await;
    }
    for (id, socket) in sockets.iter_mut().enumerate() {
        let frame = socket.frame().await;
        assert_eq!((&frame["id"], &frame["stamps"]["version"]), (&(id as u64).into(), &"1".into()), "{frame}");
    }
    let request = Request::get("http://g/livez").body(Empty::new()).unwrap();
    assert_eq!(h2.sender.send_request(request).await.unwrap().status(), 200);
    // Half of them leave in order, the others with their connection.
    for socket in sockets.drain(..25) {
        socket.leave().await;
    }
    rig.becomes("holdfast_stream_sockets", &[], 25.0).await;
    h2.driver.abort();
    drop(sockets);
    rig.settled().await;
}

#[tokio::test]
async fn only_an_extended_connect_of_a_proved_tenant_is_a_socket() {
    let rig = Rig::start("", "user: {}").await;
    let mut h2 = H2::connect(&rig).await;
    let good = [("x-tenant", "acme"), ("sec-websocket-version", "13")];
    for (path, protocol, fields, status) in [
        ("/v1/stream", Some("websocket"), &good[1..], 401),
        ("/v1/stream", Some("websocket"), &good[..1], 426),
        ("/v1/stream", Some("other"), &good[..], 405),
        ("/v1/other", Some("websocket"), &good[..], 405),
    ] {
        let response = h2.ask(path, protocol, fields).await;
        assert_eq!(response.status(), status, "{path} {protocol:?}");
    }
    let request = Request::get("http://g/v1/stream").header("x-tenant", "acme").body(Empty::new()).unwrap();
    assert_eq!(h2.sender.send_request(request).await.unwrap().status(), 426);
    h2.driver.abort();
    rig.settled().await;
}

#[tokio::test]
async fn a_drain_closes_the_sockets_of_a_connection_with_1001() {
    let mut rig = Rig::start("", "user: {}").await;
    let mut h2 = H2::connect(&rig).await;
    let mut sockets = Vec::new();
    for _ in 0..10 {
        sockets.push(h2.open("acme").await);
    }
    rig.gateway.proc.sigterm();
    for socket in &mut sockets {
        assert_eq!(socket.rest().await.1, Some(1001));
    }
    drop((sockets, h2));
    let status = rig.gateway.proc.wait_exit(std::time::Duration::from_secs(20)).await;
    assert!(status.success(), "{status}");
}
