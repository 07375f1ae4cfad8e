//! How a PostgreSQL store is reached and behaves.

use crate::error::{Error, Result};
use std::fmt;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use xxhash_rust::xxh3::xxh3_64;

const MAX_SCHEMA_BYTES: usize = 40;

/// How a PostgreSQL store is reached and behaves.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The connection, as `postgres://USER:PASSWORD@HOST:PORT/DATABASE` or in key-value form. Never shown.
    pub url: String,
    /// The password, if the connection names none. Never shown.
    pub password: Option<String>,
    /// The schema that the tables are in; it is made if it is missing. Each store has its own.
    pub schema: String,
    /// The deadline of a call.
    pub deadline: Duration,
    /// The deadline of large changes, backups and restores.
    pub bulk_deadline: Duration,
    /// The time that a new connection may take; and a probe of the leader's and of the listener's connection.
    pub connect: Duration,
    /// Connections for calls. One more listens, and one is the leader's.
    pub connections: usize,
    /// Calls that may wait for a connection.
    pub queue: usize,
}

impl PostgresOptions {
    /// The defaults for a connection.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            password: None,
            schema: "holdfast".to_owned(),
            deadline: Duration::from_secs(5),
            bulk_deadline: Duration::from_secs(300),
            connect: Duration::from_secs(2),
            connections: 4,
            queue: 256,
        }
    }

    /// Whether a store could be opened with them, without trying.
    ///
    /// # Errors
    /// [`Error::Invalid`], in words that show neither connection nor password.
    pub fn check(&self) -> Result<()> {
        self.config().map(|_| ())
    }

    /// Checks the options.
    pub(super) fn config(&self) -> Result<Config> {
        let begins = self.schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
        let word = self.schema.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        if !begins || !word || self.schema.len() > MAX_SCHEMA_BYTES || self.schema.starts_with("pg_") {
            return Err(Error::invalid("the schema's name is lower-case ASCII letters, digits and '_', at most 40"));
        }
        if self.connections == 0 || self.deadline.is_zero() || self.bulk_deadline.is_zero() || self.connect.is_zero() {
            return Err(Error::invalid("connections and deadlines of the store must not be zero"));
        }
        // What the library says of a text that it cannot read may quote the text, and with it a password.
        let config: Result<Config> =
            self.url.parse().map_err(|_| Error::invalid("the store's connection string cannot be read"));
        let mut config = config?;
        reachable_in_clear(&config)?;
        if let Some(password) = &self.password {
            config.password(password);
        }
        config.application_name("holdfast").connect_timeout(self.connect).tcp_user_timeout(self.bulk_deadline);
        // Of several hosts the one that takes writes.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(config)
    }

    /// The number of the advisory lock of the leader (0) and of a migration (1).
    pub(super) fn lock(&self, purpose: u8) -> i64 {
        xxh3_64(format!("holdfast/store-lock/{purpose}/{}", self.schema).as_bytes()).cast_signed()
    }

    pub(super) fn channel(&self) -> String {
        format!("{}_head", self.schema)
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { schema, deadline, bulk_deadline, connect, connections, queue, .. } = self;
        f.debug_struct("PostgresOptions")
            .field("schema", schema)
            .field("deadline", deadline)
            .field("bulk_deadline", bulk_deadline)
            .field("connect", connect)
            .field("connections", connections)
            .field("queue", queue)
            .finish_non_exhaustive()
    }
}

/// There is no TLS here: passwords and content would cross a network in the clear.
fn reachable_in_clear(config: &Config) -> Result<()> {
    if config.get_ssl_mode() == SslMode::Require {
        return Err(Error::invalid(
            "the store's connection asks for TLS, which this release does not speak to PostgreSQL",
        ));
    }
    let local = |host: &Host| match host {
        Host::Tcp(name) => name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()),
        Host::Unix(_) => true,
    };
    let hosts = config.get_hosts();
    let addresses = config.get_hostaddrs();
    let named = !hosts.is_empty() || !addresses.is_empty();
    if named && hosts.iter().all(local) && addresses.iter().all(std::net::IpAddr::is_loopback) {
        return Ok(());
    }
    Err(Error::invalid(
        "the store's host must be on the loopback address or a Unix socket: this release has no TLS to PostgreSQL",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_accepted() {
        for url in [
            "postgres://u:p@127.0.0.1:5432/d",
            "postgres://u@localhost/d",
            "host=/run/postgresql user=u",
            "host=::1 user=u",
            "host=127.0.0.1,127.0.0.2 user=u",
        ] {
            assert!(PostgresOptions::new(url).config().is_ok(), "{url}");
        }
        for url in [
            "postgres://u:p@db.example/d",
            "host=127.0.0.1,10.0.0.1 user=u",
            "host=localhost hostaddr=10.0.0.1 user=u",
            "postgres://u@localhost/d?sslmode=require",
            "user=u",
        ] {
            assert!(PostgresOptions::new(url).config().is_err(), "{url}");
        }
        for schema in ["", "Holdfast", "a b", "a\"", "pg_x", "9a", &"a".repeat(41)] {
            let options =
                PostgresOptions { schema: schema.to_owned(), ..PostgresOptions::new("host=localhost user=u") };
            assert!(options.config().is_err(), "{schema:?}");
        }
    }

    #[test]
    fn the_password_is_never_shown() {
        for url in
            ["postgres://u:hunter2@127.0.0.1/d", "host=localhost hunter2=x", "postgres://u:hunter2@127.0.0.1:hunter2/d"]
        {
            let options = PostgresOptions::new(url);
            let shown = format!("{options:?} {:?}", options.config().map(|config| format!("{config:?}")));
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }
}
