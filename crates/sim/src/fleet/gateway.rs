//! The gateways: a table, a residency machine with its witness, health of replicas, orders of the control plane.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdfast_decide::Snapshot;
use holdfast_decide::rollout::{PinFlip, Proposal};
use holdfast_placement::health::{Health, HealthConfig, HealthEvent, Transition};
use holdfast_placement::invariants::Witness;
use holdfast_placement::residency::{
    Alarm, Effect, Event, LoadError, Mode, Op, PoolIx, Proof, ReplicaIx, ReplicaSpec, Residency, Settings, State,
    Strange, Turn, Usage, VersionIx, VersionSpec, WaiterId,
};
use holdfast_placement::seats::Heard;
use holdfast_types::{Bytes, Mono};

use super::client::Request;
use super::company::{Afar, Company, Parting, Wished};
use super::seats::{Home, Keeper};
use super::server::{Ask, Weights, server_ix};
use super::world::{Ev, Process, World};
use super::{MS, SECOND};

/// Versions are all as large.
pub(super) const SIZE: u64 = 1 << 30;
/// Between two looks at the replicas.
const BEAT: u64 = 500 * MS;

pub(super) type Pair = (ReplicaIx, VersionIx);

/// What is in use, counted where requests are sent.
#[derive(Default)]
pub(super) struct Counts {
    in_flight: BTreeMap<Pair, u32>,
    last_used: BTreeMap<Pair, Mono>,
    by_replica: BTreeMap<ReplicaIx, u32>,
}

impl Usage for Counts {
    fn in_flight(&self, replica: ReplicaIx, version: VersionIx) -> u32 {
        self.in_flight.get(&(replica, version)).copied().unwrap_or(0)
    }
    fn last_used(&self, replica: ReplicaIx, version: VersionIx) -> Option<Mono> {
        self.last_used.get(&(replica, version)).copied()
    }
    fn replica_load(&self, replica: ReplicaIx) -> u32 {
        self.by_replica.get(&replica).copied().unwrap_or(0)
    }
}

impl Counts {
    pub(super) fn enter(&mut self, pair: Pair, now: Mono) {
        *self.in_flight.entry(pair).or_default() += 1;
        *self.by_replica.entry(pair.0).or_default() += 1;
        self.last_used.insert(pair, now);
    }

    /// Says whether it was the last one.
    pub(super) fn leave(&mut self, pair: Pair, now: Mono) -> bool {
        let count = self.in_flight.entry(pair).or_default();
        *count = count.saturating_sub(1);
        let last = *count == 0;
        let all = self.by_replica.entry(pair.0).or_default();
        *all = all.saturating_sub(1);
        self.last_used.insert(pair, now);
        last
    }

    pub(super) fn all(&self) -> u32 {
        self.in_flight.values().sum()
    }
}

/// A replica as one gateway knows it.
pub(super) struct Seen {
    pub(super) health: Health,
    /// The start of it that there is a connection to.
    pub(super) starts: Option<u64>,
    pub(super) in_service: bool,
}

/// What the control plane wants beside the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Orders {
    pub(super) wants: BTreeMap<(usize, u32), Turn>,
    pub(super) prepare: Vec<(u64, Proposal, Vec<PinFlip>)>,
}

/// What a poll has shown: held, and being loaded. None: no answer.
#[derive(Clone, Debug)]
pub(super) struct Polled {
    pub(super) replica: usize,
    pub(super) starts: u64,
    pub(super) started: u64,
    pub(super) index: Option<(Vec<u32>, Vec<u32>)>,
}

/// What a gateway is told.
#[derive(Clone, Debug)]
pub(super) enum Told {
    Loaded { op: Op, replica: usize, result: Result<(), LoadError> },
    Verified { op: Op, proof: Proof, copy: Option<(Pair, u64)> },
    Unloaded { op: Op, well: bool },
    Polled(Polled),
    Inferred { request: u64, replica: usize, named: u32, weights: Weights },
    NotLoaded { request: u64, replica: usize },
    Broke { request: u64, replica: usize },
    Reset { replica: usize },
    View { table: Box<Snapshot>, orders: Box<Orders> },
    Ballot { from: Process, epoch: u64, sent: Mono },
    Seat(Heard),
    Wished(Vec<Wished>),
    Load { from: Process, number: u64, wish: Wished, within: u64 },
    Answer { owner: usize, number: u64, afar: Afar },
    Leave { parting: Parting, back: bool },
    Left { op: Op, by: Process, yes: bool },
    LeaveOver(Op),
    Reloads { from: Process, op: Option<Op>, pair: Pair },
    Knows { op: Op, by: Process },
    TellOver(Op),
    TellAgain { other: usize, pair: Pair, left: u32 },
}

pub(super) struct Gateway {
    pub(super) up: bool,
    pub(super) process: u64,
    origin: u64,
    /// Of its clock, in thousandths.
    rate: u64,
    pub(super) ahead: u64,
    /// When the clock was last set ahead.
    pub(super) jumped: u64,
    pub(super) stalled_until: u64,
    /// Outlives the process: it is saved.
    pub(super) table: Snapshot,
    pub(super) machine: Residency,
    pub(super) witness: Witness,
    pub(super) counts: Counts,
    hidden: BTreeSet<Pair>,
    quarantined: BTreeSet<Pair>,
    /// The copies that this gateway has proved.
    pub(super) proved: BTreeMap<Pair, u64>,
    pub(super) replicas: Vec<Seen>,
    pub(super) requests: BTreeMap<u64, Request>,
    pub(super) orders: Orders,
    /// The control plane that it follows.
    pub(super) link: Option<Process>,
    tick: Option<u64>,
    pub(super) wanted: Vec<Vec<(VersionIx, Turn)>>,
    pub(super) pinned: BTreeSet<u32>,
    /// Outlives the process.
    pub(super) home: Home,
    pub(super) seat: Keeper,
    pub(super) company: Company,
}

impl Gateway {
    /// How long an unload may take, and for how long a word is good that a version is used no more.
    pub(super) const STEP: u64 = 3 * SECOND;

    /// Whatever was there before is gone, but for the table and the home.
    pub(super) fn new(table: Snapshot, seat: Keeper, home: Home) -> Self {
        Self {
            up: false,
            process: 0,
            origin: 0,
            rate: 1_000,
            ahead: 0,
            jumped: 0,
            stalled_until: 0,
            table,
            machine: Residency::new(Settings::default()),
            witness: Witness::new(Settings::default()),
            counts: Counts::default(),
            hidden: BTreeSet::new(),
            quarantined: BTreeSet::new(),
            proved: BTreeMap::new(),
            replicas: Vec::new(),
            requests: BTreeMap::new(),
            orders: Orders::default(),
            link: None,
            tick: None,
            wanted: Vec::new(),
            pinned: BTreeSet::new(),
            home,
            seat,
            company: Company::default(),
        }
    }
}

pub(super) fn pair(replica: usize, version: u32) -> Pair {
    (ReplicaIx(server_ix(replica).0), VersionIx(version))
}

impl World<'_> {
    /// A new process, with the table that the last one has saved.
    pub(super) fn gateway_starts(&mut self, ix: usize) {
        let process = self.number();
        let settings = Settings {
            fleet_loads: self.setup.loads.1,
            load_timeout: std::time::Duration::from_secs(8),
            step_timeout: std::time::Duration::from_nanos(Gateway::STEP),
            room_timeout: std::time::Duration::from_secs(5),
            thrash_window: std::time::Duration::from_secs(6),
            backoff_max: std::time::Duration::from_secs(8),
            max_waiters: 64,
            ..Settings::default()
        };
        // Each process has a clock of its own, which began some time ago.
        let origin = self.now.saturating_sub(SECOND * (1 + process % 500));
        let health =
            HealthConfig { out_of_service_after: std::time::Duration::from_secs(4), ..HealthConfig::default() };
        let local = Mono(self.now - origin);
        let seen = || Seen { health: Health::new(health.clone(), local), starts: None, in_service: true };
        let table = self.gateways[ix].table.clone();
        let revision = table.revision();
        let mut home = self.gateways[ix].home;
        let seat = home.lives(self.names.gateways[ix].clone(), self.setup.peers);
        self.gateways[ix] = Gateway {
            up: true,
            process,
            origin,
            rate: 950 + process * 37 % 101,
            machine: Residency::new(settings.clone()),
            witness: Witness::new(settings.clone()),
            replicas: (0..self.setup.replicas).map(|_| seen()).collect(),
            wanted: vec![Vec::new(); self.setup.replicas],
            ..Gateway::new(table, seat, home)
        };
        let served = self.paths.serves(ix as u64, revision);
        self.checked(served);
        self.machine(ix, Event::SetSettings(settings));
        for replica in 0..self.setup.replicas {
            self.machine(ix, Event::SetReplica { replica: pair(replica, 0).0, spec: self.spec(replica) });
        }
        for version in 0..self.setup.versions {
            let spec = VersionSpec { size: Bytes(SIZE), pinned: false };
            self.machine(ix, Event::SetVersion { version: VersionIx(version), spec });
        }
        self.takes_a_seat(ix);
        self.wants(ix);
        self.queue.put(self.now, Ev::Beat(Process { ix, number: process }));
    }

    fn spec(&self, replica: usize) -> ReplicaSpec {
        ReplicaSpec {
            pool: PoolIx(0),
            server: server_ix(replica),
            memory: Some(Bytes(self.setup.room * SIZE)),
            loads: true,
            max_loads: self.setup.loads.0,
            mode: Mode::Guaranteed,
            load_timeout: None,
            thrash_window: None,
        }
    }

    pub(super) fn process_of(&self, ix: usize) -> Process {
        Process { ix, number: self.gateways[ix].process }
    }

    /// The time on the clock of a gateway's process.
    pub(super) fn local(&self, ix: usize) -> Mono {
        let g = &self.gateways[ix];
        Mono((self.now - g.origin) / 1_000 * g.rate + g.ahead)
    }

    /// Gives the machine an event, after all ticks that are due on its clock.
    pub(super) fn machine(&mut self, ix: usize, event: Event) {
        self.catch_up(ix);
        self.step(ix, self.local(ix), event);
    }

    pub(super) fn catch_up(&mut self, ix: usize) {
        let local = self.local(ix);
        for _ in 0..10_000 {
            match self.gateways[ix].machine.next_deadline().filter(|at| *at <= local) {
                Some(at) => self.step(ix, at, Event::Tick),
                None => return,
            }
        }
        self.breaks("a gateway's ticks spin".to_owned());
    }

    fn step(&mut self, ix: usize, at: Mono, event: Event) {
        let mut events = VecDeque::from([event]);
        let (mut woken, mut later) = (Vec::new(), Vec::new());
        while let Some(event) = events.pop_front() {
            let mut out = Vec::new();
            let Gateway { machine, witness, counts, .. } = &mut self.gateways[ix];
            witness.event(&event);
            let told = format!("{event:?}");
            machine.apply(at, event, &*counts, &mut out);
            if let Err(broken) = witness.effects(at, &out, machine, &*counts) {
                self.breaks(format!("{broken}; gateway {ix}, {told}"));
                return;
            }
            for effect in out {
                self.carry_out(ix, effect, &mut events, &mut woken, &mut later);
            }
        }
        self.schedule(ix);
        for (waiter, outcome) in woken {
            self.woken(ix, waiter, outcome);
        }
        for (op, place, load) in later {
            match load {
                true => self.tells_of_load(ix, op, place),
                false => self.asks_to_let_go(ix, op, place),
            }
        }
    }

    fn schedule(&mut self, ix: usize) {
        let g = &mut self.gateways[ix];
        let Some(due) = g.machine.next_deadline() else { return };
        // Rounded up: a tick that comes too early is another one.
        let since = due.0.saturating_sub(g.ahead).div_ceil(g.rate).saturating_mul(1_000);
        let at = g.origin.saturating_add(since).max(self.now);
        if g.tick.is_none_or(|tick| at < tick) {
            g.tick = Some(at);
            let process = Process { ix, number: g.process };
            self.queue.put(at, Ev::Tick(process));
        }
    }

    pub(super) fn ticks(&mut self, ix: usize) {
        self.gateways[ix].tick = None;
        self.catch_up(ix);
        self.schedule(ix);
    }

    fn carry_out(
        &mut self,
        ix: usize,
        effect: Effect,
        events: &mut VecDeque<Event>,
        woken: &mut Vec<(WaiterId, holdfast_placement::residency::Outcome)>,
        later: &mut Vec<(Op, Pair, bool)>,
    ) {
        let g = &mut self.gateways[ix];
        match effect {
            Effect::Show { replica, version } => drop(g.hidden.remove(&(replica, version))),
            Effect::Hide { replica, version } if g.counts.in_flight(replica, version) == 0 => {
                events.push_back(Event::Drained { replica, version });
            }
            Effect::Hide { replica, version } => drop(g.hidden.insert((replica, version))),
            Effect::Wake { waiter, outcome } => woken.push((waiter, outcome)),
            Effect::Alarm(Alarm::VerificationFailed { replica, version, .. }) => {
                g.quarantined.insert((replica, version));
            }
            Effect::Alarm(_) => {}
            Effect::Load { op, replica, version, .. } => {
                self.note(|| format!("gateway {ix} loads {} on replica {}", version.0 + 1, replica.0));
                later.push((op, (replica, version), true));
            }
            Effect::Verify { op, replica, version, .. } => {
                self.ask(ix, replica.0 as usize, Ask::Verify { op, version: version.0 });
            }
            Effect::Unload { op, replica, version, .. } => {
                self.note(|| format!("gateway {ix} would unload {} from replica {}", version.0 + 1, replica.0));
                later.push((op, (replica, version), false));
            }
        }
    }

    /// Sends something to a replica over the connection that there is.
    pub(super) fn ask(&mut self, ix: usize, replica: usize, ask: Ask) {
        let starts = self.gateways[ix].replicas[replica].starts.unwrap_or(u64::MAX);
        // What changes a replica is on its way at once: leases allow for no more.
        let delay = self.setup.delay.clone();
        let at = match ask {
            Ask::Load { .. } | Ask::Unload { .. } => self.now + self.chance.within(&delay),
            _ => self.after_delay(),
        };
        let from = self.process_of(ix);
        self.queue.put(at, Ev::Server { replica, starts, from, ask });
    }

    /// Nothing is in use any more of what was hidden.
    pub(super) fn leave(&mut self, ix: usize, pair: Pair) {
        let local = self.local(ix);
        let g = &mut self.gateways[ix];
        if g.counts.leave(pair, local) && g.hidden.remove(&pair) {
            self.machine(ix, Event::Drained { replica: pair.0, version: pair.1 });
        }
    }

    pub(super) fn quarantine(&mut self, ix: usize, pair: Pair) {
        self.gateways[ix].quarantined.insert(pair);
        let (replica, version) = pair;
        self.machine(ix, Event::Quarantine { replica, version, why: "it named another version".to_owned() });
    }

    /// Looks at all replicas, follows a control plane, says how things are.
    pub(super) fn beat(&mut self, ix: usize) {
        for replica in 0..self.setup.replicas {
            self.poll(ix, replica);
        }
        self.services(ix);
        self.follow(ix);
        self.say(ix);
        let at = self.now + BEAT + self.chance.below(BEAT / 5);
        self.queue.put(at, Ev::Beat(self.process_of(ix)));
    }

    /// Who is out of service is passed over in subsets.
    fn services(&mut self, ix: usize) {
        let local = self.local(ix);
        let mut changed = false;
        for seen in &mut self.gateways[ix].replicas {
            let now = seen.health.in_service(local);
            changed |= now != std::mem::replace(&mut seen.in_service, now);
        }
        if changed {
            self.wants(ix);
        }
    }

    /// Asks a replica what it holds, over a new connection if the last one is broken: then what was proved before is in doubt.
    pub(super) fn poll(&mut self, ix: usize, replica: usize) {
        let server = &self.servers[replica];
        let known = self.gateways[ix].replicas[replica].starts;
        if server.up && known != Some(server.starts) && !self.cut_replica(ix, replica) {
            self.gateways[ix].replicas[replica].starts = Some(server.starts);
            if known.is_some() {
                self.machine(ix, Event::ObservationLost { replica: pair(replica, 0).0 });
            }
        }
        let started = self.local(ix).0;
        self.ask(ix, replica, Ask::Poll { started });
    }

    pub(super) fn polled(&mut self, ix: usize, polled: Polled) {
        let Polled { replica, starts, started, index } = polled;
        let Some((held, loading)) = index else { return self.health(ix, replica, HealthEvent::ProbeFailed) };
        self.health(ix, replica, HealthEvent::ProbeOk);
        let seen = &self.gateways[ix].replicas[replica];
        if seen.health.usable() && seen.starts == Some(starts) {
            let all = |of: Vec<u32>| of.into_iter().map(VersionIx).collect();
            let (held, loading) = (all(held), all(loading));
            let replica = pair(replica, 0).0;
            let started = Mono(started);
            self.machine(ix, Event::Observed { replica, started, held, loading, strange: Strange::NONE });
            self.release(ix, replica);
        }
    }

    /// What is quarantined is asked again, some time: released if it answers well, else loaded anew.
    fn release(&mut self, ix: usize, replica: ReplicaIx) {
        let here: Vec<Pair> = self.gateways[ix].quarantined.iter().filter(|p| p.0 == replica).copied().collect();
        for (replica, version) in here {
            if !self.chance.one_in(4) {
                continue;
            }
            let local = self.local(ix);
            let g = &self.gateways[ix];
            match g.machine.prospect(local, replica, version, &g.counts).state {
                Some(State::Quarantined) => {}
                // It is on its way out, and may come back as what it was.
                Some(State::Hiding | State::Unloading) => continue,
                _ => {
                    self.gateways[ix].quarantined.remove(&(replica, version));
                    continue;
                }
            }
            let server = &self.servers[replica.0 as usize];
            let held = server.held.get(&version.0).copied();
            let well = held.is_some_and(|w| w.right) && !server.has(super::Fault::Misnames);
            if let Some(weights) = held.filter(|_| well) {
                self.gateways[ix].proved.insert((replica, version), weights.copy);
            }
            let event = if well { Event::Released { replica, version } } else { Event::Renew { replica, version } };
            self.machine(ix, event);
        }
    }

    pub(super) fn health(&mut self, ix: usize, replica: usize, event: HealthEvent) {
        let local = self.local(ix);
        let number = pair(replica, 0).0;
        match self.gateways[ix].replicas[replica].health.apply(local, event) {
            Some(Transition::Ejected) => self.machine(ix, Event::ReplicaDown { replica: number }),
            Some(Transition::Readmitted) => {
                self.machine(ix, Event::ReplicaUp { replica: number });
                self.services(ix);
            }
            None => {}
        }
    }
}
