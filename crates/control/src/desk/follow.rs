//! Commits of others.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use holdfast_store::Head;
use holdfast_types::Revision;

use super::truth::{self, Truth};
use super::{Desk, DeskError, Turn};

/// So many revisions behind, everything is read anew.
const FAR_BEHIND: u64 = 1_000;

/// The wait after the store gave no answer.
const RETRY: Duration = Duration::from_secs(1);

impl Desk {
    /// Takes in what other processes write, until `stop` is done or the store is closed. A store that cannot be reached is asked again every
    /// second; until then the truth is the last one.
    pub async fn follow(self: Arc<Self>, stop: impl Future<Output = ()> + Send) {
        let mut stop = std::pin::pin!(stop);
        let mut watch = self.store.watch();
        loop {
            tokio::select! {
                () = &mut stop => return,
                changed = watch.changed() => if changed.is_err() { return },
            }
            while let Err(error) = self.refresh().await {
                tracing::warn!(%error, "the store cannot be followed; the last truth stays");
                tokio::select! {
                    () = &mut stop => return,
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
        }
    }

    /// Takes in what is in the store by now.
    ///
    /// # Errors
    /// The store gives no answer. The truth stays as it was.
    pub async fn refresh(&self) -> Result<Arc<Truth>, DeskError> {
        let turn = self.turn().await?;
        self.catch_up(&turn).await
    }

    pub(super) async fn catch_up(&self, turn: &Turn<'_>) -> Result<Arc<Truth>, DeskError> {
        let head = self.store.head().await?;
        let known = self.truth();
        let at = known.head.revision;
        if head == known.head {
            return Ok(known);
        }
        if head.revision < at || head.floor > at || head.revision.0 - at.0 > FAR_BEHIND {
            return Ok(self.publish(turn, truth::read(&*self.store).await?));
        }
        match self.step(&known, head).await {
            Ok(truth) => Ok(self.publish(turn, truth)),
            // What is needed was pruned meanwhile.
            Err(DeskError::NotFound(_)) => Ok(self.publish(turn, truth::read(&*self.store).await?)),
            Err(error) => Err(error),
        }
    }

    /// Revision by revision to a head.
    async fn step(&self, known: &Truth, head: Head) -> Result<Truth, DeskError> {
        let mut truth = known.clone();
        for revision in known.head.revision.0 + 1..=head.revision.0 {
            let edits = truth::edits(&*self.store, Revision(revision)).await?;
            let at = truth.head.clone();
            truth.apply(edits, at);
        }
        truth.head = head;
        Ok(truth)
    }
}
