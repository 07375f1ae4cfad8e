//! How the store is reached: its address, TLS, and who one says to be.
//!
//! Passwords and certificates are read for each connection that is made, so that one that was changed holds from the next one on. No word of a secret is in
//! what is shown or logged. TLS is always as `verify-full` has it: the certificate is signed by who is believed, is in its time, and names the host.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// The first line of a file.
    File(PathBuf),
    /// An environment variable.
    Environment(Box<str>),
}

/// Whom to believe, and who to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Certificates in PEM.
    pub authorities: PathBuf,
    /// A chain and its key in PEM.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// How a store is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The user. None: the default one.
    pub user: Option<Box<str>>,
    /// Its password.
    pub password: Option<Secret>,
    /// For `rediss://`.
    pub tls: Option<Files>,
}

/// Why there is no connection, in words that show no secret.
#[derive(Debug)]
pub(crate) struct Refused(String);

impl Refused {
    /// It did not answer in time.
    pub(crate) fn late() -> Self {
        Self("it did not answer in time".to_owned())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<redis::RedisError> for Refused {
    fn from(error: redis::RedisError) -> Self {
        Self(error.to_string())
    }
}

/// A URL in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    host: String,
    port: u16,
    database: i64,
    is_secure: bool,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "rediss" } else { "redis" };
        let Self { host, port, database, .. } = self;
        if host.contains(':') {
            write!(f, "{scheme}://[{host}]:{port}/{database}")
        } else {
            write!(f, "{scheme}://{host}:{port}/{database}")
        }
    }
}

impl Address {
    /// Another node of the same cluster, as this one names it: `HOST:PORT`, where no host is this one's.
    pub(crate) fn beside(&self, place: &str) -> Option<Self> {
        let (host, port) = place.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let host = if host.is_empty() { &self.host } else { host }.to_owned();
        Some(Self { host, port: port.parse().ok()?, ..self.clone() })
    }

    /// Of `redis://HOST:PORT/DB` or `rediss://HOST:PORT/DB`.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let wrong = || "the URL of the store is none".to_owned();
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let is_secure = match scheme {
            "redis" => false,
            "rediss" => true,
            _ => return Err(wrong()),
        };
        let (place, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let database = if database.is_empty() { Ok(0) } else { database.parse() };
        let (port, database) = (port.parse().map_err(|_| wrong())?, database.map_err(|_| wrong())?);
        if host.is_empty() || host.contains('@') {
            return Err(wrong());
        }
        Ok(Self { host, port, database, is_secure })
    }
}

/// A connection with the task that drives it, which ends with it.
pub(crate) struct Live {
    pub(crate) connection: MultiplexedConnection,
    driver: tokio::task::JoinHandle<()>,
}

impl Drop for Live {
    fn drop(&mut self) {
        // Whatever is still on the connection belongs to nobody.
        self.driver.abort();
    }
}

impl Access {
    /// Connects, and says who it is.
    pub(crate) async fn connect(&self, to: &Address) -> Result<Live, Refused> {
        let mut info = RedisConnectionInfo::default().set_db(to.database);
        if let Some(user) = &self.user {
            info = info.set_username(user);
        }
        if let Some(password) = self.password().await? {
            info = info.set_password(password);
        }
        let place = (to.host.as_str(), to.port);
        let stream = TcpStream::connect(place).await.map_err(|e| Refused(format!("it cannot be reached: {e}")))?;
        stream.set_nodelay(true).map_err(|e| Refused(e.to_string()))?;
        // Each call has its own deadline, and so has this.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let (connection, driver) = if to.is_secure {
            let name = ServerName::try_from(to.host.clone()).map_err(|e| Refused(e.to_string()))?;
            let stream = TlsConnector::from(self.tls().await?).connect(name, stream).await;
            let stream = stream.map_err(|e| Refused(format!("TLS: {e}")))?;
            let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config.clone()).await?;
            (connection, tokio::spawn(driver))
        } else {
            let (connection, driver) = MultiplexedConnection::new_with_config(&info, stream, config.clone()).await?;
            (connection, tokio::spawn(driver))
        };
        Ok(Live { connection, driver })
    }

    async fn password(&self) -> Result<Option<String>, Refused> {
        let text = match &self.password {
            None => return Ok(None),
            Some(Secret::File(file)) => {
                let content = read(file).await?;
                String::from_utf8(content).map_err(|_| Refused(format!("{}: is no text", file.display())))?
            }
            Some(Secret::Environment(name)) => std::env::var(&**name)
                .map_err(|_| Refused(format!("the environment has no variable {name} with a password")))?,
        };
        let line = text.lines().next().unwrap_or_default().trim_end();
        if line.is_empty() {
            return Err(Refused("the password is empty".to_owned()));
        }
        Ok(Some(line.to_owned()))
    }

    async fn tls(&self) -> Result<Arc<ClientConfig>, Refused> {
        let files = self.tls.as_ref().ok_or_else(|| Refused("nobody is said to sign its certificate".to_owned()))?;
        let wrong = |e: rustls::Error| Refused(format!("TLS: {e}"));
        let mut roots = RootCertStore::empty();
        for authority in certificates(&files.authorities).await? {
            roots.add(authority).map_err(wrong)?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .with_root_certificates(roots);
        let config = match &files.own {
            Some((chain, key)) => {
                let content = read(key).await?;
                let secret = PrivateKeyDer::from_pem_slice(&content)
                    .map_err(|_| Refused(format!("{}: is no private key in PEM", key.display())))?;
                builder.with_client_auth_cert(certificates(chain).await?, secret).map_err(wrong)?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Arc::new(config))
    }
}

async fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Refused> {
    let content = read(file).await?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(Refused(format!("{}: there is no certificate in PEM, or one that cannot be read", file.display()))),
    }
}

async fn read(file: &Path) -> Result<Vec<u8>, Refused> {
    let path = file.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
    let wrong = |why: String| Refused(format!("{}: {why}", file.display()));
    read.map_err(|e| wrong(e.to_string()))?.map_err(|e| wrong(e.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn urls_in_their_parts() {
        let of = |host: &str, port, database, is_secure| Address { host: host.into(), port, database, is_secure };
        assert_eq!(Address::parse("redis://127.0.0.1:6379").unwrap(), of("127.0.0.1", 6379, 0, false));
        assert_eq!(Address::parse("rediss://[::1]:6380/3").unwrap(), of("::1", 6380, 3, true));
        assert_eq!(Address::parse("rediss://store.example:1/0").unwrap(), of("store.example", 1, 0, true));
        let node = Address::parse("rediss://[::1]:6380").unwrap();
        assert_eq!(Address::parse(&node.to_string()).unwrap(), node);
        assert_eq!(node.beside(":7000").unwrap(), of("::1", 7_000, 0, true));
        assert_eq!(node.beside("10.0.0.2:7001").unwrap(), of("10.0.0.2", 7_001, 0, true));
        assert_eq!(node.beside("[::2]:7001").unwrap(), of("::2", 7_001, 0, true));
        assert_eq!(node.beside("nowhere"), None);
        for wrong in ["http://a:1", "redis://a", "redis://:1", "redis://a:b", "redis://u:p@a:1", "redis://a:1/x"] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }
}
