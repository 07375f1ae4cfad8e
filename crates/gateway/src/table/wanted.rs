//! Which versions should be warm on which replicas: the first k in service of every pinned key, in force or about to be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_decide::{PinChange, Route};
use holdfast_placement::residency::{Event, ReplicaIx, VersionIx};

use super::Table;
use crate::fleet::{Cell, Replica};
use crate::residency::Driver;

/// The replicas of a route's subset, as things stand: the first k of its order that are in service.
pub(crate) fn subset<'a>(table: &'a Table, route: &'a Route) -> impl Iterator<Item = &'a Arc<Replica>> {
    let replicas = table.pools.get(route.pool as usize).map(|p| &*p.replicas).unwrap_or_default();
    let members = route.order.iter().filter_map(|at| replicas.get(*at as usize));
    members.filter(|r| r.in_service()).take(usize::from(route.subset))
}

/// The number of a route's version.
pub(crate) fn version_of(table: &Table, route: &Route) -> Option<VersionIx> {
    let pool = table.pools.get(route.pool as usize)?;
    pool.version(&route.model, &route.version).map(|v| v.ix)
}

/// The route that a pin change leads to.
pub(super) fn target(table: &Table, change: &PinChange) -> Option<Route> {
    let tenant = table.snapshot.tenant(change.tenant.as_str())?;
    let model = table.snapshot.model(change.model.as_str())?;
    Some(table.snapshot.route_for(tenant, model, model.version(change.version.as_str())?))
}

/// The cells that have to hold before a change may flip. None: the key has no replica in service.
pub(super) fn cells(driver: &Driver, table: &Table, route: &Route) -> Option<Vec<Arc<Cell>>> {
    let version = version_of(table, route)?;
    let cells: Option<Vec<_>> = subset(table, route).map(|r| driver.fleet.cell(r.ix, version)).collect();
    cells.filter(|cells| !cells.is_empty())
}

/// Tells the residency machine what should be warm.
pub(super) fn update(driver: &Driver, table: &Table, pending: &[PinChange]) {
    let mut wanted: BTreeMap<ReplicaIx, BTreeSet<VersionIx>> = BTreeMap::new();
    for pool in &table.pools {
        for replica in &pool.replicas {
            wanted.entry(replica.ix).or_default();
        }
    }
    let mut want = |route: &Route| {
        let Some(version) = version_of(table, route) else { return };
        for replica in subset(table, route) {
            wanted.entry(replica.ix).or_default().insert(version);
        }
    };
    for tenant in table.snapshot.tenants() {
        for (model, version) in table.snapshot.pins(tenant) {
            want(&table.snapshot.route_for(tenant, model, version));
        }
    }
    for route in pending.iter().filter_map(|change| target(table, change)) {
        want(&route);
    }
    let set =
        |(replica, versions): (_, BTreeSet<_>)| Event::SetWanted { replica, versions: versions.into_iter().collect() };
    driver.apply_all(wanted.into_iter().map(set));
}
