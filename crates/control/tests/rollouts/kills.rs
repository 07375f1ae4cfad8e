//! A driver that dies anywhere, and the next one that goes on.

use std::time::Duration;

use holdfast_control::rollouts::Head;
use holdfast_testkit::TempDir;

use crate::gateway::Gateways;
use crate::seeds::{all, next};
use crate::support::*;

const SEEDS: u64 = 200;

async fn one(seed: u64) -> usize {
    let (dir, mut random) = (TempDir::new(), seed);
    let mut plane = Plane::start(embedded(&dir).await, settings(), &Gateways::new()).await;
    plane.seed(&table(3, 2, 2)).await;
    plane.gateways(2).await;
    plane.drive();
    let all = names(2, 2);
    let some = 1 + (next(&mut random) as usize) % all.len();
    plane.pin(&all[..some], "2", None).await;
    let (mut early, mut first) = (0, "2");
    for _ in 0..1 + next(&mut random) % 4 {
        tokio::time::sleep(Duration::from_micros(next(&mut random) % 40_000)).await;
        let over = plane.rollouts.list().await.unwrap().iter().all(Head::is_over);
        // On a slow machine there is not even a roll-out yet.
        early += usize::from(!over || !plane.desk.truth().pending.is_empty());
        match next(&mut random) % 4 {
            // The process of the control plane, with the gateways in it.
            0 => plane = plane.restart(2).await,
            1 => {
                first = if first == "2" { "3" } else { "2" };
                plane.pin(&all[..1], first, None).await;
            }
            _ => plane.kill().await,
        }
    }
    let heads = plane.settled(&format!("seed {seed}")).await;
    for (ix, name) in all[..some].iter().enumerate() {
        let wanted = if ix == 0 { first } else { "2" };
        assert_eq!(plane.in_force(name), wanted, "seed {seed}: {heads:#?}");
    }
    assert!(!plane.steps().await.is_empty(), "seed {seed}");
    let good = |stage: &String| ["done", "aborted"].contains(&stage.as_str());
    assert!(heads.iter().all(|h| h.stages.keys().all(good)), "seed {seed}: {heads:#?}");
    plane.nothing_broken();
    early
}

#[test]
fn every_roll_out_ends_once_wherever_its_driver_dies() {
    let early: usize = all(SEEDS, one);
    assert!(early > 100, "only {early} times something was still on its way");
}
