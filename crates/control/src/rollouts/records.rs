//! Roll-outs in the store: saved by compare-and-set, loaded, numbered, forgotten.

use holdfast_decide::rollout::{RolloutId, Saved};
use holdfast_store::{Applied, Commit, Error, ErrorKind, Json, Record, RecordWrite, Result, Store};

use super::forms::{self, FormError, Head, Meta};

pub(super) const ROLLOUT: &str = "rollout";
const PART: &str = "rollout_part";
/// The last step of a roll-out that is in the table.
pub(super) const STEP: &str = "rollout_step";
const COUNTER: (&str, &str) = ("rollout_counter", "last");
const PAGE: usize = 500;
/// Tries of something that others may overtake.
const TRIES: usize = 8;

/// The store's versions of a record's parts, and what they hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions {
    /// Of the head. `None`: there is no record yet.
    pub(super) head: Option<u64>,
    parts: Vec<(u64, Json)>,
}

/// A record and where it is.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) head: Head,
    pub(super) saved: Saved,
    pub(super) versions: Versions,
}

/// What became of a save.
#[derive(Debug)]
pub(super) enum SaveOutcome {
    Saved(Versions),
    /// Somebody else has it.
    Conflict,
    /// Not known, or not now. The versions are those that are known.
    Failed(String),
}

pub(super) fn write(kind: &str, id: String, expected: Option<u64>, value: Option<Json>) -> RecordWrite {
    RecordWrite { kind: kind.to_owned(), id, expected, value }
}

fn part_id(id: u64, part: usize) -> String {
    format!("{id}/{part}")
}

/// Saves what has changed, as one transaction.
pub(super) async fn save(store: &dyn Store, mut known: Versions, saved: &Saved, meta: &Meta) -> SaveOutcome {
    let (head, parts) = match forms::write(saved, meta) {
        Ok(json) => json,
        Err(error) => return SaveOutcome::Failed(error.to_string()),
    };
    for _ in 0..TRIES {
        let mut records = vec![write(ROLLOUT, saved.id.to_string(), known.head, Some(head.clone()))];
        let changed: Vec<usize> =
            (0..parts.len()).filter(|n| known.parts.get(*n).is_none_or(|(_, json)| *json != parts[*n])).collect();
        for part in &changed {
            let expected = known.parts.get(*part).map(|(version, _)| *version);
            records.push(write(PART, part_id(saved.id, *part), expected, Some(parts[*part].clone())));
        }
        for (part, (version, _)) in known.parts.iter().enumerate().skip(parts.len()) {
            records.push(write(PART, part_id(saved.id, part), Some(*version), None));
        }
        match store.commit(Commit { records, term: Some(saved.term), ..Commit::default() }).await {
            Ok(done) => {
                let mut versions = done.versions.into_iter();
                known.head = versions.next().flatten();
                known.parts.truncate(parts.len());
                for (part, version) in changed.into_iter().zip(versions.map(Option::unwrap_or_default)) {
                    let new = (version, parts[part].clone());
                    match known.parts.get_mut(part) {
                        Some(old) => *old = new,
                        None => known.parts.push(new),
                    }
                }
                return SaveOutcome::Saved(known);
            }
            Err(Error::RecordConflict { .. }) => match own(store, saved).await {
                Ok(Some(versions)) => known = versions,
                Ok(None) => return SaveOutcome::Conflict,
                Err(words) => return SaveOutcome::Failed(words),
            },
            Err(error) if error.kind() == ErrorKind::Fenced => return SaveOutcome::Conflict,
            Err(error) => return SaveOutcome::Failed(error.to_string()),
        }
    }
    SaveOutcome::Failed("others write the record as well".to_owned())
}

/// The versions in the store, if what is there is of this term: an activation of this process wrote it again, or a save of it whose answer was
/// lost. One term is one process.
async fn own(store: &dyn Store, saved: &Saved) -> Result<Option<Versions>, String> {
    match load(store, saved.id).await {
        Ok(Some(stored)) if stored.saved.term == saved.term => Ok(Some(stored.versions)),
        Ok(_) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Why a record was not loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    Store(#[from] Error),
    #[error(transparent)]
    Form(#[from] FormError),
    #[error("the record changes faster than it can be read")]
    Busy,
}

/// Reads a record, all parts as of one save.
pub(super) async fn load(store: &dyn Store, id: u64) -> Result<Option<Stored>, LoadError> {
    let head_of = || store.record(ROLLOUT.to_owned(), id.to_string());
    let Some(mut record) = head_of().await? else { return Ok(None) };
    for _ in 0..TRIES {
        let head = forms::head(&record.value)?;
        let mut parts = Vec::new();
        for part in 0..head.parts as usize {
            let Some(part) = store.record(PART.to_owned(), part_id(id, part)).await? else { break };
            parts.push((part.version, part.value));
        }
        let Some(again) = head_of().await? else { return Ok(None) };
        if again.version == record.version {
            let values: Vec<Json> = parts.iter().map(|(_, value)| value.clone()).collect();
            let saved = forms::saved(&head, &values)?;
            return Ok(Some(Stored { head, saved, versions: Versions { head: Some(record.version), parts } }));
        }
        record = again;
    }
    Err(LoadError::Busy)
}

/// The heads of all roll-outs, by number. One that cannot be read is left out, with its words.
pub(super) async fn heads(store: &dyn Store) -> Result<(Vec<Head>, Vec<String>)> {
    let (mut heads, mut damaged, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page = store.records(ROLLOUT.to_owned(), after, PAGE).await?;
        let last = page.last().map(|record| record.id.clone());
        let full = page.len() >= PAGE;
        for Record { id, value, .. } in page {
            match forms::head(&value) {
                Ok(head) => heads.push(head),
                Err(error) => damaged.push(format!("roll-out {id}: {error}")),
            }
        }
        if !full || last.is_none() {
            heads.sort_unstable_by_key(|head| head.id);
            return Ok((heads, damaged));
        }
        after = last;
    }
}

/// Takes numbers: the first of so many. A number is given once, whatever becomes of it.
pub(super) async fn numbers(store: &dyn Store, term: u64, many: u64) -> Result<u64> {
    for _ in 0..TRIES {
        let found = store.record(COUNTER.0.to_owned(), COUNTER.1.to_owned()).await?;
        let last = match &found {
            Some(record) => serde_json::from_slice::<u64>(record.value.as_bytes())
                .map_err(|_| Error::Corrupt { what: "the counter of roll-outs".to_owned() })?,
            None => 0,
        };
        let next = Json::of(&last.saturating_add(many))?;
        let records = vec![write(COUNTER.0, COUNTER.1.to_owned(), found.map(|r| r.version), Some(next))];
        match store.commit(Commit { records, term: Some(term), ..Commit::default() }).await {
            Ok(_) => return Ok(last + 1),
            Err(error) if error.kind() == ErrorKind::RecordConflict => {}
            // Numbers may be left out.
            Err(error) if matches!(error.applied(), Applied::Maybe) => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::Overloaded { waiting: TRIES })
}

/// Takes a finished roll-out away.
pub(super) async fn forget(store: &dyn Store, term: u64, id: RolloutId) -> Result<()> {
    let Some(record) = store.record(ROLLOUT.to_owned(), id.0.to_string()).await? else { return Ok(()) };
    let mut records = vec![write(ROLLOUT, record.id, Some(record.version), None)];
    let parts = forms::head(&record.value).map_or(0, |head| head.parts as usize);
    let mut also: Vec<(&str, String)> = (0..parts).map(|part| (PART, part_id(id.0, part))).collect();
    also.push((STEP, id.0.to_string()));
    for (kind, id) in also {
        if let Some(found) = store.record(kind.to_owned(), id).await? {
            records.push(write(kind, found.id, Some(found.version), None));
        }
    }
    store.commit(Commit { records, term: Some(term), ..Commit::default() }).await.map(|_| ())
}
