//! From weights to ranges. Weights are proportions: whatever they sum to is the whole.

use std::fmt;

use crate::place::PLACES;

/// Places from one (included) to another (not).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// The first place.
    pub from: u16,
    /// The place after the last one.
    pub to: u16,
}

impl Range {
    /// The whole.
    pub const ALL: Self = Self { from: 0, to: PLACES };

    /// Whether a place is in it.
    #[must_use]
    pub const fn has(self, place: u16) -> bool {
        self.from <= place && place < self.to
    }

    /// How many places it has.
    #[must_use]
    pub const fn len(self) -> u16 {
        self.to.saturating_sub(self.from)
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Whether both have a place in common.
    #[must_use]
    pub const fn meets(self, other: Self) -> bool {
        self.from < other.to && other.from < self.to && !self.is_empty() && !other.is_empty()
    }
}

/// Why weights are no split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitError {
    /// There is no arm, or more than [`Split::MOST`].
    Arms,
    /// All weights are zero.
    Zero,
    /// This arm's share is above zero and less than one of 10,000.
    TooSmall(usize),
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arms => write!(f, "an experiment has 1 to {} arms", Split::MOST),
            Self::Zero => f.write_str("all weights are zero: nobody would get any arm"),
            Self::TooSmall(arm) => write!(f, "the weight of arm {arm} is less than 1 of {PLACES}: it would get nobody"),
        }
    }
}

impl std::error::Error for SplitError {}

/// The arms' ranges, in the order of the arms. They meet end to end and cover the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split(Vec<Range>);

impl Split {
    /// The most arms.
    pub const MOST: usize = 64;

    /// From weights. The end of an arm is `10,000 * (sum up to it) / (sum of all)`, rounded down; so a weight of zero is an empty range, also alone
    /// beside others, and one weight is the whole.
    ///
    /// # Errors
    /// [`SplitError`].
    pub fn of(weights: &[u32]) -> Result<Self, SplitError> {
        if weights.is_empty() || weights.len() > Self::MOST {
            return Err(SplitError::Arms);
        }
        let total: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        if total == 0 {
            return Err(SplitError::Zero);
        }
        let (mut sum, mut from, mut ranges) = (0, 0, Vec::with_capacity(weights.len()));
        for (arm, weight) in weights.iter().enumerate() {
            sum += u64::from(*weight);
            let to = u16::try_from(u64::from(PLACES) * sum / total).unwrap_or(PLACES);
            let range = Range { from, to };
            if *weight > 0 && range.is_empty() {
                return Err(SplitError::TooSmall(arm));
            }
            ranges.push(range);
            from = to;
        }
        Ok(Self(ranges))
    }

    /// Ranges as they were given, one for each arm in whatever order. None: too many or none, or they do not meet end to end over the whole.
    #[must_use]
    pub fn given(ranges: Vec<Range>) -> Option<Self> {
        let mut sorted: Vec<Range> = ranges.iter().copied().filter(|range| !range.is_empty()).collect();
        sorted.sort_unstable_by_key(|range| range.from);
        let end = sorted.iter().try_fold(0, |end, range| (range.from == end).then_some(range.to));
        (end == Some(PLACES) && ranges.len() <= Self::MOST).then_some(Self(ranges))
    }

    /// The arm that has a place.
    #[must_use]
    pub fn arm(&self, place: u16) -> Option<usize> {
        self.0.iter().position(|range| range.has(place))
    }

    /// The ranges.
    #[must_use]
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }
}
