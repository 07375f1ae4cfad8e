//! One immutable routing table and how it is built.

use std::sync::{Arc, OnceLock};

use holdfast_placement::members::{Member, MemberList};
use holdfast_placement::owners::Owners;
use holdfast_placement::rendezvous::Rendezvous;
use holdfast_placement::subset::subset_key;
use holdfast_types::{ModelName, PoolName, ReplicaName, Revision, TenantId, Version};

use crate::choices::{Choices, Trial, Wanted};
use crate::input::{BuildError, ModelInput, PoolInput, TableInput, TenantInput};
use crate::paged::{Keyed, Paged};
use crate::route::{Route, Unavailable};

/// Members kept in a route beyond its subset, to step in for members that are out of service.
const SPARES: usize = 14;

/// A pool in the table.
#[derive(Debug)]
pub struct PoolEntry {
    /// Its name.
    pub name: PoolName,
    owners: Owners,
    /// Replica names in the order that [`Route::order`] indexes.
    pub members: Vec<ReplicaName>,
}

/// A version in the table.
#[derive(Clone, Debug)]
pub struct VersionEntry {
    /// Its name.
    pub version: Version,
    /// Index in its model.
    pub index: u32,
    upstream_model: Arc<str>,
    upstream_version: Arc<str>,
}

/// A model in the table.
#[derive(Debug)]
pub struct ModelEntry {
    /// Its name.
    pub name: ModelName,
    /// Index in the catalogue.
    pub index: u32,
    /// Index of its pool.
    pub pool: u32,
    /// The number of its first version among those of all models.
    first: u32,
    /// Its versions.
    pub versions: Box<[VersionEntry]>,
    idempotent: bool,
}

impl ModelEntry {
    /// The version of this name.
    #[must_use]
    pub fn version(&self, name: &str) -> Option<&VersionEntry> {
        self.versions.iter().find(|v| v.version.as_str() == name)
    }
}

impl Keyed for ModelEntry {
    fn key(&self) -> &str {
        self.name.as_str()
    }
}

// One version that a tenant may use.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    model: u32,
    pub(crate) version: u32,
    pinned: bool,
    /// Allowed beside the pin, so that it stays when the pin moves away.
    allowed: bool,
    /// An arm or a rule names it: it stays too, but clients may not name it for that.
    chosen: bool,
    /// Percent of the pin's traffic that goes here instead.
    pub(crate) share: u8,
    route: OnceLock<Arc<Route>>,
}

/// A tenant in the table.
#[derive(Clone, Debug)]
pub struct TenantEntry {
    /// Its id.
    pub name: TenantId,
    /// Replicas per key.
    pub subset: u8,
    unavailable: Unavailable,
    slots: Box<[Slot]>,
    /// Some slot has a share.
    has_splits: bool,
    /// What may choose a version before the pin does.
    choices: Option<Arc<Choices>>,
    /// Routes of versions that only an administrator has asked for, by the number of the version.
    strays: OnceLock<Arc<[OnceLock<Arc<Route>>]>>,
}

impl Slot {
    const fn is_used(&self) -> bool {
        self.pinned || self.allowed || self.chosen || self.share > 0
    }
}

impl TenantEntry {
    pub(crate) fn pin(&self, model: u32) -> Option<&Slot> {
        self.slots.iter().find(|s| s.pinned && s.model == model)
    }

    /// Where a share of the pin's traffic goes.
    pub(crate) fn split(&self, model: u32) -> Option<&Slot> {
        if !self.has_splits {
            return None;
        }
        self.slots.iter().find(|s| s.share > 0 && s.model == model)
    }

    pub(crate) fn slot(&self, model: u32, version: u32) -> Option<&Slot> {
        self.slots.iter().find(|s| s.model == model && s.version == version)
    }

    /// The slot of a version that its clients may name.
    pub(crate) fn nameable(&self, model: u32, version: u32) -> Option<&Slot> {
        self.slot(model, version).filter(|slot| slot.pinned || slot.allowed || slot.share > 0)
    }

    pub(crate) fn choices(&self) -> Option<&Choices> {
        self.choices.as_deref()
    }
}

impl Keyed for TenantEntry {
    fn key(&self) -> &str {
        self.name.as_str()
    }
}

/// Pools and models: what changes only with the configuration, shared by the snapshots between.
#[derive(Debug)]
pub struct Catalogue {
    pools: Vec<PoolEntry>,
    models: Paged<Arc<ModelEntry>>,
    by_index: Vec<Arc<ModelEntry>>,
    versions: u32,
    trials: Vec<Arc<Trial>>,
}

/// A change of one pin.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PinChange {
    /// Whose.
    pub tenant: TenantId,
    /// Of which model.
    pub model: ModelName,
    /// To which version.
    pub version: Version,
}

/// A share of a pin's traffic that goes to another version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Split {
    /// Whose.
    pub tenant: TenantId,
    /// Of which model.
    pub model: ModelName,
    /// The other version.
    pub version: Version,
    /// How much of it, in percent: 0 to 99.
    pub percent: u8,
}

/// One routing table under one revision. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Snapshot {
    revision: Revision,
    catalogue: Arc<Catalogue>,
    tenants: Paged<Arc<TenantEntry>>,
}

impl Snapshot {
    /// Builds a table.
    ///
    /// # Errors
    /// [`BuildError`], if the parts do not fit together.
    pub fn build(revision: Revision, input: TableInput) -> Result<Self, BuildError> {
        let pools = input.pools.into_iter().map(pool_entry).collect::<Result<Vec<_>, _>>()?;
        let mut by_index = Vec::with_capacity(input.models.len());
        let mut versions = 0;
        for (index, model) in input.models.into_iter().enumerate() {
            if model.pool >= pools.len() {
                return Err(BuildError::NoPool(model.name));
            }
            let count = model.versions.len() as u32;
            by_index.push(Arc::new(model_entry(index as u32, versions, model)));
            versions += count;
        }
        let models = Paged::build(by_index.iter().cloned());
        let mut catalogue = Catalogue { pools, models, by_index, versions, trials: Vec::new() };
        let trials = input.experiments.into_iter().map(|one| Trial::new(&catalogue, one).map(Arc::new));
        catalogue.trials = trials.collect::<Result<_, _>>()?;
        let wanted = Wanted::new(&catalogue.trials, input.rules);
        let tenants = input.tenants.into_iter().map(|t| tenant_entry(&catalogue, &wanted, t));
        let tenants = tenants.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { revision, catalogue: Arc::new(catalogue), tenants: Paged::build(tenants) })
    }

    /// The next table, with some pins changed. Shares everything else, routes included.
    ///
    /// # Errors
    /// [`BuildError::NoVersion`]; nothing is changed then.
    pub fn with_pins(&self, revision: Revision, changes: &[PinChange]) -> Result<Self, BuildError> {
        let changes = changes.iter().map(|c| (&c.tenant, &c.model, &c.version, repin as fn(&mut _, _, _, _), 0));
        self.with_changes(revision, changes)
    }

    /// The same table with shares of some pins' traffic on other versions; each takes the place of the pin's split before, and 0 percent ends it.
    ///
    /// # Errors
    /// [`BuildError::NoVersion`]; nothing is changed then.
    pub fn with_splits(&self, splits: &[Split]) -> Result<Self, BuildError> {
        let changes =
            splits.iter().map(|s| (&s.tenant, &s.model, &s.version, resplit as fn(&mut _, _, _, _), s.percent.min(99)));
        self.with_changes(self.revision, changes)
    }

    fn with_changes<'c>(
        &self,
        revision: Revision,
        changes: impl Iterator<Item = (&'c TenantId, &'c ModelName, &'c Version, fn(&mut TenantEntry, u32, u32, u8), u8)>,
    ) -> Result<Self, BuildError> {
        let mut changed: std::collections::BTreeMap<TenantId, TenantEntry> = std::collections::BTreeMap::new();
        for (tenant, name, version, change, percent) in changes {
            let error = || BuildError::NoVersion(tenant.clone(), name.clone(), version.clone());
            let model = self.model(name.as_str()).ok_or_else(error)?;
            let version = model.version(version.as_str()).ok_or_else(error)?;
            let current = self.tenants.get(tenant.as_str()).ok_or_else(error)?;
            let entry = changed.entry(tenant.clone()).or_insert_with(|| (**current).clone());
            change(entry, model.index, version.index, percent);
        }
        let tenants = self.tenants.replaced(changed.into_values().map(Arc::new));
        Ok(Self { revision, catalogue: self.catalogue.clone(), tenants })
    }

    /// The table's number.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The tenant of this id.
    #[must_use]
    pub fn tenant(&self, id: &str) -> Option<&TenantEntry> {
        self.tenants.get(id).map(|t| &**t)
    }

    /// The model of this name.
    #[must_use]
    pub fn model(&self, name: &str) -> Option<&ModelEntry> {
        self.catalogue.models.get(name).map(|m| &**m)
    }

    /// The pool of this index.
    #[must_use]
    pub fn pool(&self, index: u32) -> Option<&PoolEntry> {
        self.catalogue.pools.get(index as usize)
    }

    /// All pools, by index.
    #[must_use]
    pub fn pools(&self) -> &[PoolEntry] {
        &self.catalogue.pools
    }

    pub(crate) fn trials(&self) -> &[Arc<Trial>] {
        &self.catalogue.trials
    }

    /// How many tenants there are.
    #[must_use]
    pub fn tenant_count(&self) -> usize {
        self.tenants.len()
    }

    /// All tenants, in the order of their hashes.
    pub fn tenants(&self) -> impl Iterator<Item = &TenantEntry> {
        self.tenants.iter().map(|t| &**t)
    }

    /// The tenant's pins: model and version.
    pub fn pins<'s>(&'s self, tenant: &'s TenantEntry) -> impl Iterator<Item = (&'s ModelEntry, &'s VersionEntry)> {
        tenant.slots.iter().filter(|slot| slot.pinned).filter_map(|slot| {
            let model = self.catalogue.by_index.get(slot.model as usize)?;
            Some((&**model, model.versions.get(slot.version as usize)?))
        })
    }

    /// What the tenant's pins, rules and experiments name: model and version, each once.
    pub fn keys<'s>(&'s self, tenant: &'s TenantEntry) -> impl Iterator<Item = (&'s ModelEntry, &'s VersionEntry)> {
        tenant.slots.iter().filter(|slot| slot.pinned || slot.chosen).filter_map(|slot| {
            let model = self.catalogue.by_index.get(slot.model as usize)?;
            Some((&**model, model.versions.get(slot.version as usize)?))
        })
    }

    /// The tenant's split pins: model, the other version, its share in percent.
    pub fn splits<'s>(
        &'s self,
        tenant: &'s TenantEntry,
    ) -> impl Iterator<Item = (&'s ModelEntry, &'s VersionEntry, u8)> {
        tenant.slots.iter().filter(|slot| slot.share > 0).filter_map(|slot| {
            let model = self.catalogue.by_index.get(slot.model as usize)?;
            Some((&**model, model.versions.get(slot.version as usize)?, slot.share))
        })
    }

    /// The route that a key would have, whether or not the tenant may use it. Costs a walk over the pool; not for the request path.
    #[must_use]
    pub fn route_for(&self, tenant: &TenantEntry, model: &ModelEntry, version: &VersionEntry) -> Route {
        self.make_route(tenant, model, version)
    }

    pub(crate) fn route<'s>(&'s self, tenant: &TenantEntry, model: &ModelEntry, slot: &'s Slot) -> &'s Arc<Route> {
        slot.route.get_or_init(|| {
            let version = &model.versions[slot.version as usize];
            Arc::new(self.make_route(tenant, model, version))
        })
    }

    /// The route of any version, for an administrator: made at the first ask and kept.
    pub(crate) fn stray<'s>(
        &'s self,
        tenant: &'s TenantEntry,
        model: &ModelEntry,
        version: &VersionEntry,
    ) -> Option<&'s Arc<Route>> {
        let fresh = || (0..self.catalogue.versions).map(|_| OnceLock::new()).collect();
        let routes = tenant.strays.get_or_init(fresh);
        let route = routes.get((model.first + version.index) as usize)?;
        Some(route.get_or_init(|| Arc::new(self.make_route(tenant, model, version))))
    }

    fn make_route(&self, tenant: &TenantEntry, model: &ModelEntry, version: &VersionEntry) -> Route {
        let key = subset_key(tenant.name.as_str(), model.name.as_str(), version.version.as_str());
        let mut order = Vec::new();
        if let Some(pool) = self.pool(model.pool) {
            pool.owners.first(key, usize::from(tenant.subset) + SPARES, &mut order);
        }
        Route {
            tenant: tenant.name.clone(),
            model: model.name.clone(),
            version: version.version.clone(),
            pool: model.pool,
            key,
            order: order.into_boxed_slice(),
            subset: tenant.subset,
            upstream_model: version.upstream_model.clone(),
            upstream_version: version.upstream_version.clone(),
            idempotent: model.idempotent,
            unavailable: tenant.unavailable,
            handles: OnceLock::new(),
        }
    }
}

fn pool_entry(input: PoolInput) -> Result<PoolEntry, BuildError> {
    let mut replicas = input.members;
    // The order of a member list: indexes into the one are indexes into the other.
    replicas.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let members = replicas.iter().map(|(name, weight)| Member::new(name.as_str(), *weight)).collect();
    let list = MemberList::new(Revision(0), members).map_err(|_| BuildError::Members(input.name.clone()))?;
    let members = replicas.into_iter().map(|(name, _)| name).collect();
    Ok(PoolEntry { name: input.name, owners: Owners::Rendezvous(Rendezvous::new(list)), members })
}

fn model_entry(index: u32, first: u32, input: ModelInput) -> ModelEntry {
    let versions = input.versions.into_iter().enumerate();
    let versions = versions.map(|(i, (version, upstream_model, upstream_version))| VersionEntry {
        version,
        index: i as u32,
        upstream_model,
        upstream_version,
    });
    ModelEntry {
        name: input.name,
        index,
        pool: input.pool as u32,
        first,
        versions: versions.collect(),
        idempotent: input.idempotent,
    }
}

impl Catalogue {
    /// The numbers of a model and a version.
    pub(crate) fn find(&self, model: &ModelName, version: &Version) -> Option<(u32, u32)> {
        let entry = self.models.get(model.as_str())?;
        Some((entry.index, entry.version(version.as_str())?.index))
    }
}

fn tenant_entry(
    catalogue: &Catalogue,
    wanted: &Wanted<'_>,
    input: TenantInput,
) -> Result<Arc<TenantEntry>, BuildError> {
    let pinned = input.pins.iter().map(|p| (p, true));
    let allowed = input.allow.iter().map(|p| (p, false));
    let mut slots: Vec<Slot> = Vec::with_capacity(input.pins.len() + input.allow.len());
    for ((model, version), pinned) in pinned.chain(allowed) {
        let (m, v) = catalogue
            .find(model, version)
            .ok_or_else(|| BuildError::NoVersion(input.name.clone(), model.clone(), version.clone()))?;
        match slots.iter_mut().find(|s| s.model == m && s.version == v) {
            Some(slot) => slot.allowed |= !pinned,
            None => {
                slots.push(Slot { pinned, allowed: !pinned, ..Slot::of(m, v) });
            }
        }
    }
    let pins = |model| slots.iter().any(|slot| slot.pinned && slot.model == model);
    let choices = wanted.choices(catalogue, &input.name, pins)?;
    for (m, v) in choices.iter().flat_map(Choices::versions) {
        match slots.iter_mut().find(|s| s.model == m && s.version == v) {
            Some(slot) => slot.chosen = true,
            None => slots.push(Slot { chosen: true, ..Slot::of(m, v) }),
        }
    }
    let TenantInput { name, subset, unavailable, .. } = input;
    Ok(Arc::new(TenantEntry {
        name,
        subset: subset.max(1),
        unavailable,
        slots: slots.into_boxed_slice(),
        has_splits: false,
        choices: choices.map(Arc::new),
        strays: OnceLock::new(),
    }))
}

impl Slot {
    const fn of(model: u32, version: u32) -> Self {
        Self { model, version, pinned: false, allowed: false, chosen: false, share: 0, route: OnceLock::new() }
    }
}

/// Moves the pin, all of its traffic. The old version stays nameable only if it is allowed on its own. Routes already made are kept.
fn repin(tenant: &mut TenantEntry, model: u32, version: u32, _: u8) {
    let mut slots: Vec<Slot> = std::mem::take(&mut tenant.slots).into_vec();
    for slot in slots.iter_mut().filter(|s| s.model == model) {
        slot.pinned = slot.version == version;
        slot.share = 0;
    }
    // The tenant's other models keep their splits.
    slots.retain(Slot::is_used);
    if !slots.iter().any(|s| s.pinned && s.model == model) {
        slots.push(Slot { pinned: true, ..Slot::of(model, version) });
    }
    tenant.has_splits = slots.iter().any(|s| s.share > 0);
    tenant.slots = slots.into_boxed_slice();
}

/// Gives a version a share of the pin's traffic, instead of what had one before.
fn resplit(tenant: &mut TenantEntry, model: u32, version: u32, percent: u8) {
    let mut slots: Vec<Slot> = std::mem::take(&mut tenant.slots).into_vec();
    for slot in slots.iter_mut().filter(|s| s.model == model) {
        slot.share = if slot.version == version && !slot.pinned { percent } else { 0 };
    }
    slots.retain(Slot::is_used);
    if percent > 0 && !slots.iter().any(|s| s.model == model && s.version == version) {
        slots.push(Slot { share: percent, ..Slot::of(model, version) });
    }
    tenant.has_splits = slots.iter().any(|s| s.share > 0);
    tenant.slots = slots.into_boxed_slice();
}
