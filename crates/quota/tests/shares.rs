//! Floors and what is lent.

use holdfast_quota::shares::{floors, lent};
use proptest::prelude::*;

#[test]
fn the_worked_floors_and_what_is_lent() {
    assert_eq!(floors(1_000, &[1, 2, 5]), [125, 250, 625]);
    assert_eq!(lent(1_000, &[1, 2, 5], &[u64::MAX; 3]), [125, 250, 625], "all saturating: the floors");
    assert_eq!(lent(1_000, &[1, 2, 5], &[1_000, 1_000, 0]), [333, 667, 0], "idle share is lent by weight");
    assert_eq!(lent(1_000, &[1, 2, 5], &[2_000, 0, 0]), [1_000, 0, 0], "to whoever can use it");
    assert_eq!(lent(1_000, &[1, 2, 5], &[100, 100, 100]), [100, 100, 100], "and no more than is asked for");
    assert_eq!(floors(10, &[0, 0]), [0, 0]);
}

proptest! {
    #[test]
    fn shares_are_floors_and_nothing_is_wasted(
        capacity in 0u64..10_000,
        who in prop::collection::vec((1u32..20, 0u64..5_000), 1..12),
    ) {
        let (weights, demands): (Vec<u32>, Vec<u64>) = who.into_iter().unzip();
        let (floor, got) = (floors(capacity, &weights), lent(capacity, &weights, &demands));
        prop_assert_eq!(floor.iter().sum::<u64>(), capacity);
        prop_assert_eq!(got.iter().sum::<u64>(), capacity.min(demands.iter().sum()), "all that is wanted, or all that is there");
        let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        for (index, got) in got.iter().enumerate() {
            prop_assert!(*got <= demands[index]);
            let even = capacity * u64::from(weights[index]) / total;
            prop_assert!(*got >= even.min(demands[index]), "a floor holds");
        }
    }
}
