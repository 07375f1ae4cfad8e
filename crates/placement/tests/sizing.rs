//! Who should have how many replicas, how often a layout overflows, and how often something is loaded.

#![allow(clippy::expect_used, reason = "a test fails loudly")]

use holdfast_placement::cold::{Asked, loads};
use holdfast_placement::fit::{Pin, fit, left_alone};
use holdfast_placement::layouts::Case;
use holdfast_placement::proposal::{Terms, Wish, propose};
use holdfast_types::Bytes;
use proptest::prelude::*;

const GB: u64 = 1_000_000_000;
const WORKED: Case = Case { versions: 400, size: Bytes(2 * GB), replicas: 60, memory: Bytes(24 * GB) };

#[test]
fn one_copy_overflows_somewhere_in_two_of_three_layouts() {
    let found = WORKED.overflow(&[1, 3], 100).expect("few replicas");
    assert!((0.57..0.77).contains(&found[0].any), "{found:?}");
    assert!((0.01..0.03).contains(&found[0].one), "{found:?}");
    assert_eq!(found[1].any, 1.0, "2,400 GB are not in 1,440 GB");
}

#[test]
fn the_heavy_get_more_and_the_tail_one_or_two() {
    let orders = WORKED.orders(0, 16).expect("few replicas");
    let wishes: Vec<Wish<'_>> = (0u32..)
        .zip(&orders)
        .map(|(version, order)| Wish { version, order, traffic: 1_000_000 / (u64::from(version) + 1) })
        .collect();
    let total: u64 = wishes.iter().map(|w| w.traffic).sum();
    let terms = Terms { most: 16, first: 1, enough: total / 60 / 4, reserve: Bytes(2 * GB) };
    let (memories, sizes) = (vec![Some(WORKED.memory); 60], vec![WORKED.size; 400]);
    let ks = propose(&memories, &sizes, &wishes, terms);
    assert!(ks[0] > 4, "{ks:?}");
    assert!(ks[200..].iter().all(|k| (1..=2).contains(k)), "{ks:?}");
    let pins: Vec<Pin<'_>> =
        wishes.iter().zip(&ks).map(|(w, k)| Pin { version: w.version, order: w.order, k: *k }).collect();
    let proposed = fit(&memories, &sizes, &pins);
    let one_each: Vec<Pin<'_>> = pins.iter().map(|p| Pin { k: 1, ..*p }).collect();
    let over = |fit: &holdfast_placement::fit::Fit| fit.overflows().collect::<Vec<_>>();
    assert_eq!(over(&proposed), over(&fit(&memories, &sizes, &one_each)), "growth overflows nobody");
}

#[test]
fn two_copies_of_everything_come_before_the_third_of_the_heaviest() {
    // Four replicas, on each of which two places are used by the first two copies: the heavy key would have taken all four.
    let orders = [[0, 1, 2, 3], [2, 3, 0, 1], [3, 2, 1, 0], [1, 0, 3, 2]];
    let all: Vec<Wish<'_>> = (0u32..)
        .zip(orders.iter().zip([900, 5, 4, 3]))
        .map(|(version, (order, traffic))| Wish { version, order, traffic })
        .collect();
    let tight = |first| {
        propose(&[Some(Bytes(3)); 4], &[Bytes(1); 4], &all, Terms { most: 4, first, enough: 10, reserve: Bytes(1) })
    };
    assert_eq!(tight(2), [2, 2, 2, 2], "everything twice; no room is left for a third");
    assert_eq!(tight(1), [4, 1, 1, 2], "the heavy key first, and others get less");
}

#[test]
fn whose_loss_leaves_which_key_alone() {
    let pins = [
        Pin { version: 0, order: &[2, 0], k: 1 },
        Pin { version: 0, order: &[2, 1], k: 2 },
        Pin { version: 1, order: &[0], k: 2 },
        Pin { version: 1, order: &[], k: 1 },
    ];
    let found = fit(&[None; 3], &[Bytes(1); 2], &pins);
    assert_eq!(left_alone(&found, &pins), [vec![2], vec![], vec![0]]);
}

#[test]
fn loads_are_none_where_all_fits_and_all_where_nothing_does() {
    let versions = vec![Asked { size: Bytes(2), rate: 3.0 }; 10];
    assert_eq!(loads(Bytes(20), &versions), 0.0);
    assert!((loads(Bytes(0), &versions) - 30.0).abs() < 1e-6);
    // Equal rates: what is held is what is hit, 8 of 10.
    assert!((loads(Bytes(16), &versions) - 6.0).abs() < 0.01, "{}", loads(Bytes(16), &versions));
}

proptest! {
    #[test]
    fn more_memory_never_loads_more(rates in prop::collection::vec(0.0f64..100.0, 1..20), memory in 0u64..40, more in 0u64..20) {
        let versions: Vec<Asked> = rates.iter().map(|rate| Asked { size: Bytes(2), rate: *rate }).collect();
        let (less, enough) = (loads(Bytes(memory), &versions), loads(Bytes(memory + more), &versions));
        prop_assert!(less <= rates.iter().sum::<f64>() + 1e-9);
        prop_assert!(enough <= less + 1e-6, "{enough} after {less}");
    }

    #[test]
    fn more_replicas_never_fit_worse(versions in 1u32..40, replicas in 1u32..12, more in 1u32..6, set in 0u32..50) {
        let case = Case { versions, size: Bytes(1), replicas, memory: Bytes(8) };
        let larger = Case { replicas: replicas + more, ..case };
        let held = |case: &Case| {
            let fit = case.lay_out(&case.orders(set, 1).expect("few replicas"), 1);
            (fit.fits_on_average(), fit.overflows().map(|(_, over)| over.0).sum::<u64>(), fit)
        };
        let (before, after) = (held(&case), held(&larger));
        prop_assert!(after.0 || !before.0);
        // A join takes keys from others and gives them none, so only the new ones may overflow by what they took.
        let name = |case: &Case, index: usize| {
            let mut names: Vec<String> = (0..case.replicas).map(|i| Case::replica(set, i)).collect();
            names.sort();
            names[index].clone()
        };
        for (index, replica) in before.2.replicas.iter().enumerate() {
            let same = (0..larger.replicas as usize).find(|i| name(&larger, *i) == name(&case, index));
            prop_assert!(after.2.replicas[same.expect("it stays")].needed <= replica.needed);
        }
    }

    #[test]
    fn a_proposal_is_within_its_terms(
        traffic in prop::collection::vec(0u64..1_000, 1..30), replicas in 1u32..8, memory in 0u64..30, most in 1usize..6,
        first in 1usize..4,
    ) {
        let versions = u32::try_from(traffic.len()).expect("few");
        let case = Case { versions, size: Bytes(2), replicas, memory: Bytes(memory) };
        let orders = case.orders(0, 8).expect("few replicas");
        let wishes: Vec<Wish<'_>> = (0u32..)
            .zip(orders.iter().zip(&traffic))
            .map(|(version, (order, traffic))| Wish { version, order, traffic: *traffic })
            .collect();
        let terms = Terms { most, first, enough: 50, reserve: Bytes(2) };
        let memories = vec![Some(Bytes(memory)); replicas as usize];
        let sizes = vec![Bytes(2); traffic.len()];
        let ks = propose(&memories, &sizes, &wishes, terms);
        prop_assert!(ks.iter().all(|k| (1..=most.min(replicas as usize)).contains(k)), "{ks:?}");
        let lay = |k: &dyn Fn(usize) -> usize| {
            let pins = wishes.iter().enumerate().map(|(i, w)| Pin { version: w.version, order: w.order, k: k(i) });
            fit(&memories, &sizes, &pins.collect::<Vec<_>>()).overflows().collect::<Vec<_>>()
        };
        prop_assert_eq!(lay(&|i| ks[i]), lay(&|_| 1), "growth overflows nobody");
    }
}
