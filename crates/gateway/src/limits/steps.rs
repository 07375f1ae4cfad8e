//! How short a limit is, and the steps that a tenant's sockets take when one is.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde_json::{Map, Value};

use holdfast_config::LimitedEndpoint;
use holdfast_quota::limit::Allowance;
use holdfast_quota::scopes::Scope;
use holdfast_types::Mono;

use super::admit::{OnConnection, RouteLimits};
use super::book::Use;
use super::terms::What;

/// A step of the ladder that a message or a socket went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A droppable message was left out.
    Dropped,
    /// A message gave way to a newer one of its stream.
    Coalesced,
    /// A client was told to wait.
    Warned,
    /// A message was refused.
    Refused,
    /// A socket was closed.
    Closed,
}

impl Step {
    const ALL: [Self; 5] = [Self::Dropped, Self::Coalesced, Self::Warned, Self::Refused, Self::Closed];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Coalesced => "coalesced",
            Self::Warned => "warned",
            Self::Refused => "refused",
            Self::Closed => "closed",
        }
    }
}

/// How often each step was taken by a tenant's sockets.
#[derive(Debug, Default)]
pub(super) struct Steps([AtomicU64; Step::ALL.len()]);

impl Steps {
    /// None: no step was ever taken.
    pub(super) fn shown(&self) -> Option<Value> {
        let counts = Step::ALL.iter().zip(&self.0).map(|(step, count)| (*step, count.load(Relaxed)));
        if counts.clone().all(|(_, count)| count == 0) {
            return None;
        }
        Some(Value::Object(counts.map(|(step, count)| (step.as_str().to_owned(), count.into())).collect::<Map<_, _>>()))
    }
}

impl RouteLimits {
    /// The first scope with a rate of which `is_short` says so, told what is left and the burst. Nothing is taken. Of a rate that gateways share there is left what this one holds: it is
    /// short when that is nothing.
    pub fn short(
        &self,
        now: Mono,
        (endpoint, plan): (LimitedEndpoint, Option<u16>),
        user: Option<u128>,
        on: Option<&OnConnection>,
        is_short: impl Fn(u64, u64) -> bool,
    ) -> Option<Scope> {
        if let (Allowance::Limited(limit), Some(left)) = (self.connection, on.and_then(|on| on.available(now)))
            && is_short(left, limit.burst)
        {
            return Some(Scope::Connection);
        }
        for scoped in self.own(plan).into_iter().chain(&self.global) {
            for gate in scoped.of(endpoint, user.is_some()).iter().filter(|gate| gate.what != What::Running) {
                let found = scoped.book.look(gate.at, |key, used| (key.scope, left(used, now, user)));
                if let Some((scope, Some((left, burst)))) = found
                    && is_short(left, burst)
                {
                    return Some(scope);
                }
            }
        }
        None
    }

    /// Counts a step of one of the tenant's sockets.
    pub fn note(&self, scope: Scope, step: Step) {
        let book = if scope == Scope::Global { &self.global } else { &self.tenant };
        let book = book.as_ref().or(self.tenant.as_ref()).or(self.global.as_ref());
        if let Some(count) = book.and_then(|scoped| scoped.book.steps.0.get(step as usize)) {
            count.fetch_add(1, Relaxed);
        }
    }
}

/// What is left of a rate, and its burst.
fn left(used: &Use, now: Mono, user: Option<u128>) -> Option<(u64, u64)> {
    match used {
        Use::Rate(metered) => match metered.allowance() {
            Allowance::Limited(limit) => Some((metered.available(now)?, limit.burst)),
            Allowance::Nothing => Some((0, 1)),
            Allowance::Unlimited => None,
        },
        Use::RateByUser(Allowance::Limited(limit), users) => Some((users.available(*limit, now, user?), limit.burst)),
        Use::RateByUser(Allowance::Nothing, _) => Some((0, 1)),
        Use::Leased(leased) => Some((u64::from(leased.holder.held() > 0), 1)),
        Use::RateByUser(Allowance::Unlimited, _) | Use::AtOnce(..) | Use::AtOnceByUser(..) => None,
    }
}
