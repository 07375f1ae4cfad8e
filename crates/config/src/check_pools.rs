//! Pools and replicas.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use holdfast_types::{ModelName, PoolName, ReplicaName, Version, Weight};

use crate::check::Checker;
use crate::check_models::Catalogue;
use crate::forms::{PoolForm, ReplicaForm};
use crate::path::Path;
use crate::pool::{Pool, Replica, Residency, Upstream};
use crate::template::Template;

pub(crate) fn check(checker: &mut Checker<'_, '_>, forms: &[PoolForm], catalogue: &Catalogue<'_>) -> Vec<Pool> {
    let path = Path::Root.field("pools");
    checker.check_unique(&path, "name", forms.iter().map(|form| form.name.as_ref().map(PoolName::as_str)));
    check_servers(checker, &path, forms);
    let check_one = |(index, form)| check_pool(checker, &path.item(index), form, catalogue);
    forms.iter().enumerate().filter_map(check_one).collect()
}

/// A server has one set of load slots, one memory and one count of requests, so it is one replica. Servers that never load may be in several
/// pools, each for its own models.
fn check_servers(checker: &mut Checker<'_, '_>, path: &Path<'_>, forms: &[PoolForm]) {
    let mut seen: HashMap<(Cow<'_, str>, u16), (usize, usize)> = HashMap::new();
    for (at, pool) in forms.iter().enumerate() {
        for (index, replica) in pool.replicas.iter().flatten().enumerate() {
            let Some(endpoint) = &replica.url else { continue };
            let (first_at, first) = *seen.entry(endpoint.server()).or_insert((at, index));
            let may_load = |at: usize| forms.get(at).is_some_and(|f| f.residency != Some(Residency::Static));
            if (first_at, first) == (at, index) || (first_at != at && !may_load(first_at) && !may_load(at)) {
                continue;
            }
            let (first_pool, pool) = (path.item(first_at), path.item(at));
            let (first_replicas, replicas) = (first_pool.field("replicas"), pool.field("replicas"));
            let reason = format!("{endpoint} is the url of {} already", first_replicas.item(first));
            checker.fault(&replicas.item(index).field("url"), reason);
        }
    }
}

fn check_pool(
    checker: &mut Checker<'_, '_>,
    path: &Path<'_>,
    form: &PoolForm,
    catalogue: &Catalogue<'_>,
) -> Option<Pool> {
    let health_path = path.field("health");
    if form.health.timeout > form.health.interval {
        let field = if checker.tree.has(&health_path.field("timeout")) { "timeout" } else { "interval" };
        let reason =
            format!("the timeout {:?} is longer than the interval {:?}", form.health.timeout, form.health.interval);
        checker.fault(&health_path.field(field), reason);
    }
    let upstream = form.residency.and_then(|residency| check_upstream(checker, path, form, residency, catalogue));
    let replicas = check_replicas(checker, path, form, catalogue);
    Some(Pool {
        name: form.name.clone()?,
        protocol: form.protocol?,
        residency: form.residency?,
        upstream: upstream?,
        connections: form.connections.clone(),
        health: form.health.clone(),
        loads: form.loads.clone(),
        memory: form.memory,
        thrash_window: form.thrash_window,
        drain: form.drain,
        retries: form.retries.clone(),
        replicas,
    })
}

/// Servers that load by name alone get one name per version; servers with version folders of their own are asked for the version.
fn check_upstream(
    checker: &mut Checker<'_, '_>,
    pool_path: &Path<'_>,
    form: &PoolForm,
    residency: Residency,
    catalogue: &Catalogue<'_>,
) -> Option<Upstream> {
    let (model, version) = match residency {
        Residency::Repository => ("{model}-{version}", ""),
        Residency::Static => ("{model}", "{version}"),
    };
    let or_default = |given: &Option<Template>, default| given.clone().or_else(|| Template::parse(default).ok());
    let path = pool_path.field("upstream");
    let upstream = Upstream {
        model: or_default(&form.upstream.model, model)?,
        version: or_default(&form.upstream.version, version)?,
        answer: form.upstream.answer,
    };
    if upstream.model.as_str().is_empty() {
        checker.fault(&path.field("model"), "is empty; an upstream needs the name of a model");
    } else if residency == Residency::Repository && !upstream.model.names_version() {
        checker.fault(
            &path.field("model"),
            "has no {version}; servers load and unload by name, so each version needs a name of its own",
        );
    } else {
        check_apart(checker, &path, form, (residency, &upstream), catalogue);
    }
    Some(upstream)
}

/// No two versions may have one name upstream: the wrong one would serve. Loads and unloads go by the model's name alone, so there it must do
/// without the version's.
fn check_apart(
    checker: &mut Checker<'_, '_>,
    path: &Path<'_>,
    form: &PoolForm,
    (residency, upstream): (Residency, &Upstream),
    catalogue: &Catalogue<'_>,
) {
    let mut seen: HashMap<(String, String), (&str, &str)> = HashMap::new();
    for &model in &catalogue.model_names {
        let Some(entry) = catalogue.model(model) else { continue };
        if entry.pool.is_none_or(|pool| !std::ptr::eq(pool, form)) {
            continue;
        }
        for &version in &entry.version_names {
            let upstream_version = match residency {
                Residency::Repository => String::new(),
                Residency::Static => upstream.version.render(model, version),
            };
            let name = (upstream.model.render(model, version), upstream_version);
            let (m, v) = *seen.entry(name).or_insert((model, version));
            if (m, v) != (model, version) {
                let shown = upstream.model.render(model, version);
                let reason = format!(
                    "makes one upstream model {shown:?} of version {v:?} of {m:?} and version {version:?} of {model:?}"
                );
                checker.fault(path, reason);
                return;
            }
        }
    }
}

fn check_replicas(
    checker: &mut Checker<'_, '_>,
    pool_path: &Path<'_>,
    pool: &PoolForm,
    catalogue: &Catalogue<'_>,
) -> Vec<Replica> {
    let path = pool_path.field("replicas");
    let forms = pool.replicas.as_deref().unwrap_or_default();
    checker.check_unique(&path, "name", forms.iter().map(|form| form.name.as_ref().map(ReplicaName::as_str)));
    if !forms.is_empty() && forms.iter().all(|form| form.weight == 0) {
        checker.fault(&path, "all have weight 0, so none may take a request");
    }
    let check_one = |(index, form)| check_replica(checker, &path.item(index), pool, form, catalogue);
    forms.iter().enumerate().filter_map(check_one).collect()
}

fn check_replica(
    checker: &mut Checker<'_, '_>,
    path: &Path<'_>,
    pool: &PoolForm,
    form: &ReplicaForm,
    catalogue: &Catalogue<'_>,
) -> Option<Replica> {
    let holds_path = path.field("holds");
    match (pool.residency, &form.holds) {
        (Some(Residency::Repository), Some(_)) => {
            checker.fault(
                &holds_path,
                "is for residency static; with residency repository the replica's index says what it holds",
            );
        }
        (Some(Residency::Static), holds)
            if holds.as_ref().is_none_or(Vec::is_empty) && !checker.tree.has(&holds_path.item(0)) =>
        {
            checker.warn(&holds_path, "names nothing, so this replica never serves");
        }
        _ => {}
    }
    let holds = check_holds(checker, &holds_path, pool, form, catalogue);
    Some(Replica {
        name: form.name.clone()?,
        endpoint: form.url.clone()?,
        memory: form.memory,
        weight: Weight(form.weight),
        concurrency: form.concurrency,
        holds,
    })
}

fn check_holds(
    checker: &mut Checker<'_, '_>,
    path: &Path<'_>,
    pool: &PoolForm,
    form: &ReplicaForm,
    catalogue: &Catalogue<'_>,
) -> Vec<(ModelName, Version)> {
    let mut seen = HashSet::new();
    let mut holds = Vec::new();
    for (index, hold) in form.holds.iter().flatten().enumerate() {
        let path = path.item(index);
        let Some(model) = &hold.model else { continue };
        let Some(entry) = catalogue.find(checker, &path.field("model"), None, model.as_str()) else { continue };
        if entry.pool.is_some_and(|of_model| !std::ptr::eq(of_model, pool)) {
            checker.fault(&path.field("model"), format!("model {model:?} is served by another pool"));
        }
        let Some(version) = &hold.version else { continue };
        let Some(version) = entry.find(checker, &path.field("version"), None, version.as_str()) else { continue };
        if seen.insert((entry.name, version)) {
            holds.push((entry.name.clone(), version.clone()));
        } else {
            checker.fault(&path, format!("version {version:?} of model {model:?} is in this list already"));
        }
    }
    holds.sort();
    holds
}
