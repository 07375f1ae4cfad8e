//! What a sealed line says, if its own hash is right.

use std::borrow::Cow;

use serde::Deserialize;

use super::digest::Hash;
use super::record::{SEAL, Tip};

/// A line whose own hash is right.
#[derive(Debug)]
pub(super) struct Sealed<'a> {
    pub(super) tip: Tip,
    pub(super) prev: Hash,
    pub(super) facts: Facts<'a>,
}

/// The members that the chain's own machinery reads.
#[derive(Debug, Deserialize)]
pub(super) struct Facts<'a> {
    seq: u64,
    #[serde(borrow)]
    pub(super) time: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    prev: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) why: Cow<'a, str>,
    pub(super) count: Option<u64>,
    #[serde(default)]
    pub(super) torn_bytes: u64,
    #[serde(default)]
    pub(super) files: u64,
    #[serde(default)]
    pub(super) from: u64,
    #[serde(default)]
    pub(super) to: u64,
    #[serde(borrow, default)]
    last: Cow<'a, str>,
}

impl Facts<'_> {
    /// The last record that a removal removed.
    pub(super) fn removed_to(&self) -> Option<Tip> {
        Some(Tip { seq: self.to, hash: Hash::parse(&self.last)? })
    }
}

/// What is wrong with a line by itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// It is no record.
    Malformed,
    /// Its hash is that of another text.
    Changed {
        /// What it says.
        says: String,
        /// What its text has.
        has: String,
    },
}

/// Reads a line, without its line feed.
pub(super) fn unseal(line: &[u8]) -> Result<Sealed<'_>, Flaw> {
    let end = line.len().checked_sub(SEAL.len() + 64 + 2).ok_or(Flaw::Malformed)?;
    let (text, seal) = line.split_at(end);
    let says = seal.strip_prefix(SEAL.as_bytes()).and_then(|rest| rest.strip_suffix(b"\"}")).ok_or(Flaw::Malformed)?;
    let says = std::str::from_utf8(says).map_err(|_| Flaw::Malformed)?;
    let hash = Hash::of(text);
    // As text, so that another spelling of the same number is a change, too.
    if says != hash.hex().as_str() {
        return Err(Flaw::Changed { says: says.escape_default().to_string(), has: hash.hex().to_string() });
    }
    let facts: Facts<'_> = serde_json::from_slice(line).map_err(|_| Flaw::Malformed)?;
    let prev = Hash::parse(&facts.prev).ok_or(Flaw::Malformed)?;
    Ok(Sealed { tip: Tip { seq: facts.seq, hash }, prev, facts })
}
