//! The request's body: read whole up to a stated size, so that the request can be sent again; streamed through above it.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::Instant;

use holdfast_codec::answer::{AnswerId, Compared};
use holdfast_telemetry::Hash;
use holdfast_types::{Failure, FailureKind};

use super::written::Written;
use crate::settings::Settings;
use crate::trail::Input;
use crate::until::until;
use crate::upstream_body::{ClientFault, ClientStream, UpstreamBody, slow_body, too_large};

/// What is unpacked of a coded body to look at its beginning.
const GLANCE: usize = 512;

/// A request body, ready to be sent.
pub enum Payload {
    /// May be sent any number of times.
    Whole(Bytes),
    /// May be sent once.
    Stream(Option<Box<ClientStream>>, Arc<ClientFault>),
}

impl Default for Payload {
    /// Nothing.
    fn default() -> Self {
        Self::Whole(Bytes::new())
    }
}

impl Payload {
    /// The body for the next attempt. None: it has been used up.
    pub fn take(&mut self) -> Option<UpstreamBody> {
        match self {
            Self::Whole(bytes) => Some(UpstreamBody::Whole(bytes.clone())),
            Self::Stream(stream, _) => stream.take().map(UpstreamBody::Stream),
        }
    }

    /// The digest of the body: of one that streams through, as far as it has come once it is asked for.
    pub fn digest(&mut self) -> Input {
        match self {
            Self::Whole(bytes) => Input::Whole(Hash::of(bytes)),
            Self::Stream(stream, _) => Input::Stream(stream.as_mut().map(|stream| stream.digest()).unwrap_or_default()),
        }
    }

    /// Puts a body back that was never sent.
    pub fn put_back(&mut self, body: UpstreamBody) {
        if let (Self::Stream(place, _), UpstreamBody::Stream(stream)) = (self, body) {
            *place = Some(stream);
        }
    }

    /// Whether there is a body for another attempt.
    pub fn is_left(&self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Stream(stream, _) => stream.is_some(),
        }
    }

    /// What went wrong on the client's side, if it did.
    pub fn client_fault(&self) -> Option<Failure> {
        match self {
            Self::Whole(_) => None,
            Self::Stream(_, fault) => fault.take(),
        }
    }

    /// Whether whoever takes the body waits for the client, and not the other way round.
    pub fn is_owed(&self) -> bool {
        match self {
            Self::Whole(_) => false,
            Self::Stream(_, fault) => fault.owes(),
        }
    }

    /// What an answer's `id` is to this request with these fields, whose JSON is read to its end for it or only looked at. Of a body that streams through
    /// nothing is kept to compare it with.
    pub fn compare(&self, id: &AnswerId, fields: &HeaderMap, in_full: bool) -> Compared {
        let Self::Whole(bytes) = self else { return Compared::Unknown };
        let json =
            Written::of(fields).and_then(|written| written.json(bytes, if in_full { usize::MAX } else { GLANCE }));
        match json {
            // Of one that goes on, the rest may have another.
            Some((json, true)) if in_full => id.compare(&json),
            Some((json, _)) => id.glance(&json),
            None => Compared::Unknown,
        }
    }

    /// Whether the replica cannot have the whole of it: the client has more to send.
    pub fn is_coming(&self) -> bool {
        match self {
            Self::Whole(_) => false,
            Self::Stream(_, fault) => !fault.has_all(),
        }
    }

    /// Bytes read from the client.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Whole(bytes) => bytes.len() as u64,
            Self::Stream(_, fault) => fault.bytes(),
        }
    }
}

/// Reads a body, or its beginning if it is large.
///
/// # Errors
/// `too_large`, at once if the client says so; `bad_request` for one that is malformed, cut short, or (408) too slow.
pub async fn read(mut incoming: Incoming, settings: &Settings, deadline: Instant) -> Result<Payload, Failure> {
    let declared = incoming.size_hint().exact();
    if declared.is_some_and(|length| length > settings.body) {
        return Err(too_large());
    }
    if declared == Some(0) {
        return Ok(Payload::Whole(Bytes::new()));
    }
    if declared.is_some_and(|length| length > settings.buffer as u64) {
        return Ok(stream(Bytes::new(), incoming, settings));
    }
    let mut first = Bytes::new();
    let mut more = BytesMut::new();
    loop {
        let pause = (Instant::now() + settings.body_idle).min(deadline);
        let frame = until(pause, incoming.frame()).await.map_err(|_| slow_body())?;
        let Some(frame) = frame else { break };
        let cut = |_| Failure::new(FailureKind::BadRequest, "the request body is malformed or cut short");
        let Ok(data) = frame.map_err(cut)?.into_data() else { continue };
        if first.is_empty() && more.is_empty() {
            first = data;
        } else {
            if more.is_empty() {
                more.extend_from_slice(&std::mem::take(&mut first));
            }
            more.extend_from_slice(&data);
        }
        let so_far = first.len() + more.len();
        if so_far as u64 > settings.body {
            return Err(too_large());
        }
        if so_far > settings.buffer {
            let beginning = if more.is_empty() { first } else { more.freeze() };
            return Ok(stream(beginning, incoming, settings));
        }
        if declared == Some(so_far as u64) {
            break;
        }
    }
    Ok(Payload::Whole(if more.is_empty() { first } else { more.freeze() }))
}

fn stream(first: Bytes, rest: Incoming, settings: &Settings) -> Payload {
    let fault = Arc::new(ClientFault::default());
    let left = settings.body.saturating_sub(first.len() as u64);
    let stream = ClientStream::new(first, rest, left, settings.body_idle, fault.clone());
    Payload::Stream(Some(Box::new(stream)), fault)
}
