//! Whether the process lives and whether it should be sent requests.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use holdfast_telemetry::Clock;

use crate::server::Gateway;

/// The version of the product, from the build.
pub const BUILD_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Tells how the store of the control plane does: `{ok, error, since}`. With `true` in the words of the store, for callers who have shown the
/// admin token; with `false` in words for everybody.
pub type StoreProbe = Arc<dyn Fn(bool) -> Value + Send + Sync>;

/// `/livez`: the process answers, so it lives. Asks nothing of anything else.
pub fn live() -> String {
    json!({ "live": true }).to_string()
}

/// `GET /v2`.
pub fn server_metadata() -> String {
    json!({ "name": "holdfast", "version": BUILD_VERSION, "extensions": ["binary_tensor_data"] }).to_string()
}

/// `/readyz`: a table is in force (in a fleet it has to come first) and no drain has begun. Versions that are still being warmed do not make the gateway unready; `verbose` names them.
pub fn ready(gateway: &Gateway, verbose: bool) -> (StatusCode, String) {
    let (draining, without) = (gateway.drain.started(), gateway.lacks_table());
    let is_ready = !draining && !without;
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = json!({ "ready": is_ready, "draining": draining });
    if verbose && let Some(object) = body.as_object_mut() {
        object.extend(gateway.standing.told(Clock::now(), Clock::wall_millis()));
        object.insert("refused".to_owned(), gateway.tables.refused().map(|r| r.words).into());
        let table = gateway.tables.load();
        object.insert("revision".to_owned(), table.snapshot.revision().0.into());
        object.insert("missing".to_owned(), missing(gateway).into());
        let state = gateway.tables.config_status();
        object.insert("config_error".to_owned(), state.failed.map(|f| f.faults).into());
        object.insert("pending_pins".to_owned(), gateway.tables.pending().len().into());
        if let Some(seat) = gateway.driver.seat_told() {
            object.insert("seat".to_owned(), seat);
        }
        if let Some(store) = &gateway.store {
            object.insert("store".to_owned(), store(false));
        }
    }
    (status, body.to_string())
}

/// Pinned versions that are not held where they should be.
fn missing(gateway: &Gateway) -> Vec<serde_json::Value> {
    let mut out = Vec::new();
    for replica in gateway.driver.report().replicas {
        let Some(name) = gateway.driver.fleet.replica(replica.replica) else { continue };
        for missing in replica.missing.into_iter().filter(|m| m.wanted) {
            let Some((model, version)) = gateway.driver.version_name(missing.version) else { continue };
            out.push(json!({
                "pool": name.pool.as_str(), "replica": name.name.as_str(),
                "model": model, "version": version.as_str(), "why": missing.why,
            }));
        }
    }
    out
}

/// `?verbose`, with or without a value.
pub fn is_verbose(query: Option<&str>) -> bool {
    query.is_some_and(|q| q.split('&').any(|p| p == "verbose" || p.starts_with("verbose=")))
}
