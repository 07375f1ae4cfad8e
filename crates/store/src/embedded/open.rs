//! Opening a file: whole or new, of a schema that is known, and by one process only.

use super::tables::{self, BUCKETS, EDITS, HEADERS, LEAVES, META, PAST, RECORDS, RESOURCES, SCHEMA, failed};
use crate::error::{Error, Result};
use crate::files;
use crate::seal::State;
use crate::stored;
use redb::{Database, DatabaseError, ReadableDatabase, TableError};
use std::io::ErrorKind;
use std::path::Path;

/// Opens the store's file, or makes it.
pub(super) fn open(path: &Path, cache: usize) -> Result<Database> {
    if !path.exists() {
        create(path, cache)?;
    }
    again(path, cache)
}

/// Opens a file that is there.
pub(super) fn again(path: &Path, cache: usize) -> Result<Database> {
    let empty = std::fs::metadata(path).is_ok_and(|meta| meta.len() == 0);
    if empty {
        // redb would take it for a new file, and an accident would look like a store that never had anything.
        let what = format!("{} is empty; restore it from a backup, or remove it to begin anew", path.display());
        return Err(Error::corrupt(what));
    }
    let database = redb::Builder::new().set_cache_size(cache).open(path).map_err(|e| refused(path, e))?;
    migrate(&database)?;
    Ok(database)
}

/// A file appears with its tables in it or not at all: a process that dies in here leaves a file of another name.
fn create(path: &Path, cache: usize) -> Result<()> {
    let part = files::beside(path);
    let database = redb::Builder::new().set_cache_size(cache).create(&part).map_err(|e| refused(&part, e))?;
    let made = prepare(&database);
    drop(database);
    let published = made.and_then(|()| match files::publish(&part, path) {
        // Another process was quicker: its file is opened, or found in use.
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome.map_err(|e| files::io_error("cannot write", path, &e)),
    });
    if published.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    published
}

fn prepare(database: &Database) -> Result<()> {
    let transaction = database.begin_write().map_err(failed)?;
    {
        let mut meta = transaction.open_table(META).map_err(failed)?;
        meta.insert("schema", SCHEMA.to_be_bytes().as_slice()).map_err(failed)?;
        meta.insert("state", stored::state_text(&State::default())?.as_bytes()).map_err(failed)?;
        transaction.open_table(HEADERS).map_err(failed)?;
        for table in [RESOURCES, LEAVES, BUCKETS, PAST, RECORDS] {
            transaction.open_table(table).map_err(failed)?;
        }
        transaction.open_table(EDITS).map_err(failed)?;
    }
    transaction.commit().map_err(failed)
}

/// Brings an older schema up to this release's, in one transaction. There is no older one yet; a newer one is refused.
fn migrate(database: &Database) -> Result<()> {
    let transaction = database.begin_read().map_err(failed)?;
    let meta = match transaction.open_table(META) {
        Ok(meta) => meta,
        Err(TableError::TableDoesNotExist(_) | TableError::TableTypeMismatch { .. }) => {
            return Err(Error::corrupt("the file is a redb file, but no store"));
        }
        Err(e) => return Err(failed(e)),
    };
    let schema = redb::ReadableTable::get(&meta, "schema").map_err(failed)?;
    let schema = schema.and_then(|row| row.value().try_into().ok()).map(u64::from_be_bytes);
    match schema {
        Some(SCHEMA) => tables::state(&meta).map(|_| ()),
        Some(found) if found > SCHEMA => Err(Error::NewerSchema { found, known: SCHEMA }),
        _ => Err(Error::corrupt("the store's schema has no number")),
    }
}

fn refused(path: &Path, error: DatabaseError) -> Error {
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            Error::InUse { path: path.display().to_string() }
        }
        DatabaseError::UpgradeRequired(_) => Error::corrupt(format!("{} has an old file format", path.display())),
        DatabaseError::Storage(redb::StorageError::Io(ref e)) if unreadable(e.kind()) => {
            Error::corrupt(format!("{} is no store's file: {e}", path.display()))
        }
        DatabaseError::Storage(redb::StorageError::Io(e)) => Error::backend(format!("{}: {e}", path.display())),
        other => match failed(other) {
            Error::Corrupt { what } => Error::corrupt(format!("{}: {what}", path.display())),
            other => other,
        },
    }
}

/// What redb says of bytes that are no file of its own, or only the beginning of one.
const fn unreadable(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
}
