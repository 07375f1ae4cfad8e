//! The verdict on a run, and the few acts that lead to the same verdict.
//!
//! A run in which fewer things happen can be wrong for a reason of its own: what was to happen at least once does not happen at all. So acts are left out
//! only for as long as the run breaks the same expectation, on the same side of its range.

use std::collections::BTreeSet;

use super::{Broken, Report, Scenario};

/// Which expectation a run breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Which {
    /// A promise by its id, or what else a world says is broken, without its numbers.
    Promise(String),
    /// A figure is smaller than expected.
    Below(&'static str),
    /// A figure is larger than expected.
    Above(&'static str),
    /// A figure is no number.
    NoNumber(&'static str),
}

/// A run that breaks what another one broke, by as few acts as do.
#[derive(Clone, Debug, PartialEq)]
pub struct Shortened {
    /// The acts that are left out, as [`Report::acts`] counts them.
    pub without: BTreeSet<usize>,
    /// What the whole run breaks.
    pub whole: Broken,
    /// What the shortened one breaks: the same, by another amount perhaps.
    pub broken: Broken,
    /// The run, with its log.
    pub report: Report,
}

/// What kind of a break a text tells of: the id of a promise that it begins with, or the text without its numbers.
#[must_use]
pub fn kind(what: &str) -> String {
    let id: String = what.chars().take_while(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '-').collect();
    if id.len() > 2 { id } else { what.chars().filter(|c| !c.is_ascii_digit()).collect() }
}

impl Scenario {
    /// What is wrong with a run, if anything is.
    #[must_use]
    pub fn wrong(&self, report: &Report) -> Option<Broken> {
        self.breaks(report).next().map(|(_, broken)| broken)
    }

    /// The run of a seed that goes wrong, in as few acts as break the same expectation. None: it does not go wrong.
    #[must_use]
    pub fn shortened(&self, seed: u64) -> Option<Shortened> {
        let whole = self.run(seed, &BTreeSet::new(), false);
        let (which, first) = self.breaks(&whole).next()?;
        let without = self.dispensable(seed, whole.acts.len(), &which);
        let report = self.run(seed, &without, true);
        let broken = self.breaks(&report).find(|(found, _)| *found == which).map(|(_, broken)| broken)?;
        Some(Shortened { without, whole: first, broken, report })
    }

    /// All expectations that a run breaks: promises before figures.
    fn breaks(&self, report: &Report) -> impl Iterator<Item = (Which, Broken)> {
        let promise = report.broken.iter().map(|broken| (kind(&broken.what), broken)).filter(|(kind, _)| {
            // What a world says is broken and is none of its promises is never as expected.
            let is_other = !self.world.promises.contains(&kind.as_str());
            self.promises.is_empty() || is_other || self.promises.contains(&kind.as_str())
        });
        let promise = promise.map(|(kind, broken)| (Which::Promise(kind), broken.clone()));
        let figures = self.ranges.iter().filter_map(|range| {
            let value = report.figures.iter().find(|f| f.0 == range.figure).map_or(f64::NAN, |f| f.1);
            let which = if value < range.least {
                Which::Below(range.figure)
            } else if value > range.most {
                Which::Above(range.figure)
            } else if value.is_nan() {
                Which::NoNumber(range.figure)
            } else {
                return None;
            };
            let what = format!("{} is {value:.4}, expected {} to {}", range.figure, range.least, range.most);
            Some((which, Broken { at: 0, what }))
        });
        promise.chain(figures).collect::<Vec<_>>().into_iter()
    }

    /// The acts that the run can do without: halves, then parts of halves are left out for as long as that works.
    fn dispensable(&self, seed: u64, all: usize, which: &Which) -> BTreeSet<usize> {
        let mut without = BTreeSet::new();
        let mut part = all.div_ceil(2);
        while part > 0 {
            for from in (0..all).step_by(part) {
                let more: BTreeSet<usize> = without.iter().copied().chain(from..all.min(from + part)).collect();
                let breaks = || self.breaks(&self.run(seed, &more, false)).any(|(found, _)| found == *which);
                if more.len() > without.len() && breaks() {
                    without = more;
                }
            }
            part = if part == 1 { 0 } else { part.div_ceil(2) };
        }
        without
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Ask, Range, Set, World};

    /// Ten acts. `early` counts the first three of those that happen, `all` all of them; without the last one another promise is broken.
    fn counted(ask: &Ask<'_>) -> Report {
        let happen = || (0..10).filter(|act| !ask.without.contains(act));
        let early = happen().filter(|act| *act < 3).count() as f64;
        let what = match (ask.seed, ask.without.contains(&9)) {
            (1, false) => Some("KEPT-1: 7 of 9"),
            (1, true) => Some("KEPT-2: other"),
            (2, false) => Some("tick 17 spins"),
            (2, true) => Some("tock 17 spins"),
            _ => None,
        };
        Report {
            broken: what.map(|what| Broken { at: 5, what: what.to_owned() }),
            figures: vec![("early", early), ("all", happen().count() as f64)],
            acts: (0..10).map(|act| format!("act {act}")).collect(),
            ..Report::default()
        }
    }

    static COUNTED: World = World {
        name: "counted",
        about: "acts",
        knobs: &[],
        at_most: &[],
        figures: &[("early", "the first three"), ("all", "all")],
        promises: &["KEPT-1", "KEPT-2"],
        run: counted,
    };

    fn scenario(promises: &[&'static str], ranges: &[(&'static str, f64, f64)]) -> Scenario {
        let range = |(figure, least, most): &(&'static str, f64, f64)| Range { figure, least: *least, most: *most };
        Scenario {
            name: "s".to_owned(),
            about: "a".to_owned(),
            world: &COUNTED,
            set: Set::default(),
            promises: promises.to_vec(),
            ranges: ranges.iter().map(range).collect(),
        }
    }

    fn left(shortened: &Shortened) -> Vec<usize> {
        (0..10).filter(|act| !shortened.without.contains(act)).collect()
    }

    #[test]
    fn a_shorter_run_breaks_the_same_figure_on_the_same_side() {
        // With fewer than six acts `all` is too small, and with less than two of the first three `early` is: neither is what broke.
        let short = scenario(&[], &[("all", 6.0, 10.0), ("early", 1.0, 2.0)]).shortened(7).unwrap();
        assert_eq!((left(&short), short.broken.what.as_str()), (vec![0, 1, 2], "early is 3.0000, expected 1 to 2"));
        assert!(scenario(&[], &[("early", 1.0, 3.0)]).shortened(7).is_none());
        let low = scenario(&[], &[("early", 4.0, 5.0)]).shortened(7).unwrap();
        assert_eq!((left(&low).len(), low.broken.what.as_str()), (0, "early is 0.0000, expected 4 to 5"));
    }

    #[test]
    fn a_shorter_run_breaks_the_same_promise() {
        let short = scenario(&["KEPT-1", "KEPT-2"], &[]).shortened(1).unwrap();
        assert_eq!((left(&short), short.broken.what.as_str()), (vec![9], "KEPT-1: 7 of 9"));
        assert!(scenario(&["KEPT-2"], &[]).wrong(&whole(1)).is_none(), "it is not expected to hold");
    }

    #[test]
    fn what_is_none_of_a_worlds_promises_is_never_as_expected() {
        for promises in [&["KEPT-1"][..], &[]] {
            let short = scenario(promises, &[]).shortened(2).unwrap();
            assert_eq!((left(&short), short.broken.what.as_str()), (vec![9], "tick 17 spins"));
        }
        assert_eq!(kind("after 3 repairs 12 failed"), kind("after 4 repairs 1 failed"));
    }

    fn whole(seed: u64) -> Report {
        scenario(&[], &[]).run(seed, &BTreeSet::new(), false)
    }
}
