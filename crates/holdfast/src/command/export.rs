//! `holdfast table export`: what is desired, as a file that `apply` takes.

use std::io::Write;
use std::path::Path;

use serde_json::{Map, Value};

use holdfast_config::{ResourceKind, Resources, assemble};

use super::{Failure, run_to_end};
use crate::admin::{Admin, encoded};
use crate::cli::{AdminArgs, Output};
use crate::output;
use crate::yaml;

/// Writes what is desired, all of one revision, into a new file or to standard output: as YAML, or as JSON where that is asked for or is the file's ending.
pub fn run(file: Option<&Path>, args: &AdminArgs) -> Result<(), Failure> {
    let resources = run_to_end(1, async { desired(&Admin::new(args)?).await })?;
    let state: Value = serde_json::from_str(&assemble(&Value::Object(Map::new()), &resources))
        .map_err(|e| Failure::failed(e.to_string()))?;
    let is_json = args.output == Output::Json || file.is_some_and(|file| file.extension().is_some_and(|e| e == "json"));
    let text = if is_json {
        let text = serde_json::to_string_pretty(&state).map_err(|e| Failure::failed(e.to_string()))?;
        format!("{text}\n")
    } else {
        yaml::text(&state)
    };
    let Some(file) = file else {
        output::say(text.trim_end());
        return Ok(());
    };
    let failed = |e: std::io::Error| Failure::failed(format!("{} cannot be written: {e}", file.display()));
    let mut new = std::fs::File::create_new(file).map_err(failed)?;
    new.write_all(text.as_bytes()).and_then(|()| new.sync_all()).map_err(failed)
}

/// Everything that is desired, at one revision.
async fn desired(admin: &Admin) -> Result<Resources, Failure> {
    let at = admin.get("/v1/revisions?limit=1").await?["head"].as_u64().unwrap_or(0);
    let mut all = Resources::new();
    for (path, kind) in [
        ("pools", ResourceKind::Pool),
        ("models", ResourceKind::Model),
        ("versions", ResourceKind::Version),
        ("plans", ResourceKind::Plan),
        ("tenants", ResourceKind::Tenant),
        ("experiments", ResourceKind::Experiment),
        ("pins", ResourceKind::Pin),
    ] {
        take(&mut all, kind, admin.all(&format!("/v1/{path}?at={at}")).await?.0)?;
    }
    let pools: Vec<String> =
        all.keys().filter(|(kind, _)| *kind == ResourceKind::Pool).map(|(_, name)| name.clone()).collect();
    for pool in pools {
        let rows = admin.all(&format!("/v1/replicas/{}?at={at}", encoded(&pool))).await?.0;
        take(&mut all, ResourceKind::Replica, rows)?;
    }
    Ok(all)
}

fn take(all: &mut Resources, kind: ResourceKind, rows: Vec<Value>) -> Result<(), Failure> {
    let member = if kind == ResourceKind::Pin { "version" } else { "spec" };
    for mut row in rows {
        let name = row["name"].as_str().map(str::to_owned);
        let name = name.ok_or_else(|| Failure::failed(format!("a {} has no name", kind.as_str())))?;
        all.insert((kind, name), row[member].take());
    }
    Ok(())
}
