//! One roll-out in the driver's hands: the machine, what it has asked for, and what it has been told.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use holdfast_decide::rollout::{
    Artifact, Claims, Command, Event, GatewayView, PinFlip, Plan, PlanError, Proposal, Refusal, Report, ResumeError,
    Rollout, RolloutId, Saved, SavedSide, Stage,
};
use holdfast_plane::{Flip, Prepare, Shadowing};
use holdfast_types::{ModelName, Mono, PoolName, ReplicaName, TenantId, Version};
use tokio::sync::oneshot;

use super::board::{CommandError, Order};
use super::forms::{By, Meta};
use super::guarded::Guarded;
use super::records::{Stored, Versions};
use super::reports::{Reports, shadowed, views};
use super::sessions::Fleet;
use super::tries::Tries;

/// The most failed tries that are told at once: more than any roll-out that counts them waits for.
const MOST_TRIES: u32 = 256;

pub(super) type Pair = (ReplicaName, Artifact);
pub(super) type Reply = oneshot::Sender<Result<(), CommandError>>;

/// One side of a pin: where it may be held.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) artifact: Artifact,
    pub(super) order: Vec<ReplicaName>,
}

/// A pin of the roll-out, as the driver needs it.
#[derive(Clone, Debug)]
pub(super) struct Pin {
    /// `TENANT/MODEL`.
    pub(super) name: Arc<str>,
    pub(super) tenant: TenantId,
    pub(super) model: ModelName,
    pub(super) old: Option<Side>,
    pub(super) new: Side,
}

/// See the module.
pub(super) struct Running {
    pub(super) machine: Rollout,
    pub(super) meta: Meta,
    pub(super) pins: Vec<Pin>,
    /// What was given to the store last.
    pub(super) saved: Option<Box<Saved>>,
    pub(super) versions: Versions,
    /// A save has no outcome yet.
    pub(super) saving: bool,
    /// Of the record of the last step in the table.
    pub(super) step: Option<u64>,
    pub(super) wants: BTreeSet<Pair>,
    /// What a flip leaves: held from before it until the machine asks for it by itself, so that no gateway lets go of it between.
    left: BTreeSet<Pair>,
    pub(super) prepare: Option<Prepare>,
    pub(super) shadow: BTreeMap<usize, u16>,
    pub(super) asks: BTreeMap<u64, Reply>,
    /// Of these asks, what is desired was changed before.
    withdrawn: BTreeSet<u64>,
    /// Who had it go back before each of these asks, should that be refused.
    before: BTreeMap<u64, Option<By>>,
    /// Pins that failed here and are desired elsewhere by now.
    pub(super) forgiven: BTreeSet<usize>,
    observing: bool,
    pairs: BTreeSet<Pair>,
    told: HashMap<Pair, Report>,
    /// Why there is no load of something that is to be loaded, in a gateway's words.
    pub(super) hints: BTreeMap<Pair, String>,
    /// They have changed since that was last asked.
    pub(super) hinted: bool,
    told_gateways: Option<(u64, Vec<GatewayView>)>,
    told_shadow: HashMap<usize, (u64, u64)>,
    told_unprepared: BTreeSet<(String, Proposal)>,
    pub(super) guarded: Guarded,
    pub(super) told_claims: Option<Claims>,
    /// Loads that have failed, as far as they were told.
    pub(super) tries: Tries,
    /// Wrong versions that are told again at that time, if they are still there: the answers to loads that are asked for anew.
    echo: BTreeMap<Pair, Mono>,
}

impl Running {
    pub(super) fn plan(now: Mono, term: u64, plan: Plan, meta: Meta) -> Result<Self, PlanError> {
        let pins = plan.pins.iter().map(|pin| Pin {
            name: format!("{}/{}", pin.tenant, pin.model).into(),
            tenant: pin.tenant.clone(),
            model: pin.model.clone(),
            old: pin.old.as_ref().map(|side| Side {
                artifact: artifact(side.pool.clone(), pin.model.clone(), side.version.clone()),
                order: side.order.clone(),
            }),
            new: Side {
                artifact: artifact(pin.new.pool.clone(), pin.model.clone(), pin.new.version.clone()),
                order: pin.new.order.clone(),
            },
        });
        let pins = pins.collect();
        Ok(Self::over(Rollout::plan(now, term, plan)?, meta, pins))
    }

    /// Goes on from the store. What was ever wanted is wanted until the machine lets it go.
    pub(super) fn resume(now: Mono, term: u64, stored: Stored) -> Result<Self, ResumeError> {
        Self::go_on(now, term, stored.saved, stored.head.meta, stored.versions)
    }

    fn go_on(now: Mono, term: u64, saved: Saved, meta: Meta, versions: Versions) -> Result<Self, ResumeError> {
        let machine = Rollout::resume(now, term, &saved)?;
        let mut wants = BTreeSet::new();
        let mut pins = Vec::new();
        for pin in &saved.pins {
            let (tenant, model) = (parse(TenantId::parse(&pin.tenant))?, parse(ModelName::parse(&pin.model))?);
            let mut side = |side: &SavedSide| -> Result<Side, ResumeError> {
                let (pool, version) = (parse(PoolName::parse(&side.pool))?, parse(Version::parse(&side.version))?);
                let artifact = artifact(pool, model.clone(), version);
                for replica in &side.touched {
                    wants.insert((parse(ReplicaName::parse(replica))?, artifact.clone()));
                }
                let order = side.order.iter().map(|r| parse(ReplicaName::parse(r))).collect::<Result<_, _>>()?;
                Ok(Side { artifact, order })
            };
            let (old, new) = (pin.old.as_ref().map(&mut side).transpose()?, side(&pin.new)?);
            pins.push(Pin { name: format!("{tenant}/{model}").into(), tenant, model, old, new });
        }
        let mut running = Self::over(machine, meta, pins);
        (running.wants, running.versions) = (wants, versions);
        running.saved = Some(Box::new(saved));
        running.hold_what_is_left();
        Ok(running)
    }

    fn over(machine: Rollout, meta: Meta, pins: Vec<Pin>) -> Self {
        let mut running = Self {
            machine,
            meta,
            pins,
            saved: None,
            versions: Versions::default(),
            saving: false,
            step: None,
            wants: BTreeSet::new(),
            left: BTreeSet::new(),
            prepare: None,
            shadow: BTreeMap::new(),
            asks: BTreeMap::new(),
            withdrawn: BTreeSet::new(),
            before: BTreeMap::new(),
            forgiven: BTreeSet::new(),
            observing: false,
            pairs: BTreeSet::new(),
            told: HashMap::new(),
            hints: BTreeMap::new(),
            hinted: false,
            told_gateways: None,
            told_shadow: HashMap::new(),
            told_unprepared: BTreeSet::new(),
            guarded: Guarded::default(),
            told_claims: None,
            tries: Tries::default(),
            echo: BTreeMap::new(),
        };
        running.pairs = running.all_pairs();
        running
    }

    fn all_pairs(&self) -> BTreeSet<Pair> {
        self.sides().flat_map(|side| side.order.iter().map(|r| (r.clone(), side.artifact.clone()))).collect()
    }

    pub(super) fn sides(&self) -> impl Iterator<Item = &Side> {
        self.pins.iter().flat_map(|pin| pin.old.iter().chain([&pin.new]))
    }

    pub(super) fn id(&self) -> RolloutId {
        self.machine.id()
    }

    /// Whether the record is all that there is to know: nothing is being saved or flipped.
    pub(super) fn rests(&self) -> bool {
        let is_saved = |saved: &Saved| saved.version == self.machine.version() && saved.flip.is_none();
        !self.saving && self.saved.as_ref().is_some_and(|saved| saved.pending.is_none() && is_saved(saved))
    }

    /// Ends the retention of these pins: goes on from the record with that written in it, as the next driver would.
    pub(super) fn let_go(&mut self, now: Mono, term: u64, pins: &[usize]) -> Result<(), ResumeError> {
        let Some(saved) = &self.saved else { return Ok(()) };
        let mut saved = Saved::clone(saved);
        for pin in pins {
            let Some(pin) = saved.pins.get_mut(*pin) else { continue };
            let version = pin.old.as_ref().map_or("", |old| old.version.as_str());
            pin.words = Some(format!("version {version} of {} is not in the catalogue any more", pin.model));
            (pin.stage, pin.since) = (Stage::Collecting.as_str().to_owned(), saved.age);
        }
        let mut next = Self::go_on(now, term, saved, self.meta.clone(), self.versions.clone())?;
        std::mem::swap(&mut next.asks, &mut self.asks);
        std::mem::swap(&mut next.withdrawn, &mut self.withdrawn);
        std::mem::swap(&mut next.before, &mut self.before);
        std::mem::swap(&mut next.forgiven, &mut self.forgiven);
        std::mem::swap(&mut next.tries, &mut self.tries);
        next.step = self.step;
        *self = next;
        Ok(())
    }

    /// An order on its way to the machine. A way back is noted before it begins: the record that says that it goes back says who wants it.
    pub(super) fn order(&mut self, ask: u64, order: Order) -> Event {
        if order.withdrawn {
            self.withdrawn.insert(ask);
        }
        if matches!(order.command, Command::Revert { .. }) {
            self.before.insert(ask, self.meta.back.replace(order.by));
        }
        Event::Command { ask, command: order.command }
    }

    /// What became of an order.
    pub(super) fn answered(&mut self, ask: u64, answer: Result<(), Refusal>) {
        let before = self.before.remove(&ask);
        if let (Some(before), Err(_)) = (before, &answer) {
            self.meta.back = before;
        }
        let answer = match answer {
            // The policy takes the pins where they are desired now, whichever of the two commands that needs.
            Err(Refusal::Active | Refusal::Shared(_) | Refusal::NotActive | Refusal::GoesBack | Refusal::Over)
                if self.withdrawn.remove(&ask) =>
            {
                Ok(())
            }
            answer => answer,
        };
        self.withdrawn.remove(&ask);
        if let Some(reply) = self.asks.remove(&ask) {
            let _ = reply.send(answer.map_err(CommandError::Refused));
        }
    }

    /// The machine asks for everything anew.
    pub(super) fn observe(&mut self) {
        self.observing = true;
        (self.told, self.told_gateways, self.told_claims) = (HashMap::new(), None, None);
        self.told_unprepared.clear();
        self.guarded = Guarded::default();
    }

    /// What has changed since it was told last.
    pub(super) fn news(&mut self, now: Mono, fleet: &Fleet, reports: &Reports) -> Vec<Event> {
        if !self.observing {
            return Vec::new();
        }
        let mut events = Vec::new();
        self.news_of_replicas(now, reports, &mut events);
        let all = views(fleet, self.id());
        if self.told_gateways.as_ref().is_none_or(|(roster, told)| *roster != fleet.roster || *told != all) {
            self.told_gateways = Some((fleet.roster, all.clone()));
            events.push(Event::Gateways { roster: fleet.roster, all });
        }
        for (pin, (compared, differed)) in shadowed(fleet, self.id()) {
            if self.told_shadow.insert(pin, (compared, differed)) != Some((compared, differed)) {
                events.push(Event::Shadowed { pin, compared, differed });
            }
        }
        events.extend(self.judged(fleet));
        let own = self.id();
        for seen in fleet.gateways.iter().filter(|g| g.leased) {
            for (_, proposal, words) in seen.status.unprepared.iter().filter(|(id, ..)| *id == own) {
                let gateway = seen.status.gateway.clone();
                if self.told_unprepared.insert((gateway.to_string(), *proposal)) {
                    events.push(Event::PrepareFailed { gateway, proposal: *proposal, words: words.clone() });
                }
            }
        }
        events
    }

    /// What is absent and was never told is not told: the machine takes it for absent. But the record may have it as lost.
    fn news_of_replicas(&mut self, now: Mono, reports: &Reports, events: &mut Vec<Event>) {
        let first = self.told.is_empty();
        let lost: BTreeSet<&str> = match self.saved.as_ref().filter(|_| first) {
            Some(saved) => {
                let sides = saved.pins.iter().flat_map(|pin| pin.old.iter().chain([&pin.new]));
                sides.flat_map(|side| side.lost.iter().map(String::as_str)).collect()
            }
            None => BTreeSet::new(),
        };
        for pair in &self.pairs {
            let Some(report) = reports.of_pair(&pair.0, &pair.1) else { continue };
            let counted = reports.failures_of(&pair.0, &pair.1);
            let hint = match &report {
                Report::Failed { words, permanent: false } if counted.is_empty() => Some(words.clone()),
                _ => None,
            };
            if self.hints.get(pair) != hint.as_ref() {
                self.hinted = true;
                match hint {
                    Some(words) => _ = self.hints.insert(pair.clone(), words),
                    None => _ = self.hints.remove(pair),
                }
            }
            let further = self.tries.further(pair, counted);
            let due = self.echo.get(pair).is_some_and(|at| *at <= now);
            if due {
                self.echo.remove(pair);
            }
            let known = self.told.get(pair);
            let (report, times) = match report {
                Report::Failed { permanent: false, .. } if further > 0 => (report, further.min(MOST_TRIES)),
                // It failed before, or for somebody else: for this roll-out it is not there.
                Report::Failed { permanent: false, .. } if matches!(known, Some(Report::Failed { .. })) => continue,
                Report::Failed { permanent: false, .. } => (Report::Absent, 1),
                Report::Wrong { .. } if due => (report, 1),
                report if known == Some(&report) => continue,
                report => (report, 1),
            };
            let silent = known.is_none() && report == Report::Absent && !lost.contains(pair.0.as_str());
            if known == Some(&report) && report == Report::Absent {
                continue;
            }
            self.told.insert(pair.clone(), report.clone());
            let event = Event::Replica { replica: pair.0.clone(), artifact: pair.1.clone(), report };
            events.extend((0..times).filter(|_| !silent).map(|_| event.clone()));
        }
    }

    /// The machine asks for a load. Where gateways hold something else under the name they say so in the same words.
    pub(super) fn warm(&mut self, now: Mono, pair: Pair) {
        if matches!(self.told.get(&pair), Some(Report::Wrong { .. })) {
            let retry = self.saved.as_ref().map_or(std::time::Duration::ZERO, |s| s.options.retry);
            self.echo.insert(pair.clone(), now.after(retry));
        }
        self.wants.insert(pair);
    }

    /// When there is something to do that no word of a gateway announces.
    pub(super) fn next_deadline(&self) -> Option<Mono> {
        self.echo.values().copied().chain(self.machine.next_deadline()).min()
    }

    /// The key hashes elsewhere: the candidates anew.
    pub(super) fn replan(&mut self, pin: usize, version: &Version, order: Vec<ReplicaName>) -> Option<Event> {
        let sides = self.pins.get_mut(pin).into_iter().flat_map(|p| p.old.iter_mut().chain([&mut p.new]));
        let mut changed = false;
        for side in sides.filter(|s| s.artifact.version == *version && s.order != order) {
            side.order.clone_from(&order);
            changed = true;
        }
        changed.then(|| {
            self.pairs = self.all_pairs();
            Event::Replan { pin, version: version.clone(), order }
        })
    }

    /// Once the record is in the store and what follows from it was carried out.
    pub(super) fn hold_what_is_left(&mut self) {
        if self.saving {
            return;
        }
        self.left.clear();
        let Some(saved) = &self.saved else { return };
        for (pin, share) in saved.flip.iter().flat_map(|flip| &flip.pins) {
            let (pin, share) = (*pin as usize, *share);
            let Some((record, of)) = saved.pins.get(pin).zip(self.pins.get(pin)) else { continue };
            let side = if share == 0 { Some((&record.new, &of.new)) } else { record.old.as_ref().zip(of.old.as_ref()) };
            let Some((record, side)) = side else { continue };
            let here = side.order.iter().filter(|r| !record.lost.iter().any(|lost| lost == r.as_str()));
            self.left.extend(here.take(record.subset as usize).map(|r| (r.clone(), side.artifact.clone())));
        }
    }

    pub(super) fn prepare(&mut self, proposal: Proposal, flips: &[PinFlip]) {
        if self.prepare.as_ref().is_some_and(|p| p.proposal == proposal) {
            return;
        }
        // A share of none of the new version is the whole of the old one.
        let flip = |flip: &PinFlip| {
            let (new, share) = match (&flip.old, flip.share) {
                (Some(old), 0) => (old.clone(), 100),
                _ => (flip.new.clone(), flip.share),
            };
            Flip { tenant: flip.tenant.clone(), model: flip.model.clone(), new, share }
        };
        let flips = flips.iter().map(flip).collect();
        self.prepare = Some(Prepare { rollout: self.id(), proposal, flips });
    }

    pub(super) fn forget(&mut self, proposal: Proposal) {
        self.prepare.take_if(|p| p.proposal == proposal);
    }

    pub(super) fn wanted(&self) -> impl Iterator<Item = &Pair> {
        self.wants.iter().chain(&self.left)
    }

    pub(super) fn shadowing(&self) -> impl Iterator<Item = Shadowing> {
        self.shadow.iter().filter_map(|(pin, share)| {
            let of = self.pins.get(*pin)?;
            Some(Shadowing {
                rollout: self.id(),
                pin: *pin,
                tenant: of.tenant.clone(),
                model: of.model.clone(),
                version: of.new.artifact.version.clone(),
                share: *share,
            })
        })
    }

    /// Whether a version that was left waits to be removed.
    pub(super) fn collects(&self) -> bool {
        let collecting = Stage::Collecting.as_str();
        self.saved.iter().flat_map(|s| &s.pins).any(|pin| pin.stage == collecting)
    }
}

const fn artifact(pool: PoolName, model: ModelName, version: Version) -> Artifact {
    Artifact { pool, model, version }
}

fn parse<T>(parsed: Result<T, holdfast_types::IdError>) -> Result<T, ResumeError> {
    parsed.map_err(|_| ResumeError::Invalid("a name"))
}
