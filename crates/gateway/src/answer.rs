//! Reading a replica's answer: PIN-1 is checked before its head is passed on, and on every byte after that.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::Sleep;

use holdfast_codec::answer::{AnswerId, Checker, Expected, Mismatch, Piece, Pieces, Wrong};
use holdfast_config::AnswerCheck;
use holdfast_types::FailureKind;

use crate::body::CutError;
use crate::exchange::Exchange;
use crate::lease::Lease;

/// The check of one answer, over the part of it that is JSON.
pub struct Reading {
    checker: Option<Checker>,
    /// How many bytes of JSON are still to come, where binary tensors follow them.
    json_left: Option<u64>,
    /// Whether it says where its JSON ends.
    has_tensors: bool,
    rule: Arc<AnswerRule>,
}

/// What a route's answers are held to.
#[derive(Debug)]
pub struct AnswerRule {
    /// What an answer must name.
    pub expected: Expected,
    /// Whether it is looked at, and has to name a version.
    pub check: AnswerCheck,
    /// Whether the model's name at the replica tells the version, because the replica is asked by name only.
    pub name_tells_version: bool,
}

/// Why an answer may not be passed on.
#[derive(Debug)]
pub enum Fault {
    /// It names something else.
    Mismatch(Mismatch),
    /// It names nothing where the pool's policy requires it.
    Absent,
    /// Bytes may follow its JSON, which does not name its model.
    Unnamed,
    /// Its JSON does not end where it says that the JSON ends.
    Cut,
    /// It is no answer of an inference: it has no outputs, or is a model's metadata. It may be the answer to another request.
    OtherShape,
    /// Its JSON is not UTF-8. That says nothing about its version, and a client may have caused it, where a server repeats what it was sent.
    NotUtf8,
}

impl From<Wrong> for Fault {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Mismatch(mismatch) => Self::Mismatch(mismatch),
            Wrong::NotUtf8 => Self::NotUtf8,
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Mismatch(mismatch) => mismatch.fmt(f),
            Self::Unnamed => f.write_str("the JSON before the answer's tensors does not name its model"),
            Self::Cut => f.write_str("the JSON of the answer does not end where its header says"),
            Self::OtherShape => f.write_str("the answer is none of an inference"),
            Self::NotUtf8 => f.write_str("the JSON of the answer is not UTF-8"),
            Self::Absent => f.write_str("the answer names no version, which the pool requires"),
        }
    }
}

impl Reading {
    /// For an answer to an inference. `json` is how many bytes of it are JSON, if not all.
    pub fn new(rule: Arc<AnswerRule>, json: Option<u64>) -> Self {
        let looks = rule.check != AnswerCheck::None;
        let json_left = json.filter(|_| looks);
        Self { checker: looks.then(Checker::default), json_left, has_tensors: json_left.is_some(), rule }
    }

    /// Takes the next bytes; what may be passed on is appended to `out`.
    ///
    /// # Errors
    /// [`Fault`], except for what [`Reading::judge`] says.
    pub fn feed(&mut self, chunk: Bytes, out: &mut VecDeque<Bytes>) -> Result<(), Fault> {
        let Some(checker) = &mut self.checker else {
            out.push_back(chunk);
            return Ok(());
        };
        let mut json = chunk;
        let mut binary = Bytes::new();
        if let Some(left) = &mut self.json_left {
            let take = usize::try_from(*left).unwrap_or(usize::MAX).min(json.len());
            binary = json.split_off(take);
            *left -= take as u64;
        }
        let json_ends = self.json_left == Some(0);
        let mut pieces = Pieces::new();
        checker.feed(&self.rule.expected, &json, &mut pieces)?;
        if json_ends && !checker.is_complete() {
            return Err(Fault::Cut);
        }
        for piece in pieces {
            out.push_back(match piece {
                Piece::Chunk(range) => json.slice(range),
                Piece::Owned(bytes) => bytes.into(),
            });
        }
        if !binary.is_empty() {
            out.push_back(binary);
        }
        Ok(())
    }

    /// Whether no byte to come will be changed.
    pub fn is_decided(&self) -> bool {
        self.json_left == Some(0) || self.checker.as_ref().is_none_or(Checker::is_decided)
    }

    /// Whether the JSON has ended: an answer that ends before it does has been broken off, whatever its framing says.
    pub fn is_complete(&self) -> bool {
        self.json_left.is_none_or(|left| left == 0) && self.checker.as_ref().is_none_or(Checker::is_complete)
    }

    /// The `id` that it has named so far.
    pub fn id(&self) -> Option<&AnswerId> {
        self.checker.as_ref().and_then(Checker::id)
    }

    /// By how much the JSON has grown.
    pub fn delta(&self) -> i64 {
        self.checker.as_ref().map_or(0, Checker::delta)
    }

    /// What the policy says now that nothing more is to be expected.
    ///
    /// # Errors
    /// [`Fault::Absent`], [`Fault::Unnamed`].
    pub fn judge(&self) -> Result<(), Fault> {
        let Some(checker) = &self.checker else { return Ok(()) };
        // Whoever does not know the header may read what follows as the answer.
        if self.has_tensors && !checker.has_model() {
            return Err(Fault::Unnamed);
        }
        let named = checker.has_version() || (checker.has_model() && self.rule.name_tells_version);
        let required = self.rule.check == AnswerCheck::Required;
        if required && !named { Err(Fault::Absent) } else { self.shape() }
    }

    /// What its shape says, once its JSON has come to its end.
    fn shape(&self) -> Result<(), Fault> {
        let is_other = self.checker.as_ref().is_some_and(|checker| checker.is_complete() && !checker.is_inference());
        if is_other { Err(Fault::OtherShape) } else { Ok(()) }
    }

    /// Whether it may end here: its JSON has ended, and is an inference's answer.
    fn may_end(&self) -> bool {
        self.is_complete() && self.shape().is_ok()
    }

    /// The rest of a value that the end of the text cut in two.
    pub fn finish(&mut self, out: &mut VecDeque<Bytes>) {
        let rest = self.checker.as_mut().map(Checker::finish).unwrap_or_default();
        if !rest.is_empty() {
            out.push_back(rest.into());
        }
    }
}

const UNENDED: &str = "it ended before its JSON did, or without outputs";

/// An answer's body on its way through, after its head was passed on.
pub struct Passing {
    /// Read, checked, not yet passed on.
    pub ready: VecDeque<Bytes>,
    /// Where the rest comes from.
    pub incoming: Incoming,
    /// The check of the rest.
    pub reading: Reading,
    /// How many bytes are still to be passed on, if that is known.
    pub left: Option<u64>,
    /// When the request's budget ends.
    pub deadline: Pin<Box<Sleep>>,
    /// What it holds of the replica.
    pub lease: Lease,
    /// Complete or cut: nothing more comes from the replica.
    pub ended: bool,
}

impl Passing {
    /// Bytes still to come, if known.
    pub fn left(&self) -> Option<u64> {
        self.left
    }

    /// Whether all of it has been passed on: nobody asks for more once the length that was told is reached.
    pub fn is_over(&self) -> bool {
        self.left == Some(0) || (self.ended && self.ready.is_empty())
    }

    /// The next bytes.
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        exchange: Option<&mut Exchange>,
    ) -> Poll<Option<Result<Bytes, CutError>>> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                // Whoever knows the length asks for nothing after the last byte: what the end brings is done before that is given out.
                if !self.ended && self.ready.is_empty() && self.incoming.is_end_stream() {
                    if !self.reading.may_end() {
                        return self.cut(exchange, FailureKind::UpstreamError, UNENDED);
                    }
                    self.complete(exchange);
                }
                self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                return Poll::Ready(Some(Ok(data)));
            }
            if self.ended {
                return Poll::Ready(None);
            }
            let frame = match Pin::new(&mut self.incoming).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    std::task::ready!(self.deadline.as_mut().poll(cx));
                    return self.cut(exchange, FailureKind::UpstreamTimeout, "the budget ended");
                }
            };
            match frame {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if let Err(fault) = self.reading.feed(data, &mut self.ready) {
                        self.ready.clear();
                        if matches!(fault, Fault::NotUtf8) {
                            return self.cut(exchange, FailureKind::UpstreamError, "it is not UTF-8");
                        }
                        self.report(exchange.as_deref(), &fault);
                        return self.cut(exchange, FailureKind::WrongVersionServed, "it names another version");
                    }
                }
                Some(Err(_)) if self.lease.has_ended() => {
                    return self.cut(exchange, FailureKind::UpstreamTimeout, "the budget ended");
                }
                Some(Err(_)) => return self.cut(exchange, FailureKind::UpstreamError, "the replica broke it off"),
                None if !self.reading.may_end() => {
                    return self.cut(exchange, FailureKind::UpstreamError, UNENDED);
                }
                None => {
                    self.complete(exchange);
                    return Poll::Ready(self.ready.pop_front().map(Ok));
                }
            }
        }
    }

    /// The answer has come to its end. What `finish` leaves over is ready then.
    fn complete(&mut self, exchange: Option<&mut Exchange>) {
        self.reading.finish(&mut self.ready);
        self.lease.complete();
        self.ended = true;
        if let Some(exchange) = exchange {
            exchange.upstream_done();
        }
    }

    fn report(&self, exchange: Option<&Exchange>, fault: &Fault) {
        let Some(exchange) = exchange else { return };
        let mut of = None;
        self.lease.with_in_flight(|in_flight| of = Some((in_flight.cell().replica.ix, in_flight.cell().version)));
        if let Some((replica, version)) = of {
            exchange.gateway().driver.quarantine(replica, version, fault.to_string());
        }
    }

    fn cut(
        &mut self,
        exchange: Option<&mut Exchange>,
        kind: FailureKind,
        why: &'static str,
    ) -> Poll<Option<Result<Bytes, CutError>>> {
        self.lease.end();
        self.ended = true;
        if let Some(exchange) = exchange {
            exchange.cut(kind);
        }
        Poll::Ready(Some(Err(CutError(why))))
    }
}

/// Joins pieces; one piece is passed on as it is.
pub fn join(mut pieces: VecDeque<Bytes>) -> Bytes {
    if pieces.len() <= 1 {
        return pieces.pop_front().unwrap_or_default();
    }
    let mut whole = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in pieces {
        whole.extend_from_slice(&piece);
    }
    whole.freeze()
}
