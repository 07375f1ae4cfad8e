//! The figures of a member change, against what counting keys says.

#![allow(clippy::expect_used, reason = "a test fails loudly")]

use holdfast_placement::members::{Member, MemberList};
use holdfast_placement::movement::{Share, least, modulo, ring, sampled, slots, spread};
use holdfast_placement::origin::Tier;
use holdfast_placement::owners::Owners;
use holdfast_placement::ring::Ring;
use holdfast_placement::slots::SlotMap;
use holdfast_types::{Revision, Weight};
use proptest::prelude::*;

fn nodes(set: u32, count: u32) -> MemberList {
    let list = (0..count).map(|i| Member::new(format!("node-{set}-{i}"), Weight(1))).collect();
    MemberList::new(Revision(1), list).expect("names differ")
}

fn ring_of(set: u32, count: u32, virtual_nodes: u32) -> Ring {
    Ring::new(nodes(set, count), virtual_nodes).expect("few points")
}

#[test]
fn modulo_moves_most_keys_and_the_others_the_least() {
    assert_eq!(modulo(4, 5), Share { parts: 16, of: 20 });
    assert_eq!(modulo(4, 3), Share { parts: 9, of: 12 });
    assert_eq!((least(4, 5).of_one(), least(4, 3).of_one()), (0.2, 0.25));
    for n in 1u32..40 {
        assert!((1.0 - modulo(n, n + 1).of_one() - 1.0 / f64::from(n + 1)).abs() < 1e-12, "keeps 1/(N+1)");
    }
}

#[test]
fn slots_move_the_least_to_the_slot() {
    let map = SlotMap::new(12, nodes(0, 4)).expect("few slots");
    assert_eq!(slots(&map, nodes(0, 5)), Share { parts: 819, of: 4096 });
    assert_eq!(slots(&map, nodes(0, 3)), Share { parts: 1024, of: 4096 });
}

#[test]
fn arcs_say_what_counting_keys_says() {
    for (from, to) in [(4, 5), (4, 3), (3, 7)] {
        let (before, after) = (ring_of(1, from, 100), ring_of(1, to, 100));
        let exact = ring(&before, &after).of_one();
        let counted = sampled(&Owners::Ring(before), &Owners::Ring(after), 20_000).of_one();
        assert!((exact - counted).abs() < 0.012, "{exact} and {counted}");
    }
    assert_eq!(ring(&ring_of(1, 4, 9), &ring_of(1, 4, 9)).parts, 0);
    assert_eq!(ring(&ring_of(1, 4, 9), &ring_of(2, 4, 9)), Share { parts: 1 << 64, of: 1 << 64 }, "nobody stays");
}

#[test]
fn the_spread_falls_with_the_root_of_the_virtual_nodes() {
    let over_sets = |virtual_nodes| {
        let all = (0..60).map(|set| spread(&ring_of(set, 10, virtual_nodes)));
        let (variance, largest) = all.fold((0.0, 0.0), |(v, l), s| (v + s.variance / 60.0, l + s.largest / 60.0));
        (variance.sqrt(), largest)
    };
    assert!((0.27..0.36).contains(&over_sets(10).0), "about a third: {:?}", over_sets(10));
    assert!((0.08..0.11).contains(&over_sets(100).0), "about a tenth: {:?}", over_sets(100));
    assert!(over_sets(1).1 > 2.0, "one node owns twice its share");
}

#[test]
fn the_worked_origin() {
    let tier = Tier { reads: 17_400.0, hit_rate: 0.57, ttl: 60.0 };
    let rounded = |value: f64| (value / 100.0).round() * 100.0;
    assert_eq!(rounded(tier.origin()), 7_500.0);
    assert_eq!([least(4, 3), modulo(4, 3)].map(|m| rounded(tier.extra(m.of_one()))), [2_500.0, 7_400.0]);
    let after = [least(4, 3), modulo(4, 3)].map(|m| rounded(tier.origin() + tier.extra(m.of_one())));
    assert_eq!(after, [10_000.0, 14_900.0]);
}

proptest! {
    #[test]
    fn modulo_is_what_counting_says(from in 1u32..30, to in 1u32..30) {
        let cycle = from * to;
        let moved = (0..cycle).filter(|hash| hash % from != hash % to).count();
        prop_assert!((modulo(from, to).of_one() - moved as f64 / f64::from(cycle)).abs() < 1e-12);
        prop_assert!(least(from, to).of_one() <= modulo(from, to).of_one() + 1e-12);
    }

    #[test]
    fn what_moves_on_a_ring_is_what_the_comers_own(from in 1u32..12, more in 1u32..6, virtual_nodes in 1u32..40) {
        let (few, many) = (ring_of(7, from, virtual_nodes), ring_of(7, from + more, virtual_nodes));
        let (joined, left) = (ring(&few, &many), ring(&many, &few));
        prop_assert_eq!(joined, left, "a join and the loss of the same are one movement");
        prop_assert!(joined.parts <= joined.of);
        let evenly = f64::from(more) / f64::from(from + more);
        prop_assert!(joined.of_one() <= evenly * spread(&many).largest + 1e-9);
    }

    #[test]
    fn the_extra_load_only_falls_and_is_gone_within_a_ttl(
        hit_rate in 0.0f64..=1.0, moved in 0.0f64..=1.0, ttl in 0.1f64..1e4, part in 0.0f64..1.0,
    ) {
        let tier = Tier { reads: 1_000.0, hit_rate, ttl };
        let later = tier.extra_after(moved, part * ttl);
        prop_assert!((0.0..=tier.extra(moved) + 1e-9).contains(&later));
        prop_assert!(tier.extra_after(moved, part * ttl + 0.01 * ttl) <= later + 1e-9);
        prop_assert!(tier.settled_after() <= ttl);
        prop_assert!(tier.extra_after(moved, tier.settled_after().max(1e-9) + 1e-6 * ttl) <= 1.0);
        prop_assert_eq!(tier.extra_after(moved, 0.0), if hit_rate > 0.0 { 1_000.0 * moved * hit_rate } else { 0.0 });
    }
}
