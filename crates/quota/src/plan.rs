//! Plans: named sets of limits that tenants and their users have, with exceptions by model and by endpoint.
//!
//! What is more specific decides, field by field: the exception of the endpoint, that of the model, the plan. A field that says nothing leaves it to the next;
//! where nobody says anything there is no limit. An exception has a bucket of its own, so that a model with a limit of its own does not use up the others'.

use std::collections::BTreeMap;

use holdfast_types::ModelName;

use crate::limit::Allowance;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unit {
    /// Requests or messages.
    Requests,
    /// Bytes of bodies or messages.
    Bytes,
    /// Tokens of language models, reserved by an estimate and settled.
    Tokens,
}

/// The limits of one scope. None: it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests over time.
    pub requests: Option<Allowance>,
    /// Bytes over time.
    pub bytes: Option<Allowance>,
    /// Tokens over time.
    pub tokens: Option<Allowance>,
    /// Requests at once; `Some(None)` is unlimited, `Some(Some(0))` nothing at all.
    pub concurrency: Option<Option<u32>>,
}

impl Limits {
    const fn of(&self, unit: Unit) -> Option<Allowance> {
        match unit {
            Unit::Requests => self.requests,
            Unit::Bytes => self.bytes,
            Unit::Tokens => self.tokens,
        }
    }
}

/// The scopes that a plan has limits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Each connection by itself.
    Connection,
    /// Each user by itself.
    User,
    /// The tenant.
    Tenant,
}

/// The limits of the three scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByScope {
    /// Each connection's.
    pub connection: Limits,
    /// Each user's.
    pub user: Limits,
    /// The tenant's.
    pub tenant: Limits,
}

impl ByScope {
    const fn of(&self, scope: For) -> &Limits {
        match scope {
            For::Connection => &self.connection,
            For::User => &self.user,
            For::Tenant => &self.tenant,
        }
    }
}

/// One plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What holds where no exception says otherwise.
    pub limits: ByScope,
    /// Exceptions by model.
    pub models: BTreeMap<ModelName, ByScope>,
    /// Exceptions by endpoint, by the endpoint's name.
    pub endpoints: BTreeMap<String, ByScope>,
    /// Limits are counted and nothing is refused.
    pub shadow: bool,
}

/// Where a limit comes from, and so whose bucket it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// Nobody says anything.
    #[default]
    Nobody,
    /// The plan: one bucket for all that has no exception.
    Plan,
    /// The model's exception.
    Model,
    /// The endpoint's exception.
    Endpoint,
}

impl Plan {
    /// What a scope may use of a unit, for a model at an endpoint.
    #[must_use]
    pub fn allowance(&self, scope: For, unit: Unit, model: &ModelName, endpoint: &str) -> (Allowance, Source) {
        self.first(scope, model, endpoint, |limits| limits.of(unit)).unwrap_or_default()
    }

    /// How many requests of a scope may run at once. None: without limit.
    #[must_use]
    pub fn concurrency(&self, scope: For, model: &ModelName, endpoint: &str) -> (Option<u32>, Source) {
        self.first(scope, model, endpoint, |limits| limits.concurrency).unwrap_or_default()
    }

    fn first<T>(
        &self,
        scope: For,
        model: &ModelName,
        endpoint: &str,
        of: impl Fn(&Limits) -> Option<T>,
    ) -> Option<(T, Source)> {
        let endpoint = self.endpoints.get(endpoint).map(|limits| (limits, Source::Endpoint));
        let model = self.models.get(model).map(|limits| (limits, Source::Model));
        let levels = [endpoint, model, Some((&self.limits, Source::Plan))];
        levels.into_iter().flatten().find_map(|(limits, source)| Some((of(limits.of(scope))?, source)))
    }
}
