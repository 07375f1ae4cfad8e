//! Commits of this desk: sent, and sent once more if the answer is lost, and taken in at once.

use holdfast_plane::{Edit, Entries};
use holdfast_store::{Applied, Commit, Edit as StoreEdit, Error, Header, Json as Text, Key, MAX_PAGE, Place, Space};
use holdfast_types::Revision;

use super::error::{DeskError, Fault};
use super::truth::{Truth, after, edit_of};
use super::{Desk, Turn};

/// A commit that is in the store and in the truth.
pub(super) struct Written {
    pub(super) revision: Revision,
    /// Empty if the answer was lost.
    pub(super) versions: Vec<Option<u64>>,
}

/// Why it is not.
pub(super) enum Refused {
    /// What is desired has changed.
    Overtaken,
    /// What is in force has changed: its revision.
    Moved(Revision),
    /// A record has changed.
    Record,
    /// The term is over.
    Fenced,
    /// Not possible.
    Invalid(String),
    /// No answer.
    Unavailable { words: String, maybe: bool },
    /// Another reason.
    Store(Error),
}

/// How often a commit is sent whose answer is lost.
const TRIES: usize = 3;

impl Desk {
    /// Writes a commit that has a change. A lost answer is no end: the same commit, compared with the same revisions, has effect once at most, so
    /// it is sent again, and a refusal of the second one means either that the first one was written (then it is in the history) or that it
    /// never will be.
    pub(super) async fn commit(&self, turn: &Turn<'_>, commit: Commit) -> Result<Written, Refused> {
        let mut lost = None;
        for _ in 0..TRIES {
            match self.store.commit(commit.clone()).await {
                Ok(done) => {
                    let header = done.header.ok_or_else(|| Refused::Invalid("a commit without a change".to_owned()))?;
                    let revision = header.revision;
                    self.take_in(turn, &commit, header).await;
                    return Ok(Written { revision, versions: done.versions });
                }
                Err(error) if error.applied() == Applied::Maybe => lost = Some(error),
                Err(error) => {
                    return match self.found(turn, &commit, lost.is_some()).await {
                        Ok(Some(revision)) => Ok(Written { revision, versions: Vec::new() }),
                        Ok(None) => Err(refused(error, lost.is_some())),
                        Err(words) => Err(Refused::Unavailable { words, maybe: true }),
                    };
                }
            }
        }
        if let Ok(Some(revision)) = self.found(turn, &commit, true).await {
            return Ok(Written { revision, versions: Vec::new() });
        }
        let words = lost.map_or_else(String::new, |error| error.public());
        Err(Refused::Unavailable { words, maybe: true })
    }

    /// The revision that a commit became whose answer was lost.
    async fn found(&self, turn: &Turn<'_>, commit: &Commit, lost: bool) -> Result<Option<Revision>, String> {
        let Some(change) = commit.change.as_ref().filter(|_| lost) else { return Ok(None) };
        self.catch_up(turn).await.map_err(|error| error.to_string())?;
        let own = |header: &&Header| {
            Some(header.parent) == change.base
                && (header.purpose, header.at_ms, header.term) == (change.purpose, change.at_ms, commit.term)
                && (&header.author, &header.reason) == (&change.author, &change.reason)
        };
        let mut before = None;
        loop {
            let page = self.store.history(before, MAX_PAGE).await.map_err(|error| error.public())?;
            if let Some(header) = page.iter().find(own) {
                return Ok(Some(header.revision));
            }
            before = page.last().map(|header| header.revision).filter(|last| Some(*last) > change.base);
            if before.is_none() {
                return Ok(None);
            }
        }
    }

    /// What this desk has written is in the truth when its author is told.
    async fn take_in(&self, turn: &Turn<'_>, commit: &Commit, header: Header) {
        let mut truth = Truth::clone(&self.truth());
        let edits = commit.change.iter().flat_map(|change| &change.edits).map(|edit| {
            let key = &edit.place.key;
            edit_of(key.kind(), key.name(), edit.value.as_ref()).map(|of| (edit.place.space, of))
        });
        let next = header.revision.0 == truth.head.revision.0 + 1;
        match edits.collect::<Result<Vec<_>, _>>() {
            Ok(edits) if next => {
                let head = after(&truth.head, header.revision, header.digests, commit.term);
                truth.apply(edits, head);
                self.publish(turn, truth);
            }
            // It is in the store; who follows the store comes to it.
            _ => _ = self.catch_up(turn).await,
        }
    }
}

fn refused(error: Error, lost: bool) -> Refused {
    match error {
        Error::Conflict(_) => Refused::Overtaken,
        Error::Moved { in_force, .. } => Refused::Moved(in_force),
        Error::RecordConflict { .. } => Refused::Record,
        Error::Fenced { .. } | Error::NotLeader { .. } => Refused::Fenced,
        Error::Invalid { .. } | Error::TooLarge { .. } => Refused::Invalid(error.to_string()),
        Error::Timeout { .. } | Error::Unavailable { .. } | Error::Overloaded { .. } => {
            Refused::Unavailable { words: error.public(), maybe: lost }
        }
        error => Refused::Store(error),
    }
}

/// What leads from one state of a space to another, as the store takes it.
pub(super) fn edits_between(space: Space, from: &Entries, to: &Entries) -> Result<Vec<StoreEdit>, DeskError> {
    let edits = from.changes(to);
    let mut faults = Vec::new();
    let taken = edits.iter().filter_map(|edit| match store_edit(space, edit) {
        Ok(edit) => Some(edit),
        Err(error) => {
            faults.push(Fault::new(format!("{} {}", edit.kind.as_str(), edit.name), error.to_string()));
            None
        }
    });
    let taken = taken.collect();
    if faults.is_empty() {
        return Ok(taken);
    }
    faults.truncate(holdfast_config::MAX_LISTED);
    Err(DeskError::Invalid(faults))
}

fn store_edit(space: Space, edit: &Edit) -> Result<StoreEdit, Error> {
    let key = Key::new(edit.kind.as_str(), &edit.name)?;
    let value = edit.value.as_ref().map(|value| Text::of(&**value)).transpose()?;
    Ok(StoreEdit { place: Place { space, key }, value })
}
