//! The body of an answer, and how it leaves: whole, in pieces with pauses, or cut off.
//!
//! The body owns the count of its request: a client that leaves while the answer is on its way is counted as one that left.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use crate::stats::Work;

/// How a body leaves. The default is at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivery {
    /// Pieces of at most so many bytes (at least 1), with a pause between them.
    pub chunks: Option<(usize, Duration)>,
    /// The connection breaks after so many bytes.
    pub cut: Option<u64>,
}

/// The connection is to break here.
#[derive(Debug, thiserror::Error)]
#[error("the answer is cut off by an injected fault")]
pub struct Cut;

/// Tells a connection to end with a reset rather than with an orderly close.
#[derive(Clone, Debug, Default)]
pub struct ResetFlag(Arc<AtomicBool>);

impl ResetFlag {
    /// Asks for a reset.
    pub fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether a reset was asked for.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The body of an answer.
#[derive(Debug, Default)]
pub struct AnswerBody {
    rest: Bytes,
    delivery: Delivery,
    pause: Option<Pin<Box<Sleep>>>,
    sent: u64,
    flushed: bool,
    reset: Option<ResetFlag>,
    work: Option<Work>,
}

impl AnswerBody {
    /// A body that leaves at once and counts for nothing.
    #[must_use]
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { rest: bytes.into(), ..Self::default() }
    }

    /// Ties the count of the request to the body's end.
    #[must_use]
    pub fn counting(mut self, work: Work) -> Self {
        self.work = Some(work);
        if self.is_end_stream() {
            self.settle();
        }
        self
    }

    /// Ends the count. It comes before the last bytes leave, so that a client that has its answer finds itself counted down.
    fn settle(&mut self) {
        if let Some(mut work) = self.work.take() {
            work.done();
        }
    }

    /// Sets how the body leaves. A cut beyond its end is none.
    #[must_use]
    pub fn delivered(mut self, mut delivery: Delivery, reset: Option<ResetFlag>) -> Self {
        delivery.cut = delivery.cut.filter(|cut| *cut < self.rest.len() as u64);
        self.delivery = delivery;
        self.reset = reset;
        self
    }

    fn take_piece(&mut self) -> Bytes {
        let mut size = self.rest.len();
        if let Some((chunk, pause)) = self.delivery.chunks {
            size = size.min(chunk.max(1));
            self.pause = Some(Box::pin(sleep(pause)));
        }
        if let Some(cut) = self.delivery.cut {
            size = size.min(usize::try_from(cut - self.sent).unwrap_or(usize::MAX));
        }
        self.sent += size as u64;
        self.rest.split_to(size)
    }

    fn break_off(&mut self, cx: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if !self.flushed {
            // A pending body makes the connection write out what it has; only then may it break.
            self.flushed = true;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Some(reset) = &self.reset {
            reset.raise();
        }
        // The client is told nothing more by this server's own choice, so it is not one that left.
        self.settle();
        Poll::Ready(Some(Err(Cut)))
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if self.delivery.cut.is_some_and(|cut| self.sent >= cut) {
            return self.break_off(cx);
        }
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        if let Some(pause) = &mut self.pause {
            std::task::ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        let piece = self.take_piece();
        if self.rest.is_empty() {
            self.settle();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.delivery.cut.is_none()
    }

    /// Exact unless the answer comes in pieces, which then has no length known beforehand, as with a stream.
    fn size_hint(&self) -> SizeHint {
        if self.delivery.chunks.is_some() { SizeHint::default() } else { SizeHint::with_exact(self.rest.len() as u64) }
    }
}
