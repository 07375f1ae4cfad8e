//! Which versions should be warm on which replicas: the first k in service of every pinned key, in force or about to be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_decide::{PinChange, Route};
use holdfast_placement::residency::{Event, ReplicaIx, Turn, VersionIx};
use holdfast_plane::{Orders, Want};
use holdfast_telemetry::Clock;

use super::Table;
use super::build::Versions;
use super::counted::Counted;
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
pub(crate) fn target(table: &Table, change: &PinChange) -> Option<Route> {
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

/// Tells the residency machine what should be warm, and gives all versions that a pin or an order names.
pub(super) fn update(driver: &Driver, table: &Table, orders: &Orders, pins: &mut Counted) -> Versions {
    let mut wanted = Wanted::default();
    let mut pinned = pins.pinned();
    for replica in driver.fleet.replicas() {
        wanted.0.entry(replica.ix).or_default();
    }
    let mut kept: BTreeMap<ReplicaIx, Vec<VersionIx>> = wanted.0.keys().map(|r| (*r, Vec::new())).collect();
    for (replica, version) in table.handover.needed(Clock::now()) {
        kept.entry(replica).or_default().push(version);
    }
    for (replica, version) in pins.wanted() {
        wanted.add(replica, version, Turn::Pinned);
    }
    for want in orders.wants.iter() {
        if let Some((replica, version)) = numbers(table, want) {
            wanted.add(replica, version, turn(want, orders));
            pinned.insert((want.artifact.model.clone(), want.artifact.version.clone()));
        }
    }
    pinned.extend(orders.pending.iter().map(|pin| (pin.model.clone(), pin.to.clone())));
    let (mut keep, mut set) = (Vec::new(), Vec::new());
    for (replica, versions) in wanted.0 {
        let kept = kept.remove(&replica).unwrap_or_default();
        // The machine looks at everything after each event, and one pin that moves seldom changes what any replica should hold.
        if pins.says_anew(replica, &versions, &kept) {
            keep.push(Event::SetKept { replica, versions: kept });
            set.push(Event::SetWanted { replica, versions: versions.into_iter().collect() });
        }
    }
    keep.extend(kept.into_iter().map(|(replica, versions)| Event::SetKept { replica, versions }));
    if !keep.is_empty() || !set.is_empty() {
        driver.apply_all(keep.into_iter().chain(set));
    }
    pinned
}

/// What should be warm on each replica, and when it is whose turn.
#[derive(Default)]
struct Wanted(BTreeMap<ReplicaIx, BTreeMap<VersionIx, Turn>>);

impl Wanted {
    /// Of several reasons the one counts that has its turn first.
    fn add(&mut self, replica: ReplicaIx, version: VersionIx, turn: Turn) {
        let known = self.0.entry(replica).or_default().entry(version).or_insert(turn);
        *known = turn.min(*known);
    }
}

/// What a pin is on its way to goes before what is only retained.
fn turn(want: &Want, orders: &Orders) -> Turn {
    let (model, version) = (&want.artifact.model, &want.artifact.version);
    let is_coming = orders.pending.iter().any(|pin| pin.model == *model && pin.to == *version);
    if is_coming { Turn::Coming(want.place) } else { Turn::Retained }
}

/// What the control plane has not wanted so far is tried at once, whatever has failed before: a roll-out begins, or somebody asks again.
pub(super) fn afresh(driver: &Driver, table: &Table, before: &Orders, now: &Orders) {
    let place = |want: &Want| (want.replica.clone(), want.artifact.clone());
    let known: BTreeSet<_> = before.wants.iter().map(place).collect();
    let new = now.wants.iter().filter(|want| !known.contains(&place(want)));
    let events: Vec<Event> = new
        .filter_map(|want| numbers(table, want))
        .map(|(replica, version)| Event::Afresh { replica, version })
        .collect();
    if !events.is_empty() {
        driver.apply_all(events);
    }
}

fn numbers(table: &Table, want: &Want) -> Option<(ReplicaIx, VersionIx)> {
    let pool = table.pools.iter().find(|pool| pool.name == want.artifact.pool)?;
    let replica = pool.replicas.iter().find(|replica| replica.name == want.replica)?;
    Some((replica.ix, pool.version(&want.artifact.model, &want.artifact.version)?.ix))
}
