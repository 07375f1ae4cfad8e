//! One client connection from its first byte to its end: HTTP/1.1 or HTTP/2 by what the client sends, deadlines for each phase, drain.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;

use holdfast_codec::framing::{HeadLimits, Monitor};

use crate::conn::ConnState;
use crate::drain::Drain;
use crate::guard::{Guarded, Refusal};

/// Bounds and times of a listener's connections.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Bounds of a request head.
    pub head_limits: HeadLimits,
    /// Concurrent streams of an HTTP/2 connection.
    pub streams: u32,
    /// From the first byte of a head to its last.
    pub head: Duration,
    /// How long a connection may have no request.
    pub idle: Duration,
    /// Age at which a connection is asked to go away.
    pub max_age: Option<Duration>,
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
    mut stream: TcpStream,
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
    let sniffed = tokio::time::timeout(options.idle.min(options.head), sniff(&mut stream)).await;
    let Ok(Some((first, is_h2))) = sniffed else { return };
    if is_h2 {
        serve_h2(stream, first, options, drain, state, service).await;
    } else {
        serve_h1(stream, first, options, drain, state, service).await;
    }
}

/// Reads until it is clear which protocol this is. None if the client left first.
async fn sniff(stream: &mut TcpStream) -> Option<(BytesMut, bool)> {
    let mut first = BytesMut::with_capacity(1024);
    loop {
        if stream.read_buf(&mut first).await.ok()? == 0 {
            return None;
        }
        let common = first.iter().zip(H2_PREFACE).take_while(|(a, b)| a == b).count();
        if common == H2_PREFACE.len() {
            return Some((first, true));
        }
        if common < first.len() {
            return Some((first, false));
        }
    }
}

async fn serve_h1<S, B>(
    stream: TcpStream,
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
    let io = TokioIo::new(Guarded::new(stream, first, monitor, state.clone(), options.refusal));
    let mut builder = http1::Builder::new();
    // The keeper has the deadlines; the parser's own would count idle time as part of a head. `pipeline_flush` stays off: it buffers answers
    // without a bound, and forgets those that are not written yet when the connection closes with bytes unread.
    builder.header_read_timeout(None).max_headers(options.head_limits.fields.max(1));
    builder.max_buf_size((options.head_limits.head * 2).max(64 * 1024));
    let conn = pin!(builder.serve_connection(io, service));
    keep(conn, |conn| conn.graceful_shutdown(), &options, drain, &state, true).await;
}

async fn serve_h2<S, B>(
    stream: TcpStream,
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
    let io = TokioIo::new(Prefixed { first, stream });
    let conn = pin!(builder.serve_connection(io, service));
    keep(conn, |conn| conn.graceful_shutdown(), &options, drain, &state, false).await;
}

/// Drives a connection and ends it when its time has come.
///
/// The timer is not touched for a request: it stands at the earliest moment at which something could be due, and what is due is worked out
/// when it fires. It is brought forward only when a head begins and does not end in the same read.
async fn keep<C, E>(
    mut conn: Pin<&mut C>,
    shut: impl Fn(Pin<&mut C>),
    options: &ServeOptions,
    mut drain: Drain,
    state: &ConnState,
    is_h1: bool,
) where
    C: Future<Output = Result<(), E>>,
{
    let seen = drain.clone();
    let mut draining = pin!(drain.wait());
    let mut keeper = Keeper { options, state, is_h1, drain_since: None, shut_since: None, armed_for_head: false };
    let now = Instant::now();
    let mut timer = pin!(tokio::time::sleep_until(keeper.next_look(now, state.deadline(options.head, options.idle))));
    let mut first = true;
    poll_fn(|cx: &mut Context<'_>| {
        if conn.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if first {
            // Registers this task with both; they wake it whichever poll came last.
            first = false;
            let _ = draining.as_mut().poll(cx);
            let _ = timer.as_mut().poll(cx);
        }
        while keeper.must_look(seen.started()) || timer.is_elapsed() {
            match keeper.look(Instant::now(), seen.started()) {
                Verdict::Kill => return Poll::Ready(()),
                Verdict::Shut(again) => {
                    shut(conn.as_mut());
                    timer.as_mut().reset(again);
                    if conn.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(());
                    }
                }
                Verdict::Wait(again) => timer.as_mut().reset(again),
            }
            let _ = timer.as_mut().poll(cx);
        }
        Poll::Pending
    })
    .await;
}

enum Verdict {
    /// End the connection now.
    Kill,
    /// Let the connection finish its requests and end; look again then.
    Shut(Instant),
    /// Look again then.
    Wait(Instant),
}

/// How long a connection whose requests are done may take to close.
const CLOSING: Duration = Duration::from_secs(5);

struct Keeper<'a> {
    options: &'a ServeOptions,
    state: &'a ConnState,
    is_h1: bool,
    drain_since: Option<Instant>,
    shut_since: Option<Instant>,
    armed_for_head: bool,
}

impl Keeper<'_> {
    /// Whether something has happened that the timer does not know of.
    fn must_look(&self, draining: bool) -> bool {
        self.shut_since.is_none()
            && (self.state.is_refusal_due()
                || (draining && self.drain_since.is_none())
                || (self.state.is_reading_head() && !self.armed_for_head))
    }

    fn look(&mut self, now: Instant, draining: bool) -> Verdict {
        if let Some(since) = self.shut_since {
            let stuck = self.state.active() == 0 && now >= since + CLOSING;
            return if stuck { Verdict::Kill } else { Verdict::Wait(now + CLOSING) };
        }
        self.armed_for_head = self.state.is_reading_head();
        if draining && self.drain_since.is_none() {
            self.drain_since = Some(now);
            self.state.set_closing();
        }
        let quiet = self.state.deadline(self.options.head, self.options.idle);
        let quiet = match self.drain_since {
            // A connection without a request is kept for the grace only.
            Some(since) => quiet.map(|at| at.min(since + self.options.drain_grace)),
            None => quiet,
        };
        let too_old = self.options.max_age.is_some_and(|most| self.state.age() >= most);
        if too_old {
            // In HTTP/1.1 the next answer says so: a request may be on its way.
            self.state.set_closing();
        }
        let leave = self.state.is_refusal_due() || (!self.is_h1 && (too_old || self.drain_since.is_some()));
        match quiet {
            // In the middle of a head there is nothing to finish.
            Some(at) if at <= now && self.armed_for_head => Verdict::Kill,
            Some(at) if at <= now => self.shut(now),
            _ if leave => self.shut(now),
            _ => Verdict::Wait(self.next_look(now, quiet)),
        }
    }

    fn shut(&mut self, now: Instant) -> Verdict {
        self.shut_since = Some(now);
        Verdict::Shut(now + CLOSING)
    }

    fn next_look(&self, now: Instant, quiet: Option<Instant>) -> Instant {
        // While a request is being answered nothing is due, but its end may make the grace of a drain due.
        let idle = quiet.unwrap_or(now + self.drain_since.map_or(self.options.idle, |_| Duration::from_millis(100)));
        let young = self.options.max_age.filter(|_| !self.state.is_closing());
        let age = young.map(|most| now + most.saturating_sub(self.state.age()));
        age.map_or(idle, |at| idle.min(at))
    }
}

/// A stream some of whose bytes have been read already.
struct Prefixed {
    first: BytesMut,
    stream: TcpStream,
}

impl AsyncRead for Prefixed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let give = self.first.len().min(buf.remaining());
        buf.put_slice(&self.first.split_to(give));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Prefixed {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
