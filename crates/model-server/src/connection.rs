//! One TCP connection, which can be made to end with a reset.
//!
//! A reset needs the socket's linger time set to zero before it is closed. The HTTP connection owns the socket, so the wish travels by a
//! flag that is looked at when the socket is dropped.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::body::ResetFlag;

/// A connection with a flag.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    reset: ResetFlag,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, reset: ResetFlag) -> Self {
        // Answers are small and written at once; without this, a delayed acknowledgement would be part of every measurement.
        if let Err(why) = stream.set_nodelay(true) {
            tracing::debug!(%why, "no-delay could not be set");
        }
        Self { stream, reset }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.reset.is_raised()
            && let Err(why) = self.stream.set_zero_linger()
        {
            tracing::warn!(%why, "the connection closes in order, though a reset was asked for");
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
