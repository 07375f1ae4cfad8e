//! Writing rows in batches, and numbers as PostgreSQL has them.

use super::fault::Fault;
use crate::digest::Digest;
use crate::error::Error;
use crate::json::Json;
use crate::key::{Key, Place, Space};
use crate::model::{Header, Record};
use crate::stored;
use holdfast_types::Revision;
use tokio_postgres::Client;

const BATCH_ROWS: usize = 2_000;
const BATCH_BYTES: usize = 4 * 1024 * 1024;

pub(super) fn int8(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn number(int8: i64) -> u64 {
    u64::try_from(int8).unwrap_or(0)
}

pub(super) fn int2(number: u16) -> i16 {
    i16::try_from(number).unwrap_or(i16::MAX)
}

pub(super) fn space(space: Space) -> i16 {
    i16::from(space.number())
}

pub(super) fn place(space: i16, kind: &str, name: &str) -> Result<Place, Error> {
    let space = u8::try_from(space).ok().and_then(Space::from_number);
    let space = space.ok_or_else(|| Error::corrupt("an unknown space"))?;
    let key = Key::new(kind, name).map_err(|_| Error::corrupt("a key that breaks the rule for keys"))?;
    Ok(Place { space, key })
}

pub(super) async fn put_header(client: &Client, header: &Header) -> Result<(), Fault> {
    let text = stored::header_text(header)?;
    let sql = "INSERT INTO header (revision, header) VALUES ($1, $2)";
    client.execute(sql, &[&int8(header.revision.0), &text]).await?;
    Ok(())
}

pub(super) async fn put_record(client: &Client, record: &Record) -> Result<(), Fault> {
    let sql = "INSERT INTO record (kind, id, version, value) VALUES ($1, $2, $3, $4)";
    let value = record.value.as_bytes();
    client.execute(sql, &[&record.kind, &record.id, &int8(record.version), &value]).await?;
    Ok(())
}

pub(super) async fn put_buckets(client: &Client, buckets: &[(Space, u16, Digest)]) -> Result<(), Fault> {
    let spaces: Vec<i16> = buckets.iter().map(|(of, ..)| space(*of)).collect();
    let numbers: Vec<i16> = buckets.iter().map(|(_, bucket, _)| int2(*bucket)).collect();
    let digests: Vec<&[u8]> = buckets.iter().map(|(.., digest)| digest.0.as_slice()).collect();
    let sql = "INSERT INTO bucket (space, bucket, digest) SELECT * FROM unnest($1::int2[], $2::int2[], $3::bytea[]) \
               ON CONFLICT (space, bucket) DO UPDATE SET digest = excluded.digest";
    client.execute(sql, &[&spaces, &numbers, &digests]).await?;
    Ok(())
}

/// Edits on their way into the history and into the state at the head.
#[derive(Default)]
pub(super) struct Batch {
    spaces: Vec<i16>,
    kinds: Vec<String>,
    names: Vec<String>,
    buckets: Vec<i16>,
    revisions: Vec<i64>,
    values: Vec<Option<Vec<u8>>>,
    leaves: Vec<Option<Vec<u8>>>,
    bytes: usize,
}

impl Batch {
    pub(super) fn push(&mut self, at: &Place, bucket: u16, revision: Revision, value: Option<(&Json, Digest)>) {
        self.bytes += at.key.as_bytes().len() + value.map_or(0, |(json, _)| json.as_bytes().len());
        self.spaces.push(space(at.space));
        self.kinds.push(at.key.kind().to_owned());
        self.names.push(at.key.name().to_owned());
        self.buckets.push(int2(bucket));
        self.revisions.push(int8(revision.0));
        self.values.push(value.map(|(json, _)| json.as_bytes().to_vec()));
        self.leaves.push(value.map(|(_, leaf)| leaf.0.to_vec()));
    }

    pub(super) fn full(&self) -> bool {
        self.spaces.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    /// Writes the batch and empties it. Of several rows of one place, which only a restore has, the last revision is the state at the head.
    pub(super) async fn write(&mut self, client: &Client) -> Result<(), Fault> {
        let Self { spaces, kinds, names, buckets, revisions, values, leaves, .. } = &*self;
        let past = "INSERT INTO history (space, kind, name, revision, value) \
                    SELECT * FROM unnest($1::int2[], $2::text[], $3::text[], $4::int8[], $5::bytea[])";
        client.execute(past, &[spaces, kinds, names, revisions, values]).await?;
        let gone = "DELETE FROM resource r USING unnest($1::int2[], $2::text[], $3::text[]) AS t (space, kind, name) \
                    WHERE (r.space, r.kind, r.name) = (t.space, t.kind COLLATE \"C\", t.name COLLATE \"C\")";
        if values.iter().any(Option::is_none) {
            client.execute(gone, &[spaces, kinds, names]).await?;
        }
        let now = "INSERT INTO resource (space, kind, name, bucket, revision, leaf, value) \
                   SELECT space, kind, name, bucket, revision, leaf, value FROM ( \
                     SELECT DISTINCT ON (space, kind, name) * \
                     FROM unnest($1::int2[], $2::text[], $3::text[], $4::int2[], $5::int8[], $6::bytea[], $7::bytea[]) \
                       AS t (space, kind, name, bucket, revision, leaf, value) \
                     ORDER BY space, kind, name, revision DESC) t \
                   WHERE value IS NOT NULL \
                   ON CONFLICT (space, kind, name) DO UPDATE \
                   SET revision = excluded.revision, leaf = excluded.leaf, value = excluded.value";
        client.execute(now, &[spaces, kinds, names, buckets, revisions, leaves, values]).await?;
        *self = Self::default();
        Ok(())
    }
}
