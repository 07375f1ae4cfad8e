//! Forgetting what no readable revision needs.

use super::commit::put_state;
use super::tables::{self, EDITS, HEADERS, META, PAST, failed};
use crate::error::Result;
use crate::key::Place;
use crate::model::Pruned;
use crate::seal::raise_floor;
use holdfast_types::Revision;
use redb::{Database, ReadableTable, WriteTransaction};

pub(super) fn prune(database: &Database, floor: Revision, limit: usize, term: Option<u64>) -> Result<Pruned> {
    let transaction = database.begin_write().map_err(failed)?;
    let mut state = tables::state(&transaction.open_table(META).map_err(failed)?)?;
    raise_floor(&mut state, floor, term)?;
    let floor = state.head.floor;
    let (headers, more_headers) = headers(&transaction, floor, limit)?;
    let old = edits(&transaction, floor, limit + 1)?;
    let more = old.len() > limit || more_headers;
    let mut removed = headers;
    for (revision, place) in old.into_iter().take(limit) {
        removed += forget(&transaction, revision, &place)?;
    }
    put_state(&transaction, &state)?;
    transaction.commit().map_err(tables::open_outcome)?;
    Ok(Pruned { floor, removed, more })
}

fn headers(transaction: &WriteTransaction, floor: Revision, limit: usize) -> Result<(u64, bool)> {
    let mut table = transaction.open_table(HEADERS).map_err(failed)?;
    let old = table.range(..floor.0).map_err(failed)?.take(limit + 1);
    let old: Vec<u64> = old.map(|row| Ok(row.map_err(failed)?.0.value())).collect::<Result<_>>()?;
    for revision in old.iter().take(limit) {
        table.remove(revision).map_err(failed)?;
    }
    Ok((old.len().min(limit) as u64, old.len() > limit))
}

fn edits(transaction: &WriteTransaction, floor: Revision, limit: usize) -> Result<Vec<(Revision, Place)>> {
    let table = transaction.open_table(EDITS).map_err(failed)?;
    let end = floor.0.saturating_add(1).to_be_bytes();
    let rows = table.range::<&[u8]>(..end.as_slice()).map_err(failed)?.take(limit);
    rows.map(|row| tables::to_edit(row.map_err(failed)?.0.value())).collect()
}

/// Takes away an edit and what it replaced: the rows of its place before it, among them one that an earlier prune left as the state at
/// its floor. A deletion goes too, once what it deleted is gone.
fn forget(transaction: &WriteTransaction, revision: Revision, place: &Place) -> Result<u64> {
    let mut edits = transaction.open_table(EDITS).map_err(failed)?;
    edits.remove(tables::edit(revision, place).as_slice()).map_err(failed)?;
    let mut past = transaction.open_table(PAST).map_err(failed)?;
    let (first, at) = (tables::past(place, Revision(0)), tables::past(place, revision));
    let mut gone = Vec::new();
    for row in past.range(first.as_slice()..=at.as_slice()).map_err(failed)? {
        let (key, value) = row.map_err(failed)?;
        let key = key.value();
        if key < at.as_slice() || value.value() == [0] {
            gone.push(key.to_vec());
        }
    }
    for key in &gone {
        past.remove(key.as_slice()).map_err(failed)?;
    }
    Ok(gone.len() as u64)
}
