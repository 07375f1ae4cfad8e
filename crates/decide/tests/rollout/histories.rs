//! Random histories: two control planes that are killed, cut off and resumed at any event, a store that conflicts, gateways that come and go,
//! replicas that die, fail and lie. The witness looks on at every step.

use proptest::prelude::*;

use holdfast_decide::rollout::*;

use crate::sim::*;
use crate::world::*;

#[derive(Clone, Debug)]
enum Step {
    Deliver(usize, u8),
    Late(usize),
    Advance(u64),
    Jump(u64),
    Kill(usize),
    TakeOver(usize),
    CutOff(usize, bool),
    Follow(usize),
    RequestsEnd(usize),
    LeaseEnds(usize),
    Lease(usize),
    Down(usize),
    Up(usize),
    Evict(usize, bool),
    Other(Option<usize>),
    Targets(u8),
    Compare,
    Command(usize, u8),
    /// Everything goes well for a while.
    Well(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (p, g, r) = (0..2usize, 0..GATEWAYS, 0..REPLICAS);
    prop_oneof![
        60 => (any::<usize>(), 0u8..20).prop_map(|(pick, how)| Step::Deliver(pick, how)),
        10 => any::<usize>().prop_map(Step::Late),
        10 => (1u64..3_000).prop_map(Step::Advance),
        3 => (10u64..600).prop_map(Step::Jump),
        2 => p.clone().prop_map(Step::Kill),
        3 => p.clone().prop_map(Step::TakeOver),
        2 => (p.clone(), any::<bool>()).prop_map(|(p, off)| Step::CutOff(p, off)),
        8 => g.clone().prop_map(Step::Follow),
        8 => g.clone().prop_map(Step::RequestsEnd),
        1 => g.clone().prop_map(Step::LeaseEnds),
        3 => g.prop_map(Step::Lease),
        1 => r.clone().prop_map(Step::Down),
        2 => r.clone().prop_map(Step::Up),
        1 => (r, any::<bool>()).prop_map(|(r, new)| Step::Evict(r, new)),
        1 => prop_oneof![4 => Just(None), 1 => (0..2usize).prop_map(Some)].prop_map(Step::Other),
        2 => (0u8..4).prop_map(Step::Targets),
        4 => Just(Step::Compare),
        4 => (p, 0u8..10).prop_map(|(p, what)| Step::Command(p, what)),
        6 => (5u8..60).prop_map(Step::Well),
    ]
}

fn options(bits: u8) -> Options {
    let canary = [CanaryStep { percent: 5, wait: secs(20) }, CanaryStep { percent: 50, wait: secs(10) }];
    let shadow = Shadow { share: 100, compare: 100, differ: 50, at_least: secs(5), at_most: secs(120) };
    Options {
        atomic: bits & 1 != 0,
        shadow: (bits & 2 != 0).then_some(shadow),
        canary: if bits & 4 != 0 { canary.to_vec() } else { Vec::new() },
        loads: if bits & 8 != 0 { 1 } else { 3 },
        retain: secs(90),
        checkpoint: secs(30),
        ..Options::default()
    }
}

fn play(sim: &mut Sim, step: &Step) {
    match step {
        Step::Deliver(pick, how) => sim.deliver(*pick, *how),
        Step::Late(pick) => sim.late(*pick),
        Step::Advance(ms) => sim.advance(std::time::Duration::from_millis(*ms)),
        Step::Jump(s) => sim.advance(secs(*s)),
        Step::Kill(p) => sim.kill(*p),
        Step::TakeOver(p) => sim.take_over(*p),
        Step::CutOff(p, off) => sim.cut_off(*p, *off),
        Step::Follow(g) => sim.follow(*g),
        Step::RequestsEnd(g) => sim.requests_end(*g),
        Step::LeaseEnds(g) => sim.lease_ends(*g),
        Step::Lease(g) => sim.lease(*g),
        Step::Down(r) => sim.replica_down(*r),
        Step::Up(r) => sim.replica_up(*r),
        Step::Evict(r, new) => sim.evict(*r, if *new { "2" } else { "1" }),
        Step::Other(pin) => sim.other_flip(*pin),
        Step::Targets(bits) => {
            let versions: Vec<&str> =
                [(1, "1"), (2, "2")].iter().filter(|(b, _)| bits & b != 0).map(|(_, v)| *v).collect();
            sim.targets(&versions);
        }
        Step::Compare => sim.compare(),
        Step::Command(p, what) => {
            let command = match what {
                0 => Command::Abort,
                1 | 2 => Command::Pause,
                3..6 => Command::Resume,
                _ => Command::Revert { confirmed: what % 2 == 0 },
            };
            sim.command(*p, command);
        }
        Step::Well(n) => {
            for _ in 0..*n {
                sim.deliver(0, 8);
            }
        }
    }
}

/// What the table says is what the roll-out says that it did.
fn agree(sim: &Sim, machine: &Rollout) {
    for (ix, pin) in machine.progress().pins.iter().enumerate() {
        assert!(pin.stage.is_final());
        let force = &sim.store.pins[ix];
        if sim.store.moved.contains(&ix) {
            continue;
        }
        let (old, new) = (pin.old.clone(), Some(pin.new.clone()));
        let want = match (pin.stage, pin.back) {
            (Stage::Done, false) => new,
            (Stage::Done, true) | (Stage::Aborted, _) | (Stage::Failed, false) => old,
            // A way back that was gone: what was in force stays.
            _ => new,
        };
        assert_eq!((&force.version, &force.split), (&want, &None), "{pin:#?}");
        assert!(!sim.store.removed.iter().any(|a| Some(&a.version) == want.as_ref() && pin.stage != Stage::Done));
    }
}

/// In a test run.
pub(crate) const HISTORIES: u32 = 300;

/// As many as `PROPTEST_CASES` says (`make sim`).
pub(crate) fn histories() -> u32 {
    #[allow(clippy::disallowed_methods, reason = "a test may ask how long it is to run")]
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(HISTORIES)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: histories(), ..ProptestConfig::default() })]

    #[test]
    fn promises_hold_in_every_history(bits in 0u8..32, steps in prop::collection::vec(step(), 1..220)) {
        let plan = if bits & 16 != 0 { two_pins(options(bits)) } else { one_pin(options(bits)) };
        let mut sim = Sim::new(plan);
        for step in &steps {
            play(&mut sim, step);
            prop_assert_eq!(&sim.broken, &None);
        }
        let machine = sim.end();
        prop_assert_eq!(&sim.broken, &None);
        agree(&sim, &machine);
    }
}
