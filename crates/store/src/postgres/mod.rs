//! The store in a schema of a PostgreSQL database, for several processes.
//!
//! Connect to the server itself: sessions carry settings, a lock and a subscription, which a pooler in between would mix up.

mod commit;
mod copy;
mod fault;
mod leader;
mod options;
mod pool;
mod read;
mod rows;
mod schema;
mod tls;

use crate::api::{Fut, Leader, Store, Watch};
use crate::backup::Summary;
use crate::error::{Applied, Error, Result};
use crate::key::{Key, Place, Space};
use crate::limits::{BULK_EDITS, MAX_PRUNE, page};
use crate::model::{Commit, Committed, Difference, Edit, Head, Header, Page, Pruned, Record, Resource};
use crate::seal::{Prepared, check_record_kind};
use holdfast_types::Revision;
use pool::{Pool, Span, Work};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use options::PostgresOptions;
pub use tls::PostgresTls;

/// A store in a PostgreSQL database.
#[derive(Debug)]
pub struct Postgres {
    pool: Arc<Pool>,
    head: Arc<watch::Sender<Revision>>,
    listener: JoinHandle<()>,
    /// Becomes true, or goes away, with the store.
    closing: watch::Sender<bool>,
}

impl Postgres {
    /// Connects, and makes the tables if they are missing. Needs a tokio runtime, which carries the connections.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`] if the server does not answer by the deadline, [`crate::Error::NewerSchema`],
    /// [`crate::Error::Invalid`] for options.
    pub async fn open(options: PostgresOptions) -> Result<Self> {
        let pool = Arc::new(Pool::new(options)?);
        pool.call(Work::Write, Span::Short, |attempt| schema::migrate(attempt, &pool.options)).await?;
        let head = pool.call(Work::Read, Span::Short, read::head).await?;
        let head = Arc::new(watch::Sender::new(head.revision));
        let listener = tokio::spawn(leader::listen(Arc::clone(&pool), Arc::clone(&head)));
        Ok(Self { pool, head, listener, closing: watch::Sender::new(false) })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Store for Postgres {
    fn head(&self) -> Fut<'_, Head> {
        Box::pin(self.pool.call(Work::Read, Span::Short, read::head))
    }

    fn commit(&self, commit: Commit) -> Fut<'_, Committed> {
        Box::pin(async move {
            let prepared = Prepared::of(commit)?;
            let span = if prepared.len() > BULK_EDITS { Span::Bulk } else { Span::Short };
            let work = |attempt| commit::commit(attempt, &self.pool.options, prepared.clone());
            let done = self.pool.call(Work::Write, span, work).await?;
            if let Some(header) = &done.header {
                leader::raise(&self.head, header.revision);
            }
            Ok(done)
        })
    }

    fn read(
        &self,
        space: Space,
        at: Option<Revision>,
        after: Option<Key>,
        limit: usize,
    ) -> Fut<'_, Page<Resource, Key>> {
        Box::pin(async move {
            let work = |attempt| read::read(attempt, space, at, after.clone(), page(limit));
            self.pool.call(Work::Read, Span::Short, work).await
        })
    }

    fn get(&self, place: Place, at: Option<Revision>) -> Fut<'_, Option<Resource>> {
        Box::pin(async move { self.pool.call(Work::Read, Span::Short, |attempt| read::get(attempt, &place, at)).await })
    }

    fn edits(&self, revision: Revision, after: Option<Place>, limit: usize) -> Fut<'_, Page<Edit, Place>> {
        Box::pin(async move {
            let after = after.as_ref();
            self.pool.call(Work::Read, Span::Short, |attempt| read::edits(attempt, revision, after, page(limit))).await
        })
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Fut<'_, Vec<Header>> {
        Box::pin(async move {
            self.pool.call(Work::Read, Span::Short, |attempt| read::history(attempt, before, page(limit))).await
        })
    }

    fn diff(
        &self,
        from: Revision,
        to: Revision,
        after: Option<Place>,
        limit: usize,
    ) -> Fut<'_, Page<Difference, Place>> {
        Box::pin(async move {
            let after = after.as_ref();
            self.pool.call(Work::Read, Span::Short, |attempt| read::diff(attempt, (from, to), after, page(limit))).await
        })
    }

    fn record(&self, kind: String, id: String) -> Fut<'_, Option<Record>> {
        Box::pin(
            async move { self.pool.call(Work::Read, Span::Short, |attempt| read::record(attempt, &kind, &id)).await },
        )
    }

    fn records(&self, kind: String, after: Option<String>, limit: usize) -> Fut<'_, Vec<Record>> {
        Box::pin(async move {
            check_record_kind(&kind)?;
            let after = after.as_deref();
            self.pool.call(Work::Read, Span::Short, |attempt| read::records(attempt, &kind, after, page(limit))).await
        })
    }

    fn watch(&self) -> Watch {
        Watch::new(self.head.subscribe())
    }

    fn lead(&self) -> Fut<'_, Option<Leader>> {
        Box::pin(leader::lead(&self.pool, self.closing.subscribe()))
    }

    fn prune(&self, floor: Revision, limit: usize, term: Option<u64>) -> Fut<'_, Pruned> {
        Box::pin(async move {
            let work = |attempt| commit::prune(attempt, floor, limit.clamp(1, MAX_PRUNE), term);
            self.pool.call(Work::Write, Span::Short, work).await
        })
    }

    fn backup(&self, file: PathBuf) -> Fut<'_, Summary> {
        Box::pin(async move { self.pool.call(Work::Read, Span::Bulk, |attempt| copy::backup(attempt, &file)).await })
    }

    fn restore(&self, file: PathBuf) -> Fut<'_, Summary> {
        Box::pin(async move {
            let patience = self.pool.options.bulk_deadline;
            let verified = tokio::time::timeout(patience, copy::verify(file.clone())).await;
            let late = Error::Timeout { ms: pool::millis(patience), applied: Applied::No };
            let verified = verified.unwrap_or(Err(late))?;
            let (options, verified) = (&self.pool.options, &verified);
            let work = |attempt| copy::restore(attempt, options, &file, verified);
            let summary = self.pool.call(Work::Write, Span::Bulk, work).await?;
            leader::raise(&self.head, summary.revision);
            Ok(summary)
        })
    }

    fn close(&self) -> Fut<'_, ()> {
        Box::pin(async move {
            self.closing.send_replace(true);
            self.listener.abort();
            self.pool.close();
            Ok(())
        })
    }
}
