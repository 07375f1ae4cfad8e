//! The driver's loop: one task has all roll-outs in hand; what takes time is done by jobs beside it, whose outcomes come back as events.
//!
//! What gateways say is looked at, and orders are published, at most once in a batch: a thousand pins make ten thousand words.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::ResourceKind;
use holdfast_decide::rollout::Event;
use holdfast_plane::Entries;
use holdfast_store::Leader;
use holdfast_types::Mono;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::board::{Ask, Parts};
use super::causes::Cause;
use super::jobs::Outcome;
use super::needed::Needed;
use super::planning::Places;
use super::policy::Stuck;
use super::reports::Reports;
use super::running::Running;
use super::sessions::Fleet;
use super::tries::Tries;
use crate::desk::Truth;

/// How often leases are looked at.
const LEASES: Duration = Duration::from_millis(200);
/// The wait before something that the store did not do is tried again.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// What is to be done at the end of a batch.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Gateways have spoken.
    pub(super) reports: bool,
    /// Orders may have changed.
    pub(super) orders: bool,
    /// What is desired, in force or on its way has changed.
    pub(super) policy: bool,
    /// What is needed by whom may have changed.
    pub(super) claims: bool,
}

impl Due {
    const fn any(&self) -> bool {
        self.reports || self.orders || self.policy || self.claims
    }
}

/// See the module.
pub(super) struct Driver {
    pub(super) parts: Arc<Parts>,
    pub(super) term: u64,
    pub(super) truth: Arc<Truth>,
    pub(super) running: BTreeMap<u64, Running>,
    pub(super) jobs: JoinSet<Outcome>,
    pub(super) due: Due,
    /// The last fleet and what it says.
    pub(super) fleet: Fleet,
    pub(super) reports: Reports,
    /// Loads that have failed so far, for whoever.
    pub(super) tries: Tries,
    pub(super) needed: Needed,
    pub(super) places: Option<Places>,
    pub(super) planning: bool,
    /// No planning before.
    pub(super) plan_after: Mono,
    /// Pins whose roll-out has ended elsewhere than where they were to go.
    pub(super) stuck: BTreeMap<Arc<str>, Stuck>,
    /// Pins that could not be planned under the truth of that revision.
    pub(super) unplanned: BTreeMap<Arc<str>, (u64, String)>,
    /// Pins that are asked for again, and by which revision last.
    pub(super) again: BTreeMap<Arc<str>, u64>,
    /// As of which revision. `None`: it is being read.
    pub(super) again_at: Option<u64>,
    /// Who wants roll-outs to go back, by their numbers.
    pub(super) causes: BTreeMap<u64, Cause>,
    /// It is being read.
    pub(super) asking: bool,
    /// Why pins that are pending are on no way.
    pub(super) words: BTreeMap<Arc<str>, String>,
    pub(super) finished: BTreeSet<u64>,
    pub(super) next_ask: u64,
    /// Of these roll-outs, pins are just being desired where they were: nobody else moves them until that is done.
    pub(super) withdrawing: BTreeMap<u64, Vec<Arc<str>>>,
    /// Leases are being looked at.
    pub(super) keeping: bool,
    /// The store has refused the term.
    pub(super) fenced: bool,
}

impl Driver {
    pub(super) fn new(parts: Arc<Parts>, term: u64) -> Self {
        let truth = parts.desk.truth();
        Self {
            needed: Needed::of(&Entries::default(), &truth.in_force),
            truth,
            term,
            running: BTreeMap::new(),
            jobs: JoinSet::new(),
            due: Due { reports: true, orders: true, policy: true, claims: true },
            fleet: Fleet::default(),
            reports: Reports::default(),
            tries: Tries::default(),
            places: None,
            planning: false,
            plan_after: Mono::ZERO,
            stuck: BTreeMap::new(),
            unplanned: BTreeMap::new(),
            again: BTreeMap::new(),
            again_at: Some(0),
            causes: BTreeMap::new(),
            asking: false,
            words: BTreeMap::new(),
            finished: BTreeSet::new(),
            next_ask: 0,
            withdrawing: BTreeMap::new(),
            keeping: false,
            fenced: false,
            parts,
        }
    }

    pub(super) fn now(&self) -> Mono {
        (self.parts.now)()
    }

    /// Drives until the leadership is lost.
    pub(super) async fn run(mut self, mut leader: Leader, asks: &mut mpsc::Receiver<Ask>) {
        if !self.load(&mut leader).await {
            return;
        }
        let (mut truths, mut words) = (self.parts.desk.watch(), self.parts.sessions.changed());
        let (mut batch_at, mut leases_at) = (self.now(), self.now());
        while !self.fenced || leader.check().await.is_ok() {
            self.fenced = false;
            let leases = if self.keeping { Mono::MAX } else { leases_at };
            let wait = self.next_wake(batch_at).min(leases).since(self.now());
            tokio::select! {
                biased;
                () = leader.lost() => return,
                Some(ask) = asks.recv() => self.ask(ask),
                Some(outcome) = self.jobs.join_next() => self.outcome(outcome),
                Ok(()) = truths.changed() => {}
                Ok(()) = words.changed() => self.due.reports = true,
                () = tokio::time::sleep(wait) => {}
            }
            while let Some(outcome) = self.jobs.try_join_next() {
                self.outcome(outcome);
            }
            self.take_truth(&mut truths);
            self.tick();
            let now = self.now();
            if leases_at <= now && !self.keeping {
                self.keeping = true;
                leases_at = now.after(LEASES);
                self.count();
                let (sessions, in_force) = (self.parts.sessions.clone(), self.truth.head.in_force);
                self.jobs.spawn(async move {
                    sessions.keep(in_force).await;
                    Outcome::Kept
                });
            }
            if batch_at <= now && self.due.any() {
                self.batch();
                batch_at = self.now().after(self.parts.settings.batch);
            }
        }
    }

    /// For the metrics.
    fn count(&self) {
        let mut phases = BTreeMap::new();
        for running in self.running.values() {
            *phases.entry(running.machine.stands()).or_insert(0) += 1;
        }
        *self.parts.phases.lock() = phases;
    }

    fn next_wake(&self, batch_at: Mono) -> Mono {
        let due = self.due.any().then_some(batch_at);
        let machines = self.running.values().filter_map(Running::next_deadline);
        machines.chain(due).min().unwrap_or(Mono::MAX)
    }

    fn take_truth(&mut self, truths: &mut watch::Receiver<Arc<Truth>>) {
        let truth = truths.borrow_and_update().clone();
        if Arc::ptr_eq(&truth, &self.truth) {
            return;
        }
        self.needed.follow(&self.truth.in_force, &truth.in_force);
        self.tries.keep(|artifact| {
            let name = format!("{}/{}", artifact.model, artifact.version);
            truth.in_force.get(ResourceKind::Version, &name).is_some()
        });
        (self.truth, self.due.policy, self.due.claims, self.due.orders) = (truth, true, true, true);
    }

    /// Machines whose time has come.
    fn tick(&mut self) {
        let now = self.now();
        let due = |running: &Running| running.machine.next_deadline().is_some_and(|at| at <= now);
        let late: Vec<u64> = self.running.iter().filter(|(_, r)| due(r)).map(|(id, _)| *id).collect();
        for id in late {
            self.feed(id, vec![Event::Tick]);
        }
        self.due.reports |= self.running.values().any(|r| r.next_deadline().is_some_and(|at| at <= now));
    }

    /// Everything that is put off to be done once for many.
    fn batch(&mut self) {
        let due = std::mem::take(&mut self.due);
        if due.reports {
            self.fleet = self.parts.sessions.fleet();
            self.reports = Reports::of(&self.fleet);
            self.tries.follow(&self.reports);
            self.due.orders = true;
            for id in self.running.keys().copied().collect::<Vec<_>>() {
                self.tell(id);
            }
        }
        if due.claims {
            self.tell_claims();
        }
        if due.policy {
            self.follow_policy();
        }
        if due.orders || self.due.orders {
            self.due.orders = false;
            self.publish();
        }
        self.parts.bump();
    }

    /// Tells a machine what has changed for it.
    pub(super) fn tell(&mut self, id: u64) {
        let now = self.now();
        let Some(running) = self.running.get_mut(&id) else { return };
        let events = running.news(now, &self.fleet, &self.reports);
        self.due.policy |= std::mem::take(&mut running.hinted);
        if !events.is_empty() {
            self.feed(id, events);
        }
        self.abort_broken(id);
    }
}
