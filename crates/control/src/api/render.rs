//! Resources, changes, headers, roll-outs and gateways as JSON.

use serde_json::{Map, Value as Json, json};

use holdfast_config::ResourceKind;
use holdfast_decide::rollout::{Phase, PinProgress, Progress, Waiting};
use holdfast_placement::seats::{Seat, Seating};
use holdfast_plane::Pending;
use holdfast_store::{Difference, Edit, Header, Purpose};

use super::fleet::{NodeView, RolloutView};
use super::problem::Problem;
use crate::desk::{Change, Done};

/// The most changes that an answer lists.
const MAX_CHANGES: usize = 1_000;

/// What a resource's name consists of.
pub(crate) const fn parts(kind: ResourceKind) -> &'static [&'static str] {
    match kind {
        ResourceKind::Pool => &["pool"],
        ResourceKind::Replica => &["pool", "replica"],
        ResourceKind::Model => &["model"],
        ResourceKind::Version => &["model", "version"],
        ResourceKind::Plan => &["plan"],
        ResourceKind::Tenant => &["tenant"],
        ResourceKind::Experiment => &["experiment"],
        ResourceKind::Pin | ResourceKind::Split => &["tenant", "model"],
    }
}

/// A resource as it was at some revision.
pub(crate) fn resource(kind: ResourceKind, name: &str, revision: u64, value: Json) -> Map<String, Json> {
    let mut told = Map::new();
    told.insert("name".to_owned(), name.into());
    told.insert("revision".to_owned(), revision.into());
    if parts(kind).len() > 1 {
        let names = parts(kind).iter().zip(name.split('/'));
        told.extend(names.map(|(part, name)| ((*part).to_owned(), name.into())));
    }
    let member = if kind == ResourceKind::Pin { "version" } else { "spec" };
    told.insert(member.to_owned(), value);
    told
}

/// What came of a change.
pub(crate) fn done(done: &Done) -> Json {
    let changes: Vec<Json> = done.changes.iter().take(MAX_CHANGES).map(change).collect();
    let warnings: Vec<&str> = done.warnings.lines().collect();
    json!({
        "revision": done.revision.map(|r| r.0),
        "changes": changes,
        "changes_total": done.changes.len(),
        "pending": done.pending.iter().map(pending).collect::<Vec<_>>(),
        "warnings": warnings,
    })
}

fn change(change: &Change) -> Json {
    let value = |value: &Option<std::sync::Arc<Json>>| value.as_deref().cloned();
    json!({
        "kind": change.kind.as_str(), "name": &*change.name, "before": value(&change.before), "after": value(&change.after),
    })
}

fn pending(pending: &Pending) -> Json {
    json!({ "tenant": pending.tenant.as_str(), "model": pending.model.as_str(), "to": pending.to.as_str() })
}

/// A revision without its edits.
pub(crate) fn header(header: &Header) -> Map<String, Json> {
    let purpose = match header.purpose {
        Purpose::Change => "change",
        Purpose::Activation => "activation",
    };
    let told = json!({
        "revision": header.revision.0, "purpose": purpose, "parent": header.parent.0, "author": header.author, "reason": header.reason,
        "at_ms": header.at_ms, "edits_total": header.edits, "term": header.term,
        "digests": {
            "desired": header.digests.desired.to_string(), "in_force": header.digests.in_force.to_string(),
        },
    });
    if let Json::Object(told) = told { told } else { Map::new() }
}

/// One edit of a revision.
pub(crate) fn edit(edit: &Edit) -> Result<Json, Problem> {
    let value = edit.value.as_ref().map(holdfast_store::Json::value).transpose()?;
    let key = &edit.place.key;
    Ok(json!({ "space": edit.place.space.to_string(), "kind": key.kind(), "name": key.name(), "value": value }))
}

/// One difference between revisions.
pub(crate) fn difference(one: &Difference) -> Result<Json, Problem> {
    let value = |value: &Option<holdfast_store::Json>| value.as_ref().map(holdfast_store::Json::value).transpose();
    let key = &one.place.key;
    Ok(json!({
        "space": one.place.space.to_string(), "kind": key.kind(), "name": key.name(),
        "before": value(&one.before)?, "after": value(&one.after)?,
    }))
}

/// A roll-out; its pins only if they are asked for.
pub(crate) fn rollout(view: &RolloutView, pins: bool) -> Json {
    let progress: &Progress = &view.progress;
    let mut stages = Map::new();
    for pin in &progress.pins {
        let count = stages.get(pin.stage.as_str()).and_then(Json::as_u64).unwrap_or(0);
        stages.insert(pin.stage.as_str().to_owned(), (count + 1).into());
    }
    let back = view.back.as_ref().map(|by| json!({ "author": by.author, "reason": by.reason }));
    let mut told = json!({
        "rollout": progress.id.0, "phase": phase(progress.phase), "paused": progress.paused, "over": view.over,
        "since_ms": millis(progress.since), "author": view.author, "reason": view.reason, "created_ms": view.created_ms,
        "pins_total": progress.pins.len(), "stages": stages, "words": progress.words, "back": back,
        "waiting_for": progress.waiting_for.iter().map(waiting).collect::<Vec<_>>(),
    });
    if let (true, Some(told)) = (pins, told.as_object_mut()) {
        told.insert("pins".to_owned(), progress.pins.iter().map(pin).collect());
    }
    told
}

fn pin(pin: &PinProgress) -> Json {
    json!({
        "tenant": pin.tenant.as_str(), "model": pin.model.as_str(), "from": pin.old.as_ref().map(|v| v.as_str()),
        "to": pin.new.as_str(), "stage": pin.stage.as_str(), "share": pin.share, "back": pin.back, "cold": pin.cold,
        "since_ms": millis(pin.since), "waiting_for": pin.waiting_for.iter().map(waiting).collect::<Vec<_>>(),
        "words": pin.words,
    })
}

/// The word for a phase.
pub(crate) const fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Planned => "planned",
        Phase::PreWarm => "pre_warm",
        Phase::Verify => "verify",
        Phase::Shadow => "shadow",
        Phase::Prepare => "prepare",
        Phase::Activate => "activate",
        Phase::Canary => "canary",
        Phase::Drain => "drain",
        Phase::Retain => "retain",
        Phase::Collect => "collect",
        Phase::Done => "done",
        Phase::Reverted => "reverted",
        Phase::Failed => "failed",
        Phase::Aborted => "aborted",
    }
}

fn waiting(waiting: &Waiting) -> Json {
    match waiting {
        Waiting::Store => json!({ "for": "store" }),
        Waiting::Resume => json!({ "for": "resume" }),
        Waiting::Replica { replica, artifact: a } => json!({
            "for": "replica", "replica": replica.as_str(), "pool": a.pool.as_str(), "model": a.model.as_str(),
            "version": a.version.as_str(),
        }),
        Waiting::AnyReplica { artifact: a } => json!({
            "for": "any_replica", "pool": a.pool.as_str(), "model": a.model.as_str(), "version": a.version.as_str(),
        }),
        Waiting::OtherPins => json!({ "for": "other_pins" }),
        Waiting::Comparisons { compared, of } => json!({ "for": "comparisons", "compared": compared, "of": of }),
        Waiting::Table => json!({ "for": "table" }),
        Waiting::Gateway(name) => json!({ "for": "gateway", "gateway": name.as_str() }),
        Waiting::AnyGateway => json!({ "for": "any_gateway" }),
        Waiting::Condition(words) => json!({ "for": "condition", "words": words }),
        Waiting::Time(time) => json!({ "for": "time", "ms": millis(*time) }),
        Waiting::Collection { artifact: a } => json!({
            "for": "collection", "pool": a.pool.as_str(), "model": a.model.as_str(), "version": a.version.as_str(),
        }),
    }
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Who of the gateways starts loads, and how many each.
pub(crate) fn seating(seating: &Seating, next: Option<u64>) -> Json {
    let seat =
        |seat: &Seat| json!({ "gateway": seat.name.as_str(), "peer": seat.peer, "loads": seating.share(&seat.name) });
    let seats: Vec<Json> = seating.seats.iter().map(seat).collect();
    json!({ "epoch": seating.epoch, "next": next, "loads": seating.bound, "seats": seats })
}

/// A gateway.
pub(crate) fn node(node: &NodeView) -> Json {
    let status = &node.status;
    let refused = status.refused.as_ref().map(|r| json!({ "revision": r.revision.0, "words": r.words }));
    json!({
        "gateway": status.gateway.as_str(), "live": node.live, "silent_ms": node.silent_ms, "in_force": status.in_force.0,
        "oldest": status.oldest.0, "refused": refused, "replicas_total": status.replicas.len(),
        "replicas_in_service": status.replicas.iter().filter(|r| r.in_service).count(),
    })
}
