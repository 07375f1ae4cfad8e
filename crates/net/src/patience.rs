//! A connection to a replica that bounds what comes before an answer's head.
//!
//! A server may send any number of interim answers (RFC 9110, 15.2), and the parser takes them one after the other without a word. One that sends them
//! without an end would keep a worker from all others' requests.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Most bytes until an answer's head has been read: that head, with what of the body comes in the same reads, and thousands of interim answers.
const MOST: u64 = 1 << 20;
/// No head is waited for.
const ANY: u64 = u64::MAX;

/// How many bytes a connection may still read. Shared by the connection and whoever uses it.
#[derive(Debug)]
pub(crate) struct Patience(AtomicU64);

impl Default for Patience {
    fn default() -> Self {
        Self(AtomicU64::new(ANY))
    }
}

impl Patience {
    /// A request is being sent.
    pub(crate) fn begin(&self) {
        self.0.store(MOST, Relaxed);
    }

    /// The head of its answer is there.
    pub(crate) fn end(&self) {
        self.0.store(ANY, Relaxed);
    }

    fn takes(&self, bytes: usize) -> bool {
        let left = self.0.load(Relaxed);
        if left == ANY {
            return true;
        }
        let after = left.checked_sub(bytes as u64);
        self.0.store(after.unwrap_or(0), Relaxed);
        after.is_some()
    }
}

/// See the module.
pub(crate) struct Patient {
    stream: TcpStream,
    patience: Arc<Patience>,
}

impl Patient {
    pub(crate) fn new(stream: TcpStream, patience: Arc<Patience>) -> Self {
        Self { stream, patience }
    }
}

impl AsyncRead for Patient {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        std::task::ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        if !self.patience.takes(buf.filled().len() - before) {
            let why = "too much before the head of the answer";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Patient {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
