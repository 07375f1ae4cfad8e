//! What the server says about itself and its models: metadata, readiness, the repository's index.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::loads::on_disk;
use crate::model::Model;
use crate::reply::{self, Refusal, Reply, empty};
use crate::repository::Entry;
use crate::route::Target;
use crate::server::Server;
use crate::shelf::{Missing, Shelf, State};
use crate::tensors::TEXT;

/// `GET /v2`.
pub(crate) fn server(server: &Server) -> Reply {
    reply::json(&json!({
        "name": server.name,
        "version": env!("CARGO_PKG_VERSION"),
        "extensions": ["model_repository", "binary_tensor_data"],
    }))
}

/// `GET /v2/models/NAME`, `GET /v2/models/NAME/versions/VERSION`.
pub(crate) fn model(server: &Server, target: Target<'_>) -> Result<Reply, Refusal> {
    let (model, versions) = {
        let shelf = server.shelf.lock();
        (shelf.find(target.name, target.version), shelf.versions(target.name))
    };
    let model = model.map_err(|why| Refusal::missing(&why, target.name, target.version))?;
    Ok(reply::json(&describe(&model, &versions)))
}

fn describe(model: &Model, versions: &[String]) -> serde_json::Value {
    json!({
        "name": model.name.as_str(),
        "versions": versions,
        "platform": "holdfast_linear_text",
        "inputs": [{ "name": TEXT, "datatype": "BYTES", "shape": [-1] }],
        "outputs": [
            { "name": "label", "datatype": "BYTES", "shape": [-1] },
            { "name": "score", "datatype": "FP32", "shape": [-1, model.labels().len()] },
        ],
        "parameters": { "version": model.version.as_str(), "digest": model.digest, "size": model.size.to_string() },
    })
}

/// `GET .../ready`: 200 when it answers, 404 when it is not held, 400 while the version that is named is being loaded.
pub(crate) async fn model_ready(server: &Arc<Server>, target: Target<'_>) -> Result<Reply, Refusal> {
    if server.injector.lock().lies() {
        let index = on_disk(&server.repository, |repository| repository.index()).await?;
        let is_asked = |e: &Entry| e.name == target.name && target.version.is_none_or(|version| version == e.version);
        if index.iter().any(is_asked) {
            return Ok(empty());
        }
    }
    let found = server.shelf.lock().find(target.name, target.version).map(|_| ());
    match found {
        Ok(()) => Ok(empty()),
        Err(why) => {
            let mut refusal = Refusal::missing(&why, target.name, target.version);
            if why == Missing::NotReady {
                refusal.status = StatusCode::BAD_REQUEST;
            }
            Err(refusal)
        }
    }
}

/// One row of the index.
#[derive(Serialize)]
struct Row {
    name: String,
    version: String,
    state: &'static str,
    reason: String,
}

/// `POST /v2/repository/index`. The body may be empty.
pub(crate) async fn index(server: &Arc<Server>, body: &Bytes) -> Result<Reply, Refusal> {
    #[derive(Default, Deserialize)]
    struct Wish {
        ready: Option<bool>,
    }
    let wish: Wish = if body.iter().all(u8::is_ascii_whitespace) {
        Wish::default()
    } else {
        serde_json::from_slice(body)
            .map_err(|why| Refusal::bad_request(format!("failed to parse the request JSON: {why}")))?
    };
    let entries = on_disk(&server.repository, |repository| repository.index()).await?;
    let lies = server.injector.lock().lies();
    let shelf = server.shelf.lock();
    let mut rows: Vec<Row> = entries.into_iter().map(|entry| row(&shelf, entry, lies)).collect();
    drop(shelf);
    rows.retain(|row| row.state == "READY" || wish.ready != Some(true));
    Ok(reply::json(&rows))
}

fn row(shelf: &Shelf, entry: Entry, lies: bool) -> Row {
    let (state, reason) = match (entry.fault, shelf.state(&entry.name, &entry.version)) {
        (None, _) if lies => ("READY", String::new()),
        (_, State::Ready) => ("READY", String::new()),
        (_, State::Loading) => ("LOADING", String::new()),
        (fault, State::Unavailable(reason)) => ("UNAVAILABLE", fault.unwrap_or(reason)),
    };
    Row { name: entry.name, version: entry.version, state, reason }
}
