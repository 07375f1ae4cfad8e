//! Reads the configuration from its file, with the environment's overrides.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_config::{Faults, Frame, ReadFile, Source, Split, placed, split};

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
    let text = text(path)?;
    let (environment, folder) = (environment(), folder(path));
    let base = folder.to_path_buf();
    let read_file: ReadFile = Arc::new(move |named: &Path| read_bounded(&base.join(named)));
    let name = path.display().to_string();
    let source = Source { text: &text, name: &name, environment: &environment, folder, read_file: &*read_file };
    let split = split(&source).map_err(ConfigError::Faults)?;
    let frame = Frame { rest: split.rest.clone(), folder: folder.to_path_buf(), read_file };
    Ok(Read { split, frame })
}

/// Reads, checks and takes apart what a file says, without the environment's overrides: they are this process's and not the table's.
///
/// # Errors
/// [`ConfigError`].
pub fn take_apart(path: &Path) -> Result<Split, ConfigError> {
    let text = text(path)?;
    let folder = folder(path);
    let read_file = |named: &Path| read_bounded(&folder.join(named));
    let name = path.display().to_string();
    let source = Source { text: &text, name: &name, environment: &[], folder, read_file: &read_file };
    split(&source).map_err(ConfigError::Faults)
}

/// Gives faults that were found beside the text of a good file, by path and reason, their places in it.
///
/// # Errors
/// The file is not there any more.
pub fn places(path: &Path, found: &[(String, String)]) -> Result<Faults, ConfigError> {
    let text = text(path)?;
    let (name, environment) = (path.display().to_string(), environment());
    Ok(placed(&Source { environment: &environment, ..Source::text(&name, &text) }, found))
}

fn text(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|e| ConfigError::Read(path.into(), e))
}

fn environment() -> Vec<(String, String)> {
    let variables = std::env::vars_os();
    variables.filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))).collect()
}

fn folder(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path)?.take(MOST + 1).read_to_end(&mut bytes)?;
    if read as u64 > MOST {
        return Err(io::Error::other("the file is larger than 16 MiB"));
    }
    Ok(bytes)
}
