//! A store, each of whose calls is noted.

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_store::backup::Summary;
use holdfast_store::{
    Commit, Committed, Difference, Edit, Fut, Head, Header, Key, Leader, Page, Place, Pruned, Record, Resource, Space,
    Store, Watch,
};
use holdfast_types::Revision;

use super::{Pulse, Work};

/// See the module.
pub struct Watched {
    store: Arc<dyn Store>,
    pulse: Arc<Pulse>,
}

impl Watched {
    /// Notes in the pulse what becomes of the calls.
    #[must_use]
    pub fn over(store: Arc<dyn Store>, pulse: Arc<Pulse>) -> Arc<dyn Store> {
        Arc::new(Self { store, pulse })
    }

    fn note<'a, T: 'a>(&'a self, work: Work, call: Fut<'a, T>) -> Fut<'a, T> {
        Box::pin(async move {
            let outcome = call.await;
            self.pulse.note(work, outcome.as_ref().err());
            outcome
        })
    }
}

impl Store for Watched {
    fn head(&self) -> Fut<'_, Head> {
        self.note(Work::Read, self.store.head())
    }

    fn commit(&self, commit: Commit) -> Fut<'_, Committed> {
        let call = self.store.commit(commit);
        self.note(
            Work::Write,
            Box::pin(async move {
                let begun = (self.pulse.now)();
                let done = call.await?;
                self.pulse.committed((self.pulse.now)().since(begun));
                Ok(done)
            }),
        )
    }

    fn read(
        &self,
        space: Space,
        at: Option<Revision>,
        after: Option<Key>,
        limit: usize,
    ) -> Fut<'_, Page<Resource, Key>> {
        self.note(Work::Read, self.store.read(space, at, after, limit))
    }

    fn get(&self, place: Place, at: Option<Revision>) -> Fut<'_, Option<Resource>> {
        self.note(Work::Read, self.store.get(place, at))
    }

    fn edits(&self, revision: Revision, after: Option<Place>, limit: usize) -> Fut<'_, Page<Edit, Place>> {
        self.note(Work::Read, self.store.edits(revision, after, limit))
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Fut<'_, Vec<Header>> {
        self.note(Work::Read, self.store.history(before, limit))
    }

    fn diff(
        &self,
        from: Revision,
        to: Revision,
        after: Option<Place>,
        limit: usize,
    ) -> Fut<'_, Page<Difference, Place>> {
        self.note(Work::Read, self.store.diff(from, to, after, limit))
    }

    fn record(&self, kind: String, id: String) -> Fut<'_, Option<Record>> {
        self.note(Work::Read, self.store.record(kind, id))
    }

    fn records(&self, kind: String, after: Option<String>, limit: usize) -> Fut<'_, Vec<Record>> {
        self.note(Work::Read, self.store.records(kind, after, limit))
    }

    fn watch(&self) -> Watch {
        self.store.watch()
    }

    fn lead(&self) -> Fut<'_, Option<Leader>> {
        // Whether it reads or writes depends on who leads: what it says is no proof that a write succeeds.
        self.note(Work::Read, self.store.lead())
    }

    fn prune(&self, floor: Revision, limit: usize, term: Option<u64>) -> Fut<'_, Pruned> {
        self.note(Work::Write, self.store.prune(floor, limit, term))
    }

    // What keeps a backup from being written is most often where it is written to.
    fn backup(&self, file: PathBuf) -> Fut<'_, Summary> {
        self.store.backup(file)
    }

    fn restore(&self, file: PathBuf) -> Fut<'_, Summary> {
        self.store.restore(file)
    }

    fn close(&self) -> Fut<'_, ()> {
        self.store.close()
    }
}
