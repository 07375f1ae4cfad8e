//! What a commit comes to, as a pure function: the rules are here once, and both backends carry out what comes of them.
//!
//! A backend, inside one write transaction, reads the [`State`], asks [`Prepared::admit`], reads the leaves of the touched buckets and the
//! bucket digests of the touched spaces, calls [`Draft::seal`], and writes what [`Sealed`] lists.

use crate::digest::{self, Buckets, Digest};
use crate::error::{Error, Result};
use crate::json::Json;
use crate::key::{Key, Place, Space, check_kind};
use crate::limits::{MAX_AUTHOR_BYTES, MAX_CHANGE_BYTES, MAX_EDITS, MAX_KINDS, MAX_REASON_BYTES, MAX_RECORD_WRITES};
use crate::model::{Change, Commit, Head, Header, Purpose, RecordWrite};
use holdfast_types::Revision;
use std::collections::{BTreeMap, BTreeSet};

/// What a store keeps about itself, in one row.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct State {
    pub head: Head,
    /// Kinds ever used by resources.
    pub kinds: BTreeSet<String>,
    /// The last version given to a record.
    pub records: u64,
}

/// A commit whose form is in order.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub change: Option<Draft>,
    pub records: Vec<RecordWrite>,
    pub term: Option<u64>,
    pub in_force: Option<Revision>,
}

/// A change whose form is in order, its edits by place.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    purpose: Purpose,
    base: Option<Revision>,
    author: String,
    reason: String,
    at_ms: u64,
    edits: BTreeMap<Place, Option<Json>>,
}

/// The leaves of buckets.
pub(crate) type Leaves = BTreeMap<(Space, u16), BTreeMap<Key, Digest>>;

/// One effective edit, as it is written.
#[derive(Debug)]
pub(crate) struct Row {
    pub place: Place,
    pub bucket: u16,
    pub value: Option<(Json, Digest)>,
}

/// Everything that a change writes.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub header: Header,
    pub rows: Vec<Row>,
    pub buckets: Vec<(Space, u16, Digest)>,
}

/// Whether a commit may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Go,
    /// What is desired has changed since this revision.
    Stale(Revision),
}

impl Prepared {
    /// Checks everything that can be checked without the store.
    pub(crate) fn of(commit: Commit) -> Result<Self> {
        let Commit { change, records, term, in_force } = commit;
        if records.len() > MAX_RECORD_WRITES {
            return Err(Error::too_large("record writes", records.len(), MAX_RECORD_WRITES));
        }
        let mut seen = BTreeSet::new();
        for write in &records {
            Key::new(&write.kind, &write.id)?;
            if !seen.insert((&write.kind, &write.id)) {
                return Err(Error::invalid(format!("record {} {} is written twice", write.kind, write.id)));
            }
            if write.expected.is_none() && write.value.is_none() {
                return Err(Error::invalid("to delete a record, name the version that you saw"));
            }
        }
        Ok(Self { change: change.map(Draft::of).transpose()?, records, term, in_force })
    }

    /// The rules that need the store's state. Raises the state's term.
    pub(crate) fn admit(&self, state: &mut State) -> Result<Admission> {
        if let Some(term) = self.term {
            let highest = state.head.term;
            if term < highest {
                return Err(Error::Fenced { term, highest });
            }
            state.head.term = term;
        }
        let head = &state.head;
        if let Some(draft) = &self.change
            && let Some(seen) = draft.base
        {
            if seen > head.revision {
                return Err(Error::NoRevision { revision: seen, floor: head.floor, head: head.revision });
            }
            if head.desired > seen {
                return Ok(Admission::Stale(seen));
            }
        }
        if let Some(seen) = self.in_force.filter(|seen| *seen != head.in_force) {
            return Err(Error::Moved { seen, in_force: head.in_force });
        }
        let Some(draft) = &self.change else { return Ok(Admission::Go) };
        let new = draft.edits.keys().map(|place| place.key.kind()).filter(|kind| !state.kinds.contains(*kind));
        let kinds = state.kinds.len() + new.collect::<BTreeSet<_>>().len();
        if kinds > MAX_KINDS {
            return Err(Error::too_large("kinds of resources", kinds, MAX_KINDS));
        }
        Ok(Admission::Go)
    }

    /// Checks one record write against the version that is there and gives the new version.
    pub(crate) fn record(state: &mut State, write: &RecordWrite, found: Option<u64>) -> Result<Option<u64>> {
        if write.expected != found {
            let (kind, id) = (write.kind.clone(), write.id.clone());
            return Err(Error::RecordConflict { kind, id, expected: write.expected, found });
        }
        if write.value.is_none() {
            return Ok(None);
        }
        state.records += 1;
        Ok(Some(state.records))
    }

    /// Edits and record writes: how much work it is.
    pub(crate) fn len(&self) -> usize {
        self.records.len() + self.change.as_ref().map_or(0, |draft| draft.edits.len())
    }
}

impl Draft {
    fn of(change: Change) -> Result<Self> {
        check_text("author", &change.author, 1, MAX_AUTHOR_BYTES)?;
        check_text("reason", &change.reason, 0, MAX_REASON_BYTES)?;
        if change.purpose == Purpose::Change && change.base.is_none() {
            return Err(Error::invalid("a change names the revision that its author saw"));
        }
        if change.at_ms > u64::try_from(i64::MAX).unwrap_or(u64::MAX) {
            return Err(Error::invalid("the time of the change is out of range"));
        }
        if change.edits.len() > MAX_EDITS {
            return Err(Error::too_large("edits", change.edits.len(), MAX_EDITS));
        }
        let mut bytes = 0;
        let mut edits = BTreeMap::new();
        for edit in change.edits {
            if change.purpose == Purpose::Activation && edit.place.space != Space::InForce {
                return Err(Error::invalid("an activation edits what is in force, and nothing else"));
            }
            bytes += edit.place.key.as_bytes().len() + edit.value.as_ref().map_or(0, |v| v.as_bytes().len());
            if bytes > MAX_CHANGE_BYTES {
                return Err(Error::too_large("bytes of a change", bytes, MAX_CHANGE_BYTES));
            }
            if let Some(twice) = edits.insert(edit.place.clone(), edit.value).map(|_| edit.place) {
                return Err(Error::invalid(format!("{twice} is edited twice")));
            }
        }
        let Change { purpose, base, author, reason, at_ms, .. } = change;
        Ok(Self { purpose, base, author, reason, at_ms, edits })
    }

    /// The buckets whose leaves [`Draft::seal`] needs.
    pub(crate) fn touched(&self) -> BTreeMap<Space, BTreeSet<u16>> {
        let mut touched: BTreeMap<Space, BTreeSet<u16>> = BTreeMap::new();
        for place in self.edits.keys() {
            touched.entry(place.space).or_default().insert(digest::bucket(&place.key));
        }
        touched
    }

    /// The revision that the change becomes, and the state after it.
    pub(crate) fn seal(
        self,
        state: &mut State,
        term: Option<u64>,
        mut leaves: Leaves,
        mut buckets: BTreeMap<Space, Buckets>,
    ) -> Sealed {
        let head = &mut state.head;
        let parent = self.base.unwrap_or(head.revision);
        head.revision = Revision(head.revision.0 + 1);
        let rows = effective(self.edits, &mut leaves);
        let changed: BTreeSet<(Space, u16)> = rows.iter().map(|row| (row.place.space, row.bucket)).collect();
        let mut written = Vec::with_capacity(changed.len());
        for (space, bucket) in changed {
            let digest = leaves.get(&(space, bucket)).map_or_else(digest::of_empty_bucket, digest::of_bucket);
            buckets.entry(space).or_default().set(bucket, digest);
            written.push((space, bucket, digest));
        }
        for space in Space::ALL {
            if !written.iter().any(|(changed, ..)| *changed == space) {
                continue;
            }
            head.digests.set(space, buckets.entry(space).or_default().root());
            match space {
                Space::Desired => head.desired = head.revision,
                Space::InForce => head.in_force = head.revision,
            }
        }
        for row in &rows {
            if !state.kinds.contains(row.place.key.kind()) {
                state.kinds.insert(row.place.key.kind().to_owned());
            }
        }
        let header = Header {
            revision: head.revision,
            purpose: self.purpose,
            parent,
            author: self.author,
            reason: self.reason,
            at_ms: self.at_ms,
            edits: rows.len() as u64,
            term,
            digests: head.digests,
        };
        Sealed { header, rows, buckets: written }
    }
}

/// The edits that change something; the leaves follow them.
fn effective(edits: BTreeMap<Place, Option<Json>>, leaves: &mut Leaves) -> Vec<Row> {
    let mut rows = Vec::with_capacity(edits.len());
    for (place, value) in edits {
        let bucket = digest::bucket(&place.key);
        let entries = leaves.entry((place.space, bucket)).or_default();
        let value = value.map(|json| (digest::leaf(json.as_bytes()), json)).map(|(leaf, json)| (json, leaf));
        let before = match &value {
            Some((_, leaf)) => entries.insert(place.key.clone(), *leaf),
            None => entries.remove(&place.key),
        };
        if before != value.as_ref().map(|(_, leaf)| *leaf) {
            rows.push(Row { place, bucket, value });
        }
    }
    rows
}

/// Text that people read in logs and tables: bounded, and without control characters but line breaks and tabs.
fn check_text(what: &str, text: &str, least: usize, most: usize) -> Result<()> {
    let printable = text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t'));
    if text.len() >= least && text.len() <= most && printable {
        return Ok(());
    }
    Err(Error::invalid(format!("the {what} of a change is {least} to {most} bytes without control characters")))
}

/// Raises the floor of a state for a prune; a floor is never lowered.
pub(crate) fn raise_floor(state: &mut State, floor: Revision, term: Option<u64>) -> Result<()> {
    Prepared { change: None, records: Vec::new(), term, in_force: None }.admit(state)?;
    state.head.readable(Some(floor.max(state.head.floor)))?;
    state.head.floor = state.head.floor.max(floor);
    Ok(())
}

/// The rule for record kinds, for reads.
pub(crate) fn check_record_kind(kind: &str) -> Result<()> {
    check_kind(kind)
}

#[cfg(test)]
mod tests;
