//! One pin, from a wish to the end of its roll-out.

use std::sync::Arc;
use std::time::Duration;

use holdfast_config::ResourceKind;
use holdfast_control::desk::{RolloutOptions, What};
use holdfast_control::rollouts::{CommandError, Link, Settings};
use holdfast_decide::rollout::{Command, Options, Phase, Refusal};
use holdfast_plane::{Edit, Status, View, Want, pair};
use holdfast_testkit::eventually;
use holdfast_testkit::wait::always;
use holdfast_types::GatewayName;

use crate::gateway::World;
use crate::support::*;

fn with(change: impl FnOnce(&mut Options)) -> Settings {
    let mut settings = settings();
    change(&mut settings.options);
    settings
}

fn one() -> Vec<String> {
    vec!["t0/m0".to_owned()]
}

#[tokio::test]
async fn a_changed_pin_is_warmed_flipped_and_done() {
    let (plane, _dir) = driven(settings()).await;
    let before = plane.desk.truth().head.in_force;
    let done = plane.pin(&one(), "2", None).await;
    assert_eq!(done.pending.len(), 1);
    let heads = plane.settled("the roll-out to end").await;
    assert_eq!(plane.in_force("t0/m0"), "2");
    let steps = plane.steps().await;
    assert_eq!(
        (steps.len(), steps[0].reason.as_str(), steps[0].author.as_str()),
        (1, "roll-out 1 step 1: better", "ann")
    );
    assert!(steps[0].revision > before);
    assert_eq!((heads.len(), heads[0].stages.get("done")), (1, Some(&1)));
    let shown = plane.rollouts.get(1).await.unwrap().unwrap();
    assert_eq!((shown.progress.phase, shown.meta.author.as_str()), (Phase::Done, "ann"));
    // The old version was let go of, and nothing is wanted beyond the table.
    eventually("no orders", PATIENCE, async || {
        let orders = plane.rollouts.orders();
        (orders.wants.is_empty() && orders.prepare.is_empty() && orders.observe.is_empty()).then_some(())
    })
    .await;
    plane.nothing_broken();
    assert!(plane.rollouts.get(2).await.unwrap().is_none());
    assert_eq!(plane.rollouts.command(9, Command::Pause, "bob").await, Err(CommandError::Unknown(9)));
}

#[tokio::test]
async fn a_load_that_fails_never_flips_and_says_why() {
    let (plane, _dir) = driven(settings()).await;
    plane.gateways.change(|world| _ = world.failing.insert("2".to_owned(), "no room on the device".to_owned()));
    plane.pin(&one(), "2", None).await;
    let head = plane.at(1, "failed").await;
    assert!(head.words.as_ref().is_some_and(|w| w.contains("no room on the device")), "{head:?}");
    let waits = eventually("the reason", PATIENCE, async || plane.rollouts.waiting().into_iter().next()).await;
    assert!(waits.words.contains("roll-out 1 failed") && waits.words.contains("no room"), "{waits:?}");
    assert_eq!((plane.in_force("t0/m0").as_str(), plane.steps().await.len()), ("1", 0));
    // It is not tried again by itself, but when it is desired anew.
    always("no second roll-out", Duration::from_millis(200), async || plane.rollouts.list().await.unwrap().len() == 1)
        .await;
    plane.gateways.change(|world| world.failing.clear());
    plane.pin(&one(), "1", None).await;
    plane.pin(&one(), "2", None).await;
    eventually("the second try", PATIENCE, async || (plane.in_force("t0/m0") == "2").then_some(())).await;
    plane.nothing_broken();
}

#[tokio::test]
async fn a_try_is_a_load_that_failed_and_no_word_that_is_said_again() {
    let (plane, _dir) = driven(with(|o| o.tries = 3)).await;
    plane.gateways.change(|world| {
        world.failing.insert("2".to_owned(), "no room".to_owned());
        world.patient = true;
    });
    plane.pin(&one(), "2", None).await;
    let failed = |world: &World| world.failures.values().copied().max();
    let counts = |wanted: u32| {
        let gateways = plane.gateways.clone();
        async move {
            let count = async || (failed(&gateways.world.lock().unwrap()) == Some(wanted)).then_some(());
            eventually("the failures", PATIENCE, count).await;
        }
    };
    counts(1).await;
    for wanted in 2..4 {
        // Status comes on status, with the same failure in it.
        always("one try is not the last", Duration::from_millis(150), async || {
            plane.gateways.change(|_| {});
            plane.rollouts.list().await.unwrap().iter().all(|head| !head.is_over())
        })
        .await;
        plane.gateways.change(|world| world.failures.values_mut().for_each(|count| *count += 1));
        counts(wanted).await;
    }
    let head = plane.at(1, "failed").await;
    assert!(head.words.is_some_and(|words| words.contains("no room")));
    assert_eq!(failed(&plane.gateways.world.lock().unwrap()), Some(3));
}

#[tokio::test]
async fn what_failed_is_tried_again_each_time_somebody_asks_again() {
    let (mut plane, _dir) = driven(settings()).await;
    let fail = |plane: &Plane| {
        plane.gateways.change(|world| _ = world.failing.insert("2".to_owned(), "no room".to_owned()));
    };
    fail(&plane);
    let options = RolloutOptions { retain_ms: Some(7), ..RolloutOptions::default() };
    plane.pin(&["t0/m0".to_owned(), "t1/m0".to_owned()], "2", Some(options)).await;
    plane.at(1, "failed").await;
    let told = async |plane: &Plane, id: u64| {
        let words = format!("roll-out {id} failed");
        eventually("the words in the orders", PATIENCE, async || {
            let pending = plane.rollouts.orders().pending.clone();
            let pin = pending.iter().find(|p| p.tenant.as_str() == "t0")?;
            pin.words.as_ref().is_some_and(|w| w.contains(&words) && w.contains("no room")).then_some(())
        })
        .await;
    };
    told(&plane, 1).await;
    let dry = plane.dry_pin(&one(), "2").await;
    assert_eq!((dry.revision, dry.pending.len()), (None, 1), "a dry run says what it would be");
    // Asked for again: another roll-out, of this pin alone, with the options of the request. It fails too, and that is that.
    let asked = plane.pin(&one(), "2", None).await;
    assert!(asked.revision.is_some() && asked.changes.is_empty() && asked.pending.len() == 1, "{asked:?}");
    plane.at(2, "failed").await;
    told(&plane, 2).await;
    let shown = plane.rollouts.get(2).await.unwrap().unwrap();
    assert_eq!(
        (shown.progress.pins.len(), shown.options.retain, shown.meta.author.as_str()),
        (1, plane.settings.options.retain, "ann")
    );
    // Nor does the next driver try again what the last one has tried.
    plane.kill().await;
    eventually("the reason", PATIENCE, async || (plane.rollouts.waiting().len() == 2).then_some(())).await;
    always("no other roll-out", Duration::from_millis(200), async || plane.rollouts.list().await.unwrap().len() == 2)
        .await;
    // A request that finds no driver is found by the next one.
    plane.gateways.change(|world| world.failing.clear());
    plane.stop().await;
    plane.pin(&one(), "2", None).await;
    plane.drive_anew();
    eventually("the third try", PATIENCE, async || (plane.in_force("t0/m0") == "2").then_some(())).await;
    assert_eq!(plane.in_force("t1/m0"), "1", "nobody has asked for the other one");
    // What is on its way, or in force, is nothing to ask for again.
    assert_eq!(plane.pin(&one(), "2", None).await.revision, None);
    plane.pin(&["t1/m0".to_owned()], "2", None).await;
    plane.settled("the other one").await;
    assert_eq!(
        plane.store.records("pin_retry".to_owned(), None, 9).await.unwrap().len(),
        1,
        "needed until the next look"
    );
    plane.nothing_broken();
}

#[tokio::test]
async fn what_failed_is_not_tried_again_by_the_next_driver() {
    let (mut plane, _dir) = driven(settings()).await;
    plane.gateways.change(|world| _ = world.failing.insert("2".to_owned(), "no room".to_owned()));
    plane.pin(&one(), "2", None).await;
    plane.at(1, "failed").await;
    plane.kill().await;
    eventually("the reason", PATIENCE, async || plane.rollouts.waiting().into_iter().next()).await;
    always("no second roll-out", Duration::from_millis(200), async || plane.rollouts.list().await.unwrap().len() == 1)
        .await;
}

#[tokio::test]
async fn a_gateway_that_does_not_prepare_blocks_the_flip_until_it_fails() {
    let (plane, _dir) = driven(with(|o| o.prepare = Duration::from_millis(300))).await;
    plane.gateways.change(|world| _ = world.idle.insert("g1".to_owned()));
    plane.pin(&one(), "2", None).await;
    let head = plane.at(1, "failed").await;
    assert_eq!(head.words.as_deref(), Some("gateway g1 has not prepared in time"));
    assert_eq!((plane.in_force("t0/m0").as_str(), plane.steps().await.len()), ("1", 0));
}

#[tokio::test]
async fn a_lease_that_ends_is_waited_for_no_longer() {
    let (mut plane, _dir) = driven(settings()).await;
    let lease = Duration::from_millis(500);
    let silent = plane.gateway("far", Link::Remote { lease }).await;
    eventually("its first word", PATIENCE, async || {
        plane.sessions.nodes().iter().any(|n| n.name.as_str() == "far" && n.status.in_force.0 > 0).then_some(())
    })
    .await;
    silent.abort();
    plane.pin(&one(), "2", None).await;
    eventually("the flip", PATIENCE, async || (plane.in_force("t0/m0") == "2").then_some(())).await;
    assert!(plane.sessions.nodes().iter().all(|n| n.leased), "the silent one is out of the count");
}

#[tokio::test]
async fn a_flip_waits_for_a_gateway_of_the_roster_that_nobody_hears() {
    let (mut plane, _dir) = driven(settings()).await;
    let silent = plane.gateway("far", Link::Remote { lease: Duration::from_millis(700) }).await;
    silent.abort();
    let _ = silent.await;
    // Another process has this store now, and has never spoken to it.
    let settings = plane.settings.clone();
    let (store, world) = (plane.store.clone(), plane.gateways.clone());
    drop(plane);
    tokio::task::yield_now().await;
    let mut next = Plane::start(store, settings, &world).await;
    next.gateways(1).await;
    let begun = std::time::Instant::now();
    next.drive();
    next.pin(&one(), "2", None).await;
    eventually("the flip", PATIENCE, async || (next.in_force("t0/m0") == "2").then_some(())).await;
    assert!(begun.elapsed() >= Duration::from_millis(600), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn commands_reach_the_roll_out_and_refusals_come_back() {
    let (plane, _dir) = driven(with(|o| o.retain = Duration::from_secs(3_600))).await;
    plane.pin(&one(), "2", None).await;
    plane.at(1, "retaining").await;
    assert_eq!(plane.rollouts.command(1, Command::Abort, "bob").await, Err(CommandError::Refused(Refusal::Active)));
    assert_eq!(plane.rollouts.command(1, Command::Pause, "bob").await, Ok(()));
    assert!(plane.rollouts.get(1).await.unwrap().unwrap().progress.paused);
    assert_eq!(plane.rollouts.command(1, Command::Revert { confirmed: false }, "bob").await, Ok(()));
    eventually("the way back", PATIENCE, async || (plane.in_force("t0/m0") == "1").then_some(())).await;
    // It is what is desired, too: nothing waits to bring the new version back.
    assert_eq!(plane.desired("t0/m0"), "1");
    assert!(plane.desk.truth().pending.is_empty());
    assert_eq!(plane.rollouts.list().await.unwrap().len(), 1);
    plane.nothing_broken();
}

#[tokio::test]
async fn back_to_what_is_retained_is_a_revert_without_a_load() {
    let (plane, _dir) = driven(with(|o| o.retain = Duration::from_secs(3_600))).await;
    plane.pin(&one(), "2", None).await;
    plane.at(1, "retaining").await;
    let loads = plane.gateways.world.lock().unwrap().loads;
    plane.pin(&one(), "1", None).await;
    eventually("the way back", PATIENCE, async || (plane.in_force("t0/m0") == "1").then_some(())).await;
    assert_eq!(plane.gateways.world.lock().unwrap().loads, loads, "nothing was loaded");
    assert_eq!(plane.rollouts.list().await.unwrap().len(), 1);
    assert_eq!(plane.steps().await.len(), 2);
}

#[tokio::test]
async fn a_newer_wish_before_the_flip_replaces_the_roll_out() {
    let (plane, _dir) = driven(settings()).await;
    plane.gateways.change(|world| _ = world.idle.insert("g0".to_owned()));
    let both = vec!["t0/m0".to_owned(), "t1/m0".to_owned()];
    plane.pin(&both, "2", None).await;
    eventually("the first roll-out", PATIENCE, async || (!plane.rollouts.orders().prepare.is_empty()).then_some(()))
        .await;
    plane.pin(&one(), "3", None).await;
    plane.at(1, "aborted").await;
    plane.gateways.change(|world| world.idle.clear());
    plane.settled("the second roll-out").await;
    assert_eq!((plane.in_force("t0/m0").as_str(), plane.in_force("t1/m0").as_str()), ("3", "2"));
    plane.nothing_broken();
}

#[tokio::test]
async fn a_wish_that_goes_back_before_the_flip_ends_the_roll_out() {
    let (plane, _dir) = driven(settings()).await;
    plane.gateways.change(|world| _ = world.idle.insert("g0".to_owned()));
    plane.pin(&one(), "2", None).await;
    eventually("the roll-out", PATIENCE, async || (!plane.rollouts.orders().wants.is_empty()).then_some(())).await;
    plane.pin(&one(), "1", None).await;
    plane.at(1, "aborted").await;
    assert_eq!((plane.in_force("t0/m0").as_str(), plane.steps().await.len()), ("1", 0));
}

#[tokio::test]
async fn options_of_a_change_are_those_of_its_roll_out() {
    let (plane, _dir) = driven(settings()).await;
    let options = RolloutOptions { atomic: true, retain_ms: Some(77), ..RolloutOptions::default() };
    plane.pin(&names(2, 2), "2", Some(options)).await;
    plane.settled("the roll-out").await;
    let shown = plane.rollouts.get(1).await.unwrap().unwrap();
    assert!(shown.options.atomic && shown.options.retain == Duration::from_millis(77));
    assert_eq!((shown.options.loads, plane.steps().await.len()), (64, 1));
}

#[tokio::test]
async fn a_replica_that_is_lost_is_replaced_by_the_next_candidate() {
    let (plane, _dir) = driven(settings()).await;
    plane.gateways.change(|world| _ = world.failing.insert("2".to_owned(), "busy".to_owned()));
    let options = RolloutOptions { tries: Some(1_000_000), ..RolloutOptions::default() };
    plane.pin(&one(), "2", Some(options)).await;
    let wanted = eventually("loads", PATIENCE, async || plane.rollouts.orders().wants.first().cloned()).await;
    plane.gateways.change(|world| _ = world.down.insert(wanted.replica.to_string()));
    let lost = wanted.replica.to_string();
    eventually("another replica", PATIENCE, async || {
        let orders = plane.rollouts.orders();
        let new = orders.wants.iter().filter(|w| w.artifact.version.as_str() == "2" && w.replica.as_str() != lost);
        (new.count() == 2).then_some(())
    })
    .await;
    plane.gateways.change(|world| world.failing.clear());
    eventually("the flip", PATIENCE, async || (plane.in_force("t0/m0") == "2").then_some(())).await;
}

#[tokio::test]
async fn a_replica_that_joins_takes_its_part_of_a_roll_out_that_runs() {
    let (plane, _dir) = driven(settings()).await;
    plane.gateways.change(|world| _ = world.idle.insert("g0".to_owned()));
    plane.pin(&names(2, 2), "2", None).await;
    eventually("the roll-out to wait", PATIENCE, async || (!plane.rollouts.orders().prepare.is_empty()).then_some(()))
        .await;
    let add = |n: usize| Edit {
        kind: ResourceKind::Replica,
        name: format!("gpu/r{n}").into(),
        value: Some(Arc::new(serde_json::json!({ "url": format!("http://127.0.0.1:{}", 9001 + n) }))),
    };
    // So many that some key hashes to one of them.
    plane.ask(What::Edits((3..12).map(add).collect()), None).await;
    eventually("a load on a new one", PATIENCE, async || {
        let orders = plane.rollouts.orders();
        let new = |w: &Want| !["r0", "r1", "r2"].contains(&w.replica.as_str()) && w.artifact.version.as_str() == "2";
        orders.wants.iter().any(new).then_some(())
    })
    .await;
    plane.gateways.change(|world| world.idle.clear());
    plane.settled("the roll-out").await;
    assert_eq!(plane.rollouts.list().await.unwrap().len(), 1);
    // What joined had to load what was in force: nothing of that is the roll-out's. The pins that flipped were held.
    let world = plane.gateways.world.lock().unwrap();
    let flipped: Vec<&String> = world.broken.iter().filter(|b| b.contains("Version(2)")).collect();
    assert!(flipped.is_empty(), "{flipped:?}");
}

#[tokio::test]
async fn finished_roll_outs_are_kept_up_to_a_bound_and_numbers_never_come_again() {
    let (plane, _dir) = driven(Settings { keep: 2, ..settings() }).await;
    for version in ["2", "3", "4", "1", "2"] {
        plane.pin(&one(), version, None).await;
        eventually("the flip", PATIENCE, async || (plane.in_force("t0/m0") == version).then_some(())).await;
        plane.settled("its end").await;
    }
    let ids = eventually("two that are left", PATIENCE, async || {
        let ids: Vec<u64> = plane.rollouts.list().await.unwrap().iter().map(|h| h.id).collect();
        (ids.len() == 2).then_some(ids)
    })
    .await;
    assert_eq!(ids, [4, 5]);
    assert_eq!(plane.steps().await.len(), 5);
}

#[tokio::test]
async fn a_lease_that_ended_is_granted_anew_to_who_speaks_again() {
    let (plane, _dir) = driven(settings()).await;
    let name = GatewayName::parse("far").unwrap();
    let (end, control) = pair(name.clone(), View::default());
    plane.sessions.attach(end, Link::Remote { lease: Duration::from_millis(100) }).await.unwrap();
    let leased = |leased: bool| {
        let sessions = plane.sessions.clone();
        async move {
            eventually("the lease", PATIENCE, async || {
                sessions.nodes().iter().any(|n| n.name.as_str() == "far" && n.leased == leased).then_some(())
            })
            .await;
        }
    };
    leased(false).await;
    // A word alone is not enough: it has an old table.
    control.status.send_replace(Arc::new(Status::of(name.clone())));
    always("no lease", Duration::from_millis(50), async || plane.sessions.nodes().iter().any(|n| !n.leased)).await;
    let told = eventually("the table", PATIENCE, async || {
        let revision = control.view.borrow().table.revision;
        (revision.0 > 0).then_some(revision)
    })
    .await;
    let speak = async {
        loop {
            let mut status = Status::of(name.clone());
            (status.in_force, status.oldest) = (told, told);
            control.status.send_replace(Arc::new(status));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = leased(true) => {}
        () = speak => {}
    }
}
