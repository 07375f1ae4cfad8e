//! What people ask about a roll-out, as data.

use std::time::Duration;

use holdfast_types::{GatewayName, ModelName, ReplicaName, TenantId, Version};

use super::Rollout;
use super::plan::{Artifact, RolloutId};
use super::state::{FlipState, Lane, Stage};

/// Where a roll-out as a whole is: where the pin is that has the longest way to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Not in the store yet.
    Planned,
    /// Versions are loaded on the replicas of their subsets.
    PreWarm,
    /// All are loaded, not all are proven.
    Verify,
    /// Live traffic is copied.
    Shadow,
    /// Gateways prepare a flip.
    Prepare,
    /// A flip is asked of the store.
    Activate,
    /// A share of the traffic is on the new version.
    Canary,
    /// Requests of the version that was left run on.
    Drain,
    /// The version that was left is kept.
    Retain,
    /// The version that was left is removed.
    Collect,
    /// Final: all pins are on the new version.
    Done,
    /// Final: all pins that had flipped are on the old version again.
    Reverted,
    /// Final: at least one pin failed; the pins say which.
    Failed,
    /// Final: nothing was flipped.
    Aborted,
}

/// What something waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "fields are named for what they are; the text of the variant says the rest")]
pub enum Waiting {
    /// The record is not in the store yet.
    Store,
    /// A person paused it.
    Resume,
    /// The replica does not hold the version, proven.
    Replica { replica: ReplicaName, artifact: Artifact },
    /// No candidate is in service.
    AnyReplica { artifact: Artifact },
    /// The other pins, or a flip in progress.
    OtherPins,
    /// Comparisons of copied answers.
    Comparisons { compared: u64, of: u64 },
    /// The table's answer.
    Table,
    /// The gateway has not prepared, is behind, or has requests of an older table in flight.
    Gateway(GatewayName),
    /// No gateway is live, or none is known yet.
    AnyGateway,
    /// The condition of the canary: in words, why the next step may not come.
    Condition(String),
    /// Time: so much of it.
    Time(Duration),
    /// Others need the artifact, or it is being removed.
    Collection { artifact: Artifact },
}

/// A pin on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PinProgress {
    /// Whose.
    pub tenant: TenantId,
    /// Of which model.
    pub model: ModelName,
    /// The old version.
    pub old: Option<Version>,
    /// The new version.
    pub new: Version,
    /// Where it is.
    pub stage: Stage,
    /// Percent of the traffic on the new version.
    pub share: u8,
    /// It goes back, or went back, to the old version.
    pub back: bool,
    /// The way back is a cold redeployment.
    pub cold: bool,
    /// How long it has been at the stage.
    pub since: Duration,
    /// What it waits for.
    pub waiting_for: Vec<Waiting>,
    /// The last words of failure.
    pub words: Option<String>,
}

/// A roll-out on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Progress {
    /// Its number.
    pub id: RolloutId,
    /// Where it is.
    pub phase: Phase,
    /// A person paused it.
    pub paused: bool,
    /// How long the pin with the longest way to go has been at its stage.
    pub since: Duration,
    /// The pins.
    pub pins: Vec<PinProgress>,
    /// What the whole waits for, beside what the pins wait for.
    pub waiting_for: Vec<Waiting>,
    /// The first pin's words of failure.
    pub words: Option<String>,
}

impl Rollout {
    /// Where it is, and what it waits for. A walk over all pins.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let mut waiting_for = Vec::new();
        if self.saving.is_some() || self.dirty {
            waiting_for.push(Waiting::Store);
        }
        if self.record.paused.is_some() {
            waiting_for.push(Waiting::Resume);
        }
        let last = self.record.lanes.iter().filter(|l| !l.stage.is_final()).min_by_key(|l| l.stage);
        let since = last.or_else(|| self.record.lanes.first()).map_or(Duration::ZERO, |l| self.past(l.since));
        Progress {
            id: self.record.id,
            phase: self.phase(last),
            paused: self.record.paused.is_some(),
            since,
            pins: self.record.lanes.iter().enumerate().map(|(ix, lane)| self.pin(ix, lane)).collect(),
            waiting_for,
            words: self.record.lanes.iter().find_map(|l| l.words.clone()),
        }
    }

    /// Where it is, without its pins.
    #[must_use]
    pub fn stands(&self) -> Phase {
        self.phase(self.record.lanes.iter().filter(|l| !l.stage.is_final()).min_by_key(|l| l.stage))
    }

    fn past(&self, since: Duration) -> Duration {
        self.record.age.saturating_sub(since)
    }

    fn phase(&self, last: Option<&Lane>) -> Phase {
        if self.record.version == 0 {
            return Phase::Planned;
        }
        let Some(lane) = last else { return self.final_phase() };
        let loaded = |l: &Lane| {
            let side = l.target();
            side.targets().all(|r| self.seen.holding(r, &side.artifact).is_some_and(|h| h.loaded))
        };
        match lane.stage {
            Stage::Warming if loaded(lane) => Phase::Verify,
            Stage::Warming => Phase::PreWarm,
            Stage::Shadowing => Phase::Shadow,
            Stage::Ready | Stage::Flipping => match self.record.flip.as_ref().map(|f| f.state) {
                Some(FlipState::Activating) => Phase::Activate,
                _ => Phase::Prepare,
            },
            Stage::Canary => Phase::Canary,
            Stage::Draining => Phase::Drain,
            Stage::Retaining => Phase::Retain,
            _ => Phase::Collect,
        }
    }

    fn final_phase(&self) -> Phase {
        let any = |what: fn(&Lane) -> bool| self.record.lanes.iter().any(what);
        if any(|l| l.stage == Stage::Failed) {
            Phase::Failed
        } else if any(|l| l.back) {
            Phase::Reverted
        } else if any(|l| l.stage == Stage::Aborted) {
            Phase::Aborted
        } else {
            Phase::Done
        }
    }

    fn pin(&self, ix: usize, lane: &Lane) -> PinProgress {
        let side = lane.target();
        let failure = side.targets().find_map(|r| self.seen.holding(r, &side.artifact)?.words.clone());
        PinProgress {
            tenant: lane.tenant.clone(),
            model: lane.model.clone(),
            old: lane.old.as_ref().map(|s| s.artifact.version.clone()),
            new: lane.new.artifact.version.clone(),
            stage: lane.stage,
            share: lane.share,
            back: lane.back,
            cold: lane.cold,
            since: self.past(lane.since),
            waiting_for: self.waiting(ix, lane),
            words: lane.words.clone().or(failure),
        }
    }

    fn waiting(&self, ix: usize, lane: &Lane) -> Vec<Waiting> {
        let options = &self.record.options;
        let left = |span: Duration| span.saturating_sub(self.past(lane.since));
        let time = |span: Duration| (!left(span).is_zero()).then(|| Waiting::Time(left(span)));
        match lane.stage {
            // What replicas hold is known by gateways alone.
            Stage::Warming if self.is_blind() => vec![Waiting::AnyGateway],
            Stage::Warming => self.replicas_missing(lane),
            Stage::Shadowing => {
                let compared = self.seen.shadow.get(&ix).map_or(0, |s| s.0);
                let shadow = options.shadow.filter(|s| compared < s.compare);
                let few = shadow.map(|s| Waiting::Comparisons { compared, of: s.compare });
                few.into_iter().chain(options.shadow.and_then(|s| time(s.at_least))).collect()
            }
            Stage::Ready => vec![Waiting::OtherPins],
            Stage::Flipping => self.flip_missing(),
            Stage::Canary => {
                let step = lane.canary.checked_sub(1).and_then(|ix| options.canary.get(ix));
                let mut all = self.gateways_behind(|g| g.in_force >= lane.flipped);
                all.extend(step.and_then(|s| time(s.wait)));
                all.extend(self.held_by(ix, lane).filter(|_| !lane.back).map(Waiting::Condition));
                all
            }
            Stage::Draining => self.gateways_behind(|g| g.in_force >= lane.flipped && g.oldest >= lane.flipped),
            Stage::Retaining => time(options.retain).into_iter().collect(),
            Stage::Collecting => {
                lane.off().map(|s| Waiting::Collection { artifact: s.artifact.clone() }).into_iter().collect()
            }
            Stage::Done | Stage::Failed | Stage::Aborted => Vec::new(),
        }
    }

    fn is_blind(&self) -> bool {
        self.seen.gateways.is_some() && self.seen.live().next().is_none()
    }

    fn replicas_missing(&self, lane: &Lane) -> Vec<Waiting> {
        let side = lane.target();
        let artifact = || side.artifact.clone();
        if side.targets().next().is_none() {
            return vec![Waiting::AnyReplica { artifact: artifact() }];
        }
        let missing = side.targets().filter(|r| !self.seen.proven(r, &side.artifact));
        missing.map(|r| Waiting::Replica { replica: r.clone(), artifact: artifact() }).collect()
    }

    fn flip_missing(&self) -> Vec<Waiting> {
        let Some(flip) = &self.record.flip else { return Vec::new() };
        let proposal = super::event::Proposal { step: flip.step, base: flip.base };
        match flip.state {
            FlipState::Preparing => self.gateways_behind(|g| g.prepared == Some(proposal)),
            FlipState::Reading | FlipState::Activating => vec![Waiting::Table],
        }
    }

    fn gateways_behind(&self, pass: impl Fn(&super::event::GatewayView) -> bool) -> Vec<Waiting> {
        if self.seen.live().next().is_none() {
            return vec![Waiting::AnyGateway];
        }
        self.seen.live().filter(|g| !pass(g)).map(|g| Waiting::Gateway(g.name.clone())).collect()
    }
}
