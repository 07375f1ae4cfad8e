//! The control plane's side: who sits, and when the next seating comes into force.
//!
//! A change goes through the record twice. First the next seating is written beside the one in force: from before that on nothing is granted,
//! and gateways are told its number, which they promise. Then, when no lease of the one in force can be in use any more, the next takes its place:
//!
//! * at once, when all of its seats have promised (or a later life of their home speaks) and have no load in flight;
//! * after a while that loads are given to end, when all have promised;
//! * when some are silent: once those cannot be a majority, which only votes of others could make them, and the last lease is over.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_types::{GatewayName, Mono};

use super::{MAX_SEATS, Seat, Seating, longer};

/// What registrars share: one record, replaced by compare and set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The term of who wrote it.
    pub term: u64,
    /// In force.
    pub seating: Seating,
    /// To come.
    pub next: Option<Seating>,
}

/// What a gateway says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sit {
    /// Who it is.
    pub seat: Seat,
    /// What it has promised, on disk.
    pub promised: u64,
    /// It has no load in flight that it started, and waits for none of others of which nothing tells.
    pub drained: bool,
    /// The lives before this one of its home left no load in flight.
    pub clean: bool,
    /// It wants no seat any more.
    pub leaving: bool,
}

/// What a gateway is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The seating in force.
    pub seating: Option<Seating>,
    /// The number of the one to come.
    pub next: Option<u64>,
    /// Whether it has a lease from when it asked.
    pub granted: bool,
}

/// What new seatings are made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// See [`Seating::alone`].
    pub alone: Duration,
    /// How long a lease lasts, how long a silent gateway keeps its seat, and how long loads are given to end.
    pub lease: Duration,
    /// The most loads of the fleet.
    pub bound: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Member {
    sit: Sit,
    heard: Mono,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Registrar {
    rules: Rules,
    record: Record,
    members: BTreeMap<GatewayName, Member>,
    /// When the last replacement of the record that succeeded was begun.
    confirmed: Mono,
    /// When the first one was over.
    claimed: Mono,
    /// Since when nothing is granted here.
    stopped: Option<Mono>,
    /// Since when the silent seats cannot be a majority.
    outvoted: Option<Mono>,
    /// When homes with a seat were last answered here.
    told: BTreeMap<(GatewayName, u64), Mono>,
}

impl Registrar {
    /// The record is this registrar's from `claimed` on; it has just written it, beginning at `sent`.
    #[must_use]
    pub fn new(rules: Rules, record: Record, sent: Mono, claimed: Mono) -> Self {
        let stopped = record.next.is_some().then_some(claimed);
        let (members, told) = (BTreeMap::new(), BTreeMap::new());
        Self { rules, record, members, confirmed: sent, claimed, stopped, outvoted: None, told }
    }

    /// How long a written record lets leases be granted. Whoever takes the record over waits for its end.
    #[must_use]
    pub const fn confidence(lease: Duration) -> Duration {
        Duration::from_micros(lease.as_micros() as u64 / 2)
    }

    /// The record as it was last written.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The record was replaced by this one; that was begun at `sent`.
    pub fn written(&mut self, sent: Mono, record: Record) {
        self.confirmed = self.confirmed.max(sent);
        if record.next.is_none() {
            (self.stopped, self.outvoted) = (None, None);
        }
        self.record = record;
        let sits = |name: &GatewayName, home| self.record.seating.seat(name).is_some_and(|seat| seat.home == home);
        self.told.retain(|(name, home), _| sits(name, *home));
    }

    /// Takes in what a gateway says, and answers it.
    pub fn sit(&mut self, now: Mono, sit: Sit) -> Told {
        let seat = sit.seat.clone();
        if self.members.len() >= MAX_SEATS {
            self.forget(now);
        }
        let known = self.members.len() < MAX_SEATS || self.members.contains_key(&seat.name);
        let stale = self.members.get(&seat.name).is_some_and(|known| {
            let (old, silent) = (&known.sit.seat, now.since(known.heard) > self.rules.lease);
            // Of one home the later life speaks; of two homes the one that spoke first.
            if old.home == seat.home { old.life > seat.life } else { !silent && !known.sit.leaving }
        });
        if known && !stale {
            self.members.insert(seat.name.clone(), Member { sit, heard: now });
        }
        if self.record.seating.seat(&seat.name).is_some_and(|sits| sits.home == seat.home) {
            self.told.insert((seat.name.clone(), seat.home), now);
        }
        let seating = Some(&self.record.seating).filter(|seating| seating.epoch > 0).cloned();
        let next = self.record.next.as_ref().map(|next| next.epoch);
        Told { granted: self.grants(now, &seat), seating, next }
    }

    /// Who is long silent and has no seat is no member any more.
    fn forget(&mut self, now: Mono) {
        let (lease, seating) = (self.rules.lease, &self.record.seating);
        self.members.retain(|name, m| now.since(m.heard) <= lease || seating.seat(name).is_some());
    }

    fn grants(&self, now: Mono, seat: &Seat) -> bool {
        let sits = self.record.seating.seat(&seat.name).is_some_and(|s| (s.home, s.life) == (seat.home, seat.life));
        let sure = now.since(self.confirmed) <= Self::confidence(self.record.seating.lease);
        sits && sure && self.stopped.is_none() && self.record.next.is_none()
    }

    /// What the record is to be replaced by, if it is to change. From the moment in which a next seating is asked for nothing is granted.
    pub fn wants(&mut self, now: Mono) -> Option<Record> {
        match &self.record.next {
            Some(next) => {
                let next = next.clone();
                let unsure = self.may_begin(now, next.epoch)?;
                Some(Record { seating: Seating { unsure, ..next }, next: None, ..self.record.clone() })
            }
            None => {
                let next = self.proposal(now)?;
                self.stopped.get_or_insert(now);
                Some(Record { next: Some(next), ..self.record.clone() })
            }
        }
    }

    fn proposal(&self, now: Mono) -> Option<Seating> {
        let current = &self.record.seating;
        let mut seats: Vec<Seat> = self.live(now).cloned().collect();
        // Seats of which nothing was heard yet have the time to speak.
        let fresh = now.since(self.claimed) <= self.rules.lease;
        let unheard = current.seats.iter().filter(|seat| fresh && !self.members.contains_key(&seat.name));
        seats.extend(unheard.cloned());
        seats.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let same = *current.seats == *seats
            && (current.bound, current.lease, current.alone) == (self.rules.bound, self.rules.lease, self.rules.alone);
        if same || seats.is_empty() {
            return None;
        }
        let Rules { lease, alone, bound } = self.rules;
        Some(Seating { epoch: current.epoch.saturating_add(1), lease, alone, bound, seats, unsure: false })
    }

    fn live(&self, now: Mono) -> impl Iterator<Item = &Seat> {
        let live = move |m: &&Member| !m.sit.leaving && now.since(m.heard) <= self.rules.lease;
        self.members.values().filter(live).map(|m| &m.sit.seat)
    }

    /// Whether the next seating may come into force; if so, whether loads may be in flight of which nobody knows.
    fn may_begin(&mut self, now: Mono, next: u64) -> Option<bool> {
        let current = &self.record.seating;
        let states: Vec<Option<bool>> = current.seats.iter().map(|seat| self.released(seat, next)).collect();
        let stopped = self.stopped.unwrap_or(now);
        if states.iter().all(|state| *state == Some(true)) {
            return Some(false);
        }
        if states.iter().all(Option::is_some) {
            return (now.since(stopped) >= longer(self.rules.lease)).then_some(true);
        }
        if self.can_be_majority(now, next) {
            return None;
        }
        let outvoted = *self.outvoted.get_or_insert(now);
        // Who had the record before may have granted until then.
        let others = self.claimed.after(longer(Self::confidence(current.lease)));
        let over = outvoted.max(stopped).max(others).after(current.over());
        (now >= over).then_some(true)
    }

    /// Whether a seat uses no lease of the seating in force any more; if so, whether it has no load in flight either.
    fn released(&self, seat: &Seat, next: u64) -> Option<bool> {
        let Sit { seat: now, promised, drained, clean, leaving } = &self.members.get(&seat.name)?.sit;
        if now.home != seat.home || now.life < seat.life {
            return None;
        }
        if now.life > seat.life {
            return Some(*clean && *drained);
        }
        (*leaving || *promised >= next).then_some(*drained)
    }

    /// Whether a seat that has not promised could still get a majority's votes. A vote is a promise's home's, whatever its life.
    fn can_be_majority(&self, now: Mono, next: u64) -> bool {
        let alone = longer(self.record.seating.alone);
        let seats = &self.record.seating.seats;
        let bound = |seat: &&Seat| {
            let member = self.members.get(&seat.name);
            let told = self.told.get(&(seat.name.clone(), seat.home)).copied().unwrap_or(self.claimed);
            let promised = member.is_some_and(|m| m.sit.seat.home == seat.home && m.sit.promised >= next);
            promised || now.since(told.max(self.claimed)) > alone
        };
        let free: Vec<&Seat> = seats.iter().filter(|seat| !bound(seat)).collect();
        let voters = free.iter().filter(|seat| seat.peer.is_some()).count();
        // Each has its own vote, and those of the others that can be reached.
        let most = free.iter().map(|seat| 1 + voters - usize::from(seat.peer.is_some())).max().unwrap_or(0);
        seats.len() > 1 && most >= self.record.seating.majority()
    }
}
