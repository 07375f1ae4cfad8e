//! Who needs a version: what this roll-out tells others, and when it may have one removed.

use std::collections::BTreeSet;

use super::Rollout;
use super::event::Claims;
use super::plan::Artifact;
use super::state::Stage;

impl Rollout {
    /// What others may not remove on account of this roll-out: what it is to pin, and its rollback targets while they are retained.
    #[must_use]
    pub fn claims(&self) -> Claims {
        let mut claims = Claims::default();
        for lane in self.record.lanes.iter().filter(|l| !l.stage.is_final()) {
            claims.pinned.insert(lane.target().artifact.clone());
            let off = lane.off().filter(|_| lane.stage != Stage::Collecting);
            claims.targets.extend(off.map(|s| s.artifact.clone()));
        }
        claims
    }

    /// Ends a pin whose old version a pin in force needs: whoever moves that pin away removes it.
    pub(super) fn collect(&mut self, pin: usize) -> bool {
        let Some(artifact) = self.record.lanes[pin].off().map(|s| s.artifact.clone()) else { return false };
        let kept = self.seen.claims.as_ref().is_some_and(|c| c.pinned.contains(&artifact));
        if kept && self.record.paused.is_none() {
            self.done(pin);
        }
        kept && self.record.paused.is_none()
    }

    /// The versions that may be removed now.
    pub(super) fn collectable(&self) -> BTreeSet<Artifact> {
        let lanes = || self.record.lanes.iter().filter(|l| l.stage == Stage::Collecting);
        let Some(others) = self.seen.claims.as_ref().filter(|_| self.record.paused.is_none()) else {
            return BTreeSet::new();
        };
        if lanes().next().is_none() {
            return BTreeSet::new();
        }
        let own = self.claims();
        let mut free: BTreeSet<Artifact> = lanes().filter_map(|l| l.off()).map(|s| s.artifact.clone()).collect();
        free.retain(|a| [others, &own].into_iter().all(|c| !c.pinned.contains(a) && !c.targets.contains(a)));
        // A gateway may have come back with requests of an old table.
        for lane in lanes().filter(|l| !self.seen.drained(l.flipped)) {
            free.retain(|a| lane.off().is_none_or(|s| s.artifact != *a));
        }
        free
    }

    pub(super) fn collected(&mut self, artifact: &Artifact) {
        for pin in 0..self.record.lanes.len() {
            let lane = &self.record.lanes[pin];
            if lane.stage == Stage::Collecting && lane.off().is_some_and(|s| s.artifact == *artifact) {
                self.done(pin);
            }
        }
    }

    fn done(&mut self, pin: usize) {
        let age = self.record.age;
        if let Some(lane) = self.record.lanes.get_mut(pin) {
            lane.enter(Stage::Done, age);
            self.dirty = true;
        }
    }
}
