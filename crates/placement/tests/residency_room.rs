//! Residency: eviction, the thrash guard, warm-up.

mod common;

use common::*;
use holdfast_placement::residency::*;
use holdfast_types::Bytes;

fn world(mode: Mode, replicas: u32, gib: u64, versions: u32) -> World {
    World::with(Settings::default(), replicas, gib, versions, mode)
}

/// The versions that were ever hidden on a replica, in order.
fn hidden(w: &World) -> Vec<u32> {
    w.log.iter().filter_map(|e| if let Effect::Hide { version, .. } = e { Some(version.0) } else { None }).collect()
}

/// Holds versions `0..n` on replica 0, used in this order a second apart.
fn filled(w: &mut World, n: u32) {
    for version in 0..n {
        w.hold(0, version);
        w.advance(secs(1));
        w.used(0, version);
    }
}

#[test]
fn the_least_recently_used_goes_and_only_when_it_is_drained() {
    let mut w = world(Mode::Overcommit, 1, 3, 4);
    filled(&mut w, 3);
    w.used(0, 0);
    let waiter = w.want(3, &[0], secs(30));
    assert_eq!(hidden(&w), [1], "version 1 is idle for longest");
    assert!(w.open.is_empty(), "nothing is unloaded before it is drained");
    w.busy(0, 1, 1);
    w.event(Event::Drained { replica: r(0), version: v(1) });
    assert!(w.open.is_empty(), "a request slipped in between its count and its look at the flag");
    w.busy(0, 1, 0);
    w.advance(secs(1));
    assert!(matches!(w.open[..], [Effect::Unload { version: VersionIx(1), .. }]));
    w.settle(secs(1));
    assert_eq!(w.outcome(waiter), Some(Outcome::Ready(r(0))));
}

#[test]
fn what_is_in_use_is_never_chosen() {
    let mut w = world(Mode::Overcommit, 1, 2, 3);
    filled(&mut w, 2);
    w.busy(0, 0, 1);
    w.busy(0, 1, 1);
    let waiter = w.want(2, &[0], secs(30));
    assert_eq!((w.outcome(waiter), hidden(&w)), (None, vec![]), "it waits: use may end any moment");
    w.busy(0, 1, 0);
    w.advance(secs(1));
    assert_eq!(hidden(&w), [1]);
    w.settle(secs(1));
    assert_eq!(w.outcome(waiter), Some(Outcome::Ready(r(0))));
}

#[test]
fn unwanted_first_then_quarantined_before_all() {
    let mut w = world(Mode::Overcommit, 1, 3, 5);
    w.wanted(0, &[0]);
    w.settle(secs(1));
    w.hold(0, 1);
    w.hold(0, 2);
    w.advance(secs(10));
    w.used(0, 1);
    w.used(0, 2);
    w.want(3, &[0], secs(30));
    assert_eq!(hidden(&w), [1], "version 0 is used less, but wanted");
    w.settle(secs(1));
    w.event(Event::Quarantine { replica: r(0), version: v(3), why: "wrong".to_owned() });
    w.drain();
    w.want(4, &[0], secs(30));
    assert_eq!(hidden(&w), [1, 3], "a copy that serves nobody goes first");
    w.settle(secs(1));
    assert!(w.holds(0, 0) && w.holds(0, 2) && w.holds(0, 4));
}

#[test]
fn no_more_is_evicted_than_needed() {
    let mut w = world(Mode::Overcommit, 1, 4, 0);
    for (ix, half_gib) in [(0, 1), (1, 1), (2, 6), (3, 5)] {
        let spec = VersionSpec { size: Bytes(half_gib * GIB / 2), pinned: false };
        w.event(Event::SetVersion { version: v(ix), spec });
    }
    filled(&mut w, 3);
    w.want(3, &[0], secs(30));
    assert_eq!(hidden(&w), [2], "0 and 1 are older, but 2 alone makes the room");
}

#[test]
fn room_in_the_making_is_not_taken_by_another() {
    let mut w = world(Mode::Overcommit, 1, 3, 5);
    w.event(Event::SetReplica { replica: r(0), spec: ReplicaSpec { max_loads: 2, mode: Mode::Overcommit, ..spec(3) } });
    w.event(Event::SetVersion { version: v(3), spec: VersionSpec { size: Bytes(2 * GIB), pinned: false } });
    filled(&mut w, 3);
    let large = w.want(3, &[0], secs(30));
    assert_eq!(hidden(&w), [0, 1]);
    w.event(Event::Drained { replica: r(0), version: v(0) });
    w.finish(0);
    let small = w.want(4, &[0], secs(30));
    assert!(w.loading().is_empty(), "1 GiB is free, but kept for the larger one");
    w.settle(secs(1));
    assert_eq!((w.outcome(large), w.outcome(small)), (Some(Outcome::Ready(r(0))), Some(Outcome::Ready(r(0)))));
}

#[test]
fn guaranteed_mode_keeps_the_last_holder_and_what_is_wanted() {
    let mut w = world(Mode::Guaranteed, 2, 1, 3);
    w.version(0, true);
    w.hold(0, 0);
    let refused = w.want(1, &[0], secs(30));
    assert_eq!(w.shed(refused), Some((secs(1), Shed::NoRoom)));
    w.hold(1, 0);
    let waiter = w.want(1, &[0], secs(30));
    assert_eq!(hidden(&w), [0], "another replica holds it");
    // The other holder is lost before the eviction is done.
    w.event(Event::ReplicaDown { replica: r(1) });
    w.drain();
    assert!(w.holds(0, 0), "it has become the last holder and is shown again");
    assert_eq!(w.shed(waiter).map(|s| s.1), Some(Shed::NoRoom));
}

#[test]
fn a_version_wanted_while_it_hides_comes_back_and_the_newcomer_looks_elsewhere() {
    let mut w = world(Mode::Overcommit, 1, 2, 3);
    filled(&mut w, 2);
    let newcomer = w.want(2, &[0], secs(30));
    assert_eq!(hidden(&w), [0]);
    let again = w.want(0, &[0], secs(30));
    assert_eq!(w.outcome(again), Some(Outcome::Ready(r(0))), "it was never unloaded");
    assert_eq!(hidden(&w), [0, 1]);
    let also = w.want(1, &[0], secs(30));
    assert_eq!(w.outcome(also), Some(Outcome::Ready(r(0))));
    assert_eq!(w.shed(newcomer).map(|s| s.1), Some(Shed::Thrashing), "all that is held is in demand");
    assert!(w.open.is_empty() && w.holds(0, 0) && w.holds(0, 1));
}

#[test]
fn twelve_hot_versions_on_room_for_ten() {
    let mut w = world(Mode::Overcommit, 1, 10, 12);
    let (mut ready, mut shed) = (0, 0);
    // Five minutes, each version asked for every second; a load takes two seconds.
    for second in 0..300u64 {
        for version in 0..12 {
            if w.holds(0, version) {
                w.used(0, version);
                ready += 1;
                continue;
            }
            let waiter = w.want(version, &[0], secs(10));
            match w.outcome(waiter) {
                Some(Outcome::Shed { retry_after, .. }) => {
                    assert!(retry_after >= secs(1) && retry_after <= secs(60));
                    shed += 1;
                }
                Some(Outcome::Ready(_)) => ready += 1,
                _ => {}
            }
        }
        w.drain();
        let quick = w.open.iter().position(|e| !matches!(e, Effect::Load { .. }));
        if let Some(index) = quick {
            w.finish(index);
        }
        if second % 2 == 1 && !w.open.is_empty() {
            w.finish(0);
        }
        w.advance(secs(1));
    }
    assert!(w.loads() <= 10 + 2 * 6, "no load storm: {} loads", w.loads());
    let thrash = w.alarms().iter().filter(|a| matches!(a, Alarm::Thrash { .. })).count();
    assert!((1..=12).contains(&thrash), "{thrash} alarms");
    assert!(ready > 2500 && shed > 100, "{ready} served, {shed} shed");
}

#[test]
fn thrash_raises_one_alarm_and_stops_the_ping_pong() {
    let mut w = world(Mode::Overcommit, 1, 1, 2);
    w.hold(0, 0);
    w.used(0, 0);
    w.advance(secs(5));
    w.hold(0, 1);
    w.used(0, 1);
    w.advance(secs(5));
    for _ in 0..5 {
        let waiter = w.want(0, &[0], secs(30));
        let Some((retry, Shed::Thrashing)) = w.shed(waiter) else { panic!("{:?}", w.outcome(waiter)) };
        assert!(retry <= secs(60) && retry >= secs(1));
        w.advance(secs(5));
    }
    assert_eq!(w.alarms().len(), 1, "{:?}", w.alarms());
    assert_eq!(w.loads(), 2);
    w.advance(secs(60));
    let waiter = w.want(0, &[0], secs(30));
    w.settle(secs(1));
    assert_eq!(w.outcome(waiter), Some(Outcome::Ready(r(0))), "after the window the idle one goes");
}

#[test]
fn what_is_larger_than_the_memory_alarms_once_and_sheds() {
    let mut w = world(Mode::Guaranteed, 1, 1, 0);
    w.event(Event::SetVersion { version: v(0), spec: VersionSpec { size: Bytes(2 * GIB), pinned: true } });
    for _ in 0..3 {
        let waiter = w.want(0, &[0], secs(30));
        assert_eq!(w.shed(waiter).map(|s| s.1), Some(Shed::NoRoom));
    }
    assert!(matches!(w.alarms()[..], [Alarm::DoesNotFit { size: Bytes(s), .. }] if s == 2 * GIB));
    w.event(Event::SetReplica { replica: r(0), spec: spec(2) });
    w.hold(0, 0);
}

#[test]
fn a_measured_size_replaces_the_declared_one() {
    let mut w = world(Mode::Overcommit, 1, 3, 3);
    w.want(0, &[0], secs(30));
    let Effect::Load { op, .. } = w.open.remove(0) else { panic!("a load is open") };
    w.event(Event::LoadDone { op, result: Ok(Some(Bytes(3 * GIB - 1))) });
    w.settle(secs(1));
    assert_eq!(w.machine.held(r(0)), Bytes(3 * GIB - 1));
    w.want(1, &[0], secs(30));
    assert_eq!(hidden(&w), [0], "there is no room for a declared 1 GiB beside a measured 3");
    w.settle(secs(1));
    w.want(0, &[0], secs(30));
    assert!(w.alarms().iter().any(|a| matches!(a, Alarm::Thrash { .. })));
}

#[test]
fn more_than_the_memory_is_told_once() {
    let mut w = world(Mode::Overcommit, 1, 1, 3);
    w.poll(0, &[0, 1]);
    w.poll(0, &[0, 1]);
    assert!(matches!(w.alarms()[..], [Alarm::OverMemory { .. }]));
    w.poll(0, &[0]);
    w.poll(0, &[0, 1]);
    assert_eq!(w.alarms().len(), 2, "it fitted in between");
}

#[test]
fn wanted_versions_are_warmed_in_the_background_and_missing_ones_are_told() {
    let mut w = world(Mode::Guaranteed, 2, 4, 3);
    w.wanted(0, &[0, 1]);
    w.wanted(1, &[1, 2]);
    let missing = |w: &World| w.machine.report().replicas.iter().map(|r| r.missing.len()).collect::<Vec<_>>();
    assert_eq!(missing(&w), [2, 2]);
    assert_eq!(w.loading(), [(0, 0), (1, 1)], "one each: a load per replica");
    w.fail_load(0, false);
    let report = w.machine.report();
    let failed = report.replicas[0].missing.iter().find(|m| m.version == v(0)).expect("it is missing");
    assert_eq!((failed.failures, failed.why.as_str()), (1, "the artifact is corrupt"));
    w.advance(secs(1));
    w.settle(secs(1));
    assert_eq!(missing(&w), [0, 0]);
    assert!(w.machine.report().warm());
}

#[test]
fn what_nobody_serves_is_warmed_first() {
    let mut w = world(Mode::Guaranteed, 2, 4, 2);
    w.hold(1, 0);
    w.wanted(0, &[0, 1]);
    assert_eq!(w.loading(), [(0, 1)]);
}

/// A replica that has been restarted: the pin is served elsewhere, what is only retained is not.
#[test]
fn what_is_pinned_is_warmed_before_what_a_pin_goes_to_and_that_before_what_is_retained() {
    let mut w = world(Mode::Guaranteed, 2, 4, 4);
    w.hold(1, 2);
    w.hold(1, 3);
    w.wanted_by_turn(0, &[(0, Turn::Retained), (1, Turn::Coming(0)), (2, Turn::Pinned), (3, Turn::Pinned)]);
    w.settle(secs(1));
    let load = |e: &Effect| match e {
        Effect::Load { replica: ReplicaIx(0), version, .. } => Some(version.0),
        _ => None,
    };
    let order: Vec<u32> = w.log.iter().filter_map(load).collect();
    assert_eq!(order, [2, 3, 1, 0]);
    // A load that fails holds nobody up: while it is put off, it is the next one's turn.
    let mut w = world(Mode::Guaranteed, 1, 4, 2);
    w.wanted_by_turn(0, &[(0, Turn::Retained), (1, Turn::Pinned)]);
    assert_eq!(w.loading(), [(0, 1)]);
    w.fail_load(0, false);
    assert_eq!(w.loading(), [(0, 0)]);
}

#[test]
fn requests_go_before_warm_ups_but_do_not_starve_them() {
    let mut w = World::with(Settings { fleet_loads: 1, ..Settings::default() }, 1, 64, 40, Mode::Guaranteed);
    w.want(0, &[0], secs(300));
    w.wanted(0, &[30, 31]);
    for version in 1..20 {
        w.want(version, &[0], secs(300));
    }
    w.settle(secs(1));
    let order: Vec<u32> = w
        .log
        .iter()
        .filter_map(|e| if let Effect::Load { version, .. } = e { Some(version.0) } else { None })
        .collect();
    assert_eq!(order[..11], [0, 1, 2, 3, 30, 4, 5, 6, 7, 31, 8]);
    assert_eq!(order.len(), 22);
}

#[test]
fn a_warm_up_takes_the_place_of_what_is_not_wanted_only() {
    let mut w = world(Mode::Guaranteed, 2, 2, 4);
    w.version(0, true);
    w.hold(0, 0);
    w.hold(0, 1);
    w.hold(1, 0);
    w.hold(1, 3);
    w.wanted(0, &[0, 3, 2]);
    w.settle(secs(1));
    assert!(w.holds(0, 0) && w.holds(0, 2), "2 had no holder, so it took the room of 1");
    assert!(!w.holds(0, 3));
    let no_room = |a: &&Alarm| matches!(a, Alarm::WantedHasNoRoom { version: VersionIx(3), .. });
    assert_eq!(w.alarms().iter().filter(no_room).count(), 1, "{:?}", w.alarms());
}

#[test]
fn a_pin_without_any_holder_may_take_the_room_of_one_with_two() {
    let mut w = world(Mode::Guaranteed, 2, 1, 2);
    w.version(0, true);
    w.version(1, true);
    w.hold(0, 0);
    w.hold(1, 0);
    w.wanted(0, &[0, 1]);
    w.wanted(1, &[0]);
    w.settle(secs(1));
    assert!(w.holds(0, 1) && w.holds(1, 0), "each pin has a holder");
    w.advance(secs(600));
    assert_eq!(w.loads(), 3, "and so it stays");
}

#[test]
fn room_that_does_not_come_is_given_up() {
    let mut w = world(Mode::Overcommit, 1, 1, 2);
    w.hold(0, 0);
    let waiter = w.want(1, &[0], secs(45));
    w.busy(0, 0, 1);
    w.advance(secs(29));
    assert!(!w.holds(0, 0));
    w.advance(secs(1));
    assert!(w.holds(0, 0), "a request that never ends keeps its version, and the version serves again");
    w.advance(secs(15));
    assert_eq!(w.shed(waiter).map(|s| s.1), Some(Shed::Deadline));
}

#[test]
fn an_unload_that_fails_costs_nobody_the_version() {
    let mut w = world(Mode::Overcommit, 1, 1, 2);
    w.hold(0, 0);
    let waiter = w.want(1, &[0], secs(45));
    w.drain();
    let Effect::Unload { op, .. } = w.open.remove(0) else { panic!("an unload is open") };
    w.event(Event::UnloadDone { op, result: Err("busy".to_owned()) });
    w.settle(secs(1));
    assert!(w.holds(0, 0), "it is proven and shown again");
    assert!(w.shed(waiter).is_some());
}

#[test]
fn a_copy_that_is_kept_until_others_hold_it_is_neither_evicted_for_them_nor_relied_on() {
    // Version 0 is leaving replica 0 for replica 1, which is full of what is wanted there. Nothing asks for it, so its warm-up has to make room.
    let mut w = World::with(Settings::default(), 2, 1, 3, Mode::Overcommit);
    w.hold(0, 0);
    w.wanted(1, &[1]);
    w.settle(secs(1));
    w.kept(0, &[0]);
    // What is served elsewhere may not push it out.
    w.wanted(0, &[1]);
    w.advance(secs(200));
    assert!(w.holds(0, 0), "kept, although it is not wanted here any more");
    w.wanted(1, &[0, 1]);
    w.advance(secs(2));
    w.settle(secs(1));
    assert!(w.holds(1, 0), "the copy that leaves is none to rely on: {:#?}", w.machine.report());
    // Lost where it leaves, it is not loaded there again.
    w.wanted(0, &[]);
    w.poll(0, &[]);
    w.advance(secs(200));
    assert_eq!(w.loading(), []);
}

#[test]
fn what_a_server_holds_that_no_version_is_called_takes_room() {
    let mut w = World::with(Settings::default(), 1, 2, 2, Mode::Overcommit);
    let strange = Strange { loads: 0, size: Bytes(GIB) };
    w.event(Event::Observed { replica: r(0), started: w.now, held: vec![], loading: vec![], strange });
    w.hold(0, 0);
    assert_eq!(w.machine.held(r(0)), Bytes(2 * GIB));
    w.advance(secs(100));
    // Room for a second version has to be made of the first: the server has none beside.
    w.want(1, &[0], secs(100));
    assert_eq!(w.loading(), []);
    w.settle(secs(1));
    assert!(w.holds(0, 1) && !w.holds(0, 0));
}

/// Two changed pins of different roll-outs, each holding one replica's last room. What they have one place of, as an older control plane tells it, waits.
#[test]
fn of_two_that_come_the_one_with_the_lower_place_gets_all_its_rooms() {
    let come = |w: &mut World, replica, places: &[(u32, u32)]| {
        let turns: Vec<(u32, Turn)> = places.iter().map(|(version, place)| (*version, Turn::Coming(*place))).collect();
        w.wanted_by_turn(replica, &turns);
    };
    for (mode, places, both) in [
        (Mode::Guaranteed, [1, 2], true),
        (Mode::Overcommit, [1, 2], true),
        (Mode::Guaranteed, [0, 0], false),
        (Mode::Guaranteed, [0, 2], true),
    ] {
        let mut w = world(mode, 2, 1, 4);
        (0..3).for_each(|version| w.version(version, true));
        come(&mut w, 0, &[(1, places[0])]);
        come(&mut w, 1, &[(2, places[1])]);
        w.settle(secs(1));
        assert!(w.holds(0, 1) && w.holds(1, 2));
        for replica in 0..2 {
            come(&mut w, replica, &[(1, places[0]), (2, places[1])]);
        }
        w.advance(secs(1));
        w.settle(secs(1));
        w.advance(secs(100));
        w.settle(secs(1));
        let all = |version| w.holds(0, version) && w.holds(1, version);
        assert_eq!((all(1), w.holds(1, 2)), (both, !both), "{mode:?} {places:?}");
        assert!(!w.alarms().iter().any(|a| matches!(a, Alarm::Thrash { .. })), "it waits for its turn");
        if !both {
            continue;
        }
        let loads = w.loads();
        w.advance(secs(600));
        assert_eq!(w.loads(), loads, "and so it stays");
        // The first is where it was to go, and nothing pins it any more.
        w.version(1, false);
        (0..2).for_each(|replica| come(&mut w, replica, &[(2, 1)]));
        w.advance(secs(1));
        w.settle(secs(1));
        assert!(w.holds(0, 2) && w.holds(1, 2), "then the next one has its turn");
    }
}

/// It is served nowhere yet, which lets a warm-up take what others hold elsewhere, too; but not of what comes before it.
#[test]
fn what_comes_later_takes_no_room_of_what_comes_first() {
    let mut w = world(Mode::Guaranteed, 2, 1, 4);
    (0..3).for_each(|version| w.version(version, true));
    let turns = |places: [u32; 2]| [(1, Turn::Coming(places[0])), (2, Turn::Coming(places[1]))];
    (0..2).for_each(|replica| w.wanted_by_turn(replica, &turns([1, 2])[..1]));
    w.settle(secs(1));
    assert!(w.holds(0, 1) && w.holds(1, 1));
    (0..2).for_each(|replica| w.wanted_by_turn(replica, &turns([1, 2])));
    w.advance(secs(100));
    assert!(w.holds(0, 1) && w.holds(1, 1) && !w.holds(0, 2) && !w.holds(1, 2));
    // What is part of a flip gives its room to nobody, whatever comes.
    (0..2).for_each(|replica| w.wanted_by_turn(replica, &turns([0, 1])));
    w.advance(secs(100));
    assert!(w.holds(0, 1) && w.holds(1, 1) && !w.holds(0, 2) && !w.holds(1, 2));
}
