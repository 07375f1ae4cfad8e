//! Why an ask or an activation was refused, told apart by what its author can do about it.

use std::fmt;

use holdfast_store::{Error, ErrorKind};
use holdfast_types::Revision;

/// One thing that is wrong with an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where, by names: `tenants[acme].pins.screen`. Empty for the whole.
    pub path: String,
    /// What is wrong and what is expected.
    pub reason: String,
    /// The valid name that is most like the unknown one.
    pub nearest: Option<String>,
}

impl Fault {
    pub(super) fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.into(), reason: reason.into(), nearest: None }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.reason)?;
        self.nearest.as_ref().map_or(Ok(()), |nearest| write!(f, "; the nearest is {nearest:?}"))
    }
}

/// Why an ask was refused. Nothing of it is in the store, but for [`DeskError::Unavailable`] that says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeskError {
    /// It asks for something that cannot be: at most [`holdfast_config::MAX_LISTED`] of its faults.
    #[error("{}", told(.0))]
    Invalid(Vec<Fault>),
    /// Somebody else has changed what is desired since its author looked.
    #[error("the change was made against revision {seen}, but revision {current} changed what is desired{}", since(.changed))]
    Conflict {
        /// What its author saw.
        seen: Revision,
        /// The last revision that changed what is desired.
        current: Revision,
        /// What differs between the two, as `KIND NAME`: the first few.
        changed: Vec<String>,
    },
    /// There is no such thing, or it is not kept any more.
    #[error("{0}")]
    NotFound(String),
    /// The file is the truth: edit it.
    #[error("the file is the truth of this table (truth: file); edit the file")]
    FileTruth,
    /// Not now: the words say why. Where a change may have been made all the same, they say so.
    #[error("{0}")]
    Unavailable(String),
    /// The term under which it was asked is over.
    #[error("the term of this leadership is over")]
    Fenced,
    /// The store refused for a reason of its own.
    #[error(transparent)]
    Store(Error),
}

/// Why an activation was refused. But for `Unavailable`, nothing of it is in the store, nor will it be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActivateError {
    /// The table in force is another one than was expected.
    #[error("the table in force is revision {in_force}")]
    Conflict {
        /// The revision of the table in force.
        in_force: Revision,
    },
    /// A record has been saved since under another version, or a higher term is known.
    #[error("a later save or a later term has voided the activation")]
    Fenced,
    /// It is not possible, in words.
    #[error("{0}")]
    Invalid(String),
    /// The store gives no answer. Whether the activation is in force is not known if `maybe`.
    #[error("{words}")]
    Unavailable {
        /// What is known.
        words: String,
        /// It may have happened, or happen yet.
        maybe: bool,
    },
}

impl DeskError {
    pub(super) fn invalid(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid(vec![Fault::new(path, reason)])
    }

    pub(super) fn busy() -> Self {
        Self::Unavailable("too many changes wait for their turn; try again".to_owned())
    }
}

impl From<Error> for DeskError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::TooLarge => Self::invalid("", error.to_string()),
            ErrorKind::Fenced => Self::Fenced,
            ErrorKind::NoRevision => Self::NotFound(error.to_string()),
            ErrorKind::Timeout | ErrorKind::Overloaded | ErrorKind::Unavailable => Self::Unavailable(error.public()),
            _ => Self::Store(error),
        }
    }
}

fn told(faults: &[Fault]) -> String {
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn since(changed: &[String]) -> String {
    if changed.is_empty() { String::new() } else { format!(": {}", changed.join(", ")) }
}
