//! What can go wrong, whether to try again, and what may be shown to whom.

use crate::key::Place;
use crate::model::Header;
use holdfast_types::Revision;
use std::fmt;

/// The outcome of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whether a commit that failed may all the same have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Nothing of it is in the store, now or later.
    No,
    /// The answer to the commit itself was lost: read the head and compare before trying again.
    Maybe,
}

/// What an author missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The revision that the author saw.
    pub seen: Revision,
    /// The head.
    pub head: Revision,
    /// The last revision that changed what is desired.
    pub desired: Revision,
    /// The first revisions after `seen`, oldest first.
    pub since: Vec<Header>,
    /// The first places that they changed, in order of revision.
    pub places: Vec<(Revision, Place)>,
    /// There are more headers or places than are listed.
    pub more: bool,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seen, head, desired, .. } = self;
        write!(
            f,
            "the change was made against revision {seen}, but revision {desired} changed what is desired (head: {head})"
        )?;
        let mut lead = "; since then: ";
        for (revision, place) in self.places.iter().take(4) {
            write!(f, "{lead}{place} at {revision}")?;
            lead = ", ";
        }
        if self.more || self.places.len() > 4 { f.write_str(", ...") } else { Ok(()) }
    }
}

/// Why a call failed. No text holds a value, a password or a connection string.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The author did not see the last change.
    #[error("{0}")]
    Conflict(Box<Conflict>),
    /// A record is not at the version that the writer saw.
    #[error("record {kind} {id} is at {}, not at {}", version(*.found), version(*.expected))]
    RecordConflict {
        /// The record's kind.
        kind: String,
        /// The record's id.
        id: String,
        /// What the writer saw; `None`: no record.
        expected: Option<u64>,
        /// What is there; `None`: no record.
        found: Option<u64>,
    },
    /// What is in force has changed since the writer looked.
    #[error("the change was made against revision {seen} in force, but revision {in_force} is")]
    Moved {
        /// What the writer saw.
        seen: Revision,
        /// The last revision that changed what is in force.
        in_force: Revision,
    },
    /// The writer's term of leadership is over.
    #[error("term {term} is over, term {highest} has begun")]
    Fenced {
        /// The writer's term.
        term: u64,
        /// The highest term seen.
        highest: u64,
    },
    /// The leader's connection or term is gone.
    #[error("no longer the leader of term {term}")]
    NotLeader {
        /// The term that was held.
        term: u64,
    },
    /// What was asked breaks a rule.
    #[error("{what}")]
    Invalid {
        /// The rule.
        what: String,
    },
    /// What was asked passes a bound.
    #[error("too large: {got} {what}, at most {limit} are taken")]
    TooLarge {
        /// What was counted.
        what: &'static str,
        /// How much it was.
        got: usize,
        /// The bound.
        limit: usize,
    },
    /// There is no such revision, or it is not kept any more.
    #[error("revision {revision} is not there: {}", kept(*.floor, *.head))]
    NoRevision {
        /// What was asked for.
        revision: Revision,
        /// The oldest that can be read.
        floor: Revision,
        /// The newest.
        head: Revision,
    },
    /// The deadline passed.
    #[error("no answer from the store within {ms} ms{}", maybe(*.applied))]
    Timeout {
        /// The deadline, from the call's start.
        ms: u64,
        /// Whether the change may have happened.
        applied: Applied,
    },
    /// Too many calls wait already.
    #[error("the store has {waiting} calls waiting already")]
    Overloaded {
        /// The bound.
        waiting: usize,
    },
    /// The backend cannot be reached or broke off.
    #[error("the store cannot be reached: {what}{}", maybe(*.applied))]
    Unavailable {
        /// What is known of it.
        what: String,
        /// Whether the change may have happened.
        applied: Applied,
    },
    /// Another process has the file open.
    #[error("{path} is in use by another process; one process at a time can have it open")]
    InUse {
        /// The file.
        path: String,
    },
    /// The store was written by a newer release.
    #[error(
        "the store has schema {found}, this release knows {known} and older: use the newer release; nothing was changed"
    )]
    NewerSchema {
        /// What is there.
        found: u64,
        /// What is known.
        known: u64,
    },
    /// What is stored, or a backup, is not what it should be.
    #[error("damaged: {what}")]
    Corrupt {
        /// What was found.
        what: String,
    },
    /// A restore needs an empty store.
    #[error("a backup is restored into an empty store only; this one is at revision {head}")]
    NotEmpty {
        /// The head.
        head: Revision,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The backend refused for a reason of its own.
    #[error("the store's backend refused: {what}")]
    Backend {
        /// What it said, without values.
        what: String,
    },
}

/// [`Error`] without its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is named like the error that it stands for")]
pub enum ErrorKind {
    Conflict,
    RecordConflict,
    Moved,
    Fenced,
    NotLeader,
    Invalid,
    TooLarge,
    NoRevision,
    Timeout,
    Overloaded,
    Unavailable,
    InUse,
    NewerSchema,
    Corrupt,
    NotEmpty,
    Closed,
    Backend,
}

impl Error {
    /// The error without its details.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Conflict(_) => ErrorKind::Conflict,
            Self::RecordConflict { .. } => ErrorKind::RecordConflict,
            Self::Moved { .. } => ErrorKind::Moved,
            Self::Fenced { .. } => ErrorKind::Fenced,
            Self::NotLeader { .. } => ErrorKind::NotLeader,
            Self::Invalid { .. } => ErrorKind::Invalid,
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::NoRevision { .. } => ErrorKind::NoRevision,
            Self::Timeout { .. } => ErrorKind::Timeout,
            Self::Overloaded { .. } => ErrorKind::Overloaded,
            Self::Unavailable { .. } => ErrorKind::Unavailable,
            Self::InUse { .. } => ErrorKind::InUse,
            Self::NewerSchema { .. } => ErrorKind::NewerSchema,
            Self::Corrupt { .. } => ErrorKind::Corrupt,
            Self::NotEmpty { .. } => ErrorKind::NotEmpty,
            Self::Closed => ErrorKind::Closed,
            Self::Backend { .. } => ErrorKind::Backend,
        }
    }

    /// Whether the change may have happened all the same.
    #[must_use]
    pub const fn applied(&self) -> Applied {
        match self {
            Self::Timeout { applied, .. } | Self::Unavailable { applied, .. } => *applied,
            _ => Applied::No,
        }
    }

    /// Whether the same call may succeed a little later. After [`Applied::Maybe`] it may not be sent again unread, so this is `false`.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        matches!(self.kind(), ErrorKind::Timeout | ErrorKind::Overloaded | ErrorKind::Unavailable)
            && matches!(self.applied(), Applied::No)
    }

    /// What a caller of an API may be told: what concerns their request in full, and of the backend only that it failed.
    #[must_use]
    pub fn public(&self) -> String {
        match self {
            Self::Unavailable { applied, .. } => format!("the store cannot be reached{}", maybe(*applied)),
            Self::InUse { .. } | Self::NewerSchema { .. } | Self::Corrupt { .. } | Self::Backend { .. } => {
                "the store cannot be used; its operator's log says why".to_owned()
            }
            _ => self.to_string(),
        }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }

    pub(crate) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { what: what.into() }
    }

    pub(crate) fn backend(what: impl Into<String>) -> Self {
        Self::Backend { what: what.into() }
    }

    pub(crate) const fn too_large(what: &'static str, got: usize, limit: usize) -> Self {
        Self::TooLarge { what, got, limit }
    }
}

fn version(version: Option<u64>) -> String {
    version.map_or_else(|| "no version".to_owned(), |v| format!("version {v}"))
}

/// Revision 0 is nobody's: nothing is in it.
fn kept(floor: Revision, head: Revision) -> String {
    match head.0 {
        0 => "there is none yet".to_owned(),
        head => format!("the oldest that is kept is {}, the newest {head}", floor.0.max(1)),
    }
}

const fn maybe(applied: Applied) -> &'static str {
    match applied {
        Applied::No => "",
        Applied::Maybe => " (the change may have been made: compare with the head before trying again)",
    }
}
