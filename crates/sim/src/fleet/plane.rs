//! The control planes: each with a term, the roll-outs in its hands, and the gateways that follow it. There may be two at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_decide::Snapshot;
use holdfast_decide::rollout::witness::Witness;
use holdfast_decide::rollout::{
    Artifact, CanaryStep, Claims, Command, Effect, Event, GatewayView, Options, PinFlip, PinPlan, Plan, Proposal,
    Report, Rollout, RolloutId, Saved, SidePlan,
};
use holdfast_types::{Mono, ReplicaName};

use super::SECOND;
use super::news::Status;
use super::seats::Sits;
use super::ushers::{Usher, Wrote};
use super::world::{Ev, Process, World};

/// One roll-out in the hands of a control plane.
pub(super) struct Running {
    pub(super) machine: Rollout,
    pub(super) observes: bool,
    pub(super) wants: BTreeSet<(usize, u32)>,
    pub(super) prepare: Option<(Proposal, Vec<PinFlip>)>,
    /// Versions that it is about, and where they may be.
    pub(super) sides: Vec<(u32, Vec<usize>)>,
    pub(super) views: Option<(u64, Vec<GatewayView>)>,
    pub(super) claims: Option<Claims>,
    pub(super) told: BTreeMap<(usize, u32), (Report, u32)>,
}

pub(super) struct Plane {
    pub(super) process: u64,
    pub(super) term: u64,
    pub(super) origin: u64,
    /// Of its clock, for leases: thousandths.
    pub(super) rate: u64,
    pub(super) usher: Usher,
    pub(super) stalled_until: u64,
    pub(super) table: Snapshot,
    pub(super) roster: u64,
    pub(super) leases: Vec<bool>,
    pub(super) seen: BTreeMap<usize, Status>,
    pub(super) heard: Vec<u64>,
    pub(super) linked: BTreeSet<Process>,
    pub(super) running: BTreeMap<u64, Running>,
    pub(super) changed: bool,
}

/// What a control plane is told.
#[derive(Clone, Debug)]
pub(super) enum ToPlane {
    Status(Box<Status>),
    Of(u64, Box<Event>),
    Sits(Box<Sits>),
    Seats(Box<Wrote>),
    Pulse,
}

impl World<'_> {
    /// A control plane leads: a new process, the next term, and whatever is in the store. Others may not know it yet.
    pub(super) fn take_over(&mut self, plane: usize) {
        if self.cut_store(plane) {
            return;
        }
        self.plane_dies(plane);
        let process = self.number();
        let term = self.store.next_term;
        self.store.next_term += 1;
        // Written down before anything is read, as the product does it: what an earlier leader has on its way can then not be saved unseen.
        self.store.term = term;
        self.tally.terms += 1;
        self.note(|| format!("control plane {plane} leads, term {term}"));
        self.planes[plane] = Some(Plane {
            process,
            term,
            origin: self.now.saturating_sub(SECOND * (1 + process % 700)),
            rate: 950 + process * 37 % 101,
            usher: Usher::default(),
            stalled_until: 0,
            table: self.store.table.clone(),
            roster: self.store.roster,
            leases: self.store.leases.clone(),
            seen: BTreeMap::new(),
            heard: vec![self.now; self.gateways.len()],
            linked: BTreeSet::new(),
            running: BTreeMap::new(),
            changed: true,
        });
        let records: Vec<(u64, Saved)> = self.store.records.iter().map(|(id, saved)| (*id, saved.clone())).collect();
        for (id, saved) in records {
            self.resume(plane, id, &saved);
        }
        let to = Process { ix: plane, number: process };
        self.queue.put(self.now, Ev::Plane { to, what: ToPlane::Pulse });
    }

    fn resume(&mut self, plane: usize, id: u64, saved: &Saved) {
        let Some(p) = &self.planes[plane] else { return };
        let Ok(machine) = Rollout::resume(Mono(self.now - p.origin), p.term, saved) else {
            return self.breaks(format!("the record of roll-out {id} cannot be read"));
        };
        let process = p.process;
        let sides = self.sides_of(saved);
        if let Some(witness) = self.witnesses.get_mut(&id) {
            witness.started(process, Some(saved));
        }
        self.takes(plane, id, machine, sides);
    }

    fn takes(&mut self, plane: usize, id: u64, machine: Rollout, sides: Vec<(u32, Vec<usize>)>) {
        let running = Running {
            machine,
            observes: false,
            wants: BTreeSet::new(),
            prepare: None,
            sides,
            views: None,
            claims: None,
            told: BTreeMap::new(),
        };
        if let Some(p) = &mut self.planes[plane] {
            p.running.insert(id, running);
        }
        self.feed(plane, id, vec![Event::Tick]);
    }

    fn sides_of(&self, saved: &Saved) -> Vec<(u32, Vec<usize>)> {
        let sides = saved.pins.iter().flat_map(|pin| pin.old.iter().chain([&pin.new]));
        let side = |side: &holdfast_decide::rollout::SavedSide| {
            let version = self.names.versions.iter().position(|v| v.as_str() == side.version)?;
            let order = side.order.iter().filter_map(|r| self.names.replica(&ReplicaName::parse(r).ok()?));
            Some((u32::try_from(version).ok()?, order.collect()))
        };
        sides.filter_map(side).collect()
    }

    pub(super) fn plane_dies(&mut self, plane: usize) {
        let Some(old) = self.planes[plane].take() else { return };
        for id in old.running.keys() {
            if let Some(witness) = self.witnesses.get_mut(id) {
                witness.stopped(old.process);
            }
        }
    }

    /// The control plane that leads by the store's account, if it can be reached there.
    pub(super) fn leader(&self) -> Option<usize> {
        let leads = |ix: &usize| self.planes[*ix].as_ref().is_some_and(|p| p.term + 1 == self.store.next_term);
        (0..2).find(leads).filter(|ix| !self.cut_store(*ix))
    }

    /// Somebody wants a pin elsewhere.
    pub(super) fn wish(&mut self, tenant: usize, version: u32, bits: u8) {
        let Some(plane) = self.leader() else { return };
        let Some(old) = self.pin_of(&self.store.table, tenant).filter(|old| *old != version) else { return };
        let name = self.names.tenants[tenant].clone();
        self.forget_lost();
        if self.planned.values().any(|(_, of, _)| *of == tenant) {
            return;
        }
        if !self.fits(tenant, version) {
            return;
        }
        let id = self.number();
        let (old_side, new_side) = (self.side(tenant, old), self.side(tenant, version));
        let sides = vec![(old, old_side.1), (version, new_side.1)];
        let (Some(old_side), Some(new_side)) = (old_side.0, new_side.0) else { return };
        let pin = PinPlan { tenant: name, model: self.names.model.clone(), old: Some(old_side), new: new_side };
        let plan = Plan { id: RolloutId(id), pins: vec![pin], options: self.options(bits) };
        let Some(p) = &self.planes[plane] else { return };
        let (process, term, now) = (p.process, p.term, Mono(self.now - p.origin));
        let Ok(machine) = Rollout::plan(now, term, plan.clone()) else {
            return self.breaks("a plan is refused".to_owned());
        };
        let mut witness = Witness::new(plan);
        witness.started(process, None);
        self.witnesses.insert(id, witness);
        self.planned.insert(id, (self.now, tenant, sides.clone()));
        self.tally.rollouts += 1;
        self.note(|| format!("roll-out {id}: tenant {tenant} from version {} to {}", old + 1, version + 1));
        self.takes(plane, id, machine, sides);
    }

    /// A roll-out that was planned and never reached the store.
    fn forget_lost(&mut self) {
        let runs = |id: &u64| self.planes.iter().flatten().any(|p| p.running.contains_key(id));
        let known = |id: &u64| self.store.records.contains_key(id) || runs(id);
        let long = 5 * SECOND;
        let lost = self.planned.iter().filter(|(id, (at, ..))| !known(id) && self.now - at > long);
        for id in lost.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.planned.remove(&id);
        }
    }

    /// Whether all pins, those that are on their way, and this one fit where they belong: what is refused where pins are guaranteed.
    fn fits(&mut self, tenant: usize, version: u32) -> bool {
        let mut keys = self.pins_of(&self.store.table);
        keys.push((tenant, version));
        let sides = self.planned.values().flat_map(|(_, _, sides)| sides);
        let firsts = sides.flat_map(|(v, order)| order.iter().take(3).map(|r| (*r, *v)));
        let mut held: BTreeSet<(usize, u32)> = firsts.collect();
        for (tenant, version) in keys {
            let (order, subset) = self.order(tenant, version);
            held.extend(order.iter().take(subset).map(|r| (*r, version)));
        }
        let all = |replica: usize| held.iter().filter(|(r, _)| *r == replica).count() as u64;
        (0..self.setup.replicas).all(|replica| all(replica) <= self.setup.room)
    }

    fn side(&mut self, tenant: usize, version: u32) -> (Option<SidePlan>, Vec<usize>) {
        let (order, subset) = self.order(tenant, version);
        let names = order.iter().map(|r| self.names.replicas[*r].clone()).collect();
        let (pool, version) = (self.names.pool.clone(), self.names.versions.get(version as usize).cloned());
        (version.map(|version| SidePlan { pool, version, order: names, subset }), order)
    }

    fn options(&self, bits: u8) -> Options {
        let s = Duration::from_secs;
        let canary = [CanaryStep { percent: 30, wait: s(1) }, CanaryStep { percent: 60, wait: s(2) }];
        Options {
            canary: if bits & 4 != 0 { canary.to_vec() } else { Vec::new() },
            loads: if bits & 2 != 0 { 1 } else { 4 },
            load: s(9),
            warm: s(30),
            prepare: s(10),
            drain: s(8),
            retain: Duration::from_nanos(self.setup.retain),
            retry: s(1),
            checkpoint: s(3),
            ..Options::default()
        }
    }

    pub(super) fn commands(&mut self, pick: usize, what: u8) {
        let Some(plane) = self.leader() else { return };
        let Some(p) = &self.planes[plane] else { return };
        let ids: Vec<u64> = p.running.keys().copied().collect();
        let Some(id) = pick.checked_rem(ids.len()).map(|at| ids[at]) else { return };
        let command = match what {
            0 => Command::Abort,
            1 => Command::Pause,
            2 | 3 => Command::Resume,
            _ => Command::Revert { confirmed: what.is_multiple_of(2) },
        };
        self.note(|| format!("roll-out {id}: {command:?}"));
        let ask = self.number();
        self.feed(plane, id, vec![Event::Command { ask, command }]);
    }

    /// Gives a machine events, with the witness before and after, and carries out what it wants.
    pub(super) fn feed(&mut self, plane: usize, id: u64, events: Vec<Event>) {
        let mut events = events;
        while !events.is_empty() {
            let time = Mono(self.now);
            let (Some(p), Some(witness)) = (&mut self.planes[plane], self.witnesses.get_mut(&id)) else { return };
            let (process, now) = (p.process, Mono(self.now - p.origin));
            let Some(running) = p.running.get_mut(&id) else { return };
            let mut checked = events.iter().try_for_each(|event| witness.event(process, time, event));
            let mut out = Vec::new();
            running.machine.apply_all(now, std::mem::take(&mut events), &mut out);
            checked = checked.and_then(|()| witness.effects(process, time, &out));
            self.checked(checked);
            for effect in out {
                self.wanted_by(plane, id, effect, &mut events);
            }
        }
        let over = |p: &Plane| p.running.get(&id).is_some_and(|r| r.machine.is_over());
        if self.planes[plane].as_ref().is_some_and(over) {
            self.ends_well(plane, id);
        }
    }

    /// A roll-out that is over is nobody's any more.
    fn ends_well(&mut self, plane: usize, id: u64) {
        let Some(p) = &mut self.planes[plane] else { return };
        if p.running.remove(&id).is_some() {
            p.changed = true;
            let process = p.process;
            if let Some(witness) = self.witnesses.get_mut(&id) {
                witness.stopped(process);
            }
            self.store.records.remove(&id);
            self.planned.remove(&id);
            self.note(|| format!("roll-out {id} is over"));
        }
    }

    fn wanted_by(&mut self, plane: usize, id: u64, effect: Effect, events: &mut Vec<Event>) {
        let versions = |names: &super::names::Names, artifact: &Artifact| names.version(&artifact.version);
        let names = &self.names;
        let Some(p) = &mut self.planes[plane] else { return };
        let (from, term) = (Process { ix: plane, number: p.process }, p.term);
        let Some(running) = p.running.get_mut(&id) else { return };
        let place =
            |replica: &ReplicaName, artifact: &Artifact| Some((names.replica(replica)?, versions(names, artifact)?));
        match effect {
            Effect::Observe => {
                // All is told again; a failed load is one failure all the same.
                (running.observes, running.views, running.claims) = (true, None, None);
                running.told.retain(|_, (report, _)| matches!(report, Report::Failed { .. }));
            }
            Effect::Warm { replica, artifact } => running.wants.extend(place(&replica, &artifact)),
            Effect::Release { replica, artifact } => {
                if let Some(place) = place(&replica, &artifact) {
                    running.wants.remove(&place);
                }
            }
            Effect::Prepare { proposal, flips, .. } => {
                // What a flip leaves stays wanted from before it until the machine itself asks for it.
                let old: Vec<(usize, u32)> =
                    flips.iter().flat_map(|flip| Self::leaves_behind(names, running, flip)).collect();
                running.wants.extend(old);
                running.prepare = Some((proposal, flips));
            }
            Effect::Forget { proposal } => _ = running.prepare.take_if(|(of, _)| *of == proposal),
            Effect::Superseded => return self.superseded(plane, id),
            Effect::Collect { artifact, .. } => {
                let claims = self.claims(plane, id);
                let needed = claims.pinned.contains(&artifact) || claims.targets.contains(&artifact);
                events.push(if needed { Event::Claims(claims) } else { Event::Collected { artifact } });
                return;
            }
            Effect::Save { .. } | Effect::Activate { .. } | Effect::ReadTable { .. } => {
                let at = self.after_delay();
                return self.queue.put(at, Ev::Store { from, term, id, effect: Box::new(effect) });
            }
            Effect::Verify { .. } | Effect::Tell { .. } => {}
            Effect::Shadow { .. } | Effect::Answer { .. } | Effect::Alarm(_) => return,
        }
        p.changed = true;
        events.extend(self.news(plane, id));
    }

    fn leaves_behind(names: &super::names::Names, running: &Running, flip: &PinFlip) -> Vec<(usize, u32)> {
        let off = if flip.share == 0 { Some(&flip.new) } else { flip.old.as_ref() };
        let Some(version) = off.and_then(|v| names.version(v)) else { return Vec::new() };
        let told = |replica: &usize| matches!(running.told.get(&(*replica, version)), Some((Report::Proven, _)));
        let sides = running.sides.iter().filter(|(v, _)| *v == version);
        sides.flat_map(|(v, order)| order.iter().filter(|r| told(r)).map(move |r| (*r, *v))).collect()
    }

    /// Somebody else has the roll-out: this process does not lead any more.
    fn superseded(&mut self, plane: usize, id: u64) {
        self.note(|| format!("control plane {plane} is superseded in roll-out {id}"));
        self.plane_dies(plane);
    }

    pub(super) fn plane_hears(&mut self, plane: usize, what: ToPlane) {
        match what {
            ToPlane::Of(id, event) => {
                if matches!(*event, Event::Activated { .. })
                    && let Some(running) = self.planes[plane].as_mut().and_then(|p| p.running.get_mut(&id))
                {
                    running.prepare = None;
                }
                self.feed(plane, id, vec![*event]);
                self.refresh(plane);
            }
            ToPlane::Status(status) => self.hears_status(plane, *status),
            ToPlane::Sits(sits) => self.sits(plane, *sits),
            ToPlane::Seats(wrote) => self.seats_written(plane, *wrote),
            ToPlane::Pulse => self.pulse(plane),
        }
    }

    /// What all roll-outs of a control plane have not heard yet.
    pub(super) fn tell_all(&mut self, plane: usize) {
        let ids: Vec<u64> = self.planes[plane].iter().flat_map(|p| p.running.keys().copied()).collect();
        for id in ids {
            let news = self.news(plane, id);
            self.feed(plane, id, news);
        }
    }

    fn pulse(&mut self, plane: usize) {
        self.refresh(plane);
        self.end_leases(plane);
        self.tell_all(plane);
        let Some(p) = &self.planes[plane] else { return };
        let local = Mono(self.now - p.origin);
        let due = |(id, r): (&u64, &Running)| r.machine.next_deadline().is_some_and(|at| at <= local).then_some(*id);
        for id in p.running.iter().filter_map(due).collect::<Vec<_>>() {
            self.feed(plane, id, vec![Event::Tick]);
        }
        self.ushers(plane);
        self.push(plane);
        let Some(p) = &self.planes[plane] else { return };
        let (to, at) = (Process { ix: plane, number: p.process }, self.now + SECOND / 4);
        self.queue.put(at, Ev::Plane { to, what: ToPlane::Pulse });
    }
}
