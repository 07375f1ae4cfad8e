//! What a table is built from, and why it may not be.

use std::fmt;
use std::sync::Arc;

use holdfast_types::{ExperimentName, ModelName, PoolName, ReplicaName, TenantId, Version, Weight};

use crate::choices::{ExperimentInput, RuleInput};
use crate::route::Unavailable;

/// A pool as the table needs it.
#[derive(Clone, Debug)]
pub struct PoolInput {
    /// Its name.
    pub name: PoolName,
    /// Its replicas with their weights, in any order.
    pub members: Vec<(ReplicaName, Weight)>,
}

/// A model as the table needs it.
#[derive(Clone, Debug)]
pub struct ModelInput {
    /// As clients name it.
    pub name: ModelName,
    /// Index into [`TableInput::pools`].
    pub pool: usize,
    /// See [`Route::idempotent`](crate::Route::idempotent).
    pub idempotent: bool,
    /// The version, the model's name at the replica, the version at the replica.
    pub versions: Vec<(Version, Arc<str>, Arc<str>)>,
}

/// A tenant as the table needs it.
#[derive(Clone, Debug)]
pub struct TenantInput {
    /// Its id.
    pub name: TenantId,
    /// Replicas per key, at least 1.
    pub subset: u8,
    /// What to do without a holder.
    pub unavailable: Unavailable,
    /// One version per model.
    pub pins: Vec<(ModelName, Version)>,
    /// Further versions that it may name.
    pub allow: Vec<(ModelName, Version)>,
}

/// All of a table.
#[derive(Clone, Debug, Default)]
pub struct TableInput {
    /// Pools.
    pub pools: Vec<PoolInput>,
    /// Models.
    pub models: Vec<ModelInput>,
    /// Tenants.
    pub tenants: Vec<TenantInput>,
    /// Experiments that are not over.
    pub experiments: Vec<ExperimentInput>,
    /// Rules of tenants that choose a version; of one tenant's the first that holds.
    pub rules: Vec<RuleInput>,
}

/// Why a table cannot be built. A checked configuration never gives one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// A pool has two replicas of one name, or no replica that may own keys.
    Members(PoolName),
    /// A model names a pool that is not there.
    NoPool(ModelName),
    /// A pin or an allowed version names something that is not there.
    NoVersion(TenantId, ModelName, Version),
    /// An arm of an experiment names something that is not there.
    NoArm(ExperimentName, ModelName, Version),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Members(pool) => write!(f, "pool {pool} has two replicas of one name"),
            Self::NoPool(model) => write!(f, "model {model} is in no pool"),
            Self::NoArm(e, m, v) => write!(f, "experiment {e} names version {v} of model {m}, which is not there"),
            Self::NoVersion(t, m, v) => write!(f, "tenant {t} names version {v} of model {m}, which is not there"),
        }
    }
}

impl std::error::Error for BuildError {}
