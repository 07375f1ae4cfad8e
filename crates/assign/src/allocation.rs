//! What an experiment has given so far, and which edits would move somebody.
//!
//! Who is in is a range of inclusion places, from 0 to the coverage. A segment of it, once given, keeps the split that it was given with: when coverage
//! falls its people leave, and when it rises again they come back to the same arm. New weights are for people who were never in. So no ramp moves anybody between
//! arms; an edit that would is refused, unless it raises the bucket version, which gives everybody a new place.

use std::fmt;

use crate::place::PLACES;
use crate::split::{Range, Split};

/// Inclusion places with the split that they were given with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Which inclusion places.
    pub range: Range,
    /// Which arm each arm place has in them.
    pub split: Split,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    version: u32,
    coverage: u16,
    /// End to end from 0.
    given: Vec<Segment>,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The bucket version.
    pub version: u32,
    /// How many of 10,000 are in.
    pub coverage: u16,
    /// The arms' split.
    pub split: Split,
}

/// Why an edit is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Coverage is more than all.
    Coverage,
    /// The bucket version is lower than it was.
    Version,
    /// So many of 10,000 have been given with another split, and nobody new would come in who could get this one.
    Moves(u16),
    /// An arm that people have been given is gone.
    ArmGone(usize),
    /// The splits of an experiment have changed too often under one bucket version.
    TooMany,
    /// What is said to have been given is not from 0 on and end to end, or is less than what is in.
    History,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coverage => write!(f, "coverage is at most {PLACES} of {PLACES}"),
            Self::Version => f.write_str("the bucket version never falls"),
            Self::Moves(given) => write!(
                f,
                "{given} of {PLACES} have been given an arm with other weights and would be moved; raise the bucket version to give everybody a \
                 new place, or raise coverage to give the new weights to new people only"
            ),
            Self::ArmGone(arm) => {
                write!(f, "people have been given arm {arm}; give it the weight 0, or raise the bucket version")
            }
            Self::TooMany => f.write_str("the weights have changed too often; raise the bucket version"),
            Self::History => {
                f.write_str("is not end to end from 0 on, with an arm for every place and at least as far as coverage")
            }
        }
    }
}

impl std::error::Error for Refused {}

/// The most segments: an experiment that is ramped with other weights each time.
const SEGMENTS: usize = 64;

impl Allocation {
    /// A new experiment.
    ///
    /// # Errors
    /// Coverage is more than all.
    pub fn new(edit: Edit) -> Result<Self, Refused> {
        if edit.coverage > PLACES {
            return Err(Refused::Coverage);
        }
        let range = Range { from: 0, to: edit.coverage };
        let given = if range.is_empty() { vec![] } else { vec![Segment { range, split: edit.split }] };
        Ok(Self { version: edit.version, coverage: edit.coverage, given })
    }

    /// One that has a history.
    ///
    /// # Errors
    /// [`Refused::History`], [`Refused::Coverage`], [`Refused::TooMany`].
    pub fn restored(version: u32, coverage: u16, given: Vec<Segment>) -> Result<Self, Refused> {
        let end = given.iter().try_fold(0, |end, Segment { range, .. }| {
            (range.from == end && !range.is_empty() && range.to <= PLACES).then_some(range.to)
        });
        match end {
            _ if coverage > PLACES => Err(Refused::Coverage),
            _ if given.len() > SEGMENTS => Err(Refused::TooMany),
            Some(end) if coverage <= end => Ok(Self { version, coverage, given }),
            _ => Err(Refused::History),
        }
    }

    /// The same with its arms in another order: `to` tells the new place of each, of `arms` in all.
    ///
    /// # Errors
    /// [`Refused::ArmGone`]: an arm that people have been given has no place.
    pub fn reordered(&self, arms: usize, to: impl Fn(usize) -> Option<usize>) -> Result<Self, Refused> {
        let mut given = Vec::with_capacity(self.given.len());
        for Segment { range, split } in &self.given {
            let mut ranges = vec![Range::default(); arms];
            for (arm, had) in split.ranges().iter().enumerate().filter(|(_, had)| !had.is_empty()) {
                let place = to(arm).and_then(|at| ranges.get_mut(at));
                *place.ok_or(Refused::ArmGone(arm))? = *had;
            }
            given.push(Segment { range: *range, split: Split::given(ranges).ok_or(Refused::History)? });
        }
        Ok(Self { given, ..*self })
    }

    /// The split that new people of this share would get, if what was given last has the same shares: theirs, whatever the order of the arms.
    #[must_use]
    pub fn like_last(&self, split: Split) -> Split {
        let last = self.given.last().map(|last| &last.split).filter(|last| {
            let pairs = last.ranges().iter().zip(split.ranges());
            last.ranges().len() == split.ranges().len() && pairs.into_iter().all(|(a, b)| a.len() == b.len())
        });
        last.cloned().unwrap_or(split)
    }

    /// The same after an edit.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn edited(&self, edit: Edit) -> Result<Self, Refused> {
        if edit.version < self.version {
            return Err(Refused::Version);
        }
        if edit.version > self.version || self.given.is_empty() {
            return Self::new(edit);
        }
        if edit.coverage > PLACES {
            return Err(Refused::Coverage);
        }
        let arms = edit.split.ranges().len();
        let lost = self.given.iter().flat_map(|segment| {
            segment
                .split
                .ranges()
                .iter()
                .enumerate()
                .skip(arms)
                .filter(|(_, range)| !range.is_empty())
                .map(|(arm, _)| arm)
        });
        if let Some(arm) = lost.min() {
            return Err(Refused::ArmGone(arm));
        }
        let end = self.end();
        let is_same = self.given.last().is_some_and(|last| same(&last.split, &edit.split));
        let mut given = self.given.clone();
        if edit.coverage > end {
            let range = Range { from: end, to: edit.coverage };
            match given.last_mut().filter(|_| is_same) {
                Some(last) => last.range.to = edit.coverage,
                None => given.push(Segment { range, split: edit.split }),
            }
        } else if !is_same {
            return Err(Refused::Moves(end));
        }
        if given.len() > SEGMENTS {
            return Err(Refused::TooMany);
        }
        Ok(Self { version: self.version, coverage: edit.coverage, given })
    }

    /// Up to where places have ever been given.
    fn end(&self) -> u16 {
        self.given.last().map_or(0, |last| last.range.to)
    }

    /// The bucket version.
    #[must_use]
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// How many of 10,000 are in.
    #[must_use]
    pub const fn coverage(&self) -> u16 {
        self.coverage
    }

    /// What has been given.
    #[must_use]
    pub fn given(&self) -> &[Segment] {
        &self.given
    }

    /// The arm of somebody with these places. None: not in.
    #[must_use]
    pub fn arm(&self, inclusion: u16, arm: u16) -> Option<usize> {
        if inclusion >= self.coverage {
            return None;
        }
        self.given.iter().find(|segment| segment.range.has(inclusion))?.split.arm(arm)
    }

    /// The share of each of so many arms among those who are in, in parts of all: what a check of the sample's ratio expects.
    #[must_use]
    pub fn shares(&self, arms: usize) -> Vec<u64> {
        let mut shares = vec![0; arms];
        for segment in &self.given {
            let width = u64::from(segment.range.to.min(self.coverage).saturating_sub(segment.range.from));
            for (share, range) in shares.iter_mut().zip(segment.split.ranges()) {
                *share += width * u64::from(range.len());
            }
        }
        shares
    }
}

/// Whether two splits give every place to the same arm: further arms without a place make no difference.
fn same(one: &Split, other: &Split) -> bool {
    let all = one.ranges().len().max(other.ranges().len());
    let range = |split: &Split, arm: usize| split.ranges().get(arm).copied().filter(|range| !range.is_empty());
    (0..all).all(|arm| range(one, arm) == range(other, arm))
}
