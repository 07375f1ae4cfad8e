//! Asking a running control plane over its admin port.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, IF_MATCH};
use http::{HeaderValue, Method, StatusCode};
use serde_json::Value;

use holdfast_net::{Connector, Fetch, Target, Tasks};

use crate::cli::AdminArgs;
use crate::command::{Failure, run_to_end};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a whole state may take to be looked at and taken.
const LONG_PATIENCE: Duration = Duration::from_secs(300);

/// A client of one admin port.
pub struct Admin {
    fetch: Fetch,
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
        let wrong = || Failure::wrong(format!("--admin {:?} is not a URL such as http://127.0.0.1:7401", args.admin));
        let authority = args.admin.trim_end_matches('/').strip_prefix("http://").ok_or_else(wrong)?;
        let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let connector = Arc::new(Connector::new(Target::new(host, port)));
        let tasks = Tasks::new(tokio::runtime::Handle::current());
        let mut fetch = Fetch::new(connector, authority, tasks);
        if let Some(file) = &args.admin_token_file {
            let token = std::fs::read_to_string(file)
                .map_err(|e| Failure::wrong(format!("the token file {} cannot be read: {e}", file.display())))?;
            let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
            let value = value.map_err(|_| Failure::wrong("the token has a character that no token has"))?;
            fetch = fetch.with_field(AUTHORIZATION, value);
        }
        Ok(Self { fetch, url: args.admin.clone() })
    }

    /// Gets a resource.
    ///
    /// # Errors
    /// The port cannot be reached, or refuses; in words that say what to do.
    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        good(self.send(&self.fetch, Method::GET, path, Bytes::new(), PATIENCE).await?)
    }

    /// Gets a resource that may not be there.
    ///
    /// # Errors
    /// As [`Admin::get`].
    pub async fn find(&self, path: &str) -> Result<Option<Value>, Failure> {
        let told = self.send(&self.fetch, Method::GET, path, Bytes::new(), PATIENCE).await?;
        if told.status == StatusCode::NOT_FOUND && !is_not_open(&told) { Ok(None) } else { good(told).map(Some) }
    }

    /// Takes a resource away.
    ///
    /// # Errors
    /// As [`Admin::get`].
    pub async fn delete(&self, path: &str) -> Result<Value, Failure> {
        good(self.send(&self.fetch, Method::DELETE, path, Bytes::new(), LONG_PATIENCE).await?)
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
        let with = |fetch: Fetch, name: HeaderName, value: &str| match HeaderValue::from_str(value) {
            Ok(value) => fetch.with_field(name, value),
            Err(_) => fetch,
        };
        let mut fetch = with(self.fetch.clone(), CONTENT_TYPE, "application/json");
        if let Some(seen) = seen {
            fetch = with(fetch, IF_MATCH, &format!("\"{seen}\""));
        }
        self.send(&fetch, method, path, body.to_string().into(), LONG_PATIENCE).await
    }

    async fn send(
        &self,
        fetch: &Fetch,
        method: Method,
        path: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<Told, Failure> {
        let answer = fetch.fetch(method, path, body, patience).await.map_err(|error| {
            Failure::lost(format!("no answer at {}: {error}\nis it running, and is --admin right?", self.url))
        })?;
        let body = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        Ok(Told { status: answer.status, body })
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
    let text = format!("the gateway answers {}: {detail}", told.status);
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

/// Where the admin port is.
///
/// # Errors
/// The address is no URL of one.
pub fn place(args: &AdminArgs) -> Result<(String, u16), Failure> {
    let wrong = || Failure::wrong(format!("--admin {:?} is not a URL such as http://127.0.0.1:7401", args.admin));
    let authority = args.admin.trim_end_matches('/').strip_prefix("http://").ok_or_else(wrong)?;
    let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
    let port: u16 = port.parse().map_err(|_| wrong())?;
    Ok((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port))
}

/// What shows who asks, if there is a token.
///
/// # Errors
/// The token file cannot be read, or holds no token.
pub fn token(args: &AdminArgs) -> Result<Option<HeaderValue>, Failure> {
    let Some(file) = &args.admin_token_file else { return Ok(None) };
    let token = std::fs::read_to_string(file)
        .map_err(|e| Failure::wrong(format!("the token file {} cannot be read: {e}", file.display())))?;
    let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    value.map(Some).map_err(|_| Failure::wrong("the token has a character that no token has"))
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
