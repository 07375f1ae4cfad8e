//! What people may ask for and when.

use holdfast_decide::rollout::*;
use holdfast_types::Revision;

use crate::desk::{Desk, activating, activations};
use crate::world::*;

/// Brought to each stage, in the order of a roll-out's life.
fn desks() -> Vec<(Stage, Desk)> {
    let start = || Desk::started(one_pin(Options::default()));
    let mut flipping = start();
    flipping.proven(&[2, 3], "2");
    flipping.answer_read();
    let draining = || Desk::flipped(one_pin(Options::default()));
    let retaining = || {
        let mut desk = draining();
        desk.follow();
        desk
    };
    let collecting = || {
        let mut desk = retaining();
        desk.wait(Options::default().retain);
        desk
    };
    let mut done = collecting();
    done.event(Event::Claims(Claims::default()));
    done.event(Event::Collected { artifact: artifact("1") });
    let mut aborted = start();
    assert_eq!(aborted.command(Command::Abort), Some(Ok(())));
    let mut failed = start();
    failed.report(2, "2", Report::Wrong { words: "wrong".to_owned() });
    let all = vec![
        (Stage::Warming, start()),
        (Stage::Flipping, flipping),
        (Stage::Draining, draining()),
        (Stage::Retaining, retaining()),
        (Stage::Collecting, collecting()),
        (Stage::Done, done),
        (Stage::Aborted, aborted),
        (Stage::Failed, failed),
    ];
    all.into_iter().inspect(|(stage, desk)| assert_eq!(desk.stage(), *stage)).collect()
}

#[test]
fn every_command_means_something_at_every_stage() {
    use Refusal::*;
    let cold = || Err(Cold(vec![artifact("1")]));
    let asks =
        [Command::Abort, Command::Revert { confirmed: false }, Command::Revert { confirmed: true }, Command::Pause];
    let rows: [(Stage, [Result<(), Refusal>; 4]); 8] = [
        (Stage::Warming, [Ok(()), Err(NotActive), Err(NotActive), Ok(())]),
        (Stage::Flipping, [Ok(()), Err(NotActive), Err(NotActive), Ok(())]),
        (Stage::Draining, [Err(Active), Ok(()), Ok(()), Ok(())]),
        (Stage::Retaining, [Err(Active), Ok(()), Ok(()), Ok(())]),
        (Stage::Collecting, [Err(Active), Err(Collecting), Err(Collecting), Ok(())]),
        (Stage::Done, [Err(Over), cold(), Ok(()), Err(Over)]),
        (Stage::Aborted, [Err(Over), Err(Over), Err(Over), Err(Over)]),
        (Stage::Failed, [Err(Over), Err(Over), Err(Over), Err(Over)]),
    ];
    for (nth, command) in asks.into_iter().enumerate() {
        for ((stage, mut desk), (want, answers)) in desks().into_iter().zip(rows.clone()) {
            assert_eq!(stage, want);
            let answer = desk.command(command).expect("an answer at once");
            assert_eq!(answer, answers[nth], "{command:?} at {stage:?}");
            let flips = desk.asked_to_activate();
            assert!(!flips, "{command:?} at {stage:?}");
        }
    }
}

#[test]
fn an_abort_lets_the_new_version_go_and_flips_nothing() {
    let mut desk = Desk::started(one_pin(Options::default()));
    desk.proven(&[2, 3], "2");
    desk.answer_read();
    assert_eq!(desk.command(Command::Abort), Some(Ok(())));
    assert_eq!(desk.released(), [(r(2), "2".to_owned()), (r(3), "2".to_owned())]);
    assert!(desk.out.contains(&Effect::Forget { proposal: Proposal { step: 1, base: Revision(10) } }));
    desk.prepare();
    desk.wait(secs(100));
    assert!(!desk.asked_to_activate());
    assert_eq!(desk.phase(), Phase::Aborted);
}

/// An abort that comes while an activation is under way is answered by what became of it.
#[test]
fn an_abort_in_doubt_waits_for_the_table() {
    for in_table in [false, true] {
        let mut desk = activating(one_pin(Options::default()));
        if in_table {
            desk.put_in_table();
        }
        assert_eq!(desk.command(Command::Abort), None, "nobody knows yet");
        assert_eq!(desk.command(Command::Abort), Some(Err(Refusal::Busy)));
        desk.answer_read();
        let (answer, stage) = if in_table { (Err(Refusal::Active), Stage::Draining) } else { (Ok(()), Stage::Aborted) };
        assert_eq!((desk.answer(), desk.stage()), (Some(answer), stage));
        assert_eq!(activations(&desk), 1, "never asked for again");
    }
}

#[test]
fn an_abort_in_doubt_survives_the_process() {
    let mut desk = activating(one_pin(Options::default()));
    desk.command(Command::Abort);
    desk.resume();
    desk.proven(&[2, 3], "2");
    desk.answer_read();
    assert_eq!(desk.stage(), Stage::Aborted);
}

#[test]
fn a_pause_holds_flips_and_deadlines() {
    let mut desk = Desk::started(one_pin(Options::default()));
    assert_eq!(desk.command(Command::Resume), Some(Err(Refusal::Nothing)));
    assert_eq!(desk.command(Command::Pause), Some(Ok(())));
    assert_eq!(desk.command(Command::Pause), Some(Err(Refusal::Nothing)));
    desk.proven(&[2], "2");
    desk.wait(Options::default().warm * 3);
    desk.report(3, "2", Report::Loaded);
    desk.wait(secs(1));
    assert_eq!(desk.stage(), Stage::Warming, "no deadline passes");
    desk.proven(&[3], "2");
    assert_eq!(desk.stage(), Stage::Warming, "nothing goes on");
    assert_eq!(desk.command(Command::Resume), Some(Ok(())));
    assert_eq!(desk.stage(), Stage::Flipping);
    desk.answer_read();
    assert_eq!(desk.command(Command::Pause), Some(Ok(())));
    desk.prepare();
    assert!(!desk.asked_to_activate());
    desk.wait(secs(1_000));
    assert_eq!(desk.stage(), Stage::Flipping);
    desk.command(Command::Resume);
    assert!(desk.asked_to_activate());
}

#[test]
fn the_time_of_retention_runs_through_a_pause_but_nothing_is_removed() {
    let mut desk = Desk::flipped(one_pin(Options::default()));
    desk.follow();
    desk.command(Command::Pause);
    desk.wait(Options::default().retain * 2);
    assert_eq!(desk.stage(), Stage::Retaining);
    desk.command(Command::Resume);
    assert_eq!(desk.stage(), Stage::Collecting);
}

#[test]
fn a_revert_while_retained_loads_nothing_and_drains_the_new_version_too() {
    for follow in [false, true] {
        let mut desk = Desk::flipped(one_pin(Options::default()));
        if follow {
            desk.follow();
        }
        desk.take();
        assert_eq!(desk.command(Command::Revert { confirmed: false }), Some(Ok(())));
        assert_eq!((desk.stage(), desk.warmed()), (Stage::Flipping, vec![]));
        desk.answer_read();
        desk.prepare();
        desk.activate();
        assert_eq!(
            (desk.stage(), desk.pins[0].clone()),
            (Stage::Draining, PinView { version: Some(v("1")), split: None })
        );
        desk.follow();
        desk.wait(Options::default().retain);
        assert_eq!(desk.released(), [(r(2), "2".to_owned()), (r(3), "2".to_owned())]);
        desk.event(Event::Claims(Claims::default()));
        desk.event(Event::Collected { artifact: artifact("2") });
        assert_eq!(desk.phase(), Phase::Reverted);
        assert_eq!(desk.command(Command::Revert { confirmed: true }), Some(Err(Refusal::GoesBack)));
    }
}

#[test]
fn a_revert_from_a_canary_goes_back_in_one_flip() {
    let canary = vec![CanaryStep { percent: 5, wait: secs(60) }];
    let mut desk = Desk::flipped(one_pin(Options { canary, ..Options::default() }));
    desk.follow();
    assert_eq!(desk.command(Command::Abort), Some(Err(Refusal::Shared(5))), "no pin has flipped");
    assert_eq!(desk.command(Command::Revert { confirmed: false }), Some(Ok(())));
    desk.flip();
    assert_eq!(desk.command(Command::Abort), Some(Err(Refusal::Active)));
    assert_eq!(desk.pins[0], PinView { version: Some(v("1")), split: None });
    assert_eq!(desk.stage(), Stage::Draining);
}

#[test]
fn a_revert_in_doubt_waits_for_the_table() {
    let canary = vec![CanaryStep { percent: 5, wait: secs(60) }];
    for in_table in [false, true] {
        let mut desk = Desk::flipped(one_pin(Options { canary: canary.clone(), ..Options::default() }));
        desk.follow();
        desk.wait(secs(60));
        desk.answer_read();
        desk.prepare();
        if in_table {
            desk.put_in_table();
        }
        assert_eq!(desk.command(Command::Revert { confirmed: false }), None);
        desk.answer_read();
        assert_eq!(desk.answer(), Some(Ok(())));
        desk.flip();
        assert_eq!(desk.pins[0], PinView { version: Some(v("1")), split: None }, "in the table before: {in_table}");
    }
}

#[test]
fn a_revert_leaves_pins_alone_that_have_not_flipped() {
    let mut desk = Desk::started(two_pins(Options::default()));
    desk.proven(&[3], "1");
    desk.proven(&[1], "2");
    desk.flip();
    desk.command(Command::Revert { confirmed: false });
    assert_eq!(desk.stages(), [Stage::Aborted, Stage::Flipping]);
}

#[test]
fn after_retention_a_revert_is_a_cold_redeployment_that_has_to_be_confirmed() {
    let (_, mut desk) = desks().remove(5);
    desk.take();
    let refusal = Refusal::Cold(vec![artifact("1")]);
    assert_eq!(desk.command(Command::Revert { confirmed: false }), Some(Err(refusal)));
    assert!(desk.machine.is_over());
    assert_eq!(desk.command(Command::Revert { confirmed: true }), Some(Ok(())));
    let pin = desk.machine.progress().pins[0].clone();
    assert_eq!((pin.stage, pin.back, pin.cold), (Stage::Warming, true, true));
    desk.report(0, "1", Report::Absent);
    desk.report(1, "1", Report::Absent);
    assert!(desk.warmed().contains(&(r(0), "1".to_owned())));
    // It can fail; what is in force stays.
    desk.report(0, "1", Report::Failed { words: "gone from the shop".to_owned(), permanent: true });
    assert_eq!((desk.stage(), desk.words().as_str()), (Stage::Failed, "r0: gone from the shop"));
    assert_eq!(desk.pins[0].version, Some(v("2")));
    assert!(!desk.released().iter().any(|(_, version)| version == "2"));
    // And it can be tried again.
    assert_eq!(desk.command(Command::Revert { confirmed: true }), Some(Ok(())));
    desk.proven(&[0, 1], "1");
    desk.flip();
    assert_eq!(desk.pins[0].version, Some(v("1")));
}

#[test]
fn a_warm_way_back_that_fails_is_told_and_tried_again() {
    let mut desk = Desk::flipped(one_pin(Options::default()));
    desk.report(0, "1", Report::Absent);
    for _ in 0..5 {
        desk.report(0, "1", Report::Failed { words: "out of memory".to_owned(), permanent: true });
        desk.wait(Options::default().retry);
    }
    let alarm = Alarm::NotHeld { replica: r(0), artifact: artifact("1"), words: "out of memory".to_owned() };
    assert!(desk.out.contains(&Effect::Alarm(alarm)));
    assert_eq!(desk.command(Command::Revert { confirmed: false }), Some(Ok(())));
    assert_eq!(desk.stage(), Stage::Warming, "not before it is proven");
    desk.proven(&[0], "1");
    desk.flip();
    assert_eq!(desk.pins[0].version, Some(v("1")));
}

/// A share is in force, and somebody takes the pin away, or makes it anew, while no step is on its way.
#[test]
fn a_pin_that_is_moved_while_its_share_is_in_force_is_let_go_at_once() {
    let canary = vec![CanaryStep { percent: 5, wait: secs(3_600) }];
    let options = Options { canary, ..Options::default() };
    let left = || PinView { version: Some(v("1")), split: Some((v("2"), 5)) };
    let seen = |desk: &mut Desk, revision: u64, pin: PinView| {
        (desk.revision, desk.pins[0]) = (revision, pin.clone());
        desk.event(Event::InForce { revision: Revision(revision), pins: vec![pin] });
    };
    let rows = [
        PinView::default(),
        PinView { version: Some(v("1")), split: None },
        PinView { version: Some(v("2")), split: None },
        PinView { version: Some(v("1")), split: Some((v("3"), 5)) },
    ];
    for moved in rows {
        let mut desk = Desk::flipped(one_pin(options.clone()));
        desk.follow();
        assert_eq!(desk.stage(), Stage::Canary);
        seen(&mut desk, 10, moved.clone());
        assert_eq!(desk.stage(), Stage::Canary, "an older table says nothing");
        seen(&mut desk, 12, left());
        assert_eq!(desk.stage(), Stage::Canary, "it is as it was left");
        seen(&mut desk, 13, moved.clone());
        assert_eq!(desk.stage(), Stage::Draining, "{moved:?}");
        let alarms =
            desk.take().into_iter().filter(|e| matches!(e, Effect::Alarm(Alarm::Overtaken { pin: 0 }))).count();
        assert_eq!(alarms, 1);
        assert_eq!(desk.command(Command::Revert { confirmed: true }), Some(Err(Refusal::NoTarget)));
        desk.resume();
        desk.follow();
        assert_eq!(desk.stage(), Stage::Retaining);
        assert_eq!(activations(&desk), 0);
    }
}

/// What is asked of the store decides: it is read what has become of the pin.
#[test]
fn a_table_seen_by_the_way_decides_nothing_of_a_pin_in_a_flip_or_of_one_that_never_flipped() {
    let gone = || Event::InForce { revision: Revision(11), pins: vec![PinView::default(), PinView::default()] };
    let mut desk = activating(one_pin(Options::default()));
    desk.event(gone());
    assert_eq!((desk.stage(), activations(&desk)), (Stage::Flipping, 1));
    let mut desk = Desk::started(two_pins(Options::default()));
    desk.event(gone());
    assert_eq!(desk.stages(), [Stage::Warming, Stage::Warming], "whether it is aborted is the policy's to say");
}
