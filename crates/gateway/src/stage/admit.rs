//! Admit: may this customer send one more now? Connection, user, tenant, everybody; all let it pass, or none loses anything.
//!
//! It comes after resolve, since limits may be a model's, and before the body is read. What is taken is the exchange's, which gives it back when it ends.

use http::HeaderMap;

use holdfast_codec::oip::ModelOp;
use holdfast_config::LimitedEndpoint;
use holdfast_quota::scopes::Scope;
use holdfast_telemetry::Clock;
use holdfast_types::Failure;

use super::identify;
use super::said::MESSAGE;
use crate::exchange::Exchange;
use crate::limits::{self, Asking, Refusal, RouteLimits, Taken};
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

/// The same for a message over a socket. `credit`: what is not there may be taken on credit.
///
/// # Errors
/// As [`admit`].
pub fn admit_message(
    exchange: &mut Exchange,
    fields: &HeaderMap,
    bytes: u64,
    credit: bool,
    settings: &Settings,
) -> Result<(), Failure> {
    admit_with(exchange, fields, (Some(bytes), credit), ModelOp::Infer, settings)
}

fn admit_limited(
    exchange: &mut Exchange,
    fields: &HeaderMap,
    declared: Option<u64>,
    op: ModelOp,
    settings: &Settings,
) -> Result<(), Failure> {
    admit_with(exchange, fields, (declared, false), op, settings)
}

fn admit_with(
    exchange: &mut Exchange,
    fields: &HeaderMap,
    (declared, credit): (Option<u64>, bool),
    op: ModelOp,
    settings: &Settings,
) -> Result<(), Failure> {
    let Some(state) = exchange.resolution.as_ref().map(|resolution| resolution.state.clone()) else { return Ok(()) };
    let Some(limits) = &state.limits else { return Ok(()) };
    let user = if limits.knows_users() { identify::user(fields, settings, exchange.subject.as_deref())? } else { None };
    let user = user.and_then(|user| limits.who(user));
    let Some(on) = exchange.on_connection.kept() else { return Ok(()) };
    let endpoint = if op == ModelOp::Infer { LimitedEndpoint::Infer } else { LimitedEndpoint::Metadata };
    // A body that does not say its length is taken for as long as one that is kept whole may be, and settled.
    let bytes = declared.unwrap_or(settings.buffer as u64);
    let plan = exchange.subject.as_ref().and_then(|subject| limits.chosen(subject.chosen()?));
    let asking = Asking { now: exchange.begun, endpoint, user, plan, on, bytes, again: false, credit };
    let (admitted, would) = ask(limits, &asking);
    if let Err(refusal) = &admitted
        && refusal.soon
    {
        exchange.ordered = Some(Box::new(Ordered { endpoint, user, plan, bytes, credit, scope: refusal.scope }));
        return Ok(());
    }
    end(exchange, limits, admitted, would)
}

/// What a request that waits for the store asked for.
#[derive(Clone, Copy, Debug)]
pub struct Ordered {
    endpoint: LimitedEndpoint,
    user: Option<u128>,
    plan: Option<u16>,
    bytes: u64,
    credit: bool,
    scope: Scope,
}

type Asked = (Result<Taken, Refusal>, Option<Refusal>);

fn ask(limits: &RouteLimits, asking: &Asking<'_>) -> Asked {
    let mut would = None;
    let admitted = limits.admit(asking, |refusal| would = Some(refusal));
    (admitted, would)
}

fn end(
    exchange: &mut Exchange,
    limits: &RouteLimits,
    admitted: Result<Taken, Refusal>,
    would: Option<Refusal>,
) -> Result<(), Failure> {
    let counter = &exchange.gateway().metrics.limited;
    let count = |refusal: &Refusal, mode| counter.get([refusal.scope.as_str(), refusal.what.as_str(), mode]).inc();
    // The store did not answer in time: in shadow mode that is counted, and refuses nobody.
    if let Err(refusal) = &admitted
        && refusal.soon
        && refusal.scope != Scope::Global
        && limits.is_shadow()
    {
        count(refusal, "shadow");
        let over = (refusal.scope, refusal.what);
        exchange.note(|journal| journal.admitted(true, Some(over)));
        return Ok(());
    }
    let refused = match &admitted {
        Ok(_) => would.inspect(|refusal| count(refusal, "shadow")),
        Err(refusal) => Some(*refusal).inspect(|refusal| count(refusal, "refused")),
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

/// Waits some milliseconds for what is ordered from the store of shared limits.
///
/// # Errors
/// As [`admit`].
///
/// # Cancel safety
/// Nothing is taken before it returns.
#[cold]
pub async fn wait_for_order(exchange: &mut Exchange, ordered: Ordered) -> Result<(), Failure> {
    let Some(state) = exchange.resolution.as_ref().map(|resolution| resolution.state.clone()) else { return Ok(()) };
    let Some(limits) = &state.limits else { return Ok(()) };
    let patience = exchange.gateway().tables.limits.link().map(|link| link.patience()).unwrap_or_default();
    let until = tokio::time::Instant::now() + patience;
    let Ordered { endpoint, user, plan, bytes, credit, mut scope } = ordered;
    let begun = Clock::now();
    loop {
        let Some(answered) = limits.answered(scope) else { return Ok(()) };
        let mut answered = std::pin::pin!(answered.notified());
        // From here on no answer is missed.
        answered.as_mut().enable();
        let now = Clock::now();
        let asked = exchange.on_connection.kept().map(|on| {
            let asking = Asking { now, endpoint, user, plan, on, bytes, again: true, credit };
            ask(limits, &asking)
        });
        let Some((admitted, would)) = asked else { return Ok(()) };
        match &admitted {
            Err(refusal) if refusal.soon => scope = refusal.scope,
            _ => {
                exchange.wait += now.since(begun);
                return end(exchange, limits, admitted, would);
            }
        }
        if tokio::time::timeout_at(until, answered).await.is_err() {
            exchange.wait += Clock::now().since(begun);
            return end(exchange, limits, admitted, would);
        }
    }
}

/// Adds what the client of an admitted request is told of its limits. A message over a socket has no such fields.
#[inline]
pub fn tell_left(exchange: &Exchange, fields: &mut HeaderMap) {
    if exchange.admitted.is_some() && exchange.method != MESSAGE {
        tell_left_of(exchange, fields);
    }
}

fn tell_left_of(exchange: &Exchange, fields: &mut HeaderMap) {
    let limits = exchange.resolution.as_ref().and_then(|resolution| resolution.state.limits.as_ref());
    if let (Some(taken), Some(limits), Some(on)) = (&exchange.admitted, limits, exchange.on_connection.kept()) {
        limits::tell_left(limits, taken, on, Clock::now(), fields);
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
