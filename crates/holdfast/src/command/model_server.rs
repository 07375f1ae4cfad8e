//! `holdfast model-server`.

use tokio::signal::unix::{SignalKind, signal};

use holdfast_types::{ModelName, Version};

use super::{Failure, run_to_end};
use crate::cli::ModelServerArgs;
use crate::output;

/// Runs a model server until it is told to stop.
pub fn run(args: ModelServerArgs) -> Result<(), Failure> {
    let ModelServerArgs { sample, options } = args;
    if let Some(sample) = sample {
        return write_sample(&sample, &options);
    }
    options.faults().map_err(|why| Failure::wrong(format!("--fault: {why}")))?;
    run_to_end(2, async {
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

fn write_sample(sample: &str, options: &holdfast_model_server::Options) -> Result<(), Failure> {
    let wrong = |why: String| Failure::wrong(format!("--sample {sample:?}: {why}"));
    let (model, versions) = sample.split_once(':').ok_or_else(|| wrong("is not of the form screen:1,2".to_owned()))?;
    ModelName::check(model).map_err(|why| wrong(format!("the model name {why}")))?;
    let versions: Vec<&str> = versions.split(',').collect();
    for version in &versions {
        Version::check(version).map_err(|why| wrong(format!("the version {why}")))?;
    }
    let written =
        holdfast_model_server::write_sample_repository(&options.repository, options.layout, &[model], &versions)
            .map_err(|e| Failure::failed(format!("{}: {e}", options.repository.display())))?;
    for path in written {
        output::say(&format!("wrote {}", path.display()));
    }
    Ok(())
}
