//! From a configuration, and the pins that are in force, to a table.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_config::{Config, Pins, table_input};
use holdfast_decide::{PinChange, Snapshot, TableInput};
use holdfast_types::{ModelName, PoolName, Version};

/// What a new configuration means while old pins are still in force.
pub(super) struct Plan {
    /// The configuration, with the versions that pins in force still need.
    pub(super) effective: Config,
    /// Pins that stay as they are until their new version is ready, and where they go.
    pub(super) pending: Vec<PinChange>,
    /// The pins to put in force at once.
    pub(super) input: TableInput,
}

/// All pins of a table.
pub(super) fn pins_of(snapshot: &Snapshot) -> Pins {
    let mut pins = Pins::new();
    for tenant in snapshot.tenants() {
        for (model, version) in snapshot.pins(tenant) {
            pins.insert((tenant.name.clone(), model.name.clone()), version.version.clone());
        }
    }
    pins
}

/// Works out what of the configuration is in force at once. `old` is the configuration that the pins in force
/// came from, or what is known of it.
///
/// A pin is held back if another version of the same model, in the same pool, is in force for the tenant. A version that is gone from the file but
/// still pinned in force is kept until its last pin has moved.
pub(super) fn plan(config: &Config, old: &Config, in_force: &Pins) -> Plan {
    let mut effective = config.clone();
    let mut pending = Vec::new();
    let mut held = Pins::new();
    let mut needed: BTreeSet<(ModelName, Version)> = BTreeSet::new();
    for tenant in &config.tenants {
        for (model, version) in &tenant.pins {
            let key = (tenant.name.clone(), model.clone());
            let Some(current) = in_force.get(&key).filter(|current| *current != version) else { continue };
            if !can_stay(config, old, model, current) {
                continue;
            }
            needed.insert((model.clone(), current.clone()));
            held.insert(key, current.clone());
            pending.push(PinChange { tenant: tenant.name.clone(), model: model.clone(), version: version.clone() });
        }
    }
    for (model, version) in needed {
        keep_version(&mut effective, old, &model, &version);
    }
    let input = table_input(&effective, &held);
    Plan { effective, pending, input }
}

/// A pin that would change while its model moves to another pool, in words. The pin could not be held back: a model is in one pool, so the old
/// version's holders would be gone with the move, and the new ones hold nothing yet.
pub(super) fn moved_and_changed(config: &Config, old: &Config, in_force: &Pins) -> Option<String> {
    let pools = |c: &Config| -> BTreeMap<ModelName, PoolName> {
        c.models.iter().map(|m| (m.name.clone(), m.pool.clone())).collect()
    };
    let (now, before) = (pools(config), pools(old));
    config.tenants.iter().find_map(|tenant| {
        tenant.pins.iter().find_map(|(model, version)| {
            let current = in_force.get(&(tenant.name.clone(), model.clone())).filter(|current| *current != version)?;
            let (from, to) = (before.get(model)?, now.get(model)?);
            let (tenant, differs) = (&tenant.name, from != to);
            differs.then(|| {
                format!(
                    "model {model} moves from pool {from} to pool {to}, and the pin of tenant {tenant} changes from {current} to {version}: \
                     that cannot be done without a gap; change the pins first, wait until none is pending, then move the model"
                )
            })
        })
    })
}

fn can_stay(config: &Config, old: &Config, model: &ModelName, version: &Version) -> bool {
    let pool = |c: &Config| -> Option<PoolName> { c.models.iter().find(|m| m.name == *model).map(|m| m.pool.clone()) };
    let has =
        |c: &Config| c.models.iter().any(|m| m.name == *model && m.versions.iter().any(|v| v.version == *version));
    has(config) || (has(old) && pool(old) == pool(config))
}

fn keep_version(effective: &mut Config, old: &Config, model: &ModelName, version: &Version) {
    let Some(target) = effective.models.iter_mut().find(|m| m.name == *model) else { return };
    if target.versions.iter().any(|v| v.version == *version) {
        return;
    }
    let from = old.models.iter().find(|m| m.name == *model);
    if let Some(kept) = from.and_then(|m| m.versions.iter().find(|v| v.version == *version)) {
        target.versions.push(kept.clone());
    }
}
