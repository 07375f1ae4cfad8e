//! A client's socket that tells when the client is gone, also while nobody reads from it.
//!
//! Who reads learns of the end by reading. A parser that has a second request in its buffer, or a body that nobody takes, does not read; the end
//! of the stream then stands behind bytes that it cannot be asked to take in without a bound. The kernel tells of it all the same.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

use crate::tls::Secured;

/// A client's connection.
enum Socket {
    /// Shared with `watch` only, so that it is this one's own again once that is dropped.
    Plain(Arc<TcpStream>),
    /// Its end behind unread bytes is seen by reading alone.
    Tls(Box<TlsStream<TcpStream>>),
    /// It has been handed over.
    Gone,
}

type Watch = Pin<Box<dyn Future<Output = ()> + Send>>;

/// See the module.
pub(crate) struct Watched {
    stream: Socket,
    watch: Option<Watch>,
    /// The last read found nothing: the reader is woken by whatever comes, an end too.
    reading: bool,
    /// The end has been seen, and nobody has read since.
    ended: bool,
}

impl Watched {
    pub(crate) fn new(stream: Secured) -> Self {
        let stream = match stream {
            Secured::Plain(stream) => Socket::Plain(Arc::new(stream)),
            Secured::Tls(stream) => Socket::Tls(stream),
        };
        Self { stream, watch: None, reading: false, ended: false }
    }

    /// Whether the client has ended its side, or the connection is broken, while nobody reads. If not, the task is woken to ask again when that
    /// is so. To be called at the end of each poll of the reader: one that was polled twice after the end and has not read waits for something
    /// else.
    pub(crate) fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        if self.ended || self.reading {
            return self.ended;
        }
        let Socket::Plain(stream) = &self.stream else { return false };
        let watch = self.watch.get_or_insert_with(|| Box::pin(ended(stream.clone())));
        if watch.as_mut().poll(cx).is_ready() {
            self.ended = true;
            self.watch = None;
            cx.waker().wake_by_ref();
        }
        false
    }

    /// Notes that the reader was given bytes that had been read before.
    pub(crate) fn note_read(&mut self) {
        (self.reading, self.ended) = (false, false);
    }

    /// Has the connection end in a reset when it is dropped.
    pub(crate) fn reset(&self) {
        // Without success it ends as connections do.
        let _ = match &self.stream {
            Socket::Plain(stream) => stream.set_zero_linger(),
            Socket::Tls(stream) => stream.get_ref().0.set_zero_linger(),
            Socket::Gone => Ok(()),
        };
    }

    /// The connection alone; from then on there is none here. None: it is in use.
    pub(crate) fn take(&mut self) -> Option<Secured> {
        self.watch = None;
        match std::mem::replace(&mut self.stream, Socket::Gone) {
            Socket::Plain(stream) => Arc::into_inner(stream).map(Secured::Plain),
            Socket::Tls(stream) => Some(Secured::Tls(stream)),
            Socket::Gone => None,
        }
    }

    fn socket(&mut self) -> io::Result<Either<'_>> {
        self.watch = None;
        match &mut self.stream {
            Socket::Plain(stream) => {
                let stream = Arc::get_mut(stream).map(Pin::new);
                stream.map(Either::Plain).ok_or_else(|| io::Error::other("the socket is in use"))
            }
            Socket::Tls(stream) => Ok(Either::Tls(Pin::new(&mut **stream))),
            Socket::Gone => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// Waits until nothing more can come from the socket than what the kernel has already.
#[cfg(any(target_os = "linux", target_os = "android"))]
async fn ended(stream: Arc<TcpStream>) {
    // The interest in urgent data, which the socket is not registered for, is also answered when the other side has closed. An interest in
    // plain data would be answered at once, by the bytes that nobody reads.
    let ready = stream.ready(tokio::io::Interest::PRIORITY).await;
    if ready.is_ok_and(|ready| !ready.is_read_closed()) {
        std::future::pending::<()>().await;
    }
}

/// Elsewhere only who reads learns of the end.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
async fn ended(_stream: Arc<TcpStream>) {
    std::future::pending::<()>().await;
}

/// The connection, to be read from or written to.
enum Either<'s> {
    Plain(Pin<&'s mut TcpStream>),
    Tls(Pin<&'s mut TlsStream<TcpStream>>),
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = match self.socket()? {
            Either::Plain(stream) => stream.poll_read(cx, buf),
            Either::Tls(stream) => stream.poll_read(cx, buf),
        };
        (self.reading, self.ended) = (read.is_pending(), false);
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.socket()? {
            Either::Plain(stream) => stream.poll_write(cx, buf),
            Either::Tls(stream) => stream.poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.socket()? {
            Either::Plain(stream) => stream.poll_write_vectored(cx, bufs),
            Either::Tls(stream) => stream.poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Socket::Plain(stream) => stream.is_write_vectored(),
            Socket::Tls(stream) => stream.is_write_vectored(),
            Socket::Gone => false,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            // A socket keeps nothing back.
            Socket::Plain(_) | Socket::Gone => Poll::Ready(Ok(())),
            Socket::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.socket()? {
            Either::Plain(stream) => stream.poll_shutdown(cx),
            Either::Tls(stream) => stream.poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, Watched) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, Watched::new(Secured::Plain(listener.accept().await.unwrap().0)))
    }

    async fn gone(watched: &mut Watched) -> bool {
        let told = poll_fn(|cx| if watched.is_gone(cx) { Poll::Ready(()) } else { Poll::Pending });
        tokio::time::timeout(Duration::from_secs(10), told).await.is_ok()
    }

    /// Whether it is gone as far as is known at this moment.
    async fn gone_now(watched: &mut Watched) -> bool {
        poll_fn(|cx| Poll::Ready(watched.is_gone(cx))).await
    }

    #[tokio::test]
    async fn an_end_behind_unread_bytes_is_seen_and_the_bytes_are_kept() {
        for resets in [false, true] {
            let (mut client, mut watched) = pair().await;
            client.write_all(b"first").await.unwrap();
            let mut bytes = [0; 5];
            watched.read_exact(&mut bytes).await.unwrap();
            assert!(!gone_now(&mut watched).await);
            client.write_all(b"second").await.unwrap();
            assert!(!gone_now(&mut watched).await);
            // Written to in between, it is watched on.
            watched.write_all(b"answer").await.unwrap();
            assert!(!gone_now(&mut watched).await);
            if resets {
                client.set_zero_linger().unwrap();
            } else {
                client.read_exact(&mut [0; 6]).await.unwrap();
            }
            drop(client);
            assert!(gone(&mut watched).await, "resets: {resets}");
            if !resets {
                let mut rest = Vec::new();
                watched.read_to_end(&mut rest).await.unwrap();
                assert_eq!(rest, b"second");
                assert!(!gone_now(&mut watched).await, "whoever reads finds the end by itself");
            }
        }
    }

    #[tokio::test]
    async fn who_reads_is_told_by_reading() {
        let (client, mut watched) = pair().await;
        let waits = poll_fn(|cx| {
            let mut bytes = [0; 8];
            let mut buf = ReadBuf::new(&mut bytes);
            Poll::Ready(Pin::new(&mut watched).poll_read(cx, &mut buf).is_pending())
        });
        assert!(waits.await, "nothing has been sent");
        drop(client);
        assert_eq!(watched.read(&mut [0; 8]).await.unwrap(), 0);
    }
}
