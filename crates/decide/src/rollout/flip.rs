//! The one flip in progress: read the table, have the gateways prepare, activate by compare-and-set.

use holdfast_types::{GatewayName, Revision};

use super::Rollout;
use super::effect::{Alarm, PinFlip};
use super::event::{PinView, Proposal, TableView};
use super::state::{Ask, Flip, FlipState, Lane, Stage, at, cut, same};

impl Rollout {
    /// Starts a flip of every pin that is ready; of an atomic change, when all are.
    pub(super) fn begin_flip(&mut self) -> bool {
        let idle = self.record.flip.is_none() && self.record.paused.is_none() && self.record.pending.is_none();
        if !idle || self.record.age < self.seen.flip_after {
            return false;
        }
        let lanes = &self.record.lanes;
        let behind = |l: &Lane| matches!(l.stage, Stage::Warming | Stage::Shadowing | Stage::Canary);
        if self.record.options.atomic && lanes.iter().any(behind) {
            return false;
        }
        let ready = lanes.iter().enumerate().filter(|(_, l)| l.stage == Stage::Ready);
        let pins: Vec<(usize, u8)> = ready.map(|(ix, l)| (ix, self.next_share(l))).collect();
        if pins.is_empty() {
            return false;
        }
        let (age, step) = (self.record.age, self.record.next_step);
        for (pin, _) in &pins {
            self.record.lanes[*pin].enter(Stage::Flipping, age);
        }
        self.record.next_step = step.saturating_add(1);
        self.record.flip = Some(Flip { step, state: FlipState::Reading, base: Revision(0), pins, since: age });
        self.dirty = true;
        true
    }

    fn next_share(&self, lane: &Lane) -> u8 {
        if lane.back { 0 } else { self.record.options.canary.get(lane.canary).map_or(100, |s| s.percent) }
    }

    /// Moves the flip on as far as it goes. True: something changed.
    pub(super) fn advance_flip(&mut self) -> bool {
        let Some(flip) = &self.record.flip else { return false };
        match flip.state {
            FlipState::Reading => false,
            FlipState::Preparing => self.prepared(),
            FlipState::Activating => self.activating(),
        }
    }

    fn prepared(&mut self) -> bool {
        let Some(flip) = &self.record.flip else { return false };
        let proposal = Proposal { step: flip.step, base: flip.base };
        if !self.flip_is_proven() {
            self.abandon_flip();
            return true;
        }
        if self.seen.live().any(|g| g.in_force > proposal.base) {
            self.read_again();
            return true;
        }
        if self.record.paused.is_some() {
            return false;
        }
        if self.flip_is_prepared() {
            self.set_flip(FlipState::Activating);
            return true;
        }
        if self.late(flip.since, self.record.options.prepare) {
            let silent = self.seen.live().find(|g| g.prepared != Some(proposal)).map(|g| g.name.clone());
            let words = silent.map_or_else(
                || "no gateway is live to prepare the flip".to_owned(),
                |name| format!("gateway {name} has not prepared in time"),
            );
            return self.flip_fails(&words);
        }
        false
    }

    /// Until the store was asked, the decision can be taken back: what was never asked cannot happen.
    fn activating(&mut self) -> bool {
        let Some(flip) = &self.record.flip else { return false };
        let step = flip.step;
        let asked = self.seen.asked.iter().find(|(ask, _)| matches!(ask, Ask::Activate(s, _) if *s == step));
        match asked {
            None if self.record.paused.is_some() || !self.flip_is_proven() || !self.flip_is_prepared() => {
                self.set_flip(FlipState::Preparing);
                true
            }
            None => false,
            Some((Ask::Activate(_, version), asked_at)) => {
                // A later save has voided it, or its answer was lost.
                let silent = self.record.age >= asked_at.saturating_add(self.record.options.retry);
                if *version != self.record.version || silent {
                    self.read_again();
                    return true;
                }
                false
            }
            Some(_) => false,
        }
    }

    pub(super) fn activation_asked(&self) -> bool {
        let activating = |f: &Flip| f.state == FlipState::Activating;
        self.record.flip.as_ref().is_some_and(activating)
            && self.seen.asked.keys().any(|ask| matches!(ask, Ask::Activate(..)))
    }

    fn flip_is_proven(&self) -> bool {
        let pins = self.record.flip.iter().flat_map(|f| &f.pins);
        pins.into_iter().filter_map(|(pin, _)| self.record.lanes.get(*pin)).all(|l| self.seen.all_proven(l.target()))
    }

    fn flip_is_prepared(&self) -> bool {
        let proposal = self.record.flip.as_ref().map(|f| Proposal { step: f.step, base: f.base });
        // A gateway that was given a lease since, and is not seen yet, is waited for as well.
        self.seen.roster >= self.seen.read_roster
            && self.seen.all_live(|g| g.prepared == proposal && proposal.is_some_and(|p| g.in_force <= p.base))
    }

    fn set_flip(&mut self, state: FlipState) {
        if let Some(flip) = &mut self.record.flip {
            flip.state = state;
            self.dirty = true;
        }
    }

    /// What the table says after the next save is final.
    pub(super) fn read_again(&mut self) {
        if self.record.flip.as_ref().is_some_and(|f| f.state != FlipState::Reading) {
            self.set_flip(FlipState::Reading);
        }
    }

    /// The answer to a read of the table that was begun after the record was saved as `Reading`.
    pub(super) fn table(&mut self, read: u64, table: &TableView) {
        let Some(flip) = &self.record.flip else { return };
        let step = flip.step;
        let asked = self.seen.asked.contains_key(&Ask::Read(step)) && read >= self.seen.read_from;
        if flip.state != FlipState::Reading || !asked {
            return;
        }
        self.seen.asked.remove(&Ask::Read(step));
        match table.applied {
            Some((applied, revision)) if applied == step => self.activated(step, revision),
            _ => self.not_activated(table),
        }
    }

    /// The step is not in the table and no activation of it is under way.
    fn not_activated(&mut self, table: &TableView) {
        if self.record.pending.is_some() {
            self.resolve_pending();
        }
        let Some(flip) = &mut self.record.flip else { return };
        flip.base = table.revision;
        self.seen.read_roster = table.roster;
        flip.state = FlipState::Preparing;
        self.dirty = true;
        let pins: Vec<usize> = flip.pins.iter().map(|(pin, _)| *pin).collect();
        let lanes = &self.record.lanes;
        let moved: Vec<usize> = pins.into_iter().filter(|p| !same(table.pins.get(*p), &lanes[*p].expected())).collect();
        for pin in moved {
            self.overtake(pin, table.revision, table.pins.get(pin));
        }
    }

    /// Pins that another change has moved since their last step. Of a pin that is in no flip no activation is under way, so no read has to be
    /// waited for; and what nothing has flipped of is left to be aborted.
    pub(super) fn in_force(&mut self, revision: Revision, pins: &[PinView]) {
        let lanes = &self.record.lanes;
        let latest = lanes.iter().filter(|l| l.active).map(|l| l.flipped).max();
        if latest.is_none_or(|latest| revision < latest) {
            return;
        }
        let is_moved = |pin: &usize| {
            let lane = &lanes[*pin];
            let rests = matches!(lane.stage, Stage::Warming | Stage::Shadowing | Stage::Ready | Stage::Canary);
            rests && !self.flips_pin(*pin) && !same(pins.get(*pin), &lane.expected())
        };
        let moved: Vec<usize> = (0..lanes.len()).filter(is_moved).collect();
        for pin in moved {
            self.overtake(pin, revision, pins.get(pin));
        }
    }

    /// Whether the pin is part of the flip in progress.
    pub(super) fn flips_pin(&self, pin: usize) -> bool {
        self.record.flip.as_ref().is_some_and(|f| f.pins.iter().any(|(p, _)| *p == pin))
    }

    /// Another change has moved the pin. What has not flipped fails; what has goes on to let go of the versions it held.
    fn overtake(&mut self, pin: usize, revision: Revision, view: Option<&PinView>) {
        if self.record.lanes[pin].stage.is_final() {
            return;
        }
        let words = match view.is_some_and(|pin| pin.version.is_some()) {
            true => format!("another change has moved the pin to {}", at(view)),
            false => "another change has taken the pin away".to_owned(),
        };
        if !self.record.lanes[pin].active {
            self.fail(pin, words);
            return;
        }
        if self.flips_pin(pin) {
            self.abandon_flip();
        }
        let age = self.record.age;
        let lane = &mut self.record.lanes[pin];
        lane.overtaken = true;
        lane.flipped = revision;
        lane.words = Some(words);
        lane.enter(Stage::Draining, age);
        self.dirty = true;
        self.alarm(Alarm::Overtaken { pin });
    }

    /// The step is in the table.
    pub(super) fn activated(&mut self, step: u32, revision: Revision) {
        let resolves = |f: &Flip| f.step == step && f.state != FlipState::Preparing;
        if !self.record.flip.as_ref().is_some_and(resolves) {
            return;
        }
        let Some(flip) = self.record.flip.take() else { return };
        let age = self.record.age;
        for (pin, share) in flip.pins {
            let Some(lane) = self.record.lanes.get_mut(pin) else { continue };
            (lane.share, lane.active, lane.flipped) = (share, true, revision);
            let whole = if lane.back { share == 0 } else { share == 100 };
            lane.canary += usize::from(!whole);
            lane.enter(if whole { Stage::Draining } else { Stage::Canary }, age);
        }
        self.dirty = true;
        self.resolve_pending();
    }

    /// The change cannot be made. What has flipped before is tried again later.
    pub(super) fn activation_invalid(&mut self, words: String) {
        self.seen.flip_after = self.record.age.saturating_add(self.record.options.retry);
        self.set_flip(FlipState::Preparing);
        if !self.flip_fails(&words) {
            self.abandon_flip();
        }
        self.alarm(Alarm::NotActivated { words });
    }

    pub(super) fn prepare_failed(&mut self, gateway: &GatewayName, proposal: Proposal, words: &str) {
        let current = |f: &Flip| f.state == FlipState::Preparing && f.step == proposal.step && f.base == proposal.base;
        if self.record.flip.as_ref().is_some_and(current) {
            self.flip_fails(&cut(format!("gateway {gateway}: {words}")));
        }
    }

    /// Fails the pins of the flip that can still fail; the others go on waiting, with an alarm. True: some failed.
    fn flip_fails(&mut self, words: &str) -> bool {
        let Some(flip) = &self.record.flip else { return false };
        let pins: Vec<usize> = flip.pins.iter().map(|(pin, _)| *pin).collect();
        let (fails, stays): (Vec<_>, Vec<_>) = pins.into_iter().partition(|pin| self.record.lanes[*pin].can_fail());
        for pin in &fails {
            self.fail(*pin, words.to_owned());
        }
        for pin in stays {
            self.late_alarm(pin, Alarm::Late { pin, words: cut(words.to_owned()) });
        }
        !fails.is_empty()
    }

    /// The flip's pins as the table is to have them.
    pub(super) fn flips(&self) -> Vec<PinFlip> {
        let pins = self.record.flip.iter().flat_map(|f| &f.pins);
        pins.into_iter()
            .filter_map(|(pin, share)| {
                let lane = self.record.lanes.get(*pin)?;
                Some(PinFlip {
                    pin: *pin,
                    tenant: lane.tenant.clone(),
                    model: lane.model.clone(),
                    old: lane.old.as_ref().map(|s| s.artifact.version.clone()),
                    new: lane.new.artifact.version.clone(),
                    share: *share,
                })
            })
            .collect()
    }
}
