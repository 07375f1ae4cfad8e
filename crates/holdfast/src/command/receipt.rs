//! `holdfast receipt`.

use serde_json::Value;

use super::Failure;
use crate::admin::{encoded, get};
use crate::cli::{Output, ReceiptArgs};
use crate::output;

/// Asks the running gateway and prints what it says.
pub fn run(args: &ReceiptArgs) -> Result<(), Failure> {
    let told = get(&args.admin, &format!("/v1/receipts/{}", encoded(&args.id)))?;
    match args.admin.output {
        Output::Json => output::say(&told.to_string()),
        Output::Table => print(&told),
    }
    Ok(())
}

/// What is one word or number, in the order in which it came to be.
const FACTS: [&str; 18] = [
    "request_id",
    "time",
    "client",
    "method",
    "endpoint",
    "tenant",
    "model",
    "version",
    "reason",
    "revision",
    "pool",
    "picks",
    "retries",
    "replica",
    "status",
    "error",
    "detail",
    "bytes_in",
];

fn print(told: &Value) {
    for fact in FACTS.iter().chain(&["bytes_out"]) {
        if let Some(value) = told.get(fact) {
            line(fact, &word(value));
        }
    }
    for (member, what) in [("asked", "asked"), ("who", "who"), ("limits", "limits")] {
        if let Some(known) = told.get(member) {
            line(what, &pairs(known));
        }
    }
    for (list, what) in [("subset", "member"), ("waits", "wait"), ("attempts", "attempt")] {
        for item in told[list].as_array().into_iter().flatten() {
            line(what, &pairs(item));
        }
    }
    for stage in told["stages"].as_array().into_iter().flatten() {
        line("stage", &format!("{:<16} {} µs", word(&stage["stage"]), word(&stage["at_us"])));
    }
    let times = ["total_us", "wait_us", "upstream_us", "gateway_us"].map(|time| {
        let value = told.get(time).map_or_else(|| "-".to_owned(), word);
        format!("{} {value}", time.trim_end_matches("_us"))
    });
    line("µs", &times.join(", "));
}

fn line(name: &str, value: &str) {
    output::say(&format!("{name:<11} {value}"));
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(word).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

fn pairs(value: &Value) -> String {
    let is_known = |value: &Value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty());
    let known = value.as_object().into_iter().flatten().filter(|(_, value)| is_known(value));
    known.map(|(name, value)| format!("{name} {}", word(value))).collect::<Vec<_>>().join(", ")
}
