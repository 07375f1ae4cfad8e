//! A pool as one configuration describes it: shared by the routes that were made under that configuration.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_config as config;
use holdfast_placement::residency::{PoolIx, VersionIx};
use holdfast_types::{Bytes, ModelName, PoolName, Version};

use super::Replica;
use crate::retry::RetryBudget;

/// See the module.
pub struct Pool {
    /// Its number in the residency machine.
    pub ix: PoolIx,
    /// Its name.
    pub name: PoolName,
    /// The configuration it was made from, without its replicas' details.
    pub config: config::Pool,
    /// Its replicas, sorted by name: the order that routes index.
    pub replicas: Box<[Arc<Replica>]>,
    /// Its versions.
    pub versions: Box<[Arc<VersionFacts>]>,
    /// How many requests may be sent a second time.
    pub retries: RetryBudget,
    by_upstream: HashMap<Box<str>, Vec<usize>>,
    by_client: HashMap<(ModelName, Version), usize>,
}

/// What is configured of a version, and how the replicas call it.
pub struct VersionFacts {
    /// Its number in the residency machine.
    pub ix: VersionIx,
    /// The model as clients see it.
    pub model: ModelName,
    /// The version as clients see it.
    pub version: Version,
    /// The model's name at the replicas.
    pub upstream_model: String,
    /// The version at the replicas; empty where they are asked by name only.
    pub upstream_version: String,
    /// Declared size.
    pub size: Bytes,
    /// Digest that the replica must report.
    pub digest: Option<config::Digest>,
    /// Questions with known answers.
    pub golden: Vec<config::Golden>,
}

impl VersionFacts {
    pub(super) fn new(
        ix: VersionIx,
        pool: &config::Pool,
        model: &config::Model,
        version: &config::ModelVersion,
    ) -> Self {
        let (name, text) = (model.name.as_str(), version.version.as_str());
        Self {
            ix,
            model: model.name.clone(),
            version: version.version.clone(),
            upstream_model: pool.upstream.model.render(name, text),
            upstream_version: pool.upstream.version.render(name, text),
            size: version.size.unwrap_or_default(),
            digest: version.digest,
            golden: version.golden.clone(),
        }
    }

    /// Whether an upstream's index entry stands for it.
    #[must_use]
    pub fn is_called(&self, name: &str, version: &str) -> bool {
        self.upstream_model == name && (self.upstream_version.is_empty() || self.upstream_version == version)
    }

    /// Whether what was proved of the other holds for this one too.
    #[must_use]
    pub fn is_proved_by(&self, other: &Self) -> bool {
        self.upstream_model == other.upstream_model
            && self.upstream_version == other.upstream_version
            && self.digest == other.digest
            && self.golden == other.golden
    }

    /// Whether it declares what proves it.
    #[must_use]
    pub fn has_proof(&self) -> bool {
        self.digest.is_some() || !self.golden.is_empty()
    }

    /// The version that an answer must name: the one that was asked for, or where the replica is asked by name only, the client's.
    #[must_use]
    pub fn answer_version(&self) -> &str {
        if self.upstream_version.is_empty() { self.version.as_str() } else { &self.upstream_version }
    }
}

impl Pool {
    pub(super) fn new(
        ix: PoolIx,
        pool: &config::Pool,
        mut replicas: Vec<Arc<Replica>>,
        versions: Vec<Arc<VersionFacts>>,
    ) -> Self {
        replicas.sort_by(|a, b| a.name.cmp(&b.name));
        let mut by_upstream: HashMap<Box<str>, Vec<usize>> = HashMap::new();
        for (at, facts) in versions.iter().enumerate() {
            by_upstream.entry(facts.upstream_model.as_str().into()).or_default().push(at);
        }
        let clients = versions.iter().enumerate();
        let by_client = clients.map(|(at, v)| ((v.model.clone(), v.version.clone()), at)).collect();
        Self {
            ix,
            name: pool.name.clone(),
            config: pool.clone(),
            replicas: replicas.into(),
            versions: versions.into(),
            retries: RetryBudget::new(pool.retries.budget),
            by_upstream,
            by_client,
        }
    }

    /// The versions that an upstream's index entry stands for. A version-less upstream name stands for one; an upstream that tells versions apart
    /// for the one it names.
    pub fn matching<'a>(&'a self, name: &str, version: &'a str) -> impl Iterator<Item = &'a Arc<VersionFacts>> {
        let of_name = self.by_upstream.get(name).map(Vec::as_slice).unwrap_or_default();
        of_name.iter().filter_map(|at| self.versions.get(*at)).filter(move |v| v.is_called(&v.upstream_model, version))
    }

    /// What is known of a version by the client's names.
    #[must_use]
    pub fn version(&self, model: &ModelName, version: &Version) -> Option<&Arc<VersionFacts>> {
        self.versions.get(*self.by_client.get(&(model.clone(), version.clone()))?)
    }

    /// Whether some version of it declares what proves it.
    #[must_use]
    pub fn has_proofs(&self) -> bool {
        self.versions.iter().any(|v| v.has_proof())
    }

    /// What is configured of one of its replicas.
    #[must_use]
    pub fn replica_config(&self, name: &str) -> Option<&config::Replica> {
        self.config.replicas.iter().find(|r| r.name.as_str() == name)
    }
}
