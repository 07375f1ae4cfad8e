//! Route tokens as headers, and the secrets that sign them.

use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue};

use holdfast_config::RouteToken;
use holdfast_identity::base64;
use holdfast_submission::sticky::{self, Keep};
use holdfast_submission::{BadToken, Claim, Key, Record, Secret, Secrets, token};
use holdfast_telemetry::Clock;
use holdfast_types::TenantId;

use crate::headers;

/// The secret that is made where none is named.
const FILE: &str = "route.key";
/// How often the file is looked at.
const LOOK: Duration = Duration::from_secs(1);
const SHORTEST: usize = 32;
const MOST: usize = 4;

/// See the module.
pub struct Tokens {
    secrets: ArcSwap<(String, Secrets)>,
    file: PathBuf,
    lifetime: Duration,
}

impl Tokens {
    /// With the secrets of the configured file, or with one that is made in the state folder.
    ///
    /// # Errors
    /// They cannot be read, made, or used, in words.
    pub fn open(config: &RouteToken, state: &Path) -> Result<Self, String> {
        let file = config.key_file.clone().unwrap_or_else(|| state.join(FILE));
        if config.key_file.is_none() && !file.exists() {
            make(state, &file).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let secrets = secrets(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        Ok(Self { secrets: ArcSwap::from_pointee((text, secrets)), file, lifetime: config.lifetime })
    }

    /// Takes the secrets anew when their file changes. Those that cannot be used change nothing.
    pub async fn watch(&self) {
        let mut refused = String::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let read = tokio::fs::read_to_string(&self.file).await.map_err(|e| e.to_string());
            let taken = match &read {
                Ok(text) if *text == self.secrets.load().0 => continue,
                Ok(text) => secrets(text).map(|secrets| (text.clone(), secrets)),
                Err(error) => Err(error.clone()),
            };
            match taken {
                Ok(taken) => {
                    self.secrets.store(taken.into());
                    tracing::info!(file = %self.file.display(), "the secrets of route tokens were read anew");
                }
                Err(why) if why != refused => {
                    tracing::error!(file = %self.file.display(), %why, "the secrets of route tokens stay as they were");
                    refused = why;
                }
                Err(_) => {}
            }
        }
    }

    /// What a request's token says to its tenant. None: it brings none.
    ///
    /// # Errors
    /// [`BadToken`].
    pub fn claim(&self, fields: &HeaderMap, tenant: &str) -> Result<Option<Claim>, BadToken> {
        let mut values = fields.get_all(headers::ROUTE).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(BadToken::Malformed);
        }
        self.open_text(value.as_bytes(), tenant).map(Some)
    }

    /// What a token says to this tenant.
    ///
    /// # Errors
    /// [`BadToken`].
    pub fn open_text(&self, text: &[u8], tenant: &str) -> Result<Claim, BadToken> {
        if text.len() > token::LONGEST * 4 / 3 {
            return Err(BadToken::Malformed);
        }
        let bytes = base64::decode(text).ok_or(BadToken::Malformed)?;
        self.secrets.load().1.open(&bytes, tenant, Clock::wall_millis())
    }

    /// What a sticky token says to this tenant.
    ///
    /// # Errors
    /// [`BadToken`].
    pub fn open_sticky(&self, text: &[u8], tenant: &str, now: u64) -> Result<Keep, BadToken> {
        let bytes = Some(text).filter(|text| text.len() <= sticky::LONGEST * 4 / 3).and_then(base64::decode);
        Keep::open(&self.secrets.load().1, &bytes.ok_or(BadToken::Malformed)?, tenant, now)
    }

    /// A sticky token as text. None: its key is too long to be kept.
    pub fn sticky(&self, keep: &Keep) -> Option<String> {
        keep.sign(&self.secrets.load().1).map(|bytes| base64::encode(&bytes))
    }

    /// The token of a resolution.
    pub fn header(&self, tenant: &TenantId, record: &Record, key: Option<&Key>) -> Option<HeaderValue> {
        HeaderValue::try_from(base64::encode(&self.secrets.load().1.sign(tenant, record, key))).ok()
    }

    /// Until when a token counts that is given now.
    pub fn until(&self) -> u64 {
        Clock::wall_millis().saturating_add(u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX))
    }
}

fn secrets(text: &str) -> Result<Secrets, String> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<&str> = lines.collect();
    if let Some(at) = lines.iter().position(|line| line.len() < SHORTEST) {
        return Err(format!("the secret number {} has fewer than {SHORTEST} characters", at + 1));
    }
    match lines.split_first() {
        Some((first, others)) if others.len() < MOST => {
            let others = others.iter().map(|line| Secret::new(line.as_bytes())).collect();
            Ok(Secrets::new(Secret::new(first.as_bytes()), others))
        }
        Some(_) => Err(format!("there are more than {MOST} secrets")),
        None => Err("there is no secret in it".to_owned()),
    }
}

/// Makes the file with one secret, for this user alone. It is there whole or not at all.
fn make(state: &Path, file: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(state)?;
    let mut random = [0u8; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    let part = file.with_extension("part");
    let mut made = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    made.write_all(format!("{}\n", base64::encode(&random)).as_bytes())?;
    made.sync_all()?;
    std::fs::rename(&part, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_secrets() {
        let long = |c: char| c.to_string().repeat(SHORTEST);
        assert!(secrets(&long('a')).is_ok());
        assert!(secrets(&format!("# new\n{}\n\n  {}  \n", long('a'), long('b'))).is_ok());
        for bad in [String::new(), "# none\n".to_owned(), "short".to_owned(), format!("{}\nshort", long('a'))] {
            assert!(secrets(&bad).is_err(), "{bad:?}");
        }
        let five: Vec<String> = "abcde".chars().map(long).collect();
        assert!(secrets(&five.join("\n")).is_err());
    }
}
