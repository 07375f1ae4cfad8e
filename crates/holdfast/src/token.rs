//! The tokens of the admin port, from the files that the configuration names. `check` and `serve` read them by the same rule.

use std::io;
use std::path::PathBuf;

use holdfast_config::Config;
use holdfast_control::api::{SHORTEST, Tokens, TokensError};

/// Where the file of the one token is named.
pub const PATH: &str = "listen.admin.token_file";
/// Where the file of tokens with roles is named.
pub const ROLES_PATH: &str = "listen.admin.tokens_file";

/// Why there is no token. The token itself is in no text.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("{} cannot be read: {}", .0.display(), .1)]
    Read(PathBuf, io::Error),
    /// It is too short.
    #[error("{}: a token has at least {SHORTEST} characters", .0.display())]
    Short(PathBuf),
    /// The file of tokens with roles.
    #[error(transparent)]
    Roles(TokensError),
}

impl TokenError {
    /// The field of the configuration that names the file.
    pub const fn path(&self) -> &'static str {
        match self {
            Self::Roles(_) => ROLES_PATH,
            Self::Read(..) | Self::Short(_) => PATH,
        }
    }
}

fn single(config: &Config) -> Result<Option<String>, TokenError> {
    let Some(file) = &config.listen.admin.token_file else { return Ok(None) };
    let text = std::fs::read_to_string(file).map_err(|e| TokenError::Read(file.clone(), e))?;
    let token = text.trim();
    if token.chars().count() < SHORTEST {
        return Err(TokenError::Short(file.clone()));
    }
    Ok(Some(token.to_owned()))
}

/// All tokens; `None` if the configuration names no file.
///
/// # Errors
/// [`TokenError`].
pub fn all(config: &Config) -> Result<Option<Tokens>, TokenError> {
    let (single, file) = (single(config)?, config.listen.admin.tokens_file.as_deref());
    if single.is_none() && file.is_none() {
        return Ok(None);
    }
    Tokens::new(single.as_deref(), file).map(Some).map_err(TokenError::Roles)
}
