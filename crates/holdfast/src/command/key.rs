//! `holdfast key`: API keys of a tenant. A secret is made here, shown once, and only its hash leaves the process.

use std::io::Read;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use holdfast_identity::api_key::{MARK, make};
use holdfast_telemetry::{Clock, utc};

use super::{Failure, run_to_end};
use crate::admin::{Admin, encoded};
use crate::cli::{AdminArgs, CreateKeyArgs, KeyCommand, Output};
use crate::output;

/// How often a change is tried again because somebody else changed the tenant meanwhile.
const TRIES: usize = 5;

/// Runs one.
pub fn run(what: &KeyCommand) -> Result<(), Failure> {
    match what {
        KeyCommand::Create(args) => create(args),
        KeyCommand::List { tenant, admin } => list(tenant, admin),
        KeyCommand::Revoke { tenant, prefix, reason, admin } => revoke(tenant, prefix, reason.as_deref(), admin),
    }
}

fn create(args: &CreateKeyArgs) -> Result<(), Failure> {
    let (shown, prefix, hash) = make(random()?);
    let expires = args
        .expires_in
        .map(|span| utc(Clock::wall_millis().saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))));
    let mut key = json!({ "prefix": prefix, "hash": format!("blake3:{}", hash.to_hex()) });
    for (member, value) in [("expires", &expires), ("user", &args.user), ("plan", &args.plan), ("note", &args.note)] {
        if let Some(value) = value {
            key[member] = value.as_str().into();
        }
    }
    if !args.scopes.is_empty() {
        key["scopes"] = json!(args.scopes);
    }
    let reason = args.reason.clone().unwrap_or_else(|| format!("key {MARK}{prefix} created"));
    let done = run_to_end(1, async {
        let admin = Admin::new(&args.admin)?;
        change(&admin, &args.tenant, &reason, |keys| {
            keys.push(key.clone());
            Ok(())
        })
        .await
    })?;
    // Such as that no request can show a key, since `auth.keys` is off.
    done["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str).for_each(|line| {
        output::complain(&format!("warning: {line}"));
    });
    if args.admin.output == Output::Json {
        let told = json!({
            "key": shown, "tenant": args.tenant, "prefix": prefix, "expires": expires, "revision": done["revision"],
            "warnings": done["warnings"],
        });
        output::say(&told.to_string());
    } else {
        output::say(&shown);
        output::complain("this is the only time that the key is shown");
    }
    Ok(())
}

fn revoke(tenant: &str, prefix: &str, reason: Option<&str>, args: &AdminArgs) -> Result<(), Failure> {
    let prefix = prefix.strip_prefix(MARK).unwrap_or(prefix);
    if prefix.contains('_') {
        return Err(Failure::wrong(
            "this is a whole key; give its prefix alone, what stands between the first two underscores",
        ));
    }
    let reason = reason.map_or_else(|| format!("key {MARK}{prefix} revoked"), str::to_owned);
    let done = run_to_end(1, async {
        let admin = Admin::new(args)?;
        change(&admin, tenant, &reason, |keys| {
            let before = keys.len();
            keys.retain(|key| key["prefix"] != prefix);
            let none = || Failure::failed(format!("tenant {tenant} has no key {MARK}{prefix}"));
            if keys.len() == before { Err(none()) } else { Ok(()) }
        })
        .await
    })?;
    match args.output {
        Output::Json => {
            output::say(&json!({ "prefix": prefix, "tenant": tenant, "revision": done["revision"] }).to_string());
        }
        Output::Table => output::say(&format!("revision {}: {MARK}{prefix} is revoked", done["revision"])),
    }
    Ok(())
}

fn list(tenant: &str, args: &AdminArgs) -> Result<(), Failure> {
    let keys = run_to_end(1, async { Ok(spec(&Admin::new(args)?, tenant).await?.1["keys"].take()) })?;
    let keys = keys.as_array().cloned().unwrap_or_default();
    if args.output == Output::Json {
        // A hash says nothing to anybody who lists keys.
        let told = keys.into_iter().map(|mut key| {
            key.as_object_mut().map(|members| members.remove("hash"));
            key
        });
        output::say(&json!({ "tenant": tenant, "keys": told.collect::<Vec<_>>() }).to_string());
        return Ok(());
    }
    let text = |key: &Value, member: &str| key[member].as_str().unwrap_or("-").to_owned();
    let row = |key: &Value| {
        vec![
            format!("{MARK}{}", text(key, "prefix")),
            text(key, "expires"),
            text(key, "user"),
            text(key, "plan"),
            text(key, "note"),
        ]
    };
    output::say(&output::table(&["key", "expires", "user", "plan", "note"], keys.iter().map(row)));
    Ok(())
}

/// The revision of the tenant, and what it says.
async fn spec(admin: &Admin, tenant: &str) -> Result<(u64, Value), Failure> {
    let mut found = admin.get(&format!("/v1/tenants/{}", encoded(tenant))).await?;
    let revision = found["revision"].as_u64().ok_or_else(|| Failure::failed("the answer names no revision"))?;
    Ok((revision, found["spec"].take()))
}

/// Changes the keys of a tenant, whatever else of it is changed meanwhile.
async fn change(
    admin: &Admin,
    tenant: &str,
    reason: &str,
    edit: impl Fn(&mut Vec<Value>) -> Result<(), Failure>,
) -> Result<Value, Failure> {
    let path = format!("/v1/tenants/{}", encoded(tenant));
    for _ in 0..TRIES {
        let (revision, mut spec) = spec(admin, tenant).await?;
        let mut keys = spec["keys"].as_array().cloned().unwrap_or_default();
        edit(&mut keys)?;
        match keys.is_empty() {
            true => drop(spec.as_object_mut().map(|spec| spec.remove("keys"))),
            false => spec["keys"] = keys.into(),
        }
        let told =
            admin.try_json(Method::PUT, &path, &json!({ "spec": spec, "reason": reason }), Some(revision)).await?;
        if told.status.is_success() {
            return Ok(told.body);
        }
        if told.status != StatusCode::PRECONDITION_FAILED {
            let detail = told.body["detail"].as_str().unwrap_or("no reason given");
            return Err(Failure::failed(format!("the gateway answers {}: {detail}", told.status)));
        }
    }
    Err(Failure::failed("the tenant is changed by somebody else all the time; try again"))
}

/// From the operating system.
fn random() -> Result<[u8; 38], Failure> {
    let mut bytes = [0; 38];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|e| Failure::failed(format!("the operating system gives no randomness: {e}")))?;
    Ok(bytes)
}
