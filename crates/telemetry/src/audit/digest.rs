//! Digests of what goes through: BLAKE3 over a body's bytes, without the body.
//!
//! They are taken at once, while the bytes are in the caches: to copy a body for the log's thread means as many lines of cold memory, written here and
//! read there, as it is long.

use std::fmt;
use std::sync::Arc;

use blake3::Hasher;
use parking_lot::Mutex;

/// A BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Zeroes: of nothing at all.
    pub const ZERO: Self = Self([0; 32]);

    /// Of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes).into())
    }

    /// As 64 hexadecimal digits, in small letters.
    #[must_use]
    pub fn hex(&self) -> Hex {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 64];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        Hex(hex)
    }

    /// Out of its 64 digits.
    #[must_use]
    pub fn parse(hex: &str) -> Option<Self> {
        let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
        let mut hash = [0; 32];
        if pairs.len() != hash.len() || !rest.is_empty() {
            return None;
        }
        let digit = |digit: u8| u8::try_from(char::from(digit).to_digit(16)?).ok();
        for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(hash))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.hex().as_str())
    }
}

/// The digits of a hash.
pub struct Hex([u8; 64]);

impl Hex {
    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // All of them are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The digest of a body that goes by.
#[derive(Clone, Debug, Default)]
pub struct Digested(State);

#[derive(Clone, Debug, Default)]
enum State {
    /// Nothing went by yet.
    #[default]
    Empty,
    /// All of it went by, in one piece.
    Known(Hash),
    /// There may be more: two kibibytes.
    Running(Box<Hasher>),
}

/// A digest that is fed in one place and read in another, by one thread at a time.
pub type SharedDigest = Arc<Mutex<Digested>>;

impl Digested {
    /// Takes the next bytes. `last`: none come after them.
    pub fn update(&mut self, bytes: &[u8], last: bool) {
        match &mut self.0 {
            State::Empty if last => self.0 = State::Known(Hash::of(bytes)),
            State::Empty => {
                let mut hasher = Box::new(Hasher::new());
                hasher.update(bytes);
                self.0 = State::Running(hasher);
            }
            State::Running(hasher) => {
                hasher.update(bytes);
            }
            State::Known(_) => {}
        }
    }

    /// The digest of what went by so far.
    #[must_use]
    pub fn finish(&self) -> Hash {
        match &self.0 {
            State::Empty => Hash::of(&[]),
            State::Known(hash) => *hash,
            State::Running(hasher) => Hash(hasher.finalize().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_does_not_depend_on_the_pieces() {
        let body: Vec<u8> = (0..20_000u32).map(|n| n.to_le_bytes()[0]).collect();
        for (length, piece) in [(0, 1), (1, 1), (100, 7), (4_096, 4_096), (20_000, 3_000)] {
            let mut digest = Digested::default();
            body[..length].chunks(piece).for_each(|piece| digest.update(piece, false));
            let mut known = Digested::default();
            known.update(&body[..length], true);
            known.update(&[], true);
            assert_eq!(known.finish(), digest.finish());
            assert_eq!(digest.finish(), Hash::of(&body[..length]), "{length} in pieces of {piece}");
        }
    }

    #[test]
    fn digits_are_those_of_b3sum_and_read_back() {
        let hash = Hash::of(b"hello");
        let hex = "ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f";
        assert_eq!((hash.hex().as_str(), Hash::parse(hex)), (hex, Some(hash)));
        for wrong in ["", &hex[1..], &hex.replace('a', "g"), &format!("{hex}0"), &hex.replacen("ea", "+a", 1)] {
            assert_eq!(Hash::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Hash::ZERO.hex().as_str(), "0".repeat(64));
    }
}
