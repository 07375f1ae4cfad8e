//! Pins into force.

use std::sync::Arc;

use holdfast_config::ResourceKind::Version;
use holdfast_config::Truth as Owner;
use holdfast_control::desk::{ActivateError, Activation, Adopted, Retired};
use holdfast_store::{Json, Purpose, RecordWrite};
use holdfast_testkit::eventually;
use holdfast_types::Revision;

use crate::bench::{Bench, PATIENCE, TEXT, activation, ask, desk, file, frame, no_version, pin, pins, promises};

fn record(expected: Option<u64>) -> RecordWrite {
    RecordWrite { kind: "rollout".into(), id: "1".into(), expected, value: Some(Json::of(&expected).unwrap()) }
}

pub async fn a_changed_pin_goes_into_force_when_it_is_activated(bench: Bench) {
    let (desk, store, _) = bench.seeded().await;
    desk.change(ask(vec![pin("a/m", "2"), pin("b/m", "2"), no_version("m/1")])).await.unwrap();
    let kept = || desk.truth().in_force.get(Version, "m/1").is_some();
    assert!(kept() && desk.truth().pending.len() == 2);
    let first = Activation { records: vec![record(None)], ..activation(&desk, &[("a/m", "2")], 1) };
    let done = desk.activate(first).await.unwrap();
    assert_eq!((done.revision, done.versions.len()), (Revision(3), 1));
    assert_eq!((pins(&desk.truth().in_force), kept(), desk.truth().pending.len()), ("a/m=2 b/m=1".into(), true, 1));
    // What is desired changes in between: the flip's own table is the same.
    let late = activation(&desk, &[("b/m", "2")], 1);
    desk.change(ask(vec![pin("a/m", "3")])).await.unwrap();
    let done = desk.activate(late).await.unwrap();
    assert_eq!(
        (pins(&desk.truth().in_force), kept()),
        ("a/m=2 b/m=2".into(), false),
        "nothing needs version 1 any more"
    );
    let header = desk.history(None, 1).await.unwrap().remove(0);
    assert_eq!((header.revision, header.purpose, header.term), (done.revision, Purpose::Activation, Some(1)));
    assert_eq!(desk.truth().head.in_force, done.revision);
    assert_eq!(store.head().await.unwrap(), desk.truth().head);
    promises(&desk).await;
}

pub async fn refusals_are_told_apart_and_leave_nothing(bench: Bench) {
    let (desk, store, _) = bench.seeded().await;
    desk.change(ask(vec![pin("a/m", "2")])).await.unwrap();
    store.write_record(record(None)).await.unwrap();
    desk.activate(activation(&desk, &[("a/m", "2")], 5)).await.unwrap();
    desk.change(ask(vec![pin("a/m", "3")])).await.unwrap();
    let before = store.head().await.unwrap();
    let good = activation(&desk, &[("a/m", "3")], 5);
    let refused = async |activation| desk.activate(activation).await.unwrap_err();
    let stale = refused(Activation { expected: Revision(1), ..good.clone() }).await;
    assert!(matches!(stale, ActivateError::Conflict { in_force: Revision(3) }), "{stale:?}");
    let led_before = refused(Activation { term: 4, ..good.clone() }).await;
    assert!(matches!(led_before, ActivateError::Fenced), "{led_before:?}");
    let saved_since = refused(Activation { records: vec![record(Some(99))], ..good.clone() }).await;
    assert!(matches!(saved_since, ActivateError::Fenced), "{saved_since:?}");
    for pin in [("a/m", "9"), ("z/m", "1"), ("c/m", "1")] {
        let invalid = refused(activation(&desk, &[pin], 5)).await;
        assert!(matches!(invalid, ActivateError::Invalid(_)), "{pin:?}: {invalid:?}");
    }
    assert_eq!(store.head().await.unwrap(), before);
    desk.activate(good).await.unwrap();
    promises(&desk).await;
}

pub async fn another_desk_follows(bench: Bench) {
    let (first, store, name) = bench.seeded().await;
    let second = desk(&bench.second(&name, &store).await, Owner::Store).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let following = tokio::spawn(second.clone().follow(async move { _ = stopped.await }));
    let mut watch = second.watch();
    first.change(ask(vec![pin("a/m", "2"), pin("c/m", "1")])).await.unwrap();
    first.activate(activation(&first, &[("a/m", "2")], 1)).await.unwrap();
    let head = first.truth().head.clone();
    let same = async || second.truth().head.eq(&head).then_some(());
    eventually("the other desk's truth", PATIENCE, same).await;
    assert!(watch.has_changed().unwrap());
    let (a, b) = (first.truth(), Arc::clone(&watch.borrow_and_update()));
    assert_eq!((&a.desired, &a.in_force, &a.pending), (&b.desired, &b.in_force, &b.pending));
    stop.send(()).unwrap();
    following.await.unwrap();
    assert_eq!(
        second.adopt_file(file(TEXT), frame(TEXT), 1, Retired::new(), None).await.unwrap(),
        Adopted::SettingsOnly
    );
}
