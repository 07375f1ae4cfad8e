//! A socket that is passed through to a model server: resolved once, and from then on messages both ways, the client's under its limits.
//!
//! The whole of it is one request: its exchange lives as long as the socket, and so do its version, its place at the replica and its revision. Each side is read only while the other
//! takes what it is sent, so that neither needs a buffer without a bound.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use holdfast_codec::ws::{Bounds, Event, Kind, Opcode, code};
use holdfast_config::{LimitedEndpoint, MessagePriority, MessageType, Stream, StreamRoute};
use holdfast_net::{RequestGuard, Seat, Socket};
use holdfast_quota::ladder::Verdict;
use holdfast_quota::limit::Limit;
use holdfast_telemetry::{Clock, GaugeGuard};
use holdfast_types::Mono;

use super::counted::code_label;
use super::life::{Life, Sign};
use super::message;
use super::overload::Overload;
use super::peek::Peek;
use super::session::{CLOSING, TURNS};
use super::side::Side;
use super::upstream::Upstream;
use super::wire::{Came, Wire};
use crate::exchange::Exchange;
use crate::fleet::InFlight;
use crate::limits::{Asking, OnConnection, Refusal, RouteLimits, Step};
use crate::route_state::RouteState;
use crate::upstream_body::UpstreamBody;

/// A message of the client.
type Said = (Kind, Vec<u8>);

/// One that waits for the store of shared limits.
struct Waiting {
    said: Said,
    until: Mono,
    at: Mono,
}

/// How often a message that waits for the store is offered again.
const AGAIN: Duration = Duration::from_millis(1);

/// See the module.
pub struct Through {
    client: Wire,
    server: Wire,
    side: Side,
    config: Arc<Stream>,
    route: StreamRoute,
    exchange: Box<Exchange>,
    state: Option<Arc<RouteState>>,
    overload: Option<Box<Overload<Said>>>,
    waiting: Option<Waiting>,
    life: Life,
    /// When the drain's time is over.
    cut: Option<Mono>,
    /// Present once it closes: when it is over at the latest.
    closing: Option<Mono>,
    is_over: bool,
    ended: Option<u16>,
    _open: GaugeGuard,
    on: RequestGuard,
    _in_flight: InFlight,
    /// It is one of the connections that the replica may have.
    _seat: Seat<UpstreamBody>,
}

enum What {
    Client(Came),
    Server(Came),
    Drain,
    Time,
}

impl Through {
    /// A socket whose both sides are open.
    pub fn new(
        socket: Socket,
        upstream: Upstream,
        side: Side,
        exchange: Box<Exchange>,
        config: Arc<Stream>,
        route: StreamRoute,
    ) -> Self {
        let now = Clock::now();
        Self {
            client: Wire::new(socket, None),
            server: Wire::new(upstream.socket, Some(crate::random::Random::new().next())),
            state: exchange.resolution.as_ref().map(|resolution| resolution.state.clone()),
            life: Life::new(now, config.ping),
            overload: None,
            waiting: None,
            cut: None,
            closing: None,
            is_over: false,
            ended: None,
            _open: side.gateway.streams.metrics.sockets.track(),
            on: side.on.begin(),
            _in_flight: upstream.in_flight,
            _seat: upstream.seat,
            side,
            config,
            route,
            exchange,
        }
    }

    /// Serves the socket until it ends.
    ///
    /// # Cancel safety
    /// Dropping the future closes both connections.
    pub async fn run(mut self: Box<Self>) {
        // An argument is kept twice in a future, so it is small.
        let this = &mut *self;
        let mut drain = this.side.gateway.drain.clone();
        let mut timer = std::pin::pin!(tokio::time::sleep_until(Clock::instant(this.wakes_at())));
        let size = |bytes: holdfast_types::Bytes| usize::try_from(bytes.0).unwrap_or(usize::MAX);
        let bounds = Bounds { message: size(this.config.message), fragments: this.config.fragments };
        let answers = Bounds { message: size(this.config.answer), fragments: this.config.fragments };
        let mut turns = 0;
        while !this.is_over {
            let at = Clock::instant(this.wakes_at());
            if timer.deadline() != at {
                timer.as_mut().reset(at);
            }
            let (from_client, from_server) = (this.reads_client(), this.has_room(&this.client));
            let what = tokio::select! {
                came = std::future::poll_fn(|cx| this.client.poll_for(cx, from_client, bounds, !from_server)) => What::Client(came),
                came = std::future::poll_fn(|cx| this.server.poll_for(cx, from_server, answers, !from_client)) => What::Server(came),
                () = drain.wait(), if this.cut.is_none() => What::Drain,
                () = timer.as_mut() => What::Time,
            };
            this.handle(what, Clock::now());
            turns = (turns + 1) % TURNS;
            if turns == 0 {
                tokio::task::yield_now().await;
            }
        }
        this.exchange.upstream_done();
        this.side.gateway.streams.metrics.closes.get([code_label(this.ended)]).inc();
    }

    fn handle(&mut self, what: What, now: Mono) {
        match what {
            What::Client(Came::Event(event)) => self.client_says(now, event),
            What::Client(Came::Broken(broken)) => {
                self.close(now, broken.code, broken.why);
                self.client.stop_listening();
            }
            What::Client(Came::Ended) => self.client_ends(now),
            What::Server(Came::Event(event)) => self.server_says(now, event),
            What::Server(Came::Broken(broken)) => {
                self.close(now, code::INTERNAL, "the model server broke a rule of the protocol");
                self.server.close(Some(broken.code), broken.why);
                self.server.stop_listening();
            }
            What::Server(Came::Ended) => {
                self.close(now, code::TRY_LATER, "the model server has gone");
                self.server.stop_listening();
            }
            What::Client(Came::Written) | What::Server(Came::Written) | What::Time => {}
            What::Drain => self.drains(now),
        }
        self.tick(now);
    }

    fn client_says(&mut self, now: Mono, event: Event) {
        self.life.heard(now);
        match event {
            Event::Message(kind, data) if self.closing.is_none() => self.offer(now, (kind, data), true),
            Event::Message(..) => {}
            Event::Ping(control) => {
                self.client.pong(control);
                self.control(now);
            }
            Event::Pong(_) => self.control(now),
            Event::Close(said) => {
                if self.closing.is_none() {
                    self.ended.get_or_insert(said.unwrap_or(code::NORMAL));
                    self.server.close(said, "");
                    self.client.close(said, "");
                }
                self.client_ends(now);
            }
        }
    }

    /// Nothing more comes from the client: what is left is to tell the model server.
    fn client_ends(&mut self, now: Mono) {
        if self.closing.is_none() && self.ended.is_none() {
            self.server.close(Some(code::GOING_AWAY), "the client has gone");
        }
        self.client.stop_listening();
        let written = self.client.waiting() == 0 && self.server.waiting() == 0;
        self.is_over = written && self.closing.is_some();
        self.closing.get_or_insert(now.after(CLOSING / 4));
    }

    fn server_says(&mut self, now: Mono, event: Event) {
        match event {
            Event::Message(kind, data) if self.closing.is_none() => self.down(kind, &data),
            Event::Message(..) | Event::Pong(_) => {}
            Event::Ping(control) => self.server.pong(control),
            Event::Close(said) => {
                if self.closing.is_none() {
                    self.ended = Some(said.unwrap_or(code::NORMAL));
                    self.server.close(said, "");
                    self.client.close(said, "");
                    self.closing = Some(now.after(CLOSING));
                }
                self.server.stop_listening();
            }
        }
    }

    fn control(&mut self, now: Mono) {
        if self.life.is_flood(now) {
            self.close(now, code::POLICY, "too many pings and pongs");
        }
    }

    /// From the model server to the client. Of one that reads slowly droppable messages are left out before it is waited for.
    fn down(&mut self, kind: Kind, data: &[u8]) {
        let room = self.config.buffer.0.saturating_sub(self.client.waiting() as u64);
        if room * 100 < self.config.buffer.0 * u64::from(self.config.ladder.below)
            && self.kind(&Peek::of(kind, data)).priority == MessagePriority::Droppable
        {
            self.side.count("dropped");
            return;
        }
        self.exchange.bytes_out += data.len() as u64;
        self.client.send(opcode(kind), data);
    }

    /// From the client to the model server: the ladder, the limits. `is_new`: it has not been held back.
    fn offer(&mut self, now: Mono, said: Said, is_new: bool) {
        let state = self.state.clone();
        let Some(limits) = state.as_ref().and_then(|state| state.limits.as_deref()) else { return self.up(said) };
        let peek = Peek::of(said.0, &said.1);
        let kind = self.kind(&peek);
        let stream = kind.coalesce.then(|| peek.stream());
        let below = if is_new { self.config.ladder.below } else { 0 };
        let asks = !limits.is_shadow() && (kind.priority == MessagePriority::Droppable || stream.is_some());
        let settings = self.side.gateway.tables.load().settings.clone();
        let short = if asks { self.side.short(now, limits, &settings, below) } else { None };
        if let Some(scope) = short.filter(|_| is_new) {
            let bytes = said.1.len();
            let config = self.config.clone();
            let overload = self.overload(now);
            let weighed = overload.weighed(&config, &kind, stream, bytes);
            match (overload.ladder.before(now, weighed, true), weighed.stream) {
                (None, _) => {}
                (Some(Verdict::Held), Some(stream)) => {
                    let older = overload.hold(stream, said, bytes);
                    if older.is_some() {
                        self.side.step(limits, scope, Step::Coalesced);
                        self.side.count("coalesced");
                    }
                    return;
                }
                (Some(_), _) => {
                    self.side.step(limits, scope, Step::Dropped);
                    self.side.count("dropped");
                    return;
                }
            }
        }
        let credit = kind.priority == MessagePriority::Critical;
        self.admit(now, limits, said, (false, credit));
    }

    fn admit(&mut self, now: Mono, limits: &RouteLimits, said: Said, (again, credit): (bool, bool)) {
        let settings = self.side.gateway.tables.load().settings.clone();
        let Some(on) = self.on.kept::<OnConnection>() else { return self.up(said) };
        let bytes = said.1.len() as u64;
        let user = self.side.user(limits, &settings);
        let (endpoint, plan) = (LimitedEndpoint::Infer, self.side.plan(limits));
        let asking = Asking { now, endpoint, user, plan, on, bytes, again, credit };
        match limits.admit(&asking, |refusal| self.side.limited(&refusal, "shadow")) {
            Ok(taken) => {
                // A message is at an end with its sending: nothing of it runs on.
                limits.settle(on, now, &taken, true, bytes);
                self.up(said);
            }
            Err(refusal) if refusal.soon && !again => {
                let link = self.side.gateway.tables.limits.link();
                let until = now.after(link.map(|link| link.patience()).unwrap_or_default());
                self.waiting = Some(Waiting { said, until, at: now.after(AGAIN) });
            }
            Err(refusal) if refusal.soon && self.waiting.as_ref().is_some_and(|waiting| now < waiting.until) => {
                if let Some(waiting) = &mut self.waiting {
                    (waiting.said, waiting.at) = (said, now.after(AGAIN));
                }
            }
            Err(refusal) => self.refuse(now, limits, &said, refusal),
        }
    }

    /// A message that waited for the store.
    fn again(&mut self, now: Mono) {
        let Some(waiting) = self.waiting.as_mut().filter(|waiting| now >= waiting.at) else { return };
        let said = (waiting.said.0, std::mem::take(&mut waiting.said.1));
        let state = self.state.clone();
        let Some(limits) = state.as_ref().and_then(|state| state.limits.as_deref()) else { return };
        let before = self.waiting.as_ref().map(|waiting| waiting.at);
        self.admit(now, limits, said, (true, false));
        if self.waiting.as_ref().map(|waiting| waiting.at) == before {
            self.waiting = None;
        }
    }

    fn refuse(&mut self, now: Mono, limits: &RouteLimits, said: &Said, refusal: Refusal) {
        self.side.limited(&refusal, "refused");
        let config = &self.config;
        let overload = self.overload.get_or_insert_with(|| Box::new(Overload::new(config, now)));
        let judged = self.side.refused(now, overload, (refusal.scope, refusal.wait), Some(limits));
        if let Some(wait) = judged.warn {
            self.notice(&message::rate_limited(&refusal.name(), wait));
        }
        let id = Peek::of(said.0, &said.1).id();
        self.notice(&message::failed(id.as_ref(), &refusal.failure(limits), &HeaderMap::new()));
        if judged.closes {
            let limit = refusal.allowance(limits).unwrap_or(Limit::per_second(20, 40));
            self.side.opened.violated(now, limit);
            self.close(now, code::POLICY, "over the limits again and again");
        }
    }

    /// The gateway's own word between the messages.
    fn notice(&mut self, frame: &[u8]) {
        if self.route.notices && self.closing.is_none() {
            self.client.send(Opcode::Text, frame);
        }
    }

    fn up(&mut self, said: Said) {
        if self.closing.is_none() {
            self.side.count("served");
            self.exchange.bytes_in += said.1.len() as u64;
            self.server.send(opcode(said.0), &said.1);
        }
    }

    fn due(&mut self, now: Mono) {
        let Some(overload) = &mut self.overload else { return };
        if overload.wakes_at().is_none_or(|at| at > now) {
            return;
        }
        let state = self.state.clone();
        let Some(limits) = state.as_ref().and_then(|state| state.limits.as_deref()) else { return };
        let settings = self.side.gateway.tables.load().settings.clone();
        for (stream, _) in overload.ladder.due_streams(now) {
            let has_room = self.has_room(&self.server) && self.side.short(now, limits, &settings, 0).is_none();
            let Some(overload) = &mut self.overload else { return };
            if !has_room {
                overload.ladder.held_on(now, stream);
                continue;
            }
            overload.ladder.released(now, stream);
            if let Some(said) = overload.take(stream) {
                self.offer(now, said, false);
            }
        }
    }

    /// Both sides are told that it is over, the client why.
    fn close(&mut self, now: Mono, code: u16, reason: &str) {
        if self.closing.is_some() {
            return;
        }
        self.ended = Some(code);
        self.client.close(Some(code), reason);
        self.server.close(Some(code::GOING_AWAY), "");
        self.closing = Some(now.after(CLOSING));
        (self.overload, self.waiting) = (None, None);
    }

    fn drains(&mut self, now: Mono) {
        let whole = self.side.gateway.tables.load().config.timeouts.drain;
        // They stay as long as they may, and leave over the last tenth of that, not all at once.
        let reserve = (whole / 5).min(CLOSING);
        let share = u32::try_from(self.side.home.worker.random() % 1_000).unwrap_or(0);
        let early = whole / 10 * share / 1_000;
        self.cut = Some(now.after(whole.saturating_sub(reserve + early)));
    }

    fn tick(&mut self, now: Mono) {
        if let Some(until) = self.closing {
            let is_written = self.client.waiting() == 0 && self.server.waiting() == 0;
            self.is_over |= now >= until || (is_written && self.client.is_deaf() && self.server.is_deaf());
            return;
        }
        let stalled = |wire: &Wire| wire.blocked_since().is_some_and(|since| now.since(since) >= self.config.stall);
        if stalled(&self.client) {
            // A close frame would not reach it either.
            (self.ended, self.is_over) = (Some(code::POLICY), true);
        } else if stalled(&self.server) {
            self.close(now, code::TRY_LATER, "the model server takes nothing");
        } else if self.cut.is_some_and(|cut| now >= cut) {
            self.close(now, code::RESTART, "the gateway stops");
        } else {
            self.again(now);
            self.due(now);
            self.signs_of_life(now);
        }
    }

    fn signs_of_life(&mut self, now: Mono) {
        if self.life.is_check_due(now, self.config.ping)
            && let Err((code, why)) = self.side.prove_again(now)
        {
            return self.close(now, code, &why);
        }
        match self.life.sign(now, self.config.ping, self.reads_client()) {
            Sign::None => {}
            Sign::Ping => self.client.send(Opcode::Ping, b""),
            Sign::Gone => {
                self.server.close(Some(code::GOING_AWAY), "the client has gone");
                self.client.stop_listening();
                self.closing = Some(now.after(CLOSING / 4));
            }
        }
    }

    fn has_room(&self, wire: &Wire) -> bool {
        self.closing.is_some() || wire.waiting() as u64 <= self.config.buffer.0
    }

    fn reads_client(&self) -> bool {
        self.waiting.is_none() && self.has_room(&self.server)
    }

    fn wakes_at(&self) -> Mono {
        if let Some(until) = self.closing {
            return until;
        }
        let life = self.life.wakes_at(self.config.ping, self.reads_client());
        let stalled =
            [&self.client, &self.server].map(|wire| wire.blocked_since().map(|at| at.after(self.config.stall)));
        let due = self.overload.as_ref().and_then(|overload| overload.wakes_at());
        let again = self.waiting.as_ref().map(|waiting| waiting.at);
        stalled.into_iter().chain([self.cut, due, again]).flatten().fold(life, Mono::min)
    }

    fn kind(&self, peek: &Peek<'_>) -> MessageType {
        let name = peek.kind.as_deref().unwrap_or("normal");
        let at = self.config.types.binary_search_by(|(known, _)| (**known).cmp(name));
        at.ok().and_then(|at| self.config.types.get(at)).map(|(_, kind)| kind.clone()).unwrap_or_default()
    }

    fn overload(&mut self, now: Mono) -> &mut Overload<Said> {
        let config = &self.config;
        self.overload.get_or_insert_with(|| Box::new(Overload::new(config, now)))
    }
}

const fn opcode(kind: Kind) -> Opcode {
    match kind {
        Kind::Text => Opcode::Text,
        Kind::Binary => Opcode::Binary,
    }
}
