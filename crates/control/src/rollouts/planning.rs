//! From pins that are to move to plans: where their keys hash to, their options, and one roll-out for each group of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::{Frame, ResourceKind, Resources, table_input};
use holdfast_decide::Snapshot;
use holdfast_decide::rollout::{MAX_CANDIDATES, MAX_PINS, Options, PinPlan, Plan, RolloutId, SidePlan};
use holdfast_plane::Entries;
use holdfast_store::{Key, MAX_PAGE, Place, Space, Store};
use holdfast_types::{ModelName, ReplicaName, Revision, TenantId, Version};

use super::forms::{By, Meta};
use super::records;
use crate::desk::{PIN_OPTIONS, PinOptions, RolloutOptions, Truth};

/// Longer words of an author are cut in the records of roll-outs.
const WORDS: usize = 1_024;
/// Up to so many pins, options are looked up one by one.
const FEW: usize = 16;

/// Where keys hash to, and what it was worked out from.
#[derive(Clone)]
pub(super) struct Places {
    of: Entries,
    pub(super) snapshot: Arc<Snapshot>,
}

/// What came of planning.
pub(super) struct Planned {
    pub(super) plans: Vec<(Plan, Meta)>,
    /// Pins that cannot be planned, and why.
    pub(super) waiting: BTreeMap<Arc<str>, String>,
    pub(super) places: Places,
    /// What it was made from.
    pub(super) revision: Revision,
}

/// What planning needs.
pub(super) struct Task {
    pub(super) store: Arc<dyn Store>,
    pub(super) frame: Arc<Frame>,
    pub(super) truth: Arc<Truth>,
    pub(super) places: Option<Places>,
    pub(super) names: Vec<Arc<str>>,
    /// The revision by which one of them was asked for again last; 0: none was.
    pub(super) again: u64,
    pub(super) defaults: Options,
    pub(super) term: u64,
    pub(super) now_ms: u64,
}

impl Places {
    /// Whether keys hash to the same places under this table: pins and their splits change none.
    pub(super) fn fits(&self, entries: &Entries) -> bool {
        self.of.changes(entries).iter().all(|edit| is_pin(edit.kind))
    }

    /// Works it out. Takes as long as a configuration takes to be read.
    pub(super) async fn of(frame: Arc<Frame>, entries: Entries) -> Result<Self, String> {
        let work = tokio::task::spawn_blocking(move || {
            let others = entries.iter().filter(|((kind, _), _)| !is_pin(*kind));
            let resources: Resources =
                others.map(|((kind, name), value)| ((*kind, name.to_string()), (**value).clone())).collect();
            let loaded = frame.load(&resources).map_err(|faults| faults.to_string())?;
            let input = table_input(&loaded.config, &BTreeMap::new());
            let snapshot = Snapshot::build(Revision(0), input).map_err(|e| e.to_string())?;
            Ok::<_, String>(Self { of: entries, snapshot: Arc::new(snapshot) })
        });
        work.await.map_err(|e| e.to_string())?
    }

    /// The candidates of a version, in the key's order of preference, as the gateways have it.
    pub(super) fn side(&self, tenant: &TenantId, model: &ModelName, version: &Version) -> Result<SidePlan, String> {
        let table = &self.snapshot;
        let of = table.tenant(tenant.as_str()).ok_or_else(|| format!("tenant {tenant} is not in force"))?;
        let entry = table.model(model.as_str()).ok_or_else(|| format!("model {model} is not in force"))?;
        let named = entry.version(version.as_str());
        let named = named.ok_or_else(|| format!("version {version} of model {model} is not in force"))?;
        let route = table.route_for(of, entry, named);
        let pool = table.pool(entry.pool).ok_or_else(|| format!("model {model} is in no pool"))?;
        let order: Vec<ReplicaName> =
            route.order.iter().filter_map(|ix| pool.members.get(*ix as usize).cloned()).take(MAX_CANDIDATES).collect();
        if order.is_empty() {
            return Err(format!("pool {} has no replica that may own keys", pool.name));
        }
        Ok(SidePlan { pool: pool.name.clone(), version: version.clone(), order, subset: usize::from(route.subset) })
    }
}

impl Task {
    pub(super) async fn run(self) -> Result<Planned, String> {
        let words = |e: holdfast_store::Error| e.to_string();
        let places = match self.places.clone().filter(|places| places.fits(&self.truth.in_force)) {
            Some(places) => places,
            None => Places::of(self.frame.clone(), self.truth.in_force.clone()).await?,
        };
        let given = given(&*self.store, &self.names).await.map_err(words)?;
        let (mut groups, mut waiting) = (BTreeMap::<String, (Options, Vec<PinPlan>)>::new(), BTreeMap::new());
        for name in &self.names {
            match self.pin(&places, name) {
                Ok(pin) => {
                    let of = given.get(&**name).filter(|given| given.to == pin.new.version.as_str());
                    let group = of.map_or_else(String::new, |given| given.group.clone());
                    let options =
                        || of.map_or_else(|| self.defaults.clone(), |given| over(&self.defaults, &given.options));
                    groups.entry(group).or_insert_with(|| (options(), Vec::new())).1.push(pin);
                }
                Err(why) => _ = waiting.insert(name.clone(), why),
            }
        }
        let meta = self.meta().await.map_err(words)?;
        let mut plans = Vec::new();
        for (options, pins) in groups.into_values() {
            self.plans(&options, pins, &mut plans, &mut waiting);
        }
        if !plans.is_empty() {
            let many = u64::try_from(plans.len()).unwrap_or(u64::MAX);
            let first = records::numbers(&*self.store, self.term, many).await.map_err(words)?;
            plans.iter_mut().zip(first..).for_each(|(plan, id)| plan.id = RolloutId(id));
        }
        let plans = plans.into_iter().map(|plan| (plan, meta.clone())).collect();
        Ok(Planned { plans, waiting, places, revision: self.truth.head.revision })
    }

    fn pin(&self, places: &Places, name: &str) -> Result<PinPlan, String> {
        let pending = self.truth.pending.get(name).ok_or_else(|| "it is in force".to_owned())?;
        let (tenant, model) = (pending.tenant.clone(), pending.model.clone());
        let in_force = self.truth.in_force.get(ResourceKind::Pin, name).and_then(|v| v.as_str());
        let old = in_force.and_then(|v| Version::parse(v).ok()).ok_or_else(|| "it is not in force".to_owned())?;
        let (desired, now) = (&self.truth.desired, &self.truth.in_force);
        if desired.get(ResourceKind::Model, model.as_str()) != now.get(ResourceKind::Model, model.as_str()) {
            return Err(format!("model {model} is in force in another form than it is desired in"));
        }
        let (old, new) = (places.side(&tenant, &model, &old)?, places.side(&tenant, &model, &pending.to)?);
        Ok(PinPlan { tenant, model, old: Some(old), new })
    }

    /// One for all pins of a group, or several if they are too many and need not go together.
    fn plans(
        &self,
        options: &Options,
        pins: Vec<PinPlan>,
        plans: &mut Vec<Plan>,
        waiting: &mut BTreeMap<Arc<str>, String>,
    ) {
        let refuse = |pins: &[PinPlan], why: &str, waiting: &mut BTreeMap<Arc<str>, String>| {
            waiting.extend(pins.iter().map(|p| (format!("{}/{}", p.tenant, p.model).into(), why.to_owned())));
        };
        if options.atomic && pins.len() > MAX_PINS {
            let why = format!("{} pins that go at once are more than the {MAX_PINS} of one roll-out", pins.len());
            return refuse(&pins, &why, waiting);
        }
        for pins in pins.chunks(MAX_PINS) {
            let plan = Plan { id: RolloutId(0), pins: pins.to_vec(), options: options.clone() };
            match plan.check() {
                Ok(()) => plans.push(plan),
                Err(error) => refuse(pins, &error.to_string(), waiting),
            }
        }
    }

    /// Who has asked for these pins last, and why.
    async fn meta(&self) -> holdfast_store::Result<Meta> {
        let desired = self.truth.head.desired.0.max(self.again);
        let By { author, reason } = asker(&*self.store, &self.names, self.again).await?;
        Ok(Meta { author, reason, created_ms: self.now_ms, desired, replaced: false, back: None })
    }
}

/// The options given with the changes of these pins.
pub(super) async fn given(
    store: &dyn Store,
    names: &[Arc<str>],
) -> holdfast_store::Result<BTreeMap<String, PinOptions>> {
    let (mut all, kind) = (BTreeMap::new(), || PIN_OPTIONS.to_owned());
    let mut take = |id: String, value: &holdfast_store::Json| {
        // What this release cannot read is as if it were not given: a roll-out with the defaults is slower, not wrong.
        if let Ok(options) = serde_json::from_slice::<PinOptions>(value.as_bytes()) {
            all.insert(id, options);
        }
    };
    if names.len() <= FEW {
        for name in names {
            if let Some(found) = store.record(kind(), name.to_string()).await? {
                take(found.id, &found.value);
            }
        }
        return Ok(all);
    }
    let mut after = None;
    loop {
        let page = store.records(kind(), after.take(), MAX_PAGE).await?;
        let full = page.len() == MAX_PAGE;
        after = page.last().map(|record| record.id.clone());
        page.into_iter().for_each(|record| take(record.id, &record.value));
        if !full {
            return Ok(all);
        }
    }
}

/// Who has changed these pins last, or asked for them again by that revision, and why. Pins that move together were nearly always changed together,
/// so of many a few are looked at.
pub(super) async fn asker(store: &dyn Store, names: &[Arc<str>], again: u64) -> holdfast_store::Result<By> {
    let mut last = again;
    for name in names.iter().take(FEW) {
        let place = Place { space: Space::Desired, key: Key::new(ResourceKind::Pin.as_str(), name)? };
        last = store.get(place, None).await?.map_or(last, |found| found.revision.0.max(last));
    }
    let page = store.history(Some(Revision(last.saturating_add(1))), 1).await?;
    // One that is not kept any more is nobody's.
    let header = page.into_iter().find(|header| header.revision.0 == last);
    let none = || By { author: "roll-out".to_owned(), reason: String::new() };
    Ok(header.map_or_else(none, |header| By { author: header.author, reason: cut(header.reason) }))
}

const fn is_pin(kind: ResourceKind) -> bool {
    matches!(kind, ResourceKind::Pin | ResourceKind::Split)
}

fn cut(mut text: String) -> String {
    let mut end = WORDS.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// What was given, over the defaults of this control plane.
fn over(base: &Options, given: &RolloutOptions) -> Options {
    let ms = |given: Option<u64>, default: Duration| given.map_or(default, Duration::from_millis);
    Options {
        loads: given.loads.unwrap_or(base.loads),
        load: ms(given.load_ms, base.load),
        tries: given.tries.unwrap_or(base.tries),
        warm: ms(given.warm_ms, base.warm),
        prepare: ms(given.prepare_ms, base.prepare),
        drain: ms(given.drain_ms, base.drain),
        retain: ms(given.retain_ms, base.retain),
        retry: base.retry,
        checkpoint: base.checkpoint,
        ..given.options()
    }
}
