//! The handshake: which requests become sockets, and whose.
//!
//! Over HTTP/1.1 it is an `Upgrade` (RFC 6455, 4.2), over HTTP/2 an extended CONNECT (RFC 8441). The credential is the one of every other request, and is kept with the socket, so that
//! it can be checked again.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use xxhash_rust::xxh3::xxh3_128_with_seed;

use holdfast_codec::oip::ModelOp;
use holdfast_codec::ws::accept_key;
use holdfast_config::{Stream, StreamRoute};
use holdfast_identity::Subject;
use holdfast_net::tls::Peer;
use holdfast_net::{ConnState, Socket, Tasks};
use holdfast_telemetry::Clock;
use holdfast_types::{Failure, FailureKind};

use super::openings::{Allowed, Opened};
use super::session::Session;
use super::side::Side;
use super::through::Through;
use super::upstream::{self, Upstream};
use crate::asker::Asker;
use crate::body::AnswerBody;
use crate::exchange::Exchange;
use crate::exposed;
use crate::identity::Refused;
use crate::settings::Settings;
use crate::stage::accept::ModelCall;
use crate::stage::finish;
use crate::stage::identify::{self, Who};
use crate::stage::resolve;
use crate::worker::Worker;

/// The name of our frames, for clients that ask for one.
const PROTOCOL: &str = "holdfast.v1";

/// Where a socket lives.
pub struct Home {
    /// The worker of its connection.
    pub worker: Arc<Worker>,
    /// The worker's tasks.
    pub tasks: Tasks,
    /// What the connection is counted by: it is the socket's as well.
    pub _held: Box<dyn Any + Send + Sync>,
}

/// A request that wants to become a socket.
pub struct Opening {
    /// As of every request.
    pub exchange: Box<Exchange>,
    /// The request.
    pub request: Request<Incoming>,
}

/// What proves whose a socket is, to be checked again while it lives.
pub struct Credentials {
    /// The fields of the handshake that matter: the credential, the user.
    pub fields: HeaderMap,
    /// The certificate of the connection's client.
    pub peer: Option<Arc<Peer>>,
    /// Who that was at the last look, if a token or a certificate said it.
    pub subject: Option<Arc<Subject>>,
}

/// Makes a request a socket, or says why not.
pub async fn open(opening: Box<Opening>, home: Arc<Home>, on: Arc<ConnState>) -> Response<AnswerBody> {
    let Opening { mut exchange, request } = *opening;
    let entered = Box::pin(enter(&mut exchange, &request)).await;
    let failed = match entered {
        Ok(entered) => match Box::pin(hand_over(exchange, request, entered, home, on)).await {
            Ok(response) => return response,
            Err(failed) => failed,
        },
        Err((failure, label)) => Box::new((exchange, request, failure, label)),
    };
    let (exchange, request, failure, label) = *failed;
    exchange.gateway().streams.metrics.handshakes.get([label]).inc();
    let mut response = finish::failed(exchange, &failure);
    if failure.status == Some(426) {
        let fields = response.headers_mut();
        fields.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        if request.version() < Version::HTTP_2 {
            fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
            fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        }
    }
    response
}

type NotOpened = Box<(Box<Exchange>, Request<Incoming>, Failure, &'static str)>;

/// Answers the handshake, and has the socket served from then on.
async fn hand_over(
    mut exchange: Box<Exchange>,
    mut request: Request<Incoming>,
    (credentials, opened, config): (Credentials, Opened, Arc<Stream>),
    home: Arc<Home>,
    on: Arc<ConnState>,
) -> Result<Response<AnswerBody>, NotOpened> {
    let gateway = exchange.gateway().clone();
    let client = exchange.client_shared();
    let route = config.routes.iter().find(|route| *route.path == *request.uri().path()).cloned();
    let upstream = match &route {
        None => None,
        Some(route) => match reach(&mut exchange, &home, route, &credentials, request.headers()).await {
            Ok(upstream) => Some(upstream),
            Err(failure) => return Err(Box::new((exchange, request, failure, "upstream"))),
        },
    };
    gateway.streams.metrics.handshakes.get(["opened"]).inc();
    let upgrade = hyper::upgrade::on(&mut request);
    let mut response = switched(&mut exchange, &request);
    let tasks = home.tasks.clone();
    let side = Side { gateway, home, on, client, credentials, opened };
    match (upstream, route) {
        (Some(upstream), Some(route)) => {
            response.headers_mut().remove(SEC_WEBSOCKET_PROTOCOL);
            if let Some(protocol) = &upstream.protocol {
                response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, protocol.clone());
            }
            let beside = tasks.clone();
            tasks.spawn(async move {
                let Some(socket) = Socket::of(upgrade).await else { return };
                let through = Box::new(Through::new(socket, upstream, side, exchange, config, route));
                beside.spawn(through.run());
            });
        }
        _ => {
            *response.body_mut() = AnswerBody::whole(Bytes::new(), Some(exchange));
            let beside = tasks.clone();
            // A task of its own, so that nothing of the handshake stays for as long as the socket.
            tasks.spawn(async move {
                let Some(socket) = Socket::of(upgrade).await else { return };
                let session = Box::new(Session::new(socket, side, config));
                beside.spawn(session.run());
            });
        }
    }
    Ok(response)
}

/// Resolves, once for the whole of the socket, and opens the model server's side.
async fn reach(
    exchange: &mut Exchange,
    home: &Home,
    route: &StreamRoute,
    credentials: &Credentials,
    fields: &HeaderMap,
) -> Result<Upstream, Failure> {
    let gateway = exchange.gateway().clone();
    // What may have been resolved before must not be resolved as if it were new (PIN-2).
    if gateway.submissions.as_ref().is_some_and(|all| all.may_know(fields)) {
        let why = "a submission that may have been resolved before is asked for over HTTP";
        return Err(Failure::new(FailureKind::BadRequest, why));
    }
    let (settings, resolution) = {
        let table = gateway.tables.load();
        let who = identify::as_known(&credentials.fields, &table.settings, credentials.subject.as_ref())?;
        let asker = Asker::new(&who, fields, &table.settings, gateway.submissions.as_deref());
        let call = ModelCall { model: Cow::Borrowed(route.model.as_str()), version: None, op: ModelOp::Infer };
        let submission = resolve::submission(fields, &exchange.id.text);
        let resolution = resolve::resolve(&gateway, &table, &asker, &call, submission)?;
        if resolution.cause.is_some() {
            exposed::expose(&gateway, &resolution, &exchange.id);
        }
        (table.settings.clone(), resolution)
    };
    exchange.stamps = settings.stamps;
    exchange.note(|journal| {
        journal.resolved = Some(Clock::now());
        journal.cause.clone_from(&resolution.cause);
    });
    exchange.resolution = Some(resolution);
    let deadline = exchange.begun.after(settings.request);
    upstream::open(exchange, home, route, fields, &settings, deadline).await
}

type Entered = Result<(Credentials, Opened, Arc<Stream>), (Failure, &'static str)>;

/// Whether this is a handshake, of somebody who may open a socket now.
async fn enter(exchange: &mut Exchange, request: &Request<Incoming>) -> Entered {
    let gateway = exchange.gateway().clone();
    let settings = gateway.tables.load().settings.clone();
    let Some(config) = settings.stream.clone() else {
        return Err((
            Failure::new(FailureKind::BadRequest, "there is nothing at this path").with_status(404),
            "refused",
        ));
    };
    shape(request).map_err(|failure| (failure, "malformed"))?;
    if gateway.drain.started() {
        return Err((Failure::new(FailureKind::Draining, "this gateway is about to stop"), "draining"));
    }
    if gateway.lacks_table() {
        let why = "this gateway has no routing table yet";
        return Err((Failure::new(FailureKind::NoHolder, why), "refused"));
    }
    let credentials = prove(exchange, request.headers(), &settings).await.map_err(|failure| (failure, "unproved"))?;
    let refused = |failure| (failure, "refused");
    let (tenant, user) = named(&credentials, &settings).map_err(refused)?;
    if gateway.tables.load().snapshot.tenant(&tenant).is_none() {
        return Err(refused(Failure::new(FailureKind::Forbidden, "there is no such tenant")));
    }
    // Whom nobody names is an address, which has many ports.
    let address = exchange.client().and_then(|client| client.rsplit_once(':')).map_or("", |(host, _)| host);
    let user = user.as_deref().filter(|user| !user.is_empty()).unwrap_or(address.as_bytes());
    let who = xxh3_128_with_seed(&[tenant.as_bytes(), &[0], user].concat(), gateway.streams.salt);
    let allowed = Allowed { sockets: config.sockets_per_user, per_minute: config.opens_per_minute };
    let opened = gateway.streams.openings.open(Clock::now(), who, allowed);
    let opened = opened.map_err(|closed| {
        let failure = Failure::new(FailureKind::RateLimited, closed.why).retry_in(closed.wait);
        (failure, closed.label)
    })?;
    Ok((credentials, opened, config))
}

/// The tenant, and the user if one is named.
type Named = (Box<str>, Option<Box<[u8]>>);

fn named(credentials: &Credentials, settings: &Settings) -> Result<Named, Failure> {
    let who = identify::as_known(&credentials.fields, settings, credentials.subject.as_ref())?;
    let user = identify::user(&credentials.fields, settings, credentials.subject.as_deref())?;
    Ok((who.tenant().into(), user.map(Into::into)))
}

/// Whose request it is. Waits once for the keys of a token's issuer.
async fn prove(exchange: &mut Exchange, fields: &HeaderMap, settings: &Settings) -> Result<Credentials, Failure> {
    let mut may_wait = true;
    let subject = loop {
        match identify::identify(fields, settings, exchange, may_wait) {
            Ok(Who::Named(_)) => break None,
            Ok(Who::Proved(subject)) => break Some(subject),
            Err(Refused::Failed(failure)) => return Err(failure),
            Err(Refused::Waits(issuer)) => issuer.settled(settings.request).await,
        }
        may_wait = false;
    };
    exchange.subject.clone_from(&subject);
    let names = [settings.credential.as_ref(), settings.trusted_user_header.as_ref()];
    Ok(Credentials { fields: kept(fields, names), peer: exchange.peer.clone(), subject })
}

/// The fields that are kept for as long as the socket lives.
fn kept(fields: &HeaderMap, names: [Option<&HeaderName>; 2]) -> HeaderMap {
    let mut own = HeaderMap::with_capacity(1);
    for name in names.into_iter().flatten() {
        for value in fields.get_all(name) {
            // Copies: a value as it came is a piece of the buffer that its connection was read into, and would keep all of it.
            let Ok(mut copy) = HeaderValue::from_bytes(value.as_bytes()) else { continue };
            copy.set_sensitive(value.is_sensitive());
            own.append(name.clone(), copy);
        }
    }
    own
}

/// Whether the request has the form of a handshake.
fn shape(request: &Request<Incoming>) -> Result<(), Failure> {
    let bad = |why: &'static str| Failure::new(FailureKind::BadRequest, why);
    let fields = request.headers();
    let upgrade = |why: &'static str| bad(why).with_status(426);
    if request.version() >= Version::HTTP_2 {
        if request.method() != Method::CONNECT {
            return Err(upgrade("a WebSocket over HTTP/2 is opened by an extended CONNECT"));
        }
    } else {
        if request.method() != Method::GET || !has_token(fields, &UPGRADE, "websocket") {
            return Err(upgrade("this is the path of WebSockets"));
        }
        if !has_token(fields, &CONNECTION, "upgrade") {
            return Err(bad("a handshake has connection: upgrade"));
        }
        if once(fields, &SEC_WEBSOCKET_KEY).and_then(accept_key).is_none() {
            return Err(bad("a handshake has one sec-websocket-key of 16 bytes in base64"));
        }
    }
    match once(fields, &SEC_WEBSOCKET_VERSION) {
        Some("13") => Ok(()),
        _ => Err(upgrade("the version of WebSocket is 13")),
    }
}

fn once<'h>(fields: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = fields.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then(|| value.trim())
}

fn has_token(fields: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = fields.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(token))
}

/// The answer that hands the connection, or the stream, over.
fn switched(exchange: &mut Exchange, request: &Request<Incoming>) -> Response<AnswerBody> {
    let is_h2 = request.version() >= Version::HTTP_2;
    let status = if is_h2 { StatusCode::OK } else { StatusCode::SWITCHING_PROTOCOLS };
    exchange.ends(status.as_u16(), None);
    let mut answer = HeaderMap::new();
    exchange.stamp(&mut answer);
    if !is_h2 {
        answer.insert(UPGRADE, HeaderValue::from_static("websocket"));
        answer.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        let accept = once(request.headers(), &SEC_WEBSOCKET_KEY).and_then(accept_key);
        if let Some(accept) = accept.and_then(|accept| HeaderValue::try_from(accept).ok()) {
            answer.insert(SEC_WEBSOCKET_ACCEPT, accept);
        }
    }
    if has_token(request.headers(), &SEC_WEBSOCKET_PROTOCOL, PROTOCOL) {
        answer.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    }
    let mut response = Response::new(AnswerBody::whole(Bytes::new(), None));
    *response.status_mut() = status;
    *response.headers_mut() = answer;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_of_a_handshake_keeps_nothing_of_the_buffer_that_it_came_in() {
        let head = Bytes::from(vec![b'a'; 8_192]);
        let (tenant, user) = (HeaderName::from_static("x-tenant"), HeaderName::from_static("x-user"));
        let mut fields = HeaderMap::new();
        for name in [&tenant, &user, &HeaderName::from_static("cookie")] {
            fields.append(name.clone(), HeaderValue::from_maybe_shared(head.slice(..4)).unwrap());
        }
        let own = kept(&fields, [Some(&tenant), Some(&user)]);
        drop(fields);
        assert!(head.is_unique());
        assert_eq!(
            (own.len(), &own["x-tenant"], &own["x-user"]),
            (2, &"aaaa".parse().unwrap(), &"aaaa".parse().unwrap())
        );
    }
}
