//! Asks a replica whether it holds what a request was just told is not there.

use std::time::Duration;

use tokio::time::Instant;

use super::{Driver, server};
use crate::fleet::Cell;

/// The longest wait for a word about it.
const PATIENCE: Duration = Duration::from_secs(1);

impl Driver {
    /// Whether the replica says, asked at once, that it does not have the version ready. No answer in time is no such word, and says nothing about
    /// the replica's health.
    ///
    /// # Cancel safety
    /// Cancel safe: the question is dropped.
    pub async fn denies(&self, cell: &Cell, until: Instant) -> bool {
        let Some(facts) = self.fleet.version(cell.version) else { return false };
        let most = until.saturating_duration_since(Instant::now()).min(PATIENCE);
        let (model, version) = (&facts.upstream_model, &facts.upstream_version);
        matches!(server::is_ready(&cell.replica.fetch, model, version, most).await, Ok(false))
    }
}
