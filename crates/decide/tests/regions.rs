//! Regions: what their checks, drains and returns lead to, in single cases and in random histories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use holdfast_decide::regions::{Effect, Event, FULL, Phase, Refused, Regions, Rules, Why};
use holdfast_types::Mono;
use proptest::prelude::*;

const S: u64 = 1_000_000_000;
/// Between two checks of a region.
const CHECK: u64 = 5;

fn at(seconds: u64) -> Mono {
    Mono((1_000 + seconds) * S)
}

struct World {
    regions: Regions,
    now: u64,
    effects: Vec<Effect>,
}

impl World {
    fn new(count: usize) -> Self {
        Self { regions: Regions::new(count, Rules::default(), at(0)), now: 0, effects: Vec::new() }
    }

    fn does(&mut self, event: Event) -> Result<(), Refused> {
        self.regions.apply(at(self.now), event, &mut self.effects)
    }

    fn check(&mut self, region: usize, good: bool) {
        self.does(Event::Checked { region, balancer: good, application: good }).unwrap();
    }

    /// One round of checks, and the time until the next.
    fn round(&mut self, good: &[bool]) {
        for (region, good) in good.iter().enumerate() {
            self.check(region, *good);
        }
        self.now += CHECK;
        self.does(Event::Tick).unwrap();
    }

    fn rounds(&mut self, count: u64, good: &[bool]) {
        (0..count).for_each(|_| self.round(good));
    }

    fn share(&self, region: usize) -> u16 {
        self.regions.share(region, at(self.now))
    }

    fn shares(&self) -> Vec<u16> {
        (0..3).map(|region| self.share(region)).collect()
    }
}

#[test]
fn three_failed_checks_in_a_row_put_a_region_out_and_two_do_not() {
    let mut world = World::new(3);
    for good in [false, false, true, false, false, true] {
        world.check(0, good);
    }
    assert!(world.effects.is_empty() && world.share(0) == FULL);
    world.rounds(3, &[false, true, true]);
    assert_eq!(world.effects, [Effect::Out { region: 0, why: Why::Checks }]);
    assert_eq!(world.shares(), [0, FULL, FULL]);
}

#[test]
fn a_check_is_good_only_if_balancer_and_application_answer() {
    for (balancer, application, out) in [(true, true, false), (false, true, true), (true, false, true)] {
        let mut world = World::new(2);
        for _ in 0..3 {
            world.does(Event::Checked { region: 0, balancer, application }).unwrap();
        }
        assert_eq!(world.share(0) == 0, out, "balancer {balancer}, application {application}");
    }
}

#[test]
fn a_region_comes_back_reconciled_and_in_steps() {
    let mut world = World::new(3);
    world.rounds(3, &[false, true, true]);
    world.rounds(12, &[true, true, true]);
    assert_eq!(world.effects.last(), Some(&Effect::Reconcile { region: 0 }));
    world.rounds(100, &[true, true, true]);
    assert_eq!((world.share(0), world.regions.phase(0)), (0, Some(Phase::Reconciling)), "nothing before that is done");
    world.does(Event::Reconciled { region: 0 }).unwrap();
    let mut shares = vec![world.share(0)];
    let begun = world.now;
    while world.regions.phase(0) != Some(Phase::Serving) {
        world.round(&[true, true, true]);
        shares.push(world.share(0));
    }
    assert_eq!((shares[0], shares.last()), (50, Some(&FULL)), "{shares:?}");
    assert!(shares.windows(2).all(|w| w[0] <= w[1] && w[1] - w[0] <= 50), "{shares:?}");
    assert_eq!((world.now - begun, world.effects.last()), (600, Some(&Effect::Back { region: 0 })));
}

#[test]
fn a_drain_waits_for_room_and_lets_go_by_and_by() {
    let mut world = World::new(3);
    world.does(Event::Drain { region: 1 }).unwrap();
    world.rounds(50, &[true, true, true]);
    assert_eq!((world.share(1), &world.effects[..]), (FULL, &[Effect::Raise { region: 1 }][..]));
    world.does(Event::Raised { region: 1 }).unwrap();
    world.rounds(30, &[true, true, true]);
    assert_eq!(world.share(1), 500, "half of the time is over");
    world.rounds(30, &[true, true, true]);
    assert_eq!(world.effects.last(), Some(&Effect::Out { region: 1, why: Why::Drained }));
    world.rounds(1_000, &[true, true, true]);
    assert_eq!(world.share(1), 0, "good checks bring no drained region back");
    assert_eq!(world.does(Event::Drain { region: 1 }), Err(Refused::NotServing));
    world.does(Event::Return { region: 1 }).unwrap();
    assert_eq!(world.effects.last(), Some(&Effect::Reconcile { region: 1 }));
    assert_eq!(world.does(Event::Return { region: 1 }), Err(Refused::NotDrained));
}

#[test]
fn a_drain_that_is_called_off_goes_on_from_where_it_is() {
    let mut world = World::new(2);
    world.does(Event::Drain { region: 0 }).unwrap();
    world.does(Event::Return { region: 0 }).unwrap();
    assert_eq!(world.regions.phase(0), Some(Phase::Serving), "nobody had left");
    world.does(Event::Drain { region: 0 }).unwrap();
    world.does(Event::Raised { region: 0 }).unwrap();
    world.rounds(30, &[true, true]);
    let before = world.share(0);
    world.does(Event::Return { region: 0 }).unwrap();
    assert!(world.share(0).abs_diff(before) <= 50, "{before} to {}", world.share(0));
    world.rounds(120, &[true, true]);
    assert_eq!(world.share(0), FULL);
}

#[test]
fn the_last_region_is_kept_and_told_of() {
    let mut world = World::new(2);
    world.rounds(3, &[false, false]);
    assert_eq!(world.effects, [Effect::Out { region: 0, why: Why::Checks }, Effect::Alone { region: 1 }]);
    world.rounds(20, &[false, false]);
    assert_eq!((world.share(1), world.effects.len()), (FULL, 2), "told once");
    assert_eq!(world.does(Event::Drain { region: 1 }), Err(Refused::Last));
    assert_eq!(world.does(Event::Drain { region: 7 }), Err(Refused::Unknown));
    // The other comes back: the one that fails is let go, and all go where there is a share.
    world.rounds(12, &[true, false]);
    world.does(Event::Reconciled { region: 0 }).unwrap();
    assert_eq!((world.share(0), world.share(1)), (50, 0));
    assert_eq!(world.regions.send(&[1, 0], 999, at(world.now)), Some(0));
}

#[test]
fn a_drain_that_would_leave_nobody_is_called_off() {
    let mut world = World::new(2);
    world.does(Event::Drain { region: 0 }).unwrap();
    world.does(Event::Raised { region: 0 }).unwrap();
    world.rounds(30, &[true, true]);
    world.rounds(400, &[true, false]);
    assert_eq!((world.regions.phase(0), world.share(1)), (Some(Phase::Serving), 0));
}

#[test]
fn flapping_checks_put_a_region_out_ever_more_rarely() {
    let mut world = World::new(3);
    // Down for 15 s, up for 60 s, for four hours.
    for _ in 0..192 {
        world.rounds(3, &[false, true, true]);
        world.rounds(12, &[true, true, true]);
        if world.regions.phase(0) == Some(Phase::Reconciling) {
            world.does(Event::Reconciled { region: 0 }).unwrap();
        }
    }
    let outs = world.effects.iter().filter(|e| matches!(e, Effect::Out { .. })).count();
    assert!((2..=14).contains(&outs), "30 s, 60 s, ... up to half an hour each: {outs}");
}

#[test]
fn clients_go_to_the_nearest_that_has_a_share_for_them() {
    let mut world = World::new(3);
    let send = |world: &World, order: &[usize], place| world.regions.send(order, place, at(world.now));
    assert_eq!(send(&world, &[2, 0, 1], 999), Some(2));
    world.rounds(3, &[true, true, false]);
    assert_eq!(send(&world, &[2, 0, 1], 0), Some(0), "the next nearest");
    assert_eq!(send(&world, &[2], 0), None, "whose data has to stay there gets no answer elsewhere");
    world.rounds(12, &[true, true, true]);
    world.does(Event::Reconciled { region: 2 }).unwrap();
    let back = (0..FULL).filter(|place| send(&world, &[2, 0, 1], *place) == Some(2)).count();
    assert_eq!(back, 50);
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Checks([bool; 3]),
    Drain(usize),
    Raised(usize),
    Return(usize),
    Reconciled(usize),
    Waits(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let checks = prop_oneof![
        4 => Just([true; 3]),
        2 => Just([false, true, true]),
        1 => Just([true, false, false]),
        1 => any::<[bool; 3]>(),
    ];
    prop_oneof![
        8 => checks.prop_map(Act::Checks),
        1 => (0usize..4).prop_map(Act::Drain),
        1 => (0usize..3).prop_map(Act::Raised),
        1 => (0usize..3).prop_map(Act::Return),
        2 => (0usize..3).prop_map(Act::Reconciled),
        1 => (0u64..900).prop_map(Act::Waits),
    ]
}

/// Does one act; says which regions were reconciled by it.
fn play(world: &mut World, act: Act) {
    let done = match act {
        Act::Checks(good) => {
            world.round(&good);
            Ok(())
        }
        Act::Drain(region) => world.does(Event::Drain { region }),
        Act::Raised(region) => world.does(Event::Raised { region }),
        Act::Return(region) => world.does(Event::Return { region }),
        Act::Reconciled(region) => world.does(Event::Reconciled { region }),
        Act::Waits(seconds) => {
            world.now += seconds;
            world.does(Event::Tick)
        }
    };
    // A refusal is an answer.
    let _ = done;
}

/// By how much a share may have grown in a time: what the steps give, and one step.
fn may_grow(seconds: u64) -> u16 {
    u16::try_from((u64::from(FULL) * seconds).div_ceil(600)).unwrap_or(FULL).saturating_add(51)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn in_every_history_somebody_serves_and_shares_grow_slowly(acts in prop::collection::vec(act(), 1..80)) {
        let mut world = World::new(3);
        for act in acts {
            let (before, then, known) = (world.shares(), world.now, world.effects.len());
            let phases: Vec<Option<Phase>> = (0..3).map(|r| world.regions.phase(r)).collect();
            play(&mut world, act);
            let after = world.shares();
            prop_assert!(after.iter().any(|share| *share > 0), "{act:?}: nobody serves");
            for region in 0..3 {
                // A drain that nobody had left yet is taken back at once; that is no growth.
                prop_assert!(after[region] <= before[region].saturating_add(may_grow(world.now - then)), "{act:?}: a jump");
                let was_away = matches!(phases[region], Some(Phase::Out { .. } | Phase::Reconciling));
                let reconciled = matches!(act, Act::Reconciled(one) if one == region);
                prop_assert!(!was_away || after[region] == 0 || reconciled, "{act:?}: back before it was reconciled");
            }
            for effect in &world.effects[known..] {
                if let Effect::Out { region, .. } = effect {
                    prop_assert_eq!(after[*region], 0);
                }
            }
            let next = world.regions.next_change(at(world.now));
            prop_assert!(next.is_none_or(|next| next > at(world.now)));
            for place in [0, 1, 499, 999] {
                let to = world.regions.send(&[1, 2, 0], place, at(world.now)).unwrap();
                prop_assert!(after[to] > 0);
            }
        }
    }

    #[test]
    fn a_growing_share_moves_a_client_once_and_towards_it(place in 0u16..FULL, step in 1u64..40) {
        let mut world = World::new(3);
        world.rounds(3, &[false, true, true]);
        world.rounds(12, &[true, true, true]);
        world.does(Event::Reconciled { region: 0 }).unwrap();
        let mut went = Vec::new();
        while world.regions.phase(0) != Some(Phase::Serving) {
            went.push(world.regions.send(&[0, 1, 2], place, at(world.now)).unwrap());
            world.now += step;
            world.does(Event::Tick).unwrap();
        }
        went.push(world.regions.send(&[0, 1, 2], place, at(world.now)).unwrap());
        went.dedup();
        prop_assert!(went == [0] || went == [1, 0], "{went:?}");
    }

    #[test]
    fn after_any_history_good_checks_bring_everybody_back(acts in prop::collection::vec(act(), 0..60)) {
        let mut world = World::new(3);
        acts.into_iter().for_each(|act| play(&mut world, act));
        for _ in 0..700 {
            world.round(&[true; 3]);
            for region in 0..3 {
                match world.regions.phase(region) {
                    Some(Phase::Reconciling) => world.does(Event::Reconciled { region }).unwrap(),
                    Some(Phase::Raising | Phase::Out { why: Why::Drained }) => world.does(Event::Return { region }).unwrap(),
                    _ => {}
                }
            }
        }
        prop_assert_eq!(world.shares(), [FULL; 3]);
        prop_assert_eq!(world.regions.next_change(at(world.now)), None);
    }

    #[test]
    fn shares_change_only_when_they_are_said_to(drains in any::<bool>(), jump in 1u64..2_000_000_000) {
        let mut regions = Regions::new(2, Rules { drain_over: Duration::from_secs(7), return_over: Duration::from_secs(11), return_steps: 7, ..Rules::default() }, at(0));
        let mut effects = Vec::new();
        let mut now = at(0);
        regions.apply(now, Event::Drain { region: 0 }, &mut effects).unwrap();
        regions.apply(now, Event::Raised { region: 0 }, &mut effects).unwrap();
        if !drains {
            now = now.after(Duration::from_secs(7));
            regions.apply(now, Event::Tick, &mut effects).unwrap();
            regions.apply(now, Event::Return { region: 0 }, &mut effects).unwrap();
            regions.apply(now, Event::Reconciled { region: 0 }, &mut effects).unwrap();
        }
        while let Some(next) = regions.next_change(now) {
            let quiet = Mono((now.0 + jump % (next.0 - now.0)).max(now.0));
            prop_assert_eq!(regions.share(0, quiet), regions.share(0, now));
            now = next;
            regions.apply(now, Event::Tick, &mut effects).unwrap();
        }
    }
}
