//! Answers that get lost, and commits that come in between.

use holdfast_config::{ResourceKind, Truth as Owner};
use holdfast_control::desk::{ActivateError, Ask, DeskError};
use holdfast_store::{Change, Commit, Edit, Json, Key, Place, Purpose, Space};
use holdfast_types::Revision;

use crate::bench::{Bench, activation, ask, desk, no_version, pin, pins, promises, tenant};
use crate::unsteady::{Next, Unsteady};

pub async fn a_lost_answer_is_found_out(bench: Bench) {
    let (_, store, _) = bench.seeded().await;
    let unsteady = Unsteady::over(store.clone());
    let desk = desk(&(unsteady.clone() as _), Owner::Store).await;
    let mut revision = 1;
    let lost = [vec![Next::LostAfter], vec![Next::LostBefore], vec![Next::LostAfter, Next::LostBefore]];
    for (n, lost) in lost.into_iter().enumerate() {
        let to = ["2", "3", "2"][n];
        unsteady.next(lost.clone());
        let done = desk.change(Ask { at_ms: n as u64, ..ask(vec![pin("a/m", to)]) }).await.unwrap();
        revision += 1;
        assert_eq!(done.revision, Some(Revision(revision)), "{lost:?}");
        unsteady.next(lost.clone());
        let done = desk.activate(activation(&desk, &[("a/m", to)], 1)).await.unwrap();
        revision += 1;
        assert_eq!(done.revision, Revision(revision), "{lost:?}");
        assert_eq!(store.head().await.unwrap().revision, Revision(revision), "it has effect once");
        assert_eq!(pins(&desk.truth().in_force), format!("a/m={to} b/m=1"));
    }
    // All answers are lost: what can be seen is seen, and else it is said.
    unsteady.next([Next::LostBefore, Next::LostBefore, Next::LostAfter]);
    assert_eq!(desk.change(ask(vec![tenant("d")])).await.unwrap().revision, Some(Revision(revision + 1)));
    unsteady.next([Next::LostBefore, Next::LostBefore, Next::LostBefore]);
    let unknown = desk.change(ask(vec![tenant("e")])).await;
    assert!(
        matches!(&unknown, Err(DeskError::Unavailable(words)) if words.contains("may have been made")),
        "{unknown:?}"
    );
    let truth = desk.refresh().await.unwrap();
    let there = |name| truth.desired.get(ResourceKind::Tenant, name).is_some();
    assert_eq!((there("d"), there("e")), (true, false));
    desk.change(ask(vec![pin("b/m", "3")])).await.unwrap();
    unsteady.next([Next::LostBefore, Next::LostBefore, Next::LostBefore]);
    let unknown = desk.activate(activation(&desk, &[("b/m", "3")], 1)).await;
    assert!(matches!(unknown, Err(ActivateError::Unavailable { maybe: true, .. })), "{unknown:?}");
    unsteady.next([Next::Down]);
    let down = desk.activate(activation(&desk, &[("b/m", "3")], 1)).await;
    assert!(matches!(down, Err(ActivateError::Unavailable { maybe: false, .. })), "{down:?}");
    promises(&desk).await;
}

/// Another process puts a pin in force.
fn flip(name: &str, version: &str) -> Commit {
    let place = Place { space: Space::InForce, key: Key::new("pin", name).unwrap() };
    let edits = vec![Edit { place, value: Some(Json::of(&version).unwrap()) }];
    let (author, reason) = ("other".to_owned(), String::new());
    let change = Change { purpose: Purpose::Activation, base: None, author, reason, at_ms: 1, edits };
    Commit { change: Some(change), ..Commit::default() }
}

pub async fn what_comes_in_between_is_taken_into_account(bench: Bench) {
    let (_, store, _) = bench.seeded().await;
    let unsteady = Unsteady::over(store.clone());
    let desk = desk(&(unsteady.clone() as _), Owner::Store).await;
    desk.change(ask(vec![pin("a/m", "2")])).await.unwrap();
    // Seen from here nothing needs version 2 when the change of the pin is taken back; but meanwhile it is in force.
    unsteady.next([Next::Meanwhile(flip("a/m", "2"))]);
    let done = desk.change(ask(vec![pin("a/m", "1"), no_version("m/2")])).await.unwrap();
    assert_eq!(done.pending.len(), 1, "the pin has to come back from version 2");
    assert!(desk.truth().in_force.get(ResourceKind::Version, "m/2").is_some());
    promises(&desk).await;

    // An author who named what they saw is told of another author, but not of a flip.
    let seen = Some(desk.truth().head.revision);
    unsteady.next([Next::Meanwhile(flip("a/m", "1"))]);
    desk.change(Ask { base: seen, ..ask(vec![tenant("d")]) }).await.unwrap();
    let seen = Some(desk.truth().head.revision);
    let place = Place { space: Space::Desired, key: Key::new("pin", "b/m").unwrap() };
    let mut other = flip("a/m", "1");
    let change = other.change.as_mut().unwrap();
    (change.purpose, change.base) = (Purpose::Change, seen);
    change.edits = vec![Edit { place, value: Some(Json::of(&"3").unwrap()) }];
    unsteady.next([Next::Meanwhile(other)]);
    let refused = desk.change(Ask { base: seen, ..ask(vec![tenant("e")]) }).await;
    assert!(matches!(&refused, Err(DeskError::Conflict { changed, .. }) if changed == &["pin b/m"]), "{refused:?}");
    // A flip of another process voids one that was worked out before it.
    unsteady.next([Next::Meanwhile(flip("b/m", "3"))]);
    let voided = desk.activate(activation(&desk, &[("b/m", "3")], 1)).await;
    assert!(matches!(voided, Err(ActivateError::Conflict { .. })), "{voided:?}");
    promises(&desk).await;
}
