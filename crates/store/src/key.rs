//! What a resource is called: a space, a kind and a name.

use crate::error::{Error, Result};
use crate::limits::{MAX_KIND_BYTES, MAX_NAME_PARTS};
use holdfast_digest::Keyed;
use holdfast_types::TenantId;
use std::fmt;
use std::sync::Arc;

/// Which of the two tables a resource belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// What people asked for.
    Desired,
    /// What gateways serve.
    InForce,
}

impl Space {
    /// Both spaces.
    pub const ALL: [Self; 2] = [Self::Desired, Self::InForce];

    /// The space's number in files and tables. Never changes.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Desired => 0,
            Self::InForce => 1,
        }
    }

    /// The space of a number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Desired),
            1 => Some(Self::InForce),
            _ => None,
        }
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Desired => "desired",
            Self::InForce => "in_force",
        })
    }
}

/// A kind and a name, for example `pin acme/screen`. Ordered by kind, then name, byte by byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Kind, a zero byte, name: the order of these bytes is the order of the pairs, since a zero byte sorts before all that may be in either.
    text: Arc<str>,
    kind: u8,
}

impl Key {
    /// Checks kind and name.
    ///
    /// A kind is a short word of lower-case ASCII letters, digits and `_` that begins with a letter. A name is one to [`MAX_NAME_PARTS`]
    /// parts with `/` between them, each under the rule for ids.
    ///
    /// # Errors
    /// [`Error::Invalid`] with what is wrong.
    pub fn new(kind: &str, name: &str) -> Result<Self> {
        check_kind(kind)?;
        if name.split('/').count() > MAX_NAME_PARTS {
            return Err(Error::invalid(format!("a name has more than {MAX_NAME_PARTS} parts")));
        }
        for part in name.split('/') {
            TenantId::check(part).map_err(|e| Error::invalid(format!("a part of the name of a {kind} {e}")))?;
        }
        Ok(Self { text: format!("{kind}\0{name}").into(), kind: u8::try_from(kind.len()).unwrap_or(u8::MAX) })
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.text.get(..usize::from(self.kind)).unwrap_or_default()
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text.get(usize::from(self.kind) + 1..).unwrap_or_default()
    }

    /// Kind, a zero byte, name.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// Reads back what [`Key::as_bytes`] gave.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let text = std::str::from_utf8(bytes).ok().and_then(|t| t.split_once('\0'));
        let (kind, name) = text.ok_or_else(|| Error::corrupt("a key without kind and name"))?;
        Self::new(kind, name).map_err(|_| Error::corrupt("a key that breaks the rule for keys"))
    }
}

/// The rule for kinds of resources and of records.
pub(crate) fn check_kind(kind: &str) -> Result<()> {
    let begins = kind.starts_with(|c: char| c.is_ascii_lowercase());
    let word = kind.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if begins && word && kind.len() <= MAX_KIND_BYTES {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a kind is 1 to {MAX_KIND_BYTES} lower-case ASCII letters, digits or '_', and begins with a letter"
    )))
}

impl Keyed for Key {
    fn kind(&self) -> &str {
        self.kind()
    }

    fn name(&self) -> &str {
        self.name()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// A key in a space.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The space.
    pub space: Space,
    /// The key.
    pub key: Key,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.space, self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_names_at_their_edges() {
        let long = "x".repeat(128);
        for (kind, name) in [("pin", "acme/screen"), ("a", "0"), ("model_2", &long), (&"k".repeat(32), "a/b/c/d")] {
            let key = Key::new(kind, name).unwrap();
            assert_eq!((key.kind(), key.name()), (kind, name));
            assert_eq!(Key::from_bytes(key.as_bytes()).unwrap(), key);
        }
        let bad_kinds = ["", "Pin", "9a", "_a", "a-b", "a b", "pin\0", "p\u{ef}n", &"k".repeat(33)];
        for kind in bad_kinds {
            assert!(Key::new(kind, "a").is_err(), "{kind:?}");
        }
        for name in ["", "/", "a/", "/a", "a//b", "a/b/c/d/e", "a b", "a\0b", "..", &"x".repeat(129)] {
            assert!(Key::new("pin", name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn order_is_by_kind_then_name() {
        let key = |kind, name| Key::new(kind, name).unwrap();
        let sorted = [key("pin", "a"), key("pin", "a-b"), key("pin", "a/b"), key("pin", "a0"), key("pin_x", "a")];
        for pair in sorted.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
            assert!((pair[0].kind(), pair[0].name()) < (pair[1].kind(), pair[1].name()));
        }
    }
}
