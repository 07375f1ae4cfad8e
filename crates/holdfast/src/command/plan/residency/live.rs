//! The table in force at a running control plane, as a configuration.

use std::path::PathBuf;

use holdfast_config::{Config, ResourceKind, Resources, Source, assemble, load};
use serde_json::{Map, Value};

use super::super::refusal::Refusal;
use crate::admin::Admin;
use crate::cli::{AdminArgs, Output, TlsArgs};
use crate::command::{Failure, run_to_end};

/// Reads all resources over the admin API and puts them together.
pub fn config(url: &str, admin_token_file: Option<PathBuf>, tls: TlsArgs) -> Result<Config, Refusal> {
    let args = AdminArgs { admin: url.to_owned(), admin_token_file, tls, output: Output::Json };
    let resources = run_to_end(1, async { resources(&Admin::new(&args)?).await });
    let resources = resources.map_err(Refusal::failed)?;
    let text = assemble(&Value::Object(Map::new()), &resources);
    let loaded = load(&Source::text(url, &text));
    loaded
        .map(|loaded| loaded.config)
        .map_err(|faults| Refusal::failed(Failure::failed(format!("what is in force is not understood:\n{faults}"))))
}

async fn resources(admin: &Admin) -> Result<Resources, Failure> {
    let mut out = Resources::new();
    for (kind, path) in [
        (ResourceKind::Pool, "/v1/pools"),
        (ResourceKind::Model, "/v1/models"),
        (ResourceKind::Version, "/v1/versions"),
        (ResourceKind::Plan, "/v1/plans"),
        (ResourceKind::Tenant, "/v1/tenants"),
        (ResourceKind::Experiment, "/v1/experiments"),
        (ResourceKind::Pin, "/v1/pins"),
    ] {
        pages(admin, kind, path, &mut out).await?;
    }
    let pools: Vec<String> =
        out.keys().filter(|(kind, _)| *kind == ResourceKind::Pool).map(|(_, name)| name.clone()).collect();
    for pool in pools {
        pages(admin, ResourceKind::Replica, &format!("/v1/replicas/{pool}"), &mut out).await?;
    }
    Ok(out)
}

/// All pages of one list.
async fn pages(admin: &Admin, kind: ResourceKind, path: &str, out: &mut Resources) -> Result<(), Failure> {
    let mut after = String::new();
    loop {
        let page = admin.get(&format!("{path}?space=in_force&limit=1000{after}")).await?;
        for item in page["items"].as_array().into_iter().flatten() {
            let content = if kind == ResourceKind::Pin { &item["version"] } else { &item["spec"] };
            if let Some(name) = item["name"].as_str() {
                out.insert((kind, name.to_owned()), content.clone());
            }
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={}", crate::admin::encoded(next)),
            None => return Ok(()),
        }
    }
}
