//! Asking a running control plane over its admin port.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, IF_MATCH};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use serde_json::Value;

use crate::cli::AdminArgs;
use crate::command::{Failure, run_to_end};
use crate::link::{Link, within};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a whole state may take to be looked at and taken.
const LONG_PATIENCE: Duration = Duration::from_secs(300);

/// The most bytes of an answer.
const MOST: usize = 16 << 20;

/// A client of one admin port.
pub struct Admin {
    link: Link,
    url: String,
}

/// A whole answer.
pub struct Told {
    /// The status.
    pub status: StatusCode,
    /// The body; null if it is no JSON.
    pub body: Value,
}

impl Admin {
    /// A client of the port that the arguments name. Connects with the first question.
    ///
    /// # Errors
    /// The arguments are wrong.
    pub fn new(args: &AdminArgs) -> Result<Self, Failure> {
        Ok(Self { link: Link::new(args)?, url: args.admin.clone() })
    }

    /// Gets a resource.
    ///
    /// # Errors
    /// The port cannot be reached, or refuses; in words that say what to do.
    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        good(self.send(HeaderMap::new(), Method::GET, path, Bytes::new(), PATIENCE).await?)
    }

    /// Gets a resource that may not be there.
    ///
    /// # Errors
    /// As [`Admin::get`].
    pub async fn find(&self, path: &str) -> Result<Option<Value>, Failure> {
        let told = self.send(HeaderMap::new(), Method::GET, path, Bytes::new(), PATIENCE).await?;
        if told.status == StatusCode::NOT_FOUND && !is_not_open(&told) { Ok(None) } else { good(told).map(Some) }
    }

    /// Takes a resource away.
    ///
    /// # Errors
    /// As [`Admin::get`].
    pub async fn delete(&self, path: &str) -> Result<Value, Failure> {
        good(self.send(HeaderMap::new(), Method::DELETE, path, Bytes::new(), LONG_PATIENCE).await?)
    }

    /// All rows of a listing, page by page, and the revision that the pages show if they name one. `path` has a query.
    ///
    /// # Errors
    /// As [`Admin::get`].
    pub async fn all(&self, path: &str) -> Result<(Vec<Value>, Option<u64>), Failure> {
        let (mut rows, mut after) = (Vec::new(), String::new());
        loop {
            let mut page = self.get(&format!("{path}&limit=1000{after}")).await?;
            if let Some(items) = page["items"].as_array_mut() {
                rows.append(items);
            }
            let Some(next) = page["next"].as_str() else { return Ok((rows, page["revision"].as_u64())) };
            after = format!("&after={}", encoded(next));
        }
    }

    /// Sends a JSON value; with a revision only if nothing has changed since it.
    ///
    /// # Errors
    /// As [`Admin::get`].
    pub async fn send_json(
        &self,
        method: Method,
        path: &str,
        body: &Value,
        seen: Option<u64>,
    ) -> Result<Value, Failure> {
        good(self.try_json(method, path, body, seen).await?)
    }

    /// The same, with whatever the answer is.
    ///
    /// # Errors
    /// There is no answer.
    pub async fn try_json(&self, method: Method, path: &str, body: &Value, seen: Option<u64>) -> Result<Told, Failure> {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seen) = seen.and_then(|seen| HeaderValue::from_str(&format!("\"{seen}\"")).ok()) {
            fields.insert(IF_MATCH, seen);
        }
        self.send(fields, method, path, body.to_string().into(), LONG_PATIENCE).await
    }

    async fn send(
        &self,
        fields: HeaderMap,
        method: Method,
        path: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<Told, Failure> {
        let exchange = within(patience, self.exchange(fields, method, path, body)).await;
        exchange.map_err(|error| {
            Failure::lost(format!("no answer at {}: {error}\nis it running, and is --admin right?", self.url))
        })
    }

    async fn exchange(&self, fields: HeaderMap, method: Method, path: &str, body: Bytes) -> Result<Told, String> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|e: http::uri::InvalidUri| e.to_string())?;
        *request.headers_mut() = fields;
        self.link.sign(request.headers_mut());
        let answer = self.link.open().await?.send_request(request).await.map_err(|e| e.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST).collect().await.map_err(|e| e.to_string())?.to_bytes();
        Ok(Told { status, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
    }
}

/// Whether a server has not opened its resources yet: a control plane that starts has none until it has reached its store.
fn is_not_open(told: &Told) -> bool {
    told.status == StatusCode::NOT_FOUND && told.body["detail"] == "there is nothing at this path"
}

/// The body of an answer that is no refusal.
fn good(told: Told) -> Result<Value, Failure> {
    if told.status.is_success() {
        return Ok(told.body);
    }
    let detail = told.body.get("detail").and_then(Value::as_str).unwrap_or("no reason given");
    let text = format!("the answer is {}: {detail}", told.status);
    let passes = told.status == StatusCode::SERVICE_UNAVAILABLE || is_not_open(&told);
    Err(if passes { Failure::lost(text) } else { Failure::failed(text) })
}

/// Gets a resource, as the only thing a command does.
///
/// # Errors
/// As [`Admin::get`].
pub fn get(args: &AdminArgs, path: &str) -> Result<Value, Failure> {
    run_to_end(1, async { Admin::new(args)?.get(path).await })
}

/// Encodes a value for a path or a query.
pub fn encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}
