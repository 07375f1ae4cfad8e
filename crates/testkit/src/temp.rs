//! A folder that goes away with its owner.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A new empty folder under the system's folder for temporary files, removed on drop. With `HOLDFAST_KEEP_TEMP` set it stays, to be looked at.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes the folder.
    ///
    /// # Panics
    /// When the file system refuses.
    #[must_use]
    pub fn new() -> Self {
        let name = format!("holdfast-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        // A folder of the same name can only be the left-over of an earlier process with the same id.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap_or_else(|e| panic!("cannot make {}: {e}", path.display()));
        Self(path)
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path inside the folder.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if std::env::var_os("HOLDFAST_KEEP_TEMP").is_some() {
            eprintln!("kept: {}", self.0.display());
            return;
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes a file so that a reader sees the old or the new content, never a part: a temporary file beside it, then a rename.
///
/// # Panics
/// When the file system refuses.
pub fn write_atomically(path: &Path, content: &str) {
    let beside = path.with_extension("tmp");
    std::fs::write(&beside, content).unwrap_or_else(|e| panic!("cannot write {}: {e}", beside.display()));
    std::fs::rename(&beside, path).unwrap_or_else(|e| panic!("cannot rename to {}: {e}", path.display()));
}
