//! Backups of the running store: written whole to a file that nobody else sees, then given out.
//!
//! A backup is one picture of the store, taken while changes go on. It is sent only when it is complete and on the disk, so whoever gets all of its
//! bytes has a whole backup; what was cut on the way is refused by a restore, which checks the end.

mod answer;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_store::Store;
pub use holdfast_store::backup::Summary;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Backups that are written and given out at a time: each takes the disk's time and room.
const AT_ONCE: usize = 1;
/// The bytes of one chunk.
const CHUNK: usize = 256 * 1024;
/// The folder in which they are written.
const FOLDER: &str = "outgoing";

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// Another one is being given out.
    #[error("another backup is being taken; try again when it is done")]
    Busy,
    /// The folder or the file cannot be used.
    #[error("the backup cannot be written: {0}")]
    Disk(#[from] io::Error),
    /// The store refuses.
    #[error(transparent)]
    Store(#[from] holdfast_store::Error),
}

impl Outgoing {
    /// The next bytes; empty at the end.
    ///
    /// # Errors
    /// The file cannot be read. What was given so far is no backup.
    pub async fn chunk(&mut self) -> io::Result<Vec<u8>> {
        let mut file = self.file.try_clone()?;
        let read = tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::with_capacity(CHUNK);
            let most = u64::try_from(CHUNK).unwrap_or(u64::MAX);
            file.by_ref().take(most).read_to_end(&mut bytes).map(|_| bytes)
        });
        read.await.map_err(io::Error::other)?
    }
}

/// Takes backups.
pub struct Backups {
    store: Arc<dyn Store>,
    folder: PathBuf,
    places: Arc<Semaphore>,
    next: AtomicU64,
}

/// A whole backup. Its file has no name any more: its room is free again when this is dropped, also by a crash.
#[derive(Debug)]
pub struct Outgoing {
    file: File,
    /// How many bytes it has.
    pub length: u64,
    /// What it holds.
    pub summary: Summary,
    _place: OwnedSemaphorePermit,
}

impl Backups {
    /// Over a store; backups are written in a folder below that of its state. What a crash has left there is removed.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, state: &Path) -> Arc<Self> {
        let folder = state.join(FOLDER);
        // Not there, most often. If it cannot be removed, it is only room on the disk.
        let _ = std::fs::remove_dir_all(&folder);
        Arc::new(Self { store, folder, places: Arc::new(Semaphore::new(AT_ONCE)), next: AtomicU64::new(0) })
    }

    /// Takes one. [`Backups::answer`] gives it to a client.
    ///
    /// # Errors
    /// [`BackupError`].
    pub async fn take(&self) -> Result<Outgoing, BackupError> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| BackupError::Busy)?;
        let path = self.folder.join(format!("backup-{}", self.next.fetch_add(1, Ordering::Relaxed)));
        tokio::fs::create_dir_all(&self.folder).await?;
        // Dropped with this call, if its caller leaves; the store then writes to its end, and nobody finds the file.
        let named = Named(path.clone());
        let summary = self.store.backup(path).await?;
        let (file, length) = tokio::task::spawn_blocking(move || {
            let file = File::open(&named.0)?;
            let length = file.metadata()?.len();
            Ok::<_, io::Error>((file, length))
        })
        .await
        .map_err(io::Error::other)??;
        Ok(Outgoing { file, length, summary, _place: place })
    }
}

/// A name that is taken away from its file at the end.
struct Named(PathBuf);

impl Drop for Named {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_store::{Embedded, EmbeddedOptions, Error};
    use holdfast_testkit::TempDir;
    use std::io::Write;

    async fn store(dir: &TempDir, name: &str) -> Arc<dyn Store> {
        Arc::new(Embedded::open(&dir.join(name), EmbeddedOptions::default()).await.unwrap())
    }

    #[tokio::test]
    async fn a_backup_is_given_out_whole_and_leaves_nothing_behind() {
        let dir = TempDir::new();
        std::fs::create_dir(dir.join(FOLDER)).unwrap();
        std::fs::write(dir.join(FOLDER).join("left"), "by a crash").unwrap();
        let first = store(&dir, "first").await;
        let backups = Backups::new(first.clone(), dir.path());
        let mut taken = backups.take().await.unwrap();
        assert!(matches!(backups.take().await, Err(BackupError::Busy)), "one at a time");
        assert_eq!(std::fs::read_dir(dir.join(FOLDER)).unwrap().count(), 0, "it has no name, and nothing else is left");
        let mut bytes = Vec::new();
        loop {
            match taken.chunk().await.unwrap() {
                chunk if chunk.is_empty() => break,
                chunk => bytes.extend(chunk),
            }
        }
        assert_eq!(bytes.len() as u64, taken.length);
        drop(taken);
        backups.take().await.unwrap();

        let cut = dir.join("cut");
        File::create(&cut).unwrap().write_all(&bytes[..bytes.len() - 1]).unwrap();
        let second = store(&dir, "second").await;
        assert!(matches!(second.restore(cut).await, Err(Error::Corrupt { .. })));
        let whole = dir.join("whole");
        std::fs::write(&whole, &bytes).unwrap();
        second.restore(whole).await.unwrap();
        assert_eq!(second.head().await.unwrap(), first.head().await.unwrap());
    }
}
