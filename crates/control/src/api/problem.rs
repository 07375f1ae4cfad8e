//! Problem details (RFC 9457): the one shape of everything that is refused.

use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Map, Value as Json, json};

use holdfast_store::{Applied, Error as StoreError, ErrorKind};

use super::Body;

/// A refusal. The type of the problem is `urn:holdfast:problem:CODE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The status.
    pub status: StatusCode,
    /// One word for programs.
    pub code: &'static str,
    /// For a person.
    pub detail: String,
    more: Map<String, Json>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A problem with its words.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), more: Map::new(), headers: Vec::new() }
    }

    /// 400: the request itself is malformed.
    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    /// 400 or 422 at one place of the body.
    pub(crate) fn at(path: &str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        let detail = if path.is_empty() { reason.clone() } else { format!("{path}: {reason}") };
        let told = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail);
        told.with("faults", json!([{ "path": path, "reason": reason }]))
    }

    /// 404.
    pub(crate) fn missing(what: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", what)
    }

    /// 503: later perhaps.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
            .header(RETRY_AFTER, HeaderValue::from_static("1"))
    }

    /// 405, with what is allowed.
    pub(crate) fn method(allowed: &str) -> Self {
        let told = Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", format!("allowed here: {allowed}"));
        match HeaderValue::from_str(allowed) {
            Ok(value) => told.header(ALLOW, value),
            Err(_) => told,
        }
    }

    /// 401. `shown`: a token was shown, and is none.
    pub(crate) fn unauthenticated(shown: bool) -> Self {
        let (challenge, detail) = if shown {
            ("Bearer realm=\"holdfast admin\", error=\"invalid_token\"", "the bearer token is not known")
        } else {
            ("Bearer realm=\"holdfast admin\"", "a bearer token is needed here")
        };
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", detail)
            .header(WWW_AUTHENTICATE, HeaderValue::from_static(challenge))
    }

    /// The same, with one more member.
    #[must_use]
    pub fn with(mut self, member: &str, value: Json) -> Self {
        self.more.insert(member.to_owned(), value);
        self
    }

    /// The same, with a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The body.
    #[must_use]
    pub fn json(&self) -> Json {
        let mut body = self.more.clone();
        body.insert("type".to_owned(), format!("urn:holdfast:problem:{}", self.code).into());
        body.insert("title".to_owned(), self.status.canonical_reason().unwrap_or("error").into());
        body.insert("status".to_owned(), self.status.as_u16().into());
        body.insert("code".to_owned(), self.code.into());
        body.insert("detail".to_owned(), self.detail.as_str().into());
        Json::Object(body)
    }

    /// The answer.
    #[must_use]
    pub fn response(self) -> Response<Body> {
        let mut answer = super::answer::json(self.status, &self.json());
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.extend(self.headers);
        answer
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let words = error.public();
        if error.applied() == Applied::Maybe {
            return Self::new(StatusCode::GATEWAY_TIMEOUT, "outcome_unknown", words);
        }
        match error.kind() {
            ErrorKind::Conflict | ErrorKind::RecordConflict | ErrorKind::Moved => {
                Self::new(StatusCode::CONFLICT, "conflict", words)
            }
            ErrorKind::Invalid => Self::at("", words),
            ErrorKind::TooLarge => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", words),
            ErrorKind::NoRevision => Self::missing(words),
            ErrorKind::Timeout | ErrorKind::Overloaded | ErrorKind::Unavailable | ErrorKind::Closed => {
                Self::unavailable(words)
            }
            ErrorKind::Fenced | ErrorKind::NotLeader => Self::unavailable("another control plane leads now"),
            ErrorKind::InUse
            | ErrorKind::NewerSchema
            | ErrorKind::Corrupt
            | ErrorKind::NotEmpty
            | ErrorKind::Backend => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", words),
        }
    }
}
