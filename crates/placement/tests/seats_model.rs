//! Every order of what can happen to the seats of a fleet small enough to try them all: three gateways, two servers, a control plane that is taken over
//! while the one before does not know, gateways that die, live again, are cut off, hear late, and start loads whenever they may. The predicates are
//! those of the histories of whole fleets ([`holdfast_placement::seats::promises`]).
//!
//! Time goes in steps of a quarter of a lease. In each step whoever lives and reaches a control plane asks it, and whoever has no lease of one asks
//! the others; so what is left to chance is what goes wrong, and when.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use stateright::{Checker, Model, Property};

use holdfast_placement::seats::promises::{Loading, loads_within, one_seating};
use holdfast_placement::seats::*;
use holdfast_types::{GatewayName, Mono};

const STEP: Duration = Duration::from_secs(1);
const RULES: Rules = Rules { lease: Duration::from_secs(4), alone: Duration::from_secs(6), bound: 2 };
/// Of the first two gateways one each, while all three sit.
static SERVERS: LazyLock<[String; 2]> = LazyLock::new(|| {
    let seats = (0..GATEWAYS).map(|ix| holder(ix, 1, 0).me().clone()).collect();
    let seating = Seating { epoch: 1, bound: RULES.bound, seats, ..Seating::default() };
    [0, 1].map(|ix| {
        let mut servers = (0..).map(|port: u32| format!("10.0.0.1:{port}"));
        servers.find(|server| seating.owner(server).is_some_and(|seat| seat.name == name(ix))).unwrap()
    })
});
const GATEWAYS: usize = 3;

/// How much may go wrong on one way, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    steps: u8,
    harm: u8,
    loads: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Gateway {
    holder: Holder,
    life: u64,
    alive: bool,
    /// From the control plane in office. It still reaches the one before.
    cut: bool,
    /// Of others, in flight when it looked first.
    left: BTreeSet<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Load {
    id: u8,
    server: u8,
    by: u8,
    life: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Fleet {
    step: u8,
    gateways: Vec<Gateway>,
    record: Record,
    office: Registrar,
    /// It has lost the record and does not know.
    former: Option<Registrar>,
    loads: BTreeSet<Load>,
    begun: u8,
    /// An answer that is on its way for long.
    late: Option<(usize, u64, Heard)>,
    /// Whose next answer is late.
    slow: Option<usize>,
    voted: bool,
    left: Budget,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Passes,
    Begins(usize, u8),
    Ends(u8),
    Dies(usize),
    Lives(usize),
    Cut(usize),
    Healed(usize),
    TakenOver,
    Slow(usize),
    Arrives,
}

fn name(ix: usize) -> GatewayName {
    GatewayName::parse(&format!("g{ix}")).unwrap()
}

impl Gateway {
    fn new(ix: usize) -> Self {
        let mut gateway = Self { holder: holder(ix, 0, 0), life: 0, alive: false, cut: false, left: BTreeSet::new() };
        gateway.lives(ix);
        gateway
    }

    /// The next life of its folder, in which its promises are.
    fn lives(&mut self, ix: usize) {
        let promised = self.holder.promised();
        (self.life, self.alive) = (self.life + 1, true);
        (self.holder, self.left) = (holder(ix, self.life, promised), BTreeSet::new());
    }
}

fn holder(ix: usize, life: u64, promised: u64) -> Holder {
    Holder::new(Seat { name: name(ix), home: 100 + ix as u64, life, peer: Some("peer".into()) }, promised)
}

impl Fleet {
    fn now(&self) -> Mono {
        Mono(1_000_000_000_000).after(STEP * u32::from(self.step))
    }

    fn hears(&mut self, ix: usize, heard: Heard) {
        let gateway = &mut self.gateways[ix];
        if gateway.holder.hear(heard).seated {
            // It looks at all servers at once. Its own loads it knows.
            let own = |l: &&Load| (usize::from(l.by), l.life) == (ix, gateway.life);
            gateway.left = self.loads.iter().filter(|l| !own(l)).map(|l| l.id).collect();
        }
    }

    fn own(&self, ix: usize) -> impl Iterator<Item = &Load> {
        let life = self.gateways[ix].life;
        self.loads.iter().filter(move |l| (usize::from(l.by), l.life) == (ix, life))
    }

    fn asks(&mut self, ix: usize) {
        let (now, drained) = (self.now(), self.own(ix).next().is_none());
        let gateway = &self.gateways[ix];
        let (seat, promised) = (gateway.holder.me().clone(), gateway.holder.promised());
        let sit = Sit { seat, promised, drained, clean: gateway.life == 1, leaving: false };
        let registrar = if gateway.cut { self.former.as_mut() } else { Some(&mut self.office) };
        let mut granted = false;
        if let Some(told) = registrar.map(|registrar| registrar.sit(now, sit)) {
            granted = told.granted;
            let Told { seating, next, granted } = told;
            let heard = Heard::Control { sent: now, seating, next, granted };
            if self.slow == Some(ix) {
                (self.slow, self.late) = (None, Some((ix, self.gateways[ix].life, heard)));
            } else {
                self.hears(ix, heard);
            }
        }
        let holder = &self.gateways[ix].holder;
        if granted || !holder.is_seated() || holder.promised() > holder.seating().epoch {
            return;
        }
        let epoch = holder.seating().epoch;
        for other in (0..GATEWAYS).filter(|other| *other != ix) {
            let voter = &self.gateways[other];
            if voter.alive {
                let (home, yes) = (voter.holder.me().home, voter.holder.votes_for(now, epoch));
                self.voted |= yes;
                self.hears(ix, Heard::Vote { sent: now, peer: name(other), home, epoch, yes });
            }
        }
    }

    fn passes(&mut self) {
        self.step += 1;
        for ix in 0..GATEWAYS {
            if self.gateways[ix].alive {
                self.asks(ix);
            }
        }
        // It writes in each step, be it the same.
        let now = self.now();
        let record = self.office.wants(now).unwrap_or_else(|| self.office.record().clone());
        self.record = record.clone();
        self.office.written(now, record);
    }

    fn may_begin(&self, ix: usize, server: u8) -> bool {
        let gateway = &self.gateways[ix];
        let (holder, seating) = (&gateway.holder, gateway.holder.seating());
        let owner = || seating.owner(&SERVERS[usize::from(server)]).is_some_and(|seat| seat == holder.me());
        let others = self.loads.iter().filter(|l| gateway.left.contains(&l.id));
        let counted: Vec<&Load> = self.own(ix).chain(others).collect();
        let here = counted.iter().any(|l| l.server == server);
        gateway.alive
            && holder.holds(self.now())
            && owner()
            && !here
            && counted.len() < seating.share(&name(ix)) as usize
    }

    fn seats(&self) -> usize {
        self.record.seating.seats.len()
    }

    fn broken(&self) -> bool {
        let now = self.now();
        let may = self.gateways.iter().filter(|g| g.alive && g.holder.holds(now));
        let loads: Vec<Loading> =
            self.loads.iter().map(|l| Loading { server: u32::from(l.server), seen: true }).collect();
        one_seating(may.map(|g| g.holder.seating().epoch)).is_err()
            || loads_within(&loads, 1, RULES.bound as usize).is_err()
    }
}

struct Seats(Budget);

impl Model for Seats {
    type State = Fleet;
    type Action = Act;

    fn init_states(&self) -> Vec<Fleet> {
        let mut fleet = Fleet {
            step: 0,
            gateways: (0..GATEWAYS).map(Gateway::new).collect(),
            record: Record::default(),
            office: Registrar::new(RULES, Record::default(), Mono(1), Mono(1)),
            former: None,
            loads: BTreeSet::new(),
            begun: 0,
            late: None,
            slow: None,
            voted: false,
            left: self.0,
        };
        // Until all sit.
        for _ in 0..5 {
            fleet.passes();
        }
        fleet.step = 5;
        fleet.voted = false;
        vec![fleet]
    }

    fn actions(&self, fleet: &Fleet, acts: &mut Vec<Act>) {
        let left = fleet.left;
        if fleet.broken() {
            return;
        }
        if left.steps > 0 {
            acts.push(Act::Passes);
        }
        acts.extend(fleet.loads.iter().map(|l| Act::Ends(l.id)));
        acts.extend(fleet.late.iter().map(|_| Act::Arrives));
        for ix in 0..GATEWAYS {
            let gateway = &fleet.gateways[ix];
            let begins = (0..2).filter(|server| left.loads > 0 && fleet.may_begin(ix, *server));
            acts.extend(begins.map(|server| Act::Begins(ix, server)));
            if !gateway.alive {
                acts.push(Act::Lives(ix));
            }
            if gateway.cut {
                acts.push(Act::Healed(ix));
            }
            if left.harm > 0 && gateway.alive {
                acts.push(Act::Dies(ix));
                acts.extend((!gateway.cut).then_some(Act::Cut(ix)));
                acts.extend((fleet.slow.is_none() && fleet.late.is_none()).then_some(Act::Slow(ix)));
            }
        }
        if left.harm > 0 && fleet.former.is_none() {
            acts.push(Act::TakenOver);
        }
    }

    fn next_state(&self, last: &Fleet, act: Act) -> Option<Fleet> {
        let mut fleet = last.clone();
        let now = fleet.now();
        match act {
            Act::Passes => {
                fleet.left.steps -= 1;
                fleet.passes();
            }
            Act::Begins(ix, server) => {
                fleet.left.loads -= 1;
                fleet.begun += 1;
                let (id, by, life) = (fleet.begun, u8::try_from(ix).ok()?, fleet.gateways[ix].life);
                fleet.loads.insert(Load { id, server, by, life });
            }
            Act::Ends(id) => fleet.loads.retain(|l| l.id != id),
            Act::Dies(ix) => {
                fleet.left.harm -= 1;
                fleet.gateways[ix].alive = false;
            }
            Act::Lives(ix) => fleet.gateways[ix].lives(ix),
            Act::Cut(ix) => {
                fleet.left.harm -= 1;
                fleet.gateways[ix].cut = true;
            }
            Act::Healed(ix) => fleet.gateways[ix].cut = false,
            Act::TakenOver => {
                fleet.left.harm -= 1;
                let record = Record { term: fleet.record.term + 1, ..fleet.record.clone() };
                let next = Registrar::new(RULES, record.clone(), now, now);
                fleet.record = record;
                fleet.former = Some(std::mem::replace(&mut fleet.office, next));
            }
            Act::Slow(ix) => {
                fleet.left.harm -= 1;
                fleet.slow = Some(ix);
            }
            Act::Arrives => {
                let (ix, life, heard) = fleet.late.take()?;
                if fleet.gateways[ix].alive && fleet.gateways[ix].life == life {
                    fleet.hears(ix, heard);
                }
            }
        }
        Some(fleet)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("LOAD-1 over all gateways", |_, fleet: &Fleet| !fleet.broken()),
            Property::sometimes("all sit", |_, fleet: &Fleet| fleet.seats() == GATEWAYS),
            Property::sometimes("both servers load", |_, fleet: &Fleet| fleet.loads.len() == 2),
        ];
        if self.0.harm > 0 && self.0.steps > 10 {
            all.push(Property::sometimes("a seat is given away", |_, fleet: &Fleet| fleet.seats() < GATEWAYS));
            all.push(Property::sometimes("somebody votes", |_, fleet: &Fleet| fleet.voted));
        }
        all
    }
}

fn check(budget: Budget) {
    let checker = Seats(budget).checker().threads(2).spawn_bfs().join();
    let states = checker.unique_state_count();
    assert!(states > 500, "the model is cut short: {states} states");
    if let Some(path) = checker.discovery("LOAD-1 over all gateways") {
        panic!("{:#?}", path.into_actions());
    }
    checker.assert_properties();
}

#[test]
fn every_order_of_one_thing_that_goes_wrong() {
    check(Budget { steps: 12, harm: 1, loads: 2 });
}

#[test]
fn every_order_of_two_things_that_go_wrong() {
    check(Budget { steps: 6, harm: 2, loads: 2 });
}
