//! Sockets and handshakes of each user: how many are open, how often new ones come, and who is kept out since its sockets were closed for violations.
//!
//! A user that nobody knows is an address. The map is bounded: of those for whom there is nothing to remember nothing is kept, and when it is full all
//! further users are one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use holdfast_quota::bucket::{Bucket, Wait};
use holdfast_quota::ladder::Reconnects;
use holdfast_quota::limit::{Limit, Rate};
use holdfast_types::Mono;

/// Users that are told apart, at some 150 bytes each.
const MOST: usize = 65_536;
/// All others.
const OTHERS: u128 = 0;
/// Between two looks for users that can be forgotten, when there is no room.
const BETWEEN_SWEEPS: Duration = Duration::from_secs(1);

/// What one user may have.
#[derive(Clone, Copy, Debug)]
pub struct Allowed {
    /// Sockets at a time.
    pub sockets: u32,
    /// Handshakes in a minute.
    pub per_minute: u32,
}

impl Allowed {
    fn limit(self) -> Limit {
        let per_minute = u64::from(self.per_minute.max(1));
        Limit { rate: Rate::new(per_minute, Duration::from_secs(60)), burst: per_minute }
    }
}

/// Why a user may not open a socket, and when it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    /// In words.
    pub why: &'static str,
    /// The label of the counter.
    pub label: &'static str,
    /// When to come again.
    pub wait: Duration,
}

struct User {
    open: u32,
    opens: Bucket,
    closed: Reconnects,
}

#[derive(Default)]
struct Inner {
    users: HashMap<u128, User>,
    swept: Mono,
    /// As it was at the last handshake.
    limit: Option<Limit>,
}

/// See the module.
#[derive(Default)]
pub struct Openings(Mutex<Inner>);

impl Openings {
    /// Counts a socket of this user until it is dropped.
    ///
    /// # Errors
    /// The user has too many, opens too many, or is kept out.
    pub fn open(self: &Arc<Self>, now: Mono, who: u128, allowed: Allowed) -> Result<Opened, Closed> {
        let mut inner = self.0.lock();
        let limit = allowed.limit();
        if inner.limit != Some(limit) {
            inner.follow(limit, now);
        }
        let who = inner.place(now, who, limit);
        let user = inner.users.entry(who).or_insert_with(|| User {
            open: 0,
            opens: Bucket::full(limit, now),
            closed: Reconnects::default(),
        });
        if let Err(wait) = user.closed.open(now) {
            let why = "sockets of this user were closed for going over its limits again and again; it is kept out for a while";
            return Err(Closed { why, label: "kept_out", wait });
        }
        if user.open >= allowed.sockets {
            let why = "this user has as many open sockets as it may have";
            return Err(Closed { why, label: "too_many", wait: Duration::from_secs(1) });
        }
        if let Err(wait) = user.opens.take(limit, now, 1) {
            let wait = if let Wait::For(wait) = wait { wait } else { Duration::from_secs(60) };
            return Err(Closed { why: "this user opens sockets too often", label: "too_often", wait });
        }
        user.open += 1;
        Ok(Opened { all: self.clone(), who })
    }

    /// Users that are remembered, and those of them that are kept out.
    #[must_use]
    pub fn counts(&self, now: Mono) -> (usize, usize) {
        let inner = self.0.lock();
        (inner.users.len(), inner.users.values().filter(|user| user.closed.open(now).is_err()).count())
    }

    /// Forgets users for whom there is nothing to remember.
    pub fn sweep(&self, now: Mono) {
        self.0.lock().sweep(now);
    }
}

impl Inner {
    fn follow(&mut self, limit: Limit, now: Mono) {
        if let Some(before) = self.limit.replace(limit) {
            self.users.values_mut().for_each(|user| user.opens.change(before, limit, now));
        }
    }

    fn place(&mut self, now: Mono, who: u128, limit: Limit) -> u128 {
        if self.users.len() < MOST || self.users.contains_key(&who) {
            return who;
        }
        if now.since(self.swept) >= BETWEEN_SWEEPS {
            self.limit = Some(limit);
            self.sweep(now);
        }
        if self.users.len() < MOST { who } else { OTHERS }
    }

    fn sweep(&mut self, now: Mono) {
        self.swept = now;
        let Some(limit) = self.limit else { return };
        self.users.retain(|_, user| user.open > 0 || !user.closed.is_idle(now) || !user.opens.is_full(limit, now));
        if self.users.len() < self.users.capacity() / 8 {
            let room = self.users.len() * 2;
            self.users.shrink_to(room);
        }
    }
}

/// One open socket of a user.
pub struct Opened {
    all: Arc<Openings>,
    who: u128,
}

impl Opened {
    /// The socket is closed for violations of this limit.
    pub fn violated(&self, now: Mono, limit: Limit) {
        if let Some(user) = self.all.0.lock().users.get_mut(&self.who) {
            user.closed.closed(now, limit);
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(user) = self.all.0.lock().users.get_mut(&self.who) {
            user.open = user.open.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOWED: Allowed = Allowed { sockets: 2, per_minute: 6 };

    fn at(millis: u64) -> Mono {
        Mono(1 + millis * 1_000_000)
    }

    fn refused(opened: Result<Opened, Closed>) -> (&'static str, u64) {
        let closed = opened.map(|_| ()).expect_err("refused");
        (closed.label, u64::try_from(closed.wait.as_millis()).unwrap())
    }

    #[test]
    fn a_user_has_so_many_at_a_time_and_so_many_in_a_minute_and_takes_none_from_others() {
        let all = Arc::new(Openings::default());
        let first = all.open(at(0), 7, ALLOWED).ok();
        let second = all.open(at(0), 7, ALLOWED).ok();
        assert!(first.is_some() && second.is_some());
        assert_eq!(refused(all.open(at(0), 7, ALLOWED)).0, "too_many");
        assert!(all.open(at(0), 8, ALLOWED).is_ok());
        drop(first);
        for _ in 0..4 {
            assert!(all.open(at(0), 7, ALLOWED).is_ok());
        }
        assert_eq!(refused(all.open(at(0), 7, ALLOWED)), ("too_often", 10_000));
        assert!(all.open(at(10_000), 7, ALLOWED).is_ok());
    }

    #[test]
    fn whoever_was_closed_for_violations_is_kept_out_and_remembered_until_it_is_forgiven() {
        let all = Arc::new(Openings::default());
        let opened = all.open(at(0), 7, ALLOWED).ok().unwrap();
        opened.violated(at(0), Limit::per_second(20, 40));
        drop(opened);
        assert_eq!(refused(all.open(at(1), 7, ALLOWED)), ("kept_out", 3_999));
        assert_eq!(all.counts(at(1)), (1, 1));
        all.sweep(at(60_000));
        assert!(all.open(at(60_000), 7, ALLOWED).is_ok());
        all.sweep(at(60_000));
        assert_eq!(all.counts(at(60_000)), (1, 0), "the next close is the second");
        all.sweep(at(700_000));
        assert_eq!(all.counts(at(700_000)), (0, 0));
    }

    #[test]
    fn inventing_users_takes_no_memory_and_gains_nothing() {
        let all = Arc::new(Openings::default());
        let mut open = Vec::new();
        for who in 1..=MOST as u128 {
            open.push(all.open(at(0), who, ALLOWED).ok().unwrap());
        }
        let others = [all.open(at(2_000), u128::MAX, ALLOWED), all.open(at(2_000), u128::MAX - 1, ALLOWED)];
        assert!(others.iter().all(Result::is_ok));
        assert_eq!(refused(all.open(at(2_000), u128::MAX - 2, ALLOWED)).0, "too_many", "they are one");
        assert_eq!(all.counts(at(2_000)).0, MOST + 1);
        drop((open, others));
        all.sweep(at(700_000));
        assert_eq!(all.counts(at(700_000)).0, 0);
    }
}
