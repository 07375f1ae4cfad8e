//! From a configuration to what is allowed. Pure.
//!
//! A tenant's own `limits` come before its plan's, field by field. An exception of an endpoint or of a model has buckets of its own; where it says nothing,
//! the request uses the general bucket.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_config::{
    Allowed, Config, ConnectionLimits, Exception, LimitMode, LimitedEndpoint, PlanLimits, RateLimit, ScopeLimits,
};
use holdfast_quota::limit::{Allowance, Limit, Rate};
use holdfast_quota::scopes::Scope;
use holdfast_types::{ModelName, TenantId};

/// Which part of the configuration a limit is from, and so whose bucket it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The general part.
    Plan,
    /// The exception of a model.
    Model(ModelName),
    /// The exception of an endpoint.
    Endpoint(LimitedEndpoint),
}

/// What tells one limit of a tenant from the others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// User, tenant or global.
    pub scope: Scope,
    /// What is counted.
    pub what: What,
    /// Whose exception.
    pub source: Source,
}

impl Key {
    /// What the limit is called in a store that gateways share.
    pub fn name(&self, tenant: &str) -> String {
        let source = match &self.source {
            Source::Plan => String::new(),
            Source::Model(model) => format!(":model:{model}"),
            Source::Endpoint(endpoint) => format!(":endpoint:{}", endpoint.as_str()),
        };
        format!("{}:{tenant}:{}{source}", self.scope.as_str(), self.what.as_str())
    }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Requests over time.
    Requests,
    /// Bytes of bodies over time.
    Bytes,
    /// Requests at once.
    Running,
}

impl What {
    /// The word for it, as clients and metrics have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Bytes => "bytes",
            Self::Running => "concurrency",
        }
    }
}

/// What one limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cap {
    /// So much over time.
    Rate(Allowance),
    /// So many at once; None: without limit.
    AtOnce(Option<u32>),
}

/// All that one tenant is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The plan's name, for people.
    pub plan: Option<String>,
    /// Limits are counted and nothing is refused.
    pub shadow: bool,
    /// Each connection's requests.
    pub connection: Allowance,
    /// By key, each once, sorted.
    pub caps: Vec<(Key, Cap)>,
}

impl Terms {
    fn is_nothing(&self) -> bool {
        self.connection == Allowance::Unlimited && self.caps.is_empty()
    }

    /// The limit of a scope that a request for this model at this endpoint comes under: of the endpoint, of the model, or the general one.
    pub fn key(&self, scope: Scope, what: What, model: &ModelName, endpoint: LimitedEndpoint) -> Option<&Key> {
        let sources = [Source::Endpoint(endpoint), Source::Model(model.clone()), Source::Plan];
        sources.into_iter().find_map(|source| {
            let key = Key { scope, what, source };
            let at = self.caps.binary_search_by(|(known, _)| known.cmp(&key)).ok()?;
            self.caps.get(at).map(|(key, _)| key)
        })
    }
}

/// The tenants that have limits, with those of their plan and their own.
pub fn of_tenants(config: &Config) -> HashMap<TenantId, Arc<Terms>> {
    let none = PlanLimits::default();
    let plans: HashMap<&str, (Arc<Terms>, &PlanLimits)> = config
        .plans
        .iter()
        .map(|plan| {
            (plan.name.as_str(), (Arc::new(terms(Some(plan.name.as_str()), &plan.limits, &none)), &plan.limits))
        })
        .collect();
    let of = |tenant: &holdfast_config::Tenant| {
        let plan = tenant.plan.as_ref().and_then(|plan| plans.get(plan.as_str()));
        let name = tenant.plan.as_ref().map(|plan| plan.as_str());
        let made = match (&tenant.limits, plan) {
            (None, plan) => plan?.0.clone(),
            (Some(own), plan) => Arc::new(terms(name, plan.map_or(&none, |(_, limits)| limits), own)),
        };
        (!made.is_nothing()).then(|| (tenant.name.clone(), made))
    };
    config.tenants.iter().filter_map(of).collect()
}

/// What all tenants together are allowed.
pub fn of_all(config: &Config) -> Option<Arc<Terms>> {
    let mut terms = Terms::default();
    add(&mut terms.caps, Scope::Global, &Source::Plan, &config.limits.global, &ScopeLimits::default());
    terms.caps.sort_by(|(a, _), (b, _)| a.cmp(b));
    (!terms.is_nothing()).then(|| Arc::new(terms))
}

fn terms(plan: Option<&str>, general: &PlanLimits, own: &PlanLimits) -> Terms {
    let mut caps = Vec::new();
    add(&mut caps, Scope::User, &Source::Plan, &own.user, &general.user);
    add(&mut caps, Scope::Tenant, &Source::Plan, &own.tenant, &general.tenant);
    let none = Exception::default();
    for (source, own, general) in both(&own.models, &general.models, Source::Model).into_iter().chain(both(
        &own.endpoints,
        &general.endpoints,
        Source::Endpoint,
    )) {
        let (own, general) = (own.unwrap_or(&none), general.unwrap_or(&none));
        add(&mut caps, Scope::User, &source, &own.user, &general.user);
        add(&mut caps, Scope::Tenant, &source, &own.tenant, &general.tenant);
    }
    caps.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mode = own.mode.or(general.mode).unwrap_or_default();
    let connection = connection(&own.connection).or_else(|| connection(&general.connection)).unwrap_or_default();
    Terms { plan: plan.map(str::to_owned), shadow: mode == LimitMode::Shadow, connection, caps }
}

type Pair<'a> = (Source, Option<&'a Exception>, Option<&'a Exception>);

/// What two lists say of the same.
fn both<'a, K: Clone + Ord>(
    own: &'a [(K, Exception)],
    general: &'a [(K, Exception)],
    source: fn(K) -> Source,
) -> Vec<Pair<'a>> {
    let find = |list: &'a [(K, Exception)], key: &K| list.iter().find(|(known, _)| known == key).map(|(_, e)| e);
    let mut keys: Vec<&K> = own.iter().chain(general).map(|(key, _)| key).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter().map(|key| (source(key.clone()), find(own, key), find(general, key))).collect()
}

fn add(caps: &mut Vec<(Key, Cap)>, scope: Scope, source: &Source, own: &ScopeLimits, general: &ScopeLimits) {
    let mut put = |what, cap| caps.push((Key { scope, what, source: source.clone() }, cap));
    let requests = |of: &ScopeLimits| of.requests.map(|rate| allowance(rate, of.burst.map(u64::from)));
    if let Some(allowed) = requests(own).or_else(|| requests(general)) {
        put(What::Requests, Cap::Rate(allowed));
    }
    let bytes = |of: &ScopeLimits| of.bytes.map(|rate| allowance(rate, of.bytes_burst.map(|burst| burst.0)));
    if let Some(allowed) = bytes(own).or_else(|| bytes(general)) {
        put(What::Bytes, Cap::Rate(allowed));
    }
    if let Some(cap) = own.concurrency.or(general.concurrency) {
        let most = if let Allowed::Of(most) = cap { Some(most) } else { None };
        put(What::Running, Cap::AtOnce(most));
    }
}

fn connection(of: &ConnectionLimits) -> Option<Allowance> {
    of.requests.map(|rate| allowance(rate, of.burst.map(u64::from)))
}

/// A rate as it is written, with what it says for one span for a burst.
pub fn allowance(rate: Allowed<RateLimit>, burst: Option<u64>) -> Allowance {
    match rate {
        Allowed::Unlimited => Allowance::Unlimited,
        Allowed::Of(RateLimit { amount, per }) => {
            Allowance::of(Limit { rate: Rate::new(amount, per), burst: burst.unwrap_or(amount) })
        }
    }
}
