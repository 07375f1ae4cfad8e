//! Each phase on its way, and what ends it.

use holdfast_decide::rollout::*;
use holdfast_types::Revision;

use crate::desk::Desk;
use crate::world::*;

fn failed(words: &str, permanent: bool) -> Report {
    Report::Failed { words: words.to_owned(), permanent }
}

#[test]
fn a_pin_goes_its_whole_way() {
    let mut desk = Desk::new(one_pin(Options::default()));
    assert_eq!(desk.phase(), Phase::Planned);
    desk.start();
    assert_eq!(desk.warmed(), [(r(2), "2".to_owned()), (r(3), "2".to_owned())], "the subset of the new key, no more");
    assert_eq!(desk.phase(), Phase::PreWarm);
    desk.report(2, "2", Report::Loaded);
    desk.report(3, "2", Report::Loaded);
    assert_eq!(desk.phase(), Phase::Verify);
    let verifies = desk.take().into_iter().filter(|e| matches!(e, Effect::Verify { .. })).count();
    assert_eq!(verifies, 2);
    desk.proven(&[2, 3], "2");
    assert_eq!(desk.phase(), Phase::Prepare);
    desk.answer_read();
    desk.prepare();
    assert_eq!(desk.phase(), Phase::Activate);
    desk.activate();
    assert_eq!((desk.phase(), desk.machine.progress().pins[0].share), (Phase::Drain, 100));
    desk.follow();
    assert_eq!(desk.phase(), Phase::Retain);
    desk.take();
    desk.wait(Options::default().retain);
    assert_eq!(desk.phase(), Phase::Collect);
    assert_eq!(desk.released(), [(r(0), "1".to_owned()), (r(1), "1".to_owned())]);
    desk.event(Event::Claims(Claims::default()));
    assert!(desk.take().iter().any(|e| matches!(e, Effect::Collect { artifact: a, .. } if *a == artifact("1"))));
    desk.event(Event::Collected { artifact: artifact("1") });
    assert_eq!(desk.phase(), Phase::Done);
    assert!(desk.machine.is_over());
}

/// Nothing that acts on the world comes out before the record is stored.
#[test]
fn nothing_is_done_before_it_is_written_down() {
    let mut desk = Desk::new(one_pin(Options::default()));
    desk.saves = false;
    desk.event(Event::Tick);
    let out = desk.take();
    assert!(matches!(out[..], [Effect::Save { expected: 0, .. }]), "{out:?}");
    desk.event(Event::Gateways { roster: 2, all: desk.views.clone() });
    assert_eq!(desk.take(), []);
    desk.event(Event::Saved { version: 1 });
    // Where it wants versions held is written down with the first save.
    assert_eq!(desk.warmed().len(), 2);
    desk.proven(&[2, 3], "2");
    let out = desk.take();
    let saves = out.iter().filter(|e| matches!(e, Effect::Save { expected: 1, .. })).count();
    assert_eq!((saves, out.iter().any(|e| matches!(e, Effect::ReadTable { .. }))), (1, false));
    desk.event(Event::SaveFailed { version: 2 });
    assert_eq!(desk.take(), [], "not at once again");
    desk.wait(Options::default().retry);
    assert!(matches!(desk.take()[..], [Effect::Save { expected: 1, .. }]));
    desk.event(Event::Saved { version: 2 });
    assert!(matches!(desk.take()[..], [Effect::ReadTable { .. }]));
}

#[test]
fn a_version_that_cannot_be_had_fails_the_pin_with_the_servers_words() {
    let rows: [(Vec<Report>, Stage, &str); 6] = [
        (vec![failed("no such file: model.bin", true)], Stage::Failed, "r2: no such file: model.bin"),
        (vec![Report::Wrong { words: "digest is ab, not cd".to_owned() }], Stage::Failed, "r2: digest is ab, not cd"),
        (vec![failed("out of memory", false)], Stage::Warming, ""),
        (vec![failed("out of memory", false), failed("out of memory", false)], Stage::Warming, ""),
        (vec![failed("a", false), failed("b", false), failed("c", false)], Stage::Failed, "r2: c"),
        (vec![failed("a", false), failed("b", false), Report::Proven, failed("c", false)], Stage::Warming, ""),
    ];
    for (reports, stage, words) in rows {
        let mut desk = Desk::started(one_pin(Options::default()));
        reports.iter().for_each(|report| desk.report(2, "2", report.clone()));
        assert_eq!((desk.stage(), desk.words().as_str()), (stage, words), "{reports:?}");
        if stage == Stage::Failed {
            let released: Vec<_> = desk.released().into_iter().map(|(r, _)| r).collect();
            assert_eq!(released, [r(2), r(3)]);
            desk.proven(&[2, 3], "2");
            assert_eq!(desk.stage(), Stage::Failed, "what failed never flips");
        }
    }
}

#[test]
fn a_failed_load_is_asked_again_after_a_while() {
    let mut desk = Desk::started(one_pin(Options::default()));
    desk.take();
    desk.report(2, "2", failed("out of memory", false));
    assert_eq!(desk.warmed(), []);
    desk.wait(Options::default().retry);
    assert_eq!(desk.warmed(), [(r(2), "2".to_owned())]);
}

#[test]
fn words_are_cut_at_a_letter() {
    let mut desk = Desk::started(one_pin(Options::default()));
    desk.report(2, "2", failed(&"\u{e9}".repeat(2_000), true));
    let words = desk.words();
    assert!(words.len() <= MAX_WORDS && words.ends_with('\u{e9}'), "{}", words.len());
}

#[test]
fn loads_that_are_never_answered_end_with_the_time() {
    let options = Options { tries: 1, ..Options::default() };
    let mut desk = Desk::started(one_pin(options.clone()));
    desk.wait(options.load - secs(1));
    assert_eq!(desk.stage(), Stage::Warming);
    desk.wait(secs(1));
    assert_eq!((desk.stage(), desk.words().as_str()), (Stage::Failed, "r2: no answer to the load within 360s"));
}

#[test]
fn a_pin_that_is_not_ready_in_time_fails_and_says_who_was_missing() {
    let options = Options { tries: 99, ..Options::default() };
    let mut desk = Desk::started(one_pin(options.clone()));
    desk.proven(&[2], "2");
    desk.wait(options.warm - secs(1));
    assert_eq!(desk.stage(), Stage::Warming);
    desk.wait(secs(1));
    assert_eq!(desk.stage(), Stage::Failed);
    assert!(desk.words().starts_with("not ready in time: waited for r3"), "{}", desk.words());
}

#[test]
fn a_lost_replica_is_replaced_by_the_next_candidate_and_stands_back_when_it_returns() {
    let mut desk = Desk::started(one_pin(Options::default()));
    desk.proven(&[2], "2");
    desk.take();
    desk.report(2, "2", Report::Lost);
    assert_eq!(desk.warmed(), [(r(1), "2".to_owned())]);
    assert_eq!(desk.released(), [(r(2), "2".to_owned())]);
    desk.take();
    // The key hashes to it again, as in the table.
    desk.report(2, "2", Report::Absent);
    assert_eq!(desk.warmed(), [(r(2), "2".to_owned())]);
    assert_eq!(desk.released(), [(r(1), "2".to_owned())]);
    desk.proven(&[3, 1], "2");
    assert_eq!(desk.stage(), Stage::Warming, "r1 does not count any more");
    desk.proven(&[2], "2");
    assert_eq!(desk.stage(), Stage::Flipping);
}

#[test]
fn without_any_candidate_in_service_nothing_flips() {
    let mut desk = Desk::started(one_pin(Options::default()));
    (0..4).for_each(|ix| desk.report(ix, "2", Report::Lost));
    assert_eq!(desk.stage(), Stage::Warming);
    assert_eq!(desk.machine.progress().pins[0].waiting_for, [Waiting::AnyReplica { artifact: artifact("2") }]);
    desk.wait(Options::default().warm);
    assert_eq!(desk.words(), "not ready in time: waited for any replica in service");
}

#[test]
fn a_replica_lost_while_gateways_prepare_takes_the_flip_back() {
    let mut desk = Desk::started(one_pin(Options::default()));
    desk.proven(&[2, 3], "2");
    desk.answer_read();
    desk.report(3, "2", Report::Lost);
    assert_eq!(desk.stage(), Stage::Warming);
    assert!(desk.out.iter().any(|e| matches!(e, Effect::Forget { proposal: Proposal { step: 1, .. } })));
    desk.prepare();
    assert!(!desk.asked_to_activate());
    desk.proven(&[1], "2");
    desk.flip();
    assert_eq!((desk.stage(), desk.applied), (Stage::Draining, Some((2, Revision(11)))));
}

#[test]
fn a_replica_lost_while_the_old_version_drains_is_replaced_on_both_sides() {
    let mut desk = Desk::flipped(one_pin(Options::default()));
    desk.report(0, "1", Report::Lost);
    assert_eq!(desk.warmed(), [(r(2), "1".to_owned())], "the way back");
    desk.take();
    desk.report(3, "2", Report::Lost);
    assert_eq!(desk.warmed(), [(r(1), "2".to_owned())], "the version in force");
    assert_eq!(desk.stage(), Stage::Draining);
}

#[test]
fn loads_are_asked_for_within_their_bounds() {
    // Both pins need r1 or r2 for something; one load on a replica at a time, and two in all.
    let mut desk = Desk::started(two_pins(Options { loads: 2, ..Options::default() }));
    assert_eq!(desk.warmed(), [(r(2), "2".to_owned()), (r(3), "2".to_owned())]);
    desk.take();
    desk.report(3, "2", Report::Loaded);
    assert_eq!(desk.warmed(), [(r(1), "2".to_owned())]);
}

#[test]
fn a_shadow_needs_comparisons_and_time_and_stops_at_its_threshold() {
    let shadow = Shadow { share: 100, compare: 100, differ: 20, at_least: secs(60), at_most: secs(300) };
    // compared, differed, seconds: where the pin is then.
    let rows: [(u64, u64, u64, Stage); 10] = [
        (0, 0, 60, Stage::Shadowing),
        (99, 0, 60, Stage::Shadowing),
        (100, 0, 59, Stage::Shadowing),
        (100, 0, 60, Stage::Flipping),
        (100, 2, 60, Stage::Flipping),
        (100, 3, 1, Stage::Failed),
        (3, 3, 1, Stage::Failed),
        (3, 2, 1, Stage::Shadowing),
        (99, 0, 300, Stage::Failed),
        (1_000, 21, 1, Stage::Failed),
    ];
    for (compared, differed, seconds, stage) in rows {
        let mut desk = Desk::started(one_pin(Options { shadow: Some(shadow), ..Options::default() }));
        desk.proven(&[2, 3], "2");
        assert_eq!(desk.stage(), Stage::Shadowing);
        assert!(desk.take().contains(&Effect::Shadow { pin: 0, share: 100 }));
        desk.event(Event::Shadowed { pin: 0, compared, differed });
        desk.wait(secs(seconds));
        assert_eq!(desk.stage(), stage, "{compared} compared, {differed} differed, {seconds} s");
        assert_eq!(desk.out.contains(&Effect::Shadow { pin: 0, share: 0 }), stage != Stage::Shadowing);
    }
}

#[test]
fn canary_steps_wait_for_their_time_and_for_every_gateway() {
    let canary = vec![CanaryStep { percent: 5, wait: secs(60) }, CanaryStep { percent: 50, wait: secs(10) }];
    let mut desk = Desk::flipped(one_pin(Options { canary, ..Options::default() }));
    let share = |desk: &Desk| desk.machine.progress().pins[0].share;
    assert_eq!((desk.stage(), share(&desk)), (Stage::Canary, 5));
    desk.wait(secs(60));
    assert_eq!(desk.stage(), Stage::Canary, "the gateways are not there yet");
    desk.follow();
    assert_eq!(desk.stage(), Stage::Flipping);
    desk.flip();
    desk.follow();
    assert_eq!((desk.stage(), share(&desk)), (Stage::Canary, 50));
    desk.wait(secs(9));
    assert_eq!(desk.stage(), Stage::Canary);
    desk.wait(secs(1));
    desk.flip();
    assert_eq!((desk.stage(), share(&desk)), (Stage::Draining, 100));
    assert_eq!(desk.pins[0].version, Some(v("2")));
}

/// No word of its condition, a word of another step, and a word that it cannot be said are no good news, however long a step has lasted.
#[test]
fn a_canary_with_a_condition_goes_on_only_when_that_was_judged_of_its_own_step() {
    let canary = vec![CanaryStep { percent: 5, wait: secs(60) }, CanaryStep { percent: 50, wait: secs(10) }];
    let guard = Some(Guard { condition: "canary.errors == 0".to_owned(), samples: 100 });
    let mut desk = Desk::flipped(one_pin(Options { canary, guard: guard.clone(), ..Options::default() }));
    let judged = |step, hold: Option<&str>| Event::Judged { pin: 0, step, hold: hold.map(str::to_owned) };
    let waits_for = |desk: &Desk| desk.machine.progress().pins[0].waiting_for.clone();
    desk.follow();
    desk.wait(secs(3_600));
    assert_eq!(desk.stage(), Stage::Canary);
    assert!(matches!(&waits_for(&desk)[..], [Waiting::Condition(words)] if words.contains("not judged yet")));
    for event in [judged(2, None), judged(0, None), judged(1, Some("7 of 100 answers"))] {
        desk.event(event);
        assert_eq!(desk.stage(), Stage::Canary);
    }
    assert_eq!(waits_for(&desk), [Waiting::Condition("7 of 100 answers".to_owned())]);
    desk.event(judged(1, None));
    assert_eq!(desk.stage(), Stage::Flipping);
    desk.flip();
    desk.follow();
    desk.wait(secs(10));
    assert_eq!(desk.stage(), Stage::Canary, "what was said of the first step says nothing of the second");
    desk.event(judged(2, None));
    desk.flip();
    assert_eq!(desk.pins[0].version, Some(v("2")));
    assert_eq!(one_pin(Options { guard, ..Options::default() }).check(), Err(PlanError::Guard));
}

#[test]
fn a_silent_gateway_blocks_the_flip_until_the_time_or_its_lease_is_over() {
    for lease_ends in [false, true] {
        let mut desk = Desk::started(one_pin(Options::default()));
        desk.proven(&[2, 3], "2");
        desk.answer_read();
        let asked = desk.out.iter().filter(|e| matches!(e, Effect::Prepare { .. })).count();
        assert_eq!(asked, 2);
        desk.view(&g(0), |v| v.prepared = Some(Proposal { step: 1, base: Revision(10) }));
        assert!(!desk.asked_to_activate());
        desk.wait(secs(59));
        assert_eq!(desk.stage(), Stage::Flipping);
        if lease_ends {
            desk.view(&g(1), |v| v.leased = false);
            assert!(desk.asked_to_activate());
        } else {
            desk.wait(secs(1));
            assert_eq!(desk.words(), "gateway g1 has not prepared in time");
            assert_eq!(desk.stage(), Stage::Failed);
        }
    }
}

#[test]
fn nothing_flips_into_an_empty_or_unknown_fleet() {
    let mut desk = Desk::new(one_pin(Options::default()));
    desk.event(Event::Tick);
    desk.proven(&[2, 3], "2");
    desk.answer_read();
    assert!(!desk.asked_to_activate(), "not known");
    desk.event(Event::Gateways { roster: 2, all: Vec::new() });
    assert!(!desk.asked_to_activate(), "empty");
    desk.wait(Options::default().prepare);
    assert_eq!(desk.words(), "no gateway is live to prepare the flip");
}

#[test]
fn a_lease_granted_before_the_read_and_not_seen_yet_is_waited_for() {
    let mut desk = Desk::started(one_pin(Options::default()));
    desk.proven(&[2, 3], "2");
    let read = desk.out.iter().find_map(|e| if let Effect::ReadTable { read } = e { Some(*read) } else { None });
    let table = TableView { roster: 3, ..desk.table() };
    desk.event(Event::Table { read: read.unwrap(), table });
    desk.prepare();
    assert!(!desk.asked_to_activate());
    desk.event(Event::Gateways { roster: 3, all: desk.views.clone() });
    assert!(desk.asked_to_activate());
}

#[test]
fn a_gateway_that_cannot_prepare_fails_the_flip_with_its_words() {
    let mut desk = Desk::started(one_pin(Options::default()));
    desk.proven(&[2, 3], "2");
    desk.answer_read();
    let stale = Proposal { step: 1, base: Revision(9) };
    for (proposal, stage) in [(stale, Stage::Flipping), (Proposal { step: 1, base: Revision(10) }, Stage::Failed)] {
        desk.event(Event::PrepareFailed { gateway: g(1), proposal, words: "no such pool".to_owned() });
        assert_eq!(desk.stage(), stage);
    }
    assert_eq!(desk.words(), "gateway g1: no such pool");
}

#[test]
fn draining_ends_when_no_live_gateway_has_an_old_request() {
    let mut desk = Desk::flipped(one_pin(Options::default()));
    let set = |desk: &mut Desk, ix, in_force, oldest, leased| {
        desk.view(&g(ix), |v| (v.in_force, v.oldest, v.leased) = (Revision(in_force), Revision(oldest), leased));
        desk.stage()
    };
    assert_eq!(set(&mut desk, 0, 11, 11, true), Stage::Draining, "g1 is behind");
    desk.wait(Options::default().retry);
    let told: Vec<_> = desk.out.iter().filter(|e| matches!(e, Effect::Tell { .. })).collect();
    assert_eq!(told, [&Effect::Tell { gateway: g(1), revision: Revision(11) }]);
    assert_eq!(set(&mut desk, 1, 11, 10, true), Stage::Draining, "g1 has an old request");
    desk.wait(Options::default().drain);
    assert!(desk.out.contains(&Effect::Alarm(Alarm::Draining { pin: 0 })));
    assert_eq!(set(&mut desk, 1, 11, 10, false), Stage::Retaining, "g1 is not live any more");
}

#[test]
fn a_gateway_back_with_an_old_request_holds_the_collection_up() {
    let mut desk = Desk::flipped(one_pin(Options::default()));
    desk.view(&g(1), |v| v.leased = false);
    desk.follow();
    desk.wait(secs(3_000));
    desk.view(&g(1), |v| (v.leased, v.in_force, v.oldest) = (true, Revision(11), Revision(10)));
    desk.wait(secs(3_000));
    assert_eq!(desk.stage(), Stage::Retaining);
    desk.follow();
    assert_eq!(desk.stage(), Stage::Collecting);
}

#[test]
fn a_gateway_back_with_an_old_request_holds_the_removal_up_to_the_last_moment() {
    let mut desk = Desk::flipped(one_pin(Options::default()));
    desk.follow();
    desk.wait(Options::default().retain);
    desk.view(&g(1), |v| v.oldest = Revision(10));
    desk.event(Event::Claims(Claims::default()));
    assert!(!desk.out.iter().any(|e| matches!(e, Effect::Collect { .. })));
    desk.follow();
    assert!(desk.out.iter().any(|e| matches!(e, Effect::Collect { .. })));
}

#[test]
fn who_needs_the_old_version_decides_what_becomes_of_it() {
    let set = |names: &[&str]| names.iter().map(|n| artifact(n)).collect();
    // pinned, targets of others: removal asked for, stage.
    let rows: [(&[&str], &[&str], bool, Stage); 4] = [
        (&["2"], &[], true, Stage::Collecting),
        (&["2"], &["1"], false, Stage::Collecting),
        (&["1", "2"], &[], false, Stage::Done),
        (&["1", "2"], &["1"], false, Stage::Done),
    ];
    for (pinned, targets, removed, stage) in rows {
        let mut desk = Desk::flipped(one_pin(Options::default()));
        desk.follow();
        desk.wait(Options::default().retain);
        desk.take();
        desk.event(Event::Claims(Claims { pinned: set(pinned), targets: set(targets) }));
        let asked = desk.out.iter().any(|e| matches!(e, Effect::Collect { .. }));
        assert_eq!((asked, desk.stage()), (removed, stage), "pinned {pinned:?}, targets {targets:?}");
    }
}

#[test]
fn who_needs_the_old_version_is_asked_anew_when_its_time_is_over() {
    let mut desk = Desk::flipped(one_pin(Options::default()));
    desk.follow();
    desk.take();
    desk.wait(Options::default().retain);
    assert!(desk.out.contains(&Effect::Observe));
    assert!(!desk.out.iter().any(|e| matches!(e, Effect::Collect { .. })), "on old claims");
    assert!(!desk.machine.claims().targets.contains(&artifact("1")), "no target any more");
}

#[test]
fn pins_flip_as_they_are_ready_or_all_at_once() {
    let mut desk = Desk::started(two_pins(Options::default()));
    desk.proven(&[1], "2");
    assert_eq!(desk.stages(), [Stage::Warming, Stage::Flipping]);
    desk.flip();
    assert_eq!(desk.stages(), [Stage::Warming, Stage::Draining]);
    assert_eq!(desk.pins[0].version, Some(v("1")));

    let mut desk = Desk::started(two_pins(Options { atomic: true, ..Options::default() }));
    desk.proven(&[1], "2");
    assert_eq!(desk.stages(), [Stage::Warming, Stage::Ready]);
    desk.proven(&[2, 3], "2");
    desk.flip();
    assert_eq!(desk.stages(), [Stage::Draining, Stage::Draining]);
    assert_eq!(desk.revision, 11, "one table");
}

#[test]
fn one_failed_pin_fails_an_atomic_change_and_no_other() {
    for (atomic, stages) in [(true, [Stage::Failed, Stage::Failed]), (false, [Stage::Warming, Stage::Failed])] {
        let mut desk = Desk::started(two_pins(Options { atomic, ..Options::default() }));
        desk.report(1, "2", failed("bad header", true));
        assert_eq!(desk.stages(), stages);
        assert_eq!(desk.machine.progress().pins[1].words.as_deref(), Some("r1: bad header"));
        let other = desk.machine.progress().pins[0].words.clone();
        assert_eq!(other.as_deref(), atomic.then_some("with screen of t1: r1: bad header"));
    }
}

#[test]
fn a_first_pin_has_nothing_to_retain() {
    let mut plan = one_pin(Options::default());
    plan.pins[0].old = None;
    let mut desk = Desk::started(plan);
    desk.proven(&[2, 3], "2");
    desk.flip();
    desk.follow();
    assert_eq!(desk.phase(), Phase::Done);
    assert_eq!(desk.command(Command::Revert { confirmed: true }), Some(Err(Refusal::NoTarget)));
}

#[test]
fn a_changed_replica_set_is_planned_anew() {
    let mut desk = Desk::started(one_pin(Options::default()));
    desk.report(2, "2", Report::Lost);
    desk.take();
    desk.event(Event::Replan { pin: 0, version: v("2"), order: vec![r(0), r(3)] });
    assert_eq!(desk.warmed(), [(r(0), "2".to_owned())]);
    assert_eq!(desk.released(), [(r(1), "2".to_owned())]);
    desk.event(Event::Replan { pin: 0, version: v("2"), order: Vec::new() });
    desk.event(Event::Replan { pin: 9, version: v("2"), order: vec![r(0)] });
    desk.proven(&[0, 3], "2");
    desk.flip();
    assert_eq!(desk.stage(), Stage::Draining);
}
