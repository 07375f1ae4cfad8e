//! What is to be laid out: invented, from a file, or from a running control plane.

use std::path::Path;

use holdfast_placement::layouts::Case;
use holdfast_types::Bytes;

use super::super::figure::things;
use super::super::refusal::{Refusal, amount, count, positive};
use super::live;
use super::real::Real;
use crate::cli::ResidencyArgs;
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

/// What is asked about, before it is said how many replicas there are.
pub enum Source {
    /// Equal versions on equal replicas.
    Invented(Invented),
    /// Real ones.
    Real(Box<Real>),
}

/// Reads what was asked about.
pub fn read(args: &ResidencyArgs) -> Result<Source, Refusal> {
    positive("--requests", args.requests)?;
    amount("--skew", args.skew)?;
    let traffic = args.traffic.as_deref().map(traffic).transpose()?;
    if let (Some(memory), None, None) = (&args.memory, args.versions, args.solve) {
        return Err(Refusal::new(
            "--memory",
            memory,
            "is told by the configuration; with --solve it is that of a replica to add",
        ));
    }
    // The parser lets these pass beside --replicas, which goes with no --solve.
    for (field, given) in [("--chance", args.chance), ("--bears", args.bears)] {
        if let (Some(given), None) = (given, args.solve) {
            return Err(Refusal::new(field, given, "goes with --solve replicas"));
        }
    }
    if let Some(path) = &args.config {
        let read = config_file::read(path).map_err(|e| {
            Refusal::new("--config", path.display(), format!("is no good configuration:\n{}", e.to_string().trim_end()))
        })?;
        return Ok(Source::Real(Box::new(Real::new(read.split.loaded.config, args, traffic)?)));
    }
    if let Some(url) = &args.admin {
        let config = live::config(url, args.admin_token_file.clone(), args.tls.clone())?;
        return Ok(Source::Real(Box::new(Real::new(config, args, traffic)?)));
    }
    Ok(Source::Invented(Invented::new(args, traffic)?))
}

pub fn bytes(field: &str, given: Option<&String>) -> Result<Bytes, Refusal> {
    let given = given.map_or("", String::as_str);
    match Bytes::parse(given) {
        Ok(Bytes(0)) => Err(Refusal::new(field, given, "must be more than 0")),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(Refusal::new(field, given, error.to_string())),
    }
}

/// The most replicas that so many keys can be laid out on.
pub fn most_replicas(keys: usize) -> u32 {
    let keys = u64::try_from(keys).unwrap_or(u64::MAX).max(1);
    u32::try_from(MOST_SCORES / keys).unwrap_or(u32::MAX).clamp(1, 10_000)
}

/// Equal versions, each tenant with a key of its own.
pub struct Invented {
    /// Versions and replicas; no replica where their number is what is asked.
    pub case: Case,
    tenants: Vec<(String, f64)>,
    k: Option<u32>,
}

impl Invented {
    fn new(args: &ResidencyArgs, traffic: Option<Vec<(String, f64)>>) -> Result<Self, Refusal> {
        let versions = count("--versions", args.versions.unwrap_or(0), 100_000)?;
        let replicas = match (args.solve, args.replicas) {
            (Some(_), _) => 0,
            (None, Some(replicas)) => count("--replicas", replicas, 10_000)?,
            (None, None) => {
                return Err(Refusal::new("--replicas", "left out", "say how many there are, or --solve replicas"));
            }
        };
        if u64::from(versions) * u64::from(replicas) > MOST_SCORES {
            let reason = format!("with {} is more than {MOST_SCORES} scores", things(replicas.into(), "replica"));
            return Err(Refusal::new("--versions", versions, reason));
        }
        let (size, memory) = (bytes("--size", args.size.as_ref())?, bytes("--memory", args.memory.as_ref())?);
        if args.solve.is_none() {
            args.k.map(|k| count("--k", k, replicas)).transpose()?;
        }
        count("--layouts", args.layouts, 10_000)?;
        let tenants = traffic.unwrap_or_else(|| zipf(versions, args.requests, args.skew));
        Ok(Self { case: Case { versions, size, replicas, memory }, tenants, k: args.k })
    }

    /// The most replicas that can be laid out.
    pub fn most(&self) -> u32 {
        most_replicas(self.tenants.len().max(self.case.versions as usize))
    }

    /// So many replicas, under one set of invented names.
    pub fn pool(&self, replicas: u32, set: u32) -> Result<Pool, Refusal> {
        let k = self.k.unwrap_or(DEFAULT_K).min(replicas) as usize;
        let tenants = u32::try_from(self.tenants.len()).unwrap_or(u32::MAX);
        // One order for each tenant's key; a tenant beyond the versions shares one of them.
        let keyed = Case { versions: tenants, replicas, ..self.case };
        let orders =
            keyed.orders(set, MOST_K.max(k)).map_err(|e| Refusal::new("--replicas", replicas, e.to_string()))?;
        let key = |(index, ((tenant, rate), order)): (u32, (&(String, f64), Vec<u32>))| {
            let version = index % self.case.versions;
            Key { label: format!("{tenant} (version {version})"), version, order, k, rate: *rate }
        };
        let keys = (0u32..).zip(self.tenants.iter().zip(orders)).map(key).collect();
        let mut names: Vec<String> = (0..replicas).map(|index| Case::replica(set, index)).collect();
        names.sort_unstable();
        let memories = vec![Some(self.case.memory); names.len()];
        let sizes = vec![self.case.size; self.case.versions as usize];
        Ok(Pool { name: "invented".to_owned(), replicas: names, memories, sizes, keys })
    }
}

fn zipf(many: u32, requests: f64, skew: f64) -> Vec<(String, f64)> {
    let part = |n: u32| f64::from(n + 1).powf(-skew);
    let all: f64 = (0..many).map(part).sum();
    (0..many).map(|n| (format!("tenant-{n}"), requests * part(n) / all)).collect()
}

/// Lines of a tenant and its requests in a second; a first line without a number is a heading.
fn traffic(path: &Path) -> Result<Vec<(String, f64)>, Refusal> {
    let text = std::fs::read_to_string(path).map_err(|e| Refusal::new("--traffic", path.display(), e.to_string()))?;
    let mut out: Vec<(String, f64)> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for (number, line) in
        (1..).zip(text.trim_start_matches('\u{feff}').lines()).filter(|(_, line)| !line.trim().is_empty())
    {
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
