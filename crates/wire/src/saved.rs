//! A gateway's last good table, in one file: what it starts from when no control plane answers.
//!
//! The file appears whole or not at all: it is written beside, synced, and renamed. It is [`MAGIC`], the format's version (u32, little
//! endian), the parts of the table as they are sent (each with its length before it, u32, little endian), a length of 0, and the BLAKE3 hash
//! of everything before. What is read has the digest that it says, or it is refused.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use prost::Message;

use crate::MAX_MESSAGE_BYTES;
use crate::held::{Assembly, Held, Taken};
use crate::parts::Parts;
use crate::proto::TablePart;

/// What the file begins with.
pub const MAGIC: &[u8; 15] = b"holdfast table\n";
const VERSION: u32 = 1;
const FILE: &str = "last-good.table";
const LOCK: &str = "last-good.lock";
/// A table may hold what is nobody's business.
pub(crate) const MODE: u32 = 0o600;

/// Why there is no table to start from, or why it could not be saved.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named for what they are; the text of the variant says the rest")]
pub enum SavedError {
    /// What the file system said.
    #[error("cannot {what} {}: {error}", path.display())]
    Io { what: &'static str, path: PathBuf, error: io::Error },
    /// Another gateway has the folder.
    #[error("{} belongs to another gateway that runs", folder.display())]
    Locked { folder: PathBuf, lock: PathBuf },
    /// Something else is under the name.
    #[error("{} is not a saved table", .0.display())]
    Foreign(PathBuf),
    /// A later release wrote it.
    #[error("{} is in version {version} of its format; this release reads {VERSION}", path.display())]
    Later { path: PathBuf, version: u32 },
    /// It is not what was written.
    #[error("{} is torn: {why}", path.display())]
    Torn { path: PathBuf, why: String },
}

/// A gateway's folder, held by one process.
#[derive(Debug)]
pub struct Folder {
    pub(crate) path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes the folder if there is none, and locks it.
    ///
    /// # Errors
    /// [`SavedError::Locked`], or what the file system said.
    pub fn open(path: &Path) -> Result<Self, SavedError> {
        fs::create_dir_all(path).map_err(io_error("make", path))?;
        let lock_path = path.join(LOCK);
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(MODE).open(&lock_path);
        let lock = lock.map_err(io_error("open", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(SavedError::Locked { folder: path.to_owned(), lock: lock_path }),
            Err(TryLockError::Error(error)) => Err(io_error("lock", &lock_path)(error)),
        }
    }

    /// Where the table is.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }

    /// The table that was saved last. `None`: none was. Blocks.
    ///
    /// # Errors
    /// Why what is there is not to be used.
    pub fn load(&self) -> Result<Option<Held>, SavedError> {
        let path = self.file();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("open", &path)(error)),
        };
        Reader { input: BufReader::new(file), hash: blake3::Hasher::new(), path: &path }.table().map(Some)
    }

    /// Saves a table. The one that is there stays until this one is whole. Blocks.
    ///
    /// # Errors
    /// What the file system said.
    pub fn save(&self, held: &Held) -> Result<(), SavedError> {
        let Some(makes) = held.stamp() else { return Ok(()) };
        let (path, beside) = (self.file(), self.path.join(format!("{FILE}.new")));
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(&beside);
        let file = file.map_err(io_error("write", &beside))?;
        let parts = Parts::new(makes, None, held.edits(), None);
        write(file, parts).map_err(io_error("write", &beside))?;
        fs::rename(&beside, &path).map_err(io_error("replace", &path))?;
        // The name is durable only with its folder.
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(io_error("sync", &self.path))
    }
}

pub(crate) fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SavedError {
    let path = path.to_owned();
    move |error| SavedError::Io { what, path, error }
}

fn write(file: File, parts: impl Iterator<Item = TablePart>) -> io::Result<()> {
    let (mut out, mut hash) = (BufWriter::new(file), blake3::Hasher::new());
    let mut put = |bytes: &[u8]| {
        hash.update(bytes);
        out.write_all(bytes)
    };
    put(MAGIC)?;
    put(&VERSION.to_le_bytes())?;
    for part in parts {
        let bytes = part.encode_to_vec();
        put(&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes())?;
        put(&bytes)?;
    }
    put(&0_u32.to_le_bytes())?;
    out.write_all(hash.finalize().as_bytes())?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

struct Reader<'a> {
    input: BufReader<File>,
    hash: blake3::Hasher,
    path: &'a Path,
}

impl Reader<'_> {
    fn table(mut self) -> Result<Held, SavedError> {
        let mut magic = [0; MAGIC.len()];
        if self.fill(&mut magic).is_err() || magic != *MAGIC {
            return Err(SavedError::Foreign(self.path.to_owned()));
        }
        let version = self.number()?;
        if version != VERSION {
            return Err(SavedError::Later { path: self.path.to_owned(), version });
        }
        let (nothing, mut assembly, mut found) = (Held::default(), Assembly::default(), None);
        loop {
            let length = self.number()? as usize;
            if length == 0 {
                break;
            }
            if length > MAX_MESSAGE_BYTES {
                return Err(self.torn("a part is longer than any that is written"));
            }
            let mut bytes = vec![0; length];
            self.fill(&mut bytes)?;
            let part = TablePart::decode(Bytes::from(bytes)).map_err(|e| self.torn(e))?;
            if let Taken::New(held, _) = assembly.take(&nothing, part).map_err(|e| self.torn(e))? {
                found = Some(*held);
            }
        }
        self.end()?;
        found.ok_or_else(|| self.torn("the table has no end"))
    }

    /// The hash, and nothing after it.
    fn end(&mut self) -> Result<(), SavedError> {
        let computed = self.hash.finalize();
        let mut hash = [0; blake3::OUT_LEN];
        self.fill(&mut hash)?;
        let more = self.input.read(&mut [0]).map_err(io_error("read", self.path))?;
        if computed != hash || more > 0 {
            return Err(self.torn("its hash is another one"));
        }
        Ok(())
    }

    fn number(&mut self) -> Result<u32, SavedError> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), SavedError> {
        match self.input.read_exact(bytes) {
            Ok(()) => {
                self.hash.update(bytes);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.torn("it ends too early")),
            Err(error) => Err(io_error("read", self.path)(error)),
        }
    }

    fn torn(&self, why: impl ToString) -> SavedError {
        SavedError::Torn { path: self.path.to_owned(), why: why.to_string() }
    }
}
