//! What a gateway holds, and how it comes from what is sent. Sans-IO.
//!
//! Nothing is taken on trust: a delta must build upon exactly what is held, an older revision is refused (ROUTE-1), another content under
//! the same revision too, and the digest of what comes out is computed again. A table that is refused leaves what is held as it is.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value as Json;

use holdfast_config::ResourceKind;
use holdfast_digest::{Digest, Tree, leaf};
use holdfast_plane::{Edit, Entries, Table};
use holdfast_types::Revision;

use crate::proto;

/// Edits of one table or delta at most.
pub const MAX_EDITS: usize = 4_000_000;
/// Bytes of names and values of one table or delta at most.
pub const MAX_BYTES: usize = 1 << 30;

/// A table, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its revision, not 0.
    pub revision: Revision,
    /// The digest of its content.
    pub digest: Digest,
}

impl Stamp {
    /// A table's. `None`: there is no table yet, or its digest is none.
    #[must_use]
    pub fn of(table: &Table) -> Option<Self> {
        let digest = table.digest.parse().ok()?;
        (table.revision.0 > 0).then_some(Self { revision: table.revision, digest })
    }

    /// As it was sent.
    #[must_use]
    pub fn read(sent: Option<&proto::Stamp>) -> Option<Self> {
        let sent = sent?;
        let digest = Digest(sent.digest.as_ref().try_into().ok()?);
        (sent.revision > 0).then_some(Self { revision: Revision(sent.revision), digest })
    }

    /// As it is sent.
    #[must_use]
    pub fn wire(self) -> proto::Stamp {
        proto::Stamp { revision: self.revision.0, digest: Bytes::copy_from_slice(&self.digest.0) }
    }
}

/// A kind as it is written. One that this release does not know counts for the digest, and routes nothing.
#[derive(Clone, Debug)]
enum Kind {
    Known(ResourceKind),
    Foreign(Arc<str>),
}

impl Kind {
    fn read(word: &str) -> Self {
        ResourceKind::parse(word).map_or_else(|| Self::Foreign(word.into()), Self::Known)
    }
}

impl AsRef<str> for Kind {
    fn as_ref(&self) -> &str {
        match self {
            Self::Known(kind) => kind.as_str(),
            Self::Foreign(word) => word,
        }
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for Kind {}

impl PartialOrd for Kind {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Kind {
    /// As the digest wants it: by the word's bytes.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.as_ref().cmp(other.as_ref())
    }
}

type Key = (Kind, Arc<str>);

/// The table that is held, with what is needed to build the next one upon it. A copy costs nothing.
#[derive(Clone, Default)]
pub struct Held {
    table: Arc<Table>,
    tree: Tree<Key>,
    /// Resources of kinds that a later release brought.
    foreign: Arc<BTreeMap<Key, Bytes>>,
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({}, {})", self.table.revision, self.table.digest)
    }
}

impl Held {
    /// The table. Revision 0: nothing is held.
    #[must_use]
    pub const fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// What it is.
    #[must_use]
    pub fn stamp(&self) -> Option<Stamp> {
        Stamp::of(&self.table)
    }

    /// How many resources are of a kind that this release does not know.
    #[must_use]
    pub fn foreign(&self) -> usize {
        self.foreign.len()
    }

    /// All of it as edits, in no order that means anything.
    pub(crate) fn edits(&self) -> impl Iterator<Item = proto::Edit> {
        let known = self.table.entries.iter().map(|((kind, name), value)| put(kind.as_str(), name, value));
        let foreign = self.foreign.iter().map(|((kind, name), value)| proto::Edit {
            kind: kind.as_ref().to_owned(),
            name: name.to_string(),
            value: Some(value.clone()),
        });
        known.chain(foreign)
    }
}

/// A resource as it is sent.
pub(crate) fn put(kind: &str, name: &str, value: &Json) -> proto::Edit {
    // As `serde_json` writes it is the canonical form: what the store has a digest of.
    let value = Some(value.to_string().into());
    proto::Edit { kind: kind.to_owned(), name: name.to_owned(), value }
}

/// Why a table is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// ROUTE-1.
    #[error("revision {offered} is older than {has}, which is held")]
    Older {
        /// What was sent.
        offered: Revision,
        /// What is held.
        has: Revision,
    },
    /// Two contents under one revision.
    #[error("revision {0} was sent with another content than the one that is held")]
    OtherContent(Revision),
    /// A delta that builds upon something else.
    #[error("a delta builds upon revision {base}, which is not what is held")]
    OtherBase {
        /// What it builds upon.
        base: Revision,
    },
    /// The digest of what came out is not the one that was sent.
    #[error("the content of revision {revision} does not have the digest that was sent with it")]
    Digest {
        /// What was sent.
        revision: Revision,
        /// Whether it was the whole table.
        whole: bool,
    },
    /// Not in the form of the protocol.
    #[error("what was sent is out of form: {0}")]
    Malformed(&'static str),
}

/// What a part led to.
#[derive(Debug)]
pub enum Taken {
    /// More parts are to come.
    More,
    /// It is what is held already.
    Same(Option<proto::Orders>),
    /// This is to be held now.
    New(Box<Held>, Option<proto::Orders>),
}

/// Parts of a table on their way.
#[derive(Debug, Default)]
pub struct Assembly(Option<Partial>);

#[derive(Debug)]
struct Partial {
    makes: Stamp,
    base: Option<Stamp>,
    edits: Vec<Incoming>,
    bytes: usize,
    /// Refused at its head: the rest passes by.
    refused: bool,
}

#[derive(Debug)]
struct Incoming {
    key: Key,
    value: Option<Value>,
}

#[derive(Debug)]
struct Value {
    leaf: Digest,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Known(Arc<Json>),
    Foreign(Bytes),
}

impl Assembly {
    /// Takes the next part.
    ///
    /// # Errors
    /// Why the table is refused. Once for each; its other parts then pass by.
    pub fn take(&mut self, held: &Held, part: proto::TablePart) -> Result<Taken, Refusal> {
        if let Some(head) = part.head {
            let partial = Partial::begin(&head)?;
            let verdict = partial.judge(held);
            let partial = self.0.insert(partial);
            if let Err(refusal) = verdict {
                partial.refused = true;
                self.0.take_if(|_| part.tail.is_some());
                return Err(refusal);
            }
        }
        let Some(partial) = self.0.as_mut() else {
            return Err(Refusal::Malformed("a part of a table without its beginning"));
        };
        if let Err(refusal) = partial.add(part.edits) {
            self.0 = None;
            return Err(refusal);
        }
        let Some(tail) = part.tail else { return Ok(Taken::More) };
        self.0.take().map_or(Ok(Taken::More), |partial| partial.finish(held, tail))
    }
}

impl Partial {
    fn begin(head: &proto::Head) -> Result<Self, Refusal> {
        let makes = Stamp::read(head.makes.as_ref()).ok_or(Refusal::Malformed("a table without revision or digest"))?;
        let base = Stamp::read(head.base.as_ref());
        if head.base.is_some() && base.is_none() {
            return Err(Refusal::Malformed("a delta without revision or digest of what it builds upon"));
        }
        Ok(Self { makes, base, edits: Vec::new(), bytes: 0, refused: false })
    }

    /// Whether it may be taken. `true`: it is what is held already.
    fn judge(&self, held: &Held) -> Result<bool, Refusal> {
        let Some(has) = held.stamp() else {
            return self.base.map_or(Ok(false), |base| Err(Refusal::OtherBase { base: base.revision }));
        };
        if self.makes == has {
            return Ok(true);
        }
        if self.makes.revision < has.revision {
            return Err(Refusal::Older { offered: self.makes.revision, has: has.revision });
        }
        if self.makes.revision == has.revision {
            return Err(Refusal::OtherContent(has.revision));
        }
        match self.base {
            Some(base) if base != has => Err(Refusal::OtherBase { base: base.revision }),
            _ => Ok(false),
        }
    }

    fn add(&mut self, edits: Vec<proto::Edit>) -> Result<(), Refusal> {
        if self.refused {
            return Ok(());
        }
        for edit in edits {
            self.bytes += edit.kind.len() + edit.name.len() + edit.value.as_ref().map_or(0, Bytes::len);
            self.edits.push(Incoming::read(edit)?);
        }
        if self.edits.len() > MAX_EDITS || self.bytes > MAX_BYTES {
            return Err(Refusal::Malformed("a table larger than any that is taken"));
        }
        Ok(())
    }

    fn finish(self, held: &Held, tail: proto::Tail) -> Result<Taken, Refusal> {
        if self.refused {
            return Ok(Taken::More);
        }
        if tail.edits != self.edits.len() as u64 {
            return Err(Refusal::Malformed("a part of a table is missing"));
        }
        // Again: what is held may have changed while the parts came.
        if self.judge(held)? {
            return Ok(Taken::Same(tail.orders));
        }
        let base = if self.base.is_some() { held.clone() } else { Held::default() };
        Ok(Taken::New(Box::new(self.apply(base)?), tail.orders))
    }

    fn apply(self, base: Held) -> Result<Held, Refusal> {
        let whole = self.base.is_none();
        let Held { table, mut tree, mut foreign } = base;
        let mut entries: Entries = table.entries.clone();
        for Incoming { key, value } in self.edits {
            tree.set(key.clone(), value.as_ref().map(|value| value.leaf));
            let value = value.map(|value| value.content);
            match (&key.0, value) {
                (Kind::Known(kind), None) => entries.apply(Edit { kind: *kind, name: key.1, value: None }),
                (Kind::Known(kind), Some(Content::Known(value))) => {
                    entries.apply(Edit { kind: *kind, name: key.1, value: Some(value) });
                }
                (Kind::Foreign(_), Some(Content::Foreign(value))) => {
                    Arc::make_mut(&mut foreign).insert(key, value);
                }
                (Kind::Foreign(_), _) => {
                    Arc::make_mut(&mut foreign).remove(&key);
                }
                // A known kind's value is always read: see `Incoming::read`.
                (Kind::Known(_), Some(Content::Foreign(_))) => {}
            }
        }
        if tree.root() != self.makes.digest {
            return Err(Refusal::Digest { revision: self.makes.revision, whole });
        }
        let digest = self.makes.digest.to_string().into();
        let table = Arc::new(Table { revision: self.makes.revision, digest, entries });
        Ok(Held { table, tree, foreign })
    }
}

impl Incoming {
    fn read(edit: proto::Edit) -> Result<Self, Refusal> {
        let kind = Kind::read(&edit.kind);
        let read = |bytes: Bytes| -> Result<Value, Refusal> {
            let leaf = leaf(&bytes);
            let content = match kind {
                Kind::Known(_) => Content::Known(Arc::new(
                    serde_json::from_slice(&bytes).map_err(|_| Refusal::Malformed("a resource that is no JSON"))?,
                )),
                Kind::Foreign(_) => Content::Foreign(bytes),
            };
            Ok(Value { leaf, content })
        };
        let value = edit.value.map(read).transpose()?;
        Ok(Self { key: (kind, edit.name.into()), value })
    }
}
