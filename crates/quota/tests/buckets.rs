//! Buckets and scopes: the promise RATE-1 over any interval, clocks that jump, refunds, and all or nothing.

use std::time::Duration;

use holdfast_quota::bucket::{Bucket, Metered, Purse, Wait};
use holdfast_quota::limit::{Allowance, Limit, Rate};
use holdfast_quota::rate1::Witness;
use holdfast_quota::scopes::{Gate, Reserved, Scope, give_back_all, retry_after_secs, take_all};
use holdfast_types::Mono;
use proptest::prelude::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn metered(rate: u64, burst: u64) -> Metered {
    Metered::new(Allowance::of(Limit::per_second(rate, burst)), Mono::ZERO)
}

#[test]
fn two_numbers_of_state() {
    assert!(size_of::<Bucket>() <= 32);
}

#[test]
fn no_burst_at_the_edge_of_a_window() {
    // A fixed window of 1,000 per second lets 2,000 pass in 20 ms around the edge.
    let limit = Limit::per_second(1_000, 1_000);
    let mut bucket = Bucket::full(limit, Mono::ZERO);
    let admitted =
        |bucket: &mut Bucket, at: u64| (0..1_000).filter(|_| bucket.take(limit, Mono(at), 1).is_ok()).count();
    let before = admitted(&mut bucket, 990 * MS);
    let after = admitted(&mut bucket, 1_010 * MS);
    assert_eq!((before, after), (1_000, 20));
}

#[test]
fn a_connection_of_20_a_second_with_a_burst_of_40() {
    let mut purse = metered(20, 40);
    assert_eq!((0..100).filter(|_| purse.take(Mono::ZERO, 1).is_ok()).count(), 40);
    assert_eq!(purse.take(Mono::ZERO, 1), Err(Wait::For(Duration::from_millis(50))));
    assert_eq!(purse.take(Mono(50 * MS - 1), 1), Err(Wait::For(Duration::from_nanos(1))));
    assert_eq!(purse.take(Mono(50 * MS), 1), Ok(()));
    assert_eq!(purse.take(Mono(50 * MS), 41), Err(Wait::Never));
}

#[test]
fn twenty_large_messages_are_not_twenty_small_ones() {
    let (mut messages, mut bytes) = (metered(20, 40), metered(1 << 20, 2 << 20));
    let mut pass = |size: u64| {
        let gates = [Gate::new(Scope::Connection, &mut messages, 1), Gate::new(Scope::Connection, &mut bytes, size)];
        take_all(Mono::ZERO, &mut { gates }).is_ok()
    };
    assert_eq!((0..20).filter(|_| pass(1 << 20)).count(), 2);
    assert_eq!(messages.available(Mono::ZERO), Some(38), "a message that its bytes held back costs no message");
}

#[test]
fn a_user_over_the_limit_takes_nothing_from_the_tenant() {
    let mut tenant = metered(1_000, 1_000);
    let (mut greedy, mut quiet) = (metered(10, 10), metered(10, 10));
    let mut pass = |user: &mut Metered| {
        take_all(Mono::ZERO, &mut [Gate::new(Scope::User, user, 1), Gate::new(Scope::Tenant, &mut tenant, 1)])
    };
    assert_eq!((0..5_000).filter(|_| pass(&mut greedy).is_ok()).count(), 10);
    assert_eq!(pass(&mut greedy).unwrap_err().scope, Scope::User);
    assert_eq!(pass(&mut quiet), Ok(0));
    assert_eq!(tenant.available(Mono::ZERO), Some(989));
}

#[test]
fn a_refusal_at_a_later_scope_gives_back_what_the_earlier_took() {
    let (mut connection, mut user, mut tenant) = (metered(20, 40), metered(50, 50), metered(5, 5));
    let pass = |cost: u64, connection: &mut Metered, user: &mut Metered, tenant: &mut Metered| {
        let mut gates = [
            Gate::new(Scope::Connection, connection, cost),
            Gate::new(Scope::User, user, cost),
            Gate::new(Scope::Tenant, tenant, cost),
        ];
        take_all(Mono::ZERO, &mut gates).map_err(|refused| refused.gate)
    };
    assert_eq!(pass(5, &mut connection, &mut user, &mut tenant), Ok(0));
    assert_eq!(pass(1, &mut connection, &mut user, &mut tenant), Err(2));
    assert_eq!([&connection, &user, &tenant].map(|m| m.available(Mono::ZERO)), [Some(35), Some(45), Some(0)]);
}

#[test]
fn shadow_mode_counts_and_refuses_nothing() {
    let (mut user, mut tenant) = (metered(10, 10), Metered::new(Allowance::Nothing, Mono::ZERO));
    let mut pass = |shadow: bool| {
        let gates = [Gate::new(Scope::User, &mut user, 1), Gate::new(Scope::Tenant, &mut tenant, 1).shadowed(shadow)];
        take_all(Mono::ZERO, &mut { gates }).map_err(|refused| (refused.scope, refused.wait))
    };
    assert_eq!(pass(true), Ok(0b10));
    assert_eq!(pass(false), Err((Scope::Tenant, Wait::Never)));
    assert_eq!(user.available(Mono::ZERO), Some(9));
}

#[test]
fn what_was_not_sent_is_put_back_once() {
    let mut tenant = metered(10, 10);
    {
        let mut gates = [Gate::new(Scope::Tenant, &mut tenant, 4)];
        assert_eq!(take_all(Mono::ZERO, &mut gates), Ok(0));
        give_back_all(Mono::ZERO, &mut gates);
        give_back_all(Mono::ZERO, &mut gates);
    }
    assert!(tenant.take(Mono::ZERO, 10).is_ok());
    assert!(tenant.take(Mono::ZERO, 1).is_err());
}

#[test]
fn a_refund_counts_when_empty_and_never_passes_the_burst() {
    let mut purse = metered(1, 10);
    assert!(purse.take(Mono::ZERO, 10).is_ok());
    purse.give_back(Mono::ZERO, 5);
    assert_eq!(purse.available(Mono::ZERO), Some(5));
    purse.give_back(Mono::ZERO, 50);
    assert_eq!(purse.available(Mono::ZERO), Some(10));
}

#[test]
fn estimates_are_reserved_before_and_settled_after() {
    // 100 tokens a second: of five calls beside one another, each estimated at 40, two run.
    let mut purse = metered(100, 100);
    let running: Vec<Reserved> = (0..5).filter_map(|_| Reserved::take(&mut purse, Mono::ZERO, 40).ok()).collect();
    assert_eq!(running.len(), 2);
    for (call, used) in running.into_iter().zip([10, 150]) {
        call.settle(&mut purse, Mono::ZERO, used);
    }
    // 100 - 10 - 150 are 60 of debt.
    assert_eq!(purse.take(Mono::ZERO, 1), Err(Wait::For(Duration::from_millis(610))));
    // A stream of 1,000 is charged while it runs, and its debt is one burst at most.
    let mut stream = Reserved::take(&mut purse, Mono(2 * SECOND), 10).unwrap();
    stream.used_so_far(&mut purse, Mono(2 * SECOND), 500);
    stream.settle(&mut purse, Mono(2 * SECOND), 1_000);
    assert_eq!(purse.take(Mono(2 * SECOND), 1), Err(Wait::For(Duration::from_millis(1_010))));
}

#[test]
fn a_changed_limit_keeps_what_is_in_use() {
    let mut purse = metered(1_000, 1_000);
    assert!(purse.take(Mono::ZERO, 700).is_ok());
    purse.change(Allowance::of(Limit::per_second(800, 800)), Mono::ZERO);
    assert_eq!(purse.available(Mono::ZERO), Some(100));
    purse.change(Allowance::of(Limit { rate: Rate::new(7, Duration::from_secs(3)), burst: 2_000 }), Mono::ZERO);
    assert_eq!(purse.available(Mono::ZERO), Some(1_300));
    purse.change(Allowance::of(Limit::per_second(5, 5)), Mono::ZERO);
    assert_eq!(purse.available(Mono::ZERO), Some(0));
    assert_eq!(purse.take(Mono::ZERO, 1), Err(Wait::For(Duration::from_millis(200))));
}

#[test]
fn zero_refuses_and_unlimited_does_not() {
    let mut nothing = Metered::new(Allowance::Nothing, Mono::ZERO);
    assert_eq!((nothing.take(Mono(SECOND), 1), nothing.take(Mono(SECOND), 0)), (Err(Wait::Never), Ok(())));
    let mut unlimited = Metered::new(Allowance::Unlimited, Mono::ZERO);
    assert_eq!((unlimited.take(Mono::ZERO, u64::MAX), unlimited.available(Mono::ZERO)), (Ok(()), None));
}

#[test]
fn retry_after_is_whole_seconds() {
    let of = |ms| retry_after_secs(Wait::For(Duration::from_millis(ms)));
    assert_eq!([of(0), of(1), of(1_000), of(1_001)], [Some(1), Some(1), Some(1), Some(2)]);
    assert_eq!(retry_after_secs(Wait::Never), None);
}

#[test]
fn a_clock_that_jumps_locks_nobody_out_and_gives_one_burst_at_most() {
    let limit = Limit::per_second(10, 20);
    let day = 86_400 * SECOND;
    for jump in [-2 * i128::from(day), 2 * i128::from(day), -11 * i128::from(SECOND), 11 * i128::from(SECOND)] {
        let start = 10 * day;
        let mut bucket = Bucket::empty(Mono(start));
        let there = u64::try_from(i128::from(start) + jump).unwrap();
        let at_once = bucket.take_up_to(limit, Mono(there), u64::MAX);
        assert!(at_once <= if jump < 0 { 0 } else { 20 }, "{jump}: {at_once}");
        // After the time of two whole refills it goes on as ever, in the new time.
        bucket.take_up_to(limit, Mono(there + 4 * SECOND), u64::MAX);
        assert_eq!(bucket.take_up_to(limit, Mono(there + 5 * SECOND), u64::MAX), 10, "{jump}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Take(u64),
    TakeAndGiveBack(u64),
    Fill(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..3 * SECOND).prop_map(Step::Pass),
        (0..2 * MS).prop_map(Step::Pass),
        (0u64..30).prop_map(Step::Take),
        (0u64..30).prop_map(Step::TakeAndGiveBack),
        (0u64..50).prop_map(Step::Fill),
    ]
}

proptest! {
    #[test]
    fn admitted_in_any_interval_is_at_most_burst_plus_rate_times_time(
        rate in 1u64..5_000, per in 1u64..5_000, burst in 1u64..100, steps in prop::collection::vec(step(), 1..200),
    ) {
        let limit = Limit { rate: Rate::new(rate, Duration::from_millis(per)), burst };
        let mut now = Mono(SECOND);
        let mut bucket = Bucket::full(limit, now);
        let mut witness = Witness::new(limit, 0, now);
        for step in steps {
            match step {
                Step::Pass(nanos) => now = Mono(now.0 + nanos),
                Step::Take(cost) => if bucket.take(limit, now, cost).is_ok() {
                    prop_assert_eq!(witness.admitted(now, cost), Ok(()));
                }
                Step::TakeAndGiveBack(cost) => if bucket.take(limit, now, cost).is_ok() {
                    bucket.give_back(limit, now, cost);
                }
                Step::Fill(most) => {
                    let taken = bucket.take_up_to(limit, now, most);
                    prop_assert_eq!(witness.admitted(now, taken), Ok(()));
                }
            }
            prop_assert!(bucket.available(limit, now) <= burst);
        }
    }

    #[test]
    fn a_wait_is_exact(rate in 1u64..100_000, burst in 1u64..1_000, used in 0u64..1_000, cost in 1u64..1_000) {
        let limit = Limit::per_second(rate, burst);
        let mut bucket = Bucket::full(limit, Mono::ZERO);
        bucket.take_up_to(limit, Mono::ZERO, used);
        match bucket.wait(limit, Mono::ZERO, cost) {
            Wait::Never => prop_assert!(cost > burst),
            Wait::For(Duration::ZERO) => prop_assert!(bucket.take(limit, Mono::ZERO, cost).is_ok()),
            Wait::For(span) => {
                prop_assert!(bucket.take(limit, Mono::ZERO.after(span - Duration::from_nanos(1)), cost).is_err());
                prop_assert!(bucket.take(limit, Mono::ZERO.after(span), cost).is_ok());
            }
        }
    }

    #[test]
    fn any_clock_at_all_neither_panics_nor_gives_more_than_a_burst_at_once(
        rate in 0u64.., per in 0u64.., burst in 0u64.., times in prop::collection::vec(any::<u64>(), 1..50), amount in any::<u64>(),
    ) {
        let limit = Limit { rate: Rate::new(rate, Duration::from_nanos(per)), burst };
        let mut bucket = Bucket::full(limit, Mono::ZERO);
        for at in times {
            prop_assert!(bucket.take_up_to(limit, Mono(at), u64::MAX) <= burst);
            bucket.charge(limit, Mono(at), amount);
            bucket.give_back(limit, Mono(at), amount);
            let _ = bucket.wait(limit, Mono(at), amount);
            bucket.change(limit, Limit { rate: limit.rate.divided(3), burst: amount }, Mono(at));
            bucket.change(Limit { rate: limit.rate.divided(3), burst: amount }, limit, Mono(at));
            prop_assert!(bucket.available(limit, Mono(at)) <= burst);
        }
    }
}
