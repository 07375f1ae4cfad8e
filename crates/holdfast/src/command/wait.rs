//! `--wait`: until every live gateway has a change in force, with a line for each step on the way.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Failure;
use super::steps::{PAUSE, Steps};
use crate::admin::{Admin, encoded};
use crate::cli::{ChangeArgs, Output};

/// A server that does not answer for so long is waited for: that is longer than one takes to start anew.
const SILENCE: Duration = Duration::from_secs(30);
/// What holds a pin back has to hold it for so long: the words for a pin that has just been asked for may be those of its last try.
const GRACE: Duration = Duration::from_secs(3);
/// Pins that are named, of many.
const NAMED: usize = 4;

/// The number of the newest roll-out, to tell those that a change begins from older ones. Nothing is lost if it is not known and nobody waits.
pub async fn last_rollout(admin: &Admin, how: &ChangeArgs) -> Result<u64, Failure> {
    match admin.get("/v1/rollouts?limit=1").await {
        Ok(page) => Ok(page["items"][0]["rollout"].as_u64().unwrap_or(0)),
        Err(failure) if how.wait => Err(failure),
        Err(_) => Ok(0),
    }
}

/// The pins that are to be waited for after a change that says where all pins are to be: those that it moved, and whatever else is desired and
/// not in force.
pub async fn all_pins(
    admin: &Admin,
    how: &ChangeArgs,
    moved: Vec<(String, String)>,
) -> Result<Vec<(String, String)>, Failure> {
    if !how.wait {
        return Ok(moved);
    }
    let mut pins: BTreeMap<String, String> = moved.into_iter().collect();
    for row in admin.all("/v1/pins?pending=true").await?.0 {
        let text = |member: &str| row[member].as_str().unwrap_or_default().to_owned();
        pins.entry(text("name")).or_insert_with(|| text("version"));
    }
    Ok(pins.into_iter().collect())
}

/// Waits until all of these pins (by `TENANT/MODEL`, with the version that each is to have) are in force on every live gateway, and gives the
/// revision since which they are in force. A server that is started anew meanwhile is waited for.
pub async fn until_in_force(
    admin: &Admin,
    how: &ChangeArgs,
    pins: &[(String, String)],
    before: u64,
) -> Result<u64, Failure> {
    let end = Instant::now().checked_add(how.timeout);
    let mut wait = Wait::new(how, pins, before);
    let mut silent: Option<Instant> = None;
    loop {
        match wait.look(admin).await {
            Ok(Some(revision)) => return Ok(revision),
            Ok(None) => silent = None,
            Err(failure) if failure.passing => match silent {
                Some(since) if since.elapsed() >= SILENCE => return Err(failure),
                Some(_) => {}
                None => {
                    silent = Some(Instant::now());
                    wait.steps.say("the server does not answer; the change goes on".to_owned());
                }
            },
            Err(failure) => return Err(failure),
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Err(wait.late(how.timeout));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What is waited for, and what is known of it.
struct Wait<'a> {
    pins: &'a [(String, String)],
    by_name: BTreeMap<&'a str, &'a str>,
    before: u64,
    steps: Steps,
    left: Vec<Left>,
    held: Option<Instant>,
}

impl<'a> Wait<'a> {
    fn new(how: &ChangeArgs, pins: &'a [(String, String)], before: u64) -> Self {
        let by_name = pins.iter().map(|(name, to)| (name.as_str(), to.as_str())).collect();
        let steps = Steps::new(how.admin.output == Output::Table);
        Self { pins, by_name, before, steps, left: Vec::new(), held: None }
    }

    /// One look. The revision since which everything is in force, once it is.
    async fn look(&mut self, admin: &Admin) -> Result<Option<u64>, Failure> {
        self.left = still_pending(admin, &self.by_name).await?;
        let on_its_way = self.steps.look(admin, &self.left, self.before).await?;
        if self.left.is_empty() {
            let in_force = arrived(admin, self.pins).await?;
            if let Some((first, _)) = self.pins.first() {
                self.steps.passed(admin, first, self.before).await?;
            }
            if !everywhere(admin, in_force, &mut self.steps).await? {
                return Ok(None);
            }
            self.steps.say(format!("in force on every live gateway, since revision {in_force}"));
            return Ok(Some(in_force));
        }
        if on_its_way || !self.left.iter().all(Left::is_held) {
            self.held = None;
        } else if self.held.get_or_insert_with(Instant::now).elapsed() >= GRACE {
            return Err(Failure::failed(nothing_moves(&self.left)));
        }
        Ok(None)
    }

    /// It took too long: what is known of why, and how it is stopped.
    fn late(&self, timeout: Duration) -> Failure {
        let what = if self.left.is_empty() { "gateways have not taken it in".to_owned() } else { told(&self.left) };
        let last = Some(self.steps.last()).filter(|last| !last.is_empty()).map(|last| format!("; {last}"));
        let stop = self
            .steps
            .rollout
            .filter(|_| !self.left.is_empty())
            .map_or_else(String::new, |id| format!("; `holdfast rollout abort {id}` stops it"));
        let last = last.unwrap_or_default();
        Failure::failed(format!("not in force after {timeout:?}: {what}{last}\nthe change goes on{stop}"))
    }
}

/// What is desired, and is on no way.
fn nothing_moves(left: &[Left]) -> String {
    let words = |pin: &Left| {
        let why = pin.waits.as_deref().unwrap_or("nothing is on its way");
        format!("{}: desired is {}, in force {}: {why}", pin.name, pin.to, pin.from)
    };
    let mut lines: Vec<String> = left.iter().take(NAMED).map(words).collect();
    if left.len() > NAMED {
        lines.push(format!("and {} more", left.len() - NAMED));
    }
    lines.join("\n")
}

/// The first few of them, with what they wait for.
pub fn told(left: &[Left]) -> String {
    let words = |pin: &Left| pin.waits.as_ref().map_or_else(|| pin.name.clone(), |why| format!("{} ({why})", pin.name));
    let more = left.len().saturating_sub(NAMED);
    let shown = left.iter().take(NAMED).map(words).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

/// A pin that is not in force yet.
pub struct Left {
    /// `TENANT/MODEL`.
    pub name: String,
    /// The version that it is to have.
    pub to: String,
    /// The version in force.
    from: String,
    /// What keeps it out of every roll-out, if something does.
    waits: Option<String>,
}

impl Left {
    #[cfg(test)]
    pub fn of(name: &str, to: &str) -> Self {
        Self { name: name.to_owned(), to: to.to_owned(), from: String::new(), waits: None }
    }

    /// Whether nothing moves it until somebody does something. What waits for another roll-out goes on by itself.
    pub fn is_held(&self) -> bool {
        self.waits.as_ref().is_some_and(|words| !words.starts_with("waits for "))
    }
}

/// Those of the pins that are not in force yet. A pin that is desired at another version by now has been overtaken.
async fn still_pending(admin: &Admin, pins: &BTreeMap<&str, &str>) -> Result<Vec<Left>, Failure> {
    let mut left = Vec::new();
    for row in admin.all("/v1/pins?pending=true").await?.0 {
        let name = row["name"].as_str().unwrap_or_default();
        let Some(to) = pins.get(name) else { continue };
        overtaken(name, to, &row["version"])?;
        let from = row["in_force"].as_str().unwrap_or("none").to_owned();
        let waits = row["waits"].as_str().map(str::to_owned);
        left.push(Left { name: name.to_owned(), to: (*to).to_owned(), from, waits });
    }
    Ok(left)
}

fn overtaken(name: &str, to: &str, now: &Value) -> Result<(), Failure> {
    match now.as_str() {
        Some(now) if now == to => Ok(()),
        Some(now) => Err(Failure::failed(format!("{name}: somebody has asked for version {now} meanwhile"))),
        None => Err(Failure::failed(format!("{name}: somebody has taken the pin away meanwhile"))),
    }
}

/// The revision since which all of them are in force, seen pin by pin; if there are none, that of the table.
async fn arrived(admin: &Admin, pins: &[(String, String)]) -> Result<u64, Failure> {
    let mut newest = 0;
    for (name, to) in pins {
        let (tenant, model) = name.split_once('/').unwrap_or((name, ""));
        let pin = admin.find(&format!("/v1/pins/{}/{}", encoded(tenant), encoded(model))).await?;
        overtaken(name, to, &pin.as_ref().map_or(Value::Null, |pin| pin["version"].clone()))?;
        newest = newest.max(pin.map_or(0, |pin| pin["in_force_revision"].as_u64().unwrap_or(0)));
    }
    if pins.is_empty() {
        newest = admin.get("/v1/revisions?limit=1").await?["in_force"].as_u64().unwrap_or(0);
    }
    Ok(newest)
}

async fn everywhere(admin: &Admin, revision: u64, steps: &mut Steps) -> Result<bool, Failure> {
    let nodes = admin.get("/v1/nodes").await?;
    let behind: Vec<&str> = nodes["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|node| node["live"] == true && node["in_force"].as_u64().unwrap_or(0) < revision)
        .filter_map(|node| node["gateway"].as_str())
        .collect();
    if !behind.is_empty() {
        steps.say(format!("waiting for the gateways {}", behind.join(", ")));
    }
    Ok(behind.is_empty())
}
