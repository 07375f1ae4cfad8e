//! `holdfast backup` and `holdfast restore` over the state folder of a process that does not run.

use std::path::Path;

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
    run_to_end(1, async {
        let store = roles::store(&state).await?;
        let restored = store.restore(args.file.clone()).await;
        let closed = store.close().await;
        let summary = restored.and_then(|summary| closed.map(|()| summary)).map_err(|e| refused(&args.file, &e))?;
        tell("restored", &args.file, &summary);
        Ok(())
    })
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
