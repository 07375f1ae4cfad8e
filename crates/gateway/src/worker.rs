//! A worker: a thread with a runtime of its own, its client connections and its connections to replicas.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use holdfast_net::{ConnPermit, Tasks};

use crate::connection::serve_connection;
use crate::exchange::RequestId;
use crate::lease::Leases;
use crate::random::Random;
use crate::server::Gateway;
use crate::stream::Home;

/// One worker, as a request sees it.
pub struct Worker {
    /// Its number: which of a replica's connections are its own.
    pub index: usize,
    /// What its long answers hold of replicas.
    pub leases: Leases,
    ties: AtomicU64,
    id_prefix: [u8; 16],
    ids: AtomicU64,
    connections: AtomicU32,
}

impl Worker {
    pub(crate) fn new(index: usize) -> Self {
        let mut random = Random::new();
        let mut prefix = [b'0'; 16];
        prefix.copy_from_slice(format!("{:016x}", random.next()).as_bytes());
        Self {
            index,
            leases: Leases::default(),
            ties: AtomicU64::new(random.next()),
            id_prefix: prefix,
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
    pub(crate) fn request_id(&self) -> RequestId {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let count = self.ids.fetch_add(1, Relaxed);
        let mut bytes = [b'0'; 28];
        bytes[..16].copy_from_slice(&self.id_prefix);
        for (at, digit) in bytes[16..].iter_mut().rev().enumerate() {
            *digit = DIGITS[usize::try_from((count >> (at * 4)) & 0xf).unwrap_or(0)];
        }
        // One piece of memory for all that name it.
        let text = Bytes::from_owner(bytes);
        // It holds: the bytes are hexadecimal digits.
        let header = HeaderValue::from_maybe_shared(text.clone()).unwrap_or(HeaderValue::from_static(""));
        RequestId { text, header }
    }
}

/// Counts a worker's connection for as long as it lives, on its way to the worker too.
pub struct Counted(Arc<Worker>);

impl Counted {
    fn new(worker: &Arc<Worker>) -> Self {
        worker.connections.fetch_add(1, Relaxed);
        Self(worker.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Relaxed);
    }
}

/// A connection on its way to a worker. Its socket is registered with no runtime in between.
struct Handed {
    stream: std::net::TcpStream,
    peer: SocketAddr,
    held: (Counted, ConnPermit),
}

/// A worker, as who hands it connections sees it. Dropping it ends the worker's thread.
pub struct WorkerHandle {
    worker: Arc<Worker>,
    connections: mpsc::Sender<Handed>,
    receive: Option<mpsc::Receiver<Handed>>,
    tasks: Tasks,
    _stop: oneshot::Sender<()>,
}

impl WorkerHandle {
    /// Starts the thread.
    ///
    /// # Errors
    /// The operating system gives none.
    pub fn start(index: usize) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tasks = Tasks::new(runtime.handle().clone());
        let (connections, receive) = mpsc::channel(1024);
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            holdfast_telemetry::use_part(index);
            // Ends when the handle is dropped; what still runs then is over its time.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_timeout(Duration::from_millis(200));
        })?;
        let worker = Arc::new(Worker::new(index));
        Ok(Self { worker, connections, receive: Some(receive), tasks, _stop: stop })
    }

    /// What runs on the worker.
    #[must_use]
    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Connections that it has, or is about to have.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.worker.connections.load(Relaxed)
    }

    /// Hands a connection over. False: as many as may wait are on their way already, and this one is closed.
    #[must_use]
    pub fn hand(&self, stream: std::net::TcpStream, peer: SocketAddr, permit: ConnPermit) -> bool {
        let held = (Counted::new(&self.worker), permit);
        self.connections.try_send(Handed { stream, peer, held }).is_ok()
    }

    /// Lets the worker take the connections that it is handed.
    pub fn tend(&mut self, gateway: &Arc<Gateway>) {
        let Some(mut receive) = self.receive.take() else { return };
        let (worker, tasks, gateway) = (self.worker.clone(), self.tasks.clone(), gateway.clone());
        self.tasks.spawn(heartbeat(worker.clone()));
        let connections = gateway.metrics.connections.get(["data"]);
        self.tasks.spawn(async move {
            while let Some(Handed { stream, peer, held }) = receive.recv().await {
                let Ok(stream) = TcpStream::from_std(stream) else { continue };
                let (gateway, worker, counted) = (gateway.clone(), worker.clone(), connections.track());
                let home = Arc::new(Home { worker, tasks: tasks.clone(), _held: Box::new((held, counted)) });
                tasks.spawn(serve_connection(gateway, home, stream, peer));
            }
        });
    }
}

/// Ends leases that are over their time. It is also a timer that is always due soon: without one, the deadline of a request on an idle worker is
/// the earliest timer, and the runtime wakes itself by a system call to take note of that.
pub(crate) async fn heartbeat(worker: Arc<Worker>) {
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        worker.leases.sweep(tokio::time::Instant::now());
    }
}
