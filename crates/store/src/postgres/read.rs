//! Reads: those of several statements in one snapshot of the database.

use super::fault::Fault;
use super::pool::Attempt;
use super::rows::{self, int8, number};
use crate::error::{Conflict, Error};
use crate::json::Json;
use crate::key::{Key, Place, Space};
use crate::limits::MAX_CONFLICT_ROWS;
use crate::model::{Difference, Edit, Head, Header, Page, Record, Resource};
use crate::seal::State;
use crate::stored;
use holdfast_types::Revision;
use tokio_postgres::{Client, Row};

/// The last row of a place at or before a revision.
const LAST: &str = "SELECT revision, value FROM history \
                    WHERE space = $1 AND kind = $2 AND name = $3 AND revision <= $4 ORDER BY revision DESC LIMIT 1";

pub(super) async fn state(client: &Client) -> Result<State, Fault> {
    let row = client.query_opt("SELECT state FROM meta", &[]).await?;
    let row = row.ok_or_else(|| Error::corrupt("the store's state is missing"))?;
    Ok(stored::state(row.get::<_, &str>(0).as_bytes())?)
}

pub(super) async fn head(attempt: Attempt) -> Result<Head, Fault> {
    Ok(state(&attempt.client).await?.head)
}

/// One snapshot for several statements, and the head in it.
pub(super) async fn snapshot(attempt: &Attempt) -> Result<State, Fault> {
    let Attempt { client, timeout_ms, idle_ms, .. } = attempt;
    let begin = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {timeout_ms}; \
         SET LOCAL idle_in_transaction_session_timeout = {idle_ms}"
    );
    client.batch_execute(&begin).await?;
    state(client).await
}

pub(super) async fn done<T>(client: &Client, value: T) -> Result<T, Fault> {
    client.batch_execute("COMMIT").await?;
    Ok(value)
}

fn revision(row: &Row, column: usize) -> Revision {
    Revision(number(row.get(column)))
}

fn json(row: &Row, column: usize) -> Result<Option<Json>, Error> {
    row.get::<_, Option<Vec<u8>>>(column).map(Json::stored).transpose()
}

fn headers(rows: &[Row]) -> Result<Vec<Header>, Error> {
    rows.iter().map(|row| stored::header(row.get::<_, &str>(0).as_bytes())).collect()
}

/// One row more than a page has tells whether more follow.
fn more(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1)
}

/// The cursor of a space and a key, or the place before all.
fn cursor(after: Option<&Place>) -> (i16, &str, &str) {
    after.map_or((-1, "", ""), |place| (rows::space(place.space), place.key.kind(), place.key.name()))
}

pub(super) async fn read(
    attempt: Attempt,
    space: Space,
    at: Option<Revision>,
    after: Option<Key>,
    limit: usize,
) -> Result<Page<Resource, Key>, Fault> {
    let client = &*attempt.client;
    let head = snapshot(&attempt).await?.head;
    let at = head.readable(at)?;
    let (kind, name) = after.as_ref().map_or(("", ""), |key| (key.kind(), key.name()));
    let found = if at == head.revision {
        let sql = "SELECT kind, name, revision, value FROM resource \
                   WHERE space = $1 AND (kind, name) > ($2, $3) ORDER BY kind, name LIMIT $4";
        client.query(sql, &[&rows::space(space), &kind, &name, &more(limit)]).await?
    } else {
        let sql = "SELECT DISTINCT ON (kind, name) kind, name, revision, value FROM history \
                   WHERE space = $1 AND (kind, name) > ($2, $3) AND revision <= $4 \
                   ORDER BY kind, name, revision DESC LIMIT $5";
        client.query(sql, &[&rows::space(space), &kind, &name, &int8(at.0), &more(limit)]).await?
    };
    let mut items = Vec::new();
    let mut next = None;
    for row in found.iter().take(limit) {
        let key = rows::place(rows::space(space), row.get(0), row.get(1))?.key;
        if let Some(value) = json(row, 3)? {
            items.push(Resource { key: key.clone(), revision: revision(row, 2), value });
        }
        next = Some(key);
    }
    let next = next.filter(|_| found.len() > limit);
    done(client, Page { revision: at, items, next }).await
}

pub(super) async fn get(attempt: Attempt, place: &Place, at: Option<Revision>) -> Result<Option<Resource>, Fault> {
    let client = &*attempt.client;
    let at = snapshot(&attempt).await?.head.readable(at)?;
    let (space, kind, name) = cursor(Some(place));
    let found = client.query_opt(LAST, &[&space, &kind, &name, &int8(at.0)]).await?;
    let mut resource = None;
    if let Some(row) = &found {
        resource = json(row, 1)?.map(|value| Resource { key: place.key.clone(), revision: revision(row, 0), value });
    }
    done(client, resource).await
}

pub(super) async fn edits(
    attempt: Attempt,
    at: Revision,
    after: Option<&Place>,
    limit: usize,
) -> Result<Page<Edit, Place>, Fault> {
    let client = &*attempt.client;
    snapshot(&attempt).await?.head.has_edits(at)?;
    let (space, kind, name) = cursor(after);
    let sql = "SELECT space, kind, name, value FROM history \
               WHERE revision = $1 AND (space, kind, name) > ($2, $3, $4) ORDER BY space, kind, name LIMIT $5";
    let found = client.query(sql, &[&int8(at.0), &space, &kind, &name, &more(limit)]).await?;
    let mut items = Vec::new();
    for row in found.iter().take(limit) {
        items.push(Edit { place: rows::place(row.get(0), row.get(1), row.get(2))?, value: json(row, 3)? });
    }
    let next = items.last().map(|edit| edit.place.clone()).filter(|_| found.len() > limit);
    done(client, Page { revision: at, items, next }).await
}

pub(super) async fn history(attempt: Attempt, before: Option<Revision>, limit: usize) -> Result<Vec<Header>, Fault> {
    let before = before.map_or(i64::MAX, |revision| int8(revision.0));
    let sql = "SELECT header FROM header WHERE revision < $1 ORDER BY revision DESC LIMIT $2";
    let found = attempt.client.query(sql, &[&before, &i64::try_from(limit).unwrap_or(i64::MAX)]).await?;
    Ok(headers(&found)?)
}

pub(super) async fn diff(
    attempt: Attempt,
    (from, to): (Revision, Revision),
    after: Option<&Place>,
    limit: usize,
) -> Result<Page<Difference, Place>, Fault> {
    let client = &*attempt.client;
    let head = snapshot(&attempt).await?.head;
    head.readable(Some(from))?;
    head.readable(Some(to))?;
    let (space, kind, name) = cursor(after);
    let sql = "SELECT t.space, t.kind, t.name, \
        (SELECT value FROM history h WHERE h.space = t.space AND h.kind = t.kind AND h.name = t.name \
           AND h.revision <= $3 ORDER BY h.revision DESC LIMIT 1), \
        (SELECT value FROM history h WHERE h.space = t.space AND h.kind = t.kind AND h.name = t.name \
           AND h.revision <= $4 ORDER BY h.revision DESC LIMIT 1) \
        FROM (SELECT DISTINCT space, kind, name FROM history \
              WHERE revision > $1 AND revision <= $2 AND (space, kind, name) > ($5, $6, $7) \
              ORDER BY space, kind, name LIMIT $8) t ORDER BY 1, 2, 3";
    let (low, high) = (int8(from.min(to).0), int8(from.max(to).0));
    let (first, second) = (int8(from.0), int8(to.0));
    let found = client.query(sql, &[&low, &high, &first, &second, &space, &kind, &name, &more(limit)]).await?;
    let (mut items, mut next) = (Vec::new(), None);
    for row in found.iter().take(limit) {
        let place = rows::place(row.get(0), row.get(1), row.get(2))?;
        let (before, after) = (json(row, 3)?, json(row, 4)?);
        if before != after {
            items.push(Difference { place: place.clone(), before, after });
        }
        next = Some(place);
    }
    let next = next.filter(|_| found.len() > limit);
    done(client, Page { revision: to, items, next }).await
}

fn to_record(row: &Row) -> Result<Record, Error> {
    let value = Json::stored(row.get(3))?;
    Ok(Record { kind: row.get(0), id: row.get(1), version: number(row.get(2)), value })
}

pub(super) async fn record(attempt: Attempt, kind: &str, id: &str) -> Result<Option<Record>, Fault> {
    Key::new(kind, id)?;
    let sql = "SELECT kind, id, version, value FROM record WHERE kind = $1 AND id = $2";
    let found = attempt.client.query_opt(sql, &[&kind, &id]).await?;
    Ok(found.as_ref().map(to_record).transpose()?)
}

pub(super) async fn records(
    attempt: Attempt,
    kind: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Record>, Fault> {
    let sql = "SELECT kind, id, version, value FROM record WHERE kind = $1 AND id > $2 ORDER BY id LIMIT $3";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let found = attempt.client.query(sql, &[&kind, &after.unwrap_or_default(), &limit]).await?;
    Ok(found.iter().map(to_record).collect::<Result<_, _>>()?)
}

/// The conflict of an author who saw `seen`.
pub(super) async fn conflict(client: &Client, head: &Head, seen: Revision) -> Result<Error, Fault> {
    let limit = more(MAX_CONFLICT_ROWS);
    let sql = "SELECT header FROM header WHERE revision > $1 ORDER BY revision LIMIT $2";
    let mut since = headers(&client.query(sql, &[&int8(seen.0), &limit]).await?)?;
    let sql = "SELECT space, kind, name, revision FROM history WHERE revision > $1 \
               ORDER BY revision, space, kind, name LIMIT $2";
    let mut places = Vec::new();
    for row in client.query(sql, &[&int8(seen.0), &limit]).await? {
        places.push((revision(&row, 3), rows::place(row.get(0), row.get(1), row.get(2))?));
    }
    let more = since.len() > MAX_CONFLICT_ROWS || places.len() > MAX_CONFLICT_ROWS || seen < head.floor;
    since.truncate(MAX_CONFLICT_ROWS);
    places.truncate(MAX_CONFLICT_ROWS);
    let conflict = Conflict { seen, head: head.revision, desired: head.desired, since, places, more };
    Ok(Error::Conflict(Box::new(conflict)))
}
