//! What is asked for again, and what leads back: whose options and whose words a roll-out has.

use std::sync::Arc;
use std::time::Duration;

use holdfast_config::ResourceKind;
use holdfast_control::desk::{CanaryOption, RolloutOptions, What};
use holdfast_control::rollouts::CommandError;
use holdfast_decide::rollout::{Command, Phase, Refusal};
use holdfast_plane::Edit;
use holdfast_testkit::eventually;
use holdfast_testkit::wait::always;

use crate::support::*;

const HOUR: Duration = Duration::from_secs(3_600);

fn one() -> Vec<String> {
    vec!["t0/m0".to_owned()]
}

fn canary(percent: u8, wait_ms: u64) -> RolloutOptions {
    RolloutOptions { canary: vec![CanaryOption { percent, wait_ms }], ..RolloutOptions::default() }
}

/// All that is desired, asked for once more.
fn whole(plane: &Plane) -> What {
    What::Whole(plane.desk.truth().desired.resources())
}

async fn moved(plane: &Plane, version: &str) {
    eventually("the flip", PATIENCE, async || (plane.in_force("t0/m0") == version).then_some(())).await;
}

#[tokio::test]
async fn a_whole_state_asks_again_for_every_pin_that_was_left_behind() {
    let (plane, _dir) = retaining(HOUR).await;
    let names = vec!["t0/m0".to_owned(), "t1/m1".to_owned()];
    plane.gateways.change(|world| _ = world.failing.insert("2".to_owned(), "torn".to_owned()));
    let atomic = RolloutOptions { atomic: true, ..RolloutOptions::default() };
    plane.pin(&names, "2", Some(atomic)).await;
    plane.at(1, "failed").await;
    // Failed: both are asked for again, and pending, though nothing is different.
    plane.gateways.change(|world| world.failing.clear());
    let told = plane.ask(whole(&plane), None).await;
    assert!(told.changes.is_empty() && told.revision.is_some(), "{told:?}");
    let pending: Vec<String> = told.pending.iter().map(|p| format!("{}/{}", p.tenant, p.model)).collect();
    assert_eq!(pending, names);
    plane.at(2, "retaining").await;
    let shown = plane.rollouts.get(2).await.unwrap().unwrap();
    assert!(!shown.options.atomic, "the request came without options");
    plane.nothing_broken();
}

#[tokio::test]
async fn a_retry_has_the_options_of_the_request_and_not_the_old_ones() {
    let (plane, _dir) = retaining(Duration::ZERO).await;
    plane.pin(&one(), "2", Some(canary(10, 3_600_000))).await;
    eventually("the share", PATIENCE, async || plane.split("t0/m0")).await;
    plane.rollouts.command(1, Command::Revert { confirmed: false }, "bob").await.unwrap();
    eventually("the share to end", PATIENCE, async || plane.split("t0/m0").is_none().then_some(())).await;
    plane.at(1, "done").await;
    // With the old share it would not come into force for an hour.
    assert_eq!(plane.pin(&one(), "2", None).await.pending.len(), 1);
    moved(&plane, "2").await;
    let shown = plane.rollouts.get(2).await.unwrap().unwrap();
    assert!(shown.options.canary.is_empty());
    plane.nothing_broken();
}

#[tokio::test]
async fn back_with_options_is_a_roll_out_of_its_own_that_loads_nothing() {
    let (plane, _dir) = retaining(HOUR).await;
    plane.pin(&one(), "2", None).await;
    plane.at(1, "retaining").await;
    let loads = plane.gateways.world.lock().unwrap().loads;
    plane.pin(&one(), "1", Some(canary(10, 3_600_000))).await;
    let share = eventually("the share", PATIENCE, async || plane.split("t0/m0")).await;
    assert_eq!((share, plane.in_force("t0/m0").as_str()), (("1".to_owned(), 10), "2"));
    assert_eq!(plane.gateways.world.lock().unwrap().loads, loads, "what is retained is there");
    let shown = plane.rollouts.get(2).await.unwrap().unwrap();
    assert_eq!((shown.progress.phase, shown.options.canary.len()), (Phase::Canary, 1));
    let first = plane.rollouts.get(1).await.unwrap().unwrap();
    assert!(first.progress.pins.iter().all(|pin| !pin.back), "{first:?}");
    plane.nothing_broken();
}

#[tokio::test]
async fn a_way_back_is_in_history_in_the_words_of_who_asked_for_it() {
    let (plane, _dir) = retaining(HOUR).await;
    plane.pin(&one(), "2", None).await;
    plane.at(1, "retaining").await;
    plane.pin_as("carl", "it was worse", &one(), "1").await;
    // A change of something else comes between.
    plane.pin_as("dora", "another one", &["t1/m1".to_owned()], "2").await;
    moved(&plane, "1").await;
    plane.at(1, "retaining").await;
    eventually("the other one", PATIENCE, async || (plane.in_force("t1/m1") == "2").then_some(())).await;
    plane.pin_as("emil", "once more", &one(), "3").await;
    moved(&plane, "3").await;
    let shown = eventually("the last roll-out", PATIENCE, async || plane.rollouts.get(3).await.unwrap()).await;
    assert_eq!((shown.meta.author.as_str(), shown.meta.reason.as_str()), ("emil", "once more"));
    plane.at(3, "retaining").await;
    plane.rollouts.command(3, Command::Revert { confirmed: false }, "bob").await.unwrap();
    moved(&plane, "1").await;
    // Who is refused has begun nothing.
    let again = plane.rollouts.command(3, Command::Revert { confirmed: false }, "eve").await;
    assert_eq!(again, Err(CommandError::Refused(Refusal::GoesBack)));
    let told: Vec<(String, String)> = plane.steps().await.into_iter().map(|step| (step.author, step.reason)).collect();
    for (author, reason) in [
        ("ann", "roll-out 1 step 1: better"),
        ("carl", "roll-out 1 step 2: it was worse"),
        ("dora", "roll-out 2 step 1: another one"),
        ("emil", "roll-out 3 step 1: once more"),
        ("bob", "roll-out 3 step 2: reverted"),
    ] {
        assert!(told.contains(&(author.to_owned(), reason.to_owned())), "{author}: {told:#?}");
    }
    assert_eq!(told.len(), 5);
}

#[tokio::test]
async fn resume_of_what_has_ended_and_of_what_is_not_paused_are_told_apart() {
    let (plane, _dir) = retaining(Duration::ZERO).await;
    plane.gateways.change(|world| _ = world.idle.insert("g1".to_owned()));
    plane.pin(&one(), "2", None).await;
    eventually("the roll-out", PATIENCE, async || plane.rollouts.get(1).await.unwrap()).await;
    let tell = async |command| plane.rollouts.command(1, command, "bob").await;
    assert_eq!(tell(Command::Resume).await, Err(CommandError::Refused(Refusal::Nothing)));
    assert_eq!(tell(Command::Pause).await, Ok(()));
    assert_eq!(tell(Command::Pause).await, Err(CommandError::Refused(Refusal::Nothing)));
    plane.rollouts.command(1, Command::Abort, "bob").await.unwrap();
    plane.at(1, "aborted").await;
    for command in [Command::Resume, Command::Pause] {
        assert_eq!(tell(command).await, Err(CommandError::Refused(Refusal::Over)), "{command:?}");
    }
}

#[tokio::test]
async fn what_has_left_the_catalogue_is_retained_no_longer() {
    let (plane, _dir) = retaining(HOUR).await;
    let edit = |kind, name: &str, value: Option<&str>| Edit {
        kind,
        name: name.into(),
        value: value.map(|version| Arc::new(version.into())),
    };
    let edits = vec![
        edit(ResourceKind::Pin, "t0/m0", Some("2")),
        edit(ResourceKind::Pin, "t1/m0", Some("2")),
        edit(ResourceKind::Version, "m0/1", None),
    ];
    plane.ask(What::Edits(edits), None).await;
    moved(&plane, "2").await;
    // It went with the flip: there is nothing to wait an hour for.
    let head = plane.at(1, "done").await;
    assert_eq!(head.words.as_deref(), Some("version 1 of m0 is not in the catalogue any more"));
    for confirmed in [false, true] {
        let refused = plane.rollouts.command(1, Command::Revert { confirmed }, "bob").await;
        assert_eq!(refused, Err(CommandError::Refused(Refusal::NoTarget)));
    }
    eventually("no order", PATIENCE, async || plane.rollouts.orders().wants.is_empty().then_some(())).await;
    always("nothing is wanted", Duration::from_millis(300), async || plane.rollouts.orders().wants.is_empty()).await;
    assert_eq!(plane.rollouts.alarms(), []);
    assert_eq!(plane.in_force("t1/m0"), "2");
    plane.nothing_broken();
}
