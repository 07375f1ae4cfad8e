//! From what the control plane says to a table that serves.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::HeaderValue;
use serde_json::Value as Json;

use holdfast_config::{Config, Frame, Pins, ResourceKind, table_input};
use holdfast_decide::{BuildError, PinChange, Snapshot, Split};
use holdfast_plane::Edit;
use holdfast_types::{ModelName, Revision, TenantId, Version};

use super::Table;
use super::revision::Revisions;
use crate::fleet::FleetChange;
use crate::identity::Identities;
use crate::limits::Kept;
use crate::residency::Driver;
use crate::settings::Settings;

/// Why a table cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Its resources and the process's settings are no good configuration together.
    #[error("the table and the settings of this process do not fit together: {0}")]
    Config(Box<holdfast_config::Faults>),
    /// The parts of the table do not fit together.
    #[error("the table cannot be built: {0}")]
    Build(#[from] BuildError),
}

/// Model and version.
pub(super) type Versions = BTreeSet<(ModelName, Version)>;

/// The configuration of a table in this process.
pub(super) fn configuration(frame: &Frame, told: &holdfast_plane::Table) -> Result<Config, StartError> {
    let loaded = frame.load(&told.entries.resources());
    loaded.map(|loaded| loaded.config).map_err(|faults| StartError::Config(Box::new(faults)))
}

/// A table, and what of the fleet is to be let go once it is in force. `also` is pinned beside the table's own pins.
pub(super) fn whole(
    (driver, kept): (&Arc<Driver>, &Arc<Kept>),
    config: Config,
    told: Arc<holdfast_plane::Table>,
    also: &Versions,
    revisions: &Revisions,
    identities: &Identities,
) -> Result<(Table, FleetChange), BuildError> {
    let snapshot = Snapshot::build(told.revision, table_input(&config, &Pins::new()))?;
    let keys = snapshot.tenants().flat_map(|tenant| snapshot.keys(tenant));
    let keys = keys.map(|(model, version)| (model.name.clone(), version.version.clone()));
    let pinned: Versions = keys.chain(also.iter().cloned()).collect();
    let splits: Vec<Split> =
        told.entries.iter().filter_map(|((kind, name), value)| split(*kind, name, value)).collect();
    let snapshot = if splits.is_empty() { snapshot } else { snapshot.with_splits(&splits)? };
    let is_pinned = |ix| {
        let facts = driver.fleet.version(ix);
        facts.is_some_and(|f| pinned.contains(&(f.model.clone(), f.version.clone())))
    };
    let change = driver.configure(&config, &is_pinned);
    driver.poll_replicas(&change.added);
    let pools = snapshot.pools().iter().filter_map(|p| driver.fleet.pool(&p.name)).collect();
    let table = Table {
        stamp: stamp(told.revision),
        usage: revisions.begin(told.revision),
        snapshot,
        pools,
        handover: Arc::default(),
        replays: Arc::default(),
        limits: kept.table(&config),
        settings: Arc::new(Settings::new(&config).with_identity(identities.of(&config))),
        config: Arc::new(config),
        told,
    };
    Ok((table, change))
}

/// What has changed between two tables, if it is no more than that.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Moved {
    /// Pins that are at another version.
    pub(super) pins: Vec<PinChange>,
    /// Splits that are others, or over.
    pub(super) splits: Vec<Split>,
}

/// The table with some pins moved: costs what has moved.
pub(super) fn with_pins(
    old: &Table,
    told: Arc<holdfast_plane::Table>,
    moved: &Moved,
    revisions: &Revisions,
) -> Result<Table, BuildError> {
    let snapshot = old.snapshot.with_pins(told.revision, &moved.pins)?.with_splits(&moved.splits)?;
    Ok(Table {
        stamp: stamp(told.revision),
        usage: revisions.begin(told.revision),
        snapshot,
        pools: old.pools.clone(),
        handover: old.handover.clone(),
        replays: old.replays.clone(),
        limits: old.limits.clone(),
        settings: old.settings.clone(),
        config: old.config.clone(),
        told,
    })
}

/// The edits as pins that have moved to another version. None: there is more to it.
pub(super) fn moved(old: &Table, edits: &[Edit]) -> Option<Moved> {
    let mut moved = Moved::default();
    for edit in edits {
        let before = old.told.entries.get(edit.kind, &edit.name);
        match edit.kind {
            ResourceKind::Pin => {
                before?;
                let (tenant, model) = pin_of(&edit.name)?;
                let version = Version::parse(edit.value.as_ref()?.as_str()?).ok()?;
                moved.pins.push(PinChange { tenant, model, version });
            }
            ResourceKind::Split => {
                let over = || Some(Split { percent: 0, ..split(edit.kind, &edit.name, before?)? });
                let now = edit.value.as_ref().and_then(|value| split(edit.kind, &edit.name, value));
                moved.splits.push(now.or_else(over)?);
            }
            _ => return None,
        }
    }
    // A pin that has moved has lost its split: what is over need not be ended, and its version may be nameable no more.
    moved
        .splits
        .retain(|s| s.percent > 0 || !moved.pins.iter().any(|p| (&p.tenant, &p.model) == (&s.tenant, &s.model)));
    Some(moved)
}

fn split(kind: ResourceKind, name: &str, value: &Json) -> Option<Split> {
    let (tenant, model) = pin_of(name).filter(|_| kind == ResourceKind::Split)?;
    let version = Version::parse(value.get("version")?.as_str()?).ok()?;
    let percent = u8::try_from(value.get("percent")?.as_u64()?).ok()?.min(99);
    Some(Split { tenant, model, version, percent })
}

fn pin_of(name: &str) -> Option<(TenantId, ModelName)> {
    let (tenant, model) = name.split_once('/')?;
    Some((TenantId::parse(tenant).ok()?, ModelName::parse(model).ok()?))
}

fn stamp(revision: Revision) -> HeaderValue {
    HeaderValue::from(revision.0)
}
