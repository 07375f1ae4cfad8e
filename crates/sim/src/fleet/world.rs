//! The world of a history: who is there, what is on its way, and what is cut off from what.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_decide::Snapshot;
use holdfast_decide::rollout::Effect;
use holdfast_decide::witness::Witness as Paths;
use holdfast_placement::invariants::Violation;
use holdfast_placement::residency::Op;
use holdfast_types::GatewayName;

use super::acts::Act;
use super::client::Submission;
use super::company::Consent;
use super::gateway::{Gateway, Told};
use super::names::Names;
use super::plane::{Plane, ToPlane};
use super::seats::{Home, Keeper};
use super::server::{Ask, Server};
use super::store::Store;
use super::ushers::Write;
use super::{MS, Outcome, SECOND, Second, Setup, Tally};
use crate::chance::Chance;
use crate::queue::Queue;

/// Where the world's clock begins: every process has a clock that began earlier.
pub(super) const START: u64 = 1_000 * SECOND;
/// Lines of a log that are kept.
const LINES: usize = 20_000;

/// A process of a gateway or of a control plane. What is on its way to one that is gone is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) ix: usize,
    pub(super) number: u64,
}

/// What can come next.
pub(super) enum Ev {
    Act(Act),
    Repaired(Act),
    Arrives,
    Again(u64),
    Asks { to: Process, submission: u64 },
    Leaves { gateway: Process, request: u64 },
    Server { replica: usize, starts: u64, from: Process, ask: Ask },
    Loaded { replica: usize, starts: u64, number: u64 },
    Infers { replica: usize, starts: u64, from: Process, request: u64, version: u32 },
    Gateway { to: Process, what: Told },
    Beat(Process),
    Seat(Process),
    Seats { from: Process, term: u64, write: Box<Write> },
    Tick(Process),
    Plane { to: Process, what: ToPlane },
    Store { from: Process, term: u64, id: u64, effect: Box<Effect> },
    Watch,
}

/// Versions, and their candidates in order.
pub(super) type Sides = Vec<(u32, Vec<usize>)>;

pub(super) struct World<'s> {
    pub(super) setup: &'s Setup,
    pub(super) now: u64,
    pub(super) chance: Chance,
    pub(super) queue: Queue<Ev>,
    pub(super) names: Names,
    pub(super) servers: Vec<Server>,
    pub(super) gateways: Vec<Gateway>,
    pub(super) planes: [Option<Plane>; 2],
    pub(super) store: Store,
    pub(super) submissions: BTreeMap<u64, Submission>,
    pub(super) witnesses: BTreeMap<u64, holdfast_decide::rollout::witness::Witness>,
    /// Roll-outs that somebody began: when, whose pin, and where their versions belong. Two at a time must not move one pin, nor overfill a replica.
    pub(super) planned: BTreeMap<u64, (u64, usize, Sides)>,
    pub(super) paths: Paths,
    pub(super) cuts: BTreeSet<Cut>,
    /// Who was told of loads that are on their way, and of which copies.
    pub(super) told_of: BTreeMap<(Process, Op), Vec<Process>>,
    pub(super) copies: BTreeMap<u64, Vec<Process>>,
    /// What was said of unloads that are on their way.
    pub(super) consents: BTreeMap<(Process, Op), Consent>,
    pub(super) traffic_ends: u64,
    pub(super) calm_from: u64,
    pub(super) tally: Tally,
    broken: Option<(u64, String)>,
    log: Option<Vec<String>>,
    numbers: u64,
    orders: BTreeMap<(usize, u32), (Vec<usize>, usize)>,
}

/// Two that cannot reach one another; the last number tells cuts at one time apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cut {
    Replica(usize, usize),
    Plane(usize, usize),
    /// The lower number first.
    Peers(usize, usize),
    Store(usize),
}

impl<'s> World<'s> {
    pub(super) fn new(setup: &'s Setup, seed: u64, acts: &[(u64, Act)], log: bool) -> Option<Self> {
        let names = Names::new(setup)?;
        let table = names.table(setup)?;
        let mut queue = Queue::default();
        for (at, act) in acts {
            queue.put(START + at, Ev::Act(*act));
        }
        queue.put(START, Ev::Watch);
        queue.put(START + setup.traffic_from, Ev::Arrives);
        let server = || Server { up: true, starts: 1, ..Server::default() };
        let gateway = |(ix, name): (usize, &GatewayName)| {
            let home = Home::new(ix as u64 + 1);
            Gateway::new(table.clone(), Keeper::none(name.clone()), home)
        };
        let gateways = names.gateways.iter().enumerate().map(gateway).collect();
        let mut world = Self {
            setup,
            now: START,
            chance: Chance::new(seed),
            queue,
            names,
            servers: (0..setup.replicas).map(|_| server()).collect(),
            gateways,
            planes: [None, None],
            store: Store::new(table, setup.gateways),
            submissions: BTreeMap::new(),
            witnesses: BTreeMap::new(),
            planned: BTreeMap::new(),
            paths: Paths::default(),
            cuts: BTreeSet::new(),
            told_of: BTreeMap::new(),
            copies: BTreeMap::new(),
            consents: BTreeMap::new(),
            traffic_ends: START + setup.span,
            calm_from: START + setup.span,
            tally: Tally::default(),
            broken: None,
            log: log.then(Vec::new),
            numbers: 0,
            orders: BTreeMap::new(),
        };
        world.take_over(0);
        (0..setup.gateways).for_each(|ix| world.gateway_starts(ix));
        Some(world)
    }

    pub(super) fn play(mut self) -> Outcome {
        let until = self.calm_from;
        self.until(until);
        if self.broken.is_none() {
            self.end();
        }
        self.tally.events = self.queue.count();
        let broken = self.broken.map(|(at, what)| (at - START, what));
        Outcome { broken, tally: self.tally, log: self.log.unwrap_or_default() }
    }

    /// Whatever happens until then.
    pub(super) fn until(&mut self, until: u64) {
        while self.broken.is_none()
            && let Some((at, event)) = self.queue.take(until)
        {
            self.now = self.now.max(at);
            self.happens(event);
        }
        self.now = self.now.max(until);
    }

    fn happens(&mut self, event: Ev) {
        match event {
            Ev::Act(act) => self.acts(act),
            Ev::Repaired(act) => self.repaired(act),
            Ev::Arrives => self.arrives(),
            Ev::Again(submission) => self.goes_to_a_gateway(submission),
            Ev::Watch => self.watch(),
            Ev::Asks { to, submission } if !self.is_there(to) => self.client_broke(submission),
            Ev::Asks { to, submission } => match self.stalls(to) {
                Some(at) => self.queue.put(at, Ev::Asks { to, submission }),
                None => self.asks(to.ix, submission),
            },
            Ev::Leaves { gateway, request } if self.is_there(gateway) => self.leaves(gateway.ix, request),
            Ev::Server { replica, starts, from, ask } => self.at_server(replica, starts, from, ask),
            Ev::Loaded { replica, starts, number } => self.load_ends(replica, starts, number),
            Ev::Infers { replica, starts, from, request, version } => {
                self.infers(replica, starts, from, request, version);
            }
            Ev::Gateway { to, what } if self.is_there(to) => match self.stalls(to) {
                Some(at) => self.queue.put(at, Ev::Gateway { to, what }),
                None => self.hears(to.ix, what),
            },
            Ev::Beat(to) if self.is_there(to) => match self.stalls(to) {
                Some(at) => self.queue.put(at, Ev::Beat(to)),
                None => self.beat(to.ix),
            },
            Ev::Tick(to) if self.is_there(to) => match self.stalls(to) {
                Some(at) => self.queue.put(at, Ev::Tick(to)),
                None => self.ticks(to.ix),
            },
            Ev::Seat(to) if self.is_there(to) => match self.stalls(to) {
                Some(at) => self.queue.put(at, Ev::Seat(to)),
                None => self.seat_beats(to.ix),
            },
            Ev::Seats { from, term, write } => self.seats_at_store(from, term, *write),
            Ev::Plane { to, what } => self.plane_gets(to, what),
            Ev::Store { from, term, id, effect } => self.at_store(from, term, id, *effect),
            Ev::Leaves { .. } | Ev::Gateway { .. } | Ev::Beat(_) | Ev::Tick(_) | Ev::Seat(_) => {}
        }
    }

    fn is_there(&self, gateway: Process) -> bool {
        let g = &self.gateways[gateway.ix];
        g.up && g.process == gateway.number
    }

    /// Until when a gateway's process stands still, if it does.
    fn stalls(&self, gateway: Process) -> Option<u64> {
        Some(self.gateways[gateway.ix].stalled_until).filter(|until| *until > self.now)
    }

    fn plane_gets(&mut self, to: Process, what: ToPlane) {
        let Some(p) = self.planes[to.ix].as_ref().filter(|p| p.process == to.number) else { return };
        if p.stalled_until > self.now {
            let at = p.stalled_until;
            return self.queue.put(at, Ev::Plane { to, what });
        }
        self.plane_hears(to.ix, what);
    }

    fn hears(&mut self, ix: usize, what: Told) {
        use holdfast_placement::health::HealthEvent;
        use holdfast_placement::residency::Event;
        match what {
            Told::Loaded { op, replica, result } => {
                self.machine(ix, Event::LoadDone { op, result: result.map(|()| None) });
                self.poll(ix, replica);
            }
            Told::Verified { op, proof, copy } => {
                if let Some((pair, copy)) = copy.filter(|_| proof == holdfast_placement::residency::Proof::Proven) {
                    self.gateways[ix].proved.insert(pair, copy);
                }
                self.machine(ix, Event::Verified { op, proof });
            }
            Told::Unloaded { op, well } => {
                let result = if well { Ok(()) } else { Err("the connection broke".to_owned()) };
                self.machine(ix, Event::UnloadDone { op, result });
            }
            Told::Polled(polled) => self.polled(ix, polled),
            Told::Inferred { .. } | Told::NotLoaded { .. } | Told::Broke { .. } => self.served(ix, what),
            Told::Reset { replica } => {
                self.machine(ix, Event::ObservationLost { replica: super::gateway::pair(replica, 0).0 });
                self.health(ix, replica, HealthEvent::TransportError);
                self.poll(ix, replica);
            }
            Told::View { table, orders } => self.take(ix, &table, *orders),
            Told::Ballot { from, epoch, sent } => self.votes(ix, from, epoch, sent),
            Told::Seat(heard) => self.hears_of_seats(ix, heard),
            Told::Wished(wishes) => self.grants(ix, wishes),
            Told::Load { from, number, wish, within } => self.loads_for(ix, from, number, &wish, within),
            Told::Answer { owner, number, afar } => self.owner_answers(ix, owner, number, afar),
            Told::Leave { parting, back } => self.leaves_for(ix, parting, back),
            Told::Left { op, by, yes } => self.hears_of_leaving(ix, op, by, yes),
            Told::LeaveOver(op) => self.lets_go(ix, op, true),
            Told::Reloads { from, op, pair } => self.is_told_of_load(ix, from, op, pair),
            Told::Knows { op, by } => self.knows_of_load(ix, op, by),
            Told::TellOver(op) => self.begins(ix, op, true),
            Told::TellAgain { other, pair, left } => self.tells_again(ix, other, pair, left),
        }
    }

    pub(super) fn tell_gateway(&mut self, to: Process, what: Told) {
        let at = self.after_delay();
        self.queue.put(at, Ev::Gateway { to, what });
    }

    pub(super) fn after_delay(&mut self) -> u64 {
        let delay = self.setup.delay.clone();
        // Some are late, so that others overtake them.
        let late = if self.setup.lost > 0 && self.now < self.calm_from && self.chance.one_in(25) { 40 } else { 1 };
        self.now + self.chance.within(&delay) * late
    }

    /// A number that nothing else has.
    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn second(&mut self) -> &mut Second {
        let at = usize::try_from((self.now - START) / SECOND).unwrap_or(0);
        if self.tally.seconds.len() <= at {
            self.tally.seconds.resize(at + 1, Second::default());
        }
        &mut self.tally.seconds[at]
    }

    pub(super) fn checked(&mut self, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.breaks(violation.to_string());
        }
    }

    pub(super) fn breaks(&mut self, what: String) {
        self.note(|| format!("BROKEN: {what}"));
        let now = self.now;
        self.broken.get_or_insert((now, what));
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        let now = (self.now - START) / MS;
        if let Some(log) = self.log.as_mut().filter(|log| log.len() < LINES) {
            log.push(format!("{:>4}.{:03} {}", now / 1_000, now % 1_000, line()));
        }
    }

    pub(super) fn cut_replica(&self, gateway: usize, replica: usize) -> bool {
        self.cuts.contains(&Cut::Replica(gateway, replica))
    }

    pub(super) fn cut_plane(&self, gateway: usize, plane: usize) -> bool {
        self.cuts.contains(&Cut::Plane(gateway, plane))
    }

    pub(super) fn cut_peers(&self, a: usize, b: usize) -> bool {
        a != b && self.cuts.contains(&Cut::Peers(a.min(b), a.max(b)))
    }

    pub(super) fn cut_store(&self, plane: usize) -> bool {
        self.cuts.contains(&Cut::Store(plane))
    }

    /// The candidates of a key in order of preference, and how many make its subset.
    pub(super) fn order(&mut self, tenant: usize, version: u32) -> (Vec<usize>, usize) {
        if let Some(known) = self.orders.get(&(tenant, version)) {
            return known.clone();
        }
        let made = self.made_order(tenant, version).unwrap_or_default();
        self.orders.insert((tenant, version), made.clone());
        made
    }

    fn made_order(&self, tenant: usize, version: u32) -> Option<(Vec<usize>, usize)> {
        let table = &self.store.table;
        let tenant = table.tenant(self.names.tenants.get(tenant)?.as_str())?;
        let model = table.model(self.names.model.as_str())?;
        let version = model.version(self.names.versions.get(version as usize)?.as_str())?;
        let route = table.route_for(tenant, model, version);
        Some((route.order.iter().map(|r| *r as usize).collect(), usize::from(route.subset)))
    }

    /// All pins in a table, and the versions of their shares.
    pub(super) fn pins_of(&self, table: &Snapshot) -> Vec<(usize, u32)> {
        let mut all = Vec::new();
        for (ix, name) in self.names.tenants.iter().enumerate() {
            let Some(tenant) = table.tenant(name.as_str()) else { continue };
            let versions = table.pins(tenant).map(|(_, v)| v.index);
            all.extend(versions.chain(table.splits(tenant).map(|(_, v, _)| v.index)).map(|v| (ix, v)));
        }
        all
    }

    pub(super) fn pin_of(&self, table: &Snapshot, tenant: usize) -> Option<u32> {
        let tenant = table.tenant(self.names.tenants.get(tenant)?.as_str())?;
        table.pins(tenant).map(|(_, v)| v.index).next()
    }
}
