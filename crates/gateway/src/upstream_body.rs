//! The body of a request to a replica: whole, so that it can be sent again, or streaming through.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use holdfast_telemetry::SharedDigest;
use holdfast_types::{Failure, FailureKind};

/// See the module.
pub enum UpstreamBody {
    /// Nothing left, or nothing at all.
    Done,
    /// All of it.
    Whole(Bytes),
    /// As it comes from the client.
    Stream(Box<ClientStream>),
}

/// What went wrong on the client's side while its body streamed through, and how much of it came.
#[derive(Debug, Default)]
pub struct ClientFault {
    fault: Mutex<Option<Failure>>,
    bytes: std::sync::atomic::AtomicU64,
    owes: std::sync::atomic::AtomicBool,
    all: std::sync::atomic::AtomicBool,
}

impl ClientFault {
    /// What went wrong, if anything did.
    pub fn take(&self) -> Option<Failure> {
        self.fault.lock().take()
    }

    /// Bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Whether all of the body has been given out.
    pub fn has_all(&self) -> bool {
        self.all.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Whether more of the body was wanted than the client had sent when it was last asked for.
    pub fn owes(&self) -> bool {
        self.owes.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// A client's body on its way through.
pub struct ClientStream {
    first: Bytes,
    rest: Incoming,
    left: u64,
    idle: Duration,
    timer: Pin<Box<Sleep>>,
    fault: Arc<ClientFault>,
    digest: Option<SharedDigest>,
}

impl ClientStream {
    /// `first` has been read already; at most `left` bytes may follow it, with pauses of at most `idle`.
    pub fn new(first: Bytes, rest: Incoming, left: u64, idle: Duration, fault: Arc<ClientFault>) -> Self {
        fault.bytes.store(first.len() as u64, std::sync::atomic::Ordering::Relaxed);
        let timer = Box::pin(tokio::time::sleep(idle));
        Self { first, rest, left, idle, timer, fault, digest: None }
    }

    /// Has a digest taken of all that goes by from here on.
    pub fn digest(&mut self) -> SharedDigest {
        self.digest.get_or_insert_default().clone()
    }

    fn is_over(&self) -> bool {
        let is_over = self.first.is_empty() && self.rest.is_end_stream();
        if is_over {
            // Nobody asks for it again.
            self.fault.all.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        is_over
    }

    fn passes(&self, data: Bytes) -> Frame<Bytes> {
        // Of one whose length was told, nobody asks for the end.
        if self.rest.is_end_stream() || self.rest.size_hint().exact() == Some(0) {
            self.fault.all.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        if let Some(digest) = &self.digest {
            digest.lock().update(&data, false);
        }
        Frame::data(data)
    }

    fn fail(&self, failure: Failure) -> BodyError {
        *self.fault.fault.lock() = Some(failure);
        BodyError
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            return Poll::Ready(Some(Ok(self.passes(first))));
        }
        loop {
            let polled = Pin::new(&mut self.rest).poll_frame(cx);
            self.fault.owes.store(polled.is_pending(), std::sync::atomic::Ordering::Relaxed);
            let frame = match polled {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(None) => {
                    self.fault.all.store(true, std::sync::atomic::Ordering::Relaxed);
                    return Poll::Ready(None);
                }
                Poll::Ready(Some(Err(_))) => {
                    let cut = Failure::new(FailureKind::BadRequest, "the request body is malformed or cut short");
                    return Poll::Ready(Some(Err(self.fail(cut))));
                }
                Poll::Pending => {
                    std::task::ready!(self.timer.as_mut().poll(cx));
                    return Poll::Ready(Some(Err(self.fail(slow_body()))));
                }
            };
            // Trailers of a request mean nothing to a model server.
            let Ok(data) = frame.into_data() else { continue };
            let length = data.len() as u64;
            if length > self.left {
                return Poll::Ready(Some(Err(self.fail(too_large()))));
            }
            self.left -= length;
            self.fault.bytes.fetch_add(length, std::sync::atomic::Ordering::Relaxed);
            self.timer.as_mut().reset(Instant::now() + self.idle);
            return Poll::Ready(Some(Ok(self.passes(data))));
        }
    }
}

/// The failure of a body over its bound.
pub fn too_large() -> Failure {
    Failure::new(FailureKind::TooLarge, "the request body is larger than the gateway accepts")
}

/// The failure of a body that does not come.
pub fn slow_body() -> Failure {
    Failure::new(FailureKind::BadRequest, "the request body did not arrive in time").with_status(408)
}

/// The client's side failed; [`ClientFault`] knows how.
#[derive(Debug, thiserror::Error)]
#[error("the client's body ended early")]
pub struct BodyError;

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match &mut *self {
            Self::Done => Poll::Ready(None),
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                *self = Self::Done;
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Stream(stream) => stream.poll(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Done => true,
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Stream(stream) => stream.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Done => SizeHint::with_exact(0),
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(stream) => {
                let first = stream.first.len() as u64;
                stream.rest.size_hint().exact().map_or_else(SizeHint::new, |rest| SizeHint::with_exact(first + rest))
            }
        }
    }
}
