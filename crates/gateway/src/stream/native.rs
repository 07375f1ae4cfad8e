//! One message of a native socket: who, which version, the ladder, the limits, and off to a replica.
//!
//! The stages are those of a request over HTTP, and the buckets are the same, so that a user gains nothing by the one or the other way.

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderMap;
use http_body_util::{BodyExt, LengthLimitError, Limited as Bounded};

use holdfast_codec::oip::ModelOp;
use holdfast_codec::ws::code;
use holdfast_config::{MessagePriority, MessageType, Stamps};
use holdfast_quota::bucket::Wait;
use holdfast_quota::ladder::Verdict;
use holdfast_quota::limit::Limit;
use holdfast_quota::scopes::Scope;
use holdfast_types::{Failure, FailureKind, Mono};
use xxhash_rust::xxh3::xxh3_64;

use super::message::{self, Id, Message};
use super::overload::Overload;
use super::session::Session;
use super::side::Side;
use crate::asker::Asker;
use crate::exchange::{Exchange, RequestId, Resolution};
use crate::exposed;
use crate::limits::{Refusal, RouteLimits, Step};
use crate::settings::Settings;
use crate::stage::accept::ModelCall;
use crate::stage::flow::Call;
use crate::stage::said::{self, Said};
use crate::stage::{identify, resolve};
use crate::table::Table;
use crate::worker::Worker;

/// For users whose limit is not known any more when they are kept out.
const SOME_LIMIT: Limit = Limit::per_second(20, 40);

/// A limit that refused.
pub struct Limited {
    scope: Scope,
    name: String,
    wait: Wait,
    limit: Option<Limit>,
    limits: Option<Arc<crate::route_state::RouteState>>,
}

/// The end of a message that was served.
pub struct Done {
    id: Id,
    frame: Vec<u8>,
    limited: Option<Limited>,
}

/// A message on its way, before it is a request.
struct Asked {
    id: RequestId,
    resolved: Result<Resolution, Failure>,
    kind: MessageType,
    stream: Option<u64>,
}

impl Session {
    /// A text has come.
    pub(super) fn take(&mut self, now: Mono, text: &[u8]) {
        match message::read(text) {
            Ok(message) if self.ids.contains(&message.id) => {
                let failure = Failure::new(FailureKind::BadRequest, "a message with this id is being served");
                self.misread(now, Some(&message.id), &failure);
            }
            Ok(message) => {
                self.offer(now, message, true);
            }
            Err(misread) => self.misread(now, misread.0.as_ref(), &misread.1),
        }
    }

    /// What is no message costs nothing but its bytes, so it may not come for ever.
    fn misread(&mut self, now: Mono, id: Option<&Id>, failure: &Failure) {
        self.side.count("malformed");
        self.send(&message::failed(id, failure, &HeaderMap::new()));
        if self.overload(now).ladder.violates(now) {
            self.shut_out(now, None, "too many messages that are not understood");
        }
    }

    /// A message that comes while the socket leaves.
    pub(super) fn turn_away(&mut self, text: &[u8]) {
        let id = message::read(text).map_or_else(|misread| misread.0, |message| Some(message.id));
        let failure = Failure::new(FailureKind::Draining, "this gateway is about to stop");
        self.side.count("draining");
        self.send(&message::failed(id.as_ref(), &failure, &HeaderMap::new()));
    }

    /// Offers a message to the ladder and the limits. `is_new`: it has not been held back. Given back is one that there is no room for now.
    fn offer(&mut self, now: Mono, message: Message, is_new: bool) -> Option<Message> {
        let gateway = self.side.gateway.clone();
        let table = gateway.tables.load();
        let settings = &table.settings;
        if let Err(failure) = self.side.prove(now, settings) {
            self.send(&message::failed(Some(&message.id), &failure, &HeaderMap::new()));
            self.side.count("unproved");
            if failure.kind == FailureKind::Unauthenticated {
                self.close(now, code::POLICY, &failure.detail);
            }
            return None;
        }
        let asked = self.ask(&table, &message);
        if let Ok(resolution) = &asked.resolved {
            let state = resolution.state.clone();
            if let Some(limits) = state.limits.as_ref().filter(|limits| !limits.is_shadow()) {
                let message = match self.descend(now, limits, settings, &asked, message, is_new) {
                    Descent::Goes(message) => message,
                    Descent::Stays(message) => return Some(message),
                    Descent::Gone => return None,
                };
                self.start(now, settings, asked, message);
                return None;
            }
        }
        self.start(now, settings, asked, message);
        None
    }

    fn ask(&self, table: &Table, message: &Message) -> Asked {
        let id = self.side.home.worker.request_id();
        let credentials = &self.side.credentials;
        let submission = message.submission.as_ref().map_or(&id.text[..], |text| text.as_bytes());
        let call = ModelCall {
            model: Cow::Borrowed(&message.model),
            version: message.version.as_deref().map(Cow::Borrowed),
            op: ModelOp::Infer,
        };
        let name = message.kind.as_deref().unwrap_or("normal");
        let kind = self.config.types.binary_search_by(|(known, _)| (**known).cmp(name));
        let kind = kind.ok().and_then(|at| self.config.types.get(at)).map(|(_, kind)| kind.clone());
        let who = identify::as_known(&credentials.fields, &table.settings, credentials.subject.as_ref());
        let has_ledger = self.side.gateway.submissions.as_ref().is_some_and(|all| all.ledger.is_some());
        let resolved = match (&kind, who) {
            (None, _) => Err(Failure::new(FailureKind::BadRequest, "there is no such type of messages")),
            // What the ledger may know must not be resolved without it (PIN-2).
            _ if has_ledger && message.submission.is_some() => {
                let why = "a submission that may have been resolved before is asked for over HTTP";
                Err(Failure::new(FailureKind::BadRequest, why))
            }
            (_, Err(failure)) => Err(failure),
            (Some(_), Ok(who)) => {
                let gateway = &self.side.gateway;
                let submissions = gateway.submissions.as_deref();
                let asker = Asker::new(&who, &credentials.fields, &table.settings, submissions);
                resolve::resolve(gateway, table, &asker, &call, submission)
            }
        };
        let kind = kind.unwrap_or_default();
        let stream = kind.coalesce.then(|| xxh3_64(format!("{name}\0{}\0{}", message.model, message.key).as_bytes()));
        Asked { id, resolved, kind, stream }
    }

    /// The ladder's steps before the limits are asked.
    fn descend(
        &mut self,
        now: Mono,
        limits: &RouteLimits,
        settings: &Settings,
        asked: &Asked,
        message: Message,
        is_new: bool,
    ) -> Descent {
        if is_new && asked.kind.priority != MessagePriority::Droppable && asked.stream.is_none() {
            return Descent::Goes(message);
        }
        let short = self.side.short(now, limits, settings, if is_new { self.config.ladder.below } else { 0 });
        if !is_new {
            return if short.is_some() { Descent::Stays(message) } else { Descent::Goes(message) };
        }
        let Some(scope) = short else { return Descent::Goes(message) };
        let bytes = message.input.len();
        let config = self.config.clone();
        let overload = self.overload(now);
        let weighed = overload.weighed(&config, &asked.kind, asked.stream, bytes);
        match (overload.ladder.before(now, weighed, true), weighed.stream) {
            (None, _) => return Descent::Goes(message),
            (Some(Verdict::Dropped), _) => {
                self.side.step(limits, scope, Step::Dropped);
                self.side.count("dropped");
                self.send(&message::dropped(&message.id, "low"));
            }
            (Some(Verdict::Held), Some(stream)) => {
                if let Some(older) = overload.hold(stream, message, bytes) {
                    self.side.step(limits, scope, Step::Coalesced);
                    self.side.count("coalesced");
                    self.send(&message::dropped(&older.id, "replaced"));
                }
            }
            _ => {}
        }
        Descent::Gone
    }

    /// Held messages whose time has come.
    pub(super) fn due(&mut self, now: Mono) {
        let Some(overload) = &mut self.overload else { return };
        if overload.wakes_at().is_none_or(|at| at > now) {
            return;
        }
        for (stream, _) in overload.ladder.due_streams(now) {
            let has_place = self.running.len() < self.config.concurrency as usize;
            let Some(message) = self.overload.as_mut().and_then(|overload| overload.take(stream)) else { continue };
            let kept = if has_place { self.offer(now, message, false) } else { Some(message) };
            // It may have been closed meanwhile.
            let Some(overload) = &mut self.overload else { return };
            match kept {
                None => overload.ladder.released(now, stream),
                Some(message) => {
                    let bytes = message.input.len();
                    overload.hold(stream, message, bytes);
                    overload.ladder.held_on(now, stream);
                }
            }
        }
    }

    /// Makes the message a request, and has it served if its limits let it pass.
    fn start(&mut self, now: Mono, settings: &Arc<Settings>, asked: Asked, message: Message) {
        let Side { gateway, home, on, client, credentials, .. } = &self.side;
        let Message { id, model, version, input, timeout, submission, .. } = message;
        let mut exchange = Box::new(Exchange::begin(gateway.clone(), asked.id, client.clone(), on.begin()));
        exchange.subject.clone_from(&credentials.subject);
        let who = identify::as_known(&credentials.fields, settings, credentials.subject.as_ref()).ok();
        let tenant = who.as_ref().map(|who| who.tenant());
        if let Ok(resolution) = &asked.resolved
            && who.is_some()
            && resolution.cause.is_some()
        {
            exposed::expose(gateway, resolution, &exchange.id);
        }
        let said = Said {
            tenant,
            model: &model,
            version: version.as_deref(),
            submission: submission.as_ref().map(|text| text.as_bytes()),
            fields: &credentials.fields,
            input,
            timeout,
            credit: asked.kind.priority == MessagePriority::Critical,
        };
        match said::enter_message(exchange, settings, asked.resolved, said) {
            Ok(call) => {
                self.side.count("served");
                if let Some(overload) = &mut self.overload {
                    overload.ladder.passed();
                }
                let (worker, most) = (home.worker.clone(), usize::try_from(self.config.answer.0).unwrap_or(usize::MAX));
                self.ids.push(id.clone());
                self.running.spawn(serve(call, worker, id, most));
            }
            Err(failed) => {
                let (exchange, failure) = *failed;
                let done = ended(id, exchange, &failure);
                self.told(now, done);
            }
        }
    }

    /// A message has been served, or has failed on the way.
    pub(super) fn done(&mut self, now: Mono, done: Done) {
        if let Some(at) = self.ids.iter().position(|id| *id == done.id) {
            self.ids.swap_remove(at);
        }
        if self.ids.is_empty() && self.ids.capacity() > 8 {
            self.ids = Vec::new();
        }
        self.told(now, done);
        self.next(now);
    }

    fn told(&mut self, now: Mono, done: Done) {
        let Some(limited) = done.limited else { return self.send(&done.frame) };
        let state = limited.limits;
        let limits = state.as_ref().and_then(|state| state.limits.as_deref());
        let config = &self.config;
        let overload = self.overload.get_or_insert_with(|| Box::new(Overload::new(config, now)));
        let judged = self.side.refused(now, overload, (limited.scope, limited.wait), limits);
        if let Some(wait) = judged.warn {
            self.send(&message::rate_limited(&limited.name, wait));
        }
        self.send(&done.frame);
        if judged.closes {
            self.shut_out(now, limited.limit, "over the limits again and again");
        }
    }

    /// The socket is closed for its violations, and its user is kept out for a while.
    fn shut_out(&mut self, now: Mono, limit: Option<Limit>, reason: &'static str) {
        self.side.opened.violated(now, limit.unwrap_or(SOME_LIMIT));
        self.close(now, code::POLICY, reason);
    }

    fn overload(&mut self, now: Mono) -> &mut Overload<Message> {
        let config = &self.config;
        self.overload.get_or_insert_with(|| Box::new(Overload::new(config, now)))
    }
}

enum Descent {
    /// The limits are asked.
    Goes(Message),
    /// It is held on.
    Stays(Message),
    /// It was left out or is held.
    Gone,
}

/// Has a message served.
///
/// # Cancel safety
/// Dropping the future ends the request at the replica and gives everything back.
async fn serve(call: Box<Call>, worker: Arc<Worker>, id: Id, most: usize) -> Done {
    let response = match Box::pin(said::serve_message(call, worker)).await {
        Ok(response) => response,
        Err(failed) => {
            let (exchange, failure) = *failed;
            return ended(id, exchange, &failure);
        }
    };
    let (parts, body) = response.into_parts();
    let body = match Bounded::new(body, most).collect().await {
        Ok(body) => body.to_bytes(),
        Err(why) => {
            let failure = if why.downcast_ref::<LengthLimitError>().is_some() {
                Failure::new(FailureKind::TooLarge, "the answer is larger than one over a socket may be")
            } else {
                Failure::new(FailureKind::UpstreamError, "the answer was cut")
            };
            return Done { frame: message::failed(Some(&id), &failure, &parts.headers), id, limited: None };
        }
    };
    let frame = message::answer(&id, parts.status.as_u16(), &parts.headers, &body).unwrap_or_else(|| {
        let failure = Failure::new(FailureKind::UpstreamError, "the answer is no JSON");
        message::failed(Some(&id), &failure, &parts.headers)
    });
    Done { id, frame, limited: None }
}

/// Ends the exchange of a message that has failed, and says what the client is told.
fn ended(id: Id, mut exchange: Box<Exchange>, failure: &Failure) -> Done {
    exchange.ends(failure.http_status(), Some(failure.kind));
    exchange.note(|journal| journal.failed(failure));
    let mut stamps = HeaderMap::new();
    if exchange.stamps != Stamps::NONE {
        exchange.stamp(&mut stamps);
    }
    let frame = message::failed(Some(&id), failure, &stamps);
    let limited = exchange.limited.as_deref().map(|refusal| limited(refusal, &exchange));
    Done { id, frame, limited }
}

fn limited(refusal: &Refusal, exchange: &Exchange) -> Limited {
    let state = exchange.resolution.as_ref().map(|resolution| resolution.state.clone());
    let limits = state.as_ref().and_then(|state| state.limits.as_deref());
    Limited {
        scope: refusal.scope,
        name: refusal.name(),
        wait: refusal.wait,
        limit: limits.and_then(|limits| refusal.allowance(limits)),
        limits: state,
    }
}
