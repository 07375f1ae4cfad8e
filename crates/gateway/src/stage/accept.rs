//! Accept: what does the request ask for, and may it be looked at at all?

use std::borrow::Cow;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Version};

use holdfast_codec::framing::HeadLimits;
use holdfast_codec::framing::{Violation, imitates_length};
use holdfast_codec::oip::{ModelOp, Target};
use holdfast_types::{Failure, FailureKind};

use crate::headers;
use crate::settings::Settings;
use crate::stream;

/// Where tokens are given (RFC 6749, 3.2).
const TOKEN_PATH: &str = "/oauth/token";
/// Where the keys are published that they are checked with.
const KEY_SET_PATH: &str = "/.well-known/jwks.json";

/// Where clients tell what came of their requests.
const OUTCOMES_PATH: &str = "/v1/outcomes";

/// A call about one model.
pub struct ModelCall<'p> {
    /// The model as the client names it.
    pub model: Cow<'p, str>,
    /// The version that the client names.
    pub version: Option<Cow<'p, str>>,
    /// What is asked.
    pub op: ModelOp,
}

/// What a request asks for.
pub enum Asked<'p> {
    /// A call about a model.
    Model(ModelCall<'p>),
    /// The gateway's own metadata.
    ServerMetadata,
    /// Whether the process lives.
    Live,
    /// Whether the gateway is ready.
    Ready,
    /// A token.
    Token,
    /// The keys that tokens are checked with.
    KeySet,
    /// To tell outcomes.
    Outcomes,
    /// A WebSocket.
    Stream,
}

/// Reads a request's line.
///
/// # Errors
/// `bad_request` for what is not understood, with 404 or 405 where that is the better word; `too_large` for an overlong target.
pub fn accept<'p>(parts: &'p Parts, has_body: bool, settings: &Settings) -> Result<Asked<'p>, Failure> {
    let path = parts.uri.path();
    if parts.uri.path_and_query().map_or(0, |p| p.as_str().len()) > settings.target {
        return Err(Failure::new(FailureKind::TooLarge, "the request target is too long").with_status(431));
    }
    if parts.version == Version::HTTP_2 && !fits(parts, &settings.head_limits) {
        return Err(Failure::new(FailureKind::TooLarge, "the request head is too large").with_status(431));
    }
    // HTTP/1.1 heads have been looked at byte by byte; those of HTTP/2 become HTTP/1.1 heads towards the replica.
    let h2 = parts.version >= http::Version::HTTP_2;
    if h2 && parts.headers.keys().any(|name| name.as_str().len() >= 13 && imitates_length(name.as_str().as_bytes())) {
        return Err(Failure::new(FailureKind::BadRequest, Violation::LookAlike.to_string()));
    }
    if h2 && parts.uri.path_and_query().is_some_and(|p| !p.as_str().is_ascii()) {
        return Err(Failure::new(FailureKind::BadRequest, Violation::RequestLine.to_string()));
    }
    if parts.method == Method::CONNECT {
        return if is_socket(parts, settings) { Ok(Asked::Stream) } else { Err(method_not_allowed()) };
    }
    let read = matches!(parts.method, Method::GET | Method::HEAD);
    if read && has_body {
        // It has no meaning (RFC 9110, 9.3.1), and a replica that does not look for it would take it for its next request.
        return Err(Failure::new(FailureKind::BadRequest, "a GET or HEAD request has no body"));
    }
    let asked = match path {
        "/livez" | "/healthz" => Asked::Live,
        "/readyz" => Asked::Ready,
        _ => match Target::parse(path) {
            Target::ServerMetadata => Asked::ServerMetadata,
            Target::ServerLive => Asked::Live,
            Target::ServerReady => Asked::Ready,
            Target::Model { model, version, op } => {
                let wants_post = op == ModelOp::Infer;
                if wants_post != (parts.method == Method::POST) || (!wants_post && !read) {
                    return Err(method_not_allowed());
                }
                let version = named(parts, version.map(decode).transpose()?)?;
                return Ok(Asked::Model(ModelCall { model: decode(model)?, version, op }));
            }
            Target::Repository => {
                let why = "the model repository is managed by the gateway; see its admin port";
                return Err(Failure::new(FailureKind::BadRequest, why).with_status(404));
            }
            Target::Unknown if settings.has_tokens() && path == TOKEN_PATH => {
                return if parts.method == Method::POST { Ok(Asked::Token) } else { Err(method_not_allowed()) };
            }
            Target::Unknown if settings.has_tokens() && path == KEY_SET_PATH => Asked::KeySet,
            Target::Unknown if settings.outcomes && path == OUTCOMES_PATH => {
                return if parts.method == Method::POST { Ok(Asked::Outcomes) } else { Err(method_not_allowed()) };
            }
            Target::Unknown if stream::is_at(settings.stream.as_deref(), path) => Asked::Stream,
            Target::Unknown => {
                return Err(Failure::new(FailureKind::BadRequest, "there is nothing at this path").with_status(404));
            }
        },
    };
    if read { Ok(asked) } else { Err(method_not_allowed()) }
}

/// Whether an extended CONNECT (RFC 8441) asks for a WebSocket here.
#[cold]
fn is_socket(parts: &Parts, settings: &Settings) -> bool {
    let protocol = parts.extensions.get::<hyper::ext::Protocol>();
    let is_websocket = protocol.is_some_and(|protocol| protocol.as_str() == "websocket");
    is_websocket && stream::is_at(settings.stream.as_deref(), parts.uri.path())
}

/// The version that the path or the header names.
fn named<'p>(parts: &'p Parts, in_path: Option<Cow<'p, str>>) -> Result<Option<Cow<'p, str>>, Failure> {
    match (in_path, once(&parts.headers, &headers::VERSION)?) {
        (Some(path), Some(header)) if path != header => {
            Err(Failure::new(FailureKind::BadRequest, "the path and x-holdfast-version name two versions"))
        }
        (None, Some(header)) => Ok(Some(Cow::Borrowed(header))),
        (in_path, _) => Ok(in_path),
    }
}

/// A field of the gateway's own, which is there once or not at all.
///
/// # Errors
/// `bad_request`.
pub fn once<'h>(fields: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Failure> {
    let Some(value) = fields.get(name) else { return Ok(None) };
    match value.to_str() {
        Ok(text) if fields.get_all(name).iter().nth(1).is_none() => Ok(Some(text)),
        _ => Err(Failure::new(FailureKind::BadRequest, format!("{name} is a text, once"))),
    }
}

/// Whether an HTTP/2 head is within the bounds, by the size that RFC 9113 (6.5.2) gives a field. HTTP/1.1 heads are checked as they are read.
fn fits(parts: &Parts, limits: &HeadLimits) -> bool {
    let sizes = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32);
    parts.headers.len() <= limits.fields && sizes.sum::<usize>() <= limits.head
}

fn method_not_allowed() -> Failure {
    Failure::new(FailureKind::BadRequest, "this method is not allowed here").with_status(405)
}

/// Undoes percent-encoding. Names have no character that needs it, but a client may encode any.
fn decode(segment: &str) -> Result<Cow<'_, str>, Failure> {
    if !segment.contains('%') {
        return Ok(Cow::Borrowed(segment));
    }
    let malformed = || Failure::new(FailureKind::BadRequest, "the path has malformed percent-encoding");
    let mut out = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || (bytes.next()? as char).to_digit(16);
        let value = digit().and_then(|high| Some(high * 16 + digit()?)).ok_or_else(malformed)?;
        out.push(u8::try_from(value).map_err(|_| malformed())?);
    }
    String::from_utf8(out).map(Cow::Owned).map_err(|_| malformed())
}

/// The request's budget: what it names, within the bound, or the default.
///
/// # Errors
/// `bad_request` for a value that is not one positive whole number.
pub fn budget(headers: &HeaderMap, settings: &Settings) -> Result<Duration, Failure> {
    let mut values = headers.get_all(headers::TIMEOUT).iter();
    let Some(value) = values.next() else { return Ok(settings.request) };
    let number = value.to_str().ok().filter(|t| t.len() <= 12 && t.bytes().all(|b| b.is_ascii_digit()));
    let millis: Option<u64> = number.and_then(|t| t.parse().ok()).filter(|n| *n > 0);
    match (millis, values.next()) {
        (Some(millis), None) => Ok(Duration::from_millis(millis).min(settings.request_max)),
        _ => {
            let why = "x-request-timeout-ms must be one whole number of milliseconds, at least 1";
            Err(Failure::new(FailureKind::BadRequest, why))
        }
    }
}

/// The method as a word of a closed list.
#[must_use]
pub fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "OTHER",
    }
}

/// The query of a request, to be passed on.
#[must_use]
pub fn query(parts: &Parts) -> Option<Cow<'_, str>> {
    parts.uri.query().filter(|q| !q.is_empty()).map(Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_config::{Source, load};

    /// What is said of a head in this version of HTTP.
    fn said(version: Version, target: &[u8], field: &str) -> Result<(), (u16, String)> {
        let config = load(&Source::text("c.yaml", "")).unwrap().config;
        let uri = http::Uri::from_maybe_shared(bytes::Bytes::copy_from_slice(target)).unwrap();
        let request = http::Request::post(uri).version(version).header(field, "5").body(()).unwrap();
        let (parts, ()) = request.into_parts();
        let accepted = accept(&parts, true, &Settings::new(&config));
        accepted.map(drop).map_err(|failure| (failure.http_status(), failure.detail.to_string()))
    }

    const INFER: &[u8] = b"/v2/models/screen/infer";

    #[test]
    fn a_field_of_http_2_that_imitates_a_length_is_refused() {
        for field in [
            "content_length",
            "content.length",
            "contentlength",
            "transfer_encoding",
            "-transfer-encoding",
            "content-length-",
        ] {
            let why = (400, Violation::LookAlike.to_string());
            assert_eq!(said(Version::HTTP_2, INFER, field), Err(why), "{field}");
        }
        for field in ["content-length", "x-content-length", "content-lengths", "content-type", "lengthcontent"] {
            assert_eq!(said(Version::HTTP_2, INFER, field), Ok(()), "{field}");
        }
    }

    #[test]
    fn a_target_of_http_2_that_http_1_cannot_write_is_refused() {
        for target in [&b"/v2/models/caf\xc3\xa9/infer"[..], b"/v2/models/screen/infer?caf\xc3\xa9"] {
            let why = (400, Violation::RequestLine.to_string());
            assert_eq!(said(Version::HTTP_2, target, "x"), Err(why), "{}", target.escape_ascii());
        }
        assert_eq!(said(Version::HTTP_2, b"/v2/models/caf%C3%A9/infer?a=%20b", "x"), Ok(()));
    }
}
