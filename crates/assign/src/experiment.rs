//! An experiment, and which arm of it somebody is in.

use crate::allocation::Allocation;
use crate::place::{Purpose, place};
use crate::split::Range;
use crate::sticky::{self, Kept};
use crate::target::{Field, Target};

/// What is known of who asks.
pub trait Facts {
    /// The value of an attribute that a key is taken from. An empty one is none.
    fn key(&self, from: KeyFrom) -> Option<&str>;
    /// The value of a field that a target looks at.
    fn field(&self, field: &Field) -> Option<&str>;
    /// The time, in milliseconds since 1970. Asked only for an experiment that has a start or an end.
    fn now_ms(&self) -> u64;
    /// The key that somebody has proved to have had in an experiment before. Asked only for one that is sticky.
    fn kept(&self, experiment: &str) -> Option<Kept<'_>> {
        let _ = experiment;
        None
    }
}

/// Where a stable key is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFrom {
    /// The proved user.
    User,
    /// The proved device.
    Device,
    /// The tenant: all its users are in one arm.
    Tenant,
}

impl KeyFrom {
    /// A part of what is hashed, so that a user and a device of one name are two.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Device => "device",
            Self::Tenant => "tenant",
        }
    }

    /// From its word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::User, Self::Device, Self::Tenant].into_iter().find(|one| one.as_str() == word)
    }
}

/// A part of a layer: experiments with parts that do not meet have nobody in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The layer's name.
    pub name: String,
    /// Which places of it.
    pub range: Range,
}

/// An experiment, as the table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// What tells its places from those of others. Never changed.
    pub salt: String,
    /// Whether it runs.
    pub running: bool,
    /// Nobody is in before, in milliseconds since 1970.
    pub start: Option<u64>,
    /// Nobody is in from then on, in milliseconds since 1970.
    pub end: Option<u64>,
    /// Which key, by preference.
    pub keys: Vec<KeyFrom>,
    /// Who is meant.
    pub target: Target,
    /// Its part of a layer.
    pub layer: Option<Layer>,
    /// How many of 10,000 are kept out of all experiments with this holdout, and its name.
    pub holdout: Option<(String, u16)>,
    /// For how long somebody is known by the key that gave the arm, in milliseconds, though a better one becomes known. None: the best key decides each time.
    pub sticky_ms: Option<u64>,
    /// What has been given so far.
    pub allocation: Allocation,
}

/// Why somebody is in no arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// It does not run.
    NotRunning,
    /// It has not begun, or is over.
    Time,
    /// None of the keys is known.
    NoKey,
    /// Not meant.
    Target,
    /// Kept out of all experiments.
    Holdout,
    /// Another part of the layer.
    Layer,
    /// Not among those who are in.
    Coverage,
}

impl Out {
    /// The reason as a word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotRunning => "not_running",
            Self::Time => "time",
            Self::NoKey => "no_key",
            Self::Target => "target",
            Self::Holdout => "holdout",
            Self::Layer => "layer",
            Self::Coverage => "coverage",
        }
    }
}

/// What comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This arm, by this key.
    Arm(usize, KeyFrom),
    /// This arm, by the key that was kept.
    Kept(usize, KeyFrom),
    /// None.
    Out(Out),
}

impl Experiment {
    /// Which arm somebody is in of whom no key is kept. The same for the same facts, whatever else happens. No allocation of memory.
    pub fn assign(&self, facts: &impl Facts) -> Outcome {
        self.assign_kept(facts, None)
    }

    /// Which arm somebody is in. A key that was kept decides in the place of the one that is known, by the same hash: nothing but the table says the arm.
    pub fn assign_kept(&self, facts: &impl Facts, kept: Option<Kept<'_>>) -> Outcome {
        if !self.running {
            return Outcome::Out(Out::NotRunning);
        }
        if (self.start.is_some() || self.end.is_some()) && !self.is_time(facts.now_ms()) {
            return Outcome::Out(Out::Time);
        }
        if !self.target.holds(|field| facts.field(field)) {
            return Outcome::Out(Out::Target);
        }
        let own = sticky::own(&self.keys, facts);
        let kept = kept.filter(|kept| self.sticky_ms.is_some() && kept.stands_for(&self.keys, own));
        let is_kept = kept.is_some();
        let Some((from, key)) = kept.map(|kept| (kept.from, kept.key)).or(own) else { return Outcome::Out(Out::NoKey) };
        let who = [from.as_str().as_bytes(), key.as_bytes()];
        if let Some((name, most)) = &self.holdout
            && place(Purpose::Holdout, &[name.as_bytes(), who[0], who[1]]) < *most
        {
            return Outcome::Out(Out::Holdout);
        }
        if let Some(layer) = &self.layer
            && !layer.range.has(place(Purpose::Layer, &[layer.name.as_bytes(), who[0], who[1]]))
        {
            return Outcome::Out(Out::Layer);
        }
        let version = self.allocation.version().to_le_bytes();
        let parts = [self.salt.as_bytes(), &version, who[0], who[1]];
        let (inclusion, arm) = (place(Purpose::Inclusion, &parts), place(Purpose::Arm, &parts));
        match self.allocation.arm(inclusion, arm) {
            None => Outcome::Out(Out::Coverage),
            Some(arm) if is_kept => Outcome::Kept(arm, from),
            Some(arm) => Outcome::Arm(arm, from),
        }
    }

    /// Whether a time is within its own: the start is, the end is not.
    fn is_time(&self, now: u64) -> bool {
        self.start.is_none_or(|start| start <= now) && self.end.is_none_or(|end| now < end)
    }
}
