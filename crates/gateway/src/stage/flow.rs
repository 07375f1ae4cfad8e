//! The way of one request through the stages.

use std::sync::Arc;

use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;

use holdfast_codec::oip::ModelOp;
use holdfast_telemetry::{Clock, Endpoint};
use holdfast_types::{Failure, Mono};

use super::accept::{Asked, ModelCall, accept, budget, method_name, query};
use super::{dispatch, finish, identify, payload, resolve, send};
use crate::body::AnswerBody;
use crate::exchange::Exchange;
use crate::probes;
use crate::server::Worker;
use crate::settings::Settings;

/// Answers one request. Never fails: a failure is an answer too.
///
/// # Cancel safety
/// Dropping the future, as hyper does when the client leaves, settles the exchange and ends the request at the replica.
pub async fn handle(
    mut exchange: Box<Exchange>,
    worker: Arc<Worker>,
    request: Request<Incoming>,
) -> Response<AnswerBody> {
    let (parts, body) = request.into_parts();
    exchange.method = method_name(&parts.method);
    let gateway = exchange.gateway().clone();
    let entered = {
        // One pointer to the table, held until the request has its route and not a moment longer.
        let table = gateway.tables.load();
        exchange.stamps = table.settings.stamps;
        let settings = table.settings.clone();
        match accept(&parts, !body.is_end_stream(), &settings) {
            Ok(Asked::Model(call)) => {
                exchange.endpoint = match call.op {
                    ModelOp::Infer => Endpoint::Infer,
                    ModelOp::Ready => Endpoint::ModelReady,
                    ModelOp::Metadata => Endpoint::ModelMetadata,
                };
                let resolved = identify::identify(&parts.headers, &settings)
                    .and_then(|tenant| resolve::resolve(&gateway, &table, tenant, &call));
                resolved.map(|resolution| {
                    exchange.resolution = Some(resolution);
                    (Asked::Model(call), settings)
                })
            }
            Ok(asked) => Ok((asked, settings)),
            Err(failure) => Err(failure),
        }
    };
    let (asked, settings) = match entered {
        Ok(entered) => entered,
        Err(failure) => return finish::failed(exchange, &failure),
    };
    match asked {
        Asked::Model(call) if call.op == ModelOp::Ready => ready(exchange, &call),
        Asked::Model(call) => {
            let served = serve(&mut exchange, &worker, &settings, parts, body, call.op).await;
            match served {
                Ok(received) => finish::answer(exchange, received),
                Err(failure) => finish::failed(exchange, &failure),
            }
        }
        Asked::ServerMetadata => {
            exchange.endpoint = Endpoint::ServerMetadata;
            finish::own(exchange, StatusCode::OK, probes::server_metadata())
        }
        Asked::Live => {
            exchange.endpoint = Endpoint::Health;
            finish::own(exchange, StatusCode::OK, probes::live())
        }
        Asked::Ready => {
            exchange.endpoint = Endpoint::Health;
            let (status, json) = probes::ready(&gateway, probes::is_verbose(parts.uri.query()));
            finish::own(exchange, status, json)
        }
    }
}

async fn serve(
    exchange: &mut Exchange,
    worker: &Worker,
    settings: &Settings,
    parts: http::request::Parts,
    body: Incoming,
    op: ModelOp,
) -> Result<send::Received, Failure> {
    let deadline: Mono = exchange.begun.after(budget(&parts.headers, settings)?);
    let mut payload = payload::read(body, settings, Clock::instant(deadline)).await?;
    exchange.bytes_in = payload.bytes();
    let head = send::Head {
        op,
        trusted: settings.trusted_header.clone(),
        query: query(&parts).map(std::borrow::Cow::into_owned),
        answer_head: settings.answer_head,
        patience: settings.request,
        method: if op == ModelOp::Infer { http::Method::POST } else { http::Method::GET },
        fields: parts.headers,
    };
    dispatch::dispatch(exchange, worker, &head, &mut payload, deadline).await
}

/// Whether the tenant's version can be served at once: some replica of the subset holds it and is well. Asks for no load.
fn ready(exchange: Box<Exchange>, call: &ModelCall) -> Response<AnswerBody> {
    let is_ready = exchange.resolution.as_ref().is_some_and(|resolution| {
        let members = resolution.state.cells.iter().filter(|cell| cell.replica.in_service());
        let mut subset = members.take(usize::from(resolution.route.subset));
        subset.any(|cell| cell.holds() && cell.replica.usable())
    });
    let json = serde_json::json!({ "name": call.model, "ready": is_ready }).to_string();
    finish::own(exchange, if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, json)
}
