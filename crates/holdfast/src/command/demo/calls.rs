//! The demo as a client: requests of one tenant, and who really judged them.
//!
//! What an answer says about its version is not believed: the scores in it are compared with those that the version's own file gives.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method};
use serde_json::{Value, json};

use holdfast_model_server::Model;
use holdfast_model_server::model::Place;
use holdfast_net::{Connector, Fetch, Fetched, Target, Tasks};

use super::world::{MODEL, VERSIONS};
use crate::command::Failure;

/// What tenants ask about, in turn.
const TEXTS: [&str; 4] =
    ["an invoice for coffee and books", "sanctioned goods, forged papers", "a garden for the school", "version probe"];

/// A client of one address.
#[derive(Clone)]
pub struct Calls {
    fetch: Fetch,
    authority: Arc<str>,
}

impl Calls {
    /// Connects on first use. Must be called within a runtime.
    pub fn new(authority: &str) -> Result<Self, Failure> {
        let port = authority.rsplit(':').next().and_then(|port| port.parse().ok());
        let port = port.ok_or_else(|| Failure::failed(format!("{authority} has no port")))?;
        let connector = Arc::new(Connector::new(Target::new("127.0.0.1", port)));
        let tasks = Tasks::new(tokio::runtime::Handle::current());
        Ok(Self { fetch: Fetch::new(connector, authority, tasks), authority: authority.into() })
    }

    /// Host and port.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The same client with a field in each request.
    pub fn with(mut self, name: &'static str, value: &str) -> Result<Self, Failure> {
        let value = HeaderValue::from_str(value).map_err(|e| Failure::failed(format!("{name}: {e}")))?;
        self.fetch = self.fetch.with_field(HeaderName::from_static(name), value);
        Ok(self)
    }

    /// One exchange.
    pub async fn send(&self, method: Method, path: &str, body: String, most: Duration) -> Result<Fetched, String> {
        self.fetch.fetch(method, path, Bytes::from(body), most).await.map_err(|e| e.to_string())
    }
}

/// What became of one request for a verdict.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The status; 0 without an answer.
    pub status: u16,
    /// The kind of failure, or what broke.
    pub error: String,
    /// The version that the answer claims.
    pub version: String,
    /// The table's revision.
    pub revision: u64,
    /// Who answered.
    pub replica: String,
    /// Seconds to wait before asking again.
    pub retry_after: Option<u64>,
    /// The versions whose weights give these scores.
    pub judged_by: Vec<&'static str>,
    /// How long it took.
    pub took: Duration,
}

/// The weights of every version, to tell from an answer who gave it.
pub struct Judges(Vec<(&'static str, Model)>);

impl Judges {
    /// Reads the models' files.
    pub fn read(models: &Path) -> Result<Self, Failure> {
        let read = |version: &'static str| {
            let name = format!("{MODEL}-{version}");
            let bytes = std::fs::read(models.join(&name).join("model.json")).map_err(|e| e.to_string())?;
            let place = Place { name: &name, version: None };
            Ok((version, Model::parse(&bytes, place).map_err(|e| e.to_string())?))
        };
        let judges: Result<Vec<_>, String> = VERSIONS.into_iter().map(read).collect();
        judges.map(Self).map_err(|why| Failure::failed(format!("a sample model cannot be read: {why}")))
    }

    fn who(&self, text: &str, body: &[u8]) -> Vec<&'static str> {
        let answer: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let outputs = answer["outputs"].as_array().cloned().unwrap_or_default();
        let scores = outputs.iter().find(|o| o["name"] == "score").and_then(|o| o["data"].as_array().cloned());
        let scores: Vec<f64> = scores.unwrap_or_default().iter().filter_map(Value::as_f64).collect();
        let gives = |model: &Model| {
            let own = model.classify(text).scores;
            own.len() == scores.len() && own.iter().zip(&scores).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5)
        };
        self.0.iter().filter(|(_, model)| gives(model)).map(|(version, _)| *version).collect()
    }
}

/// Asks for a verdict. `turn` chooses the text; `version` is named in the path if it is given.
pub async fn ask(calls: &Calls, judges: &Judges, turn: usize, version: Option<&str>) -> Verdict {
    let text = TEXTS.get(turn % TEXTS.len()).copied().unwrap_or_default();
    let body = json!({ "inputs": [{ "name": "text", "shape": [1], "datatype": "BYTES", "data": [text] }] });
    let path = match version {
        None => format!("/v2/models/{MODEL}/infer"),
        Some(version) => format!("/v2/models/{MODEL}/versions/{version}/infer"),
    };
    let begun = Instant::now();
    let answer = calls.send(Method::POST, &path, body.to_string(), Duration::from_secs(30)).await;
    let took = begun.elapsed();
    let Ok(answer) = answer.as_ref() else {
        return Verdict {
            status: 0,
            error: "no answer".to_owned(),
            version: String::new(),
            revision: 0,
            replica: String::new(),
            retry_after: None,
            judged_by: Vec::new(),
            took,
        };
    };
    let field = |name: &str| answer.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    Verdict {
        status: answer.status.as_u16(),
        error: field("x-holdfast-error"),
        version: field("x-holdfast-version"),
        revision: field("x-holdfast-revision").parse().unwrap_or(0),
        replica: field("x-holdfast-replica"),
        retry_after: field("retry-after").parse().ok(),
        judged_by: if answer.status.is_success() { judges.who(text, &answer.body) } else { Vec::new() },
        took,
    }
}
