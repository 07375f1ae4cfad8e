//! What is foretold is what happens, and asking changes nothing.
#![allow(clippy::panic, reason = "a test fails loudly")]

mod common;

use common::*;
use holdfast_placement::residency::*;
use holdfast_types::Mono;

fn world(replicas: u32, gib: u64, versions: u32) -> World {
    World::with(Settings::default(), replicas, gib, versions, Mode::Guaranteed)
}

/// Foretells a request, then makes it, and says what was foretold.
fn foretold(w: &mut World, version: u32, candidates: &[u32], budget: u64) -> Forecast {
    let list: Vec<ReplicaIx> = candidates.iter().map(|ix| r(*ix)).collect();
    let before = format!("{:?}", w.machine);
    let forecast = w.machine.forecast(w.now, v(version), &list, secs(budget), &w.usage);
    assert_eq!(format!("{:?}", w.machine), before, "asking changes nothing");
    let loads = w.loading().len();
    let waiter = w.want(version, candidates, secs(budget));
    assert_eq!(w.outcome(waiter), forecast.answer);
    let begun = w.loading().get(loads).map(|(replica, _)| r(*replica));
    let making = |ix: &ReplicaIx| {
        w.machine.report().replicas.iter().any(|row| row.replica == *ix && row.making_room_for == Some(v(version)))
    };
    assert_eq!(begun.or_else(|| list.iter().copied().find(making)), forecast.begins);
    forecast
}

fn shed(secs_to_retry: u64, why: Shed) -> Option<Outcome> {
    Some(Outcome::Shed { retry_after: secs(secs_to_retry), why })
}

#[test]
fn a_load_is_foretold_with_its_place() {
    let mut w = world(2, 4, 2);
    w.busy(0, 1, 3);
    let forecast = foretold(&mut w, 0, &[0, 1], 30);
    assert_eq!((forecast.answer, forecast.begins), (None, Some(r(1))));
    let prospect = w.machine.prospect(w.now, r(1), v(0), &w.usage);
    assert_eq!((prospect.state, prospect.hindered), (Some(State::Loading), None));
    w.advance(secs(4));
    w.settle(secs(0));
    assert_eq!(foretold(&mut w, 0, &[0, 1], 30).answer, Some(Outcome::Ready(r(1))));
    let slow = foretold(&mut w, 1, &[0], 2);
    assert_eq!((slow.answer, slow.begins), (shed(4, Shed::Budget), Some(r(0))), "refused, and loaded all the same");
}

#[test]
fn room_that_would_be_made_is_foretold() {
    let mut w = world(1, 1, 2);
    w.hold(0, 0);
    w.advance(secs(100));
    let forecast = foretold(&mut w, 1, &[0], 30);
    assert_eq!((forecast.answer, forecast.begins), (None, Some(r(0))));
}

#[test]
fn refusals_are_foretold_with_their_reason() {
    let mut w = world(2, 1, 3);
    w.event(Event::ReplicaDown { replica: r(1) });
    assert_eq!(foretold(&mut w, 0, &[1], 30).answer, shed(1, Shed::NoReplica));
    let down = w.machine.prospect(w.now, r(1), v(0), &w.usage);
    assert_eq!((down.state, down.hindered), (None, Some(Shed::NoReplica)));

    w.version(1, true);
    w.hold(0, 1);
    assert_eq!(foretold(&mut w, 0, &[0], 30).answer, shed(1, Shed::NoRoom), "the last holder of a pinned version");
    assert_eq!(w.machine.prospect(w.now, r(0), v(0), &w.usage).hindered, Some(Shed::NoRoom));

    w.event(Event::Quarantine { replica: r(0), version: v(1), why: "answered as version 7".to_owned() });
    assert_eq!(foretold(&mut w, 1, &[0], 30).answer, shed(1, Shed::Quarantined));
    let wrong = w.machine.prospect(w.now, r(0), v(1), &w.usage);
    assert_eq!((wrong.state, wrong.why.as_str()), (Some(State::Quarantined), "answered as version 7"));
}

#[test]
fn a_back_off_is_foretold_with_its_end() {
    let mut w = world(1, 4, 1);
    let waiter = w.want(0, &[0], secs(60));
    for wait in [1, 2, 0] {
        w.fail_load(0, false);
        let early = w.machine.prospect(w.now, r(0), v(0), &w.usage);
        assert_eq!(early.hindered, Some(Shed::Backoff));
        w.advance(secs(wait));
    }
    assert_eq!(w.shed(waiter), Some((secs(4), Shed::Backoff)));
    w.advance(secs(1));
    let forecast = foretold(&mut w, 0, &[0], 30);
    assert_eq!((forecast.answer, forecast.begins, forecast.eta), (shed(3, Shed::Backoff), None, None));
    let prospect = w.machine.prospect(w.now, r(0), v(0), &w.usage);
    assert_eq!((prospect.failures, prospect.retry), (3, Some(secs(3))));
    assert_eq!(prospect.why, "the artifact is corrupt");
}

#[test]
fn time_that_has_passed_counts_without_a_tick() {
    let mut w = world(1, 4, 1);
    w.want(0, &[0], secs(60));
    w.fail_load(0, true);
    let later = Mono(w.now.0 + 61_000_000_000);
    let forecast = w.machine.forecast(later, v(0), &[r(0)], secs(30), &w.usage);
    assert_eq!((forecast.answer, forecast.begins), (None, Some(r(0))), "the back-off is over by then");
}

#[test]
fn what_is_asked_for_anew_is_tried_at_once_and_its_failures_count_from_there() {
    let mut w = world(1, 4, 1);
    w.wanted(0, &[0]);
    for wait in [1, 2, 4] {
        w.fail_load(0, false);
        w.advance(secs(wait));
    }
    w.fail_load(0, true);
    assert_eq!(w.machine.report().replicas[0].missing[0].failures, 4);
    w.event(Event::Afresh { replica: r(0), version: v(0) });
    assert_eq!(w.loading(), [(0, 0)], "no back-off is waited for");
    w.fail_load(0, false);
    assert_eq!(w.machine.report().replicas[0].missing[0].failures, 1);
    w.advance(secs(1));
    assert_eq!(w.loading(), [(0, 0)], "the back-off begins anew, too");
    // A load that runs goes on.
    w.event(Event::Afresh { replica: r(0), version: v(0) });
    assert_eq!(w.loading(), [(0, 0)]);
    w.settle(secs(1));
    assert!(w.holds(0, 0));
}
