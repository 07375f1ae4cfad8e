//! A store that loses answers: after it has committed, before, and instead.

use holdfast_control::rollouts::Head;
use holdfast_testkit::TempDir;

use crate::gateway::Gateways;
use crate::seeds::{all, next};
use crate::support::*;
use crate::unsteady::{Next, Unsteady};

const SEEDS: u64 = 40;

async fn one(seed: u64) -> u64 {
    let (dir, mut random) = (TempDir::new(), seed << 32);
    let store = Unsteady::over(embedded(&dir).await);
    let mut plane = Plane::start(store.clone(), settings(), &Gateways::new()).await;
    plane.seed(&table(3, 2, 2)).await;
    plane.gateways(2).await;
    let all = names(2, 2);
    plane.pin(&all, "2", None).await;
    store.fate(move || match next(&mut random) % 8 {
        0 | 1 => Next::LostAfter,
        2 => Next::LostBefore,
        3 => Next::Down,
        _ => Next::Through,
    });
    plane.drive();
    let heads = plane.settled(&format!("seed {seed}")).await;
    assert!(all.iter().all(|name| plane.in_force(name) == "2"), "seed {seed}: {heads:#?}");
    assert!(heads.iter().all(|h: &Head| h.stages.keys().eq(["done"])), "seed {seed}: {heads:#?}");
    plane.steps().await;
    plane.nothing_broken();
    store.lost()
}

#[test]
fn answers_that_are_lost_cost_time_and_nothing_else() {
    let lost: u64 = all(SEEDS, one);
    assert!(lost > SEEDS * 2, "only {lost} answers were lost");
}
