//! API keys: `hfk_<prefix>_<secret>`. The prefix is for looking a key up and for talking about it; the secret is shown once, and what is kept of it is a hash.
//!
//! The secret is 256 random bits, so a plain hash of it cannot be guessed from; it is keyed with the prefix, so that a hash is good for its own prefix only.

use std::fmt::Write;

/// What every key begins with.
pub const MARK: &str = "hfk_";
/// Hexadecimal digits of a prefix.
pub const PREFIX: usize = 12;
/// Hexadecimal digits of a secret.
pub const SECRET: usize = 64;

/// The hash of a secret.
pub type Hash = blake3::Hash;

/// A key as somebody shows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shown<'k> {
    /// By which it is looked up.
    pub prefix: &'k str,
    secret: &'k str,
}

impl<'k> Shown<'k> {
    /// Takes a text apart. None: it is no key.
    #[must_use]
    pub fn parse(text: &'k str) -> Option<Self> {
        let (prefix, secret) = text.strip_prefix(MARK)?.split_once('_')?;
        let is_hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let is_key = prefix.len() == PREFIX && secret.len() == SECRET && is_hex(prefix) && is_hex(secret);
        is_key.then_some(Self { prefix, secret })
    }

    /// The hash of its secret.
    #[must_use]
    pub fn hash(&self) -> Hash {
        hash(self.prefix, self.secret)
    }
}

/// Whether a text is a prefix.
#[must_use]
pub fn is_prefix(text: &str) -> bool {
    text.len() == PREFIX && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn hash(prefix: &str, secret: &str) -> Hash {
    let mut hasher = blake3::Hasher::new_derive_key("holdfast 2026-11-30 api key");
    // Both have a fixed length.
    hasher.update(prefix.as_bytes());
    hasher.update(secret.as_bytes());
    hasher.finalize()
}

/// A new key: what is shown once, its prefix, and the hash that is kept. The bytes must be random.
#[must_use]
pub fn make(random: [u8; 38]) -> (String, String, Hash) {
    let hex = |bytes: &[u8]| {
        bytes.iter().fold(String::new(), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        })
    };
    let (prefix, secret) = (hex(&random[..6]), hex(&random[6..]));
    let hash = hash(&prefix, &secret);
    (format!("{MARK}{prefix}_{secret}"), prefix, hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_own_hash_and_nothing_elses() {
        let random: [u8; 38] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        let (text, prefix, hash) = make(random);
        assert_eq!(text, format!("hfk_000102030405_{}", "06".to_owned() + &text[19..]));
        let shown = Shown::parse(&text).unwrap();
        assert_eq!((shown.prefix, shown.hash()), (prefix.as_str(), hash));
        assert_eq!(hash.to_hex().as_str(), FROZEN, "kept hashes stay good");
        let other = text.replace("hfk_000102030405", "hfk_000102030406");
        assert_ne!(Shown::parse(&other).unwrap().hash(), hash);
    }

    /// Of another implementation of BLAKE3.
    const FROZEN: &str = "3bf38c7ce60c559575f4fcefc256e7bca92f1eab5a1470da0028b1da7df45c30";

    #[test]
    fn what_is_no_key() {
        let good = make([7; 38]).0;
        for bad in [
            "",
            "hfk_",
            "hfk__",
            &good[1..],
            &good[..good.len() - 1],
            &format!("{good}0"),
            &good.to_uppercase(),
            &good.replace("hfk_07", "hfk_0g"),
            &format!(" {good}"),
        ] {
            assert!(Shown::parse(bad).is_none(), "{bad}");
        }
        assert!(is_prefix("0123456789ab") && !is_prefix("0123456789aB") && !is_prefix("0123456789a"));
    }
}
