//! What is to be laid out: invented, from a file, or from a running control plane.

use std::collections::BTreeMap;
use std::path::Path;

use holdfast_config::Config;
use holdfast_control::{PoolLayout, layouts};
use holdfast_placement::layouts::Case;
use holdfast_types::Bytes;

use super::super::refusal::{Refusal, amount, count, positive};
use super::live;
use crate::cli::ResidencyArgs;
use crate::command::Failure;
use crate::config_file;

/// The most replicas of one key, as in a configuration.
pub const MOST_K: usize = 16;
/// The replicas of a key where nothing is said, as in a configuration (`subset`).
const DEFAULT_K: u32 = 2;
/// Keys times replicas that are scored for one layout.
const MOST_SCORES: u64 = 20_000_000;

/// One pool with its pinned keys.
pub struct Pool {
    pub name: String,
    pub replicas: Vec<String>,
    pub memories: Vec<Option<Bytes>>,
    pub sizes: Vec<Bytes>,
    pub keys: Vec<Key>,
}

/// One pinned key.
pub struct Key {
    pub label: String,
    pub version: u32,
    pub order: Vec<u32>,
    pub k: usize,
    /// Requests in a second.
    pub rate: f64,
}

/// What is asked about.
pub enum Input {
    /// Equal versions on equal replicas.
    Invented(Case, Pool),
    /// Real ones.
    Real(Vec<Pool>),
}

/// Reads what was asked about.
pub fn read(args: &ResidencyArgs) -> Result<Input, Refusal> {
    positive("--requests", args.requests)?;
    amount("--skew", args.skew)?;
    let traffic = args.traffic.as_deref().map(traffic).transpose()?;
    if let Some(path) = &args.config {
        let read = config_file::read(path).map_err(|e| {
            Refusal::new("--config", path.display(), format!("is no good configuration:\n{}", e.to_string().trim_end()))
        })?;
        return real(&read.split.loaded.config, args, traffic.as_ref());
    }
    if let Some(url) = &args.admin {
        let config = live::config(url, args.admin_token_file.clone(), args.tls.clone())?;
        return real(&config, args, traffic.as_ref());
    }
    invented(args, traffic)
}

fn bytes(field: &str, given: Option<&String>) -> Result<Bytes, Refusal> {
    let given = given.map_or("", String::as_str);
    match Bytes::parse(given) {
        Ok(Bytes(0)) => Err(Refusal::new(field, given, "must be more than 0")),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(Refusal::new(field, given, error.to_string())),
    }
}

fn invented(args: &ResidencyArgs, traffic: Option<Vec<(String, f64)>>) -> Result<Input, Refusal> {
    let versions = count("--versions", args.versions.unwrap_or(0), 100_000)?;
    let replicas = count("--replicas", args.replicas.unwrap_or(0), 10_000)?;
    if u64::from(versions) * u64::from(replicas) > MOST_SCORES {
        let reason = format!("with {replicas} replicas is more than {MOST_SCORES} scores");
        return Err(Refusal::new("--versions", versions, reason));
    }
    let (size, memory) = (bytes("--size", args.size.as_ref())?, bytes("--memory", args.memory.as_ref())?);
    let k = args.k.map(|k| count("--k", k, replicas)).transpose()?.unwrap_or(DEFAULT_K.min(replicas));
    count("--layouts", args.layouts, 10_000)?;
    let case = Case { versions, size, replicas, memory };
    let tenants = traffic.unwrap_or_else(|| zipf(versions, args.requests, args.skew));
    let tenants_many = u32::try_from(tenants.len()).unwrap_or(u32::MAX);
    // One order for each tenant's key; a tenant beyond the versions shares one of them.
    let keyed = Case { versions: tenants_many, ..case };
    let orders =
        keyed.orders(0, MOST_K.max(k as usize)).map_err(|e| Refusal::new("--replicas", replicas, e.to_string()))?;
    let key = |(index, ((tenant, rate), order)): (u32, ((String, f64), Vec<u32>))| {
        let version = index % versions;
        Key { label: format!("{tenant} (version {version})"), version, order, k: k as usize, rate }
    };
    let keys = (0u32..).zip(tenants.into_iter().zip(orders)).map(key).collect();
    let mut names: Vec<String> = (0..replicas).map(|index| Case::replica(0, index)).collect();
    names.sort_unstable();
    let memories = vec![Some(memory); names.len()];
    let pool =
        Pool { name: "invented".to_owned(), replicas: names, memories, sizes: vec![size; versions as usize], keys };
    Ok(Input::Invented(case, pool))
}

fn zipf(many: u32, requests: f64, skew: f64) -> Vec<(String, f64)> {
    let part = |n: u32| f64::from(n + 1).powf(-skew);
    let all: f64 = (0..many).map(part).sum();
    (0..many).map(|n| (format!("tenant-{n}"), requests * part(n) / all)).collect()
}

fn real(config: &Config, args: &ResidencyArgs, traffic: Option<&Vec<(String, f64)>>) -> Result<Input, Refusal> {
    let found = layouts(config).map_err(|e| Refusal::failed(Failure::failed(e.to_string())))?;
    let mut pins: BTreeMap<&str, f64> = BTreeMap::new();
    for (_, route) in found.iter().flat_map(|pool| &pool.routes) {
        *pins.entry(route.tenant.as_str()).or_default() += 1.0;
    }
    let even = args.requests / (pins.len() as f64).max(1.0);
    let rates: Option<BTreeMap<&str, f64>> =
        traffic.map(|t| t.iter().map(|(name, rate)| (name.as_str(), *rate)).collect());
    if let Some(unknown) = rates.iter().flat_map(BTreeMap::keys).find(|name| !pins.contains_key(**name)) {
        return Err(Refusal::new("--traffic", unknown, "is no tenant that pins anything"));
    }
    let rate = |tenant: &str| {
        let of_tenant = rates.as_ref().map_or(even, |rates| rates.get(tenant).copied().unwrap_or(0.0));
        of_tenant / pins.get(tenant).copied().unwrap_or(1.0)
    };
    Ok(Input::Real(found.iter().map(|pool| pool_of(pool, &rate)).collect()))
}

fn pool_of(pool: &PoolLayout, rate: &impl Fn(&str) -> f64) -> Pool {
    let keys = pool.routes.iter().map(|(version, route)| Key {
        label: format!("{}/{}/{}", route.tenant, route.model, route.version),
        version: *version,
        order: route.order.to_vec(),
        k: usize::from(route.subset),
        rate: rate(route.tenant.as_str()),
    });
    Pool {
        name: pool.pool.clone(),
        replicas: pool.replicas.iter().map(ToString::to_string).collect(),
        memories: pool.memories.clone(),
        sizes: pool.sizes.clone(),
        keys: keys.collect(),
    }
}

/// Lines of a tenant and its requests in a second; a first line without a number is a heading.
fn traffic(path: &Path) -> Result<Vec<(String, f64)>, Refusal> {
    let text = std::fs::read_to_string(path).map_err(|e| Refusal::new("--traffic", path.display(), e.to_string()))?;
    let mut out: Vec<(String, f64)> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let at = |reason: &str| Refusal::new("--traffic", format!("{}:{number}", path.display()), reason);
        let (tenant, rate) =
            line.rsplit_once(',').ok_or_else(|| at("is not of the form TENANT,REQUESTS_PER_SECOND"))?;
        let Ok(rate) = rate.trim().parse::<f64>() else {
            if number == 1 {
                continue;
            }
            return Err(at("has no number behind the comma"));
        };
        amount("", rate).map_err(|e| at(&e.reason))?;
        let tenant = tenant.trim().to_owned();
        if tenant.is_empty() || !seen.insert(tenant.clone()) {
            return Err(at("names no tenant, or one that was there"));
        }
        out.push((tenant, rate));
    }
    let fits = (1..=100_000).contains(&out.len());
    if fits { Ok(out) } else { Err(Refusal::new("--traffic", path.display(), "has no tenant, or over 100000")) }
}
