//! Which fields cross the gateway. Hop-by-hop fields (RFC 9110, 7.6.1) and the gateway's own never do.

use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue,
};
use smallvec::SmallVec;

/// What the gateway's own fields begin with.
pub const PREFIX: &str = "x-holdfast-";
/// The client's budget, in milliseconds.
pub const TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout-ms");
/// The revision of the table that a client insists on: an older one does not answer it.
pub const MIN_REVISION: HeaderName = HeaderName::from_static("x-holdfast-min-revision");
/// A client's key for a submission and its retries.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// A client's own id of a request.
pub const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Stamps.
pub const MODEL: HeaderName = HeaderName::from_static("x-holdfast-model");
/// The version that judged; from a client, the one that it asks for.
pub const VERSION: HeaderName = HeaderName::from_static("x-holdfast-version");
/// From a client: the version that an administrator asks for.
pub const OVERRIDE: HeaderName = HeaderName::from_static("x-holdfast-override");
/// The arm of an experiment that chose the version.
pub const EXPERIMENT: HeaderName = HeaderName::from_static("x-holdfast-experiment");
/// The table's revision.
pub const REVISION: HeaderName = HeaderName::from_static("x-holdfast-revision");
/// For how many seconds no control plane has confirmed the table.
pub const STALE: HeaderName = HeaderName::from_static("x-holdfast-stale");
/// Why that version.
pub const REASON: HeaderName = HeaderName::from_static("x-holdfast-reason");
/// The replica that served.
pub const REPLICA: HeaderName = HeaderName::from_static("x-holdfast-replica");
/// The request's id.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-holdfast-request-id");
/// What the request was resolved to, signed; from a client, what its submission was resolved to before.
pub const ROUTE: HeaderName = HeaderName::from_static("x-holdfast-route");
/// The key that gave an arm, signed; from a client, the same of before.
pub const STICKY: HeaderName = HeaderName::from_static("x-holdfast-sticky");
/// What the names of cookies begin with that say the same.
pub const STICKY_COOKIE: &str = "holdfast-arm-";
/// How the resolution is not like others: `unledgered`.
pub const RESOLUTION: HeaderName = HeaderName::from_static("x-holdfast-resolution");
/// Marks an answer that no model has given: why it stands in its place.
pub const FALLBACK: HeaderName = HeaderName::from_static("x-holdfast-fallback");
/// The failure kind.
pub const ERROR: HeaderName = HeaderName::from_static("x-holdfast-error");
/// The proved tenant, for the replica.
pub const TENANT: HeaderName = HeaderName::from_static("x-holdfast-tenant");

/// The limit that refused.
pub const LIMIT: HeaderName = HeaderName::from_static("x-holdfast-limit");

/// Marks a copy of a request: its answer goes to nobody.
pub const SHADOW: HeaderName = HeaderName::from_static("x-holdfast-shadow");

/// Fields of one hop, those of the gateway, and those by which a proxy tells of a client's certificate (RFC 9440, 2.4). By text: the compiler makes a switch over lengths of it, and this is asked for every field.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    let name = name.as_str();
    match name {
        "connection"
        | "keep-alive"
        | "proxy-connection"
        | "proxy-authenticate"
        | "proxy-authorization"
        | "te"
        | "trailer"
        | "transfer-encoding"
        | "upgrade"
        | "client-cert"
        | "client_cert"
        | "client-cert-chain"
        | "client_cert_chain" => true,
        _ => name.starts_with('x') && letters(name).take(OWN.len()).eq(OWN.bytes()),
    }
}

/// What the gateway's own names begin with, as [`letters`].
const OWN: &str = "xholdfast";
/// What a server that trusts its front may take for the tenant, or for the client's certificate, as [`letters`].
const TENANTS: [&str; 8] = [
    "xtenant",
    "xtenantid",
    "xforwardedclientcert",
    "xforwardedclientcertchain",
    "xclientcert",
    "xsslclientcert",
    "xspiffeid",
    "sslclientcert",
];

/// Whether a field names a tenant to who reads it, or is the one that did.
fn names_tenant(name: &HeaderName, trusted: Option<&HeaderName>) -> bool {
    let text = name.as_str();
    let is_usual = || text.starts_with(['x', 's']) && TENANTS.iter().any(|word| letters(text).eq(word.bytes()));
    trusted.is_some_and(|trusted| reads_as(name, trusted)) || is_usual()
}

/// A name without its signs. Servers that turn fields into variables make one name of `-` and `_`, and some of whatever is no letter.
fn letters(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().filter(u8::is_ascii_alphanumeric)
}

/// Whether two names may become one.
fn reads_as(name: &HeaderName, other: &HeaderName) -> bool {
    name == other
        || (name.as_str().len().abs_diff(other.as_str().len()) <= 8
            && letters(name.as_str()).eq(letters(other.as_str())))
}

/// What a replica gets of a client's fields, and the gateway's `own`. `trusted` is the field that named the tenant.
///
/// Made anew and in one pass: a copy would have to grow for what is added, and each removal costs a hash.
pub fn for_upstream<const N: usize>(
    client: &HeaderMap,
    trusted: Option<&HeaderName>,
    own: [(HeaderName, HeaderValue); N],
) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(client.len() + N + 1);
    let (mut has_cookie, mut names_more) = (false, false);
    for (name, value) in client {
        has_cookie |= *name == COOKIE;
        names_more |= *name == CONNECTION;
        let is_own = matches!(*name, EXPECT | CONTENT_LENGTH | HOST | ACCEPT_ENCODING) || *name == TIMEOUT;
        if !is_own && !is_hop_by_hop(name) && !names_tenant(name, trusted) {
            headers.append(name, value.clone());
        }
    }
    if names_more {
        for name in named_by_connection(client) {
            headers.remove(name);
        }
    }
    if has_cookie {
        drop_own_cookies(&mut headers);
        join_cookies(&mut headers);
    }
    // The answer has to be read, so it must not be compressed.
    headers.append(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for (name, value) in own {
        headers.append(name, value);
    }
    headers
}

/// Makes a replica's fields fit for a client. The length is the body's business.
pub fn for_client(headers: &mut HeaderMap) {
    // MLServer tells the name that it is asked by, which is not the client's name for the model.
    strip(headers, |name| *name == CONTENT_LENGTH || matches!(name.as_str(), "ce-modelid" | "ce-endpoint"));
}

/// The gateway's own cookies are of no concern to a replica. Most clients have none.
fn drop_own_cookies(headers: &mut HeaderMap) {
    let is_own = |pair: &[u8]| pair.trim_ascii().starts_with(STICKY_COOKIE.as_bytes());
    let pairs = |value: &HeaderValue| value.as_bytes().split(|b| *b == b';').any(is_own);
    if !headers.get_all(COOKIE).iter().any(pairs) {
        return;
    }
    let rest = headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|b| *b == b';'));
    let rest: Vec<&[u8]> = rest.filter(|pair| !is_own(pair)).map(<[u8]>::trim_ascii).collect();
    let rest = HeaderValue::from_bytes(&rest.join(b"; ".as_slice()));
    headers.remove(COOKIE);
    if let Some(rest) = rest.ok().filter(|rest| !rest.is_empty()) {
        headers.insert(COOKIE, rest);
    }
}

/// HTTP/2 clients may send a cookie in several fields, HTTP/1.1 knows one only (RFC 9113, 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if let Ok(joined) = HeaderValue::from_bytes(&cookies.join(b"; ".as_slice())) {
        headers.insert(COOKIE, joined);
    }
}

/// Takes away what is not for the next hop, and what `also` names. One pass: a removal by name costs a hash even where there is nothing to remove.
fn strip(headers: &mut HeaderMap, mut also: impl FnMut(&HeaderName) -> bool) {
    let mut gone: SmallVec<[HeaderName; 8]> = SmallVec::new();
    let mut names_more = false;
    for name in headers.keys() {
        names_more |= *name == CONNECTION;
        if is_hop_by_hop(name) || also(name) {
            gone.push(name.clone());
        }
    }
    if names_more {
        gone.extend(named_by_connection(headers));
    }
    for name in gone {
        headers.remove(name);
    }
}

/// `Connection` names further fields that are meant for this hop only. A framing field or the host cannot be taken away by it.
fn named_by_connection(headers: &HeaderMap) -> SmallVec<[HeaderName; 8]> {
    let values = headers.get_all(CONNECTION).iter();
    let names = values.flat_map(|value| value.as_bytes().split(|b| *b == b',').take(32));
    let names = names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok());
    names.filter(|name| *name != HOST && *name != CONTENT_LENGTH).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn what_reaches_a_replica() {
        let headers = map(&[
            ("host", "gateway"),
            ("connection", "close, x-secret, host, accept-encoding, x-holdfast-tenant"),
            ("x-secret", "1"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("expect", "100-continue"),
            ("x-tenant", "acme"),
            ("x-holdfast-tenant", "forged"),
            ("x-holdfast-anything", "forged"),
            ("x_holdfast_tenant", "forged"),
            ("x.holdfast.tenant", "forged"),
            ("xholdfast-tenant", "forged"),
            ("x_tenant", "forged"),
            ("x-tenant-id", "forged"),
            ("x-forwarded-client-cert", "forged"),
            ("x_forwarded_client_cert", "forged"),
            ("x-forwarded-client-cert-chain", "forged"),
            ("x-client-cert", "forged"),
            ("ssl-client-cert", "forged"),
            ("x-ssl-client-cert", "forged"),
            ("x-spiffe-id", "forged"),
            ("client-cert", "forged"),
            ("client-cert-chain", "forged"),
            ("x-tenants", "three"),
            ("x-own_field", "kept"),
            ("x-request-timeout-ms", "5"),
            ("accept-encoding", "gzip"),
            ("cookie", "a=1"),
            ("cookie", "holdfast-arm-ab=token; b=2"),
            ("x-holdfast-sticky", "token"),
            ("content-type", "application/json"),
            ("traceparent", "00-1-2-01"),
            ("inference-header-content-length", "9"),
        ]);
        let own = [(HOST, HeaderValue::from_static("replica:1")), (TENANT, HeaderValue::from_static("acme"))];
        let headers = for_upstream(&headers, Some(&HeaderName::from_static("x-tenant")), own);
        let mut left: Vec<String> =
            headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap_or("?"))).collect();
        left.sort();
        assert_eq!(
            left,
            [
                "accept-encoding: identity",
                "content-type: application/json",
                "cookie: a=1; b=2",
                "host: replica:1",
                "inference-header-content-length: 9",
                "traceparent: 00-1-2-01",
                "x-holdfast-tenant: acme",
                "x-own_field: kept",
                "x-tenants: three"
            ]
        );
    }

    #[test]
    fn what_reaches_a_client() {
        let mut headers = map(&[
            ("content-length", "5"),
            ("ce-modelid", "screen-1"),
            ("ce-endpoint", "screen-1"),
            ("x-holdfast-version", "forged"),
            ("connection", "keep-alive"),
            ("content-type", "application/json"),
        ]);
        for_client(&mut headers);
        assert_eq!(headers, map(&[("content-type", "application/json")]));
    }

    #[test]
    fn connection_cannot_take_the_host_away() {
        let mut headers = map(&[("connection", "host, content-length"), ("host", "a"), ("content-length", "3")]);
        strip(&mut headers, |_| false);
        assert_eq!(headers.len(), 2);
    }
}
