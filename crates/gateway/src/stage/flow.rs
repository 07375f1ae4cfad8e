//! The way of one request through the stages.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;

use holdfast_codec::oip::ModelOp;
use holdfast_telemetry::{Clock, Endpoint};
use holdfast_types::{Failure, Mono};

use super::accept::{Asked, ModelCall, accept, budget, method_name, query};
use super::payload::{self, Payload};
use super::{dispatch, finish, identify, resolve, send};
use crate::body::AnswerBody;
use crate::exchange::Exchange;
use crate::probes;
use crate::server::Gateway;
use crate::settings::Settings;
use crate::worker::Worker;

/// What became of a request once its head had been looked at.
pub enum Entered {
    /// It is answered already.
    Answered(Response<AnswerBody>),
    /// It has its route, and is to be served.
    Routed(Box<Call>),
}

/// A request with its route, on its way to a replica.
pub struct Call {
    exchange: Box<Exchange>,
    settings: Arc<Settings>,
    head: send::Head,
    body: Option<Incoming>,
    payload: Payload,
    deadline: Mono,
}

/// Accepts, identifies and resolves. Synchronous, over one table.
pub fn enter(mut exchange: Box<Exchange>, request: Request<Incoming>) -> Entered {
    let (parts, body) = request.into_parts();
    exchange.method = method_name(&parts.method);
    let gateway = exchange.gateway().clone();
    // One pointer to the table, held until the request has its route and not a moment longer.
    let table = gateway.tables.load();
    exchange.stamps = table.settings.stamps;
    let settings = &table.settings;
    let call = match accept(&parts, !body.is_end_stream(), settings) {
        Ok(Asked::Model(call)) => call,
        Ok(asked) => return Entered::Answered(own_answer(exchange, &gateway, &asked, parts.uri.query())),
        Err(failure) => return Entered::Answered(finish::failed(exchange, &failure)),
    };
    exchange.endpoint = match call.op {
        ModelOp::Infer => Endpoint::Infer,
        ModelOp::Ready => Endpoint::ModelReady,
        ModelOp::Metadata => Endpoint::ModelMetadata,
    };
    let resolved = identify::identify(&parts.headers, settings)
        .and_then(|tenant| resolve::resolve(&gateway, &table, tenant, &call));
    match resolved {
        Ok(resolution) => exchange.resolution = Some(resolution),
        Err(failure) => return Entered::Answered(finish::failed(exchange, &failure)),
    }
    let op = call.op;
    if op == ModelOp::Ready {
        return Entered::Answered(ready(exchange, &call));
    }
    // The call borrows the path.
    drop(call);
    route(exchange, settings, parts, body, op)
}

fn route(
    exchange: Box<Exchange>,
    settings: &Arc<Settings>,
    parts: http::request::Parts,
    body: Incoming,
    op: ModelOp,
) -> Entered {
    let deadline = match budget(&parts.headers, settings) {
        Ok(budget) => exchange.begun.after(budget),
        Err(failure) => return Entered::Answered(finish::failed(exchange, &failure)),
    };
    let head = send::Head {
        op,
        trusted: settings.trusted_header.clone(),
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
    match served(&mut call, &worker).await {
        Ok(received) => finish::answer(call.exchange, received),
        Err(failure) => finish::failed(call.exchange, &failure),
    }
}

async fn served(call: &mut Call, worker: &Worker) -> Result<send::Received, Failure> {
    if let Some(body) = call.body.take() {
        call.payload = payload::read(body, &call.settings, Clock::instant(call.deadline)).await?;
    }
    call.exchange.bytes_in = call.payload.bytes();
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
        Asked::Live | Asked::Model(_) => (StatusCode::OK, probes::live()),
    };
    finish::own(exchange, status, json)
}

/// Whether the tenant's version can be served at once: some replica of the subset holds it and is well. Asks for no load.
fn ready(exchange: Box<Exchange>, call: &ModelCall<'_>) -> Response<AnswerBody> {
    let is_ready = exchange.resolution.as_ref().is_some_and(|resolution| {
        let members = resolution.state.cells.iter().filter(|cell| cell.replica.in_service());
        let mut subset = members.take(usize::from(resolution.route.subset));
        subset.any(|cell| cell.holds() && cell.replica.usable())
    });
    let json = serde_json::json!({ "name": call.model, "ready": is_ready }).to_string();
    finish::own(exchange, if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, json)
}
