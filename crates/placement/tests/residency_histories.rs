//! Random histories of everything that can happen, with the witness after every step. Time moves in ticks at the machine's own deadlines.

#![allow(clippy::panic, reason = "a test fails loudly")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::*;
use holdfast_placement::residency::*;
use holdfast_types::{Bytes, Mono};
use proptest::prelude::*;

const REPLICAS: u32 = 3;
const VERSIONS: u32 = 5;

#[derive(Clone, Debug)]
enum Step {
    Want {
        version: u32,
        mask: u8,
        budget: u64,
    },
    Cancel(usize),
    Answer {
        pick: usize,
        how: u8,
    },
    Drain,
    Advance(u64),
    Use {
        replica: u32,
        version: u32,
        start: bool,
    },
    Poll(u32),
    /// Somebody else has a server load something.
    Strange {
        replica: u32,
        mask: u8,
        others: u32,
    },
    Down(u32),
    Up(u32),
    Lost(u32),
    /// A request is told "not loaded"; either that is so, or the server goes on calling it ready.
    Missing {
        replica: u32,
        version: u32,
        gone: bool,
    },
    Quarantine(u32, u32),
    Release(u32, u32),
    Renew(u32, u32),
    Wanted(u32, u8),
    Kept(u32, u8),
    Version {
        version: u32,
        pinned: bool,
    },
    RemoveVersion(u32),
    Replica {
        replica: u32,
        gib: u64,
        max_loads: u32,
        flags: u8,
    },
    RemoveReplica(u32),
    Afresh(u32, u32),
    Fleet(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let (r, v) = (0..REPLICAS, 0..VERSIONS);
    prop_oneof![
        20 => (v.clone(), 0u8..8, 0u64..20_000).prop_map(|(version, mask, budget)| Step::Want { version, mask, budget }),
        3 => any::<usize>().prop_map(Step::Cancel),
        30 => (any::<usize>(), 0u8..20).prop_map(|(pick, how)| Step::Answer { pick, how }),
        12 => Just(Step::Drain),
        12 => (0u64..15_000).prop_map(Step::Advance),
        12 => (r.clone(), v.clone(), any::<bool>()).prop_map(|(replica, version, start)| Step::Use { replica, version, start }),
        6 => r.clone().prop_map(Step::Poll),
        2 => (r.clone(), 0u8..8, 0u32..2).prop_map(|(replica, mask, others)| Step::Strange { replica, mask, others }),
        1 => r.clone().prop_map(Step::Down),
        2 => r.clone().prop_map(Step::Up),
        1 => r.clone().prop_map(Step::Lost),
        4 => (r.clone(), v.clone(), any::<bool>()).prop_map(|(replica, version, gone)| Step::Missing { replica, version, gone }),
        1 => (r.clone(), v.clone()).prop_map(|(r, v)| Step::Quarantine(r, v)),
        2 => (r.clone(), v.clone()).prop_map(|(r, v)| Step::Release(r, v)),
        2 => (r.clone(), v.clone()).prop_map(|(r, v)| Step::Renew(r, v)),
        1 => (r.clone(), v.clone()).prop_map(|(r, v)| Step::Afresh(r, v)),
        3 => (r.clone(), 0u8..32).prop_map(|(r, mask)| Step::Wanted(r, mask)),
        2 => (r.clone(), 0u8..32).prop_map(|(r, mask)| Step::Kept(r, mask)),
        3 => (v.clone(), any::<bool>()).prop_map(|(version, pinned)| Step::Version { version, pinned }),
        1 => v.prop_map(Step::RemoveVersion),
        2 => (r.clone(), 1u64..4, 1u32..3, 0u8..16)
            .prop_map(|(replica, gib, max_loads, flags)| Step::Replica { replica, gib, max_loads, flags }),
        1 => r.prop_map(Step::RemoveReplica),
        1 => (1u32..4).prop_map(Step::Fleet),
    ]
}

/// What the servers really hold.
struct Servers {
    world: World,
    truth: BTreeSet<(ReplicaIx, VersionIx)>,
}

fn settings(fleet_loads: u32) -> Settings {
    let load_timeout = Duration::from_secs(20);
    Settings {
        fleet_loads,
        load_timeout,
        max_waiters: 12,
        thrash_window: Duration::from_secs(15),
        ..Settings::default()
    }
}

fn chosen(mask: u8, of: u32) -> Vec<u32> {
    (0..of).filter(|ix| mask & (1 << ix) != 0).collect()
}

impl Servers {
    fn new() -> Self {
        let world = World::with(settings(2), REPLICAS, 2, VERSIONS, Mode::Guaranteed);
        Self { world, truth: BTreeSet::new() }
    }

    fn step(&mut self, step: Step) {
        let w = &mut self.world;
        match step {
            Step::Want { version, mask, budget } => {
                w.want(version, &chosen(mask, REPLICAS), Duration::from_millis(budget));
            }
            Step::Cancel(pick) => {
                let waiting: Vec<_> = w.witness.waiting().collect();
                if let Some(waiter) = waiting.get(pick % waiting.len().max(1)) {
                    w.event(Event::Cancel { waiter: *waiter });
                }
            }
            Step::Answer { pick, how } => self.answer(pick, how),
            Step::Drain => w.drain(),
            Step::Advance(ms) => self.advance(Duration::from_millis(ms)),
            Step::Use { replica, version, start } => self.set_use(replica, version, start),
            Step::Poll(replica) => self.poll(replica),
            Step::Strange { replica, mask, others } => {
                let held = self.held(replica);
                self.world.index(replica, &held, &chosen(mask, VERSIONS), others);
            }
            Step::Down(replica) => w.event(Event::ReplicaDown { replica: r(replica) }),
            Step::Up(replica) => w.event(Event::ReplicaUp { replica: r(replica) }),
            Step::Lost(replica) => w.event(Event::ObservationLost { replica: r(replica) }),
            Step::Missing { replica, version, gone } => self.missing(replica, version, gone),
            Step::Quarantine(replica, version) => {
                w.event(Event::Quarantine { replica: r(replica), version: v(version), why: "wrong".to_owned() });
            }
            Step::Release(replica, version) => w.event(Event::Released { replica: r(replica), version: v(version) }),
            Step::Renew(replica, version) => w.event(Event::Renew { replica: r(replica), version: v(version) }),
            Step::Afresh(replica, version) => w.event(Event::Afresh { replica: r(replica), version: v(version) }),
            Step::Wanted(replica, mask) => {
                let turn = |ix: u32| [Turn::Pinned, Turn::Coming(ix), Turn::Retained][(ix % 3) as usize];
                let versions: Vec<_> = chosen(mask, VERSIONS).into_iter().map(|ix| (ix, turn(ix))).collect();
                w.wanted_by_turn(replica, &versions);
            }
            Step::Kept(replica, mask) => w.kept(replica, &chosen(mask, VERSIONS)),
            Step::Version { version, pinned } => w.version(version, pinned),
            Step::RemoveVersion(version) => w.event(Event::RemoveVersion { version: v(version) }),
            Step::Replica { replica, gib, max_loads, flags } => {
                let mode = if flags & 1 == 0 { Mode::Guaranteed } else { Mode::Overcommit };
                let memory = (flags & 12 != 0).then_some(Bytes(gib * GIB));
                let spec = ReplicaSpec { max_loads, mode, memory, loads: flags & 6 != 0, ..spec(gib) };
                w.event(Event::SetReplica { replica: r(replica), spec });
            }
            Step::RemoveReplica(replica) => {
                w.event(Event::RemoveReplica { replica: r(replica) });
                self.truth.retain(|(at, _)| at.0 != replica);
            }
            Step::Fleet(loads) => w.event(Event::SetSettings(settings(loads))),
        }
    }

    fn poll(&mut self, replica: u32) {
        let held = self.held(replica);
        self.world.poll(replica, &held);
    }

    fn held(&self, replica: u32) -> Vec<u32> {
        self.truth.iter().filter(|(at, _)| at.0 == replica).map(|(_, v)| v.0).collect()
    }

    /// Mostly about what is shown, sometimes too late.
    fn missing(&mut self, replica: u32, version: u32, gone: bool) {
        let w = &mut self.world;
        let shown = (version..version + VERSIONS).map(|n| n % VERSIONS).find(|ix| w.holds(replica, *ix));
        if let Some(version) = shown.filter(|_| gone) {
            self.truth.remove(&(r(replica), v(version)));
        }
        w.event(Event::Missing { replica: r(replica), version: v(shown.unwrap_or(version)) });
    }

    /// Answers an open operation: mostly well, sometimes badly, sometimes after everybody has given up on it.
    fn answer(&mut self, pick: usize, how: u8) {
        let w = &mut self.world;
        let Some(index) = pick.checked_rem(w.open.len()) else { return };
        let effect = w.open.remove(index);
        let text = "no".to_owned();
        let event = match (effect, how) {
            (Effect::Load { op, .. }, 0) => Event::LoadDone { op, result: Err(LoadError { text, permanent: true }) },
            (Effect::Load { op, .. }, 1..4) => {
                Event::LoadDone { op, result: Err(LoadError { text, permanent: false }) }
            }
            (Effect::Load { op, replica, version, .. }, _) => {
                self.truth.insert((replica, version));
                let measured = how.is_multiple_of(2).then_some(Bytes(GIB / 2));
                Event::LoadDone { op, result: Ok(measured) }
            }
            (Effect::Verify { op, .. }, 0) => Event::Verified { op, proof: Proof::Wrong(text) },
            (Effect::Verify { op, .. }, 1..4) => Event::Verified { op, proof: Proof::Unknown(text) },
            (Effect::Verify { op, .. }, _) => Event::Verified { op, proof: Proof::Proven },
            (Effect::Unload { op, .. }, 0..3) => Event::UnloadDone { op, result: Err(text) },
            (Effect::Unload { op, replica, version, .. }, _) => {
                self.truth.remove(&(replica, version));
                Event::UnloadDone { op, result: Ok(()) }
            }
            (other, _) => panic!("{other:?} is no operation"),
        };
        w.event(event);
    }

    /// Requests begin only where the flag is set, as in a gateway.
    fn set_use(&mut self, replica: u32, version: u32, start: bool) {
        let shown = self.world.holds(replica, version);
        let mut counts = self.world.usage.0.borrow_mut();
        let now = self.world.now;
        let count = counts.in_flight.entry((r(replica), v(version))).or_default();
        match start {
            true if shown => *count += 1,
            true => return,
            false => *count = count.saturating_sub(1),
        }
        counts.last_used.insert((r(replica), v(version)), now);
    }

    /// Time passes. A tick that leaves its own deadline behind would spin for ever; the witness sees that.
    fn advance(&mut self, span: Duration) {
        self.world.advance(span);
        // A driver that keeps its deadlines has given up what is over them.
        let now = self.world.now;
        self.world.open.retain(|e| match e {
            // A load is answered however late.
            Effect::Load { .. } => true,
            Effect::Verify { deadline, .. } | Effect::Unload { deadline, .. } => {
                // Some answers come too late all the same.
                *deadline > now || deadline.0.is_multiple_of(3)
            }
            _ => false,
        });
    }

    /// Everything stops: requests end, replicas are healthy, operations go well.
    fn end(&mut self) {
        self.world.usage.0.borrow_mut().in_flight.clear();
        self.advance(Duration::from_secs(400));
        assert_eq!(self.world.machine.waiting(), 0, "every waiter is answered");
        while let Some(index) = self.world.open.iter().position(|e| matches!(e, Effect::Load { .. })) {
            self.answer(index, 1);
        }
        self.world.open.clear();
        self.advance(Duration::from_secs(400));
        assert_eq!(self.world.machine.waiting(), 0);
    }

    /// With the wanted sets empty and time past, nothing is in flight and nothing is queued.
    fn quiet(&mut self) {
        for replica in 0..REPLICAS {
            self.world.wanted(replica, &[]);
            self.world.kept(replica, &[]);
            self.world.event(Event::ReplicaUp { replica: r(replica) });
        }
        for _ in 0..40 {
            self.world.advance(Duration::from_secs(60));
            self.world.drain();
            while !self.world.open.is_empty() {
                self.answer(0, 7);
            }
            (0..REPLICAS).for_each(|replica| self.poll(replica));
        }
        let report = self.world.machine.report();
        assert_eq!(self.world.machine.loads_in_flight(), 0, "{report:#?}");
        assert!(report.queued.is_empty(), "{report:#?}");
        let restless = |s: State| !matches!(s, State::Held | State::Quarantined);
        let holdings = report.replicas.iter().flat_map(|r| &r.holdings);
        assert!(!holdings.into_iter().any(|h| restless(h.state)), "{report:#?}");
    }
}

/// 400, or as many as `PROPTEST_CASES` says (`make sim`).
fn histories() -> u32 {
    #[allow(clippy::disallowed_methods, reason = "a test may ask how long it is to run")]
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(400)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: histories(), ..ProptestConfig::default() })]

    #[test]
    fn promises_hold_in_every_history(steps in prop::collection::vec(step(), 1..160)) {
        let mut servers = Servers::new();
        for step in steps {
            servers.step(step);
        }
        servers.end();
        servers.quiet();
        prop_assert!(servers.world.now > Mono::ZERO);
    }
}
