//! What has been verified, by the digest of the token: a signature costs 20 to 100 us, a look here less than one.
//!
//! A table of fixed size, four places for each digest. A proof is good until its token ends, and only while its key is among its issuer's and the
//! issuer's keys may be used.

use std::sync::Arc;

use holdfast_types::Mono;

use crate::claims::Subject;
use crate::key::Key;

/// The digest of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Of a token, byte by byte.
    #[must_use]
    pub fn of(token: &[u8]) -> Self {
        Self(*blake3::hash(token).as_bytes())
    }

    /// A part of it, where a rare collision does no harm.
    #[must_use]
    pub fn short(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    fn place(&self, sets: usize) -> usize {
        usize::try_from(self.short() % sets.max(1) as u64).unwrap_or(0)
    }
}

/// A verified token.
#[derive(Clone, Debug)]
pub struct Proof {
    /// Whom it names.
    pub subject: Arc<Subject>,
    /// Until when, in milliseconds since 1970.
    pub until: u64,
    /// By which key.
    pub key: Arc<Key>,
}

/// What a look finds.
#[derive(Clone, Debug)]
pub enum Found {
    /// It is still good.
    Good(Arc<Subject>),
    /// The issuer's keys are too old to say so.
    Stale,
    /// It was verified and is over: its time, or its key.
    Over,
    /// It is not known.
    Nothing,
}

struct Entry {
    digest: Digest,
    proof: Proof,
    /// When it was last looked at, by the table's own count.
    used: u64,
}

/// See the module.
pub struct Cache {
    places: Vec<Option<Box<Entry>>>,
    looks: u64,
}

const WAYS: usize = 4;

impl Cache {
    /// With room for about this many.
    #[must_use]
    pub fn new(room: usize) -> Self {
        let sets = room.div_ceil(WAYS).max(1);
        Self { places: std::iter::repeat_with(|| None).take(sets * WAYS).collect(), looks: 0 }
    }

    fn set(&mut self, digest: &Digest) -> &mut [Option<Box<Entry>>] {
        let at = digest.place(self.places.len() / WAYS) * WAYS;
        &mut self.places[at..at + WAYS]
    }

    /// Looks for a token. What is over is forgotten.
    pub fn find(&mut self, digest: &Digest, now: Mono, wall: u64) -> Found {
        self.looks += 1;
        let looks = self.looks;
        let set = self.set(digest);
        let Some(place) = set.iter_mut().find(|p| p.as_ref().is_some_and(|e| e.digest == *digest)) else {
            return Found::Nothing;
        };
        let Some(entry) = place else { return Found::Nothing };
        if wall >= entry.proof.until || entry.proof.key.is_gone() {
            *place = None;
            return Found::Over;
        }
        if now >= entry.proof.key.source.usable_until() {
            return Found::Stale;
        }
        entry.used = looks;
        Found::Good(entry.proof.subject.clone())
    }

    /// Keeps a proof, in the place of what has not been looked for for the longest time.
    pub fn put(&mut self, digest: Digest, proof: Proof) {
        let used = self.looks;
        let set = self.set(&digest);
        let is_same = |place: &Option<Box<Entry>>| place.as_ref().is_some_and(|entry| entry.digest == digest);
        let place = set.iter().position(is_same);
        let oldest =
            || set.iter().enumerate().min_by_key(|(_, place)| place.as_ref().map_or(0, |entry| entry.used + 1));
        let place = place.or_else(|| oldest().map(|(at, _)| at)).unwrap_or(0);
        set[place] = Some(Box::new(Entry { digest, proof, used }));
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
