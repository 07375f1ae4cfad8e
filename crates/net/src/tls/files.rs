//! Which files a server's certificates are in, and what tells one state of them from another.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The files of a server's certificates, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The chain, the own certificate first.
    pub certificates: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Who signs the certificates of clients. A client without one is let in, to prove otherwise who it is; one with a certificate that is not
    /// signed by these, or whose time is over, is not.
    pub clients: Option<PathBuf>,
    /// Whether a client without a certificate is not let in either.
    pub required: bool,
    /// Whether HTTP/2 is offered beside HTTP/1.1.
    pub h2: bool,
}

/// Node, size and times of each file; none for one that is not there.
pub(super) type Marks = [Option<(u64, u64, i64, i64)>; 3];

impl Files {
    /// As the files are now.
    pub(super) fn marks(&self) -> Marks {
        [Some(&self.certificates), Some(&self.key), self.clients.as_ref()].map(|file| file.and_then(|file| mark(file)))
    }
}

fn mark(path: &Path) -> Option<(u64, u64, i64, i64)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.ino(), metadata.size(), metadata.mtime(), metadata.mtime_nsec()))
}
