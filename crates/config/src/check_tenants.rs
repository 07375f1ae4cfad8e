//! Tenants: what they pin and what they may name.

use std::collections::{HashMap, HashSet};

use holdfast_types::{ModelName, TenantId, Version};

use crate::check::Checker;
use crate::check_limits::{self, Plans};
use crate::check_models::{Catalogue, Entry};
use crate::compound::Named;
use crate::forms::{PoolForm, TenantForm};
use crate::model::Tenant;
use crate::path::Path;
use crate::pool::Residency;

/// Replicas that serve a tenant which says nothing about it.
const DEFAULT_SUBSET: u32 = 2;

/// What the static pools hold, so that each pin is looked up and not searched.
type Held<'f> = HashSet<(&'f str, &'f str)>;

pub(crate) fn check(
    checker: &mut Checker<'_, '_>,
    forms: &[TenantForm],
    catalogue: &Catalogue<'_>,
    plans: &Plans<'_>,
) -> Vec<Tenant> {
    let path = Path::Root.field("tenants");
    checker.check_unique(&path, "name", forms.iter().map(|form| form.name.as_ref().map(TenantId::as_str)));
    let held = held_statically(catalogue);
    let check_one = |(index, form)| {
        let path = path.item(index);
        let tenant = check_tenant(checker, &path, form, catalogue, &held);
        let plan = plans.of(checker, &path, form);
        let limits = form.limits.as_ref().map(|own| check_limits::own(checker, &path, own, catalogue).into());
        Some(Tenant { plan, limits, ..tenant? })
    };
    forms.iter().enumerate().filter_map(check_one).collect()
}

fn held_statically<'f>(catalogue: &Catalogue<'f>) -> Held<'f> {
    let mut pools: HashMap<*const PoolForm, &PoolForm> = HashMap::new();
    for name in &catalogue.model_names {
        if let Some(pool) = catalogue.model(name).and_then(|entry| entry.pool) {
            pools.insert(pool, pool);
        }
    }
    let replicas = pools.into_values().flat_map(|pool| pool.replicas.iter().flatten());
    let holds = replicas.flat_map(|replica| replica.holds.iter().flatten());
    holds.filter_map(|hold| Some((hold.model.as_ref()?.as_str(), hold.version.as_ref()?.as_str()))).collect()
}

fn check_tenant(
    checker: &mut Checker<'_, '_>,
    path: &Path<'_>,
    form: &TenantForm,
    catalogue: &Catalogue<'_>,
    held: &Held<'_>,
) -> Option<Tenant> {
    let pins = check_pins(checker, path, form, catalogue, held);
    let allow = check_allow(checker, &path.field("allow"), form, catalogue);
    let keys = crate::api_keys::check(checker, &path.field("keys"), &form.keys);
    let rules = crate::check_experiments::rules(checker, &path.field("rules"), &form.rules, catalogue);
    let fallback = check_fallback(checker, &path.field("fallback"), form, catalogue);
    let subset = form.subset.unwrap_or(DEFAULT_SUBSET);
    Some(Tenant {
        name: form.name.clone()?,
        subset: u8::try_from(subset).unwrap_or(u8::MAX),
        pins,
        allow,
        unavailable: form.unavailable,
        fallback,
        plan: None,
        limits: None,
        keys,
        rules,
    })
}

fn check_pins(
    checker: &mut Checker<'_, '_>,
    tenant: &Path<'_>,
    form: &TenantForm,
    catalogue: &Catalogue<'_>,
    held: &Held<'_>,
) -> Box<[(ModelName, Version)]> {
    let pins_path = tenant.field("pins");
    let mut pins = Vec::with_capacity(form.pins.len());
    let mut smallest: Option<(usize, &str)> = None;
    for Named { name: model, name_place, value: version, value_place } in &form.pins {
        let path = pins_path.field(model);
        let Some(entry) = catalogue.find(checker, &path, Some(*name_place), model) else { continue };
        let Some(version) = entry.find(checker, &path, Some(*value_place), version.as_str()) else { continue };
        if is_static(entry) && !held.contains(&(entry.name.as_str(), version.as_str())) {
            checker.warn(&path, format!("no replica holds version {version:?} of model {model:?}, and none will"));
        }
        if let Some(replicas) = entry.pool.and_then(|pool| pool.replicas.as_ref()) {
            let this = (replicas.len(), model.as_ref());
            smallest = Some(smallest.map_or(this, |least| least.min(this)));
        }
        pins.push((entry.name.clone(), version.clone()));
    }
    if let (Some(subset), Some((replicas, model))) = (form.subset, smallest)
        && subset as usize > replicas
    {
        checker.warn(
            &tenant.field("subset"),
            format!("is {subset}, but the pool of model {model:?} has {replicas} in all"),
        );
    }
    pins.sort();
    pins.dedup();
    pins.into()
}

fn is_static(entry: &Entry<'_>) -> bool {
    entry.pool.is_some_and(|pool| pool.residency == Some(Residency::Static))
}

fn check_fallback(
    checker: &mut Checker<'_, '_>,
    path: &Path<'_>,
    form: &TenantForm,
    catalogue: &Catalogue<'_>,
) -> Box<[(ModelName, Box<str>)]> {
    let mut fallback = Vec::with_capacity(form.fallback.len());
    for Named { name: model, name_place, value: answer, .. } in &form.fallback {
        let Some(entry) = catalogue.find(checker, &path.field(model), Some(*name_place), model) else { continue };
        fallback.push((entry.name.clone(), crate::fallback::written(model, answer).into()));
    }
    fallback.into()
}

fn check_allow(
    checker: &mut Checker<'_, '_>,
    allow_path: &Path<'_>,
    form: &TenantForm,
    catalogue: &Catalogue<'_>,
) -> Box<[(ModelName, Version)]> {
    let mut allow: Vec<(ModelName, Version)> = Vec::new();
    for Named { name: model, name_place, value: versions, .. } in &form.allow {
        let path = allow_path.field(model);
        let Some(entry) = catalogue.find(checker, &path, Some(*name_place), model) else { continue };
        let mut seen = HashSet::new();
        for (index, version) in versions.iter().enumerate() {
            let path = path.item(index);
            let Some(version) = version else { continue };
            let Some(version) = entry.find(checker, &path, None, version.as_str()) else { continue };
            if seen.insert(version) {
                allow.push((entry.name.clone(), version.clone()));
            } else {
                checker.fault(&path, format!("{version:?} is in this list already"));
            }
        }
    }
    allow.sort();
    allow.into()
}
