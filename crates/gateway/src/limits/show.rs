//! Limits and what is used of them, as JSON for the admin port.

use serde_json::{Value, json};

use holdfast_config::LimitedEndpoint;
use holdfast_quota::lease::{over_admission_bound, over_admission_bound_alone};
use holdfast_quota::limit::Allowance;
use holdfast_telemetry::Clock;
use holdfast_types::{Mono, TenantId};

use super::book::{Book, Use};
use super::terms::{Cap, Key, Source, Terms};
use super::{LimitTable, RouteLimits};

/// The tenants that have limits, in order of their names after one of them, at most so many; and those of all together.
#[must_use]
pub fn listed(table: &LimitTable, of: Option<&str>, after: Option<&str>, most: usize, now: Mono) -> Value {
    let mut names: Vec<&TenantId> =
        table.tenants.keys().filter(|name| of.is_none_or(|of| of == name.as_str())).collect();
    names.sort_unstable();
    let rest = names.into_iter().filter(|name| after.is_none_or(|after| name.as_str() > after));
    let mut shown: Vec<&TenantId> = rest.take(most.saturating_add(1)).collect();
    let more = shown.len() > most;
    shown.truncate(most);
    let next = shown.last().filter(|_| more).map(|name| name.as_str());
    let rows: Vec<Value> =
        shown.iter().filter_map(|name| Some(tenant(table, name, table.tenants.get(*name)?, now))).collect();
    let global = table.global.as_ref().map(|terms| limits(terms, Some(&table.kept.global), now)).unwrap_or_default();
    let store = table.kept.link().map(|link| {
        let state = link.state();
        json!({
            "up": state.up, "gateways": state.gateways, "calls": state.calls, "failures": state.failures, "connects": state.connects,
            "admitted_alone": link.admitted_alone(), "why": link.why(),
        })
    });
    json!({ "tenants": rows, "global": global, "next": next, "store": store })
}

fn tenant(table: &LimitTable, name: &TenantId, terms: &Terms, now: Mono) -> Value {
    let book = table.kept.books.lock().get(name).cloned();
    let mut all = limits(terms, book.as_deref(), now);
    if terms.connection != Allowance::Unlimited {
        let mut row = json!({ "scope": "connection", "limit": "requests", "for": Value::Null });
        rate(&mut row, terms.connection);
        all.insert(0, row);
    }
    let mode = if terms.shadow { "shadow" } else { "enforce" };
    let mut row = json!({ "tenant": name.as_str(), "plan": terms.plan, "mode": mode, "limits": all });
    if let Some(steps) = book.and_then(|book| book.steps.shown()) {
        row["ladder"] = steps;
    }
    row
}

fn limits(terms: &Terms, book: Option<&Book>, now: Mono) -> Vec<Value> {
    let used = book.map(|book| book.look_at_all(|(key, used)| (key.clone(), told(key, used, now)))).unwrap_or_default();
    let row = |(key, cap): &(Key, Cap)| {
        let known = used.iter().find(|(known, _)| known == key).map(|(_, row)| row.clone());
        // Nobody has come yet.
        known.unwrap_or_else(|| unused(key, *cap))
    };
    terms.caps.iter().map(row).collect()
}

fn head(key: &Key) -> Value {
    let of = match &key.source {
        Source::Plan => Value::Null,
        Source::Model(model) => json!({ "model": model.as_str() }),
        Source::Endpoint(endpoint) => json!({ "endpoint": endpoint.as_str() }),
    };
    let mut head = json!({ "scope": key.scope.as_str(), "limit": key.what.as_str(), "for": of });
    if let Some(plan) = &key.plan {
        head["plan"] = plan.as_str().into();
    }
    head
}

fn rate(row: &mut Value, allowance: Allowance) {
    match allowance {
        Allowance::Unlimited => row["rate"] = "unlimited".into(),
        Allowance::Nothing => row["rate"] = 0.into(),
        Allowance::Limited(limit) => {
            let per = u64::try_from(limit.rate.per().as_millis()).unwrap_or(u64::MAX);
            row["rate"] = json!({ "amount": limit.rate.tokens(), "per_ms": per });
            row["burst"] = limit.burst.into();
            // One bucket in this process is exact.
            row["over_admission_bound"] = 0.into();
        }
    }
}

fn unused(key: &Key, cap: Cap) -> Value {
    let mut row = head(key);
    match cap {
        Cap::Rate(allowance) => {
            rate(&mut row, allowance);
            if let Allowance::Limited(limit) = allowance {
                row["available"] = limit.burst.into();
            }
        }
        Cap::AtOnce(most) => at_once(&mut row, most, 0),
    }
    row
}

fn at_once(row: &mut Value, most: Option<u32>, running: u32) {
    row["most"] = most.map_or_else(|| "unlimited".into(), Into::into);
    row["running"] = running.into();
}

fn told(key: &Key, used: &Use, now: Mono) -> Value {
    let mut row = head(key);
    match used {
        Use::Rate(metered) => {
            rate(&mut row, metered.allowance());
            row["available"] = metered.available(now).into();
        }
        Use::Leased(leased) => {
            let (limit, gateways) = (leased.limit(), leased.gateways());
            rate(&mut row, Allowance::Limited(limit));
            let (per_second, sharing) = (limit.rate.whole_per_second(), leased.holder.terms().sharing);
            let bound = if leased.holder.is_alone() { over_admission_bound_alone } else { over_admission_bound };
            row["over_admission_bound"] = bound(per_second, gateways, sharing).into();
            row["shared"] = json!({
                "held": leased.holder.held(), "chunk": leased.holder.chunk(), "gateways": gateways,
                "alone": leased.holder.is_alone(), "received": leased.holder.received(), "unused": leased.holder.unused(),
            });
        }
        Use::RateByUser(allowance, users) => {
            rate(&mut row, *allowance);
            let (known, others) = users.counts();
            row["users"] = known.into();
            row["others"] = others.into();
        }
        Use::AtOnce(most, running) => at_once(&mut row, *most, running.count()),
        Use::AtOnceByUser(most, by_user) => {
            at_once(&mut row, *most, by_user.values().map(|running| running.count()).sum());
            row["users"] = by_user.len().into();
        }
    }
    row
}

/// The limits that a request would come under, for who asks why.
#[must_use]
pub fn explained(limits: &RouteLimits) -> Value {
    let now = Clock::now();
    let rows = limits.limits(LimitedEndpoint::Infer).into_iter();
    let rows: Vec<Value> = rows.filter_map(|(book, at, _)| book.look(at, |key, used| told(key, used, now))).collect();
    let mode = if limits.is_shadow() { "shadow" } else { "enforce" };
    let mut connection = json!({ "scope": "connection", "limit": "requests", "for": Value::Null });
    rate(&mut connection, limits.connection);
    let has_connection = limits.connection != Allowance::Unlimited;
    json!({ "mode": mode, "limits": has_connection.then_some(connection).into_iter().chain(rows).collect::<Vec<_>>() })
}
