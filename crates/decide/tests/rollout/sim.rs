//! A small world without a network: a store, three gateways, four replicas, two control planes, and messages that arrive late, twice answered,
//! or never. Everything that the drivers of the machine promise is done here, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_decide::rollout::witness::Witness;
use holdfast_decide::rollout::*;
use holdfast_types::{Mono, ReplicaName, Revision};

use crate::world::*;

pub(crate) const GATEWAYS: usize = 3;
pub(crate) const REPLICAS: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Store {
    pub(crate) record: Option<Saved>,
    pub(crate) term: u64,
    pub(crate) revision: u64,
    pub(crate) pins: Vec<PinView>,
    pub(crate) applied: Option<(u32, Revision)>,
    /// How often each step took effect.
    pub(crate) effects: BTreeMap<u32, u32>,
    pub(crate) roster: u64,
    pub(crate) removed: Vec<Artifact>,
    /// What others claim as a target.
    targets: BTreeSet<Artifact>,
    /// Pins that another change has moved.
    pub(crate) moved: BTreeSet<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plane {
    pub(crate) machine: Rollout,
    pub(crate) process: u64,
    term: u64,
    /// Its clock counts from here.
    origin: u64,
    pub(crate) cut_off: bool,
}

/// A message on its way, of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Letter {
    pub(crate) plane: usize,
    pub(crate) process: u64,
    pub(crate) term: u64,
    pub(crate) effect: Effect,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sim {
    /// The first promise that was seen broken.
    pub(crate) broken: Option<String>,
    pub(crate) now: u64,
    pub(crate) plan: Plan,
    pub(crate) store: Store,
    pub(crate) planes: [Option<Plane>; 2],
    pub(crate) views: Vec<GatewayView>,
    up: [bool; REPLICAS],
    /// What the replicas hold, and whether it is what it says.
    pub(crate) held: BTreeMap<(ReplicaName, Artifact), bool>,
    pub(crate) letters: Vec<Letter>,
    /// Answers that were given and have not arrived: to which plane and process.
    pub(crate) late: Vec<(usize, u64, Event)>,
    next_process: u64,
    next_term: u64,
    pub(crate) witness: Witness,
    pub(crate) shadowed: BTreeMap<usize, (u64, u64)>,
    next_ask: u64,
}

impl Sim {
    pub(crate) fn new(plan: Plan) -> Self {
        let old = |p: &PinPlan| PinView { version: p.old.as_ref().map(|s| s.version.clone()), split: None };
        let revision = Revision(10);
        let view = |ix| GatewayView { name: g(ix), leased: true, in_force: revision, oldest: revision, prepared: None };
        let store = Store {
            record: None,
            term: 0,
            revision: 10,
            pins: plan.pins.iter().map(old).collect(),
            applied: None,
            effects: BTreeMap::new(),
            roster: GATEWAYS as u64,
            removed: Vec::new(),
            targets: BTreeSet::new(),
            moved: BTreeSet::new(),
        };
        let mut held = BTreeMap::new();
        for pin in &plan.pins {
            let old =
                pin.old.iter().flat_map(|s| s.order.iter().take(s.subset).map(|r| (r.clone(), s.version.as_str())));
            held.extend(old.map(|(r, version)| ((r, artifact(version)), true)));
        }
        let mut sim = Self {
            broken: None,
            now: 1_000_000_000_000,
            witness: Witness::new(plan.clone()),
            plan,
            store,
            planes: [None, None],
            views: (0..GATEWAYS).map(view).collect(),
            up: [true; REPLICAS],
            held,
            letters: Vec::new(),
            late: Vec::new(),
            next_process: 0,
            next_term: 1,
            shadowed: BTreeMap::new(),
            next_ask: 0,
        };
        sim.take_over(0);
        sim
    }

    /// A control plane leads: a new term, a new process, and whatever is in the store. Others do not know it yet.
    pub(crate) fn take_over(&mut self, plane: usize) {
        self.kill(plane);
        let (process, term) = (self.next_process, self.next_term);
        (self.next_process, self.next_term) = (process + 1, term + 1);
        let origin = self.now - 1_000 * (process + 1);
        let now = Mono(self.now - origin);
        let machine = match &self.store.record {
            Some(saved) => Rollout::resume(now, term, saved).expect("the store holds a record"),
            None => Rollout::plan(now, term, self.plan.clone()).expect("the plan is good"),
        };
        self.witness.started(process, self.store.record.as_ref());
        self.planes[plane] = Some(Plane { machine, process, term, origin, cut_off: false });
        self.tell(plane, Event::Tick);
    }

    /// What it has sent stays under way.
    pub(crate) fn kill(&mut self, plane: usize) {
        if let Some(old) = self.planes[plane].take() {
            self.witness.stopped(old.process);
        }
    }

    pub(crate) fn cut_off(&mut self, plane: usize, off: bool) {
        let Some(p) = &mut self.planes[plane] else { return };
        let healed = p.cut_off && !off;
        p.cut_off = off;
        if healed {
            self.observe(plane);
        }
    }

    /// Gives an event to a plane that runs, and sends what it wants done.
    pub(crate) fn tell(&mut self, plane: usize, event: Event) {
        self.tell_all(plane, vec![event]);
    }

    /// The same for many at once.
    fn tell_all(&mut self, plane: usize, events: Vec<Event>) {
        let Some(p) = &mut self.planes[plane] else { return };
        let (process, term, time) = (p.process, p.term, Mono(self.now));
        let hear = |event: &Event| self.witness.event(process, time, event).map_err(|e| format!("{e}\n{event:?}"));
        let heard = events.iter().try_for_each(hear);
        let mut out = Vec::new();
        // Sometimes an event is stamped a little early.
        let early = if self.now.is_multiple_of(7) { 500 } else { 0 };
        p.machine.apply_all(Mono(self.now - p.origin - early), events, &mut out);
        let done = self.witness.effects(process, time, &out).map_err(|e| format!("{e}\n{out:#?}"));
        if let Err(what) = heard.and(done) {
            self.breaks(what);
        }
        for effect in out {
            match effect {
                Effect::Superseded => self.kill(plane),
                Effect::Answer { .. } | Effect::Alarm(_) => {}
                effect => self.letters.push(Letter { plane, process, term, effect }),
            }
        }
    }

    pub(crate) fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    pub(crate) fn reachable(&self, plane: usize) -> bool {
        self.planes[plane].as_ref().is_some_and(|p| !p.cut_off)
    }

    /// News for every control plane that can be reached.
    pub(crate) fn announce(&mut self, event: &Event) {
        for plane in 0..2 {
            if self.reachable(plane) {
                self.tell(plane, event.clone());
            }
        }
    }

    /// The answer to a letter, if who sent it still runs.
    pub(crate) fn answer(&mut self, letter: &Letter, event: Event) {
        if self.planes[letter.plane].as_ref().is_some_and(|p| p.process == letter.process) {
            self.tell(letter.plane, event);
        }
    }

    pub(crate) fn claims(&self) -> Claims {
        let pins = self.store.pins.iter();
        let names = pins.flat_map(|p| p.version.iter().chain(p.split.iter().map(|(v, _)| v)));
        let pinned = names.map(|v| artifact(v.as_str())).collect();
        Claims { pinned, targets: self.store.targets.clone() }
    }

    pub(crate) fn all_gateways(&self) -> Event {
        Event::Gateways { roster: self.store.roster, all: self.views.clone() }
    }

    pub(crate) fn observe(&mut self, plane: usize) {
        let mut reports = vec![self.all_gateways(), Event::Claims(self.claims())];
        let sides = self.plan.pins.iter().flat_map(|p| p.old.iter().chain([&p.new]));
        for (replica, version) in sides.flat_map(|s| s.order.iter().map(move |r| (r.clone(), s.version.clone()))) {
            let artifact = artifact(version.as_str());
            let report = match self.held.get(&(replica.clone(), artifact.clone())) {
                _ if !self.is_up(&replica) => Report::Lost,
                Some(true) => Report::Proven,
                Some(false) => Report::Loaded,
                None => Report::Absent,
            };
            reports.push(Event::Replica { replica, artifact, report });
        }
        // One by one, or all at once: drivers do either.
        if (self.now / 1_000_000_000).is_multiple_of(2) {
            return self.tell_all(plane, reports);
        }
        for event in reports {
            self.tell(plane, event);
        }
    }

    pub(crate) fn is_up(&self, replica: &ReplicaName) -> bool {
        (0..REPLICAS).any(|ix| self.up[ix] && r(ix) == *replica)
    }

    pub(crate) fn replica_down(&mut self, ix: usize) {
        self.up[ix] = false;
        self.held.retain(|(replica, _), _| *replica != r(ix));
        self.each_artifact(ix, &Report::Lost);
    }

    pub(crate) fn replica_up(&mut self, ix: usize) {
        if !self.up[ix] {
            self.up[ix] = true;
            self.each_artifact(ix, &Report::Absent);
        }
    }

    fn each_artifact(&mut self, ix: usize, report: &Report) {
        for version in ["1", "2"] {
            self.announce(&Event::Replica { replica: r(ix), artifact: artifact(version), report: report.clone() });
        }
    }

    /// A version goes from a replica that stays.
    pub(crate) fn evict(&mut self, ix: usize, version: &str) {
        let pair = (r(ix), artifact(version));
        if self.held.remove(&pair).is_some() {
            self.announce(&Event::Replica { replica: pair.0, artifact: pair.1, report: Report::Absent });
        }
    }

    pub(crate) fn lease_ends(&mut self, ix: usize) {
        self.views[ix].leased = false;
        self.send_views();
    }

    /// A lease comes with the table in force.
    pub(crate) fn lease(&mut self, ix: usize) {
        if !self.views[ix].leased {
            self.store.roster += 1;
            self.views[ix].leased = true;
            self.follow(ix);
        }
    }

    pub(crate) fn follow(&mut self, ix: usize) {
        let view = &mut self.views[ix];
        if view.in_force.0 < self.store.revision {
            view.prepared = None;
        }
        view.in_force = Revision(self.store.revision);
        self.send_views();
    }

    pub(crate) fn requests_end(&mut self, ix: usize) {
        self.views[ix].oldest = self.views[ix].in_force;
        self.send_views();
    }

    fn send_views(&mut self) {
        // One view may overtake the news of another gateway's lease; the number must not.
        self.announce(&self.all_gateways());
    }

    /// Another roll-out flips; perhaps one of our pins.
    pub(crate) fn other_flip(&mut self, pin: Option<usize>) {
        self.store.revision += 1;
        if let Some(pin) = pin.filter(|p| *p < self.store.pins.len()) {
            self.store.pins[pin] = PinView { version: Some(v("9")), split: None };
            self.store.moved.insert(pin);
        }
        self.announce(&Event::Claims(self.claims()));
    }

    pub(crate) fn targets(&mut self, versions: &[&str]) {
        self.store.targets = versions.iter().map(|v| artifact(v)).collect();
        self.announce(&Event::Claims(self.claims()));
    }

    pub(crate) fn command(&mut self, plane: usize, command: Command) {
        self.next_ask += 1;
        self.tell(plane, Event::Command { ask: self.next_ask, command });
    }

    pub(crate) fn advance(&mut self, span: Duration) {
        let until = self.now + span.as_nanos() as u64;
        for plane in 0..2 {
            let mut ticks = 0;
            while let Some(p) = &self.planes[plane] {
                let Some(at) = p.machine.next_deadline().map(|at| at.0 + p.origin).filter(|at| *at <= until) else {
                    break;
                };
                self.now = self.now.max(at + 500);
                self.tell(plane, Event::Tick);
                ticks += 1;
                assert!(ticks < 10_000, "it spins: {:#?}", self.planes[plane].as_ref().map(|p| p.machine.progress()));
            }
        }
        self.now = self.now.max(until);
    }

    /// From here on everything goes well, under one control plane.
    pub(crate) fn end(&mut self) -> Rollout {
        self.kill(1);
        self.take_over(0);
        self.store.targets.clear();
        for ix in 0..REPLICAS {
            self.replica_up(ix);
        }
        let mut resumed = false;
        for _ in 0..3_000 {
            for ix in 0..GATEWAYS {
                self.lease(ix);
            }
            // Letters of the dead arrive as well.
            for _ in 0..self.letters.len() {
                self.deliver(0, 8);
            }
            self.compare();
            if let Some(p) = &self.planes[0] {
                if p.machine.is_over() {
                    return p.machine.clone();
                }
                let idle = p.machine.version() > 0 && !p.machine.progress().waiting_for.contains(&Waiting::Store);
                if idle && !resumed && p.machine.progress().paused {
                    resumed = true;
                    self.command(0, Command::Resume);
                }
            } else {
                self.take_over(0);
            }
            for ix in 0..GATEWAYS {
                self.follow(ix);
                self.requests_end(ix);
            }
            self.advance(secs(5));
        }
        panic!("it does not end: {:#?}", self.planes[0].as_ref().map(|p| p.machine.progress()));
    }
}
