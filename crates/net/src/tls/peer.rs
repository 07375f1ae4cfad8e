//! Who a client's certificate says it is.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The most names that are looked at: of whom nobody has more.
const MOST: usize = 64;

/// The names of a client whose certificate was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Each with its kind: `cn` for the common name; `dns`, `uri`, `email` for alternative names. DNS names are in lower case.
    pub names: Vec<(&'static str, Box<str>)>,
    /// When the certificate ends, in seconds since 1970.
    pub ends: u64,
}

/// From when until when a certificate is valid, in seconds since 1970.
pub(super) fn validity(der: &CertificateDer<'_>) -> Option<(u64, u64)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
    let validity = certificate.validity();
    Some((seconds(validity.not_before.timestamp()), seconds(validity.not_after.timestamp())))
}

impl Peer {
    /// Reads a certificate. `None`: it cannot be read, so nobody knows who that is.
    pub(super) fn read(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, ends) = validity(der)?;
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let common = certificate.subject().iter_common_name().filter_map(|name| name.as_str().ok());
        let mut names: Vec<_> = common.map(|name| ("cn", name.into())).collect();
        let alternatives = certificate.subject_alternative_name().ok()?;
        let alternatives = alternatives.map(|extension| &extension.value.general_names);
        names.extend(alternatives.into_iter().flatten().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(("dns", name.to_ascii_lowercase().into())),
            GeneralName::URI(name) => Some(("uri", (*name).into())),
            GeneralName::RFC822Name(name) => Some(("email", (*name).into())),
            _ => None,
        }));
        (names.len() <= MOST).then_some(Self { names, ends })
    }
}
