//! `holdfast explain`.

use serde_json::Value;

use super::Failure;
use super::limits::{HEAD, cells};
use crate::admin::{encoded, get};
use crate::cli::{ExplainArgs, Output};
use crate::output;

/// Asks the running gateway and prints what it says.
pub fn run(args: &ExplainArgs) -> Result<(), Failure> {
    if args.tenant.is_none() && args.headers.is_empty() {
        return Err(Failure::wrong("whose request? give --tenant or --header"));
    }
    let mut path = format!("/v1/explain?model={}", encoded(&args.model));
    if let Some(tenant) = &args.tenant {
        path.push_str(&format!("&tenant={}", encoded(tenant)));
    }
    if let Some(version) = &args.version {
        path.push_str(&format!("&version={}", encoded(version)));
    }
    let of = [
        ("user", &args.user),
        ("device", &args.device),
        ("plan", &args.plan),
        ("override", &args.wants),
        ("route", &args.route),
    ];
    let of = of.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let many = args.scopes.iter().map(|scope| ("scope", scope)).chain(args.claims.iter().map(|claim| ("claim", claim)));
    for (name, value) in of.chain(many) {
        path.push_str(&format!("&{name}={}", encoded(value)));
    }
    for header in &args.headers {
        let (name, value) = header
            .split_once(':')
            .ok_or_else(|| Failure::wrong(format!("--header {header:?} is not of the form \"name: value\"")))?;
        path.push_str(&format!("&header={}", encoded(&format!("{}:{}", name.trim(), value.trim()))));
    }
    let told = get(&args.admin, &path)?;
    match args.admin.output {
        Output::Json => output::say(&told.to_string()),
        Output::Table => print(&told),
    }
    // A refusal is an answer; but what a request of nobody would get is not what was to be known.
    match (&told["unknown"], &args.tenant) {
        (Value::Null, _) => Ok(()),
        (_, Some(tenant)) => Err(Failure::failed(format!("there is no tenant {tenant:?} here"))),
        (_, None) => Err(Failure::failed("the headers name a tenant that is not known here")),
    }
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value.get(member).and_then(Value::as_str).unwrap_or("-")
}

fn print(told: &Value) {
    for step in told["steps"].as_array().into_iter().flatten() {
        output::say(&format!("{:<10} {}", text(step, "stage"), text(step, "outcome")));
    }
    if let Some(error) = told.get("error").and_then(Value::as_str) {
        output::say(&format!("{:<10} {error}: {}", "answer", text(told, "detail")));
        return;
    }
    let rows = told["subset"].as_array().into_iter().flatten().map(|member| {
        vec![
            text(member, "replica").to_owned(),
            member["holds"].to_string(),
            member["usable"].to_string(),
            member["in_flight"].to_string(),
            text(member, "state").to_owned(),
            text(member, "why").to_owned(),
        ]
    });
    if let Some(limits) = told.get("limits") {
        let mode = if limits["mode"] == "shadow" { " (shadow: counted, nothing is refused)" } else { "" };
        let lines = limits["limits"].as_array().into_iter().flatten().map(cells);
        output::say(&format!("\nlimits{mode}:\n{}", output::table(&HEAD, lines)));
    }
    output::say("");
    output::say(&output::table(&["subset", "holds", "usable", "in flight", "state", "why"], rows));
    output::say(&format!("\n{:<10} {}", "now", text(told, "now")));
}
