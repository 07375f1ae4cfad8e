//! The connections of an admin port, of a gateway or of a control plane: few, each with a deadline for its head, and none of them able to shut out the rest.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use holdfast_net::tls::Entrance;
use holdfast_net::{AdmissionLimits, Answering, Conduct, Crowd, Listener, Tap, Tapped, Tasks};

use crate::admin::Answer;

/// Most connections at a time, and from one address.
const CONNECTIONS: u32 = 256;
const PER_ADDRESS: u32 = CONNECTIONS / 4;
/// From the first byte of a head to its last, and until the first byte of the first.
const HEAD: Duration = Duration::from_secs(5);
/// Between two requests.
const IDLE: Duration = Duration::from_secs(30);

/// Answers an admin port until the process ends. `counted` is held for each connection while it is there. Of a client with a certificate its requests
/// have an `Arc` of [`Peer`](holdfast_net::tls::Peer) among their extensions, and all have the [`IpAddr`] that they come from.
pub async fn serve_admin<C, F, A>(
    listener: Listener,
    entrance: Entrance,
    tasks: Tasks,
    counted: impl Fn() -> C,
    answer: F,
) where
    C: Send + 'static,
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let crowd = Crowd::new(AdmissionLimits { total: CONNECTIONS, per_address: PER_ADDRESS });
    loop {
        let (stream, peer) = listener.accept().await;
        let conduct = Arc::new(Conduct::default());
        // Over the bound a connection is closed at once.
        let Some(place) = crowd.admit(peer.ip(), &conduct) else { continue };
        let (entrance, answer, counted) = (entrance.clone(), answer.clone(), counted());
        let address = peer.ip().to_canonical();
        tasks.spawn(async move {
            let _counted = counted;
            tokio::select! {
                () = serve(stream, address, entrance, conduct.clone(), answer) => {}
                () = place.is_lost() => {}
                () = conduct.is_late(HEAD, IDLE) => {}
            }
        });
    }
}

async fn serve<F, A>(stream: TcpStream, address: IpAddr, entrance: Entrance, conduct: Arc<Conduct>, answer: F)
where
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let Some((stream, peer)) = entrance.enter(stream).await else { return };
    let on = conduct.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let guard = on.answers();
        request.extensions_mut().insert(address);
        if let Some(peer) = peer.clone() {
            request.extensions_mut().insert(peer);
        }
        let answer = answer(request);
        async move {
            let (parts, body) = answer.await.into_parts();
            Ok::<_, Infallible>(Response::from_parts(parts, Counted { body, _answered: guard }))
        }
    });
    let mut builder = http1::Builder::new();
    // The conduct has the deadlines: the parser's own would count the time between two requests as part of a head.
    builder.header_read_timeout(None);
    // How a scraper's connection ends is its own business.
    let _ = builder.serve_connection(TokioIo::new(Tapped::new(stream, Seen(conduct))), service).await;
}

/// Notes when bytes come.
struct Seen(Arc<Conduct>);

impl Tap for Seen {
    fn read(&mut self, fresh: &[u8]) -> io::Result<()> {
        if !fresh.is_empty() {
            self.0.reads();
        }
        Ok(())
    }
}

/// The body of an answer. Until all of it is sent its request is being answered.
struct Counted {
    body: UnsyncBoxBody<Bytes, Infallible>,
    _answered: Answering,
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
