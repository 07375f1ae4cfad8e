//! Reads the configuration from its file, with the environment's overrides.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_config::{Faults, Frame, ReadFile, Source, Split, split};

/// Files that a configuration names may have this many bytes.
const MOST: u64 = 16 << 20;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{0}: {1}")]
    Read(PathBuf, io::Error),
    /// Its faults, all of them.
    #[error("{0}")]
    Faults(Faults),
}

/// A file, taken apart.
pub struct Read {
    /// The whole, and what of it routes.
    pub split: Split,
    /// What does not.
    pub frame: Frame,
}

/// Reads, checks and takes apart.
///
/// # Errors
/// [`ConfigError`].
pub fn read(path: &Path) -> Result<Read, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|e| ConfigError::Read(path.into(), e))?;
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let read_file: ReadFile = Arc::new(move |named: &Path| read_bounded(&folder.join(named)));
    let name = path.display().to_string();
    let source = Source { text: &text, name: &name, environment: &environment, read_file: &*read_file };
    let split = split(&source).map_err(ConfigError::Faults)?;
    let frame = Frame { rest: split.rest.clone(), read_file };
    Ok(Read { split, frame })
}

/// Reads, checks and takes apart what a file says, without the environment's overrides: they are this process's and not the table's.
///
/// # Errors
/// [`ConfigError`].
pub fn take_apart(path: &Path) -> Result<Split, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|e| ConfigError::Read(path.into(), e))?;
    let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let read_file = move |named: &Path| read_bounded(&folder.join(named));
    let name = path.display().to_string();
    split(&Source { text: &text, name: &name, environment: &[], read_file: &read_file }).map_err(ConfigError::Faults)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)?.take(MOST + 1).read_to_end(&mut bytes)?;
    if read as u64 > MOST {
        return Err(io::Error::other("the file is larger than 16 MiB"));
    }
    Ok(bytes)
}
