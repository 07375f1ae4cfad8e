//! Whole fleets in random histories: flips, crashes, slow and failed loads, partitions between roles, clock jumps. PIN-1, PIN-2, PIN-3, ROUTE-1, LOAD-1
//! and LOAD-2 are looked at in each step of each.
#![allow(clippy::panic, clippy::expect_used, clippy::unwrap_used, reason = "a test fails loudly")]
#![allow(clippy::disallowed_macros, reason = "a test says which seeds it has played")]

use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_sim::fleet::{Mistake, Outcome, Setup, Tally, acts, run, shortened};
use holdfast_sim::scenario::kind;

/// In a test run.
const HISTORIES: u64 = 300;

/// `HISTORIES` and `FIRST_SEED` say others (`make sim`).
#[allow(clippy::disallowed_methods, reason = "a test may ask how long it is to run")]
fn asked(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(otherwise)
}

fn play(seed: u64) -> Outcome {
    let setup = Setup::random(seed);
    run(&setup, seed, &acts(&setup, seed), false)
}

/// Says what broke, in as few acts as break it.
fn fail(seed: u64) -> ! {
    let setup = Setup::random(seed);
    let acts = shortened(&setup, seed, &acts(&setup, seed));
    let outcome = run(&setup, seed, &acts, true);
    let last = outcome.log.len().saturating_sub(60);
    panic!("seed {seed}: {:?}\n{setup:?}\nacts {acts:#?}\n{}", outcome.broken, outcome.log[last..].join("\n"));
}

#[test]
fn promises_hold_in_every_history() {
    let (first, count) = (asked("FIRST_SEED", 1), asked("HISTORIES", HISTORIES));
    println!("{count} histories from seed {first}");
    let (next, broken) = (AtomicU64::new(first), AtomicU64::new(u64::MAX));
    let worker = || {
        let mut sum = Tally::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count || broken.load(Ordering::Relaxed) < u64::MAX {
                return sum;
            }
            let outcome = play(seed);
            if outcome.broken.is_some() {
                broken.fetch_min(seed, Ordering::Relaxed);
            }
            add(&mut sum, &outcome.tally);
        }
    };
    let sums: Vec<Tally> = std::thread::scope(|scope| {
        let workers = [scope.spawn(worker), scope.spawn(worker)];
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    if broken.load(Ordering::Relaxed) < u64::MAX {
        fail(broken.load(Ordering::Relaxed));
    }
    let sum = sums.into_iter().fold(Tally::default(), |mut a, b| {
        add(&mut a, &b);
        a
    });
    println!("{sum:?}");
    // Whatever may go wrong does, often enough to say something.
    assert!(sum.flips > 2 * count && sum.reverts > count / 10 && sum.terms > 2 * count, "{sum:?}");
    assert!(sum.failed_loads > count / 2 && sum.unloads > count / 2 && sum.wrong > count, "{sum:?}");
}

fn add(sum: &mut Tally, one: &Tally) {
    sum.events += one.events;
    sum.rollouts += one.rollouts;
    sum.flips += one.flips;
    sum.reverts += one.reverts;
    sum.failed_loads += one.failed_loads;
    sum.unloads += one.unloads;
    sum.wrong += one.wrong;
    sum.unproved += one.unproved;
    sum.terms += one.terms;
    sum.seatings += one.seatings;
    sum.voted += one.voted;
    sum.unasked += one.unasked;
    sum.most_loads = sum.most_loads.max(one.most_loads);
    let mut all = sum.seconds.first().copied().unwrap_or_default();
    all.answered += one.answered();
    all.failed += one.failed();
    sum.seconds = vec![all];
}

#[test]
fn the_same_seed_is_the_same_history() {
    for seed in 1..5 {
        let setup = Setup::random(seed);
        let acts = acts(&setup, seed);
        assert_eq!(run(&setup, seed, &acts, true), run(&setup, seed, &acts, true));
    }
    assert_ne!(play(1), play(2));
}

/// What a history shows of a mistake: the promises that are seen broken over some seeds, each in as few acts as break it.
fn seen(mistake: Mistake) -> Vec<String> {
    let broken = |seed: u64| {
        let setup = Setup { mistake: Some(mistake), ..Setup::random(seed) };
        let all = acts(&setup, seed);
        run(&setup, seed, &all, false).broken.map(|first| {
            let fewer = shortened(&setup, seed, &all);
            let shown = run(&setup, seed, &fewer, false).broken.expect("the shorter history breaks it, too").1;
            assert!(fewer.len() <= all.len() && kind(&shown) == kind(&first.1), "{shown} after {}", first.1);
            first.1
        })
    };
    (1..60).filter_map(broken).take(3).collect()
}

#[test]
fn each_mistake_is_seen() {
    for (mistake, promise) in [
        (Mistake::ResolvesAgain, "PIN-2"),
        (Mistake::TakesAnyTable, "ROUTE-1"),
        (Mistake::TrustsAnswers, "PIN-1"),
        (Mistake::TrustsLoads, "PIN-1"),
        (Mistake::IgnoresSeats, "LOAD-1"),
        (Mistake::TakesAll, "LOAD-1"),
        (Mistake::BreaksItsWord, "LOAD-2"),
    ] {
        let seen = seen(mistake);
        assert!(!seen.is_empty() && seen.iter().all(|what| what.starts_with(promise)), "{mistake:?}: {seen:?}");
    }
}
