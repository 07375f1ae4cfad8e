//! Who keeps an arm when more becomes known of them: somebody without a user's name is told apart by a device, gets an arm by it, and logs in.
//!
//! What is kept is the key, never the arm. So an arm still follows from the table and a key by the published hash, and whoever could make up what is kept
//! could choose no version.

use crate::experiment::{Facts, KeyFrom};
use crate::place::{Purpose, hash};

/// A key that gave somebody an arm before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept<'k> {
    /// What it is.
    pub from: KeyFrom,
    /// The key.
    pub key: &'k str,
    /// Whose it became: the [`subject`] of the better key that was known first beside it. None: nobody's yet.
    pub owner: Option<u64>,
}

/// How long keys are kept, and in which order they are preferred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sticky {
    /// How long, in milliseconds.
    pub keep_ms: u64,
    /// By preference.
    pub keys: Box<[KeyFrom]>,
}

/// What is to be kept anew of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anew {
    /// Whose the key is now, if a better one is known or was.
    pub owner: Option<u64>,
}

/// What stands for a key in events and in what is kept: a published hash of it and of what it is.
#[must_use]
pub fn subject(from: KeyFrom, key: &str) -> u64 {
    hash(Purpose::Subject, &[from.as_str().as_bytes(), key.as_bytes()])
}

/// The first of these keys that is known.
pub(crate) fn own<'f>(keys: &[KeyFrom], facts: &'f impl Facts) -> Option<(KeyFrom, &'f str)> {
    keys.iter().find_map(|from| facts.key(*from).filter(|key| !key.is_empty()).map(|key| (*from, key)))
}

/// Whether a key comes before another one.
fn is_better(keys: &[KeyFrom], one: KeyFrom, other: KeyFrom) -> bool {
    let rank = |key| keys.iter().position(|one| *one == key);
    rank(one) < rank(other)
}

impl Kept<'_> {
    /// Whether it decides in the place of the key that is known. Not if the request proves another one of its kind, and not for somebody else than its owner.
    pub(crate) fn stands_for(&self, keys: &[KeyFrom], own: Option<(KeyFrom, &str)>) -> bool {
        let is_key = keys.contains(&self.from) && !self.key.is_empty();
        is_key
            && own.is_none_or(|(from, key)| match from == self.from {
                true => key == self.key,
                false if is_better(keys, from, self.from) => self.owner.is_none_or(|owner| owner == subject(from, key)),
                false => true,
            })
    }
}

impl Sticky {
    /// What is to be kept of somebody whom this key gave an arm. `kept` is the owner that was kept so far, and for how many milliseconds that still counts.
    /// None: nothing new, since the best key decides by itself, or since enough is kept.
    pub fn keep(&self, by: KeyFrom, kept: Option<(Option<u64>, u64)>, facts: &impl Facts) -> Option<Anew> {
        let better = own(&self.keys, facts).filter(|(from, _)| is_better(&self.keys, *from, by));
        let now = better.map(|(from, key)| subject(from, key));
        match kept {
            None => (self.keys.first() != Some(&by)).then_some(Anew { owner: now }),
            Some((owner, left)) => {
                let is_new = owner.is_none() && now.is_some();
                (is_new || left < self.keep_ms / 2).then_some(Anew { owner: owner.or(now) })
            }
        }
    }
}
