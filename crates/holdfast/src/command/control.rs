//! `holdfast control`.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};

use holdfast_config::Role;
use holdfast_control::api::Door;
use holdfast_net::{Tasks, bind};

use super::serve::{door, entrance, second_signal, start_log, stop_signal};
use super::{Failure, must_be, run_to_end};
use crate::cli::ServeArgs;
use crate::config_file::{self, Read};
use crate::output;
use crate::roles::{self, Board, Control, access, listen};

/// Threads of a control plane: tables are put together and sent by more than one.
const THREADS: usize = 2;

/// Runs a control plane until it is told to stop.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let Some(path) = args.path() else { return Err(Failure::wrong("give the configuration file")) };
    let read = config_file::read(path).map_err(|e| Failure::wrong(e.to_string()))?;
    let config = read.split.loaded.config.clone();
    must_be(path, &config, Role::Control)?;
    let _guard = start_log(&config.log)?;
    if !read.split.loaded.warnings.is_empty() {
        tracing::warn!(warnings = %read.split.loaded.warnings, "the configuration has warnings");
    }
    let door = door(&config)?;
    run_to_end(THREADS, drive(path.to_owned(), read, door))
}

async fn drive(path: PathBuf, read: Read, door: Arc<Door>) -> Result<(), Failure> {
    let hear = |kind| signal(kind).map_err(|e| Failure::failed(format!("cannot hear signals: {e}")));
    let stop = stop_signal(hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?);
    let at_once = second_signal(hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?);
    let hangup = hear(SignalKind::hangup())?;
    let tasks = Tasks::new(tokio::runtime::Handle::current());
    let address = read.split.loaded.config.listen.admin.address;
    let admin = bind(address).map_err(|e| Failure::failed(format!("cannot listen on {address}: {e}")))?;
    let entrance = entrance(&read.split.loaded.config)?;
    let control = Control::new(read)?;
    let board = Board::new();
    let (for_gateways, address) = (control.address(), admin.address());
    // A control plane has no list of alarms: the log and the metric tell.
    tasks.spawn(roles::renew(roles::ADMIN, &entrance, board.registry(), |_, _| {}));
    let scheme = if entrance.certificates().is_some() { "https" } else { "http" };
    tasks.spawn(listen(admin, entrance, board.clone(), access(&door), tasks.clone()));
    tasks.spawn(reread(path, board.clone(), hangup));
    if let (Ok(gateways), Ok(admin)) = (for_gateways, address) {
        tracing::info!(%gateways, %admin, "listening");
        output::say(&format!("holdfast control is for gateways on {gateways}, admin on {scheme}://{admin}"));
    }
    tokio::select! {
        ended = control.run(&board, &door, &tasks, stop) => ended,
        () = at_once => Err(Failure::failed("stopped at once: told so twice")),
    }
}

/// SIGHUP reads the file anew: the settings that changes are checked with are taken from it.
async fn reread(path: PathBuf, board: Arc<Board>, mut hangup: Signal) {
    while hangup.recv().await.is_some() {
        let read = config_file::read(&path).map_err(|e| e.to_string());
        let taken = read.and_then(|read| match read.split.loaded.config.role() {
            Role::Control => Ok(read.frame),
            role => Err(format!("it is a file for `holdfast {}`", role.as_str())),
        });
        match taken.map(|frame| board.reframe(frame)) {
            Ok(true) => tracing::info!("configuration taken"),
            Ok(false) => tracing::warn!("the store has not been reached yet; the configuration is not taken"),
            Err(faults) => tracing::error!(%faults, "the configuration is refused; the last good one stays in force"),
        }
    }
}
