//! A gateway's side: what it has promised, which seating it knows, and until when it may start loads.

use std::collections::BTreeMap;

use holdfast_types::{GatewayName, Mono};

use super::{Seat, Seating};

/// What was heard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Heard {
    /// The control plane answered a question.
    Control {
        /// When the question was sent.
        sent: Mono,
        /// The seating in force.
        seating: Option<Seating>,
        /// The number of one that is to come: no lease of an earlier one may be used or voted for any more.
        next: Option<u64>,
        /// Whether there is a lease of the seating for who asked.
        granted: bool,
    },
    /// Another gateway answered whether it votes for a lease.
    Vote {
        /// When it was asked.
        sent: Mono,
        /// Who answered.
        peer: GatewayName,
        /// Where its promises are.
        home: u64,
        /// The seating that the vote is for.
        epoch: u64,
        /// It has promised nothing later.
        yes: bool,
    },
}

/// What follows from what was heard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// The promise is a later one. It must be on disk before it is told to anybody.
    pub promised: bool,
    /// Another seating is in force.
    pub seated: bool,
}

/// Until when loads may be started, and under which seating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The seating's number.
    pub epoch: u64,
    /// Not at this moment any more.
    pub until: Mono,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    me: Seat,
    promised: u64,
    seating: Seating,
    /// When the last question was sent to which the control plane's answer was a lease of this seating.
    control: Option<Mono>,
    /// When each other seat was last asked that then voted for this seating.
    votes: BTreeMap<GatewayName, Mono>,
    /// When the last question was sent that a control plane answered.
    told: Option<Mono>,
    left: bool,
}

impl Holder {
    /// A gateway that knows no seating, and what its home has promised.
    #[must_use]
    pub fn new(me: Seat, promised: u64) -> Self {
        let (seating, votes) = (Seating::default(), BTreeMap::new());
        Self { me, promised, seating, control: None, votes, told: None, left: false }
    }

    /// Who this is.
    #[must_use]
    pub fn me(&self) -> &Seat {
        &self.me
    }

    /// The latest seating that it has promised to honour: it uses no lease of an earlier one, and votes for none.
    #[must_use]
    pub fn promised(&self) -> u64 {
        self.promised
    }

    /// The seating that it was last told to be in force.
    #[must_use]
    pub fn seating(&self) -> &Seating {
        &self.seating
    }

    /// Takes in what was heard. Answers that are late or that come twice do no harm: each counts from when it was asked for.
    pub fn hear(&mut self, heard: Heard) -> News {
        match heard {
            Heard::Control { sent, seating, next, granted } => self.told(sent, seating, next, granted),
            Heard::Vote { sent, peer, home, epoch, yes } => {
                let seat = self.seating.seat(&peer).is_some_and(|seat| seat.home == home);
                if yes && seat && epoch == self.seating.epoch && peer != self.me.name {
                    let last = self.votes.entry(peer).or_insert(sent);
                    *last = (*last).max(sent);
                }
                News::default()
            }
        }
    }

    fn told(&mut self, sent: Mono, seating: Option<Seating>, next: Option<u64>, granted: bool) -> News {
        let before = self.promised;
        self.told = self.told.max(Some(sent));
        let mut seated = false;
        let epoch = seating.as_ref().map_or(0, |seating| seating.epoch);
        if let Some(seating) = seating.filter(|seating| seating.epoch > self.seating.epoch) {
            (self.seating, self.control, seated) = (seating, None, true);
            self.votes.clear();
        }
        self.promised = self.promised.max(self.seating.epoch).max(next.unwrap_or(0));
        if granted && epoch == self.seating.epoch {
            self.control = self.control.max(Some(sent));
        }
        News { promised: self.promised > before, seated }
    }

    /// Whether this gateway votes for a lease of a seating.
    #[must_use]
    pub fn votes_for(&self, now: Mono, epoch: u64) -> bool {
        let known = self.told.is_some_and(|told| now.since(told) <= self.seating.alone);
        known && epoch > 0 && epoch >= self.promised
    }

    /// It starts no more loads, ever.
    pub fn leave(&mut self) {
        self.left = true;
    }

    /// Whether this very process has a seat.
    #[must_use]
    pub fn is_seated(&self) -> bool {
        self.seating.seat(&self.me.name).is_some_and(|seat| (seat.home, seat.life) == self.identity())
    }

    /// The lease, if there is one, be it over or not. A seat that is alone has none but the control plane's: nobody else could ever take its
    /// place.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        if self.left || !self.is_seated() || self.promised > self.seating.epoch {
            return None;
        }
        let mut votes: Vec<Mono> = self.votes.values().copied().collect();
        votes.sort_unstable_by(|a, b| b.cmp(a));
        // Its own vote is always there.
        let needed = self.seating.majority().checked_sub(2);
        let own = self.told.map(|told| told.after(self.seating.alone));
        let asked = needed.and_then(|last| votes.get(last)).copied().min(own);
        let until = self.control.max(asked)?.after(self.seating.lease);
        Some(Lease { epoch: self.seating.epoch, until })
    }

    /// Whether loads may be started now.
    #[must_use]
    pub fn holds(&self, now: Mono) -> bool {
        self.lease().is_some_and(|lease| now < lease.until)
    }

    /// Who may be asked for a vote.
    pub fn peers(&self) -> impl Iterator<Item = &Seat> {
        self.seating.seats.iter().filter(|seat| seat.name != self.me.name && seat.peer.is_some())
    }

    const fn identity(&self) -> (u64, u64) {
        (self.me.home, self.me.life)
    }
}
