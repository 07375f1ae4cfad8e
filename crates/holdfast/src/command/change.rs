//! Changes of pins, and what all changes share: how they are asked for, shown, agreed to, and waited for.

use std::io::{BufRead, IsTerminal};

use http::Method;
use serde_json::{Value, json};

use super::begun::{Begun, begun};
use super::{Failure, run_to_end, wait};
use crate::admin::{Admin, encoded};
use crate::cli::{ChangeArgs, Output};
use crate::output;

/// `holdfast pin set`.
pub fn set_pin(tenant: &str, model: &str, version: &str, how: &ChangeArgs) -> Result<(), Failure> {
    run_to_end(1, async {
        let admin = Admin::new(&how.admin)?;
        let before = wait::last_rollout(&admin, how).await?;
        let path = format!("/v1/pins/{}/{}", encoded(tenant), encoded(model));
        let mut body = json!({ "version": version });
        add_reason(&mut body, how);
        if let Some(options) = options(how) {
            body["options"] = options;
        }
        let done = admin.send_json(Method::PUT, &path, &body, None).await?;
        // Nothing may have changed because somebody asked for the same before: that is waited for just as well.
        let pins = [(format!("{tenant}/{model}"), version.to_owned())];
        finish(&admin, how, &done, &pins, before).await
    })
}

/// `holdfast pin remove`.
pub fn remove_pin(tenant: &str, model: &str, how: &ChangeArgs) -> Result<(), Failure> {
    run_to_end(1, async {
        let admin = Admin::new(&how.admin)?;
        let reason = how.reason.as_ref().map(|reason| format!("?reason={}", encoded(reason))).unwrap_or_default();
        let done = admin.delete(&format!("/v1/pins/{}/{}{reason}", encoded(tenant), encoded(model))).await?;
        finish(&admin, how, &done, &[], 0).await
    })
}

/// The words of the person who asks.
pub fn add_reason(body: &mut Value, how: &ChangeArgs) {
    if let Some(reason) = &how.reason {
        body["reason"] = reason.as_str().into();
    }
}

/// What was said of the roll-out; `None`: nothing.
pub fn options(how: &ChangeArgs) -> Option<Value> {
    let steps = how.canary.as_ref().map(|canary| {
        let step = |(percent, wait): &(u8, std::time::Duration)| {
            json!({ "percent": percent, "wait_ms": u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) })
        };
        canary.0.iter().map(step).collect::<Vec<_>>()
    });
    if !how.atomic && steps.is_none() && how.shadow.is_none() {
        return None;
    }
    let mut options = json!({});
    if how.atomic {
        options["atomic"] = true.into();
    }
    if let Some(steps) = steps {
        options["canary"] = steps.into();
    }
    if let Some(condition) = &how.while_holds {
        options["while"] = condition.as_str().into();
    }
    if let Some(samples) = how.samples {
        options["samples"] = samples.into();
    }
    if let Some(shadow) = how.shadow {
        let ms = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        options["shadow"] = json!({
            "share": shadow.share, "compare": shadow.compare, "differ": shadow.differ,
            "at_least_ms": ms(shadow.at_least), "at_most_ms": ms(shadow.at_most),
        });
    }
    Some(options)
}

/// Says what came of a change, and waits for it if that was asked. One JSON value is printed, at the end.
pub async fn finish(
    admin: &Admin,
    how: &ChangeArgs,
    done: &Value,
    pins: &[(String, String)],
    before: u64,
) -> Result<(), Failure> {
    if how.admin.output == Output::Table {
        output::say(&summary(done));
    }
    settle(admin, how, done, pins, before).await
}

/// The same of a change of which everything but its end has been said.
pub async fn settle(
    admin: &Admin,
    how: &ChangeArgs,
    done: &Value,
    pins: &[(String, String)],
    before: u64,
) -> Result<(), Failure> {
    for warning in done["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        output::complain(&format!("warning: {warning}"));
    }
    let mut told = done.clone();
    if let Some((pin, _)) = pending(done).first().filter(|_| !how.wait) {
        let begun = begun(admin, pin, before).await;
        if let Begun::Rollout(id) = &begun {
            told["rollout"] = (*id).into();
        }
        if how.admin.output == Output::Table {
            output::say(&begun.line());
        }
    }
    let waited = if how.wait { wait::until_in_force(admin, how, pins, before).await.map(Some) } else { Ok(None) };
    if let Ok(Some(in_force)) = &waited {
        told["in_force"] = (*in_force).into();
    }
    if how.admin.output == Output::Json {
        output::say(&told.to_string());
    }
    waited.map(|_| ())
}

/// The pins of an answer that are on their way.
pub fn pending(done: &Value) -> Vec<(String, String)> {
    let text = |pin: &Value, member: &str| pin[member].as_str().unwrap_or_default().to_owned();
    let pins = done["pending"].as_array().into_iter().flatten();
    pins.map(|pin| (format!("{}/{}", text(pin, "tenant"), text(pin, "model")), text(pin, "to"))).collect()
}

fn summary(done: &Value) -> String {
    let count = |member: &Value| member.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let changes = count(&done["changes_total"]);
    let Some(revision) = done["revision"].as_u64() else {
        return if changes == 0 { "nothing is different".to_owned() } else { "nothing was changed".to_owned() };
    };
    let pending = done["pending"].as_array().map_or(0, Vec::len);
    let way = if pending == 0 { String::new() } else { format!(", {} on the way", output::counted(pending, "pin")) };
    format!("revision {revision}: {}{way}", output::counted(changes, "change"))
}

/// Asks the person at the terminal.
pub fn agreed(question: &str) -> Result<bool, Failure> {
    let mut input = std::io::stdin().lock();
    if !std::io::stdin().is_terminal() {
        return Err(Failure::wrong("nobody can be asked here: look at it with --dry-run, then give --yes"));
    }
    output::complain(&format!("{question} [y/N]"));
    let mut line = String::new();
    input.read_line(&mut line).map_err(|e| Failure::failed(e.to_string()))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// What is different, a line each: `+` new, `-` gone, `~` changed.
pub fn print_changes(rows: &[Value], total: usize) {
    for row in rows {
        let name = format!("{} {}", row["kind"].as_str().unwrap_or("?"), row["name"].as_str().unwrap_or("?"));
        let space = row["space"].as_str().map(|space| format!("{space:<9} ")).unwrap_or_default();
        let line = match (row["before"].is_null(), row["after"].is_null()) {
            (true, _) => format!("+ {space}{name}: {}", row["after"]),
            (_, true) => format!("- {space}{name}: {}", row["before"]),
            _ => format!("~ {space}{name}: {} -> {}", row["before"], row["after"]),
        };
        output::say(&line);
    }
    if total > rows.len() {
        output::say(&format!("and {} more", total - rows.len()));
    }
}
