//! Experiments and rules: their forms in the file, and what is checked of them.

use std::time::Duration;

use holdfast_assign as assign;
use holdfast_assign::{Allocation, Field, KeyFrom, PLACES, Target};
use holdfast_decide::{ExperimentInput, RuleInput};
use holdfast_types::{ArmName, ExperimentName, ModelName, RuleName, TenantId, Version};

use crate::compound::{List, Optional, Required};
use crate::kind::{Choice, Flag};
use crate::moments::{INSTANT, Share, TARGET_FIELD, TARGET_TEXT};
use crate::number::Count;
use crate::section::{form, section};
use crate::text::{ARM, EXPERIMENT, MODEL, RULE, VERSION};
use crate::units::{DAY, millis_to, secs};

/// An experiment, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// Its name.
    pub name: ExperimentName,
    /// The model whose versions its arms are.
    pub model: ModelName,
    /// Where it stands.
    pub status: Status,
    /// Who is in which arm, with what has been given so far.
    pub experiment: assign::Experiment,
    /// Its arms, in the order of its splits. At least one.
    pub arms: Vec<Arm>,
}

/// An arm: a version, and its weight for those to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Its name.
    pub name: ArmName,
    /// A version of the experiment's model.
    pub version: Version,
    /// Its part of all weights.
    pub weight: u32,
}

/// A version for some of a tenant's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Its name; unique in the tenant.
    pub name: RuleName,
    /// A model of the catalogue.
    pub model: ModelName,
    /// A version of it.
    pub version: Version,
    /// For whom.
    pub target: Target,
}

/// Where an experiment stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Nobody is in, nothing has been given; its versions are loaded.
    #[default]
    Draft,
    /// Arms are given.
    Running,
    /// Nobody is in, and everybody keeps the arm for later; its versions stay loaded.
    Paused,
    /// Nobody is in, and its versions are wanted no more.
    Ended,
}

impl Experiment {
    /// What a table is built from.
    #[must_use]
    pub fn input(&self) -> ExperimentInput {
        ExperimentInput {
            name: self.name.clone(),
            model: self.model.clone(),
            experiment: self.experiment.clone(),
            arms: self.arms.iter().map(|arm| (arm.name.clone(), arm.version.clone())).collect(),
        }
    }

    /// What has been given so far.
    #[must_use]
    pub const fn allocation(&self) -> &Allocation {
        &self.experiment.allocation
    }
}

impl Rule {
    /// What a table is built from.
    #[must_use]
    pub fn input(&self, tenant: &TenantId) -> RuleInput {
        RuleInput {
            tenant: tenant.clone(),
            name: self.name.clone(),
            model: self.model.clone(),
            target: self.target.clone(),
            version: self.version.clone(),
        }
    }
}

const STATUS: Choice<Status> = Choice(&[
    ("draft", Status::Draft),
    ("running", Status::Running),
    ("paused", Status::Paused),
    ("ended", Status::Ended),
]);
const KEY: Choice<KeyFrom> =
    Choice(&[("user", KeyFrom::User), ("device", KeyFrom::Device), ("tenant", KeyFrom::Tenant)]);

section! {
    /// Versions of a model that are tried on parts of the people.
    pub(crate) struct ExperimentForm {
        /// Its name; unique, also when case is ignored.
        name: Option<ExperimentName> = None, Required(EXPERIMENT);
        /// The model. Tenants that pin it take part.
        model: Option<ModelName> = None, Required(MODEL);
        /// Where it stands. draft: its versions are loaded, nobody is in. running: arms are given. paused: nobody is in for now. ended: its versions are wanted no more.
        status: Status = Status::Draft, STATUS;
        /// What tells its places from those of other experiments. Left out: its name.
        salt: Option<ExperimentName> = None, Optional(EXPERIMENT);
        /// Raised to give everybody a new place: what was given before is forgotten.
        bucket_version: u32 = 1, Count { least: 1, most: u32::MAX };
        /// By what people are told apart: the first that is known. Left out: user, then device.
        key: Option<Vec<Option<KeyFrom>>> = None, Optional(List { item: Optional(KEY), least: 1 });
        /// How many of the people are in, in percent.
        coverage: u16 = PLACES, Share;
        /// Nobody is in before, such as 2027-01-31T08:00:00Z.
        start: Option<u64> = None, Optional(INSTANT);
        /// Nobody is in from then on.
        end: Option<u64> = None, Optional(INSTANT);
        /// Its part of a layer. Experiments with other parts of it have nobody in common.
        layer: Option<LayerForm> = None, Optional(form::<LayerForm>());
        /// Who is kept out of this experiment and of all others that name the same holdout.
        holdout: Option<HoldoutForm> = None, Optional(form::<HoldoutForm>());
        /// Whom it is for: all of these hold. Left out: everybody.
        target: Vec<ConditionForm> = Vec::new(), List { item: form::<ConditionForm>(), least: 0 };
        /// Somebody whom a device gave an arm keeps it when a user's name becomes known beside it. Left out: the first key that is known decides each time.
        sticky: Option<StickyForm> = None, Optional(form::<StickyForm>());
        /// Its arms.
        arms: Option<Vec<ArmForm>> = None, Required(List { item: form::<ArmForm>(), least: 1 });
        /// Times that a report leaves out, such as those of an outage. Windows that touch one are out.
        exclude: Vec<ExcludeForm> = Vec::new(), List { item: form::<ExcludeForm>(), least: 0 };
        /// What has been given so far. The table keeps it by itself; it is written here by an export, so that nobody moves when it is read again.
        given: Vec<GivenForm> = Vec::new(), List { item: form::<GivenForm>(), least: 0 };
    }
}

section! {
    /// A time that a report leaves out.
    pub(crate) struct ExcludeForm {
        /// Its beginning, such as 2027-01-31T08:00:00Z.
        from: Option<u64> = None, Required(INSTANT);
        /// Its end, which is not part of it.
        to: Option<u64> = None, Required(INSTANT);
        /// Why, for who reads the report.
        why: Option<Box<str>> = None, Required(TARGET_TEXT);
    }
}

section! {
    /// A part of a layer.
    pub(crate) struct LayerForm {
        /// The layer's name.
        name: Option<ExperimentName> = None, Required(EXPERIMENT);
        /// Where its part begins, in percent.
        from: u16 = 0, Share;
        /// Where its part ends, in percent.
        to: u16 = PLACES, Share;
    }
}

section! {
    /// Who is kept out.
    pub(crate) struct HoldoutForm {
        /// The holdout's name.
        name: Option<ExperimentName> = None, Required(EXPERIMENT);
        /// How many, in percent; the same in all experiments that name it.
        percent: Option<u16> = None, Required(Share);
    }
}

section! {
    /// Who keeps an arm.
    pub(crate) struct StickyForm {
        /// For how long since the token that says it was given last. One with less than half of it left is given anew.
        keep: Duration = secs(90 * DAY / 1_000), millis_to(1_000, 400 * DAY);
    }
}

section! {
    /// A comparison. Of `is`, `not`, `begins` and `present` exactly one is there.
    pub(crate) struct ConditionForm {
        /// What is looked at: tenant, model, plan, user, device, scope:NAME, header:NAME, or claim:NAME of `auth.jwt[].shown`.
        field: Option<Field> = None, Required(TARGET_FIELD);
        /// It is one of these.
        is: Option<Vec<Box<str>>> = None, Optional(List { item: TARGET_TEXT, least: 1 });
        /// It is none of these, or not there.
        not: Option<Vec<Box<str>>> = None, Optional(List { item: TARGET_TEXT, least: 1 });
        /// It begins with this.
        begins: Option<Box<str>> = None, Optional(TARGET_TEXT);
        /// Whether it is there.
        present: Option<bool> = None, Optional(Flag);
    }
}

section! {
    /// An arm of an experiment.
    pub(crate) struct ArmForm {
        /// Its name; unique in the experiment, also when case is ignored.
        name: Option<ArmName> = None, Required(ARM);
        /// A version of the model.
        version: Option<Version> = None, Required(VERSION);
        /// Its part of the sum of all weights. Zero: nobody new.
        weight: u32 = 1, Count { least: 0, most: u32::MAX };
    }
}

section! {
    /// Places of people that have been given arms, from the end of those before on.
    pub(crate) struct GivenForm {
        /// The place after the last one, of 10000.
        to: u32 = 0, Count { least: 1, most: PLACES as u32 };
        /// The arms' places.
        arms: Vec<GivenArmForm> = Vec::new(), List { item: form::<GivenArmForm>(), least: 1 };
    }
}

section! {
    /// The places of one arm.
    pub(crate) struct GivenArmForm {
        /// The name of the arm.
        name: Option<ArmName> = None, Required(ARM);
        /// Its first place, of 10000.
        from: u32 = 0, Count { least: 0, most: PLACES as u32 };
        /// The place after its last one.
        to: u32 = 0, Count { least: 0, most: PLACES as u32 };
    }
}

section! {
    /// A version for some of a tenant's requests.
    pub(crate) struct RuleForm {
        /// Its name; unique in the tenant, also when case is ignored.
        name: Option<RuleName> = None, Required(RULE);
        /// A model of the catalogue.
        model: Option<ModelName> = None, Required(MODEL);
        /// A version of it.
        version: Option<Version> = None, Required(VERSION);
        /// For whom: all of these hold. Left out: everybody.
        target: Vec<ConditionForm> = Vec::new(), List { item: form::<ConditionForm>(), least: 0 };
    }
}
