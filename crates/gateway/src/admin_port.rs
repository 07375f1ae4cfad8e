//! The connections of an admin port, of a gateway or of a control plane: few, each with a deadline for its head, and none of them able to shut out the rest.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use serde_json::json;

use holdfast_codec::framing::{HeadLimits, Violation};
use holdfast_net::{
    AdmissionLimits, ConnState, Crowd, Drain, DrainHandle, Listener, RequestGuard, ServeOptions, Tasks,
};

use crate::admin::Answer;

/// Most connections at a time, and from one address.
const CONNECTIONS: u32 = 256;
const PER_ADDRESS: u32 = CONNECTIONS / 4;
/// From the first byte of a head to its last, and until the first byte of the first.
const HEAD: Duration = Duration::from_secs(5);
/// Between two requests.
const IDLE: Duration = Duration::from_secs(30);
/// Streams of one HTTP/2 connection.
const STREAMS: u32 = 16;

/// Answers an admin port until the process ends. `counted` is held for each connection while it is there.
pub async fn serve_admin<C, F, A>(listener: Listener, tasks: Tasks, counted: impl Fn() -> C, answer: F)
where
    C: Send + 'static,
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let crowd = Crowd::new(AdmissionLimits { total: CONNECTIONS, per_address: PER_ADDRESS });
    let options = Arc::new(options());
    // It is answered to the end of the process, also while that drains.
    let (_never, drain) = DrainHandle::new();
    loop {
        let (stream, peer) = listener.accept().await;
        let state = Arc::new(ConnState::default());
        // Over the bound a connection is closed at once.
        let Some(place) = crowd.admit(peer.ip(), &state) else { continue };
        let (options, drain, answer, counted) = (options.clone(), drain.clone(), answer.clone(), counted());
        tasks.spawn(async move {
            let _counted = counted;
            let serving = serve(stream, options, drain, state, answer);
            tokio::select! {
                () = serving => {}
                () = place.is_lost() => {}
            }
        });
    }
}

async fn serve<F, A>(
    stream: tokio::net::TcpStream,
    options: Arc<ServeOptions>,
    drain: Drain,
    state: Arc<ConnState>,
    answer: F,
) where
    F: Fn(Request<Incoming>) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let on = state.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (guard, is_head) = (on.begin(), *request.method() == Method::HEAD);
        let is_h2 = request.version() == Version::HTTP_2;
        let answer = answer(request);
        async move {
            let (parts, body) = answer.await.into_parts();
            // For HTTP/2 nobody else leaves it out.
            let body = if is_head && is_h2 { Empty::new().boxed_unsync() } else { body };
            Ok::<_, Infallible>(Response::from_parts(parts, Counted { body, _answered: guard }))
        }
    });
    holdfast_net::serve(stream, options, drain, state, service).await;
}

/// The body of an answer. Until all of it is sent its request is being answered.
struct Counted {
    body: UnsyncBoxBody<Bytes, Infallible>,
    _answered: RequestGuard,
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

fn options() -> ServeOptions {
    ServeOptions {
        head_limits: HeadLimits { head: 64 * 1024, target: 16 * 1024, fields: 100 },
        streams: STREAMS,
        head: HEAD,
        idle: IDLE,
        max_age: None,
        drain_grace: Duration::ZERO,
        refusal: Arc::new(|violation| refused(&violation)),
    }
}

/// The whole answer to a head that is not even parsed.
fn refused(violation: &Violation) -> Bytes {
    let (status, title) = match violation.http_status() {
        431 => (431, "Request Header Fields Too Large"),
        _ => (400, "Bad Request"),
    };
    let body = json!({ "type": "about:blank", "title": title, "status": status, "detail": violation.to_string() });
    let body = body.to_string();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} {title}\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
    );
    (head + &body).into()
}
