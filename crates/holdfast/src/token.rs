//! The bearer token of the admin port, from the file that the configuration names. `check` and `serve` read it by the same rule.

use std::io;
use std::path::PathBuf;

use holdfast_config::Config;

/// Shorter ones could be guessed.
const SHORTEST: usize = 16;

/// Where the token file is named.
pub const PATH: &str = "listen.admin.token_file";

/// Why there is no token. The token itself is in no text.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("{} cannot be read: {}", .0.display(), .1)]
    Read(PathBuf, io::Error),
    /// It is too short.
    #[error("{}: a token has at least {SHORTEST} characters", .0.display())]
    Short(PathBuf),
}

/// The token that callers must show; `None` if the configuration names no file.
///
/// # Errors
/// [`TokenError`].
pub fn read(config: &Config) -> Result<Option<String>, TokenError> {
    let Some(file) = &config.listen.admin.token_file else { return Ok(None) };
    let text = std::fs::read_to_string(file).map_err(|e| TokenError::Read(file.clone(), e))?;
    let token = text.trim();
    if token.chars().count() < SHORTEST {
        return Err(TokenError::Short(file.clone()));
    }
    Ok(Some(token.to_owned()))
}
