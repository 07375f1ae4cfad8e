//! Reads: each in one redb read transaction, so that what they see is one state.

use super::tables::{self, EDITS, HEADERS, META, PAST, RECORDS, RESOURCES, failed};
use crate::error::{Conflict, Error, Result};
use crate::json::Json;
use crate::key::{Key, Place, Space};
use crate::limits::MAX_CONFLICT_ROWS;
use crate::model::{Difference, Edit, Head, Header, Page, Record, Resource};
use crate::seal::State;
use crate::stored;
use holdfast_types::Revision;
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable};
use std::collections::BTreeSet;
use std::ops::Bound;

pub(super) fn state(transaction: &ReadTransaction) -> Result<State> {
    tables::state(&transaction.open_table(META).map_err(failed)?)
}

pub(super) fn head(database: &Database) -> Result<Head> {
    Ok(state(&begin(database)?)?.head)
}

fn begin(database: &Database) -> Result<ReadTransaction> {
    database.begin_read().map_err(failed)
}

fn past_at(transaction: &ReadTransaction, place: &Place, at: Revision) -> Result<Option<(Revision, Option<Json>)>> {
    let table = transaction.open_table(PAST).map_err(failed)?;
    last_at(&table, place, at)
}

/// The last row of a place at or before a revision.
fn last_at(
    table: &impl ReadableTable<tables::Bytes, tables::Bytes>,
    place: &Place,
    at: Revision,
) -> Result<Option<(Revision, Option<Json>)>> {
    let (first, last) = (tables::past(place, Revision(0)), tables::past(place, at));
    let mut rows = table.range(first.as_slice()..=last.as_slice()).map_err(failed)?;
    let Some(row) = rows.next_back() else { return Ok(None) };
    let (key, value) = row.map_err(failed)?;
    Ok(Some((tables::to_past(key.value())?.1, tables::to_past_value(value.value())?)))
}

pub(super) fn read(
    database: &Database,
    space: Space,
    at: Option<Revision>,
    after: Option<Key>,
    limit: usize,
) -> Result<Page<Resource, Key>> {
    let transaction = begin(database)?;
    let head = state(&transaction)?.head;
    let revision = head.readable(at)?;
    let after = after.map(|key| Place { space, key });
    if revision == head.revision {
        at_head(&transaction, space, revision, after.as_ref(), limit)
    } else {
        at_past(&transaction, space, revision, after, limit)
    }
}

fn at_head(
    transaction: &ReadTransaction,
    space: Space,
    revision: Revision,
    after: Option<&Place>,
    limit: usize,
) -> Result<Page<Resource, Key>> {
    let table = transaction.open_table(RESOURCES).map_err(failed)?;
    let begin = after.map_or_else(|| vec![space.number()], tables::place);
    let mut items: Vec<Resource> = Vec::new();
    for row in table.range::<&[u8]>((Bound::Excluded(begin.as_slice()), Bound::Unbounded)).map_err(failed)? {
        let (key, value) = row.map_err(failed)?;
        let place = tables::to_place(key.value())?;
        if place.space != space {
            break;
        }
        if items.len() == limit {
            let next = items.last().map(|resource| resource.key.clone());
            return Ok(Page { revision, items, next });
        }
        let (changed, value) = tables::to_numbered(value.value())?;
        items.push(Resource { key: place.key, revision: Revision(changed), value });
    }
    Ok(Page { revision, items, next: None })
}

/// Goes from key to key by seeking, so that a key with a long history costs no more than one with a short.
fn at_past(
    transaction: &ReadTransaction,
    space: Space,
    revision: Revision,
    after: Option<Place>,
    limit: usize,
) -> Result<Page<Resource, Key>> {
    let table = transaction.open_table(PAST).map_err(failed)?;
    let (mut items, mut looked, mut last) = (Vec::new(), 0, after);
    loop {
        let begin = last.as_ref().map_or_else(|| vec![space.number()], |place| tables::past(place, Revision(u64::MAX)));
        let mut rows = table.range::<&[u8]>((Bound::Excluded(begin.as_slice()), Bound::Unbounded)).map_err(failed)?;
        let place = rows.next().transpose().map_err(failed)?;
        let place = place.map(|(key, _)| tables::to_past(key.value())).transpose()?.map(|(place, _)| place);
        let Some(place) = place.filter(|place| place.space == space) else {
            return Ok(Page { revision, items, next: None });
        };
        if looked == limit {
            return Ok(Page { revision, items, next: last.map(|place| place.key) });
        }
        looked += 1;
        if let Some((changed, Some(value))) = last_at(&table, &place, revision)? {
            items.push(Resource { key: place.key.clone(), revision: changed, value });
        }
        last = Some(place);
    }
}

pub(super) fn get(database: &Database, place: Place, at: Option<Revision>) -> Result<Option<Resource>> {
    let transaction = begin(database)?;
    let at = state(&transaction)?.head.readable(at)?;
    let found = past_at(&transaction, &place, at)?;
    let found = found.and_then(|(revision, value)| value.map(|value| (revision, value)));
    Ok(found.map(|(revision, value)| Resource { key: place.key, revision, value }))
}

pub(super) fn edits(
    database: &Database,
    at: Revision,
    after: Option<&Place>,
    limit: usize,
) -> Result<Page<Edit, Place>> {
    let transaction = begin(database)?;
    state(&transaction)?.head.has_edits(at)?;
    let table = transaction.open_table(EDITS).map_err(failed)?;
    let begin = after.map_or_else(|| at.0.to_be_bytes().to_vec(), |place| tables::edit(at, place));
    let mut items: Vec<Edit> = Vec::new();
    for row in table.range::<&[u8]>((Bound::Excluded(begin.as_slice()), Bound::Unbounded)).map_err(failed)? {
        let (revision, place) = tables::to_edit(row.map_err(failed)?.0.value())?;
        if revision != at {
            break;
        }
        if items.len() == limit {
            let next = items.last().map(|edit| edit.place.clone());
            return Ok(Page { revision: at, items, next });
        }
        let value = past_at(&transaction, &place, at)?.and_then(|(_, value)| value);
        items.push(Edit { place, value });
    }
    Ok(Page { revision: at, items, next: None })
}

pub(super) fn history(database: &Database, before: Option<Revision>, limit: usize) -> Result<Vec<Header>> {
    let transaction = begin(database)?;
    let table = transaction.open_table(HEADERS).map_err(failed)?;
    let before = before.map_or(u64::MAX, |revision| revision.0);
    let rows = table.range(..before).map_err(failed)?.rev().take(limit);
    rows.map(|row| stored::header(row.map_err(failed)?.1.value())).collect()
}

pub(super) fn diff(
    database: &Database,
    from: Revision,
    to: Revision,
    after: Option<&Place>,
    limit: usize,
) -> Result<Page<Difference, Place>> {
    let transaction = begin(database)?;
    let head = state(&transaction)?.head;
    head.readable(Some(from))?;
    head.readable(Some(to))?;
    let places = places_between(&transaction, from.min(to), from.max(to), after, limit + 1)?;
    let more = places.len() > limit;
    let looked: Vec<Place> = places.into_iter().take(limit).collect();
    let next = if more { looked.last().cloned() } else { None };
    let mut items = Vec::new();
    for place in looked {
        let before = past_at(&transaction, &place, from)?.and_then(|(_, value)| value);
        let after = past_at(&transaction, &place, to)?.and_then(|(_, value)| value);
        if before != after {
            items.push(Difference { place, before, after });
        }
    }
    Ok(Page { revision: to, items, next })
}

/// The first places that revisions after `low` up to `high` changed.
fn places_between(
    transaction: &ReadTransaction,
    low: Revision,
    high: Revision,
    after: Option<&Place>,
    limit: usize,
) -> Result<BTreeSet<Place>> {
    let table = transaction.open_table(EDITS).map_err(failed)?;
    let (begin, end) = ((low.0 + 1).to_be_bytes(), high.0.saturating_add(1).to_be_bytes());
    let mut places = BTreeSet::new();
    for row in table.range(begin.as_slice()..end.as_slice()).map_err(failed)? {
        let place = tables::to_edit(row.map_err(failed)?.0.value())?.1;
        if after.is_some_and(|after| place <= *after) {
            continue;
        }
        places.insert(place);
        if places.len() > limit {
            places.pop_last();
        }
    }
    Ok(places)
}

pub(super) fn record(database: &Database, kind: &str, id: &str) -> Result<Option<Record>> {
    let key = Key::new(kind, id)?;
    let transaction = begin(database)?;
    let table = transaction.open_table(RECORDS).map_err(failed)?;
    let Some(row) = table.get(key.as_bytes()).map_err(failed)? else { return Ok(None) };
    let (version, value) = tables::to_numbered(row.value())?;
    Ok(Some(Record { kind: kind.to_owned(), id: id.to_owned(), version, value }))
}

pub(super) fn records(database: &Database, kind: &str, after: Option<&str>, limit: usize) -> Result<Vec<Record>> {
    let begin = [kind.as_bytes(), &[0], after.unwrap_or_default().as_bytes()].concat();
    let transaction = begin_records(database)?;
    let mut items = Vec::new();
    for row in transaction.range::<&[u8]>((Bound::Excluded(begin.as_slice()), Bound::Unbounded)).map_err(failed)? {
        let (key, value) = row.map_err(failed)?;
        let key = Key::from_bytes(key.value())?;
        if key.kind() != kind || items.len() == limit {
            break;
        }
        let (version, value) = tables::to_numbered(value.value())?;
        items.push(Record { kind: kind.to_owned(), id: key.name().to_owned(), version, value });
    }
    Ok(items)
}

fn begin_records(database: &Database) -> Result<redb::ReadOnlyTable<tables::Bytes, tables::Bytes>> {
    begin(database)?.open_table(RECORDS).map_err(failed)
}

/// The conflict of an author who saw `seen`.
pub(super) fn conflict(database: &Database, seen: Revision) -> Result<Error> {
    let transaction = begin(database)?;
    let head = state(&transaction)?.head;
    let table = transaction.open_table(HEADERS).map_err(failed)?;
    let begin = seen.0 + 1;
    let rows = table.range(begin..).map_err(failed)?.take(MAX_CONFLICT_ROWS + 1);
    let mut since: Vec<Header> =
        rows.map(|row| stored::header(row.map_err(failed)?.1.value())).collect::<Result<_>>()?;
    let table = transaction.open_table(EDITS).map_err(failed)?;
    let rows = table.range(begin.to_be_bytes().as_slice()..).map_err(failed)?.take(MAX_CONFLICT_ROWS + 1);
    let mut places: Vec<(Revision, Place)> =
        rows.map(|row| tables::to_edit(row.map_err(failed)?.0.value())).collect::<Result<_>>()?;
    let more = since.len() > MAX_CONFLICT_ROWS || places.len() > MAX_CONFLICT_ROWS || seen < head.floor;
    since.truncate(MAX_CONFLICT_ROWS);
    places.truncate(MAX_CONFLICT_ROWS);
    let conflict = Conflict { seen, head: head.revision, desired: head.desired, since, places, more };
    Ok(Error::Conflict(Box::new(conflict)))
}
