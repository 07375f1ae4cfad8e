//! The open file, opened anew after a fault of the disk.
//!
//! redb answers nothing any more once a write has failed, as when the disk is full: what it holds in memory may differ from the file. So the file
//! is closed then, and the next call opens it again, which repairs it; calls fail for as long as that does. A write is refused while another
//! file, or none, is at the path: nobody would find again what it wrote.

use super::{open, read};
use crate::error::{Applied, Error, Result};
use holdfast_types::Revision;
use parking_lot::RwLock;
use redb::Database;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// See the module.
#[derive(Debug)]
pub(super) struct Held {
    path: PathBuf,
    cache: usize,
    open: RwLock<Option<Open>>,
    /// A call has met a fault of the disk since the file was opened.
    broken: AtomicBool,
    head: watch::Sender<Revision>,
}

#[derive(Debug)]
struct Open {
    database: Database,
    file: Option<Identity>,
}

/// Which file it is, whatever its name.
type Identity = (u64, u64);

impl Held {
    /// Opens the file, or makes it.
    pub(super) fn open(path: PathBuf, cache: usize) -> Result<Self> {
        let database = open::open(&path, cache)?;
        let head = watch::Sender::new(read::head(&database)?.revision);
        let open = RwLock::new(Some(Open { database, file: identity(&path) }));
        Ok(Self { path, cache, open, broken: AtomicBool::new(false), head })
    }

    /// The last revision, for followers.
    pub(super) const fn head(&self) -> &watch::Sender<Revision> {
        &self.head
    }

    pub(super) fn read<T>(&self, job: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        self.work(|open| job(&open.database))
    }

    pub(super) fn write<T>(&self, job: impl FnOnce(&Database) -> Result<T>) -> Result<T> {
        let lost = self.open.read().as_ref().is_some_and(|open| identity(&self.path) != open.file);
        if lost { Err(self.lost()) } else { self.work(|open| job(&open.database)) }
    }

    fn work<T>(&self, job: impl FnOnce(&Open) -> Result<T>) -> Result<T> {
        if self.broken.load(Ordering::Acquire) {
            self.reopen()?;
        }
        let open = self.open.read();
        let outcome = job(open.as_ref().ok_or(Error::Closed)?);
        if outcome.as_ref().is_err_and(|error| matches!(error, Error::Unavailable { .. })) {
            self.broken.store(true, Ordering::Release);
        }
        outcome
    }

    fn reopen(&self) -> Result<()> {
        // Waits for the calls of other threads, which fail soon as well.
        let mut held = self.open.write();
        if !self.broken.load(Ordering::Acquire) {
            return Ok(());
        }
        // Where the file has been put away, the one that is open is the only way to read what it holds.
        if held.as_ref().is_some_and(|open| identity(&self.path) != open.file) {
            return Ok(());
        }
        // The lock of the file goes with it, and is needed for the next opening.
        *held = None;
        let database = open::again(&self.path, self.cache).map_err(closed)?;
        let (found, known) = (read::head(&database)?.revision, *self.head.borrow());
        if found < known {
            let what = format!("{} is at revision {found}, but was at {known}", self.path.display());
            return Err(Error::corrupt(what));
        }
        *held = Some(Open { database, file: identity(&self.path) });
        self.broken.store(false, Ordering::Release);
        if found > known {
            self.head.send_replace(found);
        }
        Ok(())
    }

    fn lost(&self) -> Error {
        let what = format!("{} is not the file any more that was opened; put it back", self.path.display());
        Error::Unavailable { what, applied: Applied::No }
    }
}

/// What keeps the file from being opened may pass.
fn closed(error: Error) -> Error {
    match error {
        Error::Backend { what } => Error::Unavailable { what, applied: Applied::No },
        other => other,
    }
}

fn identity(path: &Path) -> Option<Identity> {
    std::fs::metadata(path).ok().map(|meta| of(&meta))
}

#[cfg(unix)]
fn of(meta: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    (meta.dev(), meta.ino())
}

#[cfg(not(unix))]
const fn of(_meta: &Metadata) -> Identity {
    (0, 0)
}
