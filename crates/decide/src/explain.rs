//! The decision in words, for a person. Runs the same [`decide()`](crate::decide) and adds why each step came out as it did.

use crate::snapshot::Snapshot;
use crate::{Ask, Decision, Reason, Refusal, decide};

/// One step on the way to a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What was looked at.
    pub stage: &'static str,
    /// What came of it.
    pub outcome: String,
}

/// Explains the decision for an ask: the steps taken, and the decision itself.
///
/// # Errors
/// [`Refusal`] beside the steps up to it, as `decide` would give.
pub fn explain<'s>(snapshot: &'s Snapshot, ask: &Ask<'_>) -> (Vec<Step>, Result<Decision<'s>, Refusal>) {
    let mut steps = vec![Step { stage: "table", outcome: format!("revision {}", snapshot.revision()) }];
    let decided = decide(snapshot, ask);
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
    let pin = tenant.pin(model.index).and_then(|slot| model.versions.get(slot.version as usize));
    let pin = pin.map_or("no pin".to_owned(), |v| format!("the pin is {}", v.version));
    let outcome = match (ask.version, &decided) {
        (Some(named), Ok(_)) => format!("the client names {named}, which this tenant may; {pin}"),
        (Some(named), Err(why)) => format!("the client names {named:?}: {}; {pin}", why.failure().detail),
        (None, _) => format!("the client names none; {pin}"),
    };
    steps.push(Step { stage: "version", outcome });
    if let Ok(decision) = &decided {
        let why = match decision.reason {
            Reason::Explicit => "named by the client",
            Reason::Pin => "the tenant's pin",
            Reason::Replay => "what its submission was resolved to before",
        };
        steps.push(Step { stage: "decision", outcome: format!("version {}: {why}", decision.route.version) });
    }
    (steps, decided)
}
