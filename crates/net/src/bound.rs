//! A bound on the connections to one replica, over all workers that have some.
//!
//! A connection stays with the worker that opened it: another thread would have to be woken for each piece it reads. What workers share is the number.
//! A request takes a turn before it has a connection, and waits for one in order. Who opens a connection while as many are open as may be closes one that
//! is idle, at whichever worker: there is one, since not all turns are taken by others.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::turns::{Turn, Turns};

/// Most requests that wait for a connection to one replica.
const WAITING: usize = 10_000;

/// Who may have an idle connection.
pub(crate) trait Spare: Send + Sync {
    /// Closes the one that has been idle for longest. False if none is idle.
    fn close_one(&self) -> bool;
}

/// See the module.
pub struct Bound {
    turns: Arc<Turns>,
    waiting: AtomicUsize,
    open: AtomicU32,
    spares: Mutex<Vec<Weak<dyn Spare>>>,
}

/// One counted connection, open or being opened.
pub(crate) struct Place(Arc<Bound>);

/// One request that waits for its turn, in this count.
struct Waiting<'a>(&'a Bound);

impl Bound {
    /// At most this many connections, at least one.
    #[must_use]
    pub fn new(most: u32) -> Arc<Self> {
        let turns = Turns::new(most.max(1) as usize);
        Arc::new(Self { turns, waiting: AtomicUsize::new(0), open: AtomicU32::new(0), spares: Mutex::default() })
    }

    /// Sets another bound. What is in use stays in use, and what is over the bound is not used again after it.
    pub fn set_most(&self, most: u32) {
        self.turns.set_most(most.max(1) as usize);
        self.make_room();
    }

    /// Connections that are open or being opened.
    #[must_use]
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Acquire)
    }

    pub(crate) fn add(&self, spare: Weak<dyn Spare>) {
        self.spares.lock().push(spare);
    }

    /// Whether a request would have its turn at once.
    pub(crate) fn has_turn(&self) -> bool {
        self.turns.is_free()
    }

    pub(crate) fn try_turn(&self) -> Option<Turn> {
        self.turns.try_take()
    }

    /// Waits for a turn. None: too many wait.
    ///
    /// Cancel safe.
    pub(crate) async fn turn(&self) -> Option<Turn> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        // Dropped after the wait itself, whose turn may come to it as it is given up.
        let _waiting = Waiting(self);
        self.turns.take().await
    }

    /// Closes idle connections until no more are open than may be.
    fn make_room(&self) {
        while self.open() as usize > self.turns.most() && self.close_spare() {}
    }

    fn close_spare(&self) -> bool {
        self.spares.lock().iter().any(|spare| spare.upgrade().is_some_and(|spare| spare.close_one()))
    }
}

impl Place {
    /// A place for who has a turn.
    pub(crate) fn take(bound: &Arc<Bound>) -> Self {
        bound.open.fetch_add(1, Ordering::AcqRel);
        bound.make_room();
        Self(bound.clone())
    }

    /// A place, if fewer than this many are open, and one more may be.
    pub(crate) fn take_below(bound: &Arc<Bound>, fewer: u32) -> Option<Self> {
        let most = fewer.min(u32::try_from(bound.turns.most()).unwrap_or(u32::MAX));
        let more = |open: u32| (open < most).then_some(open + 1);
        bound.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Self(bound.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        self.0.turns.settle();
    }
}
