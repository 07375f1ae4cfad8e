//! Changes of what is desired, by people and by files: one path for both.

use std::sync::Arc;

use holdfast_config::{Frame, ResourceKind, Split, Truth as Owner};
use holdfast_plane::Entries;
use holdfast_store::{
    Change as StoreChange, Commit, Edit as StoreEdit, Json as Text, MAX_AUTHOR_BYTES, MAX_CHANGE_BYTES, MAX_EDITS,
    MAX_REASON_BYTES, Place, Purpose, RecordWrite, Space,
};
use holdfast_types::Revision;

use super::ask::{Adopted, Ask, Done, Retired, What};
use super::batch::{Bounds, batches};
use super::check::Files;
use super::commit::{Refused, edits_between};
use super::prepare::{Prepared, prepare};
use super::truth::Truth;
use super::{Desk, DeskError, Turn, options, retry};

/// How often a change is worked out anew because others have written meanwhile.
const TRIES: usize = 8;

/// The record that is there while a first content is written in several commits.
const SEED: (&str, &str) = ("seed", "file");

impl Desk {
    /// Makes a change, whole or not at all; only one that adds more than a commit holds becomes several revisions, of which each is a good
    /// configuration. Every fault is found before anything is written.
    ///
    /// # Errors
    /// [`DeskError`].
    pub async fn change(&self, ask: Ask) -> Result<Done, DeskError> {
        if self.settings.owner == Owner::File {
            return Err(DeskError::FileTruth);
        }
        self.offer(ask, Files::None).await
    }

    /// Takes a file in, at the start and whenever it has changed. Where the store is the truth the file is the first content of an empty store, and of
    /// later ones only the settings of the process are looked at. Where the file is the truth it is asked for as a whole.
    ///
    /// # Errors
    /// [`DeskError`]. The settings are taken only if nothing is wrong.
    pub async fn adopt_file(
        &self,
        file: Split,
        frame: Frame,
        at_ms: u64,
        retired: Retired,
        term: Option<u64>,
    ) -> Result<Adopted, DeskError> {
        let mut conflict = None;
        for _ in 0..TRIES {
            let seeds = self.is_empty().await?;
            if !seeds && self.settings.owner == Owner::Store {
                self.set_frame(frame);
                return Ok(Adopted::SettingsOnly);
            }
            // Of two processes that find the store empty one gives the first content, and the other one looks again.
            match self.take_whole(&file, &frame, at_ms, &retired, term, seeds).await {
                Err(error @ DeskError::Conflict { .. }) if seeds => conflict = Some(error),
                answer => return answer,
            }
        }
        Err(conflict.unwrap_or_else(DeskError::busy))
    }

    async fn take_whole(
        &self,
        file: &Split,
        frame: &Frame,
        at_ms: u64,
        retired: &Retired,
        term: Option<u64>,
        seeds: bool,
    ) -> Result<Adopted, DeskError> {
        let before = self.frame();
        self.set_frame(frame.clone());
        let reason = if seeds { "first content" } else { "the file has changed" };
        let ask = Ask {
            base: seeds.then(|| self.truth().head.revision),
            author: "file".to_owned(),
            reason: reason.to_owned(),
            at_ms,
            what: What::Whole(file.resources.clone()),
            dry_run: false,
            options: None,
            retired: retired.clone(),
            term,
        };
        match self.offer(ask, Files::Read).await {
            Ok(done) if seeds => Ok(Adopted::Seeded(done)),
            Ok(done) => Ok(Adopted::Taken(done)),
            Err(error) => {
                *self.frame.write() = before;
                Err(error)
            }
        }
    }

    /// Whether the store has no content yet, or not all of its first one.
    async fn is_empty(&self) -> Result<bool, DeskError> {
        let truth = self.refresh().await?;
        let (kind, id) = SEED;
        Ok(truth.head.revision == Revision(0) || self.store.record(kind.to_owned(), id.to_owned()).await?.is_some())
    }

    async fn offer(&self, ask: Ask, files: Files) -> Result<Done, DeskError> {
        check_words(&ask)?;
        let ask = Arc::new(ask);
        let turn = self.turn().await?;
        let mut base = ask.base;
        let bounds = Bounds { edits: self.settings.edits.min(MAX_EDITS), bytes: MAX_CHANGE_BYTES };
        for _ in 0..TRIES {
            let truth = self.catch_up(&turn).await?;
            if let Some(seen) = base {
                self.compare(seen, &truth).await?;
            }
            let prepared = self.prepare(&truth, &ask, files).await?;
            let again = self.again(&truth, &ask, &prepared).await?;
            let mut records = self.option_writes(&ask, &prepared, &again).await?;
            let edits = all_edits(&truth, &prepared)?;
            let is_new = |place: &Place| is_new(&truth, place);
            let parts = batches(edits, bounds, is_new).ok_or_else(too_large)?;
            let unused = options::unused(ask.options.as_ref(), &truth, &prepared);
            let mut done = done(prepared);
            done.warn(unused);
            done.pending.extend(again.values().cloned());
            if ask.dry_run || (done.changes.is_empty() && again.is_empty()) {
                return Ok(done);
            }
            let last = Revision(truth.head.revision.0.saturating_add(parts.len() as u64));
            records.extend(retry::writes(&again, last, records.len())?);
            if let Some(revision) = self.write(&turn, &ask, parts, records, &mut base).await? {
                done.revision = Some(revision);
                return Ok(done);
            }
        }
        Err(DeskError::Unavailable("others write faster than this change can be worked out; try again".to_owned()))
    }

    async fn compare(&self, seen: Revision, truth: &Truth) -> Result<(), DeskError> {
        let head = &truth.head;
        if seen > head.revision {
            return Err(DeskError::NotFound(format!("there is no revision {seen}; the last is {}", head.revision)));
        }
        if seen >= head.desired {
            return Ok(());
        }
        let changed = self.changed_since(seen, head.revision).await;
        Err(DeskError::Conflict { seen, current: head.desired, changed })
    }

    /// Work for a thread that may be busy.
    async fn prepare(&self, truth: &Arc<Truth>, ask: &Arc<Ask>, files: Files) -> Result<Prepared, DeskError> {
        let (frame, truth, ask) = (self.frame(), truth.clone(), ask.clone());
        let work = tokio::task::spawn_blocking(move || prepare(&frame, &truth, &ask.what, &ask.retired, files));
        work.await.unwrap_or_else(|_| Err(DeskError::Unavailable("the change could not be worked out".to_owned())))
    }

    /// Writes the parts. `None`: somebody else wrote in between; what is written until then stands, and the base has moved with it.
    async fn write(
        &self,
        turn: &Turn<'_>,
        ask: &Ask,
        parts: Vec<Vec<StoreEdit>>,
        records: Vec<RecordWrite>,
        base: &mut Option<Revision>,
    ) -> Result<Option<Revision>, DeskError> {
        let (last, several) = (parts.len().saturating_sub(1), parts.len() > 1);
        let mut written = None;
        for (index, edits) in parts.into_iter().enumerate() {
            let truth = self.truth();
            let mut records = if index == last { records.clone() } else { Vec::new() };
            records.extend(self.seed_write(&truth, index == last, several).await?);
            let change = StoreChange {
                purpose: Purpose::Change,
                base: Some(truth.head.revision),
                author: ask.author.clone(),
                reason: ask.reason.clone(),
                at_ms: ask.at_ms,
                edits,
            };
            let in_force = Some(truth.head.in_force);
            let commit = Commit { change: Some(change), records, term: ask.term, in_force };
            match self.commit(turn, commit).await {
                Ok(done) => {
                    written = Some(done.revision);
                    if base.is_some() {
                        *base = written;
                    }
                }
                Err(Refused::Overtaken | Refused::Moved(_) | Refused::Record) => return Ok(None),
                Err(Refused::Fenced) => return Err(DeskError::Fenced),
                Err(Refused::Invalid(words)) => return Err(DeskError::invalid("", words)),
                Err(Refused::Unavailable { words, .. }) => return Err(DeskError::Unavailable(words)),
                Err(Refused::Store(error)) => return Err(DeskError::Store(error)),
            }
        }
        Ok(written)
    }

    /// A first content in several parts is marked until its last one.
    async fn seed_write(&self, truth: &Truth, last: bool, several: bool) -> Result<Option<RecordWrite>, DeskError> {
        let (kind, id) = (SEED.0.to_owned(), SEED.1.to_owned());
        if truth.head.revision == Revision(0) {
            let value = Text::of(&true)?;
            return Ok((several && !last).then(|| RecordWrite { kind, id, expected: None, value: Some(value) }));
        }
        if !last {
            return Ok(None);
        }
        let found = self.store.record(kind.clone(), id.clone()).await?;
        Ok(found.map(|found| RecordWrite { kind, id, expected: Some(found.version), value: None }))
    }
}

fn done(prepared: Prepared) -> Done {
    let Prepared { changes, pending, warnings, .. } = prepared;
    Done { revision: None, changes, pending, warnings }
}

fn all_edits(truth: &Truth, prepared: &Prepared) -> Result<Vec<StoreEdit>, DeskError> {
    let mut edits = edits_between(Space::Desired, &truth.desired, &prepared.desired)?;
    edits.extend(edits_between(Space::InForce, &truth.in_force, &prepared.in_force)?);
    Ok(edits)
}

fn is_new(truth: &Truth, place: &Place) -> bool {
    let entries: &Entries = match place.space {
        Space::Desired => &truth.desired,
        Space::InForce => &truth.in_force,
    };
    ResourceKind::parse(place.key.kind()).is_none_or(|kind| entries.get(kind, place.key.name()).is_none())
}

fn too_large() -> DeskError {
    let words = format!(
        "the change has more than {MAX_EDITS} edits or {MAX_CHANGE_BYTES} bytes, and is none that only adds: make it in several changes"
    );
    DeskError::invalid("", words)
}

/// The longest reason in characters, as the API's document says it. The store counts bytes, of which a character has four at most.
const MOST_OF_A_REASON: usize = MAX_REASON_BYTES / 4;

/// The store's rule for what people read, before anything is worked out and for a dry run too.
fn check_words(ask: &Ask) -> Result<(), DeskError> {
    let words = [("author", &ask.author, 1, MAX_AUTHOR_BYTES), ("reason", &ask.reason, 0, MAX_REASON_BYTES)];
    for (what, text, least, most) in words {
        let printable = text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t'));
        if text.len() < least || text.len() > most || !printable {
            let reason = format!("is not {least} to {most} bytes without control characters");
            return Err(DeskError::invalid(what, reason));
        }
    }
    if ask.reason.chars().count() > MOST_OF_A_REASON {
        return Err(DeskError::invalid("reason", format!("has more than {MOST_OF_A_REASON} characters")));
    }
    Ok(())
}
