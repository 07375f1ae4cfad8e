//! The commands about API keys.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::AdminArgs;

/// About API keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make a key. It is printed once, and nowhere kept: the table has its hash.
    Create(CreateKeyArgs),
    /// List a tenant's keys: prefixes, ends, users; never a secret.
    List {
        /// Whose.
        tenant: String,
        /// Which control plane.
        #[command(flatten)]
        admin: AdminArgs,
    },
    /// Take a key away: requests that bring it are refused as soon as a gateway has the table.
    Revoke {
        /// Whose.
        tenant: String,
        /// Its prefix, or what it begins with: hfk_PREFIX.
        prefix: String,
        /// Why, for the history.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Which control plane.
        #[command(flatten)]
        admin: AdminArgs,
    },
}

/// What a key is to be.
#[derive(Debug, Args)]
pub struct CreateKeyArgs {
    /// Whose.
    pub tenant: String,
    /// For how long it is good, such as 12h or 90d. Left out: until it is revoked.
    #[arg(long, value_name = "TIME", value_parser = days)]
    pub expires_in: Option<Duration>,
    /// Which user shows it.
    #[arg(long)]
    pub user: Option<String>,
    /// The plan that says what its user may use.
    #[arg(long)]
    pub plan: Option<String>,
    /// What rules, experiments and the override see of it. A scope by itself allows and refuses nothing. Several times for several.
    #[arg(long = "scope", value_name = "SCOPE")]
    pub scopes: Vec<String>,
    /// Whatever people want to know of it.
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
    /// Why, for the history.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Which control plane.
    #[command(flatten)]
    pub admin: AdminArgs,
}

fn days(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err("a whole number and a unit: 30m, 12h, 90d".to_owned()),
    };
    let whole = number.parse::<u64>().ok().and_then(|n| n.checked_mul(seconds));
    let whole = whole.filter(|seconds| (1..=3_650 * 86_400).contains(seconds));
    whole.map(Duration::from_secs).ok_or_else(|| "a whole number and a unit, from one second to 3,650 days".to_owned())
}
