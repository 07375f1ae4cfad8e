//! An honest gateway, scripted: it installs what it is told, loads what is wanted, and says what it sees. What replicas hold is one world for all
//! gateways. Each table that comes into force is looked at: every pin's subset must hold its version by then (PIN-3).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_config::{ResourceKind, Resources, Source, assemble, load, table_input};
use holdfast_decide::rollout::{Artifact, Report};
use holdfast_decide::{Snapshot, Split};
use holdfast_plane::{ControlEnd, Observed, ReplicaStatus, Status, Table, View};
use holdfast_types::{GatewayName, ModelName, ReplicaName, Revision, TenantId, Version};
use tokio::sync::watch;

/// What failed is tried again after this time.
const TRY: Duration = Duration::from_millis(20);

pub type Pair = (ReplicaName, Artifact);

/// What replicas hold.
#[derive(Default)]
pub struct World {
    pub held: BTreeSet<Pair>,
    /// Versions whose load fails, in these words: everywhere, or as `REPLICA/MODEL/VERSION`.
    pub failing: BTreeMap<String, String>,
    /// How many versions a replica has room for.
    pub room: Option<usize>,
    /// What found no room.
    roomless: BTreeSet<Pair>,
    pub down: BTreeSet<String>,
    /// Loads that were begun.
    pub loads: usize,
    /// Loads that failed in a row, counted by the one gateway that starts loads.
    pub failures: BTreeMap<Pair, u32>,
    /// What failed is not tried again.
    pub patient: bool,
    /// Gateways that prepare nothing.
    pub idle: BTreeSet<String>,
    wanted: BTreeMap<String, BTreeSet<Pair>>,
    snapshots: BTreeMap<u64, Arc<Snapshot>>,
    /// Tables that were looked at when they came into force.
    checked: BTreeSet<u64>,
    pub broken: Vec<String>,
}

pub struct Gateways {
    pub world: Mutex<World>,
    changed: watch::Sender<u64>,
}

impl Gateways {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { world: Mutex::default(), changed: watch::Sender::new(0) })
    }

    /// Changes the world, and has every gateway look.
    pub fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.world.lock().unwrap());
        self.changed.send_modify(|n| *n += 1);
    }

    /// Runs a gateway until its link is gone.
    pub async fn run(self: Arc<Self>, name: GatewayName, mut end: ControlEnd) {
        let mut changed = self.changed.subscribe();
        let mut tries = false;
        loop {
            let view = end.view.borrow_and_update().clone();
            changed.mark_unchanged();
            let status = self.look(&name, &view, std::mem::take(&mut tries));
            end.status.send_if_modified(|last| {
                let news = **last != status;
                *last = Arc::new(status);
                news
            });
            tokio::select! {
                told = end.view.changed() => if told.is_err() { return },
                _ = changed.changed() => {}
                () = tokio::time::sleep(TRY) => tries = true,
            }
        }
    }

    fn look(&self, name: &GatewayName, view: &View, tries: bool) -> Status {
        let mut world = self.world.lock().unwrap();
        let before = world.held.len();
        let snapshot = world.snapshot(&view.table);
        world.want(name, view, &snapshot, tries);
        world.check(&view.table, &snapshot);
        let status = world.status(name, view, &snapshot);
        if world.held.len() != before {
            self.changed.send_modify(|n| *n += 1);
        }
        status
    }
}

impl World {
    fn snapshot(&mut self, table: &Table) -> Arc<Snapshot> {
        let made = self.snapshots.entry(table.revision.0).or_insert_with(|| {
            let resources: Resources = table.entries.resources();
            let text = assemble(&serde_json::json!({}), &resources);
            let loaded = load(&Source::text("table", &text)).unwrap_or_else(|e| panic!("{e}"));
            let input = table_input(&loaded.config, &BTreeMap::new());
            let splits: Vec<Split> = table.entries.of_kind(ResourceKind::Split).map(|(n, v)| split(n, v)).collect();
            Arc::new(Snapshot::build(table.revision, input).unwrap().with_splits(&splits).unwrap())
        });
        made.clone()
    }

    /// What pins and orders want is loaded; what no gateway wants is let go of.
    fn want(&mut self, name: &GatewayName, view: &View, snapshot: &Snapshot, tries: bool) {
        let mut wanted: BTreeSet<Pair> = pinned(snapshot).into_iter().collect();
        let ordered = view.orders.wants.iter().map(|want| ((want.replica.clone(), want.artifact.clone()), want.place));
        let places: BTreeMap<Pair, u32> = ordered.filter(|(pair, _)| !wanted.contains(pair)).collect();
        wanted.extend(places.keys().cloned());
        for pair in &wanted {
            let fails = self.words(pair).is_some();
            let up = !self.down.contains(pair.0.as_str());
            if up && !fails && self.makes_room(pair, &places) && self.held.insert(pair.clone()) {
                self.loads += 1;
                self.failures.remove(pair);
            }
            if up && fails && self.starts_loads(name) {
                let again = tries && !self.patient;
                let known = self.failures.get(pair).copied();
                self.failures.insert(pair.clone(), known.map_or(1, |n| n + u32::from(again)));
            }
        }
        self.wanted.insert(name.to_string(), wanted);
        let all: BTreeSet<&Pair> = self.wanted.values().flatten().collect();
        let gone: Vec<Pair> = self.held.iter().filter(|pair| !all.contains(pair)).cloned().collect();
        gone.iter().for_each(|pair| _ = self.held.remove(pair));
    }

    /// The words in which a load fails.
    fn words(&self, (replica, artifact): &Pair) -> Option<&String> {
        let version = artifact.version.as_str();
        self.failing.get(version).or_else(|| self.failing.get(&format!("{replica}/{}/{version}", artifact.model)))
    }

    /// Whether there is room on the replica, if need be that of something with a higher place. What pins in force name has no place.
    fn makes_room(&mut self, pair: &Pair, places: &BTreeMap<Pair, u32>) -> bool {
        let here = |held: &&Pair| held.0 == pair.0;
        let fits = self.room.is_none_or(|room| self.held.iter().filter(here).count() < room);
        let own = places.get(pair).copied().unwrap_or_default();
        let gives_way = |held: &&Pair| places.get(*held).is_some_and(|place| *place > own);
        let victim = self.held.iter().filter(here).find(gives_way).cloned();
        if fits || self.held.contains(pair) {
            self.roomless.remove(pair);
            return true;
        }
        if let Some(victim) = &victim {
            self.held.remove(victim);
            self.roomless.remove(pair);
        } else {
            self.roomless.insert(pair.clone());
        }
        victim.is_some()
    }

    fn starts_loads(&self, name: &GatewayName) -> bool {
        self.wanted.keys().next().is_none_or(|first| name.as_str() <= first.as_str())
    }

    /// The first table is what there was; each later one names only what is held already.
    fn check(&mut self, table: &Table, snapshot: &Snapshot) {
        if table.revision == Revision(0) || !self.checked.insert(table.revision.0) || self.checked.len() == 1 {
            return;
        }
        for (replica, artifact) in pinned(snapshot) {
            let up = !self.down.contains(replica.as_str());
            if up && !self.held.contains(&(replica.clone(), artifact.clone())) {
                self.broken
                    .push(format!("PIN-3: {} names {artifact:?}, which {replica} does not hold", table.revision));
            }
        }
    }

    fn status(&self, name: &GatewayName, view: &View, snapshot: &Snapshot) -> Status {
        let mut status = Status::of(name.clone());
        (status.in_force, status.oldest) = (view.table.revision, view.table.revision);
        for pool in snapshot.pools() {
            for replica in &pool.members {
                let in_service = !self.down.contains(replica.as_str());
                let observed = view.orders.observe.iter().filter(|a| a.pool == pool.name);
                let versions = observed.filter_map(|a| {
                    let (report, failures) = self.report(name, replica, a)?;
                    Some(Observed { artifact: a.clone(), report, failures })
                });
                let versions = versions.collect();
                let (pool, replica) = (pool.name.clone(), replica.clone());
                status.replicas.push(ReplicaStatus { pool, replica, in_service, in_flight: 0, versions });
            }
        }
        if !self.idle.contains(name.as_str()) {
            let ready = view.orders.prepare.iter().filter(|p| {
                p.proposal.base == view.table.revision
                    && p.flips.iter().all(|flip| {
                        let pairs = subset(snapshot, flip.tenant.as_str(), flip.model.as_str(), &flip.new);
                        pairs.iter().all(|pair| self.down.contains(pair.0.as_str()) || self.held.contains(pair))
                    })
            });
            status.prepared = ready.map(|p| (p.rollout, p.proposal)).collect();
        }
        status
    }

    /// As the gateway says it: what failed once is said as long as it is not there, wanted or not.
    fn report(&self, name: &GatewayName, replica: &ReplicaName, artifact: &Artifact) -> Option<(Report, u32)> {
        let pair = (replica.clone(), artifact.clone());
        if self.held.contains(&pair) {
            return Some((Report::Proven, 0));
        }
        if self.roomless.contains(&pair) {
            return Some((Report::Failed { words: "no room".to_owned(), permanent: false }, 0));
        }
        let failures = *self.failures.get(&pair).filter(|_| self.starts_loads(name))?;
        let words = self.words(&pair).cloned().unwrap_or_default();
        Some((Report::Failed { words, permanent: false }, failures))
    }
}

fn split(name: &str, value: &serde_json::Value) -> Split {
    let (tenant, model) = name.split_once('/').unwrap();
    Split {
        tenant: TenantId::parse(tenant).unwrap(),
        model: ModelName::parse(model).unwrap(),
        version: Version::parse(value["version"].as_str().unwrap()).unwrap(),
        percent: value["percent"].as_u64().unwrap().try_into().unwrap(),
    }
}

/// Every pin's subset, with the version, and that of its split.
fn pinned(snapshot: &Snapshot) -> Vec<Pair> {
    let tenants = snapshot.tenants().flat_map(|tenant| {
        let splits = snapshot.splits(tenant).map(|(model, version, _)| (model, version));
        let all = snapshot.pins(tenant).chain(splits);
        let names = all.map(|(model, version)| (model.name.to_string(), version.version.clone()));
        names.map(|(model, version)| (tenant.name.to_string(), model, version)).collect::<Vec<_>>()
    });
    tenants.flat_map(|(tenant, model, version)| subset(snapshot, &tenant, &model, &version)).collect()
}

fn subset(snapshot: &Snapshot, tenant: &str, model: &str, version: &Version) -> Vec<Pair> {
    let found = snapshot.tenant(tenant).zip(snapshot.model(model));
    let Some((tenant, model)) = found else { return Vec::new() };
    let Some(entry) = model.version(version.as_str()) else { return Vec::new() };
    let route = snapshot.route_for(tenant, model, entry);
    let pool = snapshot.pool(model.pool).unwrap();
    let artifact = Artifact { pool: pool.name.clone(), model: model.name.clone(), version: version.clone() };
    let order = route.order.iter().take(usize::from(route.subset));
    order.map(|ix| (pool.members[*ix as usize].clone(), artifact.clone())).collect()
}
