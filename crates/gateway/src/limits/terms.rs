//! From a configuration to what is allowed. Pure.
//!
//! A tenant's own `limits` come before its plan's, field by field. An exception of an endpoint or of a model has buckets of its own; where it says nothing,
//! the request uses the general bucket.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use holdfast_config::{
    Allowed, Config, ConnectionLimits, Exception, LimitMode, LimitedEndpoint, PlanLimits, RateLimit, ScopeLimits,
};
use holdfast_quota::limit::{Allowance, Limit, Rate};
use holdfast_quota::scopes::Scope;
use holdfast_types::{ModelName, PlanName, TenantId};

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
    /// The plan that a token or key has to choose for it. None: it is the tenant's, whoever asks.
    pub plan: Option<PlanName>,
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
    /// The plans that a token or key may choose for its user, sorted.
    pub chosen: Vec<PlanName>,
}

impl Terms {
    fn is_nothing(&self) -> bool {
        self.connection == Allowance::Unlimited && self.caps.is_empty()
    }

    /// The limit of a scope that a request for this model at this endpoint comes under: of the endpoint, of the model, or the general one; of the plan that
    /// was chosen, and where that says nothing, the tenant's.
    pub fn key(
        &self,
        scope: Scope,
        what: What,
        (model, endpoint): (&ModelName, LimitedEndpoint),
        chosen: Option<&PlanName>,
    ) -> Option<&Key> {
        let of = |plan: Option<&PlanName>| {
            let sources = [Source::Endpoint(endpoint), Source::Model(model.clone()), Source::Plan];
            sources.into_iter().find_map(|source| {
                let key = Key { scope, what, source, plan: plan.cloned() };
                let at = self.caps.binary_search_by(|(known, _)| known.cmp(&key)).ok()?;
                self.caps.get(at).map(|(key, _)| key)
            })
        };
        chosen.and_then(|plan| of(Some(plan))).or_else(|| of(None))
    }
}

/// The tenants that have limits, with those of their plan and their own.
pub fn of_tenants(config: &Config) -> HashMap<TenantId, Arc<Terms>> {
    let none = PlanLimits::default();
    let named: Plans<'_> = config.plans.iter().map(|plan| (plan.name.as_str(), (&plan.name, &plan.limits))).collect();
    let issuers = config.auth.iter().flat_map(|auth| &auth.jwt).flat_map(|jwt| &jwt.rules.plans);
    // What any tenant's tokens may choose.
    let listed = pick(&named, issuers.map(|plan| &**plan));
    let of_plan =
        |plan: &holdfast_config::Plan| Arc::new(terms(Some(plan.name.as_str()), &plan.limits, &none, &listed));
    let plans: HashMap<&str, Arc<Terms>> =
        config.plans.iter().map(|plan| (plan.name.as_str(), of_plan(plan))).collect();
    let bare = Arc::new(terms(None, &none, &none, &listed));
    let of = |tenant: &holdfast_config::Tenant| {
        let name = tenant.plan.as_ref().map(|plan| plan.as_str());
        let keys = pick(&named, tenant.keys.iter().filter_map(|key| key.plan.as_deref()));
        let made = if tenant.limits.is_none() && keys.keys().all(|plan| listed.contains_key(plan)) {
            // Most tenants have what others have.
            name.and_then(|name| plans.get(name)).unwrap_or(&bare).clone()
        } else {
            let general = name.and_then(|name| named.get(name)).map_or(&none, |(_, limits)| limits);
            let chosen = listed.iter().chain(&keys).map(|(name, plan)| (*name, *plan)).collect();
            Arc::new(terms(name, general, tenant.limits.as_deref().unwrap_or(&none), &chosen))
        };
        (!made.is_nothing()).then(|| (tenant.name.clone(), made))
    };
    config.tenants.iter().filter_map(of).collect()
}

/// Plans by their names.
type Plans<'a> = BTreeMap<&'a str, (&'a PlanName, &'a PlanLimits)>;

/// Those of these names that there are.
fn pick<'a>(all: &Plans<'a>, names: impl Iterator<Item = &'a str>) -> Plans<'a> {
    names.filter_map(|name| all.get_key_value(name)).map(|(name, plan)| (*name, *plan)).collect()
}

/// What all tenants together are allowed.
pub fn of_all(config: &Config) -> Option<Arc<Terms>> {
    let mut terms = Terms::default();
    let whose = (Scope::Global, &Source::Plan, None);
    add(&mut terms.caps, whose, &config.limits.global, &ScopeLimits::default());
    terms.caps.sort_by(|(a, _), (b, _)| a.cmp(b));
    (!terms.is_nothing()).then(|| Arc::new(terms))
}

fn terms(plan: Option<&str>, general: &PlanLimits, own: &PlanLimits, chosen: &Plans<'_>) -> Terms {
    let mut caps = Vec::new();
    add(&mut caps, (Scope::User, &Source::Plan, None), &own.user, &general.user);
    add(&mut caps, (Scope::Tenant, &Source::Plan, None), &own.tenant, &general.tenant);
    let none = Exception::default();
    for (source, own, general) in both(&own.models, &general.models, Source::Model).into_iter().chain(both(
        &own.endpoints,
        &general.endpoints,
        Source::Endpoint,
    )) {
        let (own, general) = (own.unwrap_or(&none), general.unwrap_or(&none));
        add(&mut caps, (Scope::User, &source, None), &own.user, &general.user);
        add(&mut caps, (Scope::Tenant, &source, None), &own.tenant, &general.tenant);
    }
    chosen.values().for_each(|(name, limits)| add_chosen(&mut caps, name, limits));
    caps.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mode = own.mode.or(general.mode).unwrap_or_default();
    let connection = connection(&own.connection).or_else(|| connection(&general.connection)).unwrap_or_default();
    let chosen = chosen.values().map(|(name, _)| (*name).clone()).collect();
    Terms { plan: plan.map(str::to_owned), shadow: mode == LimitMode::Shadow, connection, caps, chosen }
}

/// What a plan says of users that choose it. The tenant stays under its own.
fn add_chosen(caps: &mut Vec<(Key, Cap)>, plan: &PlanName, limits: &PlanLimits) {
    let none = ScopeLimits::default();
    let mut put = |source: Source, user: &ScopeLimits| add(caps, (Scope::User, &source, Some(plan)), user, &none);
    put(Source::Plan, &limits.user);
    limits.models.iter().for_each(|(model, exception)| put(Source::Model(model.clone()), &exception.user));
    limits.endpoints.iter().for_each(|(endpoint, exception)| put(Source::Endpoint(*endpoint), &exception.user));
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

/// Whose limits: the scope, whose exception, and the plan that has to be chosen for them.
type Whose<'a> = (Scope, &'a Source, Option<&'a PlanName>);

fn add(caps: &mut Vec<(Key, Cap)>, (scope, source, plan): Whose<'_>, own: &ScopeLimits, general: &ScopeLimits) {
    let key = |what| Key { scope, what, source: source.clone(), plan: plan.cloned() };
    let mut put = |what, cap| caps.push((key(what), cap));
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
