//! Connections that come in, over TLS or in the clear. Handshakes are made beside one another, and with what is in force when they begin: certificates
//! that are replaced need no restart, and no connection that was made before ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;

use crate::auth::{Pem, Renewed, ServerTls};
use crate::error::WireError;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes at once, and connections that wait to be served.
const AT_ONCE: usize = 256;
/// The wait after the listener failed, of too many open files perhaps.
const PAUSE: Duration = Duration::from_millis(100);

impl ServerTls {
    /// Whether connections can be taken with it.
    ///
    /// # Errors
    /// What is wrong with a certificate or a key, without showing it.
    pub fn check(&self) -> Result<(), WireError> {
        self.acceptor().map(drop)
    }

    fn acceptor(&self) -> Result<TlsAcceptor, WireError> {
        let unusable = |e: &dyn std::fmt::Display| WireError::Certificates(e.to_string());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| unusable(&e))?;
        let builder = match &self.clients {
            None => builder.with_no_client_auth(),
            Some(authorities) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(authorities)? {
                    roots.add(authority).map_err(|e| unusable(&e))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|e| unusable(&e))?)
            }
        };
        let key = PrivateKeyDer::from_pem_slice(self.own.key.bytes())
            .map_err(|_| WireError::Certificates("the key is no private key in PEM".to_owned()))?;
        let mut config =
            builder.with_single_cert(certificates(&self.own.certificates)?, key).map_err(|e| unusable(&e))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // A session that is taken up again would outlive the authorities that it was verified by.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>, WireError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.bytes()).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(WireError::Certificates("there is no certificate in PEM, or one that cannot be read".to_owned())),
    }
}

/// Secure connections from this listener, until what is given is dropped.
///
/// # Errors
/// The certificates cannot be used.
pub(crate) fn secured(
    listener: TcpListener,
    tls: Renewed<ServerTls>,
) -> Result<ReceiverStream<io::Result<TlsStream<TcpStream>>>, WireError> {
    tls.current().check()?;
    let (give, take) = mpsc::channel(AT_ONCE);
    let room = Arc::new(Semaphore::new(AT_ONCE));
    tokio::spawn(async move {
        let listens = async {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let Ok(place) = room.clone().acquire_owned().await else { return };
                let (tls, give) = (tls.clone(), give.clone());
                tokio::spawn(async move {
                    let _place = place;
                    // Who is not let in is no fault of the listener.
                    if let Some(stream) = shake(stream, &tls).await {
                        let _ = give.send(Ok(stream)).await;
                    }
                });
            }
        };
        tokio::select! {
            () = listens => {}
            () = give.closed() => {}
        }
    });
    Ok(ReceiverStream::new(take))
}

async fn shake(stream: TcpStream, tls: &Renewed<ServerTls>) -> Option<TlsStream<TcpStream>> {
    let acceptor = tls.current().acceptor().ok()?;
    // Small messages go at once.
    stream.set_nodelay(true).ok()?;
    match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a connection was not let in");
            None
        }
        Err(_) => None,
    }
}
