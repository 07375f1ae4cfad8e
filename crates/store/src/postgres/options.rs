//! How a PostgreSQL store is reached and behaves.

use super::tls::PostgresTls;
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
    /// Whom to believe. Without it servers are reached on the loopback address and over Unix sockets only; with it over TLS only.
    pub tls: Option<PostgresTls>,
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
            tls: None,
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
        let mut config = parse(&self.url)?;
        match &self.tls {
            Some(_) => reachable_over_tls(&mut config)?,
            None => reachable_in_clear(&mut config)?,
        }
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

/// `sslmode=verify-full` is what TLS always is here; the library has no word for it.
fn parse(url: &str) -> Result<Config> {
    let unread = |_| Error::invalid("the store's connection string cannot be read");
    url.replace("sslmode=verify-full", "sslmode=require").parse().map_err(unread)
}

/// Without certificates passwords and content would cross a network in the clear.
fn reachable_in_clear(config: &mut Config) -> Result<()> {
    if config.get_ssl_mode() == SslMode::Require {
        return Err(Error::invalid(
            "the store's connection asks for TLS; say in store.tls.authorities who signs the server's certificate",
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
        config.ssl_mode(SslMode::Disable);
        return Ok(());
    }
    Err(Error::invalid(
        "the store's host must be on the loopback address or a Unix socket, or be reached over TLS: say in store.tls.authorities \
         who signs the server's certificate",
    ))
}

/// Never in the clear, whatever the server says, and never without a name to compare with the certificate.
fn reachable_over_tls(config: &mut Config) -> Result<()> {
    if config.get_ssl_mode() == SslMode::Disable {
        return Err(Error::invalid("the store's connection says sslmode=disable, but store.tls asks for TLS"));
    }
    let hosts = config.get_hosts();
    if hosts.is_empty() || !hosts.iter().all(|host| matches!(host, Host::Tcp(_))) {
        return Err(Error::invalid(
            "with store.tls each host of the store is a name or an address; a Unix socket has no TLS",
        ));
    }
    config.ssl_mode(SslMode::Require);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority() -> Vec<u8> {
        rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).unwrap().cert.pem().into_bytes()
    }

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
            "postgres://u@localhost/d?sslmode=verify-full",
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
    fn with_tls_nothing_is_reached_in_the_clear() {
        let options = |url: &str| {
            let tls = Some(PostgresTls::new(&authority(), None).unwrap());
            PostgresOptions { tls, ..PostgresOptions::new(url) }
        };
        for url in [
            "postgres://u@db.example/d",
            "postgres://u@db.example/d?sslmode=verify-full",
            "postgres://u@10.0.0.1/d?sslmode=prefer",
            "host=db.example hostaddr=10.0.0.1 user=u sslmode=require",
            "host=127.0.0.1 user=u",
        ] {
            let config = options(url).config().unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(config.get_ssl_mode(), SslMode::Require, "{url}");
        }
        for url in [
            "postgres://u@db.example/d?sslmode=disable",
            "postgres://u@db.example/d?sslmode=verify-ca",
            "host=/run/postgresql user=u",
            "host=db.example,/run/postgresql user=u",
            "hostaddr=10.0.0.1 user=u",
            "user=u",
        ] {
            assert!(options(url).config().is_err(), "{url}");
        }
        let in_clear = PostgresOptions::new("host=127.0.0.1 user=u").config().unwrap();
        assert_eq!(in_clear.get_ssl_mode(), SslMode::Disable);
        let told = PostgresOptions::new("postgres://u@db.example/d").check().unwrap_err().to_string();
        assert!(told.contains("store.tls.authorities"), "{told}");
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
