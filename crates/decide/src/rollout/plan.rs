//! What a roll-out is to do: the pins, where their keys hash to, and the options.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use holdfast_types::{ModelName, PoolName, ReplicaName, TenantId, Version};

/// The most pins in one roll-out. Every save carries all of them.
pub const MAX_PINS: usize = 4_096;
/// The most candidates of one side. A key's order of preference may be cut there.
pub const MAX_CANDIDATES: usize = 64;
/// The most canary steps.
pub const MAX_CANARY: usize = 32;

/// One roll-out. The store never gives the same number twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RolloutId(pub u64);

/// One version of one model, as the replicas of one pool hold it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Artifact {
    /// Whose replicas.
    pub pool: PoolName,
    /// The model.
    pub model: ModelName,
    /// The version.
    pub version: Version,
}

/// A version of a pin, and the replicas that its key hashes to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SidePlan {
    /// The pool that serves it.
    pub pool: PoolName,
    /// The version.
    pub version: Version,
    /// The replicas in the key's order of preference: the subset first, then those that step in for lost ones.
    pub order: Vec<ReplicaName>,
    /// Replicas per key, at least 1.
    pub subset: usize,
}

/// One pin that moves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PinPlan {
    /// Whose.
    pub tenant: TenantId,
    /// Of which model.
    pub model: ModelName,
    /// Where it is. `None`: a first pin; there is nothing to go back to.
    pub old: Option<SidePlan>,
    /// Where it goes.
    pub new: SidePlan,
}

/// A change of pins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Its number.
    pub id: RolloutId,
    /// The pins.
    pub pins: Vec<PinPlan>,
    /// How.
    pub options: Options,
}

/// A share of the traffic for some time, before more of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CanaryStep {
    /// Percent of the key's traffic, 1 to 99, growing from step to step.
    pub percent: u8,
    /// The wait from the step's activation to the next one.
    pub wait: Duration,
}

/// What has to hold of a canary. The condition is opaque here: somebody else judges it, and tells ([`Event::Judged`](super::Event::Judged)).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// The condition.
    pub condition: String,
    /// Answers of each version of which nothing is said before.
    pub samples: u64,
}

/// Live traffic copied to the new version, answers compared and thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shadow {
    /// Requests of a thousand that are copied, 1 to 1000.
    pub share: u16,
    /// Comparisons that are needed. Fewer are no good news.
    pub compare: u64,
    /// Answers of a thousand that may differ, errors of the new version among them. One more stops the roll-out.
    pub differ: u16,
    /// The copying lasts at least so long.
    pub at_least: Duration,
    /// Without enough comparisons by then the pin fails.
    pub at_most: Duration,
}

/// How a roll-out goes about it; all bounds and times. `Default` has the documented values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// All pins at once, or none. Else each as it is ready.
    pub atomic: bool,
    /// Copy live traffic first.
    pub shadow: Option<Shadow>,
    /// Shares before the whole. Empty: the whole at once.
    pub canary: Vec<CanaryStep>,
    /// What has to hold of a step before the next one. None: time alone.
    pub guard: Option<Guard>,
    /// The most loads asked for at one time, one on each replica. Default 8.
    pub loads: usize,
    /// A load that is not answered by then has failed. Default 6 min.
    pub load: Duration,
    /// Tries of a load on one replica before its words fail the pin. Default 3.
    pub tries: u32,
    /// All of the subset holds the new version, proven, by then, or the pin fails. Default 20 min.
    pub warm: Duration,
    /// All live gateways have prepared by then, or the pins that were to flip fail. Default 1 min.
    pub prepare: Duration,
    /// An alarm is raised when requests of the old version still run after this time. Default 10 min.
    pub drain: Duration,
    /// How long the old version is kept after its last request, for a revert without a load. Default 1 h.
    pub retain: Duration,
    /// What is not answered is asked again after this time. Default 5 s.
    pub retry: Duration,
    /// How much of a waiting time a killed control plane may lose at most. Default 5 min.
    pub checkpoint: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            atomic: false,
            shadow: None,
            canary: Vec::new(),
            guard: None,
            loads: 8,
            load: Duration::from_mins(6),
            tries: 3,
            warm: Duration::from_mins(20),
            prepare: Duration::from_mins(1),
            drain: Duration::from_mins(10),
            retain: Duration::from_hours(1),
            retry: Duration::from_secs(5),
            checkpoint: Duration::from_mins(5),
        }
    }
}

/// Why a plan is refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PlanError {
    /// No pins, or more than [`MAX_PINS`].
    Pins(usize),
    /// Two changes of one pin.
    Twice(TenantId, ModelName),
    /// The pin is there already.
    Same(TenantId, ModelName, Version),
    /// A side without replicas, with more than [`MAX_CANDIDATES`], with one of them twice, or with a subset of none.
    Candidates(TenantId, ModelName, Version),
    /// A condition without a canary.
    Guard,
    /// The canary's percents are not in 1 to 99, do not grow, or are more than [`MAX_CANARY`].
    Canary,
    /// The shadow's share is not in 1 to 1000, its threshold is over 1000, it compares nothing, or its times contradict each other.
    Shadow,
    /// A bound or a time that must not be zero is.
    Zero(&'static str),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pins(n) => write!(f, "{n} pins: a roll-out has 1 to {MAX_PINS}"),
            Self::Twice(t, m) => write!(f, "the pin of {t} for {m} is named twice"),
            Self::Same(t, m, v) => write!(f, "{t} is pinned to version {v} of {m} already"),
            Self::Candidates(t, m, v) => {
                write!(f, "version {v} of {m} for {t} needs 1 to {MAX_CANDIDATES} different replicas")
            }
            Self::Guard => f.write_str("a condition needs the steps of a canary, during which it is judged"),
            Self::Canary => write!(f, "canary percents are 1 to 99, growing, at most {MAX_CANARY} of them"),
            Self::Shadow => {
                f.write_str("a shadow has a share and a threshold of a thousand, comparisons, and times in order")
            }
            Self::Zero(what) => write!(f, "{what} must not be zero"),
        }
    }
}

impl std::error::Error for PlanError {}

impl Plan {
    /// Whether the plan can be carried out as it stands.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check(&self) -> Result<(), PlanError> {
        if self.pins.is_empty() || self.pins.len() > MAX_PINS {
            return Err(PlanError::Pins(self.pins.len()));
        }
        let mut seen = BTreeSet::new();
        for pin in &self.pins {
            if !seen.insert((&pin.tenant, &pin.model)) {
                return Err(PlanError::Twice(pin.tenant.clone(), pin.model.clone()));
            }
            pin.check()?;
        }
        self.options.check()
    }
}

impl PinPlan {
    fn check(&self) -> Result<(), PlanError> {
        let id = || (self.tenant.clone(), self.model.clone(), self.new.version.clone());
        if self.old.as_ref().is_some_and(|old| old.version == self.new.version) {
            let (tenant, model, version) = id();
            return Err(PlanError::Same(tenant, model, version));
        }
        for side in self.old.iter().chain([&self.new]) {
            if side.subset == 0 || !usable(&side.order) {
                return Err(PlanError::Candidates(self.tenant.clone(), self.model.clone(), side.version.clone()));
            }
        }
        Ok(())
    }
}

/// Whether these can be the candidates of a side.
pub(super) fn usable(order: &[ReplicaName]) -> bool {
    let different: BTreeSet<_> = order.iter().collect();
    (1..=MAX_CANDIDATES).contains(&order.len()) && different.len() == order.len()
}

impl Options {
    /// Whether a roll-out can go about it like this.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), PlanError> {
        let percents = || self.canary.iter().map(|s| s.percent);
        let grows = percents().zip(percents().skip(1)).all(|(a, b)| a < b);
        if !grows || percents().any(|p| !(1..=99).contains(&p)) || self.canary.len() > MAX_CANARY {
            return Err(PlanError::Canary);
        }
        if self.guard.is_some() && self.canary.is_empty() {
            return Err(PlanError::Guard);
        }
        if self.shadow.is_some_and(|s| !s.makes_sense()) {
            return Err(PlanError::Shadow);
        }
        let zero = [
            ("loads", self.loads == 0),
            ("tries", self.tries == 0),
            ("load", self.load.is_zero()),
            ("warm", self.warm.is_zero()),
            ("prepare", self.prepare.is_zero()),
            ("drain", self.drain.is_zero()),
            ("retry", self.retry.is_zero()),
            ("checkpoint", self.checkpoint.is_zero()),
        ];
        zero.into_iter().find(|(_, zero)| *zero).map_or(Ok(()), |(what, _)| Err(PlanError::Zero(what)))
    }
}

impl Shadow {
    const fn makes_sense(&self) -> bool {
        let share = self.share >= 1 && self.share <= 1000 && self.differ <= 1000;
        share && self.compare > 0 && self.at_least.as_nanos() <= self.at_most.as_nanos() && !self.at_most.is_zero()
    }

    /// Whether the copying has to stop: so many differ that the threshold is passed even if all that are still needed agree.
    pub(super) fn stops(&self, compared: u64, differed: u64) -> bool {
        let of = u128::from(compared.max(self.compare));
        u128::from(differed) * 1000 > u128::from(self.differ) * of
    }
}
