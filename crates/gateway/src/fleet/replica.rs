//! One model server: how to reach it, what it is doing for us, whether it is well.
//!
//! The request path reads atomics only. The health machine behind them is locked when something noteworthy happens (a failure, a probe), never
//! for a request that succeeds while nothing is wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::Notify;

use holdfast_config as config;
use holdfast_net::{Bound, Connector, Fetch, ReplicaPool, Target, Tasks};
use holdfast_placement::choose::{Candidate, FULL_SHARE};
use holdfast_placement::health::{Health, HealthConfig, HealthEvent, Transition};
use holdfast_placement::residency::{ReplicaIx, ServerIx};
use holdfast_types::{ModelName, Mono, PoolName, ReplicaName, Version, Weight};

use super::loading::Loads;
use crate::upstream_body::UpstreamBody;

/// The most names of strangers that are told.
const STRANGERS: usize = 20;

/// See the module.
pub struct Replica {
    /// Its number in the residency machine.
    pub ix: ReplicaIx,
    /// The server behind it.
    pub server: ServerIx,
    /// Its pool.
    pub pool: PoolName,
    /// Its stable name.
    pub name: ReplicaName,
    /// Where it is.
    pub endpoint: config::Endpoint,
    /// The name as a stamp.
    pub stamp: HeaderValue,
    /// `host` for its requests.
    pub authority: HeaderValue,
    /// For probes, loads and everything else off the request path.
    pub fetch: Fetch,
    /// For polls alone, so that a new connection of theirs tells of a server that was started anew.
    pub probe: Fetch,
    /// Asks for a poll at once.
    pub refresh: Notify,
    /// For sockets that are passed through.
    connector: Arc<Connector>,
    workers: Box<[Arc<ReplicaPool<UpstreamBody>>]>,
    /// The connections for requests, of all workers.
    bound: Arc<Bound<UpstreamBody>>,
    /// For copies of requests, which never take a connection of the requests themselves.
    copy_connections: Arc<ReplicaPool<UpstreamBody>>,
    in_flight: AtomicU32,
    pub(super) loads: Loads,
    copies: AtomicU32,
    /// The bound on connections for requests.
    connections: AtomicU32,
    weight: AtomicU32,
    /// 0: no bound.
    concurrency: AtomicU32,
    health: Mutex<Health>,
    usable: AtomicBool,
    in_service: AtomicBool,
    cooling: AtomicBool,
    ease: AtomicU16,
    /// A failure has been seen since the last success.
    ailing: AtomicBool,
    /// Something about its health changes with time alone.
    unsteady: AtomicBool,
    removed: AtomicBool,
    draining: AtomicBool,
    declared: Mutex<Arc<[(ModelName, Version)]>>,
    /// It went or came back, and the residency machine has not been told yet.
    turning: AtomicBool,
    last_error: Mutex<Option<Box<str>>>,
    strangers: Mutex<Vec<String>>,
    last_poll: AtomicU64,
}

impl Replica {
    pub(super) fn new(
        (ix, server): (ReplicaIx, ServerIx),
        pool: &config::Pool,
        replica: &config::Replica,
        workers: &[Tasks],
        control: &Tasks,
        now: Mono,
    ) -> Self {
        let target = || Target::new(&replica.endpoint.host, replica.endpoint.port);
        let connector = Arc::new(Connector::new(target()));
        let bound = Bound::new(pool.connections.per_replica.get());
        let authority = replica.endpoint.to_string();
        let control_connector = Arc::new(Connector::new(target()));
        let header = |text: &str| HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("unknown"));
        let this = Self {
            ix,
            server,
            pool: pool.name.clone(),
            name: replica.name.clone(),
            endpoint: replica.endpoint.clone(),
            stamp: header(replica.name.as_str()),
            authority: header(&authority),
            probe: Fetch::new(control_connector.clone(), &authority, control.clone()).kept(),
            fetch: Fetch::new(control_connector, &authority, control.clone()),
            refresh: Notify::new(),
            workers: workers.iter().map(|tasks| ReplicaPool::new(connector.clone(), &bound, tasks.clone())).collect(),
            bound,
            connector,
            copy_connections: ReplicaPool::new(
                Arc::new(Connector::new(target())),
                &Bound::new(COPIES),
                control.clone(),
            ),
            in_flight: AtomicU32::new(0),
            loads: Loads::default(),
            copies: AtomicU32::new(0),
            connections: AtomicU32::new(pool.connections.per_replica.get()),
            weight: AtomicU32::new(replica.weight.0),
            concurrency: AtomicU32::new(replica.concurrency.map_or(0, std::num::NonZeroU32::get)),
            health: Mutex::new(Health::new(health_config(&pool.health), now)),
            usable: AtomicBool::new(true),
            in_service: AtomicBool::new(true),
            cooling: AtomicBool::new(false),
            ease: AtomicU16::new(FULL_SHARE),
            ailing: AtomicBool::new(false),
            unsteady: AtomicBool::new(true),
            removed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            declared: Mutex::new(replica.holds.as_slice().into()),
            turning: AtomicBool::new(false),
            last_error: Mutex::default(),
            strangers: Mutex::default(),
            last_poll: AtomicU64::new(0),
        };
        this.publish(now);
        this
    }

    /// Takes over what may change without a new identity.
    pub(super) fn reconfigure(&self, pool: &config::Pool, replica: &config::Replica) {
        self.draining.store(false, Relaxed);
        *self.declared.lock() = replica.holds.as_slice().into();
        self.weight.store(replica.weight.0, Relaxed);
        self.concurrency.store(replica.concurrency.map_or(0, std::num::NonZeroU32::get), Relaxed);
        self.connections.store(pool.connections.per_replica.get(), Relaxed);
        self.bound.set_most(pool.connections.per_replica.get());
        self.health.lock().set_config(health_config(&pool.health));
    }

    /// The connections of one worker to this replica.
    #[must_use]
    pub fn connections(&self, worker: usize) -> Option<&Arc<ReplicaPool<UpstreamBody>>> {
        self.workers.get(worker)
    }

    /// The connections for copies, of the runtime beside the workers.
    #[must_use]
    pub fn copy_connections(&self) -> &Arc<ReplicaPool<UpstreamBody>> {
        &self.copy_connections
    }

    /// Closes connections that have been idle for too long; opens some while there are fewer than `warm`, so that a request need not wait for one. They
    /// go round the workers.
    pub fn tend_connections(&self, idle: Duration, connect: Duration, warm: u32) {
        self.copy_connections.reap(idle);
        self.workers.iter().for_each(|pool| pool.reap(idle));
        if !self.usable() {
            return;
        }
        let first = self.bound.open() as usize;
        let missing = (warm as usize).saturating_sub(first);
        let mut pools = self.workers.iter().cycle().skip(first % self.workers.len().max(1)).take(missing);
        // As many as are seen to be missing and no more: who is in use now will be idle again.
        while pools.next().is_some_and(|pool| pool.open_spare(warm, connect)) {}
    }

    /// Counts a request in, if there is a place for it: who looked before it came in may have seen the same place.
    pub(super) fn count_in(&self) -> bool {
        let most = self.concurrency.load(Relaxed);
        if most == 0 {
            self.in_flight.fetch_add(1, Relaxed);
            return true;
        }
        self.in_flight.fetch_update(Relaxed, Relaxed, |count| (count < most).then_some(count + 1)).is_ok()
    }

    pub(super) fn count_out(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    pub(super) fn count_copy_in(&self) {
        self.copies.fetch_add(1, Relaxed);
    }

    pub(super) fn count_copy_out(&self) {
        self.copies.fetch_sub(1, Relaxed);
    }

    /// Requests in flight from this gateway, over all versions, copies among them.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed) + self.copies.load(Relaxed)
    }

    /// Opens a connection for a socket that is passed through.
    ///
    /// # Errors
    /// What the operating system says, or that it took longer than `most`.
    pub async fn connect(&self, most: Duration) -> std::io::Result<tokio::net::TcpStream> {
        self.connector.connect(most).await
    }

    /// Open connections for requests.
    #[must_use]
    pub fn open_connections(&self) -> u32 {
        self.bound.open()
    }

    /// On how many connections for requests something came after an answer that nobody had asked for.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.bound.strays()
    }

    /// What the choice among candidates looks at.
    #[must_use]
    pub fn candidate(&self, holds: bool) -> Candidate {
        let concurrency = self.concurrency.load(Relaxed);
        Candidate {
            holds,
            usable: self.usable(),
            cooling: self.cooling.load(Relaxed),
            // Without copies: they never are a reason to send a request elsewhere, or to refuse it.
            in_flight: self.in_flight.load(Relaxed),
            reported: self.loads.weigh(),
            // Who is asked at all has a weight in the asker's table. Zero says that the next table, which may not be in force yet, gives it no keys.
            weight: Weight(self.weight.load(Relaxed).max(1)),
            concurrency: (concurrency > 0).then_some(concurrency),
            ease: self.ease.load(Relaxed),
        }
    }

    /// What the choice among candidates for a copy looks at: half of the places for requests (of the connections where there is no bound), copies
    /// counted too, and none while the replica is coming back. So a copy is sent only where live traffic leaves the other half free.
    #[must_use]
    pub fn copy_candidate(&self, holds: bool) -> Candidate {
        let candidate = self.candidate(holds);
        let places = candidate.concurrency.unwrap_or_else(|| self.connections.load(Relaxed));
        Candidate {
            usable: candidate.usable && candidate.ease >= FULL_SHARE,
            in_flight: self.in_flight(),
            concurrency: Some(places / 2),
            ..candidate
        }
    }

    /// Neither ejected nor removed.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.usable.load(Relaxed)
    }

    /// Whether subsets count it.
    #[must_use]
    pub fn in_service(&self) -> bool {
        self.in_service.load(Relaxed)
    }

    /// Whether the configuration no longer has it.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.removed.load(Relaxed)
    }

    /// No longer configured, and serving what it holds until others hold it.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    pub(crate) fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    /// What the file says, or said last, that it holds: for static pools.
    #[must_use]
    pub fn declared(&self) -> Arc<[(ModelName, Version)]> {
        self.declared.lock().clone()
    }

    pub(super) fn remove(&self) {
        self.removed.store(true, Relaxed);
        self.usable.store(false, Relaxed);
        self.in_service.store(false, Relaxed);
        self.refresh.notify_one();
    }

    /// Takes note of what was seen. A success while nothing is wrong costs one atomic read.
    pub fn note(&self, now: Mono, event: HealthEvent) -> Option<Transition> {
        if event == HealthEvent::AnswerOk && !self.ailing.load(Relaxed) {
            return None;
        }
        if event == HealthEvent::ClientError {
            return None;
        }
        let transition = {
            let mut health = self.health.lock();
            let transition = health.apply(now, event);
            // Under the lock, so that no other thread shows the change before the residency machine has heard of it.
            self.turning.fetch_or(transition.is_some(), Relaxed);
            transition
        };
        self.ailing.store(!matches!(event, HealthEvent::AnswerOk), Relaxed);
        self.publish(now);
        transition
    }

    /// Lets requests see that the replica went or came back, now that the residency machine knows.
    pub fn turned(&self, now: Mono) {
        self.turning.store(false, Relaxed);
        self.publish(now);
    }

    /// Copies what the health machine says to where the request path reads it.
    fn publish(&self, now: Mono) {
        if self.is_removed() {
            return;
        }
        let health = self.health.lock();
        if self.turning.load(Relaxed) {
            return;
        }
        self.usable.store(health.usable(), Relaxed);
        self.in_service.store(health.in_service(now), Relaxed);
        self.cooling.store(health.cooling(now), Relaxed);
        self.ease.store(health.ease(now), Relaxed);
        self.unsteady.store(health.next_change(now).is_some(), Relaxed);
    }

    /// Takes note that time has passed. True if the replica came into or went out of service by it.
    pub fn tick(&self, now: Mono) -> bool {
        if !self.unsteady.load(Relaxed) {
            return false;
        }
        let before = self.in_service();
        self.publish(now);
        before != self.in_service()
    }

    /// Sets or clears what went wrong last, for people.
    pub fn set_error(&self, error: Option<String>) {
        *self.last_error.lock() = error.map(|e| e.chars().take(256).collect::<String>().into());
    }

    /// What went wrong last, if the last probe did not succeed.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().as_deref().map(str::to_owned)
    }

    /// Notes what it has loaded that no version is called.
    pub fn set_strangers(&self, mut names: Vec<String>) {
        names.truncate(STRANGERS);
        *self.strangers.lock() = names;
    }

    /// What it has loaded that no version is called: the first of it.
    #[must_use]
    pub fn strangers(&self) -> Vec<String> {
        self.strangers.lock().clone()
    }

    /// Notes when it was last heard of.
    pub fn polled(&self, now: Mono) {
        self.last_poll.store(now.0, Relaxed);
    }

    /// When it was last heard of. `Mono::ZERO`: never.
    #[must_use]
    pub fn last_poll(&self) -> Mono {
        Mono(self.last_poll.load(Relaxed))
    }
}

/// Most copies of requests that one replica is sent at a time, and most connections for them.
const COPIES: u32 = 4;

fn health_config(health: &config::Health) -> HealthConfig {
    HealthConfig {
        fall: health.fall.get(),
        rise: health.rise.get(),
        ease_in: health.ease_in,
        out_of_service_after: health.out_of_service_after,
        ..HealthConfig::default()
    }
}
