//! Requests that wait: how they join, how they are answered, and what stays behind when they are gone.
//!
//! All that wait for one version on one list of candidates are one demand, so a thousand waiters cost one load. Where the load happens is not
//! fixed when the wait begins but when a slot is free, so a dead or failing replica takes no waiter with it.
//!
//! A request that is shed because its budget is too short leaves its demand behind for a while: else a version whose load takes longer
//! than any budget would never be loaded.
//!
//! Nobody waits for an attempt after several that failed: while every candidate that could load backs off after its third failure in a row or
//! a later one, requests are shed at once and told when the next attempt is. An attempt that runs is waited for, and ends the waits if it
//! fails too.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_types::Mono;

use super::Residency;
use super::effect::{Effect, Outcome, Shed};
use super::event::{MAX_CANDIDATES, ReplicaIx, VersionIx, WaiterId};
use super::outlook::View;
use super::state::{Aim, Cx, Demand, Phase};

impl Residency {
    pub(super) fn want(
        &mut self,
        cx: &mut Cx,
        waiter: WaiterId,
        version: VersionIx,
        mut candidates: Vec<ReplicaIx>,
        deadline: Mono,
    ) -> bool {
        if self.waiters.contains_key(&waiter) {
            return false;
        }
        candidates.truncate(MAX_CANDIDATES);
        let mut seen = BTreeSet::new();
        candidates.retain(|c| seen.insert(*c));
        if self.versions.get(&version).is_none_or(|v| v.removed) {
            let why = "the version is not configured".to_owned();
            wake(cx, waiter, Outcome::Failed { why });
            return false;
        }
        let taken_back = self.take_back(cx, version, &candidates);
        if let Some(replica) = self.view(cx, None, version, &candidates).ready {
            wake(cx, waiter, Outcome::Ready(replica));
            return taken_back;
        }
        if self.waiters.len() >= self.settings.max_waiters {
            wake(cx, waiter, self.shed(Duration::ZERO, Shed::TooManyWaiters));
            return taken_back;
        }
        // Also with no budget at all: the load begins, or is kept in mind, and the waiter is answered by `expire_waiters` in this very step.
        let id = self.join(waiter, version, &candidates, deadline);
        self.advance(cx, id);
        self.decide(cx, id, waiter, deadline);
        self.unload_drained(cx);
        taken_back
    }

    /// What hides to make room and is wanted again before it was drained goes back into service, and stays there for a thrash window: it is
    /// in more recent use than whatever it should have made room for, unless that is wanted on the replica and this is not.
    fn take_back(&mut self, cx: &mut Cx, version: VersionIx, candidates: &[ReplicaIx]) -> bool {
        let mut any = false;
        for replica in candidates.iter().copied() {
            let keep_until = cx.now.after(self.thrash_window(replica));
            let Some(r) = self.replicas.get_mut(&replica).filter(|r| r.up) else { continue };
            let Some(entry) = r.entries.get_mut(&version) else { continue };
            let Phase::Hiding(Aim::Room(newcomer)) = entry.phase else { continue };
            let yields = r.wanted.contains_key(&newcomer) && !r.wanted.contains_key(&version);
            if yields || entry.before != Phase::Held {
                continue;
            }
            entry.keep_until = keep_until;
            self.rescue(cx, replica, version);
            any = true;
        }
        any
    }

    fn join(&mut self, waiter: WaiterId, version: VersionIx, candidates: &[ReplicaIx], deadline: Mono) -> u64 {
        let key = (version, Box::from(candidates));
        let id = match self.demand_of.get(&key) {
            Some(id) => *id,
            None => {
                let id = self.next_demand;
                self.next_demand = self.next_demand.wrapping_add(1);
                let waiters = BTreeSet::new();
                let demand = Demand { version, candidates: candidates.into(), waiters, linger: Mono::ZERO };
                self.demands.insert(id, demand);
                self.demand_of.insert(key, id);
                id
            }
        };
        if let Some(demand) = self.demands.get_mut(&id) {
            demand.waiters.insert(waiter);
        }
        self.waiters.insert(waiter, (id, deadline));
        self.deadlines.insert((deadline, waiter));
        id
    }

    /// Waits, or sheds this waiter at once because its budget is too short or nothing can come.
    fn decide(&mut self, cx: &mut Cx, id: u64, waiter: WaiterId, deadline: Mono) {
        let Some(demand) = self.demands.get(&id) else { return };
        let view = self.view(cx, Some(id), demand.version, &demand.candidates);
        let budget = deadline.since(cx.now);
        if view.hopeless().is_some() {
            let outcome = self.hopeless_outcome(&view, demand.version);
            if view.failing.is_some() {
                self.keep_in_mind(id, cx.now);
            }
            return self.answer(cx, waiter, outcome);
        }
        let in_time = |eta: Duration| eta <= budget;
        if view.blocked {
            self.recheck_soon(cx.now);
            return;
        }
        if view.eta().is_some_and(in_time) && !late_unless_started(&view, budget) {
            return;
        }
        // The load that others wait for comes too late for this one, but another candidate could make it.
        if let Some((replica, victims, eta)) = view.start.clone()
            && in_time(eta)
        {
            let version = demand.version;
            return self.begin(cx, replica, version, &victims, true);
        }
        let eta = view.eta().unwrap_or(Duration::ZERO);
        let why = view.later.filter(|_| view.coming.is_none() && view.start.is_none()).map_or(Shed::Budget, |l| l.1);
        self.keep_in_mind(id, cx.now);
        self.answer(cx, waiter, self.shed(eta, why));
    }

    pub(super) fn hopeless_outcome(&self, view: &View, version: VersionIx) -> Outcome {
        if let Some(past) = view.failed.and_then(|r| self.history.get(&(r, version))) {
            return Outcome::Failed { why: past.text.clone() };
        }
        let (why, retry) = view.hopeless().unwrap_or((Shed::NoReplica, Duration::ZERO));
        self.shed(retry, why)
    }

    fn shed(&self, retry: Duration, why: Shed) -> Outcome {
        let (min, max) = (self.settings.retry_min, self.settings.retry_max);
        Outcome::Shed { retry_after: retry.min(max).max(min), why }
    }

    pub(super) fn cancel(&mut self, waiter: WaiterId) -> bool {
        let Some(id) = self.leave(waiter) else { return false };
        self.drop_if_idle(id, self.now)
    }

    /// Removes a waiter; its demand stays.
    fn leave(&mut self, waiter: WaiterId) -> Option<u64> {
        let (id, deadline) = self.waiters.remove(&waiter)?;
        self.deadlines.remove(&(deadline, waiter));
        if let Some(demand) = self.demands.get_mut(&id) {
            demand.waiters.remove(&waiter);
        }
        Some(id)
    }

    fn answer(&mut self, cx: &mut Cx, waiter: WaiterId, outcome: Outcome) {
        let Some(id) = self.leave(waiter) else { return };
        wake(cx, waiter, outcome);
        self.drop_if_idle(id, cx.now);
    }

    /// Keeps a demand for the next attempt of its clients.
    fn keep_in_mind(&mut self, id: u64, now: Mono) {
        let until = now.after(self.settings.retry_max);
        let few = self.demands.len() <= self.settings.max_waiters;
        if let Some(demand) = self.demands.get_mut(&id).filter(|_| few) {
            demand.linger = until;
        }
    }

    /// Drops a demand without waiters, unless it is kept in mind. True: it is gone.
    pub(super) fn drop_if_idle(&mut self, id: u64, now: Mono) -> bool {
        let idle = self.demands.get(&id).is_some_and(|d| d.waiters.is_empty() && d.linger <= now);
        if idle {
            self.remove_demand(id);
        }
        idle
    }

    fn remove_demand(&mut self, id: u64) -> Option<Demand> {
        let demand = self.demands.remove(&id)?;
        self.demand_of.remove(&(demand.version, demand.candidates.clone()));
        for waiter in &demand.waiters {
            if let Some((_, deadline)) = self.waiters.remove(waiter) {
                self.deadlines.remove(&(deadline, *waiter));
            }
        }
        Some(demand)
    }

    /// Answers all waiters of a demand and removes it.
    pub(super) fn end_demand(&mut self, cx: &mut Cx, id: u64, outcome: &Outcome) {
        let Some(demand) = self.remove_demand(id) else { return };
        for waiter in demand.waiters {
            wake(cx, waiter, outcome.clone());
        }
    }

    /// Answers all waiters of a demand that is attempted again without them: whoever comes back then may find the version loaded.
    pub(super) fn send_away(&mut self, cx: &mut Cx, id: u64, outcome: &Outcome) {
        let Some(demand) = self.demands.get(&id).filter(|d| !d.waiters.is_empty()) else { return };
        let waiters = demand.waiters.clone();
        self.keep_in_mind(id, cx.now);
        for waiter in waiters {
            self.answer(cx, waiter, outcome.clone());
        }
    }

    /// Wakes all who wait for the version and may use the replica.
    pub(super) fn wake_all(&mut self, cx: &mut Cx, replica: ReplicaIx, version: VersionIx) {
        for id in self.demands_for(version) {
            if self.demands.get(&id).is_some_and(|d| d.candidates.contains(&replica)) {
                self.end_demand(cx, id, &Outcome::Ready(replica));
            }
        }
    }

    pub(super) fn demands_for(&self, version: VersionIx) -> Vec<u64> {
        let from = (version, Box::from([]));
        self.demand_of.range(from..).take_while(|((v, _), _)| *v == version).map(|(_, id)| *id).collect()
    }

    /// Answers those whose time is over, and keeps in mind what they came for.
    pub(super) fn expire_waiters(&mut self, cx: &mut Cx) -> bool {
        let mut any = false;
        while let Some((_, waiter)) = self.deadlines.first().copied().filter(|(at, _)| *at <= cx.now) {
            any = true;
            let Some((id, _)) = self.waiters.get(&waiter).copied() else { break };
            let eta = self.demands.get(&id).and_then(|d| self.view(cx, Some(id), d.version, &d.candidates).eta());
            self.keep_in_mind(id, cx.now);
            let outcome = self.shed(eta.unwrap_or(Duration::ZERO), Shed::Deadline);
            self.answer(cx, waiter, outcome);
        }
        any
    }
}

/// Only a second load would be in time.
fn late_unless_started(view: &View, budget: Duration) -> bool {
    let coming = view.coming.is_some_and(|eta| eta <= budget);
    let later = view.later.is_some_and(|(eta, _)| eta <= budget);
    !coming && !later && view.start.is_some()
}

fn wake(cx: &mut Cx, waiter: WaiterId, outcome: Outcome) {
    cx.out.push(Effect::Wake { waiter, outcome });
}
