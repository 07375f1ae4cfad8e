//! A thousand pins in one roll-out.

use std::time::{Duration, Instant};

use holdfast_control::desk::RolloutOptions;
use holdfast_testkit::TempDir;

use crate::gateway::Gateways;
use crate::support::*;

/// Ten times and more of what it takes on a busy machine without optimisation; work for each pair of pins would take longer.
const LIMIT: Duration = Duration::from_secs(180);

async fn thousand(atomic: bool) -> (Plane, TempDir, Duration) {
    let dir = TempDir::new();
    let settings = holdfast_control::rollouts::Settings { batch: Duration::from_millis(20), ..settings() };
    let mut plane = Plane::start(embedded(&dir).await, settings, &Gateways::new()).await;
    plane.seed(&table(6, 4, 250)).await;
    plane.gateways(2).await;
    plane.drive();
    let options = atomic.then(|| RolloutOptions { atomic, loads: Some(64), ..RolloutOptions::default() });
    let begun = Instant::now();
    let options = options.map(|o| RolloutOptions { retain_ms: Some(0), ..o });
    // Options are bounded by what one commit takes of records.
    plane.pin(&names(250, 4)[..if atomic { 999 } else { 1_000 }], "2", options).await;
    plane.settled_within("a thousand pins", LIMIT).await;
    (plane, dir, begun.elapsed())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_pins_at_once() {
    let (plane, _dir, took) = thousand(true).await;
    assert_eq!(plane.steps().await.len(), 1, "all of them in one step");
    plane.nothing_broken();
    println!("999 pins, atomic: {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_pins_as_each_is_ready() {
    let (plane, _dir, took) = thousand(false).await;
    assert!(!plane.steps().await.is_empty());
    plane.nothing_broken();
    println!("1000 pins: {took:?}");
}
