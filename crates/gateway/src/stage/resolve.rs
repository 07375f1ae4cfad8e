//! Resolve: which version judges this request? Asked once, here; nothing after this looks at the table again.

use holdfast_decide::{Ask, decide};
use holdfast_types::{Failure, FailureKind};

use super::accept::ModelCall;
use crate::exchange::Resolution;
use crate::route_state::RouteState;
use crate::server::Gateway;
use crate::table::Table;

/// Decides, and takes hold of the route.
///
/// # Errors
/// `forbidden`, `unknown_model`, `not_pinned`, `version_not_allowed`, `bad_request`.
pub fn resolve(gateway: &Gateway, table: &Table, tenant: &str, call: &ModelCall<'_>) -> Result<Resolution, Failure> {
    let ask = Ask { tenant, model: &call.model, version: call.version.as_deref() };
    let decision = decide(&table.snapshot, &ask).map_err(|refusal| refusal.failure())?;
    let state = RouteState::of(table, decision.route, &gateway.driver, &gateway.metrics);
    let gone = || Failure::new(FailureKind::NoHolder, "the routing table is changing");
    Ok(Resolution {
        route: decision.route.clone(),
        state: state.ok_or_else(gone)?,
        reason: decision.reason,
        revision: table.usage.enter(),
        revision_stamp: table.stamp.clone(),
    })
}
