//! A client connection, or one stream of it, that has been handed over to another protocol: bytes both ways, and no more HTTP.
//!
//! Of an HTTP/1.1 connection the TCP socket is taken out of all layers that were around it, so that what is idle is a socket and nothing else.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::guard::Guarded;
use crate::tls::Secured;

/// See the module.
pub struct Socket {
    /// What was read before the handing over.
    first: Bytes,
    io: Io,
}

enum Io {
    Tcp(Secured),
    Stream(Box<TokioIo<Upgraded>>),
}

impl Socket {
    /// Waits until the connection is handed over. None: it ended first.
    pub async fn of(on: OnUpgrade) -> Option<Self> {
        let upgraded = on.await.ok()?;
        match upgraded.downcast::<TokioIo<Guarded>>() {
            Ok(parts) => {
                let (stream, held) = parts.io.into_inner().into_parts()?;
                let mut first = BytesMut::from(&parts.read_buf[..]);
                first.extend_from_slice(&held);
                Some(Self { first: first.freeze(), io: Io::Tcp(stream) })
            }
            Err(upgraded) => Some(Self { first: Bytes::new(), io: Io::Stream(Box::new(TokioIo::new(upgraded))) }),
        }
    }

    /// A connection that was opened from here.
    #[must_use]
    pub const fn of_tcp(stream: TcpStream, first: Bytes) -> Self {
        Self { first, io: Io::Tcp(Secured::Plain(stream)) }
    }

    /// Waits until there may be something to read, without a buffer to read into. Only TCP in the clear can be asked that.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.io {
            Io::Tcp(Secured::Plain(stream)) if self.first.is_empty() => stream.poll_read_ready(cx),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let give = self.first.len().min(buf.remaining());
            buf.put_slice(&self.first[..give]);
            self.first.advance(give);
            return Poll::Ready(Ok(()));
        }
        match &mut self.io {
            Io::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Io::Stream(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Io::Stream(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Io::Stream(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Io::Stream(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
