//! Certificates and keys from files in PEM.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;

/// The most bytes of a file.
const MOST: u64 = 1 << 20;

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |error| TlsError::Read(path.to_owned(), error);
    let mut bytes = Vec::new();
    File::open(path).map_err(failed)?.take(MOST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST { Err(TlsError::TooLarge(path.to_owned())) } else { Ok(bytes) }
}

/// All certificates of a file; one at least.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(TlsError::NoCertificate(path.to_owned())),
    }
}

/// The first private key of a file.
pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|_| TlsError::NoKey(path.to_owned()))
}

/// The certificates of a file as those who sign others.
pub(super) fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|e| TlsError::Unusable(path.to_owned(), e.to_string()))?;
    }
    Ok(roots)
}
