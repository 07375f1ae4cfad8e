//! `holdfast backup` and `holdfast restore` without a process that runs: over a state folder, or over the PostgreSQL of control planes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_config::Role;
use holdfast_store::backup::{self, Summary};
use holdfast_store::{Error, ErrorKind, Postgres, PostgresOptions, Space, Store};

use super::{Failure, fetch_backup, run_to_end};
use crate::cli::{BackupArgs, RestoreArgs};
use crate::config_file;
use crate::output;
use crate::roles;

/// Where the table of a configuration is.
enum Place {
    /// In this folder.
    Folder(PathBuf),
    Postgres(Box<PostgresOptions>),
}

/// `holdfast backup`.
pub fn backup(args: &BackupArgs) -> Result<(), Failure> {
    let Some(config) = &args.config else { return fetch_backup::run(&args.admin, &args.file) };
    let place = place(config)?;
    run_to_end(1, async {
        let store = match &place {
            Place::Folder(state) => roles::stored(state).await?,
            Place::Postgres(options) => written(options).await?,
        };
        let taken = store.backup(args.file.clone()).await;
        let closed = store.close().await;
        let done = taken.and_then(|summary| closed.map(|()| summary));
        tell("written", &args.file, &done.map_err(|e| refused(&args.file, &e, &place))?);
        Ok(())
    })
}

/// `holdfast restore`.
pub fn restore(args: &RestoreArgs) -> Result<(), Failure> {
    let place = place(&args.config)?;
    let made = match &place {
        Place::Folder(state) => Some(Made::new(state)),
        // Before anything is made: a database with tables and nothing in them would be taken for the truth, too.
        Place::Postgres(_) => {
            backup::check(&args.file).map_err(|e| refused(&args.file, &e, &place))?;
            None
        }
    };
    run_to_end(1, async {
        let store = match &place {
            Place::Folder(state) => roles::store(state).await?,
            Place::Postgres(options) => postgres(options).await?,
        };
        let restored = store.restore(args.file.clone()).await;
        let closed = store.close().await;
        let done = restored.and_then(|summary| closed.map(|()| summary)).map_err(|e| {
            made.iter().for_each(|made| made.take_back(&e));
            refused(&args.file, &e, &place)
        });
        tell("restored", &args.file, &done?);
        Ok(())
    })
}

async fn postgres(options: &PostgresOptions) -> Result<Arc<dyn Store>, Failure> {
    let opened = Postgres::open(options.clone()).await;
    Ok(Arc::new(opened.map_err(|e| Failure::failed(format!("the store cannot be opened: {e}")))?))
}

/// The store in PostgreSQL, in which something has to be.
async fn written(options: &PostgresOptions) -> Result<Arc<dyn Store>, Failure> {
    let store = postgres(options).await?;
    let head = store.head().await.map_err(|e| Failure::failed(e.to_string()))?;
    if head.revision.0 == 0 {
        return Err(Failure::failed("the store is empty: there is nothing to back up"));
    }
    Ok(store)
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

fn place(file: &Path) -> Result<Place, Failure> {
    let read = config_file::read(file).map_err(|e| Failure::wrong(e.to_string()))?;
    let config = read.split.loaded.config;
    match config.role() {
        Role::Gateway => Err(Failure::wrong(format!(
            "{}: a gateway of a fleet has no table of its own; name the file of a control plane",
            file.display()
        ))),
        Role::Control => {
            let options = roles::postgres(&config.store.unwrap_or_default());
            let options =
                options.map_err(|(path, why)| Failure::wrong(format!("{}: {path}: {why}", file.display())))?;
            Ok(Place::Postgres(Box::new(options)))
        }
        Role::Serve => Ok(Place::Folder(config.state)),
    }
}

fn tell(what: &str, file: &Path, summary: &Summary) {
    output::say(&format!("{what}     {}", file.display()));
    output::say(&format!("revision    {}", summary.revision));
    output::say(&format!("in force    digest {}", summary.digests.of(Space::InForce)));
    let Summary { headers, edits, records, .. } = *summary;
    output::say(&format!("holds       {headers} revisions, {edits} edits, {records} records"));
}

fn refused(file: &Path, error: &Error, place: &Place) -> Failure {
    let hint = match (error.kind(), place) {
        (ErrorKind::Corrupt, _) => "; nothing was changed",
        (ErrorKind::NotEmpty, Place::Folder(_)) => "; give an empty state folder",
        (ErrorKind::NotEmpty, Place::Postgres(_)) => "; give an empty database, or another `store.schema`",
        _ => "",
    };
    Failure::failed(format!("{}: {error}{hint}", file.display()))
}
