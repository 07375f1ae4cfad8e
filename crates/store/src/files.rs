//! Files that appear whole or not at all.

use crate::error::Error;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A name beside `path` that nothing else uses: the process and a count are in it.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}

/// Gives a finished file its name, which nothing may have yet. A hard link, unlike a rename, never replaces a file that appeared meanwhile.
pub(crate) fn publish(finished: &Path, path: &Path) -> io::Result<()> {
    let linked = fs::hard_link(finished, path);
    let removed = fs::remove_file(finished);
    linked?;
    removed?;
    // The name is durable only with its folder.
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// What the file system said.
pub(crate) fn io_error(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::backend(format!("{what} {}: {error}", path.display()))
}
