//! The keys for a gateway's own tokens, in a file beside its last good table, which only its owner reads.
//!
//! The file appears whole or not at all. It is [`MAGIC`], the message as it is sent, and the BLAKE3 hash of everything before.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

use prost::Message;

use crate::MAX_MESSAGE_BYTES;
use crate::proto::Tokens;
use crate::saved::{Folder, MODE, SavedError, io_error};

/// What the file begins with.
pub const MAGIC: &[u8; 18] = b"holdfast tokens 1\n";
const FILE: &str = "tokens.keys";

impl Folder {
    /// The keys that were saved last. `None`: none were. Blocks.
    ///
    /// # Errors
    /// Why what is there is not to be used.
    pub fn load_tokens(&self) -> Result<Option<Tokens>, SavedError> {
        let path = self.path.join(FILE);
        let mut bytes = Vec::new();
        match File::open(&path) {
            Ok(file) => file.take(MAX_MESSAGE_BYTES as u64).read_to_end(&mut bytes).map_err(io_error("read", &path))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("open", &path)(error)),
        };
        if !bytes.starts_with(MAGIC) {
            return Err(SavedError::Foreign(path));
        }
        let torn = |why: &str| SavedError::Torn { path: path.clone(), why: why.to_owned() };
        let end = bytes.len().saturating_sub(blake3::OUT_LEN).max(MAGIC.len());
        let (content, hash) = bytes.split_at(end);
        if blake3::hash(content).as_bytes() != hash {
            return Err(torn("its hash is another one"));
        }
        let message = content.get(MAGIC.len()..).unwrap_or_default();
        Tokens::decode(bytes::Bytes::copy_from_slice(message)).map(Some).map_err(|_| torn("it is no message"))
    }

    /// Saves keys. Those that are there stay until these are whole. Blocks.
    ///
    /// # Errors
    /// What the file system said.
    pub fn save_tokens(&self, tokens: &Tokens) -> Result<(), SavedError> {
        let (path, beside) = (self.path.join(FILE), self.path.join(format!("{FILE}.new")));
        let content = [&MAGIC[..], &tokens.encode_to_vec()].concat();
        let hash = blake3::hash(&content);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(&beside);
        let mut file = file.map_err(io_error("write", &beside))?;
        let written = file.write_all(&content).and_then(|()| file.write_all(hash.as_bytes()));
        written.and_then(|()| file.sync_all()).map_err(io_error("write", &beside))?;
        fs::rename(&beside, &path).map_err(io_error("replace", &path))?;
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(io_error("sync", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    use holdfast_testkit::TempDir;

    #[test]
    fn what_is_saved_is_read_and_what_is_torn_is_not() {
        let dir = TempDir::new();
        let folder = Folder::open(dir.path()).unwrap();
        assert_eq!(folder.load_tokens().unwrap(), None);
        for stamp in [7, 8] {
            let tokens = Tokens { stamp, content: b"keys"[..].into() };
            folder.save_tokens(&tokens).unwrap();
            assert_eq!(folder.load_tokens().unwrap(), Some(tokens));
        }
        let path = dir.join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let good = fs::read(&path).unwrap();
        for bad in [&good[..good.len() - 1], &good[..MAGIC.len()], &[&good[..], b"x"].concat(), b"other", b""] {
            fs::write(&path, bad).unwrap();
            assert!(folder.load_tokens().is_err(), "{bad:?}");
        }
    }
}
