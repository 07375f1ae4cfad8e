//! One of several gateways: it loads on what it owns, while its lease lasts, within its part, and not before it has seen what others left.

#![allow(clippy::panic, reason = "a test fails loudly")]

mod common;

use common::*;
use holdfast_placement::residency::*;
use holdfast_types::{Bytes, Mono};

fn own(replicas: &[u32], until: Mono, part: u32) -> Event {
    Event::SetOwn(Some(Own { replicas: replicas.iter().map(|ix| r(*ix)).collect(), until, part }))
}

fn loads(world: &World) -> Vec<(ReplicaIx, VersionIx)> {
    let load = |effect: &Effect| match effect {
        Effect::Load { replica, version, .. } => Some((*replica, *version)),
        _ => None,
    };
    world.log.iter().filter_map(load).collect()
}

fn want(world: &mut World, waiter: u64, version: u32, candidates: &[u32]) {
    let candidates = candidates.iter().map(|ix| r(*ix)).collect();
    let deadline = world.now.after(secs(60));
    world.event(Event::Want { waiter: WaiterId(1_000 + waiter), version: v(version), candidates, deadline });
}

fn observed(world: &mut World, replica: u32, started: Mono, loading: &[u32]) {
    let loading = loading.iter().map(|ix| v(*ix)).collect();
    world.event(Event::Observed { replica: r(replica), started, held: Vec::new(), loading, strange: Strange::NONE });
}

#[test]
fn loads_start_on_owned_servers_alone_while_the_lease_lasts() {
    let mut world = World::with(Settings::default(), 2, 8, 3, Mode::Guaranteed);
    world.event(Event::SetOwn(Some(Own::NOTHING)));
    want(&mut world, 0, 0, &[0, 1]);
    assert_eq!(loads(&world), []);
    let until = world.now.after(secs(10));
    world.event(own(&[1], until, 8));
    assert_eq!(loads(&world), [(r(1), v(0))], "on the one that it owns");
    world.now = until;
    want(&mut world, 1, 1, &[1]);
    assert_eq!(loads(&world).len(), 1, "the lease is over");
    let until = world.now.after(secs(10));
    world.event(own(&[0, 1], until, 8));
    assert_eq!(loads(&world).len(), 1, "one load at a time on a server, whoever is its owner");
    want(&mut world, 2, 2, &[0]);
    assert_eq!(loads(&world)[1..], [(r(0), v(2))]);
}

#[test]
fn a_part_of_the_bound_is_not_passed() {
    let mut world = World::with(Settings::default(), 4, 8, 4, Mode::Guaranteed);
    let until = world.now.after(secs(100));
    world.event(own(&[0, 1, 2, 3], until, 2));
    for ix in 0..4 {
        want(&mut world, u64::from(ix), ix, &[ix]);
    }
    assert_eq!(loads(&world).len(), 2);
}

#[test]
fn what_others_load_on_their_own_servers_takes_nothing_of_the_part() {
    let mut world = World::with(Settings::default(), 2, 8, 3, Mode::Guaranteed);
    let until = world.now.after(secs(100));
    world.event(own(&[0], until, 1));
    let now = world.now;
    observed(&mut world, 1, now, &[0]);
    want(&mut world, 0, 1, &[0]);
    assert_eq!(loads(&world), [(r(0), v(1))]);
}

/// Loads that are in flight when the owners change are counted by everybody, wherever they are.
#[test]
fn what_is_left_of_former_owners_is_counted_until_it_has_ended() {
    let mut world = World::with(Settings::default(), 2, 8, 3, Mode::Guaranteed);
    let until = world.now.after(secs(1_000));
    world.event(own(&[0], until, 1));
    for ix in 0..2 {
        world.event(Event::Unsettled { replica: r(ix), until: Mono::ZERO });
    }
    let change = world.now;
    want(&mut world, 0, 1, &[0]);
    assert_eq!(loads(&world), [], "neither server has been looked at since");
    world.now = change.after(secs(1));
    let now = world.now;
    observed(&mut world, 0, Mono(change.0 - 1), &[]);
    observed(&mut world, 1, now, &[0]);
    assert_eq!(loads(&world), [], "the look at the first began before the change");
    observed(&mut world, 0, now, &[]);
    assert_eq!(loads(&world), [], "what loads on the other server was begun under the former owners");
    world.now = now.after(secs(1));
    let now = world.now;
    observed(&mut world, 1, now, &[]);
    assert_eq!(loads(&world), [(r(0), v(1))]);
    // What the other one begins from now on is its own matter.
    observed(&mut world, 1, now, &[2]);
    assert_eq!(world.machine.loads_in_flight(), 1);
}

/// Of a server that does not tell of its loads a look says nothing.
#[test]
fn a_server_is_left_alone_for_as_long_as_loads_may_last_of_which_it_does_not_tell() {
    let mut world = World::with(Settings::default(), 1, 8, 2, Mode::Guaranteed);
    let (until, hold) = (world.now.after(secs(1_000)), world.now.after(secs(300)));
    world.event(own(&[0], until, 8));
    world.event(Event::Unsettled { replica: r(0), until: hold });
    want(&mut world, 0, 0, &[0]);
    assert!(!world.machine.drained_of_loads(world.now));
    world.now = world.now.after(secs(10));
    let now = world.now;
    observed(&mut world, 0, now, &[]);
    assert_eq!(loads(&world), []);
    world.advance(hold.since(world.now));
    assert!(world.machine.drained_of_loads(world.now));
    observed(&mut world, 0, hold, &[]);
    want(&mut world, 1, 1, &[0]);
    assert_eq!(loads(&world), [(r(0), v(1))]);
    assert!(!world.machine.drained_of_loads(world.now));
}

#[test]
fn a_version_that_its_owner_unloads_is_hidden_and_not_taken_for_held_by_a_poll() {
    let mut world = World::with(Settings::default(), 1, 8, 1, Mode::Guaranteed);
    world.event(Event::SetOwn(Some(Own::NOTHING)));
    let held = |world: &mut World| {
        let started = world.now;
        world.event(Event::Observed {
            replica: r(0),
            started,
            held: vec![v(0)],
            loading: Vec::new(),
            strange: Strange::NONE,
        });
        let Some(Effect::Verify { op, .. }) = world.last.iter().find(|e| matches!(e, Effect::Verify { .. })).cloned()
        else {
            return false;
        };
        world.event(Event::Verified { op, proof: Proof::Proven });
        true
    };
    assert!(held(&mut world));
    let until = world.now.after(secs(30));
    world.event(Event::Yield { replica: r(0), version: v(0), until, word: 7 });
    let given = world.now;
    assert!(world.last.contains(&Effect::Hide { replica: r(0), version: v(0) }));
    world.now = world.now.after(secs(1));
    assert!(!held(&mut world), "it is still there, but on its way out");
    for over in [Word::Number(6), Word::Before(given)] {
        world.event(Event::TakeUp { replica: r(0), version: v(0), over });
        assert!(!held(&mut world), "{over:?} is of an earlier word, and late");
    }
    world.event(Event::TakeUp { replica: r(0), version: v(0), over: Word::Number(7) });
    assert!(held(&mut world), "it was not unloaded after all");
}

/// Somebody else's server: what leaves is hidden, and unloaded by its owner.
#[test]
fn nothing_is_unloaded_from_a_server_that_is_not_owned() {
    let mut world = World::with(Settings::default(), 1, 8, 1, Mode::Guaranteed);
    want(&mut world, 0, 0, &[0]);
    let Some(Effect::Load { op, .. }) = world.last.iter().find(|e| matches!(e, Effect::Load { .. })).cloned() else {
        panic!("a load")
    };
    world.event(Event::LoadDone { op, result: Ok(None) });
    let Some(Effect::Verify { op, .. }) = world.last.iter().find(|e| matches!(e, Effect::Verify { .. })).cloned()
    else {
        panic!("a proof")
    };
    world.event(Event::Verified { op, proof: Proof::Proven });
    world.event(Event::SetOwn(Some(Own::NOTHING)));
    world.event(Event::RemoveVersion { version: v(0) });
    world.event(Event::Drained { replica: r(0), version: v(0) });
    assert!(!world.log.iter().any(|e| matches!(e, Effect::Unload { .. })));
    let until = world.now.after(secs(10));
    world.event(own(&[0], until, 1));
    assert!(world.log.iter().any(|e| matches!(e, Effect::Unload { .. })));
}

/// Of two owners that would each unload the last copy but one of a pinned version, the one that is asked by the other says no.
#[test]
fn the_last_copy_but_one_that_leaves_already_is_none_to_rely_on() {
    let mut world = World::with(Settings::default(), 2, 8, 2, Mode::Guaranteed);
    let pinned = VersionSpec { size: Bytes(1), pinned: true };
    world.event(Event::SetVersion { version: v(0), spec: pinned });
    for replica in 0..2 {
        let started = world.now;
        let (held, loading) = (vec![v(0)], Vec::new());
        world.event(Event::Observed { replica: r(replica), started, held, loading, strange: Strange::NONE });
        assert!(!world.machine.relies_on(r(replica), v(0)), "it is not proved yet");
        let Some(Effect::Verify { op, .. }) = world.last.iter().find(|e| matches!(e, Effect::Verify { .. })).cloned()
        else {
            panic!("a proof")
        };
        world.event(Event::Verified { op, proof: Proof::Proven });
        assert_eq!(world.machine.relies_on(r(replica), v(0)), replica == 0, "there is another one then");
    }
    let until = world.now.after(secs(30));
    world.event(Event::Yield { replica: r(1), version: v(0), until, word: 1 });
    assert!(world.machine.relies_on(r(0), v(0)) && !world.machine.relies_on(r(1), v(0)));
    let place = |place| Event::SetWanted { replica: r(0), versions: vec![(v(0), Turn::Coming(place))] };
    world.event(place(2));
    assert!(!world.machine.relies_on(r(0), v(0)), "it may have to make room for one that comes before it");
}

/// A word is kept as well for a version that the last poll had shown as being loaded by its owner: it may be loaded, and on its way out, since.
#[test]
fn a_load_of_the_owner_that_has_ended_since_is_not_used_against_a_word() {
    let mut world = World::with(Settings::default(), 1, 8, 1, Mode::Guaranteed);
    let until = world.now.after(secs(1_000));
    world.event(own(&[], until, 1));
    let now = world.now;
    observed(&mut world, 0, now, &[0]);
    let until = world.now.after(secs(30));
    world.event(Event::Yield { replica: r(0), version: v(0), until, word: 1 });
    let proves = |world: &mut World| {
        world.now = world.now.after(secs(1));
        let (started, held, loading) = (world.now, vec![v(0)], Vec::new());
        world.event(Event::Observed { replica: r(0), started, held, loading, strange: Strange::NONE });
        world.last.iter().any(|e| matches!(e, Effect::Verify { .. }))
    };
    assert!(!proves(&mut world) && !proves(&mut world), "its owner is about to unload it");
    world.event(Event::TakeUp { replica: r(0), version: v(0), over: Word::Number(1) });
    assert!(proves(&mut world), "it stays");
}

/// A copy that its owner loads anew is proved anew, and polls that began before that are not believed.
#[test]
fn a_copy_that_is_loaded_anew_is_proved_anew() {
    let mut world = World::with(Settings::default(), 1, 8, 1, Mode::Guaranteed);
    let until = world.now.after(secs(1_000));
    world.event(own(&[], until, 1));
    let poll = |world: &mut World, started: Mono| {
        let (held, loading) = (vec![v(0)], Vec::new());
        world.event(Event::Observed { replica: r(0), started, held, loading, strange: Strange::NONE });
        let verify = world.last.iter().find_map(|e| match e {
            Effect::Verify { op, .. } => Some(*op),
            _ => None,
        });
        if let Some(op) = verify {
            world.event(Event::Verified { op, proof: Proof::Proven });
        }
        verify.is_some()
    };
    let now = world.now;
    assert!(poll(&mut world, now));
    world.now = world.now.after(secs(1));
    let before = world.now;
    assert!(!poll(&mut world, before), "it is proved");
    world.now = world.now.after(secs(1));
    world.event(Event::Reloads { replica: r(0), version: v(0) });
    assert!(world.last.contains(&Effect::Hide { replica: r(0), version: v(0) }));
    assert!(!poll(&mut world, before), "it may have seen the copy before");
    world.now = world.now.after(secs(1));
    let now = world.now;
    assert!(poll(&mut world, now), "another copy, another proof");
}
