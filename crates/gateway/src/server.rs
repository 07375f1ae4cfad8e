//! The running gateway: workers, listeners, and the order in which things start and stop.
//!
//! Each worker is a thread with a runtime of its own, its client connections and its connections to replicas, so that a request never crosses
//! threads. One task accepts and hands each connection to the worker with the fewest. Everything that is not a request runs on a small
//! runtime beside them.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use holdfast_config::{Config, Frame};
use holdfast_net::tls::Entrance;
use holdfast_net::{Admission, Drain, Listener, Tasks, bind};
use holdfast_plane::ControlEnd;
use holdfast_telemetry::{AccessLog, AuditLog, Clock, ExposureLog, GatewayMetrics};
use holdfast_types::FailureKind;

use crate::admin;
use crate::connection::raw_answer;
use crate::limits::AddressAttempts;
use crate::parts::Parts;
use crate::probes::StoreProbe;
use crate::receipts::{Disk, Receipts};
use crate::residency::{Company, Driver};
use crate::results::Results;
use crate::stage::blame::Blame;
use crate::standing::Standing;
use crate::stream::Streams;
use crate::submissions::Submissions;
use crate::table::{StartError, Tables};
use crate::tokens::Given;
use crate::worker::WorkerHandle;

/// Everything that a request can reach.
pub struct Gateway {
    /// The table in force.
    pub tables: Arc<Tables>,
    /// Who holds what.
    pub driver: Arc<Driver>,
    /// Counters.
    pub metrics: Arc<GatewayMetrics>,
    /// The access log.
    pub access: AccessLog,
    /// The audit log.
    pub audit: AuditLog,
    /// Which arms people were given.
    pub exposures: ExposureLog,
    /// The last requests' receipts.
    pub receipts: Receipts,
    /// Whether the table is known to be the control plane's.
    pub standing: Arc<Standing>,
    /// Whether a drain has begun.
    pub drain: Drain,
    /// Rows of models' own failures.
    pub blame: Blame,
    /// How the control plane's store does.
    pub store: Option<StoreProbe>,
    /// Connections that addresses have opened.
    pub attempts: AddressAttempts,
    /// TLS on the data port, if there is any.
    pub data_entrance: Entrance,
    /// Route tokens and the ledger of submissions, where there are any.
    pub submissions: Option<Arc<Submissions>>,
    /// What arms have shown, where that is kept.
    pub results: Option<Arc<Results>>,
    /// What came of requests for tokens.
    pub tokens_given: Given,
    /// WebSockets.
    pub streams: Streams,
}

/// How to run a gateway.
pub struct Options {
    /// The configuration at the start: addresses, workers.
    pub config: Config,
    /// The settings of this process.
    pub frame: Frame,
    /// The first table, and the link that brings the next ones.
    pub control: ControlEnd,
    /// Whether the table is known to be the control plane's.
    pub standing: Arc<Standing>,
    /// Counters.
    pub metrics: Arc<GatewayMetrics>,
    /// The access log.
    pub access: AccessLog,
    /// The audit log.
    pub audit: AuditLog,
    /// Which arms people were given.
    pub exposures: ExposureLog,
    /// Where receipts are kept on disk, if they are.
    pub receipts: Option<Arc<Disk>>,
    /// TLS on the data port, if there is any.
    pub data_entrance: Entrance,
    /// TLS on the admin port, if there is any.
    pub admin_entrance: Entrance,
    /// Whom the admin port lets in.
    pub access_to_admin: admin::Access,
    /// Answers what else is asked on the admin port.
    pub also: Option<admin::Also>,
    /// Tells how the store of the control plane does, where there is one in this process.
    pub store: Option<StoreProbe>,
    /// Where this gateway is one of several: it starts no load before it has a lease.
    pub company: Option<Arc<Company>>,
    /// Told the bound addresses once requests are accepted: data, admin.
    pub ready: Box<dyn FnOnce(SocketAddr, SocketAddr) + Send>,
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A socket cannot be bound.
    #[error("cannot listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// A thread cannot be started.
    #[error("cannot start a worker: {0}")]
    Worker(std::io::Error),
    /// The secrets of route tokens, or the ledger, cannot be used.
    #[error("submissions cannot be kept: {0}")]
    Submissions(String),
    /// There is no table.
    #[error(transparent)]
    Table(#[from] StartError),
}

/// How a gateway stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every request was finished.
    Drained,
    /// The drain's time was over before that.
    TimedOut,
}

/// Runs a gateway until `stop` returns, then drains it. `also` is called once with the gateway and the group for tasks beside it.
///
/// # Errors
/// [`ServeError`], before anything is accepted.
pub async fn serve(
    options: Options,
    stop: impl Future<Output = ()>,
    also: impl FnOnce(Arc<Gateway>, &Tasks),
) -> Result<Stopped, ServeError> {
    let Options {
        config,
        frame,
        control: link,
        standing,
        metrics,
        access,
        audit,
        exposures,
        receipts: on_disk,
        data_entrance,
        admin_entrance: entrance,
        access_to_admin,
        also: resources,
        store,
        company,
        ready,
    } = options;
    let count = worker_count(&config);
    let mut workers = (0..count).map(WorkerHandle::start).collect::<Result<Vec<_>, _>>().map_err(ServeError::Worker)?;
    let control = Tasks::new(tokio::runtime::Handle::current());
    let data = bind(config.listen.data).map_err(|e| ServeError::Listen(config.listen.data, e))?;
    let admin_listener =
        bind(config.listen.admin.address).map_err(|e| ServeError::Listen(config.listen.admin.address, e))?;
    let drain_time = config.timeouts.drain;
    let first = link.view.borrow().clone();
    let tasks = workers.iter().map(|w| w.tasks().clone()).collect();
    let submissions = Submissions::open(&config, metrics.registry()).map_err(ServeError::Submissions)?;
    if let Some(submissions) = &submissions {
        submissions.run(&control);
    }
    let results = config.results.as_ref().map(|results| Results::open(results, &config.state, metrics.registry()));
    if let Some(results) = &results {
        control.spawn(results.clone().run());
    }
    let parts = Parts {
        frame,
        metrics,
        access,
        audit,
        exposures,
        standing,
        store,
        company,
        on_disk,
        submissions,
        results: results.clone(),
        data_entrance,
        workers: tasks,
        control: control.clone(),
    };
    let (gateway, drain_handle) = parts.gateway(&first)?;
    gateway.tables.run(link, gateway.drain.clone(), &control);
    admin::register(&gateway);
    also(gateway.clone(), &control);
    let admission = Admission::new(gateway.tables.load().settings.admission);
    let addresses = (data.address(), admin_listener.address());
    for handle in &mut workers {
        handle.tend(&gateway);
    }
    let served = admin::listen(gateway.clone(), admin_listener, entrance, access_to_admin, resources, control.clone());
    control.spawn(served);
    control.spawn(housekeeping(gateway.clone()));
    let accepting = accept_loop(&gateway, &data, &admission, &workers);
    if let (Ok(data), Ok(admin)) = addresses {
        ready(data, admin);
    }
    {
        let mut accepting = std::pin::pin!(accepting);
        let mut stop = std::pin::pin!(stop);
        tokio::select! {
            () = &mut accepting => {}
            () = &mut stop => {}
        }
        // Not ready at once, but still accepting for a moment: whoever balances over gateways needs time to see it.
        drain_handle.start();
        let _ = tokio::time::timeout(DRAIN_ACCEPT.min(drain_time / 4), &mut accepting).await;
        data.take_no_more();
        let _ = tokio::time::timeout(DRAIN_BEGUN.min(drain_time / 4), &mut accepting).await;
    }
    // From here on a client is refused at once, instead of waiting in the backlog for an answer that never comes.
    for (stream, peer) in data.close() {
        take_in(&gateway, &admission, &workers, stream, peer);
    }
    let stopped = drain_workers(&workers, drain_time).await;
    if let Some(results) = results {
        results.save().await;
    }
    Ok(stopped)
}

/// How long new connections are accepted after a drain has begun.
const DRAIN_ACCEPT: Duration = Duration::from_millis(400);

/// How long, after that, those whose handshake has begun have for the rest of it: a way there and back, with room.
const DRAIN_BEGUN: Duration = Duration::from_millis(100);

async fn drain_workers(workers: &[WorkerHandle], most: Duration) -> Stopped {
    let until = Clock::now().after(most);
    loop {
        let open: u32 = workers.iter().map(WorkerHandle::connections).sum();
        if open == 0 {
            return Stopped::Drained;
        }
        if Clock::now() >= until {
            return Stopped::TimedOut;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How many workers a gateway has: as configured, or one for each core.
#[must_use]
pub fn worker_count(config: &Config) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    config.workers.map_or_else(cores, |n| n.get() as usize)
}

/// Accepts for ever.
async fn accept_loop(gateway: &Gateway, listener: &Listener, admission: &Admission, workers: &[WorkerHandle]) {
    loop {
        let (stream, peer) = listener.accept().await;
        take_in(gateway, admission, workers, stream, peer);
    }
}

/// Hands a connection to the worker that has the fewest, or refuses it.
fn take_in(gateway: &Gateway, admission: &Admission, workers: &[WorkerHandle], stream: TcpStream, peer: SocketAddr) {
    let settings = gateway.tables.load().settings.clone();
    if let Err(wait) = gateway.attempts.attempt(Clock::now(), peer.ip(), settings.attempts) {
        refuse(gateway, stream, "attempts", wait);
        return;
    }
    admission.set_limits(settings.admission);
    let permit = match admission.admit(peer.ip()) {
        Ok(permit) => permit,
        Err(refused) => {
            refuse(gateway, stream, refused.as_str(), 1);
            return;
        }
    };
    let fewest = workers.iter().min_by_key(|w| w.connections());
    let (Some(worker), Ok(stream)) = (fewest, stream.into_std()) else { return };
    if !worker.hand(stream, peer, permit) {
        gateway.metrics.connections_refused.get(["backlog"]).inc();
    }
}

/// Refuses a connection. Best effort: who is refused is not waited for.
fn refuse(gateway: &Gateway, stream: TcpStream, reason: &'static str, retry: u64) {
    gateway.metrics.connections_refused.get([reason]).inc();
    gateway.metrics.error(FailureKind::ConnectionLimited);
    if gateway.data_entrance.certificates().is_some() {
        // Nothing in the clear where TLS is spoken: it would read as a broken server.
        return;
    }
    let (kind, why) = (FailureKind::ConnectionLimited, "too many connections");
    let answer = raw_answer("429 Too Many Requests", kind, why, &format!("retry-after: {retry}\r\n"));
    // Not through the runtime, which has not heard yet that the socket can be written to.
    let _ = stream.into_std().and_then(|mut stream| stream.write(&answer));
}

/// Once a second: idle connections to replicas are closed, warm ones opened; once a minute unused series are forgotten.
async fn housekeeping(gateway: Arc<Gateway>) {
    let mut beats = 0u64;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        beats += 1;
        for pool in gateway.driver.fleet.pools() {
            let times = &pool.config.connections;
            for replica in &pool.replicas {
                replica.tend_connections(times.idle, times.connect, times.warm);
            }
        }
        gateway.tables.limits.sweep();
        gateway.streams.openings.sweep(Clock::now());
        if beats.is_multiple_of(60) {
            gateway.metrics.forget_unused();
            gateway.audit.tend();
        }
    }
}
