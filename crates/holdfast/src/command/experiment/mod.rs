//! `holdfast experiment list|show|report`: experiments as they are desired, what their arms have been given, and what they have shown.

mod plot;
mod report;
mod words;

use serde_json::Value;

use super::{Failure, run_to_end};
use crate::admin::{Admin, encoded, get};
use crate::cli::{AdminArgs, ExperimentCommand, Output};
use crate::output;

/// Runs one of the commands.
pub fn run(what: &ExperimentCommand) -> Result<(), Failure> {
    match what {
        ExperimentCommand::List(args) => list(args),
        ExperimentCommand::Show { name, admin } => show(name, admin),
        ExperimentCommand::Report(args) => report::run(args),
    }
}

fn list(args: &AdminArgs) -> Result<(), Failure> {
    let rows = run_to_end(1, async { Admin::new(args)?.all("/v1/experiments?space=desired").await })?.0;
    if args.output == Output::Json {
        output::say(&Value::Array(rows).to_string());
        return Ok(());
    }
    let line = |row: &Value| {
        let spec = &row["spec"];
        let arm = |arm: &Value| format!("{}={}", text(&arm["name"]), text(&arm["version"]));
        let arms: Vec<String> = items(&spec["arms"]).map(arm).collect();
        vec![text(&row["name"]), text(&spec["model"]), status(spec), coverage(spec), bucket(spec), arms.join(" ")]
    };
    let head = ["experiment", "model", "status", "coverage", "bucket version", "arms"];
    output::say(&output::table(&head, rows.iter().map(line)));
    Ok(())
}

fn show(name: &str, args: &AdminArgs) -> Result<(), Failure> {
    let told = get(args, &format!("/v1/experiments/{}", encoded(name)))?;
    if args.output == Output::Json {
        output::say(&told.to_string());
        return Ok(());
    }
    let spec = &told["spec"];
    let (model, coverage) = (text(&spec["model"]), coverage(spec));
    let (status, bucket) = (status(spec), bucket(spec));
    output::say(&format!("{name}: model {model}, {status}, {coverage} in, bucket version {bucket}"));
    let sum: u64 = items(&spec["arms"]).map(weight).sum();
    let line = |arm: &Value| {
        let share = format!("{} of {sum}", weight(arm));
        vec![text(&arm["name"]), text(&arm["version"]), share, places(spec, &arm["name"])]
    };
    let head = ["arm", "version", "weight", "places of those who were in"];
    output::say(&output::table(&head, items(&spec["arms"]).map(line)));
    Ok(())
}

/// The ranges of an arm in each segment of the history; empty where they follow from the weights.
fn places(spec: &Value, arm: &Value) -> String {
    let mut from = 0;
    let segments = items(&spec["given"]).map(|segment| {
        let to = segment["to"].as_u64().unwrap_or(0);
        let ranges = items(&segment["arms"]).filter(|range| range["name"] == *arm);
        let ranges: Vec<String> = ranges.map(|r| format!("{}-{}", text(&r["from"]), text(&r["to"]))).collect();
        let told = format!("{} ({from}-{to} in)", if ranges.is_empty() { "none".into() } else { ranges.join(" ") });
        from = to;
        told
    });
    segments.collect::<Vec<_>>().join(", ")
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn weight(arm: &Value) -> u64 {
    arm["weight"].as_u64().unwrap_or(1)
}

fn status(spec: &Value) -> String {
    spec["status"].as_str().unwrap_or("draft").to_owned()
}

fn coverage(spec: &Value) -> String {
    format!("{} %", spec["coverage"].as_f64().unwrap_or(100.0))
}

fn bucket(spec: &Value) -> String {
    spec["bucket_version"].as_u64().unwrap_or(1).to_string()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| if value.is_null() { String::new() } else { value.to_string() }, str::to_owned)
}
