//! An experiment's windows, read: rates, means and latency of each arm, the difference to the first arm over time, whether the arms have the people that they
//! should have, and what the windows that are left out cost.
//!
//! | what | source |
//! |---|---|
//! | the difference of two means: p-value and interval at all looks | a mixture sequential probability ratio test and its confidence sequence, [`crate::stats`] |
//! | a rate | the mean of zeros and ones: `k/n`, sum of squares `k(n-k)/n`; so a difference of rates is a difference of means |
//! | several arms against one | each at `alpha / (arms - 1)` (Bonferroni; Dunn, "Multiple Comparisons Among Means", JASA 56, 1961) |
//! | people against shares, in all and by reason | Pearson's chi-squared test of a sample ratio mismatch (Fabijan et al., "Diagnosing Sample Ratio Mismatch", KDD 2019) |
//! | quantiles of latency | slots of a [`crate::window::Sketch`], without an interval |
//!
//! A look is taken at the end of each window, over everything up to it. Looks that are not taken only make the test more careful.

use std::collections::BTreeSet;

use crate::stats::{Look, Sequential, Sums, ratio_p};
use crate::window::Window;

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Failed requests of all.
    Errors,
    /// The mean latency of requests that did not fail, in microseconds.
    Latency,
    /// The mean of what clients told under this name.
    Outcome(String),
}

impl Metric {
    /// The values of a window.
    #[must_use]
    pub fn of(&self, window: &Window) -> Sums {
        match self {
            Self::Errors => Sums::rate(window.requests, window.errors),
            Self::Latency => window.latency,
            Self::Outcome(name) => window.outcomes.get(name.as_str()).copied().unwrap_or_default(),
        }
    }

    /// All that some window has, latency and errors first.
    #[must_use]
    pub fn all<'w>(windows: impl IntoIterator<Item = &'w Window>) -> Vec<Self> {
        let told: BTreeSet<&str> =
            windows.into_iter().flat_map(|window| window.outcomes.keys()).map(|name| &**name).collect();
        let own = [Self::Errors, Self::Latency];
        own.into_iter().chain(told.into_iter().map(|name| Self::Outcome(name.to_owned()))).collect()
    }
}

/// Times that are left out: from (included) to (not), in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Excluded {
    /// Its beginning.
    pub from: u64,
    /// Its end.
    pub to: u64,
}

/// Whether a window of this width touches one of them. A window is out as a whole: its values cannot be told apart any more.
#[must_use]
pub fn is_out(window: &Window, width: u64, excluded: &[Excluded]) -> bool {
    let end = window.start.saturating_add(width);
    excluded.iter().any(|out| window.start < out.to && out.from < end)
}

/// The parts of a report that are the same for all its comparisons.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The probability of a false alarm over all looks and all arms of one metric.
    pub alpha: f64,
    /// How large a difference is looked for, in standard deviations of a value.
    pub effect: f64,
    /// How many arms are compared with the first.
    pub others: usize,
}

impl Terms {
    /// The test of one arm against the first. None: alpha or effect is out of range.
    #[must_use]
    pub fn test(&self) -> Option<Sequential> {
        // Divided it could be in range when it is not.
        let alpha = Some(self.alpha).filter(|alpha| *alpha < 1.0)?;
        Sequential::standard(alpha / self.others.max(1) as f64, self.effect)
    }
}

/// One arm against the first, by one metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The first arm's values.
    pub first: Sums,
    /// The other's.
    pub second: Sums,
    /// What each look that said something has said, with the end of its window; intervals are those over all looks up to it.
    pub looks: Vec<(u64, Look)>,
    /// The p-value over all looks.
    pub p: f64,
    /// Whether a difference was found.
    pub is_found: bool,
    /// Whether the looks contradict one another, which happens by chance with the probability alpha at most: what is compared has changed on the way.
    pub is_torn: bool,
}

/// Compares. Windows are joined by their beginnings; those that are left out are the caller's to leave out. None: the terms are out of range.
#[must_use]
pub fn compare(
    first: &[&Window],
    second: &[&Window],
    metric: &Metric,
    width: u64,
    terms: &Terms,
) -> Option<Comparison> {
    let mut test = terms.test()?;
    let starts: BTreeSet<u64> = first.iter().chain(second).map(|window| window.start).collect();
    let (mut a, mut b, mut looks) = (Sums::default(), Sums::default(), Vec::new());
    let add = |sums: &mut Sums, windows: &[&Window], start: u64| {
        for window in windows.iter().filter(|window| window.start == start) {
            *sums = sums.with(&metric.of(window));
        }
    };
    let mut is_torn = false;
    for start in starts {
        add(&mut a, first, start);
        add(&mut b, second, start);
        let Some(look) = test.look(&a, &b) else { continue };
        is_torn |= test.interval().is_none();
        let (low, high) = test.interval().unwrap_or((look.low, look.high));
        looks.push((start.saturating_add(width), Look { low, high, ..look }));
    }
    Some(Comparison { first: a, second: b, looks, p: test.p(), is_found: test.is_found(), is_torn })
}

/// What leaving windows out costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Windows of any arm that are left out, by their beginnings.
    pub windows: usize,
    /// Values that are left out.
    pub values: u64,
    /// Their part of all values.
    pub share: f64,
    /// How long it takes to get as many again at the pace of the windows that are kept, in milliseconds. None: none is kept.
    pub delay: Option<f64>,
    /// By how much the standard error of a mean is larger than with all of them: `sqrt(all / kept) - 1`. None: nothing is kept.
    pub wider: Option<f64>,
}

/// The cost of the windows that are left out, in values of a metric.
#[must_use]
pub fn cost(windows: &[&Window], metric: &Metric, width: u64, excluded: &[Excluded]) -> Cost {
    let (out, kept): (Vec<&&Window>, Vec<&&Window>) =
        windows.iter().partition(|window| is_out(window, width, excluded));
    let count = |some: &[&&Window]| some.iter().map(|window| metric.of(window).count).sum::<u64>();
    let times = |some: &[&&Window]| some.iter().map(|window| window.start).collect::<BTreeSet<_>>().len();
    let (lost, left) = (count(&out), count(&kept));
    let all = lost + left;
    let pace = left as f64 / (times(&kept) as f64 * width as f64);
    Cost {
        windows: times(&out),
        values: lost,
        share: if all == 0 { 0.0 } else { lost as f64 / all as f64 },
        delay: (left > 0 && pace > 0.0).then(|| lost as f64 / pace),
        wider: (left > 0).then(|| (all as f64 / left as f64).sqrt() - 1.0),
    }
}

/// Whether the arms have the people that they should have.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// Which people: None: all.
    pub reason: Option<Box<str>>,
    /// How many each arm has.
    pub counts: Vec<u64>,
    /// None: nothing can be said, or somebody is in an arm without a share (`is_impossible`).
    pub p: Option<f64>,
    /// Somebody is in an arm that has no share.
    pub is_impossible: bool,
}

/// The ratio of all people, then of those of each reason.
#[must_use]
pub fn ratios(arms: &[Vec<&Window>], shares: &[u64]) -> Vec<Ratio> {
    let reasons: BTreeSet<Box<str>> = arms.iter().flatten().flat_map(|window| window.people.keys().cloned()).collect();
    let ratio = |reason: Option<Box<str>>| {
        let of = |window: &&Window| match &reason {
            None => window.everybody(),
            Some(reason) => window.people.get(reason).copied().unwrap_or(0),
        };
        let counts: Vec<u64> = arms.iter().map(|windows| windows.iter().map(of).sum()).collect();
        let is_impossible = counts.iter().zip(shares).any(|(count, share)| *share == 0 && *count > 0);
        Ratio { p: ratio_p(&counts, shares), is_impossible, counts, reason }
    };
    std::iter::once(None).chain(reasons.into_iter().map(Some)).map(ratio).collect()
}
