//! What one tenant and its users have used, under one lock that is held for a moment.
//!
//! A request that was admitted under an older table gives back at the places that it knows. So a limit that a new table does not have keeps its place, and
//! allows everything there, until nobody is left who came to know it; only then another limit may have it.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;

use holdfast_quota::bucket::{Metered, Purse, Wait};
use holdfast_quota::caps::Running;
use holdfast_quota::lease::Event;
use holdfast_quota::limit::Allowance;
use holdfast_quota::scopes::Scope;
use holdfast_types::Mono;

use super::shared::{Leased, Link};
use super::steps::Steps;
use super::terms::{Cap, Key, Terms, What};
use super::users::{Room, Users, Whose};

/// One limit and what is used of it.
pub(super) enum Use {
    /// One bucket.
    Rate(Metered),
    /// A part of a bucket that gateways share.
    Leased(Box<Leased>),
    /// A bucket for each user.
    RateByUser(Allowance, Users),
    /// A count.
    AtOnce(Option<u32>, Running),
    /// A count for each user that has something running.
    AtOnceByUser(Option<u32>, HashMap<u128, Running>),
}

/// A limit that requests come under. What they cost there follows from what it counts, so that lists of gates are made once for a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gate {
    /// Its place in the book.
    pub(super) at: u16,
    /// What it counts.
    pub(super) what: What,
}

impl What {
    /// What a request with a body of so many bytes costs.
    pub(super) const fn cost(self, bytes: u64) -> u64 {
        match self {
            Self::Bytes => bytes,
            Self::Requests | Self::Running => 1,
        }
    }
}

/// Who asks or gives back: a user, if one is known, and of which gates its tokens are of the bucket of all users that have none of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct By {
    pub(super) user: Option<u128>,
    pub(super) others: Others,
}

/// A bit for each gate of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Others(u8);

impl Others {
    fn note(&mut self, gate: usize, whose: Whose) {
        if whose == Whose::Others {
            self.0 |= 1 << (gate % 8);
        }
    }

    const fn at(self, gate: usize) -> Whose {
        if self.0 & 1 << (gate % 8) == 0 { Whose::Own } else { Whose::Others }
    }
}

impl By {
    fn at(self, gate: usize) -> Option<(u128, Whose)> {
        self.user.map(|user| (user, self.others.at(gate)))
    }
}

/// Which gate was shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short {
    /// The gate, by its place in the list.
    pub(super) gate: usize,
    pub(super) wait: Wait,
    /// It may be met in a moment: what is missing is ordered.
    pub(super) soon: bool,
}

/// Places that stay where they are for as long as this lives.
pub(super) struct Hold {
    book: Arc<Book>,
    places: SmallVec<[u16; 8]>,
}

impl Hold {
    /// The place of a limit.
    pub(super) fn place(&mut self, key: &Key) -> Option<u16> {
        let mut inner = self.book.inner.lock();
        let at = inner.limits.iter().position(|(known, _)| known == key)?;
        let place = u16::try_from(at).ok()?;
        *inner.known.get_mut(at)? += 1;
        self.places.push(place);
        Some(place)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut inner = self.book.inner.lock();
        for at in &self.places {
            if let Some(known) = inner.known.get_mut(usize::from(*at)) {
                *known = known.saturating_sub(1);
            }
        }
    }
}

/// See the module.
pub struct Book {
    me: Weak<Self>,
    inner: Mutex<Inner>,
    room: Arc<Room>,
    link: Option<Arc<Link>>,
    /// What keys of shared limits are called.
    name: Box<str>,
    /// Told when the store has answered.
    answered: Notify,
    /// Steps of sockets under overload.
    pub(super) steps: Steps,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) limits: Vec<(Key, Use)>,
    /// How many know each place, and may give back there.
    known: Vec<u32>,
    /// Requests of other workers may have begun later than one that is here first.
    now: Mono,
}

impl Book {
    pub(super) fn new(room: Arc<Room>, link: Option<Arc<Link>>, name: &str) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            inner: Mutex::default(),
            room,
            link,
            name: name.into(),
            answered: Notify::new(),
            steps: Steps::default(),
        })
    }

    /// Takes over what is allowed from now on.
    pub(super) fn follow(&self, terms: &Terms, now: Mono) {
        let mut inner = self.inner.lock();
        let now = inner.at(now);
        for (at, (key, used)) in inner.limits.iter_mut().enumerate() {
            let gone = if key.what == What::Running { Cap::AtOnce(None) } else { Cap::Rate(Allowance::Unlimited) };
            let cap = terms.caps.iter().find(|(known, _)| known == key).map_or(gone, |(_, cap)| *cap);
            if !used.change(cap, now) {
                *used = self.fresh(key, cap, at, now);
            }
        }
        let mut free = inner.free(terms).into_iter();
        for (key, cap) in &terms.caps {
            if inner.limits.iter().any(|(known, _)| known == key) {
                continue;
            }
            let at = free.next().unwrap_or(inner.limits.len());
            let fresh = (key.clone(), self.fresh(key, *cap, at, now));
            match inner.limits.get_mut(at) {
                Some(place) => *place = fresh,
                None => {
                    inner.limits.push(fresh);
                    inner.known.push(0);
                }
            }
        }
        // What is free at the end is let go of.
        let used =
            inner.free(terms).into_iter().rev().fold(inner.limits.len(), |end, at| end - usize::from(at + 1 == end));
        inner.limits.truncate(used);
        inner.known.truncate(used);
    }

    /// To ask for places.
    pub(super) fn hold(self: &Arc<Self>) -> Hold {
        Hold { book: self.clone(), places: SmallVec::new() }
    }

    fn fresh(&self, key: &Key, cap: Cap, at: usize, now: Mono) -> Use {
        let leased = match (&self.link, cap) {
            (Some(link), Cap::Rate(Allowance::Limited(limit))) if key.scope != Scope::User => {
                let at = u16::try_from(at).unwrap_or(u16::MAX);
                Leased::new(link, key.name(&self.name), at, &self.me, limit, now)
            }
            _ => None,
        };
        leased.map_or_else(|| Use::new(key, cap, &self.room, now), |leased| Use::Leased(Box::new(leased)))
    }

    /// The store has answered, or has not, about the limit of this name at this place: another one may have come there meanwhile.
    pub(super) fn told(&self, at: u16, name: &str, now: Mono, event: Event) {
        {
            let mut inner = self.inner.lock();
            let now = inner.at(now);
            if let Some(Use::Leased(leased)) = inner.of(at)
                && leased.is_called(name)
            {
                leased.apply(now, event);
            }
        }
        self.answered.notify_waiters();
    }

    /// Time passes for a lease. Whether it is to be looked at again.
    pub(super) fn tick(&self, at: u16, now: Mono) -> bool {
        let mut inner = self.inner.lock();
        let now = inner.at(now);
        let Some(Use::Leased(leased)) = inner.of(at) else { return false };
        if leased.holder.wakes_at().is_some_and(|wakes| wakes <= now) {
            leased.apply(now, Event::Tick);
        }
        leased.holder.wakes_at().is_some()
    }

    /// Told whenever the store has answered for one of the limits.
    pub(super) fn answered(&self) -> &Notify {
        &self.answered
    }

    /// Takes what a request with so many bytes costs at all gates, in order, or nothing. Again: it has waited for the store. On credit: rates that are not
    /// shared may go into debt.
    pub(super) fn take(
        &self,
        now: Mono,
        user: Option<u128>,
        gates: &[Gate],
        bytes: u64,
        (again, credit): (bool, bool),
    ) -> Result<Others, Short> {
        let mut inner = self.inner.lock();
        let now = inner.at(now);
        let mut others = Others::default();
        for (index, gate) in gates.iter().enumerate() {
            let cost = gate.what.cost(bytes);
            let taken = match inner.of(gate.at) {
                None => Ok(Whose::Own),
                Some(Use::Leased(leased)) => leased.take(now, cost, again).map(|()| Whose::Own),
                Some(used) => used.take(now, user, cost, credit).map_err(|wait| (wait, false)),
            };
            match taken {
                Ok(whose) => others.note(index, whose),
                Err((wait, soon)) => {
                    let by = By { user, others };
                    for (index, gate) in gates.iter().enumerate().take(index) {
                        inner.give_back(now, by.at(index), gate.at, gate.what.cost(bytes));
                    }
                    return Err(Short { gate: index, wait, soon });
                }
            }
        }
        Ok(others)
    }

    /// Gives back what `cost` says of each gate.
    pub(super) fn give_back(&self, now: Mono, by: By, gates: &[Gate], cost: impl Fn(What) -> u64) {
        let mut inner = self.inner.lock();
        let now = inner.at(now);
        for (index, gate) in gates.iter().enumerate() {
            match cost(gate.what) {
                0 => {}
                cost => inner.give_back(now, by.at(index), gate.at, cost),
            }
        }
    }

    /// Takes bytes that have come already.
    pub(super) fn charge_bytes(&self, now: Mono, by: By, gates: &[Gate], bytes: u64) {
        let mut inner = self.inner.lock();
        let now = inner.at(now);
        for (index, gate) in gates.iter().enumerate().filter(|(_, gate)| gate.what == What::Bytes) {
            if let Some(used) = inner.of(gate.at) {
                used.charge(now, by.at(index), bytes);
            }
        }
    }

    /// Forgets users of whom there is nothing to remember: a part of them at each call.
    pub(super) fn sweep(&self, now: Mono) {
        let mut inner = self.inner.lock();
        let now = inner.at(now);
        for (_, used) in &mut inner.limits {
            if let Use::RateByUser(Allowance::Limited(limit), users) = used {
                users.sweep(*limit, now, 8);
            }
        }
    }

    /// Looks at one limit.
    pub(super) fn look<T>(&self, at: u16, look: impl FnOnce(&Key, &Use) -> T) -> Option<T> {
        let inner = self.inner.lock();
        inner.limits.get(usize::from(at)).map(|(key, used)| look(key, used))
    }

    /// Looks at those of a request.
    pub(super) fn look_at(&self, gates: &[Gate], mut look: impl FnMut(&Key, &Use)) {
        let inner = self.inner.lock();
        let limits = gates.iter().filter_map(|gate| inner.limits.get(usize::from(gate.at)));
        limits.for_each(|(key, used)| look(key, used));
    }

    /// Looks at all of them.
    pub(super) fn look_at_all<T>(&self, look: impl FnMut(&(Key, Use)) -> T) -> Vec<T> {
        self.inner.lock().limits.iter().map(look).collect()
    }
}

impl Inner {
    fn at(&mut self, now: Mono) -> Mono {
        self.now = self.now.max(now);
        self.now
    }

    fn of(&mut self, at: u16) -> Option<&mut Use> {
        self.limits.get_mut(usize::from(at)).map(|(_, used)| used)
    }

    fn give_back(&mut self, now: Mono, user: Option<(u128, Whose)>, at: u16, cost: u64) {
        if let Some(used) = self.of(at) {
            used.give_back(now, user, cost);
        }
    }

    /// Places of limits that these terms do not have, and that nobody knows any more.
    fn free(&self, terms: &Terms) -> Vec<usize> {
        let is_free = |(at, (key, _)): &(usize, &(Key, Use))| {
            self.known.get(*at) == Some(&0) && !terms.caps.iter().any(|(named, _)| named == key)
        };
        self.limits.iter().enumerate().filter(is_free).map(|(at, _)| at).collect()
    }
}

impl Use {
    fn new(key: &Key, cap: Cap, room: &Arc<Room>, now: Mono) -> Self {
        let by_user = key.scope == Scope::User;
        match cap {
            Cap::Rate(allowance) if by_user => Self::RateByUser(allowance, Users::new(room.clone())),
            Cap::Rate(allowance) => Self::Rate(Metered::new(allowance, now)),
            Cap::AtOnce(most) if by_user => Self::AtOnceByUser(most, HashMap::new()),
            Cap::AtOnce(most) => Self::AtOnce(most, Running::default()),
        }
    }

    /// Another limit; what is in use stays in use.
    /// False: there has to be another one in its place.
    fn change(&mut self, cap: Cap, now: Mono) -> bool {
        match (self, cap) {
            (Self::Leased(leased), Cap::Rate(Allowance::Limited(to))) if leased.limit() == to => {}
            (Self::Leased(leased), Cap::Rate(Allowance::Limited(to))) => leased.change(to, now),
            (Self::Leased(_), _) => return false,
            // It would be leased if it were new.
            (Self::Rate(metered), Cap::Rate(Allowance::Limited(_)))
                if !matches!(metered.allowance(), Allowance::Limited(_)) =>
            {
                return false;
            }
            (Self::Rate(metered), Cap::Rate(to)) if metered.allowance() != to => metered.change(to, now),
            (Self::RateByUser(from, users), Cap::Rate(to)) if *from != to => {
                match (*from, to) {
                    (Allowance::Limited(from), Allowance::Limited(to)) => users.change(from, to, now),
                    _ => users.clear(),
                }
                *from = to;
            }
            (Self::AtOnce(most, _) | Self::AtOnceByUser(most, _), Cap::AtOnce(to)) => *most = to,
            _ => {}
        }
        true
    }

    /// Takes the cost, and says whose bucket it was if it is a limit of users.
    fn take(&mut self, now: Mono, user: Option<u128>, cost: u64, credit: bool) -> Result<Whose, Wait> {
        let taken = match self {
            Self::Rate(metered) if credit => metered.borrow(now, cost),
            Self::Rate(metered) => metered.take(now, cost),
            Self::Leased(leased) => leased.take(now, cost, false).map_err(|(wait, _)| wait),
            Self::RateByUser(Allowance::Unlimited, _) => Ok(()),
            Self::RateByUser(Allowance::Nothing, _) => {
                if cost == 0 {
                    Ok(())
                } else {
                    Err(Wait::Never)
                }
            }
            Self::RateByUser(Allowance::Limited(limit), users) => {
                let Some(user) = user else { return Ok(Whose::Own) };
                let take = if credit { Users::borrow } else { Users::take };
                return take(users, *limit, now, user, cost);
            }
            Self::AtOnce(most, running) => started(running.start(*most), *most),
            Self::AtOnceByUser(most, by_user) => {
                let Some(user) = user else { return Ok(Whose::Own) };
                let running = by_user.entry(user).or_default();
                let free = running.start(*most);
                if running.count() == 0 {
                    by_user.remove(&user);
                }
                started(free, *most)
            }
        };
        taken.map(|()| Whose::Own)
    }

    fn give_back(&mut self, now: Mono, user: Option<(u128, Whose)>, tokens: u64) {
        match self {
            Self::Rate(metered) => metered.give_back(now, tokens),
            Self::Leased(leased) => leased.give_back(now, tokens),
            Self::RateByUser(Allowance::Limited(limit), users) => {
                if let Some(user) = user {
                    users.give_back(*limit, now, user, tokens);
                }
            }
            Self::RateByUser(..) => {}
            Self::AtOnce(_, running) => running.end(),
            Self::AtOnceByUser(_, by_user) => {
                let Some((user, _)) = user else { return };
                if let Some(running) = by_user.get_mut(&user) {
                    running.end();
                    if running.count() == 0 {
                        by_user.remove(&user);
                    }
                }
            }
        }
    }

    fn charge(&mut self, now: Mono, user: Option<(u128, Whose)>, cost: u64) {
        match self {
            Self::Rate(metered) => metered.charge(now, cost),
            Self::Leased(leased) => leased.holder.charge(now, cost),
            Self::RateByUser(Allowance::Limited(limit), users) => {
                if let Some(user) = user {
                    users.charge(*limit, now, user, cost);
                }
            }
            _ => {}
        }
    }
}

/// When one of the running requests ends nobody knows; a second is what a client may be asked to wait. A cap of nothing never has room.
fn started(free: bool, most: Option<u32>) -> Result<(), Wait> {
    match (free, most) {
        (true, _) => Ok(()),
        (false, Some(0)) => Err(Wait::Never),
        (false, _) => Err(Wait::For(std::time::Duration::from_secs(1))),
    }
}
