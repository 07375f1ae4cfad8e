//! What a message of a native socket says, and the frames that answer it.
//!
//! A frame is text: a JSON object. What a model server answered is put into it as it is; everything else is written here.

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use holdfast_types::{Failure, FailureKind};

use crate::headers;

/// The longest id, as it is written.
const LONGEST_ID: usize = 256;
const LONGEST_KEY: usize = 256;

/// A client's name for a message, as it wrote it: a JSON string or a whole number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Id(Box<str>);

impl Id {
    /// None: it is neither.
    pub fn read(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        let is_number = !text.is_empty() && text.len() <= 19 && text.bytes().all(|byte| byte.is_ascii_digit());
        let is_text = text.starts_with('"') && text.len() <= LONGEST_ID;
        (is_number || is_text).then(|| Self(text.into()))
    }
}

/// A message, understood.
#[derive(Debug)]
pub struct Message {
    /// Its id.
    pub id: Id,
    /// The model.
    pub model: Box<str>,
    /// The version that it names.
    pub version: Option<Box<str>>,
    /// Its type.
    pub kind: Option<Box<str>>,
    /// Which stream of latest values it is one of, if its type has those.
    pub key: Box<str>,
    /// The inference request.
    pub input: Bytes,
    /// Its budget.
    pub timeout: Option<Duration>,
    /// What tells this submission from others.
    pub submission: Option<Box<str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    #[serde(borrow)]
    model: Cow<'a, str>,
    #[serde(borrow, default)]
    version: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    input: &'a RawValue,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(borrow, default)]
    submission: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct OnlyId<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
}

/// A message that is none: its id, if it has one, and what is wrong with it.
pub type Misread = (Option<Id>, Failure);

/// Reads a message.
///
/// # Errors
/// `bad_request`.
pub fn read(text: &[u8]) -> Result<Message, Box<Misread>> {
    let refuse = |id: Option<Id>, why: Cow<'static, str>| Box::new((id, Failure::new(FailureKind::BadRequest, why)));
    let written: Written<'_> = match serde_json::from_slice(text) {
        Ok(written) => written,
        Err(why) => {
            let id = serde_json::from_slice::<OnlyId<'_>>(text).ok().and_then(|only| Id::read(only.id));
            return Err(refuse(id, format!("the message is not understood: {}", shortened(&why.to_string())).into()));
        }
    };
    let Some(id) = Id::read(written.id) else {
        return Err(refuse(None, "the id is a text of at most 256 bytes or a whole number".into()));
    };
    if !written.input.get().starts_with('{') {
        return Err(refuse(Some(id), "the input is an object: an inference request".into()));
    }
    if written.timeout_ms == Some(0) {
        return Err(refuse(Some(id), "timeout_ms is at least 1".into()));
    }
    let is_long = |text: &Option<Cow<'_, str>>| text.as_ref().is_some_and(|text| text.len() > LONGEST_KEY);
    if is_long(&written.key) || is_long(&written.submission) {
        return Err(refuse(Some(id), "key and submission have at most 256 bytes".into()));
    }
    let owned = |text: Option<Cow<'_, str>>| text.map(|text| Box::from(&*text));
    Ok(Message {
        id,
        model: Box::from(&*written.model),
        version: owned(written.version),
        kind: owned(written.kind),
        key: owned(written.key).unwrap_or_default(),
        input: Bytes::copy_from_slice(written.input.get().as_bytes()),
        timeout: written.timeout_ms.map(Duration::from_millis),
        submission: owned(written.submission),
    })
}

/// What a parser says may repeat a part of the message.
fn shortened(why: &str) -> &str {
    &why[..why.floor_char_boundary(200)]
}

/// The answer of a model server. None: its body is no JSON, which a text cannot carry.
pub fn answer(id: &Id, status: u16, fields: &HeaderMap, body: &[u8]) -> Option<Vec<u8>> {
    let body: &RawValue = serde_json::from_slice(body).ok()?;
    let name = if status < 400 { "output" } else { "refused" };
    let stamps = Value::Object(stamps(fields));
    Some(format!(r#"{{"id":{},"status":{status},"stamps":{stamps},"{name}":{}}}"#, id.0, body.get()).into_bytes())
}

/// A failure.
pub fn failed(id: Option<&Id>, failure: &Failure, fields: &HeaderMap) -> Vec<u8> {
    let mut error = json!({
        "kind": failure.kind.as_str(), "message": failure.detail, "status": failure.http_status(),
    });
    if failure.kind.has_retry_after() {
        let wait = failure.retry_after.unwrap_or(Duration::from_secs(1));
        error["retry_after_ms"] = millis(wait).into();
    }
    let id = id.map_or("null", |id| &id.0);
    let stamps = Value::Object(stamps(fields));
    format!(r#"{{"id":{id},"error":{error},"stamps":{stamps}}}"#).into_bytes()
}

/// A message was left out: for `why`.
pub fn dropped(id: &Id, why: &'static str) -> Vec<u8> {
    format!(r#"{{"id":{},"dropped":"{why}"}}"#, id.0).into_bytes()
}

/// A limit is reached: how long it is worth to wait.
pub fn rate_limited(limit: &str, wait: Duration) -> Vec<u8> {
    json!({ "type": "rate_limited", "limit": limit, "retry_after_ms": millis(wait) }).to_string().into_bytes()
}

/// Rounded up, at least 1.
fn millis(wait: Duration) -> u64 {
    u64::try_from((wait + Duration::from_nanos(999_999)).as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The stamps of an answer as members: what the fields of an answer over HTTP say.
fn stamps(fields: &HeaderMap) -> Map<String, Value> {
    let mut out = Map::new();
    for (name, value) in fields {
        let Some(name) = name.as_str().strip_prefix(headers::PREFIX) else { continue };
        let text = String::from_utf8_lossy(value.as_bytes());
        let is_number = matches!(name, "revision" | "stale");
        let value = text.parse::<u64>().ok().filter(|_| is_number).map_or_else(|| text.as_ref().into(), Value::from);
        out.insert(name.replace('-', "_"), value);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn misread(text: &str) -> (Option<String>, String) {
        let misread = read(text.as_bytes()).map(|_| ()).expect_err(text);
        (misread.0.map(|id| id.0.into()), misread.1.detail.into_owned())
    }

    #[test]
    fn a_message_is_what_it_says_and_its_input_is_not_touched() {
        let text = r#"{"id":"a\u0041","model":"scr\u0065en","version":"7","type":"tick","key":"k","input":{ "b" : 1.50, "a":[] },"timeout_ms":20,"submission":"s"}"#;
        let message = read(text.as_bytes()).unwrap();
        assert_eq!(
            (&*message.id.0, &*message.model, message.version.as_deref()),
            (r#""a\u0041""#, "screen", Some("7"))
        );
        assert_eq!(&message.input[..], br#"{ "b" : 1.50, "a":[] }"#);
        assert_eq!((message.kind.as_deref(), &*message.key), (Some("tick"), "k"));
        assert_eq!((message.timeout, message.submission.as_deref()), (Some(Duration::from_millis(20)), Some("s")));
        assert_eq!(&*read(br#"{"id":7,"model":"m","input":{}}"#).unwrap().id.0, "7");
    }

    #[test]
    fn what_is_no_message_is_told_with_its_id_if_there_is_one() {
        for (text, id) in [
            ("", None),
            ("[]", None),
            (r#"{"id":1.5,"model":"m","input":{}}"#, None),
            (r#"{"id":null,"model":"m","input":{}}"#, None),
            (r#"{"id":-1,"model":"m","input":{}}"#, None),
            (r#"{"id":{},"model":"m","input":{}}"#, None),
            (r#"{"model":"m","input":{}}"#, None),
            (r#"{"id":1,"id":2,"model":"m","input":{}}"#, None),
            (r#"{"id":1,"input":{}}"#, Some("1")),
            (r#"{"id":1,"model":"m"}"#, Some("1")),
            (r#"{"id":"x","model":"m","input":[]}"#, Some(r#""x""#)),
            (r#"{"id":1,"model":5,"input":{}}"#, Some("1")),
            (r#"{"id":1,"model":"m","model":"n","input":{}}"#, Some("1")),
            (r#"{"id":1,"model":"m","input":{},"tenant":"other"}"#, Some("1")),
            (r#"{"id":1,"model":"m","input":{},"timeout_ms":0}"#, Some("1")),
            (r#"{"id":1,"model":"m","input":{},"timeout_ms":-5}"#, Some("1")),
            (r#"{"id":1,"model":"m","input":{}} {}"#, None),
        ] {
            assert_eq!(misread(text).0.as_deref(), id, "{text}");
        }
        let long = format!(r#"{{"id":"{}","model":"m","input":{{}}}}"#, "x".repeat(300));
        assert_eq!(misread(&long).0, None);
        let key = format!(r#"{{"id":1,"model":"m","input":{{}},"key":"{}"}}"#, "x".repeat(300));
        assert_eq!(misread(&key).0.as_deref(), Some("1"));
    }

    #[test]
    fn frames_are_json_whatever_they_carry() {
        let id = Id(r#""a""#.into());
        let mut stamped = HeaderMap::new();
        stamped.insert("x-holdfast-request-id", HeaderValue::from_static("r\"1"));
        stamped.insert("x-holdfast-revision", HeaderValue::from_static("7"));
        stamped.insert("content-type", HeaderValue::from_static("application/json"));
        let frame: Value = serde_json::from_slice(&answer(&id, 200, &stamped, b"{\"outputs\": []}").unwrap()).unwrap();
        assert_eq!(
            frame,
            json!({ "id": "a", "status": 200, "stamps": { "request_id": "r\"1", "revision": 7 }, "output": { "outputs": [] } })
        );
        assert_eq!(answer(&id, 200, &stamped, b"{\"outputs\": ["), None, "what is cut is no answer");
        assert_eq!(answer(&id, 200, &stamped, b"{}{}"), None, "nothing can be smuggled in behind it");
        let failure = Failure::new(FailureKind::RateLimited, "a \"limit\"").retry_in(Duration::from_micros(1_500));
        let frame: Value = serde_json::from_slice(&failed(Some(&id), &failure, &HeaderMap::new())).unwrap();
        assert_eq!(
            frame["error"],
            json!({ "kind": "rate_limited", "message": "a \"limit\"", "status": 429, "retry_after_ms": 2 })
        );
        let frame: Value = serde_json::from_slice(&rate_limited("user-requests", Duration::ZERO)).unwrap();
        assert_eq!(frame, json!({ "type": "rate_limited", "limit": "user-requests", "retry_after_ms": 1 }));
    }
}
