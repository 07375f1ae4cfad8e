//! Admit: may this customer send one more now? Connection, user, tenant, everybody; all let it pass, or none loses anything.
//!
//! It comes after resolve, since limits may be a model's, and before the body is read. What is taken is the exchange's, which gives it back when it ends.

use http::HeaderMap;

use holdfast_codec::oip::ModelOp;
use holdfast_config::LimitedEndpoint;
use holdfast_types::Failure;

use super::identify;
use crate::exchange::Exchange;
use crate::limits::{self, Asking, Refusal};
use crate::settings::Settings;

/// Takes what the request needs of its limits. `declared` is the length of its body, if it says one.
///
/// # Errors
/// `rate_limited`; `too_large` for a body that is never let pass; `unauthenticated` for a user's name that is none.
#[inline]
pub fn admit(
    exchange: &mut Exchange,
    fields: &HeaderMap,
    declared: Option<u64>,
    op: ModelOp,
    settings: &Settings,
) -> Result<(), Failure> {
    if exchange.resolution.as_ref().is_none_or(|resolution| resolution.state.limits.is_none()) {
        return Ok(());
    }
    admit_limited(exchange, fields, declared, op, settings)
}

fn admit_limited(
    exchange: &mut Exchange,
    fields: &HeaderMap,
    declared: Option<u64>,
    op: ModelOp,
    settings: &Settings,
) -> Result<(), Failure> {
    let Some(state) = exchange.resolution.as_ref().map(|resolution| resolution.state.clone()) else { return Ok(()) };
    let Some(limits) = &state.limits else { return Ok(()) };
    let user = if limits.knows_users() { identify::user(fields, settings, exchange.subject.as_deref())? } else { None };
    let Some(on) = exchange.on_connection.kept() else { return Ok(()) };
    let endpoint = if op == ModelOp::Infer { LimitedEndpoint::Infer } else { LimitedEndpoint::Metadata };
    // A body that does not say its length is taken for as long as one that is kept whole may be, and settled.
    let bytes = declared.unwrap_or(settings.buffer as u64);
    let asking = Asking { now: exchange.begun, endpoint, user, on, bytes };
    let counter = &exchange.gateway().metrics.limited;
    let count = |refusal: &Refusal, mode| counter.get([refusal.scope.as_str(), refusal.what.as_str(), mode]).inc();
    let mut would = None;
    let admitted = limits.admit(&asking, |refusal| {
        count(&refusal, "shadow");
        would = Some(refusal);
    });
    let refused = match &admitted {
        Ok(_) => would,
        Err(refusal) => {
            count(refusal, "refused");
            Some(*refusal)
        }
    };
    exchange.note(|journal| journal.admitted(admitted.is_ok(), refused.map(|refusal| (refusal.scope, refusal.what))));
    match admitted {
        Ok(taken) => {
            exchange.admitted = Some(taken);
            Ok(())
        }
        Err(refusal) => {
            exchange.limited = Some(Box::new(refusal));
            Err(refusal.failure(limits))
        }
    }
}

/// Adds what a refused client is told about its limit.
#[cold]
pub fn tell(exchange: &Exchange, failure: &Failure, fields: &mut HeaderMap) {
    let limits = exchange.resolution.as_ref().and_then(|resolution| resolution.state.limits.as_ref());
    if let (Some(refusal), Some(limits), Some(on)) = (&exchange.limited, limits, exchange.on_connection.kept()) {
        limits::tell(refusal, limits, on, exchange.begun, failure.retry_after_secs(), fields);
    }
}
