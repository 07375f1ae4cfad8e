//! The commands about the gateways' own tokens.

use clap::Subcommand;

use super::AdminArgs;

/// About tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Revoke one token, or all that were given for an API key until now. The key itself stays good: see `key revoke`.
    Revoke {
        /// The claim jti of a token.
        #[arg(long, value_name = "JTI", conflicts_with = "key", required_unless_present = "key")]
        token: Option<String>,
        /// The prefix of an API key, or what it begins with: hfk_PREFIX.
        #[arg(long, value_name = "PREFIX")]
        key: Option<String>,
        /// Why, for the log.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Which control plane.
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Have another key sign tokens, out of turn.
    Rotate {
        /// Take the other keys away at once: every token that was given until now is bad. For a key that somebody else may have.
        #[arg(long)]
        at_once: bool,
        /// Which control plane.
        #[command(flatten)]
        admin: AdminArgs,
    },
}
