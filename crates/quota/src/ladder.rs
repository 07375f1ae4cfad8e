//! What becomes of a socket's messages under overload: a ladder of steps instead of a cliff.
//!
//! | step | when | what |
//! |---|---|---|
//! | drop | the bucket is below a share of its burst | a droppable message is left out; the others pass |
//! | coalesce | the same | of a stream of latest values one message passes in a span, the newest |
//! | warn | the bucket is empty | an in-band `rate_limited` with the wait, once in a while |
//! | refuse | the bucket is empty | an error frame that echoes the message's id |
//! | close | so many refusals in a window | the socket is closed with 1008, and the user's next ones are kept out for a while ([`Reconnects`]) |
//!
//! A critical message is never dropped or held: it is taken on credit, down to one burst of debt, and refused aloud beyond that. [`Ladder::message`] is the whole
//! of it over one bucket. Where a message comes under several, whoever has them asks [`Ladder::before`], takes from all or from none, and says what came of it.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_types::Mono;

use crate::bucket::{Bucket, Wait};
use crate::limit::Limit;

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// May be left out, such as typing notices.
    Droppable,
    /// Is passed or refused, never left out.
    Normal,
    /// Is passed, on credit if need be: chat, acknowledgements.
    Critical,
}

/// The rules of a ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Below this share of the burst, in percent, droppable messages are dropped and streams coalesced.
    pub below: u8,
    /// Of one stream so often at most.
    pub coalesce: Duration,
    /// Streams that are told apart; messages of others pass like any.
    pub most_streams: usize,
    /// Between two warnings.
    pub warn: Duration,
    /// So many refusals within the window close the socket.
    pub violations: u32,
    /// The window of refusals.
    pub window: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            below: 25,
            coalesce: Duration::from_millis(200),
            most_streams: 64,
            warn: Duration::from_secs(1),
            violations: 10,
            window: Duration::from_secs(10),
        }
    }
}

/// One message, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// How much it matters.
    pub priority: Priority,
    /// The stream of latest values that it is one of.
    pub stream: Option<u64>,
    /// What it costs.
    pub cost: u64,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes, and its cost was taken.
    Pass,
    /// It is left out, silently.
    Dropped,
    /// It is kept as the newest of its stream, in the place of an older one, and passes when the stream is due.
    Held,
    /// An error frame echoes its id.
    Refused {
        /// When to come again.
        wait: Wait,
        /// Whether an in-band `rate_limited` goes before it.
        warn: bool,
    },
    /// The socket is closed with 1008.
    Closed,
}

/// How often each step was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that passed.
    pub passed: u64,
    /// Droppable ones that were left out.
    pub dropped: u64,
    /// Ones that gave way to a newer one of their stream.
    pub coalesced: u64,
    /// Warnings.
    pub warned: u64,
    /// Refusals.
    pub refused: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    passed: Mono,
    held: Option<u64>,
}

/// The ladder of one socket.
#[derive(Clone, Debug)]
pub struct Ladder {
    rules: Rules,
    streams: BTreeMap<u64, Stream>,
    warned: Option<Mono>,
    /// When the refusals of the current window began, and how many there were.
    window: (Mono, u32),
    /// When it was told that it may come again.
    told: Mono,
    closed: bool,
    counts: Counts,
}

impl Ladder {
    /// A socket that has just been opened.
    #[must_use]
    pub fn new(rules: Rules, now: Mono) -> Self {
        let (streams, counts) = (BTreeMap::new(), Counts::default());
        Self { rules, streams, warned: None, window: (now, 0), told: now, closed: false, counts }
    }

    /// A message comes. What passes is taken from the bucket.
    pub fn message(&mut self, now: Mono, message: Message, limit: Limit, bucket: &mut Bucket) -> Verdict {
        if let Some(verdict) = self.before(now, message, self.is_low(now, limit, bucket)) {
            return verdict;
        }
        // What would be beyond one burst of debt is refused: a debt that is let off would be a free message.
        let take = if message.priority == Priority::Critical { Bucket::borrow } else { Bucket::take };
        if let Err(wait) = take(bucket, limit, now, message.cost) {
            return self.refused(now, wait, true);
        }
        self.passed();
        Verdict::Pass
    }

    /// What is decided before the buckets are asked. None: ask them, and tell with [`Ladder::passed`] or [`Ladder::refused`] what they said.
    pub fn before(&mut self, now: Mono, message: Message, is_low: bool) -> Option<Verdict> {
        if self.closed {
            return Some(Verdict::Closed);
        }
        if !is_low || message.priority == Priority::Critical {
            return None;
        }
        if message.priority == Priority::Droppable && message.stream.is_none() {
            self.counts.dropped += 1;
            return Some(Verdict::Dropped);
        }
        let stream = message.stream?;
        self.holds(now, stream, message.cost).then_some(Verdict::Held)
    }

    /// The buckets had room.
    pub fn passed(&mut self) {
        self.counts.passed += 1;
    }

    /// The buckets had none. `counts`: whether it is a violation of this socket's. What the others of a tenant have used up is none, unless the socket does not
    /// keep to the wait that it was told.
    pub fn refused(&mut self, now: Mono, wait: Wait, counts: bool) -> Verdict {
        if self.closed {
            return Verdict::Closed;
        }
        self.counts.refused += 1;
        let is_early = now < self.told;
        if let Wait::For(wait) = wait {
            self.told = self.told.max(now.after(wait));
        }
        if (counts || is_early) && self.violates(now) {
            return Verdict::Closed;
        }
        let warn = self.warned.is_none_or(|last| now.since(last) >= self.rules.warn);
        if warn {
            self.warned = Some(now);
            self.counts.warned += 1;
        }
        Verdict::Refused { wait, warn }
    }

    /// Something else that a socket must not do again and again. True: it is closed.
    pub fn violates(&mut self, now: Mono) -> bool {
        let (begun, count) = self.window;
        self.window = if now.since(begun) > self.rules.window { (now, 1) } else { (begun, count + 1) };
        if self.window.1 >= self.rules.violations.max(1) {
            self.closed = true;
            self.streams.clear();
        }
        self.closed
    }

    /// Messages that are held and due pass now: their streams, in order. Those that there is no room for are held on.
    pub fn due(&mut self, now: Mono, limit: Limit, bucket: &mut Bucket) -> Vec<u64> {
        let mut out = Vec::new();
        for (id, cost) in self.due_streams(now) {
            if bucket.take(limit, now, cost).is_ok() {
                self.released(now, id);
                out.push(id);
            }
        }
        out
    }

    /// Streams whose held message is due, with its cost, in order. Streams that rest are forgotten.
    pub fn due_streams(&mut self, now: Mono) -> Vec<(u64, u64)> {
        let span = self.rules.coalesce;
        self.streams.retain(|_, stream| stream.held.is_some() || now.since(stream.passed) < span);
        let due = self.streams.iter().filter(|(_, stream)| now.since(stream.passed) >= span);
        due.filter_map(|(id, stream)| Some((*id, stream.held?))).collect()
    }

    /// The held message of a stream has passed.
    pub fn released(&mut self, now: Mono, stream: u64) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            (stream.passed, stream.held) = (now, None);
            self.counts.passed += 1;
        }
    }

    /// There was no room for the held message of a stream: it is due again after a span.
    pub fn held_on(&mut self, now: Mono, stream: u64) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.passed = now;
        }
    }

    /// When [`Ladder::due`] is next of use.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Mono> {
        let held = self.streams.values().filter(|stream| stream.held.is_some());
        held.map(|stream| stream.passed.after(self.rules.coalesce)).min()
    }

    /// How often each step was taken.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether it was closed for its violations.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    fn is_low(&self, now: Mono, limit: Limit, bucket: &Bucket) -> bool {
        let left = u128::from(bucket.available(limit, now)) * 100;
        left < u128::from(limit.burst) * u128::from(self.rules.below)
    }

    /// Keeps the message as the newest of its stream, unless the stream is due, or there are too many.
    fn holds(&mut self, now: Mono, stream: u64, cost: u64) -> bool {
        let (span, most) = (self.rules.coalesce, self.rules.most_streams);
        match self.streams.get_mut(&stream) {
            Some(known) if known.held.is_some() || now.since(known.passed) < span => {
                self.counts.coalesced += u64::from(known.held.replace(cost).is_some());
                true
            }
            _ => {
                if self.streams.len() >= most {
                    self.streams.retain(|_, stream| stream.held.is_some() || now.since(stream.passed) < span);
                }
                if self.streams.len() < most {
                    self.streams.insert(stream, Stream { passed: now, held: None });
                }
                false
            }
        }
    }
}

/// A user's sockets over time: who was closed for violations is kept out long enough that coming back gains nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reconnects {
    until: Mono,
    closes: u32,
    last: Mono,
}

/// Closes that are further back than this do not count any more.
const FORGIVEN: Duration = Duration::from_secs(600);
const LONGEST: Duration = Duration::from_secs(60);

impl Reconnects {
    /// A socket of the user was closed for its violations. The next is let in when a bucket that was left empty would be full again, and later with each further
    /// close: one second, two, four, up to a minute.
    pub fn closed(&mut self, now: Mono, limit: Limit) {
        self.closes = if now.since(self.last) > FORGIVEN { 1 } else { self.closes.saturating_add(1) };
        self.last = now;
        let doubled = Duration::from_secs(1u64 << (self.closes - 1).min(6)).min(LONGEST);
        // A debt of one burst comes back first.
        let full = limit.rate.time_for(limit.burst.saturating_mul(2)).unwrap_or(FORGIVEN);
        self.until = self.until.max(now.after(doubled.max(full)));
    }

    /// Whether a new socket is let in.
    ///
    /// # Errors
    /// The time until it is.
    pub fn open(&self, now: Mono) -> Result<(), Duration> {
        if now < self.until { Err(self.until.since(now)) } else { Ok(()) }
    }

    /// Whether there is nothing to remember of it.
    #[must_use]
    pub fn is_idle(&self, now: Mono) -> bool {
        now >= self.until && now.since(self.last) > FORGIVEN
    }
}
