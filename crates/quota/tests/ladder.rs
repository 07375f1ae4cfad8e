//! The ladder: its steps one by one, and what holds in every history.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use holdfast_quota::bucket::{Bucket, Wait};
use holdfast_quota::ladder::{Ladder, Message, Priority, Reconnects, Rules, Verdict};
use holdfast_quota::limit::Limit;
use holdfast_quota::rate1::Witness;
use holdfast_types::Mono;
use proptest::prelude::*;

const LIMIT: Limit = Limit::per_second(20, 40);

fn message(priority: Priority) -> Message {
    Message { priority, stream: None, cost: 1 }
}

fn at(millis: u64) -> Mono {
    Mono(1 + millis * 1_000_000)
}

/// A socket whose bucket holds so much.
fn socket(left: u64) -> (Ladder, Bucket) {
    let mut bucket = Bucket::full(LIMIT, at(0));
    bucket.take(LIMIT, at(0), LIMIT.burst - left).unwrap();
    (Ladder::new(Rules::default(), at(0)), bucket)
}

#[test]
fn droppable_messages_go_first_and_only_below_a_quarter() {
    let (mut ladder, mut bucket) = socket(10);
    let mut send = |priority| ladder.message(at(0), message(priority), LIMIT, &mut bucket);
    assert_eq!(send(Priority::Droppable), Verdict::Pass, "a quarter is there");
    assert_eq!(send(Priority::Droppable), Verdict::Dropped);
    assert_eq!([send(Priority::Normal), send(Priority::Critical)], [Verdict::Pass; 2]);
    assert_eq!((ladder.counts().dropped, ladder.counts().passed), (1, 3));
    assert_eq!(bucket.available(LIMIT, at(0)), 7, "what is dropped costs nothing");
}

#[test]
fn of_a_stream_the_newest_passes_five_times_a_second() {
    let (mut ladder, mut bucket) = socket(9);
    let value = Message { stream: Some(7), ..message(Priority::Droppable) };
    let mut passed = 0;
    for millis in 0..1_000 {
        passed += u32::from(ladder.message(at(millis), value, LIMIT, &mut bucket) == Verdict::Pass);
        passed += u32::try_from(ladder.due(at(millis), LIMIT, &mut bucket).len()).unwrap();
        // The rate would fill it.
        let full = bucket.available(LIMIT, at(millis));
        bucket.take_up_to(LIMIT, at(millis), full.saturating_sub(8));
    }
    assert_eq!((passed, ladder.counts().refused), (5, 0));
    assert!(ladder.counts().coalesced > 900);
    assert_eq!(ladder.wakes_at(), Some(at(1_000)), "the newest of all is still to come");
    assert_eq!(ladder.due(at(1_000), LIMIT, &mut bucket), [7]);
    assert_eq!(ladder.wakes_at(), None);
}

#[test]
fn an_empty_bucket_warns_once_a_second_refuses_and_closes() {
    let (mut ladder, mut bucket) = socket(0);
    let mut send = |millis| ladder.message(at(millis), message(Priority::Normal), LIMIT, &mut bucket);
    let Verdict::Refused { wait: Wait::For(wait), warn: true } = send(0) else { panic!("refused") };
    assert_eq!(wait, Duration::from_millis(50), "true: one token of 20 a second");
    assert!(matches!(send(1), Verdict::Refused { warn: false, .. }));
    assert_eq!(send(50), Verdict::Pass);
    for refused in 2..9 {
        assert!(matches!(send(51), Verdict::Refused { .. }), "{refused}");
    }
    assert_eq!([send(51), send(9_999)], [Verdict::Closed; 2], "the tenth in ten seconds");
}

#[test]
fn refusals_far_apart_close_nothing() {
    let (mut ladder, mut bucket) = socket(0);
    for turn in 0..100 {
        let now = at(turn * 11_000);
        let left = bucket.available(LIMIT, now);
        bucket.take(LIMIT, now, left).unwrap();
        assert!(matches!(ladder.message(now, message(Priority::Normal), LIMIT, &mut bucket), Verdict::Refused { .. }));
    }
}

#[test]
fn a_critical_message_is_taken_on_credit_and_refused_aloud_beyond_it() {
    let (mut ladder, mut bucket) = socket(0);
    let mut send = || ladder.message(at(0), message(Priority::Critical), LIMIT, &mut bucket);
    assert!((0..40).all(|_| send() == Verdict::Pass), "one burst of debt");
    assert!(matches!(send(), Verdict::Refused { .. }));
    assert!(matches!(
        ladder.message(at(1_999), message(Priority::Normal), LIMIT, &mut bucket),
        Verdict::Refused { .. }
    ));
    assert_eq!(ladder.message(at(2_050), message(Priority::Normal), LIMIT, &mut bucket), Verdict::Pass, "it is paid");
}

#[test]
fn whoever_comes_back_at_once_is_kept_out_longer_each_time() {
    let mut user = Reconnects::default();
    assert_eq!(user.open(at(0)), Ok(()));
    let mut now = at(0);
    let mut waits = Vec::new();
    for _ in 0..8 {
        user.closed(now, LIMIT);
        let wait = user.open(now).expect_err("kept out");
        waits.push(wait.as_secs());
        now = now.after(wait);
        assert_eq!(user.open(now), Ok(()), "true");
    }
    assert_eq!(waits, [4, 4, 4, 8, 16, 32, 60, 60], "two bursts take four seconds");
    assert!(!user.is_idle(now) && user.is_idle(now.after(Duration::from_secs(601))));
}

proptest! {
    /// Whatever comes: critical messages are neither dropped nor held, what is held is bounded and passes, and what passes is within the rate, with one burst of debt,
    /// also for a user who comes back as soon as it is let in, with a new bucket each time.
    #[test]
    fn nothing_is_gained(steps in prop::collection::vec((0u64..400, 0u8..3, prop::option::of(0u64..100)), 1..600)) {
        let rules = Rules { most_streams: 8, ..Rules::default() };
        let (mut now, mut user) = (at(0), Reconnects::default());
        let mut witness = Witness::new(LIMIT, LIMIT.burst, now);
        let (mut ladder, mut bucket) = (Ladder::new(rules, now), Bucket::full(LIMIT, now));
        for (millis, priority, stream) in steps {
            now = now.after(Duration::from_millis(if millis > 390 { millis * 20 } else { millis / 8 }));
            if ladder.is_closed() {
                if user.open(now).is_err() {
                    continue;
                }
                (ladder, bucket) = (Ladder::new(rules, now), Bucket::full(LIMIT, now));
            }
            let priority = [Priority::Droppable, Priority::Normal, Priority::Critical][usize::from(priority)];
            let verdict = ladder.message(now, Message { priority, stream, cost: 1 }, LIMIT, &mut bucket);
            let due = ladder.due(now, LIMIT, &mut bucket).len() as u64;
            prop_assert!(witness.admitted(now, u64::from(verdict == Verdict::Pass) + due).is_ok());
            prop_assert!(priority == Priority::Droppable || verdict != Verdict::Dropped);
            prop_assert!(priority != Priority::Critical || verdict != Verdict::Held);
            if verdict == Verdict::Closed {
                user.closed(now, LIMIT);
                prop_assert!(user.open(now).is_err());
            }
        }
    }
}

#[test]
fn what_others_have_used_up_closes_nobody_who_keeps_to_the_wait() {
    let refuse = |ladder: &mut Ladder, millis| ladder.refused(at(millis), Wait::For(Duration::from_millis(100)), false);
    let (mut patient, _) = socket(0);
    for turn in 0..100 {
        assert!(matches!(refuse(&mut patient, turn * 100), Verdict::Refused { .. }), "{turn}");
    }
    let (mut pushing, _) = socket(0);
    let closed = (0..100).position(|turn| refuse(&mut pushing, turn * 10) == Verdict::Closed);
    assert_eq!(closed, Some(10), "the first is told the wait, the next ten come early");
    assert_eq!(pushing.before(at(2_000), message(Priority::Normal), false), Some(Verdict::Closed));
}

#[test]
fn a_held_message_without_room_is_not_asked_for_at_once_again() {
    let (mut ladder, _) = socket(0);
    let value = Message { stream: Some(7), ..message(Priority::Normal) };
    assert_eq!(ladder.before(at(0), value, true), None, "the first of a stream");
    assert_eq!(ladder.before(at(1), value, true), Some(Verdict::Held));
    assert_eq!(ladder.due_streams(at(200)), [(7, 1)]);
    ladder.held_on(at(200), 7);
    assert_eq!((ladder.due_streams(at(201)), ladder.wakes_at()), (vec![], Some(at(400))));
    ladder.released(at(400), 7);
    assert_eq!(ladder.wakes_at(), None);
}
