//! A checked configuration, as plain data.
//!
//! Whoever holds a [`Config`] need not check again: every name refers to something that exists, every number is in its range, every unit is
//! in its type. How to read one: [`crate::load`]. It has no methods that decide anything; that is for the crates that read it.

use std::path::PathBuf;

use holdfast_types::{Bytes, ModelName, PlanName, PoolName, TenantId, Version};

use crate::api_keys::ApiKey;
use crate::experiment::{Experiment, Rule};
use crate::fleet::{ControlSection, GatewaySection, Role, StoreSection};
use crate::identity::Auth;
use crate::limits::{Plan, PlanLimits};
use crate::pool::{Digest, Pool};
use crate::settings::{
    Audit, Exposures, FleetLoads, History, Ledger, Limits, Listen, Log, Metrics, Receipts, Results, Rollouts,
    RouteToken, Timeouts, Truth,
};
use crate::stamps::Stamps;
use crate::stream::Stream;

/// A whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Addresses.
    pub listen: Listen,
    /// Worker threads of the data plane. None: one per core.
    pub workers: Option<std::num::NonZeroU32>,
    /// Folder of everything that survives a restart.
    pub state: PathBuf,
    /// Which side owns the pins.
    pub truth: Truth,
    /// How much of the history is kept.
    pub history: History,
    /// How changed pins come into force.
    pub rollouts: Rollouts,
    /// None: every request is refused.
    pub auth: Option<Auth>,
    /// Bounds.
    pub limits: Limits,
    /// Budgets.
    pub timeouts: Timeouts,
    /// Which stamps leave the data listener.
    pub stamps: Stamps,
    /// Cold loads over the fleet.
    pub loads: FleetLoads,
    /// Metrics.
    pub metrics: Metrics,
    /// The audit log.
    pub audit: Audit,
    /// Exposures to experiments.
    pub exposures: Exposures,
    /// What arms have shown. None: it is not kept.
    pub results: Option<Results>,
    /// Receipts.
    pub receipts: Receipts,
    /// The route token. None: none is given.
    pub route_token: Option<RouteToken>,
    /// The ledger of submissions. None: there is none.
    pub ledger: Option<Ledger>,
    /// WebSockets on the data port, if there are any.
    pub stream: Option<Stream>,
    /// Logs.
    pub log: Log,
    /// The fleet's store. Always there in the file of a control plane, never in others.
    pub store: Option<StoreSection>,
    /// What a control plane is to its gateways.
    pub control: Option<ControlSection>,
    /// Whom a gateway follows.
    pub gateway: Option<GatewaySection>,
    /// In the file's order; names unique, also when case is ignored.
    pub pools: Vec<Pool>,
    /// In the file's order; names unique, also when case is ignored.
    pub models: Vec<Model>,
    /// In the file's order; names unique, also when case is ignored.
    pub plans: Vec<Plan>,
    /// In the file's order; names unique, also when case is ignored.
    pub tenants: Vec<Tenant>,
    /// In the file's order; names unique, also when case is ignored.
    pub experiments: Vec<Experiment>,
}

impl Default for Config {
    /// What an empty file means.
    fn default() -> Self {
        Self {
            listen: Listen::default(),
            workers: None,
            state: PathBuf::from("./holdfast-data"),
            truth: Truth::default(),
            history: History::default(),
            rollouts: Rollouts::default(),
            auth: None,
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            stamps: Stamps::ALL,
            loads: FleetLoads::default(),
            metrics: Metrics::default(),
            audit: Audit::default(),
            exposures: Exposures::default(),
            results: None,
            receipts: Receipts::default(),
            route_token: None,
            ledger: None,
            stream: None,
            log: Log::default(),
            store: None,
            control: None,
            gateway: None,
            pools: Vec::new(),
            models: Vec::new(),
            plans: Vec::new(),
            tenants: Vec::new(),
            experiments: Vec::new(),
        }
    }
}

impl Config {
    /// What the file is for.
    #[must_use]
    pub const fn role(&self) -> Role {
        match (&self.control, &self.gateway) {
            (Some(_), _) => Role::Control,
            (None, Some(_)) => Role::Gateway,
            (None, None) => Role::Serve,
        }
    }

    /// Where receipts are on disk.
    #[must_use]
    pub fn receipts_folder(&self) -> PathBuf {
        let disk = self.receipts.disk.as_ref().and_then(|disk| disk.folder.clone());
        disk.unwrap_or_else(|| self.state.join("receipts"))
    }

    /// Where exposures are.
    #[must_use]
    pub fn exposures_folder(&self) -> PathBuf {
        self.exposures.folder.clone().unwrap_or_else(|| self.state.join("exposures"))
    }

    /// Where the audit log is.
    #[must_use]
    pub fn audit_folder(&self) -> PathBuf {
        self.audit.folder.clone().unwrap_or_else(|| self.state.join("audit"))
    }
}

/// A model in the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// As clients name it.
    pub name: ModelName,
    /// A pool of [`Config::pools`].
    pub pool: PoolName,
    /// Whether the same request may be sent a second time after a replica may have begun to serve it.
    pub idempotent: bool,
    /// At least one; versions unique, also when case is ignored.
    pub versions: Vec<ModelVersion>,
}

/// One immutable version of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelVersion {
    /// Its name.
    pub version: Version,
    /// Memory that it takes on a replica. Always present in repository pools.
    pub size: Option<Bytes>,
    /// Digest of its artifact.
    pub digest: Option<Digest>,
    /// Questions with known answers, asked before a version is believed.
    pub golden: Vec<Golden>,
}

/// A question with a known answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Golden {
    /// The request body, an object.
    pub input: serde_json::Value,
    /// What the answer must hold: fields named here are compared, others are not.
    pub output: serde_json::Value,
    /// Largest absolute difference of a number; finite and not negative.
    pub tolerance: f64,
}

/// A customer. Names are shared with the catalogue, so a tenant costs little memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its id.
    pub name: TenantId,
    /// How many replicas serve it, 1 to 16.
    pub subset: u8,
    /// The version that each model means to it. Sorted by model; both exist in the catalogue.
    pub pins: Box<[(ModelName, Version)]>,
    /// Versions that it may name beside its pin. Sorted by model, then version; all exist in the catalogue.
    pub allow: Box<[(ModelName, Version)]>,
    /// What to do when no replica holds the version.
    pub unavailable: Unavailable,
    /// By model, what an inference is answered that could not be served within its budget: JSON, marked as what it is.
    pub fallback: Box<[(ModelName, Box<str>)]>,
    /// A plan of [`Config::plans`].
    pub plan: Option<PlanName>,
    /// Limits that come before the plan's.
    pub limits: Option<Box<PlanLimits>>,
    /// Its API keys.
    pub keys: Box<[ApiKey]>,
    /// What chooses a version for some of its requests, by the first that holds.
    pub rules: Box<[Rule]>,
}

impl Tenant {
    /// The version that the model means to this tenant.
    #[must_use]
    pub fn pin(&self, model: &str) -> Option<&Version> {
        let at = self.pins.binary_search_by(|(name, _)| name.as_str().cmp(model)).ok()?;
        self.pins.get(at).map(|(_, version)| version)
    }

    /// Whether a request may name this version: the pin, or one that is allowed beside it.
    #[must_use]
    pub fn may_name(&self, model: &str, version: &str) -> bool {
        self.pin(model).is_some_and(|pin| pin.as_str() == version)
            || self.allow.binary_search_by(|(m, v)| (m.as_str(), v.as_str()).cmp(&(model, version))).is_ok()
    }
}

/// What to do with a request when no replica of its subset holds the version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unavailable {
    /// Start a load and wait for it, within the request's budget.
    #[default]
    Wait,
    /// Start a load and refuse the request at once.
    Shed,
}
