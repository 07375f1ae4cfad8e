//! Finish: the answer to the client, stamped; or the failure in the protocol's own shape.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};

use holdfast_codec::oip;
use holdfast_telemetry::Clock;
use holdfast_types::{Failure, FailureKind};

use super::send::{Received, ReceivedBody};
use crate::body::AnswerBody;
use crate::exchange::Exchange;
use crate::headers;
use crate::identity::NO_TOKEN;

/// Passes a replica's answer on.
pub fn answer(mut exchange: Box<Exchange>, received: Received) -> Response<AnswerBody> {
    exchange.ends(received.status.as_u16(), None);
    if let Some(trail) = &mut exchange.trail {
        trail.answered();
        // An empty body is never asked for.
        if matches!(&received.body, ReceivedBody::Whole(bytes) if bytes.is_empty()) {
            trail.gave_all();
        }
    }
    let mut fields = received.fields;
    super::admit::tell_left(&exchange, &mut fields);
    exchange.stamp(&mut fields);
    let body = match received.body {
        ReceivedBody::Whole(bytes) => AnswerBody::whole(bytes, Some(exchange)),
        ReceivedBody::Passing(passing) => {
            exchange.note(|journal| journal.passing = Some(Clock::now()));
            AnswerBody::passing(passing, exchange)
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = received.status;
    *response.headers_mut() = fields;
    response
}

/// Answers out of the gateway's own knowledge.
pub fn own(mut exchange: Box<Exchange>, status: StatusCode, json: String) -> Response<AnswerBody> {
    exchange.ends(status.as_u16(), None);
    let mut response = Response::new(AnswerBody::whole(Bytes::new(), None));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        // Not ready: nothing foretells when, but clients that obey the field do not ask without a pause.
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    exchange.stamp(response.headers_mut());
    *response.body_mut() = AnswerBody::whole(json.into(), Some(exchange));
    response
}

/// Gives the answer that a tenant has for what no model could be asked in time, in place of the refusal. It says so, and names no version: none has given it.
/// For the books it is the failure that it is.
pub fn fallback(mut exchange: Box<Exchange>, failure: &Failure, answer: Bytes) -> Response<AnswerBody> {
    exchange.ends(StatusCode::OK.as_u16(), Some(failure.kind));
    exchange.note(|journal| journal.failed(failure));
    let mut response = Response::new(AnswerBody::whole(Bytes::new(), None));
    let fields = response.headers_mut();
    exchange.stamp(fields);
    fields.remove(headers::VERSION);
    fields.remove(headers::REPLICA);
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(headers::FALLBACK, HeaderValue::from_static(failure.kind.as_str()));
    if let Some(seconds) = failure.retry_after_secs() {
        fields.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    *response.body_mut() = AnswerBody::whole(answer, Some(exchange));
    response
}

/// Tells a failure.
pub fn failed(mut exchange: Box<Exchange>, failure: &Failure) -> Response<AnswerBody> {
    let status = StatusCode::from_u16(failure.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    exchange.ends(status.as_u16(), Some(failure.kind));
    exchange.note(|journal| journal.failed(failure));
    let mut response = Response::new(AnswerBody::whole(Bytes::new(), None));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(headers::ERROR, HeaderValue::from_static(failure.kind.as_str()));
    if let Some(seconds) = failure.retry_after_secs() {
        fields.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if failure.kind == FailureKind::Unauthenticated {
        let takes_tokens = exchange.gateway().tables.load().settings.identity.is_some();
        fields.insert(WWW_AUTHENTICATE, challenge(&failure.detail, takes_tokens));
    }
    if exchange.limited.is_some() {
        super::admit::tell(&exchange, failure, fields);
    }
    super::admit::tell_left(&exchange, fields);
    if matches!(failure.kind, FailureKind::TooLarge) || failure.status == Some(408) {
        // What is left of the body is not read: the connection cannot carry another request.
        fields.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    exchange.stamp(fields);
    let body = oip::error_body(failure.kind.as_str(), &failure.detail);
    *response.body_mut() = AnswerBody::whole(body.into(), Some(exchange));
    response
}

/// RFC 6750, 3: without a token no more than how to bring one, so also where none is looked for (RFC 9110, 15.5.2: a 401 has a challenge). The words are the
/// gateway's own, without quotes in them.
fn challenge(detail: &str, takes_tokens: bool) -> HeaderValue {
    const BARE: HeaderValue = HeaderValue::from_static("Bearer realm=\"holdfast\"");
    if detail == NO_TOKEN || !takes_tokens {
        return BARE;
    }
    let text = format!("Bearer realm=\"holdfast\", error=\"invalid_token\", error_description=\"{detail}\"");
    HeaderValue::try_from(text).unwrap_or(BARE)
}
