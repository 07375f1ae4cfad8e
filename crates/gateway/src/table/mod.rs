//! The routing table as it runs: which one is in force, how a configuration becomes one, how pins flip.
//!
//! PIN-3: a pin whose version changes stays as it is until every replica of the new key's subset holds the new version, proven; then one new
//! table, under the next revision, takes the old one's place by a pointer swap. ROUTE-1: revisions only grow, also over a restart.

mod compile;
mod flip;
mod kept;
mod names;
mod persist;
mod revision;
mod wanted;
mod watch;

use std::sync::Arc;

use http::HeaderValue;

use holdfast_config::Config;
use holdfast_decide::Snapshot;

use crate::fleet::Pool;
use crate::settings::Settings;

pub use flip::{Failed, PendingPin, Reload, StartError, Status, Tables};
pub use persist::PersistError;
pub use revision::RevisionGuard;
pub(crate) use wanted::{subset, version_of};
pub use watch::Watch;

/// One table in force, with all that a request needs beside it.
pub struct Table {
    /// What routes.
    pub snapshot: Snapshot,
    /// The pools by the snapshot's index.
    pub pools: Vec<Arc<Pool>>,
    /// Bounds, times and stamps.
    pub settings: Arc<Settings>,
    /// The configuration that it was made from.
    pub config: Arc<Config>,
    /// The revision as a stamp.
    pub stamp: HeaderValue,
    /// Counts requests under this revision.
    pub usage: Arc<revision::RevisionUse>,
}
