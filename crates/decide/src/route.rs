//! Where requests of one (tenant, model, version) may go. Made on first use, kept in the snapshot, shared by all requests of that key.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use holdfast_types::{ModelName, TenantId, Version};

/// Why this version judges this request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// An administrator named it.
    Override,
    /// The client named it, and may.
    Explicit,
    /// It is the version of the arm that somebody had before more was known of them.
    Sticky,
    /// It is the version of an experiment's arm.
    Experiment,
    /// A rule of the tenant says so.
    Rule,
    /// It is the tenant's pin.
    Pin,
    /// Its submission was resolved to it before.
    Replay,
}

impl Reason {
    /// The value of `x-holdfast-reason`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Override => "override",
            Self::Explicit => "explicit",
            Self::Sticky => "sticky",
            Self::Experiment => "experiment",
            Self::Rule => "rule",
            Self::Pin => "pin",
            Self::Replay => "replay",
        }
    }
}

/// What happens to a request when no replica of its subset holds the version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unavailable {
    /// It waits for a cold load within its own budget, then is shed.
    #[default]
    Wait,
    /// A load is started, but the request is shed at once.
    Shed,
}

/// A resolved route. Plain data, but for [`Route::handles`].
pub struct Route {
    /// The tenant.
    pub tenant: TenantId,
    /// The model as the client sees it.
    pub model: ModelName,
    /// The version as the client sees it.
    pub version: Version,
    /// Index of the pool in the snapshot.
    pub pool: u32,
    /// The placement key's hash: (tenant, model, version).
    pub key: u64,
    /// Members of the pool in order of preference: the subset's places and the spares that step in for members out of service.
    pub order: Box<[u32]>,
    /// How many of `order` make the subset.
    pub subset: u8,
    /// The model's name at the replica.
    pub upstream_model: Arc<str>,
    /// The version at the replica; empty where the replica is asked by name only.
    pub upstream_version: Arc<str>,
    /// Whether a request may be sent again after a replica may have begun it.
    pub idempotent: bool,
    /// What to do without a holder.
    pub unavailable: Unavailable,
    /// Room for what the data plane keeps with the route (metric handles, counters). Set once.
    pub handles: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route")
            .field("tenant", &self.tenant)
            .field("model", &self.model)
            .field("version", &self.version)
            .field("pool", &self.pool)
            .field("order", &self.order)
            .field("subset", &self.subset)
            .finish_non_exhaustive()
    }
}
