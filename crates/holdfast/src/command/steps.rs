//! The steps of a roll-out in words, a line each.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::Failure;
use super::wait::{Left, told};
use crate::admin::{Admin, encoded};
use crate::output;

/// Between two looks.
pub const PAUSE: Duration = Duration::from_millis(250);
/// So long nothing is said while there is no roll-out yet: one nearly always begins at once.
const SOON: Duration = Duration::from_secs(2);
/// Pins of which the roll-outs are looked for, of those that are left. Pins of one change move together or wait for one another.
const FEW: usize = 4;

/// What keeps pins from being warm, of which so much is told.
const OBSTACLES: usize = 2;

/// The lines of the steps, each printed once.
pub struct Steps {
    shown: bool,
    last: String,
    begun: Instant,
    /// The roll-out that was told of last.
    pub rollout: Option<u64>,
}

impl Steps {
    /// Steps that are printed, or only looked at.
    pub fn new(shown: bool) -> Self {
        Self { shown, last: String::new(), begun: Instant::now(), rollout: None }
    }

    /// Prints a line if it is another than the last one.
    pub fn say(&mut self, line: String) {
        if self.shown && line != self.last {
            output::say(&format!("{:>7.1}s  {line}", self.begun.elapsed().as_secs_f64()));
        }
        self.last = line;
    }

    /// The last line.
    pub fn last(&self) -> &str {
        &self.last
    }

    /// Tells where the roll-out is that brings the pins into force, and whether there is one. A new one that has failed ends the wait.
    pub async fn look(&mut self, admin: &Admin, left: &[Left], before: u64) -> Result<bool, Failure> {
        // What somebody else's change left behind speaks last.
        let free = left.iter().filter(|pin| !pin.is_held());
        for pin in free.chain(left.iter().filter(|pin| pin.is_held())).take(FEW) {
            let page = admin.get(&format!("/v1/rollouts?limit=5&pin={}", encoded(&pin.name))).await?;
            let mut newest: Vec<&Value> = page["items"].as_array().into_iter().flatten().collect();
            newest.sort_by_key(|rollout| std::cmp::Reverse(rollout["rollout"].as_u64()));
            for rollout in newest {
                let id = rollout["rollout"].as_u64().unwrap_or(0);
                let is_new = id > before;
                if rollout["over"] == true {
                    if is_new {
                        return ended(rollout).map(|()| true);
                    }
                    continue;
                }
                let Some(whole) = admin.find(&format!("/v1/rollouts/{id}")).await? else { continue };
                if leads(&whole, pin, is_new) {
                    self.rollout = Some(id);
                    self.say(line(&whole));
                    return Ok(true);
                }
            }
        }
        if !left.is_empty() && self.begun.elapsed() >= SOON {
            self.say(format!("waiting for a roll-out: {}", told(left)));
        }
        Ok(false)
    }

    /// Tells of the new roll-out of a pin that is in force, if none has been told of: it was faster than the looks.
    pub async fn passed(&mut self, admin: &Admin, pin: &str, before: u64) -> Result<(), Failure> {
        if self.rollout.is_some() {
            return Ok(());
        }
        let page = admin.get(&format!("/v1/rollouts?limit=5&pin={}", encoded(pin))).await?;
        let newest = page["items"].as_array().into_iter().flatten().filter_map(|rollout| rollout["rollout"].as_u64());
        let Some(id) = newest.filter(|id| *id > before).max() else { return Ok(()) };
        if let Some(whole) = admin.find(&format!("/v1/rollouts/{id}")).await? {
            self.rollout = Some(id);
            self.say(line(&whole));
        }
        Ok(())
    }
}

/// Whether a roll-out brings the pin where it is to be. One that was there before does only if it goes there: by going back, or since the same
/// was asked for before; and a new one does not once it goes back. A pin may have been left behind by one that others still go.
fn leads(rollout: &Value, left: &Left, is_new: bool) -> bool {
    let is_it = |pin: &&Value| {
        left.name.split_once('/').is_some_and(|(tenant, model)| pin["tenant"] == tenant && pin["model"] == model)
    };
    let mut pins = rollout["pins"].as_array().into_iter().flatten().filter(is_it);
    let there = |pin: &Value| pin[if pin["back"] == true { "from" } else { "to" }] == left.to.as_str();
    let is_out = |pin: &Value| matches!(pin["stage"].as_str(), Some("failed" | "aborted" | "reverted"));
    pins.any(|pin| (there(pin) || (is_new && pin["back"] != true)) && !is_out(pin))
}

/// A roll-out that is over while its pin is not in force, or that was followed to its end.
pub fn ended(rollout: &Value) -> Result<(), Failure> {
    let (id, phase) = (&rollout["rollout"], rollout["phase"].as_str().unwrap_or("?"));
    match phase {
        "failed" | "aborted" | "reverted" => {
            let words = rollout["words"].as_str().map(|words| format!(": {words}")).unwrap_or_default();
            Err(Failure::failed(format!("roll-out {id} has {}{words}", past(phase))))
        }
        _ => Ok(()),
    }
}

fn past(phase: &str) -> &'static str {
    match phase {
        "failed" => "failed",
        "aborted" => "been aborted",
        _ => "gone back",
    }
}

/// One line about where a roll-out is and what it waits for.
pub fn line(rollout: &Value) -> String {
    let phase = rollout["phase"].as_str().unwrap_or("?").replace('_', "-");
    let paused = if rollout["paused"] == true { " (paused)" } else { "" };
    let pins = rollout["pins"].as_array();
    let all = pins.into_iter().flatten().flat_map(|pin| pin["waiting_for"].as_array().into_iter().flatten());
    let all = all.chain(rollout["waiting_for"].as_array().into_iter().flatten());
    let mut waits: Vec<String> = all.filter_map(wait).collect();
    waits.sort_unstable();
    waits.dedup();
    let more = waits.len().saturating_sub(4);
    waits.truncate(4);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let waits = if waits.is_empty() { String::new() } else { format!(", waiting for {}{rest}", waits.join(", ")) };
    let share =
        pins.into_iter().flatten().filter_map(|pin| pin["share"].as_u64()).filter(|s| (1..100).contains(s)).max();
    let share = share.map(|share| format!(" at {share}%")).unwrap_or_default();
    format!("roll-out {}: {phase}{}{share}{paused}{waits}{}", rollout["rollout"], back(rollout), obstacles(rollout))
}

/// That it goes back, or went back, and in whose words.
pub fn back(rollout: &Value) -> String {
    let by = &rollout["back"];
    match (by["author"].as_str(), by["reason"].as_str()) {
        (Some(_), Some(reason)) if !reason.is_empty() => format!(" (back: {reason})"),
        (Some(author), _) => format!(" (back, by {author})"),
        (None, _) => String::new(),
    }
}

/// Why pins are not warm yet, in the words of those who refuse: a load that failed and is tried again, or no room.
fn obstacles(rollout: &Value) -> String {
    let warms = |pin: &&Value| pin["stage"] == "warming";
    let pins = rollout["pins"].as_array().into_iter().flatten().filter(warms);
    let mut words: Vec<&str> = pins.filter_map(|pin| pin["words"].as_str()).collect();
    words.sort_unstable();
    words.dedup();
    let more = words.len().saturating_sub(OBSTACLES);
    words.truncate(OBSTACLES);
    let lines: String = words.iter().map(|words| format!(": {words}")).collect();
    if more > 0 { format!("{lines} and {more} more") } else { lines }
}

/// What is waited for, in words; nothing for what moves by itself all the time.
fn wait(waiting: &Value) -> Option<String> {
    let text = |member: &str| waiting[member].as_str().unwrap_or("?");
    Some(match text("for") {
        "time" | "store" => return None,
        "replica" => format!("{}/{} on {}", text("model"), text("version"), text("replica")),
        "any_replica" => format!("any replica for {}/{}", text("model"), text("version")),
        "comparisons" => format!("comparisons ({} of {})", waiting["compared"], waiting["of"]),
        "gateway" => format!("gateway {}", text("gateway")),
        "collection" => format!("{}/{} to be let go", text("model"), text("version")),
        "resume" => "a resume".to_owned(),
        "other_pins" => "the other pins".to_owned(),
        "table" => "the table".to_owned(),
        "any_gateway" => "any gateway".to_owned(),
        other => other.to_owned(),
    })
}

/// Follows one roll-out to its end, a line for each step.
pub async fn follow(admin: &Admin, id: u64, shown: bool) -> Result<Value, Failure> {
    let mut steps = Steps::new(shown);
    loop {
        let rollout = admin.get(&format!("/v1/rollouts/{id}")).await?;
        steps.say(line(&rollout));
        if rollout["over"] == true {
            return Ok(rollout);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_new_roll_out_that_goes_back_brings_nothing_there() {
        let left = Left::of("acme/m", "2");
        let rollout = |stage: &str, back: bool| json!({ "pins": [{ "tenant": "acme", "model": "m", "from": "1", "to": "2", "stage": stage, "back": back }] });
        assert!(leads(&rollout("warming", false), &left, true));
        assert!(!leads(&rollout("draining", true), &left, true));
        assert!(!leads(&rollout("retaining", true), &left, true));
        assert!(!leads(&rollout("failed", false), &left, true));
        let old = Left::of("acme/m", "1");
        assert!(leads(&rollout("draining", true), &old, false), "an old one brings it there by going back");
    }

    #[test]
    fn a_line_tells_why_what_is_waited_for_does_not_come() {
        let pin = |stage: &str, words: Option<&str>| {
            let waits = json!([{ "for": "replica", "model": "m", "version": "2", "replica": "r1" }]);
            json!({ "stage": stage, "share": 0, "waiting_for": waits, "words": words })
        };
        let told = |pins: Value| line(&json!({ "rollout": 3, "phase": "pre_warm", "pins": pins }));
        let waits = "roll-out 3: pre-warm, waiting for m/2 on r1";
        assert_eq!(told(json!([pin("warming", None)])), waits);
        assert_eq!(told(json!([pin("retaining", Some("an old tale"))])), waits);
        let torn = pin("warming", Some("torn"));
        assert_eq!(told(json!([torn, torn])), format!("{waits}: torn"), "once");
        let many = json!([torn, pin("warming", Some("a")), pin("warming", Some("b"))]);
        assert_eq!(told(many), format!("{waits}: a: b and 1 more"));
    }
}
