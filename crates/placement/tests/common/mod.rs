//! A driver without IO: it keeps the witness, the flags and the open operations, and lets a test decide how each operation ends.
#![allow(clippy::panic, clippy::expect_used, reason = "a test fails loudly")]
#![allow(dead_code, reason = "each test file uses its part")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_placement::invariants::Witness;
use holdfast_placement::residency::*;
use holdfast_types::{Bytes, Mono};

pub(crate) const GIB: u64 = 1 << 30;

pub(crate) fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) in_flight: BTreeMap<(ReplicaIx, VersionIx), u32>,
    pub(crate) last_used: BTreeMap<(ReplicaIx, VersionIx), Mono>,
}

#[derive(Default)]
pub(crate) struct Use(pub(crate) RefCell<Counts>);

impl Usage for Use {
    fn in_flight(&self, replica: ReplicaIx, version: VersionIx) -> u32 {
        self.0.borrow().in_flight.get(&(replica, version)).copied().unwrap_or(0)
    }
    fn last_used(&self, replica: ReplicaIx, version: VersionIx) -> Option<Mono> {
        self.0.borrow().last_used.get(&(replica, version)).copied()
    }
    fn replica_load(&self, replica: ReplicaIx) -> u32 {
        self.0.borrow().in_flight.iter().filter(|((r, _), _)| *r == replica).map(|(_, n)| n).sum()
    }
}

pub(crate) struct World {
    pub(crate) now: Mono,
    pub(crate) machine: Residency,
    pub(crate) witness: Witness,
    pub(crate) usage: Use,
    /// Every effect so far.
    pub(crate) log: Vec<Effect>,
    /// Effects of the last event.
    pub(crate) last: Vec<Effect>,
    /// Open operations: loads, verifications, unloads.
    pub(crate) open: Vec<Effect>,
    /// Hidden and not yet reported as drained.
    pub(crate) hidden: Vec<(ReplicaIx, VersionIx)>,
    next_waiter: u64,
}

pub(crate) fn r(ix: u32) -> ReplicaIx {
    ReplicaIx(ix)
}

pub(crate) fn v(ix: u32) -> VersionIx {
    VersionIx(ix)
}

/// Stands for a server of the replica's own.
pub(crate) const OWN: ServerIx = ServerIx(u32::MAX);

pub(crate) fn spec(gib: u64) -> ReplicaSpec {
    let memory = Some(Bytes(gib * GIB));
    ReplicaSpec {
        pool: PoolIx(0),
        server: OWN,
        memory,
        loads: true,
        max_loads: 1,
        mode: Mode::Guaranteed,
        load_timeout: None,
        thrash_window: None,
    }
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            now: Mono(1_000_000_000),
            machine: Residency::new(settings.clone()),
            witness: Witness::new(settings),
            usage: Use::default(),
            log: Vec::new(),
            last: Vec::new(),
            open: Vec::new(),
            hidden: Vec::new(),
            next_waiter: 0,
        }
    }

    /// `replicas` of `gib` GiB, observed as empty, and `versions` of 1 GiB.
    pub(crate) fn with(settings: Settings, replicas: u32, gib: u64, versions: u32, mode: Mode) -> Self {
        let mut world = Self::new(settings);
        for ix in 0..replicas {
            world.event(Event::SetReplica { replica: r(ix), spec: ReplicaSpec { mode, ..spec(gib) } });
            world.poll(ix, &[]);
        }
        for ix in 0..versions {
            world.version(ix, false);
        }
        world
    }

    pub(crate) fn version(&mut self, ix: u32, pinned: bool) {
        self.event(Event::SetVersion { version: v(ix), spec: VersionSpec { size: Bytes(GIB), pinned } });
    }

    pub(crate) fn wanted(&mut self, replica: u32, versions: &[u32]) {
        self.wanted_by_turn(replica, &versions.iter().map(|ix| (*ix, Turn::Pinned)).collect::<Vec<_>>());
    }

    pub(crate) fn wanted_by_turn(&mut self, replica: u32, versions: &[(u32, Turn)]) {
        let versions = versions.iter().map(|(ix, turn)| (v(*ix), *turn)).collect();
        self.event(Event::SetWanted { replica: r(replica), versions });
    }

    pub(crate) fn kept(&mut self, replica: u32, versions: &[u32]) {
        self.event(Event::SetKept { replica: r(replica), versions: versions.iter().map(|ix| v(*ix)).collect() });
    }

    pub(crate) fn poll(&mut self, replica: u32, held: &[u32]) {
        self.index(replica, held, &[], 0);
    }

    /// A poll that also shows what is being loaded, and so many loads of names that no version has.
    pub(crate) fn index(&mut self, replica: u32, held: &[u32], loading: &[u32], others: u32) {
        let all = |of: &[u32]| of.iter().map(|ix| v(*ix)).collect();
        let (held, loading, strange) = (all(held), all(loading), Strange { loads: others, ..Strange::NONE });
        self.event(Event::Observed { replica: r(replica), started: self.now, held, loading, strange });
    }

    /// One event, checked by the witness.
    pub(crate) fn event(&mut self, mut event: Event) {
        if let Event::SetReplica { replica, spec } = &mut event
            && spec.server == OWN
        {
            spec.server = ServerIx(replica.0);
        }
        self.last.clear();
        self.witness.event(&event);
        self.machine.apply(self.now, event.clone(), &self.usage, &mut self.last);
        let checked = self.witness.effects(self.now, &self.last, &self.machine, &self.usage);
        if let Err(broken) = checked {
            panic!("{broken}\nevent {event:?}\neffects {:#?}\n{:#?}", self.last, self.machine.report());
        }
        for effect in &self.last {
            match effect {
                Effect::Load { .. } | Effect::Verify { .. } | Effect::Unload { .. } => self.open.push(effect.clone()),
                Effect::Hide { replica, version } => self.hidden.push((*replica, *version)),
                Effect::Show { replica, version } => self.hidden.retain(|h| *h != (*replica, *version)),
                Effect::Wake { .. } | Effect::Alarm(_) => {}
            }
        }
        self.log.extend(self.last.iter().cloned());
    }

    /// Moves time on, with a tick at each deadline of the machine.
    pub(crate) fn advance(&mut self, span: Duration) {
        let end = self.now.after(span);
        while let Some(at) = self.machine.next_deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.event(Event::Tick);
        }
        self.now = end;
    }

    pub(crate) fn want(&mut self, version: u32, candidates: &[u32], budget: Duration) -> WaiterId {
        let waiter = WaiterId(self.next_waiter);
        self.next_waiter += 1;
        let candidates = candidates.iter().map(|ix| r(*ix)).collect();
        self.event(Event::Want { waiter, version: v(version), candidates, deadline: self.now.after(budget) });
        waiter
    }

    pub(crate) fn outcome(&self, waiter: WaiterId) -> Option<Outcome> {
        self.log.iter().find_map(|e| match e {
            Effect::Wake { waiter: w, outcome } if *w == waiter => Some(outcome.clone()),
            _ => None,
        })
    }

    pub(crate) fn shed(&self, waiter: WaiterId) -> Option<(Duration, Shed)> {
        match self.outcome(waiter) {
            Some(Outcome::Shed { retry_after, why }) => Some((retry_after, why)),
            _ => None,
        }
    }

    /// The open loads, as (replica, version).
    pub(crate) fn loading(&self) -> Vec<(u32, u32)> {
        let load = |e: &Effect| match e {
            Effect::Load { replica, version, .. } => Some((replica.0, version.0)),
            _ => None,
        };
        self.open.iter().filter_map(load).collect()
    }

    /// All loads ever started.
    pub(crate) fn loads(&self) -> usize {
        self.log.iter().filter(|e| matches!(e, Effect::Load { .. })).count()
    }

    pub(crate) fn alarms(&self) -> Vec<Alarm> {
        self.log.iter().filter_map(|e| if let Effect::Alarm(a) = e { Some(a.clone()) } else { None }).collect()
    }

    /// Ends the open operation at an index well.
    pub(crate) fn finish(&mut self, index: usize) {
        let event = match self.open.remove(index) {
            Effect::Load { op, .. } => Event::LoadDone { op, result: Ok(None) },
            Effect::Verify { op, .. } => Event::Verified { op, proof: Proof::Proven },
            Effect::Unload { op, .. } => Event::UnloadDone { op, result: Ok(()) },
            other => panic!("{other:?} is no operation"),
        };
        self.event(event);
    }

    /// Fails the first open load on a replica.
    pub(crate) fn fail_load(&mut self, replica: u32, permanent: bool) {
        let index = self.open.iter().position(|e| matches!(e, Effect::Load { replica: at, .. } if at.0 == replica));
        let Effect::Load { op, .. } = self.open.remove(index.expect("a load is open")) else { unreachable!() };
        let text = "the artifact is corrupt".to_owned();
        self.event(Event::LoadDone { op, result: Err(LoadError { text, permanent }) });
        // A driver asks at once what that means.
        self.poll_as_it_is(replica);
    }

    /// A poll that shows what the machine believes.
    pub(crate) fn poll_as_it_is(&mut self, replica: u32) {
        let report = self.machine.report();
        let row = report.replicas.iter().find(|row| row.replica == r(replica));
        let there = |s: State| !matches!(s, State::Loading | State::Unloading);
        let held = row.iter().flat_map(|row| &row.holdings).filter(|h| there(h.state)).map(|h| h.version.0);
        let held: Vec<u32> = held.collect();
        self.poll(replica, &held);
    }

    /// Reports everything hidden and idle as drained.
    pub(crate) fn drain(&mut self) {
        for (replica, version) in std::mem::take(&mut self.hidden) {
            if self.usage.in_flight(replica, version) > 0 {
                self.hidden.push((replica, version));
            } else {
                self.event(Event::Drained { replica, version });
            }
        }
    }

    /// Ends all operations well until nothing is open, taking `load` for each round of loads.
    pub(crate) fn settle(&mut self, load: Duration) {
        for _ in 0..1000 {
            self.drain();
            match self.open.iter().position(|e| !matches!(e, Effect::Load { .. })) {
                Some(index) => self.finish(index),
                None if !self.open.is_empty() => {
                    self.advance(load);
                    self.finish(0);
                }
                None if self.hidden.is_empty() => return,
                None => {}
            }
        }
        panic!("it does not settle: {:#?}", self.machine.report());
    }

    /// Loads a version on a replica by a request.
    pub(crate) fn hold(&mut self, replica: u32, version: u32) {
        let waiter = self.want(version, &[replica], secs(100));
        self.settle(secs(1));
        assert_eq!(self.outcome(waiter), Some(Outcome::Ready(r(replica))));
    }

    /// A use that has ended.
    pub(crate) fn used(&mut self, replica: u32, version: u32) {
        self.usage.0.borrow_mut().last_used.insert((r(replica), v(version)), self.now);
    }

    pub(crate) fn busy(&mut self, replica: u32, version: u32, users: u32) {
        self.used(replica, version);
        self.usage.0.borrow_mut().in_flight.insert((r(replica), v(version)), users);
    }

    pub(crate) fn holds(&self, replica: u32, version: u32) -> bool {
        self.witness.shows(r(replica), v(version))
    }
}
