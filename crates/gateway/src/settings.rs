//! What a request looks up besides the route: bounds, budgets, stamps. Made once per configuration.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderName;

use holdfast_codec::framing::HeadLimits;
use holdfast_config::{Config, Stamps, Stream};
use holdfast_net::AdmissionLimits;
use holdfast_quota::limit::Allowance;
use holdfast_types::{ModelName, TenantId};

use crate::limits::allowance;

use crate::identity::{ApiKeys, Certificates, Identity};

/// See the module.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What tenants have their clients answered instead of a refusal, by model.
    fallbacks: HashMap<TenantId, Box<[(ModelName, Bytes)]>>,
    /// The header that names the tenant, if one is trusted.
    pub trusted_header: Option<HeaderName>,
    /// What checks tokens, if they are what proves a tenant.
    pub identity: Option<Arc<Identity>>,
    /// The table's API keys, if they prove a tenant too.
    pub keys: Option<Arc<ApiKeys>>,
    /// Whose client certificates are, if they prove a tenant too.
    pub certificates: Option<Arc<Certificates>>,
    /// The header that carries the proof of a tenant. No replica gets it.
    pub credential: Option<HeaderName>,
    /// The scope whose bearer may override the version, if there is one.
    pub override_scope: Option<Box<str>>,
    /// The header that names the user, if one is trusted.
    pub trusted_user_header: Option<HeaderName>,
    /// Most bytes of a request body.
    pub body: u64,
    /// Bodies up to this size are kept, so that they can be sent again.
    pub buffer: usize,
    /// How much of an answer is held until it has named its version.
    pub answer_head: usize,
    /// Most bytes of a request target.
    pub target: usize,
    /// The longest pause within a request body.
    pub body_idle: Duration,
    /// A request's budget, if it names none.
    pub request: Duration,
    /// The largest budget that it may name.
    pub request_max: Duration,
    /// Which stamps leave.
    pub stamps: Stamps,
    /// Bounds of a head.
    pub head_limits: HeadLimits,
    /// Whether outcomes are taken.
    pub outcomes: bool,
    /// WebSockets, if there are any.
    pub stream: Option<Arc<Stream>>,
    /// How fast an address may open connections.
    pub attempts: Allowance,
    /// Bounds on connections.
    pub admission: AdmissionLimits,
}

fn fallbacks(config: &Config) -> HashMap<TenantId, Box<[(ModelName, Bytes)]>> {
    let some = config.tenants.iter().filter(|tenant| !tenant.fallback.is_empty());
    let bytes = |(model, answer): &(ModelName, Box<str>)| (model.clone(), Bytes::from(answer.to_string()));
    some.map(|tenant| (tenant.name.clone(), tenant.fallback.iter().map(bytes).collect())).collect()
}

impl Settings {
    /// From a checked configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let header = config.auth.as_ref().and_then(|auth| auth.trusted_header.as_ref());
        let trusted_header = header.and_then(|name| HeaderName::from_bytes(name.as_bytes()).ok());
        let limits = &config.limits;
        let size = |bytes: holdfast_types::Bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX);
        Self {
            fallbacks: fallbacks(config),
            credential: trusted_header.clone(),
            trusted_header,
            identity: None,
            override_scope: config.auth.as_ref().and_then(|auth| auth.override_scope.clone()),
            trusted_user_header: config
                .auth
                .as_ref()
                .and_then(|a| HeaderName::from_bytes(a.trusted_user_header.as_ref()?.as_bytes()).ok()),
            keys: ApiKeys::of(config),
            certificates: Certificates::of(config),
            body: limits.body.0,
            buffer: size(limits.buffer),
            answer_head: size(limits.answer_head),
            target: size(limits.uri),
            body_idle: config.timeouts.body_idle,
            request: config.timeouts.request,
            request_max: config.timeouts.request_max,
            stamps: config.stamps,
            head_limits: HeadLimits {
                head: size(limits.head),
                target: size(limits.uri),
                fields: limits.headers as usize,
            },
            outcomes: config.results.is_some(),
            stream: config.stream.clone().map(Arc::new),
            attempts: limits
                .attempts_per_address
                .rate
                .map(|rate| allowance(rate, limits.attempts_per_address.burst.map(u64::from)))
                .unwrap_or_default(),
            admission: AdmissionLimits { total: limits.connections, per_address: limits.connections_per_address },
        }
    }

    /// What a tenant has its clients answered that a model could not be asked for in time.
    #[must_use]
    pub fn fallback(&self, tenant: &TenantId, model: &ModelName) -> Option<Bytes> {
        let answers = self.fallbacks.get(tenant)?;
        answers.iter().find(|(name, _)| name == model).map(|(_, answer)| answer.clone())
    }

    /// Whether the gateways give tokens of their own.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.own.is_some())
    }

    /// The same, with tokens that this checks.
    #[must_use]
    pub fn with_identity(mut self, identity: Option<Arc<Identity>>) -> Self {
        if identity.is_some() {
            self.credential = Some(http::header::AUTHORIZATION);
        }
        self.identity = identity;
        self
    }
}
