//! What is asked of a desk, and what it answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value as Json;

use holdfast_config::{ResourceKind, Resources};
use holdfast_plane::{Edit, Pending};
use holdfast_types::{ModelName, PoolName, Revision, Version};

use super::options::RolloutOptions;

/// Names upstream under which replicas may still hold versions that no table names any more; see `plane::Status::retired`. Of all gateways.
pub type Retired = BTreeMap<(PoolName, String), (ModelName, Version)>;

/// A change that somebody asks for.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The revision that its author saw: a conflict if what is desired has changed since. `None`: whatever is desired now.
    pub base: Option<Revision>,
    /// Who.
    pub author: String,
    /// Why.
    pub reason: String,
    /// When: milliseconds since 1970.
    pub at_ms: u64,
    /// What.
    pub what: What,
    /// Only say what would come of it. The answer is that of the real thing, and nothing is written.
    pub dry_run: bool,
    /// How the roll-outs of its pins should go about it.
    pub options: Option<RolloutOptions>,
    /// What replicas may still hold.
    pub retired: Retired,
    /// The leader's term, where a leader asks.
    pub term: Option<u64>,
}

/// What should be desired.
#[derive(Clone, Debug)]
pub enum What {
    /// These edits of what is desired. What is taken away takes what it owns with it: a tenant its pins, a pool its replicas, a model its
    /// versions.
    Edits(Vec<Edit>),
    /// All of this and nothing else.
    Whole(Resources),
}

/// One difference in what is desired.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// What it is.
    pub kind: ResourceKind,
    /// Its name.
    pub name: Arc<str>,
    /// Before. `None`: it is new.
    pub before: Option<Arc<Json>>,
    /// After. `None`: it is gone.
    pub after: Option<Arc<Json>>,
}

/// What came of an ask, or would.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// The revision that it became. `None`: a dry run, or nothing is different and nothing is asked for again.
    pub revision: Option<Revision>,
    /// What is different, in order of kind and name.
    pub changes: Vec<Change>,
    /// Pins that are held back until their new version is warm: those among the changes, and those that are asked for again, after their roll-out
    /// has failed or was taken back.
    pub pending: Vec<Pending>,
    /// What is allowed but most likely not meant, a line each.
    pub warnings: String,
}

impl Done {
    pub(super) fn warn(&mut self, lines: Vec<String>) {
        for line in lines {
            if !self.warnings.is_empty() {
                self.warnings.push('\n');
            }
            self.warnings.push_str(&line);
        }
    }
}

/// What came of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Adopted {
    /// It is the first content of an empty store.
    Seeded(Done),
    /// It is what is desired now.
    Taken(Done),
    /// The store is the truth and has content: only the settings of the process were taken.
    SettingsOnly,
}
