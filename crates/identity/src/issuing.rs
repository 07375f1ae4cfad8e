//! Tokens of one's own: the keys that sign them, how one key follows another, and what was revoked.
//!
//! Keys are Ed25519 (RFC 8037): a key is 32 random bytes, and a signature needs no randomness. [`rotation`] is the machine, a pure function from what is
//! stored to what is stored next; [`mint`] makes tokens (RFC 9068); [`State`] is all of it as it is stored and as gateways hold it.

pub mod mint;
pub mod rotation;

use std::fmt;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::base64;

/// How much longer a key is published than any of its tokens lives: clocks may be apart by so much.
pub const MARGIN: u64 = 5 * 60 * 1_000;
/// The most keys at a time.
pub const MOST_KEYS: usize = 64;
/// The most revocations at a time.
pub const MOST_REVOKED: usize = 4_096;
const FORM: u32 = 1;

/// A key that signs. All times are milliseconds since 1970, fixed when it is made: whoever holds the key knows them, however long he is alone.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningKey {
    /// Its name.
    pub kid: String,
    seed: String,
    /// When it begins to sign.
    pub signs_from: u64,
    /// When it signs no more, whoever has not heard of the next one.
    pub signs_until: u64,
    /// How long one of its tokens lives at most, in milliseconds.
    pub life: u64,
    /// When it is published no more: no token of it is good by then.
    pub ends: u64,
}

/// The secret is nobody's business.
impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("kid", &self.kid).finish_non_exhaustive()
    }
}

impl SigningKey {
    /// A new one. `seed` must be random.
    #[must_use]
    pub fn new(seed: [u8; 32], signs_from: u64, plan: &rotation::Plan) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
        let print = blake3::hash(pair.public_key().as_ref());
        // Whoever has not heard of the next key signs for as long again.
        let signs_until = signs_from.saturating_add(plan.rotate.saturating_mul(2));
        Some(Self {
            kid: print.to_hex().chars().take(16).collect(),
            seed: base64::encode(&seed),
            signs_from,
            signs_until,
            life: plan.life,
            ends: signs_until.saturating_add(plan.life).saturating_add(MARGIN),
        })
    }

    /// Whether it may sign now.
    #[must_use]
    pub const fn signs(&self, now: u64) -> bool {
        self.signs_from <= now && now < self.signs_until
    }

    fn pair(&self) -> Option<Ed25519KeyPair> {
        Ed25519KeyPair::from_seed_unchecked(&base64::decode(self.seed.as_bytes())?).ok()
    }
}

/// What was revoked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The token with this `jti`.
    Token(String),
    /// All tokens that were given for the API key with this prefix, before a time.
    Key(String),
}

/// A revocation. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// What.
    pub what: What,
    /// Tokens that were issued then or before.
    pub before: u64,
    /// When none of them can be good any more, so that this is forgotten.
    pub ends: u64,
}

/// All keys, and what was revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    form: u32,
    /// Grows with each change, and is a time in milliseconds since 1970 or later: a store that was restored goes on above all that it ever told.
    pub stamp: u64,
    /// In the order in which they begin to sign.
    pub keys: Vec<SigningKey>,
    /// In no order that means anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revoked: Vec<Revoked>,
}

impl State {
    /// Reads one. None: it is damaged, or of another form.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let state: Self = serde_json::from_slice(bytes).ok()?;
        (state.form == FORM && state.keys.iter().all(|key| key.pair().is_some())).then_some(state)
    }

    /// As it is stored.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The same with a later stamp.
    #[must_use]
    pub fn stamped(mut self, now: u64) -> Self {
        (self.form, self.stamp) = (FORM, now.max(self.stamp.saturating_add(1)));
        self
    }

    /// The same with this revoked, and nothing else.
    #[must_use]
    pub fn with_revoked(self, revoked: Vec<Revoked>) -> Self {
        Self { revoked, ..self }
    }

    /// The key that signs now: the latest of those that may.
    #[must_use]
    pub fn signer(&self, now: u64) -> Option<&SigningKey> {
        self.keys.iter().filter(|key| key.signs(now)).max_by_key(|key| key.signs_from)
    }

    /// How long a token that is good now may still be good: what a revocation has to outlive.
    #[must_use]
    pub fn longest(&self, now: u64) -> u64 {
        let life = self.keys.iter().map(|key| key.life).max().unwrap_or(0);
        now.saturating_add(life).saturating_add(MARGIN)
    }

    /// The public keys that are published now (RFC 7517).
    #[must_use]
    pub fn jwks(&self, now: u64) -> String {
        let keys = self.keys.iter().filter(|key| now < key.ends).filter_map(|key| {
            let pair = key.pair()?;
            let x = base64::encode(pair.public_key().as_ref());
            Some(json!({ "kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA", "kid": key.kid, "x": x }))
        });
        json!({ "keys": keys.collect::<Vec<_>>() }).to_string()
    }
}
