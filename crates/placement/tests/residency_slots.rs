//! Residency: what keeps a load slot, and what a wrong copy comes to.
#![allow(clippy::panic, reason = "a test fails loudly")]

mod common;

use common::*;
use holdfast_placement::residency::*;

fn world(replicas: u32, gib: u64, versions: u32) -> World {
    World::with(Settings::default(), replicas, gib, versions, Mode::Guaranteed)
}

#[test]
fn a_load_over_its_time_keeps_its_slot_until_the_server_answers() {
    let mut w = world(1, 4, 2);
    w.want(0, &[0], secs(1));
    w.advance(secs(300));
    let (again, other) = (w.want(0, &[0], secs(30)), w.want(1, &[0], secs(30)));
    w.advance(secs(1000));
    assert_eq!(w.loading(), [(0, 0)], "nobody knows what the server is doing");
    assert!(matches!(w.shed(again), Some((_, Shed::Backoff))));
    assert!(matches!(w.shed(other), Some((_, Shed::Deadline))));
    // A poll that does not show it proves nothing: servers list what is ready.
    w.poll(0, &[]);
    assert_eq!(w.loading(), [(0, 0)]);
    w.want(1, &[0], secs(30));
    w.fail_load(0, false);
    assert_eq!(w.loading(), [(0, 1)], "the slot is free, for what is waited for first");
}

#[test]
fn a_load_over_its_time_that_is_seen_to_have_ended_frees_its_slot() {
    let mut w = world(1, 4, 2);
    w.want(0, &[0], secs(1));
    w.advance(secs(300));
    w.want(1, &[0], secs(30));
    w.poll(0, &[0]);
    assert_eq!(w.loading(), [(0, 0), (0, 1)], "the first one's answer is still out, but it has ended");
    assert_eq!(w.machine.loads_in_flight(), 1);
    // Its answer comes after all, and changes nothing.
    w.finish(0);
    assert_eq!(w.machine.loads_in_flight(), 1);
    w.settle(secs(1));
    assert!(w.holds(0, 0) && w.holds(0, 1));
}

#[test]
fn servers_that_hang_do_not_keep_the_fleet_from_loading() {
    let mut w = World::with(Settings { fleet_loads: 1, ..Settings::default() }, 2, 4, 1, Mode::Guaranteed);
    w.want(0, &[0], secs(1));
    w.event(Event::ReplicaDown { replica: r(0) });
    w.want(0, &[1], secs(600));
    assert_eq!(w.loading(), [(0, 0)], "within its time it counts, down or not");
    w.advance(secs(300));
    assert_eq!(w.loading(), [(0, 0), (1, 0)]);
    // Back again, it counts again, and on its own server it never ceased to.
    w.event(Event::ReplicaUp { replica: r(0) });
    assert_eq!((w.machine.loads_in_flight(), w.machine.loads_on(r(0))), (2, 1));
}

#[test]
fn a_server_under_another_name_has_the_same_slots() {
    let mut w = world(1, 4, 2);
    w.want(0, &[0], secs(100));
    w.event(Event::RemoveReplica { replica: r(0) });
    w.event(Event::SetReplica { replica: r(7), spec: ReplicaSpec { server: ServerIx(0), ..spec(4) } });
    w.poll(7, &[]);
    w.want(1, &[7], secs(100));
    assert_eq!(w.loading(), [(0, 0)]);
    w.finish(0);
    assert_eq!(w.loading(), [(7, 1)]);
}

#[test]
fn a_wrong_answer_from_a_version_that_is_leaving_is_not_forgotten() {
    let mut w = world(1, 1, 2);
    w.hold(0, 0);
    w.busy(0, 0, 1);
    w.advance(secs(100));
    // Version 0 is wanted out of the way by a request for version 1, and answers wrongly on its way.
    w.busy(0, 0, 0);
    w.want(1, &[0], secs(10));
    assert!(!w.holds(0, 0));
    w.event(Event::Quarantine { replica: r(0), version: v(0), why: "wrong".to_owned() });
    let waiter = w.want(0, &[0], secs(5));
    assert!(!w.holds(0, 0), "it does not come back into service");
    w.advance(secs(5));
    assert!(!matches!(w.outcome(waiter), Some(Outcome::Ready(_))));
}

#[test]
fn what_has_no_known_answer_is_loaded_anew_to_end_its_quarantine() {
    let mut w = world(1, 4, 1);
    w.wanted(0, &[0]);
    w.settle(secs(1));
    assert!(w.holds(0, 0));
    let loads = w.loads();
    w.event(Event::Quarantine { replica: r(0), version: v(0), why: "wrong".to_owned() });
    w.event(Event::Renew { replica: r(0), version: v(0) });
    assert!(!w.holds(0, 0));
    w.settle(secs(1));
    assert_eq!((w.loads(), w.holds(0, 0)), (loads + 1, true));
    // An unload that fails ends nothing.
    w.event(Event::Quarantine { replica: r(0), version: v(0), why: "wrong".to_owned() });
    w.event(Event::Renew { replica: r(0), version: v(0) });
    w.drain();
    let Some(Effect::Unload { op, .. }) = w.open.pop() else { panic!("an unload") };
    w.event(Event::UnloadDone { op, result: Err("no".to_owned()) });
    w.settle(secs(1));
    assert!(!w.holds(0, 0));
}

#[test]
fn each_pool_has_its_own_time_for_a_load() {
    let mut w = world(2, 4, 1);
    w.event(Event::SetReplica { replica: r(1), spec: ReplicaSpec { load_timeout: Some(secs(10)), ..spec(4) } });
    w.want(0, &[0], secs(1));
    w.want(0, &[1], secs(1));
    w.advance(secs(10));
    let late: Vec<Alarm> = w.alarms();
    assert!(matches!(&late[..], [Alarm::LoadOverdue { replica: ReplicaIx(1), .. }]), "{late:?}");
}

#[test]
fn loads_that_only_the_index_tells_of_take_slots_until_it_does_not() {
    let mut w = World::with(Settings { fleet_loads: 2, ..Settings::default() }, 2, 4, 4, Mode::Guaranteed);
    // A former process asked for version 0; version 1 has to wait for its slot, and version 0 is waited for without a second load.
    w.index(0, &[], &[0], 0);
    let (first, second) = (w.want(0, &[0], secs(60)), w.want(1, &[0], secs(60)));
    w.advance(secs(5));
    assert_eq!((w.loading(), w.machine.loads_in_flight()), (vec![], 1));
    // A name that no version has takes the last slot of the fleet.
    w.index(1, &[], &[], 1);
    w.want(2, &[1], secs(60));
    assert_eq!((w.loading(), w.machine.loads_in_flight()), (vec![], 2));
    w.index(0, &[0], &[], 0);
    w.drain();
    assert_eq!(w.loading(), [(0, 1)], "the load has ended, and its slot is free");
    w.settle(secs(1));
    assert_eq!(w.outcome(first), Some(Outcome::Ready(r(0))));
    assert_eq!(w.outcome(second), Some(Outcome::Ready(r(0))));
    w.index(1, &[], &[], 0);
    assert_eq!(w.loading(), [(1, 2)]);
}

#[test]
fn a_load_that_is_refused_keeps_its_slot_until_the_index_shows_that_it_has_ended() {
    let mut w = world(1, 4, 2);
    w.want(0, &[0], secs(100));
    let started = w.now;
    let Effect::Load { op, .. } = w.open.remove(0) else { panic!("a load") };
    w.advance(secs(1));
    let waiting = w.want(1, &[0], secs(100));
    let text = "gateway time-out".to_owned();
    w.event(Event::LoadDone { op, result: Err(LoadError { text, permanent: false }) });
    assert_eq!((w.loading(), w.machine.loads_on(r(0))), (vec![], 1), "nobody knows yet what the server does");
    // A poll that began before the answer says nothing of what came after it.
    let (held, loading, strange) = (vec![], vec![], Strange::NONE);
    w.event(Event::Observed { replica: r(0), started, held, loading, strange });
    assert_eq!(w.machine.loads_on(r(0)), 1);
    w.index(0, &[], &[0], 0);
    w.advance(secs(20));
    assert_eq!((w.loading(), w.machine.loads_on(r(0))), (vec![], 1), "it goes on, and is not asked for a second time");
    w.index(0, &[0], &[], 0);
    assert_eq!(w.loading(), [(0, 1)]);
    w.settle(secs(1));
    assert!(w.holds(0, 0), "it was proved when it was there");
    assert_eq!(w.outcome(waiting), Some(Outcome::Ready(r(0))));
}

#[test]
fn a_refused_load_on_a_server_that_is_gone_holds_nobody_up() {
    let mut w = World::with(Settings { fleet_loads: 1, ..Settings::default() }, 2, 4, 1, Mode::Guaranteed);
    w.want(0, &[0], secs(100));
    let Effect::Load { op, .. } = w.open.remove(0) else { panic!("a load") };
    let text = "the connection broke".to_owned();
    w.event(Event::LoadDone { op, result: Err(LoadError { text, permanent: false }) });
    w.event(Event::ReplicaDown { replica: r(0) });
    w.want(0, &[1], secs(100));
    assert_eq!(w.loading(), [(1, 0)]);
    w.event(Event::RemoveReplica { replica: r(0) });
    assert_eq!(w.machine.loads_in_flight(), 1);
}

#[test]
fn a_load_over_its_time_that_the_server_listed_has_ended_when_it_lists_it_no_more() {
    let mut w = world(1, 4, 2);
    w.want(0, &[0], secs(1));
    w.advance(secs(10));
    w.index(0, &[], &[0], 0);
    w.index(0, &[], &[], 0);
    assert_eq!(w.machine.loads_on(r(0)), 1, "within its time its answer tells");
    w.advance(secs(300));
    w.want(1, &[0], secs(30));
    w.index(0, &[], &[0], 0);
    assert_eq!(w.loading(), [(0, 0)], "it is listed, so it goes on");
    w.index(0, &[], &[], 0);
    assert_eq!(w.loading(), [(0, 0), (0, 1)], "its answer is still out, but it has ended");
    assert_eq!(w.machine.loads_on(r(0)), 1);
}

#[test]
fn a_replica_that_has_not_been_looked_at_may_be_loading_as_much_as_it_may() {
    let mut w = World::with(Settings { fleet_loads: 1, ..Settings::default() }, 1, 4, 1, Mode::Guaranteed);
    for ix in [1, 2] {
        w.event(Event::SetReplica { replica: r(ix), spec: spec(4) });
    }
    let _ = w.want(0, &[0], secs(60));
    assert_eq!(w.loading(), [], "whoever was here before may have begun loads there");
    w.poll(1, &[]);
    assert_eq!(w.loading(), [], "and there");
    w.event(Event::ReplicaDown { replica: r(2) });
    assert_eq!(w.loading(), [(0, 0)], "what is down loads nothing");
}
