//! Traffic that is known, against a limit.

use std::time::Duration;

use holdfast_quota::limit::{Allowance, Limit};
use holdfast_quota::replay::Replay;
use holdfast_types::Mono;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_burst_passes_and_what_is_over_it_is_refused_with_its_wait() {
    let mut replay = Replay::new(Allowance::of(Limit::per_second(20, 40)), Mono(0));
    let passed = (0..50).filter(|_| replay.offer(Mono(0), 1)).count();
    assert!(replay.offer(Mono(SECOND / 20), 1), "a token is back");
    assert!(!replay.offer(Mono(SECOND), 41), "more than the burst never passes");
    let tally = replay.tally();
    assert_eq!((passed, tally.requests, tally.refused, tally.refused_cost, tally.never), (40, 52, 11, 51, 1));
    assert_eq!(tally.longest_wait, Duration::from_millis(50));
}

proptest! {
    #[test]
    fn what_passes_is_within_burst_and_rate(
        rate in 1u64..50, burst in 1u64..100, traffic in prop::collection::vec((0u64..SECOND, 0u64..10), 1..200),
    ) {
        let mut replay = Replay::new(Allowance::of(Limit::per_second(rate, burst)), Mono(0));
        let mut now = 0;
        for (pause, cost) in traffic {
            now += pause;
            replay.offer(Mono(now), cost);
        }
        let tally = replay.tally();
        let most = u128::from(burst) + u128::from(rate) * u128::from(now) / u128::from(SECOND);
        prop_assert!(u128::from(tally.cost - tally.refused_cost) <= most);
        prop_assert!(tally.refused <= tally.requests && tally.never <= tally.refused);
    }
}
