//! Reads the configuration from its file, with the environment's overrides.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use holdfast_config::{Faults, Loaded, Source, load};

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

/// Reads and checks.
///
/// # Errors
/// [`ConfigError`].
pub fn read(path: &Path) -> Result<Loaded, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|e| ConfigError::Read(path.into(), e))?;
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
    let read_file = move |named: &Path| read_bounded(&folder.join(named));
    let name = path.display().to_string();
    load(&Source { text: &text, name: &name, environment: &environment, read_file: &read_file })
        .map_err(ConfigError::Faults)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)?.take(MOST + 1).read_to_end(&mut bytes)?;
    if read as u64 > MOST {
        return Err(io::Error::other("the file is larger than 16 MiB"));
    }
    Ok(bytes)
}
