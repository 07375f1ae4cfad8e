//! A store over another one: it sees every call, and what it does not do otherwise the one below does.

use std::path::PathBuf;

use holdfast_types::Revision;

use crate::api::{Fut, Leader, Store, Watch};
use crate::backup::Summary;
use crate::key::{Key, Place, Space};
use crate::model::{Commit, Committed, Difference, Edit, Head, Header, Page, Pruned, Record, Resource};

/// What a call that passes a layer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// It reads, or asks who leads: whether that writes depends on who does.
    Read,
    /// It writes.
    Write,
    /// It is about a file beside the store, or its end.
    Beside,
}

/// Whatever is one is a [`Store`].
pub trait Layer: Send + Sync {
    /// The store below.
    fn below(&self) -> &dyn Store;

    /// Every call, and what the store below answers it.
    fn around<'a, T: 'a>(&'a self, _call: Call, answer: Fut<'a, T>) -> Fut<'a, T> {
        answer
    }

    /// A commit. See [`Store::commit`].
    fn pass_commit(&self, commit: Commit) -> Fut<'_, Committed> {
        self.below().commit(commit)
    }
}

impl<L: Layer> Store for L {
    fn head(&self) -> Fut<'_, Head> {
        self.around(Call::Read, self.below().head())
    }

    fn commit(&self, commit: Commit) -> Fut<'_, Committed> {
        self.around(Call::Write, self.pass_commit(commit))
    }

    fn read(
        &self,
        space: Space,
        at: Option<Revision>,
        after: Option<Key>,
        limit: usize,
    ) -> Fut<'_, Page<Resource, Key>> {
        self.around(Call::Read, self.below().read(space, at, after, limit))
    }

    fn get(&self, place: Place, at: Option<Revision>) -> Fut<'_, Option<Resource>> {
        self.around(Call::Read, self.below().get(place, at))
    }

    fn edits(&self, revision: Revision, after: Option<Place>, limit: usize) -> Fut<'_, Page<Edit, Place>> {
        self.around(Call::Read, self.below().edits(revision, after, limit))
    }

    fn history(&self, before: Option<Revision>, limit: usize) -> Fut<'_, Vec<Header>> {
        self.around(Call::Read, self.below().history(before, limit))
    }

    fn diff(
        &self,
        from: Revision,
        to: Revision,
        after: Option<Place>,
        limit: usize,
    ) -> Fut<'_, Page<Difference, Place>> {
        self.around(Call::Read, self.below().diff(from, to, after, limit))
    }

    fn record(&self, kind: String, id: String) -> Fut<'_, Option<Record>> {
        self.around(Call::Read, self.below().record(kind, id))
    }

    fn records(&self, kind: String, after: Option<String>, limit: usize) -> Fut<'_, Vec<Record>> {
        self.around(Call::Read, self.below().records(kind, after, limit))
    }

    fn watch(&self) -> Watch {
        self.below().watch()
    }

    fn lead(&self) -> Fut<'_, Option<Leader>> {
        self.around(Call::Read, self.below().lead())
    }

    fn prune(&self, floor: Revision, limit: usize, term: Option<u64>) -> Fut<'_, Pruned> {
        self.around(Call::Write, self.below().prune(floor, limit, term))
    }

    fn backup(&self, file: PathBuf) -> Fut<'_, Summary> {
        self.around(Call::Beside, self.below().backup(file))
    }

    fn restore(&self, file: PathBuf) -> Fut<'_, Summary> {
        self.around(Call::Beside, self.below().restore(file))
    }

    fn close(&self) -> Fut<'_, ()> {
        self.around(Call::Beside, self.below().close())
    }
}
