//! One client connection: each request on it becomes an exchange, goes through the stages and is answered; a head that is refused before it is
//! a request is answered too.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpStream;

use holdfast_codec::framing::Violation;
use holdfast_codec::oip;
use holdfast_net::tls::{Peer, Secured};
use holdfast_net::{ConnState, ServeOptions};
use holdfast_telemetry::GatewayMetrics;
use holdfast_types::FailureKind;

use crate::body::AnswerBody;
use crate::exchange::Exchange;
use crate::server::Gateway;
use crate::stage::flow::{self, Entered};
use crate::stream::{self, Home};

/// Serves a connection until it ends.
pub async fn serve_connection(gateway: Arc<Gateway>, home: Arc<Home>, stream: TcpStream, peer: SocketAddr) {
    // A handshake, if there is one, is a large future of few connections' beginning.
    let (stream, known) = match gateway.data_entrance.certificates() {
        None => (Secured::Plain(stream), None),
        Some(_) => match enter(&gateway, stream).await {
            Some(entered) => entered,
            None => return,
        },
    };
    let options = serve_options(&gateway);
    let state = Arc::new(ConnState::default());
    let drain = gateway.drain.clone();
    let on = state.clone();
    let client: Arc<str> = peer.to_string().into();
    let service = service_fn(move |request: Request<Incoming>| {
        let asked = AskedHow {
            is_h1: request.version() < http::Version::HTTP_2,
            is_head: request.method() == http::Method::HEAD,
        };
        if request.version() < http::Version::HTTP_11 {
            on.set_ends_by_close();
        }
        let mut exchange = Exchange::begin(gateway.clone(), home.worker.request_id(), Some(client.clone()), on.begin());
        exchange.peer.clone_from(&known);
        // What can be done at once is done before there is a future, so that the future, of which each connection has one, is small.
        let entered = flow::enter(Box::new(exchange), request);
        answer(entered, asked, home.clone(), on.clone())
    });
    holdfast_net::serve(stream, Arc::new(options), drain, state, service).await;
}

/// Through the handshake of TLS, unless the process drains before its end.
async fn enter(gateway: &Gateway, stream: TcpStream) -> Option<(Secured, Option<Arc<Peer>>)> {
    let mut drain = gateway.drain.clone();
    let entered = tokio::select! {
        biased;
        entered = Box::pin(gateway.data_entrance.enter(stream)) => entered,
        () = drain.wait() => return None,
    };
    if entered.is_none() {
        gateway.metrics.connections_refused.get(["tls"]).inc();
    }
    entered
}

pub(crate) async fn answer(
    entered: Entered,
    asked: AskedHow,
    home: Arc<Home>,
    on: Arc<ConnState>,
) -> Result<Response<AnswerBody>, Infallible> {
    let entered = match entered {
        Entered::Early(early) => Box::pin(flow::enter_later(early)).await,
        entered => entered,
    };
    let mut response = match entered {
        Entered::Answered(response) => *response,
        Entered::Token(call) => Box::pin(crate::tokens::give(call)).await,
        Entered::Outcomes(call) => Box::pin(crate::results::tell(call)).await,
        Entered::Routed(call) => flow::serve(call, home.worker.clone()).await,
        Entered::Opens(opening) => return Ok(Box::pin(stream::open(opening, home, on)).await),
        // Once it has been waited for, it is one of the others.
        Entered::Early(early) => flow::refused(early),
    };
    if asked.is_head {
        response = without_body(response);
    }
    if !asked.is_h1 {
        response = response.map(|body| body.offered(on.offer()));
    }
    if asked.is_h1 && on.is_closing() {
        response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// What of a request decides over the form of its answer.
#[derive(Clone, Copy)]
pub(crate) struct AskedHow {
    pub(crate) is_h1: bool,
    pub(crate) is_head: bool,
}

/// The answer to HEAD: the length is told, the body is not sent. For HTTP/2 nobody else leaves it out.
fn without_body(response: Response<AnswerBody>) -> Response<AnswerBody> {
    let (mut parts, body) = response.into_parts();
    if let Some(length) = http_body::Body::size_hint(&body).exact() {
        parts.headers.insert(http::header::CONTENT_LENGTH, length.into());
    }
    Response::from_parts(parts, body.emptied())
}

fn serve_options(gateway: &Gateway) -> ServeOptions {
    let table = gateway.tables.load();
    let metrics = gateway.metrics.clone();
    let times = &table.config.timeouts;
    ServeOptions {
        head_limits: table.settings.head_limits,
        streams: table.config.limits.streams_per_connection,
        head: times.head,
        idle: times.keepalive_idle,
        upgrades: table.settings.stream.is_some(),
        max_age: times.connection_max_age,
        drain_grace: (times.drain / 4).min(Duration::from_secs(2)),
        refusal: Arc::new(move |violation| refuse_head(&metrics, violation)),
    }
}

/// The whole answer to a head that is not even parsed. It is no request, but an error to be counted.
fn refuse_head(metrics: &GatewayMetrics, violation: Violation) -> Bytes {
    let (kind, status) = match violation.http_status() {
        431 => (FailureKind::TooLarge, "431 Request Header Fields Too Large"),
        _ => (FailureKind::BadRequest, "400 Bad Request"),
    };
    metrics.error(kind);
    raw_answer(status, kind, &violation.to_string(), "")
}

/// A whole HTTP/1.1 answer, for those who get no other.
pub(crate) fn raw_answer(status: &str, kind: FailureKind, detail: &str, fields: &str) -> Bytes {
    let body = oip::error_body(kind.as_str(), detail);
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\
         x-holdfast-error: {}\r\n{fields}\r\n",
        body.len(),
        kind.as_str()
    );
    [head.into_bytes(), body].concat().into()
}

#[cfg(test)]
mod tests;
