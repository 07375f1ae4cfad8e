//! The file that is written: whole pieces of text or nothing of them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug)]
pub(super) struct Tail {
    file: File,
    path: PathBuf,
    /// Bytes of whole pieces.
    pub(super) size: u64,
    /// A part of a piece may stand after them.
    torn: bool,
}

impl Tail {
    /// A file that is there.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let file = File::options().append(true).open(&path)?;
        let size = file.metadata()?.len();
        Ok(Self { file, path, size, torn: false })
    }

    /// A new file.
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        let file = File::options().append(true).create_new(true).mode(0o640).open(&path)?;
        Ok(Self { file, path, size: 0, torn: false })
    }

    /// Writes a piece. On an error nothing of it is left, also if the disk is full: cutting needs no room.
    pub(super) fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        self.mend()?;
        if let Err(error) = self.file.write_all(piece) {
            self.torn = true;
            // What fails here is tried again before the next piece, or by the next process.
            let _ = self.mend();
            return Err(error);
        }
        self.size += piece.len() as u64;
        Ok(())
    }

    fn mend(&mut self) -> io::Result<()> {
        if self.torn {
            self.file.set_len(self.size)?;
            self.torn = false;
        }
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Whether the file is still the one of its name: what is written into a removed file is lost.
    pub(super) fn is_there(&self) -> bool {
        let inode = |meta: fs::Metadata| (meta.dev(), meta.ino());
        let (mine, named) = (self.file.metadata().map(inode), fs::metadata(&self.path).map(inode));
        matches!((mine, named), (Ok(mine), Ok(named)) if mine == named)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
impl Tail {
    pub(super) fn replace_file(&mut self, file: File) {
        self.file = file;
    }
}
