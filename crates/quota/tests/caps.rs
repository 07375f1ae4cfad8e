//! Windows, caps, exact quotas, metering and plans.

use std::collections::VecDeque;
use std::time::Duration;

use holdfast_quota::caps::{Attempts, Running};
use holdfast_quota::exact::{Meter, Quota, Taken};
use holdfast_quota::limit::{Allowance, Limit};
use holdfast_quota::plan::{ByScope, For, Limits, Plan, Source, Unit};
use holdfast_quota::window::Window;
use holdfast_types::{ModelName, Mono};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn sixty_a_minute_are_never_a_hundred_and_twenty_in_two_seconds() {
    let mut window = Window::<7>::default();
    let pass = |w: &mut Window<7>, s: u64| (0..60).filter(|_| w.take(Mono(s * SECOND), MINUTE, 60, 1)).count();
    assert_eq!((pass(&mut window, 59), pass(&mut window, 60), pass(&mut window, 130)), (60, 0, 60));
}

#[test]
fn a_window_whose_clock_is_set_back_shuts_nobody_out_for_longer_than_itself() {
    let mut window = Window::<7>::default();
    assert!(window.take(Mono(200_000 * SECOND), MINUTE, 1, 1));
    assert!(!window.take(Mono(1_000 * SECOND), MINUTE, 1, 1), "what was counted still counts");
    assert!(window.take(Mono(1_080 * SECOND), MINUTE, 1, 1));
}

#[test]
fn a_lowered_cap_is_reached_as_what_runs_ends() {
    let mut running = Running::default();
    assert_eq!((0..5).filter(|_| running.start(Some(3))).count(), 3);
    running.end();
    assert!(!running.start(Some(2)));
    running.end();
    assert!(running.start(Some(2)) && !running.start(Some(0)) && running.start(None));
    assert_eq!(running.count(), 3);
}

#[test]
fn a_flood_of_addresses_has_bounded_memory_and_frees_nobody() {
    let limit = Limit::per_second(1, 2);
    let mut attempts = Attempts::new(limit, 100, Mono::ZERO);
    let mut pass = |at: u64, address: u128| attempts.attempt(Mono(at), address);
    assert_eq!([pass(0, 7), pass(0, 7), pass(0, 7)], [true, true, false]);
    let admitted = (1_000..11_000).filter(|address| pass(1, *address)).count();
    assert_eq!(admitted, 99 + 2, "each address of its own, and one bucket for the rest");
    assert!(!pass(2, 7));
    assert!(pass(3 * SECOND, 5_000_000), "addresses that are quiet make room");
    assert!(attempts.len() <= 100);
}

#[test]
fn a_decrement_that_is_repeated_is_done_once() {
    let mut quota = Quota::new(100, 2);
    assert_eq!(quota.take(1, 1, 60), Taken::Yes { left: 40 });
    assert_eq!(quota.take(1, 1, 60), Taken::Yes { left: 40 });
    assert_eq!(quota.take(2, 1, 60), Taken::No { left: 40 });
    quota.add(30);
    assert_eq!(quota.take(2, 1, 60), Taken::No { left: 40 }, "the same question has the same answer");
    assert_eq!(quota.take(2, 2, 60), Taken::Yes { left: 10 });
    assert_eq!((quota.take(2, 1, 1), quota.take(3, 1, 1)), (Taken::Stale, Taken::Crowded));
    quota.forget(1);
    assert_eq!((quota.take(3, 1, 10), quota.left()), (Taken::Yes { left: 0 }, 0));
}

#[test]
fn metering_loses_nothing_and_sends_a_batch_until_it_has_arrived() {
    let mut meter = Meter::new(2);
    for (key, units) in [("a", 1), ("b", 2), ("c", 4), ("a", 8)] {
        meter.add(&key, units);
    }
    let first = meter.batch().cloned().unwrap();
    assert_eq!((first.rows.clone(), first.others), (vec![("a", 9), ("b", 2)], 4));
    meter.add(&"c", 5);
    meter.arrived(first.number + 1);
    assert_eq!(meter.batch(), Some(&first));
    meter.arrived(first.number);
    let second = meter.batch().cloned().unwrap();
    assert_eq!((second.rows, second.others, second.number), (vec![("c", 5)], 0, first.number + 1));
    meter.arrived(second.number);
    assert_eq!(meter.batch(), None);
}

#[test]
fn what_is_more_specific_decides_field_by_field() {
    let model = |name: &str| ModelName::parse(name).unwrap();
    let requests = |n| Limits { requests: Some(Allowance::of(Limit::per_second(n, n))), ..Limits::default() };
    let tenant = |limits: Limits| ByScope { tenant: limits, ..ByScope::default() };
    let mut plan = Plan { limits: tenant(Limits { concurrency: Some(Some(8)), ..requests(100) }), ..Plan::default() };
    plan.models.insert(model("big"), tenant(requests(5)));
    plan.models.insert(model("free"), tenant(Limits { requests: Some(Allowance::Unlimited), ..Limits::default() }));
    plan.endpoints.insert("explain".into(), tenant(requests(0)));
    let of = |name: &str, endpoint: &str| plan.allowance(For::Tenant, Unit::Requests, &model(name), endpoint);
    let limited = |n| Allowance::Limited(Limit::per_second(n, n));
    assert_eq!(of("small", "infer"), (limited(100), Source::Plan));
    assert_eq!(of("big", "infer"), (limited(5), Source::Model));
    assert_eq!(of("free", "infer"), (Allowance::Unlimited, Source::Model));
    assert_eq!(of("big", "explain"), (Allowance::Nothing, Source::Endpoint));
    assert_eq!(plan.allowance(For::User, Unit::Bytes, &model("big"), "infer"), (Allowance::Unlimited, Source::Nobody));
    assert_eq!(plan.concurrency(For::Tenant, &model("big"), "infer"), (Some(8), Source::Plan));
}

proptest! {
    #[test]
    fn a_window_never_counts_too_little(
        most in 1u64..50, steps in prop::collection::vec((0u64..20 * SECOND, 1u64..10), 1..200),
    ) {
        let mut window = Window::<7>::default();
        let (mut now, mut admitted) = (0u64, VecDeque::<(u64, u64)>::new());
        for (pass, cost) in steps {
            now += pass;
            admitted.retain(|(at, _)| now - at < 60 * SECOND);
            let really: u64 = admitted.iter().map(|(_, cost)| cost).sum();
            prop_assert!(window.count(Mono(now), MINUTE) >= really);
            if window.take(Mono(now), MINUTE, most, cost) {
                admitted.push_back((now, cost));
                prop_assert!(really + cost <= most);
            }
        }
        // And it counts nothing for longer than a window and a part.
        prop_assert_eq!(window.count(Mono(now + 70 * SECOND), MINUTE), 0);
    }
}
