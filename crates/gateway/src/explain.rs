//! What would happen to a request now, in words: the decision and its steps, the subset and how the version stands on each member, and what the
//! dispatcher would do.
//!
//! The residency machine and the choice among holders are asked themselves, so that what is foretold is what a request would get. Nothing is
//! changed by asking.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use holdfast_decide::{Ask, Route, Unavailable, explain};
use holdfast_placement::choose::{Candidate, Choice, choose};
use holdfast_placement::residency::{Forecast, ReplicaIx, State, VersionIx};
use holdfast_types::Failure;

use crate::server::Gateway;
use crate::stage::dispatch::{busy, nobody, refusal};
use crate::table::{Table, subset, version_of};

#[derive(Serialize)]
struct Member {
    replica: String,
    holds: bool,
    usable: bool,
    in_flight: u32,
    /// A word of [`State`], or `missing`.
    state: &'static str,
    /// What hinders it: the word that a refusal would have.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "is_zero")]
    failures: u32,
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_in_seconds: Option<u64>,
    #[serde(skip)]
    ix: ReplicaIx,
    #[serde(skip)]
    candidate: Candidate,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(n: &u32) -> bool {
    *n == 0
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
            let version = version_of(&table, decision.route);
            let members = version.map(|v| members(gateway, &table, decision.route, v)).unwrap_or_default();
            let now = now(gateway, &table, decision.route, version, &members);
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

fn members(gateway: &Gateway, table: &Table, route: &Route, version: VersionIx) -> Vec<Member> {
    let members = subset(table, route).map(|replica| {
        let holds = gateway.driver.fleet.cell(replica.ix, version).is_some_and(|c| c.holds());
        let prospect = gateway.driver.prospect(replica.ix, version);
        Member {
            replica: replica.name.to_string(),
            holds,
            usable: replica.usable(),
            in_flight: replica.in_flight(),
            state: prospect.state.map_or("missing", State::as_str),
            reason: prospect.hindered.map(|why| why.as_str()),
            failures: prospect.failures,
            why: prospect.why,
            retry_in_seconds: prospect.retry.map(seconds),
            ix: replica.ix,
            candidate: replica.candidate(holds),
        }
    });
    members.collect()
}

/// Whole seconds, rounded up: who comes back then does not come too early.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

fn now(gateway: &Gateway, table: &Table, route: &Route, version: Option<VersionIx>, members: &[Member]) -> String {
    let candidates: Vec<Candidate> = members.iter().map(|m| m.candidate).collect();
    match choose(&candidates, 0) {
        Choice::Serve(at) => {
            let holders = members.iter().filter(|m| m.holds && m.usable).count();
            let least = members.get(at).map_or("", |m| &m.replica);
            format!("would be sent to {least}, the least loaded of {holders} holders")
        }
        Choice::Busy => told(&busy()),
        Choice::NoHolder => match version.filter(|_| !members.is_empty()) {
            Some(version) => without_holder(gateway, table, route, version, members),
            None => format!("no replica of the subset is in service: {}", told(&nobody())),
        },
    }
}

fn without_holder(gateway: &Gateway, table: &Table, route: &Route, version: VersionIx, members: &[Member]) -> String {
    let budget = match route.unavailable {
        Unavailable::Wait => table.settings.request,
        Unavailable::Shed => Duration::ZERO,
    };
    let candidates: Vec<ReplicaIx> = members.iter().map(|m| m.ix).collect();
    let Forecast { answer, begins, eta } = gateway.driver.forecast(version, &candidates, budget);
    let name = |ix| members.iter().find(|m| m.ix == ix).map_or("another replica", |m| m.replica.as_str());
    let load = begins.map(|ix| format!("one load would be started on {}", name(ix)));
    let refused = answer.map(|outcome| refusal(outcome, route.unavailable));
    match (refused, load) {
        (Some(None), _) => "a replica has come to hold the version: it would be sent there".to_owned(),
        (Some(Some(failure)), None) => format!("no replica holds the version: at once {}", told(&failure)),
        (Some(Some(failure)), Some(load)) => {
            format!("no replica holds the version: {load}, and the request would at once get {}", told(&failure))
        }
        (None, load) => {
            let load = load.unwrap_or_else(|| "a load or its turn would be waited for".to_owned());
            let expected = eta.filter(|eta| !eta.is_zero()).map(|eta| format!(", expected in {} s", seconds(eta)));
            let expected = expected.unwrap_or_default();
            format!("no replica holds the version: {load}, and the request would wait within its budget{expected}")
        }
    }
}

/// A failure as a client sees it.
fn told(failure: &Failure) -> String {
    let retry = failure.retry_after_secs().map(|s| format!(", retry after {s} s")).unwrap_or_default();
    format!("{} {}{retry}: {}", failure.kind.http_status(), failure.kind.as_str(), failure.detail)
}
