//! Residency: what happens to requests that find no holder.

mod common;

use common::*;
use holdfast_placement::residency::*;
use holdfast_types::{Bytes, Mono};

fn world(replicas: u32, gib: u64, versions: u32) -> World {
    World::with(Settings::default(), replicas, gib, versions, Mode::Guaranteed)
}

#[test]
fn a_thousand_waiters_cost_one_load_and_all_are_woken_by_the_proof() {
    let mut w = world(2, 4, 1);
    let waiters: Vec<_> = (0..1000).map(|_| w.want(0, &[1, 0], secs(30))).collect();
    assert_eq!(w.loading(), [(1, 0)], "the first candidate among equals");
    w.finish(0);
    assert!(waiters.iter().all(|id| w.outcome(*id).is_none()), "loaded is not proven");
    assert!(!w.holds(1, 0));
    w.finish(0);
    assert!(waiters.iter().all(|id| w.outcome(*id) == Some(Outcome::Ready(r(1)))));
    assert!(w.holds(1, 0) && !w.holds(0, 0));
    assert_eq!(w.want(0, &[0, 1], secs(1)), WaiterId(1000));
    assert_eq!(w.outcome(WaiterId(1000)), Some(Outcome::Ready(r(1))), "a holder answers at once");
}

#[test]
fn the_least_loaded_candidate_loads() {
    let mut w = world(3, 4, 2);
    w.busy(0, 1, 5);
    w.busy(1, 1, 2);
    w.busy(2, 1, 3);
    w.want(0, &[0, 1, 2], secs(30));
    assert_eq!(w.loading(), [(1, 0)]);
}

#[test]
fn never_outside_the_candidates() {
    let mut w = world(3, 4, 3);
    for version in 0..3 {
        w.want(version, &[1], secs(30));
    }
    assert_eq!(w.loading(), [(1, 0)]);
    w.settle(secs(1));
    assert!((0..3).all(|version| w.holds(1, version)));
}

#[test]
fn loads_keep_to_the_bounds_of_replica_and_fleet() {
    let mut w = World::with(Settings { fleet_loads: 2, ..Settings::default() }, 3, 8, 6, Mode::Guaranteed);
    for version in 0..6 {
        w.want(version, &[version % 3], secs(60));
    }
    assert_eq!(w.loading(), [(0, 0), (1, 1)], "the third replica has a free slot, the fleet has none");
    w.settle(secs(1));
    assert_eq!(w.loads(), 6);
}

#[test]
fn a_cancelled_first_waiter_takes_nothing_from_the_rest() {
    let mut w = world(1, 4, 2);
    let (first, second) = (w.want(0, &[0], secs(30)), w.want(0, &[0], secs(30)));
    let queued = w.want(1, &[0], secs(30));
    w.event(Event::Cancel { waiter: first });
    w.event(Event::Cancel { waiter: queued });
    w.settle(secs(1));
    assert_eq!(w.outcome(second), Some(Outcome::Ready(r(0))));
    assert_eq!(w.outcome(first), None);
    assert_eq!(w.loads(), 1, "what nobody waits for any more and has not begun is not begun");
}

#[test]
fn an_unknown_load_time_is_optimistic_and_a_known_one_sheds_at_once() {
    let mut w = world(2, 8, 3);
    let patient = w.want(0, &[0], secs(1));
    assert_eq!(w.outcome(patient), None, "nothing is known: it waits as long as it may");
    w.advance(secs(1));
    assert_eq!(w.shed(patient), Some((secs(1), Shed::Deadline)));
    w.advance(secs(7));
    w.settle(secs(0));
    let hasty = w.want(1, &[1], secs(2));
    assert_eq!(w.shed(hasty), Some((secs(8), Shed::Budget)), "the pool's mean is 8 s");
    assert_eq!(w.loading(), [(1, 1)], "the load goes on for the next attempt");
    w.advance(secs(6));
    let back = w.want(1, &[1], secs(3));
    assert_eq!(w.outcome(back), None, "2 s remain");
    w.advance(secs(2));
    w.settle(secs(0));
    assert_eq!(w.outcome(back), Some(Outcome::Ready(r(1))));
}

#[test]
fn a_load_longer_than_every_budget_still_gets_its_turn() {
    let mut w = world(1, 8, 3);
    w.want(0, &[0], secs(60));
    w.advance(secs(8));
    w.settle(secs(0));
    w.want(1, &[0], secs(60));
    let hasty = w.want(2, &[0], secs(2));
    assert_eq!(w.shed(hasty), Some((secs(16), Shed::Budget)), "one load is before it, and its own");
    w.settle(secs(8));
    assert!(w.holds(0, 2), "nobody waits, but the next attempt finds it");
    let forgotten = w.want(2, &[0], secs(2));
    assert_eq!(w.outcome(forgotten), Some(Outcome::Ready(r(0))));
}

#[test]
fn a_second_load_starts_only_if_the_first_comes_too_late_and_another_can_make_it() {
    let mut w = world(2, 8, 4);
    w.want(0, &[0], secs(60));
    w.advance(secs(4));
    w.settle(secs(0));
    // Version 1 is queued on replica 0 behind a load of 4 s; replica 1 is free, but no candidate of the first request.
    w.want(2, &[0], secs(60));
    w.want(1, &[0], secs(60));
    let joins = w.want(1, &[0, 1], secs(60));
    assert_eq!(w.loading(), [(0, 2), (1, 1)], "another list of candidates may use the free replica");
    let waits = w.want(1, &[1, 0], secs(10));
    assert_eq!(w.loading().len(), 2, "4 s are within the budget: it joins");
    let shed = w.want(1, &[1, 0], secs(3));
    assert_eq!(w.shed(shed), Some((secs(4), Shed::Budget)));
    w.settle(secs(4));
    for waiter in [joins, waits] {
        assert!(matches!(w.outcome(waiter), Some(Outcome::Ready(_))));
    }
}

#[test]
fn a_replica_that_dies_while_loading_frees_its_waiters() {
    let mut w = world(2, 4, 1);
    let both = w.want(0, &[0, 1], secs(30));
    let one = w.want(0, &[0], secs(30));
    assert_eq!(w.loading(), [(0, 0)]);
    w.event(Event::ReplicaDown { replica: r(0) });
    assert_eq!(w.loading(), [(0, 0), (1, 0)], "the load elsewhere is counted until its end");
    assert_eq!(w.shed(one), Some((secs(1), Shed::NoReplica)));
    w.finish(1);
    w.finish(1);
    assert_eq!(w.outcome(both), Some(Outcome::Ready(r(1))));
    // The replica is back and has finished after all: it is proven before it serves.
    w.event(Event::ReplicaUp { replica: r(0) });
    w.finish(0);
    assert!(w.open.is_empty() && !w.holds(0, 0), "not before it has been observed");
    w.poll(0, &[0]);
    w.settle(secs(0));
    assert!(w.holds(0, 0));
}

#[test]
fn a_load_that_hangs_ends_at_its_deadline_for_who_waits() {
    let mut w = world(2, 4, 1);
    let waiter = w.want(0, &[0, 1], secs(400));
    w.advance(secs(300));
    assert_eq!(w.loading(), [(0, 0), (1, 0)], "the next candidate, beside the one that hangs");
    assert_eq!(w.outcome(waiter), None);
    assert!(w.alarms().iter().any(|a| matches!(a, Alarm::LoadOverdue { after, .. } if *after == secs(300))));
    w.finish(1);
    w.finish(1);
    assert_eq!(w.outcome(waiter), Some(Outcome::Ready(r(1))));
}

#[test]
fn failed_loads_go_to_the_next_candidate_and_back_off_exponentially() {
    let mut w = world(1, 4, 1);
    let waiter = w.want(0, &[0], secs(60));
    let mut waits = Vec::new();
    for failures in 1..=5 {
        w.fail_load(0, false);
        let failed = w.now;
        assert_eq!(w.outcome(waiter).is_some(), failures >= 3, "it waits for two attempts more, and no longer");
        while w.loading().is_empty() {
            w.now = w.machine.next_deadline().expect("the back-off ends");
            w.event(Event::Tick);
        }
        waits.push(w.now.since(failed).as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16]);
    let failing = |a: &&Alarm| matches!(a, Alarm::LoadFailing { failures: 3, .. });
    assert_eq!(w.alarms().iter().filter(failing).count(), 1);
    assert_eq!(w.shed(waiter), Some((secs(4), Shed::Backoff)));
    w.settle(secs(1));
    assert!(w.holds(0, 0), "the attempts go on without it");
}

/// One replica on which loads of version 0 have failed this many times in a row; nobody waits.
fn failing(w: &mut World, replica: u32, times: u32) {
    let waiter = w.want(0, &[replica], secs(300));
    for attempt in 1..=times {
        w.fail_load(replica, false);
        if attempt < times {
            w.advance(secs(1 << (attempt - 1)));
        }
    }
    w.event(Event::Cancel { waiter });
}

#[test]
fn a_load_that_keeps_failing_is_not_waited_for_until_its_next_attempt() {
    for (failures, kept) in [(1, true), (2, true), (3, false), (4, false)] {
        let mut w = world(1, 4, 1);
        failing(&mut w, 0, failures);
        let waiter = w.want(0, &[0], secs(30));
        let shed = (!kept).then_some((secs(1 << (failures - 1)), Shed::Backoff));
        assert_eq!(w.shed(waiter), shed, "after {failures} failures");
    }
    let mut w = world(1, 4, 1);
    failing(&mut w, 0, 3);
    w.advance(secs(3));
    let early = w.want(0, &[0], secs(30));
    assert_eq!(w.shed(early), Some((secs(1), Shed::Backoff)), "what remains of 4 s");
    w.advance(secs(1));
    assert_eq!(w.loading(), [(0, 0)], "the attempt that it was told of");
    let waits = w.want(0, &[0], secs(30));
    assert_eq!(w.outcome(waits), None, "an attempt runs");
    w.fail_load(0, false);
    assert_eq!(w.shed(waits), Some((secs(8), Shed::Backoff)), "and has failed");
    w.advance(secs(8));
    w.settle(secs(1));
    let served = w.want(0, &[0], secs(30));
    assert_eq!(w.outcome(served), Some(Outcome::Ready(r(0))));
}

#[test]
fn one_candidate_that_may_still_load_is_enough_to_wait() {
    let mut w = world(2, 4, 2);
    failing(&mut w, 0, 3);
    w.want(1, &[1], secs(60));
    let queued = w.want(0, &[0, 1], secs(30));
    assert_eq!(w.outcome(queued), None, "the other candidate has no free slot yet");
    w.finish(0);
    assert_eq!(w.loading(), [(1, 0)]);
    w.fail_load(1, false);
    assert_eq!(w.outcome(queued), None, "it has failed there once only");
    w.event(Event::ReplicaDown { replica: r(1) });
    assert_eq!(w.shed(queued), Some((secs(4), Shed::Backoff)), "nobody is left who might load it now");
}

#[test]
fn of_several_that_fail_the_next_attempt_counts() {
    let mut w = world(2, 4, 1);
    failing(&mut w, 0, 4);
    failing(&mut w, 1, 3);
    let waiter = w.want(0, &[0, 1], secs(30));
    assert_eq!(w.shed(waiter), Some((secs(4), Shed::Backoff)));
}

#[test]
fn a_permanent_failure_everywhere_fails_the_waiters_and_says_why() {
    let mut w = world(2, 4, 1);
    let waiter = w.want(0, &[0, 1], secs(60));
    w.fail_load(0, true);
    assert_eq!((w.outcome(waiter), w.loading()), (None, vec![(1, 0)]), "the other candidate is tried");
    w.fail_load(1, true);
    assert_eq!(w.outcome(waiter), Some(Outcome::Failed { why: "the artifact is corrupt".to_owned() }));
    let next = w.want(0, &[0, 1], secs(60));
    assert!(matches!(w.outcome(next), Some(Outcome::Failed { .. })), "no load storm for a missing artifact");
    assert_eq!(w.loads(), 2);
}

#[test]
fn static_servers_shed_at_once() {
    let mut w = world(0, 0, 2);
    w.event(Event::SetReplica { replica: r(0), spec: ReplicaSpec { loads: false, ..spec(4) } });
    let early = w.want(0, &[0], secs(30));
    assert_eq!(w.outcome(early), None, "it has not been asked yet what it holds");
    w.poll(0, &[1]);
    assert_eq!(w.shed(early), Some((secs(1), Shed::Static)));
    w.settle(secs(0));
    assert!(w.holds(0, 1));
    assert_eq!(w.loads(), 0);
}

#[test]
fn a_wrong_version_is_quarantined_and_never_served() {
    let mut w = world(2, 4, 1);
    let waiter = w.want(0, &[0, 1], secs(60));
    w.finish(0);
    let Effect::Verify { op, .. } = w.open.remove(0) else { panic!("a proof is asked for") };
    w.event(Event::Verified { op, proof: Proof::Wrong("digest differs".to_owned()) });
    assert!(matches!(w.alarms()[..], [Alarm::VerificationFailed { replica: ReplicaIx(0), .. }]));
    assert_eq!(w.loading(), [(1, 0)], "the next candidate loads");
    w.settle(secs(1));
    assert_eq!(w.outcome(waiter), Some(Outcome::Ready(r(1))));
    w.event(Event::Quarantine { replica: r(1), version: v(0), why: "answered as version 7".to_owned() });
    assert!(!w.holds(1, 0));
    let none = w.want(0, &[0, 1], secs(60));
    assert_eq!(w.shed(none), Some((secs(1), Shed::Quarantined)));
    w.event(Event::Released { replica: r(1), version: v(0) });
    assert!(w.holds(1, 0));
}

#[test]
fn a_proof_that_cannot_be_made_is_asked_for_again() {
    let mut w = world(1, 4, 1);
    let waiter = w.want(0, &[0], secs(60));
    w.finish(0);
    for _ in 0..3 {
        let Some(Effect::Verify { op, .. }) = w.open.pop() else { panic!("a proof is asked for") };
        w.event(Event::Verified { op, proof: Proof::Unknown("connection refused".to_owned()) });
        assert!(w.open.is_empty());
        w.advance(secs(4));
    }
    w.settle(secs(0));
    assert_eq!(w.outcome(waiter), Some(Outcome::Ready(r(0))));
}

#[test]
fn polls_that_are_older_than_a_change_do_not_undo_it() {
    let mut w = world(1, 1, 2);
    let started = w.now;
    w.advance(secs(1));
    w.hold(0, 0);
    w.event(Event::Observed { replica: r(0), started, held: vec![], loading: vec![], strange: Strange::NONE });
    assert!(w.holds(0, 0), "the poll began before the load was done");
    w.poll(0, &[]);
    assert!(!w.holds(0, 0), "the server has restarted");
    w.poll(0, &[0]);
    w.settle(secs(0));
    w.advance(secs(100));
    let started = w.now;
    w.advance(secs(1));
    w.hold(0, 1);
    w.event(Event::Observed {
        replica: r(0),
        started,
        held: vec![v(0), v(1)],
        loading: vec![],
        strange: Strange::NONE,
    });
    assert!(w.open.is_empty() && w.holds(0, 1), "version 0 was unloaded after the poll began");
}

/// Versions 0 and 1 fill the replica, and version 0 hides so that version 2, which is wanted, can be loaded.
fn making_room() -> World {
    let mut w = world(1, 2, 3);
    w.hold(0, 0);
    w.advance(secs(1));
    w.hold(0, 1);
    w.wanted(0, &[2]);
    assert!(!w.holds(0, 0) && w.holds(0, 1));
    w
}

#[test]
fn what_arrives_by_itself_while_room_is_made_for_it_is_not_loaded_again() {
    let mut w = making_room();
    w.drain();
    assert!(matches!(w.open[..], [Effect::Unload { version: VersionIx(0), .. }]));
    // Somebody else had the server load version 2: it is proven and shown before version 0 is gone.
    w.poll(0, &[0, 1, 2]);
    w.finish(1);
    assert!(w.holds(0, 2));
    w.settle(secs(1));
    assert_eq!(w.loads(), 2, "a second load would forget that version 2 is shown, and could unload it unhidden");
    assert!(w.holds(0, 1) && w.holds(0, 2), "nor does it need room a second time");
}

#[test]
fn what_hides_for_a_version_that_arrives_by_itself_goes_back_into_service() {
    let mut w = making_room();
    w.poll(0, &[0, 1, 2]);
    assert!(w.holds(0, 0) && w.holds(0, 1), "nothing is to be loaded, so nothing needs to leave");
    w.settle(secs(1));
    assert!((0..3).all(|version| w.holds(0, version)));
    assert_eq!(w.loads(), 2);
}

#[test]
fn what_cannot_be_observed_does_not_serve() {
    let mut w = world(1, 4, 1);
    w.hold(0, 0);
    w.event(Event::ObservationLost { replica: r(0) });
    assert!(!w.holds(0, 0));
    let waiter = w.want(0, &[0], secs(5));
    assert_eq!(w.outcome(waiter), None);
    w.poll(0, &[0]);
    w.settle(secs(0));
    assert_eq!(w.outcome(waiter), Some(Outcome::Ready(r(0))));
    assert_eq!(w.loads(), 1, "it was still there");
}

#[test]
fn replicas_and_versions_leave_cleanly() {
    let mut w = world(2, 4, 2);
    w.hold(0, 0);
    let moved = w.want(1, &[0, 1], secs(30));
    w.event(Event::RemoveReplica { replica: r(0) });
    assert!(!w.holds(0, 0));
    assert_eq!(w.loading().last(), Some(&(1, 1)));
    w.settle(secs(1));
    assert_eq!(w.outcome(moved), Some(Outcome::Ready(r(1))));
    let gone = w.want(0, &[1], secs(30));
    w.busy(1, 1, 1);
    w.event(Event::RemoveVersion { version: v(0) });
    w.event(Event::RemoveVersion { version: v(1) });
    assert!(matches!(w.outcome(gone), Some(Outcome::Failed { .. })));
    assert!(!w.holds(1, 1), "hidden at once");
    w.drain();
    assert!(!w.open.iter().any(|e| matches!(e, Effect::Unload { .. })), "unloaded only when nothing is in use");
    w.busy(1, 1, 0);
    w.settle(secs(1));
    assert_eq!(w.machine.held(r(1)), Bytes(0));
    assert!(w.machine.report().replicas.iter().all(|r| r.holdings.is_empty()));
}

#[test]
fn a_version_that_returns_before_it_was_gone_stays() {
    let mut w = world(1, 4, 1);
    w.hold(0, 0);
    w.event(Event::RemoveVersion { version: v(0) });
    w.version(0, true);
    assert!(w.holds(0, 0));
    w.settle(secs(1));
    assert_eq!(w.loads(), 1);
}

#[test]
fn a_server_that_calls_ready_what_it_does_not_serve_is_believed_less_and_less() {
    let mut w = world(1, 4, 1);
    let believed = |w: &mut World| {
        w.poll(0, &[0]);
        w.settle(secs(0));
        w.holds(0, 0)
    };
    assert!(believed(&mut w));
    w.event(Event::Missing { replica: r(0), version: v(0) });
    assert!(believed(&mut w), "once is a server that was told to unload and to load");
    let mut waits = Vec::new();
    for _ in 0..4 {
        w.event(Event::Missing { replica: r(0), version: v(0) });
        let begun = w.now;
        while !believed(&mut w) {
            w.advance(secs(1));
        }
        waits.push(w.now.since(begun));
    }
    assert_eq!(waits, [1, 2, 4, 8].map(secs));
    assert_eq!(w.loads(), 0);
    w.advance(secs(300));
    w.event(Event::Missing { replica: r(0), version: v(0) });
    assert!(believed(&mut w), "what is long past does not count");
}

#[test]
fn too_many_waiters_are_shed() {
    let mut w = World::with(Settings { max_waiters: 2, ..Settings::default() }, 1, 4, 3, Mode::Guaranteed);
    let waiters = [0, 1, 2].map(|version| w.want(version, &[0], secs(30)));
    assert_eq!(waiters.map(|id| w.shed(id).map(|s| s.1)), [None, None, Some(Shed::TooManyWaiters)]);
}

#[test]
fn a_request_that_will_not_wait_is_answered_at_once_and_begins_the_load() {
    let mut w = world(1, 4, 1);
    let hasty = w.want(0, &[0], secs(0));
    assert_eq!(w.shed(hasty).map(|s| s.1), Some(Shed::Deadline));
    assert_eq!(w.machine.waiting(), 0);
    w.settle(secs(1));
    assert!(w.holds(0, 0), "the next one is served");
}

#[test]
fn texts_are_cut_at_a_character() {
    let mut w = world(1, 4, 1);
    w.want(0, &[0], secs(30));
    let Effect::Load { op, .. } = w.open.remove(0) else { panic!("a load is open") };
    let text = "\u{e9}".repeat(1000);
    w.event(Event::LoadDone { op, result: Err(LoadError { text, permanent: true }) });
    let [Alarm::LoadFailing { why, .. }] = &w.alarms()[..] else { panic!("{:?}", w.alarms()) };
    assert_eq!(why.len(), MAX_TEXT);
}

#[test]
fn time_never_goes_back() {
    let mut w = world(1, 4, 1);
    w.want(0, &[0], secs(30));
    w.now = Mono(0);
    w.event(Event::Tick);
    assert!(w.machine.next_deadline() > Some(Mono(0)));
}
