//! The ledger of submissions in Redis or Valkey: one key for each submission, and one script, so that of several gateways the first one wins.
//!
//! A store that has lost its data does not say so: it says that it knows nothing. So it is not believed when it says so while it is younger than
//! [`SETTLES`]. In that time gateways that notice tell it again what they remember.

use std::time::Duration;

use crate::{Down, Store};

/// How long a store that was empty is not believed when it says that it does not know a submission.
pub const SETTLES: Duration = Duration::from_secs(5);

/// What the ledger says of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// It is new: the record that was proposed is kept.
    Fresh,
    /// This was kept before.
    Held(Vec<u8>),
    /// It is not known, but it may have been.
    Unsettled,
}

/// An answer of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Of the submission.
    pub first: First,
    /// When the store was empty, in microseconds since 1970.
    pub born: u64,
}

/// The script.
pub struct Ledger {
    script: redis::Script,
}

impl Default for Ledger {
    fn default() -> Self {
        Self { script: redis::Script::new(FIRST) }
    }
}

/// KEYS: 1 the submission, 2 since when anything can have been there (the same slot). ARGV: 1 the proposal, 2 ms that it counts, 3 us until the store settles.
const FIRST: &str = "local t = redis.call('TIME') local now = t[1] * 1000000 + t[2] \
    redis.call('SET', KEYS[2], string.format('%.0f', now), 'NX') local born = redis.call('GET', KEYS[2]) \
    local held = redis.call('GET', KEYS[1]) if held then return {1, born, held} end \
    if now - tonumber(born) < tonumber(ARGV[3]) then return {2, born, ''} end \
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return {0, born, ''}";

impl Ledger {
    /// What a submission was resolved to first: what is held, or else this proposal, which is kept for so long.
    ///
    /// # Errors
    /// [`Down`]. The proposal may be kept then.
    pub async fn first(
        &self,
        store: &Store,
        (key, slot): (&str, u64),
        proposal: &[u8],
        keep: Duration,
    ) -> Result<Told, Down> {
        self.ask(store, (key, slot), proposal, keep, SETTLES).await
    }

    /// Tells a store again what it may have lost. What it knows stays as it is.
    ///
    /// # Errors
    /// [`Down`].
    pub async fn again(
        &self,
        store: &Store,
        (key, slot): (&str, u64),
        record: &[u8],
        left: Duration,
    ) -> Result<Told, Down> {
        self.ask(store, (key, slot), record, left, Duration::ZERO).await
    }

    async fn ask(
        &self,
        store: &Store,
        (key, slot): (&str, u64),
        record: &[u8],
        keep: Duration,
        settles: Duration,
    ) -> Result<Told, Down> {
        let base = store.base(slot);
        let mut call = self.script.key(format!("{base}:submission:{key}"));
        call.key(format!("{base}:born"));
        call.arg(record).arg(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX).max(1));
        call.arg(u64::try_from(settles.as_micros()).unwrap_or(u64::MAX));
        let (said, born, held): (i64, u64, Vec<u8>) = store.call(&call).await?;
        let first = match said {
            0 => First::Fresh,
            1 => First::Held(held),
            _ => First::Unsettled,
        };
        Ok(Told { first, born })
    }
}
