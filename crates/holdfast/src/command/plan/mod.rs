//! `holdfast plan`: figures before anything runs, from the pure crates that decide in production.

mod chart;
mod fairshare;
mod figure;
mod lease;
mod limits;
mod quorum;
mod refusal;
mod residency;
mod ring;

use serde_json::{Value, json};

use super::Failure;
use crate::cli::{Output, PlanCommand, PlanForm};
use crate::output;
use chart::Chart;
use refusal::Refusal;

pub(super) use chart::escaped;

/// What a planner found.
struct Report {
    /// For people: tables and sentences.
    text: String,
    /// For programs: an object. `warnings` is added to it.
    json: Value,
    /// What to draw.
    chart: Chart,
    /// What a person should not overlook.
    warnings: Vec<String>,
}

/// Plans and prints.
pub fn run(what: &PlanCommand) -> Result<(), Failure> {
    match what {
        PlanCommand::Quorum(args) => finish(&args.form, quorum::plan(args)),
        PlanCommand::Residency(args) => finish(&args.form, residency::plan(args)),
        PlanCommand::Lease(args) => finish(&args.form, lease::plan(args)),
        PlanCommand::Fairshare(args) => finish(&args.form, fairshare::plan(args)),
        PlanCommand::Limits(args) => finish(&args.form, limits::plan(args)),
        PlanCommand::Ring(args) => finish(&args.form, ring::plan(args)),
    }
}

fn finish(form: &PlanForm, planned: Result<Report, Refusal>) -> Result<(), Failure> {
    let report = planned.map_err(|refusal| {
        if let Some(failure) = refusal.failure {
            return failure;
        }
        if form.output == Output::Json {
            let fault = json!({ "field": refusal.field, "value": refusal.value, "reason": refusal.reason });
            output::say(&json!({ "ok": false, "faults": [fault], "total": 1 }).to_string());
        }
        Failure::wrong(refusal.to_string())
    })?;
    if let Some(path) = &form.plot {
        let written = std::fs::write(path, report.chart.svg());
        written.map_err(|e| Failure::failed(format!("--plot {}: {e}", path.display())))?;
    }
    match form.output {
        Output::Json => {
            let mut told = report.json;
            if let Some(members) = told.as_object_mut() {
                members.insert("warnings".to_owned(), json!(report.warnings));
            }
            output::say(&told.to_string());
        }
        Output::Table => {
            output::say(&format!("{}\n\n{}", report.text, report.chart.bars_of_text()));
            for warning in &report.warnings {
                output::complain(&format!("warning: {warning}"));
            }
        }
    }
    Ok(())
}
