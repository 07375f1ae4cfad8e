//! Answers: JSON with the headers that all of them have.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value as Json;

use holdfast_types::Revision;

use super::Body;

/// An answer of these bytes.
pub(crate) fn bytes(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut answer = Response::new(Full::new(body.into()).boxed_unsync());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // What a cache keeps could be shown to somebody else, or be of yesterday.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    answer
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, body: &Json) -> Response<Body> {
    bytes(status, "application/json", body.to_string())
}

/// The same, with the revision as its entity tag.
pub(crate) fn tagged(mut answer: Response<Body>, revision: Revision) -> Response<Body> {
    if let Ok(tag) = HeaderValue::from_str(&tag(revision)) {
        answer.headers_mut().insert(ETAG, tag);
    }
    answer
}

/// The entity tag of a revision.
pub(crate) fn tag(revision: Revision) -> String {
    format!("\"{}\"", revision.0)
}
