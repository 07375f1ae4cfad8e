//! The keys of an issuer, out of one document (RFC 7517, 5). An odd key in it is left out with a reason, and the others are used.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::alg::Algorithm;
use crate::json;
use crate::jws::Compact;
use crate::key::{Key, Source};
use crate::reject::{Reject, Why};

/// The most keys of a document that are looked at.
pub const MOST: usize = 256;

/// A key that is not used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its place in the document, from 0.
    pub index: usize,
    /// Its name, if it has one.
    pub kid: Option<String>,
    /// Why.
    pub why: &'static str,
}

/// See the module.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Vec<Arc<Key>>,
}

impl KeySet {
    /// Reads a document. Keys that `before` has too are the same ones as there.
    ///
    /// # Errors
    /// It is no key set, or has no key that can be used.
    pub fn read(
        document: &[u8],
        allowed: &[Algorithm],
        source: &Arc<Source>,
        before: Option<&Self>,
    ) -> Result<(Self, Vec<Skipped>), &'static str> {
        let document = json::object(document).ok_or("it is no JSON object, or has a member twice")?;
        let listed = document.get("keys").and_then(Value::as_array).ok_or("it has no list of keys")?;
        if listed.len() > MOST {
            return Err("it has too many keys");
        }
        let mut named: BTreeMap<&str, usize> = BTreeMap::new();
        let kids = listed.iter().map(|jwk| jwk.get("kid").and_then(Value::as_str));
        kids.flatten().for_each(|kid| *named.entry(kid).or_default() += 1);
        let (mut keys, mut skipped) = (Vec::new(), Vec::new());
        for (index, jwk) in listed.iter().enumerate() {
            let kid = jwk.get("kid").and_then(Value::as_str);
            let is_ambiguous = kid.is_some_and(|kid| named.get(kid).is_some_and(|count| *count > 1));
            let read = match jwk.as_object() {
                _ if is_ambiguous => Err("another key has the same kid"),
                None => Err("it is no JSON object"),
                Some(jwk) => Key::read(jwk, allowed, source),
            };
            match read {
                Ok(key) => keys.push(before.and_then(|before| before.same(&key)).unwrap_or_else(|| Arc::new(key))),
                Err(why) => skipped.push(Skipped { index, kid: kid.map(str::to_owned), why }),
            }
        }
        if keys.is_empty() { Err("it has no key that can be used") } else { Ok((Self { keys }, skipped)) }
    }

    fn same(&self, key: &Key) -> Option<Arc<Key>> {
        self.keys.iter().find(|one| one.is_same(key)).cloned()
    }

    /// Whether both have the same keys.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.keys.len() == other.keys.len() && self.keys.iter().all(|key| other.same(key).is_some())
    }

    /// Notes which keys are not in `next` any more.
    pub fn followed_by(&self, next: &Self) {
        self.keys.iter().filter(|key| !next.keys.iter().any(|one| Arc::ptr_eq(one, key))).for_each(|key| key.go());
    }

    /// All keys.
    #[must_use]
    pub fn keys(&self) -> &[Arc<Key>] {
        &self.keys
    }

    /// The key that a token names; without a name, the only one that checks its algorithm.
    ///
    /// # Errors
    /// `UnknownKey`.
    pub fn key_for(&self, token: &Compact<'_>) -> Result<&Arc<Key>, Reject> {
        let Some(kid) = &token.kid else {
            let mut fitting = self.keys.iter().filter(|key| key.checks(token.alg));
            return match (fitting.next(), fitting.next()) {
                (Some(key), None) => Ok(key),
                _ => Err(Reject::new(Why::UnknownKey, "the token names no key")),
            };
        };
        let found = self.keys.iter().find(|key| key.kid.as_ref() == Some(kid));
        found.ok_or(Reject::new(Why::UnknownKey, "the token's key is not known"))
    }

    /// The key whose signature a token has.
    ///
    /// # Errors
    /// `UnknownKey`, `Algorithm`, `Signature`.
    pub fn verify(&self, token: &Compact<'_>) -> Result<&Arc<Key>, Reject> {
        let key = self.key_for(token)?;
        key.verify(token.alg, token.signed, &token.signature)?;
        Ok(key)
    }
}
