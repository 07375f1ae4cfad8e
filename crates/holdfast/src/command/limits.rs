//! `holdfast limits`: what customers may use, what is left of it, and the plans that say so.

use holdfast_types::Bytes;
use serde_json::{Value, json};

use super::{Failure, run_to_end};
use crate::admin::{Admin, encoded, get};
use crate::cli::{AdminArgs, LimitsCommand, Output, PlansCommand};
use crate::output;

/// Runs one of them.
pub fn run(what: &LimitsCommand) -> Result<(), Failure> {
    match what {
        LimitsCommand::List { tenant, admin } => list(tenant.as_deref(), admin),
        LimitsCommand::Plan { what: PlansCommand::List(admin) } => plans(admin),
        LimitsCommand::Plan { what: PlansCommand::Show { name, admin } } => plan(name, admin),
    }
}

/// Lists the limits of all tenants, or of one.
fn list(tenant: Option<&str>, args: &AdminArgs) -> Result<(), Failure> {
    let of = tenant.map(|tenant| format!("&tenant={}", encoded(tenant))).unwrap_or_default();
    let (mut tenants, mut after) = (Vec::new(), String::new());
    let last = loop {
        let page = get(args, &format!("/v1/limits?limit=1000{of}{after}"))?;
        tenants.extend(page["tenants"].as_array().cloned().unwrap_or_default());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", encoded(next)),
            None => break page,
        }
    };
    let (global, store) = (&last["global"], &last["store"]);
    if args.output == Output::Json {
        output::say(&json!({ "tenants": tenants, "global": global, "store": store }).to_string());
        return Ok(());
    }
    let own = tenants.iter().flat_map(|tenant| {
        let whose = [&tenant["tenant"], &tenant["plan"], &tenant["mode"]].map(text);
        rows(&tenant["limits"]).map(move |limit| whose.iter().cloned().chain(cells(limit)).collect())
    });
    let all = rows(global).map(|limit| ["(all)", "-", "enforce"].map(str::to_owned).into_iter().chain(cells(limit)));
    let lines: Vec<Vec<String>> = own.chain(all.map(Iterator::collect)).collect();
    if lines.is_empty() {
        output::say("there are no limits");
        return Ok(());
    }
    let head: Vec<&str> = ["tenant", "plan", "mode"].into_iter().chain(HEAD).collect();
    output::say(&output::table(&head, lines));
    if store["up"] == false {
        output::say("\nthe store of shared limits does not answer: this gateway applies its part of them alone");
    }
    Ok(())
}

/// The columns of one limit: whose bucket it is, of what, what is allowed, what of it is used.
pub const HEAD: [&str; 6] = ["scope", "for", "limit", "allowed", "burst", "in use"];

/// One limit as the admin port tells it.
pub fn cells(limit: &Value) -> Vec<String> {
    let of = match &limit["for"] {
        Value::Object(of) => of.iter().map(|(kind, name)| format!("{kind} {}", text(name))).collect(),
        _ => "-".to_owned(),
    };
    let of = match limit["plan"].as_str() {
        Some(plan) if of == "-" => format!("who chooses {plan}"),
        Some(plan) => format!("{of}, who chooses {plan}"),
        None => of,
    };
    let is_bytes = limit["limit"] == "bytes";
    let burst = limit["burst"].as_u64().map_or("-".to_owned(), |burst| amount(burst, is_bytes));
    vec![text(&limit["scope"]), of, text(&limit["limit"]), allowed(limit, is_bytes), burst, in_use(limit, is_bytes)]
}

fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn amount(number: u64, is_bytes: bool) -> String {
    if is_bytes { Bytes(number).to_string() } else { number.to_string() }
}

fn allowed(limit: &Value, is_bytes: bool) -> String {
    if let Some(most) = limit["most"].as_u64() {
        return format!("{most} at once");
    }
    match &limit["rate"] {
        Value::Object(rate) => {
            let number = rate["amount"].as_u64().unwrap_or(0);
            format!("{}/{}", amount(number, is_bytes), span(rate["per_ms"].as_u64().unwrap_or(0)))
        }
        Value::Null => text(&limit["most"]),
        other => text(other),
    }
}

/// A span as it is written in a plan: `s` for one second, `10s` for ten.
fn span(ms: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
    let exact = units.into_iter().find(|(_, unit)| ms >= *unit && ms.is_multiple_of(*unit));
    match exact.map(|(name, unit)| (name, ms / unit)) {
        Some((name, 1)) => name.to_owned(),
        Some((name, many)) => format!("{many}{name}"),
        None => format!("{ms}ms"),
    }
}

/// What is used of it, or is left, in this gateway.
fn in_use(limit: &Value, is_bytes: bool) -> String {
    let users = limit["users"].as_u64().and_then(|users| usize::try_from(users).ok());
    let users = users.map(|users| output::counted(users, "user"));
    if let Some(running) = limit["running"].as_u64() {
        let by = users.map(|users| format!(" of {users}")).unwrap_or_default();
        return format!("{running} running{by}");
    }
    if let Some(held) = limit["shared"]["held"].as_u64() {
        return format!("{} leased here", amount(held, is_bytes));
    }
    let left = limit["available"].as_u64().map(|left| format!("{} left", amount(left, is_bytes)));
    left.or(users).unwrap_or_else(|| "-".to_owned())
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

fn plans(args: &AdminArgs) -> Result<(), Failure> {
    let all = run_to_end(1, async { Admin::new(args)?.all("/v1/plans?").await });
    let (plans, revision) = all?;
    if args.output == Output::Json {
        output::say(&json!({ "revision": revision, "plans": plans }).to_string());
        return Ok(());
    }
    if plans.is_empty() {
        output::say("there are no plans");
        return Ok(());
    }
    print(&plans);
    Ok(())
}

fn plan(name: &str, args: &AdminArgs) -> Result<(), Failure> {
    let plan = get(args, &format!("/v1/plans/{}", encoded(name)))?;
    match args.output {
        Output::Json => output::say(&plan.to_string()),
        Output::Table => print(&[plan]),
    }
    Ok(())
}

fn print(plans: &[Value]) {
    let lines = plans.iter().flat_map(|plan| {
        let (name, spec) = (text(&plan["name"]), &plan["spec"]);
        let mode = spec["mode"].as_str().unwrap_or("enforce").to_owned();
        let mut lines: Vec<Vec<String>> = of_spec(spec, "-").collect();
        for (list, what) in [("models", "model"), ("endpoints", "endpoint")] {
            for (of, exception) in spec[list].as_object().into_iter().flatten() {
                lines.extend(of_spec(exception, &format!("{what} {of}")));
            }
        }
        if lines.is_empty() {
            lines.push(vec!["-".to_owned(); 7]);
        }
        lines.into_iter().map(move |line| [name.clone(), mode.clone()].into_iter().chain(line).collect())
    });
    let head = ["plan", "mode", "scope", "for", "requests", "burst", "bytes", "bytes burst", "at once"];
    output::say(&output::table(&head, lines));
}

/// What a plan, or an exception of it, says of each scope.
fn of_spec(spec: &Value, of: &str) -> impl Iterator<Item = Vec<String>> {
    let scopes = ["connection", "user", "tenant"].into_iter().filter(|scope| spec[*scope].is_object());
    scopes.map(move |scope| {
        let fields =
            ["requests", "burst", "bytes", "bytes_burst", "concurrency"].map(|field| text(&spec[scope][field]));
        [scope.to_owned(), of.to_owned()].into_iter().chain(fields).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_reads_as_it_is_written_in_a_plan() {
        let told = |limit: Value| cells(&limit).join(" | ");
        let rate = |amount: u64, per: u64| json!({ "amount": amount, "per_ms": per });
        let tenant = json!({ "scope": "tenant", "limit": "requests", "for": null, "rate": rate(100, 3_600_000), "burst": 100, "available": 97 });
        assert_eq!(told(tenant), "tenant | - | requests | 100/h | 100 | 97 left");
        let bytes = json!({ "scope": "tenant", "limit": "bytes", "for": { "model": "large" }, "rate": rate(10 << 20, 1_000), "burst": 20 << 20, "available": 1 << 20 });
        assert_eq!(told(bytes), "tenant | model large | bytes | 10MiB/s | 20MiB | 1MiB left");
        let users = json!({ "scope": "user", "limit": "requests", "for": null, "rate": rate(5, 10_000), "burst": 5, "users": 1 });
        assert_eq!(told(users), "user | - | requests | 5/10s | 5 | 1 user");
        let running =
            json!({ "scope": "user", "limit": "concurrency", "for": null, "most": 4, "running": 3, "users": 2 });
        assert_eq!(told(running), "user | - | concurrency | 4 at once | - | 3 running of 2 users");
        let none = json!({ "scope": "tenant", "limit": "concurrency", "for": null, "most": "unlimited", "running": 0 });
        assert_eq!(told(none), "tenant | - | concurrency | unlimited | - | 0 running");
        let shared = json!({ "scope": "global", "limit": "requests", "for": null, "rate": rate(1, 1_500), "burst": 1, "shared": { "held": 8 } });
        assert_eq!(told(shared), "global | - | requests | 1/1500ms | 1 | 8 leased here");
    }
}
