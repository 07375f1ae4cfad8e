//! The life of a socket: messages come, answers go, time passes, and in the end there is a close code.
//!
//! Everything that waits has a bound and an end. A client that does not read is read no more once its buffer is full, and is gone after a while; one that sends more
//! than is served at a time finds its next message waiting, and nothing behind it is read. When a drain begins, sockets leave one after the other over a half of its time.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use holdfast_codec::ws::{Bounds, Event, Kind, Opcode, code};
use holdfast_config::Stream;
use holdfast_net::{RequestGuard, Socket};
use holdfast_telemetry::{Clock, GaugeGuard};
use holdfast_types::Mono;

use super::counted::code_label;
use super::life::{Life, Sign};
use super::message::{Id, Message};
use super::native::Done;
use super::overload::Overload;
use super::side::Side;
use super::wire::{Came, Wire};

/// How long a peer may take to answer a close.
pub(super) const CLOSING: Duration = Duration::from_secs(2);
/// After so many steps the others of the worker have their turn: a client that sends without end is always ready.
pub(super) const TURNS: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// What is being served is finished; nothing new is.
    Leaving,
    /// A close frame is on its way; its answer is waited for, or has come.
    Closing {
        until: Mono,
        answered: bool,
    },
    Over,
}

/// When a socket leaves in a drain, and when it is cut.
#[derive(Clone, Copy, Debug)]
struct Leave {
    at: Mono,
    cut: Mono,
}

/// See the module.
pub struct Session {
    pub(super) wire: Wire,
    pub(super) side: Side,
    pub(super) config: Arc<Stream>,
    pub(super) running: JoinSet<Done>,
    /// Ids of what is being served.
    pub(super) ids: Vec<Id>,
    /// A message that came when as many as may be were being served.
    pending: Option<Vec<u8>>,
    pub(super) overload: Option<Box<Overload<Message>>>,
    state: State,
    leave: Option<Leave>,
    life: Life,
    /// Why it ended: the code of who closed first.
    ended: Option<u16>,
    _open: GaugeGuard,
    /// Keeps the connection from being idle.
    _on: RequestGuard,
}

enum What {
    Came(Came),
    Done(Option<Done>),
    Drain,
    Time,
}

impl Session {
    /// A socket that has just been opened.
    pub fn new(socket: Socket, side: Side, config: Arc<Stream>) -> Self {
        let now = Clock::now();
        let (open, on) = (side.gateway.streams.metrics.sockets.track(), side.on.begin());
        Self {
            wire: Wire::new(socket, None),
            life: Life::new(now, config.ping),
            side,
            config,
            running: JoinSet::new(),
            ids: Vec::new(),
            pending: None,
            overload: None,
            state: State::Open,
            leave: None,
            ended: None,
            _open: open,
            _on: on,
        }
    }

    /// Serves the socket until it ends.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection and gives up what is being served.
    pub async fn run(mut self: Box<Self>) {
        // An argument is kept twice in a future, so it is small.
        let this = &mut *self;
        let mut drain = this.side.gateway.drain.clone();
        let mut timer = std::pin::pin!(tokio::time::sleep_until(Clock::instant(this.wakes_at())));
        let bounds = Bounds {
            message: usize::try_from(this.config.message.0).unwrap_or(usize::MAX),
            fragments: this.config.fragments,
        };
        let mut turns = 0;
        while this.state != State::Over {
            let at = Clock::instant(this.wakes_at());
            if timer.deadline() != at {
                timer.as_mut().reset(at);
            }
            let (may_read, may_join) = (this.may_read(), this.has_room());
            let what = tokio::select! {
                came = std::future::poll_fn(|cx| this.wire.poll(cx, may_read, bounds)) => What::Came(came),
                Some(done) = this.running.join_next(), if may_join => What::Done(done.ok()),
                () = drain.wait(), if this.leave.is_none() => What::Drain,
                () = timer.as_mut() => What::Time,
            };
            this.handle(what, Clock::now());
            turns = (turns + 1) % TURNS;
            if turns == 0 {
                tokio::task::yield_now().await;
            }
        }
        this.side.gateway.streams.metrics.closes.get([code_label(this.ended)]).inc();
    }

    fn handle(&mut self, what: What, now: Mono) {
        match what {
            What::Came(Came::Ended) => self.state = State::Over,
            What::Came(Came::Written) => {}
            What::Came(Came::Broken(broken)) => {
                self.close(now, broken.code, broken.why);
                self.wire.stop_listening();
            }
            What::Came(Came::Event(event)) => self.event(now, event),
            What::Done(done) => {
                if let Some(done) = done {
                    self.done(now, done);
                }
            }
            What::Drain => self.drains(now),
            What::Time => {}
        }
        self.tick(now);
    }

    fn event(&mut self, now: Mono, event: Event) {
        self.life.heard(now);
        match event {
            Event::Close(code) => {
                self.ended.get_or_insert(code.unwrap_or(code::NORMAL));
                self.give_up();
                if !matches!(self.state, State::Closing { .. }) {
                    self.wire.close(code, "");
                }
                self.finish(now);
            }
            Event::Ping(control) => {
                self.wire.pong(control);
                self.control(now);
            }
            Event::Pong(_) => self.control(now),
            Event::Message(..) if matches!(self.state, State::Closing { .. } | State::Over) => {}
            Event::Message(Kind::Binary, _) => {
                self.close(now, code::UNSUPPORTED, "messages are text here");
            }
            Event::Message(Kind::Text, text) if self.state == State::Leaving => self.turn_away(&text),
            Event::Message(Kind::Text, text) if self.running.len() >= self.config.concurrency as usize => {
                self.pending = Some(text);
            }
            Event::Message(Kind::Text, text) => self.take(now, &text),
        }
    }

    fn control(&mut self, now: Mono) {
        if self.life.is_flood(now) {
            self.close(now, code::POLICY, "too many pings and pongs");
        }
    }

    /// The next message that waits is served, if it may be.
    pub(super) fn next(&mut self, now: Mono) {
        if self.running.len() < self.config.concurrency as usize
            && let Some(text) = self.pending.take()
        {
            match self.state {
                State::Open => self.take(now, &text),
                State::Leaving => self.turn_away(&text),
                State::Closing { .. } | State::Over => {}
            }
        }
    }

    /// Nothing is sent after this but a close frame.
    pub(super) fn close(&mut self, now: Mono, code: u16, reason: &str) {
        if matches!(self.state, State::Closing { .. } | State::Over) {
            return;
        }
        self.ended = Some(code);
        self.give_up();
        self.wire.close(Some(code), reason);
        self.state = State::Closing { until: now.after(CLOSING), answered: false };
    }

    /// Both sides have said that it is over: what is left is to write our word.
    fn finish(&mut self, now: Mono) {
        self.wire.stop_listening();
        self.state = State::Closing { until: now.after(CLOSING), answered: true };
    }

    fn give_up(&mut self) {
        // Dropping the set drops its tasks, and with them all that they hold.
        self.running = JoinSet::new();
        (self.ids, self.pending, self.overload) = (Vec::new(), None, None);
    }

    /// Whether answers may be queued.
    fn has_room(&self) -> bool {
        self.wire.waiting() as u64 <= self.config.buffer.0
    }

    fn may_read(&self) -> bool {
        // While it closes it is read all the same: a socket that is closed with bytes unread resets the connection, and our word with it.
        match self.state {
            State::Closing { answered, .. } => !answered,
            _ => self.pending.is_none() && self.has_room(),
        }
    }

    /// A frame for the client.
    pub(super) fn send(&mut self, frame: &[u8]) {
        if matches!(self.state, State::Open | State::Leaving) {
            self.wire.send(Opcode::Text, frame);
        }
    }

    fn drains(&mut self, now: Mono) {
        let whole = self.side.gateway.tables.load().config.timeouts.drain;
        // Not all at once: those who come back would come to the others all at once.
        let share = self.side.home.worker.random() % 1_000;
        let spread = whole / 2 * u32::try_from(share).unwrap_or(0) / 1_000;
        let reserve = (whole / 5).min(CLOSING);
        self.leave = Some(Leave { at: now.after(spread), cut: now.after(whole.saturating_sub(reserve)) });
    }

    /// What time does.
    fn tick(&mut self, now: Mono) {
        if let State::Closing { until, answered } = self.state {
            if now >= until || (answered && self.wire.waiting() == 0) {
                self.state = State::Over;
            }
            return;
        }
        if self.state == State::Over {
            return;
        }
        if self.wire.blocked_since().is_some_and(|since| now.since(since) >= self.config.stall) {
            // A close frame would not reach it either.
            self.ended = Some(code::POLICY);
            self.state = State::Over;
            return;
        }
        if let Some(leave) = self.leave {
            self.leaves(now, leave);
        }
        self.due(now);
        self.signs_of_life(now);
    }

    fn leaves(&mut self, now: Mono, leave: Leave) {
        if now >= leave.at && self.state == State::Open {
            self.state = State::Leaving;
        }
        if now >= leave.cut {
            self.close(now, code::RESTART, "the gateway stops");
        } else if self.state == State::Leaving && self.running.is_empty() && self.pending.is_none() {
            self.close(now, code::GOING_AWAY, "the gateway is about to stop");
        }
    }

    fn signs_of_life(&mut self, now: Mono) {
        if self.life.is_check_due(now, self.config.ping) {
            self.prove_again(now);
        }
        match self.life.sign(now, self.config.ping, self.may_read()) {
            Sign::None => {}
            Sign::Ping => self.wire.send(Opcode::Ping, b""),
            Sign::Gone => self.state = State::Over,
        }
    }

    fn prove_again(&mut self, now: Mono) {
        if let Err((code, why)) = self.side.prove_again(now) {
            self.close(now, code, &why);
        }
    }

    /// When time does something next.
    fn wakes_at(&self) -> Mono {
        if let State::Closing { until, .. } = self.state {
            return until;
        }
        let life = self.life.wakes_at(self.config.ping, self.may_read());
        let stalled = self.wire.blocked_since().map(|since| since.after(self.config.stall));
        let leave = self.leave.map(|leave| if self.state == State::Open { leave.at } else { leave.cut });
        let due = self.overload.as_ref().and_then(|overload| overload.wakes_at());
        [stalled, leave, due].into_iter().flatten().fold(life, Mono::min)
    }
}
