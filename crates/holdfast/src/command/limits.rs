//! `holdfast limits list`: what customers may use, and what is left of it.

use serde_json::{Value, json};

use super::Failure;
use crate::admin::{encoded, get};
use crate::cli::{AdminArgs, Output};
use crate::output;

/// Lists the limits of all tenants, or of one.
pub fn list(tenant: Option<&str>, args: &AdminArgs) -> Result<(), Failure> {
    let of = tenant.map(|tenant| format!("&tenant={}", encoded(tenant))).unwrap_or_default();
    let (mut tenants, mut after) = (Vec::new(), String::new());
    let global = loop {
        let page = get(args, &format!("/v1/limits?limit=1000{of}{after}"))?;
        tenants.extend(page["tenants"].as_array().cloned().unwrap_or_default());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", encoded(next)),
            None => break page["global"].clone(),
        }
    };
    if args.output == Output::Json {
        output::say(&json!({ "tenants": tenants, "global": global }).to_string());
        return Ok(());
    }
    let own = tenants.iter().flat_map(|tenant| {
        let mode = if tenant["mode"] == "shadow" { "shadow" } else { "" };
        rows(&tenant["limits"]).map(move |limit| line(tenant, mode, limit))
    });
    let all = rows(&global).map(|limit| line(&Value::Null, "", limit));
    let head = ["tenant", "plan", "scope", "limit", "of", "allowed", "burst", "left", "mode"];
    output::say(&output::table(&head, own.chain(all)));
    Ok(())
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn line(tenant: &Value, mode: &str, limit: &Value) -> Vec<String> {
    let of = match &limit["for"] {
        Value::Object(of) => of.values().map(text).collect(),
        _ => String::new(),
    };
    vec![
        text(&tenant["tenant"]),
        text(&tenant["plan"]),
        text(&limit["scope"]),
        text(&limit["limit"]),
        of,
        allowed(limit),
        text(&limit["burst"]),
        left(limit),
        mode.to_owned(),
    ]
}

fn allowed(limit: &Value) -> String {
    if !limit["most"].is_null() {
        return format!("{} at once", text(&limit["most"]));
    }
    match &limit["rate"] {
        Value::Object(rate) => match rate["per_ms"].as_u64() {
            Some(1_000) => format!("{}/s", rate["amount"]),
            Some(60_000) => format!("{}/m", rate["amount"]),
            _ => format!("{}/{}ms", rate["amount"], rate["per_ms"]),
        },
        other => text(other),
    }
}

fn left(limit: &Value) -> String {
    if let Some(running) = limit["running"].as_u64() {
        return format!("{running} running");
    }
    match (&limit["users"], limit["available"].as_u64()) {
        (_, Some(available)) => available.to_string(),
        (Value::Number(users), None) => format!("{users} users"),
        _ => String::new(),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
