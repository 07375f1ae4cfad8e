//! Backup and restore of a redb file, each in one transaction.

use super::commit::{put_buckets, put_state};
use super::read;
use super::tables::{self, Bytes, EDITS, HEADERS, LEAVES, META, PAST, RECORDS, RESOURCES, failed};
use crate::backup::{self, Item, Past, Reader, Summary, Verified, Writer};
use crate::digest;
use crate::error::{Error, Result};
use crate::key::Key;
use crate::model::{Header, Record};
use crate::stored;
use redb::{Database, ReadableDatabase, ReadableTable, Table, WriteTransaction};
use std::path::Path;

pub(super) fn backup(database: &Database, file: &Path) -> Result<Summary> {
    let transaction = database.begin_read().map_err(failed)?;
    let mut writer = Writer::create(file)?;
    writer.item(&Item::State(Box::new(read::state(&transaction)?)))?;
    for row in transaction.open_table(HEADERS).map_err(failed)?.iter().map_err(failed)? {
        writer.item(&Item::Header(Box::new(stored::header(row.map_err(failed)?.1.value())?)))?;
    }
    for row in transaction.open_table(PAST).map_err(failed)?.iter().map_err(failed)? {
        let (key, value) = row.map_err(failed)?;
        let (place, revision) = tables::to_past(key.value())?;
        writer.item(&Item::Past(Past { place, revision, value: tables::to_past_value(value.value())? }))?;
    }
    for row in transaction.open_table(RECORDS).map_err(failed)?.iter().map_err(failed)? {
        let (key, value) = row.map_err(failed)?;
        let key = Key::from_bytes(key.value())?;
        let (version, value) = tables::to_numbered(value.value())?;
        let (kind, id) = (key.kind().to_owned(), key.name().to_owned());
        writer.item(&Item::Record(Record { kind, id, version, value }))?;
    }
    writer.finish()
}

pub(super) fn restore(database: &Database, file: &Path) -> Result<Summary> {
    let verified = backup::verify(file)?;
    let transaction = database.begin_write().map_err(failed)?;
    let here = tables::state(&transaction.open_table(META).map_err(failed)?)?;
    if !backup::empty(&here) {
        return Err(Error::NotEmpty { head: here.head.revision });
    }
    apply(&transaction, file, &verified)?;
    put_buckets(&transaction, &verified.buckets)?;
    put_state(&transaction, &verified.state_over(&here))?;
    transaction.commit().map_err(tables::open_outcome)?;
    Ok(verified.summary)
}

fn apply(transaction: &WriteTransaction, file: &Path, verified: &Verified) -> Result<()> {
    let mut tables = Tables::open(transaction)?;
    let mut reader = Reader::open(file)?;
    while let Some(item) = reader.next()? {
        match item {
            Item::State(_) => {}
            Item::Header(header) => tables.header(&header)?,
            Item::Past(past) => tables.past(&past)?,
            Item::Record(record) => tables.record(&record)?,
        }
    }
    verified.same(&reader)
}

type Rows<'t> = Table<'t, Bytes, Bytes>;

/// The tables of a restore, opened once for all rows.
struct Tables<'t> {
    headers: Table<'t, u64, Bytes>,
    past: Rows<'t>,
    edits: Table<'t, Bytes, ()>,
    resources: Rows<'t>,
    leaves: Rows<'t>,
    records: Rows<'t>,
}

impl<'t> Tables<'t> {
    fn open(transaction: &'t WriteTransaction) -> Result<Self> {
        let rows = |definition| transaction.open_table(definition).map_err(failed);
        Ok(Self {
            headers: transaction.open_table(HEADERS).map_err(failed)?,
            past: rows(PAST)?,
            edits: transaction.open_table(EDITS).map_err(failed)?,
            resources: rows(RESOURCES)?,
            leaves: rows(LEAVES)?,
            records: rows(RECORDS)?,
        })
    }

    fn header(&mut self, header: &Header) -> Result<()> {
        self.headers.insert(header.revision.0, stored::header_text(header)?.as_bytes()).map_err(failed)?;
        Ok(())
    }

    fn record(&mut self, record: &Record) -> Result<()> {
        let key = Key::new(&record.kind, &record.id)?;
        let row = tables::numbered(record.version, &record.value);
        self.records.insert(key.as_bytes(), row.as_slice()).map_err(failed)?;
        Ok(())
    }

    /// Rows of one place come in order of their revisions, so the last one that is put is the state at the head.
    fn past(&mut self, past: &Past) -> Result<()> {
        let Past { place, revision, value } = past;
        let row = tables::past_value(value.as_ref());
        self.past.insert(tables::past(place, *revision).as_slice(), row.as_slice()).map_err(failed)?;
        self.edits.insert(tables::edit(*revision, place).as_slice(), ()).map_err(failed)?;
        let (at, leaf_at) = (tables::place(place), tables::leaf(place.space, digest::bucket(&place.key), &place.key));
        if let Some(value) = value {
            let leaf = digest::leaf(value.as_bytes());
            self.resources.insert(at.as_slice(), tables::numbered(revision.0, value).as_slice()).map_err(failed)?;
            self.leaves.insert(leaf_at.as_slice(), leaf.0.as_slice()).map_err(failed)?;
        } else {
            self.resources.remove(at.as_slice()).map_err(failed)?;
            self.leaves.remove(leaf_at.as_slice()).map_err(failed)?;
        }
        Ok(())
    }
}
