//! The fair queue: FAIR-1 over random histories, the floors of the worked case, bounds, and what goes away.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails loudly")]

use holdfast_quota::fair::{Bounds, FairQueue, Full, Ticket, Witness};
use proptest::prelude::*;

const MANY: Bounds = Bounds { each: 100_000, all: 1_000_000 };

#[test]
fn floors_of_the_worked_case_and_idle_shares_are_lent() {
    // Capacity 1,000 with weights 1, 2, 5, all saturating: 125, 250, 625. Without the third: 333 and 667.
    for (keys, want) in [(vec![1u32, 2, 5], vec![125, 250, 625]), (vec![1, 2], vec![333, 667])] {
        let mut queue = FairQueue::new(MANY);
        for weight in &keys {
            for _ in 0..1_000 {
                queue.push(*weight, *weight, 1, ()).unwrap();
            }
        }
        let mut got = vec![0; keys.len()];
        for _ in 0..1_000 {
            let (key, ()) = queue.pop().unwrap();
            got[keys.iter().position(|k| *k == key).unwrap()] += 1;
        }
        assert!(got.iter().zip(&want).all(|(got, want)| i32::abs(got - want) <= 1), "{got:?} {want:?}");
    }
}

#[test]
fn a_noisy_key_does_not_delay_a_quiet_one() {
    let mut queue = FairQueue::new(MANY);
    for n in 0..10_000 {
        queue.push("noisy", 1, 1, n).unwrap();
    }
    for n in 0..5_000 {
        queue.pop().unwrap();
        if n % 100 == 0 {
            queue.push("quiet", 1, 1, n).unwrap();
            let next: Vec<&str> = (0..2).map(|_| queue.pop().unwrap().0).collect();
            assert!(next.contains(&"quiet"), "{n}");
        }
    }
}

#[test]
fn who_was_idle_has_saved_nothing() {
    let mut queue = FairQueue::new(MANY);
    for _ in 0..2_000 {
        queue.push("busy", 1, 1, ()).unwrap();
    }
    for _ in 0..1_000 {
        queue.pop().unwrap();
    }
    for _ in 0..100 {
        queue.push("late", 1, 1, ()).unwrap();
    }
    let late = (0..100).filter(|_| queue.pop().unwrap().0 == "late").count();
    assert!((49..=51).contains(&late), "{late}");
}

#[test]
fn bounds_hold_and_an_item_that_is_refused_comes_back() {
    let mut queue = FairQueue::new(Bounds { each: 2, all: 3 });
    queue.push('a', 1, 1, 1).unwrap();
    queue.push('a', 1, 1, 2).unwrap();
    assert_eq!(queue.push('a', 1, 1, 3), Err((Full::Key, 3)));
    queue.push('b', 1, 1, 4).unwrap();
    assert_eq!(queue.push('c', 1, 1, 5), Err((Full::All, 5)));
    assert_eq!((queue.len(), queue.waiting(&'a'), queue.waiting(&'c')), (3, 2, 0));
}

#[test]
fn passed_over_keys_come_first_when_they_can() {
    let mut queue = FairQueue::new(MANY);
    for n in 0..10 {
        queue.push('a', 1, 1, n).unwrap();
        queue.push('b', 1, 1, n).unwrap();
    }
    let only_b: Vec<char> = (0..5).map(|_| queue.pop_if(|key, _| *key == 'b').unwrap().0).collect();
    let then: Vec<char> = (0..5).map(|_| queue.pop().unwrap().0).collect();
    assert_eq!((only_b, then), (vec!['b'; 5], vec!['a'; 5]));
    assert_eq!(queue.pop_if(|_, _| false), None);
}

#[derive(Clone, Debug)]
enum Step {
    Push { key: usize, cost: u64 },
    Pop,
    Cancel(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..4, 1u64..9).prop_map(|(key, cost)| Step::Push { key, cost }),
        5 => Just(Step::Pop),
        1 => any::<usize>().prop_map(Step::Cancel),
    ]
}

proptest! {
    #[test]
    fn fair_1_holds_in_every_history(
        weights in prop::array::uniform4(1u32..10), steps in prop::collection::vec(step(), 1..400)
    ) {
        let total = weights.iter().sum();
        let mut queue = FairQueue::new(MANY);
        let mut witnesses = weights.map(|weight| Witness::new(weight, total, 4, 8));
        let mut tickets: Vec<(usize, Ticket, u64)> = Vec::new();
        let (mut number, mut first_in) = (0u64, [const { std::collections::VecDeque::new() }; 4]);
        for step in steps {
            match step {
                Step::Push { key, cost } => {
                    number += 1;
                    let ticket = queue.push(key, weights[key], cost, (number, cost)).unwrap();
                    tickets.push((key, ticket, number));
                    first_in[key].push_back(number);
                }
                Step::Pop => {
                    let waits: Vec<bool> = (0..4).map(|key| queue.waiting(&key) > 0).collect();
                    let popped = queue.pop();
                    prop_assert_eq!(popped.is_some(), waits.contains(&true), "work is served while there is some");
                    let Some((key, (number, cost))) = popped else { continue };
                    prop_assert_eq!(first_in[key].pop_front(), Some(number), "one key's items keep their order");
                    tickets.retain(|t| t.2 != number);
                    for (at, witness) in witnesses.iter_mut().enumerate() {
                        let checked = witness.served(at == key, cost, waits[at]);
                        prop_assert!(checked.is_ok(), "FAIR-1: key {} of {:?}: {:?}", at, weights, checked);
                    }
                }
                Step::Cancel(pick) => {
                    let Some(at) = pick.checked_rem(tickets.len()) else { continue };
                    let (key, ticket, number) = tickets.remove(at);
                    prop_assert_eq!(queue.cancel(&key, ticket).map(|item| item.0), Some(number));
                    prop_assert_eq!(queue.cancel(&key, ticket), None, "once");
                    first_in[key].retain(|n| *n != number);
                }
            }
            let all: usize = (0..4).map(|key| queue.waiting(&key)).sum();
            prop_assert_eq!((all, all), (queue.len(), tickets.len()));
        }
    }
}
