//! Whom a client believes, and who it is.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::stream::Secured;
use super::{TlsError, pem};

/// See the module.
#[derive(Clone)]
pub struct Client(Arc<ClientConfig>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client(..)")
    }
}

impl Client {
    /// Believes servers whose certificates these authorities sign, and shows its own certificate (chain and key) to those that ask. All files
    /// are in PEM.
    ///
    /// # Errors
    /// They cannot be used.
    pub fn new(authorities: &Path, own: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let unusable = |path: &Path, e: rustls::Error| TlsError::Unusable(path.to_owned(), e.to_string());
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable(authorities, e))?
            .with_root_certificates(pem::roots(authorities)?);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder
                .with_client_auth_cert(pem::certificates(chain)?, pem::key(key)?)
                .map_err(|e| unusable(chain, e))?,
        };
        Ok(Self(Arc::new(config)))
    }

    /// Makes a connection to this host secure.
    ///
    /// # Errors
    /// The server speaks no TLS, is not believed, or has another name.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<Secured> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| io::Error::other("the host is no name that a certificate could have"))?;
        let stream = TlsConnector::from(self.0.clone()).connect(name, stream).await?;
        Ok(Secured::Tls(Box::new(stream.into())))
    }
}
