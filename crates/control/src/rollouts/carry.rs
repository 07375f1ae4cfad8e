//! What machines want done, and what becomes of it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use holdfast_decide::rollout::{Artifact, Claims, Effect, Event, Phase};
use holdfast_telemetry::Clock;

use super::drive::{AGAIN, Driver};
use super::forms::is_unsettled;
use super::jobs::{self, Outcome};
use super::policy;
use super::records::{self, SaveOutcome};
use super::running::Running;

impl Driver {
    /// Gives events to a machine and carries out what follows.
    pub(super) fn feed(&mut self, id: u64, events: Vec<Event>) {
        let mut queue = events;
        while !queue.is_empty() {
            let now = self.now();
            let Some(running) = self.running.get_mut(&id) else { return };
            let mut out = Vec::new();
            running.machine.apply_all(now, std::mem::take(&mut queue), &mut out);
            for effect in out {
                self.carry_out(id, effect, &mut queue);
            }
        }
        self.end(id);
    }

    fn carry_out(&mut self, id: u64, effect: Effect, queue: &mut Vec<Event>) {
        let now = self.now();
        let Some(running) = self.running.get_mut(&id) else { return };
        match effect {
            Effect::Save { saved, .. } => {
                (running.saved, running.saving) = (Some(saved.clone()), true);
                let (store, versions, meta) =
                    (self.parts.store.clone(), running.versions.clone(), running.meta.clone());
                self.jobs.spawn(jobs::save(store, versions, saved, meta));
            }
            Effect::Superseded => {
                self.running.remove(&id);
                self.fenced = true;
                self.later(id);
            }
            Effect::Observe => {
                running.observe();
                queue.extend(running.news(now, &self.fleet, &self.reports));
                queue.extend(self.claims(id).map(Event::Claims));
            }
            Effect::Warm { replica, artifact } => running.warm(now, (replica, artifact)),
            Effect::Release { replica, artifact } => _ = running.wants.remove(&(replica, artifact)),
            // A gateway proves whatever it finds loaded, and publishing follows every new truth.
            Effect::Verify { .. } | Effect::Tell { .. } => return,
            Effect::Shadow { pin, share: 0 } => _ = running.shadow.remove(&pin),
            Effect::Shadow { pin, share } => _ = running.shadow.insert(pin, share),
            Effect::ReadTable { read } => return self.read(id, read),
            Effect::Prepare { proposal, flips, .. } => running.prepare(proposal, &flips),
            Effect::Forget { proposal } => running.forget(proposal),
            Effect::Activate { .. } => return self.activate(id, effect),
            Effect::Collect { artifact, .. } => return self.collect(id, artifact, queue),
            Effect::Answer { ask, answer } => return running.answered(ask, answer),
            Effect::Alarm(alarm) => {
                let words = super::words::alarm(&alarm, &running.machine.progress().pins);
                return self.parts.alarm(Some(id), words);
            }
        }
        self.due.orders = true;
    }

    fn read(&mut self, id: u64, read: u64) {
        let Some(running) = self.running.get(&id) else { return };
        let pins = running.pins.iter().map(|pin| pin.name.clone()).collect();
        let (desk, sessions) = (self.parts.desk.clone(), self.parts.sessions.clone());
        self.jobs.spawn(async move {
            // Without an answer the machine asks again.
            jobs::read(desk, sessions, id, read, pins).await.unwrap_or_else(|words| {
                tracing::warn!(rollout = id, %words, "the table was not read");
                Outcome::Nothing
            })
        });
    }

    fn activate(&mut self, id: u64, effect: Effect) {
        let Effect::Activate { roster, .. } = &effect else { return };
        let Some(running) = self.running.get(&id) else { return };
        // Without the roster as it was counted the answer is that of a roster that has changed.
        let (Some(Ok(roster)), Some(saved)) = (self.parts.sessions.roster(*roster), running.saved.clone()) else {
            return self.refuse(id, &effect);
        };
        let with = jobs::Activate {
            meta: running.meta.clone(),
            saved,
            head: running.versions.head,
            step: running.step,
            roster,
            at_ms: Clock::wall_millis(),
        };
        self.jobs.spawn(jobs::activate(self.parts.desk.clone(), effect, with));
    }

    fn refuse(&mut self, id: u64, effect: &Effect) {
        let Effect::Activate { step, version, .. } = effect else { return };
        let why = holdfast_decide::rollout::ActivateRefusal::Conflict;
        let event = Some(Event::ActivateRefused { step: *step, version: *version, why });
        self.jobs.spawn(async move { Outcome::Activated { id, event, done: None } });
    }

    /// Nobody wants it any more: the gateways were told to let go of it. What is not desired has left the table with the flip.
    fn collect(&mut self, id: u64, artifact: Artifact, queue: &mut Vec<Event>) {
        let Some(claims) = self.claims(id) else { return };
        if claims.pinned.contains(&artifact) || claims.targets.contains(&artifact) {
            queue.push(Event::Claims(claims));
        } else {
            queue.push(Event::Collected { artifact });
        }
    }

    /// What the rest of the world needs, of what a roll-out is about. `None`: there is no such roll-out.
    fn claims(&mut self, id: u64) -> Option<Claims> {
        let own = self.running.get(&id)?;
        let about: BTreeSet<&Artifact> = own.sides().map(|side| &side.artifact).collect();
        let mut claims = Claims { pinned: self.needed.of_these(about.iter().copied()), targets: BTreeSet::new() };
        for other in self.running.values().filter(|other| other.id() != own.id()) {
            let Claims { pinned, targets } = other.machine.claims();
            claims.pinned.extend(pinned.into_iter().filter(|a| about.contains(a)));
            claims.targets.extend(targets.into_iter().filter(|a| about.contains(a)));
        }
        self.running.get_mut(&id)?.told_claims = Some(claims.clone());
        Some(claims)
    }

    /// Tells those who wait for it what has changed in what others need.
    pub(super) fn tell_claims(&mut self) {
        let waiting: Vec<u64> = self.running.iter().filter(|(_, r)| r.collects()).map(|(id, _)| *id).collect();
        for id in waiting {
            let told = self.running.get(&id).and_then(|r| r.told_claims.clone());
            let claims = self.claims(id);
            if let Some(claims) = claims.filter(|claims| told.as_ref() != Some(claims)) {
                self.feed(id, vec![Event::Claims(claims)]);
            }
        }
    }

    pub(super) fn outcome(&mut self, outcome: Result<Outcome, tokio::task::JoinError>) {
        match outcome {
            Ok(Outcome::Saved { id, version, outcome }) => self.saved(id, version, outcome),
            Ok(Outcome::Table { id, event, step }) => {
                if let Some(running) = self.running.get_mut(&id) {
                    running.step = step;
                }
                self.feed(id, vec![event]);
            }
            Ok(Outcome::Activated { id, event, done }) => self.activated(id, event, done),
            Ok(Outcome::Planned(planned)) => self.planned(planned),
            Ok(Outcome::Loaded { id, stored, ask }) => self.loaded(id, stored, ask),
            Ok(Outcome::Again { at, of }) => self.asked_again(at, of),
            Ok(Outcome::Causes(of)) => self.caused(of),
            Ok(Outcome::Withdrawn { id, order, reply, done }) => self.withdrawn(id, order, reply, done),
            Ok(Outcome::Kept) => self.keeping = false,
            Ok(Outcome::Nothing) => {}
            Err(error) => tracing::error!(%error, "a job of the roll-outs' driver has died"),
        }
    }

    fn saved(&mut self, id: u64, version: u64, outcome: SaveOutcome) {
        let Some(running) = self.running.get_mut(&id) else { return };
        running.saving = false;
        let event = match outcome {
            SaveOutcome::Saved(versions) => {
                running.versions = versions;
                Event::Saved { version }
            }
            SaveOutcome::Conflict => Event::SaveConflict { version },
            SaveOutcome::Failed(words) => {
                tracing::warn!(rollout = id, %words, "a roll-out was not saved; it is tried again");
                Event::SaveFailed { version }
            }
        };
        (self.due.policy, self.due.claims) = (true, true);
        self.feed(id, vec![event]);
        self.running.get_mut(&id).into_iter().for_each(Running::hold_what_is_left);
    }

    fn activated(&mut self, id: u64, event: Option<Event>, done: Option<jobs::Written>) {
        let Some(running) = self.running.get_mut(&id) else { return };
        if let Some(done) = done {
            running.versions.head = Some(done.head);
            running.step = Some(done.step);
            self.parts.sessions.rewritten(done.granted, done.roster);
        }
        if matches!(event, Some(Event::Activated { .. })) {
            running.prepare = None;
        }
        (self.due.policy, self.due.claims, self.due.orders) = (true, true, true);
        self.feed(id, event.into_iter().collect());
    }

    /// Takes a roll-out that is over out of hand.
    fn end(&mut self, id: u64) {
        if !self.running.get(&id).is_some_and(|running| running.machine.is_over()) {
            return;
        }
        let Some(running) = self.running.remove(&id) else { return };
        if running.machine.stands() == Phase::Failed {
            self.parts.failed.fetch_add(1, Ordering::Relaxed);
        }
        self.settle(&running);
        self.finished.insert(id);
        (self.due.policy, self.due.claims, self.due.orders) = (true, true, true);
        while self.finished.len() > self.parts.settings.keep {
            // What is told of a pin that waits, and whether it is tried again, is in the record.
            let told = |id: &&u64| self.stuck.values().any(|stuck| stuck.rollout == **id);
            let Some(id) = self.finished.iter().find(|id| !told(id)).copied() else { return };
            self.finished.remove(&id);
            let (store, term) = (self.parts.store.clone(), self.term);
            self.jobs.spawn(async move {
                if let Err(error) = records::forget(&*store, term, holdfast_decide::rollout::RolloutId(id)).await {
                    tracing::warn!(rollout = id, %error, "an old roll-out was not forgotten");
                }
                Outcome::Nothing
            });
        }
    }

    /// Notes which pins are not where they were to go.
    fn settle(&mut self, running: &Running) {
        let pins = running.saved.iter().flat_map(|saved| &saved.pins);
        for (ix, (pin, of)) in pins.zip(&running.pins).enumerate() {
            let held = is_unsettled(pin) && !running.meta.replaced && !running.forgiven.contains(&ix);
            match held {
                true => {
                    _ = self.stuck.insert(of.name.clone(), policy::stuck(running.id().0, running.meta.desired, pin));
                }
                false => _ = self.stuck.remove(&of.name),
            }
        }
    }

    /// Looks again later what has become of a roll-out that somebody else has saved.
    fn later(&mut self, id: u64) {
        let store = self.parts.store.clone();
        self.jobs.spawn(async move {
            tokio::time::sleep(AGAIN).await;
            Outcome::Loaded { id, stored: records::load(&*store, id).await.map(|s| s.map(Box::new)), ask: None }
        });
    }
}
