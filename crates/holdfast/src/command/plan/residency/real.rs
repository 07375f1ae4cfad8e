//! Pools, pins and subsets of a configuration, with the layout that the gateways use; also with replicas that are not there yet.

use std::collections::BTreeMap;

use holdfast_config::Config;
use holdfast_control::{PoolLayout, layouts};
use holdfast_types::{Bytes, ReplicaName, Weight};

use super::super::refusal::Refusal;
use super::input::{Key, Pool, bytes};
use crate::cli::ResidencyArgs;
use crate::command::Failure;

/// A configuration and the traffic of its tenants.
pub struct Real {
    config: Config,
    /// By tenant: requests in a second. None: all tenants the same.
    rates: Option<BTreeMap<String, f64>>,
    requests: f64,
    /// The memory of a replica that is added.
    memory: Option<Bytes>,
}

impl Real {
    /// Reads the rest of what is asked.
    pub fn new(config: Config, args: &ResidencyArgs, traffic: Option<Vec<(String, f64)>>) -> Result<Self, Refusal> {
        let memory = args.memory.as_ref().map(|memory| bytes("--memory", Some(memory))).transpose()?;
        Ok(Self { config, rates: traffic.map(|all| all.into_iter().collect()), requests: args.requests, memory })
    }

    /// All pools as they are.
    pub fn pools(&self) -> Result<Vec<Pool>, Refusal> {
        self.laid_out(&self.config)
    }

    /// One pool with more replicas, under one set of invented names.
    pub fn grown(&self, pool: usize, added: u32, set: u32) -> Result<Pool, Refusal> {
        let mut config = self.config.clone();
        let nothing = || Refusal::failed(Failure::failed("there is no such pool".to_owned()));
        let grown = config.pools.get_mut(pool).ok_or_else(nothing)?;
        let memory = self.memory.or_else(|| grown.replicas.iter().filter_map(|replica| replica.memory).min());
        let like = grown.replicas.iter().find(|replica| replica.weight > Weight(0)).cloned().ok_or_else(nothing)?;
        for index in 0..added {
            let name = ReplicaName::parse(&format!("added-{set}-{index}"));
            let name = name.map_err(|e| Refusal::failed(Failure::failed(e.to_string())))?;
            grown.replicas.push(holdfast_config::Replica { name, memory, ..like.clone() });
        }
        self.laid_out(&config)?.into_iter().nth(pool).ok_or_else(nothing)
    }

    fn laid_out(&self, config: &Config) -> Result<Vec<Pool>, Refusal> {
        let found = layouts(config).map_err(|e| Refusal::failed(Failure::failed(e.to_string())))?;
        let mut pins: BTreeMap<&str, f64> = BTreeMap::new();
        for (_, route) in found.iter().flat_map(|pool| &pool.routes) {
            *pins.entry(route.tenant.as_str()).or_default() += 1.0;
        }
        let even = self.requests / (pins.len() as f64).max(1.0);
        if let Some(unknown) = self.rates.iter().flat_map(BTreeMap::keys).find(|name| !pins.contains_key(name.as_str()))
        {
            return Err(Refusal::new("--traffic", unknown, "is no tenant that pins anything"));
        }
        let rate = |tenant: &str| {
            let of_tenant = self.rates.as_ref().map_or(even, |rates| rates.get(tenant).copied().unwrap_or(0.0));
            of_tenant / pins.get(tenant).copied().unwrap_or(1.0)
        };
        Ok(found.iter().map(|pool| pool_of(pool, &rate)).collect())
    }
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
