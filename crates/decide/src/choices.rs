//! What may choose a version before the pin does: experiments and rules, as the table has them for each tenant.
//!
//! Of one tenant and model at most one experiment gives somebody an arm (the configuration sees to it that those that could meet are parts of one layer), so
//! the order of experiments decides nothing. Rules are asked in their order. A tenant takes part in an experiment only with a model that it pins: the arm
//! stands in the pin's place.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use holdfast_assign::{Experiment, Facts, Outcome, Purpose, Sticky, Target};
use holdfast_types::{ArmName, ExperimentName, ModelName, RuleName, TenantId, Version};

use crate::input::BuildError;
use crate::snapshot::{Catalogue, Snapshot};

/// An experiment as the table needs it.
#[derive(Clone, Debug)]
pub struct ExperimentInput {
    /// Its name.
    pub name: ExperimentName,
    /// The model whose versions its arms are.
    pub model: ModelName,
    /// Who is in which arm.
    pub experiment: Experiment,
    /// Its arms, in the order of the experiment's splits.
    pub arms: Vec<(ArmName, Version)>,
}

/// A rule of a tenant as the table needs it.
#[derive(Clone, Debug)]
pub struct RuleInput {
    /// Whose.
    pub tenant: TenantId,
    /// Its name.
    pub name: RuleName,
    /// For which model.
    pub model: ModelName,
    /// For whom.
    pub target: Target,
    /// Which version.
    pub version: Version,
}

/// What chose a version: an arm or a rule.
pub struct Cause {
    /// `experiment:NAME/ARM` or `rule:TENANT/NAME`.
    pub id: Box<str>,
    /// `NAME=ARM` of an arm; empty of a rule.
    pub stamp: Box<str>,
    /// What events say of an arm. None: it is a rule.
    pub arm: Option<ArmFacts>,
    /// Room for what the data plane keeps with it. Set once.
    pub handles: OnceLock<Arc<dyn Any + Send + Sync>>,
}

/// What events say of an arm.
#[derive(Clone, Debug)]
pub struct ArmFacts {
    /// The experiment.
    pub experiment: Arc<str>,
    /// Its bucket version.
    pub bucket_version: u32,
    /// The arm.
    pub arm: Arc<str>,
    /// A hash of the three.
    pub number: u64,
    /// What is kept of those in it. None: nothing.
    pub sticky: Option<Arc<Sticky>>,
}

impl ArmFacts {
    fn new(experiment: &ExperimentName, bucket_version: u32, arm: &ArmName, sticky: Option<Arc<Sticky>>) -> Self {
        let parts = [experiment.as_str().as_bytes(), &bucket_version.to_le_bytes(), arm.as_str().as_bytes()];
        let number = holdfast_assign::place::hash(Purpose::Subject, &parts);
        Self { experiment: experiment.as_str().into(), bucket_version, arm: arm.as_str().into(), number, sticky }
    }
}

impl Cause {
    fn new(id: String, stamp: String, arm: Option<ArmFacts>) -> Arc<Self> {
        Arc::new(Self { id: id.into(), stamp: stamp.into(), arm, handles: OnceLock::new() })
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)
    }
}

/// An experiment in the table.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) name: ExperimentName,
    pub(crate) model: u32,
    model_name: ModelName,
    pub(crate) experiment: Experiment,
    pub(crate) arms: Box<[Arm]>,
}

/// An arm in the table.
#[derive(Debug)]
pub(crate) struct Arm {
    pub(crate) name: ArmName,
    pub(crate) version: u32,
    pub(crate) cause: Arc<Cause>,
}

impl Trial {
    pub(crate) fn new(catalogue: &Catalogue, input: ExperimentInput) -> Result<Self, BuildError> {
        let ExperimentInput { name, model: model_name, experiment, arms } = input;
        let keys = || experiment.keys.as_slice().into();
        let sticky = experiment.sticky_ms.map(|keep_ms| Arc::new(Sticky { keep_ms, keys: keys() }));
        let mut model = u32::MAX;
        let arms = arms.into_iter().map(|(arm, version)| {
            let found = catalogue.find(&model_name, &version);
            let (of, version) = found.ok_or_else(|| BuildError::NoArm(name.clone(), model_name.clone(), version))?;
            model = of;
            let facts = ArmFacts::new(&name, experiment.allocation.version(), &arm, sticky.clone());
            let cause = Cause::new(format!("experiment:{name}/{arm}"), format!("{name}={arm}"), Some(facts));
            Ok(Arm { name: arm, version, cause })
        });
        let arms = arms.collect::<Result<_, BuildError>>()?;
        Ok(Self { name, model, model_name, experiment, arms })
    }

    /// Which arm somebody is in.
    pub(crate) fn assign(&self, facts: &impl Facts) -> Outcome {
        let kept = self.experiment.sticky_ms.and_then(|_| facts.kept(self.name.as_str()));
        self.experiment.assign_kept(facts, kept)
    }
}

impl Snapshot {
    /// An arm of the table's experiments, by its names. Looks through all of them.
    #[must_use]
    pub fn arm(&self, experiment: &str, arm: &str) -> Option<&ArmFacts> {
        let trial = self.trials().iter().find(|trial| trial.name.as_str() == experiment)?;
        trial.arms.iter().find(|one| one.name.as_str() == arm)?.cause.arm.as_ref()
    }
}

/// A rule in the table.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: RuleName,
    pub(crate) model: u32,
    pub(crate) target: Target,
    pub(crate) version: u32,
    pub(crate) cause: Arc<Cause>,
}

/// What may choose a version for one tenant.
#[derive(Debug)]
pub(crate) struct Choices {
    pub(crate) trials: Box<[Arc<Trial>]>,
    pub(crate) rules: Box<[Rule]>,
}

impl Choices {
    /// What they may choose, model and version.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (u32, u32)> {
        let arms = self.trials.iter().flat_map(|trial| trial.arms.iter().map(|arm| (trial.model, arm.version)));
        arms.chain(self.rules.iter().map(|rule| (rule.model, rule.version)))
    }
}

/// The experiments and rules of a table, while its tenants are built.
pub(crate) struct Wanted<'t> {
    trials: &'t [Arc<Trial>],
    rules: BTreeMap<TenantId, Vec<RuleInput>>,
}

impl<'t> Wanted<'t> {
    pub(crate) fn new(trials: &'t [Arc<Trial>], all: Vec<RuleInput>) -> Self {
        let mut rules: BTreeMap<TenantId, Vec<RuleInput>> = BTreeMap::new();
        all.into_iter().for_each(|rule| rules.entry(rule.tenant.clone()).or_default().push(rule));
        Self { trials, rules }
    }

    /// Those of a tenant. None: there are none.
    pub(crate) fn choices(
        &self,
        catalogue: &Catalogue,
        tenant: &TenantId,
        pins: impl Fn(u32) -> bool,
    ) -> Result<Option<Choices>, BuildError> {
        let own = |trial: &&Arc<Trial>| {
            pins(trial.model) && trial.experiment.target.may_hold(tenant.as_str(), trial.model_name.as_str())
        };
        let trials: Box<[Arc<Trial>]> = self.trials.iter().filter(own).cloned().collect();
        let rules = self.rules.get(tenant).map(Vec::as_slice).unwrap_or_default();
        let rules = rules.iter().map(|rule| {
            let found = catalogue.find(&rule.model, &rule.version);
            let missing = || BuildError::NoVersion(tenant.clone(), rule.model.clone(), rule.version.clone());
            let (model, version) = found.ok_or_else(missing)?;
            let cause = Cause::new(format!("rule:{tenant}/{}", rule.name), String::new(), None);
            Ok(Rule { name: rule.name.clone(), model, target: rule.target.clone(), version, cause })
        });
        let rules = rules.collect::<Result<Box<[Rule]>, BuildError>>()?;
        Ok((!trials.is_empty() || !rules.is_empty()).then_some(Choices { trials, rules }))
    }
}
