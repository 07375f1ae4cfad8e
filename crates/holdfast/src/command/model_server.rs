//! `holdfast model-server`.

use tokio::signal::unix::{SignalKind, signal};

use super::{Failure, runtime};
use crate::output;

/// Runs a model server until it is told to stop.
pub fn run(options: holdfast_model_server::Options) -> Result<(), Failure> {
    options.faults().map_err(|why| Failure::wrong(format!("--fault: {why}")))?;
    runtime(2)?.block_on(async {
        let mut terminate =
            signal(SignalKind::terminate()).map_err(|e| Failure::failed(format!("cannot hear signals: {e}")))?;
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        };
        let ready = |running: &holdfast_model_server::Running| {
            output::say(&format!("model-server {} listening on {}", running.name(), running.url()));
        };
        holdfast_model_server::run(options, ready, stop).await.map_err(|e| Failure::failed(e.to_string()))
    })
}
