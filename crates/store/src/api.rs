//! The one trait, and the values that outlive a call: a watch and a leadership.

use crate::backup::Summary;
use crate::error::{Error, Result};
use crate::key::{Key, Place, Space};
use crate::model::{
    Change, Commit, Committed, Difference, Edit, Head, Header, Page, Pruned, Record, RecordWrite, Resource,
};
use holdfast_types::Revision;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use tokio::sync::{mpsc, oneshot, watch};

/// A call in progress. Dropping it gives the call up; a commit may then have happened or not, but never in part.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// The truth of the routing table. Every call ends by its deadline, which the backend's options set.
pub trait Store: Send + Sync {
    /// Where the store stands.
    fn head(&self) -> Fut<'_, Head>;

    /// Makes a change and writes records, all or nothing.
    ///
    /// Errors: [`Error::Conflict`], [`Error::Moved`], [`Error::RecordConflict`], [`Error::Fenced`]; and [`Error::Invalid`], [`Error::TooLarge`] for what no
    /// store takes. After an error with [`crate::Applied::Maybe`] read the head and compare before trying again.
    fn commit(&self, commit: Commit) -> Fut<'_, Committed>;

    /// The resources of a space at a revision (`None`: the head), from after a key on. At most [`crate::MAX_PAGE`] rows are looked at.
    fn read(
        &self,
        space: Space,
        at: Option<Revision>,
        after: Option<Key>,
        limit: usize,
    ) -> Fut<'_, Page<Resource, Key>>;

    /// One resource at a revision (`None`: the head).
    fn get(&self, place: Place, at: Option<Revision>) -> Fut<'_, Option<Resource>>;

    /// The edits of a revision, by place, from after a place on.
    fn edits(&self, revision: Revision, after: Option<Place>, limit: usize) -> Fut<'_, Page<Edit, Place>>;

    /// Headers below a revision (`None`: from the head), newest first.
    fn history(&self, before: Option<Revision>, limit: usize) -> Fut<'_, Vec<Header>>;

    /// What differs between two revisions, in either order, by place, from after a place on. The page's revision is `to`.
    fn diff(
        &self,
        from: Revision,
        to: Revision,
        after: Option<Place>,
        limit: usize,
    ) -> Fut<'_, Page<Difference, Place>>;

    /// One record.
    fn record(&self, kind: String, id: String) -> Fut<'_, Option<Record>>;

    /// The records of a kind by id, from after an id on.
    fn records(&self, kind: String, after: Option<String>, limit: usize) -> Fut<'_, Vec<Record>>;

    /// Follows the head.
    fn watch(&self) -> Watch;

    /// Tries to become the leader; `None`: another one leads.
    fn lead(&self) -> Fut<'_, Option<Leader>>;

    /// Forgets what only revisions before `floor` show: their states, edits and headers cannot be read any more, beginning with this call.
    /// Works on at most `limit` headers and `limit` edits, oldest first, so that it never holds up commits for long; call again while there
    /// is more. A term is held to the rule of commits.
    fn prune(&self, floor: Revision, limit: usize, term: Option<u64>) -> Fut<'_, Pruned>;

    /// Writes a backup to a file that is not there yet.
    fn backup(&self, file: PathBuf) -> Fut<'_, Summary>;

    /// Restores a backup into this store, which must be empty. A backup that is cut or damaged changes nothing.
    fn restore(&self, file: PathBuf) -> Fut<'_, Summary>;

    /// Takes no more calls and lets go of file or connections; calls at work are finished. Later calls, and perhaps some that waited, answer
    /// [`Error::Closed`].
    fn close(&self) -> Fut<'_, ()>;

    /// Makes one change. See [`Store::commit`].
    fn append(&self, change: Change) -> Fut<'_, Header> {
        Box::pin(async move {
            let done = self.commit(Commit { change: Some(change), ..Commit::default() }).await?;
            done.header.ok_or_else(|| Error::corrupt("a change without a header"))
        })
    }

    /// Writes one record and gives its new version, or `None` for a deletion. See [`Store::commit`].
    fn write_record(&self, write: RecordWrite) -> Fut<'_, Option<u64>> {
        Box::pin(async move {
            let done = self.commit(Commit { records: vec![write], ..Commit::default() }).await?;
            Ok(done.versions.into_iter().next().flatten())
        })
    }
}

/// Follows the head of a store. Changes that come faster than they are looked at are seen as one.
#[derive(Clone, Debug)]
pub struct Watch(watch::Receiver<Revision>);

impl Watch {
    pub(crate) fn new(mut receiver: watch::Receiver<Revision>) -> Self {
        if receiver.borrow().0 > 0 {
            receiver.mark_changed();
        }
        Self(receiver)
    }

    /// Waits until the head is another than the last one seen here, and gives it. The first call answers at once if the store has any
    /// revision.
    ///
    /// # Errors
    /// [`Error::Closed`] when the store is gone.
    pub async fn changed(&mut self) -> Result<Revision> {
        self.0.changed().await.map_err(|_| Error::Closed)?;
        Ok(*self.0.borrow_and_update())
    }

    /// The last head that the store knows of.
    #[must_use]
    pub fn last(&self) -> Revision {
        *self.0.borrow()
    }
}

/// Leadership over a store, for as long as this value lives and [`Leader::check`] holds. Give [`Leader::term`] to every commit: whoever
/// leads later is refused nothing, whoever led before is.
#[derive(Debug)]
pub struct Leader {
    term: u64,
    alive: watch::Receiver<bool>,
    probe: mpsc::Sender<oneshot::Sender<()>>,
}

impl Leader {
    /// A leadership, and what its keeper holds: it ends when the keeper drops the sender or the leader is dropped.
    pub(crate) fn new(term: u64) -> (Self, watch::Sender<bool>, mpsc::Receiver<oneshot::Sender<()>>) {
        let (alive_tx, alive) = watch::channel(true);
        // One check at a time; more wait their turn in their own callers.
        let (probe, probes) = mpsc::channel(1);
        (Self { term, alive, probe }, alive_tx, probes)
    }

    /// The term: larger than that of every leader before.
    #[must_use]
    pub const fn term(&self) -> u64 {
        self.term
    }

    /// Asks whether the leadership still holds: a round trip over the connection that holds it.
    ///
    /// # Errors
    /// [`Error::NotLeader`].
    pub async fn check(&self) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        let over = Error::NotLeader { term: self.term };
        if self.probe.send(reply).await.is_err() || answer.await.is_err() || !self.holds() {
            return Err(over);
        }
        Ok(())
    }

    /// What is known without asking.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.alive.has_changed().is_ok() && *self.alive.borrow()
    }

    /// Waits until the leadership is lost.
    pub async fn lost(&mut self) {
        // An error is the keeper's end, which is the end of the leadership too.
        let _ = self.alive.wait_for(|alive| !alive).await;
    }
}
