//! From a configuration to what a routing table is built from.

use std::collections::BTreeMap;

use holdfast_decide::{ModelInput, PoolInput, TableInput, TenantInput, Unavailable};
use holdfast_types::{ModelName, TenantId, Version};

use crate::{Config, Experiment, Status, Template, Unavailable as ConfigUnavailable, Upstream};

/// Pins by tenant and model.
pub type Pins = BTreeMap<(TenantId, ModelName), Version>;

/// The table of a configuration, with some pins held at another version than the configuration says.
#[must_use]
pub fn table_input(config: &Config, held: &Pins) -> TableInput {
    let pools = config.pools.iter().map(|pool| PoolInput {
        name: pool.name.clone(),
        members: pool.replicas.iter().map(|r| (r.name.clone(), r.weight)).collect(),
    });
    let models = config.models.iter().map(|model| {
        let pool = config.pools.iter().position(|p| p.name == model.pool).unwrap_or(usize::MAX);
        let versions = model.versions.iter().map(|v| {
            let (name, text) = (model.name.as_str(), v.version.as_str());
            let upstream = config.pools.get(pool).map(|p| &p.upstream);
            let render =
                |of: fn(&Upstream) -> &Template| upstream.map_or_else(String::new, |u| of(u).render(name, text)).into();
            (v.version.clone(), render(|u| &u.model), render(|u| &u.version))
        });
        ModelInput { name: model.name.clone(), pool, idempotent: model.idempotent, versions: versions.collect() }
    });
    let tenants = config.tenants.iter().map(|tenant| {
        let pins = tenant.pins.iter().map(|(model, version)| {
            let held = if held.is_empty() { None } else { held.get(&(tenant.name.clone(), model.clone())) };
            (model.clone(), held.unwrap_or(version).clone())
        });
        TenantInput {
            name: tenant.name.clone(),
            subset: tenant.subset,
            unavailable: match tenant.unavailable {
                ConfigUnavailable::Wait => Unavailable::Wait,
                ConfigUnavailable::Shed => Unavailable::Shed,
            },
            pins: pins.collect(),
            allow: tenant.allow.to_vec(),
        }
    });
    TableInput {
        pools: pools.collect(),
        models: models.collect(),
        tenants: tenants.collect(),
        experiments: config
            .experiments
            .iter()
            .filter(|one| one.status != Status::Ended)
            .map(Experiment::input)
            .collect(),
        rules: config
            .tenants
            .iter()
            .flat_map(|tenant| tenant.rules.iter().map(|rule| rule.input(&tenant.name)))
            .collect(),
    }
}
