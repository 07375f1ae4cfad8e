//! A roll-out as plain data, for a store. Durations and revisions are what they are; names are texts and are checked when they are read.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use holdfast_types::{IdError, ModelName, PoolName, ReplicaName, Revision, TenantId, Version};

use super::event::Command;
use super::plan::{Artifact, Options, PinPlan, Plan, RolloutId, SidePlan};
use super::state::{Flip, FlipState, Lane, Record, Side, Stage};

/// The format of [`Saved`] that is written, and the only one that is read.
pub const FORMAT: u32 = 1;

/// The record of a roll-out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields are those of the plan and of the progress report")]
pub struct Saved {
    pub format: u32,
    pub id: u64,
    /// Of this record: one more than that of the record it replaces.
    pub version: u64,
    /// The fencing term of who wrote it.
    pub term: u64,
    /// What has passed while some control plane had it in hand.
    pub age: Duration,
    pub options: Options,
    pub pins: Vec<SavedPin>,
    pub flip: Option<SavedFlip>,
    pub next_step: u32,
    /// The age at which it was paused.
    pub paused: Option<Duration>,
    /// `abort`, `revert`, `revert_confirmed`: waits for an activation to be resolved.
    pub pending: Option<String>,
}

/// A pin in the record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields are those of the plan and of the progress report")]
pub struct SavedPin {
    pub tenant: String,
    pub model: String,
    pub old: Option<SavedSide>,
    pub new: SavedSide,
    /// [`Stage::as_str`].
    pub stage: String,
    /// The age at which the stage began.
    pub since: Duration,
    /// Percent of the traffic on the new version.
    pub share: u8,
    /// It has flipped at least once.
    pub active: bool,
    pub back: bool,
    pub cold: bool,
    pub overtaken: bool,
    /// Canary steps done.
    pub canary: u32,
    /// The revision of the last flip.
    pub flipped: u64,
    pub words: Option<String>,
}

/// A version of a pin in the record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the fields are those of the plan")]
pub struct SavedSide {
    pub pool: String,
    pub version: String,
    pub order: Vec<String>,
    pub subset: u32,
    /// Candidates out of service.
    pub lost: Vec<String>,
    /// Where it was ever wanted.
    pub touched: Vec<String>,
}

/// The flip in progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "fields are named for what they are")]
pub struct SavedFlip {
    pub step: u32,
    /// `reading`, `preparing`, `activating`.
    pub state: String,
    pub base: u64,
    /// Pins and their share afterwards.
    pub pins: Vec<(u32, u8)>,
    pub since: Duration,
}

/// Why a record cannot be gone on with.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields are named for what they are; the text of the variant says the rest")]
pub enum ResumeError {
    /// Written by another release.
    Format(u32),
    /// A name is none.
    Name(String, IdError),
    /// A part contradicts another one.
    Invalid(&'static str),
    /// A control plane with a higher term has it.
    Fenced { stored: u64, own: u64 },
}

impl fmt::Display for ResumeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(n) => write!(f, "the record has format {n}; this release reads {FORMAT}"),
            Self::Name(text, why) => write!(f, "the record names {text:?}: {why}"),
            Self::Invalid(what) => write!(f, "the record contradicts itself: {what}"),
            Self::Fenced { stored, own } => write!(f, "term {stored} has the roll-out, this is term {own}"),
        }
    }
}

impl std::error::Error for ResumeError {}

const FLIP_STATES: [(FlipState, &str); 3] =
    [(FlipState::Reading, "reading"), (FlipState::Preparing, "preparing"), (FlipState::Activating, "activating")];
const PENDING: [(Command, &str); 3] = [
    (Command::Abort, "abort"),
    (Command::Revert { confirmed: false }, "revert"),
    (Command::Revert { confirmed: true }, "revert_confirmed"),
];

fn name_of<T: PartialEq>(table: &[(T, &'static str)], value: &T) -> String {
    table.iter().find(|(v, _)| v == value).map_or_else(String::new, |(_, n)| (*n).to_owned())
}

fn value_of<T: Copy>(table: &[(T, &'static str)], name: &str, what: &'static str) -> Result<T, ResumeError> {
    table.iter().find(|(_, n)| *n == name).map(|(v, _)| *v).ok_or(ResumeError::Invalid(what))
}

fn name<T>(text: &str, parse: impl Fn(&str) -> Result<T, IdError>) -> Result<T, ResumeError> {
    parse(text).map_err(|why| ResumeError::Name(text.to_owned(), why))
}

fn names<T: FromIterator<ReplicaName>>(texts: &[String]) -> Result<T, ResumeError> {
    texts.iter().map(|t| name(t, ReplicaName::parse)).collect()
}

fn texts<'n>(names: impl IntoIterator<Item = &'n ReplicaName>) -> Vec<String> {
    names.into_iter().map(ToString::to_string).collect()
}

impl Record {
    /// Before the first save.
    pub(super) fn of(plan: Plan, term: u64) -> Self {
        Self {
            id: plan.id,
            version: 0,
            term,
            age: Duration::ZERO,
            options: plan.options,
            lanes: plan.pins.into_iter().map(Lane::of).collect(),
            flip: None,
            next_step: 1,
            paused: None,
            pending: None,
        }
    }

    pub(super) fn write(&self, version: u64) -> Saved {
        Saved {
            format: FORMAT,
            id: self.id.0,
            version,
            term: self.term,
            age: self.age,
            options: self.options.clone(),
            pins: self.lanes.iter().map(Lane::write).collect(),
            flip: self.flip.as_ref().map(Flip::write),
            next_step: self.next_step,
            paused: self.paused,
            pending: self.pending.map(|p| name_of(&PENDING, &p)),
        }
    }

    /// An activation that was allowed is in doubt from here on.
    pub(super) fn read(saved: &Saved) -> Result<Self, ResumeError> {
        if saved.format != FORMAT {
            return Err(ResumeError::Format(saved.format));
        }
        let lanes = saved.pins.iter().map(Lane::read).collect::<Result<Vec<_>, _>>()?;
        let plan = Plan {
            id: RolloutId(saved.id),
            pins: lanes.iter().map(Lane::plan).collect(),
            options: saved.options.clone(),
        };
        plan.check().map_err(|_| ResumeError::Invalid("plan"))?;
        let flip = saved.flip.as_ref().map(Flip::read).transpose()?;
        let flipping = |pin: usize| flip.iter().flat_map(|f| &f.pins).any(|(p, _)| *p == pin);
        if lanes.iter().enumerate().any(|(pin, l)| (l.stage == Stage::Flipping) != flipping(pin)) {
            return Err(ResumeError::Invalid("flip"));
        }
        if flip.iter().flat_map(|f| &f.pins).any(|(pin, share)| *pin >= lanes.len() || *share > 100) {
            return Err(ResumeError::Invalid("flip"));
        }
        let pending = saved.pending.as_deref().map(|p| value_of(&PENDING, p, "pending")).transpose()?;
        Ok(Self {
            id: plan.id,
            version: saved.version,
            term: saved.term,
            age: saved.age,
            options: plan.options,
            lanes,
            flip,
            next_step: saved.next_step,
            paused: saved.paused,
            pending,
        })
    }
}

impl Lane {
    fn of(pin: PinPlan) -> Self {
        let model = &pin.model;
        Self {
            old: pin.old.map(|side| Side::of(model, side)),
            new: Side::of(model, pin.new),
            tenant: pin.tenant,
            model: pin.model,
            stage: Stage::Warming,
            since: Duration::ZERO,
            share: 0,
            active: false,
            back: false,
            cold: false,
            overtaken: false,
            canary: 0,
            flipped: Revision(0),
            words: None,
        }
    }

    fn plan(&self) -> PinPlan {
        let (tenant, model) = (self.tenant.clone(), self.model.clone());
        PinPlan { tenant, model, old: self.old.as_ref().map(Side::plan), new: self.new.plan() }
    }

    fn write(&self) -> SavedPin {
        SavedPin {
            tenant: self.tenant.to_string(),
            model: self.model.to_string(),
            old: self.old.as_ref().map(Side::write),
            new: self.new.write(),
            stage: self.stage.as_str().to_owned(),
            since: self.since,
            share: self.share,
            active: self.active,
            back: self.back,
            cold: self.cold,
            overtaken: self.overtaken,
            canary: u32::try_from(self.canary).unwrap_or(u32::MAX),
            flipped: self.flipped.0,
            words: self.words.clone(),
        }
    }

    fn read(saved: &SavedPin) -> Result<Self, ResumeError> {
        let model = name(&saved.model, ModelName::parse)?;
        if saved.share > 100 || (saved.back && saved.old.is_none()) {
            return Err(ResumeError::Invalid("pin"));
        }
        Ok(Self {
            tenant: name(&saved.tenant, TenantId::parse)?,
            old: saved.old.as_ref().map(|side| Side::read(&model, side)).transpose()?,
            new: Side::read(&model, &saved.new)?,
            model,
            stage: Stage::parse(&saved.stage).ok_or(ResumeError::Invalid("stage"))?,
            since: saved.since,
            share: saved.share,
            active: saved.active,
            back: saved.back,
            cold: saved.cold,
            overtaken: saved.overtaken,
            canary: saved.canary as usize,
            flipped: Revision(saved.flipped),
            words: saved.words.clone(),
        })
    }
}

impl Side {
    fn of(model: &ModelName, plan: SidePlan) -> Self {
        let artifact = Artifact { pool: plan.pool, model: model.clone(), version: plan.version };
        let (lost, touched) = (BTreeSet::new(), BTreeSet::new());
        Self { artifact, order: plan.order, subset: plan.subset, lost, touched }
    }

    fn plan(&self) -> SidePlan {
        let Artifact { pool, version, .. } = self.artifact.clone();
        SidePlan { pool, version, order: self.order.clone(), subset: self.subset }
    }

    fn write(&self) -> SavedSide {
        SavedSide {
            pool: self.artifact.pool.to_string(),
            version: self.artifact.version.to_string(),
            order: texts(&self.order),
            subset: u32::try_from(self.subset).unwrap_or(u32::MAX),
            lost: texts(&self.lost),
            touched: texts(&self.touched),
        }
    }

    fn read(model: &ModelName, saved: &SavedSide) -> Result<Self, ResumeError> {
        let (pool, version) = (name(&saved.pool, PoolName::parse)?, name(&saved.version, Version::parse)?);
        Ok(Self {
            artifact: Artifact { pool, model: model.clone(), version },
            order: names(&saved.order)?,
            subset: saved.subset as usize,
            lost: names(&saved.lost)?,
            touched: names(&saved.touched)?,
        })
    }
}

impl Flip {
    fn write(&self) -> SavedFlip {
        let pins = self.pins.iter().map(|(pin, share)| (u32::try_from(*pin).unwrap_or(u32::MAX), *share));
        let (state, pins) = (name_of(&FLIP_STATES, &self.state), pins.collect());
        SavedFlip { step: self.step, state, base: self.base.0, pins, since: self.since }
    }

    fn read(saved: &SavedFlip) -> Result<Self, ResumeError> {
        let state = match value_of(&FLIP_STATES, &saved.state, "flip")? {
            FlipState::Activating => FlipState::Reading,
            state => state,
        };
        let pins = saved.pins.iter().map(|(pin, share)| (*pin as usize, *share)).collect();
        Ok(Self { step: saved.step, state, base: Revision(saved.base), pins, since: saved.since })
    }
}
