//! What one process has been told and has asked for.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_placement::invariants::Violation;
use holdfast_types::{GatewayName, Invariant, ModelName, Mono, PoolName, ReplicaName, Revision, Version};

use super::super::effect::{Effect, PinFlip};
use super::super::event::{Claims, Event, GatewayView, Proposal, Report};
use super::super::plan::{Artifact, Options, Plan};
use super::super::saved::{Saved, SavedPin, SavedSide};
use super::super::state::Stage;
use super::hold;

/// A version on a replica.
pub type Pair = (ReplicaName, Artifact);

/// The artifact of a side of a pin.
pub(super) fn side_of(pin: &SavedPin, side: &SavedSide) -> Option<Artifact> {
    Some(Artifact {
        pool: PoolName::parse(&side.pool).ok()?,
        model: ModelName::parse(&pin.model).ok()?,
        version: Version::parse(&side.version).ok()?,
    })
}

/// The version that a pin leaves.
pub(super) fn off_of(pin: &SavedPin) -> Option<&SavedSide> {
    if pin.back { Some(&pin.new) } else { pin.old.as_ref() }
}

fn target_of(pin: &SavedPin) -> &SavedSide {
    pin.old.as_ref().filter(|_| pin.back).unwrap_or(&pin.new)
}

/// A side of a pin, as it was planned last.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Candidates {
    artifact: Artifact,
    order: Vec<ReplicaName>,
    subset: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Books {
    /// The record in the store, as far as the process was told.
    pub(super) stored: Option<Saved>,
    saving: Option<Saved>,
    /// The last save of the process was confirmed.
    confirmed: bool,
    pub(super) halted: bool,
    /// The latest revision of the roll-out that the process was told of.
    pub(super) latest: Revision,
    gateways: Option<BTreeMap<GatewayName, GatewayView>>,
    pub(super) claims: Option<Claims>,
    sides: Vec<Vec<Candidates>>,
    lost: BTreeSet<Pair>,
    loaded: BTreeSet<Pair>,
    proven: BTreeSet<Pair>,
    pub(super) loads: BTreeMap<Pair, Mono>,
    /// Versions of the record under which an activation was asked.
    activated: BTreeSet<u64>,
}

impl Books {
    pub(super) fn new(plan: &Plan, stored: Option<Saved>) -> Self {
        let mut sides: Vec<Vec<Candidates>> = Vec::new();
        for pin in &plan.pins {
            let of = |s: &super::super::plan::SidePlan| Candidates {
                artifact: Artifact { pool: s.pool.clone(), model: pin.model.clone(), version: s.version.clone() },
                order: s.order.clone(),
                subset: s.subset,
            };
            sides.push(pin.old.iter().chain([&pin.new]).map(of).collect());
        }
        let mut lost = BTreeSet::new();
        for (pin, sides) in stored.iter().flat_map(|s| &s.pins).zip(&mut sides) {
            for (saved, side) in pin.old.iter().chain([&pin.new]).zip(sides) {
                side.order = saved.order.iter().filter_map(|r| ReplicaName::parse(r).ok()).collect();
                let names = saved.lost.iter().filter_map(|r| ReplicaName::parse(r).ok());
                lost.extend(names.map(|r| (r, side.artifact.clone())));
            }
        }
        let latest = stored.iter().flat_map(|s| &s.pins).map(|p| Revision(p.flipped)).max().unwrap_or_default();
        Self {
            stored,
            saving: None,
            confirmed: false,
            halted: false,
            latest,
            gateways: None,
            claims: None,
            sides,
            lost,
            loaded: BTreeSet::new(),
            proven: BTreeSet::new(),
            loads: BTreeMap::new(),
            activated: BTreeSet::new(),
        }
    }

    pub(super) fn event(&mut self, event: &Event) {
        match event {
            Event::Saved { version } => {
                if let Some(saved) = self.saving.take_if(|s| s.version == *version) {
                    self.stored = Some(saved);
                    self.confirmed = true;
                }
            }
            Event::SaveFailed { version } => drop(self.saving.take_if(|s| s.version == *version)),
            Event::Gateways { all, .. } => {
                self.gateways = Some(all.iter().map(|v| (v.name.clone(), v.clone())).collect());
            }
            Event::Gateway { view, .. } => {
                if let Some(all) = &mut self.gateways {
                    all.insert(view.name.clone(), view.clone());
                }
            }
            Event::Claims(claims) => self.claims = Some(claims.clone()),
            Event::Replica { replica, artifact, report } => self.report((replica.clone(), artifact.clone()), report),
            Event::Replan { pin, version, order } => {
                let sides = self.sides.get_mut(*pin).into_iter().flatten();
                for side in sides.filter(|s| s.artifact.version == *version && super::super::plan::usable(order)) {
                    let artifact = side.artifact.clone();
                    self.lost.retain(|(r, a)| *a != artifact || order.contains(r));
                    side.order.clone_from(order);
                }
            }
            _ => {}
        }
    }

    fn report(&mut self, pair: Pair, report: &Report) {
        if !self.sides.iter().flatten().any(|s| s.artifact == pair.1 && s.order.contains(&pair.0)) {
            return;
        }
        self.loads.remove(&pair);
        self.loaded.remove(&pair);
        self.proven.remove(&pair);
        self.lost.remove(&pair);
        match report {
            Report::Lost => drop(self.lost.insert(pair)),
            Report::Loaded => drop(self.loaded.insert(pair)),
            Report::Proven => {
                self.loaded.insert(pair.clone());
                self.proven.insert(pair);
            }
            Report::Absent | Report::Failed { .. } | Report::Wrong { .. } => {}
        }
    }

    /// One save at a time, each on top of the last one.
    pub(super) fn save(&mut self, expected: u64, saved: &Saved) -> Result<(), Violation> {
        let version = self.stored.as_ref().map_or(0, |s| s.version);
        let next = self.saving.is_none() && expected == version && saved.version == version + 1;
        hold(next, Invariant::Route1, || format!("saves {} over {expected}, on top of {version}", saved.version))?;
        self.saving = Some(saved.clone());
        self.confirmed = false;
        Ok(())
    }

    /// What acts on the world is written down first.
    pub(super) fn written(&self, effect: &Effect) -> Result<(), Violation> {
        hold(self.confirmed, Invariant::Route1, || format!("{effect:?} before it is written down"))
    }

    /// The replicas that the key hashes to now.
    fn subset<'s>(&'s self, side: &'s Candidates) -> impl Iterator<Item = Pair> + 's {
        let pairs = side.order.iter().map(|r| (r.clone(), side.artifact.clone()));
        pairs.filter(|pair| !self.lost.contains(pair)).take(side.subset)
    }

    fn in_subset(&self, pair: &Pair) -> bool {
        self.sides.iter().flatten().any(|side| self.subset(side).any(|p| p == *pair))
    }

    /// Loads are asked for within the subset, within the bound, and one at a time on a replica.
    pub(super) fn warm(&mut self, options: &Options, now: Mono, pair: &Pair) -> Result<(), Violation> {
        hold(self.in_subset(pair), Invariant::Load1, || format!("{pair:?} is asked for outside of its subset"))?;
        if self.loaded.contains(pair) {
            return Ok(());
        }
        self.loads.retain(|_, since| now.since(*since) < options.load);
        let same = |(r, a): &Pair| *r == pair.0 && a.pool == pair.1.pool;
        let here = self.loads.keys().find(|p| same(p));
        hold(here.is_none(), Invariant::Load1, || format!("{pair:?} is asked for beside {here:?}"))?;
        self.loads.insert(pair.clone(), now);
        let (all, bound) = (self.loads.len(), options.loads);
        hold(all <= bound, Invariant::Load1, || format!("{all} loads are asked for, the bound is {bound}"))
    }

    /// A version in force is not let go where its key hashes to.
    pub(super) fn release(&mut self, pair: &Pair) -> Result<(), Violation> {
        self.loads.remove(pair);
        let pins = self.stored.iter().flat_map(|s| &s.pins).zip(&self.sides);
        let mut used = pins.filter(|(pin, _)| pin.active && !pin.overtaken).flat_map(|(pin, sides)| {
            let force = sides.iter().filter(|s| match pin.share {
                0 => pin.old.as_ref().is_some_and(|o| o.version == s.artifact.version.as_str()),
                100.. => pin.new.version == s.artifact.version.as_str(),
                _ => true,
            });
            force.flat_map(|s| self.subset(s))
        });
        let used = used.any(|p| p == *pair);
        hold(!used, Invariant::Load2, || format!("{pair:?} is let go while it is in force"))
    }

    fn live(&self) -> impl Iterator<Item = &GatewayView> {
        self.gateways.iter().flat_map(BTreeMap::values).filter(|g| g.leased)
    }

    fn view(&self, gateway: &GatewayName) -> Option<&GatewayView> {
        self.live().find(|g| g.name == *gateway)
    }

    /// No gateway is asked to build on a table that it has left.
    pub(super) fn prepare(&self, gateway: &GatewayName, proposal: Proposal) -> Result<(), Violation> {
        let fits = self.view(gateway).is_some_and(|g| g.in_force <= proposal.base);
        hold(fits, Invariant::Route1, || format!("{gateway} is to prepare {proposal:?}, and is not live or past it"))
    }

    /// No gateway is told to go back.
    pub(super) fn tell(&self, gateway: &GatewayName, revision: Revision) -> Result<(), Violation> {
        let behind = self.view(gateway).is_some_and(|g| g.in_force < revision);
        hold(behind, Invariant::Route1, || format!("{gateway} is told of {revision}, and is not live or past it"))
    }

    /// No activation before the subset is proven and the gateways hold both routes (PIN-3), none twice, none that is not in the record.
    pub(super) fn activate(
        &mut self,
        step: u32,
        expected: Revision,
        version: u64,
        flips: &[PinFlip],
    ) -> Result<(), Violation> {
        let stored = self.stored.as_ref();
        let flip = stored.and_then(|s| s.flip.as_ref());
        let same = flip.is_some_and(|f| f.step == step && f.base == expected.0 && f.state == "activating");
        let written = same && stored.is_some_and(|s| s.version == version && s.paused.is_none() && s.pending.is_none());
        hold(written, Invariant::Route1, || format!("step {step} is activated, the record says {flip:?}"))?;
        hold(self.activated.insert(version), Invariant::Route1, || format!("step {step} is activated twice"))?;
        let proposal = Some(Proposal { step, base: expected });
        let prepared = self.live().next().is_some() && self.live().all(|g| g.prepared == proposal);
        hold(prepared, Invariant::Route1, || format!("step {step} is activated, not all are prepared"))?;
        for flip in flips {
            let pin = stored.and_then(|s| s.pins.get(flip.pin));
            let flipping = pin.is_some_and(|p| p.stage == Stage::Flipping.as_str());
            hold(flipping, Invariant::Pin3, || format!("{flip:?}, which is {:?}", pin.map(|p| &p.stage)))?;
            let target = pin.and_then(|p| side_of(p, target_of(p)));
            let side = self.sides.get(flip.pin).into_iter().flatten().find(|s| Some(&s.artifact) == target.as_ref());
            let all: Vec<Pair> = side.into_iter().flat_map(|s| self.subset(s)).collect();
            let proven = !all.is_empty() && all.iter().all(|p| self.proven.contains(p));
            hold(proven, Invariant::Pin3, || format!("{flip:?} before all of {all:?} are proven"))?;
        }
        Ok(())
    }

    /// No request of an earlier table is in flight on a live gateway.
    pub(super) fn drained(&self, revision: Revision) -> bool {
        self.live().next().is_some() && self.live().all(|g| g.in_force >= revision && g.oldest >= revision)
    }
}
