//! A client connection whose bytes are checked before the HTTP/1.1 parser sees them.
//!
//! Bytes go straight into the parser's buffer; only the beginning of a head whose end has not come is held back. At a head that breaks a rule the
//! reader gives nothing more, and when the parser closes the connection the refusal is written in its place. So the parser never sees a
//! refused head, and requests before it on the connection are answered as if it were not there.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use holdfast_codec::framing::{Monitor, Phase, Violation};

use crate::conn::ConnState;
use crate::tls::Secured;
use crate::watched::Watched;

/// Makes the whole answer to a refused head, status line included.
pub type Refusal = Arc<dyn Fn(Violation) -> Bytes + Send + Sync>;

/// The checked connection.
pub(crate) struct Guarded {
    stream: Watched,
    monitor: Monitor,
    state: Arc<ConnState>,
    /// Bytes read but not released: an unfinished head, or what was read before the protocol was known.
    held: BytesMut,
    /// How many bytes at the front of `held` are released.
    released: usize,
    refusal: Refusal,
    answer: Option<Bytes>,
    linger: Option<Linger>,
}

/// How long, and for how many bytes, a connection is read on after its last answer.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 1 << 20;

struct Linger {
    until: Pin<Box<Sleep>>,
    left: usize,
}

impl Guarded {
    pub(crate) fn new(
        stream: Watched,
        first: BytesMut,
        monitor: Monitor,
        state: Arc<ConnState>,
        refusal: Refusal,
    ) -> Self {
        let mut this = Self { stream, monitor, state, held: first, released: 0, refusal, answer: None, linger: None };
        this.check_held();
        this
    }

    fn check_held(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let release = self.monitor.feed(&self.held);
        self.released = release.bytes;
        self.note(release.violation, release.bytes < self.held.len());
    }

    fn note(&mut self, violation: Option<Violation>, holding: bool) {
        self.state.set_phase(self.monitor.phase(holding));
        if let Some(violation) = violation {
            self.answer = Some((self.refusal)(violation));
            self.state.set_refused(self.monitor.heads());
        }
    }

    fn give_released(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let give = self.released.min(buf.remaining());
        if give == 0 {
            return false;
        }
        buf.put_slice(&self.held[..give]);
        self.held.advance(give);
        self.released -= give;
        true
    }

    /// Reads behind an unfinished head.
    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut scratch = [0u8; 2048];
        let mut read = ReadBuf::new(&mut scratch);
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
        if read.filled().is_empty() {
            return Poll::Ready(Ok(false));
        }
        self.held.extend_from_slice(read.filled());
        self.check_held();
        Poll::Ready(Ok(true))
    }

    /// Reads into the parser's buffer and takes back what is not released.
    fn poll_direct(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let fresh = &buf.filled()[before..];
        if fresh.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let release = self.monitor.feed(fresh);
        let holding = release.bytes < fresh.len();
        if holding {
            self.held.extend_from_slice(&fresh[release.bytes..]);
            self.released = 0;
        }
        buf.set_filled(before + release.bytes);
        self.note(release.violation, holding);
        Poll::Ready(Ok(()))
    }

    fn poll_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(answer) = self.answer.as_mut() {
            let written = std::task::ready!(Pin::new(&mut self.stream).poll_write(cx, answer))?;
            answer.advance(written);
            if written == 0 || answer.is_empty() {
                self.answer = None;
            }
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }
}

impl Guarded {
    /// The socket, and what was read and not given. None: the socket is in use.
    pub(crate) fn into_parts(mut self) -> Option<(Secured, BytesMut)> {
        Some((self.stream.take()?, std::mem::take(&mut self.held)))
    }

    /// Reads on for a while after the last answer when the client may still be sending: a socket that is closed with bytes unread resets the
    /// connection, and the reset can overtake the answer (RFC 9112, 9.6).
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut scratch = [0u8; 8192];
        let linger = self.linger.get_or_insert_with(|| Linger { until: Box::pin(sleep(LINGER)), left: LINGER_BYTES });
        while linger.left > 0 && linger.until.as_mut().poll(cx).is_pending() {
            let mut read = ReadBuf::new(&mut scratch);
            let ended = std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read)).is_err();
            if ended || read.filled().is_empty() {
                break;
            }
            linger.left = linger.left.saturating_sub(read.filled().len());
        }
        Poll::Ready(Ok(()))
    }
}

/// An answer to HTTP/1.0 that came in pieces ends where the connection does. One that broke off must not look whole.
impl Drop for Guarded {
    fn drop(&mut self) {
        if self.state.must_reset() {
            self.stream.reset();
        }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.give_released(buf) {
                this.stream.note_read();
                return Poll::Ready(Ok(()));
            }
            if this.monitor.is_broken() {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "malformed chunk")));
            }
            if this.state.is_refused() {
                // The keeper shuts the connection down once the requests before are answered; it polls after every read.
                return Poll::Pending;
            }
            if this.held.is_empty() {
                let before = buf.filled().len();
                std::task::ready!(this.poll_direct(cx, buf))?;
                if buf.filled().len() > before || (this.held.is_empty() && !this.state.is_refused()) {
                    return Poll::Ready(Ok(()));
                }
            } else if !std::task::ready!(this.poll_more(cx))? {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.state.note_write(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.state.note_write(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// The parser flushes at the end of each of its polls. That is when it is known whether it waits for bytes, and with them for the end.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.state.active() > 0 && self.stream.is_gone(cx) {
            self.state.set_gone();
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            if self.state.is_refusal_due() {
                std::task::ready!(self.poll_refusal(cx))?;
            }
            std::task::ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            let is_quiet = self.monitor.phase(false) == Phase::Idle && !self.state.is_refused();
            if is_quiet {
                return Poll::Ready(Ok(()));
            }
        }
        self.poll_linger(cx)
    }
}
