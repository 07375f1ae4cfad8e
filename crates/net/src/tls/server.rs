//! A server's certificates. They are taken anew when their files have changed; what cannot be used leaves those in force that were.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustls::crypto::aws_lc_rs;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ServerConfig, ServerConnection};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::files::{Files, Marks};
use super::peer::{Peer, validity};
use super::{TlsError, pem};

/// How long a handshake may take, from the first byte to the last.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// What a look at the files found.
#[derive(Debug)]
pub enum Looked {
    /// Nothing has changed, or the files are still changing.
    Same,
    /// They were taken.
    Taken,
    /// They cannot be used; those in force stay. Said once for each state of the files.
    Refused(TlsError),
}

/// See the module.
pub struct Certificates {
    files: Files,
    kept: Mutex<Kept>,
}

struct Kept {
    config: Arc<ServerConfig>,
    ends: u64,
    /// The state of the files that was last taken or refused.
    judged: Marks,
    /// The state at the last look. Two equal looks are needed: certificate and key are replaced one after the other.
    seen: Marks,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// They cannot be used.
    pub fn open(files: Files) -> Result<Self, TlsError> {
        let marks = files.marks();
        let (config, ends) = read(&files)?;
        let kept = Kept { config: Arc::new(config), ends, judged: marks, seen: marks };
        Ok(Self { files, kept: Mutex::new(kept) })
    }

    /// Looks at the files, and takes them if they have changed. Blocks for as long as small files are read.
    pub fn look(&self) -> Looked {
        let marks = self.files.marks();
        {
            let mut kept = self.kept.lock();
            let settled = kept.seen == marks;
            kept.seen = marks;
            if !settled || kept.judged == marks {
                return Looked::Same;
            }
            kept.judged = marks;
        }
        match read(&self.files) {
            Ok((config, ends)) => {
                let mut kept = self.kept.lock();
                (kept.config, kept.ends) = (Arc::new(config), ends);
                Looked::Taken
            }
            Err(error) => Looked::Refused(error),
        }
    }

    /// When the own certificate ends, in seconds since 1970.
    #[must_use]
    pub fn ends(&self) -> u64 {
        self.kept.lock().ends
    }

    /// Makes a connection secure; tells who the client is, if it has a certificate. Connections that were made before stay as they were made.
    ///
    /// # Errors
    /// The client speaks no TLS, does not believe us, is not believed, or takes too long.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<(TlsStream<TcpStream>, Option<Peer>)> {
        let acceptor = TlsAcceptor::from(self.kept.lock().config.clone());
        let late = || Err(io::Error::new(io::ErrorKind::TimedOut, "no handshake in time"));
        let stream = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await.unwrap_or_else(|_| late())?;
        let peer = peer(stream.get_ref().1)?;
        Ok((stream, peer))
    }
}

fn peer(connection: &ServerConnection) -> io::Result<Option<Peer>> {
    let Some(own) = connection.peer_certificates().and_then(|chain| chain.first()) else { return Ok(None) };
    Peer::read(own).map(Some).ok_or_else(|| io::Error::other("the client's certificate cannot be read"))
}

fn read(files: &Files) -> Result<(ServerConfig, u64), TlsError> {
    let unusable = |e: &dyn fmt::Display| TlsError::Unusable(files.certificates.clone(), e.to_string());
    let chain = pem::certificates(&files.certificates)?;
    let (begins, ends) = chain.first().and_then(validity).ok_or_else(|| unusable(&"the certificate cannot be read"))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if now >= ends {
        return Err(TlsError::NotNow(files.certificates.clone(), "until a time that is over"));
    }
    if now < begins {
        return Err(TlsError::NotNow(files.certificates.clone(), "from a time that has not come"));
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| unusable(&e))?;
    let builder = match &files.clients {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let roots = Arc::new(pem::roots(file)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier = if files.required { verifier } else { verifier.allow_unauthenticated() };
            builder.with_client_cert_verifier(
                verifier.build().map_err(|e| TlsError::Unusable(file.clone(), e.to_string()))?,
            )
        }
    };
    // A certificate and a key that do not belong together are refused here.
    let mut config = builder.with_single_cert(chain, pem::key(&files.key)?).map_err(|e| unusable(&e))?;
    let h2 = files.h2.then(|| b"h2".to_vec());
    config.alpn_protocols = h2.into_iter().chain([b"http/1.1".to_vec()]).collect();
    // Every connection is verified anew: a session that is taken up again would outlive the authorities that it was verified by.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok((config, ends))
}
