//! Upstream names over a reload: replicas load and unload by a model's name alone, so while a version may still be there its name is its own.

use std::collections::HashMap;

use holdfast_config::{Config, Residency};
use holdfast_types::{ModelName, PoolName, Version};

/// A version that replicas of a pool may still hold, and the model name that it has there.
pub(super) struct Called {
    pub(super) pool: PoolName,
    pub(super) model: ModelName,
    pub(super) version: Version,
    pub(super) name: String,
}

/// The versions of a configuration in pools that load on request.
pub(super) fn called(config: &Config) -> impl Iterator<Item = Called> {
    let pool_of =
        |name: &PoolName| config.pools.iter().find(|p| p.name == *name && p.residency == Residency::Repository);
    config.models.iter().filter_map(move |model| Some((model, pool_of(&model.pool)?))).flat_map(|(model, pool)| {
        model.versions.iter().map(|version| Called {
            pool: pool.name.clone(),
            model: model.name.clone(),
            version: version.version.clone(),
            name: pool.upstream.model.render(model.name.as_str(), version.version.as_str()),
        })
    })
}

/// A version of the configuration that would be called as another one is that may still be loaded, in words.
pub(super) fn collision(config: &Config, may_be_loaded: impl Iterator<Item = Called>) -> Option<String> {
    let mut names: HashMap<(PoolName, String), (ModelName, Version)> = HashMap::new();
    names.extend(called(config).map(|c| ((c.pool, c.name), (c.model, c.version))));
    may_be_loaded.filter_map(|old| Some((names.get(&(old.pool.clone(), old.name.clone()))?, old))).find_map(|(new, old)| {
        let ((new_model, new_version), Called { model, version, name, .. }) = (new, &old);
        ((new_model, new_version) != (model, version)).then(|| {
            format!(
                "version {new_version} of {new_model} would be {name:?} upstream, as version {version} of {model} is, which may still be loaded: \
                 take version {version} of {model} out first and wait until it is unloaded"
            )
        })
    })
}
