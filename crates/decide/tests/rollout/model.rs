//! Every order of what can happen around a flip, in a world small enough to try them all: one pin whose versions are held, two control planes,
//! all orders in which the store, the table and the gateways answer, answers that are lost, a process that dies or is only thought dead,
//! another roll-out in between, an abort or a revert at any moment. The predicates are those of the random histories.

use stateright::{Checker, Model, Property};

use holdfast_decide::rollout::*;

use crate::histories::{HISTORIES, histories};
use crate::sim::*;
use crate::world::*;

/// How much may go wrong on one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    take_overs: u8,
    commands: u8,
    lost: u8,
    others: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Way {
    sim: Sim,
    left: Budget,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Act {
    Arrives(usize),
    /// It is carried out, and the answer is lost.
    AnswerLost(usize),
    TakeOver {
        plane: usize,
        other_dies: bool,
    },
    Asks(usize, Command),
    OtherFlip,
    Follows(usize),
}

struct Flips(Budget);

/// What is carried out and answered at once: it is not what this model is about.
fn at_once(effect: &Effect) -> bool {
    !matches!(effect, Effect::Save { .. } | Effect::Activate { .. } | Effect::ReadTable { .. } | Effect::Prepare { .. })
}

impl Way {
    fn settle(&mut self) {
        while let Some(ix) = self.sim.letters.iter().position(|l| at_once(&l.effect)) {
            self.sim.deliver(ix, 8);
        }
        // What a dead process asked of those who answer at once is void.
        let runs = |p: u64, sim: &Sim| sim.planes.iter().flatten().any(|plane| plane.process == p);
        let dead = |l: &Letter, sim: &Sim| !runs(l.process, sim) && matches!(l.effect, Effect::ReadTable { .. });
        let keep: Vec<bool> = self.sim.letters.iter().map(|l| !dead(l, &self.sim)).collect();
        let mut keep = keep.into_iter();
        self.sim.letters.retain(|_| keep.next() != Some(false));
    }

    fn any(&self, what: impl Fn(&PinProgress) -> bool) -> bool {
        self.sim.planes.iter().flatten().any(|p| what(&p.machine.progress().pins[0]))
    }
}

impl Model for Flips {
    type State = Way;
    type Action = Act;

    fn init_states(&self) -> Vec<Way> {
        let mut sim = Sim::new(one_pin(Options::default()));
        for (version, replicas) in [("1", [0, 1]), ("2", [2, 3])] {
            sim.held.extend(replicas.map(|ix| ((r(ix), artifact(version)), true)));
        }
        // Two gateways are as good as three here.
        sim.lease_ends(2);
        let mut way = Way { sim, left: self.0 };
        way.settle();
        vec![way]
    }

    fn actions(&self, way: &Way, acts: &mut Vec<Act>) {
        let (sim, left) = (&way.sim, way.left);
        if sim.broken.is_some() {
            return;
        }
        acts.extend((0..sim.letters.len()).map(Act::Arrives));
        let saves = |l: &Letter| matches!(l.effect, Effect::Save { .. } | Effect::Activate { .. });
        let lost = sim.letters.iter().enumerate().filter(|(_, l)| left.lost > 0 && saves(l));
        acts.extend(lost.map(|(ix, _)| Act::AnswerLost(ix)));
        if left.take_overs > 0 {
            let plane = usize::from(sim.planes[1].is_none());
            acts.extend([true, false].map(|other_dies| Act::TakeOver { plane, other_dies }));
        }
        if left.commands > 0 {
            let planes = (0..2).filter(|ix| sim.planes[*ix].is_some());
            let both = [Command::Abort, Command::Revert { confirmed: false }];
            acts.extend(planes.flat_map(|plane| both.map(|command| Act::Asks(plane, command))));
        }
        if left.others > 0 {
            acts.push(Act::OtherFlip);
        }
        let behind = (0..2).filter(|ix| sim.views[*ix].in_force.0 < sim.store.revision);
        acts.extend(behind.map(Act::Follows));
    }

    fn next_state(&self, last: &Way, act: Act) -> Option<Way> {
        let mut way = last.clone();
        let (sim, left) = (&mut way.sim, &mut way.left);
        match act {
            Act::Arrives(ix) => sim.deliver(ix, 8),
            Act::AnswerLost(ix) => {
                left.lost -= 1;
                sim.deliver(ix, 1);
            }
            Act::TakeOver { plane, other_dies } => {
                left.take_overs -= 1;
                if other_dies {
                    sim.kill(1 - plane);
                }
                sim.take_over(plane);
            }
            Act::Asks(plane, command) => {
                left.commands -= 1;
                sim.command(plane, command);
            }
            Act::OtherFlip => {
                left.others -= 1;
                sim.other_flip(None);
            }
            Act::Follows(ix) => {
                sim.follow(ix);
                sim.requests_end(ix);
            }
        }
        way.settle();
        Some(way)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut all = vec![
            Property::always("every promise holds", |_, way: &Way| way.sim.broken.is_none()),
            Property::sometimes("a pin is flipped and drained", |_, way: &Way| {
                way.any(|p| p.stage == Stage::Retaining && !p.back)
            }),
            Property::sometimes("a process is superseded", |_, way: &Way| {
                way.left.take_overs == 0 && way.sim.planes[0].is_none() && way.sim.planes[1].is_some()
            }),
        ];
        if self.0.commands > 0 {
            let aborted = |_: &Self, way: &Way| way.any(|p| p.stage == Stage::Aborted);
            let back = |_: &Self, way: &Way| way.any(|p| p.stage == Stage::Retaining && p.back);
            all.push(Property::sometimes("a pin is aborted", aborted));
            all.push(Property::sometimes("a pin is back and drained", back));
        }
        all
    }
}

fn check(budget: Budget) {
    let checker = Flips(budget).checker().spawn_bfs().join();
    assert!(checker.unique_state_count() > 1_000, "the model is cut short");
    if let Some(path) = checker.discovery("every promise holds") {
        let broken = path.last_state().sim.broken.clone();
        panic!("{broken:?}\n{:#?}", path.into_actions());
    }
    checker.assert_properties();
}

#[test]
fn every_order_around_a_flip() {
    check(Budget { take_overs: 1, commands: 1, lost: 0, others: 0 });
}

#[test]
fn every_order_around_a_flip_with_lost_answers_and_another_roll_out() {
    check(Budget { take_overs: 1, commands: 0, lost: 1, others: 0 });
    check(Budget { take_overs: 1, commands: 0, lost: 0, others: 1 });
}

/// More of what may go wrong at once, where the histories are many, too (`make sim`).
#[test]
fn every_order_around_a_flip_at_length() {
    if histories() > HISTORIES {
        check(Budget { take_overs: 1, commands: 0, lost: 1, others: 1 });
        check(Budget { take_overs: 2, commands: 0, lost: 0, others: 0 });
        check(Budget { take_overs: 1, commands: 1, lost: 1, others: 0 });
    }
}
