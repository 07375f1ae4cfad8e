//! The replicas of all pools, as they run: identities that outlive a configuration, and what each configuration makes of them.

mod cell;
mod echo;
mod loading;
mod pool;
mod replica;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};

use holdfast_config::{Config, Endpoint, Residency};
use holdfast_net::Tasks;
use holdfast_placement::residency::{PoolIx, ReplicaIx, ServerIx, Usage, VersionIx};
use holdfast_types::{Bytes, ModelName, Mono, PoolName, ReplicaName, Version};

pub use cell::{Cell, CopyInFlight, InFlight, NotIn, OnDrained};
pub use pool::{Pool, VersionFacts};
pub use replica::Replica;

/// A version under another upstream name is another one to the servers: the first is loaded until it is unloaded by its own name.
type VersionKey = (PoolName, ModelName, Version, String);

/// The most names that are remembered with their sizes after their versions are gone.
const FORMER: usize = 1000;

/// Everything that runs, by its number.
pub struct Fleet {
    cells: RwLock<HashMap<(ReplicaIx, VersionIx), Arc<Cell>>>,
    replicas: RwLock<BTreeMap<ReplicaIx, Arc<Replica>>>,
    /// Replicas that are not configured any more, but still serve requests. What these use is in use at whoever has taken their server over.
    leaving: RwLock<Vec<Arc<Replica>>>,
    pools: RwLock<Vec<Arc<Pool>>>,
    versions: RwLock<BTreeMap<VersionIx, Arc<VersionFacts>>>,
    /// Versions that are no longer configured, but that a replica may still hold: they are needed until they have been unloaded.
    retired: RwLock<BTreeMap<VersionIx, PoolName>>,
    /// Sizes of versions that are forgotten, by their upstream names.
    former: Mutex<HashMap<(PoolName, String), Bytes>>,
    names: Mutex<Names>,
    on_drained: Weak<dyn OnDrained>,
    workers: Vec<Tasks>,
    control: Tasks,
}

/// Numbers that have been given. A number is never given twice in a process.
#[derive(Default)]
struct Names {
    next: u32,
    replicas: HashMap<(PoolName, ReplicaName), ReplicaIx>,
    versions: HashMap<VersionKey, VersionIx>,
    pools: HashMap<PoolName, PoolIx>,
    servers: HashMap<(Box<str>, u16), ServerIx>,
}

impl Names {
    fn fresh(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    fn server(&mut self, endpoint: &Endpoint) -> ServerIx {
        let fresh = ServerIx(self.fresh());
        let (host, port) = endpoint.server();
        *self.servers.entry((host.into(), port)).or_insert(fresh)
    }
}

/// What a configuration changed.
#[derive(Default)]
pub struct FleetChange {
    /// Replicas that are new, and those that took the place of one of the same name at another address.
    pub added: Vec<Arc<Replica>>,
    /// Replicas that are not configured any more, until [`Fleet::retire`] still as they were.
    pub removed: Vec<Arc<Replica>>,
    /// Replicas of pools in which the names or the proofs of a version have changed: nothing that was proved of them holds any more.
    pub reprove: Vec<ReplicaIx>,
    /// Versions that are gone.
    pub removed_versions: Vec<VersionIx>,
}

impl Fleet {
    /// Nothing yet. `workers` run the connections for requests, one set for each worker; `control` runs the rest.
    #[must_use]
    pub fn new(workers: Vec<Tasks>, control: Tasks, on_drained: Weak<dyn OnDrained>) -> Self {
        Self {
            cells: RwLock::default(),
            replicas: RwLock::default(),
            leaving: RwLock::default(),
            pools: RwLock::default(),
            versions: RwLock::default(),
            retired: RwLock::default(),
            former: Mutex::default(),
            names: Mutex::default(),
            on_drained,
            workers,
            control,
        }
    }

    /// Brings in what the configuration says. Replicas and versions that stay keep their numbers, counters and health. What is no longer
    /// configured goes on serving until [`Fleet::retire`]: the table that names it is still in force.
    pub fn configure(&self, config: &Config, now: Mono) -> FleetChange {
        let mut change = FleetChange::default();
        let mut names = self.names.lock();
        let mut pools = Vec::with_capacity(config.pools.len());
        let mut live_replicas = BTreeSet::new();
        let mut live_versions = BTreeMap::new();
        for pool in &config.pools {
            let next = names.fresh();
            let ix = *names.pools.entry(pool.name.clone()).or_insert(PoolIx(next));
            let replicas: Vec<_> =
                pool.replicas.iter().map(|r| self.configure_replica(&mut names, pool, r, now, &mut change)).collect();
            live_replicas.extend(replicas.iter().map(|r| r.ix));
            let mut versions = Vec::new();
            let mut proofs_stand = true;
            for model in config.models.iter().filter(|m| m.pool == pool.name) {
                for version in &model.versions {
                    let fresh = VersionIx(names.fresh());
                    let name = pool.upstream.model.render(model.name.as_str(), version.version.as_str());
                    let key = (pool.name.clone(), model.name.clone(), version.version.clone(), name);
                    let version_ix = *names.versions.entry(key).or_insert(fresh);
                    let facts = Arc::new(VersionFacts::new(version_ix, pool, model, version));
                    let before = self.versions.read().get(&version_ix).cloned();
                    proofs_stand &= before.is_none_or(|before| facts.is_proved_by(&before));
                    live_versions.insert(version_ix, facts.clone());
                    versions.push(facts);
                }
            }
            if !proofs_stand {
                // Those that leave too: they may be needed for a while.
                let here = self.replicas.read();
                change.reprove.extend(here.values().filter(|r| r.pool == pool.name).map(|r| r.ix));
            }
            pools.push(Arc::new(Pool::new(ix, pool, replicas, versions)));
        }
        let old = self.replicas.read();
        change.removed.extend(old.values().filter(|r| !live_replicas.contains(&r.ix)).cloned());
        drop(old);
        self.leave(&names, &mut live_versions, &mut change);
        *self.versions.write() = live_versions;
        *self.pools.write() = pools;
        change
    }

    fn configure_replica(
        &self,
        names: &mut Names,
        pool: &holdfast_config::Pool,
        replica: &holdfast_config::Replica,
        now: Mono,
        change: &mut FleetChange,
    ) -> Arc<Replica> {
        let key = (pool.name.clone(), replica.name.clone());
        let known = names.replicas.get(&key).and_then(|ix| self.replicas.read().get(ix).cloned());
        if let Some(known) = known.filter(|r| r.endpoint == replica.endpoint) {
            known.reconfigure(pool, replica);
            return known;
        }
        // A new address is another process: nothing that was known of the old one holds for it. Its name keeps its keys. An old address under a
        // new name is asked anew what it holds; its loads and requests in flight stay counted for it.
        let ix = ReplicaIx(names.fresh());
        let server = names.server(&replica.endpoint);
        let fresh = Arc::new(Replica::new((ix, server), pool, replica, &self.workers, &self.control, now));
        names.replicas.insert(key, ix);
        self.replicas.write().insert(ix, fresh.clone());
        change.added.push(fresh.clone());
        fresh
    }

    /// Keeps the facts of versions that are not configured any more.
    fn leave(&self, names: &Names, versions: &mut BTreeMap<VersionIx, Arc<VersionFacts>>, change: &mut FleetChange) {
        let mut retired = self.retired.write();
        retired.retain(|ix, _| !versions.contains_key(ix));
        for ((pool, ..), ix) in names.versions.iter().filter(|(_, ix)| !versions.contains_key(ix)) {
            if retired.insert(*ix, pool.clone()).is_none() {
                change.removed_versions.push(*ix);
            }
        }
        let old = self.versions.read();
        versions.extend(retired.keys().filter_map(|ix| Some((*ix, old.get(ix)?.clone()))));
    }

    /// Lets the replicas of a change go, once no table in force names them.
    pub fn retire(&self, change: &FleetChange) {
        let gone: BTreeSet<ReplicaIx> = change.removed.iter().map(|r| r.ix).collect();
        if gone.is_empty() {
            return;
        }
        self.names.lock().replicas.retain(|_, ix| !gone.contains(ix));
        self.leaving.write().extend(change.removed.iter().cloned());
        change.removed.iter().for_each(|r| r.remove());
        self.replicas.write().retain(|ix, _| !gone.contains(ix));
        self.cells.write().retain(|(r, _), cell| {
            let keep = !gone.contains(r);
            if !keep {
                let _ = cell.hide();
            }
            keep
        });
    }

    /// The cell of a version on a replica. None if either is not configured.
    #[must_use]
    pub fn cell(&self, replica: ReplicaIx, version: VersionIx) -> Option<Arc<Cell>> {
        if let Some(cell) = self.cells.read().get(&(replica, version)) {
            return Some(cell.clone());
        }
        if !self.versions.read().contains_key(&version) {
            return None;
        }
        let holder = self.replica(replica)?;
        let mut cells = self.cells.write();
        let cell = cells.entry((replica, version));
        let cell = cell.or_insert_with(|| Arc::new(Cell::new(holder, version, self.on_drained.clone())));
        Some(cell.clone())
    }

    /// What is shown where.
    #[must_use]
    pub fn held(&self) -> BTreeSet<(ReplicaIx, VersionIx)> {
        self.cells.read().iter().filter(|(_, cell)| cell.holds()).map(|(at, _)| *at).collect()
    }

    /// The replica of this number.
    #[must_use]
    pub fn replica(&self, ix: ReplicaIx) -> Option<Arc<Replica>> {
        self.replicas.read().get(&ix).cloned()
    }

    /// All replicas, those that drain included.
    #[must_use]
    pub fn replicas(&self) -> Vec<Arc<Replica>> {
        self.replicas.read().values().cloned().collect()
    }

    /// All replicas by names of their own: one that drains while another has its name is left out.
    #[must_use]
    pub fn named_replicas(&self) -> Vec<Arc<Replica>> {
        let replicas = self.replicas.read();
        let named =
            |of: &Replica| replicas.values().any(|r| !r.is_draining() && r.pool == of.pool && r.name == of.name);
        replicas.values().filter(|r| !r.is_draining() || !named(r)).cloned().collect()
    }

    /// All pools, in the configuration's order.
    #[must_use]
    pub fn pools(&self) -> Vec<Arc<Pool>> {
        self.pools.read().clone()
    }

    /// The pool of this name.
    #[must_use]
    pub fn pool(&self, name: &PoolName) -> Option<Arc<Pool>> {
        self.pools.read().iter().find(|p| p.name == *name).cloned()
    }

    /// What is known of a version.
    #[must_use]
    pub fn version(&self, ix: VersionIx) -> Option<Arc<VersionFacts>> {
        self.versions.read().get(&ix).cloned()
    }

    /// Versions of a pool that are no longer configured and may still be held somewhere.
    #[must_use]
    pub fn retired(&self, pool: &PoolName) -> Vec<Arc<VersionFacts>> {
        let retired = self.retired.read();
        let here = retired.iter().filter(|(_, of)| *of == pool);
        here.filter_map(|(ix, _)| self.version(*ix)).collect()
    }

    /// What a name takes that no version has any more. None: it never was a version's here.
    #[must_use]
    pub fn former_size(&self, pool: &PoolName, name: &str) -> Option<Bytes> {
        self.former.lock().get(&(pool.clone(), name.to_owned())).copied()
    }

    /// Forgets replicas that have served their last request, and servers that are no longer configured and have ended their loads.
    pub fn forget_replicas(&self, loads: impl Fn(ServerIx) -> bool) {
        if self.leaving.read().is_empty() {
            return;
        }
        let mut names = self.names.lock();
        let live: BTreeSet<ServerIx> = self.replicas.read().values().map(|r| r.server).collect();
        let mut leaving = self.leaving.write();
        leaving.retain(|r| r.in_flight() > 0 || (!live.contains(&r.server) && loads(r.server)));
        names.servers.retain(|_, ix| live.contains(ix) || leaving.iter().any(|r| r.server == *ix));
    }

    /// Forgets those retired versions that nothing refers to any more.
    pub fn forget(&self, is_gone: impl Fn(VersionIx) -> bool) {
        if self.retired.read().is_empty() {
            return;
        }
        let mut names = self.names.lock();
        let mut retired = self.retired.write();
        let gone: BTreeSet<VersionIx> = retired.keys().copied().filter(|ix| is_gone(*ix)).collect();
        for (ix, pool) in retired.iter().filter(|(ix, _)| gone.contains(ix)) {
            let Some(facts) = self.version(*ix) else { continue };
            let mut former = self.former.lock();
            if former.len() < FORMER {
                former.insert((pool.clone(), facts.upstream_model.clone()), facts.size);
            }
        }
        retired.retain(|ix, _| !gone.contains(ix));
        names.versions.retain(|_, ix| !gone.contains(ix));
        self.versions.write().retain(|ix, _| !gone.contains(ix));
        self.cells.write().retain(|(_, v), _| !gone.contains(v));
    }

    /// Requests in flight over all replicas: zero when nothing is going on.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        let leaving: u32 = self.leaving.read().iter().map(|r| r.in_flight()).sum();
        leaving + self.replicas.read().values().map(|r| r.in_flight()).sum::<u32>()
    }
}

impl Usage for Fleet {
    fn in_flight(&self, replica: ReplicaIx, version: VersionIx) -> u32 {
        let own = self.cells.read().get(&(replica, version)).map_or(0, |cell| cell.in_flight());
        let leaving = self.leaving.read();
        if leaving.is_empty() {
            return own;
        }
        // Of a former name of the server it is only known that something is in use.
        let server = self.replicas.read().get(&replica).map(|r| r.server);
        own + leaving.iter().filter(|r| Some(r.server) == server).map(|r| r.in_flight()).sum::<u32>()
    }

    fn last_used(&self, replica: ReplicaIx, version: VersionIx) -> Option<Mono> {
        self.cells.read().get(&(replica, version))?.last_used()
    }

    fn replica_load(&self, replica: ReplicaIx) -> u32 {
        self.replicas.read().get(&replica).map_or(0, |r| r.in_flight())
    }
}

/// Whether a pool's replicas load on request.
#[must_use]
pub fn loads_on_request(residency: Residency) -> bool {
    residency == Residency::Repository
}
