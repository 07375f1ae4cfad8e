//! The decision: which version judges a request. The order is an administrator's override, the version that the client names, the arm of an experiment,
//! the first rule that holds, the pin; another version is never chosen in their place. A pin that is split between two versions chooses by the submission.

use std::sync::Arc;
use std::time::Duration;

use holdfast_placement::hash::{Purpose, stable_hash};
use holdfast_types::{Failure, FailureKind, IdError, ModelName, Revision, Version};

use holdfast_assign::{Facts, KeyFrom, Outcome};

use crate::Ask;
use crate::caller::{Caller, Seen};
use crate::choices::{Cause, Choices};
use crate::route::{Reason, Route};
use crate::snapshot::{ModelEntry, Slot, Snapshot, TenantEntry, VersionEntry};

/// What was decided.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'s> {
    /// Where the request may go.
    pub route: &'s Arc<Route>,
    /// Why this version.
    pub reason: Reason,
    /// Under which table.
    pub revision: Revision,
    /// The arm or rule that chose it, if one did.
    pub cause: Option<&'s Arc<Cause>>,
    /// By which key, of an arm.
    pub by: Option<KeyFrom>,
}

/// Why there is no route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The tenant is not in the table.
    UnknownTenant,
    /// The model's name breaks the rule for ids.
    BadModel(IdError),
    /// The version's name breaks the rule for ids, is empty, or is `latest`.
    BadVersion(IdError),
    /// The model is not in the table.
    UnknownModel,
    /// The tenant pins no version of the model and named none.
    NotPinned,
    /// The tenant may not name this version; also the answer for one that does not exist, so that nobody learns which do.
    VersionNotAllowed,
    /// The submission was resolved to a version that is not in the table any more.
    VersionGone,
    /// An override without the administrator's scope.
    OverrideNotAllowed,
}

impl Refusal {
    /// What the client is told. No version is ever named in it.
    #[must_use]
    pub fn failure(self) -> Failure {
        match self {
            Self::UnknownTenant => Failure::new(FailureKind::Forbidden, "this tenant is not known here"),
            Self::BadModel(why) => Failure::new(FailureKind::BadRequest, format!("the model name {why}")),
            Self::BadVersion(why) => Failure::new(FailureKind::BadRequest, format!("the version {why}")),
            Self::UnknownModel => Failure::new(FailureKind::UnknownModel, "there is no such model"),
            Self::NotPinned => Failure::new(FailureKind::NotPinned, "this tenant has no pinned version of the model"),
            Self::OverrideNotAllowed => {
                Failure::new(FailureKind::Forbidden, "an override of the version needs the administrator's scope")
            }
            Self::VersionNotAllowed => {
                Failure::new(FailureKind::VersionNotAllowed, "this tenant may not name this version of the model")
            }
            Self::VersionGone => {
                let why = "the version that this submission was resolved to has left the table; no other one is served in its place";
                Failure::new(FailureKind::NoHolder, why).retry_in(Duration::from_secs(60))
            }
        }
    }
}

/// Decides for somebody of whom nothing is known but the tenant. Called once per submission.
///
/// # Errors
/// [`Refusal`].
pub fn decide<'s>(snapshot: &'s Snapshot, ask: &Ask<'_>) -> Result<Decision<'s>, Refusal> {
    decide_for(snapshot, ask, &Caller::NOBODY)
}

/// Decides. Called once per submission.
///
/// # Errors
/// [`Refusal`].
pub fn decide_for<'s>(
    snapshot: &'s Snapshot,
    ask: &Ask<'_>,
    caller: &Caller<'_, impl Facts>,
) -> Result<Decision<'s>, Refusal> {
    let tenant = snapshot.tenant(ask.tenant).ok_or(Refusal::UnknownTenant)?;
    let Some(model) = snapshot.model(ask.model) else {
        return Err(ModelName::check(ask.model).map_or_else(Refusal::BadModel, |()| Refusal::UnknownModel));
    };
    let revision = snapshot.revision();
    if let Some(named) = caller.wants {
        let route = overridden(snapshot, tenant, model, named, caller.may_override)?;
        return Ok(Decision { route, reason: Reason::Override, revision, cause: None, by: None });
    }
    let (slot, reason) = match ask.version {
        None => {
            if let Some(all) = tenant.choices()
                && let Some(Chosen { slot, reason, cause, by }) = chosen(all, tenant, model, ask, caller.facts)
            {
                return Ok(Decision {
                    route: snapshot.route(tenant, model, slot),
                    reason,
                    revision,
                    cause: Some(cause),
                    by,
                });
            }
            let slot = tenant.split(model.index).filter(|slot| lot(tenant.name.as_str(), ask) < slot.share);
            (slot.or_else(|| tenant.pin(model.index)).ok_or(Refusal::NotPinned)?, Reason::Pin)
        }
        Some(named) => {
            let version = model.version(named).map(|v| v.index);
            let slot = version.and_then(|version| tenant.nameable(model.index, version));
            let Some(slot) = slot else {
                return Err(Version::check(named).map_or_else(Refusal::BadVersion, |()| Refusal::VersionNotAllowed));
            };
            (slot, Reason::Explicit)
        }
    };
    Ok(Decision { route: snapshot.route(tenant, model, slot), reason, revision, cause: None, by: None })
}

/// What an arm or a rule chose.
struct Chosen<'s> {
    slot: &'s Slot,
    reason: Reason,
    cause: &'s Arc<Cause>,
    by: Option<KeyFrom>,
}

/// What an administrator asks for: any version that there is.
#[cold]
fn overridden<'s>(
    snapshot: &'s Snapshot,
    tenant: &'s TenantEntry,
    model: &'s ModelEntry,
    named: &str,
    may: bool,
) -> Result<&'s Arc<Route>, Refusal> {
    if !may {
        return Err(Refusal::OverrideNotAllowed);
    }
    let Some(version) = model.version(named) else {
        return Err(Version::check(named).map_or_else(Refusal::BadVersion, |()| Refusal::VersionNotAllowed));
    };
    let route = match tenant.slot(model.index, version.index) {
        Some(slot) => Some(snapshot.route(tenant, model, slot)),
        None => snapshot.stray(tenant, model, version),
    };
    route.ok_or(Refusal::VersionNotAllowed)
}

/// The arm of an experiment, or else the first rule that holds.
#[inline(never)]
fn chosen<'s>(
    all: &'s Choices,
    tenant: &'s TenantEntry,
    model: &ModelEntry,
    ask: &Ask<'_>,
    facts: &impl Facts,
) -> Option<Chosen<'s>> {
    let seen = Seen { ask, facts };
    let arm = all.trials.iter().filter(|trial| trial.model == model.index).find_map(|trial| {
        let (at, by, reason) = match trial.assign(&seen) {
            Outcome::Arm(at, by) => (at, by, Reason::Experiment),
            Outcome::Kept(at, by) => (at, by, Reason::Sticky),
            Outcome::Out(_) => return None,
        };
        let arm = trial.arms.get(at)?;
        let slot = tenant.slot(model.index, arm.version)?;
        Some(Chosen { slot, reason, cause: &arm.cause, by: Some(by) })
    });
    arm.or_else(|| {
        let holds = |field: &holdfast_assign::Field| seen.field(field);
        let rule = all.rules.iter().find(|rule| rule.model == model.index && rule.target.holds(holds))?;
        let slot = tenant.slot(model.index, rule.version)?;
        Some(Chosen { slot, reason: Reason::Rule, cause: &rule.cause, by: None })
    })
}

/// Where a submission goes that was resolved before.
#[derive(Clone, Copy, Debug)]
pub enum Replayed<'s> {
    /// The tenant's table still has the route.
    Kept(&'s Arc<Route>),
    /// The version is in the catalogue; the tenant pins or names it no more, so its route has to be made ([`Snapshot::route_for`]).
    Made(&'s TenantEntry, &'s ModelEntry, &'s VersionEntry),
}

/// Finds the way of a submission to the version that it was resolved to. No pin is looked at, and no other version is given.
///
/// # Errors
/// [`Refusal`]: tenant, model or version are in the table no more.
pub fn replay<'s>(snapshot: &'s Snapshot, tenant: &str, model: &str, version: &str) -> Result<Replayed<'s>, Refusal> {
    let tenant = snapshot.tenant(tenant).ok_or(Refusal::UnknownTenant)?;
    let model = snapshot.model(model).ok_or(Refusal::UnknownModel)?;
    let version = model.version(version).ok_or(Refusal::VersionGone)?;
    Ok(match tenant.slot(model.index, version.index) {
        Some(slot) => Replayed::Kept(snapshot.route(tenant, model, slot)),
        None => Replayed::Made(tenant, model, version),
    })
}

/// The submission's place in the hundred parts of a split pin's traffic. Of a growing share, what was in it stays in it.
fn lot(tenant: &str, ask: &Ask<'_>) -> u8 {
    (stable_hash(Purpose::SplitLot, &[tenant.as_bytes(), ask.model.as_bytes(), ask.submission]) % 100) as u8
}

/// Whether a submission is among those of a pin's traffic that are copied: `share` of a thousand. The same in every process, independent of where a
/// split sends it; of a growing share, what was in it stays in it.
#[must_use]
pub fn is_shadowed(tenant: &str, model: &str, submission: &[u8], share: u16) -> bool {
    stable_hash(Purpose::ShadowLot, &[tenant.as_bytes(), model.as_bytes(), submission]) % 1000 < u64::from(share)
}
