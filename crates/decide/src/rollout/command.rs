//! Pause, resume, abort, revert.

use holdfast_types::Revision;

use super::Rollout;
use super::effect::{Effect, Refusal};
use super::event::Command;
use super::plan::Artifact;
use super::state::{Ask, Flip, FlipState, Lane, Stage};

impl Rollout {
    pub(super) fn command(&mut self, ask: u64, command: Command, out: &mut Vec<Effect>) {
        let refusal = match command {
            Command::Pause => self.pause(),
            Command::Resume => self.unpause(),
            Command::Abort | Command::Revert { .. } if self.record.pending.is_some() => Some(Refusal::Busy),
            Command::Abort | Command::Revert { .. } if self.in_doubt() => return self.wait_for_flip(ask, command),
            Command::Abort => self.abort(),
            Command::Revert { confirmed } => self.revert(confirmed),
        };
        match refusal {
            Some(refusal) => out.push(Effect::Answer { ask, answer: Err(refusal) }),
            None => self.answer(ask, Ok(())),
        }
    }

    /// Why an abort or a revert would be refused now. None: it would be carried out, or it waits until the outcome of a flip is known, and then
    /// depends on that.
    #[must_use]
    pub fn refusal(&self, command: Command) -> Option<Refusal> {
        match command {
            Command::Pause | Command::Resume => None,
            Command::Abort | Command::Revert { .. } if self.record.pending.is_some() => Some(Refusal::Busy),
            Command::Abort | Command::Revert { .. } if self.in_doubt() => None,
            Command::Abort => self.no_abort(),
            Command::Revert { confirmed } => self.no_revert(confirmed),
        }
    }

    fn pause(&mut self) -> Option<Refusal> {
        if self.ended() {
            return Some(Refusal::Over);
        }
        if self.record.paused.is_some() {
            return Some(Refusal::Nothing);
        }
        self.record.paused = Some(self.record.age);
        self.dirty = true;
        None
    }

    /// The time of the pause counts for no deadline, but for retention.
    fn unpause(&mut self) -> Option<Refusal> {
        let Some(paused) = self.record.paused.take() else { return Some(Refusal::Nothing) };
        let age = self.record.age;
        for lane in self.record.lanes.iter_mut().filter(|l| !matches!(l.stage, Stage::Retaining | Stage::Draining)) {
            lane.since = lane.since.saturating_add(age.saturating_sub(paused.max(lane.since)));
        }
        if let Some(flip) = &mut self.record.flip {
            flip.since = flip.since.saturating_add(age.saturating_sub(paused.max(flip.since)));
        }
        for (_, at) in self.seen.asked.iter_mut().filter(|(ask, _)| matches!(ask, Ask::Warm(..))) {
            *at = age;
        }
        self.dirty = true;
        None
    }

    /// Whether a step may be in the table without this process knowing.
    fn in_doubt(&self) -> bool {
        match self.record.flip.as_ref().map(|f| f.state) {
            Some(FlipState::Reading) => true,
            Some(FlipState::Activating) => self.activation_asked(),
            _ => false,
        }
    }

    fn wait_for_flip(&mut self, ask: u64, command: Command) {
        self.record.pending = Some(command);
        self.seen.asker = Some(ask);
        self.read_again();
        self.dirty = true;
    }

    /// Carries out what waited for a flip to be resolved.
    pub(super) fn resolve_pending(&mut self) {
        let Some(command) = self.record.pending.take() else { return };
        self.dirty = true;
        let refusal = match command {
            Command::Abort => self.abort(),
            Command::Revert { confirmed } => self.revert(confirmed),
            Command::Pause | Command::Resume => None,
        };
        if let Some(ask) = self.seen.asker.take() {
            self.answer(ask, refusal.map_or(Ok(()), Err));
        }
    }

    fn no_abort(&self) -> Option<Refusal> {
        if self.ended() {
            return Some(Refusal::Over);
        }
        self.record.lanes.iter().any(|l| l.active).then(|| self.not_abortable())
    }

    fn abort(&mut self) -> Option<Refusal> {
        let refusal = self.no_abort();
        if refusal.is_some() {
            return refusal;
        }
        self.abandon_flip();
        self.abort_inactive();
        self.record.paused = None;
        None
    }

    /// How far it is, if something is in force of it.
    fn not_abortable(&self) -> Refusal {
        let lanes = || self.record.lanes.iter().filter(|lane| lane.active);
        let most = lanes().map(|lane| lane.share).max().unwrap_or(0);
        let is_canary = (1..100).contains(&most) && lanes().all(|lane| !lane.back);
        if is_canary { Refusal::Shared(most) } else { Refusal::Active }
    }

    fn abort_inactive(&mut self) {
        let age = self.record.age;
        for lane in self.record.lanes.iter_mut().filter(|l| !l.active && !l.stage.is_final()) {
            lane.enter(Stage::Aborted, age);
        }
        self.dirty = true;
    }

    fn no_revert(&self, confirmed: bool) -> Option<Refusal> {
        let lanes = &self.record.lanes;
        if !lanes.iter().any(|l| l.active) {
            return Some(if self.ended() { Refusal::Over } else { Refusal::NotActive });
        }
        let can = |l: &&Lane| l.active && !l.overtaken && l.old.is_some();
        if !lanes.iter().any(|l| can(&l)) {
            return Some(Refusal::NoTarget);
        }
        if lanes.iter().any(|l| can(&l) && l.stage == Stage::Collecting) {
            return Some(Refusal::Collecting);
        }
        // A way back that failed can be tried again.
        let goes = |l: &&Lane| can(l) && (!l.back || l.stage == Stage::Failed);
        if !lanes.iter().any(|l| goes(&l)) {
            return Some(Refusal::GoesBack);
        }
        let cold: Vec<Artifact> = lanes.iter().filter(goes).filter(|l| l.stage.is_final()).filter_map(old).collect();
        (!cold.is_empty() && !confirmed).then_some(Refusal::Cold(cold))
    }

    fn revert(&mut self, confirmed: bool) -> Option<Refusal> {
        let refusal = self.no_revert(confirmed);
        if refusal.is_some() {
            return refusal;
        }
        self.abandon_flip();
        self.go_back();
        self.abort_inactive();
        self.record.paused = None;
        None
    }

    fn go_back(&mut self) {
        let age = self.record.age;
        let mut fresh = Vec::new();
        let lanes = self.record.lanes.iter_mut().filter(|l| l.active && !l.overtaken && l.old.is_some());
        for lane in lanes.filter(|l| !l.back || l.stage == Stage::Failed) {
            lane.cold = lane.stage.is_final();
            lane.back = true;
            lane.words = None;
            lane.enter(Stage::Warming, age);
            fresh.extend(old(lane).filter(|_| lane.cold));
        }
        // What was heard before the version was let go counts for nothing.
        if !fresh.is_empty() {
            self.seen.replicas.retain(|(_, artifact), _| !fresh.contains(artifact));
            self.seen.asked.remove(&Ask::Observe);
        }
    }

    /// Drops the flip in progress, of which it is known that it is not in the table.
    pub(super) fn abandon_flip(&mut self) {
        let Some(Flip { step, base, pins, .. }) = self.record.flip.take() else { return };
        let age = self.record.age;
        for (pin, _) in pins {
            if let Some(lane) = self.record.lanes.get_mut(pin).filter(|l| l.stage == Stage::Flipping) {
                lane.enter(Stage::Warming, age);
            }
        }
        // It was read at least once, so it may have been prepared.
        if base != Revision(0) {
            self.note(Effect::Forget { proposal: super::event::Proposal { step, base } });
        }
        self.dirty = true;
    }
}

fn old(lane: &Lane) -> Option<Artifact> {
    lane.old.as_ref().map(|s| s.artifact.clone())
}
