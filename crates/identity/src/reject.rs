//! Why a token proves nobody: a closed list, for a metric's label, and words for who sent it.

use std::fmt;

/// The reason, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It is no token in the compact form, or a part of it is not well-formed.
    Malformed,
    /// Its algorithm is none that is allowed, or not that of its key.
    Algorithm,
    /// No issuer that is configured is named.
    Issuer,
    /// Its key is not among the issuer's.
    UnknownKey,
    /// The signature is not the key's.
    Signature,
    /// Its time is over.
    Expired,
    /// Its time has not begun, or it was issued in the future.
    NotYet,
    /// It is meant for somebody else.
    Audience,
    /// A claim is missing, or is not what it has to be.
    Claims,
    /// It names no tenant, or one that its issuer does not speak for.
    Tenant,
    /// It was revoked.
    Revoked,
}

impl Why {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Malformed,
        Self::Algorithm,
        Self::Issuer,
        Self::UnknownKey,
        Self::Signature,
        Self::Expired,
        Self::NotYet,
        Self::Audience,
        Self::Claims,
        Self::Tenant,
        Self::Revoked,
    ];

    /// As a label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Algorithm => "algorithm",
            Self::Issuer => "issuer",
            Self::UnknownKey => "unknown_key",
            Self::Signature => "signature",
            Self::Expired => "expired",
            Self::NotYet => "not_yet",
            Self::Audience => "audience",
            Self::Claims => "claims",
            Self::Tenant => "tenant",
            Self::Revoked => "revoked",
        }
    }
}

/// A refused token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The reason, as a label.
    pub why: Why,
    /// For who sent it. Nothing of the token is in it.
    pub words: &'static str,
}

impl Reject {
    /// With these words.
    #[must_use]
    pub const fn new(why: Why, words: &'static str) -> Self {
        Self { why, words }
    }

    pub(crate) const fn malformed(words: &'static str) -> Self {
        Self::new(Why::Malformed, words)
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words)
    }
}

impl std::error::Error for Reject {}
