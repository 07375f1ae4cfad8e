//! A stream of which somebody is told what comes and what becomes of what goes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Who is told.
pub trait Tap {
    /// These bytes have been read; none: the end.
    ///
    /// # Errors
    /// They are not to be read: the read fails so.
    fn read(&mut self, fresh: &[u8]) -> io::Result<()>;

    /// What became of a write.
    fn wrote(&mut self, _written: &Poll<io::Result<usize>>) {}
}

/// See the module.
#[derive(Debug)]
pub struct Tapped<S, T> {
    /// What was read before; whoever taps knows of it.
    first: BytesMut,
    stream: S,
    tap: T,
}

impl<S, T> Tapped<S, T> {
    /// From the stream's first byte on.
    pub fn new(stream: S, tap: T) -> Self {
        Self::after(BytesMut::new(), stream, tap)
    }

    /// A stream of which some bytes have been read already.
    pub fn after(first: BytesMut, stream: S, tap: T) -> Self {
        Self { first, stream, tap }
    }
}

impl<S: AsyncRead + Unpin, T: Tap + Unpin> AsyncRead for Tapped<S, T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.first.is_empty() {
            let give = this.first.len().min(buf.remaining());
            buf.put_slice(&this.first.split_to(give));
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        Poll::Ready(this.tap.read(&buf.filled()[before..]))
    }
}

impl<S: AsyncWrite + Unpin, T: Tap + Unpin> AsyncWrite for Tapped<S, T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.tap.wrote(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.tap.wrote(&written);
        written
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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[derive(Default)]
    struct Seen {
        read: Vec<u8>,
        writes: usize,
    }

    impl Tap for &mut Seen {
        fn read(&mut self, fresh: &[u8]) -> io::Result<()> {
            self.read.extend_from_slice(fresh);
            if fresh.contains(&b'!') { Err(io::Error::other("not that")) } else { Ok(()) }
        }

        fn wrote(&mut self, _: &Poll<io::Result<usize>>) {
            self.writes += 1;
        }
    }

    #[tokio::test]
    async fn what_was_read_before_comes_first_and_is_told_to_nobody() {
        let (mut far, near) = tokio::io::duplex(64);
        let mut seen = Seen::default();
        let mut tapped = Tapped::after(BytesMut::from(&b"first"[..]), near, &mut seen);
        far.write_all(b"then").await.unwrap();
        let mut all = [0; 9];
        tapped.read_exact(&mut all).await.unwrap();
        assert_eq!(&all, b"firstthen");
        tapped.write_all(b"out").await.unwrap();
        far.write_all(b"!").await.unwrap();
        assert!(tapped.read_u8().await.is_err(), "who taps may refuse what comes");
        drop(tapped);
        assert_eq!((seen.read.as_slice(), seen.writes), (&b"then!"[..], 1));
    }
}
