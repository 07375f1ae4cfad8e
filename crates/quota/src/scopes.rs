//! All scopes of one request, cheapest first: connection, user, tenant, everybody. All of them let it pass, or none loses a token.

use std::time::Duration;

use holdfast_types::Mono;

use crate::bucket::{Purse, Wait};

/// Whose limit it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// One connection's, of this process alone.
    Connection,
    /// One user's.
    User,
    /// One tenant's.
    Tenant,
    /// Everybody's together.
    Global,
}

impl Scope {
    /// The word for it, as clients and metrics have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::User => "user",
            Self::Tenant => "tenant",
            Self::Global => "global",
        }
    }
}

/// One limit that a request has to pass.
pub struct Gate<'a> {
    /// Whose.
    pub scope: Scope,
    /// What it is taken from.
    pub purse: &'a mut dyn Purse,
    /// How much: 1 for a request, its bytes, an estimate of its tokens.
    pub cost: u64,
    /// Only counted: what it would refuse passes.
    pub shadow: bool,
    taken: bool,
}

impl<'a> Gate<'a> {
    /// A gate that nothing was taken from.
    pub fn new(scope: Scope, purse: &'a mut dyn Purse, cost: u64) -> Self {
        Self { scope, purse, cost, shadow: false, taken: false }
    }

    /// The same, in shadow mode.
    #[must_use]
    pub fn shadowed(self, shadow: bool) -> Self {
        Self { shadow, ..self }
    }
}

/// Why a request does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The gate, by its place.
    pub gate: usize,
    /// Whose limit.
    pub scope: Scope,
    /// When to come again.
    pub wait: Wait,
}

/// Takes from every gate in turn. The first that refuses ends it, and what the gates before it gave is put back; so a user over the limit takes nothing
/// from the tenant, nor a tenant from everybody. Returns which gates in shadow mode would have refused, by their place (the first 64).
///
/// # Errors
/// The gate that refused.
pub fn take_all(now: Mono, gates: &mut [Gate<'_>]) -> Result<u64, Refused> {
    let mut shadowed = 0;
    for at in 0..gates.len() {
        let Some(gate) = gates.get_mut(at) else { break };
        match gate.purse.take(now, gate.cost) {
            Ok(()) => gate.taken = true,
            Err(_) if gate.shadow => shadowed |= 1u64.checked_shl(u32::try_from(at).unwrap_or(64)).unwrap_or(0),
            Err(wait) => {
                let scope = gate.scope;
                give_back_all(now, gates);
                return Err(Refused { gate: at, scope, wait });
            }
        }
    }
    Ok(shadowed)
}

/// Puts back what [`take_all`] took, once: for a request that was not sent after all.
pub fn give_back_all(now: Mono, gates: &mut [Gate<'_>]) {
    for gate in gates {
        if std::mem::take(&mut gate.taken) {
            gate.purse.give_back(now, gate.cost);
        }
    }
}

/// A cost that is known only at the end: an estimate is taken first and settled once.
///
/// As many requests as fit the limit by their estimates run beside one another; each passes its estimate by what it really costs, and that is a debt
/// which the next ones wait for.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an estimate is settled, also for a request that was given up"]
pub struct Reserved {
    amount: u64,
}

impl Reserved {
    /// Takes the estimate.
    ///
    /// # Errors
    /// The wait until it would be there.
    pub fn take(purse: &mut dyn Purse, now: Mono, estimate: u64) -> Result<Self, Wait> {
        purse.take(now, estimate).map(|()| Self { amount: estimate })
    }

    /// A stream has used so much by now: what is beyond the estimate is charged while it runs.
    pub fn used_so_far(&mut self, purse: &mut dyn Purse, now: Mono, used: u64) {
        if used > self.amount {
            purse.charge(now, used - self.amount);
            self.amount = used;
        }
    }

    /// The end, however it came: the difference is put back or charged.
    pub fn settle(mut self, purse: &mut dyn Purse, now: Mono, used: u64) {
        self.used_so_far(purse, now, used);
        if used < self.amount {
            purse.give_back(now, self.amount - used);
        }
    }
}

/// What `Retry-After` says for a wait: whole seconds, rounded up, at least 1. None: waiting does not help.
#[must_use]
pub fn retry_after_secs(wait: Wait) -> Option<u64> {
    match wait {
        Wait::Never => None,
        Wait::For(span) => Some((span + Duration::from_nanos(999_999_999)).as_secs().max(1)),
    }
}
