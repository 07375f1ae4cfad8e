//! The server itself: start, accept, hand each request to its route, stop.
//!
//! Every task belongs to a set that ends with [`Running`]: the accept loop owns its connections, the server its loads. Connections and
//! bodies are bounded. HTTP/1.1 and HTTP/2 without TLS are told apart by the first bytes.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Request, StatusCode, Version};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::body::ResetFlag;
use crate::connection::Connection;
use crate::error::Error;
use crate::faults::Faults;
use crate::injector::Injector;
use crate::options::Options;
use crate::reply::{Refusal, Reply, empty, json};
use crate::repository::Repository;
use crate::route::{NoRoute, Route, route};
use crate::shelf::Shelf;
use crate::stats::{Counters, Stats};
use crate::{control, infer, loads, metadata};

/// The largest request body, in bytes.
pub const MAX_BODY: usize = 64 << 20;
/// The most connections at once; more wait to be accepted.
pub const MAX_CONNECTIONS: usize = 8192;
/// How long a request may still run once the server is told to stop.
pub const GRACE: Duration = Duration::from_secs(1);
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What all requests share.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) repository: Arc<Repository>,
    pub(crate) shelf: Arc<Mutex<Shelf>>,
    pub(crate) counters: Counters,
    pub(crate) injector: Mutex<Injector>,
    pub(crate) load_time: Duration,
    pub(crate) loads_end_with_client: bool,
    /// The loads under way.
    pub(crate) tasks: Mutex<JoinSet<()>>,
    control: bool,
}

/// A server that runs. Dropping it ends it at once, with its connections and loads.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    server: Arc<Server>,
    stop: oneshot::Sender<()>,
    accepting: JoinSet<()>,
}

impl Running {
    /// The address that it listens on, with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://` and the address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The server's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.server.name
    }

    /// What `GET /control/stats` answers.
    #[must_use]
    pub fn stats(&self) -> Stats {
        control::stats(&self.server)
    }

    /// Replaces all faults, as `POST /control/faults` does.
    pub fn set_faults(&self, faults: Faults) {
        self.server.injector.lock().set(faults);
    }

    /// Stops accepting, lets requests run for at most [`GRACE`], and ends.
    ///
    /// # Cancel safety
    /// Dropping the future ends the server at once.
    pub async fn stop(mut self) {
        // The loop that listens for this ends only with the server; then there is nothing left to stop.
        let _ = self.stop.send(());
        while self.accepting.join_next().await.is_some() {}
    }

    /// Ends at once, as a crash would: no answer in flight is completed. The port is free when this returns.
    pub async fn kill(mut self) {
        self.accepting.shutdown().await;
    }
}

/// Starts a server and returns once it listens and holds what it is to hold from the start.
///
/// # Errors
/// [`Error`].
pub async fn start(options: Options) -> Result<Running, Error> {
    let faults = options.faults().map_err(Error::Fault)?;
    let server = Arc::new(Server {
        name: options.name,
        repository: Arc::new(Repository::open(&options.repository, options.layout)?),
        shelf: Arc::new(Mutex::new(Shelf::new(options.memory))),
        counters: Counters::default(),
        injector: Mutex::new(Injector::new(faults, options.seed)),
        load_time: options.load_time.0,
        loads_end_with_client: options.loads_end_with_client,
        tasks: Mutex::default(),
        control: !options.no_control,
    });
    let (preloading, wishes, all) = (server.clone(), options.load, options.load_all);
    let preload = tokio::task::spawn_blocking(move || loads::preload(&preloading, &wishes, all));
    preload.await.map_err(|_| Error::Interrupted)??;
    let failed = |source| Error::Listen { address: options.listen, source };
    let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    if let Some(path) = options.port_file {
        write_port(&path, address.port()).map_err(|source| Error::PortFile { path, source })?;
    }
    let (stop, stopped) = oneshot::channel();
    let mut accepting = JoinSet::new();
    accepting.spawn(accept(listener, server.clone(), stopped));
    Ok(Running { address, server, stop, accepting })
}

/// Starts a server, calls `ready` with it, and stops it when `shutdown` resolves.
///
/// # Errors
/// [`Error`], if it did not start.
pub async fn run(
    options: Options,
    ready: impl FnOnce(&Running),
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let running = start(options).await?;
    ready(&running);
    shutdown.await;
    running.stop().await;
    Ok(())
}

/// By a rename, so that a reader sees no file or a whole one.
fn write_port(path: &Path, port: u16) -> io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(".new");
    std::fs::write(&draft, format!("{port}\n"))?;
    std::fs::rename(&draft, path)
}

async fn accept(listener: TcpListener, server: Arc<Server>, mut stopped: oneshot::Receiver<()>) {
    let (graceful, slots) = (GracefulShutdown::new(), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            // A dropped sender is a dropped `Running`, which ends this task by itself.
            _ = &mut stopped => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = accept_one(&listener, &slots) => accepted,
        };
        match accepted {
            Ok((stream, slot)) => {
                let connection = connect(stream, server.clone(), &graceful);
                connections.spawn(async move {
                    connection.await;
                    drop(slot);
                });
            }
            Err(why) => {
                // Out of descriptors, mostly: they come back when connections end.
                tracing::warn!(%why, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    // Loads are not waited for: nobody could use them any more.
    server.tasks.lock().abort_all();
    if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
        tracing::info!(connections = connections.len(), "ending requests that did not end in time");
    }
}

type Slot = tokio::sync::OwnedSemaphorePermit;

async fn accept_one(listener: &TcpListener, slots: &Arc<Semaphore>) -> io::Result<(TcpStream, Slot)> {
    let slot = slots.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, slot))
}

/// Serves one connection to its end.
fn connect(stream: TcpStream, server: Arc<Server>, graceful: &GracefulShutdown) -> impl Future<Output = ()> + 'static {
    let reset = ResetFlag::default();
    let io = TokioIo::new(Connection::new(stream, reset.clone()));
    let service = service_fn(move |request| {
        let (server, reset) = (server.clone(), reset.clone());
        async move { Ok::<_, Infallible>(handle(&server, request, reset).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder.http2().timer(TokioTimer::new());
    let connection = graceful.watch(builder.serve_connection(io, service).into_owned());
    async move {
        if let Err(why) = connection.await {
            tracing::debug!(%why, "a connection ended early");
        }
    }
}

/// By which Holdfast tells its requests to a server apart.
const TAG: HeaderName = HeaderName::from_static("x-holdfast-request-id");

/// Gives the tag of a request back, so that who sent it can tell whose answer this is.
async fn handle(server: &Arc<Server>, request: Request<Incoming>, reset: ResetFlag) -> Reply {
    let tag = request.headers().get(TAG).cloned();
    let mut reply = answered(server, request, reset).await;
    if let Some(tag) = tag {
        reply.headers_mut().insert(TAG, tag);
    }
    reply
}

async fn answered(server: &Arc<Server>, request: Request<Incoming>, reset: ResetFlag) -> Reply {
    let (parts, body) = request.into_parts();
    let route = match route(&parts.method, parts.uri.path()) {
        Ok(Route::Stats | Route::ShowFaults | Route::SetFaults) if !server.control => Err(NoRoute::NotFound),
        route => route,
    };
    if let Ok(Route::Infer(target)) = route {
        let work = server.counters.request(&parts.headers);
        return match collect(body).await {
            Ok(body) => {
                // Over HTTP/2 other requests share the connection, and the broken body resets its own stream.
                let reset = (parts.version < Version::HTTP_2).then_some(reset);
                infer::infer(server, target, &parts.headers, &body, work, reset).await
            }
            Err(refusal) => refusal.reply().map(|body| body.counting(work)),
        };
    }
    let done = match route {
        Ok(route) => match collect(body).await {
            Ok(body) => dispatch(server, route, &body).await,
            Err(refusal) => Err(refusal),
        },
        Err(NoRoute::NotFound) => Err(Refusal::new(StatusCode::NOT_FOUND, "Not Found")),
        Err(NoRoute::Method) => Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")),
    };
    done.unwrap_or_else(|refusal| refusal.reply())
}

async fn dispatch(server: &Arc<Server>, route: Route<'_>, body: &Bytes) -> Result<Reply, Refusal> {
    match route {
        Route::Server => Ok(metadata::server(server)),
        Route::Live | Route::Ready => Ok(empty()),
        Route::Model(target) => metadata::model(server, target),
        Route::ModelReady(target) => metadata::model_ready(server, target).await,
        Route::Index => metadata::index(server, body).await,
        Route::Load(name) => loads::load(server, name).await,
        Route::Unload(name) => loads::unload(server, name),
        Route::Stats => Ok(json(&control::stats(server))),
        Route::ShowFaults => Ok(control::show_faults(server)),
        Route::SetFaults => control::set_faults(server, body),
        // Told apart before, since its body is counted from the first byte.
        Route::Infer(_) => Err(Refusal::new(StatusCode::NOT_FOUND, "Not Found")),
    }
}

async fn collect(body: Incoming) -> Result<Bytes, Refusal> {
    match Limited::new(body, MAX_BODY).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(why) if why.is::<LengthLimitError>() => {
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {MAX_BODY} bytes")))
        }
        Err(why) => Err(Refusal::bad_request(format!("the body could not be read: {why}"))),
    }
}
