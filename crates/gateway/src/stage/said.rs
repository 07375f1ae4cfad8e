//! The way of a message over a socket through the stages: that of a request after resolve, with the message's own exchange.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};

use holdfast_codec::oip::ModelOp;
use holdfast_telemetry::{Clock, Endpoint};
use holdfast_types::Failure;

use super::flow::{Call, kept, served};
use super::payload::Payload;
use super::{admit, finish, send};
use crate::body::AnswerBody;
use crate::exchange::{Exchange, Resolution};
use crate::settings::Settings;
use crate::worker::Worker;

/// The method of a message.
pub const MESSAGE: &str = "MESSAGE";

/// What a message over a socket asks for.
pub struct Said<'a> {
    /// Whose it is.
    pub tenant: Option<&'a str>,
    /// As it names the model.
    pub model: &'a str,
    /// The version that it names.
    pub version: Option<&'a str>,
    /// What tells it from other submissions.
    pub submission: Option<&'a [u8]>,
    /// The fields that name the user.
    pub fields: &'a HeaderMap,
    /// The inference request.
    pub input: Bytes,
    /// Its budget.
    pub timeout: Option<Duration>,
    /// It may be taken on credit of its limits.
    pub credit: bool,
}

/// What a message ends with that is not served.
pub type FailedMessage = Box<(Box<Exchange>, Failure)>;

/// The stages after resolve, for an inference that is a message.
///
/// # Errors
/// As for a request. The exchange is still to be ended.
pub fn enter_message(
    mut exchange: Box<Exchange>,
    settings: &Arc<Settings>,
    resolved: Result<Resolution, Failure>,
    said: Said<'_>,
) -> Result<Box<Call>, FailedMessage> {
    exchange.method = MESSAGE;
    exchange.endpoint = Endpoint::Infer;
    exchange.stamps = settings.stamps;
    let gateway = exchange.gateway().clone();
    let resolution = match resolved {
        Ok(resolution) => resolution,
        Err(failure) => {
            exchange.note(|journal| journal.asks(said.tenant, said.model, said.version));
            return Err(Box::new((exchange, failure)));
        }
    };
    if gateway.tables.shadows.any() {
        let submission = said.submission.unwrap_or(&exchange.id.text);
        exchange.shadow = gateway.tables.shadows.choose(&resolution, submission);
    }
    exchange.note(|journal| {
        journal.resolved = Some(Clock::now());
        journal.cause.clone_from(&resolution.cause);
    });
    exchange.resolution = Some(resolution);
    let bytes = said.input.len() as u64;
    if bytes > settings.body {
        return Err(Box::new((exchange, crate::upstream_body::too_large())));
    }
    if let Err(failure) = admit::admit_message(&mut exchange, said.fields, bytes, said.credit, settings) {
        return Err(Box::new((exchange, failure)));
    }
    let budget = said.timeout.unwrap_or(settings.request).min(settings.request_max);
    let deadline = exchange.begun.after(budget);
    let head = send::Head {
        op: ModelOp::Infer,
        trusted: None,
        query: None,
        answer_head: settings.answer_head,
        patience: settings.request,
        method: http::Method::POST,
        fields: HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]),
    };
    let (settings, payload) = (settings.clone(), Payload::Whole(said.input));
    Ok(Box::new(Call { exchange, settings, head, body: None, payload, deadline }))
}

/// Has a message served.
///
/// # Errors
/// Why it was not. The exchange is still to be ended.
///
/// # Cancel safety
/// As [`serve`].
pub async fn serve_message(mut call: Box<Call>, worker: Arc<Worker>) -> Result<Response<AnswerBody>, FailedMessage> {
    match served(&mut call, &worker).await {
        Ok(received) if call.exchange.shadow.is_some() => Ok(kept(*call, received)),
        Ok(received) => Ok(finish::answer(call.exchange, received)),
        Err(failure) => Err(Box::new((call.exchange, failure))),
    }
}
