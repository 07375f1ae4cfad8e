//! From wishes to roll-outs: what the policy says is carried out, and orders are put together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_config::ResourceKind;
use holdfast_decide::rollout::{Command, Event};
use holdfast_plane::{Orders, Pending};
use holdfast_telemetry::Clock;

use super::again;
use super::board::{Order, Waits};
use super::drive::{AGAIN, Driver};
use super::forms::{By, is_unsettled};
use super::jobs::Outcome;
use super::planning::{Places, Planned, Task};
use super::policy::{Pins, Way, is_asked, wishes};
use super::reports;
use super::running::Running;
use crate::desk::Truth;

/// Pins that are on no gateway's list, being too many to send.
const MAX_PENDING: usize = 10_000;

struct Versions<'a>(&'a Truth);

impl Pins for Versions<'_> {
    fn desired(&self, name: &str) -> Option<&str> {
        self.0.desired.get(ResourceKind::Pin, name)?.as_str()
    }

    fn in_force(&self, name: &str) -> Option<&str> {
        self.0.in_force.get(ResourceKind::Pin, name)?.as_str()
    }
}

impl Driver {
    pub(super) fn follow_policy(&mut self) {
        self.end_retentions();
        self.tell_moved();
        let truth = self.truth.clone();
        // What is desired elsewhere by now, or asked for again, is not held back any more.
        self.stuck.retain(|name, stuck| {
            let is_desired = Versions(&truth).desired(name) == Some(stuck.to.as_str());
            is_desired && !is_asked(&self.again, name, stuck.since)
        });
        self.read_again();
        self.keep_causes();
        let ways: Vec<Way<'_>> = self.running.values().map(|running| way(running, self.is_own(running))).collect();
        let mut wishes = wishes(&Versions(&truth), &truth.pending, &ways, &self.stuck, &self.again);
        drop(ways);
        self.leave_withdrawn(&mut wishes);
        for (id, pin) in wishes.forgive {
            self.running.get_mut(&id).into_iter().for_each(|running| _ = running.forgiven.insert(pin));
        }
        for id in wishes.abort {
            self.running.get_mut(&id).into_iter().for_each(|running| running.meta.replaced = true);
            self.order(id, Command::Abort, By::default());
        }
        for (id, by) in self.reverts(&wishes.revert) {
            self.running.get_mut(&id).into_iter().for_each(|running| running.meta.replaced = true);
            self.order(id, Command::Revert { confirmed: false }, by);
        }
        let revision = truth.head.revision.0;
        self.unplanned.retain(|_, (at, _)| *at == revision);
        wishes.plan.retain(|name| !self.unplanned.contains_key(name));
        wishes.waiting.extend(self.without_room());
        self.show_waiting(wishes.waiting);
        self.plan(wishes.plan);
    }

    /// Whether something that is held back was asked for again, at each new revision.
    fn read_again(&mut self) {
        let holds =
            |running: &Running| running.saved.iter().flat_map(|s| &s.pins).any(|pin| is_unsettled(pin) || pin.back);
        let holds_any = !self.stuck.is_empty() || self.running.values().any(holds);
        if !holds_any || self.again_at.is_none_or(|at| at >= self.truth.head.revision.0) {
            return;
        }
        self.again_at = None;
        self.jobs.spawn(again::requests(self.parts.store.clone(), self.term, self.truth.clone()));
    }

    pub(super) fn asked_again(&mut self, at: u64, of: BTreeMap<Arc<str>, u64>) {
        self.again_at = Some(at);
        if at == 0 {
            // It is tried again with the next truth, or when anything else happens.
            return;
        }
        self.again = of;
        self.due.policy = true;
    }

    /// Nobody waits for the answer: the policy looks again at how things are.
    pub(super) fn order(&mut self, id: u64, command: Command, by: By) {
        self.next_ask += 1;
        let Some(running) = self.running.get_mut(&id) else { return };
        let event = running.order(self.next_ask, Order { command, by, withdrawn: false });
        self.feed(id, vec![event]);
    }

    fn show_waiting(&mut self, waiting: BTreeMap<Arc<str>, String>) {
        let unplanned = self.unplanned.iter().map(|(name, (_, words))| (name.clone(), words.clone()));
        let all = waiting.into_iter().chain(unplanned);
        let words: BTreeMap<Arc<str>, String> = all.take(MAX_PENDING).collect();
        if words != self.words {
            let shown = words.iter().map(|(name, words)| Waits { pin: name.clone(), words: words.clone() });
            *self.parts.waiting.lock() = shown.collect();
            (self.words, self.due.orders) = (words, true);
        }
    }

    fn plan(&mut self, names: Vec<Arc<str>>) {
        let now = self.now();
        // Where keys hash to may have changed for those that run, too.
        let fits = |places: &Places| places.fits(&self.truth.in_force);
        let stale = !self.running.is_empty() && !self.places.as_ref().is_some_and(fits);
        if (names.is_empty() && !stale) || self.planning {
            return;
        }
        if now < self.plan_after {
            let wait = self.plan_after.since(now);
            self.planning = true;
            self.jobs.spawn(async move {
                tokio::time::sleep(wait).await;
                Outcome::Planned(Err(String::new()))
            });
            return;
        }
        self.planning = true;
        let task = Task {
            store: self.parts.store.clone(),
            frame: self.parts.desk.frame(),
            truth: self.truth.clone(),
            places: self.places.clone(),
            again: names.iter().filter_map(|name| self.again.get(name)).max().copied().unwrap_or_default(),
            names,
            defaults: self.parts.settings.options.clone(),
            term: self.term,
            now_ms: Clock::wall_millis(),
        };
        self.jobs.spawn(async move { Outcome::Planned(task.run().await.map(Box::new)) });
    }

    pub(super) fn planned(&mut self, planned: Result<Box<Planned>, String>) {
        self.planning = false;
        self.due.policy = true;
        let Planned { plans, waiting, places, revision } = match planned {
            Ok(planned) => *planned,
            Err(words) if words.is_empty() => return,
            Err(words) => {
                tracing::warn!(%words, "roll-outs could not be planned; it is tried again");
                self.plan_after = self.now().after(AGAIN);
                return;
            }
        };
        let same = |last: &Places| Arc::ptr_eq(&last.snapshot, &places.snapshot);
        let moved = !self.places.as_ref().is_some_and(same);
        self.places = Some(places);
        self.unplanned.extend(waiting.into_iter().map(|(name, words)| (name, (revision.0, words))));
        for (plan, meta) in plans {
            let id = plan.id.0;
            match Running::plan(self.now(), self.term, plan, meta) {
                Ok(mut running) => {
                    let about = running.sides().map(|side| side.artifact.clone()).collect();
                    running.tries = self.tries.of_these(&about);
                    self.running.insert(id, running);
                    self.feed(id, vec![Event::Tick]);
                }
                Err(error) => self.parts.alarm(Some(id), format!("the plan is refused: {error}")),
            }
        }
        if moved {
            self.replan();
        }
    }

    /// The replica set has changed: candidates of pins on their way anew.
    fn replan(&mut self) {
        let Some(places) = self.places.clone() else { return };
        for id in self.running.keys().copied().collect::<Vec<_>>() {
            let Some(running) = self.running.get_mut(&id) else { continue };
            let mut events = Vec::new();
            for pin in 0..running.pins.len() {
                let of = running.pins[pin].clone();
                for side in of.old.iter().chain([&of.new]) {
                    let version = &side.artifact.version;
                    let Ok(plan) = places.side(&of.tenant, &of.model, version) else { continue };
                    if plan.pool == side.artifact.pool {
                        events.extend(running.replan(pin, version, plan.order));
                    }
                }
            }
            if !events.is_empty() {
                self.feed(id, events);
                self.due.reports = true;
            }
        }
    }

    /// What gateways are asked to do, if it is not what they were asked last.
    pub(super) fn publish(&self) {
        let running = || self.running.values();
        let observe: BTreeSet<_> = running().flat_map(|r| r.sides().map(|side| &side.artifact)).collect();
        let told =
            |(name, wish): (&Arc<str>, &Pending)| Pending { words: self.words.get(name).cloned(), ..wish.clone() };
        let orders = Orders {
            wants: self.wants().into(),
            prepare: running().filter_map(|r| r.prepare.clone()).collect(),
            shadow: running().flat_map(Running::shadowing).collect(),
            measure: running().flat_map(Running::measuring).collect(),
            observe: observe.into_iter().cloned().collect(),
            live: reports::live(&self.fleet).into_iter().collect(),
            pending: self.truth.pending.iter().take(MAX_PENDING).map(told).collect(),
        };
        self.parts.orders.send_if_modified(|last| {
            let news = **last != orders;
            if news {
                *last = Arc::new(orders);
            }
            news
        });
    }
}

fn way(running: &Running, own: bool) -> Way<'_> {
    Way {
        id: running.id().0,
        names: running.pins.iter().map(|pin| &pin.name).collect(),
        pins: running.saved.as_ref().map_or(&[], |saved| &saved.pins),
        new: running.pins.iter().map(|pin| pin.new.artifact.version.as_str()).collect(),
        replaced: running.meta.replaced,
        forgiven: &running.forgiven,
        since: running.meta.desired,
        own,
    }
}
