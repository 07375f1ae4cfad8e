//! Who may speak: shared secrets, and certificates.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tonic::Status;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::error::WireError;

const HEADER: &str = "authorization";
const SCHEME: &str = "Bearer ";
/// A shorter secret can be guessed.
const MIN_SECRET_BYTES: usize = 16;

/// A secret that both roles know. Never shown.
#[derive(Clone)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Visible ASCII characters, 16 at least.
    ///
    /// # Errors
    /// What is wrong with it, without showing it.
    pub fn new(text: &str) -> Result<Self, BadSecret> {
        let visible = text.bytes().all(|b| b.is_ascii_graphic());
        if text.len() < MIN_SECRET_BYTES || !visible { Err(BadSecret) } else { Ok(Self(text.into())) }
    }

    pub(crate) fn header(&self) -> Option<MetadataValue<Ascii>> {
        let mut value: MetadataValue<Ascii> = format!("{SCHEME}{}", self.0).parse().ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Takes the same time whatever was offered: digests are compared, each in constant time.
    fn opens(&self, offered: blake3::Hash) -> bool {
        blake3::hash(self.0.as_bytes()) == offered
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A text that is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a secret is {MIN_SECRET_BYTES} or more visible ASCII characters")]
pub struct BadSecret;

/// Adds the secret to what a gateway asks.
pub(crate) fn sign(secret: Option<&Secret>, metadata: &mut MetadataMap) {
    if let Some(value) = secret.and_then(Secret::header) {
        metadata.insert(HEADER, value);
    }
}

/// Whether what was asked has one of the secrets, if there are any.
pub(crate) fn check(secrets: &[Secret], metadata: &MetadataMap) -> Result<(), Status> {
    if secrets.is_empty() {
        return Ok(());
    }
    let offered = metadata.get(HEADER).and_then(|value| value.to_str().ok());
    let offered = offered.and_then(|text| text.strip_prefix(SCHEME)).unwrap_or_default();
    let offered = blake3::hash(offered.as_bytes());
    // All are looked at: which of them it is cannot be told from the time.
    let opened = secrets.iter().fold(false, |opened, secret| secret.opens(offered) | opened);
    if opened { Ok(()) } else { Err(Status::unauthenticated("the shared secret is not the right one")) }
}

/// Certificates and keys in PEM. Only the length is shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem(Arc<[u8]>);

impl Pem {
    /// The content of a file.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pem({} bytes)", self.0.len())
    }
}

/// A certificate chain and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// The chain, the own certificate first.
    pub certificates: Pem,
    /// Its private key.
    pub key: Pem,
}

/// TLS of a control plane, or of a gateway to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// Its own.
    pub own: Own,
    /// Who signs the certificates of gateways. With it, a gateway without one is refused.
    pub clients: Option<Pem>,
}

/// TLS of a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTls {
    /// Who signs the certificates of control planes. There is no list that is built in.
    pub servers: Pem,
    /// Its own, if control planes ask for one.
    pub own: Option<Own>,
    /// The name in the control planes' certificates, if it is not the host of the URL.
    pub server_name: Option<String>,
}

/// What is read anew when its files change: connections that are made from then on are made with it. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Renewed<T>(Arc<Mutex<(u64, T)>>);

impl<T: Clone> Renewed<T> {
    /// Another one is in force.
    pub fn replace(&self, by: T) {
        let mut now = self.0.lock();
        *now = (now.0 + 1, by);
    }

    /// What is in force.
    #[must_use]
    pub fn current(&self) -> T {
        self.0.lock().1.clone()
    }

    /// Another number with each that is in force.
    pub(crate) fn number(&self) -> u64 {
        self.0.lock().0
    }
}

impl<T> From<T> for Renewed<T> {
    fn from(first: T) -> Self {
        Self(Arc::new(Mutex::new((0, first))))
    }
}

impl Own {
    fn identity(&self) -> Identity {
        Identity::from_pem(&*self.certificates.0, &*self.key.0)
    }
}

impl Pem {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl ClientTls {
    /// Whether connections can be made with it.
    ///
    /// # Errors
    /// What is wrong with a certificate or a key, without showing it.
    pub fn check(&self) -> Result<(), WireError> {
        Endpoint::from_static("https://127.0.0.1").tls_config(self.config()).map(drop).map_err(WireError::Tls)
    }

    pub(crate) fn config(&self) -> ClientTlsConfig {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&*self.servers.0));
        if let Some(own) = &self.own {
            config = config.identity(own.identity());
        }
        match &self.server_name {
            Some(name) => config.domain_name(name.clone()),
            None => config,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_the_secrets_opens_and_nothing_else_does() {
        let secrets = ["the old secret of the fleet", "the new secret of the fleet"]
            .map(|text| Secret::new(&text.replace(' ', "-")).unwrap());
        let ask = |text: Option<&str>| {
            let mut metadata = MetadataMap::new();
            if let Some(text) = text {
                metadata.insert(HEADER, text.parse().unwrap());
            }
            check(&secrets, &metadata).is_ok()
        };
        assert!(ask(Some("Bearer the-old-secret-of-the-fleet")) && ask(Some("Bearer the-new-secret-of-the-fleet")));
        for wrong in [None, Some(""), Some("Bearer "), Some("the-old-secret-of-the-fleet"), Some("Bearer the-old")] {
            assert!(!ask(wrong), "{wrong:?}");
        }
        assert!(check(&[], &MetadataMap::new()).is_ok());
        assert_eq!(format!("{:?}", secrets[0]), "Secret(..)");
        assert!(Secret::new("short").is_err() && Secret::new("with a space in it, but long").is_err());
    }
}
