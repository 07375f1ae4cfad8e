//! A store whose commits go wrong as a test says.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use holdfast_store::backup::Summary;
use holdfast_store::{
    Applied, Commit, Committed, Difference, Edit, Error, Fut, Head, Header, Key, Leader, Page, Place, Pruned, Record,
    Resource, Space, Store, Watch,
};
use holdfast_types::Revision;

/// What becomes of a commit.
#[derive(Clone, Debug)]
pub enum Next {
    Through,
    /// It happens, and the answer is lost.
    LostAfter,
    /// It does not happen, and nobody knows.
    LostBefore,
    /// It does not happen.
    Down,
    /// Another one happens first.
    Meanwhile(Commit),
}

pub struct Unsteady {
    inner: Arc<dyn Store>,
    next: Mutex<VecDeque<Next>>,
}

impl Unsteady {
    pub fn over(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self { inner, next: Mutex::default() })
    }

    pub fn next(&self, next: impl IntoIterator<Item = Next>) {
        *self.next.lock().unwrap() = next.into_iter().collect();
    }
}

impl Store for Unsteady {
    fn commit(&self, commit: Commit) -> Fut<'_, Committed> {
        let next = self.next.lock().unwrap().pop_front().unwrap_or(Next::Through);
        let lost = Err(Error::Timeout { ms: 1, applied: Applied::Maybe });
        Box::pin(async move {
            match next {
                Next::Through => self.inner.commit(commit).await,
                Next::LostAfter => self.inner.commit(commit).await.and(lost),
                Next::LostBefore => lost,
                Next::Down => Err(Error::Unavailable { what: "cut".to_owned(), applied: Applied::No }),
                Next::Meanwhile(other) => {
                    self.inner.commit(other).await.unwrap();
                    self.inner.commit(commit).await
                }
            }
        })
    }
    fn head(&self) -> Fut<'_, Head> {
        self.inner.head()
    }
    fn read(
        &self,
        space: Space,
        at: Option<Revision>,
        after: Option<Key>,
        limit: usize,
    ) -> Fut<'_, Page<Resource, Key>> {
        self.inner.read(space, at, after, limit)
    }
    fn get(&self, place: Place, at: Option<Revision>) -> Fut<'_, Option<Resource>> {
        self.inner.get(place, at)
    }
    fn edits(&self, revision: Revision, after: Option<Place>, limit: usize) -> Fut<'_, Page<Edit, Place>> {
        self.inner.edits(revision, after, limit)
    }
    fn history(&self, before: Option<Revision>, limit: usize) -> Fut<'_, Vec<Header>> {
        self.inner.history(before, limit)
    }
    fn diff(
        &self,
        from: Revision,
        to: Revision,
        after: Option<Place>,
        limit: usize,
    ) -> Fut<'_, Page<Difference, Place>> {
        self.inner.diff(from, to, after, limit)
    }
    fn record(&self, kind: String, id: String) -> Fut<'_, Option<Record>> {
        self.inner.record(kind, id)
    }
    fn records(&self, kind: String, after: Option<String>, limit: usize) -> Fut<'_, Vec<Record>> {
        self.inner.records(kind, after, limit)
    }
    fn watch(&self) -> Watch {
        self.inner.watch()
    }
    fn lead(&self) -> Fut<'_, Option<Leader>> {
        self.inner.lead()
    }
    fn prune(&self, floor: Revision, limit: usize, term: Option<u64>) -> Fut<'_, Pruned> {
        self.inner.prune(floor, limit, term)
    }
    fn backup(&self, file: PathBuf) -> Fut<'_, Summary> {
        self.inner.backup(file)
    }
    fn restore(&self, file: PathBuf) -> Fut<'_, Summary> {
        self.inner.restore(file)
    }
    fn close(&self) -> Fut<'_, ()> {
        self.inner.close()
    }
}
