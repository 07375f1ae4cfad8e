//! The document of a key set, out of a file or from a server: one connection, one request, one deadline, no redirects, a bound on its size.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use holdfast_config::{JwksSource, JwksUrl};
use holdfast_identity::{Algorithm, KeySet, Skipped};

/// The largest document.
const MOST: usize = 1 << 20;
/// Where systems keep the certificates of those whom they believe.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Fetches it.
///
/// # Errors
/// What went wrong, for a log.
///
/// # Cancel safety
/// Cancel safe: the connection is closed.
pub async fn fetch(from: &JwksSource, most: Duration) -> Result<Vec<u8>, String> {
    let fetched = async {
        match from {
            JwksSource::File(path) => file(path).await,
            JwksSource::Url(url, authorities) => from_url(url, authorities.as_deref()).await,
        }
    };
    tokio::time::timeout(most, fetched)
        .await
        .unwrap_or_else(|_| Err(format!("there is no whole answer within {most:?}")))
}

async fn file(path: &Path) -> Result<Vec<u8>, String> {
    let (shown, path) = (path.display().to_string(), path.to_owned());
    let read = tokio::task::spawn_blocking(move || read_file(&path)).await.unwrap_or_else(|e| Err(e.to_string()));
    read.map_err(|why| format!("{shown}: {why}"))
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(MOST as u64 + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() > MOST { Err(format!("it is larger than {MOST} bytes")) } else { Ok(bytes) }
}

/// Reads the key set of a file, by the rules of an issuer that is in use: for who checks a configuration. Gives the keys that would not be used.
///
/// # Errors
/// What is wrong with the file, in words that name it.
pub fn check_key_file(path: &Path, allowed: &[Algorithm]) -> Result<Vec<Skipped>, String> {
    let read = read_file(path);
    let read = read.and_then(|bytes| KeySet::read(&bytes, allowed, &Arc::default(), None).map_err(str::to_owned));
    read.map(|(_, skipped)| skipped).map_err(|why| format!("{}: {why}", path.display()))
}

async fn from_url(url: &JwksUrl, authorities: Option<&Path>) -> Result<Vec<u8>, String> {
    let connect = TcpStream::connect((&*url.host, url.port)).await;
    let stream = connect.map_err(|e| format!("cannot connect to {}: {e}", url.authority()))?;
    let _ = stream.set_nodelay(true);
    if !url.is_secure {
        return ask(stream, url).await;
    }
    let name = ServerName::try_from(url.host.to_string()).map_err(|e| format!("the host is no name for TLS: {e}"))?;
    let stream = tls(authorities).await?.connect(name, stream).await;
    ask(stream.map_err(|e| format!("TLS with {}: {e}", url.authority()))?, url).await
}

/// Whom to believe is read at each fetch: it is rare, and certificates are replaced under a running process.
async fn tls(authorities: Option<&Path>) -> Result<TlsConnector, String> {
    let system = || SYSTEM.iter().map(Path::new).find(|path| path.exists());
    let path =
        authorities.or_else(system).ok_or("the system has no list of those whom it believes; write authorities")?;
    let pem = tokio::fs::read(path).await.map_err(|e| format!("{}: {e}", path.display()))?;
    let mut roots = RootCertStore::empty();
    let (good, _) = roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    if good == 0 {
        return Err(format!("{}: there is no certificate in it", path.display()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = builder.map_err(|e| e.to_string())?.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

async fn ask(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, url: &JwksUrl) -> Result<Vec<u8>, String> {
    let broken = |e: hyper::Error| format!("{}: {e}", url.authority());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let request = Request::get(&*url.path)
        .header(header::HOST, url.authority())
        .header(header::ACCEPT, "application/json, application/jwk-set+json")
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|e| e.to_string())?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(broken)?;
        if response.status() != StatusCode::OK {
            return Err(format!("{} answered {}", url.authority(), response.status()));
        }
        let body = Limited::new(response.into_body(), MOST).collect().await;
        body.map(|body| body.to_bytes().to_vec()).map_err(|e| format!("{}: {e}", url.authority()))
    };
    let mut connection = std::pin::pin!(connection);
    let mut exchange = std::pin::pin!(exchange);
    // The connection is driven here and ends with this future.
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        ended = &mut connection => match ended {
            // What has come of the answer is read to its end.
            Ok(()) => exchange.await,
            Err(e) => Err(broken(e)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    use holdfast_testkit::TempDir;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use rustls::ServerConfig;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    const MOST: Duration = Duration::from_secs(20);

    /// A server with a certificate for `127.0.0.1`, and the file of who signed it.
    async fn server(dir: &TempDir, name: &str) -> (u16, std::path::PathBuf) {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
        let file = dir.join(name);
        std::fs::write(&file, authority.pem()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![own.der().clone()], key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let mut seen = [0; 1024];
                let _ = stream.read(&mut seen).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
                let _ = stream.shutdown().await;
            }
        });
        (port, file)
    }

    fn url(host: &str, port: u16) -> JwksUrl {
        JwksUrl { is_secure: true, host: host.into(), port, path: "/k".into() }
    }

    #[tokio::test]
    async fn a_server_is_believed_only_with_a_certificate_of_its_own_name() {
        let dir = TempDir::new();
        let ((port, good), (_, other)) = (server(&dir, "good").await, server(&dir, "other").await);
        let of = |host: &str, authorities: Option<std::path::PathBuf>| JwksSource::Url(url(host, port), authorities);
        assert_eq!(fetch(&of("127.0.0.1", Some(good.clone())), MOST).await, Ok(b"{}".to_vec()));
        for (host, authorities) in [
            ("127.0.0.1", Some(other)),
            ("127.0.0.1", None),
            ("localhost", Some(good.clone())),
            ("127.0.0.1", Some(dir.join("missing"))),
        ] {
            assert!(fetch(&of(host, authorities.clone()), MOST).await.is_err(), "{host} {authorities:?}");
        }
        let plain = JwksSource::Url(JwksUrl { is_secure: false, ..url("127.0.0.1", port) }, None);
        assert!(fetch(&plain, MOST).await.is_err());
    }

    #[tokio::test]
    async fn everything_has_a_bound() {
        let dir = TempDir::new();
        let file = dir.join("large");
        std::fs::write(&file, vec![b' '; super::MOST + 1]).unwrap();
        assert!(fetch(&JwksSource::File(file), MOST).await.is_err());
        assert!(fetch(&JwksSource::File(dir.join("none")), MOST).await.is_err());
        // Accepts and says nothing.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let begun = Instant::now();
        for is_secure in [true, false] {
            let from = JwksSource::Url(JwksUrl { is_secure, ..url("127.0.0.1", port) }, None);
            assert!(fetch(&from, Duration::from_millis(100)).await.is_err());
        }
        assert!(begun.elapsed() < MOST);
    }
}
