//! What would happen to a request now, in words: the decision and its steps, the subset, who holds, and what the dispatcher would do.

use serde::Serialize;
use serde_json::json;

use holdfast_decide::{Ask, Route, explain};

use crate::server::Gateway;
use crate::table::{Table, subset, version_of};

#[derive(Serialize)]
struct Member {
    replica: String,
    holds: bool,
    usable: bool,
    in_flight: u32,
}

/// The explanation of one ask, as JSON.
pub fn explanation(gateway: &Gateway, tenant: &str, model: &str, version: Option<&str>) -> serde_json::Value {
    let table = gateway.tables.load();
    let (steps, decided) = explain(&table.snapshot, &Ask { tenant, model, version });
    let steps: Vec<_> = steps.iter().map(|s| json!({ "stage": s.stage, "outcome": s.outcome })).collect();
    let revision = table.snapshot.revision().0;
    match decided {
        Err(refusal) => {
            let failure = refusal.failure();
            json!({ "revision": revision, "steps": steps, "error": failure.kind.as_str(), "detail": failure.detail })
        }
        Ok(decision) => {
            let members = members(gateway, &table, decision.route);
            let now = forecast(&members);
            json!({
                "revision": revision,
                "steps": steps,
                "version": decision.route.version.as_str(),
                "reason": decision.reason.as_str(),
                "upstream": { "model": &*decision.route.upstream_model, "version": &*decision.route.upstream_version },
                "subset": members,
                "now": now,
            })
        }
    }
}

fn members(gateway: &Gateway, table: &Table, route: &Route) -> Vec<Member> {
    let version = version_of(table, route);
    let members = subset(table, route).map(|replica| {
        let cell = version.and_then(|v| gateway.driver.fleet.cell(replica.ix, v));
        Member {
            replica: replica.name.to_string(),
            holds: cell.is_some_and(|c| c.holds()),
            usable: replica.usable(),
            in_flight: replica.in_flight(),
        }
    });
    members.collect()
}

fn forecast(members: &[Member]) -> String {
    let holders: Vec<&Member> = members.iter().filter(|m| m.holds && m.usable).collect();
    if members.is_empty() {
        return "no replica of the subset is in service: 503 no_holder".to_owned();
    }
    match holders.iter().min_by_key(|m| m.in_flight) {
        Some(least) => format!("would be sent to {}, the least loaded of {} holders", least.replica, holders.len()),
        None => "no replica holds the version: one load would be started, and the request would wait within its budget"
            .to_owned(),
    }
}
