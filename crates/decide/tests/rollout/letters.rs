//! What becomes of the letters that control planes send: each can arrive, be refused, be lost, or be carried out without an answer.

use holdfast_decide::rollout::*;
use holdfast_types::{GatewayName, ReplicaName, Revision};

use crate::sim::{GATEWAYS, Letter, Sim};
use crate::world::*;

impl Sim {
    /// A letter arrives, or is lost. `how` is 0 to 19: small numbers are bad luck.
    pub(crate) fn deliver(&mut self, pick: usize, how: u8) {
        let can = |l: &Letter| self.planes[l.plane].as_ref().is_none_or(|p| p.process != l.process || !p.cut_off);
        let open: Vec<usize> = (0..self.letters.len()).filter(|ix| can(&self.letters[*ix])).collect();
        let Some(ix) = pick.checked_rem(open.len()).map(|n| open[n]) else { return };
        let letter = self.letters.remove(ix);
        match letter.effect.clone() {
            Effect::Save { expected, saved } => self.save(&letter, expected, *saved, how),
            Effect::Activate { .. } => self.activate(&letter, how),
            Effect::ReadTable { read } if how > 0 => {
                let (revision, pins) = (Revision(self.store.revision), self.store.pins.clone());
                let table = TableView { revision, applied: self.store.applied, roster: self.store.roster, pins };
                let event = Event::Table { read, table };
                if how < 6 {
                    self.late.push((letter.plane, letter.process, event));
                } else {
                    self.answer(&letter, event);
                }
            }
            Effect::Observe => self.observe_for(&letter),
            Effect::Warm { replica, artifact } => self.warm(&letter, replica, artifact, how),
            Effect::Verify { replica, artifact } => self.verify(&letter, replica, artifact, how),
            Effect::Prepare { gateway, proposal, .. } => self.prepare(&letter, &gateway, proposal, how),
            Effect::Forget { proposal } => {
                self.views.iter_mut().filter(|v| v.prepared == Some(proposal)).for_each(|v| v.prepared = None);
                self.announce(&self.all_gateways());
            }
            Effect::Tell { gateway, revision } => {
                let ix = (0..GATEWAYS).find(|ix| g(*ix) == gateway).expect("known");
                if revision.0 > self.store.revision {
                    self.breaks(format!("{gateway} is told of {revision}, which is not there"));
                }
                self.follow(ix);
            }
            Effect::Shadow { pin, share } => self.shadow(&letter, pin, share, how),
            Effect::Collect { artifact, version, .. } if how > 0 => self.collect(&letter, artifact, version, how),
            _ => {}
        }
    }

    /// An answer arrives that was given earlier.
    pub(crate) fn late(&mut self, pick: usize) {
        let Some(ix) = pick.checked_rem(self.late.len()) else { return };
        let (plane, process, event) = self.late.remove(ix);
        if self.planes[plane].as_ref().is_some_and(|p| p.process == process) {
            self.tell(plane, event);
        }
    }

    fn observe_for(&mut self, letter: &Letter) {
        if self.planes[letter.plane].as_ref().is_some_and(|p| p.process == letter.process) {
            self.observe(letter.plane);
        }
    }

    fn fenced(&mut self, letter: &Letter) -> bool {
        letter.term < self.store.term
    }

    fn save(&mut self, letter: &Letter, expected: u64, saved: Saved, how: u8) {
        let version = saved.version;
        if how == 0 {
            return self.answer(letter, Event::SaveFailed { version });
        }
        let current = self.store.record.as_ref().map_or(0, |s| s.version);
        if current != expected || self.fenced(letter) {
            return self.answer(letter, Event::SaveConflict { version });
        }
        self.store.term = letter.term;
        self.store.record = Some(saved);
        self.answer(letter, if how == 1 { Event::SaveFailed { version } } else { Event::Saved { version } });
    }

    fn activate(&mut self, letter: &Letter, how: u8) {
        let Effect::Activate { step, expected, roster, version, flips, .. } = letter.effect.clone() else { return };
        if how == 0 {
            return;
        }
        let refuse = |why| Event::ActivateRefused { step, version, why };
        if how == 2 {
            return self.answer(letter, refuse(ActivateRefusal::Invalid("no such tenant".to_owned())));
        }
        let current = self.store.record.as_ref().map_or(0, |s| s.version);
        if self.fenced(letter) || current != version {
            return self.answer(letter, refuse(ActivateRefusal::Fenced));
        }
        if expected.0 != self.store.revision || roster != self.store.roster {
            return self.answer(letter, refuse(ActivateRefusal::Conflict));
        }
        self.store.revision += 1;
        let revision = Revision(self.store.revision);
        self.store.applied = Some((step, revision));
        *self.store.effects.entry(step).or_default() += 1;
        self.check_flip(step, expected, &flips);
        for flip in flips {
            self.store.pins[flip.pin] = match flip.share {
                0 => PinView { version: flip.old, split: None },
                100 => PinView { version: Some(flip.new), split: None },
                share => PinView { version: flip.old, split: Some((flip.new, share)) },
            };
        }
        self.announce(&Event::Claims(self.claims()));
        if how != 1 {
            self.answer(letter, Event::Activated { step, revision });
        }
    }

    /// By the world's own account: once, prepared everywhere, nothing that was not to move.
    fn check_flip(&mut self, step: u32, expected: Revision, flips: &[PinFlip]) {
        let proposal = Some(Proposal { step, base: expected });
        let unprepared = self.views.iter().find(|v| v.leased && v.prepared != proposal).map(|v| v.name.clone());
        let pins = self.store.record.iter().flat_map(|s| &s.pins).map(|p| p.stage == Stage::Flipping.as_str());
        let moving: Vec<bool> = pins.collect();
        if self.store.effects[&step] != 1 {
            self.breaks(format!("step {step} took effect twice"));
        }
        if let Some(name) = unprepared {
            self.breaks(format!("step {step} is in force, {name} has not prepared"));
        }
        if flips.iter().any(|f| !moving[f.pin] || self.store.moved.contains(&f.pin)) {
            self.breaks(format!("step {step} moves a pin that was not to move"));
        }
    }

    fn warm(&mut self, letter: &Letter, replica: ReplicaName, artifact: Artifact, how: u8) {
        if !self.is_up(&replica) || how == 0 {
            return;
        }
        let pair = (replica.clone(), artifact.clone());
        let report = match (self.held.get(&pair), how) {
            (Some(true), _) => Report::Proven,
            (Some(false), _) => Report::Loaded,
            (None, 1) => Report::Failed { words: "the file is broken".to_owned(), permanent: true },
            (None, 2 | 3) => Report::Failed { words: "out of memory".to_owned(), permanent: false },
            (None, how) => {
                self.held.insert(pair, how.is_multiple_of(2));
                if how.is_multiple_of(2) { Report::Proven } else { Report::Loaded }
            }
        };
        self.report_all(letter, replica, artifact, report);
    }

    fn verify(&mut self, letter: &Letter, replica: ReplicaName, artifact: Artifact, how: u8) {
        let pair = (replica.clone(), artifact.clone());
        if how == 0 || !self.held.contains_key(&pair) {
            return;
        }
        let report = if how == 1 {
            self.held.remove(&pair);
            Report::Wrong { words: "golden input 3 got another answer".to_owned() }
        } else {
            self.held.insert(pair, true);
            Report::Proven
        };
        self.report_all(letter, replica, artifact, report);
    }

    /// What a replica says is heard by who asked, and by whoever listens.
    fn report_all(&mut self, letter: &Letter, replica: ReplicaName, artifact: Artifact, report: Report) {
        let event = Event::Replica { replica, artifact, report };
        for plane in 0..2 {
            let asked = self.planes[plane].as_ref().is_some_and(|p| p.process == letter.process);
            if asked || self.reachable(plane) {
                self.tell(plane, event.clone());
            }
        }
    }

    fn prepare(&mut self, letter: &Letter, gateway: &GatewayName, proposal: Proposal, how: u8) {
        let ix = (0..GATEWAYS).find(|ix| g(*ix) == *gateway).expect("known");
        let view = &mut self.views[ix];
        if how == 0 || !view.leased || view.in_force > proposal.base || letter.term < self.store.term {
            return;
        }
        if how == 1 {
            let words = "no room for two routes".to_owned();
            return self.answer(letter, Event::PrepareFailed { gateway: gateway.clone(), proposal, words });
        }
        view.in_force = proposal.base;
        view.prepared = Some(proposal);
        self.announce(&self.all_gateways());
    }

    fn shadow(&mut self, letter: &Letter, pin: usize, share: u16, how: u8) {
        let seen = self.shadowed.entry(pin).or_default();
        if share == 0 {
            *seen = (0, 0);
            return;
        }
        seen.0 += 60;
        seen.1 += u64::from(how < 2) * 10;
        let (compared, differed) = *seen;
        self.answer(letter, Event::Shadowed { pin, compared, differed });
    }

    /// Copies go on being compared.
    pub(crate) fn compare(&mut self) {
        for pin in 0..self.plan.pins.len() {
            let seen = self.shadowed.entry(pin).or_default();
            seen.0 += 60;
            let (compared, differed) = *seen;
            self.announce(&Event::Shadowed { pin, compared, differed });
        }
    }

    fn collect(&mut self, letter: &Letter, artifact: Artifact, version: u64, how: u8) {
        let current = self.store.record.as_ref().map_or(0, |s| s.version);
        let claims = self.claims();
        let claimed = claims.pinned.contains(&artifact) || claims.targets.contains(&artifact);
        if how == 1 || current != version || claimed {
            let words = "not now".to_owned();
            return self.answer(letter, Event::CollectFailed { artifact, words });
        }
        self.held.retain(|(_, a), _| *a != artifact);
        self.store.removed.push(artifact.clone());
        self.answer(letter, Event::Collected { artifact });
    }
}
