//! One client connection from its first byte to its end: HTTP/1.1 or HTTP/2 by what the client sends, deadlines for each phase, drain.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use holdfast_codec::framing::{HeadLimits, Monitor, Phase};
use holdfast_codec::h2::Frames;

use crate::conn::ConnState;
use crate::drain::Drain;
use crate::guard::{Guarded, Refusal};
use crate::keep::keep;
use crate::tap::{Tap, Tapped};
use crate::tls::Secured;
use crate::watched::Watched;

/// Bounds and times of a listener's connections.
#[derive(Clone)]
pub struct ServeOptions {
    /// Bounds of a request head.
    pub head_limits: HeadLimits,
    /// Concurrent streams of an HTTP/2 connection.
    pub streams: u32,
    /// From the first byte of a head to its last.
    pub head: Duration,
    /// How long a connection may have no request, and how long a client may take nothing of an answer.
    pub idle: Duration,
    /// Age at which a connection is asked to go away.
    pub max_age: Option<Duration>,
    /// Whether connections, and streams of HTTP/2, may be handed over to another protocol.
    pub upgrades: bool,
    /// How long a connection without a request is still kept when a drain starts, so that a request on its way is answered, with `close`.
    pub drain_grace: Duration,
    /// The answer to a head that is refused before it is parsed.
    pub refusal: Refusal,
}

/// How much more than its bound an HTTP/2 head may have before the library refuses it, which it does without a word, and at four times that
/// by ending the connection with all its streams. In between, the service answers for the one request.
const H2_HEAD_ROOM: usize = 4;

const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves one connection until it ends. Errors of the connection end it and are nobody's business.
///
/// The service is given requests; `state` is what it counts them in ([`ConnState::begin`]).
///
/// # Cancel safety
/// Dropping the future closes the connection and drops the requests in flight on it.
pub async fn serve<S, B>(
    mut stream: Secured,
    options: Arc<ServeOptions>,
    drain: Drain,
    state: Arc<ConnState>,
    service: S,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Some((first, is_h2)) = sniff(&mut stream, &options, &state, drain.clone()).await else { return };
    if is_h2 {
        serve_h2(stream, first, options, drain, state, service).await;
    } else {
        serve_h1(stream, first, options, drain, state, service).await;
    }
}

/// Reads until it is clear which protocol this is. None if the client left first, or took too long.
///
/// The first byte begins a head, of whatever protocol, and the time for a head runs from there on. Once the process drains a first byte that is under
/// way has the grace of idle connections, and no more.
async fn sniff(
    stream: &mut Secured,
    options: &ServeOptions,
    state: &ConnState,
    mut drain: Drain,
) -> Option<(BytesMut, bool)> {
    let mut first = BytesMut::with_capacity(1024);
    let silent = Instant::now() + options.idle.min(options.head);
    let mut last: Option<Instant> = None;
    loop {
        let until = state.deadline(options.head, options.idle).filter(|_| !first.is_empty()).unwrap_or(silent);
        let until = last.map_or(until, |last| last.min(until));
        let read = tokio::select! {
            biased;
            read = tokio::time::timeout_at(until, stream.read_buf(&mut first)) => read,
            () = drain.wait(), if last.is_none() => {
                last = Some(Instant::now() + options.drain_grace);
                continue;
            }
        };
        if read.ok()?.ok()? == 0 {
            return None;
        }
        state.set_phase(Phase::Head);
        let common = first.iter().zip(H2_PREFACE).take_while(|(a, b)| a == b).count();
        if common == H2_PREFACE.len() {
            state.leave_head();
            return Some((first, true));
        }
        if common < first.len() {
            return Some((first, false));
        }
    }
}

async fn serve_h1<S, B>(
    stream: Secured,
    first: BytesMut,
    options: Arc<ServeOptions>,
    drain: Drain,
    state: Arc<ConnState>,
    service: S,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let monitor = Monitor::new(options.head_limits);
    let io = TokioIo::new(Guarded::new(Watched::new(stream), first, monitor, state.clone(), options.refusal.clone()));
    let mut builder = http1::Builder::new();
    // The keeper has the deadlines; the parser's own would count idle time as part of a head. `pipeline_flush` stays off: it buffers answers
    // without a bound, and forgets those that are not written yet when the connection closes with bytes unread.
    builder.header_read_timeout(None).max_headers(options.head_limits.fields.max(1));
    builder.max_buf_size((options.head_limits.head * 2).max(64 * 1024));
    let conn = builder.serve_connection(io, service);
    if options.upgrades {
        keep(pin!(conn.with_upgrades()), |conn| conn.graceful_shutdown(), &options, drain, &state, true).await;
    } else {
        keep(pin!(conn), |conn| conn.graceful_shutdown(), &options, drain, &state, true).await;
    }
}

async fn serve_h2<S, B>(
    stream: Secured,
    first: BytesMut,
    options: Arc<ServeOptions>,
    drain: Drain,
    state: Arc<ConnState>,
    service: S,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(options.streams)
        .max_header_list_size(u32::try_from(options.head_limits.head.saturating_mul(H2_HEAD_ROOM)).unwrap_or(u32::MAX))
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    if options.upgrades {
        builder.enable_connect_protocol();
    }
    let mut frames = Frames::default();
    frames.feed(first.get(H2_PREFACE.len()..).unwrap_or_default());
    if frames.is_refused() {
        // A GOAWAY may be left out (RFC 9113, 3.4): whoever speaks so is no client of HTTP/2.
        return;
    }
    state.set_owing(frames.is_owing());
    let io = TokioIo::new(Tapped::after(first, stream, Watch { state: state.clone(), frames }));
    let conn = pin!(builder.serve_connection(io, service));
    keep(conn, |conn| conn.graceful_shutdown(), &options, drain, &state, false).await;
}

/// Follows what an HTTP/2 client sends after the preface, and whether it takes what it is sent.
struct Watch {
    state: Arc<ConnState>,
    frames: Frames,
}

impl Tap for Watch {
    fn read(&mut self, fresh: &[u8]) -> io::Result<()> {
        if self.frames.feed(fresh) {
            self.state.set_owing(false);
        }
        if self.frames.is_refused() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the first frame is no settings"));
        }
        self.state.set_owing(self.frames.is_owing());
        Ok(())
    }

    fn wrote(&mut self, written: &Poll<io::Result<usize>>) {
        self.state.note_write(written);
    }
}
