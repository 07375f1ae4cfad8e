//! Resolve: which version judges this request? Asked once, here; nothing after this looks at the table again.

use http::{HeaderMap, HeaderValue};

use holdfast_decide::{Ask, Caller, decide_for};
use holdfast_types::{Failure, FailureKind};

use super::accept::{ModelCall, once};
use crate::asker::Asker;
use crate::exchange::Resolution;
use crate::headers;
use crate::route_state::RouteState;
use crate::server::Gateway;
use crate::sticky::Given;
use crate::table::Table;

/// Decides, and takes hold of the route.
///
/// # Errors
/// `forbidden`, `unknown_model`, `not_pinned`, `version_not_allowed`, `bad_request`.
pub fn resolve(
    gateway: &Gateway,
    table: &Table,
    asker: &Asker<'_>,
    call: &ModelCall<'_>,
    submission: &[u8],
) -> Result<Resolution, Failure> {
    let ask = Ask { tenant: asker.who.tenant(), model: &call.model, version: call.version.as_deref(), submission };
    let wants = once(asker.fields, &headers::OVERRIDE)?;
    let caller = Caller { facts: asker, wants, may_override: wants.is_some() && asker.may_override() };
    let decision = decide_for(&table.snapshot, &ask, &caller).map_err(|refusal| refusal.failure())?;
    let state = RouteState::of(table, decision.route, &gateway.driver, &gateway.metrics);
    let gone = || Failure::new(FailureKind::NoHolder, "the routing table is changing");
    Ok(Resolution {
        route: decision.route.clone(),
        state: state.ok_or_else(gone)?,
        reason: decision.reason,
        cause: decision.cause.cloned(),
        given: decision.by.and_then(|by| Given::of(asker, decision.cause?.arm.as_ref()?, by, decision.reason)),
        _revision: table.usage.enter(),
        under: decision.revision,
        revision_stamp: table.stamp.clone(),
    })
}

/// What tells this submission from others: the client's own key for it or id of it, which it sends again with a retry; else this request's id.
pub fn submission<'a>(fields: &'a HeaderMap, own: &'a [u8]) -> &'a [u8] {
    let said = fields.get(headers::IDEMPOTENCY_KEY).or_else(|| fields.get(headers::CLIENT_REQUEST_ID));
    said.map_or(own, HeaderValue::as_bytes)
}
