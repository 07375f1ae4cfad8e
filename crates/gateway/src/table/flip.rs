//! The keeper of the table: takes configurations in, holds pins back until they are ready, flips them, saves what is in force.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::Notify;

use holdfast_config::{Config, Loaded};
use holdfast_decide::{PinChange, Snapshot};
use holdfast_net::{Drain, Tasks};
use holdfast_telemetry::{Clock, GatewayMetrics};
use holdfast_types::{ModelName, ReplicaName, Revision, Version};

use super::compile::{Plan, moved_and_changed, pins_of, plan};
use super::kept::pinned_models;
use super::names::{Called, called, collision};
use super::persist::{PersistError, Persisted, StateFile};
use super::revision::Revisions;
use super::watch::Watch;
use super::{Table, compile, wanted};
use crate::fit::{FitError, check_fit, check_flips};
use crate::fleet::FleetChange;
use crate::residency::Driver;
use crate::settings::Settings;

/// Reads the configuration anew: the file, the environment, all checks. The error is for people, every fault in it.
pub type Reload = Box<dyn Fn() -> Result<Loaded, String> + Send + Sync>;

/// A configuration that was refused.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Its number in the count of configurations.
    pub revision: Revision,
    /// When, in milliseconds since 1970 (UTC).
    pub wall_millis: u64,
    /// Every fault.
    pub faults: String,
}

/// A pin that waits for its new version to be ready.
#[derive(Clone, Debug)]
pub struct PendingPin {
    /// Where it goes.
    pub change: PinChange,
    /// Replicas of its subset that do not hold the new version yet.
    pub waiting_for: Vec<ReplicaName>,
}

/// What people ask about the table.
#[derive(Clone, Debug)]
pub struct Status {
    /// The count of configurations offered so far that was taken last.
    pub config_revision: Revision,
    /// The last configuration that was refused, if none was taken since.
    pub failed: Option<Failed>,
    /// Pins on their way.
    pub pending: Vec<PendingPin>,
    /// Changes that only a restart brings in force.
    pub restart_needed: Vec<&'static str>,
    /// Why what is in force could not be saved, if it could not.
    pub unsaved: Option<String>,
}

struct State {
    offered: u64,
    taken: u64,
    failed: Option<Failed>,
    /// The file's own configuration, without kept versions.
    desired: Arc<Config>,
    pending: Vec<PinChange>,
    /// What this process started with of the parts that it does not change while it runs.
    fixed: Fixed,
    unsaved: Option<String>,
    /// The highest revision that may be given: the saved state says that it may be in use.
    reserved: Revision,
}

/// Revisions that may be given while the state cannot be saved.
const AHEAD: u64 = 64;

/// The parts of a configuration that only a restart brings in force.
#[derive(Clone, Debug, PartialEq)]
struct Fixed {
    listen: holdfast_config::Listen,
    workers: Option<std::num::NonZeroU32>,
    state: PathBuf,
    log: holdfast_config::Log,
    metrics: holdfast_config::Metrics,
}

impl Fixed {
    fn of(config: &Config) -> Self {
        Self {
            listen: config.listen.clone(),
            workers: config.workers,
            state: config.state.clone(),
            log: config.log.clone(),
            metrics: config.metrics.clone(),
        }
    }

    /// The names of those parts in which another one differs.
    fn differing(&self, other: &Self) -> Vec<&'static str> {
        let parts = [
            ("listen", self.listen != other.listen),
            ("workers", self.workers != other.workers),
            ("state", self.state != other.state),
            ("log", self.log != other.log),
            ("metrics", self.metrics != other.metrics),
        ];
        parts.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

/// See the module.
pub struct Tables {
    current: ArcSwap<Table>,
    /// Revisions with requests in flight.
    pub revisions: Revisions,
    state: Mutex<State>,
    driver: Arc<Driver>,
    metrics: Arc<GatewayMetrics>,
    file: StateFile,
    /// Asks for a reload at once.
    pub reload_now: Notify,
}

impl Tables {
    /// The first table: the configuration, with the pins that were in force when the state was last saved.
    ///
    /// # Errors
    /// The state folder cannot be used, or the table cannot be built.
    pub fn start(config: Config, driver: Arc<Driver>, metrics: Arc<GatewayMetrics>) -> Result<Arc<Self>, StartError> {
        check_fit(&config)?;
        let file = StateFile::in_folder(&config.state)?;
        let saved = file.read()?.unwrap_or_default();
        // What is saved of the old configuration is what its pins need of it.
        let old = Config { models: saved.kept, ..Config::default() };
        if let Some(why) = moved_and_changed(&config, &old, &saved.pins) {
            tracing::warn!(%why, "a pin changes with this start");
        }
        let mut plan = plan(&config, &old, &saved.pins);
        if let Some(why) = collision(&config, called(&plan.effective)) {
            tracing::warn!(%why, "versions that are gone from the file are not kept");
            plan = compile::plan(&config, &Config::default(), &saved.pins);
        }
        let revisions = Revisions::default();
        let (table, _) = build(&driver, plan.effective, plan.input, Revision(saved.reserved.0 + 1), &revisions)?;
        let state = State {
            offered: 1,
            taken: 1,
            failed: None,
            fixed: Fixed::of(&config),
            desired: Arc::new(config),
            pending: plan.pending,
            unsaved: None,
            reserved: saved.reserved,
        };
        let this = Arc::new(Self {
            current: ArcSwap::from_pointee(table),
            revisions,
            state: Mutex::new(state),
            driver,
            metrics,
            file,
            reload_now: Notify::new(),
        });
        this.metrics.config_taken(Revision(1));
        this.save(&this.current.load_full(), AHEAD)?;
        this.publish();
        Ok(this)
    }

    /// The table in force. One atomic read; hold it only for the moment.
    #[must_use]
    pub fn load(&self) -> Guard<Arc<Table>> {
        self.current.load()
    }

    /// The state of things, for people.
    #[must_use]
    pub fn status(&self) -> Status {
        let table = self.current.load_full();
        let state = self.state.lock();
        let pending = state
            .pending
            .iter()
            .map(|change| PendingPin { change: change.clone(), waiting_for: self.waiting_for(&table, change) });
        Status {
            config_revision: Revision(state.taken),
            failed: state.failed.clone(),
            pending: pending.collect(),
            restart_needed: state.fixed.differing(&Fixed::of(&state.desired)),
            unsaved: state.unsaved.as_ref().map(|why| match table.snapshot.revision() < state.reserved {
                true => why.clone(),
                false => format!(
                    "{why}; no reserved revision is left, so pins are held and reloads refused until it can be saved"
                ),
            }),
        }
    }

    fn waiting_for(&self, table: &Table, change: &PinChange) -> Vec<ReplicaName> {
        let cells = wanted::target(table, change).and_then(|route| wanted::cells(&self.driver, table, &route));
        let missing = cells.unwrap_or_default().into_iter().filter(|cell| !cell.holds());
        missing.map(|cell| cell.replica.name.clone()).collect()
    }

    /// Runs until the process ends: reloads when asked or when the file has changed, flips pins when they are ready.
    pub fn run(self: &Arc<Self>, mut watch: Watch, reload: Reload, drain: Drain, tasks: &Tasks) {
        let me = self.clone();
        tasks.spawn(async move {
            let mut next_look = Clock::now();
            let mut in_service = me.in_service();
            while !drain.started() {
                let asked = tokio::select! {
                    () = me.reload_now.notified() => true,
                    () = me.driver.changed(Duration::from_millis(250)) => false,
                };
                let look = Clock::now() >= next_look;
                if look {
                    next_look = Clock::now().after(Duration::from_millis(500));
                    me.save_again();
                }
                if asked {
                    // Who asks has often just written the file: one reading is enough for both.
                    watch.take();
                }
                if asked || (look && watch.changed()) {
                    me.offer(reload());
                }
                let now_in_service = me.in_service();
                if now_in_service != in_service {
                    in_service = now_in_service;
                    wanted::update(&me.driver, &me.current.load_full(), &me.state.lock().pending);
                }
                me.flip_ready();
            }
            me.close();
        });
    }

    fn in_service(&self) -> Vec<bool> {
        let table = self.current.load();
        table.pools.iter().flat_map(|p| p.replicas.iter().map(|r| r.in_service())).collect()
    }

    /// Takes a configuration in, whole or not at all.
    pub fn offer(&self, offered: Result<Loaded, String>) {
        let number = {
            let mut state = self.state.lock();
            state.offered += 1;
            Revision(state.offered)
        };
        let taken = offered.and_then(|loaded| self.adopt(loaded, number));
        let Err(faults) = taken else { return };
        tracing::error!(config_revision = number.0, %faults, "the configuration is refused; the last good one stays in force");
        self.state.lock().failed = Some(Failed { revision: number, wall_millis: Clock::wall_millis(), faults });
        self.metrics.config_refused(number);
    }

    fn adopt(&self, loaded: Loaded, number: Revision) -> Result<(), String> {
        check_fit(&loaded.config).map_err(|e| e.to_string())?;
        let old = self.current.load_full();
        if loaded.config.pools.is_empty() && !old.config.pools.is_empty() {
            return Err("the file has no pools any more; an emptied file is taken for a mistake".to_owned());
        }
        let Plan { effective, pending, input } = self.plan_reload(&loaded.config, &old)?;
        let revision = Revision(old.snapshot.revision().0 + 1);
        self.reserve(revision)
            .map_err(|e| format!("no reserved revision is left and the state cannot be saved: {e}"))?;
        let (table, change) =
            build(&self.driver, effective, input, revision, &self.revisions).map_err(|e| e.to_string())?;
        self.put_in_force(Arc::new(table));
        self.driver.retire(&change);
        {
            let mut state = self.state.lock();
            state.taken = number.0;
            state.failed = None;
            state.desired = Arc::new(loaded.config);
            state.pending = pending;
        }
        self.metrics.config_taken(number);
        tracing::info!(config_revision = number.0, revision = revision.0, "configuration taken");
        self.publish();
        Ok(())
    }

    /// What a new configuration means, if it can take the old one's place without a gap.
    fn plan_reload(&self, config: &Config, old: &Table) -> Result<Plan, String> {
        let in_force = pins_of(&old.snapshot);
        let plan = plan(config, &old.config, &in_force);
        let retired = self.driver.fleet.pools().into_iter().flat_map(|pool| {
            self.driver.fleet.retired(&pool.name).into_iter().map(move |facts| Called {
                pool: pool.name.clone(),
                model: facts.model.clone(),
                version: facts.version.clone(),
                name: facts.upstream_model.clone(),
            })
        });
        let fault = moved_and_changed(config, &old.config, &in_force)
            .or_else(|| collision(config, called(&plan.effective).chain(called(&old.config)).chain(retired)));
        fault.map_or(Ok(()), Err)?;
        check_flips(&plan.effective, &plan.input, &plan.pending).map_err(|e| e.to_string())?;
        Ok(plan)
    }

    /// Flips every pin whose new version is ready, all of them in one new table.
    fn flip_ready(&self) {
        let table = self.current.load_full();
        let ready: Vec<PinChange> = {
            let state = self.state.lock();
            state.pending.iter().filter(|change| self.is_ready(&table, change)).cloned().collect()
        };
        if ready.is_empty() {
            return;
        }
        let revision = Revision(table.snapshot.revision().0 + 1);
        if self.reserve(revision).is_err() {
            return;
        }
        let snapshot = match table.snapshot.with_pins(revision, &ready) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                tracing::error!(%error, "pins cannot be flipped");
                return;
            }
        };
        self.put_in_force(Arc::new(Table {
            stamp: stamp(revision),
            usage: self.revisions.begin(revision),
            snapshot,
            pools: table.pools.clone(),
            settings: table.settings.clone(),
            config: table.config.clone(),
        }));
        for change in &ready {
            let PinChange { tenant, model, version } = change;
            tracing::info!(%tenant, %model, %version, revision = revision.0, "pin flipped");
        }
        self.state.lock().pending.retain(|change| !ready.contains(change));
        self.drop_kept_versions();
        self.publish();
    }

    fn is_ready(&self, table: &Table, change: &PinChange) -> bool {
        let cells = wanted::target(table, change).and_then(|route| wanted::cells(&self.driver, table, &route));
        cells.is_some_and(|cells| cells.iter().all(|cell| cell.holds()))
    }

    /// Once the last held-back pin has moved, versions that the file no longer has are let go.
    fn drop_kept_versions(&self) {
        let table = self.current.load_full();
        let desired = {
            let state = self.state.lock();
            if !state.pending.is_empty() || table.config.models == state.desired.models {
                return;
            }
            state.desired.clone()
        };
        let plan = plan(&desired, &table.config, &pins_of(&table.snapshot));
        let revision = table.snapshot.revision();
        match build(&self.driver, plan.effective, plan.input, revision, &self.revisions) {
            Ok((table, change)) => {
                self.current.store(Arc::new(table));
                self.driver.retire(&change);
            }
            Err(error) => tracing::error!(%error, "versions that are gone from the file cannot be let go"),
        }
    }

    /// What follows from a new table: warm-up, metrics.
    fn publish(&self) {
        let table = self.current.load_full();
        wanted::update(&self.driver, &table, &self.state.lock().pending.clone());
        self.metrics.table_revision.set_u64(table.snapshot.revision().0);
    }

    /// Saves first: a revision that a client may have seen is never given a second time with other pins, also if the process dies in between.
    /// A table that cannot be saved is in force all the same, if its revision is reserved.
    fn put_in_force(&self, table: Arc<Table>) {
        if let Err(error) = self.save(&table, AHEAD) {
            tracing::error!(%error, "the state cannot be saved");
        }
        self.current.store(table);
    }

    /// Whether a revision may be given: a process that starts after this one's death goes on above it.
    fn reserve(&self, revision: Revision) -> Result<(), PersistError> {
        if revision <= self.state.lock().reserved { Ok(()) } else { self.save(&self.current.load_full(), AHEAD) }
    }

    /// The last table is in force: none of the reserved revisions will be given, so the next process goes on from here.
    fn close(&self) {
        if let Err(error) = self.save(&self.current.load_full(), 0) {
            tracing::warn!(%error, "the state cannot be saved");
        }
    }

    fn save(&self, table: &Table, ahead: u64) -> Result<(), PersistError> {
        let (revision, pins) = (table.snapshot.revision(), pins_of(&table.snapshot));
        let kept = pinned_models(&table.config, &pins);
        let saved_state = Persisted { revision, reserved: Revision(revision.0 + ahead), pins, kept };
        let saved = self.file.write(&saved_state);
        let mut state = self.state.lock();
        state.unsaved = saved.as_ref().err().map(ToString::to_string);
        if saved.is_ok() {
            state.reserved = saved_state.reserved;
        }
        drop(state);
        saved
    }

    /// What could not be saved is tried again, so that a disk that was full for a while costs nothing.
    fn save_again(&self) {
        let unsaved = self.state.lock().unsaved.is_some();
        if unsaved && self.save(&self.current.load_full(), AHEAD).is_ok() {
            tracing::info!("the state is saved after all");
        }
    }
}

/// Why there is no first table.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state folder.
    #[error(transparent)]
    State(#[from] PersistError),
    /// Pins that are guaranteed do not fit.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// The parts of the table do not fit together.
    #[error("the table cannot be built: {0}")]
    Build(#[from] holdfast_decide::BuildError),
}

/// A table, and what of the fleet is to be let go once it is in force.
fn build(
    driver: &Arc<Driver>,
    config: Config,
    input: holdfast_decide::TableInput,
    revision: Revision,
    revisions: &Revisions,
) -> Result<(Table, FleetChange), holdfast_decide::BuildError> {
    // What the file pins, and what is pinned in force until the file's pins can be.
    let desired = config.tenants.iter().flat_map(|t| t.pins.iter().map(|(m, v)| (m.clone(), v.clone())));
    let in_force = input.tenants.iter().flat_map(|t| t.pins.iter().cloned());
    let pinned: std::collections::BTreeSet<(ModelName, Version)> = desired.chain(in_force).collect();
    let snapshot = Snapshot::build(revision, input)?;
    let is_pinned = |ix| {
        let facts = driver.fleet.version(ix);
        facts.is_some_and(|f| pinned.contains(&(f.model.clone(), f.version.clone())))
    };
    let change = driver.configure(&config, &is_pinned);
    driver.poll_replicas(&change.added);
    let pools = snapshot.pools().iter().filter_map(|p| driver.fleet.pool(&p.name)).collect();
    let table = Table {
        stamp: stamp(revision),
        usage: revisions.begin(revision),
        snapshot,
        pools,
        settings: Arc::new(Settings::new(&config)),
        config: Arc::new(config),
    };
    Ok((table, change))
}

fn stamp(revision: Revision) -> HeaderValue {
    HeaderValue::from(revision.0)
}
