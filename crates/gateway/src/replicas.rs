//! The replicas as the admin port shows them: whether each is well, what it holds, what takes its load slots, and what is missing.

use serde_json::{Value, json};

use holdfast_placement::residency::{LoadReport, ReplicaReport};
use holdfast_telemetry::Clock;
use holdfast_types::Mono;

use crate::fleet::Fleet;
use crate::server::Gateway;

/// `/v1/replicas`.
pub fn page(gateway: &Gateway) -> Value {
    let now = Clock::now();
    let fleet = &gateway.driver.fleet;
    let report = gateway.driver.report();
    let rows = report.replicas.iter().filter_map(|row| {
        let replica = fleet.replica(row.replica)?;
        let holdings = row.holdings.iter().filter_map(|held| {
            let facts = fleet.version(held.version)?;
            let cell = fleet.cell(row.replica, held.version)?;
            Some(json!({
                "model": facts.model.as_str(), "version": facts.version.as_str(), "state": held.state.as_str(),
                "seconds": now.since(held.since).as_secs(), "size": held.size.0, "shown": held.shown,
                "wanted": held.wanted, "in_flight": cell.in_flight(), "why": held.why,
            }))
        });
        let missing = row.missing.iter().filter_map(|m| {
            let facts = fleet.version(m.version)?;
            Some(json!({
                "model": facts.model.as_str(), "version": facts.version.as_str(), "wanted": m.wanted,
                "failures": m.failures, "why": m.why,
                "retry_in_seconds": m.retry_at.map(|at| at.since(now).as_secs()),
            }))
        });
        let loads = row.loads.iter().map(|load| shown(fleet, load, now));
        let polled = replica.last_poll();
        let age = (polled != Mono::ZERO).then(|| now.since(polled).as_millis() as u64);
        Some(json!({
            "pool": replica.pool.as_str(), "replica": replica.name.as_str(), "url": format!("http://{}", replica.endpoint),
            "up": replica.usable(), "draining": replica.is_draining(), "in_service": replica.in_service(), "observed": row.observed,
            "last_poll_age_ms": age, "last_error": replica.last_error(),
            "memory": row.memory.map(|m| m.0), "held": row.held.0, "in_flight": replica.in_flight(),
            "connections": replica.open_connections(), "loads_in_flight": row.loads_in_flight, "loads": loads.collect::<Vec<_>>(),
            "strangers": replica.strangers(), "holds": holdings.collect::<Vec<_>>(), "missing": missing.collect::<Vec<_>>(),
        }))
    });
    json!({
        "loads_in_flight": report.loads_in_flight, "loads_bound": report.fleet_loads, "waiting": report.waiting,
        "replicas": rows.collect::<Vec<_>>(),
    })
}

/// A load that takes a slot, by name: also one that nobody wants any more, and of a version that no table names.
fn shown(fleet: &Fleet, load: &LoadReport, now: Mono) -> Value {
    let facts = fleet.version(load.version);
    json!({
        "model": facts.as_ref().map(|facts| facts.model.as_str()), "version": facts.as_ref().map(|facts| facts.version.as_str()),
        "seconds": now.since(load.since).as_secs(), "wanted": load.wanted,
        "overdue_seconds": load.overdue_since.map(|since| now.since(since).as_secs()),
    })
}

/// What keeps a load from its slot although it has not failed: one there that is over its time. No times, so that the words change only with what they say.
pub fn in_the_way(fleet: &Fleet, row: &ReplicaReport) -> Option<String> {
    let overdue = row.loads.iter().find(|load| load.overdue_since.is_some())?;
    let facts = fleet.version(overdue.version)?;
    Some(format!(
        "waits for a load slot, which the load of {}/{} keeps beyond its time: the server has not ended it",
        facts.model, facts.version
    ))
}
