//! The holder of the table in force.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use holdfast_config::{Frame, ResourceKind};
use holdfast_decide::rollout::RolloutId;
use holdfast_decide::{PinChange, Split};
use holdfast_plane::{Orders, Refused, View};
use holdfast_telemetry::{Clock, GatewayMetrics};
use holdfast_types::{ReplicaName, Revision};

use super::build::{self, StartError, Versions};
use super::counted::Counted;
use super::local::{ConfigStatus, Failed, Offers};
use super::revision::Revisions;
use super::{Table, handover, wanted};
use crate::identity::Identities;
use crate::limits::{Kept, Link};
use crate::measures::Measures;
use crate::residency::Driver;
use crate::shadow::{ShadowReport, Shadows};

/// A pin that waits for its new version to be ready.
#[derive(Clone, Debug)]
pub struct PendingPin {
    /// Where it goes.
    pub change: PinChange,
    /// Replicas of its subset that do not hold the new version yet.
    pub waiting_for: Vec<ReplicaName>,
    /// In the words of the control plane: what else it waits for, or why it does not go.
    pub why: Option<String>,
}

pub(super) struct State {
    pub(super) frame: Arc<Frame>,
    pub(super) orders: Arc<Orders>,
    /// The table told last, if it cannot be served.
    pub(super) refused: Option<Refused>,
    pub(super) offers: Offers,
    /// What the residency machine was told to be pinned.
    pinned: Versions,
}

/// See the module.
pub struct Tables {
    pub(super) current: ArcSwap<Table>,
    /// Revisions with requests in flight.
    pub revisions: Revisions,
    pub(super) state: Mutex<State>,
    pub(crate) identities: Arc<Identities>,
    /// One table is built at a time.
    building: Mutex<()>,
    /// What pins want, as of the last table.
    pub(super) counted: Mutex<Option<Counted>>,
    pub(super) driver: Arc<Driver>,
    /// What was used of limits.
    pub(crate) limits: Arc<Kept>,
    /// Traffic that is copied.
    pub(crate) shadows: Arc<Shadows>,
    pub(crate) measures: Measures,
    metrics: Arc<GatewayMetrics>,
    /// Told when the settings have changed.
    pub(super) reframed: Notify,
    /// The revision in force.
    reached: watch::Sender<Revision>,
}

impl Tables {
    /// The first table.
    ///
    /// # Errors
    /// It cannot be served.
    pub fn start(
        view: &View,
        frame: Frame,
        driver: Arc<Driver>,
        metrics: Arc<GatewayMetrics>,
    ) -> Result<Arc<Self>, StartError> {
        let config = build::configuration(&frame, &view.table)?;
        let offers = Offers::new(&config);
        let revisions = Revisions::default();
        let identities = Identities::new(driver.tasks().clone(), &metrics);
        identities.own.take(&view.tokens);
        let limits = Arc::new(Kept::new(Link::new(&config)));
        let (table, _) =
            build::whole((&driver, &limits), config, view.table.clone(), &Versions::new(), &revisions, &identities)?;
        let state = State {
            frame: Arc::new(frame),
            orders: view.orders.clone(),
            refused: None,
            offers,
            pinned: Versions::new(),
        };
        let this = Arc::new(Self {
            current: ArcSwap::from_pointee(table),
            revisions,
            identities,
            state: Mutex::new(state),
            building: Mutex::new(()),
            counted: Mutex::default(),
            shadows: Arc::new(Shadows::new(driver.clone(), &metrics)),
            measures: Measures::default(),
            driver,
            limits,
            metrics,
            reframed: Notify::new(),
            reached: watch::Sender::new(view.table.revision),
        });
        this.metrics.config_taken(Revision(1));
        this.publish();
        Ok(this)
    }

    /// The table in force. One atomic read; hold it only for the moment.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<Table>> {
        self.current.load()
    }

    /// How the file stands.
    #[must_use]
    pub fn config_status(&self) -> ConfigStatus {
        self.state.lock().offers.status()
    }

    /// The table that was told last, if it cannot be served.
    #[must_use]
    pub fn refused(&self) -> Option<Refused> {
        self.state.lock().refused.clone()
    }

    /// Pins that are on their way.
    #[must_use]
    pub fn pending(&self) -> Vec<PendingPin> {
        let table = self.current.load_full();
        let orders = self.state.lock().orders.clone();
        // The orders may be older than the table.
        let on_the_way = orders.pending.iter().filter(|pin| {
            let name = format!("{}/{}", pin.tenant, pin.model);
            let in_force = table.told.entries.get(ResourceKind::Pin, &name).and_then(|version| version.as_str());
            in_force.is_some_and(|version| version != pin.to.as_str())
        });
        let pending = on_the_way.map(|pin| {
            let change = PinChange { tenant: pin.tenant.clone(), model: pin.model.clone(), version: pin.to.clone() };
            PendingPin { waiting_for: self.waiting_for(&table, &change), change, why: pin.words.clone() }
        });
        pending.collect()
    }

    /// What copied traffic of a roll-out has shown here, pin by pin. Of roll-outs that copy no more, the last ones are kept.
    #[must_use]
    pub fn shadow_report(&self, rollout: RolloutId) -> Vec<ShadowReport> {
        self.shadows.report(rollout)
    }

    fn waiting_for(&self, table: &Table, change: &PinChange) -> Vec<ReplicaName> {
        let cells = wanted::target(table, change).and_then(|route| wanted::cells(&self.driver, table, &route));
        let missing = cells.unwrap_or_default().into_iter().filter(|cell| !cell.holds());
        missing.map(|cell| cell.replica.name.clone()).collect()
    }

    /// Takes what the control plane tells. A table that cannot be served changes nothing and is told of in the status.
    pub(super) fn take(&self, view: &View) {
        self.identities.own.take(&view.tokens);
        let building = self.building.lock();
        let old = self.current.load_full();
        let told = &view.table;
        let refused = if told.revision == old.told.revision {
            None
        } else if told.revision < old.told.revision {
            Some(format!("revision {} is older than {}, which is in force", told.revision, old.told.revision))
        } else {
            self.install(&old, told).err().map(|e| e.to_string())
        };
        if let Some(words) = &refused {
            tracing::error!(revision = told.revision.0, %words, "a table is refused; the one in force stays");
        }
        let refused = refused.map(|words| Refused { revision: told.revision, words });
        let before = {
            let mut state = self.state.lock();
            state.refused = refused;
            std::mem::replace(&mut state.orders, view.orders.clone())
        };
        wanted::afresh(&self.driver, &self.current.load_full(), &before, &view.orders);
        drop(building);
        self.publish();
        self.reached.send_replace(self.current.load().told.revision);
    }

    /// Waits until this revision or a later one is in force.
    ///
    /// # Errors
    /// It is not by then; why, if it is known.
    pub async fn reaches(&self, revision: Revision, most: Duration) -> Result<(), String> {
        let mut reached = self.reached.subscribe();
        let waited = tokio::time::timeout(most, reached.wait_for(|now| *now >= revision)).await;
        if matches!(waited, Ok(Ok(_))) {
            return Ok(());
        }
        let refused = self.state.lock().refused.as_ref().map(|refused| refused.words.clone());
        Err(refused.unwrap_or_else(|| format!("the table is not at revision {revision} yet")))
    }

    fn install(&self, old: &Arc<Table>, told: &Arc<holdfast_plane::Table>) -> Result<(), StartError> {
        let edits = old.told.entries.changes(&told.entries);
        if let Some(moved) = build::moved(old, &edits) {
            let table = Arc::new(build::with_pins(old, told.clone(), &moved, &self.revisions)?);
            self.current.store(table.clone());
            if let Some(counted) = &mut *self.counted.lock() {
                counted.follow(old, &table, &moved);
            }
            for PinChange { tenant, model, version } in &moved.pins {
                tracing::info!(%tenant, %model, %version, revision = told.revision.0, "pin flipped");
            }
            for Split { tenant, model, version, percent } in &moved.splits {
                tracing::info!(%tenant, %model, %version, percent, revision = told.revision.0, "pin split");
            }
            return Ok(());
        }
        let frame = self.state.lock().frame.clone();
        let config = build::configuration(&frame, told)?;
        self.replace(config, told.clone())?;
        tracing::info!(revision = told.revision.0, edits = edits.len(), "table changed");
        Ok(())
    }

    fn replace(
        &self,
        config: holdfast_config::Config,
        told: Arc<holdfast_plane::Table>,
    ) -> Result<(), holdfast_decide::BuildError> {
        let also = self.state.lock().pinned.clone();
        let old = self.current.load_full();
        let held = self.driver.fleet.held();
        let (mut table, change) =
            build::whole((&self.driver, &self.limits), config, told, &also, &self.revisions, &self.identities)?;
        table.handover = Arc::new(handover::between(&self.driver, &old, &table, &held));
        let change = handover::drain(&self.driver, &table, change);
        self.current.store(Arc::new(table));
        self.driver.retire(&change);
        Ok(())
    }

    /// Takes new settings of the process, or counts a configuration that was refused.
    ///
    /// # Errors
    /// The settings do not fit to the table in force; nothing is changed.
    pub fn offer(&self, offered: Result<Frame, String>) -> Result<(), String> {
        let number = self.state.lock().offers.next();
        let taken = offered.and_then(|frame| self.reframe(frame, number).map_err(|e| e.to_string()));
        let Err(faults) = taken else {
            self.metrics.config_taken(number);
            tracing::info!(config_revision = number.0, "configuration taken");
            self.reframed.notify_one();
            return Ok(());
        };
        tracing::error!(config_revision = number.0, %faults, "the configuration is refused; the last good one stays in force");
        let failed = Failed { revision: number, wall_millis: Clock::wall_millis(), faults: faults.clone() };
        self.state.lock().offers.refused(failed);
        self.metrics.config_refused(number);
        Err(faults)
    }

    /// Reads the files again that settings name and that may have changed without them: key sets.
    pub fn read_again(&self) {
        self.identities.read_again();
    }

    fn reframe(&self, frame: Frame, number: Revision) -> Result<(), StartError> {
        let _building = self.building.lock();
        let old = self.current.load_full();
        let config = build::configuration(&frame, &old.told)?;
        let taken = config.clone();
        // The same table under the same revision: only what this process brings to it is new.
        if self.state.lock().frame.rest != frame.rest {
            self.replace(config, old.told.clone())?;
        }
        let mut state = self.state.lock();
        state.frame = Arc::new(frame);
        state.offers.taken(number, &taken);
        Ok(())
    }

    /// Ends hand-overs whose time is over or that are needed no more.
    pub(super) fn tend_handovers(&self, kept: &mut handover::Held) {
        let orders = self.state.lock().orders.clone();
        let table = self.current.load_full();
        handover::tend(&self.driver, &table, kept, || drop(self.want(&table, &orders)));
    }

    /// Says what should be warm, and gives what pins and orders name.
    fn want(&self, table: &Arc<Table>, orders: &Orders) -> Versions {
        let mut counted = self.counted.lock();
        let kept = counted.take().filter(|counted| counted.holds(table));
        let pins = counted.insert(kept.unwrap_or_else(|| Counted::of(table)));
        wanted::update(&self.driver, table, orders, pins)
    }

    /// What follows from a new table or new orders: warm-up, metrics.
    pub(super) fn publish(&self) {
        let table = self.current.load_full();
        let orders = self.state.lock().orders.clone();
        let pinned = self.want(&table, &orders);
        let differs = std::mem::replace(&mut self.state.lock().pinned, pinned.clone()) != pinned;
        if differs {
            self.driver.pin(&|facts| pinned.contains(&(facts.model.clone(), facts.version.clone())));
        }
        self.shadows.follow(&table, &orders.shadow, &self.metrics);
        self.measures.follow(&orders.measure);
        self.metrics.table_revision.set_u64(table.snapshot.revision().0);
    }
}
