//! Where a Redis or Valkey is, and how it is reached: TLS, and who one says to be. No secret stands in a configuration: it names a file or a variable.

use std::path::PathBuf;

use serde_json::json;

use crate::check::Checker;
use crate::compound::{Optional, Parsed};
use crate::path::Path;
use crate::section::section;
use crate::text::PATH;

/// Where a Redis or Valkey is, without a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RedisUrl(Box<str>);

impl RedisUrl {
    /// `redis://HOST:PORT/DB`, or `rediss://HOST:PORT/DB` for TLS.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is reached by TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.0.starts_with("rediss:")
    }

    fn is_loopback(&self) -> bool {
        let place = self.0.split_once("://").map_or("", |(_, place)| place);
        ["127.", "[::1]", "localhost:"].iter().any(|local| place.starts_with(local))
    }
}

impl std::fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

pub(crate) const REDIS: Parsed<RedisUrl> = Parsed {
    want: "a URL such as redis://127.0.0.1:6379",
    parse: redis_url,
    show: |url| json!(url.0),
    pattern: "^rediss?://[^/@]+:[0-9]+(/[0-9]+)?$",
};

fn redis_url(text: &str) -> Result<RedisUrl, String> {
    let (scheme, rest) = text.split_once("://").ok_or("is not a URL such as redis://127.0.0.1:6379")?;
    if !["redis", "rediss"].contains(&scheme) {
        return Err("is not a URL such as redis://127.0.0.1:6379, or rediss:// for TLS".to_owned());
    }
    let (place, database) = rest.split_once('/').unwrap_or((rest, "0"));
    if place.contains('@') {
        return Err("has a user or a password; write store_access: { user: ..., password_file: ... }".to_owned());
    }
    let endpoint = crate::text::url(&format!("http://{place}"))?;
    let database: u8 = database.parse().map_err(|_| "has a database that is no number")?;
    Ok(RedisUrl(format!("{scheme}://{endpoint}/{database}").into()))
}

pub(crate) const NAMESPACE: Parsed<Box<str>> = Parsed {
    want: "a name",
    parse: |text| holdfast_types::PlanName::parse(text).map(|name| name.as_str().into()).map_err(|why| why.to_string()),
    show: |name| json!(name),
    pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
};

const USER: Parsed<Box<str>> = Parsed {
    want: "the name of a user of the store",
    parse: |text| match (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.into()),
        false => Err("has 1 to 128 visible ASCII characters".to_owned()),
    },
    show: |name| json!(name),
    pattern: "^[!-~]{1,128}$",
};

const VARIABLE: Parsed<Box<str>> = Parsed {
    want: "the name of an environment variable",
    parse: |text| {
        let is_good =
            |at: usize, byte: u8| byte == b'_' || byte.is_ascii_alphabetic() || (at > 0 && byte.is_ascii_digit());
        match (1..=128).contains(&text.len()) && text.bytes().enumerate().all(|(at, byte)| is_good(at, byte)) {
            true => Ok(text.into()),
            false => Err("is no name of an environment variable".to_owned()),
        }
    },
    show: |name| json!(name),
    pattern: "^[A-Za-z_][A-Za-z0-9_]{0,127}$",
};

section! {
    /// How a Redis or Valkey is reached. Passwords, certificates and keys are read anew for each connection.
    pub struct RedisAccess {
        /// The user (ACL) that the password is of. Left out: the default one.
        user: Option<Box<str>> = None, Optional(USER);
        /// A file whose first line is the password.
        password_file: Option<PathBuf> = None, Optional(PATH);
        /// The environment variable that has the password.
        password_env: Option<Box<str>> = None, Optional(VARIABLE);
        /// Who signs the certificate of a `rediss://` store, in PEM. There is no list that is built in. The certificate names the URL's host.
        authorities: Option<PathBuf> = None, Optional(PATH);
        /// The own certificate chain in PEM, if the store asks for one.
        certificates: Option<PathBuf> = None, Optional(PATH);
        /// Its private key in PEM.
        key: Option<PathBuf> = None, Optional(PATH);
    }
}

impl Eq for RedisAccess {}

impl RedisAccess {
    pub(crate) fn paths(&mut self) -> [&mut Option<PathBuf>; 4] {
        [&mut self.password_file, &mut self.authorities, &mut self.certificates, &mut self.key]
    }
}

/// Compares what is said of a store with its URL.
pub(crate) fn check(checker: &mut Checker<'_, '_>, path: &Path<'_>, store: Option<&RedisUrl>, access: &RedisAccess) {
    let has_password = access.password_file.is_some() || access.password_env.is_some();
    let has_tls = access.authorities.is_some() || access.certificates.is_some() || access.key.is_some();
    let Some(url) = store else {
        if *access != RedisAccess::default() {
            checker.fault(path, "says how a store is reached, but none is named");
        }
        return;
    };
    if access.password_file.is_some() && access.password_env.is_some() {
        checker.fault(&path.field("password_env"), "is a second place for the password; leave out one of them");
    }
    if access.user.is_some() && !has_password {
        checker.fault(&path.field("user"), "has no password; write password_file or password_env");
    }
    if access.certificates.is_some() != access.key.is_some() {
        checker.fault(path, "has one of certificates and key without the other");
    }
    match (url.is_secure(), access.authorities.is_some()) {
        (true, false) => checker.fault(
            path,
            "says not who signs the certificate of a store that is reached by rediss://; write authorities",
        ),
        (false, _) if has_tls => checker.fault(path, "has certificates, but the URL is redis://; write rediss://"),
        (false, _) if has_password && !url.is_loopback() => {
            checker.warn(path, "sends the password in the clear to another machine; write rediss://");
        }
        _ => {}
    }
}
