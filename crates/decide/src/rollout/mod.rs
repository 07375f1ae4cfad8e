//! A changed pin on its way into force: pre-warm, verify, shadow, prepare, activate, drain, retain, collect; and the way back.
//!
//! One [`Rollout`] is one change of one or many pins. It is synchronous and pure: the driver calls [`Rollout::apply`] with the time and an
//! event, carries out the effects in order, and sends `Tick` at [`Rollout::next_deadline`].
//!
//! ```text
//!  Warming -> Shadowing -> Ready -> Flipping -> Canary -> (Ready ...)
//!     ^ |                              |
//!     | +-> Failed, Aborted            +-> Draining -> Retaining -> Collecting -> Done
//!     +--------------------- revert ------------+----------+- - - - - (cold) - - -+
//! ```
//!
//! **Written down first.** Decisions are a record in the store, replaced by compare-and-set; whatever acts on the world comes out only when the
//! record that implies it is stored. What is to be done follows from the record and from what is seen, not from what happened last, so a
//! process that resumes asks for the same again. What is only seen (readiness, gateways) is not stored but asked for anew.
//!
//! **One effect.** A step enters the table by one transaction that compares three things: the table's revision, the record's version, the
//! term. So every later save of the record, by whichever control plane, voids an activation that is still under way. Whenever the outcome of
//! one is in doubt (no answer, a conflict, a resumed process), the record is saved as `Reading`, and only then is the table read: what it says
//! is final. An activation is never repeated on a guess.
//!
//! **Gateways.** Live is who holds a lease. A flip waits until all live gateways hold both routes; one that does not answer blocks it, until the
//! flip fails or its lease ends, for a gateway without a lease serves its last table to those who reach it and is not given another lease
//! before it has the table in force. An activation names the number of leases granted that it knows of and is refused if there are more, so
//! that nobody serves who has not prepared. Nothing is concluded from an empty fleet.
//!
//! Invariants ([`witness`] has a predicate for each): PIN-3, ROUTE-1, one effect for each step, loads asked for within the subset and the
//! bound, what failed or was aborted never flips, nothing is done that is not written down.

mod advance;
mod claims;
mod command;
mod effect;
mod emit;
mod event;
mod flip;
mod observe;
mod plan;
mod progress;
mod saved;
mod state;
pub mod witness;

use std::time::Duration;

use holdfast_types::Mono;

pub use effect::{Alarm, Effect, PinFlip, Refusal};
pub use event::{
    ActivateRefusal, Claims, Command, Event, GatewayView, MAX_WORDS, PinView, Proposal, Report, TableView,
};
pub use plan::{
    Artifact, CanaryStep, Guard, MAX_CANARY, MAX_CANDIDATES, MAX_PINS, Options, PinPlan, Plan, PlanError, RolloutId,
    Shadow, SidePlan,
};
pub use progress::{Phase, PinProgress, Progress, Waiting};
pub use saved::{FORMAT, ResumeError, Saved, SavedFlip, SavedPin, SavedSide};
pub use state::Stage;

use state::{Record, Seen};

/// Answers and alarms that wait for a save; more of them are dropped.
const MAX_NOTES: usize = 256;

/// One roll-out in the hands of one control plane. Cost of an event: in proportion to the pins and their candidates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rollout {
    record: Record,
    seen: Seen,
    now: Mono,
    /// The record differs from what was last given to the store.
    dirty: bool,
    /// The version that is being saved.
    saving: Option<u64>,
    /// The age in the last save.
    saved_age: Duration,
    /// No save before, after one failed.
    save_after: Duration,
    /// Somebody else has it.
    halted: bool,
    /// To be said once the record is stored.
    notes: Vec<Effect>,
}

impl Rollout {
    /// A new roll-out, under the fencing term of the control plane that leads. Send `Tick` to start it.
    ///
    /// # Errors
    /// The first thing that is wrong with the plan.
    pub fn plan(now: Mono, term: u64, plan: Plan) -> Result<Self, PlanError> {
        plan.check()?;
        Ok(Self::over(now, Record::of(plan, term)))
    }

    /// Goes on from what is stored, under this term. Send `Tick` to start it: it claims the record before it does anything.
    ///
    /// # Errors
    /// The record is not one, or belongs to a higher term.
    pub fn resume(now: Mono, term: u64, saved: &Saved) -> Result<Self, ResumeError> {
        let mut record = Record::read(saved)?;
        if record.term > term {
            return Err(ResumeError::Fenced { stored: record.term, own: term });
        }
        record.term = term;
        Ok(Self::over(now, record))
    }

    fn over(now: Mono, record: Record) -> Self {
        let saved_age = record.age;
        Self {
            record,
            seen: Seen::default(),
            now,
            dirty: true,
            saving: None,
            saved_age,
            save_after: Duration::ZERO,
            halted: false,
            notes: Vec::new(),
        }
    }

    /// Takes an event in and appends what is to be done to `out`, in the order in which it is to be done.
    pub fn apply(&mut self, now: Mono, event: Event, out: &mut Vec<Effect>) {
        self.apply_all(now, [event], out);
    }

    /// Takes events in, one after the other. What follows from them is decided once, after the last: many pins get many reports.
    pub fn apply_all(&mut self, now: Mono, events: impl IntoIterator<Item = Event>, out: &mut Vec<Effect>) {
        if self.halted {
            return;
        }
        self.record.age = self.record.age.saturating_add(now.since(self.now));
        self.now = self.now.max(now);
        for event in events {
            self.take_in(event, out);
            if self.halted {
                return;
            }
        }
        self.advance();
        self.save(out);
        if self.saving.is_none() && !self.dirty {
            self.emit(out);
        }
    }

    /// The next moment at which `Tick` has something to do. A tick before it is harmless.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        if self.halted {
            return None;
        }
        let age = self.record.age;
        // What is due and was not done waits for an event.
        let next = self.deadlines().into_iter().filter(|at| *at > age).min()?;
        Some(self.now.after(next - age))
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> RolloutId {
        self.record.id
    }

    /// The version of the record in the store; 0: there is none yet.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.record.version
    }

    /// Whether another control plane has taken it over.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.halted
    }

    /// Whether every pin is at a final stage, and that is stored. A revert may still begin anew.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended() && self.saving.is_none() && !self.dirty
    }

    fn ended(&self) -> bool {
        self.record.lanes.iter().all(|l| l.stage.is_final())
    }

    fn save(&mut self, out: &mut Vec<Effect>) {
        let age = self.record.age;
        if self.saving.is_some()
            || age < self.save_after
            || !(self.dirty || self.checkpoint().is_some_and(|at| at <= age))
        {
            return;
        }
        let version = self.record.version.saturating_add(1);
        self.saving = Some(version);
        self.dirty = false;
        self.saved_age = age;
        out.push(Effect::Save { expected: self.record.version, saved: Box::new(self.record.write(version)) });
    }

    /// When the age is to be saved although nothing else has changed. Not during a flip: a save voids an activation.
    fn checkpoint(&self) -> Option<Duration> {
        let waits = !self.ended() && self.record.flip.is_none();
        waits.then(|| self.saved_age.saturating_add(self.record.options.checkpoint))
    }

    /// Something to be said when the record is stored.
    fn note(&mut self, effect: Effect) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(effect);
        }
    }

    fn answer(&mut self, ask: u64, answer: Result<(), Refusal>) {
        self.note(Effect::Answer { ask, answer });
    }

    fn alarm(&mut self, alarm: Alarm) {
        self.note(Effect::Alarm(alarm));
    }
}
