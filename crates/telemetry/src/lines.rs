//! Lines in numbered files: the newest grows up to a size, the oldest go when all are too large together or too old.
//!
//! For one thread that may block. What a batch could not be written of is cut off again, so that a file has whole lines only, but for what a crash leaves.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use crate::clock::Clock;

const SUFFIX: &str = ".jsonl";

/// Where the files are, and how much of them there may be.
#[derive(Clone, Debug)]
pub(crate) struct LinesOptions {
    /// A folder for this process alone. Made if it is missing.
    pub(crate) folder: PathBuf,
    /// A file that has this many bytes is followed by the next.
    pub(crate) max_file_size: u64,
    /// The most bytes of all files.
    pub(crate) max_total_size: u64,
    /// How long they are kept, if there is room.
    pub(crate) retention: Duration,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Lines {
    options: LinesOptions,
    number: u64,
    /// The newest file. None: the next batch makes one.
    file: Option<File>,
    size: u64,
}

impl Lines {
    /// Nothing is opened before the first batch.
    pub(crate) const fn new(options: LinesOptions) -> Self {
        Self { options, number: 0, file: None, size: 0 }
    }

    /// Appends whole lines, all or none of them.
    pub(crate) fn append(&mut self, batch: &[u8]) -> io::Result<()> {
        if self.size > 0 && self.size + batch.len() as u64 > self.options.max_file_size {
            self.file = None;
        }
        if self.file.is_none() {
            self.begin()?;
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        if let Err(error) = file.write_all(batch) {
            // If it cannot be cut where it was whole another one is begun.
            if file.set_len(self.size).is_err() {
                self.file = None;
            }
            return Err(error);
        }
        self.size += batch.len() as u64;
        Ok(())
    }

    fn begin(&mut self) -> io::Result<()> {
        fs::create_dir_all(&self.options.folder)?;
        let last = numbered(&self.options.folder)?.last().map_or(0, |(number, _)| *number);
        let number = last.max(self.number) + 1;
        self.file = Some(create(&self.options.folder, number)?);
        (self.number, self.size) = (number, 0);
        self.tend();
        Ok(())
    }

    /// Removes what is too much or too old; never the newest.
    pub(crate) fn tend(&self) {
        // The newest file has its part.
        let room = self.options.max_total_size.saturating_sub(self.options.max_file_size);
        tend(&self.options.folder, self.number, room, self.options.retention);
    }
}

/// Removes the oldest files before the one of this number while they have more bytes than `room`, and all of them that are older than `retention`.
pub fn tend(folder: &Path, newest: u64, mut room: u64, retention: Duration) {
    let Ok(files) = numbered(folder) else { return };
    let facts = files.into_iter().filter(|(number, _)| *number < newest).filter_map(|(_, path)| {
        let metadata = path.metadata().ok()?;
        let written = metadata.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some((path, metadata.len(), written))
    });
    let facts: Vec<_> = facts.collect();
    let now = Duration::from_millis(Clock::wall_millis());
    for (path, size, written) in facts.into_iter().rev() {
        let is_old = now.saturating_sub(written) > retention;
        match room.checked_sub(size).filter(|_| !is_old) {
            Some(left) => room = left,
            None => {
                // All that are older are too many as well.
                room = 0;
                let _ = fs::remove_file(&path);
            }
        }
    }
}

/// A new file of this number, which nobody else may read: lines tell who asked for what.
///
/// # Errors
/// What the operating system says; also if it is there.
pub fn create(folder: &Path, number: u64) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = folder.join(format!("{number:010}{SUFFIX}"));
    OpenOptions::new().create_new(true).append(true).mode(0o600).open(path)
}

/// The files of the folder with their numbers, oldest first.
///
/// # Errors
/// The folder cannot be read.
pub fn numbered(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(SUFFIX));
        if let Some(number) = name.and_then(|name| name.parse().ok()) {
            files.push((number, path));
        }
    }
    files.sort_unstable();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_testkit::TempDir;

    fn options(dir: &TempDir) -> LinesOptions {
        let (folder, day) = (dir.join("lines"), Duration::from_secs(86_400));
        LinesOptions { folder, max_file_size: 100, max_total_size: 300, retention: day }
    }

    fn sizes(dir: &TempDir) -> Vec<u64> {
        numbered(&dir.join("lines")).unwrap().iter().map(|(_, path)| path.metadata().unwrap().len()).collect()
    }

    #[test]
    fn files_are_followed_by_the_next_and_the_oldest_go() {
        let dir = TempDir::new();
        let mut lines = Lines::new(options(&dir));
        assert!(!dir.join("lines").exists(), "nothing is made before there is something");
        let line = [b'x'; 40];
        (0..2).for_each(|_| lines.append(&line).unwrap());
        assert_eq!(sizes(&dir), [80]);
        (0..20).for_each(|_| lines.append(&line).unwrap());
        let all = sizes(&dir);
        assert!(all.iter().sum::<u64>() <= 300 && all.len() > 2, "{all:?}");
        // Another process goes on behind them.
        let last = numbered(&dir.join("lines")).unwrap().last().unwrap().0;
        let mut again = Lines::new(options(&dir));
        again.append(&line).unwrap();
        assert_eq!(numbered(&dir.join("lines")).unwrap().last().unwrap().0, last + 1);
    }

    #[test]
    fn the_old_go_whatever_room_there_is() {
        let dir = TempDir::new();
        let mut lines = Lines::new(LinesOptions { retention: Duration::from_millis(5), ..options(&dir) });
        lines.append(&[b'x'; 90]).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        lines.append(&[b'x'; 90]).unwrap();
        assert_eq!(sizes(&dir), [90]);
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_an_error_each_time_and_no_more() {
        let dir = TempDir::new();
        fs::write(dir.join("lines"), "a file").unwrap();
        let mut lines = Lines::new(options(&dir));
        assert!(lines.append(b"x\n").is_err() && lines.append(b"x\n").is_err());
        fs::remove_file(dir.join("lines")).unwrap();
        lines.append(b"x\n").unwrap();
        assert_eq!(sizes(&dir), [2]);
    }
}
