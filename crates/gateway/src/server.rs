//! The running gateway: workers, listeners, and the order in which things start and stop.
//!
//! Each worker is a thread with a runtime of its own, its client connections and its connections to replicas, so that a request never crosses
//! threads. One task accepts and hands each connection to the worker with the fewest. Everything that is not a request runs on a small
//! runtime beside them.

use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use holdfast_codec::framing::Violation;
use holdfast_codec::oip;
use holdfast_config::Config;
use holdfast_net::{Admission, ConnPermit, ConnState, Drain, DrainHandle, Listener, ServeOptions, Tasks, bind};
use holdfast_telemetry::{AccessLog, Clock, GatewayMetrics, Gauge};
use holdfast_types::FailureKind;

use crate::admin;
use crate::body::AnswerBody;
use crate::exchange::Exchange;
use crate::lease::Leases;
use crate::random::Random;
use crate::residency::Driver;
use crate::stage::flow::{self, Entered};
use crate::table::{Reload, StartError, Tables};

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
    /// Whether a drain has begun.
    pub drain: Drain,
}

/// One worker, as a request sees it.
pub struct Worker {
    /// Its number: which of a replica's connections are its own.
    pub index: usize,
    /// What its long answers hold of replicas.
    pub leases: Leases,
    ties: AtomicU64,
    id_prefix: String,
    ids: AtomicU64,
    connections: AtomicU32,
}

impl Worker {
    fn new(index: usize) -> Self {
        let mut random = Random::new();
        Self {
            index,
            leases: Leases::default(),
            ties: AtomicU64::new(random.next()),
            id_prefix: format!("{:016x}", random.next()),
            ids: AtomicU64::new(0),
            connections: AtomicU32::new(0),
        }
    }

    /// A number to break ties with: a Weyl sequence, mixed.
    pub fn random(&self) -> u64 {
        let next = self.ties.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        let mixed = (next ^ (next >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ (mixed >> 32)
    }

    /// A request id: unique to this process and worker by its random prefix, then by count.
    fn request_id(&self) -> Arc<str> {
        let count = self.ids.fetch_add(1, Relaxed);
        let mut text = String::with_capacity(32);
        text.push_str(&self.id_prefix);
        for shift in (0..12).rev() {
            let digit = (count >> (shift * 4)) & 0xf;
            text.push(char::from_digit(u32::try_from(digit).unwrap_or(0), 16).unwrap_or('0'));
        }
        text.into()
    }
}

/// How to run a gateway.
pub struct Options {
    /// The configuration.
    pub config: Config,
    /// The file that it came from, to be watched.
    pub config_path: PathBuf,
    /// Reads it anew.
    pub reload: Reload,
    /// Counters.
    pub metrics: Arc<GatewayMetrics>,
    /// The access log.
    pub access: AccessLog,
    /// The token that callers of the admin port must show, if any.
    pub admin_token: Option<String>,
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

/// A connection on its way to a worker. Its socket is registered with no runtime in between.
type Handed = (std::net::TcpStream, SocketAddr, ConnPermit);

struct WorkerHandle {
    worker: Arc<Worker>,
    connections: mpsc::Sender<Handed>,
    receive: Option<mpsc::Receiver<Handed>>,
    tasks: Tasks,
    /// Ends the worker's thread when dropped.
    _stop: tokio::sync::oneshot::Sender<()>,
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
    let Options { config, config_path, reload: read, metrics, access, admin_token, ready } = options;
    let count = config.workers.map_or_else(cores, |n| n.get() as usize);
    let mut workers = (0..count).map(start_worker).collect::<Result<Vec<_>, _>>().map_err(ServeError::Worker)?;
    let control = Tasks::new(tokio::runtime::Handle::current());
    let data = bind(config.listen.data).map_err(|e| ServeError::Listen(config.listen.data, e))?;
    let admin_listener =
        bind(config.listen.admin.address).map_err(|e| ServeError::Listen(config.listen.admin.address, e))?;
    let (drain_handle, drain) = DrainHandle::new();
    let driver = Driver::new(workers.iter().map(|w| w.tasks.clone()).collect(), control.clone(), metrics.clone());
    driver.run();
    let drain_time = config.timeouts.drain;
    let tables = Tables::start(config, driver.clone(), metrics.clone())?;
    tables.run(config_path, read, drain.clone(), &control);
    let gateway = Arc::new(Gateway { tables, driver, metrics, access, drain: drain.clone() });
    admin::register(&gateway);
    also(gateway.clone(), &control);
    let admission = Admission::new(gateway.tables.load().settings.admission);
    let addresses = (data.address(), admin_listener.address());
    for handle in &mut workers {
        tend(handle, &gateway);
    }
    control.spawn(admin::listen(gateway.clone(), admin_listener, admin_token, control.clone()));
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
    }
    // From here on a client is refused at once, instead of waiting in the backlog for an answer that never comes.
    for (stream, peer) in data.close() {
        take_in(&gateway, &admission, &workers, stream, peer);
    }
    Ok(drain_workers(&workers, drain_time).await)
}

/// How long new connections are accepted after a drain has begun.
const DRAIN_ACCEPT: Duration = Duration::from_millis(500);

async fn drain_workers(workers: &[WorkerHandle], most: Duration) -> Stopped {
    let until = Clock::now().after(most);
    loop {
        let open: u32 = workers.iter().map(|w| w.worker.connections.load(Relaxed)).sum();
        if open == 0 {
            return Stopped::Drained;
        }
        if Clock::now() >= until {
            return Stopped::TimedOut;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn start_worker(index: usize) -> std::io::Result<WorkerHandle> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tasks = Tasks::new(runtime.handle().clone());
    let (connections, receive) = mpsc::channel(1024);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
        // Ends when the handle is dropped; what still runs then is over its time.
        let _ = runtime.block_on(stopped);
        runtime.shutdown_timeout(Duration::from_millis(200));
    })?;
    let worker = Arc::new(Worker::new(index));
    Ok(WorkerHandle { worker, connections, receive: Some(receive), tasks, _stop: stop })
}

/// Lets a worker take the connections that it is handed.
fn tend(handle: &mut WorkerHandle, gateway: &Arc<Gateway>) {
    let Some(mut receive) = handle.receive.take() else { return };
    let (worker, tasks, gateway) = (handle.worker.clone(), handle.tasks.clone(), gateway.clone());
    handle.tasks.spawn(heartbeat(worker.clone()));
    let connections = gateway.metrics.connections.get(["data"]);
    handle.tasks.spawn(async move {
        while let Some((stream, peer, permit)) = receive.recv().await {
            let Ok(stream) = TcpStream::from_std(stream) else { continue };
            let serving = serve_connection(gateway.clone(), worker.clone(), connections.clone(), stream, peer, permit);
            tasks.spawn(serving);
        }
    });
}

/// Ends leases that are over their time. It is also a timer that is always due soon: without one, the deadline of a request on an idle worker is
/// the earliest timer, and the runtime wakes itself by a system call to take note of that.
async fn heartbeat(worker: Arc<Worker>) {
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        worker.leases.sweep(tokio::time::Instant::now());
    }
}

/// Counts a worker's connection for as long as it lives, also if its task is dropped.
struct Counted(Arc<Worker>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

async fn serve_connection(
    gateway: Arc<Gateway>,
    worker: Arc<Worker>,
    connections: Gauge,
    stream: TcpStream,
    peer: SocketAddr,
    permit: ConnPermit,
) {
    let _counted = (Counted(worker.clone()), connections.track(), permit);
    let options = serve_options(&gateway);
    let state = Arc::new(ConnState::default());
    let drain = gateway.drain.clone();
    let on = state.clone();
    let client: Arc<str> = peer.to_string().into();
    let service = service_fn(move |request: Request<Incoming>| {
        let asked = AskedHow {
            is_h1: request.version() < http::Version::HTTP_2,
            is_head: request.method() == http::Method::HEAD,
        };
        let exchange = Exchange::begin(gateway.clone(), worker.request_id(), Some(client.clone()), on.begin());
        // What can be done at once is done before there is a future, so that the future, of which each connection has one, is small.
        let entered = flow::enter(Box::new(exchange), request);
        answer(entered, asked, worker.clone(), on.clone())
    });
    holdfast_net::serve(stream, Arc::new(options), drain, state, service).await;
}

async fn answer(
    entered: Entered,
    asked: AskedHow,
    worker: Arc<Worker>,
    on: Arc<ConnState>,
) -> Result<Response<AnswerBody>, Infallible> {
    let mut response = match entered {
        Entered::Answered(response) => response,
        Entered::Routed(call) => flow::serve(call, worker).await,
    };
    if asked.is_head {
        response = without_body(response);
    }
    if asked.is_h1 && on.is_closing() {
        response.headers_mut().insert(http::header::CONNECTION, http::HeaderValue::from_static("close"));
    }
    Ok(response)
}

/// What of a request decides over the form of its answer.
#[derive(Clone, Copy)]
struct AskedHow {
    is_h1: bool,
    is_head: bool,
}

/// The answer to HEAD: the length is told, the body is not sent. For HTTP/2 nobody else leaves it out.
fn without_body(response: Response<AnswerBody>) -> Response<AnswerBody> {
    let (mut parts, body) = response.into_parts();
    if let Some(length) = http_body::Body::size_hint(&body).exact() {
        parts.headers.insert(http::header::CONTENT_LENGTH, length.into());
    }
    Response::from_parts(parts, body.emptied())
}

fn serve_options(gateway: &Gateway) -> ServeOptions {
    let table = gateway.tables.load();
    let metrics = gateway.metrics.clone();
    let times = &table.config.timeouts;
    ServeOptions {
        head_limits: table.settings.head_limits,
        streams: table.config.limits.streams_per_connection,
        head: times.head,
        idle: times.keepalive_idle,
        max_age: times.connection_max_age,
        drain_grace: (times.drain / 4).min(Duration::from_secs(2)),
        refusal: Arc::new(move |violation| refuse_head(&metrics, violation)),
    }
}

/// The whole answer to a head that is not even parsed. It is no request, but an error to be counted.
fn refuse_head(metrics: &GatewayMetrics, violation: Violation) -> Bytes {
    let (kind, status) = match violation.http_status() {
        431 => (FailureKind::TooLarge, "431 Request Header Fields Too Large"),
        _ => (FailureKind::BadRequest, "400 Bad Request"),
    };
    metrics.error(kind);
    raw_answer(status, kind, &violation.to_string(), "")
}

fn raw_answer(status: &str, kind: FailureKind, detail: &str, fields: &str) -> Bytes {
    let body = oip::error_body(kind.as_str(), detail);
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\
         x-holdfast-error: {}\r\n{fields}\r\n",
        body.len(),
        kind.as_str()
    );
    [head.into_bytes(), body].concat().into()
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
    admission.set_limits(gateway.tables.load().settings.admission);
    let permit = match admission.admit(peer.ip()) {
        Ok(permit) => permit,
        Err(refused) => {
            gateway.metrics.connections_refused.get([refused.as_str()]).inc();
            gateway.metrics.error(FailureKind::ConnectionLimited);
            // Best effort: who is refused is not waited for.
            let (kind, why) = (FailureKind::ConnectionLimited, "too many connections");
            let answer = raw_answer("429 Too Many Requests", kind, why, "retry-after: 1\r\n");
            // Not through the runtime, which has not heard yet that the socket can be written to.
            let _ = stream.into_std().and_then(|mut stream| stream.write(&answer));
            return;
        }
    };
    let fewest = workers.iter().min_by_key(|w| w.worker.connections.load(Relaxed));
    let (Some(handle), Ok(stream)) = (fewest, stream.into_std()) else { return };
    handle.worker.connections.fetch_add(1, Relaxed);
    if handle.connections.try_send((stream, peer, permit)).is_err() {
        handle.worker.connections.fetch_sub(1, Relaxed);
        gateway.metrics.connections_refused.get(["backlog"]).inc();
    }
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
        if beats.is_multiple_of(60) {
            gateway.metrics.forget_unused();
        }
    }
}

#[cfg(test)]
mod tests;
