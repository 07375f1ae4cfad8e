//! Takes events in: what is seen goes into [`Seen`](super::state::Seen), what is decided into the record.

use holdfast_types::{ReplicaName, Version};

use super::Rollout;
use super::effect::{Alarm, Effect};
use super::event::{ActivateRefusal, Event, GatewayView, Report};
use super::plan::{Artifact, usable};
use super::state::{Ask, FlipState, cut};

impl Rollout {
    pub(super) fn take_in(&mut self, event: Event, out: &mut Vec<Effect>) {
        match event {
            Event::Tick => {}
            Event::Saved { version } => self.saved(version),
            Event::SaveConflict { version } => self.conflict(version, out),
            Event::SaveFailed { version } => self.save_failed(version),
            Event::Gateways { roster, all } => {
                self.seen.gateways = Some(all.into_iter().map(|v| (v.name.clone(), v)).collect());
                self.seen.roster = self.seen.roster.max(roster);
            }
            Event::Gateway { roster, view } => self.gateway(roster, view),
            Event::Replica { replica, artifact, report } => self.replica(replica, artifact, report),
            Event::Table { read, table } => self.table(read, &table),
            Event::InForce { revision, pins } => self.in_force(revision, &pins),
            Event::Activated { step, revision } => self.activated(step, revision),
            Event::ActivateRefused { step, version, why } => self.activate_refused(step, version, why),
            Event::PrepareFailed { gateway, proposal, words } => self.prepare_failed(&gateway, proposal, &words),
            Event::Shadowed { pin, compared, differed } => {
                if pin < self.record.lanes.len() {
                    let seen = self.seen.shadow.entry(pin).or_default();
                    *seen = (seen.0.max(compared), seen.1.max(differed));
                }
            }
            Event::Judged { pin, step, hold } => {
                if pin < self.record.lanes.len() {
                    self.seen.judged.insert(pin, (step, hold.map(cut)));
                }
            }
            Event::Claims(claims) => self.seen.claims = Some(claims),
            Event::Collected { artifact } => self.collected(&artifact),
            Event::CollectFailed { artifact, words } => {
                self.alarm(Alarm::NotCollected { artifact, words: cut(words) });
            }
            Event::Replan { pin, version, order } => self.replan(pin, &version, order),
            Event::Command { ask, command } => self.command(ask, command, out),
        }
    }

    fn saved(&mut self, version: u64) {
        if self.saving == Some(version) {
            self.saving = None;
            self.record.version = version;
        }
    }

    /// Somebody else writes, or an answer was lost and it was this process itself. Either way the store is the truth.
    fn conflict(&mut self, version: u64, out: &mut Vec<Effect>) {
        if self.saving == Some(version) {
            self.halted = true;
            out.push(Effect::Superseded);
        }
    }

    fn save_failed(&mut self, version: u64) {
        if self.saving == Some(version) {
            self.saving = None;
            self.dirty = true;
            self.save_after = self.record.age.saturating_add(self.record.options.retry);
        }
    }

    /// A view before all gateways are known says nothing of the others; the full list follows.
    fn gateway(&mut self, roster: u64, view: GatewayView) {
        if let Some(gateways) = &mut self.seen.gateways {
            self.seen.roster = self.seen.roster.max(roster);
            gateways.insert(view.name.clone(), view);
        }
    }

    fn replica(&mut self, replica: ReplicaName, artifact: Artifact, report: Report) {
        let known = |s: &super::state::Side| s.artifact == artifact && s.order.contains(&replica);
        let concerns = self.record.lanes.iter().any(|l| l.sides().any(known));
        if !concerns {
            return;
        }
        let lost = matches!(report, Report::Lost);
        let mut moved = false;
        for side in self.record.lanes.iter_mut().flat_map(|l| l.sides_mut()).filter(|s| known(s)) {
            moved |= if lost { side.lost.insert(replica.clone()) } else { side.lost.remove(&replica) };
        }
        self.dirty |= moved;
        self.hold(replica, artifact, report);
    }

    fn hold(&mut self, replica: ReplicaName, artifact: Artifact, report: Report) {
        let pair = (replica, artifact);
        if !matches!(report, Report::Loaded | Report::Proven) {
            self.seen.asked.remove(&Ask::Warm(pair.0.clone(), pair.1.clone()));
        }
        let holding = self.seen.replicas.entry(pair.clone()).or_default();
        (holding.loaded, holding.proven) = (false, false);
        match report {
            Report::Absent | Report::Lost => {}
            Report::Loaded => holding.loaded = true,
            Report::Proven => {
                *holding = super::state::Holding { loaded: true, proven: true, ..Default::default() };
            }
            Report::Failed { words, permanent } => self.load_failed(&pair.0, &pair.1, words, permanent),
            Report::Wrong { words } => self.load_failed(&pair.0, &pair.1, words, true),
        }
    }

    /// Counts a failed try. Where the version is in force already, or is the way back, a person is told; it is tried again for ever.
    pub(super) fn load_failed(&mut self, replica: &ReplicaName, artifact: &Artifact, words: String, permanent: bool) {
        let words = cut(words);
        let (age, options) = (self.record.age, &self.record.options);
        let holding = self.seen.replicas.entry((replica.clone(), artifact.clone())).or_default();
        holding.tries = holding.tries.saturating_add(1);
        holding.fatal |= permanent || holding.tries >= options.tries;
        holding.retry_at = age.saturating_add(options.retry);
        holding.words = Some(words.clone());
        self.seen.asked.remove(&Ask::Warm(replica.clone(), artifact.clone()));
        let kept = self.record.lanes.iter().filter(|l| !l.can_fail()).flat_map(|l| l.wanted());
        if kept.into_iter().any(|s| s.artifact == *artifact && s.targets().any(|r| r == replica)) {
            self.alarm(Alarm::NotHeld { replica: replica.clone(), artifact: artifact.clone(), words });
        }
    }

    /// New candidates; who was lost is no longer known to be.
    fn replan(&mut self, pin: usize, version: &Version, order: Vec<ReplicaName>) {
        if !usable(&order) {
            return;
        }
        let sides = self.record.lanes.get_mut(pin).into_iter().flat_map(|l| l.sides_mut());
        for side in sides.filter(|s| s.artifact.version == *version && s.order != order) {
            side.lost.retain(|r| order.contains(r));
            side.order.clone_from(&order);
            self.dirty = true;
        }
        self.forget_strangers();
    }

    /// Holdings of replicas that are no candidates any more.
    fn forget_strangers(&mut self) {
        let lanes = &self.record.lanes;
        let known = |r: &ReplicaName, a: &Artifact| {
            lanes.iter().flat_map(|l| l.sides()).any(|s| s.artifact == *a && s.order.contains(r))
        };
        self.seen.replicas.retain(|(r, a), _| known(r, a));
    }

    fn activate_refused(&mut self, step: u32, version: u64, why: ActivateRefusal) {
        let asked = self.seen.asked.contains_key(&Ask::Activate(step, version));
        let current = self.record.flip.as_ref().is_some_and(|f| f.step == step && f.state == FlipState::Activating);
        if !asked || !current {
            return;
        }
        match why {
            ActivateRefusal::Conflict | ActivateRefusal::Fenced => self.read_again(),
            ActivateRefusal::Invalid(words) => self.activation_invalid(cut(words)),
        }
    }
}
