//! The decision in words, for a person. Runs the same [`decide_for()`](crate::decide_for) and adds why each step came out as it did.

use holdfast_assign::{Facts, Outcome};

use crate::caller::{Caller, Seen};
use crate::choices::{Choices, Trial};
use crate::snapshot::{ModelEntry, Snapshot};
use crate::{Ask, Decision, Reason, Refusal, decide_for};

/// One step on the way to a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What was looked at.
    pub stage: &'static str,
    /// What came of it.
    pub outcome: String,
}

/// Explains the decision for somebody of whom nothing is known but the tenant.
///
/// # Errors
/// As [`explain_for`].
pub fn explain<'s>(snapshot: &'s Snapshot, ask: &Ask<'_>) -> (Vec<Step>, Result<Decision<'s>, Refusal>) {
    explain_for(snapshot, ask, &Caller::NOBODY)
}

/// Explains the decision for an ask: the steps taken, and the decision itself.
///
/// # Errors
/// [`Refusal`] beside the steps up to it, as `decide_for` would give.
pub fn explain_for<'s>(
    snapshot: &'s Snapshot,
    ask: &Ask<'_>,
    caller: &Caller<'_, impl Facts>,
) -> (Vec<Step>, Result<Decision<'s>, Refusal>) {
    let mut steps = vec![Step { stage: "table", outcome: format!("revision {}", snapshot.revision()) }];
    let decided = decide_for(snapshot, ask, caller);
    let Some(tenant) = snapshot.tenant(ask.tenant) else {
        steps.push(Step { stage: "tenant", outcome: format!("{:?} is not in the table", ask.tenant) });
        return (steps, decided);
    };
    steps.push(Step { stage: "tenant", outcome: format!("{} has a subset of {}", tenant.name, tenant.subset) });
    let Some(model) = snapshot.model(ask.model) else {
        steps.push(Step { stage: "model", outcome: format!("{:?} is not in the table", ask.model) });
        return (steps, decided);
    };
    let pool = snapshot.pool(model.pool).map_or("?", |p| p.name.as_str());
    steps.push(Step { stage: "model", outcome: format!("{} is served by pool {pool}", model.name) });
    if let Some(named) = caller.wants {
        let may = if caller.may_override { "has the scope for it" } else { "has not the scope for it" };
        let outcome = format!("an override names {named:?}, and the caller {may}");
        steps.push(Step { stage: "override", outcome });
    }
    let pin = tenant.pin(model.index).and_then(|slot| model.versions.get(slot.version as usize));
    let pin = pin.map_or("no pin".to_owned(), |v| format!("the pin is {}", v.version));
    let outcome = match (ask.version, &decided) {
        (Some(named), Ok(_)) => format!("the client names {named}, which this tenant may; {pin}"),
        (Some(named), Err(why)) => format!("the client names {named:?}: {}; {pin}", why.failure().detail),
        (None, _) => format!("the client names none; {pin}"),
    };
    steps.push(Step { stage: "version", outcome });
    if let (None, None, Some(choices)) = (caller.wants, ask.version, tenant.choices()) {
        choosing(choices, model, &Seen { ask, facts: caller.facts }, &mut steps);
    }
    if let Ok(decision) = &decided {
        let why = match decision.reason {
            Reason::Override => "named by an administrator",
            Reason::Explicit => "named by the client",
            Reason::Sticky => "the arm of an experiment that was had before",
            Reason::Experiment => "the arm of an experiment",
            Reason::Rule => "a rule of the tenant",
            Reason::Pin => "the tenant's pin",
            Reason::Replay => "what its submission was resolved to before",
        };
        steps.push(Step { stage: "decision", outcome: format!("version {}: {why}", decision.route.version) });
    }
    (steps, decided)
}

/// What experiments and rules say, up to the first that chooses.
fn choosing(choices: &Choices, model: &ModelEntry, seen: &Seen<'_, impl Facts>, steps: &mut Vec<Step>) {
    for trial in choices.trials.iter().filter(|trial| trial.model == model.index) {
        let said = trial.assign(seen);
        steps.push(Step { stage: "experiment", outcome: trial_in_words(trial, model, said) });
        if !matches!(said, Outcome::Out(_)) {
            return;
        }
    }
    for rule in choices.rules.iter().filter(|rule| rule.model == model.index) {
        let holds = rule.target.holds(|field| seen.field(field));
        let version = model.versions.get(rule.version as usize).map_or("?", |v| v.version.as_str());
        let said = if holds { "holds" } else { "does not hold" };
        steps.push(Step { stage: "rule", outcome: format!("{} to version {version} {said}", rule.name) });
        if holds {
            return;
        }
    }
}

fn trial_in_words(trial: &Trial, model: &ModelEntry, said: Outcome) -> String {
    let shares = trial.experiment.allocation.shares(trial.arms.len());
    let total: u64 = shares.iter().sum::<u64>().max(1);
    let coverage = trial.experiment.allocation.coverage();
    match said {
        Outcome::Arm(at, by) | Outcome::Kept(at, by) => {
            let arm = trial.arms.get(at);
            let version = arm.and_then(|arm| model.versions.get(arm.version as usize));
            let share = shares.get(at).copied().unwrap_or(0) * 10_000 / total;
            format!(
                "{} gives arm {} (version {}) by the {}; {coverage} of 10000 are in, {share} of 10000 of them in this arm",
                trial.name,
                arm.map_or("?", |arm| arm.name.as_str()),
                version.map_or("?", |v| v.version.as_str()),
                by.as_str(),
            )
        }
        Outcome::Out(out) => format!("{} gives no arm: {}; {coverage} of 10000 are in", trial.name, out.as_str()),
    }
}
