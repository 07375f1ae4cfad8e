//! `/control`: what the server counted, and what is to go wrong. Not part of the protocol.

use bytes::Bytes;

use crate::faults::Faults;
use crate::reply::{self, Refusal, Reply};
use crate::server::Server;
use crate::stats::{Held, Memory, Stats};

/// `GET /control/stats`.
pub(crate) fn stats(server: &Server) -> Stats {
    let mut stats = Stats { name: server.name.clone(), ..Stats::default() };
    let shelf = server.shelf.lock();
    server.counters.fill(&mut stats);
    let (total, used) = (shelf.total().0, shelf.used().0);
    stats.memory = Memory { total, used, free: total.saturating_sub(used) };
    stats.held = shelf
        .held()
        .map(|model| Held {
            model: model.name.as_str().to_owned(),
            version: model.version.as_str().to_owned(),
            digest: model.digest.clone(),
        })
        .collect();
    stats
}

/// `GET /control/faults`.
pub(crate) fn show_faults(server: &Server) -> Reply {
    reply::json(server.injector.lock().faults())
}

/// `POST /control/faults`: replaces all faults; `{}` or an empty body switches them off.
pub(crate) fn set_faults(server: &Server, body: &Bytes) -> Result<Reply, Refusal> {
    let json = if body.is_empty() {
        serde_json::Value::Object(serde_json::Map::new())
    } else {
        serde_json::from_slice(body).map_err(|why| Refusal::bad_request(format!("not JSON: {why}")))?
    };
    let faults = Faults::from_json(json).map_err(Refusal::bad_request)?;
    server.injector.lock().set(faults);
    Ok(show_faults(server))
}
