//! Keys whose replicas have changed with a configuration: the former holders that go on serving them, and for how long.
//!
//! The rule is `placement::handover`; here it is applied to a table and its successor, and to the fleet. A replica that the file no longer has is
//! kept for it as *draining*: polled and serving, in no subset, given no load.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use holdfast_decide::{Route, Snapshot};
use holdfast_placement::handover::{Leaver, leavers, serves};
use holdfast_placement::residency::{ReplicaIx, VersionIx};
use holdfast_telemetry::Clock;
use holdfast_types::{ModelName, Mono, PoolName, TenantId, Version};

use super::{Table, subset, version_of, wanted};
use crate::fleet::{Cell, FleetChange};
use crate::residency::Driver;

type Key = (TenantId, ModelName, Version);
pub(super) type Held = BTreeSet<(ReplicaIx, VersionIx)>;

/// The former holders of one key.
pub struct Leaving {
    /// Into the pools of the table that it was made for, and of those made from it by flips.
    route: Route,
    all: Vec<(Leaver, Arc<Cell>)>,
    /// A member has come to hold the version, or the time is over.
    over: AtomicBool,
}

impl Leaving {
    /// The cells that may be asked at this moment, with their numbers.
    pub fn serving(&self, now: Mono, a_member_holds: bool) -> impl Iterator<Item = (usize, &Arc<Cell>)> {
        let over = self.over.load(Relaxed);
        let all = self.all.iter().enumerate();
        all.filter(move |(_, (leaver, _))| !over && serves(now, leaver, a_member_holds))
            .map(|(at, (_, cell))| (at, cell))
    }

    /// All cells, in the order of their numbers.
    pub fn cells(&self) -> impl Iterator<Item = &Arc<Cell>> {
        self.all.iter().map(|(_, cell)| cell)
    }

    /// The cell of this number.
    #[must_use]
    pub fn cell(&self, at: usize) -> Option<&Arc<Cell>> {
        self.all.get(at).map(|(_, cell)| cell)
    }
}

/// The keys of a table that are handed over.
#[derive(Default)]
pub struct Handover {
    keys: BTreeMap<Key, Arc<Leaving>>,
}

impl Handover {
    /// What there is of a route's key.
    #[must_use]
    pub fn of(&self, route: &Route) -> Option<Arc<Leaving>> {
        if self.keys.is_empty() {
            return None;
        }
        self.keys.get(&(route.tenant.clone(), route.model.clone(), route.version.clone())).cloned()
    }

    /// What is still needed at this moment: versions on replicas outside their keys' subsets.
    pub(super) fn needed(&self, now: Mono) -> Held {
        let serving = self.keys.values().flat_map(|leaving| leaving.serving(now, false));
        serving.map(|(_, cell)| (cell.replica.ix, cell.version)).collect()
    }

    /// Ends what a member of the subset has taken over.
    fn settle(&self, driver: &Driver, table: &Table) {
        for leaving in self.keys.values().filter(|leaving| !leaving.over.load(Relaxed)) {
            let cells = wanted::cells(driver, table, &leaving.route).unwrap_or_default();
            if cells.iter().any(|cell| cell.holds()) {
                leaving.over.store(true, Relaxed);
            }
        }
    }
}

/// What is handed over when `new` takes the place of `old`. `held` is what replicas held before anything was changed.
pub(super) fn between(driver: &Driver, old: &Table, new: &Table, held: &Held) -> Handover {
    let now = Clock::now();
    let successors = successors(driver, new);
    let held = held.iter().map(|(r, v)| (successors.get(r).copied().unwrap_or(*r), *v)).collect();
    let change = Change { driver, old, new, successors, held, moved: moved_pools(old, new), now };
    let mut keys = BTreeMap::new();
    for tenant in new.snapshot.tenants() {
        let Some(before) = old.snapshot.tenant(tenant.name.as_str()) else { continue };
        let may_have_moved = |pool: &PoolName| before.subset != tenant.subset || change.moved.contains(pool);
        for (model, version) in new.snapshot.keys(tenant) {
            let Some(pool) = new.snapshot.pool(model.pool) else { continue };
            let key = (tenant.name.clone(), model.name.clone(), version.version.clone());
            if !may_have_moved(&pool.name) && !old.handover.keys.contains_key(&key) {
                continue;
            }
            let Some(was) = route(&old.snapshot, &key) else { continue };
            let is = new.snapshot.route_for(tenant, model, version);
            keys.extend(change.leaving(&key, &was, is).map(|leaving| (key, Arc::new(leaving))));
        }
    }
    Handover { keys }
}

/// The route of a key that a pin, an experiment or a rule names in this table.
fn route(snapshot: &Snapshot, (tenant, model, version): &Key) -> Option<Route> {
    let (tenant, model) = (snapshot.tenant(tenant.as_str())?, snapshot.model(model.as_str())?);
    let pinned = snapshot.keys(tenant).any(|(m, v)| m.name == model.name && v.version == *version);
    let version = model.version(version.as_str()).filter(|_| pinned)?;
    Some(snapshot.route_for(tenant, model, version))
}

struct Change<'a> {
    driver: &'a Driver,
    old: &'a Table,
    new: &'a Table,
    /// Where those replicas are now whose server is another replica's under the new configuration.
    successors: HashMap<ReplicaIx, ReplicaIx>,
    held: Held,
    moved: BTreeSet<PoolName>,
    now: Mono,
}

impl Change<'_> {
    fn leaving(&self, key: &Key, was: &Route, is: Route) -> Option<Leaving> {
        let pool = self.new.pools.get(is.pool as usize)?;
        if self.old.pools.get(was.pool as usize)?.name != pool.name {
            return None;
        }
        let version = version_of(self.new, &is)?;
        // A replica stands for what is at its server now.
        let now_at = |replica: ReplicaIx| self.successors.get(&replica).copied().unwrap_or(replica);
        let before: Vec<ReplicaIx> = subset(self.old, was).map(|r| now_at(r.ix)).collect();
        let leaving = self.old.handover.keys.get(key).filter(|leaving| !leaving.over.load(Relaxed));
        let leaving = leaving.iter().flat_map(|leaving| &leaving.all);
        let leaving: Vec<Leaver> = leaving.map(|(l, _)| Leaver { replica: now_at(l.replica), ..*l }).collect();
        let members: Vec<ReplicaIx> = subset(self.new, &is).map(|r| r.ix).collect();
        let holds = |replica| self.held.contains(&(replica, version));
        let until = self.now.after(pool.config.drain);
        let all = leavers(self.now, until, (&before, &leaving), &members, holds).into_iter();
        let all = all.filter_map(|l| Some((l, self.driver.fleet.cell(l.replica, version)?)));
        let all: Vec<_> = all.collect();
        (!all.is_empty()).then_some(Leaving { route: is, all, over: AtomicBool::new(false) })
    }
}

/// Pools whose members or weights differ.
fn moved_pools(old: &Table, new: &Table) -> BTreeSet<PoolName> {
    let members = |table: &Table, name: &PoolName| {
        let at = table.pools.iter().find(|p| p.name == *name)?;
        let config = |r: &Arc<crate::fleet::Replica>| at.replica_config(r.name.as_str()).map(|c| c.weight);
        Some(at.replicas.iter().map(|r| (r.ix, config(r))).collect::<Vec<_>>())
    };
    let names = new.pools.iter().map(|p| p.name.clone());
    names.filter(|name| members(old, name) != members(new, name)).collect()
}

/// Replicas that are not configured any more, but whose server is, under another name.
fn successors(driver: &Driver, new: &Table) -> HashMap<ReplicaIx, ReplicaIx> {
    let configured = new.pools.iter().flat_map(|p| p.replicas.iter());
    let at: HashMap<_, _> = configured.clone().map(|r| (r.server, r.ix)).collect();
    let configured: BTreeSet<ReplicaIx> = configured.map(|r| r.ix).collect();
    let gone = driver.fleet.replicas().into_iter().filter(|r| !configured.contains(&r.ix));
    gone.filter_map(|r| Some((r.ix, *at.get(&r.server)?))).collect()
}

/// Keeps those replicas of a change that are still needed, and gives back the change without them.
pub(super) fn drain(driver: &Driver, table: &Table, mut change: FleetChange) -> FleetChange {
    let needed: BTreeSet<ReplicaIx> = table.handover.needed(Clock::now()).into_iter().map(|(r, _)| r).collect();
    let (stay, go) = change.removed.into_iter().partition(|r| needed.contains(&r.ix));
    change.removed = go;
    driver.drain(&stay);
    change
}

/// Ends what needs no former holder any more. `kept` is what was needed at the last look; `want` says anew what should be warm.
pub(super) fn tend(driver: &Driver, table: &Table, kept: &mut Held, want: impl FnOnce()) {
    table.handover.settle(driver, table);
    let needed = table.handover.needed(Clock::now());
    if needed == *kept {
        return;
    }
    *kept = needed;
    want();
    let over = driver.fleet.replicas().into_iter();
    let over = over.filter(|r| r.is_draining() && !kept.iter().any(|(needed, _)| *needed == r.ix));
    driver.retire(&FleetChange { removed: over.collect(), ..FleetChange::default() });
}
