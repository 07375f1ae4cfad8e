//! What a gateway is told to serve and to have warm, and where that is.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_decide::Snapshot;
use holdfast_placement::residency::{Event, Turn, VersionIx, VersionSpec};
use holdfast_types::Bytes;

use super::Mistake;
use super::gateway::{Orders, SIZE, pair};
use super::world::World;

impl World<'_> {
    /// A table and orders from the control plane. An older table is refused, and its orders with it.
    pub(super) fn take(&mut self, ix: usize, table: &Snapshot, orders: Orders) {
        let (own, told) = (self.gateways[ix].table.revision(), table.revision());
        if told < own && self.setup.mistake != Some(Mistake::TakesAnyTable) {
            return;
        }
        let fresh: Vec<(usize, u32)> = {
            let known = &self.gateways[ix].orders.wants;
            orders.wants.keys().filter(|want| !known.contains_key(want)).copied().collect()
        };
        if told == own && orders == self.gateways[ix].orders {
            return;
        }
        self.gateways[ix].orders = orders;
        if told != own {
            self.gateways[ix].table = table.clone();
            self.note(|| format!("gateway {ix} serves under {told}"));
            let served = self.paths.serves(ix as u64, told);
            self.checked(served);
        }
        for (replica, version) in fresh {
            let (replica, version) = pair(replica, version);
            self.machine(ix, Event::Afresh { replica, version });
        }
        self.wants(ix);
        self.say(ix);
    }

    /// Tells the machine what should be warm where: what is pinned in force, and what is ordered.
    pub(super) fn wants(&mut self, ix: usize) {
        let mut wanted: Vec<BTreeMap<VersionIx, Turn>> = vec![BTreeMap::new(); self.setup.replicas];
        let mut pinned = BTreeSet::new();
        for (tenant, version) in self.pins_of(&self.gateways[ix].table) {
            pinned.insert(version);
            for replica in self.subset(ix, tenant, version) {
                wanted[replica].insert(VersionIx(version), Turn::Pinned);
            }
        }
        for ((replica, version), turn) in &self.gateways[ix].orders.wants {
            pinned.insert(*version);
            wanted[*replica].entry(VersionIx(*version)).or_insert(*turn);
        }
        for version in 0..self.setup.versions {
            let is = pinned.contains(&version);
            if is != self.gateways[ix].pinned.contains(&version) {
                let spec = VersionSpec { size: Bytes(SIZE), pinned: is };
                self.machine(ix, Event::SetVersion { version: VersionIx(version), spec });
            }
        }
        self.gateways[ix].pinned = pinned;
        for (replica, versions) in wanted.into_iter().enumerate() {
            let mut versions: Vec<(VersionIx, Turn)> = versions.into_iter().collect();
            versions.sort_by_key(|(version, turn)| (*turn, *version));
            if versions != self.gateways[ix].wanted[replica] {
                self.gateways[ix].wanted[replica].clone_from(&versions);
                self.machine(ix, Event::SetWanted { replica: pair(replica, 0).0, versions });
            }
        }
    }

    /// The replicas of a key as a gateway sees them: the first of its order that are in service.
    pub(super) fn subset(&mut self, ix: usize, tenant: usize, version: u32) -> Vec<usize> {
        let (order, size) = self.order(tenant, version);
        let in_service = |r: &&usize| self.gateways[ix].replicas.get(**r).is_some_and(|s| s.in_service);
        order.iter().filter(in_service).take(size).copied().collect()
    }
}
