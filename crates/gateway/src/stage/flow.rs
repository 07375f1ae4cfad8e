//! The way of one request through the stages.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;

use holdfast_codec::oip::ModelOp;
use holdfast_telemetry::{Clock, Endpoint};
use holdfast_types::{Failure, FailureKind, Mono, Revision};

use super::accept::{Asked, ModelCall, accept, budget, method_name, query};
use super::early::{Early, Waits, wait_for_issuer};
use super::identify::{self, Who};
use super::payload::{self, Payload};
use super::submission::{self, Step};
use super::{admit, dispatch, finish, resolve, send};
use crate::asker::Asker;
use crate::body::AnswerBody;
use crate::exchange::Exchange;
use crate::exposed;
use crate::headers;
use crate::identity::Refused;
use crate::probes;
use crate::results::OutcomeCall;
use crate::server::Gateway;
use crate::settings::Settings;
use crate::stream::Opening;
use crate::table::Table;
use crate::tokens::{self, TokenCall};
use crate::trail::Trail;
use crate::worker::Worker;

/// What became of a request once its head had been looked at.
pub enum Entered {
    /// It is answered already. Boxed, as the others: what is entered lies in the future that each connection has.
    Answered(Box<Response<AnswerBody>>),
    /// It has its route, and is to be served.
    Routed(Box<Call>),
    /// It asks for a token.
    Token(Box<TokenCall>),
    /// It tells outcomes.
    Outcomes(Box<OutcomeCall>),
    /// It wants to become a socket.
    Opens(Box<Opening>),
    /// It insists on a table that is not in force here yet, or its token's key is being fetched.
    Early(Box<Early>),
}

impl Entered {
    pub(super) fn answered(response: Response<AnswerBody>) -> Self {
        Self::Answered(Box::new(response))
    }
}

/// How long a table is waited for at most: what a gateway whose push is broken needs to hear of it.
const EARLY: Duration = Duration::from_secs(6);

/// A request with its route, on its way to a replica.
pub struct Call {
    pub(super) exchange: Box<Exchange>,
    pub(super) settings: Arc<Settings>,
    pub(super) head: send::Head,
    pub(super) body: Option<Incoming>,
    pub(super) payload: Payload,
    pub(super) deadline: Mono,
}

/// Accepts, identifies and resolves. Synchronous, over one table.
pub fn enter(exchange: Box<Exchange>, request: Request<Incoming>) -> Entered {
    enter_once(exchange, request, true)
}

/// The same. `may_wait`: whether it may wait for its token's key.
pub(super) fn enter_once(exchange: Box<Exchange>, request: Request<Incoming>, may_wait: bool) -> Entered {
    if request.headers().contains_key(headers::MIN_REVISION) {
        return enter_insisting(exchange, request, may_wait);
    }
    enter_now(exchange, request, may_wait)
}

/// Enters a request that names a revision. What is wrong with it under any table is told first, and needs no table to be waited for.
#[cold]
fn enter_insisting(mut exchange: Box<Exchange>, request: Request<Incoming>, may_wait: bool) -> Entered {
    let gateway = exchange.gateway().clone();
    let table = gateway.tables.load();
    if gateway.lacks_table() {
        return enter_under(exchange, request, may_wait, (&gateway, &table));
    }
    let (parts, body) = request.into_parts();
    let insists = known_as(&mut exchange, &parts, &body, &table, may_wait);
    let request = Request::from_parts(parts, body);
    match insists {
        // It asks for nothing that depends on the table.
        None => enter_under(exchange, request, may_wait, (&gateway, &table)),
        // Under the same table, so that nobody has to ask once more who it is.
        Some(Ok((revision, _))) if revision <= table.snapshot.revision() => {
            enter_under(exchange, request, may_wait, (&gateway, &table))
        }
        Some(Ok((revision, most))) => {
            Entered::Early(Box::new(Early { exchange, request, waits: Waits::Table(revision, most) }))
        }
        Some(Err(Refused::Failed(failure))) => Entered::answered(finish::failed(exchange, &failure)),
        Some(Err(Refused::Waits(issuer))) => wait_for_issuer(exchange, request, &table, issuer),
    }
}

/// Notes who asks for what; gives which revision the request insists on, and for how long it is waited for; or why it is refused by whatever table. None:
/// it is no well-formed request about a model.
fn known_as(
    exchange: &mut Exchange,
    parts: &Parts,
    body: &Incoming,
    table: &Table,
    may_wait: bool,
) -> Option<Result<(Revision, Duration), Refused>> {
    let settings = &table.settings;
    let Ok(Asked::Model(call)) = accept(parts, !body.is_end_stream(), settings) else { return None };
    exchange.method = method_name(&parts.method);
    exchange.stamps = settings.stamps;
    exchange.endpoint = endpoint(call.op);
    let who = identify::identify(&parts.headers, settings, exchange, may_wait);
    let tenant = who.as_ref().ok().map(Who::tenant);
    exchange.note(|journal| journal.asks(tenant, &call.model, call.version.as_deref()));
    match who {
        Ok(Who::Proved(subject)) => exchange.subject = Some(subject),
        Ok(Who::Named(_)) => {}
        Err(refused) => return Some(Err(refused)),
    }
    let insists = insisted(&parts.headers);
    let insists = insists.and_then(|revision| Ok((revision, budget(&parts.headers, settings)?.min(EARLY))));
    Some(insists.map_err(Refused::Failed))
}

/// The revision that the request insists on.
fn insisted(fields: &HeaderMap) -> Result<Revision, Failure> {
    let mut values = fields.get_all(headers::MIN_REVISION).iter();
    let text =
        values.next().and_then(|value| value.to_str().ok()).filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    match (text.and_then(|text| text.parse().ok()), values.next()) {
        (Some(revision), None) => Ok(Revision(revision)),
        _ => {
            let why = "x-holdfast-min-revision is a revision in decimal digits, once";
            Err(Failure::new(FailureKind::BadRequest, why))
        }
    }
}

const fn endpoint(op: ModelOp) -> Endpoint {
    match op {
        ModelOp::Infer => Endpoint::Infer,
        ModelOp::Ready => Endpoint::ModelReady,
        ModelOp::Metadata => Endpoint::ModelMetadata,
    }
}

pub(super) fn enter_now(exchange: Box<Exchange>, request: Request<Incoming>, may_wait: bool) -> Entered {
    let gateway = exchange.gateway().clone();
    // One pointer to the table, held until the request has its route and not a moment longer.
    let table = gateway.tables.load();
    enter_under(exchange, request, may_wait, (&gateway, &table))
}

#[inline]
fn enter_under(
    mut exchange: Box<Exchange>,
    request: Request<Incoming>,
    may_wait: bool,
    (gateway, table): (&Gateway, &Table),
) -> Entered {
    let (parts, body) = request.into_parts();
    exchange.method = method_name(&parts.method);
    exchange.stamps = table.settings.stamps;
    let settings = &table.settings;
    let call = match accept(&parts, !body.is_end_stream(), settings) {
        Ok(Asked::Model(call)) => call,
        Ok(Asked::Token) => {
            let settings = settings.clone();
            return Entered::Token(Box::new(TokenCall { exchange, settings, fields: parts.headers, body }));
        }
        Ok(Asked::KeySet) => return Entered::answered(tokens::key_set(exchange, settings)),
        Ok(Asked::Outcomes) => return outcomes(exchange, table, (parts, body), may_wait),
        Ok(Asked::Stream) => {
            let request = Request::from_parts(parts, body);
            return Entered::Opens(Box::new(Opening { exchange, request }));
        }
        Ok(asked) => return Entered::answered(own_answer(exchange, gateway, &asked, parts.uri.query())),
        Err(failure) => return Entered::answered(finish::failed(exchange, &failure)),
    };
    exchange.endpoint = endpoint(call.op);
    // Who insists on a revision has been asked already, under this table.
    let known = exchange.subject.take().map(Who::Proved);
    let who = match known.map_or_else(|| identify::identify(&parts.headers, settings, &exchange, may_wait), Ok) {
        Ok(who) => Ok(who),
        Err(Refused::Failed(failure)) => Err(failure),
        Err(Refused::Waits(issuer)) => {
            drop(call);
            return wait_for_issuer(exchange, Request::from_parts(parts, body), table, issuer);
        }
    };
    let resolved = match &who {
        _ if gateway.lacks_table() => Err(no_table()),
        Err(failure) => Err(failure.clone()),
        Ok(who) => {
            let asker = Asker::new(who, &parts.headers, settings, gateway.submissions.as_deref());
            match &gateway.submissions {
                None => {
                    let submission = resolve::submission(&parts.headers, &exchange.id.text);
                    resolve::resolve(gateway, table, &asker, &call, submission)
                }
                Some(all) => match submission::resolve(all, (gateway, table), &asker, &call, &mut exchange) {
                    Ok(Step::Resolved(resolution)) => Ok(resolution),
                    Ok(Step::Ask(asking)) => {
                        // It is asked again in some milliseconds, and its token is not counted twice.
                        exchange.subject = match who {
                            Who::Proved(subject) => Some(subject.clone()),
                            Who::Named(_) => None,
                        };
                        drop(call);
                        let request = Request::from_parts(parts, body);
                        return Entered::Early(Box::new(Early { exchange, request, waits: Waits::Ledger(asking) }));
                    }
                    Err(failure) => Err(failure),
                },
            }
        }
    };
    if let Ok(Who::Proved(subject)) = &who {
        exchange.subject = Some(subject.clone());
    }
    match resolved {
        Ok(resolution) => {
            if gateway.tables.shadows.any() && call.op == ModelOp::Infer {
                let submission = resolve::submission(&parts.headers, &exchange.id.text);
                exchange.shadow = gateway.tables.shadows.choose(&resolution, submission);
            }
            exchange.note(|journal| {
                journal.resolved = Some(Clock::now());
                journal.cause.clone_from(&resolution.cause);
            });
            if resolution.cause.is_some() && call.op == ModelOp::Infer {
                exposed::expose(gateway, &resolution, &exchange.id);
            }
            exchange.resolution = Some(resolution);
        }
        Err(failure) => {
            let tenant = who.as_ref().ok().map(Who::tenant);
            exchange.note(|journal| journal.asks(tenant, &call.model, call.version.as_deref()));
            return Entered::answered(finish::failed(exchange, &failure));
        }
    }
    let op = call.op;
    if op == ModelOp::Ready {
        return Entered::answered(ready(exchange, &call));
    }
    // The call borrows the path.
    drop(call);
    if let Err(failure) = admit::admit(&mut exchange, &parts.headers, body.size_hint().exact(), op, settings) {
        return Entered::answered(finish::failed(exchange, &failure));
    }
    route(exchange, settings, parts, body, op)
}

/// Whoever tells outcomes is known like whoever asks for an answer.
#[cold]
fn outcomes(exchange: Box<Exchange>, table: &Table, (parts, body): (Parts, Incoming), may_wait: bool) -> Entered {
    let tenant = match identify::identify(&parts.headers, &table.settings, &exchange, may_wait) {
        Ok(who) => who.tenant().to_owned(),
        Err(Refused::Failed(failure)) => return Entered::answered(finish::failed(exchange, &failure)),
        Err(Refused::Waits(issuer)) => {
            return wait_for_issuer(exchange, Request::from_parts(parts, body), table, issuer);
        }
    };
    Entered::Outcomes(Box::new(OutcomeCall { exchange, tenant, fields: parts.headers, body }))
}

/// Before a first table has come nothing is known, so nothing is denied for good either.
fn no_table() -> Failure {
    Failure::new(FailureKind::NoHolder, "this gateway has no routing table yet")
}

fn route(exchange: Box<Exchange>, settings: &Arc<Settings>, parts: Parts, body: Incoming, op: ModelOp) -> Entered {
    let deadline = match budget(&parts.headers, settings) {
        Ok(budget) => exchange.begun.after(budget),
        Err(failure) => return Entered::answered(finish::failed(exchange, &failure)),
    };
    let head = send::Head {
        op,
        trusted: settings.credential.clone(),
        query: query(&parts).map(std::borrow::Cow::into_owned),
        answer_head: settings.answer_head,
        patience: settings.request,
        method: if op == ModelOp::Infer { http::Method::POST } else { http::Method::GET },
        fields: parts.headers,
    };
    let (settings, payload) = (settings.clone(), Payload::default());
    Entered::Routed(Box::new(Call { exchange, settings, head, body: Some(body), payload, deadline }))
}

/// Reads the body and has the request served. Never fails: a failure is an answer too.
///
/// # Cancel safety
/// Dropping the future, as hyper does when the client leaves, settles the exchange and ends the request at the replica.
pub async fn serve(mut call: Box<Call>, worker: Arc<Worker>) -> Response<AnswerBody> {
    let served = served(&mut call, &worker).await;
    if call.exchange.submission.is_some()
        && let Err(failure) = Box::pin(submission::kept(&mut call.exchange)).await
    {
        return finish::failed(call.exchange, &failure);
    }
    match served {
        Ok(received) if call.exchange.shadow.is_some() => kept(*call, received),
        Ok(received) => finish::answer(call.exchange, received),
        Err(failure) => unserved(*call, &failure),
    }
}

/// Tells why a request was not served. A tenant may have another answer for an inference that nobody could take in time; not for one that went wrong.
#[cold]
fn unserved(call: Call, failure: &Failure) -> Response<AnswerBody> {
    let Call { exchange, settings, head, .. } = call;
    let in_time =
        matches!(failure.kind, FailureKind::NoHolder | FailureKind::Overloaded | FailureKind::UpstreamTimeout);
    let route = exchange.resolution.as_ref().filter(|_| in_time && head.op == ModelOp::Infer).map(|r| &r.route);
    match route.and_then(|route| settings.fallback(&route.tenant, &route.model)) {
        Some(answer) => finish::fallback(exchange, failure, answer),
        None => finish::failed(exchange, failure),
    }
}

/// Keeps what a copy needs, and passes the answer on.
#[cold]
pub(super) fn kept(call: Call, received: send::Received) -> Response<AnswerBody> {
    let Call { mut exchange, head, payload, .. } = call;
    if let Some(shadow) = &mut exchange.shadow {
        shadow.keep(&exchange.id, head, &payload, &received);
    }
    finish::answer(exchange, received)
}

pub(super) async fn served(call: &mut Call, worker: &Worker) -> Result<send::Received, Failure> {
    if let Some(ordered) = call.exchange.ordered.take() {
        Box::pin(admit::wait_for_order(&mut call.exchange, *ordered)).await?;
    }
    if let Some(body) = call.body.take() {
        call.payload = payload::read(body, &call.settings, Clock::instant(call.deadline)).await?;
    }
    call.exchange.bytes_in = call.payload.bytes();
    call.exchange.note(|journal| journal.read = Some(Clock::now()));
    if call.head.op == ModelOp::Infer && call.exchange.gateway().audit.is_on() {
        call.exchange.trail = Some(Trail::new(call.payload.digest()));
    }
    dispatch::dispatch(&mut call.exchange, worker, &call.head, &mut call.payload, call.deadline).await
}

/// Answers that need no replica.
fn own_answer(
    mut exchange: Box<Exchange>,
    gateway: &Gateway,
    asked: &Asked<'_>,
    query: Option<&str>,
) -> Response<AnswerBody> {
    exchange.endpoint =
        if matches!(asked, Asked::ServerMetadata) { Endpoint::ServerMetadata } else { Endpoint::Health };
    let (status, json) = match asked {
        Asked::Ready => probes::ready(gateway, probes::is_verbose(query)),
        Asked::ServerMetadata => (StatusCode::OK, probes::server_metadata()),
        Asked::Live | Asked::Model(_) | Asked::Token | Asked::KeySet | Asked::Outcomes | Asked::Stream => {
            (StatusCode::OK, probes::live())
        }
    };
    finish::own(exchange, status, json)
}

/// Whether the tenant's version can be served at once: some replica of the subset, or one that hands over to them, holds it and is well. Asks for no load.
fn ready(exchange: Box<Exchange>, call: &ModelCall<'_>) -> Response<AnswerBody> {
    let is_ready = exchange.resolution.as_ref().is_some_and(|resolution| {
        let members = resolution.state.cells.iter().filter(|cell| cell.replica.in_service());
        let subset = members.take(usize::from(resolution.route.subset));
        let leaving = resolution.state.leaving.iter().flat_map(|leaving| leaving.serving(Clock::now(), false));
        subset.chain(leaving.map(|(_, cell)| cell)).any(|cell| cell.holds() && cell.replica.usable())
    });
    let json = serde_json::json!({ "name": call.model, "ready": is_ready }).to_string();
    finish::own(exchange, if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, json)
}
