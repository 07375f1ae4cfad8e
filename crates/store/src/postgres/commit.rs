//! Carrying out a commit in one transaction. The row of `meta` is locked first: writers follow one another.

use super::fault::Fault;
use super::options::PostgresOptions;
use super::pool::Attempt;
use super::read;
use super::rows;
use crate::digest::{Buckets, Digest};
use crate::error::Error;
use crate::key::{Key, Space};
use crate::model::{Committed, Header, Pruned, RecordWrite};
use crate::seal::{Admission, Draft, Leaves, Prepared, Sealed, State, raise_floor};
use crate::stored;
use holdfast_types::Revision;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Client;

pub(super) async fn begin(attempt: &Attempt) -> Result<State, Fault> {
    let Attempt { client, timeout_ms, idle_ms, .. } = attempt;
    let begin = format!(
        "BEGIN; SET LOCAL statement_timeout = {timeout_ms}; SET LOCAL idle_in_transaction_session_timeout = {idle_ms}"
    );
    client.batch_execute(&begin).await?;
    let row = client.query_opt("SELECT state FROM meta FOR UPDATE", &[]).await?;
    let row = row.ok_or_else(|| Error::corrupt("the store's state is missing"))?;
    Ok(stored::state(row.get::<_, &str>(0).as_bytes())?)
}

pub(super) async fn commit(
    attempt: Attempt,
    options: &PostgresOptions,
    prepared: Prepared,
) -> Result<Committed, Fault> {
    let client = &*attempt.client;
    let mut state = begin(&attempt).await?;
    if let Admission::Stale(seen) = prepared.admit(&mut state)? {
        return Err(read::conflict(client, &state.head, seen).await?.into());
    }
    let mut versions = Vec::with_capacity(prepared.records.len());
    for write in &prepared.records {
        versions.push(record(client, &mut state, write).await?);
    }
    let header = match prepared.change {
        Some(draft) => Some(change(client, &mut state, draft, prepared.term).await?),
        None => None,
    };
    if let Some(header) = &header {
        let payload = header.revision.to_string();
        client.query("SELECT pg_notify($1, $2)", &[&options.channel(), &payload]).await?;
    }
    end(&attempt, &state).await?;
    Ok(Committed { header, versions })
}

/// Raises the term by one: a new leader.
pub(super) async fn next_term(attempt: &Attempt) -> Result<u64, Fault> {
    let mut state = begin(attempt).await?;
    state.head.term += 1;
    end(attempt, &state).await?;
    Ok(state.head.term)
}

/// Takes away rows that no readable revision needs, oldest first: a deletion must not be forgotten before the value that it deleted.
pub(super) async fn prune(attempt: Attempt, floor: Revision, limit: usize, term: Option<u64>) -> Result<Pruned, Fault> {
    let client = &*attempt.client;
    let mut state = begin(&attempt).await?;
    raise_floor(&mut state, floor, term)?;
    let floor = state.head.floor;
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let headers = "DELETE FROM header WHERE revision IN \
                   (SELECT revision FROM header WHERE revision < $1 ORDER BY revision LIMIT $2)";
    let headers = client.execute(headers, &[&rows::int8(floor.0), &most]).await?;
    let past = "DELETE FROM history h USING ( \
                  SELECT space, kind, name, revision FROM history o \
                  WHERE revision <= $1 AND (value IS NULL OR EXISTS ( \
                    SELECT FROM history n WHERE n.space = o.space AND n.kind = o.kind AND n.name = o.name \
                      AND n.revision > o.revision AND n.revision <= $1)) \
                  ORDER BY revision, space, kind, name LIMIT $2) t \
                WHERE h.space = t.space AND h.kind = t.kind AND h.name = t.name AND h.revision = t.revision";
    let past = client.execute(past, &[&rows::int8(floor.0), &most]).await?;
    end(&attempt, &state).await?;
    let full = limit as u64;
    Ok(Pruned { floor, removed: headers + past, more: headers >= full || past >= full })
}

/// Writes the state and commits. From here on a lost answer leaves the outcome open.
pub(super) async fn end(attempt: &Attempt, state: &State) -> Result<(), Fault> {
    attempt.client.execute("UPDATE meta SET state = $1", &[&stored::state_text(state)?]).await?;
    attempt.phase.committing();
    Ok(attempt.client.batch_execute("COMMIT").await?)
}

async fn record(client: &Client, state: &mut State, write: &RecordWrite) -> Result<Option<u64>, Fault> {
    let (kind, id) = (&write.kind, &write.id);
    let found = client.query_opt("SELECT version FROM record WHERE kind = $1 AND id = $2", &[kind, id]).await?;
    let found = found.map(|row| rows::number(row.get(0)));
    let version = Prepared::record(state, write, found)?;
    if let (Some(version), Some(value)) = (version, &write.value) {
        let upsert = "INSERT INTO record (kind, id, version, value) VALUES ($1, $2, $3, $4) \
                      ON CONFLICT (kind, id) DO UPDATE SET version = excluded.version, value = excluded.value";
        client.execute(upsert, &[kind, id, &rows::int8(version), &value.as_bytes()]).await?;
    } else {
        client.execute("DELETE FROM record WHERE kind = $1 AND id = $2", &[kind, id]).await?;
    }
    Ok(version)
}

async fn change(client: &Client, state: &mut State, draft: Draft, term: Option<u64>) -> Result<Header, Fault> {
    let touched = draft.touched();
    let (mut leaves, mut buckets) = (Leaves::new(), BTreeMap::new());
    for (space, numbers) in &touched {
        read_leaves(client, *space, numbers, &mut leaves).await?;
        buckets.insert(*space, read_buckets(client, *space).await?);
    }
    let sealed = draft.seal(state, term, leaves, buckets);
    write(client, &sealed).await?;
    Ok(sealed.header)
}

async fn read_leaves(client: &Client, space: Space, numbers: &BTreeSet<u16>, all: &mut Leaves) -> Result<(), Fault> {
    let wanted: Vec<i16> = numbers.iter().map(|number| rows::int2(*number)).collect();
    let sql = "SELECT bucket, kind, name, leaf FROM resource WHERE space = $1 AND bucket = ANY($2)";
    for row in client.query(sql, &[&rows::space(space), &wanted]).await? {
        let bucket = u16::try_from(row.get::<_, i16>(0)).map_err(|_| Error::corrupt("an unknown bucket"))?;
        let key =
            Key::new(row.get(1), row.get(2)).map_err(|_| Error::corrupt("a key that breaks the rule for keys"))?;
        all.entry((space, bucket)).or_default().insert(key, digest(row.get(3))?);
    }
    Ok(())
}

async fn read_buckets(client: &Client, space: Space) -> Result<Buckets, Fault> {
    let mut buckets = Buckets::default();
    let rows = client.query("SELECT bucket, digest FROM bucket WHERE space = $1", &[&rows::space(space)]).await?;
    for row in rows {
        let bucket = u16::try_from(row.get::<_, i16>(0)).map_err(|_| Error::corrupt("an unknown bucket"))?;
        buckets.set(bucket, digest(row.get(1))?);
    }
    Ok(buckets)
}

fn digest(bytes: &[u8]) -> Result<Digest, Error> {
    bytes.try_into().map(Digest).map_err(|_| Error::corrupt("a digest of another length"))
}

async fn write(client: &Client, sealed: &Sealed) -> Result<(), Fault> {
    let header = &sealed.header;
    rows::put_header(client, header).await?;
    rows::put_buckets(client, &sealed.buckets).await?;
    let mut batch = rows::Batch::default();
    for row in &sealed.rows {
        let value = row.value.as_ref().map(|(json, leaf)| (json, *leaf));
        batch.push(&row.place, row.bucket, header.revision, value);
        if batch.full() {
            batch.write(client).await?;
        }
    }
    batch.write(client).await
}
