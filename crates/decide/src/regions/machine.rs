//! The machine: see the module above.

use std::time::Duration;

use holdfast_placement::health::{Health, HealthEvent};
use holdfast_types::Mono;

use super::{Effect, Event, FULL, Phase, Refused, Rules, Why};

#[derive(Clone, Debug)]
struct Region {
    health: Health,
    phase: Phase,
    /// It was told that it is kept for want of others.
    is_alone: bool,
}

/// All regions.
#[derive(Clone, Debug)]
pub struct Regions {
    rules: Rules,
    all: Vec<Region>,
}

impl Regions {
    /// So many regions, all of which serve.
    #[must_use]
    pub fn new(count: usize, rules: Rules, now: Mono) -> Self {
        let region =
            || Region { health: Health::new(rules.health.clone(), now), phase: Phase::Serving, is_alone: false };
        Self { all: (0..count).map(|_| region()).collect(), rules }
    }

    /// Takes an event in; what follows is put behind `effects`.
    ///
    /// # Errors
    /// A command that is refused. Nothing has changed, then.
    pub fn apply(&mut self, now: Mono, event: Event, effects: &mut Vec<Effect>) -> Result<(), Refused> {
        match event {
            Event::Checked { region, balancer, application } => self.checked(now, region, balancer && application)?,
            Event::Drain { region } => self.drain(region, effects)?,
            Event::Raised { region } => {
                let one = self.one(region)?;
                if one.phase == Phase::Raising {
                    one.phase = Phase::Draining { since: now };
                }
            }
            Event::Return { region } => self.wanted_back(now, region, effects)?,
            Event::Reconciled { region } => {
                let one = self.one(region)?;
                if one.phase == Phase::Reconciling && one.health.usable() {
                    one.phase = Phase::Returning { since: now };
                }
            }
            Event::Tick => {}
        }
        self.settle(now, effects);
        Ok(())
    }

    fn one(&mut self, region: usize) -> Result<&mut Region, Refused> {
        self.all.get_mut(region).ok_or(Refused::Unknown)
    }

    fn checked(&mut self, now: Mono, region: usize, is_good: bool) -> Result<(), Refused> {
        let event = if is_good { HealthEvent::ProbeOk } else { HealthEvent::ProbeFailed };
        self.one(region)?.health.apply(now, event);
        Ok(())
    }

    fn drain(&mut self, region: usize, effects: &mut Vec<Effect>) -> Result<(), Refused> {
        if self.one(region)?.phase != Phase::Serving {
            return Err(Refused::NotServing);
        }
        let others = self.all.iter().enumerate().filter(|(ix, _)| *ix != region);
        if !others.clone().any(|(_, other)| other.phase == Phase::Serving && other.health.usable()) {
            return Err(Refused::Last);
        }
        self.one(region)?.phase = Phase::Raising;
        effects.push(Effect::Raise { region });
        Ok(())
    }

    fn wanted_back(&mut self, now: Mono, region: usize, effects: &mut Vec<Effect>) -> Result<(), Refused> {
        let one = self.one(region)?;
        match one.phase {
            // Nobody has left it yet.
            Phase::Raising => one.phase = Phase::Serving,
            Phase::Draining { .. } => self.turns_round(now, region),
            Phase::Out { why: Why::Drained } if one.health.usable() => {
                one.phase = Phase::Reconciling;
                effects.push(Effect::Reconcile { region });
            }
            // Its checks bring it back from now on.
            Phase::Out { why: Why::Drained } => one.phase = Phase::Out { why: Why::Checks },
            _ => return Err(Refused::NotDrained),
        }
        Ok(())
    }

    /// A drain is called off: the share grows again from where it is. Whoever has not left was never elsewhere, so there is nothing to reconcile.
    fn turns_round(&mut self, now: Mono, region: usize) {
        let (share, over) = (self.share(region, now), self.rules.return_over);
        let gone = over.as_nanos() * u128::from(share) / u128::from(FULL);
        // A step starts with what it has in the end, so it is the step before.
        let step = over.as_nanos() / u128::from(self.rules.return_steps.clamp(1, FULL));
        let gone = u64::try_from(gone.saturating_sub(step)).unwrap_or(u64::MAX);
        self.all[region].phase = Phase::Returning { since: Mono(now.0.saturating_sub(gone)) };
    }

    /// What follows from the state and the time, whatever led there.
    fn settle(&mut self, now: Mono, effects: &mut Vec<Effect>) {
        for region in 0..self.all.len() {
            self.grows(now, region, effects);
        }
        for region in 0..self.all.len() {
            let is_well = self.all[region].health.usable();
            match self.all[region].phase {
                Phase::Out { why: Why::Checks } if is_well => {
                    self.all[region].phase = Phase::Reconciling;
                    effects.push(Effect::Reconcile { region });
                }
                Phase::Reconciling if !is_well => self.all[region].phase = Phase::Out { why: Why::Checks },
                _ if self.share(region, now) > 0 && !is_well => self.fails(now, region, effects),
                _ => {}
            }
            self.all[region].is_alone &= !self.all[region].health.usable();
        }
    }

    /// Shares that have come to their end.
    fn grows(&mut self, now: Mono, region: usize, effects: &mut Vec<Effect>) {
        match self.all[region].phase {
            Phase::Returning { since } if now.since(since) >= self.rules.return_over => {
                self.all[region].phase = Phase::Serving;
                effects.push(Effect::Back { region });
            }
            // Nobody is left to take its clients.
            Phase::Draining { .. } if !self.others_serve(now, region) => self.turns_round(now, region),
            Phase::Draining { since } if now.since(since) >= self.rules.drain_over => {
                self.all[region].phase = Phase::Out { why: Why::Drained };
                effects.push(Effect::Out { region, why: Why::Drained });
            }
            _ => {}
        }
    }

    /// A region that has clients is not well.
    fn fails(&mut self, now: Mono, region: usize, effects: &mut Vec<Effect>) {
        if self.others_serve(now, region) {
            let is_drained = matches!(self.all[region].phase, Phase::Raising | Phase::Draining { .. });
            let why = if is_drained { Why::Drained } else { Why::Checks };
            self.all[region].phase = Phase::Out { why };
            effects.push(Effect::Out { region, why });
        } else if !self.all[region].is_alone {
            self.all[region].is_alone = true;
            effects.push(Effect::Alone { region });
        }
    }

    /// Whether another region is well and has clients.
    fn others_serve(&self, now: Mono, region: usize) -> bool {
        let well = |ix: usize| self.all[ix].health.usable() && self.share(ix, now) > 0;
        (0..self.all.len()).any(|ix| ix != region && well(ix))
    }

    /// Where a region stands.
    #[must_use]
    pub fn phase(&self, region: usize) -> Option<Phase> {
        self.all.get(region).map(|one| one.phase)
    }

    /// The part of its clients that a region gets, per [`FULL`].
    #[must_use]
    pub fn share(&self, region: usize, now: Mono) -> u16 {
        let Some(one) = self.all.get(region) else { return 0 };
        match one.phase {
            Phase::Serving | Phase::Raising => FULL,
            Phase::Out { .. } | Phase::Reconciling => 0,
            Phase::Draining { since } => FULL - part(now.since(since), self.rules.drain_over, FULL).min(FULL - 1),
            Phase::Returning { since } => {
                let steps = self.rules.return_steps.clamp(1, FULL);
                let step = part(now.since(since), self.rules.return_over, steps).saturating_add(1).min(steps);
                u16::try_from(u32::from(FULL) * u32::from(step) / u32::from(steps)).unwrap_or(FULL)
            }
        }
    }

    /// Where a client goes: `order` are the regions that may have it, the nearest first, and `place` is its own number below [`FULL`]. The nearest whose
    /// share is above its place; else the nearest that has any. None: none of them has.
    #[must_use]
    pub fn send(&self, order: &[usize], place: u16, now: Mono) -> Option<usize> {
        let above = |least: u16| order.iter().copied().find(|region| self.share(*region, now) > least);
        above(place.min(FULL - 1)).or_else(|| above(0))
    }

    /// How long an answer to a client may be kept.
    #[must_use]
    pub const fn ttl(&self) -> Duration {
        self.rules.ttl
    }

    /// The next moment at which a share changes without an event other than [`Event::Tick`].
    #[must_use]
    pub fn next_change(&self, now: Mono) -> Option<Mono> {
        let next = |one: &Region| {
            let (since, over, parts) = match one.phase {
                Phase::Draining { since } => (since, self.rules.drain_over, FULL),
                Phase::Returning { since } => (since, self.rules.return_over, self.rules.return_steps.clamp(1, FULL)),
                _ => return None,
            };
            let at = u32::from(part(now.since(since), over, parts)) + 1;
            // Rounded up: a moment too early would change nothing.
            let span = over.saturating_mul(at).as_nanos().div_ceil(u128::from(parts));
            Some(since.after(Duration::from_nanos(u64::try_from(span).unwrap_or(u64::MAX))).max(Mono(now.0 + 1)))
        };
        self.all.iter().filter_map(next).min()
    }
}

/// How many of `parts` a span is of the whole, rounded down.
fn part(span: Duration, whole: Duration, parts: u16) -> u16 {
    let done = span.as_nanos().min(whole.as_nanos()) * u128::from(parts);
    done.checked_div(whole.as_nanos()).and_then(|done| u16::try_from(done).ok()).unwrap_or(parts)
}
