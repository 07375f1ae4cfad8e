//! The body of an answer to a client. It carries the exchange, which is settled when the body is dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use holdfast_net::Offer;

use crate::answer::Passing;
use crate::exchange::Exchange;

/// See the module.
pub struct AnswerBody {
    kind: Kind,
    exchange: Option<Box<Exchange>>,
    /// Over HTTP/2.
    offer: Option<Offer>,
}

enum Kind {
    Whole(Bytes),
    Passing(Box<Passing>),
}

/// The answer was cut: the connection must not end as if it were complete.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut: {0}")]
pub struct CutError(pub &'static str);

impl AnswerBody {
    /// All of it.
    pub fn whole(bytes: Bytes, exchange: Option<Box<Exchange>>) -> Self {
        Self { kind: Kind::Whole(bytes), exchange, offer: None }
    }

    /// As it comes from the replica.
    pub fn passing(passing: Box<Passing>, exchange: Box<Exchange>) -> Self {
        Self { kind: Kind::Passing(passing), exchange: Some(exchange), offer: None }
    }
}

impl Kind {
    /// Whether all of it has been given out.
    fn is_over(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Passing(passing) => passing.is_over(),
        }
    }
}

impl AnswerBody {
    /// Nothing of it, with the same exchange.
    pub fn emptied(self) -> Self {
        Self { kind: Kind::Whole(Bytes::new()), ..self }
    }

    /// The same, whose pieces the client has to take in time.
    pub fn offered(self, mut offer: Offer) -> Self {
        offer.begin();
        Self { offer: Some(offer), ..self }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = CutError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, CutError>>> {
        let this = &mut *self;
        // It is asked for the next piece, so there is room for it.
        if let Some(offer) = &mut this.offer {
            offer.end();
        }
        let next = match &mut this.kind {
            Kind::Whole(bytes) if bytes.is_empty() => None,
            Kind::Whole(bytes) => Some(Ok(std::mem::take(bytes))),
            Kind::Passing(passing) => std::task::ready!(passing.poll_next(cx, this.exchange.as_deref_mut())),
        };
        if let Some(exchange) = &mut this.exchange {
            match &next {
                Some(Ok(data)) => {
                    exchange.gives(data, this.kind.is_over());
                    if let Some(shadow) = &mut exchange.shadow {
                        shadow.saw(data);
                    }
                }
                Some(Err(_)) => exchange.on_connection.cut(),
                None => exchange.gives(&[], true),
            }
        }
        if let Some(offer) = &mut this.offer {
            offer.begin();
        }
        Poll::Ready(next.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.kind, Kind::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Passing(passing) => passing.left().map_or_else(SizeHint::new, SizeHint::with_exact),
        }
    }
}
