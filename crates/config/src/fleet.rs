//! The sections of a fleet's processes: the store, `holdfast control`, `holdfast gateway`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_types::GatewayName;
use serde_json::{Value as Json, json};

use crate::compound::{List, Optional, Parsed, Required};
use crate::fault::Sink;
use crate::kind::{Flag, Kind, text};
use crate::path::Path;
use crate::section::{form, section};
use crate::text::{ADDRESS, PATH};
use crate::tree::Node;
use crate::units::{HOUR, MINUTE, loopback, millis_to, secs};

/// What a process is. A file is for one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// `holdfast serve`: both planes in one process.
    #[default]
    Serve,
    /// `holdfast control`: one of the control planes of a fleet.
    Control,
    /// `holdfast gateway`: one of the gateways of a fleet.
    Gateway,
}

impl Role {
    /// The command that runs it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Control => "control",
            Self::Gateway => "gateway",
        }
    }
}

section! {
    /// Where the control planes of a fleet keep the truth.
    pub struct StoreSection {
        /// `postgresql://USER@HOST:PORT/DATABASE`, without a password. Without `tls` the host is on the loopback address or a Unix socket.
        postgres: Option<PostgresUrl> = None, Required(PostgresKind);
        /// A file with the password.
        password_file: Option<PathBuf> = None, Optional(PATH);
        /// The schema that holds the tables; each fleet has its own.
        schema: Box<str> = Box::from("holdfast"), SCHEMA;
        /// TLS to PostgreSQL, as `sslmode=verify-full` has it. Left out: cleartext.
        tls: Option<StoreTls> = None, Optional(form::<StoreTls>());
    }
}

section! {
    /// TLS to PostgreSQL. The server's certificate names the host of `postgres`.
    pub struct StoreTls {
        /// Who signs the certificates of servers, in PEM. There is no list that is built in.
        authorities: Option<PathBuf> = None, Required(PATH);
        /// The own certificate chain in PEM, if servers ask for one.
        certificates: Option<PathBuf> = None, Optional(PATH);
        /// Its private key in PEM.
        key: Option<PathBuf> = None, Optional(PATH);
    }
}

section! {
    /// What `holdfast control` is to its gateways.
    pub struct ControlSection {
        /// Where gateways come to.
        listen: SocketAddr = loopback(7402), ADDRESS;
        /// A file with the secret that gateways must know: 16 visible characters at least, a line for each secret that is taken.
        secret_file: Option<PathBuf> = None, Optional(PATH);
        /// TLS to gateways. Left out: cleartext.
        tls: Option<ControlTls> = None, Optional(form::<ControlTls>());
        /// How long a gateway that says nothing is waited for.
        lease: Duration = secs(10), millis_to(2_000, HOUR);
        /// Whether anybody who reaches the address may be a gateway; on a loopback address only.
        open: bool = false, Flag;
    }
}

section! {
    /// TLS of a control plane.
    pub struct ControlTls {
        /// The certificate chain in PEM, the own certificate first.
        certificates: Option<PathBuf> = None, Required(PATH);
        /// Its private key in PEM.
        key: Option<PathBuf> = None, Required(PATH);
        /// Who signs the certificates of gateways, in PEM. With it a gateway without one is refused.
        gateways: Option<PathBuf> = None, Optional(PATH);
    }
}

section! {
    /// Which gateway of a fleet this is, and whom it follows.
    pub struct GatewaySection {
        /// Its name, which no other gateway has. Left out: made from the host's name.
        name: Option<GatewayName> = None, Optional(GATEWAY);
        /// The control planes, tried in this order: http://HOST:PORT, or https://HOST:PORT with `tls`.
        control: Option<Vec<ControlUrl>> = None, Required(List { item: CONTROL_URL, least: 1 });
        /// A file with the secret that control planes ask for.
        secret_file: Option<PathBuf> = None, Optional(PATH);
        /// Whom to believe, for `https`.
        tls: Option<GatewayTls> = None, Optional(form::<GatewayTls>());
        /// When nothing was pushed for so long, what is held is compared. A table that nothing has confirmed for so long is marked as stale.
        poll: Duration = secs(5), millis_to(100, HOUR);
        /// How long control planes may take at the start before the gateway serves its last good table.
        start_within: Duration = secs(3), millis_to(0, 10 * MINUTE);
    }
}

section! {
    /// TLS of a gateway.
    pub struct GatewayTls {
        /// Who signs the certificates of control planes, in PEM. There is no list that is built in.
        authorities: Option<PathBuf> = None, Required(PATH);
        /// The own certificate chain in PEM, if control planes ask for one.
        certificates: Option<PathBuf> = None, Optional(PATH);
        /// Its private key in PEM.
        key: Option<PathBuf> = None, Optional(PATH);
        /// The name in the control planes' certificates, if it is not the host of the URL.
        server_name: Option<Box<str>> = None, Optional(SERVER_NAME);
        /// Who signs the certificates of other gateways, in PEM. With it gateways speak to one another by TLS, each with its own certificate.
        peers: Option<PathBuf> = None, Optional(PATH);
        /// The name in the certificates of gateways, if it is not the address of `listen.peer`.
        peer_name: Option<Box<str>> = None, Optional(SERVER_NAME);
    }
}

/// A connection to PostgreSQL, without a password. Shown without its content.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PostgresUrl(Box<str>);

impl PostgresUrl {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PostgresUrl(..)")
    }
}

/// The URL of a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlUrl(Box<str>);

impl ControlUrl {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it asks for TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.0.starts_with("https://")
    }

    /// Whether what is said to it leaves the machine.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        let host = self.0.split_once("://").and_then(|(_, rest)| rest.rsplit_once(':')).map_or("", |(host, _)| host);
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        bare == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
    }
}

/// Reads a connection. What is wrong with it is said without showing it: a mistake may be a password at the wrong place.
pub(crate) struct PostgresKind;

impl Kind for PostgresKind {
    type Out = PostgresUrl;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<PostgresUrl> {
        let url = text(node, path, sink, "a URL such as postgresql://USER@127.0.0.1:5432/DATABASE")?;
        match check_postgres(url) {
            Ok(()) => Some(PostgresUrl(url.into())),
            Err(why) => {
                sink.add(node.place, path, why);
                None
            }
        }
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "pattern": "^postgres(ql)?://" })
    }

    fn show(&self, _: &PostgresUrl) -> Json {
        Json::Null
    }
}

fn check_postgres(url: &str) -> Result<(), &'static str> {
    let rest = url.strip_prefix("postgresql://").or_else(|| url.strip_prefix("postgres://"));
    let rest = rest.ok_or("is not a URL such as postgresql://USER@127.0.0.1:5432/DATABASE")?;
    let (authority, query) = rest.split_once('?').unwrap_or((rest, ""));
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    if user.contains(':') || query.split('&').any(|pair| pair.starts_with("password=")) {
        return Err("has a password in it; put the password into a file and name that in password_file");
    }
    if url.len() > 4096 || url.contains(|c: char| c.is_control() || c == ' ') {
        return Err("has characters that are none of a URL, or is longer than 4096 bytes");
    }
    Ok(())
}

const SCHEMA: Parsed<Box<str>> = Parsed {
    want: "the name of a schema",
    parse: schema_name,
    show: |name| json!(name),
    pattern: "^[a-z_][a-z0-9_]{0,39}$",
};

fn schema_name(text: &str) -> Result<Box<str>, String> {
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase() || c == '_') && !text.starts_with("pg_");
    let word = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if begins && word && text.len() <= 40 {
        return Ok(text.into());
    }
    Err("is not 1 to 40 lower-case letters, digits and _, that begin with no digit and not with pg_".to_owned())
}

const GATEWAY: Parsed<GatewayName> = Parsed {
    want: "the name of a gateway",
    parse: |text| GatewayName::parse(text).map_err(|why| why.to_string()),
    show: |name| json!(name.as_str()),
    pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
};

const SERVER_NAME: Parsed<Box<str>> = Parsed {
    want: "the name in a certificate",
    parse: |text| crate::text::check_host(text).map(Into::into),
    show: |name| json!(name),
    pattern: "",
};

const CONTROL_URL: Parsed<ControlUrl> = Parsed {
    want: "a URL such as http://127.0.0.1:7402",
    parse: control_url,
    show: |url| json!(url.0),
    pattern: "^https?://[^/]+:[0-9]+/?$",
};

fn control_url(text: &str) -> Result<ControlUrl, String> {
    let plain = text.strip_prefix("https://").map(|rest| format!("http://{rest}"));
    let Ok(endpoint) = crate::text::url(plain.as_deref().unwrap_or(text)) else {
        return Err("is not the URL of a control plane: http://HOST:PORT or https://HOST:PORT alone".to_owned());
    };
    let scheme = if plain.is_some() { "https" } else { "http" };
    Ok(ControlUrl(format!("{scheme}://{endpoint}").into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_stores() {
        for good in [
            "postgresql://holdfast@127.0.0.1:5432/holdfast",
            "postgres://holdfast@localhost/d",
            "postgresql:///d?host=/run/postgresql&user=holdfast",
        ] {
            assert_eq!(check_postgres(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "127.0.0.1",
            "http://a",
            "postgres://u:p@127.0.0.1/d",
            "postgres://h/d?user=u&password=p",
            "postgres:// /",
        ] {
            assert!(check_postgres(bad).is_err(), "{bad}");
        }
        let url = PostgresUrl("postgresql://u@h/d".into());
        assert_eq!(format!("{url:?}"), "PostgresUrl(..)");
    }

    #[test]
    fn urls_of_control_planes() {
        for (text, shown, secure, loopback) in [
            ("http://127.0.0.1:7402", "http://127.0.0.1:7402", false, true),
            ("https://Control-0:7402/", "https://control-0:7402", true, false),
            ("http://[::1]:7402", "http://[::1]:7402", false, true),
            ("http://localhost:1", "http://localhost:1", false, true),
        ] {
            let url = control_url(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!((url.as_str(), url.is_secure(), url.is_loopback()), (shown, secure, loopback));
        }
        for bad in ["", "control:7402", "ftp://a:1", "http://a", "https://u@a:1", "http://a:1/x"] {
            assert!(control_url(bad).is_err(), "{bad}");
        }
    }
}
