//! One machine on a desk: the test is the store, the gateways and the replicas, and the witness looks on.

use std::time::Duration;

use holdfast_decide::rollout::witness::Witness;
use holdfast_decide::rollout::*;
use holdfast_types::{Mono, ReplicaName, Revision};

use crate::world::*;

pub(crate) struct Desk {
    pub(crate) now: Mono,
    pub(crate) machine: Rollout,
    pub(crate) witness: Witness,
    /// Effects since it was last emptied, saves left out.
    pub(crate) out: Vec<Effect>,
    /// What is in the store.
    pub(crate) saved: Option<Saved>,
    /// Saves are confirmed at once.
    pub(crate) saves: bool,
    pub(crate) revision: u64,
    pub(crate) applied: Option<(u32, Revision)>,
    pub(crate) pins: Vec<PinView>,
    pub(crate) views: Vec<GatewayView>,
    pub(crate) process: u64,
}

impl Desk {
    /// Two gateways under revision 10; nothing is started.
    pub(crate) fn new(plan: Plan) -> Self {
        let now = Mono(5_000_000_000);
        let mut witness = Witness::new(plan.clone());
        witness.started(0, None);
        let old = |p: &PinPlan| PinView { version: p.old.as_ref().map(|s| s.version.clone()), split: None };
        let view = |ix| GatewayView {
            name: g(ix),
            leased: true,
            in_force: Revision(10),
            oldest: Revision(10),
            prepared: None,
        };
        Self {
            now,
            machine: Rollout::plan(now, 1, plan.clone()).unwrap(),
            witness,
            out: Vec::new(),
            saved: None,
            saves: true,
            revision: 10,
            applied: None,
            pins: plan.pins.iter().map(old).collect(),
            views: (0..2).map(view).collect(),
            process: 0,
        }
    }

    /// Started, with gateways and claims told.
    pub(crate) fn started(plan: Plan) -> Self {
        let mut desk = Self::new(plan);
        desk.start();
        desk
    }

    pub(crate) fn start(&mut self) {
        self.event(Event::Tick);
        self.event(Event::Gateways { roster: 2, all: self.views.clone() });
        self.event(Event::Claims(Claims::default()));
    }

    pub(crate) fn event(&mut self, event: Event) {
        let mut queue = vec![event];
        while let Some(event) = queue.pop() {
            self.witness.event(self.process, self.now, &event).unwrap();
            let mut out = Vec::new();
            self.machine.apply(self.now, event, &mut out);
            self.witness.effects(self.process, self.now, &out).unwrap();
            for effect in out {
                match effect {
                    Effect::Save { saved, .. } if self.saves => {
                        queue.push(Event::Saved { version: saved.version });
                        self.saved = Some(*saved);
                    }
                    other => self.out.push(other),
                }
            }
        }
        let next = self.machine.next_deadline();
        assert!(next.is_none_or(|at| at > self.now), "a tick would spin");
    }

    /// Time passes, with the ticks that the machine asks for.
    pub(crate) fn wait(&mut self, span: Duration) {
        let until = self.now.after(span);
        while let Some(at) = self.machine.next_deadline().filter(|at| *at <= until) {
            self.now = at;
            self.event(Event::Tick);
        }
        self.now = until;
        self.event(Event::Tick);
    }

    pub(crate) fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.out)
    }

    pub(crate) fn report(&mut self, replica: usize, version: &str, report: Report) {
        self.event(Event::Replica { replica: r(replica), artifact: artifact(version), report });
    }

    pub(crate) fn proven(&mut self, replicas: &[usize], version: &str) {
        for replica in replicas {
            self.report(*replica, version, Report::Proven);
        }
    }

    pub(crate) fn table(&self) -> TableView {
        let revision = Revision(self.revision);
        TableView { revision, applied: self.applied, roster: 2, pins: self.pins.clone() }
    }

    /// Answers the last read of the table.
    pub(crate) fn answer_read(&mut self) {
        let reads = self.out.iter().rev().find_map(|e| match e {
            Effect::ReadTable { read } => Some(*read),
            _ => None,
        });
        let read = reads.expect("the table is to be read");
        self.event(Event::Table { read, table: self.table() });
    }

    /// Every gateway that is asked prepares.
    pub(crate) fn prepare(&mut self) {
        let asked = self.out.iter().filter_map(|e| match e {
            Effect::Prepare { gateway, proposal, .. } => Some((gateway.clone(), *proposal)),
            _ => None,
        });
        let asked: Vec<_> = asked.collect();
        for (name, proposal) in asked {
            self.view(&name, |view| view.prepared = Some(proposal));
        }
    }

    pub(crate) fn view(&mut self, name: &holdfast_types::GatewayName, change: impl Fn(&mut GatewayView)) {
        let view = self.views.iter_mut().find(|v| v.name == *name).unwrap();
        change(view);
        let view = view.clone();
        self.event(Event::Gateway { roster: 2, view });
    }

    /// Puts the activation that was asked last into the table, without telling.
    pub(crate) fn put_in_table(&mut self) -> (u32, Revision) {
        let asked = self.out.iter().rev().find_map(|e| match e {
            Effect::Activate { step, expected, flips, .. } => Some((*step, *expected, flips.clone())),
            _ => None,
        });
        let (step, expected, flips) = asked.expect("an activation is asked for");
        assert_eq!(expected, Revision(self.revision));
        self.revision += 1;
        for flip in flips {
            self.pins[flip.pin] = match flip.share {
                0 => PinView { version: flip.old, split: None },
                100 => PinView { version: Some(flip.new), split: None },
                share => PinView { version: flip.old, split: Some((flip.new, share)) },
            };
        }
        self.applied = Some((step, Revision(self.revision)));
        (step, Revision(self.revision))
    }

    pub(crate) fn activate(&mut self) {
        let (step, revision) = self.put_in_table();
        self.event(Event::Activated { step, revision });
    }

    /// All gateways answer under the table in force, and nothing older is in flight.
    pub(crate) fn follow(&mut self) {
        let revision = Revision(self.revision);
        for name in self.views.iter().map(|v| v.name.clone()).collect::<Vec<_>>() {
            self.view(&name, |v| (v.in_force, v.oldest, v.prepared) = (revision, revision, None));
        }
    }

    /// From ready pins to a flip that is in force.
    pub(crate) fn flip(&mut self) {
        self.answer_read();
        self.prepare();
        self.activate();
        self.take();
    }

    /// One pin's way to `Draining`.
    pub(crate) fn flipped(plan: Plan) -> Self {
        let mut desk = Self::started(plan);
        desk.proven(&[0, 1], "1");
        desk.proven(&[2, 3], "2");
        desk.flip();
        desk
    }

    pub(crate) fn command(&mut self, command: Command) -> Option<Result<(), Refusal>> {
        self.event(Event::Command { ask: 77, command });
        self.answer()
    }

    /// The answer to the last command, once.
    pub(crate) fn answer(&mut self) -> Option<Result<(), Refusal>> {
        let at = self.out.iter().position(|e| matches!(e, Effect::Answer { .. }))?;
        match self.out.remove(at) {
            Effect::Answer { ask: 77, answer } => Some(answer),
            other => panic!("{other:?}"),
        }
    }

    /// A new process goes on from the store; the old one is gone.
    pub(crate) fn resume(&mut self) {
        let saved = self.saved.clone().unwrap();
        self.witness.stopped(self.process);
        self.process += 1;
        self.witness.started(self.process, Some(&saved));
        self.machine = Rollout::resume(self.now, 1 + self.process, &saved).unwrap();
        self.out.clear();
        self.start();
    }

    pub(crate) fn stage(&self) -> Stage {
        self.machine.progress().pins[0].stage
    }

    pub(crate) fn stages(&self) -> Vec<Stage> {
        self.machine.progress().pins.iter().map(|p| p.stage).collect()
    }

    pub(crate) fn phase(&self) -> Phase {
        self.machine.progress().phase
    }

    pub(crate) fn words(&self) -> String {
        self.machine.progress().words.unwrap_or_default()
    }

    /// The loads asked for since `take`.
    pub(crate) fn warmed(&self) -> Vec<(ReplicaName, String)> {
        let warm = self.out.iter().filter_map(|e| match e {
            Effect::Warm { replica, artifact } => Some((replica.clone(), artifact.version.to_string())),
            _ => None,
        });
        warm.collect()
    }

    pub(crate) fn released(&self) -> Vec<(ReplicaName, String)> {
        let gone = self.out.iter().filter_map(|e| match e {
            Effect::Release { replica, artifact } => Some((replica.clone(), artifact.version.to_string())),
            _ => None,
        });
        gone.collect()
    }

    pub(crate) fn asked_to_activate(&self) -> bool {
        self.out.iter().any(|e| matches!(e, Effect::Activate { .. }))
    }
}

/// Ready to be activated, and asked for.
pub(crate) fn activating(plan: Plan) -> Desk {
    let mut desk = Desk::started(plan);
    desk.proven(&[0, 1], "1");
    desk.proven(&[2, 3], "2");
    desk.answer_read();
    desk.prepare();
    assert!(desk.asked_to_activate());
    desk
}

pub(crate) fn activations(desk: &Desk) -> usize {
    desk.out.iter().filter(|e| matches!(e, Effect::Activate { .. })).count()
}
