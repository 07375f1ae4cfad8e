//! Texts with a form of their own: ids, addresses, URLs, paths, digests, header names.

use std::fmt::Display;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use holdfast_types::{
    ArmName, ExperimentName, IdError, ModelName, PlanName, PoolName, ReplicaName, RuleName, TenantId, Version,
};
use serde_json::{Value as Json, json};

use crate::compound::Parsed;
use crate::pool::{Digest, Endpoint};
use crate::template::Template;

const ID: &str = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$";

fn show<T: Display>(value: &T) -> Json {
    json!(value.to_string())
}

fn because<T, E: Display>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|why| why.to_string())
}

pub(crate) const TENANT: Parsed<TenantId> =
    Parsed { want: "the name of a tenant", parse: |text| because(TenantId::parse(text)), show, pattern: ID };
pub(crate) const MODEL: Parsed<ModelName> =
    Parsed { want: "the name of a model", parse: |text| because(ModelName::parse(text)), show, pattern: ID };
pub(crate) const VERSION: Parsed<Version> = Parsed { want: "a version", parse: version, show, pattern: ID };
pub(crate) const POOL: Parsed<PoolName> =
    Parsed { want: "the name of a pool", parse: |text| because(PoolName::parse(text)), show, pattern: ID };
pub(crate) const PLAN: Parsed<PlanName> =
    Parsed { want: "the name of a plan", parse: |text| because(PlanName::parse(text)), show, pattern: ID };
pub(crate) const REPLICA: Parsed<ReplicaName> =
    Parsed { want: "the name of a replica", parse: |text| because(ReplicaName::parse(text)), show, pattern: ID };
pub(crate) const EXPERIMENT: Parsed<ExperimentName> =
    Parsed { want: "the name of an experiment", parse: |text| because(ExperimentName::parse(text)), show, pattern: ID };
pub(crate) const ARM: Parsed<ArmName> =
    Parsed { want: "the name of an arm", parse: |text| because(ArmName::parse(text)), show, pattern: ID };
pub(crate) const RULE: Parsed<RuleName> =
    Parsed { want: "the name of a rule", parse: |text| because(RuleName::parse(text)), show, pattern: ID };
pub(crate) const TEMPLATE: Parsed<Template> = Parsed {
    want: "a name with {model} and {version} in it",
    parse: |text| because(Template::parse(text)),
    show,
    pattern: r"^([A-Za-z0-9._-]|\{model\}|\{version\})*$",
};
pub(crate) const ADDRESS: Parsed<SocketAddr> =
    Parsed { want: "an IP address and a port, such as 127.0.0.1:7400", parse: address, show, pattern: "" };
pub(crate) const PATH: Parsed<PathBuf> =
    Parsed { want: "a path", parse: path, show: |path| json!(path.to_string_lossy()), pattern: "" };
pub(crate) const URL: Parsed<Endpoint> = Parsed {
    want: "a URL such as http://127.0.0.1:9001",
    parse: url,
    show: |endpoint| json!(format!("http://{endpoint}")),
    pattern: "^http://[^/]+:[0-9]+/?$",
};
pub(crate) const DIGEST: Parsed<Digest> = Parsed {
    want: "a digest such as blake3:0123...",
    parse: digest,
    show: |_| Json::Null,
    pattern: "^(blake3|sha256):[0-9a-f]{64}$",
};
pub(crate) const HEADER: Parsed<Box<str>> =
    Parsed { want: "the name of a header", parse: header, show, pattern: "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$" };

/// The words of [`IdError::Latest`] begin with what the fault quotes already.
fn version(text: &str) -> Result<Version, String> {
    Version::parse(text).map_err(|why| match why {
        IdError::Latest => "names no immutable version; name the version itself".to_owned(),
        other => other.to_string(),
    })
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "is not an IP address and a port, such as 127.0.0.1:7400 or [::1]:7400".to_owned())
}

fn path(text: &str) -> Result<PathBuf, String> {
    const LONGEST: usize = 4096;
    match text {
        "" => Err("is empty; expected a path".to_owned()),
        _ if text.len() > LONGEST => Err(format!("is longer than {LONGEST} bytes")),
        _ if text.contains(char::is_control) => Err("has a control character; expected a path".to_owned()),
        _ => Ok(text.into()),
    }
}

/// `http://host:port`: the port is never guessed, and there is no room for a credential, a path or a query.
pub(crate) fn url(text: &str) -> Result<Endpoint, String> {
    let rest = match text.split_once("://") {
        Some(("http", rest)) => rest,
        Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => {
            return Err(format!("has the scheme {scheme:?}; replicas are reached by http://host:port"));
        }
        _ => return Err("is not a URL such as http://127.0.0.1:9001".to_owned()),
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains('@') {
        return Err("has a user name; expected http://host:port alone".to_owned());
    }
    if rest.contains(['/', '?', '#']) {
        return Err("has a path or query; expected http://host:port alone".to_owned());
    }
    let (host, port) =
        rest.rsplit_once(':').filter(|(host, _)| !host.is_empty()).ok_or("has no port; write http://host:port")?;
    let is_digits = port.chars().all(|c| c.is_ascii_digit());
    let port =
        port.parse().ok().filter(|port| *port > 0 && is_digits).ok_or("has a port that is not from 1 to 65535")?;
    let host = check_host(host)?;
    Ok(Endpoint { host: host.into(), port })
}

/// An IPv6 address in brackets, an IPv4 address, or a DNS name (RFC 1123, with the `_` that container names have).
pub(crate) fn check_host(host: &str) -> Result<String, String> {
    if let Some(inner) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        return inner
            .parse::<Ipv6Addr>()
            .map(|ip| ip.to_string())
            .map_err(|_| "has no IPv6 address in its brackets".to_owned());
    }
    if host.parse::<Ipv4Addr>().is_ok() {
        return Ok(host.to_owned());
    }
    let is_label = |label: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (1..=63).contains(&label.len())
            && label.chars().all(allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = host.rsplit('.').next().unwrap_or(host);
    if host.len() > 253 || !host.split('.').all(is_label) || last.chars().all(|c| c.is_ascii_digit()) {
        return Err("has a host that is neither a DNS name nor an IP address".to_owned());
    }
    Ok(host.to_ascii_lowercase())
}

fn digest(text: &str) -> Result<Digest, String> {
    let (make, digits): (fn([u8; 32]) -> Digest, _) = match text.split_once(':') {
        Some(("blake3", digits)) => (Digest::Blake3, digits),
        Some(("sha256", digits)) => (Digest::Sha256, digits),
        _ => return Err("is not a digest; write blake3: or sha256: and 64 hexadecimal digits".to_owned()),
    };
    let mut bytes = [0; 32];
    let is_hex = digits.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
    if !is_hex || digits.len() != 64 {
        return Err("does not have 64 hexadecimal digits in lower case".to_owned());
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).unwrap_or("0");
        *byte = u8::from_str_radix(pair, 16).unwrap_or(0);
    }
    Ok(make(bytes))
}

/// Headers that HTTP itself or the gateway gives a meaning: none of them can carry an identity.
const TAKEN_HEADERS: [&str; 16] = [
    "accept-encoding",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-request-timeout-ms",
];

fn header(text: &str) -> Result<Box<str>, String> {
    const LONGEST: usize = 128;
    let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if text.is_empty() || text.len() > LONGEST || !text.chars().all(is_token) {
        return Err(format!(
            "is not the name of a header (RFC 9110 5.1: 1 to {LONGEST} letters, digits and !#$%&'*+-.^_`|~)"
        ));
    }
    let name = text.to_ascii_lowercase();
    if TAKEN_HEADERS.contains(&name.as_str()) || name.starts_with("x-holdfast-") {
        return Err("has another meaning in HTTP or here; choose a header that carries nothing else".to_owned());
    }
    Ok(name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        for (text, shown) in [
            ("http://127.0.0.1:9001", "127.0.0.1:9001"),
            ("http://Triton-0.triton:8000/", "triton-0.triton:8000"),
            ("http://model_server:1", "model_server:1"),
            ("http://[::1]:9001", "[::1]:9001"),
            ("http://[0:0::1]:65535", "[::1]:65535"),
        ] {
            assert_eq!(url(text).map(|e| e.to_string()), Ok(shown.to_owned()), "{text}");
        }
        for (text, why) in [
            ("", "not a URL"),
            ("127.0.0.1:9001", "not a URL"),
            ("https://a:1", "scheme \"https\""),
            ("HTTP://a:1", "scheme \"HTTP\""),
            ("http://a", "no port"),
            ("http://:1", "no port"),
            ("http://a:", "port that is not"),
            ("http://a:0", "port that is not"),
            ("http://a:65536", "port that is not"),
            ("http://a:+1", "port that is not"),
            ("http://u:p@a:1", "user name"),
            ("http://a:1/v2", "path or query"),
            ("http://a:1?x", "path or query"),
            ("http://a:1//", "path or query"),
            ("http://300.1.1.1:1", "neither"),
            ("http://::1:1", "neither"),
            ("http://[::g]:1", "IPv6"),
            ("http://a..b:1", "neither"),
            ("http://-a:1", "neither"),
            ("http://a b:1", "neither"),
            ("http://caf\u{e9}:1", "neither"),
        ] {
            assert!(url(text).is_err_and(|reason| reason.contains(why)), "{text}: {:?}", url(text));
        }
    }

    #[test]
    fn digests() {
        let hex = "0123456789abcdef".repeat(4);
        let Ok(Digest::Blake3(bytes)) = digest(&format!("blake3:{hex}")) else { panic!("a good digest is refused") };
        assert_eq!((bytes[0], bytes[1], bytes[31]), (0x01, 0x23, 0xef));
        assert!(matches!(digest(&format!("sha256:{hex}")), Ok(Digest::Sha256(_))));
        for bad in [
            format!("md5:{hex}"),
            hex.clone(),
            "blake3:".into(),
            format!("blake3:{}", hex.to_uppercase()),
            format!("blake3:{hex}0"),
        ] {
            assert!(digest(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn headers_that_cannot_carry_an_identity() {
        assert_eq!(header("X-Tenant").as_deref(), Ok("x-tenant"));
        for bad in
            ["", "x tenant", "x-tenant:", "Host", "Content-Length", "X-Holdfast-Model", "caf\u{e9}", &"x".repeat(129)]
        {
            assert!(header(bad).is_err(), "{bad}");
        }
    }
}
