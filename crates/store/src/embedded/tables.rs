//! The tables of a redb file and the bytes of their keys.
//!
//! Keys begin with the space's number and the key's bytes (kind, zero, name), so that byte order is the order of places. Numbers in keys and
//! values are big endian.

use crate::error::{Applied, Error, Result};
use crate::json::Json;
use crate::key::{Key, Place, Space};
use crate::seal::State;
use crate::stored;
use holdfast_types::Revision;
use redb::{ReadableTable, TableDefinition};

pub(super) type Bytes = &'static [u8];

/// `schema`: the schema's number; `state`: the state.
pub(super) const META: TableDefinition<'static, &'static str, Bytes> = TableDefinition::new("meta");
/// Revision to header.
pub(super) const HEADERS: TableDefinition<'static, u64, Bytes> = TableDefinition::new("headers");
/// Place to revision and value: the state at the head.
pub(super) const RESOURCES: TableDefinition<'static, Bytes, Bytes> = TableDefinition::new("resources");
/// Space, bucket, key to leaf.
pub(super) const LEAVES: TableDefinition<'static, Bytes, Bytes> = TableDefinition::new("leaves");
/// Space and bucket to digest.
pub(super) const BUCKETS: TableDefinition<'static, Bytes, Bytes> = TableDefinition::new("buckets");
/// Place, zero, revision to a flag and the value.
pub(super) const PAST: TableDefinition<'static, Bytes, Bytes> = TableDefinition::new("history");
/// Revision and place: what a revision changed.
pub(super) const EDITS: TableDefinition<'static, Bytes, ()> = TableDefinition::new("edits");
/// Kind, zero, id to version and value.
pub(super) const RECORDS: TableDefinition<'static, Bytes, Bytes> = TableDefinition::new("records");

/// The schema that this release writes.
pub(super) const SCHEMA: u64 = 1;

/// Every error of redb, without the file's content.
pub(super) fn failed(error: impl Into<redb::Error>) -> Error {
    match error.into() {
        redb::Error::Corrupted(what) => Error::corrupt(format!("the store's file: {what}: restore a backup")),
        // Before the commit itself nothing is written that counts.
        fault @ (redb::Error::Io(_) | redb::Error::PreviousIo) => {
            Error::Unavailable { what: fault.to_string(), applied: Applied::No }
        }
        other => Error::backend(other.to_string()),
    }
}

/// An error of a commit itself, for example of the disk: what was written may be there when the file is opened again.
pub(super) fn open_outcome(error: redb::CommitError) -> Error {
    let what = match failed(error) {
        Error::Unavailable { what, .. } => what,
        other => other.to_string(),
    };
    Error::Unavailable { what, applied: Applied::Maybe }
}

pub(super) fn place(place: &Place) -> Vec<u8> {
    [&[place.space.number()], place.key.as_bytes()].concat()
}

pub(super) fn to_place(bytes: &[u8]) -> Result<Place> {
    let (space, key) = bytes.split_first().ok_or_else(|| Error::corrupt("an empty key"))?;
    let space = Space::from_number(*space).ok_or_else(|| Error::corrupt("an unknown space"))?;
    Ok(Place { space, key: Key::from_bytes(key)? })
}

pub(super) fn past(at: &Place, revision: Revision) -> Vec<u8> {
    [place(at).as_slice(), &[0], &revision.0.to_be_bytes()].concat()
}

pub(super) fn to_past(bytes: &[u8]) -> Result<(Place, Revision)> {
    let (rest, revision) = bytes.split_last_chunk::<8>().ok_or_else(|| Error::corrupt("a short key"))?;
    let (_, at) = rest.split_last().ok_or_else(|| Error::corrupt("a short key"))?;
    Ok((to_place(at)?, Revision(u64::from_be_bytes(*revision))))
}

pub(super) fn past_value(value: Option<&Json>) -> Vec<u8> {
    value.map_or_else(|| vec![0], |json| [&[1], json.as_bytes()].concat())
}

pub(super) fn to_past_value(bytes: &[u8]) -> Result<Option<Json>> {
    match bytes.split_first() {
        Some((0, [])) => Ok(None),
        Some((1, value)) => Json::stored(value.to_vec()).map(Some),
        _ => Err(Error::corrupt("a history row that cannot be read")),
    }
}

pub(super) fn edit(revision: Revision, at: &Place) -> Vec<u8> {
    [revision.0.to_be_bytes().as_slice(), &place(at)].concat()
}

pub(super) fn to_edit(bytes: &[u8]) -> Result<(Revision, Place)> {
    let (revision, at) = bytes.split_first_chunk::<8>().ok_or_else(|| Error::corrupt("a short key"))?;
    Ok((Revision(u64::from_be_bytes(*revision)), to_place(at)?))
}

pub(super) fn bucket(space: Space, bucket: u16) -> Vec<u8> {
    [[space.number()].as_slice(), &bucket.to_be_bytes()].concat()
}

pub(super) fn leaf(space: Space, number: u16, key: &Key) -> Vec<u8> {
    [bucket(space, number).as_slice(), key.as_bytes()].concat()
}

/// A number and a value: of a resource its revision, of a record its version.
pub(super) fn numbered(number: u64, value: &Json) -> Vec<u8> {
    [number.to_be_bytes().as_slice(), value.as_bytes()].concat()
}

pub(super) fn to_numbered(bytes: &[u8]) -> Result<(u64, Json)> {
    let (number, value) = bytes.split_first_chunk::<8>().ok_or_else(|| Error::corrupt("a row that cannot be read"))?;
    Ok((u64::from_be_bytes(*number), Json::stored(value.to_vec())?))
}

pub(super) fn state(meta: &impl ReadableTable<&'static str, Bytes>) -> Result<State> {
    let row = meta.get("state").map_err(failed)?;
    stored::state(row.ok_or_else(|| Error::corrupt("the store's state is missing"))?.value())
}
