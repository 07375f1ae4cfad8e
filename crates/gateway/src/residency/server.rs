//! Calls on a model server that are not inferences: the index, a load, an unload, readiness, metadata.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;

use holdfast_codec::oip::{ModelOp, upstream_path};
use holdfast_net::{Fetch, FetchError, Fetched};
use holdfast_placement::residency::LoadError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// No answer.
    #[error("{0}")]
    Fetch(#[from] FetchError),
    /// An answer that is not a success, with the server's own words.
    #[error("the server answered {0}: {1}")]
    Status(u16, String),
    /// A load that was answered, and to which nothing ready followed.
    #[error("the server answered that it had loaded the version, but did not call it ready in time")]
    NotReady,
    /// A success that cannot be read.
    #[error("the answer cannot be read: {0}")]
    Malformed(String),
}

impl CallError {
    /// Whether the connection was refused or broke: the process may be another one when it answers again.
    pub(super) fn is_broken(&self) -> bool {
        matches!(self, Self::Fetch(FetchError::Checkout(_) | FetchError::Exchange(_)))
    }

    /// Whether the server answered, but refused for a reason that will not pass by itself. A 400 is none: Triton and MLServer answer it for
    /// whatever went wrong while loading, a full disk among them.
    pub(super) fn is_permanent(&self) -> bool {
        matches!(self, Self::Status(404 | 405 | 422, _))
    }
}

impl From<CallError> for LoadError {
    fn from(error: CallError) -> Self {
        Self { permanent: error.is_permanent(), text: error.to_string() }
    }
}

#[derive(Deserialize)]
struct IndexEntry {
    name: String,
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    state: Option<String>,
}

/// What a server lists.
#[derive(Default)]
pub(super) struct Index {
    /// Names and versions that are ready.
    pub(super) ready: Vec<(String, String)>,
    /// Names that are being loaded. Some servers (MLServer) never list any.
    pub(super) loading: BTreeSet<String>,
}

/// A server's index.
pub(super) async fn index(fetch: &Fetch, most: Duration) -> Result<Index, CallError> {
    let answer = fetch.fetch(Method::POST, "/v2/repository/index", Bytes::from_static(b"{}"), most).await?;
    let answer = success(answer)?;
    let entries: Vec<IndexEntry> =
        serde_json::from_slice(&answer.body).map_err(|e| CallError::Malformed(e.to_string()))?;
    // Some servers say "READY", some "State.READY".
    let mut index = Index::default();
    for entry in entries {
        match entry.state.as_deref().and_then(|s| s.rsplit('.').next()) {
            Some("READY") => index.ready.push((entry.name, entry.version.unwrap_or_default())),
            Some("LOADING") => drop(index.loading.insert(entry.name)),
            _ => {}
        }
    }
    Ok(index)
}

/// Asks for a load, and waits until the server says that it is done, or the connection breaks.
pub(super) async fn load(fetch: &Fetch, model: &str) -> Result<(), CallError> {
    let path = format!("/v2/repository/models/{model}/load");
    success(fetch.fetch_at_length(Method::POST, &path, Bytes::from_static(b"{}")).await?).map(|_| ())
}

/// Asks for an unload.
pub(super) async fn unload(fetch: &Fetch, model: &str, most: Duration) -> Result<(), CallError> {
    let path = format!("/v2/repository/models/{model}/unload");
    success(fetch.fetch(Method::POST, &path, Bytes::from_static(b"{}"), most).await?).map(|_| ())
}

/// Whether the server says that this version is ready.
pub(super) async fn is_ready(fetch: &Fetch, model: &str, version: &str, most: Duration) -> Result<bool, CallError> {
    let answer = fetch.fetch(Method::GET, &upstream_path(model, version, ModelOp::Ready), Bytes::new(), most).await?;
    match answer.status.as_u16() {
        200..=299 => Ok(says_ready(&answer.body)),
        400..=499 => Ok(false),
        status => Err(CallError::Status(status, words(&answer.body))),
    }
}

/// `{"ready": false}` under a 200 is not ready; an empty body or any other is.
fn says_ready(body: &[u8]) -> bool {
    let value: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    value.and_then(|v| v.get("ready").and_then(serde_json::Value::as_bool)).unwrap_or(true)
}

/// The version's metadata.
pub(super) async fn metadata(
    fetch: &Fetch,
    model: &str,
    version: &str,
    most: Duration,
) -> Result<serde_json::Value, CallError> {
    let path = upstream_path(model, version, ModelOp::Metadata);
    let answer = success(fetch.fetch(Method::GET, &path, Bytes::new(), most).await?)?;
    serde_json::from_slice(&answer.body).map_err(|e| CallError::Malformed(e.to_string()))
}

/// One inference with a whole answer.
pub(super) async fn infer(
    fetch: &Fetch,
    model: &str,
    version: &str,
    input: &serde_json::Value,
    most: Duration,
) -> Result<serde_json::Value, CallError> {
    let path = upstream_path(model, version, ModelOp::Infer);
    let body = Bytes::from(input.to_string());
    let answer = success(fetch.fetch(Method::POST, &path, body, most).await?)?;
    serde_json::from_slice(&answer.body).map_err(|e| CallError::Malformed(e.to_string()))
}

fn success(answer: Fetched) -> Result<Fetched, CallError> {
    if answer.status.is_success() {
        return Ok(answer);
    }
    Err(CallError::Status(answer.status.as_u16(), words(&answer.body)))
}

/// The server's own words: the `error` member if there is one, else the text; cut.
pub(crate) fn words(body: &[u8]) -> String {
    let value: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let error = value.as_ref().and_then(|v| v.get("error")).and_then(|e| e.as_str());
    let text = error.map_or_else(|| String::from_utf8_lossy(&body[..body.len().min(512)]).into_owned(), str::to_owned);
    text.chars().filter(|c| !c.is_control()).take(256).collect()
}
