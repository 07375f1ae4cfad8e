//! The routing table as it runs: what the control plane puts in force, in the form that requests use.
//!
//! This side decides nothing: it serves the table that it was told last, warms what that table's pins and its orders name, and says what it sees. A new
//! table takes the old one's place by a pointer swap. ROUTE-1: an older revision is refused.

mod build;
mod counted;
mod follow;
mod handover;
mod local;
mod report;
mod revision;
mod tables;
mod wanted;

use std::sync::Arc;

use http::HeaderValue;

use holdfast_config::Config;
use holdfast_decide::Snapshot;

use crate::fleet::Pool;
use crate::limits::LimitTable;
use crate::settings::Settings;
use crate::stage::submission::Replays;

pub use build::StartError;
pub use handover::{Handover, Leaving};
pub use local::{ConfigStatus, Failed};
pub use revision::RevisionGuard;
pub use tables::{PendingPin, Tables};
pub(crate) use wanted::{subset, target, version_of};

/// One table in force, with all that a request needs beside it.
pub struct Table {
    /// What routes.
    pub snapshot: Snapshot,
    /// The pools by the snapshot's index.
    pub pools: Vec<Arc<Pool>>,
    /// Bounds, times and stamps.
    pub settings: Arc<Settings>,
    /// The configuration that it was made from. Its pins may be older than the snapshot's.
    pub config: Arc<Config>,
    /// What the control plane said.
    pub told: Arc<holdfast_plane::Table>,
    /// Keys that former holders go on serving.
    pub handover: Arc<Handover>,
    /// Ways of retries to versions that nobody pins any more.
    pub replays: Arc<Replays>,
    /// What is allowed.
    pub limits: LimitTable,
    /// The revision as a stamp.
    pub stamp: HeaderValue,
    /// Counts requests under this revision.
    pub usage: Arc<revision::RevisionUse>,
}
