//! Which versions the pins in force and their splits name, kept as they change: a walk over a hundred thousand pins once, and then over what differs.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use holdfast_config::ResourceKind;
use holdfast_decide::rollout::Artifact;
use holdfast_plane::{Edit, Entries};
use serde_json::Value as Json;

use crate::desk::named_by;

/// How many pins and splits in force name each version, by model and version.
#[derive(Debug, Default)]
pub(super) struct Needed(HashMap<(String, String), usize>);

impl Needed {
    pub(super) fn of(from: &Entries, to: &Entries) -> Self {
        let mut needed = Self::default();
        needed.follow(from, to);
        needed
    }

    pub(super) fn follow(&mut self, from: &Entries, to: &Entries) {
        let names = |edit: &Edit| matches!(edit.kind, ResourceKind::Pin | ResourceKind::Split);
        for edit in from.changes(to).into_iter().filter(names) {
            if let Some(left) = from.get(edit.kind, &edit.name).and_then(|value| key(&edit.name, value)) {
                let count = self.0.get_mut(&left).map(|count| {
                    *count -= 1;
                    *count
                });
                if count == Some(0) {
                    self.0.remove(&left);
                }
            }
            if let Some(new) = edit.value.as_ref().and_then(|value| key(&edit.name, value)) {
                *self.0.entry(new).or_insert(0) += 1;
            }
        }
    }

    /// Those of the artifacts that some pin or split in force names. Of a version in another pool it is said as well: then it stays.
    pub(super) fn of_these<'a>(&self, artifacts: impl Iterator<Item = &'a Artifact>) -> BTreeSet<Artifact> {
        let named = |a: &&Artifact| self.0.contains_key(&(a.model.to_string(), a.version.to_string()));
        artifacts.filter(named).cloned().collect()
    }
}

fn key(name: &str, version: &Arc<Json>) -> Option<(String, String)> {
    Some((name.split_once('/')?.1.to_owned(), named_by(version)?.to_owned()))
}
