//! The driver of the residency machine: one lock around the pure state, effects carried out as tasks.
//!
//! Flags on cells and answers to waiting requests are set while the lock is held, so that their order is the machine's order; everything that
//! takes time (a load, a verification, an unload) is a task that answers with an event.

mod afar;
mod alarms;
mod company;
mod denial;
mod poll;
mod quarantine;
mod reloads;
mod server;
mod verify;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::{Notify, oneshot};

use holdfast_config::{Config, MemoryPolicy};
use holdfast_net::Tasks;
use holdfast_placement::residency::{
    Alarm, Effect, Event, Forecast, Mode, Op, Outcome, Prospect, ReplicaIx, ReplicaSpec, Report, Residency, Settings,
    Shed, VersionIx, VersionSpec, WaiterId,
};
use holdfast_telemetry::{Clock, GatewayMetrics};
use holdfast_types::{Mono, Version};

use crate::fleet::{Fleet, FleetChange, OnDrained, Pool, Replica, VersionFacts, loads_on_request};

pub use alarms::{AlarmRecord, Alarms};
pub(crate) use company::SeatNumbers;
pub use company::{Afar, Call, Company, Others, Parting};
pub(crate) use server::words;

/// See the module.
pub struct Driver {
    /// The replicas.
    pub fleet: Fleet,
    /// What a person should know.
    pub alarms: Alarms,
    quarantines: quarantine::Quarantines,
    state: Mutex<State>,
    next_waiter: AtomicU64,
    tick: Notify,
    /// Told whenever a version is shown or hidden somewhere, or a replica comes or goes.
    changed: Notify,
    metrics: Arc<GatewayMetrics>,
    /// Where it is one of several.
    company: OnceLock<Arc<Company>>,
    tasks: Tasks,
    me: Weak<Self>,
}

struct State {
    machine: Residency,
    effects: Vec<Effect>,
    /// As many as the machine has waiters, which it bounds.
    waiters: HashMap<WaiterId, oneshot::Sender<Outcome>>,
}

/// Takes a waiter back if the request that waits is dropped.
struct WaiterGuard<'a>(Option<WaiterId>, &'a Driver);

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = self.0.take() {
            self.1.state.lock().waiters.remove(&waiter);
            self.1.apply(Event::Cancel { waiter });
        }
    }
}

impl Driver {
    /// An empty fleet. `workers` run the connections for requests, `tasks` everything else.
    #[must_use]
    pub fn new(workers: Vec<Tasks>, tasks: Tasks, metrics: Arc<GatewayMetrics>) -> Arc<Self> {
        Arc::new_cyclic(|me: &Weak<Self>| {
            let hearer: Weak<dyn OnDrained> = me.clone();
            Self {
                fleet: Fleet::new(workers, tasks.clone(), hearer),
                alarms: Alarms::new(metrics.clone()),
                quarantines: quarantine::Quarantines::default(),
                state: Mutex::new(State {
                    machine: Residency::new(Settings::default()),
                    effects: Vec::new(),
                    waiters: HashMap::new(),
                }),
                next_waiter: AtomicU64::new(1),
                tick: Notify::new(),
                changed: Notify::new(),
                metrics,
                company: OnceLock::new(),
                tasks,
                me: me.clone(),
            }
        })
    }

    /// Where everything runs that is no request.
    #[must_use]
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Gives the machine an event and carries out what it asks for. Does not block.
    pub fn apply(&self, event: Event) {
        self.apply_all([event]);
    }

    /// Gives the machine several events as one.
    pub fn apply_all(&self, events: impl IntoIterator<Item = Event>) {
        let mut events: SmallVec<[Event; 4]> = events.into_iter().collect();
        let mut state = self.state.lock();
        let before = state.machine.next_deadline();
        while !events.is_empty() {
            let State { machine, effects, .. } = &mut *state;
            machine.apply_all(Clock::now(), events.drain(..), &self.fleet, effects);
            let mut effects = std::mem::take(&mut state.effects);
            for effect in effects.drain(..) {
                self.carry_out(effect, &mut state, &mut events);
            }
            // Keeps the allocation.
            state.effects = effects;
        }
        if state.machine.next_deadline() != before {
            self.tick.notify_one();
        }
    }

    fn carry_out(&self, effect: Effect, state: &mut State, events: &mut SmallVec<[Event; 4]>) {
        match effect {
            Effect::Show { replica, version } => {
                if let Some(cell) = self.fleet.cell(replica, version) {
                    cell.show();
                }
                self.changed.notify_waiters();
            }
            Effect::Hide { replica, version } => {
                if self.fleet.cell(replica, version).is_none_or(|cell| cell.hide()) {
                    events.push(Event::Drained { replica, version });
                }
                self.changed.notify_waiters();
            }
            Effect::Wake { waiter, outcome } => {
                if let Some(waiting) = state.waiters.remove(&waiter) {
                    // The request may have been dropped in between: then nobody wants to know.
                    let _ = waiting.send(outcome);
                }
            }
            Effect::Alarm(alarm) => {
                if let Alarm::VerificationFailed { replica, version, .. } = &alarm {
                    self.quarantines.begin(*replica, *version);
                }
                self.alarms.raise(&self.fleet, &alarm);
            }
            Effect::Load { op, replica, version, deadline } => self.start_load(op, replica, version, deadline),
            Effect::Verify { op, replica, version, deadline } => self.start_verify(op, replica, version, deadline),
            Effect::Unload { op, replica, version, deadline } => self.start_unload(op, replica, version, deadline),
        }
    }

    /// Runs a task beside the workers.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Waits until one of the candidates holds the version, at most to the deadline.
    ///
    /// # Cancel safety
    /// Cancel safe: the machine forgets the waiter; a load that has begun goes on.
    pub async fn want(&self, version: VersionIx, candidates: Vec<ReplicaIx>, deadline: Mono) -> Option<Outcome> {
        match self.company.get().filter(|company| !company.is_alone()) {
            None => self.want_here(version, candidates, deadline).await,
            Some(company) => Box::pin(self.want_of_all(company, version, candidates, deadline)).await,
        }
    }

    async fn want_here(&self, version: VersionIx, candidates: Vec<ReplicaIx>, deadline: Mono) -> Option<Outcome> {
        let waiter = WaiterId(self.next_waiter.fetch_add(1, Relaxed));
        let (send, receive) = oneshot::channel();
        self.state.lock().waiters.insert(waiter, send);
        let mut guard = WaiterGuard(Some(waiter), self);
        self.apply(Event::Want { waiter, version, candidates: candidates.clone(), deadline });
        let outcome = receive.await.ok();
        guard.0 = None;
        outcome.map(|outcome| self.until_release(outcome, version, &candidates))
    }

    /// A replica answered that it does not hold what it was believed to hold. What is true is asked at once.
    pub fn missed(&self, replica: ReplicaIx, version: VersionIx) {
        self.apply(Event::Missing { replica, version });
        self.refresh(replica);
    }

    fn refresh(&self, replica: ReplicaIx) {
        if let Some(replica) = self.fleet.replica(replica) {
            replica.refresh.notify_one();
        }
    }

    /// What [`Driver::want`] would come to, without changing anything. Not for the request path.
    #[must_use]
    pub fn forecast(&self, version: VersionIx, candidates: &[ReplicaIx], budget: Duration) -> Forecast {
        let machine = self.state.lock().machine.clone();
        let mut forecast = machine.forecast(Clock::now(), version, candidates, budget, &self.fleet);
        forecast.answer = forecast.answer.map(|outcome| self.until_release(outcome, version, candidates));
        forecast
    }

    /// How a version stands on a replica. Not for the request path.
    #[must_use]
    pub fn prospect(&self, replica: ReplicaIx, version: VersionIx) -> Prospect {
        let mut prospect = self.state.lock().machine.prospect(Clock::now(), replica, version, &self.fleet);
        if prospect.hindered == Some(Shed::Quarantined) {
            prospect.retry = self.quarantines.next_proof(version, &[replica]);
        }
        prospect
    }

    /// A copy of the machine's state.
    #[must_use]
    pub fn report(&self) -> Report {
        self.state.lock().machine.report()
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let state = self.state.lock();
        // They are the same unless one of the two forgets somebody.
        state.waiters.len().max(state.machine.waiting())
    }

    /// Waits until holdings may have changed, at most this long.
    pub async fn changed(&self, most: Duration) {
        let _ = tokio::time::timeout(most, self.changed.notified()).await;
    }

    /// Brings into fleet and machine what the configuration says. What it no longer says stays until [`Driver::retire`].
    pub fn configure(&self, config: &Config, pinned: &dyn Fn(VersionIx) -> bool) -> FleetChange {
        let change = self.fleet.configure(config, Clock::now());
        let mut events = vec![Event::SetSettings(Settings {
            fleet_loads: config.loads.fleet.get(),
            thrash_window: config.pools.iter().map(|p| p.thrash_window).max().unwrap_or(Duration::from_secs(60)),
            max_waiters: config.limits.waiting as usize,
            ..Settings::default()
        })];
        for pool in self.fleet.pools() {
            for version in &pool.versions {
                let spec = VersionSpec { size: version.size, pinned: pinned(version.ix) };
                events.push(Event::SetVersion { version: version.ix, spec });
            }
            let set = |replica: &Arc<Replica>| Event::SetReplica { replica: replica.ix, spec: spec(&pool, replica) };
            events.extend(pool.replicas.iter().map(set));
        }
        events.extend(change.reprove.iter().map(|replica| Event::ObservationLost { replica: *replica }));
        self.quarantines.inherit(&change);
        self.apply_all(events);
        self.own_again();
        change.reprove.iter().for_each(|replica| self.quarantines.hasten(*replica));
        change.reprove.iter().for_each(|replica| self.refresh(*replica));
        change
    }

    /// Says which versions are pinned; of the others the least used go first.
    pub fn pin(&self, pinned: &dyn Fn(&VersionFacts) -> bool) {
        let pools = self.fleet.pools();
        let versions = pools.iter().flat_map(|pool| pool.versions.iter()).map(|facts| {
            let spec = VersionSpec { size: facts.size, pinned: pinned(facts) };
            Event::SetVersion { version: facts.ix, spec }
        });
        self.apply_all(versions);
    }

    /// Keeps replicas that are no longer configured for what they hold: they are polled and serve, and are given nothing to load.
    pub fn drain(&self, replicas: &[Arc<Replica>]) {
        let draining = replicas.iter().filter_map(|replica| Some((replica, self.fleet.pool(&replica.pool)?)));
        let events = draining.flat_map(|(replica, pool)| {
            replica.drain();
            let spec = ReplicaSpec { max_loads: 0, ..spec(&pool, replica) };
            [
                Event::SetReplica { replica: replica.ix, spec },
                Event::SetWanted { replica: replica.ix, versions: Vec::new() },
            ]
        });
        self.apply_all(events.collect::<Vec<_>>());
    }

    /// Lets go what a configuration no longer says, once the table made from it is in force.
    pub fn retire(&self, change: &FleetChange) {
        self.fleet.retire(change);
        self.quarantines.forget(change);
        let replicas = change.removed.iter().map(|r| Event::RemoveReplica { replica: r.ix });
        let versions = change.removed_versions.iter().map(|version| Event::RemoveVersion { version: *version });
        self.apply_all(replicas.chain(versions));
    }

    /// The task that tells the machine that time has passed, and the replicas too. Ends with the process.
    pub fn run(self: &Arc<Self>) {
        let me = self.clone();
        self.tasks.spawn(async move {
            loop {
                let next = me.state.lock().machine.next_deadline();
                let beat = Clock::now().after(Duration::from_millis(250));
                let until = next.map_or(beat, |at| at.min(beat));
                let _ = tokio::time::timeout_at(Clock::instant(until), me.tick.notified()).await;
                if next.is_some_and(|at| at <= Clock::now()) {
                    me.apply(Event::Tick);
                }
                me.tick_replicas();
                me.fleet.forget(|version| !me.state.lock().machine.knows(version));
                me.fleet.forget_replicas(|server| me.state.lock().machine.loads_of(server) > 0);
            }
        });
    }

    fn tick_replicas(&self) {
        let now = Clock::now();
        let mut moved = false;
        for replica in self.fleet.replicas() {
            moved |= replica.tick(now);
        }
        if moved {
            self.changed.notify_waiters();
        }
    }

    fn arc(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    fn load_finished(&self, op: Op, replica: ReplicaIx, result: Result<(), server::CallError>, took: Duration) {
        let pool = self.fleet.replica(replica).map(|r| r.pool.clone());
        if let Some(pool) = &pool {
            let outcome = if result.is_ok() { "ok" } else { "failed" };
            self.metrics.loads.get([pool.as_str(), outcome]).inc();
            self.metrics.load_seconds.get([pool.as_str()]).observe(took);
        }
        self.apply(Event::LoadDone { op, result: result.map(|()| None).map_err(Into::into) });
        self.refresh(replica);
    }

    /// What people call a version.
    #[must_use]
    pub fn version_name(&self, ix: VersionIx) -> Option<(String, Version)> {
        self.fleet.version(ix).map(|v| (v.model.to_string(), v.version.clone()))
    }
}

/// A replica as the machine knows it.
fn spec(pool: &Pool, replica: &Replica) -> ReplicaSpec {
    let mode = match pool.config.memory {
        MemoryPolicy::Guaranteed => Mode::Guaranteed,
        MemoryPolicy::Overcommit => Mode::Overcommit,
    };
    ReplicaSpec {
        pool: pool.ix,
        server: replica.server,
        memory: pool.replica_config(replica.name.as_str()).and_then(|r| r.memory),
        loads: loads_on_request(pool.config.residency),
        max_loads: pool.config.loads.per_replica.get(),
        mode,
        load_timeout: Some(pool.config.loads.timeout),
        thrash_window: Some(pool.config.thrash_window),
    }
}

impl OnDrained for Driver {
    fn drained(&self, replica: ReplicaIx, version: VersionIx) {
        // Not from here: the caller may be anywhere, and the lock is not reentrant.
        let Some(me) = self.arc() else { return };
        self.tasks.spawn(async move { me.apply(Event::Drained { replica, version }) });
    }
}

/// The last alarms, newest last.
type Recent = VecDeque<AlarmRecord>;
