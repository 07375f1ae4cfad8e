//! A bound on the connections to one replica, over all workers that have some.
//!
//! A connection stays with the worker that opened it: another thread has to be woken for each piece it reads. What workers share is the number. A request
//! takes a turn before it has a connection, and waits for one in order. Who has a turn and finds as many connections open as may be takes one that is idle
//! at another worker: there is one, or one is just being closed, since not all turns are taken by others.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::client::ReplicaPool;
use crate::turns::{Turn, Turns};

/// Most requests that wait for a connection to one replica.
const WAITING: usize = 10_000;

/// See the module. `B` is the request body's type.
pub struct Bound<B> {
    turns: Arc<Turns>,
    waiting: AtomicUsize,
    open: AtomicU32,
    strays: AtomicU64,
    /// Who has a turn, may open no more, and has found none idle.
    short: AtomicUsize,
    /// One has been closed, or is idle while somebody is short of one.
    room: Notify,
    pools: Mutex<Vec<Weak<ReplicaPool<B>>>>,
}

/// One counted connection, from when it is opened to when its socket is closed.
pub(crate) struct Place<B>(Arc<Bound<B>>);

/// Somebody who looks for a connection of others.
pub(crate) struct Short<'a, B>(&'a Bound<B>);

/// One request that waits for its turn, in this count.
struct Waiting<'a, B>(&'a Bound<B>);

impl<B> Bound<B> {
    /// At most this many connections, at least one.
    #[must_use]
    pub fn new(most: u32) -> Arc<Self> {
        Arc::new(Self {
            turns: Turns::new(most.max(1) as usize),
            waiting: AtomicUsize::new(0),
            open: AtomicU32::new(0),
            strays: AtomicU64::new(0),
            short: AtomicUsize::new(0),
            room: Notify::new(),
            pools: Mutex::default(),
        })
    }

    /// Sets another bound. What is in use stays in use, and what is over the bound is not used again after it.
    pub fn set_most(&self, most: u32) {
        self.turns.set_most(most.max(1) as usize);
    }

    /// Connections that are open or being opened.
    #[must_use]
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Acquire)
    }

    /// On how many connections something came after an answer that nobody had asked for.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, pool: Weak<ReplicaPool<B>>) {
        self.pools.lock().push(pool);
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

    /// Counts somebody who looks for a connection of others, and is to be told of the next that comes.
    pub(crate) fn look(&self) -> Short<'_, B> {
        self.short.fetch_add(1, Ordering::SeqCst);
        Short(self)
    }

    /// A connection has become idle. Who looks counts itself first and looks second, this is the other way round: one of the two sees the other.
    pub(crate) fn one_is_idle(&self) {
        fence(Ordering::SeqCst);
        if self.short.load(Ordering::SeqCst) > 0 {
            self.room.notify_waiters();
        }
    }

    /// The pools that share the bound.
    pub(crate) fn pools(&self) -> Vec<Arc<ReplicaPool<B>>> {
        self.pools.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl<B> Short<'_, B> {
    /// Waits until a connection is closed or idle. Counts from when it is enabled.
    pub(crate) fn room(&self) -> Notified<'_> {
        self.0.room.notified()
    }
}

impl<B> Drop for Short<'_, B> {
    fn drop(&mut self) {
        self.0.short.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<B> Place<B> {
    /// A place, if one more connection may be open.
    pub(crate) fn take(bound: &Arc<Bound<B>>) -> Option<Self> {
        Self::take_below(bound, u32::MAX)
    }

    /// A place, if fewer than this many are open, and one more may be.
    pub(crate) fn take_below(bound: &Arc<Bound<B>>, fewer: u32) -> Option<Self> {
        let most = fewer.min(u32::try_from(bound.turns.most()).unwrap_or(u32::MAX));
        let more = |open: u32| (open < most).then_some(open + 1);
        bound.open.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Self(bound.clone()))
    }

    /// Something came over the connection that nobody had asked for.
    pub(crate) fn note_stray(&self) {
        self.0.strays.fetch_add(1, Ordering::Relaxed);
    }
}

impl<B> Drop for Place<B> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        self.0.room.notify_waiters();
    }
}

impl<B> Drop for Waiting<'_, B> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
        self.0.turns.settle();
    }
}
