//! What is known of one client connection while it lives: where in a request it is, since when, and how many requests are being answered.

use std::any::Any;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use holdfast_codec::framing::Phase;

/// Shared by the connection's reader, its service and its keeper.
#[derive(Debug)]
pub struct ConnState {
    origin: Instant,
    phase: AtomicU8,
    /// Milliseconds from `origin` to the last change of phase or end of a request.
    since: AtomicU64,
    /// Since when the client of an HTTP/2 connection owes the rest of something that it has begun.
    owing: AtomicU64,
    active: AtomicU32,
    /// Requests begun so far.
    begun: AtomicU64,
    /// How many of them the client has given up before their answer.
    given_up: AtomicU64,
    /// How many heads came before one that the reader refuses. [`NONE_REFUSED`] while there is none.
    refused_after: AtomicU64,
    /// The next answer should be the last on this connection.
    closing: AtomicBool,
    /// Writes that the socket has taken something of.
    writes: AtomicU64,
    /// The socket took nothing of the last write: the client does not read.
    blocked: AtomicBool,
    /// The client has left while a request of its was being answered and nobody read.
    gone: AtomicBool,
    /// Its answers, those of HTTP/1.0, may have no end but that of the connection.
    ends_by_close: AtomicBool,
    /// An answer broke off.
    cut: AtomicBool,
    /// Pieces of answers that HTTP/2 could have taken and has not, by the epoch in which they came to be offered: this one, and the one before.
    offered: [AtomicU32; 2],
    epoch: AtomicU32,
    /// What who serves the connection keeps with it.
    kept: OnceLock<Box<dyn Any + Send + Sync>>,
}

const NONE_REFUSED: u64 = u64::MAX;
const NOTHING: u64 = u64::MAX;

/// So many requests given up, nine in ten of all on the connection, are a misuse. A client that hedges gives up far fewer.
const GIVEN_UP: u64 = 500;

impl Default for ConnState {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            phase: AtomicU8::new(Phase::Idle as u8),
            since: AtomicU64::new(0),
            owing: AtomicU64::new(NOTHING),
            active: AtomicU32::new(0),
            begun: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            refused_after: AtomicU64::new(NONE_REFUSED),
            closing: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            ends_by_close: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            offered: [const { AtomicU32::new(0) }; 2],
            epoch: AtomicU32::new(0),
            kept: OnceLock::new(),
        }
    }
}

impl ConnState {
    pub(crate) fn set_phase(&self, phase: Phase) {
        if self.phase.swap(phase as u8, Ordering::Relaxed) != phase as u8 {
            self.touch();
        }
    }

    /// The bytes so far were no head of HTTP/1.1 but the preface of HTTP/2. The time for what has to follow runs from its first byte all the same.
    pub(crate) fn leave_head(&self) {
        self.phase.store(Phase::Idle as u8, Ordering::Relaxed);
        self.owing.store(self.since.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Notes whether the client of an HTTP/2 connection owes the rest of something. The time for it runs from when it began to, however much comes meanwhile.
    pub(crate) fn set_owing(&self, owes: bool) {
        if owes != (self.owing.load(Ordering::Relaxed) != NOTHING) {
            self.owing.store(if owes { self.millis() } else { NOTHING }, Ordering::Relaxed);
        }
    }

    fn touch(&self) {
        self.since.store(self.millis(), Ordering::Relaxed);
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }

    /// When the connection will have been quiet for too long, as things stand. None while a request is being answered: that has its own budget. Half a head
    /// of HTTP/2 has its time whatever is answered beside it: no other stream can go on before it ends.
    pub(crate) fn deadline(&self, head: Duration, idle: Duration) -> Option<Instant> {
        let owing = self.owing.load(Ordering::Relaxed);
        let head_due = (owing != NOTHING).then(|| self.origin + Duration::from_millis(owing) + head);
        match (head_due, self.quiet_deadline(head, idle)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn quiet_deadline(&self, head: Duration, idle: Duration) -> Option<Instant> {
        if self.active.load(Ordering::Relaxed) > 0 || self.phase.load(Ordering::Relaxed) == Phase::Body as u8 {
            return None;
        }
        let since = self.origin + Duration::from_millis(self.since.load(Ordering::Relaxed));
        let reading_head = self.phase.load(Ordering::Relaxed) == Phase::Head as u8;
        Some(since + if reading_head { head } else { idle })
    }

    pub(crate) fn is_reading_head(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == Phase::Head as u8 || self.owing.load(Ordering::Relaxed) != NOTHING
    }

    pub(crate) fn age(&self) -> Duration {
        self.origin.elapsed()
    }

    pub(crate) fn set_refused(&self, heads_before: u64) {
        self.refused_after.store(heads_before, Ordering::Relaxed);
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.refused_after.load(Ordering::Relaxed) != NONE_REFUSED
    }

    /// Whether a head was refused and all requests before it have been answered.
    pub(crate) fn is_refusal_due(&self) -> bool {
        let before = self.refused_after.load(Ordering::Relaxed);
        before != NONE_REFUSED && self.begun.load(Ordering::Relaxed) >= before && self.active() == 0
    }

    /// Whether the client asks only to give up: each request costs a replica its work, and the client two small frames.
    pub(crate) fn is_abusive(&self) -> bool {
        let given_up = self.given_up.load(Ordering::Relaxed);
        given_up >= GIVEN_UP && given_up * 10 >= self.begun.load(Ordering::Relaxed) * 9
    }

    pub(crate) fn note_write(&self, written: &Poll<io::Result<usize>>) {
        self.blocked.store(written.is_pending(), Ordering::Relaxed);
        if written.is_ready() {
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// For an answer over HTTP/2, whose streams wait for the client one by one.
    #[must_use]
    pub fn offer(self: &Arc<Self>) -> Offer {
        Offer { state: self.clone(), since: None }
    }

    /// Begins an epoch. False: something was offered in the epoch before the one that ends, and has not been taken since.
    pub(crate) fn next_epoch(&self) -> bool {
        let next = self.epoch.load(Ordering::Relaxed).wrapping_add(1);
        // Of two slots, the next epoch's is that of the one before this.
        if self.slot(next).load(Ordering::Relaxed) > 0 {
            return false;
        }
        self.epoch.store(next, Ordering::Relaxed);
        true
    }

    fn slot(&self, epoch: u32) -> &AtomicU32 {
        let [even, odd] = &self.offered;
        if epoch.is_multiple_of(2) { even } else { odd }
    }

    /// Notes a request of HTTP/1.0.
    pub fn set_ends_by_close(&self) {
        self.ends_by_close.store(true, Ordering::Relaxed);
    }

    /// Whether an answer broke off whose end nobody could tell from this one.
    pub(crate) fn must_reset(&self) -> bool {
        self.cut.load(Ordering::Relaxed) && self.ends_by_close.load(Ordering::Relaxed)
    }

    pub(crate) fn set_closing(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Whether an HTTP/1.1 answer should say `connection: close`.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Counts a request until the guard is dropped, with its answer.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> RequestGuard {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
        RequestGuard(self.clone())
    }

    pub(crate) fn active(&self) -> u32 {
        self.active.load(Ordering::Relaxed)
    }
}

/// Whether a piece of an answer is offered to the client. What is offered and not taken for too long ends the connection: the answer, its room and all that
/// is counted for its request would be held for as long as the client likes.
#[derive(Debug)]
pub struct Offer {
    state: Arc<ConnState>,
    since: Option<u32>,
}

impl Offer {
    /// From now on it is for the client to take the next piece.
    pub fn begin(&mut self) {
        if self.since.is_none() {
            let epoch = self.state.epoch.load(Ordering::Relaxed);
            self.state.slot(epoch).fetch_add(1, Ordering::Relaxed);
            self.since = Some(epoch);
        }
    }

    /// The piece was taken.
    pub fn end(&mut self) {
        if let Some(epoch) = self.since.take() {
            self.state.slot(epoch).fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.end();
    }
}

/// One request being answered.
#[derive(Debug)]
pub struct RequestGuard(Arc<ConnState>);

impl RequestGuard {
    /// What is kept with the connection: made at the first call, for each call of the same type. None: something of another type is kept.
    #[must_use]
    pub fn kept<T: Any + Default + Send + Sync>(&self) -> Option<&T> {
        self.0.kept.get_or_init(|| Box::new(T::default())).downcast_ref()
    }

    /// Notes that the answer breaks off.
    pub fn cut(&self) {
        self.0.cut.store(true, Ordering::Relaxed);
    }

    /// Notes that the client has given this request up before its answer.
    pub fn given_up(&self) {
        self.0.given_up.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.touch();
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}
