//! `POST /v1/outcomes`: what came of a request, told with its route token. The token says which arm it was, so that nothing has to be joined.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use holdfast_submission::{BadToken, Record};
use holdfast_types::{Failure, FailureKind};

use super::Results;
use crate::body::AnswerBody;
use crate::exchange::Exchange;
use crate::server::Gateway;
use crate::stage::finish;

/// The most bytes of a body.
const MOST: usize = 16 * 1024;
/// The most outcomes of one body.
const MANY: usize = 16;
/// How long a body may take.
const WITHIN: Duration = Duration::from_secs(10);
/// The largest value, so that the square of no sum overflows.
const LARGEST: f64 = 1e12;

/// A request that tells outcomes, of a tenant that is known.
pub struct OutcomeCall {
    pub exchange: Box<Exchange>,
    pub tenant: String,
    pub fields: HeaderMap,
    pub body: Incoming,
}

/// What a body says.
#[derive(Debug, PartialEq)]
pub(super) struct Body {
    /// What tells it from others: told again with the same, it counts once.
    pub(super) id: Option<String>,
    /// Metrics and values.
    pub(super) values: Vec<(String, f64)>,
}

/// Takes what is told. Never fails: a failure is an answer too.
///
/// # Cancel safety
/// Dropping the future settles the exchange; nothing is counted before the body is whole.
pub async fn tell(call: Box<OutcomeCall>) -> Response<AnswerBody> {
    let OutcomeCall { exchange, tenant, fields, body } = *call;
    let gateway = exchange.gateway().clone();
    // A body that is not read yet is not waited for if the token is bad.
    let record = match claimed(&gateway, &fields, &tenant) {
        Ok(record) => record,
        Err(failure) => return finish::failed(exchange, &failure),
    };
    let read = tokio::time::timeout(WITHIN, Limited::new(body, MOST).collect()).await;
    let read = match read {
        Ok(Ok(body)) => parse(&body.to_bytes()),
        Ok(Err(_)) => Err(Failure::new(
            FailureKind::TooLarge,
            format!("the body has more than {MOST} bytes, or has ended too early"),
        )),
        Err(_) => Err(Failure::new(FailureKind::BadRequest, "the body has taken too long").with_status(408)),
    };
    match read {
        Ok(body) => {
            let told = take(&gateway, &tenant, &record, &body);
            finish::own(exchange, StatusCode::OK, told.to_string())
        }
        Err(failure) => finish::failed(exchange, &failure),
    }
}

fn claimed(gateway: &Gateway, fields: &HeaderMap, tenant: &str) -> Result<Record, Failure> {
    let bad = |kind, words: &'static str| {
        if let Some(results) = &gateway.results {
            results.counted.get(["bad_token"]).inc();
        }
        Failure::new(kind, words)
    };
    let tokens = gateway.submissions.as_ref().and_then(|submissions| submissions.tokens.as_ref());
    let Some(tokens) = tokens else {
        return Err(bad(FailureKind::BadRequest, "no route tokens are given here, and outcomes are told with one"));
    };
    match tokens.claim(fields, tenant) {
        Ok(Some(claim)) => Ok(claim.record),
        Ok(None) => Err(bad(FailureKind::BadRequest, "needed is x-holdfast-route: the route token of the request")),
        Err(why @ BadToken::OtherTenant) => Err(bad(FailureKind::Forbidden, why.words())),
        Err(why) => Err(bad(FailureKind::BadRequest, why.words())),
    }
}

pub(super) fn parse(body: &Bytes) -> Result<Body, Failure> {
    let bad = |why: String| Failure::new(FailureKind::BadRequest, why);
    let all: Value = serde_json::from_slice(body).map_err(|_| bad("the body is no JSON".to_owned()))?;
    let all = all.as_object().ok_or_else(|| bad("the body is no object".to_owned()))?;
    if let Some(other) = all.keys().find(|name| !matches!(name.as_str(), "id" | "values")) {
        return Err(bad(format!("the member {} is not known; there are `values` and `id`", json!(other))));
    }
    let id = match all.get("id") {
        None => None,
        Some(Value::String(id)) if (1..=256).contains(&id.len()) => Some(id.clone()),
        Some(_) => return Err(bad("`id` is no text of 1 to 256 bytes".to_owned())),
    };
    let values = all.get("values").and_then(Value::as_object).filter(|values| (1..=MANY).contains(&values.len()));
    let values = values.ok_or_else(|| bad(format!("`values` is no object of 1 to {MANY} numbers")))?;
    let one = |(metric, value): (&String, &Value)| {
        let is_name = (1..=64).contains(&metric.len())
            && metric.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.'));
        let value = value.as_f64().filter(|value| value.abs() <= LARGEST);
        let why = || {
            bad(format!(
                "{} is no metric with a number: names have 1 to 64 of a-z, 0-9, `_`, `-` and `.`, and numbers are at most 1e12",
                json!(metric)
            ))
        };
        value.filter(|_| is_name).map(|value| (metric.clone(), value)).ok_or_else(why)
    };
    Ok(Body { id, values: values.iter().map(one).collect::<Result<_, _>>()? })
}

/// Counts it for each arm that the token names, if the table has that arm still.
fn take(gateway: &Gateway, tenant: &str, record: &Record, body: &Body) -> Value {
    let Some(results) = &gateway.results else { return json!({}) };
    let table = gateway.tables.load();
    let (mut counted, mut others) = (0_u64, serde_json::Map::new());
    let mut became = |word: &'static str| {
        results.counted.get([word]).inc();
        match word {
            "counted" => counted += 1,
            other => {
                let before = others.get(other).and_then(Value::as_u64).unwrap_or(0);
                others.insert(other.to_owned(), (before + 1).into());
            }
        }
    };
    let arms = record.arms.as_deref().unwrap_or_default();
    let named: Vec<(&str, &str)> = arms.split(',').filter_map(|arm| arm.trim().split_once('=')).collect();
    if named.is_empty() {
        body.values.iter().for_each(|_| became("no_arm"));
    }
    for (experiment, arm) in named {
        let facts = table.snapshot.arm(experiment, arm);
        for (metric, value) in &body.values {
            became(match facts {
                None => "gone",
                Some(_) if !is_first(results, tenant, body.id.as_deref(), [experiment, metric]) => "repeated",
                Some(facts) => results.outcome(facts, (table.snapshot.revision(), record.revision), metric, *value),
            });
        }
    }
    let mut told = json!({ "counted": counted });
    if !others.is_empty() {
        told["not_counted"] = others.into();
    }
    told
}

/// Whether an outcome with this id was not told before. Without an id nothing tells it from others.
fn is_first(results: &Results, tenant: &str, id: Option<&str>, what: [&str; 2]) -> bool {
    let Some(id) = id else { return true };
    let parts = [tenant, id, what[0], what[1]];
    let hash = parts.iter().fold(0, |hash, part| xxh3_64_with_seed(part.as_bytes(), hash));
    results.ids.is_first(hash)
}
