//! Scenarios: a world with its knobs set, and what is expected of it; a verdict on each run, and a run that fails in as few acts as make it fail.
//!
//! A world is a function of knobs and a seed. All it can tell is a [`Report`]: promises, figures, series over time. So a scenario is data, and one that
//! somebody writes is as good as one that is shipped.

mod arms;
pub mod cache;
mod dedicated;
mod fleets;
mod growth;
mod hot;
mod leases;
pub mod node;
mod pool;
mod quorums;
mod region;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};

pub use verdict::{Shortened, kind};

/// A number that a scenario may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knob {
    /// Its name.
    pub name: &'static str,
    /// Unless it is set.
    pub default: u64,
    /// The least that it may be.
    pub least: u64,
    /// The most.
    pub most: u64,
    /// What it is.
    pub about: &'static str,
}

/// A knob in short.
pub(crate) const fn knob(name: &'static str, default: u64, least: u64, most: u64, about: &'static str) -> Knob {
    Knob { name, default, least, most, about }
}

/// The knobs of one scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set(BTreeMap<&'static str, u64>);

impl Set {
    /// The value of a knob; zero for one that the world does not have.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// The same as an index or a count.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        usize::try_from(self.get(name)).unwrap_or(usize::MAX)
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// When, in milliseconds from the start.
    pub at: u64,
    /// The promise's id and what was seen.
    pub what: String,
}

/// Values by second.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// What they are.
    pub name: &'static str,
    /// One for each second.
    pub values: Vec<f64>,
}

/// What came of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The first promise that was broken.
    pub broken: Option<Broken>,
    /// Figures by name.
    pub figures: Vec<(&'static str, f64)>,
    /// How it went.
    pub series: Vec<Series>,
    /// What was done to it, one text for each act. A run may be asked for without some of them.
    pub acts: Vec<String>,
    /// What happened, if that was asked for.
    pub log: Vec<String>,
}

/// What a run is made from.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The knobs.
    pub set: &'a Set,
    /// The seed.
    pub seed: u64,
    /// Acts that are left out, as [`Report::acts`] counts them.
    pub without: &'a BTreeSet<usize>,
    /// Whether a log is wanted.
    pub log: bool,
}

/// A kind of simulation.
#[derive(Debug)]
pub struct World {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// What may be set.
    pub knobs: &'static [Knob],
    /// Of each two knobs, the first is the second at most.
    pub at_most: &'static [(&'static str, &'static str)],
    /// The figures that it tells, and what they are.
    pub figures: &'static [(&'static str, &'static str)],
    /// The promises that it looks at.
    pub promises: &'static [&'static str],
    /// Runs it.
    pub run: fn(&Ask<'_>) -> Report,
}

/// All worlds.
pub static WORLDS: &[&World] = &[
    &arms::WORLD,
    &cache::WORLD,
    &dedicated::WORLD,
    &fleets::WORLD,
    &growth::WORLD,
    &hot::WORLD,
    &leases::WORLD,
    &pool::WORLD,
    &quorums::WORLD,
    &region::WORLD,
];

/// What is expected of a figure, in every run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// Which.
    pub figure: &'static str,
    /// At least.
    pub least: f64,
    /// At most.
    pub most: f64,
}

/// A world, its knobs, and what is expected.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it shows.
    pub about: String,
    /// What is run.
    pub world: &'static World,
    /// The knobs.
    pub set: Set,
    /// Promises that must hold.
    pub promises: Vec<&'static str>,
    /// Figures and where they must lie.
    pub ranges: Vec<Range>,
}

/// Why a scenario is none: where, and what is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The field, such as `set.nodes`.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

fn fault(field: impl Into<String>, why: impl Into<String>) -> Fault {
    Fault { field: field.into(), why: why.into() }
}

fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    all.collect::<Vec<_>>().join(", ")
}

impl Scenario {
    /// A scenario of a world, with nothing set and nothing expected.
    ///
    /// # Errors
    /// There is no such world.
    pub fn new(name: &str, about: &str, world: &str) -> Result<Self, Fault> {
        let found = WORLDS.iter().find(|w| w.name == world).copied();
        let world = found.ok_or_else(|| {
            fault("world", format!("{world:?} is not one of: {}", names(WORLDS.iter().map(|w| w.name))))
        })?;
        let set = Set(world.knobs.iter().map(|k| (k.name, k.default)).collect());
        let (name, about) = (name.to_owned(), about.to_owned());
        Ok(Self { name, about, world, set, promises: Vec::new(), ranges: Vec::new() })
    }

    /// Sets a knob.
    ///
    /// # Errors
    /// The world has no such knob, or the value is out of its range.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), Fault> {
        let field = || format!("set.{name}");
        let Some(knob) = self.world.knobs.iter().find(|k| k.name == name) else {
            let all = names(self.world.knobs.iter().map(|k| k.name));
            return Err(fault(field(), format!("the world {} has no such knob; it has: {all}", self.world.name)));
        };
        if !(knob.least..=knob.most).contains(&value) {
            return Err(fault(field(), format!("{value} is not within {} and {}", knob.least, knob.most)));
        }
        self.set.0.insert(knob.name, value);
        Ok(())
    }

    /// What is wrong with knobs that are each within their ranges: to be asked when all of them are set.
    #[must_use]
    pub fn at_odds(&self) -> Vec<Fault> {
        let over = |(less, more): &&(&str, &str)| self.set.get(less) > self.set.get(more);
        let told = |(less, more): &(&str, &str)| {
            fault(
                format!("set.{less}"),
                format!("{} is more than {more}, which is {}", self.set.get(less), self.set.get(more)),
            )
        };
        self.world.at_most.iter().filter(over).map(told).collect()
    }

    /// Expects a promise to hold.
    ///
    /// # Errors
    /// The world does not look at it.
    pub fn expect(&mut self, promise: &str) -> Result<(), Fault> {
        let known = self.world.promises.iter().find(|p| **p == promise);
        let all = || names(self.world.promises.iter().copied());
        let why = || format!("the world {} does not look at {promise:?}; it looks at: {}", self.world.name, all());
        self.promises.push(known.ok_or_else(|| fault("expect.promises", why()))?);
        Ok(())
    }

    /// Expects a figure to lie within two numbers.
    ///
    /// # Errors
    /// The world tells no such figure, or the numbers are in no order.
    pub fn within(&mut self, figure: &str, least: f64, most: f64) -> Result<(), Fault> {
        let field = || format!("expect.figures.{figure}");
        let Some((figure, _)) = self.world.figures.iter().find(|(name, _)| *name == figure) else {
            let all = names(self.world.figures.iter().map(|f| f.0));
            return Err(fault(field(), format!("the world {} tells no such figure; it tells: {all}", self.world.name)));
        };
        if least.partial_cmp(&most).is_none_or(std::cmp::Ordering::is_gt) {
            return Err(fault(field(), format!("{least} to {most} is no range: write the least first")));
        }
        self.ranges.push(Range { figure, least, most });
        Ok(())
    }

    /// Runs it once.
    #[must_use]
    pub fn run(&self, seed: u64, without: &BTreeSet<usize>, log: bool) -> Report {
        (self.world.run)(&Ask { set: &self.set, seed, without, log })
    }
}
