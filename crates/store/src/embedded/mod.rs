//! The store in one redb file: no other service, one process.
//!
//! redb blocks, so it has threads of its own: for writes, for reads, and for backups, which take long. A commit is answered when the disk has it. A file that a
//! killed process left behind is repaired by redb when it is opened, and so is one that the disk has failed (`held`). A second process is refused.

mod commit;
mod copy;
mod held;
mod open;
mod prune;
mod read;
mod tables;
mod worker;

use crate::api::{Fut, Leader, Store, Watch};
use crate::backup::Summary;
use crate::error::{Error, Result};
use crate::key::{Key, Place, Space};
use crate::limits::{BULK_EDITS, MAX_PRUNE, page};
use crate::model::{Commit, Committed, Difference, Edit, Head, Header, Page, Pruned, Record, Resource};
use crate::seal::{Prepared, check_record_kind};
use held::Held;
use holdfast_types::Revision;
use redb::Database;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use worker::{Work, Worker};

/// How an embedded store behaves.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedOptions {
    /// The deadline of a call.
    pub deadline: Duration,
    /// The deadline of large changes, backups and restores.
    pub bulk_deadline: Duration,
    /// Calls that may wait in each of the queues for reads and for writes.
    pub queue: usize,
    /// Memory for pages of the file, in bytes.
    pub cache: usize,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        let (deadline, bulk_deadline) = (Duration::from_secs(5), Duration::from_secs(300));
        Self { deadline, bulk_deadline, queue: 256, cache: 64 * 1024 * 1024 }
    }
}

/// A store in one redb file.
#[derive(Debug)]
pub struct Embedded {
    reads: Worker<Held>,
    writes: Worker<Held>,
    copies: Worker<Held>,
    head: watch::Sender<Revision>,
    options: EmbeddedOptions,
    led: Arc<AtomicBool>,
    /// Becomes true, or goes away, with the store.
    closing: watch::Sender<bool>,
}

impl Embedded {
    /// Opens the file, or makes it. Its folder must be there.
    ///
    /// # Errors
    /// [`Error::InUse`] if a process has it open, [`Error::NewerSchema`], [`Error::Corrupt`].
    pub async fn open(path: &Path, options: EmbeddedOptions) -> Result<Self> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || Held::open(path, options.cache));
        let held = Arc::new(opened.await.map_err(|_| Error::Closed)??);
        let head = held.head().clone();
        let reads = Worker::start("store-read", options.queue, Arc::clone(&held))?;
        let writes = Worker::start("store-write", options.queue, Arc::clone(&held))?;
        let copies = Worker::start("store-copy", 1, held)?;
        Ok(Self { reads, writes, copies, head, options, led: Arc::default(), closing: watch::Sender::new(false) })
    }

    fn read_call<T, F>(&self, job: F) -> Fut<'_, T>
    where
        T: Send + 'static,
        F: FnOnce(&Database) -> Result<T> + Send + 'static,
    {
        Box::pin(self.reads.call(self.options.deadline, Work::Read, move |held| held.read(job)))
    }
}

impl Store for Embedded {
    fn head(&self) -> Fut<'_, Head> {
        self.read_call(read::head)
    }

    fn commit(&self, commit: Commit) -> Fut<'_, Committed> {
        Box::pin(async move {
            let prepared = Prepared::of(commit)?;
            let bulk = prepared.len() > BULK_EDITS;
            let deadline = if bulk { self.options.bulk_deadline } else { self.options.deadline };
            let job = move |held: &Held| {
                let done = held.write(|database| commit::commit(database, prepared))?;
                if let Some(header) = &done.header {
                    held.head().send_replace(header.revision);
                }
                Ok(done)
            };
            self.writes.call(deadline, Work::Write, job).await
        })
    }

    fn read(
        &self,
        space: Space,
        at: Option<Revision>,
        after: Option<Key>,
        limit: usize,
    ) -> Fut<'_, Page<Resource, Key>> {
        self.read_call(move |database| read::read(database, space, at, after, page(limit)))
    }

    fn get(&self, place: Place, at: Option<Revision>) -> Fut<'_, Option<Resource>> {
        self.read_call(move |database| read::get(database, place, at))
    }

    fn edits(&self, revision: Revision, after: Option<Place>, limit: usize) -> Fut<'_, Page<Edit, Place>> {
        self.read_call(move |database| read::edits(database, revision, after.as_ref(), page(limit)))
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Fut<'_, Vec<Header>> {
        self.read_call(move |database| read::history(database, before, page(limit)))
    }

    fn diff(
        &self,
        from: Revision,
        to: Revision,
        after: Option<Place>,
        limit: usize,
    ) -> Fut<'_, Page<Difference, Place>> {
        self.read_call(move |database| read::diff(database, from, to, after.as_ref(), page(limit)))
    }

    fn record(&self, kind: String, id: String) -> Fut<'_, Option<Record>> {
        self.read_call(move |database| read::record(database, &kind, &id))
    }

    fn records(&self, kind: String, after: Option<String>, limit: usize) -> Fut<'_, Vec<Record>> {
        self.read_call(move |database| {
            check_record_kind(&kind)?;
            read::records(database, &kind, after.as_deref(), page(limit))
        })
    }

    fn watch(&self) -> Watch {
        Watch::new(self.head.subscribe())
    }

    /// The file is this process's own, so whoever asks first leads, until the value is dropped or the store is closed.
    fn lead(&self) -> Fut<'_, Option<Leader>> {
        Box::pin(async move {
            if self.led.swap(true, Ordering::AcqRel) {
                return Ok(None);
            }
            let seat = Seat(Arc::clone(&self.led));
            let job = |held: &Held| held.write(commit::next_term);
            let term = self.writes.call(self.options.deadline, Work::Write, job).await?;
            let (leader, alive, probes) = Leader::new(term);
            tokio::spawn(keep(seat, alive, probes, self.closing.subscribe()));
            Ok(Some(leader))
        })
    }

    fn prune(&self, floor: Revision, limit: usize, term: Option<u64>) -> Fut<'_, Pruned> {
        let job =
            move |held: &Held| held.write(|database| prune::prune(database, floor, limit.clamp(1, MAX_PRUNE), term));
        Box::pin(self.writes.call(self.options.deadline, Work::Write, job))
    }

    fn backup(&self, file: PathBuf) -> Fut<'_, Summary> {
        let job = move |held: &Held| held.read(|database| copy::backup(database, &file));
        Box::pin(self.copies.call(self.options.bulk_deadline, Work::Read, job))
    }

    fn restore(&self, file: PathBuf) -> Fut<'_, Summary> {
        let job = move |held: &Held| {
            let summary = held.write(|database| copy::restore(database, &file))?;
            held.head().send_replace(summary.revision);
            Ok(summary)
        };
        Box::pin(self.writes.call(self.options.bulk_deadline, Work::Write, job))
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            self.closing.send_replace(true);
            let threads = [self.reads.close(), self.writes.close(), self.copies.close()];
            let joined = tokio::task::spawn_blocking(move || {
                threads.into_iter().flatten().map(|thread| thread.join()).all(|outcome| outcome.is_ok())
            });
            // A thread that panicked has let go of the file as well.
            let _ = joined.await;
            Ok(())
        })
    }
}

/// Holds the seat until the leader's value is dropped or the store ends.
async fn keep(
    _seat: Seat,
    alive: watch::Sender<bool>,
    mut probes: mpsc::Receiver<oneshot::Sender<()>>,
    mut closing: watch::Receiver<bool>,
) {
    loop {
        let probe = tokio::select! {
            probe = probes.recv() => probe,
            _ = closing.wait_for(|closing| *closing) => None,
        };
        let Some(reply) = probe else { break };
        // A checker that has left needs no answer.
        let _ = reply.send(());
    }
    // Before the probes end: whoever is told by a probe finds it said here too.
    alive.send_replace(false);
}

/// The one leadership of a process, given back on drop.
struct Seat(Arc<AtomicBool>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
