//! What is in doubt and how it is resolved, what a new process makes of a record, and which plans and records are refused.

use holdfast_decide::rollout::*;
use holdfast_types::Mono;

use crate::desk::{Desk, activating, activations};
use crate::world::*;

type Breaks<T> = fn(&mut T);

fn reads(desk: &Desk) -> usize {
    desk.out.iter().filter(|e| matches!(e, Effect::ReadTable { .. })).count()
}

fn refused(desk: &mut Desk, why: ActivateRefusal) {
    let asked = desk.out.iter().rev().find_map(|e| match e {
        Effect::Activate { step, version, .. } => Some((*step, *version)),
        _ => None,
    });
    let (step, version) = asked.unwrap();
    desk.event(Event::ActivateRefused { step, version, why });
}

#[test]
fn a_conflict_is_read_and_never_guessed() {
    // What the table says after the conflict: our step is in it, or another's.
    for ours in [true, false] {
        let mut desk = activating(one_pin(Options::default()));
        if ours {
            desk.put_in_table();
        } else {
            desk.revision += 1;
        }
        refused(&mut desk, ActivateRefusal::Conflict);
        assert_eq!((activations(&desk), desk.stage()), (1, Stage::Flipping));
        desk.answer_read();
        if ours {
            assert_eq!((desk.stage(), activations(&desk)), (Stage::Draining, 1));
            continue;
        }
        let asked = desk.out.iter().filter(|e| matches!(e, Effect::Prepare { proposal, .. } if proposal.base.0 == 11));
        assert_eq!((asked.count(), activations(&desk)), (2, 1), "prepared anew for the new table");
        desk.prepare();
        desk.activate();
        assert_eq!((desk.stage(), desk.revision), (Stage::Draining, 12));
    }
}

#[test]
fn an_activation_without_an_answer_is_read_and_never_repeated() {
    let mut desk = activating(one_pin(Options::default()));
    let before = reads(&desk);
    desk.put_in_table();
    desk.wait(Options::default().retry);
    assert_eq!((reads(&desk), activations(&desk)), (before + 1, 1));
    desk.answer_read();
    assert_eq!((desk.stage(), activations(&desk)), (Stage::Draining, 1));
}

#[test]
fn an_answer_to_a_read_from_before_does_not_count() {
    let mut desk = activating(one_pin(Options::default()));
    let old = desk.table();
    let (step, revision) = desk.put_in_table();
    desk.wait(Options::default().retry);
    desk.event(Event::Table { read: 0, table: old });
    assert_eq!((desk.stage(), reads(&desk), activations(&desk)), (Stage::Flipping, 2, 1));
    desk.event(Event::Activated { step, revision });
    assert_eq!(desk.stage(), Stage::Draining, "a late answer is a fact all the same");
}

#[test]
fn a_change_that_is_not_possible_fails_with_its_words() {
    let mut desk = activating(one_pin(Options::default()));
    refused(&mut desk, ActivateRefusal::Invalid("no such tenant: t0".to_owned()));
    assert_eq!((desk.stage(), desk.words().as_str()), (Stage::Failed, "no such tenant: t0"));
}

#[test]
fn a_pin_that_another_change_has_moved_is_left_alone() {
    let moved = PinView { version: Some(v("9")), split: None };
    let mut desk = Desk::started(one_pin(Options::default()));
    desk.proven(&[2, 3], "2");
    desk.pins[0] = moved.clone();
    desk.answer_read();
    assert_eq!((desk.stage(), desk.words().as_str()), (Stage::Failed, "another change has moved the pin to 9"));

    let mut desk = Desk::flipped(one_pin(Options::default()));
    desk.follow();
    desk.command(Command::Revert { confirmed: false });
    desk.pins[0] = moved;
    desk.revision += 1;
    desk.answer_read();
    assert_eq!(desk.stage(), Stage::Draining);
    assert!(desk.out.contains(&Effect::Alarm(Alarm::Overtaken { pin: 0 })));
    assert_eq!(desk.command(Command::Revert { confirmed: true }), Some(Err(Refusal::NoTarget)));
    desk.follow();
    desk.wait(Options::default().retain);
    desk.event(Event::Claims(Claims::default()));
    desk.event(Event::Collected { artifact: artifact("2") });
    let released = desk.released();
    assert!(
        [(0, "1"), (1, "1"), (2, "2"), (3, "2")].iter().all(|(ix, v)| released.contains(&(r(*ix), (*v).to_owned())))
    );
}

/// A process is killed with each record that was ever in the store, and another one goes on from it.
#[test]
fn a_new_process_goes_on_from_every_record() {
    let canary = vec![CanaryStep { percent: 5, wait: secs(60) }];
    let whole = |stop: usize| {
        let mut desk = Desk::new(one_pin(Options { canary: canary.clone(), ..Options::default() }));
        let mut at = 0;
        let mut step = |desk: &mut Desk, act: &dyn Fn(&mut Desk)| {
            if at == stop && desk.saved.is_some() {
                desk.resume();
                desk.proven(&[0, 1], "1");
                desk.proven(&[2, 3], "2");
            }
            at += 1;
            act(desk);
        };
        let way: [&dyn Fn(&mut Desk); 12] = [
            &|d| d.start(),
            &|d| d.proven(&[0, 1], "1"),
            &|d| d.proven(&[2, 3], "2"),
            &|d| {
                if d.out.iter().any(|e| matches!(e, Effect::ReadTable { .. })) {
                    d.answer_read();
                }
            },
            &|d| d.prepare(),
            &|d| {
                if d.asked_to_activate() {
                    d.put_in_table();
                }
            },
            &|d| d.wait(secs(10)),
            &|d| {
                if d.out.iter().any(|e| matches!(e, Effect::ReadTable { .. })) {
                    d.answer_read();
                }
            },
            &|d| d.prepare(),
            &|d| {
                if d.asked_to_activate() && d.applied.is_none() {
                    d.activate();
                }
            },
            &|d| d.follow(),
            &|d| d.wait(secs(1)),
        ];
        way.iter().for_each(|act| step(&mut desk, act));
        (desk.stage(), desk.revision)
    };
    for stop in 1..12 {
        assert_eq!(whole(stop), (Stage::Canary, 11), "killed before step {stop}");
    }
}

#[test]
fn a_process_that_was_overtaken_stops() {
    let mut desk = Desk::started(one_pin(Options::default()));
    desk.saves = false;
    desk.proven(&[2, 3], "2");
    let version = desk.machine.version() + 1;
    desk.take();
    desk.event(Event::SaveConflict { version: version + 5 });
    assert!(!desk.machine.is_superseded(), "an answer to no question");
    desk.event(Event::SaveConflict { version });
    assert_eq!(desk.take(), [Effect::Superseded]);
    desk.event(Event::Tick);
    desk.wait(secs(10_000));
    assert_eq!((desk.take(), desk.machine.next_deadline()), (vec![], None));
}

#[test]
fn a_resumed_process_claims_the_record_before_anything_else() {
    let desk = activating(one_pin(Options::default()));
    let saved = desk.saved.unwrap();
    let mut machine = Rollout::resume(Mono(1), 9, &saved).unwrap();
    let mut out = Vec::new();
    machine.apply(Mono(2), Event::Tick, &mut out);
    let [Effect::Save { expected, saved: claim }] = &out[..] else { panic!("{out:?}") };
    assert_eq!((*expected, claim.term, claim.version), (saved.version, 9, saved.version + 1));
    assert_eq!(claim.flip.as_ref().unwrap().state, "reading", "what was being activated is in doubt");
}

#[test]
fn records_are_read_back_as_they_were_written_and_checked() {
    let desk = Desk::flipped(two_pins(Options {
        canary: vec![CanaryStep { percent: 5, wait: secs(9) }],
        ..Options::default()
    }));
    let saved = desk.saved.unwrap();
    let mut out = Vec::new();
    Rollout::resume(Mono(1), 9, &saved).unwrap().apply(Mono(1), Event::Tick, &mut out);
    let [Effect::Save { saved: again, .. }] = &out[..] else { panic!("{out:?}") };
    assert_eq!(**again, Saved { version: saved.version + 1, term: 9, ..saved.clone() });

    let broken: [(Breaks<Saved>, ResumeError); 8] = [
        (|s| s.format = 2, ResumeError::Format(2)),
        (|s| s.term = 10, ResumeError::Fenced { stored: 10, own: 9 }),
        (|s| s.pins.clear(), ResumeError::Invalid("plan")),
        (|s| s.pins[0].stage = "nowhere".to_owned(), ResumeError::Invalid("stage")),
        (|s| s.pins[0].stage = "flipping".to_owned(), ResumeError::Invalid("flip")),
        (|s| s.pins[0].share = 101, ResumeError::Invalid("pin")),
        (|s| s.pins[0].new.subset = 0, ResumeError::Invalid("plan")),
        (|s| s.pending = Some("dance".to_owned()), ResumeError::Invalid("pending")),
    ];
    for (breaks, error) in broken {
        let mut record = saved.clone();
        breaks(&mut record);
        assert_eq!(Rollout::resume(Mono(1), 9, &record).unwrap_err(), error);
    }
    let mut record = saved;
    record.pins[0].new.version = "latest".to_owned();
    assert!(matches!(Rollout::resume(Mono(1), 9, &record), Err(ResumeError::Name(..))));
}

/// The record has all candidates as lost; they came back while nobody looked.
#[test]
fn a_new_process_hears_of_replicas_that_are_back() {
    let mut desk = Desk::started(one_pin(Options::default()));
    (0..4).for_each(|ix| desk.report(ix, "2", Report::Lost));
    desk.resume();
    assert_eq!(desk.warmed(), []);
    (0..4).for_each(|ix| desk.report(ix, "2", Report::Absent));
    assert!(desk.warmed().contains(&(r(2), "2".to_owned())));
    desk.proven(&[2, 3], "2");
    assert_eq!(desk.stage(), Stage::Flipping);
}

/// What passes while nobody has the roll-out in hand does not count, so nothing is removed early.
#[test]
fn retention_becomes_longer_by_a_crash_and_never_shorter() {
    let options = Options { checkpoint: secs(300), ..Options::default() };
    let mut desk = Desk::flipped(one_pin(options.clone()));
    desk.follow();
    desk.wait(options.retain - secs(100));
    desk.now = desk.now.after(secs(100_000));
    desk.resume();
    desk.wait(secs(99));
    assert_eq!(desk.stage(), Stage::Retaining);
    desk.wait(options.checkpoint);
    assert_eq!(desk.stage(), Stage::Collecting, "no more is lost than a checkpoint");
}

#[test]
fn time_never_goes_back() {
    let mut desk = Desk::flipped(one_pin(Options::default()));
    desk.follow();
    let late = desk.now;
    desk.machine.apply(Mono(0), Event::Tick, &mut Vec::new());
    desk.machine.apply(late, Event::Tick, &mut Vec::new());
    assert_eq!(desk.machine.progress().since, secs(0));
}

#[test]
fn plans_are_checked() {
    let canary = |percents: &[u8]| percents.iter().map(|p| CanaryStep { percent: *p, wait: secs(1) }).collect();
    let shadow = Shadow { share: 0, compare: 1, differ: 0, at_least: secs(1), at_most: secs(2) };
    let rows: [(Breaks<Plan>, PlanError); 5] = [
        (|p| p.pins.clear(), PlanError::Pins(0)),
        (
            |p| p.pins[1].tenant = p.pins[0].tenant.clone(),
            PlanError::Twice(
                two_pins(Options::default()).pins[0].tenant.clone(),
                two_pins(Options::default()).pins[0].model.clone(),
            ),
        ),
        (|p| p.options.loads = 0, PlanError::Zero("loads")),
        (|p| p.options.retry = secs(0), PlanError::Zero("retry")),
        (|p| p.options.warm = secs(0), PlanError::Zero("warm")),
    ];
    for (breaks, error) in rows {
        let mut plan = two_pins(Options::default());
        breaks(&mut plan);
        assert_eq!(plan.check(), Err(error));
    }
    for (percents, good) in
        [(&[1][..], true), (&[1, 99], true), (&[0], false), (&[100], false), (&[5, 5], false), (&[9, 5], false)]
    {
        let plan = one_pin(Options { canary: canary(percents), ..Options::default() });
        assert_eq!(plan.check().is_ok(), good, "{percents:?}");
    }
    assert_eq!(one_pin(Options { shadow: Some(shadow), ..Options::default() }).check(), Err(PlanError::Shadow));
    for order in [&[][..], &[1, 1]] {
        let mut plan = one_pin(Options::default());
        plan.pins[0].new = side("2", order, 1);
        assert!(matches!(plan.check(), Err(PlanError::Candidates(..))));
    }
    let mut plan = one_pin(Options::default());
    plan.pins[0].new.version = v("1");
    assert!(matches!(plan.check(), Err(PlanError::Same(..))));
}
