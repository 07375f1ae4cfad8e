//! Carrying out a commit in one redb transaction.

use super::read;
use super::tables::{self, BUCKETS, EDITS, HEADERS, LEAVES, META, PAST, RECORDS, RESOURCES, failed};
use crate::digest::{Buckets, Digest};
use crate::error::{Error, Result};
use crate::key::{Key, Space};
use crate::model::{Committed, Header};
use crate::seal::{Admission, Draft, Leaves, Prepared, Row, Sealed, State};
use crate::stored;
use redb::{Database, Durability, ReadableTable, WriteTransaction};
use std::collections::{BTreeMap, BTreeSet};

/// Commits; the answer is given when the disk has it.
pub(super) fn commit(database: &Database, prepared: Prepared) -> Result<Committed> {
    let mut transaction = database.begin_write().map_err(failed)?;
    transaction.set_durability(Durability::Immediate).map_err(failed)?;
    let mut state = tables::state(&transaction.open_table(META).map_err(failed)?)?;
    if let Admission::Stale(seen) = prepared.admit(&mut state)? {
        transaction.abort().map_err(failed)?;
        return Err(read::conflict(database, seen)?);
    }
    let mut versions = Vec::with_capacity(prepared.records.len());
    {
        let mut records = transaction.open_table(RECORDS).map_err(failed)?;
        for write in &prepared.records {
            let key = Key::new(&write.kind, &write.id)?;
            let found = records.get(key.as_bytes()).map_err(failed)?.map(|row| tables::to_numbered(row.value()));
            let found = found.transpose()?.map(|(version, _)| version);
            let version = Prepared::record(&mut state, write, found)?;
            match (version, &write.value) {
                (Some(version), Some(value)) => {
                    records.insert(key.as_bytes(), tables::numbered(version, value).as_slice()).map_err(failed)?;
                }
                _ => drop(records.remove(key.as_bytes()).map_err(failed)?),
            }
            versions.push(version);
        }
    }
    let term = prepared.term;
    let header = prepared.change.map(|draft| change(&transaction, &mut state, draft, term)).transpose()?;
    put_state(&transaction, &state)?;
    transaction.commit().map_err(tables::open_outcome)?;
    Ok(Committed { header, versions })
}

/// Raises the term by one: a new leader.
pub(super) fn next_term(database: &Database) -> Result<u64> {
    let transaction = database.begin_write().map_err(failed)?;
    let mut state = tables::state(&transaction.open_table(META).map_err(failed)?)?;
    state.head.term += 1;
    put_state(&transaction, &state)?;
    transaction.commit().map_err(tables::open_outcome)?;
    Ok(state.head.term)
}

pub(super) fn put_state(transaction: &WriteTransaction, state: &State) -> Result<()> {
    let mut meta = transaction.open_table(META).map_err(failed)?;
    meta.insert("state", stored::state_text(state)?.as_bytes()).map_err(failed)?;
    Ok(())
}

fn change(transaction: &WriteTransaction, state: &mut State, draft: Draft, term: Option<u64>) -> Result<Header> {
    let touched = draft.touched();
    let leaves = leaves(transaction, &touched)?;
    let buckets = buckets(transaction, touched.keys().copied())?;
    let sealed = draft.seal(state, term, leaves, buckets);
    write(transaction, &sealed)?;
    Ok(sealed.header)
}

fn leaves(transaction: &WriteTransaction, touched: &BTreeMap<Space, BTreeSet<u16>>) -> Result<Leaves> {
    let table = transaction.open_table(LEAVES).map_err(failed)?;
    let mut leaves = Leaves::new();
    for (space, numbers) in touched {
        for number in numbers {
            let begin = tables::bucket(*space, *number);
            let mut entries = BTreeMap::new();
            for row in table.range(begin.as_slice()..).map_err(failed)? {
                let (key, leaf) = row.map_err(failed)?;
                let Some(key) = key.value().strip_prefix(begin.as_slice()) else { break };
                entries.insert(Key::from_bytes(key)?, digest(leaf.value())?);
            }
            leaves.insert((*space, *number), entries);
        }
    }
    Ok(leaves)
}

fn buckets(transaction: &WriteTransaction, spaces: impl Iterator<Item = Space>) -> Result<BTreeMap<Space, Buckets>> {
    let table = transaction.open_table(BUCKETS).map_err(failed)?;
    let mut all = BTreeMap::new();
    for space in spaces {
        let mut buckets = Buckets::default();
        for row in table.range([space.number()].as_slice()..).map_err(failed)? {
            let (key, value) = row.map_err(failed)?;
            let Some((number, [high, low])) = key.value().split_first() else { break };
            if *number != space.number() {
                break;
            }
            buckets.set(u16::from_be_bytes([*high, *low]), digest(value.value())?);
        }
        all.insert(space, buckets);
    }
    Ok(all)
}

fn digest(bytes: &[u8]) -> Result<Digest> {
    bytes.try_into().map(Digest).map_err(|_| Error::corrupt("a digest of another length"))
}

fn write(transaction: &WriteTransaction, sealed: &Sealed) -> Result<()> {
    let revision = sealed.header.revision;
    let mut headers = transaction.open_table(HEADERS).map_err(failed)?;
    headers.insert(revision.0, stored::header_text(&sealed.header)?.as_bytes()).map_err(failed)?;
    put_buckets(transaction, &sealed.buckets)?;
    let mut edits = transaction.open_table(EDITS).map_err(failed)?;
    let mut past = transaction.open_table(PAST).map_err(failed)?;
    let mut resources = transaction.open_table(RESOURCES).map_err(failed)?;
    let mut leaves = transaction.open_table(LEAVES).map_err(failed)?;
    for Row { place, bucket, value } in &sealed.rows {
        edits.insert(tables::edit(revision, place).as_slice(), ()).map_err(failed)?;
        let json = value.as_ref().map(|(json, _)| json);
        past.insert(tables::past(place, revision).as_slice(), tables::past_value(json).as_slice()).map_err(failed)?;
        let (at, leaf_at) = (tables::place(place), tables::leaf(place.space, *bucket, &place.key));
        if let Some((json, leaf)) = value {
            resources.insert(at.as_slice(), tables::numbered(revision.0, json).as_slice()).map_err(failed)?;
            leaves.insert(leaf_at.as_slice(), leaf.0.as_slice()).map_err(failed)?;
        } else {
            resources.remove(at.as_slice()).map_err(failed)?;
            leaves.remove(leaf_at.as_slice()).map_err(failed)?;
        }
    }
    Ok(())
}

pub(super) fn put_buckets(transaction: &WriteTransaction, buckets: &[(Space, u16, Digest)]) -> Result<()> {
    let mut table = transaction.open_table(BUCKETS).map_err(failed)?;
    for (space, bucket, digest) in buckets {
        table.insert(tables::bucket(*space, *bucket).as_slice(), digest.0.as_slice()).map_err(failed)?;
    }
    Ok(())
}
