//! Two roll-outs over replicas with room for one of them: they take turns, and the one that waits says for whom.

use holdfast_control::desk::RolloutOptions;
use holdfast_testkit::{TempDir, eventually};

use crate::gateway::Gateways;
use crate::support::*;

/// Each pin takes a room on each of two replicas, and there is one more.
async fn plane(pins: usize) -> (Plane, TempDir) {
    let dir = TempDir::new();
    let mut plane = Plane::start(embedded(&dir).await, settings(), &Gateways::new()).await;
    plane.seed(&table(2, pins, 1)).await;
    plane.gateways.change(|world| world.room = Some(pins + 1));
    plane.gateways(2).await;
    plane.drive();
    (plane, dir)
}

async fn holds(plane: &Plane, replica: &str, version: &str) {
    eventually(&format!("version {version} on {replica}"), PATIENCE, async || {
        let world = plane.gateways.world.lock().unwrap();
        world.held.iter().any(|(at, a)| at.as_str() == replica && a.version.as_str() == version).then_some(())
    })
    .await;
}

/// The first holds r0 and cannot load on r1, where the second takes the last room meanwhile, which has none on r0.
async fn crossed(plane: &Plane, kill: bool) {
    let pins = names(1, 2);
    let options = || Some(RolloutOptions { tries: Some(10_000), ..RolloutOptions::default() });
    plane.gateways.change(|world| _ = world.failing.insert("r1/m0/2".to_owned(), "disk".to_owned()));
    plane.pin(&pins[..1], "2", options()).await;
    holds(plane, "r0", "2").await;
    eventually("the first roll-out", PATIENCE, async || {
        plane.rollouts.orders().wants.iter().any(|w| w.place == 1).then_some(())
    })
    .await;
    plane.pin(&pins[1..], "3", options()).await;
    holds(plane, "r1", "3").await;
    if !kill {
        let waits = eventually("the reason", PATIENCE, async || {
            plane.rollouts.waiting().into_iter().find(|waits| &*waits.pin == "t0/m1")
        })
        .await;
        assert_eq!(waits.words, "roll-out 2 waits for room: r0: no room; roll-out 1 comes first there");
        let shown = plane.rollouts.get(2).await.unwrap().unwrap();
        let words = shown.progress.pins[0].words.clone();
        assert_eq!(words.as_deref(), Some("r0: no room; roll-out 1 comes first there"));
    }
}

#[tokio::test]
async fn two_roll_outs_that_hold_each_others_last_room_take_turns() {
    for kill in [false, true] {
        let (mut plane, _dir) = plane(2).await;
        crossed(&plane, kill).await;
        if kill {
            plane.kill().await;
        }
        plane.gateways.change(|world| world.failing.clear());
        let heads = plane.settled("both").await;
        assert_eq!((plane.in_force("t0/m0").as_str(), plane.in_force("t0/m1").as_str()), ("2", "3"));
        assert!(heads.iter().all(|head| head.stages.keys().eq(["done"])), "{heads:#?}");
        let steps: Vec<String> = plane.steps().await.into_iter().map(|step| step.reason).collect();
        assert!(steps[0].starts_with("roll-out 1 "), "the elder first: {steps:?}");
        assert!(plane.rollouts.waiting().is_empty(), "nothing waits any more");
        plane.nothing_broken();
    }
}

/// One change of two pins: the pins of a roll-out have an order, too.
#[tokio::test]
async fn two_pins_of_one_roll_out_take_turns() {
    let (plane, _dir) = plane(2).await;
    let options = RolloutOptions { tries: Some(10_000), ..RolloutOptions::default() };
    plane.gateways.change(|world| _ = world.failing.insert("r1/m0/2".to_owned(), "disk".to_owned()));
    plane.pin(&names(1, 2), "2", Some(options)).await;
    holds(&plane, "r0", "2").await;
    // That of the second pin, which has none on r0.
    holds(&plane, "r1", "2").await;
    plane.gateways.change(|world| world.failing.clear());
    plane.settled("both").await;
    assert_eq!((plane.in_force("t0/m0").as_str(), plane.in_force("t0/m1").as_str()), ("2", "2"));
    plane.nothing_broken();
}
