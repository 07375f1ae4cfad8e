//! A pin's traffic goes to its new version in shares: each step is a split in force, and the last one moves the pin.

use std::time::Duration;

use holdfast_config::ResourceKind;
use holdfast_control::desk::{CanaryOption, DeskError, RolloutOptions};
use holdfast_control::rollouts::Head;
use holdfast_decide::rollout::{Command, Refusal};
use holdfast_store::{Place, Space};
use holdfast_testkit::wait::always;
use holdfast_testkit::{TempDir, eventually};

use crate::gateway::Gateways;
use crate::seeds::{all, next};
use crate::support::*;

const HOUR: u64 = 3_600_000;
const SEEDS: u64 = 40;

/// 10 %, 50 %, the whole.
fn shares(first_ms: u64, second_ms: u64) -> RolloutOptions {
    let step = |percent, wait_ms| CanaryOption { percent, wait_ms };
    RolloutOptions { canary: vec![step(10, first_ms), step(50, second_ms)], ..RolloutOptions::default() }
}

fn one() -> Vec<String> {
    vec!["t0/m0".to_owned()]
}

async fn at_share(plane: &Plane, name: &str, percent: u64) {
    eventually(&format!("{percent} % of {name}"), PATIENCE, async || {
        (plane.split(name) == Some(("2".to_owned(), percent))).then_some(())
    })
    .await;
    assert_eq!(plane.in_force(name), "1", "the pin stays until the whole");
}

/// What each step made of the pin: its version, and the share beside it.
async fn history(plane: &Plane, name: &str) -> Vec<(String, Option<u64>)> {
    let mut all = Vec::new();
    for step in plane.steps().await {
        let at = async |kind: ResourceKind| {
            let key = holdfast_store::Key::new(kind.as_str(), name).unwrap();
            let found = plane.store.get(Place { space: Space::InForce, key }, Some(step.revision)).await.unwrap();
            found.map(|resource| resource.value.value().unwrap())
        };
        let pin = at(ResourceKind::Pin).await.unwrap();
        let share = at(ResourceKind::Split).await.and_then(|split| split["percent"].as_u64());
        all.push((pin.as_str().unwrap().to_owned(), share));
    }
    all
}

#[tokio::test]
async fn a_canary_goes_from_share_to_share_to_the_whole() {
    let (plane, _dir) = driven(settings()).await;
    plane.pin(&one(), "2", Some(shares(30, 30))).await;
    let heads = plane.settled("the canary").await;
    assert_eq!((plane.in_force("t0/m0").as_str(), plane.split("t0/m0")), ("2", None));
    let steps = history(&plane, "t0/m0").await;
    assert_eq!(steps, [("1".to_owned(), Some(10)), ("1".to_owned(), Some(50)), ("2".to_owned(), None)]);
    assert!(heads.len() == 1 && heads[0].stages.keys().eq(["done"]), "{heads:#?}");
    plane.nothing_broken();
}

#[tokio::test]
async fn no_share_is_sent_before_every_gateway_has_prepared_its_subset() {
    let (plane, _dir) = driven(settings()).await;
    plane.gateways.change(|world| _ = world.idle.insert("g1".to_owned()));
    plane.pin(&one(), "2", Some(shares(HOUR, HOUR))).await;
    eventually("the flip to be prepared", PATIENCE, async || {
        let orders = plane.rollouts.orders();
        let flip = orders.prepare.first()?.flips.first()?.clone();
        assert_eq!((flip.new.as_str(), flip.share), ("2", 10));
        Some(())
    })
    .await;
    always("no share", Duration::from_millis(200), async || plane.split("t0/m0").is_none()).await;
    plane.gateways.change(|world| world.idle.clear());
    at_share(&plane, "t0/m0", 10).await;
    let world = plane.gateways.world.lock().unwrap();
    let holders = world.held.iter().filter(|(_, artifact)| artifact.version.as_str() == "2").count();
    assert!(holders == 2 && world.broken.is_empty(), "{holders} hold it; {:#?}", world.broken);
}

#[tokio::test]
async fn a_canary_pauses_and_goes_back_by_a_revert_but_not_by_an_abort() {
    let (plane, _dir) = driven(settings()).await;
    plane.pin(&one(), "2", Some(shares(300, HOUR))).await;
    at_share(&plane, "t0/m0", 10).await;
    plane.rollouts.command(1, Command::Pause, "bob").await.unwrap();
    always("no more in a pause", Duration::from_millis(600), async || {
        plane.split("t0/m0") == Some(("2".to_owned(), 10))
    })
    .await;
    plane.rollouts.command(1, Command::Resume, "bob").await.unwrap();
    at_share(&plane, "t0/m0", 50).await;
    let refused = plane.rollouts.command(1, Command::Abort, "bob").await.unwrap_err();
    assert_eq!(refused, holdfast_control::rollouts::CommandError::Refused(Refusal::Shared(50)));
    plane.rollouts.command(1, Command::Revert { confirmed: false }, "bob").await.unwrap();
    eventually("the way back", PATIENCE, async || plane.split("t0/m0").is_none().then_some(())).await;
    plane.at(1, "done").await;
    let back = ("1".to_owned(), None);
    assert_eq!(history(&plane, "t0/m0").await.pop(), Some(back));
    assert_eq!(plane.desired("t0/m0"), "1");
    eventually("the new version to be let go", PATIENCE, async || {
        let world = plane.gateways.world.lock().unwrap();
        world.held.iter().all(|(_, artifact)| artifact.version.as_str() == "1").then_some(())
    })
    .await;
    plane.nothing_broken();
}

#[tokio::test]
async fn another_wish_ends_a_canary_and_then_goes_its_own_way() {
    let (plane, _dir) = driven(settings()).await;
    plane.pin(&one(), "2", Some(shares(HOUR, HOUR))).await;
    at_share(&plane, "t0/m0", 10).await;
    plane.pin(&one(), "1", None).await;
    eventually("the way back", PATIENCE, async || plane.split("t0/m0").is_none().then_some(())).await;
    plane.settled("the end").await;
    plane.pin(&one(), "2", Some(shares(HOUR, HOUR))).await;
    at_share(&plane, "t0/m0", 10).await;
    plane.pin(&one(), "3", None).await;
    plane.settled("the other version").await;
    let last: Vec<_> = history(&plane, "t0/m0").await;
    assert_eq!(last[last.len() - 3..], [("1".into(), Some(10)), ("1".into(), None), ("3".into(), None)]);
    plane.nothing_broken();
}

/// A pin that is taken away is nobody's; the other pin of the canary keeps its share.
#[tokio::test]
async fn a_pin_that_is_taken_away_leaves_its_canary_and_made_anew_goes_its_own_way() {
    let (plane, _dir) = driven(settings()).await;
    let both = names(1, 2);
    for (ix, anew) in ["1", "2", "3"].into_iter().enumerate() {
        plane.pin(&both, "2", Some(shares(HOUR, HOUR))).await;
        at_share(&plane, "t0/m0", 10).await;
        at_share(&plane, "t0/m1", 10).await;
        plane.unpin(&one()).await;
        plane.pin(&one(), anew, None).await;
        assert_eq!((plane.in_force("t0/m0").as_str(), plane.split("t0/m0")), (anew, None), "a new pin is in force");
        plane.pin(&one(), "4", None).await;
        eventually(&format!("from {anew} to 4"), PATIENCE, async || (plane.in_force("t0/m0") == "4").then_some(()))
            .await;
        assert_eq!(plane.split("t0/m1"), Some(("2".to_owned(), 10)), "the other pin is left alone");
        // All that is left of the canary is desired elsewhere.
        plane.pin(&both, "1", None).await;
        let heads = plane.settled("the way back of the other").await;
        assert!(heads.iter().all(|h| h.stages.keys().eq(["done"])), "{ix}: {heads:#?}");
        assert_eq!((plane.split("t0/m1"), plane.in_force("t0/m1").as_str()), (None, "1"));
    }
    plane.nothing_broken();
}

/// Nothing is left to go back to, and nothing waits for it.
#[tokio::test]
async fn a_canary_whose_pin_and_versions_are_taken_away_ends() {
    let (plane, _dir) = driven(settings()).await;
    plane.pin(&one(), "2", Some(shares(HOUR, HOUR))).await;
    at_share(&plane, "t0/m0", 10).await;
    plane.rollouts.command(1, Command::Pause, "bob").await.unwrap();
    plane.unpin(&[one()[0].clone(), "t1/m0".to_owned()]).await;
    plane.without(ResourceKind::Version, &["m0/1", "m0/2"]).await;
    plane.rollouts.command(1, Command::Resume, "bob").await.unwrap();
    let heads = plane.settled("the end").await;
    assert!(heads.len() == 1 && heads[0].stages.keys().eq(["done"]), "{heads:#?}");
    assert!(plane.rollouts.alarms().iter().any(|a| a.words.contains("another change has moved it")));
}

#[tokio::test]
async fn a_canary_needs_shares_that_grow() {
    let (plane, _dir) = driven(settings()).await;
    for percents in [vec![0], vec![100], vec![50, 10]] {
        let canary = percents.iter().map(|percent| CanaryOption { percent: *percent, wait_ms: 1 }).collect();
        let options = RolloutOptions { canary, ..RolloutOptions::default() };
        let refused = plane.try_pin(&one(), "2", Some(options)).await.unwrap_err();
        assert!(matches!(&refused, DeskError::Invalid(faults) if faults[0].path == "options"), "{refused}");
    }
    assert!(plane.desk.truth().pending.is_empty());
}

/// A canary of some pins whose driver dies where chance has it, and which is paused or reverted somewhere.
async fn killed(seed: u64) -> usize {
    let (dir, mut random) = (TempDir::new(), seed);
    let mut plane = Plane::start(embedded(&dir).await, settings(), &Gateways::new()).await;
    plane.seed(&table(3, 2, 2)).await;
    plane.gateways(2).await;
    plane.drive();
    let all = names(2, 2);
    let (mut first, second) = (next(&mut random) % 30, next(&mut random) % 30);
    // Some stay at their first share until they are taken back, however slow the machine is.
    let stays = seed.is_multiple_of(3);
    if stays {
        first = HOUR;
    }
    plane.pin(&all[..2], "2", Some(shares(first, second))).await;
    if stays {
        eventually("a share", PATIENCE, async || plane.split(&all[0])).await;
    }
    let mut within = 0;
    for _ in 0..1 + next(&mut random) % 4 {
        tokio::time::sleep(Duration::from_micros(next(&mut random) % 60_000)).await;
        within += usize::from(all.iter().any(|name| plane.split(name).is_some()));
        match next(&mut random) % 4 {
            0 => plane = plane.restart(2).await,
            1 => {
                // Whether it is too late or too early is the machine's to say.
                for head in plane.rollouts.list().await.unwrap() {
                    let _ = plane.rollouts.command(head.id, Command::Pause, "bob").await;
                }
                plane.kill().await;
                eventually("the end of the pause", PATIENCE, async || {
                    let heads = plane.rollouts.list().await.ok()?;
                    let paused: Vec<u64> = heads.iter().filter(|h| h.is_paused()).map(|h| h.id).collect();
                    for id in &paused {
                        let _ = plane.rollouts.command(*id, Command::Resume, "bob").await;
                    }
                    paused.is_empty().then_some(())
                })
                .await;
            }
            _ => plane.kill().await,
        }
    }
    let back = next(&mut random).is_multiple_of(3) || stays;
    if back {
        plane.pin(&all[..2], "1", None).await;
    }
    let heads = plane.settled(&format!("seed {seed}")).await;
    eventually("no split", PATIENCE, async || all.iter().all(|name| plane.split(name).is_none()).then_some(())).await;
    for name in &all[..2] {
        assert_eq!(plane.in_force(name), if back { "1" } else { "2" }, "seed {seed}: {heads:#?}");
    }
    let good = |stage: &String| ["done", "aborted"].contains(&stage.as_str());
    assert!(heads.iter().all(|h: &Head| h.stages.keys().all(good)), "seed {seed}: {heads:#?}");
    plane.steps().await;
    plane.nothing_broken();
    within
}

#[test]
fn a_canary_ends_once_wherever_its_driver_dies() {
    let within: usize = all(SEEDS, killed);
    assert!(within > 10, "only {within} times a share was in force");
}
