//! `holdfast backup` and `holdfast restore` over the state folder of a process that does not run.

use std::path::{Path, PathBuf};

use holdfast_store::backup::Summary;
use holdfast_store::{Error, ErrorKind, Space};

use super::{Failure, fetch_backup, run_to_end};
use crate::cli::{BackupArgs, RestoreArgs};
use crate::config_file;
use crate::output;
use crate::roles;

/// `holdfast backup`.
pub fn backup(args: &BackupArgs) -> Result<(), Failure> {
    let Some(config) = &args.config else { return fetch_backup::run(&args.admin, &args.file) };
    let state = state(config)?;
    run_to_end(1, async {
        let store = roles::stored(&state).await?;
        let taken = store.backup(args.file.clone()).await;
        let closed = store.close().await;
        let summary = taken.and_then(|summary| closed.map(|()| summary)).map_err(|e| refused(&args.file, &e))?;
        tell("written", &args.file, &summary);
        Ok(())
    })
}

/// `holdfast restore`.
pub fn restore(args: &RestoreArgs) -> Result<(), Failure> {
    let state = state(&args.config)?;
    let made = Made::new(&state);
    run_to_end(1, async {
        let store = roles::store(&state).await?;
        let restored = store.restore(args.file.clone()).await;
        let closed = store.close().await;
        let summary = restored.and_then(|summary| closed.map(|()| summary)).map_err(|e| {
            made.take_back(&e);
            refused(&args.file, &e)
        })?;
        tell("restored", &args.file, &summary);
        Ok(())
    })
}

/// What a restore makes that was not there: if it fails it is to leave nothing, or a process that starts next would take an empty store for the truth.
struct Made {
    folder: Option<PathBuf>,
    file: Option<PathBuf>,
}

impl Made {
    fn new(state: &Path) -> Self {
        let missing = |path: PathBuf| (!path.exists()).then_some(path);
        Self { folder: missing(state.to_owned()), file: missing(roles::store_file(state)) }
    }

    fn take_back(&self, error: &Error) {
        // Somebody else has filled it meanwhile.
        if error.kind() == ErrorKind::NotEmpty {
            return;
        }
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
        if let Some(folder) = &self.folder {
            // Only if nothing else is in it.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

fn state(config: &Path) -> Result<std::path::PathBuf, Failure> {
    let read = config_file::read(config).map_err(|e| Failure::wrong(e.to_string()))?;
    Ok(read.split.loaded.config.state)
}

fn tell(what: &str, file: &Path, summary: &Summary) {
    output::say(&format!("{what}     {}", file.display()));
    output::say(&format!("revision    {}", summary.revision));
    output::say(&format!("in force    digest {}", summary.digests.of(Space::InForce)));
    let Summary { headers, edits, records, .. } = *summary;
    output::say(&format!("holds       {headers} revisions, {edits} edits, {records} records"));
}

fn refused(file: &Path, error: &Error) -> Failure {
    let hint = match error.kind() {
        ErrorKind::Corrupt => "; nothing was changed",
        ErrorKind::NotEmpty => "; give an empty state folder",
        _ => "",
    };
    Failure::failed(format!("{}: {error}{hint}", file.display()))
}
