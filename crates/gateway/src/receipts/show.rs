//! A receipt in words, as JSON.

use std::time::Duration;

use serde_json::{Map, Value, json};

use holdfast_decide::Cause;
use holdfast_identity::Subject;
use holdfast_telemetry::{Wall, utc};
use holdfast_types::Mono;

use super::packed::Packed;
use super::{Receipt, Receipts, RouteFacts};

/// The most receipts of one answer.
const PAGE: usize = 1_000;

/// The receipt of a request, if it is one of the last.
#[must_use]
pub fn one(receipts: &Receipts, id: &str) -> Option<Value> {
    receipts.find(id.as_bytes()).map(|receipt| told(&receipt, Wall::read()))
}

/// The newest, newest first, of one tenant if it is given: also those in which a refused client named it.
#[must_use]
pub fn list(receipts: &Receipts, tenant: Option<&str>, limit: Option<usize>) -> Value {
    let is_wanted = |receipt: &Packed| tenant.is_none_or(|tenant| receipt.tenant() == Some(tenant));
    let wall = Wall::read();
    let newest = receipts.newest(limit.unwrap_or(100).min(PAGE), is_wanted);
    json!({ "receipts": newest.iter().map(|receipt| told(receipt, wall)).collect::<Vec<_>>() })
}

pub(super) fn told(receipt: &Receipt, wall: Wall) -> Value {
    let (outcome, journal) = (&receipt.outcome, &receipt.journal);
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| drop((!value.is_null()).then(|| out.insert(name.to_owned(), value)));
    put("request_id", String::from_utf8_lossy(&receipt.id).into());
    put("time", utc(wall.millis_at(receipt.begun)).into());
    put("method", receipt.method.into());
    put("endpoint", outcome.endpoint.as_str().into());
    put("client", receipt.client.as_deref().into());
    if let Some(subject) = &receipt.subject {
        put("who", who(subject));
    }
    match (&receipt.resolved, &journal.asked) {
        (Some((facts, reason, revision)), _) => {
            put("tenant", facts.tenant.as_str().into());
            put("model", facts.model.as_str().into());
            put("version", facts.version.as_str().into());
            put("reason", (*reason).into());
            put("revision", revision.0.into());
            if let Some(cause) = &journal.cause {
                put(if cause.stamp.is_empty() { "rule" } else { "experiment" }, chosen_by(cause).into());
            }
            put("pool", facts.pool.as_str().into());
            put("subset", subset(receipt, facts));
        }
        (None, Some(asked)) => {
            put("asked", json!({ "tenant": asked.tenant, "model": asked.model, "version": asked.version }));
        }
        (None, None) => {}
    }
    put("submission", journal.submission.into());
    put("limits", limits(receipt));
    put("picks", journal.picks.into());
    put("waits", waits(receipt));
    put("attempts", attempts(receipt));
    put("retries", outcome.attempts.saturating_sub(1).into());
    put("replica", receipt.replica.as_ref().map(|replica| replica.as_str()).into());
    put("status", outcome.status.into());
    put("error", outcome.error.map(|error| error.as_str()).into());
    put("detail", journal.detail.as_deref().into());
    put("bytes_in", outcome.bytes_in.into());
    put("bytes_out", outcome.bytes_out.into());
    put("stages", stages(receipt));
    put("total_us", micros(outcome.timing.total));
    put("wait_us", micros(outcome.timing.wait));
    put("upstream_us", outcome.timing.upstream.map_or(Value::Null, micros));
    put("gateway_us", micros(outcome.timing.gateway()));
    Value::Object(out)
}

/// An arm as its stamp has it, a rule by its id.
fn chosen_by(cause: &Cause) -> &str {
    if cause.stamp.is_empty() { &cause.id } else { &cause.stamp }
}

/// Whom the token named.
fn who(subject: &Subject) -> Value {
    let (user, plan, device) = (&subject.user, &subject.plan, &subject.device);
    json!({
        "issuer": *subject.issuer, "tenant": subject.tenant.as_str(), "user": user, "plan": plan, "device": device,
        "scopes": subject.scopes,
    })
}

fn limits(receipt: &Receipt) -> Value {
    let Some(limited) = receipt.journal.limits else { return Value::Null };
    let over = limited.over.map(|(scope, what)| format!("{}-{}", scope.as_str(), what.as_str()));
    json!({ "admitted": limited.admitted, "over": over })
}

/// The subset as it was when a replica was last looked for; without such a look, its names.
fn subset(receipt: &Receipt, facts: &RouteFacts) -> Value {
    let looks = &receipt.journal.looks;
    if looks.is_empty() {
        let members = facts.members.iter().take(usize::from(facts.subset));
        return members.map(|member| json!({ "replica": member.as_str() })).collect();
    }
    let seen = looks.iter().map(|look| {
        json!({
            "replica": name(facts, look.member), "holds": look.holds, "usable": look.usable, "cooling": look.cooling,
            "in_flight": look.in_flight,
        })
    });
    seen.collect()
}

fn name(facts: &RouteFacts, member: u8) -> Option<&str> {
    facts.members.get(usize::from(member)).map(|name| name.as_str())
}

fn waits(receipt: &Receipt) -> Value {
    let waits = receipt.journal.waits.iter().map(|wait| {
        let (until, how) = wait.ended.unwrap_or((receipt.ended, "the request ended first"));
        json!({ "for": wait.what, "at_us": since(receipt, wait.from), "took_us": micros(until.since(wait.from)), "ended": how })
    });
    waits.collect()
}

fn attempts(receipt: &Receipt) -> Value {
    let facts = receipt.resolved.as_ref().map(|(facts, ..)| facts);
    let attempts = receipt.journal.tried.iter().map(|tried| {
        json!({
            "replica": facts.and_then(|facts| name(facts, tried.member)),
            "sent_us": tried.sent.map(|at| since(receipt, at)),
            "ended": tried.ended.unwrap_or("the request ended first"),
        })
    });
    attempts.collect()
}

/// The moments of the request, in their order, counted from the first.
fn stages(receipt: &Receipt) -> Value {
    let journal = &receipt.journal;
    let stages = [
        ("accepted", Some(receipt.begun)),
        ("resolved", journal.resolved),
        ("body_read", journal.read),
        ("sent", journal.tried.iter().rev().find_map(|tried| tried.sent)),
        ("answer_begun", journal.passing),
        ("answer_complete", receipt.answered),
        ("ended", Some(receipt.ended)),
    ];
    let reached = stages.iter().filter_map(|(stage, at)| Some((stage, (*at)?)));
    reached.map(|(stage, at)| json!({ "stage": stage, "at_us": since(receipt, at) })).collect()
}

fn since(receipt: &Receipt, at: Mono) -> Value {
    micros(at.since(receipt.begun))
}

fn micros(span: Duration) -> Value {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX).into()
}
