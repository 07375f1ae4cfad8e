//! Certificates of a test's own authority, in PEM and in files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
    date_time_ymd,
};

static NEXT: AtomicU32 = AtomicU32::new(1);

/// Who signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Signed {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A new one, which nobody else believes.
    ///
    /// # Panics
    /// When no key can be made.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, format!("authority {} of a test", NEXT.fetch_add(1, Ordering::Relaxed)));
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its own certificate.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Writes its own certificate into a file.
    ///
    /// # Panics
    /// When the file cannot be written.
    #[must_use]
    pub fn file(&self, path: PathBuf) -> PathBuf {
        std::fs::write(&path, self.pem()).unwrap();
        path
    }

    /// A server's certificate for these names and addresses.
    #[must_use]
    pub fn server(&self, names: &[&str]) -> Signed {
        self.signed(names, vec![ExtendedKeyUsagePurpose::ServerAuth], |_| {})
    }

    /// The same, which ended years ago.
    #[must_use]
    pub fn expired_server(&self, names: &[&str]) -> Signed {
        self.signed(names, vec![ExtendedKeyUsagePurpose::ServerAuth], expired)
    }

    /// A client's certificate with this common name, and these alternative names: `scheme:...` is a URI, `a@b` an address of mail, others are DNS
    /// names or IP addresses.
    #[must_use]
    pub fn client(&self, common: &str, names: &[&str]) -> Signed {
        self.signed(names, vec![ExtendedKeyUsagePurpose::ClientAuth], |params| {
            params.distinguished_name.push(DnType::CommonName, common);
        })
    }

    /// The same for one that is a server, too.
    #[must_use]
    pub fn both(&self, common: &str, names: &[&str]) -> Signed {
        let usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.signed(names, usages, |params| params.distinguished_name.push(DnType::CommonName, common))
    }

    /// The same, which ended years ago.
    #[must_use]
    pub fn expired_client(&self, common: &str, names: &[&str]) -> Signed {
        self.signed(names, vec![ExtendedKeyUsagePurpose::ClientAuth], |params| {
            params.distinguished_name.push(DnType::CommonName, common);
            expired(params);
        })
    }

    fn signed(
        &self,
        names: &[&str],
        usages: Vec<ExtendedKeyUsagePurpose>,
        shape: impl FnOnce(&mut CertificateParams),
    ) -> Signed {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names.iter().map(|name| san(name)).collect();
        params.extended_key_usages = usages;
        shape(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Signed { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

fn expired(params: &mut CertificateParams) {
    (params.not_before, params.not_after) = (date_time_ymd(2001, 1, 1), date_time_ymd(2002, 1, 1));
}

fn san(name: &str) -> SanType {
    if let Ok(address) = name.parse() {
        return SanType::IpAddress(address);
    }
    let text = name.try_into().unwrap();
    if name.contains(':') {
        SanType::URI(text)
    } else if name.contains('@') {
        SanType::Rfc822Name(text)
    } else {
        SanType::DnsName(text)
    }
}

impl Signed {
    /// Writes both into files `NAME.pem` and `NAME.key` of a folder, over what is there.
    ///
    /// # Panics
    /// When the files cannot be written.
    #[must_use]
    pub fn files(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let (certificate, key) = (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
        std::fs::write(&certificate, &self.certificate).unwrap();
        std::fs::write(&key, &self.key).unwrap();
        (certificate, key)
    }
}
