//! Plain data: what is asked of a store and what it answers.

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::json::Json;
use crate::key::{Key, Place, Space};
use holdfast_types::Revision;

/// What a revision does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Changes what is desired, and what is in force where nothing has to be warmed first.
    Change,
    /// Puts something in force that was desired before: edits of [`Space::InForce`] only.
    Activation,
}

/// One edit of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// What is edited.
    pub place: Place,
    /// The new value; `None` takes the resource away.
    pub value: Option<Json>,
}

/// A change that somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What it does.
    pub purpose: Purpose,
    /// The revision that its author saw. A change must name it. It is in conflict if what is desired has changed since; activations in
    /// between are none of its business. An activation that names it is held to the same.
    pub base: Option<Revision>,
    /// Who.
    pub author: String,
    /// Why.
    pub reason: String,
    /// When: milliseconds since 1970.
    pub at_ms: u64,
    /// What. At most one edit for a place; edits that change nothing are left out of the revision.
    pub edits: Vec<Edit>,
}

/// A revision without its edits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its number: one more than the one before.
    pub revision: Revision,
    /// What it does.
    pub purpose: Purpose,
    /// The revision that its author saw; the one before it if none was named.
    pub parent: Revision,
    /// Who.
    pub author: String,
    /// Why.
    pub reason: String,
    /// When: milliseconds since 1970, as the author's side said.
    pub at_ms: u64,
    /// Edits that changed something.
    pub edits: u64,
    /// The leader's term, if a leader wrote it.
    pub term: Option<u64>,
    /// The content after it.
    pub digests: Digests,
}

/// The digests of both spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digests {
    /// Of what is desired.
    pub desired: Digest,
    /// Of what is in force.
    pub in_force: Digest,
}

impl Digests {
    /// The digest of one space.
    #[must_use]
    pub const fn of(&self, space: Space) -> Digest {
        match space {
            Space::Desired => self.desired,
            Space::InForce => self.in_force,
        }
    }

    pub(crate) const fn set(&mut self, space: Space, digest: Digest) {
        match space {
            Space::Desired => self.desired = digest,
            Space::InForce => self.in_force = digest,
        }
    }
}

impl Default for Digests {
    fn default() -> Self {
        let empty = crate::digest::Buckets::default().root();
        Self { desired: empty, in_force: empty }
    }
}

/// Where a store stands.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Head {
    /// The last revision; 0 in an empty store.
    pub revision: Revision,
    /// The last revision that changed what is desired.
    pub desired: Revision,
    /// The last revision that changed what is in force.
    pub in_force: Revision,
    /// The oldest revision whose state can be read.
    pub floor: Revision,
    /// The highest term of a leader that wrote or was elected.
    pub term: u64,
    /// The content.
    pub digests: Digests,
}

impl Head {
    /// The revision that is asked for (`None`: the head), if its state can be read.
    pub(crate) const fn readable(&self, at: Option<Revision>) -> Result<Revision> {
        let revision = match at {
            Some(revision) => revision,
            None => self.revision,
        };
        if revision.0 < self.floor.0 || revision.0 > self.revision.0 {
            return Err(Error::NoRevision { revision, floor: self.floor, head: self.revision });
        }
        Ok(revision)
    }

    /// Whether the edits of a revision are kept.
    pub(crate) const fn has_edits(&self, revision: Revision) -> Result<()> {
        if revision.0 <= self.floor.0 || revision.0 > self.revision.0 {
            let floor = Revision(self.floor.0 + 1);
            return Err(Error::NoRevision { revision, floor, head: self.revision });
        }
        Ok(())
    }
}

/// A resource as it was at some revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// What it is called.
    pub key: Key,
    /// The revision that gave it this value.
    pub revision: Revision,
    /// Its value.
    pub value: Json,
}

/// A part of a longer answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, C> {
    /// The revision that the page shows. Ask for the next page at this revision.
    pub revision: Revision,
    /// The rows, in order of their keys. There may be none although more follow.
    pub items: Vec<T>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<C>,
}

/// One difference between two revisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What differs.
    pub place: Place,
    /// Its value at the first revision.
    pub before: Option<Json>,
    /// Its value at the second.
    pub after: Option<Json>,
}

/// A write of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordWrite {
    /// The record's kind; the rule for kinds of resources.
    pub kind: String,
    /// The record's id; the rule for names of resources.
    pub id: String,
    /// The version that the writer saw; `None`: the record must not be there.
    pub expected: Option<u64>,
    /// The new value; `None` deletes.
    pub value: Option<Json>,
}

/// A record. A version is never used twice in one store, also not after a record was deleted and made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its kind.
    pub kind: String,
    /// Its id.
    pub id: String,
    /// Its version.
    pub version: u64,
    /// Its value.
    pub value: Json,
}

/// What is committed together or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Commit {
    /// A change, if any.
    pub change: Option<Change>,
    /// Record writes, at most one for a record.
    pub records: Vec<RecordWrite>,
    /// The leader's term: refused if a higher one was seen.
    pub term: Option<u64>,
    /// The last revision that changed what is in force, as the writer saw it: refused if it is another one. For whoever works out from what is
    /// in force what should be.
    pub in_force: Option<Revision>,
}

/// What a commit did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The new revision, if there was a change.
    pub header: Option<Header>,
    /// The new version of each record write, in the order given; `None` for a deletion.
    pub versions: Vec<Option<u64>>,
}

/// What a prune did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pruned {
    /// The oldest revision whose state can be read from now on.
    pub floor: Revision,
    /// Rows that were taken away.
    pub removed: u64,
    /// There is more to take away: call again.
    pub more: bool,
}
