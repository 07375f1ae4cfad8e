//! A submission's key: whose it is, and what its client calls it. Kept as a hash, so that a ledger holds no text that clients chose.

use std::fmt;

/// The longest key that a client may send.
pub const LONGEST: usize = 256;

/// The scope and the text of a key, as 128 bits. The scope is tenant and user; the model is in the record, so that one key for two models is found out.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub [u8; 16]);

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// It has no character, or more than [`LONGEST`].
    Length,
    /// It has something else than visible ASCII characters.
    Characters,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("is not 1 to 256 visible ASCII characters, once")
    }
}

impl Key {
    /// The key of a tenant's user.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn new(tenant: &str, user: &[u8], text: &[u8]) -> Result<Self, KeyError> {
        if !(1..=LONGEST).contains(&text.len()) {
            return Err(KeyError::Length);
        }
        if !text.iter().all(u8::is_ascii_graphic) {
            return Err(KeyError::Characters);
        }
        let mut hasher = blake3::Hasher::new_derive_key("holdfast 2026-11-30 submission key");
        for part in [tenant.as_bytes(), user, text] {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        let mut out = [0; 16];
        out.copy_from_slice(hasher.finalize().as_bytes().first_chunk::<16>().unwrap_or(&[0; 16]));
        Ok(Self(out))
    }

    /// In hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0.iter().fold(String::with_capacity(32), |mut out, byte| {
            for half in [byte >> 4, byte & 15] {
                out.push(char::from_digit(u32::from(half), 16).unwrap_or('0'));
            }
            out
        })
    }

    /// A number that follows from it, to spread keys by.
    #[must_use]
    pub fn slot(&self) -> u64 {
        u64::from_be_bytes(*self.0.first_chunk().unwrap_or(&[0; 8]))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_and_which_are_both_in_it() {
        let key = |tenant: &str, user: &str, text: &str| Key::new(tenant, user.as_bytes(), text.as_bytes()).unwrap();
        let all =
            [key("a", "b", "c"), key("ab", "", "c"), key("a", "", "bc"), key("a", "bc", "d"), key("a", "b", "cd")];
        for (at, one) in all.iter().enumerate() {
            assert!(all.iter().skip(at + 1).all(|other| other != one), "{at}");
        }
        assert_eq!(key("a", "b", "c"), key("a", "b", "c"));
        assert_eq!(key("a", "b", "c").hex().len(), 32);
    }

    #[test]
    fn texts_that_are_no_keys() {
        let key = |text: &[u8]| Key::new("a", b"", text);
        assert_eq!(key(b""), Err(KeyError::Length));
        assert_eq!(key(&[b'x'; 257]), Err(KeyError::Length));
        assert!(key(&[b'x'; 256]).is_ok());
        for bad in [&b"a b"[..], b" ", b"a\0", b"caf\xc3\xa9", b"a\t"] {
            assert_eq!(key(bad), Err(KeyError::Characters), "{bad:?}");
        }
    }
}
