//! Names that people choose: tenants, models, versions, pools, replicas. One rule for all of them.
//!
//! An id has 1 to [`MAX_ID_LEN`] characters out of ASCII letters, digits, `.`, `_` and `-`, and starts with a letter or digit. So two ids that
//! look alike are alike: there is no Unicode form, no white space and no path syntax in them. Ids are compared byte by byte; that two ids
//! of one kind differ only in case is refused where they are declared (configuration), so case never makes a second tenant.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

/// The most characters that an id may have.
pub const MAX_ID_LEN: usize = 128;

/// Why a text is not an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdError {
    /// There are no characters.
    Empty,
    /// There are more than [`MAX_ID_LEN`] bytes.
    TooLong,
    /// The first character is not an ASCII letter or digit.
    BadStart,
    /// A character other than ASCII letters, digits, `.`, `_`, `-`.
    BadCharacter(char),
    /// The version is `latest` in any case: a pin names exactly one immutable version.
    Latest,
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("is empty"),
            Self::TooLong => write!(f, "is longer than {MAX_ID_LEN} characters"),
            Self::BadStart => f.write_str("must start with an ASCII letter or digit"),
            Self::BadCharacter(c) => {
                write!(f, "has the character {c:?}; allowed are ASCII letters, digits, '.', '_' and '-'")
            }
            Self::Latest => f.write_str("is \"latest\", which names no immutable version; name the version itself"),
        }
    }
}

impl std::error::Error for IdError {}

fn check(text: &str) -> Result<(), IdError> {
    let Some(first) = text.chars().next() else { return Err(IdError::Empty) };
    if text.len() > MAX_ID_LEN {
        return Err(IdError::TooLong);
    }
    if let Some(bad) = text.chars().find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '-')) {
        return Err(IdError::BadCharacter(bad));
    }
    if !first.is_ascii_alphanumeric() {
        return Err(IdError::BadStart);
    }
    Ok(())
}

fn check_version(text: &str) -> Result<(), IdError> {
    check(text)?;
    if text.eq_ignore_ascii_case("latest") { Err(IdError::Latest) } else { Ok(()) }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $check:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Checks the text against the one rule for ids.
            ///
            /// # Errors
            /// The first thing about the text that breaks the rule.
            pub fn parse(text: &str) -> Result<Self, IdError> {
                Self::check(text).map(|()| Self(text.into()))
            }

            /// The same check, without making the id.
            ///
            /// # Errors
            /// The first thing about the text that breaks the rule.
            pub fn check(text: &str) -> Result<(), IdError> {
                $check(text)
            }

            /// The id's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

id!(
    /// A customer: the owner of pins, limits and shares.
    TenantId,
    check
);
id!(
    /// A model as clients name it.
    ModelName,
    check
);
id!(
    /// One immutable version of a model. Never `latest`.
    Version,
    check_version
);
id!(
    /// A group of model-server replicas that speak one protocol.
    PoolName,
    check
);
id!(
    /// The stable name of one replica in its pool. Its address may change; the name decides where keys hash to.
    ReplicaName,
    check
);
id!(
    /// A named set of limits.
    PlanName,
    check
);
id!(
    /// An experiment.
    ExperimentName,
    check
);
id!(
    /// An arm of an experiment.
    ArmName,
    check
);
id!(
    /// A rule of a tenant that chooses a version.
    RuleName,
    check
);
id!(
    /// The stable name of one gateway of the fleet.
    GatewayName,
    check
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_at_its_edges() {
        for good in ["a", "A9", "acme", "acme-eu.prod_2", "0", "2024-05-01", &"x".repeat(MAX_ID_LEN)] {
            assert_eq!(TenantId::parse(good).map(|t| t.to_string()), Ok(good.to_owned()));
        }
        let long = "x".repeat(MAX_ID_LEN + 1);
        let bad = [
            ("", IdError::Empty),
            (long.as_str(), IdError::TooLong),
            ("-a", IdError::BadStart),
            (".", IdError::BadStart),
            (" a", IdError::BadCharacter(' ')),
            ("a/b", IdError::BadCharacter('/')),
            ("caf\u{e9}", IdError::BadCharacter('\u{e9}')),
            ("cafe\u{301}", IdError::BadCharacter('\u{301}')),
            ("\u{ff21}cme", IdError::BadCharacter('\u{ff21}')),
            ("ac\u{200b}me", IdError::BadCharacter('\u{200b}')),
            ("a\0", IdError::BadCharacter('\0')),
        ];
        for (text, why) in bad {
            assert_eq!(TenantId::parse(text), Err(why), "{text:?}");
        }
    }

    #[test]
    fn latest_is_no_version_in_any_case() {
        for text in ["latest", "Latest", "LATEST"] {
            assert_eq!(Version::parse(text), Err(IdError::Latest));
            assert!(ModelName::parse(text).is_ok(), "only a version may not be called {text}");
        }
        assert!(Version::parse("latest-2").is_ok());
    }
}
