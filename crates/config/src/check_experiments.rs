//! Experiments and rules: names are followed, and whoever could be in two experiments of one model is told.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_assign::split::SplitError;
use holdfast_assign::{Condition, Experiment as Assigned, Field, Layer, Range, Split, Target};
use holdfast_types::{ArmName, ExperimentName, RuleName, TenantId};

use crate::check::Checker;
use crate::check_models::Catalogue;
use crate::experiment::{Arm, ConditionForm, Experiment, ExperimentForm, Rule, RuleForm, Status};
use crate::forms::TenantForm;
use crate::given;
use crate::path::Path;

/// The most experiments: each pair is looked at.
const MOST: usize = 1_000;

/// The rules of one tenant.
pub(crate) fn rules(
    checker: &mut Checker<'_, '_>,
    path: &Path<'_>,
    forms: &[RuleForm],
    catalogue: &Catalogue<'_>,
) -> Box<[Rule]> {
    checker.check_unique(path, "name", forms.iter().map(|form| form.name.as_ref().map(RuleName::as_str)));
    let check_one = |(index, form): (usize, &RuleForm)| {
        let path = path.item(index);
        let target = target(checker, &path.field("target"), &form.target);
        let model = form.model.as_ref()?;
        let entry = catalogue.find(checker, &path.field("model"), None, model.as_str())?;
        let version = entry.find(checker, &path.field("version"), None, form.version.as_ref()?.as_str())?;
        Some(Rule { name: form.name.clone()?, model: model.clone(), version: version.clone(), target })
    };
    forms.iter().enumerate().filter_map(check_one).collect()
}

pub(crate) fn check(
    checker: &mut Checker<'_, '_>,
    forms: &[ExperimentForm],
    tenants: &[TenantForm],
    catalogue: &Catalogue<'_>,
) -> Vec<Experiment> {
    let path = Path::Root.field("experiments");
    if forms.len() > MOST {
        checker.fault(&path, format!("has {} items; the most is {MOST}", forms.len()));
        return Vec::new();
    }
    checker.check_unique(&path, "name", forms.iter().map(|form| form.name.as_ref().map(ExperimentName::as_str)));
    let known: BTreeSet<&str> = tenants.iter().filter_map(|form| form.name.as_ref().map(TenantId::as_str)).collect();
    let check_one = |(index, form)| {
        let one = check_one(checker, &path.item(index), form, catalogue)?;
        unknown_tenants(checker, &path.item(index).field("target"), &one.experiment.target, &known);
        Some((index, one))
    };
    let all: Vec<(usize, Experiment)> = forms.iter().enumerate().filter_map(check_one).collect();
    check_holdouts(checker, &path, &all);
    check_pairs(checker, &path, &all);
    all.into_iter().map(|(_, one)| one).collect()
}

fn check_one(
    checker: &mut Checker<'_, '_>,
    path: &Path<'_>,
    form: &ExperimentForm,
    catalogue: &Catalogue<'_>,
) -> Option<Experiment> {
    let arms = check_arms(checker, path, form, catalogue);
    let target = target(checker, &path.field("target"), &form.target);
    if let (Some(start), Some(end)) = (form.start, form.end)
        && start >= end
    {
        checker.fault(&path.field("end"), "is not after start");
    }
    for (index, one) in form.exclude.iter().enumerate() {
        if one.from.zip(one.to).is_some_and(|(from, to)| from >= to) {
            checker.fault(&path.field("exclude").item(index).field("to"), "is not after from");
        }
    }
    let layer = form.layer.as_ref().and_then(|layer| {
        if layer.from >= layer.to {
            checker.fault(&path.field("layer"), "has nobody: to is not more than from");
        }
        let range = Range { from: layer.from, to: layer.to };
        Some(Layer { name: layer.name.as_ref()?.to_string(), range })
    });
    let holdout = form.holdout.as_ref().and_then(|one| Some((one.name.as_ref()?.to_string(), one.percent?)));
    let keys = given::keys(form);
    if (1..keys.len())
        .any(|at| keys.get(..at).is_some_and(|before| keys.get(at).is_some_and(|key| before.contains(key))))
    {
        checker.fault(&path.field("key"), "names a key twice");
    }
    let (name, model, arms) = (form.name.clone()?, form.model.clone()?, arms?);
    let allocation = match given::allocation(form) {
        Ok(allocation) => allocation,
        Err((field, why)) => {
            checker.fault(&path.field(&field), why);
            return None;
        }
    };
    let experiment = Assigned {
        salt: form.salt.as_ref().unwrap_or(&name).to_string(),
        running: form.status == Status::Running,
        start: form.start,
        end: form.end,
        keys,
        target,
        layer,
        holdout,
        sticky_ms: form.sticky.as_ref().map(|one| u64::try_from(one.keep.as_millis()).unwrap_or(u64::MAX)),
        allocation,
    };
    Some(Experiment { name, model, status: form.status, experiment, arms })
}

/// None: one of them is faulty.
fn check_arms(
    checker: &mut Checker<'_, '_>,
    path: &Path<'_>,
    form: &ExperimentForm,
    catalogue: &Catalogue<'_>,
) -> Option<Vec<Arm>> {
    let model = form.model.as_ref().map(|model| (model, path.field("model")));
    let entry = model.and_then(|(model, path)| catalogue.find(checker, &path, None, model.as_str()));
    let path = path.field("arms");
    let forms = form.arms.as_deref().unwrap_or_default();
    checker.check_unique(&path, "name", forms.iter().map(|form| form.name.as_ref().map(ArmName::as_str)));
    let arms = forms.iter().enumerate().map(|(index, form)| {
        let at = path.item(index);
        let named = form.version.as_ref()?;
        let version = entry.and_then(|entry| entry.find(checker, &at.field("version"), None, named.as_str()))?;
        Some(Arm { name: form.name.clone()?, version: version.clone(), weight: form.weight })
    });
    let arms: Vec<Option<Arm>> = arms.collect();
    let weights: Vec<u32> = forms.iter().map(|form| form.weight).collect();
    match Split::of(&weights) {
        Ok(_) => arms.into_iter().collect(),
        // That the list is empty is said already.
        Err(_) if forms.is_empty() => None,
        Err(SplitError::TooSmall(arm)) => {
            checker.fault(
                &path.item(arm).field("weight"),
                "is less than 1 of 10000 of all weights: the arm would get nobody; write 0 for nobody",
            );
            None
        }
        Err(why) => {
            checker.fault(&path, why.to_string());
            None
        }
    }
}

/// Compiles conditions; those with a fault are left out.
fn target(checker: &mut Checker<'_, '_>, path: &Path<'_>, forms: &[ConditionForm]) -> Target {
    let set = |all: &[Box<str>]| all.iter().map(ToString::to_string).collect();
    let compile = |(index, form): (usize, &ConditionForm)| {
        let of = [
            form.is.as_deref().map(|all| Condition::In(set(all))),
            form.not.as_deref().map(|all| Condition::NotIn(set(all))),
            form.begins.as_ref().map(|start| Condition::Begins(start.to_string())),
            form.present.map(|there| if there { Condition::Present } else { Condition::Absent }),
        ];
        let mut of = of.into_iter().flatten();
        match (of.next(), of.next()) {
            (Some(condition), None) => Some((form.field.clone()?, condition)),
            _ => {
                checker.fault(&path.item(index), "has not exactly one of is, not, begins and present");
                None
            }
        }
    };
    Target(forms.iter().enumerate().filter_map(compile).collect())
}

/// The tenants that a target names. None: it does not say.
fn named(target: &Target) -> Option<BTreeSet<&str>> {
    let lists = target.0.iter().filter_map(|(field, condition)| match (field, condition) {
        (Field::Tenant, Condition::In(all)) => Some(all.iter().map(String::as_str).collect::<BTreeSet<_>>()),
        _ => None,
    });
    lists.reduce(|one, other| one.intersection(&other).copied().collect())
}

fn unknown_tenants(checker: &mut Checker<'_, '_>, path: &Path<'_>, target: &Target, known: &BTreeSet<&str>) {
    // Where tenants are looked at by themselves there are none of them, or not all.
    if known.is_empty() {
        return;
    }
    if let Some(name) = named(target).into_iter().flatten().find(|name| !known.contains(name)) {
        let reason = format!("names tenant {name:?}, which there is not");
        checker.warn_unknown(path, reason, name, known.iter().copied());
    }
}

fn check_holdouts(checker: &mut Checker<'_, '_>, path: &Path<'_>, all: &[(usize, Experiment)]) {
    let mut seen: BTreeMap<&str, (usize, u16)> = BTreeMap::new();
    for (index, one) in all {
        let Some((name, percent)) = &one.experiment.holdout else { continue };
        let (first, other) = *seen.entry(name).or_insert((*index, *percent));
        if other != *percent {
            let reason = format!("{} has another share for holdout {name:?}", path.item(first));
            checker.fault(&path.item(*index).field("holdout").field("percent"), reason);
        }
    }
}

/// Parts of one layer do not meet and are told apart by the same keys; experiments of one model that could have the same people are parts of one layer.
fn check_pairs(checker: &mut Checker<'_, '_>, path: &Path<'_>, all: &[(usize, Experiment)]) {
    let live: Vec<&(usize, Experiment)> = all.iter().filter(|(_, one)| one.status != Status::Ended).collect();
    for (at, (index, one)) in live.iter().enumerate() {
        for (first, other) in live.iter().take(at) {
            let (first, here) = (path.item(*first), path.item(*index));
            let (mine, theirs) = (&one.experiment, &other.experiment);
            match (&mine.layer, &theirs.layer) {
                (Some(a), Some(b)) if a.name == b.name => {
                    if a.range.meets(b.range) {
                        checker.fault(
                            &here.field("layer"),
                            format!("meets the part of layer {:?} that {first} has", a.name),
                        );
                    }
                    if mine.keys != theirs.keys {
                        let reason = format!("is not the key of {first}, which has another part of layer {:?}", a.name);
                        checker.fault(&here.field("key"), reason);
                    }
                }
                _ if one.model == other.model && may_meet(&mine.target, &theirs.target) => {
                    let reason = format!(
                        "could be tried on the same people as that of {first}; give both a part of one layer, or name other tenants in target"
                    );
                    checker.fault(&here.field("model"), reason);
                }
                _ => {}
            }
        }
    }
}

fn may_meet(one: &Target, other: &Target) -> bool {
    match (named(one), named(other)) {
        (Some(one), Some(other)) => !one.is_disjoint(&other),
        _ => true,
    }
}
