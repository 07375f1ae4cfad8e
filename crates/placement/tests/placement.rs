//! Who owns a key: shares, movement and order, for the ring, rendezvous and the slot map alike.

#![allow(clippy::expect_used, reason = "a test fails loudly")]

use holdfast_placement::hash::{Purpose, stable_hash};
use holdfast_placement::members::{Member, MemberList};
use holdfast_placement::owners::Owners;
use holdfast_placement::rendezvous::Rendezvous;
use holdfast_placement::ring::{Ring, VIRTUAL_NODES};
use holdfast_placement::slots::{SlotError, SlotMap};
use holdfast_placement::subset::subset;
use holdfast_types::{Revision, Weight};
use proptest::prelude::*;

const KEYS: u64 = 6_000;

fn key(i: u64) -> u64 {
    stable_hash(Purpose::CacheKey, &[i.to_le_bytes()])
}

fn members(weights: &[(&str, u32)]) -> MemberList {
    let list = weights.iter().map(|(name, weight)| Member::new(*name, Weight(*weight))).collect();
    MemberList::new(Revision(1), list).expect("names differ")
}

fn even(n: usize, seed: u64) -> MemberList {
    let list = (0..n).map(|i| Member::new(format!("node-{seed}-{i}"), Weight(1))).collect();
    MemberList::new(Revision(1), list).expect("names differ")
}

fn ring(members: &MemberList) -> Owners {
    Owners::Ring(Ring::new(members.clone(), VIRTUAL_NODES).expect("few points"))
}

fn rendezvous(members: &MemberList) -> Owners {
    Owners::Rendezvous(Rendezvous::new(members.clone()))
}

fn slots(members: &MemberList) -> Owners {
    Owners::Slots(SlotMap::new(10, members.clone()).expect("few slots"))
}

fn name_of(owners: &Owners, key: u64) -> String {
    let index = owners.owner(key).expect("somebody owns it");
    owners.members().get(index).expect("a member").name.to_string()
}

/// The share of keys that changed owner, and whether each change has `who` on the given side.
fn moved(before: &Owners, after: &Owners, only: impl Fn(&str, &str) -> bool) -> f64 {
    let mut count = 0;
    for i in 0..KEYS {
        let (a, b) = (name_of(before, key(i)), name_of(after, key(i)));
        if a != b {
            assert!(only(&a, &b), "key {i} moved from {a} to {b}");
            count += 1;
        }
    }
    f64::from(count) / KEYS as f64
}

#[test]
fn a_join_moves_its_share_and_only_to_the_new_member() {
    for make in [ring, rendezvous] {
        for n in [4usize, 10] {
            let before = even(n, 1);
            let mut list = before.members().to_vec();
            list.push(Member::new("new", Weight(1)));
            let after = MemberList::new(Revision(2), list).expect("names differ");
            let share = moved(&make(&before), &make(&after), |_, to| to == "new");
            let want = 1.0 / (n as f64 + 1.0);
            assert!((share - want).abs() < 0.3 * want, "{share} of {want} with {n}");
        }
    }
}

#[test]
fn a_loss_moves_its_share_and_only_from_the_lost_member() {
    for make in [ring, rendezvous] {
        for n in [4usize, 10] {
            let before = even(n, 2);
            let lost = before.members()[1].name.to_string();
            let list = before.members().iter().filter(|m| *m.name != *lost).cloned().collect();
            let after = MemberList::new(Revision(2), list).expect("names differ");
            let share = moved(&make(&before), &make(&after), |from, _| from == lost);
            let want = 1.0 / n as f64;
            assert!((share - want).abs() < 0.3 * want, "{share} of {want} with {n}");
        }
    }
}

#[test]
fn ring_shares_deviate_by_a_tenth_at_100_virtual_nodes_and_by_the_root_of_it_else() {
    // The exact share of each member is the length of its arcs; the deviation is taken over 10 members and many seeds.
    for (nodes, low, high) in [(10, 0.25, 0.38), (100, 0.08, 0.12), (1000, 0.025, 0.04)] {
        let (mut sum, mut count) = (0.0, 0.0);
        for seed in 0..if nodes == 1000 { 8 } else { 30 } {
            let members = even(10, seed);
            let owners = Owners::Ring(Ring::new(members, nodes).expect("few points"));
            let mut shares = [0.0f64; 10];
            for i in 0..KEYS {
                // Evenly spread positions measure arcs, without the noise of random keys.
                shares[owners.owner(i * (u64::MAX / KEYS)).expect("an owner") as usize] += 10.0 / KEYS as f64;
            }
            sum += shares.iter().map(|s| (s - 1.0).powi(2)).sum::<f64>();
            count += 10.0;
        }
        let deviation = (sum / count).sqrt();
        assert!((low..high).contains(&deviation), "{deviation} at {nodes}");
    }
}

#[test]
fn shares_follow_weights_and_weight_zero_owns_nothing() {
    let list = members(&[("a", 1), ("b", 2), ("c", 5), ("none", 0)]);
    for (make, tolerance) in [(ring as fn(&MemberList) -> Owners, 0.25), (rendezvous, 0.08), (slots, 0.08)] {
        let owners = make(&list);
        let mut counts = [0u32; 4];
        for i in 0..KEYS {
            let order = owners.order(key(i));
            assert_eq!(order.len(), 3, "all with a weight are in the order, once each");
            counts[order[0] as usize] += 1;
        }
        for (count, weight) in counts.iter().zip([1.0, 2.0, 5.0, 0.0]) {
            let want = KEYS as f64 * weight / 8.0;
            assert!((f64::from(*count) - want).abs() <= tolerance * want, "{counts:?}");
        }
    }
}

#[test]
fn rendezvous_weights_move_keys_only_to_who_gained() {
    let before = members(&[("a", 2), ("b", 3), ("c", 4)]);
    let after = members(&[("a", 2), ("b", 6), ("c", 4)]);
    let share = moved(&rendezvous(&before), &rendezvous(&after), |_, to| to == "b");
    assert!((share - (0.5 - 1.0 / 3.0)).abs() < 0.02, "{share}");
}

#[test]
fn an_empty_list_owns_nothing() {
    for make in [ring, rendezvous, slots] {
        assert_eq!(make(&members(&[])).owner(7), None);
        assert_eq!(make(&members(&[("a", 0)])).order(7), Vec::<u32>::new());
    }
    assert!(Ring::new(members(&[("a", u32::MAX)]), 100).is_err(), "an absurd weight is refused, not allocated");
}

/// Placement never changes between releases. `vectors/check.py` makes the same orders with other code and another logarithm.
#[test]
fn the_published_orders_hold() {
    let list = members(&[("r1", 1), ("r2", 1), ("r3", 2), ("r4", 1), ("idle", 0)]);
    let mut lines = 0;
    for line in include_str!("../vectors/orders.tsv").lines().filter(|l| !l.starts_with('#')) {
        let [way, key, want] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("three columns: {line}") };
        let owners = if way == "ring" { ring(&list) } else { rendezvous(&list) };
        let order = owners.order(u64::from_str_radix(key, 16).expect("hexadecimal"));
        let names: Vec<&str> = order.iter().map(|m| &*list.get(*m).expect("a member").name).collect();
        assert_eq!(names.join(","), want, "{line}");
        lines += 1;
    }
    assert_eq!(lines, 32);
}

/// The same for the slot map: the owners of its first slots.
#[test]
fn slots_are_frozen() {
    let map = SlotMap::new(4, members(&[("r1", 1), ("r2", 1), ("r3", 2)])).expect("few slots");
    let owners: Vec<Option<u32>> = (0..16).map(|slot| map.owner(slot)).collect();
    assert_eq!(owners, FROZEN_SLOTS.map(Some));
    let slots: Vec<u32> = (0..6).map(|i| map.slot_of(key(i))).collect();
    assert_eq!(slots, FROZEN_KEYS);
}

const FROZEN_SLOTS: [u32; 16] = [2, 2, 0, 2, 2, 0, 2, 0, 2, 2, 2, 0, 1, 1, 1, 1];
const FROZEN_KEYS: [u32; 6] = [4, 4, 7, 6, 12, 11];

#[test]
fn a_short_ejection_moves_nothing_and_a_long_one_only_its_own_keys() {
    let owners = rendezvous(&even(10, 3));
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let mut touched = 0;
    for i in 0..5_000 {
        let order = owners.order(key(i));
        subset(&order, 2, |_| true, &mut before);
        subset(&order, 2, |m| m != 4, &mut after);
        if before.contains(&4) {
            touched += 1;
            let kept: Vec<_> = before.iter().filter(|m| **m != 4).collect();
            assert!(kept.iter().all(|m| after.contains(m)), "the other replica of the key stays");
        } else {
            assert_eq!(before, after, "a key that was elsewhere stays there");
        }
    }
    assert!((900..1100).contains(&touched), "about 2 of 10: {touched}");
}

#[test]
fn slots_move_by_visible_steps_and_no_more_than_needed() {
    let three = members(&[("a", 1), ("b", 1), ("c", 1)]);
    let four = members(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    let map = SlotMap::new(10, three).expect("few slots");
    assert_eq!(map.plan(), [], "a fresh map is in balance");
    let mut next = map.with_members(four);
    let unmoved = (0..1024).all(|s| {
        let name = |m: &SlotMap| m.owner(s).and_then(|o| m.members().get(o).map(|m| m.name.clone()));
        name(&map) == name(&next)
    });
    assert!(unmoved, "a new member moves nothing by itself");
    let plan = next.plan();
    assert_eq!(plan.len(), 256, "exactly its share");
    assert!(plan.iter().all(|step| *step.to == *"d"));
    let version = next.version();
    let (first, rest) = plan.split_at(100);
    first.iter().for_each(|step| next.step(step).expect("it is due"));
    assert_eq!(next.version(), Revision(version.0 + 100), "a step is a version");
    assert_eq!(next.step(&first[0]), Err(SlotError::Stale), "a step is carried out once");
    assert_eq!(next.plan().len(), rest.len(), "after a pause the rest is left");
    rest.iter().for_each(|step| next.step(step).expect("it is due"));
    assert_eq!(next.plan(), []);
    // A member that leaves: its slots have no owner until they are moved, and nothing else moves.
    let left = next.with_members(members(&[("b", 1), ("c", 1), ("d", 1)]));
    let plan = left.plan();
    assert!(plan.iter().all(|step| step.from.is_none()));
    assert_eq!(plan.len(), 256);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn order_of_listing_changes_nothing(mut weights in prop::collection::btree_map("[a-z]{1,6}", 0u32..4, 1..8), seed in any::<u64>()) {
        weights.insert("anchor".to_owned(), 1);
        let listed: Vec<Member> = weights.iter().map(|(n, w)| Member::new(n.as_str(), Weight(*w))).collect();
        let mut shuffled = listed.clone();
        shuffled.sort_by_key(|m| stable_hash(Purpose::CacheKey, &[m.name.as_bytes(), &seed.to_le_bytes()]));
        let one = MemberList::new(Revision(1), listed).unwrap();
        let other = MemberList::new(Revision(1), shuffled).unwrap();
        prop_assert_eq!(ring(&one), ring(&other));
        prop_assert_eq!(rendezvous(&one), rendezvous(&other));
        let few = |list: MemberList| SlotMap::new(6, list).unwrap();
        prop_assert_eq!(few(one), few(other));
    }

    #[test]
    fn orders_are_permutations_and_their_starts_agree(
        weights in prop::collection::vec(0u32..4, 1..8), at in any::<u64>(), n in 0usize..9
    ) {
        let list = weights.iter().enumerate().map(|(i, w)| Member::new(format!("m{i}"), Weight(*w))).collect();
        let list = MemberList::new(Revision(1), list).unwrap();
        let few = Owners::Slots(SlotMap::new(8, list.clone()).unwrap());
        for owners in [ring(&list), rendezvous(&list), few] {
            let order = owners.order(at);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            let want: Vec<u32> = (0u32..).zip(&weights).filter(|(_, w)| **w > 0).map(|(i, _)| i).collect();
            prop_assert_eq!(sorted, want);
            let mut first = Vec::new();
            owners.first(at, n, &mut first);
            prop_assert_eq!(first.as_slice(), order.get(..n.min(order.len())).unwrap());
        }
    }

    #[test]
    fn slot_plans_reach_balance_with_the_fewest_moves(
        before in prop::collection::vec(0u32..5, 1..6), after in prop::collection::vec(0u32..5, 1..6)
    ) {
        let list = |weights: &[u32]| {
            let list = weights.iter().enumerate().map(|(i, w)| Member::new(format!("m{i}"), Weight(*w))).collect();
            MemberList::new(Revision(1), list).unwrap()
        };
        let mut map = SlotMap::new(7, list(&before)).unwrap().with_members(list(&after));
        let count = |map: &SlotMap, m: u32| (0..128).filter(|s| map.owner(*s) == Some(m)).count();
        let was: Vec<usize> = (0..after.len()).map(|m| count(&map, m as u32)).collect();
        let plan = map.plan();
        for step in &plan {
            map.step(step).unwrap();
        }
        let total: u32 = after.iter().sum();
        prop_assert_eq!(map.plan(), vec![]);
        let mut gained = 0;
        for (m, weight) in after.iter().enumerate() {
            let now = count(&map, m as u32);
            if total > 0 {
                let exact = 128.0 * f64::from(*weight) / f64::from(total);
                prop_assert!((now as f64 - exact).abs() < 1.0, "{} of {}", now, exact);
            }
            gained += now.saturating_sub(was[m]);
        }
        prop_assert_eq!(plan.len(), gained, "nothing moves twice or in vain");
    }
}
