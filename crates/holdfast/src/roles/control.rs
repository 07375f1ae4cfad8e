//! A control plane for gateways elsewhere, from its start to its orderly end.
//!
//! It waits for its store for as long as that takes. When it is told to stop it gives up the leadership first, so that another one leads by the
//! time its gateways look for one; then it lets them go.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{oneshot, watch};

use holdfast_control::api::Door;
use holdfast_control::desk::DeskError;
use holdfast_control::seats::Seats;
use holdfast_net::Tasks;
use holdfast_placement::seats::Rules;
use holdfast_store::{ErrorKind, Postgres, PostgresOptions, Store};
use holdfast_telemetry::Clock;
use holdfast_wire::server::{self, ServerSettings};

use super::both::{self, Both};
use super::leading::Leading;
use super::{Board, proofs, renewal, resources};
use crate::command::Failure;
use crate::config_file::Read;

/// The waits between two tries to open the store: the first, and the longest.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// How long gateways vote for one another that no control plane has answered.
const ALONE: Duration = Duration::from_secs(3_600);
/// How long each step of an orderly end may take.
const STEP: Duration = Duration::from_secs(3);

/// A control plane that has not begun yet.
pub struct Control {
    read: Read,
    options: PostgresOptions,
    settings: ServerSettings,
    rules: Rules,
    socket: TcpSocket,
}

/// What has to be ended in order.
struct Running {
    both: Both,
    store: Arc<dyn Store>,
    /// Dropped: the control plane leads no longer.
    driving: Part,
    /// Dropped: gateways are let go.
    serving: Part,
}

/// Something that runs until it is told to stop, and says when it has ended.
struct Part {
    stop: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

impl Control {
    /// Reads what the file names, and takes the address for gateways; nobody is answered there yet.
    ///
    /// # Errors
    /// Something of it cannot be used.
    pub fn new(read: Read) -> Result<Self, Failure> {
        let config = &read.split.loaded.config;
        let wrong = |(path, reason): proofs::Fault| Failure::wrong(format!("{path}: {reason}"));
        let (store, control) = (config.store.clone().unwrap_or_default(), config.control.clone().unwrap_or_default());
        let options = proofs::postgres(&store).map_err(wrong)?;
        let settings = ServerSettings {
            secrets: proofs::control_secrets(&control).map_err(wrong)?,
            tls: proofs::control_tls(&control).map_err(wrong)?.map(Into::into),
            open: control.open,
            release: env!("CARGO_PKG_VERSION").to_owned(),
            ..ServerSettings::default()
        };
        let socket = socket(control.listen)
            .map_err(|e| Failure::failed(format!("cannot listen on {} for gateways: {e}", control.listen)))?;
        let rules = Rules { lease: control.lease, alone: ALONE, bound: config.loads.fleet.get() };
        Ok(Self { rules, read, options, settings, socket })
    }

    /// Where gateways come to.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Runs until `stop`.
    ///
    /// # Errors
    /// The store cannot be used, whatever is waited for; or gateways cannot be served.
    pub async fn run(
        self,
        board: &Arc<Board>,
        door: &Arc<Door>,
        tasks: &Tasks,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Failure> {
        let mut stop = std::pin::pin!(stop);
        let (store, both) = tokio::select! {
            opened = open(&self.options, &self.read, board) => opened?,
            () = &mut stop => return Ok(()),
        };
        let config = &self.read.split.loaded.config;
        renewal::of_control(config, self.settings.tls.clone(), self.options.tls.clone(), tasks);
        let state = &config.state;
        let seats = Seats::new(store.clone(), self.rules, Arc::new(Clock::now));
        board.seats(seats.clone());
        board.open(&both, Some(resources(door, &both, Some(seats.clone()), state)));
        tasks.spawn(board.clone().probe(store.clone()));
        let listener = self.socket.listen(1_024).map_err(|e| Failure::failed(format!("cannot listen: {e}")))?;
        let mut running = start(self.settings, (self.rules, seats), listener, both, store, tasks);
        tokio::select! {
            // Whatever it was is in the log.
            _ = &mut running.serving.ended => Err(Failure::failed("gateways cannot be served any more")),
            () = stop => {
                running.end().await;
                Ok(())
            }
        }
    }
}

/// The address, before anybody is listened to: a gateway is refused at once while there is nothing to tell.
fn socket(address: SocketAddr) -> std::io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Opens the store and takes the file in, for as long as it takes.
async fn open(options: &PostgresOptions, read: &Read, board: &Board) -> Result<(Arc<dyn Store>, Both), Failure> {
    let mut wait = AGAIN.0;
    loop {
        let error = match try_open(options, read).await {
            Ok(opened) => return Ok(opened),
            Err(error) if !passes(&error) => return Err(both::refused(error)),
            Err(error) => error,
        };
        tracing::warn!(%error, again_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX), "waits for the store");
        board.waits(&error.to_string());
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(AGAIN.1);
    }
}

async fn try_open(options: &PostgresOptions, read: &Read) -> Result<(Arc<dyn Store>, Both), DeskError> {
    let store: Arc<dyn Store> = Arc::new(Postgres::open(options.clone()).await.map_err(DeskError::Store)?);
    let both = both::over(store.clone(), read).await?;
    Ok((store, both))
}

/// Whether it may be better in a while.
fn passes(error: &DeskError) -> bool {
    match error {
        DeskError::Unavailable(_) | DeskError::Conflict { .. } => true,
        DeskError::Store(error) => {
            matches!(
                error.kind(),
                ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::Overloaded | ErrorKind::Moved
            )
        }
        _ => false,
    }
}

fn start(
    settings: ServerSettings,
    (rules, seats): (Rules, Arc<Seats>),
    listener: TcpListener,
    both: Both,
    store: Arc<dyn Store>,
    tasks: &Tasks,
) -> Running {
    let (rollouts, sessions) = (both.rollouts.clone(), both.sessions.clone());
    let standing = rollouts.standing();
    let (given, stands) = (seats.clone(), standing.clone());
    let driving = Part::start(tasks, |stopped| {
        let work = both.work({
            let stopped = stopped.clone();
            move || until(stopped.clone())
        });
        async move {
            tokio::join!(work, given.run(stands, until(stopped)));
        }
    });
    tasks.spawn(Leading::let_go(sessions.clone(), standing.clone()));
    let plane = Arc::new(Leading { sessions, seats, standing, lease: rules.lease, tasks: tasks.clone() });
    let serving = Part::start(tasks, |stopped| async move {
        if let Err(error) = server::serve(listener, settings, plane, until(stopped)).await {
            tracing::error!(%error, "gateways cannot be served");
        }
    });
    Running { both, store, driving, serving }
}

impl Running {
    async fn end(self) {
        let Self { both, store, driving, serving } = self;
        driving.end("the roll-outs").await;
        tracing::info!("leads no longer; gateways are let go");
        both.sessions.let_go();
        serving.end("the links to gateways").await;
        // What it says at the end is nothing that anybody could act upon.
        let _ = tokio::time::timeout(STEP, store.close()).await;
    }
}

impl Part {
    fn start<F: Future<Output = ()> + Send + 'static>(
        tasks: &Tasks,
        run: impl FnOnce(watch::Receiver<bool>) -> F,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = oneshot::channel();
        let running = run(stopped);
        tasks.spawn(async move {
            running.await;
            let _ = end.send(());
        });
        Self { stop, ended }
    }

    async fn end(self, what: &'static str) {
        self.stop.send_replace(true);
        if tokio::time::timeout(STEP, self.ended).await.is_err() {
            tracing::warn!(what, "did not end in time");
        }
    }
}

async fn until(mut stopped: watch::Receiver<bool>) {
    // An error: nobody can say so any more, which says so too.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
