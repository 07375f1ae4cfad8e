//! What an ask comes to, from the truth it is asked of. Pure, and for a whole configuration of 100,000 tenants some seconds of work; where only
//! tenants and pins differ, those are looked at by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value as Json;

use holdfast_config::ResourceKind::{Experiment, Model, Pin, Plan, Pool, Replica, Split, Tenant, Version};
use holdfast_config::{
    Config, Frame, MAX_LISTED, MemoryPolicy, Pins, ResourceKind, Resources, nearest_name, table_input, with_history,
};
use holdfast_decide::PinChange;
use holdfast_plane::{Edit, Entries, Pending};

use super::ask::{Change, Retired, What};
use super::check::{Checked, Files, check, owned};
use super::error::{DeskError, Fault};
use super::fit::{check_fit, check_flips};
use super::names::{Called, called, collision};
use super::truth::{Truth, pending};
use super::{golden, plan};

/// Both spaces after the change, and what is to be told of it.
pub(super) struct Prepared {
    pub(super) desired: Entries,
    pub(super) in_force: Entries,
    pub(super) changes: Vec<Change>,
    pub(super) pending: Vec<Pending>,
    pub(super) warnings: String,
}

/// Works it out, with every fault.
pub(super) fn prepare(
    frame: &Frame,
    truth: &Truth,
    what: &What,
    retired: &Retired,
    files: Files,
) -> Result<Prepared, DeskError> {
    let mut wanted = match what {
        What::Edits(edits) => edited(&truth.desired, edits)?,
        What::Whole(resources) => shared(&truth.desired, resources),
    };
    remember(&truth.desired, &mut wanted)?;
    let edits = truth.desired.changes(&wanted);
    if let Some(split) = edits.iter().find(|edit| edit.kind == Split) {
        let reason = "cannot be asked for: a share of a pin's traffic comes with the canary of its roll-out";
        return Err(DeskError::invalid(format!("split {}", split.name), reason));
    }
    if let Some(prepared) = tenants(frame, truth, &wanted, &edits)? {
        return Ok(prepared);
    }
    whole(frame, truth, wanted, retired, files)
}

/// Gives changed experiments the history that they have after the change: what they have given so far is the table's to know, not its author's.
fn remember(desired: &Entries, wanted: &mut Entries) -> Result<(), DeskError> {
    let changed = desired.changes(wanted).into_iter().filter(|edit| edit.kind == Experiment);
    let mut faults = Vec::new();
    for Edit { kind, name, value } in changed {
        let Some(asked) = value else { continue };
        let before = desired.get(kind, &name);
        match with_history(&name, before.map(|before| &**before), &asked) {
            Ok(content) if content == *asked => {}
            Ok(content) => {
                let same = before.filter(|before| ***before == content).cloned();
                wanted.apply(Edit { kind, name, value: Some(same.unwrap_or_else(|| Arc::new(content))) });
            }
            Err((field, why)) => faults.push(Fault::new(format!("experiments[{name}].{field}"), why)),
        }
    }
    faults.truncate(MAX_LISTED);
    if faults.is_empty() { Ok(()) } else { Err(DeskError::Invalid(faults)) }
}

fn edited(desired: &Entries, edits: &[Edit]) -> Result<Entries, DeskError> {
    let mut seen = BTreeSet::new();
    if let Some(twice) = edits.iter().find(|edit| !seen.insert((edit.kind, &edit.name))) {
        return Err(DeskError::invalid(format!("{} {}", twice.kind.as_str(), twice.name), "is edited twice"));
    }
    let mut wanted = desired.clone();
    for edit in edits.iter().filter(|edit| edit.value.is_none()) {
        let Some(kind) = owned(edit.kind) else { continue };
        let own = |name: &&Arc<str>| name.split_once('/').is_some_and(|(of, _)| of == &*edit.name);
        let parts: Vec<Arc<str>> = desired.of_kind(kind).map(|(name, _)| name).filter(own).cloned().collect();
        parts.into_iter().for_each(|name| wanted.apply(Edit { kind, name, value: None }));
    }
    edits.iter().for_each(|edit| wanted.apply(edit.clone()));
    let fault = |edit| homeless(&wanted, edit).or_else(|| still_pinned(&wanted, edit));
    let faults: Vec<Fault> = edits.iter().filter_map(fault).take(MAX_LISTED).collect();
    if faults.is_empty() { Ok(wanted) } else { Err(DeskError::Invalid(faults)) }
}

/// A pin of a tenant that is not there. Looked for here, where all tenants are known, and not only those that the edits touch.
fn homeless(wanted: &Entries, edit: &Edit) -> Option<Fault> {
    if edit.kind != Pin || edit.value.is_none() {
        return None;
    }
    let (tenant, _) = edit.name.split_once('/')?;
    if wanted.get(Tenant, tenant).is_some() {
        return None;
    }
    let tenants = wanted.of_kind(Tenant).map(|(name, _)| &**name);
    let nearest = nearest_name(tenant, tenants);
    Some(Fault { nearest, ..Fault::new(format!("pin {}", edit.name), format!("there is no tenant {tenant:?}")) })
}

/// A version that is taken away while tenants are pinned to it: who they are.
fn still_pinned(wanted: &Entries, edit: &Edit) -> Option<Fault> {
    const NAMED: usize = 5;
    if edit.kind != Version || edit.value.is_some() {
        return None;
    }
    let (model, version) = edit.name.split_once('/')?;
    let pinned = wanted.of_kind(Pin).filter(|(_, at)| at.as_str() == Some(version));
    let of_model = pinned.filter_map(|(name, _)| name.split_once('/').filter(|(_, of)| *of == model));
    let mut tenants: Vec<&str> = of_model.map(|(tenant, _)| tenant).collect();
    if tenants.is_empty() {
        return None;
    }
    tenants.sort_unstable();
    let more = tenants.len().saturating_sub(NAMED);
    tenants.truncate(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(Fault::new(format!("models[{model}].versions[{version}]"), format!("pinned by {}{more}", tenants.join(", "))))
}

/// The resources, with the values that are there already shared.
fn shared(desired: &Entries, resources: &Resources) -> Entries {
    let share = |((kind, name), value): (&(ResourceKind, String), &Json)| {
        let known = desired.get(*kind, name).filter(|known| ***known == *value);
        ((*kind, Arc::from(name.as_str())), known.cloned().unwrap_or_else(|| Arc::new(value.clone())))
    };
    resources.iter().map(share).collect()
}

/// Edits of tenants and pins: the catalogue with the tenants that are touched is read as a configuration. `None`: it has to be all of them, since a pool
/// guarantees its pins, or two tenants differ only in case, or most are touched anyway.
fn tenants(frame: &Frame, truth: &Truth, wanted: &Entries, edits: &[Edit]) -> Result<Option<Prepared>, DeskError> {
    let few = edits.iter().all(|edit| matches!(edit.kind, Tenant | Pin)).then(|| touched(wanted, edits)).flatten();
    let Some(few) = few else { return Ok(None) };
    let Checked { config, warnings } = check(frame, &few, Files::None).map_err(DeskError::Invalid)?;
    if config.pools.iter().any(|pool| is_guaranteed(pool.memory)) {
        return Ok(None);
    }
    let in_force = plan::tenants(wanted, &truth.in_force, edits);
    let warnings = if config.tenants.is_empty() { String::new() } else { warnings };
    Ok(Some(prepared(truth, wanted.clone(), in_force, warnings)))
}

/// The catalogue, and of the tenants those that edits touch, with all of their pins.
fn touched(wanted: &Entries, edits: &[Edit]) -> Option<Resources> {
    let names = edits.iter().map(|edit| edit.name.split_once('/').map_or(&*edit.name, |(tenant, _)| tenant));
    let names: BTreeSet<&str> = names.collect();
    let models: Vec<&Arc<str>> = wanted.of_kind(Model).map(|(name, _)| name).collect();
    if names.len() > 16 && names.len().saturating_mul(models.len() + 1) > wanted.len() {
        return None;
    }
    let new = edits.iter().filter(|edit| edit.kind == Tenant && edit.value.is_some());
    let new: BTreeMap<String, &str> = new.map(|edit| (edit.name.to_ascii_lowercase(), &*edit.name)).collect();
    let alike = |name: &str| new.get(&name.to_ascii_lowercase()).is_some_and(|new| *new != name);
    if !new.is_empty() && wanted.of_kind(Tenant).any(|(name, _)| alike(name)) {
        return None;
    }
    let gone = edits.iter().filter(|edit| edit.kind == Tenant && edit.value.is_none());
    let gone: BTreeSet<&str> = gone.map(|edit| &*edit.name).collect();
    let left = |pin: &str| pin.split_once('/').is_some_and(|(tenant, _)| gone.contains(tenant));
    if !gone.is_empty() && wanted.of_kind(Pin).any(|(name, _)| left(name)) {
        return None;
    }
    let mut few = catalogue(wanted);
    for tenant in names {
        let Some(content) = wanted.get(Tenant, tenant) else { continue };
        few.insert((Tenant, tenant.to_owned()), (**content).clone());
        for pin in models.iter().map(|model| format!("{tenant}/{model}")) {
            if let Some(version) = wanted.get(Pin, &pin) {
                few.insert((Pin, pin), (**version).clone());
            }
        }
    }
    // What names no tenant or no model is in it too, to be refused.
    let put =
        edits.iter().filter_map(|edit| Some(((edit.kind, edit.name.to_string()), (**edit.value.as_ref()?).clone())));
    few.extend(put);
    Some(few)
}

fn whole(
    frame: &Frame,
    truth: &Truth,
    mut wanted: Entries,
    retired: &Retired,
    files: Files,
) -> Result<Prepared, DeskError> {
    if plan::emptied(&wanted, &truth.in_force) {
        let reason = "there are no pools any more; an emptied configuration is taken for a mistake";
        return Err(DeskError::invalid("pools", reason));
    }
    let Checked { config, warnings } = check(frame, &wanted.resources(), files).map_err(DeskError::Invalid)?;
    check_fit(&config).map_err(|error| DeskError::invalid("pools", error.to_string()))?;
    take_files_in(&mut wanted, &config);
    let next = plan::whole(&wanted, &truth.in_force).map_err(|fault| DeskError::Invalid(vec![fault]))?;
    check_names(frame, &config, &next, truth, retired)?;
    check_room(frame, &config, &wanted, &next)?;
    Ok(prepared(truth, wanted, next, warnings))
}

fn prepared(truth: &Truth, desired: Entries, in_force: Entries, warnings: String) -> Prepared {
    let edits = truth.desired.changes(&desired);
    let changes: Vec<Change> = edits
        .into_iter()
        .map(|Edit { kind, name, value }| {
            let before = truth.desired.get(kind, &name).cloned();
            Change { kind, name, before, after: value }
        })
        .collect();
    let pins = changes.iter().filter(|change| change.kind == Pin);
    let held = pins.filter_map(|change| pending(&change.name, change.after.as_ref(), in_force.get(Pin, &change.name)));
    let pending = held.collect();
    Prepared { desired, in_force, changes, pending, warnings }
}

/// Everything but tenants and pins.
fn catalogue(entries: &Entries) -> Resources {
    let kinds = [Pool, Replica, Model, Version, Plan];
    let of = |kind| entries.of_kind(kind).map(move |(name, value)| ((kind, name.to_string()), (**value).clone()));
    kinds.into_iter().flat_map(of).collect()
}

fn take_files_in(wanted: &mut Entries, config: &Config) {
    let asks = |value: &Json| value.get("golden").is_some();
    let versions = wanted.of_kind(Version).filter(|(_, value)| asks(value));
    let mut versions: Resources =
        versions.map(|(name, value)| ((Version, name.to_string()), (**value).clone())).collect();
    golden::inline(&mut versions, config);
    for ((kind, name), value) in versions {
        if wanted.get(kind, &name).is_some_and(|before| **before != value) {
            wanted.apply(Edit { kind, name: name.into(), value: Some(Arc::new(value)) });
        }
    }
}

/// Versions that are kept must not be in the way of those that are desired, nor may what replicas still hold.
fn check_names(
    frame: &Frame,
    config: &Config,
    next: &Entries,
    truth: &Truth,
    retired: &Retired,
) -> Result<(), DeskError> {
    let (before, after) = (catalogue(&truth.in_force), catalogue(next));
    if before == after {
        return Ok(());
    }
    let effective = check(frame, &after, Files::None).map_err(|faults| {
        let until = |fault: Fault| Fault {
            reason: format!(
                "until the changed pins have flipped, the version in force is needed too: {}",
                fault.reason
            ),
            ..fault
        };
        DeskError::Invalid(faults.into_iter().map(until).collect())
    })?;
    let old = check(frame, &before, Files::None).map(|old| old.config).unwrap_or_default();
    let retired = retired.iter().map(|((pool, name), (model, version))| Called {
        pool: pool.clone(),
        model: model.clone(),
        version: version.clone(),
        name: name.clone(),
    });
    let may_be_loaded = called(&effective.config).chain(called(&old)).chain(retired);
    collision(config, may_be_loaded).map_or(Ok(()), |words| Err(DeskError::invalid("models", words)))
}

/// Where pins are guaranteed, those on their way and those that are split need room beside those in force.
fn check_room(frame: &Frame, config: &Config, wanted: &Entries, next: &Entries) -> Result<(), DeskError> {
    if !config.pools.iter().any(|pool| is_guaranteed(pool.memory)) {
        return Ok(());
    }
    let on_the_way =
        next.of_kind(Pin).filter_map(|(name, current)| pending(name, wanted.get(Pin, name), Some(current)));
    let splits = next.of_kind(Split).filter_map(|(name, value)| {
        let version = Arc::new(Json::from(plan::named_by(value)?));
        pending(name, Some(&version), next.get(Pin, name))
    });
    let changes: Vec<PinChange> =
        on_the_way.chain(splits).map(|p| PinChange { tenant: p.tenant, model: p.model, version: p.to }).collect();
    if changes.is_empty() {
        return Ok(());
    }
    let effective = check(frame, &next.resources(), Files::None).map_err(DeskError::Invalid)?.config;
    check_flips(&effective, &table_input(&effective, &Pins::new()), &changes)
        .map_err(|error| DeskError::invalid("pools", error.to_string()))
}

fn is_guaranteed(memory: MemoryPolicy) -> bool {
    memory == MemoryPolicy::Guaranteed
}

#[cfg(test)]
mod tests;
