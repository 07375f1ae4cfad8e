//! What everything is called.

use std::sync::Arc;

use holdfast_decide::rollout::Artifact;
use holdfast_decide::{ModelInput, PoolInput, Snapshot, TableInput, TenantInput, Unavailable};
use holdfast_types::{GatewayName, ModelName, PoolName, ReplicaName, Revision, TenantId, Version, Weight};

use super::Setup;

/// Names by number, so that the order of names is the order of numbers.
pub(super) struct Names {
    pub(super) pool: PoolName,
    pub(super) model: ModelName,
    pub(super) versions: Vec<Version>,
    pub(super) replicas: Vec<ReplicaName>,
    pub(super) tenants: Vec<TenantId>,
    pub(super) gateways: Vec<GatewayName>,
}

impl Names {
    pub(super) fn new(setup: &Setup) -> Option<Self> {
        let all = |letter: &'static str, count: usize| (0..count).map(move |n| format!("{letter}{n:05}"));
        let versions = (1..=setup.versions).map(|n| Version::parse(&n.to_string()).ok());
        Some(Self {
            pool: PoolName::parse("pool").ok()?,
            model: ModelName::parse("screen").ok()?,
            versions: versions.collect::<Option<_>>()?,
            replicas: all("r", setup.replicas).map(|n| ReplicaName::parse(&n).ok()).collect::<Option<_>>()?,
            tenants: all("t", setup.tenants).map(|n| TenantId::parse(&n).ok()).collect::<Option<_>>()?,
            gateways: all("g", setup.gateways).map(|n| GatewayName::parse(&n).ok()).collect::<Option<_>>()?,
        })
    }

    pub(super) fn replica(&self, name: &ReplicaName) -> Option<usize> {
        self.replicas.binary_search(name).ok()
    }

    pub(super) fn version(&self, name: &Version) -> Option<u32> {
        self.versions.iter().position(|v| v == name).and_then(|ix| u32::try_from(ix).ok())
    }

    pub(super) fn artifact(&self, version: u32) -> Option<Artifact> {
        let version = self.versions.get(version as usize)?.clone();
        Some(Artifact { pool: self.pool.clone(), model: self.model.clone(), version })
    }

    /// The first table: everybody at the first version. Every version may be named, so that a client can insist on what it was told.
    pub(super) fn table(&self, setup: &Setup) -> Option<Snapshot> {
        let first = self.versions.first()?;
        let version = |v: &Version| (v.clone(), Arc::from("screen"), Arc::from(v.as_str()));
        let tenant = |(ix, name): (usize, &TenantId)| TenantInput {
            name: name.clone(),
            subset: 1 + u8::try_from(ix % usize::from(setup.subset.max(1))).unwrap_or(0),
            unavailable: Unavailable::Wait,
            pins: vec![(self.model.clone(), first.clone())],
            allow: self.versions.iter().map(|v| (self.model.clone(), v.clone())).collect(),
        };
        let input = TableInput {
            pools: vec![PoolInput {
                name: self.pool.clone(),
                members: self.replicas.iter().map(|r| (r.clone(), Weight(1))).collect(),
            }],
            models: vec![ModelInput {
                name: self.model.clone(),
                pool: 0,
                idempotent: true,
                versions: self.versions.iter().map(version).collect(),
            }],
            tenants: self.tenants.iter().enumerate().map(tenant).collect(),
            ..TableInput::default()
        };
        Snapshot::build(Revision(1), input).ok()
    }
}
