//! What a shape promises, how often it is there, how long it takes.

#![allow(clippy::unwrap_used, reason = "a test fails loudly")]

use holdfast_quorum::availability::{Group, availability, grouped, independent, unavailability};
use holdfast_quorum::latency::{Fleet, Latency, LatencyError};
use holdfast_quorum::shape::{MAX_REPLICAS, Quorum, ShapeError, Side};
use proptest::prelude::*;

#[test]
fn the_worked_shapes() {
    for ((n, w, r), overlap, writes, reads) in
        [((5, 3, 3), 1, 2, 2), ((3, 2, 2), 1, 1, 1), ((3, 1, 1), 0, 2, 2), ((5, 1, 1), 0, 4, 4)]
    {
        let shape = Quorum::new(n, r, w).unwrap();
        assert_eq!((shape.overlap(), shape.losses_for_writes(), shape.losses_for_reads()), (overlap, writes, reads));
    }
}

#[test]
fn of_a_cut_only_the_side_with_enough_serves() {
    let majority = Quorum::new(5, 3, 3).unwrap();
    assert_eq!(majority.side(3), Side { reads: true, writes: true });
    assert_eq!(majority.side(2), Side { reads: false, writes: false });
    assert!(!majority.diverges_when_cut());
    assert!(Quorum::new(5, 1, 1).unwrap().diverges_when_cut());
    assert!(Quorum::new(4, 3, 2).unwrap().diverges_when_cut(), "2 of 4 are on either side of 2|2");
}

#[test]
fn nonsense_is_refused() {
    assert_eq!(Quorum::new(0, 1, 1), Err(ShapeError::Replicas(0)));
    assert_eq!(Quorum::new(MAX_REPLICAS + 1, 1, 1), Err(ShapeError::Replicas(MAX_REPLICAS + 1)));
    assert_eq!(Quorum::new(5, 0, 3), Err(ShapeError::Reads { r: 0, n: 5 }));
    assert_eq!(Quorum::new(5, 3, 6), Err(ShapeError::Writes { w: 6, n: 5 }));
    assert_eq!(Latency::new(&[]), Err(LatencyError::Empty));
    assert!(Latency::new(&[(0.5, f64::NAN)]).is_err());
    assert!(Latency::new(&[(1.2, 1.0)]).is_err());
    assert!(Latency::new(&[(0.5, 2.0), (0.9, 2.0)]).is_err());
}

/// In units of a millionth: 0.0030 %, 0.1158 %, 2.2593 % of n = 5, a = 0.95.
#[test]
fn the_worked_availability() {
    let up = independent(5, 0.95);
    let millionths = |k| (unavailability(&up, k) * 1e6).round();
    assert_eq!([2, 3, 4].map(millionths), [30.0, 1_158.0, 22_593.0]);
}

#[test]
fn groups_that_never_fail_change_nothing_and_one_group_is_the_ceiling() {
    let groups = |up| [Group { replicas: 2, up }, Group { replicas: 2, up }, Group { replicas: 1, up }];
    for k in 0..=5 {
        let (alone, together) = (independent(5, 0.95), grouped(&groups(1.0), 0.95));
        assert!((availability(&alone, k) - availability(&together, k)).abs() < 1e-12);
    }
    let one = grouped(&[Group { replicas: 5, up: 0.99 }], 0.95);
    assert!((unavailability(&one, 3) - (0.01 + 0.99 * unavailability(&independent(5, 0.95), 3))).abs() < 1e-12);
}

#[test]
fn the_kth_fastest_of_a_uniform_distribution_is_what_the_books_say() {
    let uniform = Latency::new(&[(1.0, 6.0)]).unwrap();
    let fleet = Fleet { latency: &uniform, distances: &[0.0; 5] };
    for k in 1..=5 {
        // The mean of the k-th of n uniform draws is k / (n + 1).
        assert!((fleet.mean(k) - f64::from(k)).abs() < 1e-3, "{k}: {}", fleet.mean(k));
    }
    let slowest = fleet.quantile(5, 0.99);
    assert!((slowest - 6.0 * 0.99f64.powf(0.2)).abs() < 1e-6, "{slowest}");
}

#[test]
fn distance_rules_between_regions() {
    let latency = Latency::new(&[(0.5, 2.0), (0.99, 10.0), (1.0, 30.0)]).unwrap();
    let fleet = Fleet { latency: &latency, distances: &[0.0, 0.0, 40.0, 80.0, 80.0] };
    assert!(fleet.quantile(2, 0.99) < 40.0);
    assert!((40.0..80.0).contains(&fleet.quantile(3, 0.99)));
    assert!(fleet.quantile(4, 0.5) > 80.0);
}

proptest! {
    #[test]
    fn chances_are_chances_and_monotone(n in 1u32..30, a in 0.0f64..=1.0, more in 0.0f64..=1.0, g in 0.0f64..=1.0) {
        let better = a + (1.0 - a) * more;
        let (up, higher) = (independent(n, a), independent(n, better));
        let apart = grouped(&[Group { replicas: n, up: g }], a);
        let mut before = 1.0 + 1e-9;
        for k in 0..=n {
            let is = availability(&up, k);
            prop_assert!((0.0..=1.0).contains(&is));
            prop_assert!((is + unavailability(&up, k) - 1.0).abs() < 1e-9);
            prop_assert!(is <= before + 1e-9, "needing more is never likelier");
            prop_assert!(availability(&higher, k) >= is - 1e-9, "better replicas never make it worse");
            prop_assert!(availability(&apart, k) <= is + 1e-9, "a shared fate never makes it better");
            before = is;
        }
    }

    #[test]
    fn overlap_is_what_counting_says(n in 1u32..8, r in 1u32..8, w in 1u32..8) {
        prop_assume!(r <= n && w <= n);
        let shape = Quorum::new(n, r, w).unwrap();
        let sets = |size: u32| (0u32..1 << n).filter(move |set| set.count_ones() == size);
        let least = sets(r).flat_map(|a| sets(w).map(move |b| (a & b).count_ones())).min();
        prop_assert_eq!(least, Some(shape.overlap()));
        let splits = (0..=n).any(|side| shape.side(side).writes && shape.side(n - side).writes);
        prop_assert_eq!(splits, shape.diverges_when_cut());
    }

    #[test]
    fn waiting_for_more_takes_longer(k in 1u32..5, far in 0.0f64..100.0, q in 0.01f64..0.999) {
        let latency = Latency::new(&[(0.0, 1.0), (0.5, 2.0), (0.99, 10.0), (1.0, 30.0)]).unwrap();
        let distances = [0.0, 0.0, far, far, far];
        let fleet = Fleet { latency: &latency, distances: &distances };
        prop_assert!(fleet.quantile(k, q) <= fleet.quantile(k + 1, q));
        prop_assert!((1.0 - 1e-9..=fleet.longest()).contains(&fleet.quantile(k, q)));
        prop_assert!(fleet.within(k, fleet.quantile(k, q)) >= q - 1e-6);
    }
}
