//! Which versions the pins in force, their splits, experiments and rules name, kept as they change: a walk over a hundred thousand pins once, and then over what differs.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use holdfast_config::ResourceKind;
use holdfast_decide::rollout::Artifact;
use holdfast_plane::{Edit, Entries};
use serde_json::Value as Json;

use crate::desk::named_by;

/// How many pins, splits, experiments and tenants (by their rules) in force name each version, by model and version.
#[derive(Debug, Default)]
pub(super) struct Needed(HashMap<(String, String), usize>);

impl Needed {
    pub(super) fn of(from: &Entries, to: &Entries) -> Self {
        let mut needed = Self::default();
        needed.follow(from, to);
        needed
    }

    pub(super) fn follow(&mut self, from: &Entries, to: &Entries) {
        let names = |edit: &Edit| names_versions(edit.kind);
        for edit in from.changes(to).into_iter().filter(names) {
            let keys = |value: &Arc<Json>| named(edit.kind, &edit.name, value);
            for left in from.get(edit.kind, &edit.name).into_iter().flat_map(keys) {
                let count = self.0.get_mut(&left).map(|count| {
                    *count -= 1;
                    *count
                });
                if count == Some(0) {
                    self.0.remove(&left);
                }
            }
            for new in edit.value.iter().flat_map(keys) {
                *self.0.entry(new).or_insert(0) += 1;
            }
        }
    }

    /// Those of the artifacts that something in force names. Of a version in another pool it is said as well: then it stays.
    pub(super) fn of_these<'a>(&self, artifacts: impl Iterator<Item = &'a Artifact>) -> BTreeSet<Artifact> {
        let named = |a: &&Artifact| self.0.contains_key(&(a.model.to_string(), a.version.to_string()));
        artifacts.filter(named).cloned().collect()
    }
}

/// Whether resources of a kind may name versions.
const fn names_versions(kind: ResourceKind) -> bool {
    matches!(kind, ResourceKind::Pin | ResourceKind::Split | ResourceKind::Experiment | ResourceKind::Tenant)
}

/// The versions that a resource names, by model and version. Each of them as often as it is named, so that what comes with a resource goes with it.
fn named(kind: ResourceKind, name: &str, value: &Json) -> Vec<(String, String)> {
    let text = |value: &Json, field: &str| value.get(field).and_then(Json::as_str).map(str::to_owned);
    let listed = |field: &str| value.get(field).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    match kind {
        ResourceKind::Pin | ResourceKind::Split => {
            let key = name.split_once('/').zip(named_by(value));
            key.map(|((_, model), version)| (model.to_owned(), version.to_owned())).into_iter().collect()
        }
        ResourceKind::Experiment if text(value, "status").as_deref() != Some("ended") => {
            let arms = listed("arms").iter().filter_map(|arm| Some((text(value, "model")?, text(arm, "version")?)));
            arms.collect()
        }
        ResourceKind::Tenant => {
            let rules = listed("rules").iter().filter_map(|rule| Some((text(rule, "model")?, text(rule, "version")?)));
            rules.collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_an_arm_or_a_rule_names_is_needed_as_long_as_it_names_it() {
        let entries = |all: &[(ResourceKind, &str, Json)]| -> Entries {
            all.iter().map(|(kind, name, value)| ((*kind, Arc::from(*name)), Arc::new(value.clone()))).collect()
        };
        let arms = json!([{ "name": "a", "version": "1" }, { "name": "b", "version": "2" }]);
        let experiment = |status: &str| json!({ "model": "m", "status": status, "arms": arms });
        let rule = json!({ "rules": [{ "name": "r", "model": "m", "version": "3" }] });
        let pin = (ResourceKind::Pin, "t/m", json!("1"));
        let whole = entries(&[
            pin.clone(),
            (ResourceKind::Tenant, "t", rule),
            (ResourceKind::Experiment, "e", experiment("running")),
        ]);
        let mut needed = Needed::of(&Entries::default(), &whole);
        let all = |needed: &Needed| {
            let mut all: Vec<String> = needed.0.iter().map(|((_, version), n)| format!("{version}x{n}")).collect();
            all.sort();
            all.join(" ")
        };
        assert_eq!(all(&needed), "1x2 2x1 3x1");
        let over = entries(&[
            pin.clone(),
            (ResourceKind::Tenant, "t", json!({})),
            (ResourceKind::Experiment, "e", experiment("ended")),
        ]);
        needed.follow(&whole, &over);
        assert_eq!(all(&needed), "1x1");
        needed.follow(&over, &whole);
        needed.follow(&whole, &entries(&[pin]));
        assert_eq!(all(&needed), "1x1");
    }
}
