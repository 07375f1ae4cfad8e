//! `holdfast table history`, `diff` and `revert`.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use super::change::{add_reason, agreed, finish, options, pending, print_changes, settle};
use super::{Failure, export, run_to_end, show, wait};
use crate::admin::{Admin, encoded};
use crate::cli::{AdminArgs, Output, RevertArgs, TableCommand};
use crate::output;

/// Lines for pins that have to be loaded anew.
const SHOWN: usize = 100;

/// Runs one of them.
pub fn run(what: &TableCommand) -> Result<(), Failure> {
    match what {
        TableCommand::Show(admin) => show::table(admin),
        TableCommand::History { limit, admin } => run_to_end(1, history(*limit, admin)),
        TableCommand::Diff { from, to, admin } => run_to_end(1, diff(*from, *to, admin)),
        TableCommand::Revert(args) => run_to_end(1, revert(args)),
        TableCommand::Export { file, admin } => export::run(file.as_deref(), admin),
    }
}

async fn history(limit: u64, args: &AdminArgs) -> Result<(), Failure> {
    let admin = Admin::new(args)?;
    let (mut all, mut after, mut left): (Vec<Value>, String, u64) = (Vec::new(), String::new(), limit);
    let head = loop {
        let page = admin.get(&format!("/v1/revisions?limit={}{after}", left.min(1000))).await?;
        let rows = page["items"].as_array().cloned().unwrap_or_default();
        left = left.saturating_sub(rows.len() as u64);
        all.extend(rows);
        match page["next"].as_str() {
            Some(next) if left > 0 => after = format!("&after={}", encoded(next)),
            _ => break page,
        }
    };
    if args.output == Output::Json {
        output::say(&json!({ "head": head["head"], "in_force": head["in_force"], "items": all }).to_string());
        return Ok(());
    }
    let mut rows = Vec::new();
    for row in &all {
        let text = |member: &str| output::said(&row[member]);
        let at = output::time(row["at_ms"].as_u64().unwrap_or(0));
        let (changes, first) = edits(&admin, row).await?;
        let revision = row["revision"].to_string();
        rows.push(vec![revision, at, text("purpose"), text("author"), changes, first, text("reason")]);
    }
    output::say(&output::table(&["revision", "when", "what", "who", "changes", "first change", "why"], rows));
    Ok(())
}

/// How many resources a revision changed, and what was done to the first. What is desired and in force at once is one change.
async fn edits(admin: &Admin, row: &Value) -> Result<(String, String), Failure> {
    let none = || ("0".to_owned(), "-".to_owned());
    if row["edits_total"] == 0 {
        return Ok(none());
    }
    // One that is forgotten by now is told as far as it was listed.
    let Some(whole) = admin.find(&format!("/v1/revisions/{}?limit=1000", row["revision"])).await? else {
        return Ok(none());
    };
    let edits = whole["edits"].as_array().map(Vec::as_slice).unwrap_or_default();
    let name =
        |edit: &Value| format!("{} {}", edit["kind"].as_str().unwrap_or("?"), edit["name"].as_str().unwrap_or("?"));
    let names: BTreeSet<String> = edits.iter().map(name).collect();
    let more = if whole["next"].is_null() { "" } else { " or more" };
    let first = edits.first().map(|edit| match &edit["value"] {
        Value::Null => format!("- {}", name(edit)),
        Value::String(version) => format!("{}: {version}", name(edit)),
        _ => name(edit),
    });
    Ok((format!("{}{more}", names.len()), first.unwrap_or_else(|| "-".to_owned())))
}

async fn diff(from: u64, to: Option<u64>, args: &AdminArgs) -> Result<(), Failure> {
    let admin = Admin::new(args)?;
    let to = match to {
        Some(to) => to,
        None => admin.get("/v1/revisions?limit=1").await?["head"].as_u64().unwrap_or(0),
    };
    let (mut all, mut after): (Vec<Value>, String) = (Vec::new(), String::new());
    loop {
        let page = admin.get(&format!("/v1/diff?from={from}&to={to}&limit=1000{after}")).await?;
        all.extend(page["items"].as_array().cloned().unwrap_or_default());
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={}", encoded(next));
    }
    match args.output {
        Output::Json => output::say(&json!({ "from": from, "to": to, "items": all }).to_string()),
        Output::Table if all.is_empty() => output::say("nothing is different"),
        Output::Table => print_changes(&all, all.len()),
    }
    Ok(())
}

async fn revert(args: &RevertArgs) -> Result<(), Failure> {
    let how = &args.how;
    let admin = Admin::new(&how.admin)?;
    let table = how.admin.output == Output::Table;
    let mut body = json!({ "to": args.revision });
    add_reason(&mut body, how);
    if args.skip_gone {
        body["skip_gone"] = true.into();
    }
    if let Some(options) = options(how) {
        body["options"] = options;
    }
    // What is shown is what is changed: the revision that is looked at is the one that the change names.
    let seen = admin.get("/v1/revisions?limit=1").await?["head"].as_u64();
    let dry = admin.send_json(Method::POST, "/v1/revert?dry_run=true", &body, seen).await?;
    let changes = dry["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let total = dry["changes_total"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    if table {
        output::say(&way_back(&dry));
        cold(&dry).into_iter().for_each(|line| output::say(&line));
        skipped(&dry).into_iter().for_each(|line| output::say(&line));
    }
    if args.dry_run || total == 0 {
        let waits = how.wait && !args.dry_run;
        if !table && !waits {
            output::say(&dry.to_string());
        }
        if !waits {
            return Ok(());
        }
        let (before, pins) = (wait::last_rollout(&admin, how).await?, wait::all_pins(&admin, how, Vec::new()).await?);
        return settle(&admin, how, &dry, &pins, before).await;
    }
    let is_warm = dry["cold_total"].as_u64().unwrap_or(0) == 0;
    let is_simple = is_warm && total == 1 && changes.iter().all(|change| change["after"].is_string());
    if !is_simple && !args.yes && !agreed(&format!("{}. Go back?", output::counted(total, "difference")))? {
        return Err(Failure::failed("nothing was changed"));
    }
    body["to"] = dry["to"].clone();
    let before = wait::last_rollout(&admin, how).await?;
    let done = admin.send_json(Method::POST, "/v1/revert", &body, seen).await?;
    let pins = wait::all_pins(&admin, how, pending(&done)).await?;
    finish(&admin, how, &done, &pins, before).await
}

/// Pins whose old version is not kept any more, a line each: they go back once it is loaded anew.
fn cold(dry: &Value) -> Vec<String> {
    let pins = dry["cold"].as_array().map(Vec::as_slice).unwrap_or_default();
    let total = dry["cold_total"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let text = |pin: &Value, member: &str| pin[member].as_str().unwrap_or("?").to_owned();
    let line = |pin: &Value| {
        let (pin, version) = (text(pin, "pin"), text(pin, "version"));
        format!(
            "cold redeployment: {pin} to {version}, which is not kept for it any more and is loaded anew where nobody else uses it"
        )
    };
    let mut lines: Vec<String> = pins.iter().take(SHOWN).map(line).collect();
    if total > lines.len() {
        lines.push(format!("and {} more", total - lines.len()));
    }
    lines
}

/// Pins that do not go back, a line each.
fn skipped(dry: &Value) -> Vec<String> {
    let pins = dry["skipped"].as_array().map(Vec::as_slice).unwrap_or_default();
    let total = dry["skipped_total"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let text = |pin: &Value, member: &str| pin[member].as_str().unwrap_or("?").to_owned();
    let line =
        |pin: &Value| format!("skipped: {} to {}: {}", text(pin, "pin"), text(pin, "version"), text(pin, "reason"));
    let mut lines: Vec<String> = pins.iter().map(line).collect();
    if total > pins.len() {
        lines.push(format!("and {} more", total - pins.len()));
    }
    lines
}

/// What a revert does to pins, one on the same line, more below: what is in force now and then, and what was desired if that is something else, as after a
/// change that failed or was aborted.
fn way_back(dry: &Value) -> String {
    let to = &dry["to"];
    let moves = dry["moves"].as_array().map(Vec::as_slice).unwrap_or_default();
    let total = dry["moves_total"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(moves.len());
    match moves {
        [] => format!("pins in force at {to}: nothing is different"),
        [one] => format!("pins in force at {to}: {}", one_way(one)),
        _ => {
            let mut lines = vec![format!("pins in force at {to}:")];
            lines.extend(moves.iter().map(|pin| format!("  {}", one_way(pin))));
            if total > moves.len() {
                lines.push(format!("  and {} more", total - moves.len()));
            }
            lines.join("\n")
        }
    }
}

fn one_way(pin: &Value) -> String {
    let version = |member: &str| pin[member].as_str().unwrap_or("none");
    let name = pin["pin"].as_str().unwrap_or("?");
    let (now, desired, to) = (version("in_force"), version("desired"), version("to"));
    let gone = if pin["to"].is_null() { " (the pin goes)" } else { "" };
    let given_up = match () {
        () if desired == now => String::new(),
        () if desired == to => format!(" (desired is {to} already)"),
        () => format!(" (desired was {desired}, which is given up)"),
    };
    if now == to {
        return format!("{name}: in force {now}, as it is{given_up}");
    }
    format!("{name}: in force {now} -> {to}{gone}{given_up}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_back_names_what_is_in_force_and_what_is_given_up() {
        let pin = |in_force: Value, desired: Value, to: Value| {
            one_way(&json!({ "pin": "acme/screen", "in_force": in_force, "desired": desired, "to": to }))
        };
        assert_eq!(pin("2".into(), "2".into(), "1".into()), "acme/screen: in force 2 -> 1");
        let failed = pin("2".into(), "3".into(), "1".into());
        assert_eq!(failed, "acme/screen: in force 2 -> 1 (desired was 3, which is given up)");
        let stays = pin("1".into(), "2".into(), "1".into());
        assert_eq!(stays, "acme/screen: in force 1, as it is (desired was 2, which is given up)");
        assert_eq!(pin("2".into(), "1".into(), "1".into()), "acme/screen: in force 2 -> 1 (desired is 1 already)");
        assert_eq!(pin("1".into(), "1".into(), Value::Null), "acme/screen: in force 1 -> none (the pin goes)");
        let two = {
            let one = json!({ "pin": "a/m", "in_force": "2", "desired": "2", "to": "1" });
            json!({ "to": 4, "moves": [one, one], "moves_total": 3 })
        };
        assert_eq!(way_back(&two), "pins in force at 4:\n  a/m: in force 2 -> 1\n  a/m: in force 2 -> 1\n  and 1 more");
    }
}
