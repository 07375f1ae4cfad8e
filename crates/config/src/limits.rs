//! How fast a customer may go, as the file says it: rates, caps and the sections that hold them.
//!
//! `0` is nothing at all, `unlimited` is no limit, and a field that is left out says nothing: what is less specific decides (the plan under a tenant's own
//! `limits`, the plan's general part under an exception), and where nobody says anything there is no limit.

use std::time::Duration;

use holdfast_types::{Bytes, ModelName, PlanName};
use serde_json::{Value as Json, json};

use crate::compound::{MapOf, Named, Optional, Required};
use crate::fault::{Sink, quoted};
use crate::kind::{Choice, Kind, scalar};
use crate::number::{Count, SPAN_UNITS, show_span};
use crate::path::Path;
use crate::section::{form, section};
use crate::text::PLAN;
use crate::tree::{Node, Style};
use crate::units::{TIB, size};

/// A limit that may be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed<T> {
    /// No limit.
    Unlimited,
    /// So much; zero is nothing at all.
    Of(T),
}

/// An amount for each span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests or bytes. Zero: nothing is allowed.
    pub amount: u64,
    /// 1 ms to 366 days.
    pub per: Duration,
}

/// Whether limits refuse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitMode {
    /// They do.
    #[default]
    Enforce,
    /// They are counted, and nothing is refused.
    Shadow,
}

const MODE: Choice<LimitMode> = Choice(&[("enforce", LimitMode::Enforce), ("shadow", LimitMode::Shadow)]);

const MOST: u64 = 1_000_000_000_000;
const MOST_BYTES: u64 = 1024 * TIB;
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

const REQUESTS: RateKind = RateKind { most: MOST, amount: digits, form: "such as 1000/s or 60/m" };
const BYTES: RateKind = RateKind { most: MOST_BYTES, amount: bytes, form: "such as 10MiB/s" };
const CAP: CapKind = CapKind { most: 1_000_000 };

section! {
    /// The limits of each user or of a tenant. A field that is left out says nothing; `0` allows nothing; `unlimited` is no limit.
    pub struct ScopeLimits {
        /// Requests over time, such as `1000/s` or `60/m`.
        requests: Option<Allowed<RateLimit>> = None, Optional(REQUESTS);
        /// The most requests at once after a pause. Left out: what the rate says for one span, so `60/m` may be 60 at once.
        burst: Option<u32> = None, Optional(Count { least: 0, most: u32::MAX });
        /// Bytes of request bodies over time, such as `10MiB/s`.
        bytes: Option<Allowed<RateLimit>> = None, Optional(BYTES);
        /// The most bytes at once after a pause; a larger body never passes. Left out: what the rate says for one span.
        bytes_burst: Option<Bytes> = None, Optional(size(0, MOST_BYTES));
        /// Requests at one time.
        concurrency: Option<Allowed<u32>> = None, Optional(CAP);
    }
}

impl Eq for ScopeLimits {}

section! {
    /// The limit of each client connection by itself.
    pub struct ConnectionLimits {
        /// Requests over time on one connection, such as `20/s`.
        requests: Option<Allowed<RateLimit>> = None, Optional(REQUESTS);
        /// The most requests at once after a pause. Left out: what the rate says for one span.
        burst: Option<u32> = None, Optional(Count { least: 0, most: u32::MAX });
    }
}

impl Eq for ConnectionLimits {}

section! {
    /// Limits of a model or of an endpoint. What it says has buckets of its own; what it leaves out is the plan's, in the plan's buckets.
    pub struct Exception {
        /// Each user's.
        user: ScopeLimits = ScopeLimits::default(), form::<ScopeLimits>();
        /// The tenant's.
        tenant: ScopeLimits = ScopeLimits::default(), form::<ScopeLimits>();
    }
}

impl Eq for Exception {}

section! {
    /// A named set of limits that tenants have.
    pub(crate) struct PlanForm {
        /// Its name; unique, also when case is ignored.
        name: Option<PlanName> = None, Required(PLAN);
        /// Whether its limits refuse: `enforce`, or `shadow` to count only.
        mode: Option<LimitMode> = None, Optional(MODE);
        /// Each connection's.
        connection: ConnectionLimits = ConnectionLimits::default(), form::<ConnectionLimits>();
        /// Each user's.
        user: ScopeLimits = ScopeLimits::default(), form::<ScopeLimits>();
        /// The tenant's.
        tenant: ScopeLimits = ScopeLimits::default(), form::<ScopeLimits>();
        /// Exceptions by model of the catalogue.
        models: Vec<Named<Exception>> = Vec::new(), MapOf(form::<Exception>());
        /// Exceptions by endpoint: `infer`, `metadata`. They come before those of models.
        endpoints: Vec<Named<Exception>> = Vec::new(), MapOf(form::<Exception>());
    }
}

section! {
    /// Limits of this tenant alone; field by field they come before its plan's.
    pub(crate) struct OwnLimitsForm {
        /// Whether this tenant's limits refuse: `enforce`, or `shadow` to count only. Left out: as its plan says.
        mode: Option<LimitMode> = None, Optional(MODE);
        /// Each connection's.
        connection: ConnectionLimits = ConnectionLimits::default(), form::<ConnectionLimits>();
        /// Each user's.
        user: ScopeLimits = ScopeLimits::default(), form::<ScopeLimits>();
        /// The tenant's.
        tenant: ScopeLimits = ScopeLimits::default(), form::<ScopeLimits>();
        /// Exceptions by model of the catalogue.
        models: Vec<Named<Exception>> = Vec::new(), MapOf(form::<Exception>());
        /// Exceptions by endpoint: `infer`, `metadata`. They come before those of models.
        endpoints: Vec<Named<Exception>> = Vec::new(), MapOf(form::<Exception>());
    }
}

section! {
    /// How fast one address may open connections. An IPv6 address counts with its network of 64 bits.
    pub struct AttemptLimits {
        /// Connections over time, such as `50/s`. Left out: no limit.
        rate: Option<Allowed<RateLimit>> = None, Optional(REQUESTS);
        /// The most at once after a pause. Left out: what the rate says for one span.
        burst: Option<u32> = None, Optional(Count { least: 0, most: u32::MAX });
    }
}

/// What has limits of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitedEndpoint {
    /// `infer`
    Infer,
    /// `metadata`
    Metadata,
}

impl LimitedEndpoint {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Infer, Self::Metadata];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Infer => "infer",
            Self::Metadata => "metadata",
        }
    }
}

/// A checked set of limits: a plan's, or a tenant's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanLimits {
    /// None: says nothing.
    pub mode: Option<LimitMode>,
    /// Each connection's.
    pub connection: ConnectionLimits,
    /// Each user's.
    pub user: ScopeLimits,
    /// The tenant's.
    pub tenant: ScopeLimits,
    /// By model, sorted; all exist in the catalogue.
    pub models: Vec<(ModelName, Exception)>,
    /// By endpoint, sorted.
    pub endpoints: Vec<(LimitedEndpoint, Exception)>,
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Unique in the file, also when case is ignored.
    pub name: PlanName,
    /// Its limits.
    pub limits: PlanLimits,
}

/// An amount and a span with a `/` between; `0`; `unlimited`.
struct RateKind {
    most: u64,
    amount: fn(&str) -> Option<u64>,
    form: &'static str,
}

fn digits(text: &str) -> Option<u64> {
    let good = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| good)
}

fn bytes(text: &str) -> Option<u64> {
    text.starts_with(|c: char| c.is_ascii_digit()).then(|| Bytes::parse(text).ok().map(|bytes| bytes.0)).flatten()
}

/// `s`, `10s`, `m`: a number that is left out is one.
fn span(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (count, unit) = text.split_at(end);
    let millis = SPAN_UNITS.iter().find(|(name, _)| *name == unit)?.1;
    let count = if count.is_empty() { 1 } else { digits(count)? };
    let span = Duration::from_millis(count.checked_mul(millis)?);
    (span >= Duration::from_millis(1) && span <= LONGEST).then_some(span)
}

impl Kind for RateKind {
    type Out = Allowed<RateLimit>;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Self::Out> {
        let form = self.form;
        let (text, _) = scalar(node, path, sink, &format!("a rate {form}, 0 for nothing, or unlimited"))?;
        match text {
            "unlimited" => return Some(Allowed::Unlimited),
            "0" => return Some(Allowed::Of(RateLimit { amount: 0, per: Duration::from_secs(1) })),
            _ => {}
        }
        let read = text.split_once('/').and_then(|(amount, per)| Some(((self.amount)(amount)?, span(per)?)));
        let why = match read {
            Some((amount, per)) if amount <= self.most => return Some(Allowed::Of(RateLimit { amount, per })),
            Some(_) => format!("is {}; the most is {} for each span", quoted(text), self.most),
            None => format!(
                "is {}; expected a rate {form}, 0 for nothing, or unlimited; a span is from 1ms to 366d",
                quoted(text)
            ),
        };
        sink.add(node.place, path, why);
        None
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [
            { "type": "string", "pattern": "^(unlimited|0|[0-9][^/]*/[0-9]*(ms|s|m|h|d))$" }, { "const": 0 },
        ] })
    }

    fn show(&self, value: &Self::Out) -> Json {
        json!(value.to_string())
    }
}

/// A whole number, or `unlimited`.
struct CapKind {
    most: u32,
}

impl Kind for CapKind {
    type Out = Allowed<u32>;

    fn read(&self, node: &Node<'_>, path: &Path<'_>, sink: &mut Sink<'_>) -> Option<Self::Out> {
        let (text, style) = scalar(node, path, sink, "a whole number, or unlimited")?;
        if text == "unlimited" {
            return Some(Allowed::Unlimited);
        }
        let number = digits(text).and_then(|number| u32::try_from(number).ok()).filter(|n| *n <= self.most);
        if let Some(number) = number.filter(|_| style != Style::Quoted) {
            return Some(Allowed::Of(number));
        }
        sink.add(
            node.place,
            path,
            format!(
                "is {}; expected a whole number from 0 to {}, without quotes, or unlimited",
                quoted(text),
                self.most
            ),
        );
        None
    }

    fn schema(&self) -> Json {
        json!({ "anyOf": [{ "const": "unlimited" }, { "type": "integer", "minimum": 0, "maximum": self.most }] })
    }

    fn show(&self, _: &Self::Out) -> Json {
        Json::Null
    }
}

impl std::fmt::Display for RateLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.amount == 0 {
            return f.write_str("0");
        }
        let span = show_span(self.per);
        write!(
            f,
            "{}/{}",
            self.amount,
            span.strip_prefix('1').filter(|unit| !unit.starts_with(|c: char| c.is_ascii_digit())).unwrap_or(&span)
        )
    }
}

impl<T: std::fmt::Display> std::fmt::Display for Allowed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Of(value) => value.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_amounts() {
        for (text, millis) in [
            ("s", Some(1_000)),
            ("10s", Some(10_000)),
            ("m", Some(60_000)),
            ("ms", Some(1)),
            ("366d", Some(366 * 86_400_000)),
        ] {
            assert_eq!(span(text), millis.map(Duration::from_millis), "{text}");
        }
        for text in ["", "0s", "367d", "01s", "1", "-1s", "1.5s", "S", "s ", "99999999999999999999s"] {
            assert_eq!(span(text), None, "{text:?}");
        }
        for text in ["", "-1", "+1", "01", "1e3", "NaN", "inf", " 1", "1_000", "0x1"] {
            assert_eq!(digits(text), None, "{text:?}");
        }
        assert_eq!((digits("0"), bytes("10MiB"), bytes("-1"), bytes("inf")), (Some(0), Some(10 << 20), None, None));
        for text in ["1000/s", "60/m", "5/10s", "1/90m", "0"] {
            let (amount, per) = text.split_once('/').unwrap_or((text, "s"));
            let rate = RateLimit { amount: digits(amount).unwrap(), per: span(per).unwrap() };
            assert_eq!(rate.to_string(), text);
        }
    }
}
