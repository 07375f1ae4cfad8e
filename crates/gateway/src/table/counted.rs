//! What a table's pins, experiments and rules want, counted, so that a pin that moves costs what it moves: a table has many more tenants than replicas and versions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use holdfast_decide::TenantEntry;
use holdfast_placement::residency::{ReplicaIx, Turn, VersionIx};
use holdfast_types::{ModelName, TenantId, Version};

use super::Table;
use super::build::{Moved, Versions};
use super::wanted::version_of;

/// Whether each replica of each pool is in service.
type InService = Vec<Vec<bool>>;

/// How many keys want each version on each replica, and how many name each version.
#[derive(Debug)]
pub(super) struct Counted {
    /// Of which table. Nothing is kept alive by it.
    table: Weak<Table>,
    /// As things stood when it was counted: every key is counted by the same view of the replicas.
    in_service: InService,
    wanted: BTreeMap<(ReplicaIx, VersionIx), u32>,
    pinned: BTreeMap<(ModelName, Version), u32>,
    /// What the residency machine was told last of each replica: what should be warm there, and what is kept for a hand-over.
    said: BTreeMap<ReplicaIx, (BTreeMap<VersionIx, Turn>, Vec<VersionIx>)>,
}

/// A key that comes or goes.
#[derive(Clone, Copy)]
enum Way {
    Comes,
    Goes,
}

impl Counted {
    /// Counts all keys.
    pub(super) fn of(table: &Arc<Table>) -> Self {
        let mut counted = Self {
            table: Arc::downgrade(table),
            in_service: in_service(table),
            wanted: BTreeMap::new(),
            pinned: BTreeMap::new(),
            said: BTreeMap::new(),
        };
        for tenant in table.snapshot.tenants() {
            counted.count(table, tenant, None, Way::Comes);
        }
        counted
    }

    /// Whether it is about this table and these replicas, as they are now.
    pub(super) fn holds(&self, table: &Arc<Table>) -> bool {
        self.table.ptr_eq(&Arc::downgrade(table)) && self.in_service == in_service(table)
    }

    /// Goes from one table to the next, in which no more than this has moved. If it is not about the first one it stays as it is.
    pub(super) fn follow(&mut self, old: &Arc<Table>, new: &Arc<Table>, moved: &Moved) {
        if !self.table.ptr_eq(&Arc::downgrade(old)) {
            return;
        }
        let pins = moved.pins.iter().map(|pin| (&pin.tenant, &pin.model));
        let splits = moved.splits.iter().map(|split| (&split.tenant, &split.model));
        let keys: BTreeSet<(&TenantId, &ModelName)> = pins.chain(splits).collect();
        for (tenant, model) in keys {
            for (table, way) in [(old, Way::Goes), (new, Way::Comes)] {
                if let Some(tenant) = table.snapshot.tenant(tenant.as_str()) {
                    self.count(table, tenant, Some(model), way);
                }
            }
        }
        self.table = Arc::downgrade(new);
    }

    /// Whether this is something else than what was said of the replica last. It counts as said from now on.
    pub(super) fn says_anew(
        &mut self,
        replica: ReplicaIx,
        wanted: &BTreeMap<VersionIx, Turn>,
        kept: &[VersionIx],
    ) -> bool {
        let is_known = self.said.get(&replica).is_some_and(|(was, keeps)| was == wanted && keeps == kept);
        if !is_known {
            self.said.insert(replica, (wanted.clone(), kept.to_vec()));
        }
        !is_known
    }

    /// The versions that are wanted on each replica.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (ReplicaIx, VersionIx)> {
        self.wanted.keys().copied()
    }

    /// The versions that pins, splits, experiments and rules name.
    pub(super) fn pinned(&self) -> Versions {
        self.pinned.keys().cloned().collect()
    }

    /// The keys of a tenant: all, or those of one model.
    fn count(&mut self, table: &Table, tenant: &TenantEntry, only: Option<&ModelName>, way: Way) {
        let splits = table.snapshot.splits(tenant).map(|(model, version, _)| (model, version));
        let keys = table.snapshot.keys(tenant).chain(splits);
        for (model, version) in keys.filter(|(model, _)| only.is_none_or(|only| model.name == *only)) {
            let route = table.snapshot.route_for(tenant, model, version);
            let Some(number) = version_of(table, &route) else { continue };
            let at = route.pool as usize;
            let replicas = table.pools.get(at).map(|pool| &*pool.replicas).unwrap_or_default();
            let flags = self.in_service.get(at).map(Vec::as_slice).unwrap_or_default();
            let serving = route.order.iter().map(|at| *at as usize).filter(|at| flags.get(*at) == Some(&true));
            for replica in serving.take(usize::from(route.subset)).filter_map(|at| replicas.get(at)) {
                step(&mut self.wanted, (replica.ix, number), way);
            }
            step(&mut self.pinned, (model.name.clone(), version.version.clone()), way);
        }
    }
}

fn step<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K, way: Way) {
    match way {
        Way::Comes => *counts.entry(key).or_default() += 1,
        Way::Goes => {
            if let Some(count) = counts.get_mut(&key) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    counts.remove(&key);
                }
            }
        }
    }
}

fn in_service(table: &Table) -> InService {
    table.pools.iter().map(|pool| pool.replicas.iter().map(|replica| replica.in_service()).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_config::{Frame, ResourceKind, Source, split};
    use holdfast_net::Tasks;
    use holdfast_plane::{Edit, View};
    use holdfast_telemetry::{GatewayMetrics, MetricsOptions};
    use holdfast_types::Revision;
    use serde_json::{Value, json};

    use crate::residency::Driver;
    use crate::table::Tables;

    const TENANTS: usize = 30;

    /// Two models with three versions each on four replicas that are nowhere.
    fn tables() -> (Arc<Tables>, View) {
        let holds: Vec<Value> =
            (0..6).map(|n| json!({"model": format!("m{}", n % 2), "version": (n / 2).to_string()})).collect();
        let replicas: Vec<Value> = (0..4)
            .map(|n| json!({"name": format!("r{n}"), "url": format!("http://h{n}.invalid:9"), "holds": holds}))
            .collect();
        let versions = json!([{"version": "0"}, {"version": "1"}, {"version": "2"}]);
        let tenants: Vec<Value> = (0..TENANTS)
            .map(|n| json!({"name": format!("t{n}"), "subset": 2, "pins": {"m0": "0", "m1": "1"}}))
            .collect();
        let text = format!(
            "auth: {{ trusted_header: x-tenant }}\npools: {}\nmodels: {}\ntenants: {}\n",
            json!([{"name": "p", "protocol": "open-inference", "residency": "static", "replicas": replicas}]),
            json!([{"name": "m0", "pool": "p", "versions": versions}, {"name": "m1", "pool": "p", "versions": versions}]),
            json!(tenants)
        );
        let taken = split(&Source::text("t.yaml", &text)).unwrap_or_else(|faults| panic!("{faults}"));
        let table =
            holdfast_plane::Table { revision: Revision(1), entries: taken.resources.into(), ..Default::default() };
        let view = View { table: Arc::new(table), ..View::default() };
        let metrics = Arc::new(GatewayMetrics::new(&MetricsOptions::default()));
        let tasks = Tasks::new(tokio::runtime::Handle::current());
        let driver = Driver::new(vec![tasks.clone()], tasks, metrics.clone());
        (Tables::start(&view, Frame::new(taken.rest), driver, metrics).unwrap(), view)
    }

    fn told(view: &mut View, kind: ResourceKind, name: String, value: Option<Value>) {
        let mut table = (*view.table).clone();
        table.revision = Revision(table.revision.0 + 1);
        table.entries.apply(Edit { kind, name: name.into(), value: value.map(Arc::new) });
        view.table = Arc::new(table);
    }

    #[tokio::test]
    async fn what_moves_is_counted_as_if_everything_were() {
        let (tables, mut view) = tables();
        // It stays as long as nothing is counted from scratch.
        let mark = (ModelName::parse("mark").unwrap(), Version::parse("0").unwrap());
        tables.counted.lock().as_mut().unwrap().pinned.insert(mark.clone(), 1);
        let mut random = 1u64;
        let mut next = move |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for step in 0..200 {
            let name = format!("t{}/m{}", next(TENANTS as u64), next(2));
            let version = next(3).to_string();
            match next(4) {
                0 => told(
                    &mut view,
                    ResourceKind::Split,
                    name,
                    Some(json!({"version": version, "percent": 1 + next(99)})),
                ),
                1 if view.table.entries.get(ResourceKind::Split, &name).is_some() => {
                    told(&mut view, ResourceKind::Split, name, None);
                }
                _ => told(&mut view, ResourceKind::Pin, name, Some(json!(version))),
            }
            tables.take(&view);
            let whole = Counted::of(&tables.current.load_full());
            let kept = tables.counted.lock();
            let kept = kept.as_ref().unwrap();
            let mut pinned = kept.pinned.clone();
            assert_eq!(pinned.remove(&mark), Some(1), "step {step}: everything was counted anew");
            assert_eq!((&kept.wanted, &pinned), (&whole.wanted, &whole.pinned), "step {step}");
        }
    }

    #[tokio::test]
    async fn another_table_or_other_replicas_are_counted_anew() {
        let (tables, mut view) = tables();
        let before = tables.current.load_full();
        assert!(tables.counted.lock().as_ref().unwrap().holds(&before));
        told(&mut view, ResourceKind::Tenant, "t0".to_owned(), None);
        for model in ["m0", "m1"] {
            told(&mut view, ResourceKind::Pin, format!("t0/{model}"), None);
        }
        tables.take(&view);
        let table = tables.current.load_full();
        assert_eq!(tables.refused(), None);
        let (whole, kept) = (Counted::of(&table), tables.counted.lock());
        let kept = kept.as_ref().unwrap();
        assert!(kept.holds(&table) && !kept.holds(&before));
        assert_eq!((&kept.wanted, &kept.pinned), (&whole.wanted, &whole.pinned));
        let other = Counted { in_service: vec![vec![false; 4]], ..Counted::of(&table) };
        assert!(!other.holds(&table));
    }
}
