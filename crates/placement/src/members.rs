//! A versioned list of members, sorted by name.
//!
//! A member is its name and its weight. Its address is nobody's business here, so a changed address moves no key; the order in which members
//! were listed is lost, so it changes nothing either.

use std::fmt;

use holdfast_types::{Revision, Weight};

/// One member: a stable name and a share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The stable name. Keys hash to it.
    pub name: Box<str>,
    /// The member's share. Zero: it owns nothing.
    pub weight: Weight,
}

impl Member {
    /// A member.
    pub fn new(name: impl Into<Box<str>>, weight: Weight) -> Self {
        Self { name: name.into(), weight }
    }
}

/// Why a list of members is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembersError {
    /// Two members have this name.
    Duplicate(Box<str>),
    /// More than [`MAX_MEMBERS`].
    TooMany(usize),
}

impl fmt::Display for MembersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate(name) => write!(f, "two members are called {name:?}"),
            Self::TooMany(n) => write!(f, "{n} members; at most {MAX_MEMBERS} are allowed"),
        }
    }
}

impl std::error::Error for MembersError {}

/// The most members of a list.
pub const MAX_MEMBERS: usize = 10_000;

/// Members sorted by name. The index of a member in it is what owners and subsets are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberList {
    version: Revision,
    members: Box<[Member]>,
}

impl MemberList {
    /// A list of these members, in whatever order they come.
    ///
    /// # Errors
    /// Two members of one name, or too many members.
    pub fn new(version: Revision, mut members: Vec<Member>) -> Result<Self, MembersError> {
        if members.len() > MAX_MEMBERS {
            return Err(MembersError::TooMany(members.len()));
        }
        members.sort_unstable();
        let twice = members.windows(2).find_map(|w| match w {
            [a, b] if a.name == b.name => Some(a.name.clone()),
            _ => None,
        });
        match twice {
            Some(name) => Err(MembersError::Duplicate(name)),
            None => Ok(Self { version, members: members.into() }),
        }
    }

    /// The list's version: a list with a higher one replaces it.
    #[must_use]
    pub fn version(&self) -> Revision {
        self.version
    }

    /// The members, sorted by name.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member at an index.
    #[must_use]
    pub fn get(&self, index: u32) -> Option<&Member> {
        self.members.get(index as usize)
    }

    /// The index of the member of this name.
    #[must_use]
    pub fn index_of(&self, name: &str) -> Option<u32> {
        self.members.binary_search_by(|m| (*m.name).cmp(name)).ok().and_then(|i| u32::try_from(i).ok())
    }

    /// Members that own something, with their indexes.
    pub(crate) fn owning(&self) -> impl Iterator<Item = (u32, &Member)> {
        (0u32..).zip(self.members.iter()).filter(|(_, m)| m.weight.0 > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Result<MemberList, MembersError> {
        MemberList::new(Revision(1), names.iter().map(|n| Member::new(*n, Weight(1))).collect())
    }

    #[test]
    fn order_of_listing_is_lost() {
        assert_eq!(list(&["b", "a", "c"]), list(&["c", "b", "a"]));
        assert_eq!(list(&["b", "a"]).unwrap().index_of("b"), Some(1));
        assert_eq!(list(&["b", "a"]).unwrap().index_of("x"), None);
    }

    #[test]
    fn duplicates_are_refused_whatever_their_weights() {
        let twice = vec![Member::new("a", Weight(1)), Member::new("b", Weight(1)), Member::new("a", Weight(2))];
        assert_eq!(MemberList::new(Revision(1), twice), Err(MembersError::Duplicate("a".into())));
    }
}
