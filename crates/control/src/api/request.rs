//! What a request says, read strictly: whatever is not understood is refused, and where it stands is named.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, StatusCode};
use http_body::Body as HttpBody;
use http_body_util::{BodyExt, Limited};
use serde_json::{Map, Value as Json};

use holdfast_store::Json as Text;
use holdfast_types::Revision;

use super::problem::Problem;

/// How long a body may take.
const BODY_TIME: Duration = Duration::from_secs(30);

/// The segments of a path, decoded. `None`: it is not one of `/v1/...` or `/openapi.json`.
pub(crate) fn segments(path: &str) -> Result<Vec<String>, Problem> {
    let decode = |segment: &str| decoded(segment, false);
    path.strip_prefix('/').unwrap_or(path).split('/').map(decode).collect()
}

fn decoded(text: &str, plus: bool) -> Result<String, Problem> {
    let wrong = || Problem::bad(format!("{text:?} is not percent-encoded UTF-8"));
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut digit = || rest.next().and_then(|d| char::from(d).to_digit(16));
        out.push(match byte {
            b'+' if plus => b' ',
            b'%' => {
                let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
                u8::try_from(high * 16 + low).map_err(|_| wrong())?
            }
            other => other,
        });
    }
    String::from_utf8(out).map_err(|_| wrong())
}

/// The parameters of a query.
#[derive(Debug, Default)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads a query of which only these names are known, each at most once.
    pub(crate) fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let mut all = BTreeMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name, true)?, decoded(value, true)?);
            if !known.contains(&name.as_str()) {
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return Err(Problem::bad(format!("the query has {name:?}, which is not known here; known: {known}")));
            }
            if all.insert(name.clone(), value).is_some() {
                return Err(Problem::bad(format!("the query has {name:?} twice")));
            }
        }
        Ok(Self(all))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A number, from `least` to the largest that every reader of JSON numbers in 64 bits takes.
    pub(crate) fn number(&self, name: &str, least: u64) -> Result<Option<u64>, Problem> {
        let read = |text: &str| match text.parse::<u64>() {
            Ok(number) if (least..=super::MAX_NUMBER).contains(&number) && text.bytes().all(|b| b.is_ascii_digit()) => {
                Ok(number)
            }
            _ => Err(Problem::bad(format!("{name} is {text:?}; expected a whole number from {least}"))),
        };
        self.get(name).map(read).transpose()
    }

    /// The number of rows of a page.
    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        let limit = self.number("limit", 1)?.unwrap_or(super::PAGE);
        if limit > super::MAX_PAGE {
            return Err(Problem::bad(format!("limit is {limit}; a page has at most {}", super::MAX_PAGE)));
        }
        Ok(usize::try_from(limit).unwrap_or(1))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        match self.get(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(Problem::bad(format!("{name} is {other:?}; expected true or false"))),
        }
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

/// Whether the client takes an answer of this type.
pub(crate) fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let mut all = headers.get_all(ACCEPT).iter().peekable();
    if all.peek().is_none() {
        return true;
    }
    let family = kind.split('/').next().unwrap_or_default();
    all.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let range = parts.next().unwrap_or_default().to_ascii_lowercase();
        let refused = parts.any(|p| {
            p.strip_prefix("q=").is_some_and(|q| !q.is_empty() && q.bytes().all(|b| matches!(b, b'0' | b'.')))
        });
        !refused && (range == kind || range == "*/*" || range.strip_suffix("/*") == Some(family))
    })
}

/// The bare type of the body, in lower case.
pub(crate) fn content_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// The whole body, of at most so many bytes.
pub(crate) async fn body<B>(headers: &HeaderMap, body: B, most: usize) -> Result<Bytes, Problem>
where
    B: HttpBody,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let too_large =
        || Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("the body may have at most {most} bytes"));
    let told = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    if told.is_some_and(|told| told > most as u64) {
        return Err(too_large());
    }
    let slow = || Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body took too long");
    let read = tokio::time::timeout(BODY_TIME, Limited::new(body, most).collect()).await.map_err(|_| slow())?;
    let read = read.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() { too_large() } else { Problem::bad("the body broke off") }
    })?;
    let mut whole = read.aggregate();
    Ok(whole.copy_to_bytes(whole.remaining()))
}

/// A JSON object whose members are taken one by one; what is left at the end is unknown.
pub(crate) struct Members {
    path: String,
    map: Map<String, Json>,
    known: Vec<&'static str>,
}

impl Members {
    /// A body. An empty one is an empty object.
    pub(crate) fn read(body: &[u8]) -> Result<Self, Problem> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::of("", Map::new()));
        }
        let wrong = |error: holdfast_store::Error| match error.kind() {
            holdfast_store::ErrorKind::TooLarge => {
                Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error.to_string())
            }
            _ => Problem::bad(format!("the body: {error}")),
        };
        match Text::parse(body).and_then(|text| text.value()).map_err(wrong)? {
            Json::Object(map) => Ok(Self::of("", map)),
            _ => Err(Problem::at("", "the body is not a JSON object")),
        }
    }

    fn of(path: &str, map: Map<String, Json>) -> Self {
        Self { path: path.to_owned(), map, known: Vec::new() }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    pub(crate) fn take(&mut self, name: &'static str) -> Option<Json> {
        self.known.push(name);
        self.map.remove(name)
    }

    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<String>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Json::String(text)) => Ok(Some(text)),
            Some(_) => Err(Problem::at(&self.path(name), "is not text (put it in quotes)")),
        }
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, Problem> {
        match self.take(name) {
            None => Ok(false),
            Some(Json::Bool(flag)) => Ok(flag),
            Some(_) => Err(Problem::at(&self.path(name), "is not true or false")),
        }
    }

    /// A revision; `null` is none.
    pub(crate) fn revision(&mut self, name: &'static str) -> Result<Option<Revision>, Problem> {
        match self.take(name) {
            None | Some(Json::Null) => Ok(None),
            Some(value) => {
                let wrong = || Problem::at(&self.path(name), "is not a revision: a whole number");
                value.as_u64().map(|n| Some(Revision(n))).ok_or_else(wrong)
            }
        }
    }

    /// A member that only repeats what the path says.
    pub(crate) fn same(&mut self, name: &'static str, as_in_path: &str) -> Result<(), Problem> {
        match self.text(name)? {
            Some(other) if other != as_in_path => {
                Err(Problem::at(&self.path(name), format!("is {other:?}, but the path says {as_in_path:?}")))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn end(self) -> Result<(), Problem> {
        match self.map.keys().next() {
            None => Ok(()),
            Some(name) => {
                let reason = format!("is not known here; known: {}", self.known.join(", "));
                Err(Problem::at(&self.path(name), reason))
            }
        }
    }
}

/// What a change is conditional on.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Condition {
    /// The resource is there, at one of these revisions if there are any.
    matches: Option<Vec<Revision>>,
    /// The resource is not there.
    absent: bool,
}

impl Condition {
    /// From `If-Match` and `If-None-Match: *`.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let matches = tags(headers, IF_MATCH)?;
        let absent = match tags(headers, IF_NONE_MATCH)? {
            None => false,
            Some(none) if none.is_empty() => true,
            Some(_) => return Err(Problem::bad("of If-None-Match a change takes \"*\" only")),
        };
        Ok(Self { matches, absent })
    }

    /// The same, and at this revision.
    pub(crate) fn and(mut self, revision: Option<Revision>) -> Self {
        if let (Some(revision), None) = (revision, &self.matches) {
            self.matches = Some(vec![revision]);
        }
        self
    }

    pub(crate) const fn is_any(&self) -> bool {
        self.matches.is_none() && !self.absent
    }

    /// Whether a resource at this revision, or none, is what was meant.
    pub(crate) fn holds(&self, found: Option<Revision>) -> bool {
        let matches = self.matches.as_ref();
        matches.is_none_or(|m| found.is_some_and(|found| m.is_empty() || m.contains(&found)))
            && !(self.absent && found.is_some())
    }
}

/// Revisions named by entity tags; none of them for `*`.
pub(crate) fn tags(headers: &HeaderMap, name: HeaderName) -> Result<Option<Vec<Revision>>, Problem> {
    let mut all: Option<Vec<Revision>> = None;
    for value in headers.get_all(&name) {
        let wrong = || Problem::bad(format!("{name} is neither \"*\" nor a list of entity tags such as \"12\""));
        let value = value.to_str().map_err(|_| wrong())?.trim();
        let found = all.get_or_insert_default();
        if value == "*" {
            continue;
        }
        for tag in value.split(',').map(str::trim) {
            let bare = tag.strip_prefix("W/").unwrap_or(tag);
            let bare = bare.strip_prefix('"').and_then(|t| t.strip_suffix('"')).ok_or_else(wrong)?;
            // A tag that is no revision is of nothing that there ever was.
            found.push(Revision(bare.parse().unwrap_or(u64::MAX)));
        }
    }
    Ok(all)
}
