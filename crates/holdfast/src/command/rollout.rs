//! `holdfast rollout` and `holdfast node`.

use http::Method;
use serde_json::{Value, json};

use super::steps::{back, ended, follow, line};
use super::{Failure, run_to_end};
use crate::admin::{Admin, encoded, get};
use crate::cli::{AdminArgs, Output, RolloutCommand, SteerArgs};
use crate::output;

/// Runs one of them.
pub fn run(what: &RolloutCommand) -> Result<(), Failure> {
    match what {
        RolloutCommand::List { running, limit, admin } => run_to_end(1, list(*running, *limit, admin)),
        RolloutCommand::Show { id, follow, admin } => run_to_end(1, show(*id, *follow, admin)),
        RolloutCommand::Abort(which) => steer(which, "abort", &json!({})),
        RolloutCommand::Pause(which) => steer(which, "pause", &json!({})),
        RolloutCommand::Resume(which) => steer(which, "resume", &json!({})),
        RolloutCommand::Revert { confirm, which } => steer(which, "revert", &json!({ "confirmed": confirm })),
    }
}

/// Roll-outs of more pins are listed without the first of them: their whole is large.
const LISTED: u64 = 1_000;

async fn list(running: bool, limit: u64, args: &AdminArgs) -> Result<(), Failure> {
    let admin = Admin::new(args)?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut all, mut after): (Vec<Value>, String) = (Vec::new(), String::new());
    let mut told = loop {
        let page = admin.get(&format!("/v1/rollouts?limit={}&running={running}{after}", limit.min(1000))).await?;
        let rows = page["items"].as_array().into_iter().flatten();
        // One that only keeps the old version for a way back has nothing left to do.
        all.extend(rows.filter(|row| !(running && row["phase"] == "retain")).cloned());
        match page["next"].as_str() {
            Some(next) if all.len() < limit => after = format!("&after={}", encoded(next)),
            _ => break page,
        }
    };
    all.truncate(limit);
    if args.output == Output::Json {
        told["items"] = all.into();
        output::say(&told.to_string());
        return Ok(());
    }
    let mut rows = Vec::new();
    for row in &all {
        let text = |member: &str| output::said(&row[member]);
        let created = output::time(row["created_ms"].as_u64().unwrap_or(0));
        let paused = if row["paused"] == true { " (paused)" } else { "" };
        let phase = format!("{}{paused}", text("phase").replace('_', "-"));
        let back = back(row);
        let words = if row["words"].is_null() && !back.is_empty() { back.trim().to_owned() } else { text("words") };
        let (pin, way) = first_pin(&admin, row).await?;
        rows.push(vec![row["rollout"].to_string(), created, phase, pin, way, text("author"), text("reason"), words]);
    }
    let head = ["roll-out", "begun", "phase", "pin", "from -> to", "who", "why", "words"];
    output::say(&output::table(&head, rows));
    Ok(())
}

/// The first pin of a roll-out and how many more it has, and where that pin goes.
async fn first_pin(admin: &Admin, row: &Value) -> Result<(String, String), Failure> {
    let total = row["pins_total"].as_u64().unwrap_or(0);
    let none = || (format!("{total} pins"), "-".to_owned());
    if total == 0 || total > LISTED {
        return Ok(none());
    }
    let Some(whole) = admin.find(&format!("/v1/rollouts/{}", row["rollout"])).await? else { return Ok(none()) };
    let first = &whole["pins"][0];
    let text = |member: &str| first[member].as_str().unwrap_or("-");
    let more = if total > 1 { format!(" +{} more", total - 1) } else { String::new() };
    let back = if first["back"] == true { " (back)" } else { "" };
    let pin = format!("{}/{}{more}", text("tenant"), text("model"));
    Ok((pin, format!("{} -> {}{back}", text("from"), text("to"))))
}

async fn show(id: u64, stay: bool, args: &AdminArgs) -> Result<(), Failure> {
    let admin = Admin::new(args)?;
    if stay {
        let rollout = follow(&admin, id, args.output == Output::Table).await?;
        if args.output == Output::Json {
            output::say(&rollout.to_string());
        }
        return ended(&rollout);
    }
    print(&admin.get(&format!("/v1/rollouts/{id}")).await?, args);
    Ok(())
}

fn steer(which: &SteerArgs, what: &str, body: &Value) -> Result<(), Failure> {
    run_to_end(1, async {
        let admin = Admin::new(&which.admin)?;
        let path = format!("/v1/rollouts/{}/{what}", which.id);
        print(&admin.send_json(Method::POST, &path, body, None).await?, &which.admin);
        Ok(())
    })
}

fn print(rollout: &Value, args: &AdminArgs) {
    if args.output == Output::Json {
        output::say(&rollout.to_string());
        return;
    }
    output::say(&line(rollout));
    let rows = rollout["pins"].as_array().into_iter().flatten().map(|pin| {
        let text = |member: &str| pin[member].as_str().unwrap_or("-").to_owned();
        let stage = if pin["back"] == true { format!("{} (back)", text("stage")) } else { text("stage") };
        vec![text("tenant"), text("model"), text("from"), text("to"), stage, pin["share"].to_string(), text("words")]
    });
    output::say(&format!("\n{}", output::table(&["tenant", "model", "from", "to", "stage", "share", "words"], rows)));
}

/// `holdfast node list`.
pub fn nodes(args: &AdminArgs) -> Result<(), Failure> {
    let told = get(args, "/v1/nodes")?;
    if args.output == Output::Json {
        output::say(&told.to_string());
        return Ok(());
    }
    let rows = told["items"].as_array().into_iter().flatten().map(|node| {
        let state = if node["live"] == true { "live" } else { "gone" };
        let replicas = format!("{} of {}", node["replicas_in_service"], node["replicas_total"]);
        let refused = node["refused"]["words"].as_str().unwrap_or("-").to_owned();
        let gateway = node["gateway"].as_str().unwrap_or("-").to_owned();
        vec![gateway, state.to_owned(), node["in_force"].to_string(), node["oldest"].to_string(), replicas, refused]
    });
    let head = ["gateway", "state", "in force", "oldest", "replicas in service", "refused"];
    output::say(&output::table(&head, rows));
    Ok(())
}
