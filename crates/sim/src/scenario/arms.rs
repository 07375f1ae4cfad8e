//! The world `arms`: an experiment whose second arm is answered from a cache, and an outage of that cache. Who is in which arm is decided by
//! [`holdfast_assign`]; what becomes of those whose answer the cache does not give is the fallback's, and what the experiment shows is the analysis'.
//!
//! Every request is drawn once. So what it would have shown without the outage is known for the same people and the same chance, and the bias is exact.

use std::fmt::Write as _;
use std::ops::Range;

use holdfast_assign::experiment::{Experiment, Facts, KeyFrom, Outcome};
use holdfast_assign::stats::ratio_p;
use holdfast_assign::target::{Field, Target};
use holdfast_assign::{Allocation, Edit, PLACES, Split};

use super::{Ask, Broken, Knob, Report, Series, Set, World, knob};
use crate::chance::Chance;

const SECOND: u64 = 1_000_000_000;

const KNOBS: &[Knob] = &[
    knob("users", 20_000, 1, 1_000_000, "users, all of whom come as often"),
    knob("rate", 200, 1, 1_000_000, "requests per second, a Poisson process"),
    knob("coverage_permyriad", 5_000, 1, 10_000, "how many of 10,000 users are in at the start"),
    knob("ramp_at_s", 100, 0, 86_400, "when all others come in; 0: never"),
    knob("control_permille", 100, 0, 1_000, "conversions of control's answer"),
    knob("treatment_permille", 120, 0, 1_000, "conversions of the other arm's"),
    knob("generic_permille", 60, 0, 1_000, "conversions of an answer that fits nobody"),
    knob("out_at_s", 150, 0, 86_400, "when the cache goes"),
    knob("out_s", 60, 0, 86_400, "for how long; 0: never"),
    knob(
        "fallback",
        1,
        0,
        2,
        "0: one generic answer to whom the cache had one; 1: per arm at the origin; 2: shaped, the same to both arms",
    ),
    knob(
        "origin_rate",
        1_000,
        0,
        1_000_000,
        "answers per second that the origin computes for an arm; what is beyond is shaped",
    ),
    knob("seconds", 300, 10, 86_400, "how long"),
];

/// See the module.
pub static WORLD: World = World {
    name: "arms",
    about: "an experiment, and an outage of the cache that one arm is answered from",
    knobs: KNOBS,
    at_most: &[],
    figures: &[
        ("moved", "requests that were given another arm's answer than their user's"),
        ("shaped", "of the requests in the outage: those with an answer that is no arm's, and chosen whatever the arm"),
        ("difference_permille", "conversions of the second arm less those of control, over everything"),
        ("bias_permille", "by how much the outage has changed that"),
        ("window_permille", "the same difference within the outage alone"),
        ("excluded_permille", "the same with the recorded window left out"),
        ("excluded_bias_permille", "by how much the outage has changed that"),
        ("sample_lost", "of all requests: those that leaving the window out costs"),
        ("delay_s", "how much longer the experiment runs for as many"),
        ("ratio_p", "how likely the arms' counts are, as they were answered, if nobody was moved"),
    ],
    promises: &["ARM-1"],
    run: simulate,
};

/// Who asks.
struct User<'a>(&'a str);

impl Facts for User<'_> {
    fn key(&self, from: KeyFrom) -> Option<&str> {
        (from == KeyFrom::User).then_some(self.0)
    }

    fn field(&self, _field: &Field) -> Option<&str> {
        None
    }

    fn now_ms(&self) -> u64 {
        0
    }
}

/// Requests and conversions of both arms.
#[derive(Clone, Copy, Default)]
struct Tally([(u64, u64); 2]);

impl Tally {
    fn add(&mut self, arm: usize, converted: bool) {
        self.0[arm].0 += 1;
        self.0[arm].1 += u64::from(converted);
    }

    /// The second arm's conversions less the first one's, in thousandths.
    fn difference(self) -> f64 {
        let rate = |(count, converted): (u64, u64)| converted as f64 * 1_000.0 / count.max(1) as f64;
        rate(self.0[1]) - rate(self.0[0])
    }

    fn count(self) -> u64 {
        self.0[0].0 + self.0[1].0
    }
}

struct Trial<'a> {
    set: &'a Set,
    chance: Chance,
    experiment: Experiment,
    out: Range<u64>,
    /// The arm that each user was first given.
    given: Vec<Option<usize>>,
    /// As it was, and as it would have been.
    all: [Tally; 2],
    inside: [Tally; 2],
    /// Users by the arm whose answer they were first given: what an exposure is recorded from.
    answered: [u64; 2],
    moved: u64,
    shaped: u64,
    seconds: Vec<Tally>,
    broken: Option<Broken>,
}

fn simulate(ask: &Ask<'_>) -> Report {
    let set = ask.set;
    let from = set.get("out_at_s") * SECOND;
    let Some(experiment) = experiment(set, ask.seed) else { return Report::default() };
    let mut trial = Trial {
        set,
        chance: Chance::new(ask.seed),
        experiment,
        out: if ask.without.contains(&0) { 0..0 } else { from..from + set.get("out_s") * SECOND },
        given: vec![None; set.count("users")],
        all: [Tally::default(); 2],
        inside: [Tally::default(); 2],
        answered: [0; 2],
        moved: 0,
        shaped: 0,
        seconds: vec![Tally::default(); set.count("seconds")],
        broken: None,
    };
    trial.play();
    trial.report()
}

fn edit(coverage: u16) -> Option<Edit> {
    Some(Edit { version: 1, coverage, split: Split::of(&[1, 1]).ok()? })
}

/// An even split of two arms. Each seed is another experiment.
fn experiment(set: &Set, seed: u64) -> Option<Experiment> {
    let coverage = u16::try_from(set.get("coverage_permyriad")).unwrap_or(PLACES);
    Some(Experiment {
        salt: format!("trial-{seed}"),
        running: true,
        start: None,
        end: None,
        keys: vec![KeyFrom::User],
        target: Target::default(),
        layer: None,
        holdout: None,
        sticky_ms: None,
        allocation: Allocation::new(edit(coverage)?).ok()?,
    })
}

impl Trial<'_> {
    fn play(&mut self) {
        let (end, mean) = (self.set.get("seconds") * SECOND, SECOND / self.set.get("rate").max(1));
        let ramp = Some(self.set.get("ramp_at_s") * SECOND).filter(|at| *at > 0).unwrap_or(u64::MAX);
        let (mut now, mut ramped, mut name) = (0, false, String::new());
        loop {
            now += self.chance.exponential(mean);
            if now >= end {
                return;
            }
            if now >= ramp && !ramped {
                ramped = true;
                let wider = edit(PLACES).and_then(|edit| self.experiment.allocation.edited(edit).ok());
                self.experiment.allocation = wider.unwrap_or_else(|| self.experiment.allocation.clone());
            }
            let user = self.chance.below(self.set.get("users"));
            name.clear();
            let _ = write!(name, "user-{user}");
            let draws = (self.chance.below(1_000), self.chance.below(1_000_000));
            if let Outcome::Arm(arm, _) = self.experiment.assign(&User(&name)) {
                self.asks(now, usize::try_from(user).unwrap_or(0), arm, draws);
            }
        }
    }

    /// The arm whose answer a request gets. None: one that is no arm's.
    fn answer(&self, now: u64, arm: usize, lot: u64) -> Option<usize> {
        if !self.out.contains(&now) {
            return Some(arm);
        }
        match self.set.get("fallback") {
            // Control's is the default and needs no cache: the arms are told apart by the outage.
            0 => Some(0),
            // Drawn whatever the arm: what the origin cannot compute for one arm is taken from both.
            1 if lot >= self.beyond() => Some(arm),
            _ => None,
        }
    }

    /// The share of requests that the origin does not bear, of a million.
    fn beyond(&self) -> u64 {
        let second_arm = self.set.get("rate").div_ceil(2).max(1);
        second_arm.saturating_sub(self.set.get("origin_rate")) * 1_000_000 / second_arm
    }

    fn asks(&mut self, now: u64, user: usize, arm: usize, (draw, lot): (u64, u64)) {
        let answer = self.answer(now, arm, lot);
        if let (None, Some(answer)) = (self.given[user], answer) {
            self.answered[answer] += 1;
        }
        let first = *self.given[user].get_or_insert(arm);
        let was_moved = answer.is_some_and(|answer| answer != first);
        if first != arm || (was_moved && self.set.get("fallback") != 0) {
            let what = format!("ARM-1: user {user} was in arm {first} and is given that of {arm}");
            self.broken.get_or_insert(Broken { at: now / 1_000_000, what });
        }
        let converts = |answer: Option<usize>| {
            let knob = match answer {
                Some(0) => "control_permille",
                Some(_) => "treatment_permille",
                // The generic answer to whom the second arm is due; see the knob.
                None => "generic_permille",
            };
            draw < self.set.get(knob)
        };
        // A generic system gives the second arm its one answer, whatever it is called.
        let generic = self.set.get("fallback") == 0 && self.out.contains(&now) && arm == 1;
        let (was, would) = (converts(answer.filter(|_| !generic)), converts(Some(arm)));
        self.moved += u64::from(was_moved);
        self.shaped += u64::from(answer.is_none());
        for (tally, converted) in [was, would].into_iter().enumerate() {
            self.all[tally].add(arm, converted);
            if self.out.contains(&now) {
                self.inside[tally].add(arm, converted);
            }
        }
        if let Some(second) = self.seconds.get_mut(usize::try_from(now / SECOND).unwrap_or(0)) {
            second.add(arm, was);
        }
    }

    fn report(self) -> Report {
        let outside = |which: usize| {
            let mut rest = self.all[which];
            for (all, inside) in rest.0.iter_mut().zip(self.inside[which].0) {
                *all = (all.0 - inside.0, all.1 - inside.1);
            }
            rest
        };
        let [was, would] = self.all;
        let (lost, all) = (self.inside[0].count() as f64, was.count().max(1) as f64);
        let (kept, seconds) = ((all - lost).max(1.0), self.set.get("seconds") as f64);
        let figures = vec![
            ("moved", self.moved as f64),
            ("shaped", self.shaped as f64 / lost.max(1.0)),
            ("difference_permille", was.difference()),
            ("bias_permille", was.difference() - would.difference()),
            ("window_permille", self.inside[0].difference()),
            ("excluded_permille", outside(0).difference()),
            ("excluded_bias_permille", outside(0).difference() - outside(1).difference()),
            ("sample_lost", lost / all),
            // At the pace of what is kept.
            ("delay_s", lost / (kept / (seconds - self.set.get("out_s") as f64).max(1.0))),
            ("ratio_p", ratio_p(&self.answered, &[1, 1]).unwrap_or(1.0)),
        ];
        let of = |name, arm: usize| Series {
            name,
            values: self.seconds.iter().map(|second| second.0[arm].1 as f64).collect(),
        };
        let at = self.out.start / SECOND;
        Report {
            broken: self.broken.clone(),
            figures,
            series: vec![of("conversions/s of control", 0), of("of the second arm", 1)],
            acts: vec![format!("{at:>8}.000 s  the cache goes")],
            log: Vec::new(),
        }
    }
}
