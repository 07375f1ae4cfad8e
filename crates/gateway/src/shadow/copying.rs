//! A request on its way to be copied: chosen with its resolution, kept with its answer, sent off when the answer is complete.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use tokio::time::Instant;

use super::Shadows;
use super::order::{Order, Outcome};
use super::room::Taken;
use crate::exchange::RequestId;
use crate::stage::judge::Framing;
use crate::stage::payload::Payload;
use crate::stage::send::{Head, Received, ReceivedBody};

/// Answers over this size are not compared.
pub(super) const ANSWER: usize = 1 << 20;

/// Counts what becomes of one chosen request, once, when it is dropped.
pub(super) struct Ticket {
    pub(super) order: Arc<Order>,
    shadows: Arc<Shadows>,
    pub(super) outcome: Outcome,
}

impl Ticket {
    /// Until something is known of it the client's answer is none that could be compared.
    pub(super) fn new(order: Arc<Order>, shadows: Arc<Shadows>) -> Self {
        Self { order, shadows, outcome: Outcome::NotComparable }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.order.course.count(self.outcome);
        self.shadows.count(self.outcome);
    }
}

/// See the module.
pub struct Copying {
    shadows: Arc<Shadows>,
    pub(super) ticket: Ticket,
    pub(super) kept: Option<Kept>,
}

/// What a copy needs.
pub(super) struct Kept {
    pub(super) head: Head,
    pub(super) body: Bytes,
    pub(super) id: RequestId,
    pub(super) answer: BytesMut,
    /// The answer, once it is known whole.
    pub(super) whole: Option<Bytes>,
    /// How long it is, if that is known.
    length: Option<u64>,
    /// How many bytes of the answer are JSON, if not all.
    pub(super) json: Option<u64>,
    /// When the answer was complete.
    pub(super) since: Instant,
    _room: Taken,
}

impl Copying {
    pub(super) fn new(shadows: Arc<Shadows>, ticket: Ticket) -> Self {
        Self { shadows, ticket, kept: None }
    }

    /// Keeps the request, and the answer that is about to be passed on.
    pub(crate) fn keep(&mut self, id: &RequestId, head: Head, payload: &Payload, received: &Received) {
        let Payload::Whole(body) = payload else { return };
        let Ok(json) = Framing::of(&received.fields).json else { return };
        let (whole, length) = match &received.body {
            ReceivedBody::Whole(bytes) => (Some(bytes.clone()), Some(bytes.len() as u64)),
            ReceivedBody::Passing(passing) => (None, passing.left()),
        };
        let most = length.map_or(ANSWER, |length| usize::try_from(length).unwrap_or(usize::MAX));
        if received.status != StatusCode::OK || most > ANSWER {
            return;
        }
        let Some(room) = self.shadows.room.take(body.len().saturating_add(most)) else {
            self.ticket.outcome = Outcome::Dropped;
            return;
        };
        let (id, body, answer, since) = (id.clone(), body.clone(), BytesMut::new(), Instant::now());
        self.kept = Some(Kept { head, body, id, answer, whole, length, json, since, _room: room });
    }

    /// Takes note of a piece of the answer, as it is passed on.
    pub(crate) fn saw(&mut self, data: &Bytes) {
        let Some(kept) = self.kept.as_mut().filter(|kept| kept.whole.is_none()) else { return };
        if kept.answer.len() + data.len() > ANSWER {
            self.kept = None;
            return;
        }
        kept.answer.extend_from_slice(data);
    }

    /// The request has ended for its client. `complete`: the replica's answer was whole. Never waits: without room in the queue it is dropped.
    pub(crate) fn ended(mut self: Box<Self>, complete: bool) {
        let Some(kept) = &mut self.kept else { return };
        // Nobody asks for the end of an answer of known length once all of it is there.
        let is_all = kept.length == Some(kept.answer.len() as u64);
        if kept.whole.is_none() && !complete && !is_all {
            return;
        }
        kept.since = Instant::now();
        if kept.whole.is_none() {
            kept.whole = Some(std::mem::take(&mut kept.answer).freeze());
        }
        self.ticket.outcome = Outcome::Dropped;
        if let Some(queue) = self.shadows.clone().queue.get() {
            // If there is no room it is dropped here, and counted by that.
            let _ = queue.try_send(self);
        }
    }

    pub(super) fn driver(&self) -> &Arc<crate::residency::Driver> {
        &self.shadows.driver
    }
}
