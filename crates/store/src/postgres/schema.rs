//! The tables, and bringing them up to this release's schema.

use super::fault::Fault;
use super::options::PostgresOptions;
use super::pool::Attempt;
use crate::error::Error;
use crate::seal::State;
use crate::stored;

/// The schema that this release writes.
const SCHEMA: i64 = 1;

/// Texts are compared byte by byte (`COLLATE "C"`), as in the other backend and in digests. Values are bytes: `jsonb` would not keep them.
const CREATE: &str = r#"
CREATE TABLE meta (one bool PRIMARY KEY DEFAULT true CHECK (one), schema int8 NOT NULL, state text NOT NULL);
CREATE TABLE header (revision int8 PRIMARY KEY, header text NOT NULL);
CREATE TABLE resource (
  space int2 NOT NULL, kind text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
  bucket int2 NOT NULL, revision int8 NOT NULL, leaf bytea NOT NULL, value bytea NOT NULL,
  PRIMARY KEY (space, kind, name));
CREATE INDEX resource_bucket ON resource (space, bucket);
CREATE TABLE history (
  space int2 NOT NULL, kind text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL,
  revision int8 NOT NULL, value bytea,
  PRIMARY KEY (space, kind, name, revision));
CREATE INDEX history_revision ON history (revision, space, kind, name);
CREATE TABLE bucket (space int2 NOT NULL, bucket int2 NOT NULL, digest bytea NOT NULL, PRIMARY KEY (space, bucket));
CREATE TABLE record (
  kind text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL, version int8 NOT NULL, value bytea NOT NULL,
  PRIMARY KEY (kind, id));
"#;

/// Makes the tables or checks that they are known, in one transaction. Of several processes one does it and the others wait.
pub(super) async fn migrate(attempt: Attempt, options: &PostgresOptions) -> Result<(), Fault> {
    let client = &*attempt.client;
    let (schema, timeout) = (&options.schema, attempt.timeout_ms);
    client.batch_execute(&format!("BEGIN; SET LOCAL statement_timeout = {timeout}")).await?;
    client.query("SELECT pg_advisory_xact_lock($1)", &[&options.lock(1)]).await?;
    let encoding: String = client.query_one("SELECT current_setting('server_encoding')", &[]).await?.get(0);
    if encoding != "UTF8" {
        return Err(Error::backend(format!("the database's encoding is {encoding}; the store needs UTF8")).into());
    }
    let there = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&format!("{schema}.meta")]).await?;
    if !there.get::<_, bool>(0) {
        client.batch_execute(&format!("CREATE SCHEMA IF NOT EXISTS {schema}; {CREATE}")).await?;
        let state = stored::state_text(&State::default())?;
        client.execute("INSERT INTO meta (schema, state) VALUES ($1, $2)", &[&SCHEMA, &state]).await?;
        attempt.phase.committing();
        return Ok(client.batch_execute("COMMIT").await?);
    }
    let found = client.query_opt("SELECT schema FROM meta", &[]).await?;
    let found: i64 = found.ok_or_else(|| Error::corrupt("the store's state is missing"))?.get(0);
    if found > SCHEMA {
        let (found, known) = (found.unsigned_abs(), SCHEMA.unsigned_abs());
        return Err(Error::NewerSchema { found, known }.into());
    }
    if found < SCHEMA {
        return Err(Error::corrupt("the store's schema has no known number").into());
    }
    Ok(client.batch_execute("ROLLBACK").await?)
}
