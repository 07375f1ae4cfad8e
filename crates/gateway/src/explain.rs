//! What would happen to a request now, in words: the decision and its steps, a share of the pin that goes elsewhere, the subset and how the
//! version stands on each member, and what the dispatcher would do.
//!
//! The residency machine and the choice among holders are asked themselves, so that what is foretold is what a request would get. Nothing is
//! changed by asking.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use holdfast_decide::{
    Ask, Caller, Decision, ModelEntry, Reason, Refusal, Route, Snapshot, Step, TenantEntry, Unavailable, explain_for,
};
use holdfast_placement::choose::{Candidate, Choice, choose};
use holdfast_placement::residency::{Forecast, ReplicaIx, State, VersionIx};
use holdfast_submission::{Asked, Ledger, Next, OnFailure, next};
use holdfast_telemetry::Clock;
use holdfast_types::Failure;

use crate::asker::Described;
use crate::fleet::Replica;
use crate::pause::Pause;
use crate::route_state::RouteState;
use crate::server::Gateway;
use crate::stage::dispatch::{busy, leaver, nobody, refusal};
use crate::stage::submission;
use crate::table::{Table, subset, version_of};

#[derive(Serialize)]
struct Member {
    replica: String,
    holds: bool,
    /// For this version: the replica is up, and the version is not quarantined there.
    usable: bool,
    /// It asked for a pause, and is left alone.
    cooling: bool,
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
    /// How much is left of the pause that clients of this tenant and version are told of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_seconds: Option<u64>,
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

/// The explanation of one ask by somebody, as JSON. `wants` is the version that an override names, `token` the route token that a retry brings.
pub fn explanation(
    gateway: &Gateway,
    ask: &Ask<'_>,
    who: &Described,
    (wants, token): (Option<&str>, Option<&str>),
) -> serde_json::Value {
    if let Some(token) = token {
        return replayed(gateway, ask, token);
    }
    let table = gateway.tables.load();
    let Ask { tenant, model, .. } = *ask;
    let scope = table.settings.override_scope.as_deref();
    let may_override = scope.is_some_and(|scope| who.scopes.iter().any(|one| one == scope));
    let (steps, decided) = explain_for(&table.snapshot, ask, &Caller { facts: who, wants, may_override });
    let split = split(&table.snapshot, tenant, model);
    let shared = split.as_ref().map(|split| Step { stage: "split", outcome: shared(split) });
    // The share is of the pin, and decides with it.
    let at = steps.iter().position(|step| step.stage == "decision").unwrap_or(steps.len());
    let (before, after) = steps.split_at(at);
    let steps = before.iter().chain(&shared).chain(after);
    let steps: Vec<_> = steps.map(|s| json!({ "stage": s.stage, "outcome": s.outcome })).collect();
    let mut told = match decided {
        Err(refusal) => {
            let failure = refusal.failure();
            let mut told = json!({ "error": failure.kind.as_str(), "detail": failure.detail });
            if refusal == Refusal::UnknownTenant {
                told["unknown"] = "tenant".into();
            }
            told
        }
        Ok(decision) => on_the_way(gateway, &table, &decision),
    };
    told["revision"] = table.snapshot.revision().0.into();
    told["steps"] = steps.into();
    if let Some(split) = &split {
        told["split"] = json!(split);
    }
    told
}

/// The explanation of a retry that brings a route token.
fn replayed(gateway: &Gateway, ask: &Ask<'_>, token: &str) -> serde_json::Value {
    let Ask { tenant, model, version, .. } = *ask;
    let table = gateway.tables.load();
    let tokens = gateway.submissions.as_ref().and_then(|submissions| submissions.tokens.as_ref());
    let claim = match tokens {
        None => Err("route tokens are not taken here"),
        Some(tokens) => tokens.open_text(token.as_bytes(), tenant).map_err(|why| why.words()),
    };
    let found = claim.and_then(|claim| {
        let asked = Asked { model, version };
        match next(asked, Some(&claim), Ledger::Off, OnFailure::Refuse) {
            Next::Refuse(why) => Err(why.words()),
            _ => Ok(claim.record),
        }
    });
    let mut told = match &found {
        Err(why) => json!({ "error": "bad_request", "detail": why }),
        Ok(record) => match submission::route_of(&table, tenant, record) {
            Err(failure) => json!({ "error": failure.kind.as_str(), "detail": failure.detail }),
            Ok(route) => {
                let (reason, revision) = (Reason::Replay, record.revision);
                let decision = Decision { route: &route, reason, revision, cause: None, by: None };
                on_the_way(gateway, &table, &decision)
            }
        },
    };
    let outcome = match &found {
        Err(why) => format!("it is refused: {why}"),
        Ok(record) => format!(
            "the submission was resolved to version {} under revision {}; the token counts until {}",
            record.version,
            record.revision,
            holdfast_telemetry::utc(record.until)
        ),
    };
    if let Some(arms) = found.as_ref().ok().and_then(|record| record.arms.as_deref()) {
        told["experiment"] = arms.into();
    }
    told["revision"] = found.as_ref().map_or(table.snapshot.revision().0, |record| record.revision.0).into();
    told["steps"] = json!([
        { "stage": "table", "outcome": format!("revision {}", table.snapshot.revision()) },
        { "stage": "route token", "outcome": outcome },
    ]);
    told
}

/// What a decision leads to.
fn on_the_way(gateway: &Gateway, table: &Table, decision: &Decision<'_>) -> serde_json::Value {
    let route = decision.route;
    let version = version_of(table, route);
    let members = version.map(|v| members(gateway, table, route, v)).unwrap_or_default();
    let leaving = version.map(|v| leaving(gateway, table, route, v, &members)).unwrap_or_default();
    let mut told = json!({
        "version": route.version.as_str(),
        "reason": decision.reason.as_str(),
        "experiment": decision.cause.map(|cause| &*cause.stamp).filter(|stamp| !stamp.is_empty()),
        "upstream": { "model": &*route.upstream_model, "version": &*route.upstream_version },
        "now": now(gateway, table, route, version, (&members, &leaving)),
        "subset": members,
    });
    if let Some(limits) = table.limits.route(&route.tenant, &route.model) {
        told["limits"] = crate::limits::explained(&limits);
    }
    if !leaving.is_empty() {
        told["leaving"] = json!(leaving);
    }
    told
}

/// A share of a pin's submissions that goes to another version.
#[derive(Serialize)]
pub struct Shared<'s> {
    version: &'s str,
    percent: u8,
}

/// The tenant's split pins by model.
pub fn splits<'s>(
    snapshot: &'s Snapshot,
    tenant: &'s TenantEntry,
) -> impl Iterator<Item = (&'s ModelEntry, Shared<'s>)> {
    let splits = snapshot.splits(tenant);
    splits.map(|(model, version, percent)| (model, Shared { version: version.version.as_str(), percent }))
}

fn split<'s>(snapshot: &'s Snapshot, tenant: &str, model: &str) -> Option<Shared<'s>> {
    let all = splits(snapshot, snapshot.tenant(tenant)?);
    all.into_iter().find(|(of, _)| of.name.as_str() == model).map(|(_, split)| split)
}

fn shared(split: &Shared<'_>) -> String {
    format!("{} % of the pin's submissions go to version {}, the others to the pin", split.percent, split.version)
}

fn members(gateway: &Gateway, table: &Table, route: &Route, version: VersionIx) -> Vec<Member> {
    let state = RouteState::made(route);
    let members = subset(table, route).map(|replica| {
        let holds = gateway.driver.fleet.cell(replica.ix, version).is_some_and(|c| c.holds());
        let pause = state.as_ref().and_then(|state| state.pause(replica.ix));
        member(gateway, replica, version, (replica.candidate(holds), pause))
    });
    members.collect()
}

/// Former holders, while no member of the subset holds the version.
fn leaving(gateway: &Gateway, table: &Table, route: &Route, version: VersionIx, members: &[Member]) -> Vec<Member> {
    let Some(leaving) = table.handover.of(route) else { return Vec::new() };
    let serving = leaving.serving(Clock::now(), members.iter().any(|m| m.holds));
    serving.map(|(_, cell)| member(gateway, &cell.replica, version, (leaver(cell, true), None))).collect()
}

fn member(
    gateway: &Gateway,
    replica: &Replica,
    version: VersionIx,
    (mut candidate, pause): (Candidate, Option<&Pause>),
) -> Member {
    let prospect = gateway.driver.prospect(replica.ix, version);
    let pause = pause.filter(|pause| pause.is_on());
    candidate.cooling |= pause.is_some();
    Member {
        replica: replica.name.to_string(),
        holds: candidate.holds,
        usable: candidate.usable && prospect.state != Some(State::Quarantined),
        cooling: candidate.cooling,
        pause_seconds: pause.map(|pause| seconds(pause.left(Clock::now()))),
        in_flight: candidate.in_flight,
        state: prospect.state.map_or("missing", State::as_str),
        reason: prospect.hindered.map(|why| why.as_str()),
        failures: prospect.failures,
        why: if candidate.cooling && prospect.why.is_empty() { LEFT_ALONE.to_owned() } else { prospect.why },
        retry_in_seconds: prospect.retry.map(seconds),
        ix: replica.ix,
        candidate,
    }
}

const LEFT_ALONE: &str = "it asked for a pause, and is left alone for some seconds";

/// Whole seconds, rounded up: who comes back then does not come too early.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

fn now(
    gateway: &Gateway,
    table: &Table,
    route: &Route,
    version: Option<VersionIx>,
    (members, leaving): (&[Member], &[Member]),
) -> String {
    let state = RouteState::made(route);
    let asked = || members.iter().chain(leaving);
    let candidates: Vec<Candidate> = asked().map(|m| m.candidate).collect();
    match choose(&candidates, 0) {
        Choice::Serve(at) => {
            let holders = asked().filter(|m| m.holds && m.usable).count();
            let least = asked().nth(at).map_or("", |m| &m.replica);
            format!("would be sent to {least}, the least loaded of {holders} holders")
        }
        Choice::Busy => told(&busy(state.as_deref(), route.subset)),
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
