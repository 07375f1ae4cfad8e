//! Refusals and alarms in words.

use holdfast_decide::rollout::{Alarm, Artifact, Command, PinProgress, Refusal};

/// What of a refusal is this command's own.
#[must_use]
pub fn refused(command: Command, why: &Refusal) -> Option<String> {
    let words = match (command, why) {
        (Command::Pause, Refusal::Nothing) => "it is paused already",
        (Command::Resume, Refusal::Nothing) => "it is not paused",
        (Command::Resume, Refusal::Over) => "it has ended: there is nothing to resume",
        (Command::Pause, Refusal::Over) => "it has ended: there is nothing to pause",
        _ => return None,
    };
    Some(words.to_owned())
}

/// Why a command was refused.
#[must_use]
pub fn refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Nothing => "it is paused already, or not paused".to_owned(),
        Refusal::Over => "it has ended".to_owned(),
        Refusal::Active => "too late to abort: a pin has flipped; use a revert".to_owned(),
        Refusal::Shared(percent) => {
            format!("too late to abort: {percent} % of a pin's traffic goes to the new version; use a revert")
        }
        Refusal::NotActive => "no pin has flipped; use an abort".to_owned(),
        Refusal::GoesBack => "it goes back already, or went back".to_owned(),
        Refusal::NoTarget => {
            "there is nothing to go back to: a first pin, a pin that another change has moved since, or a version that is not in the catalogue any more".to_owned()
        }
        Refusal::Cold(artifacts) => {
            let named: Vec<String> = artifacts.iter().take(5).map(artifact).collect();
            let more = if artifacts.len() > named.len() { ", ..." } else { "" };
            format!(
                "the time of retention is over: a revert loads {}{more} anew, and has to be confirmed",
                named.join(", ")
            )
        }
        Refusal::Collecting => "the old version is just being removed; ask again when it is gone, or kept".to_owned(),
        Refusal::Busy => "another command waits for an activation to be resolved".to_owned(),
    }
}

/// What a person should know. `pins` are those of the roll-out.
#[must_use]
pub fn alarm(alarm: &Alarm, pins: &[PinProgress]) -> String {
    let pin = |ix: usize| pins.get(ix).map_or_else(String::new, |p| format!("the pin of {} for {}", p.tenant, p.model));
    match alarm {
        Alarm::NotHeld { replica, artifact: a, words } => format!("{replica} does not hold {}: {words}", artifact(a)),
        Alarm::Late { pin: ix, words } => format!("{} is late: {words}", pin(*ix)),
        Alarm::Draining { pin: ix } => format!("{}: requests of the version that it left still run", pin(*ix)),
        Alarm::Overtaken { pin: ix } => format!("{}: another change has moved it", pin(*ix)),
        Alarm::NotCollected { artifact: a, words } => format!("{} was not removed: {words}", artifact(a)),
        Alarm::NotActivated { words } => format!("a flip was refused: {words}"),
    }
}

fn artifact(artifact: &Artifact) -> String {
    format!("version {} of {} in pool {}", artifact.version, artifact.model, artifact.pool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_that_changes_nothing_says_what_there_is() {
        let said = |command, why| refused(command, &why).unwrap();
        let all = [
            said(Command::Pause, Refusal::Nothing),
            said(Command::Resume, Refusal::Nothing),
            said(Command::Pause, Refusal::Over),
            said(Command::Resume, Refusal::Over),
        ];
        let wanted = [
            "it is paused already",
            "it is not paused",
            "it has ended: there is nothing to pause",
            "it has ended: there is nothing to resume",
        ];
        assert_eq!(all, wanted);
        assert_eq!(refused(Command::Abort, &Refusal::Active), None);
    }
}
