//! An abort and a revert are changes of what is desired, by whoever asks for them: nothing later brings the new version back unseen.

use std::time::Duration;

use holdfast_config::ResourceKind;
use holdfast_control::desk::{CanaryOption, RolloutOptions, What};
use holdfast_control::rollouts::CommandError;
use holdfast_decide::rollout::{Command, Refusal};
use holdfast_store::{Header, Purpose};
use holdfast_testkit::eventually;
use holdfast_testkit::wait::always;

use crate::support::*;

const HOUR: Duration = Duration::from_secs(3_600);
const BACK: Command = Command::Revert { confirmed: false };

fn both() -> Vec<String> {
    vec!["t0/m0".to_owned(), "t1/m0".to_owned()]
}

/// Changes of what is desired, the oldest first.
async fn changes(plane: &Plane) -> Vec<Header> {
    let mut all = plane.store.history(None, 1_000).await.unwrap();
    all.retain(|header| header.purpose == Purpose::Change);
    all.reverse();
    all
}

async fn moved(plane: &Plane, version: &str) {
    let there = || both().iter().all(|pin| plane.in_force(pin) == version);
    eventually("the flip", PATIENCE, async || there().then_some(())).await;
}

#[tokio::test]
async fn a_revert_is_one_revision_of_what_is_desired_and_no_change_of_something_else_undoes_it() {
    let (plane, _dir) = retaining(HOUR).await;
    plane.pin(&both(), "2", None).await;
    plane.at(1, "retaining").await;
    let wanted = What::Whole(plane.desk.truth().desired.resources());
    plane.rollouts.command(1, BACK, "bob").await.unwrap();
    // Answered, it is desired.
    assert_eq!(both().iter().map(|pin| plane.desired(pin)).collect::<Vec<_>>(), ["1", "1"]);
    moved(&plane, "1").await;
    plane.at(1, "retaining").await;
    let told = changes(&plane).await;
    let last = told.last().unwrap();
    assert_eq!((told.len(), last.author.as_str(), last.reason.as_str()), (3, "bob", "roll-out 1 reverted"));
    assert_eq!(last.edits, 2);
    assert!(plane.desk.truth().pending.is_empty() && plane.rollouts.waiting().is_empty());

    // A whole state that differs elsewhere brings nothing back.
    let mut resources = plane.desk.truth().desired.resources();
    assert!(resources.remove(&(ResourceKind::Pin, "t1/m1".to_owned())).is_some());
    let other = plane.ask(What::Whole(resources), None).await;
    assert_eq!((other.changes.len(), other.pending.len()), (1, 0), "{other:?}");
    always("the pins to stay", Duration::from_millis(300), async || plane.in_force("t0/m0") == "1").await;
    assert_eq!(plane.rollouts.list().await.unwrap().len(), 1);

    // One that names the reverted version asks for it, and says so.
    let again = plane.ask(wanted, None).await;
    let pins: Vec<&str> = again.changes.iter().map(|change| &*change.name).filter(|pin| *pin != "t1/m1").collect();
    assert_eq!(pins, both());
    moved(&plane, "2").await;
    plane.nothing_broken();
}

#[tokio::test]
async fn an_abort_takes_the_wish_back_and_a_wish_of_somebody_else_stands() {
    let (plane, _dir) = retaining(HOUR).await;
    plane.gateways.change(|world| _ = world.idle.insert("g1".to_owned()));
    plane.pin(&both(), "2", None).await;
    eventually("the flip to be prepared", PATIENCE, async || {
        (!plane.rollouts.orders().prepare.is_empty()).then_some(())
    })
    .await;
    plane.rollouts.command(1, Command::Abort, "bob").await.unwrap();
    plane.at(1, "aborted").await;
    assert_eq!((plane.desired("t0/m0").as_str(), plane.desired("t1/m0").as_str()), ("1", "1"));
    let last = changes(&plane).await.pop().unwrap();
    assert_eq!((last.author.as_str(), last.reason.as_str()), ("bob", "roll-out 1 aborted"));
    assert!(plane.desk.truth().pending.is_empty());
    assert_eq!(plane.rollouts.command(1, Command::Abort, "eve").await, Err(CommandError::Refused(Refusal::Over)));
    assert_eq!(changes(&plane).await.len(), 3, "a refused command changes nothing");

    // Asked for anew it is a change like any other.
    plane.gateways.change(|world| world.idle.clear());
    assert_eq!(plane.pin(&both(), "2", None).await.changes.len(), 2);
    moved(&plane, "2").await;
    plane.nothing_broken();
}

#[tokio::test]
async fn a_refused_revert_leaves_what_is_desired() {
    let (plane, _dir) = retaining(Duration::ZERO).await;
    plane.pin(&both(), "2", None).await;
    plane.at(1, "done").await;
    let cold = plane.rollouts.command(1, BACK, "bob").await.unwrap_err();
    assert!(matches!(cold, CommandError::Refused(Refusal::Cold(_))), "{cold:?}");
    assert_eq!((plane.desired("t0/m0").as_str(), changes(&plane).await.len()), ("2", 2));
    // Confirmed, the same roll-out goes back, and no other is begun for the wish.
    plane.rollouts.command(1, Command::Revert { confirmed: true }, "bob").await.unwrap();
    moved(&plane, "1").await;
    plane.at(1, "done").await;
    assert_eq!((plane.desired("t1/m0").as_str(), plane.rollouts.list().await.unwrap().len()), ("1", 1));
    plane.nothing_broken();
}

#[tokio::test]
async fn a_driver_that_dies_between_the_wish_and_the_order_goes_back_all_the_same() {
    for canary in [None, Some(CanaryOption { percent: 10, wait_ms: 3_600_000 })] {
        let (mut plane, _dir) = retaining(HOUR).await;
        let shares = canary.is_some();
        let options = canary.map(|step| RolloutOptions { canary: vec![step], ..RolloutOptions::default() });
        plane.pin(&both(), "2", options).await;
        match shares {
            true => eventually("the share", PATIENCE, async || plane.split("t0/m0").map(drop)).await,
            false => moved(&plane, "2").await,
        }
        // At whatever point the command is, its driver is gone. What it came to is the whole of it, or nothing.
        let rollouts = plane.rollouts.clone();
        let told = tokio::spawn(async move { rollouts.command(1, BACK, "bob").await });
        eventually("the wish", PATIENCE, async || (plane.desired("t0/m0") == "1").then_some(())).await;
        plane.kill().await;
        told.abort();
        eventually("the way back", PATIENCE, async || {
            (plane.in_force("t0/m0") == "1" && plane.split("t0/m0").is_none() && plane.in_force("t1/m0") == "1")
                .then_some(())
        })
        .await;
        assert!(plane.desk.truth().pending.is_empty());
        assert_eq!(plane.rollouts.list().await.unwrap().len(), 1, "by the same roll-out");
        plane.nothing_broken();
    }
}
