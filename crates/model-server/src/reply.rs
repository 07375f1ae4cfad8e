//! Answers of the API: JSON values and errors in the protocol's one shape, `{"error": "..."}`.

use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::body::AnswerBody;
use crate::shelf::Missing;

/// An answer of this server.
pub(crate) type Reply = Response<AnswerBody>;

/// An answer that reports a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    pub(crate) fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// A model that is not there, in Triton's words and statuses: clients recognise them.
    pub(crate) fn missing(why: &Missing, name: &str, version: Option<&str>) -> Self {
        let version = version.unwrap_or("-1");
        let (status, what) = match why {
            Missing::Unknown => (StatusCode::NOT_FOUND, format!("'{name}' is not found")),
            Missing::NoVersions => (StatusCode::NOT_FOUND, format!("'{name}' has no available versions")),
            Missing::NoVersion => (StatusCode::NOT_FOUND, format!("'{name}' version {version} is not found")),
            Missing::NotReady => {
                (StatusCode::SERVICE_UNAVAILABLE, format!("'{name}' version {version} is not at ready state"))
            }
        };
        Self::new(status, format!("Request for unknown model: {what}"))
    }

    pub(crate) fn reply(&self) -> Reply {
        #[derive(Serialize)]
        struct Wire<'a> {
            error: &'a str,
        }
        let mut reply = json(&Wire { error: &self.text });
        *reply.status_mut() = self.status;
        if matches!(self.status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            reply.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        reply
    }
}

/// 200 without a body.
pub(crate) fn empty() -> Reply {
    Response::new(AnswerBody::default())
}

/// 200 with a JSON value.
pub(crate) fn json(value: &impl Serialize) -> Reply {
    // What is written here are this crate's own types, which have no map with other keys than texts; the writer has no other failure.
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    let mut reply = Response::new(AnswerBody::whole(bytes));
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}
