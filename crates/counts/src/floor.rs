//! The least that a pass-through on hyper costs, between the same two ends: what a request's count is compared with.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use crate::ping;

type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) fn run(count: u32) {
    ping::block_on(|| async { pass_through(ping::upstream(ping::FIRST).await).await }, count);
}

async fn pass_through(upstream: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).expect("no delay");
            let idle = Arc::new(Mutex::new(Vec::new()));
            let service = service_fn(move |request| forward(upstream, idle.clone(), request));
            let connection = Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move { connection.await.ok() });
        }
    });
    address
}

async fn forward(
    upstream: SocketAddr,
    idle: Arc<Mutex<Vec<SendRequest<Incoming>>>>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Failure> {
    let kept = idle.lock().expect("a lock").pop();
    let mut sender = match kept.filter(|sender| !sender.is_closed()) {
        Some(sender) => sender,
        None => connect(upstream).await?,
    };
    sender.ready().await?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    idle.lock().expect("a lock").push(sender);
    Ok(Response::from_parts(head, Full::new(body)))
}

async fn connect(upstream: SocketAddr) -> Result<SendRequest<Incoming>, Failure> {
    let stream = TcpStream::connect(upstream).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move { connection.await.ok() });
    Ok(sender)
}
