//! `holdfast apply`.

use http::Method;
use serde_json::{Map, Value};

use holdfast_config::assemble;
use holdfast_control::desk::inline_golden;

use super::change::{agreed, finish, options, pending, print_changes, settle};
use super::{Failure, run_to_end, wait};
use crate::admin::{Admin, encoded};
use crate::cli::{ApplyArgs, Output};
use crate::config_file;
use crate::output;

/// Lines for pins that are asked for again.
const SHOWN: usize = 1_000;

/// Checks the file, shows what is different, asks, and applies.
pub fn run(args: &ApplyArgs) -> Result<(), Failure> {
    let mut split = config_file::take_apart(&args.file).map_err(|e| Failure::wrong(e.to_string()))?;
    if split.resources.is_empty() {
        return Err(Failure::wrong(format!("{}: names no pool, model or tenant", args.file.display())));
    }
    inline_golden(&mut split.resources, &split.loaded.config);
    let text = assemble(&Value::Object(Map::new()), &split.resources);
    let state: Value = serde_json::from_str(&text).map_err(|e| Failure::failed(e.to_string()))?;
    run_to_end(1, apply(args, &state))
}

async fn apply(args: &ApplyArgs, state: &Value) -> Result<(), Failure> {
    let admin = Admin::new(&args.how.admin)?;
    let table = args.how.admin.output == Output::Table;
    // What is shown is what is changed: the revision that is looked at is the one that the change names.
    let seen = admin.get("/v1/revisions?limit=1").await?["head"].as_u64();
    let dry = admin.send_json(Method::POST, &path(args, true), state, seen).await?;
    let changes = dry["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let total = dry["changes_total"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    if table {
        print_changes(changes, total);
        // Where nothing else is different, nothing is asked for again without a word that it is meant.
        let how = if total > 0 || (args.yes && !args.dry_run) { "is" } else { "with --yes is" };
        asked_again(&dry, changes, how).into_iter().for_each(|line| output::say(&line));
    }
    let how = &args.how;
    let asks_again = total == 0 && args.yes && !args.dry_run && any_left(&admin).await?;
    if args.dry_run || (total == 0 && !asks_again) {
        let waits = how.wait && !args.dry_run;
        if table || !waits {
            output::say(&if table { output::counted(total, "difference") } else { dry.to_string() });
        }
        if !waits {
            return Ok(());
        }
        // That nothing is different says nothing of what is in force.
        let (before, pins) = (wait::last_rollout(&admin, how).await?, wait::all_pins(&admin, how, Vec::new()).await?);
        return settle(&admin, how, &dry, &pins, before).await;
    }
    if asks_again && table {
        output::say("0 differences; pins that are desired and not in force are asked for again");
    }
    if !args.yes && !agreed(&format!("{}. Apply?", output::counted(total, "difference")))? {
        return Err(Failure::failed("nothing was changed"));
    }
    let before = wait::last_rollout(&admin, how).await?;
    let done = admin.send_json(Method::POST, &path(args, false), state, seen).await?;
    let pins = wait::all_pins(&admin, how, pending(&done)).await?;
    finish(&admin, how, &done, &pins, before).await
}

/// Pins that are desired already and are not in force, since their roll-out has failed: the state asks for them again, a line each.
fn asked_again(dry: &Value, changes: &[Value], how: &str) -> Vec<String> {
    let changed = |pin: &str| changes.iter().any(|change| change["kind"] == "pin" && change["name"] == pin);
    let again = pending(dry).into_iter().filter(|(pin, _)| !changed(pin));
    let mut lines: Vec<String> = again.map(|(pin, to)| format!("! pin {pin}: {to:?} {how} asked for again")).collect();
    let more = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    lines.extend((more > 0).then(|| format!("and {more} more")));
    lines
}

/// Whether a pin is desired elsewhere than it is in force: a state that names it asks for it again, if it was left behind.
async fn any_left(admin: &Admin) -> Result<bool, Failure> {
    let left = admin.get("/v1/pins?pending=true&limit=1").await?;
    Ok(left["items"].as_array().is_some_and(|pins| !pins.is_empty()))
}

fn path(args: &ApplyArgs, dry_run: bool) -> String {
    let mut path = format!("/v1/apply?dry_run={dry_run}");
    if let Some(reason) = &args.how.reason {
        path.push_str(&format!("&reason={}", encoded(reason)));
    }
    if let Some(options) = options(&args.how) {
        path.push_str(&format!("&options={}", encoded(&options.to_string())));
    }
    path
}
