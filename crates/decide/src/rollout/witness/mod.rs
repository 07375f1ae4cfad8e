//! The promises of a roll-out as predicates, for tests, simulation and production alike.
//!
//! A [`Witness`] sees what the drivers of all control planes see, events and effects, and keeps its own books from them. Feed it every event
//! before `apply` and every batch of effects after it, each with the process that it belongs to and a time that is the same for all.

mod books;

use std::collections::{BTreeMap, BTreeSet};

use holdfast_placement::invariants::Violation;
use holdfast_types::{Invariant, Mono, Revision};

use super::effect::Effect;
use super::event::{Event, Proposal};
use super::plan::{Artifact, Plan};
use super::saved::{Saved, SavedPin};
use super::state::Stage;
pub use books::Pair;
use books::{Books, off_of, side_of};

fn hold(condition: bool, invariant: Invariant, what: impl FnOnce() -> String) -> Result<(), Violation> {
    if condition { Ok(()) } else { Err(Violation { invariant, what: what() }) }
}

/// Books over one roll-out, kept from events and effects alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Witness {
    plan: Plan,
    processes: BTreeMap<u64, Books>,
    /// The steps that are known to be in the table.
    steps: BTreeMap<u32, Revision>,
    /// The latest table that anybody was told of.
    in_force: Revision,
    /// Who was to move in a step.
    moves: BTreeMap<u32, BTreeSet<usize>>,
    /// When a pin was first known to have flipped last.
    flipped: BTreeMap<usize, Mono>,
    /// Pins that failed or were aborted before any flip, by a record in the store.
    ended: BTreeSet<usize>,
}

impl Witness {
    /// A witness of a roll-out from its start.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            processes: BTreeMap::new(),
            steps: BTreeMap::new(),
            in_force: Revision(0),
            moves: BTreeMap::new(),
            flipped: BTreeMap::new(),
            ended: BTreeSet::new(),
        }
    }

    /// A process has taken the roll-out in hand: with the plan, or with what it found in the store.
    pub fn started(&mut self, process: u64, from: Option<&Saved>) {
        if let Some(saved) = from {
            self.confirmed(saved);
        }
        self.processes.insert(process, Books::new(&self.plan, from.cloned()));
    }

    /// The process is no more, or has given the roll-out up.
    pub fn stopped(&mut self, process: u64) {
        self.processes.remove(&process);
    }

    /// Takes an event in, before the machine does.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn event(&mut self, process: u64, now: Mono, event: &Event) -> Result<(), Violation> {
        let Some(books) = self.processes.get_mut(&process) else { return Ok(()) };
        books.event(event);
        match event {
            Event::Saved { version } => {
                if let Some(saved) = books.stored.clone().filter(|s| s.version == *version) {
                    self.confirmed(&saved);
                }
                self.nothing_ended_flipped()
            }
            Event::Activated { step, revision } => self.in_table(process, now, *step, *revision),
            Event::InForce { revision, .. } => {
                self.in_force = self.in_force.max(*revision);
                Ok(())
            }
            Event::Table { table, .. } => {
                self.in_force = self.in_force.max(table.revision);
                table.applied.map_or(Ok(()), |(step, revision)| self.in_table(process, now, step, revision))
            }
            _ => Ok(()),
        }
    }

    /// Checks the effects of one `apply`, in order.
    ///
    /// # Errors
    /// The first promise that is broken.
    pub fn effects(&mut self, process: u64, now: Mono, effects: &[Effect]) -> Result<(), Violation> {
        for effect in effects {
            self.effect(process, now, effect)?;
        }
        Ok(())
    }

    fn effect(&mut self, process: u64, now: Mono, effect: &Effect) -> Result<(), Violation> {
        let options = &self.plan.options;
        let Some(books) = self.processes.get_mut(&process) else {
            return hold(false, Invariant::Acct1, || format!("process {process} acts and is not there"));
        };
        hold(!books.halted, Invariant::Route1, || format!("superseded process {process} goes on: {effect:?}"))?;
        match effect {
            Effect::Save { expected, saved } => {
                let flip = saved.flip.iter().map(|f| (f.step, f.pins.iter().map(|(p, _)| *p as usize).collect()));
                self.moves.extend(flip);
                return books.save(*expected, saved);
            }
            Effect::Superseded => books.halted = true,
            Effect::Answer { answer: Err(_), .. } => {}
            _ => books.written(effect)?,
        }
        match effect {
            Effect::Warm { replica, artifact } => books.warm(options, now, &(replica.clone(), artifact.clone())),
            Effect::Release { replica, artifact } => books.release(&(replica.clone(), artifact.clone())),
            Effect::Prepare { gateway, proposal, .. } => books.prepare(gateway, *proposal),
            Effect::Tell { gateway, revision } => {
                let known = self.in_force >= *revision;
                hold(known, Invariant::Route1, || format!("{gateway} is told of {revision}, which is not in force"))?;
                books.tell(gateway, *revision)
            }
            Effect::Forget { proposal: Proposal { step, .. } } => {
                let flipped = self.steps.contains_key(step);
                hold(!flipped, Invariant::Route1, || format!("step {step} is in the table and to be forgotten"))
            }
            Effect::Activate { step, expected, version, flips, .. } => {
                let own = books.latest;
                hold(*expected >= own, Invariant::Route1, || format!("step {step} builds on {expected}, after {own}"))?;
                books.activate(*step, *expected, *version, flips)
            }
            Effect::Collect { artifact, .. } => self.collect(process, now, artifact),
            _ => Ok(()),
        }
    }

    /// What failed or was aborted never flips.
    fn nothing_ended_flipped(&self) -> Result<(), Violation> {
        let moved = self.steps.keys().find(|step| self.moves.get(step).is_some_and(|m| !m.is_disjoint(&self.ended)));
        hold(moved.is_none(), Invariant::Pin3, || format!("step {moved:?} has moved a pin that failed or was aborted"))
    }

    fn confirmed(&mut self, saved: &Saved) {
        let ended = |pin: &SavedPin| !pin.active && matches!(pin.stage.as_str(), "failed" | "aborted");
        self.ended.extend(saved.pins.iter().enumerate().filter(|(_, pin)| ended(pin)).map(|(ix, _)| ix));
    }

    /// One effect for each step over all control planes, and revisions that only grow (ROUTE-1).
    fn in_table(&mut self, process: u64, now: Mono, step: u32, revision: Revision) -> Result<(), Violation> {
        if let Some(books) = self.processes.get_mut(&process) {
            books.latest = books.latest.max(revision);
        }
        self.in_force = self.in_force.max(revision);
        let known = self.steps.insert(step, revision);
        let once = known.is_none_or(|k| k == revision);
        hold(once, Invariant::Route1, || format!("step {step} is in the table as {known:?} and as {revision}"))?;
        let before = self.steps.range(..step).next_back().filter(|(_, r)| **r >= revision);
        hold(before.is_none(), Invariant::Route1, || format!("step {step} has {revision}, {before:?} came before"))?;
        if known.is_none() {
            let pins = self.moves.get(&step).into_iter().flatten();
            self.flipped.extend(pins.map(|pin| (*pin, now)));
        }
        self.nothing_ended_flipped()
    }

    /// No rollback target goes before its time, nor anything that a request in flight or somebody else needs (PIN-3).
    fn collect(&self, process: u64, now: Mono, artifact: &Artifact) -> Result<(), Violation> {
        let broken = |why: &str| format!("{artifact:?} is removed {why}");
        let Some((books, saved)) = self.processes.get(&process).and_then(|b| Some((b, b.stored.as_ref()?))) else {
            return hold(false, Invariant::Pin3, || broken("without a record"));
        };
        let claimed = books.claims.as_ref().is_none_or(|c| c.pinned.contains(artifact) || c.targets.contains(artifact));
        hold(!claimed, Invariant::Pin3, || broken("while others need it, or may"))?;
        for (ix, pin) in saved.pins.iter().enumerate() {
            let off = off_of(pin).and_then(|s| side_of(pin, s)).as_ref() == Some(artifact);
            if pin.stage == Stage::Collecting.as_str() && off {
                let since = self.flipped.get(&ix).copied();
                let old = since.is_some_and(|at| now.since(at) >= self.plan.options.retain);
                hold(old, Invariant::Pin3, || broken("before its time of retention is over"))?;
                let flip = Revision(pin.flipped);
                hold(books.drained(flip), Invariant::Pin3, || broken("while a request in flight may need it"))?;
                continue;
            }
            let needs = !Stage::parse(&pin.stage).is_none_or(Stage::is_final)
                && [Some(&pin.new), pin.old.as_ref()]
                    .into_iter()
                    .flatten()
                    .any(|s| side_of(pin, s).as_ref() == Some(artifact))
                && (pin.stage != Stage::Collecting.as_str());
            hold(!needs, Invariant::Pin3, || broken("while another pin of the roll-out needs it"))?;
        }
        Ok(())
    }

    /// Loads asked for and not answered, by the process.
    #[must_use]
    pub fn open_loads(&self, process: u64) -> Vec<Pair> {
        self.processes.get(&process).map(|b| b.loads.keys().cloned().collect()).unwrap_or_default()
    }
}
