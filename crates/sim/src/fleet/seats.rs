//! The gateways' seats: who starts loads on which replica. A gateway asks the control planes, and the others while none gives it a lease; what it
//! has promised outlives its process. The rules are [`holdfast_placement::seats`]; here they are driven as the product drives them.

use holdfast_placement::residency::{Event, Own};
use holdfast_placement::seats::promises::one_seating;
use holdfast_placement::seats::{Heard, Holder, Seat, Sit};
use holdfast_types::{GatewayName, Mono};

use super::company::Wished;
use super::gateway::{Told, pair};
use super::plane::ToPlane;
use super::world::{Ev, Process, World};
use super::{MS, Mistake, SECOND};

/// How often a gateway asks that has no lease, or soon none.
const SOON: u64 = 100 * MS;

/// A gateway's folder: it outlives its processes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Home {
    number: u64,
    life: u64,
    promised: u64,
    /// No process has had it that may have left a load in flight.
    clean: bool,
}

/// A gateway's seat, while its process lives.
pub(super) struct Keeper {
    pub(super) holder: Holder,
    clean: bool,
    /// When the last question was asked that was answered by a lease.
    granted: Mono,
    until: Option<Mono>,
    /// By replica: the gateway that starts loads there.
    pub(super) owners: Vec<Option<usize>>,
}

impl Keeper {
    /// Before the first process.
    pub(super) fn none(name: GatewayName) -> Self {
        let holder = Holder::new(Seat { name, home: 0, life: 0, peer: None }, 0);
        Self { holder, clean: true, granted: Mono::ZERO, until: None, owners: Vec::new() }
    }
}

impl Home {
    pub(super) const fn new(number: u64) -> Self {
        Self { number, life: 0, promised: 0, clean: true }
    }

    /// Begins another life in it.
    pub(super) fn lives(&mut self, name: GatewayName, peers: bool) -> Keeper {
        self.life += 1;
        let peer = peers.then(|| name.as_str().into());
        let seat = Seat { name, home: self.number, life: self.life, peer };
        let clean = std::mem::replace(&mut self.clean, false);
        let holder = Holder::new(seat, self.promised);
        Keeper { holder, clean, granted: Mono::ZERO, until: None, owners: Vec::new() }
    }
}

/// What a gateway asks of a control plane.
#[derive(Clone, Debug)]
pub(super) struct Sits {
    pub(super) from: Process,
    pub(super) sit: Sit,
    pub(super) sent: Mono,
    pub(super) wishes: Vec<Wished>,
}

impl World<'_> {
    /// A process begins: it starts nothing before it has a lease.
    pub(super) fn takes_a_seat(&mut self, ix: usize) {
        if self.setup.mistake == Some(Mistake::IgnoresSeats) {
            return;
        }
        self.machine(ix, Event::SetOwn(Some(Own::NOTHING)));
        self.queue.put(self.now, Ev::Seat(self.process_of(ix)));
    }

    /// Asks the control planes, and the others while none of them gives a lease.
    pub(super) fn seat_beats(&mut self, ix: usize) {
        let (local, from) = (self.local(ix), self.process_of(ix));
        let drained = self.gateways[ix].machine.drained_of_loads(local);
        let wishes = self.wishes(ix);
        let g = &self.gateways[ix];
        let sit = Sit {
            seat: g.seat.holder.me().clone(),
            promised: g.home.promised,
            drained,
            clean: g.seat.clean,
            leaving: false,
        };
        for plane in 0..2 {
            let Some(number) = self.planes[plane].as_ref().map(|p| p.process) else { continue };
            if !self.cut_plane(ix, plane) {
                let sits = Sits { from, sit: sit.clone(), sent: local, wishes: wishes.clone() };
                let (to, at) = (Process { ix: plane, number }, self.after_delay());
                self.queue.put(at, Ev::Plane { to, what: ToPlane::Sits(Box::new(sits)) });
            }
        }
        let lease = self.setup.lease;
        if local.0.saturating_sub(self.gateways[ix].seat.granted.0) > lease / 4 {
            self.asks_for_votes(ix);
        }
        let left = self.leases(ix);
        let pause = if left > lease / 2 { (lease / 8).min(SECOND) } else { SOON };
        self.queue.put(self.now + pause, Ev::Seat(from));
    }

    fn asks_for_votes(&mut self, ix: usize) {
        let (sent, from) = (self.local(ix), self.process_of(ix));
        let holder = &self.gateways[ix].seat.holder;
        let epoch = holder.seating().epoch;
        if !holder.is_seated() || holder.promised() > epoch {
            return;
        }
        let peers = holder.peers().filter_map(|seat| self.names.gateways.binary_search(&seat.name).ok());
        for other in peers.collect::<Vec<_>>() {
            self.calls(ix, other, Told::Ballot { from, epoch, sent });
        }
    }

    /// Says something to another gateway, as far as it can be reached.
    pub(super) fn calls(&mut self, from: usize, to: usize, what: Told) {
        if !self.cut_peers(from, to) {
            self.tell_gateway(self.process_of(to), what);
        }
    }

    /// Another gateway asks for a vote.
    pub(super) fn votes(&mut self, ix: usize, from: Process, epoch: u64, sent: Mono) {
        let (local, peer) = (self.local(ix), self.names.gateways[ix].clone());
        let g = &self.gateways[ix];
        let (home, yes) = (g.home.number, g.seat.holder.votes_for(local, epoch));
        if !self.cut_peers(ix, from.ix) {
            self.tell_gateway(from, Told::Seat(Heard::Vote { sent, peer, home, epoch, yes }));
        }
    }

    /// A control plane has answered, or another gateway.
    pub(super) fn hears_of_seats(&mut self, ix: usize, heard: Heard) {
        let g = &mut self.gateways[ix];
        if let Heard::Control { sent, granted: true, .. } = &heard {
            g.seat.granted = g.seat.granted.max(*sent);
        }
        let news = g.seat.holder.hear(heard);
        if news.promised || news.seated {
            self.leased(ix, None);
        }
        if news.seated {
            self.seated(ix);
        }
        if news.promised {
            let g = &mut self.gateways[ix];
            g.home.promised = g.seat.holder.promised();
        }
        self.leases(ix);
        self.one_seating();
    }

    /// Another seating is in force: loads of the one before may be in flight anywhere.
    fn seated(&mut self, ix: usize) {
        let seating = self.gateways[ix].seat.holder.seating().clone();
        self.note(|| format!("gateway {ix}: seating {} of {} gateways", seating.epoch, seating.seats.len()));
        self.tally.seatings = self.tally.seatings.max(seating.epoch);
        let owner = |replica: usize| {
            let seat = seating.owner(self.names.replicas[replica].as_str())?;
            self.names.gateways.binary_search(&seat.name).ok()
        };
        let owners = (0..self.setup.replicas).map(owner).collect();
        self.gateways[ix].seat.owners = owners;
        self.leased(ix, None);
        for replica in 0..self.setup.replicas {
            // Replicas tell what they are loading, so there is nothing to be waited for beside a look.
            self.machine(ix, Event::Unsettled { replica: pair(replica, 0).0, until: Mono::ZERO });
        }
        for replica in 0..self.setup.replicas {
            self.poll(ix, replica);
        }
    }

    /// Until when loads may be started; and for how long that is.
    fn leases(&mut self, ix: usize) -> u64 {
        let local = self.local(ix);
        let holder = &self.gateways[ix].seat.holder;
        let margin = u64::try_from(holder.seating().lease.as_nanos()).unwrap_or(u64::MAX) / 10;
        let until = holder.lease().map(|lease| Mono(lease.until.0.saturating_sub(margin)));
        let until = until.filter(|until| *until > local);
        self.leased(ix, until);
        until.map_or(0, |until| until.0 - local.0)
    }

    fn leased(&mut self, ix: usize, until: Option<Mono>) {
        let all = (self.setup.mistake == Some(Mistake::TakesAll)).then_some(self.setup.loads.1);
        let seat = &mut self.gateways[ix].seat;
        if std::mem::replace(&mut seat.until, until) == until && until.is_some() {
            return;
        }
        let own = until.map_or(Own::NOTHING, |until| Own {
            replicas: (0..seat.owners.len()).filter(|r| seat.owners[*r] == Some(ix)).map(|r| pair(r, 0).0).collect(),
            until,
            part: all.unwrap_or_else(|| seat.holder.seating().share(&seat.holder.me().name)),
        });
        self.machine(ix, Event::SetOwn(Some(own)));
    }

    /// Whether a gateway may start loads now.
    pub(super) fn may_load(&self, ix: usize) -> bool {
        self.gateways[ix].up && self.gateways[ix].seat.holder.holds(self.local(ix))
    }

    /// All who may start loads do so under one seating.
    pub(super) fn one_seating(&mut self) {
        let all = (0..self.gateways.len()).filter(|ix| self.may_load(*ix));
        let checked = one_seating(all.map(|ix| self.gateways[ix].seat.holder.seating().epoch));
        self.checked(checked);
    }
}
