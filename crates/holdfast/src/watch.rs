//! Notices that the configuration file has changed. It is looked at once a second: that works on every file system, over renames and links.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What a file looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

/// Watches one file. Made before the file is read for the first time: what is written after that look is noticed.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    taken: Option<Look>,
    last: Option<Look>,
}

impl Watch {
    /// The file as it is now counts as taken.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        let now = look(path);
        Self { path: path.into(), taken: now, last: now }
    }

    /// The file as it is now counts as taken: somebody reads it for another reason.
    pub fn take(&mut self) {
        let now = look(&self.path);
        (self.taken, self.last) = (now, now);
    }

    /// Whether the file has changed since it was taken and has come to rest: it looked the same twice.
    pub fn changed(&mut self) -> bool {
        let now = look(&self.path);
        let at_rest = now == self.last;
        self.last = now;
        let changed = at_rest && now.is_some() && now != self.taken;
        if changed {
            self.taken = now;
        }
        changed
    }
}

fn look(path: &Path) -> Option<Look> {
    let meta = std::fs::metadata(path).ok()?;
    #[cfg(unix)]
    let inode = std::os::unix::fs::MetadataExt::ino(&meta);
    #[cfg(not(unix))]
    let inode = 0;
    Some(Look { modified: meta.modified().ok(), length: meta.len(), inode })
}
