//! Digests of what goes through: BLAKE3 over a body's bytes, without the body.
//!
//! A small body is copied and hashed by the log's own thread: hashing one kibibyte costs some seven thousand instructions, a copy of it a hundred.
//! A larger one is hashed as it goes by.

use std::sync::Arc;

use blake3::{Hash, Hasher};
use bytes::Bytes;
use parking_lot::Mutex;

/// Bodies of at most this many bytes are copied. With the queue's bound this is the bound of what the log may hold.
const COPIED: usize = 4 * 1024;

/// The digest of a body, finished or not.
#[derive(Clone, Debug, Default)]
pub struct Digested(State);

#[derive(Clone, Debug, Default)]
enum State {
    /// Nothing went by yet.
    #[default]
    Empty,
    /// All that went by, a small piece.
    Copied(Bytes),
    /// More than that.
    Running(Box<Hasher>),
    /// Someone else feeds it.
    Shared(SharedDigest),
}

/// A digest that is fed in one place and read in another, by one thread at a time.
pub type SharedDigest = Arc<Mutex<Digested>>;

impl Digested {
    /// Of a whole body.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        let mut digest = Self::default();
        digest.update(body);
        digest
    }

    /// Of a body that someone else sees go by.
    #[must_use]
    pub fn shared(with: SharedDigest) -> Self {
        Self(State::Shared(with))
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Empty if bytes.len() <= COPIED => self.0 = State::Copied(Bytes::copy_from_slice(bytes)),
            State::Empty => self.0 = State::Running(Box::new(fed(&[bytes]))),
            State::Copied(first) => self.0 = State::Running(Box::new(fed(&[first, bytes]))),
            State::Running(hasher) => {
                hasher.update(bytes);
            }
            State::Shared(shared) => shared.lock().update(bytes),
        }
    }

    /// The digest of what went by so far.
    #[must_use]
    pub fn finish(&self) -> Hash {
        match &self.0 {
            State::Empty => blake3::hash(&[]),
            State::Copied(bytes) => blake3::hash(bytes),
            State::Running(hasher) => hasher.finalize(),
            State::Shared(shared) => shared.lock().finish(),
        }
    }
}

fn fed(pieces: &[&[u8]]) -> Hasher {
    let mut hasher = Hasher::new();
    for piece in pieces {
        hasher.update(piece);
    }
    hasher
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_does_not_depend_on_the_pieces() {
        let body: Vec<u8> = (0..20_000u32).map(|n| n.to_le_bytes()[0]).collect();
        for (length, piece) in [(0, 1), (1, 1), (100, 7), (COPIED, COPIED), (COPIED + 1, COPIED + 1), (20_000, 3_000)] {
            let (mut digest, shared) = (Digested::default(), SharedDigest::default());
            for piece in body[..length].chunks(piece) {
                digest.update(piece);
                shared.lock().update(piece);
            }
            let expected = blake3::hash(&body[..length]);
            assert_eq!(digest.finish(), expected, "{length} in pieces of {piece}");
            assert_eq!(Digested::shared(shared).finish(), expected);
            assert_eq!(Digested::of(&body[..length]).finish(), expected);
        }
    }
}
