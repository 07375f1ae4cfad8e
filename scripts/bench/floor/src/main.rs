//! The least that a hyper 1.x pass-through can cost: `bench-floor LISTEN UPSTREAM`.
//!
//! One thread, one upstream, connections kept by hand, answers collected and sent on. It does nothing else on purpose: no limits, no time-outs, no
//! retries, no logs, no metrics. What a gateway costs above this floor is the price of its policy.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Where requests go, and the connections that wait for the next one.
struct Upstream {
    address: SocketAddr,
    idle: RefCell<Vec<SendRequest<Incoming>>>,
}

impl Upstream {
    /// The connection used last that is still open, or a new one.
    async fn connection(&self) -> Result<SendRequest<Incoming>, Failure> {
        let waiting = self.idle.borrow_mut().pop();
        if let Some(sender) = waiting.filter(|sender| !sender.is_closed()) {
            return Ok(sender);
        }
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        spawn_local(connection);
        Ok(sender)
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Failure> {
        let mut sender = self.connection().await?;
        sender.ready().await?;
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        self.idle.borrow_mut().push(sender);
        Ok(Response::from_parts(head, Full::new(body)))
    }
}

async fn serve(listen: SocketAddr, upstream: SocketAddr) -> Result<(), Failure> {
    let listener = TcpListener::bind(listen).await?;
    let upstream = Rc::new(Upstream { address: upstream, idle: RefCell::default() });
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let upstream = Rc::clone(&upstream);
        let service = service_fn(move |request| {
            let upstream = Rc::clone(&upstream);
            async move { upstream.forward(request).await }
        });
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        // A client that leaves ends its connection with an error, which is of no interest here.
        spawn_local(async move { connection.await.ok() });
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(listen), Some(upstream)) = (arguments.next(), arguments.next()) else {
        return Err("usage: bench-floor LISTEN UPSTREAM".into());
    };
    LocalSet::new().run_until(serve(listen.parse()?, upstream.parse()?)).await
}
