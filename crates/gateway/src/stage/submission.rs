//! Resolve, for a submission that may have been resolved before: its client brings a route token, or a key that the ledger knows.
//!
//! What a record says is never passed over: the request goes to that version, waits for it, or is refused. The ledger is asked at most once, with what the
//! table says as the proposal; the first proposal for a key wins, and all that come later are told it.

use std::collections::HashMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;

use holdfast_bank::file::Durable;
use holdfast_codec::oip::ModelOp;
use holdfast_config::Stamp;
use holdfast_decide::{Cause, ModelEntry, Reason, Replayed, Route, Snapshot, TenantEntry, VersionEntry, replay};
use holdfast_placement::subset::subset_key;
use holdfast_submission::{Asked, BadToken, Claim, Key, Ledger as Known, Next, OnFailure, Record, Refused, next};
use holdfast_telemetry::Endpoint;
use holdfast_types::{Failure, FailureKind};

use super::accept::{ModelCall, once};
use super::identify::{self, Who};
use super::resolve;
use crate::asker::Asker;
use crate::exchange::{Exchange, Resolution};
use crate::headers;
use crate::route_state::RouteState;
use crate::server::Gateway;
use crate::sticky::Given;
use crate::submissions::Submissions;
use crate::table::Table;

/// What is known of a request's submission.
#[derive(Default)]
pub struct Submission {
    key: Option<Key>,
    told: Option<Told>,
    arms: Option<Box<str>>,
    /// Until when the token counts that it came with.
    until: Option<u64>,
    /// PIN-2 is not promised for it: the ledger did not answer, and the operator has chosen so.
    unledgered: bool,
    /// What has to be on disk before its answer leaves.
    durable: Option<(Record, Durable)>,
}

/// What the ledger said.
enum Told {
    /// It is new, and went to this record's version for this reason.
    Fresh(Record, Why),
    Held(Record),
    Down,
}

/// The reason for a version, the arm or rule that chose it, and to whom an arm was given.
type Why = (Reason, Option<Arc<Cause>>, Option<Given>);

/// A question to the ledger.
pub struct Asking {
    key: Key,
    record: Record,
    why: Why,
}

/// What comes of looking at a submission.
pub enum Step {
    /// It has its route.
    Resolved(Resolution),
    /// The ledger has to be asked.
    Ask(Box<Asking>),
}

/// Resolves a request whose submission may be known.
///
/// # Errors
/// What [`resolve::resolve`] gives; `bad_request` and `forbidden` for a token or key that leads nowhere; `overloaded` while the ledger does not answer;
/// `no_holder` for a version that is gone.
pub fn resolve(
    submissions: &Submissions,
    (gateway, table): (&Gateway, &Table),
    asker: &Asker<'_>,
    call: &ModelCall<'_>,
    exchange: &mut Exchange,
) -> Result<Step, Failure> {
    let (tenant, fields) = (asker.who.tenant(), asker.fields);
    let claim = claim(submissions, fields, tenant)?;
    let key = if call.op == ModelOp::Infer { key(submissions, asker)? } else { None };
    if claim.is_none() && key.is_none() {
        return decided(gateway, table, asker, call, exchange).map(Step::Resolved);
    }
    let told = exchange.submission.as_mut().and_then(|submission| submission.told.take());
    if let Some(Told::Fresh(record, why)) = &told {
        return replayed(gateway, table, tenant, record, why.clone(), exchange).map(Step::Resolved);
    }
    let ledger = submissions.ledger.as_ref();
    let remembered = ledger.zip(key).filter(|_| told.is_none()).and_then(|(ledger, key)| ledger.remembered(&key));
    let known = match (key, &told, &remembered) {
        (None, ..) => Known::Off,
        (Some(key), Some(Told::Held(record)), _) | (Some(key), _, Some(record)) => Known::Held(key, record),
        (Some(key), Some(_), None) => Known::Down(key),
        (Some(key), None, None) => Known::Unasked(key),
    };
    let mut submission = exchange.submission.take().unwrap_or_default();
    submission.key = key.or_else(|| claim.as_ref().and_then(|claim| claim.key));
    submission.until = claim.as_ref().map(|claim| claim.record.until);
    exchange.submission = Some(submission);
    // An override names a version like any other.
    let version = once(fields, &headers::OVERRIDE)?.or(call.version.as_deref());
    let asked = Asked { model: &call.model, version };
    let by_token = claim.is_some();
    match next(asked, claim.as_ref(), known, submissions.on_failure) {
        Next::Decide => decided(gateway, table, asker, call, exchange).map(Step::Resolved),
        Next::Ask(key, record) => ask(submissions, key, record, || decided(gateway, table, asker, call, exchange)),
        Next::Replay(record) => {
            submissions.counted.count(if by_token { "replay_token" } else { "replay_key" });
            exchange.note(|journal| journal.submission = Some(if by_token { "route token" } else { "key" }));
            replayed(gateway, table, tenant, record, (Reason::Replay, None, None), exchange).map(Step::Resolved)
        }
        Next::Unledgered => {
            submissions.counted.count("unledgered");
            exchange.note(|journal| journal.submission = Some("unledgered"));
            if let Some(submission) = &mut exchange.submission {
                submission.unledgered = true;
            }
            decided(gateway, table, asker, call, exchange).map(Step::Resolved)
        }
        Next::Refuse(why) => Err(refused(submissions, why)),
    }
}

/// The proposal for the ledger: a token's record, or what the table says.
fn ask(
    submissions: &Submissions,
    key: Key,
    record: Option<&Record>,
    decided: impl FnOnce() -> Result<Resolution, Failure>,
) -> Result<Step, Failure> {
    let until = submissions.ledger.as_ref().map_or(0, |ledger| ledger.until());
    let asking = match record {
        Some(record) => Asking { key, record: Record { until, ..record.clone() }, why: (Reason::Replay, None, None) },
        None => {
            let resolution = decided()?;
            Asking {
                key,
                record: record_of(&resolution, until),
                why: (resolution.reason, resolution.cause, resolution.given),
            }
        }
    };
    Ok(Step::Ask(Box::new(asking)))
}

fn record_of(resolution: &Resolution, until: u64) -> Record {
    let route = &resolution.route;
    let (model, version) = (route.model.clone(), route.version.clone());
    let arms = resolution.cause.as_ref().map(|cause| cause.stamp.clone()).filter(|stamp| !stamp.is_empty());
    Record { model, version, revision: resolution.under, arms, until }
}

fn claim(submissions: &Submissions, fields: &HeaderMap, tenant: &str) -> Result<Option<Claim>, Failure> {
    // Where none is given none is looked at, as where nothing is configured: a key says by itself which submission it is.
    let Some(tokens) = &submissions.tokens else { return Ok(None) };
    tokens.claim(fields, tenant).map_err(|why| match why {
        BadToken::OtherTenant => {
            submissions.counted.count("bad_token");
            Failure::new(FailureKind::Forbidden, why.words())
        }
        _ => bad(submissions, why.words()),
    })
}

fn bad(submissions: &Submissions, words: &'static str) -> Failure {
    submissions.counted.count("bad_token");
    Failure::new(FailureKind::BadRequest, words)
}

fn key(submissions: &Submissions, asker: &Asker<'_>) -> Result<Option<Key>, Failure> {
    if submissions.ledger.is_none() {
        return Ok(None);
    }
    let subject = match asker.who {
        Who::Proved(subject) => Some(&**subject),
        Who::Named(_) => None,
    };
    let user = identify::user(asker.fields, asker.settings, subject)?.unwrap_or_default();
    submissions.key(asker.fields, asker.who.tenant(), user)
}

/// What the table says.
fn decided(
    gateway: &Gateway,
    table: &Table,
    asker: &Asker<'_>,
    call: &ModelCall<'_>,
    exchange: &Exchange,
) -> Result<Resolution, Failure> {
    resolve::resolve(gateway, table, asker, call, resolve::submission(asker.fields, &exchange.id.text))
}

/// What a record says, whatever the table's pins say now.
fn replayed(
    gateway: &Gateway,
    table: &Table,
    tenant: &str,
    record: &Record,
    (reason, cause, given): Why,
    exchange: &mut Exchange,
) -> Result<Resolution, Failure> {
    let route = route_of(table, tenant, record)?;
    let state = RouteState::of(table, &route, &gateway.driver, &gateway.metrics);
    let gone = || Failure::new(FailureKind::NoHolder, "the routing table is changing");
    if let Some(submission) = &mut exchange.submission {
        submission.arms.clone_from(&record.arms);
    }
    Ok(Resolution {
        state: state.ok_or_else(gone)?,
        route,
        reason,
        cause,
        given,
        _revision: table.usage.enter(),
        under: record.revision,
        revision_stamp: HeaderValue::from(record.revision.0),
    })
}

/// The way to a record's version.
///
/// # Errors
/// `no_holder`: the version has left the table; `forbidden`, `unknown_model`: the tenant or the model has.
pub(crate) fn route_of(table: &Table, tenant: &str, record: &Record) -> Result<Arc<Route>, Failure> {
    let found = replay(&table.snapshot, tenant, record.model.as_str(), record.version.as_str());
    Ok(match found.map_err(|refusal| refusal.failure())? {
        Replayed::Kept(route) => route.clone(),
        Replayed::Made(tenant, model, version) => table.replays.route(&table.snapshot, tenant, model, version),
    })
}

fn refused(submissions: &Submissions, why: Refused) -> Failure {
    if why == Refused::Unknown {
        submissions.counted.count("refused");
        return Failure::new(FailureKind::Overloaded, why.words());
    }
    submissions.counted.count("conflict");
    // Understood, but it contradicts what is known (RFC 9110, 15.5.21).
    Failure::new(FailureKind::BadRequest, why.words()).with_status(422)
}

/// Asks the ledger and notes what it says. A word for how it went.
pub async fn settle(gateway: &Gateway, exchange: &mut Exchange, asking: Asking) -> &'static str {
    let Asking { key, record, why } = asking;
    let ledger = gateway.submissions.as_ref().and_then(|submissions| submissions.ledger.as_ref());
    let first = match ledger {
        Some(ledger) => ledger.first(key, record).await,
        None => Err(holdfast_bank::Down::Away),
    };
    let mut submission = exchange.submission.take().unwrap_or_default();
    let (told, word) = match first {
        Ok(first) => {
            submission.durable = first.durable.map(|durable| (first.record.clone(), durable));
            match first.fresh {
                true => (Told::Fresh(first.record, why), "new"),
                false => (Told::Held(first.record), "known"),
            }
        }
        Err(why) => {
            tracing::debug!(%why, "the ledger of submissions did not answer");
            (Told::Down, "failed")
        }
    };
    if matches!(told, Told::Fresh(..)) {
        if let Some(submissions) = &gateway.submissions {
            submissions.counted.count("first");
        }
        exchange.note(|journal| journal.submission = Some("first"));
    }
    submission.key = Some(key);
    submission.told = Some(told);
    exchange.submission = Some(submission);
    word
}

/// Waits until what the answer promises is on disk.
///
/// # Errors
/// `overloaded`: it is not, and the operator wants no answer then.
pub async fn kept(exchange: &mut Exchange) -> Result<(), Failure> {
    let gateway = exchange.gateway().clone();
    let Some(submissions) = &gateway.submissions else { return Ok(()) };
    let Some(submission) = &mut exchange.submission else { return Ok(()) };
    let (Some(ledger), Some((record, durable))) = (&submissions.ledger, submission.durable.take()) else {
        return Ok(());
    };
    match (ledger.written(durable).await, submissions.on_failure) {
        (Ok(()), _) => {
            if let Some(key) = submission.key {
                ledger.remember(key, record);
            }
            Ok(())
        }
        (Err(_), OnFailure::Decide) => {
            submissions.counted.count("unledgered");
            submission.unledgered = true;
            Ok(())
        }
        (Err(_), OnFailure::Refuse) => Err(refused(submissions, Refused::Unknown)),
    }
}

/// Adds the route token to an answer, and says if nothing is kept of its submission.
#[cold]
pub fn stamp(submissions: &Submissions, exchange: &Exchange, resolution: &Resolution, fields: &mut HeaderMap) {
    let submission = exchange.submission.as_deref();
    if submission.is_some_and(|submission| submission.unledgered) {
        fields.insert(headers::RESOLUTION, HeaderValue::from_static("unledgered"));
    }
    let arms = submission.and_then(|submission| submission.arms.as_deref());
    let told = arms.filter(|_| exchange.stamps.contains(Stamp::Experiment) && resolution.cause.is_none());
    if let Some(arms) = told.and_then(|arms| HeaderValue::from_str(arms).ok()) {
        fields.insert(headers::EXPERIMENT, arms);
    }
    let Some(tokens) = submissions.tokens.as_ref().filter(|_| exchange.endpoint == Endpoint::Infer) else { return };
    // A token that is handed on lives no longer than the first one.
    let until = submission.and_then(|submission| submission.until).unwrap_or_else(|| tokens.until());
    let mut record = record_of(resolution, until);
    record.arms = record.arms.or_else(|| arms.map(Into::into));
    let key = submission.and_then(|submission| submission.key);
    if let Some(token) = tokens.header(&resolution.route.tenant, &record, key.as_ref()) {
        fields.insert(headers::ROUTE, token);
    }
}

/// Routes to versions that their tenants neither pin nor name any more, made for retries. Bounded; of one table's configuration.
#[derive(Default)]
pub struct Replays(Mutex<HashMap<u64, Arc<Route>>>);

/// The most that are kept; then all are made anew.
const ROUTES: usize = 4_096;

impl Replays {
    fn route(
        &self,
        snapshot: &Snapshot,
        tenant: &TenantEntry,
        model: &ModelEntry,
        version: &VersionEntry,
    ) -> Arc<Route> {
        let names = (&tenant.name, &model.name, &version.version);
        let key = subset_key(names.0.as_str(), names.1.as_str(), names.2.as_str());
        let mut routes = self.0.lock();
        if let Some(kept) = routes.get(&key).filter(|kept| (&kept.tenant, &kept.model, &kept.version) == names) {
            return kept.clone();
        }
        if routes.len() >= ROUTES {
            routes.clear();
        }
        let made = Arc::new(snapshot.route_for(tenant, model, version));
        routes.insert(key, made.clone());
        made
    }
}
