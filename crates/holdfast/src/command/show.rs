//! Listings of what a running gateway knows.

use serde_json::Value;

use holdfast_types::Bytes;

use super::Failure;
use crate::admin::{encoded, get};
use crate::cli::{AdminArgs, Output};
use crate::output;

fn text(value: &Value, member: &str) -> String {
    match value.get(member) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(other) => other.to_string(),
    }
}

fn size(value: &Value) -> String {
    value.as_u64().map_or("-".to_owned(), |bytes| Bytes(bytes).to_string())
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// `holdfast replica list`.
pub fn replicas(args: &AdminArgs) -> Result<(), Failure> {
    let told = get(args, "/v1/replicas")?;
    if args.output == Output::Json {
        output::say(&told.to_string());
        return Ok(());
    }
    let lines = rows(&told["replicas"]).map(|replica| {
        let holds: Vec<String> = rows(&replica["holds"])
            .map(|h| {
                let name = format!("{}/{}", text(h, "model"), text(h, "version"));
                if h["shown"] == true { name } else { format!("{name} ({})", text(h, "state")) }
            })
            .collect();
        let state = match (&replica["up"], &replica["in_service"]) {
            (Value::Bool(true), _) if replica["draining"] == true => "draining",
            (Value::Bool(true), _) => "up",
            (_, Value::Bool(true)) => "down",
            _ => "out of service",
        };
        vec![
            text(replica, "pool"),
            text(replica, "replica"),
            state.to_owned(),
            format!("{} of {}", size(&replica["held"]), size(&replica["memory"])),
            text(replica, "in_flight"),
            text(replica, "loads_in_flight"),
            holds.join(" "),
        ]
    });
    output::say(&output::table(&["pool", "replica", "state", "memory", "in flight", "loads", "holds"], lines));
    let loads: Vec<String> = rows(&told["replicas"]).flat_map(load_lines).collect();
    if !loads.is_empty() {
        output::say(&format!("\nloading:\n{}", loads.join("\n")));
    }
    let missing: Vec<String> = rows(&told["replicas"]).flat_map(missing_lines).collect();
    if !missing.is_empty() {
        output::say(&format!("\nmissing:\n{}", missing.join("\n")));
    }
    let strangers = rows(&told["replicas"]).flat_map(|replica| {
        let named = rows(&replica["strangers"]).filter_map(Value::as_str);
        named.map(|name| format!("{name} on {}", text(replica, "replica")))
    });
    let strangers: Vec<String> = strangers.collect();
    if !strangers.is_empty() {
        output::say(&format!("\nloaded, but no version is called so:\n{}", strangers.join("\n")));
    }
    Ok(())
}

/// What takes the load slots of a replica.
fn load_lines(replica: &Value) -> impl Iterator<Item = String> {
    rows(&replica["loads"]).map(|load| {
        let name = format!("{}/{} on {}", text(load, "model"), text(load, "version"), text(replica, "replica"));
        let overdue = load["overdue_seconds"].as_u64().map(|s| {
            format!(", over its time for {s} s: it keeps its slot until the server answers, holds the version, or is started anew")
        });
        let unwanted = if load["wanted"] == false { ", not wanted any more or for a request only" } else { "" };
        format!("{name}: for {} s{}{unwanted}", text(load, "seconds"), overdue.unwrap_or_default())
    })
}

/// The versions that a replica does not serve yet, and why.
fn missing_lines(replica: &Value) -> impl Iterator<Item = String> {
    rows(&replica["missing"]).map(|version| {
        let name = format!("{}/{}", text(version, "model"), text(version, "version"));
        let failures = version["failures"].as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| *n > 0);
        let again = version["retry_in_seconds"].as_u64().filter(|seconds| *seconds > 0);
        let mut known = vec![format!("{name} on {}", text(replica, "replica"))];
        let tried = failures.map(|n| output::counted(n, "failure"));
        let tried: Vec<String> = tried.into_iter().chain(again.map(|s| format!("again in {s} s"))).collect();
        if !tried.is_empty() {
            known.push(tried.join(", "));
        }
        let why = version["why"].as_str().filter(|why| !why.is_empty());
        known.push(why.map_or_else(|| stage(replica, version), str::to_owned));
        known.join(": ")
    })
}

/// How far a version has come that nothing stands in the way of.
fn stage(replica: &Value, version: &Value) -> String {
    let is_it = |held: &&Value| held["model"] == version["model"] && held["version"] == version["version"];
    rows(&replica["holds"]).find(is_it).map_or("waits for its turn".to_owned(), |held| text(held, "state"))
}

/// `holdfast table show`.
pub fn table(args: &AdminArgs) -> Result<(), Failure> {
    let told = get(args, "/v1/table")?;
    if args.output == Output::Json {
        output::say(&told.to_string());
        return Ok(());
    }
    output::say(&format!("revision                {}", text(&told, "revision")));
    output::say(&format!("oldest in flight        {}", text(&told, "oldest_revision_in_flight")));
    output::say(&format!("configuration in force  number {} since start", text(&told["config"], "revision")));
    let failed = &told["config"]["failed"];
    if !failed.is_null() {
        let refused =
            format!("number {} since start ({} s ago)", text(failed, "revision"), text(failed, "age_seconds"));
        output::say(&format!("configuration refused   {refused}\n{}", text(failed, "faults")));
    }
    let restart: Vec<&str> = rows(&told["config"]["restart_needed"]).filter_map(Value::as_str).collect();
    if !restart.is_empty() {
        output::say(&format!("needs a restart         {}", restart.join(", ")));
    }
    if told["store"]["ok"] == false {
        output::say(&format!("store is down           {}", text(&told["store"], "error")));
    }
    output::say(&format!("tenants                 {}\n", text(&told, "tenants_total")));
    print_pins(&told);
    let pending = rows(&told["pending"]).map(|p| {
        let waiting: Vec<&str> = rows(&p["waiting_for"]).filter_map(Value::as_str).collect();
        // What has no word on why it does not go is on its way.
        let state = if p["why"].is_string() { "held back" } else { "on its way" };
        vec![text(p, "tenant"), text(p, "model"), text(p, "to"), state.to_owned(), waiting.join(" ")]
    });
    let pending: Vec<_> = pending.collect();
    if !pending.is_empty() {
        output::say(&format!("\n{}", output::table(&["tenant", "model", "desired", "state", "missing on"], pending)));
    }
    for pin in rows(&told["pending"]) {
        if let Some(why) = pin["why"].as_str() {
            output::say(&format!("held back: {} of {}: {why}", text(pin, "model"), text(pin, "tenant")));
        }
        for obstacle in rows(&pin["obstacles"]) {
            let (version, replica) = (text(pin, "to"), text(obstacle, "replica"));
            output::say(&format!("{}/{version} on {replica}: {}", text(pin, "model"), text(obstacle, "why")));
        }
    }
    Ok(())
}

fn print_pins(told: &Value) {
    let lines = rows(&told["tenants"]).flat_map(|tenant| {
        let pins = tenant["pins"].as_object().into_iter().flatten();
        pins.map(|(model, version)| {
            let version = version.as_str().unwrap_or("-").to_owned();
            vec![text(tenant, "tenant"), model.clone(), version, text(tenant, "subset")]
        })
    });
    output::say(&output::table(&["tenant", "model", "version", "subset"], lines));
}

/// `holdfast pin list`: all pages.
pub fn pins(args: &AdminArgs) -> Result<(), Failure> {
    let mut all = get(args, "/v1/table")?;
    let mut next = all["next"].as_str().map(str::to_owned);
    while let Some(after) = next {
        let mut page = get(args, &format!("/v1/table?after={}", encoded(&after)))?;
        next = page["next"].as_str().map(str::to_owned);
        if let (Some(tenants), Some(more)) = (all["tenants"].as_array_mut(), page["tenants"].as_array_mut()) {
            tenants.append(more);
        }
    }
    match args.output {
        Output::Json => {
            let listed = serde_json::json!({ "revision": all["revision"], "tenants": all["tenants"] });
            output::say(&listed.to_string());
        }
        Output::Table => print_pins(&all),
    }
    Ok(())
}
