//! TLS to PostgreSQL: always as `sslmode=verify-full` has it. The server's certificate is signed by who is believed, is in its time, and names the
//! host of the connection. There is no list of authorities that is built in, and no way to look at less.

use crate::error::{Error, Result};
use parking_lot::Mutex;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

/// Whom to believe, and the own certificate if the server asks for one. All clones are one: what replaces it holds for every connection that is made
/// from then on.
#[derive(Clone)]
pub struct PostgresTls(Arc<Mutex<Arc<ClientConfig>>>);

impl fmt::Debug for PostgresTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresTls(..)")
    }
}

impl PostgresTls {
    /// `authorities` are certificates in PEM; `own` is a chain, the own certificate first, and its private key.
    ///
    /// # Errors
    /// [`Error::Invalid`], in words that show no part of a key.
    pub fn new(authorities: &[u8], own: Option<(&[u8], &[u8])>) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for authority in certificates(authorities, "the authorities of the store")? {
            roots.add(authority).map_err(|e| Error::invalid(format!("an authority of the store: {e}")))?;
        }
        let wrong = |e: rustls::Error| Error::invalid(format!("TLS to the store: {e}"));
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .with_root_certificates(roots);
        let config = match own {
            Some((chain, key)) => {
                let chain = certificates(chain, "the own certificate for the store")?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
                    Error::invalid("the key of the own certificate for the store is no private key in PEM")
                })?;
                builder.with_client_auth_cert(chain, key).map_err(wrong)?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Self(Arc::new(Mutex::new(Arc::new(config)))))
    }

    /// From now on as the other one says. Connections that were made before stay as they were made.
    pub fn replace(&self, by: &Self) {
        let config = by.0.lock().clone();
        *self.0.lock() = config;
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(Error::invalid(format!("{what}: there is no certificate in PEM, or one that cannot be read"))),
    }
}

/// Makes connections secure that are to be; without certificates it is never asked to.
#[derive(Clone, Debug)]
pub(super) struct Maker(pub(super) Option<PostgresTls>);

/// For one connection to this host.
pub(super) struct Connect {
    tls: Option<PostgresTls>,
    host: Box<str>,
}

/// A secure connection.
pub(super) struct Stream(client::TlsStream<Socket>);

impl MakeTlsConnect<Socket> for Maker {
    type Stream = Stream;
    type TlsConnect = Connect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Connect> {
        Ok(Connect { tls: self.0.clone(), host: host.into() })
    }
}

impl TlsConnect<Socket> for Connect {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let PostgresTls(tls) = self.tls.ok_or_else(|| io::Error::other("there are no certificates"))?;
            let config = tls.lock().clone();
            let name = ServerName::try_from(self.host.into_string())
                .map_err(|_| io::Error::other("the host is no name that a certificate could have"))?;
            TlsConnector::from(config).connect(name, socket).await.map(Stream)
        })
    }
}

impl TlsStream for Stream {
    /// None: the server is known by its certificate's name already.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::generate_simple_self_signed;

    #[test]
    fn what_is_no_certificate_or_no_key_is_refused_without_showing_it() {
        let signed = generate_simple_self_signed(vec!["db.example".to_owned()]).unwrap();
        let other = generate_simple_self_signed(vec!["other.example".to_owned()]).unwrap();
        let (pem, key) = (signed.cert.pem(), signed.signing_key.serialize_pem());
        let (pem, key) = (pem.as_bytes(), key.as_bytes());
        let foreign = other.signing_key.serialize_pem();
        assert!(PostgresTls::new(pem, None).is_ok() && PostgresTls::new(pem, Some((pem, key))).is_ok());
        for (authorities, own) in [
            (&b""[..], None),
            (b"rubbish", None),
            (key, None),
            (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", None),
            (pem, Some((pem, &b"rubbish"[..]))),
            (pem, Some((&b""[..], key))),
            (pem, Some((pem, foreign.as_bytes()))),
        ] {
            let told = PostgresTls::new(authorities, own).unwrap_err().to_string();
            assert!(!told.contains("BEGIN") && !told.contains("rubbish"), "{told}");
        }
    }
}
