//! The store of a gateway on a disk that fails, and what the control plane tells of itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod operation_support;

use std::time::Duration;

use holdfast_testkit::{Holdfast, eventually};
use operation_support::world::{INFER, World};
use operation_support::{served, tenant};

/// Waits until the store is up or down everywhere, and gives what the admin view says of it.
async fn store_is(holdfast: &Holdfast, up: bool) -> serde_json::Value {
    eventually("the store to be told up or down everywhere", Duration::from_secs(30), async || {
        let store = holdfast.admin_get("/v1/table").await["store"].clone();
        let ready = holdfast.data.get("/readyz?verbose", &[]).await;
        assert_eq!(ready.status, 200, "traffic goes on whatever the store does");
        let counted = holdfast.metrics().await.sum("holdfast_control_store_up", &[]);
        let all = store["ok"] == up && ready.json()["store"]["ok"] == up && (counted == 1.0) == up;
        all.then_some(store)
    })
    .await
}

#[tokio::test]
async fn a_full_disk_refuses_changes_and_nothing_else_and_passes_by_itself() {
    let mut world = World::new().await;
    let (head, before) = (world.head.clone(), world.revision().await);
    let more = |n: u32| format!("{head}tenants:\n{}{}", tenant("acme", "1"), tenant(&format!("t{n}"), "2"));
    assert!(store_is(&world.holdfast, true).await["error"].is_null());
    world.holdfast.proc.limit_files(Some(0));
    for n in 0..3 {
        assert!(!world.offer(&more(n)).await, "nobody could find it again");
        assert_eq!(world.status("acme").await, 200);
        assert_eq!(world.revision().await, before);
    }
    let store = store_is(&world.holdfast, false).await;
    assert!(store["error"].as_str().unwrap().contains("os error 27"), "{store}");
    let failed = world.holdfast.admin_get("/v1/table").await["config"]["failed"].clone();
    assert!(failed["faults"].as_str().unwrap().contains("the store cannot be reached"), "{failed}");
    let public = world.holdfast.data.get("/readyz?verbose", &[]).await.json()["store"]["error"].clone();
    assert!(public.as_str().is_some_and(|words| !words.contains("os error")), "{public}");
    world.holdfast.proc.limit_files(None);
    assert_eq!(served(&world.holdfast, "t2", INFER).await, "2", "the last file is taken by itself");
    store_is(&world.holdfast, true).await;
    assert_eq!(world.holdfast.metrics().await.sum("holdfast_config_error", &[]), 0.0);
}

#[tokio::test]
async fn metrics_tell_where_the_control_plane_stands() {
    let mut world = World::new().await;
    let told = async |world: &World, name: &str, labels: &[(&str, &str)]| {
        world.holdfast.metrics().await.sum(&format!("holdfast_control_{name}"), labels)
    };
    for server in &mut world.servers {
        server.proc.kill9();
    }
    let moved = format!("{}tenants:\n{}", world.head, tenant("acme", "2"));
    assert!(world.offer(&moved).await);
    eventually("a roll-out that warms", Duration::from_secs(15), async || {
        let warms = told(&world, "rollouts", &[("phase", "pre_warm")]).await == 1.0;
        (warms && told(&world, "pins_pending", &[]).await == 1.0).then_some(())
    })
    .await;
    assert_eq!((told(&world, "leads", &[]).await, told(&world, "term", &[]).await), (1.0, 1.0));
    let [desired, in_force] =
        [told(&world, "desired_revision", &[]).await, told(&world, "in_force_revision", &[]).await];
    assert!(desired > in_force && in_force >= 1.0, "{desired} {in_force}");
    assert!(told(&world, "commit_seconds", &[]).await > 0.0);
    assert!(told(&world, "store_last_success_age_seconds", &[]).await < 60.0);
    for server in &mut world.servers {
        server.restart().await;
    }
    eventually("the flip", Duration::from_secs(30), async || {
        let flipped = told(&world, "in_force_revision", &[]).await > desired;
        (flipped && told(&world, "pins_pending", &[]).await == 0.0).then_some(())
    })
    .await;
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "2");
    assert_eq!(told(&world, "rollouts_failed_total", &[]).await, 0.0);
    world.holdfast.restart().await;
    eventually("the next term", Duration::from_secs(15), async || {
        (told(&world, "term", &[]).await == 2.0 && told(&world, "leads", &[]).await == 1.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn no_revision_is_given_twice_over_faults_of_the_disk_and_kills() {
    let mut world = World::new().await;
    let head = world.head.clone();
    let text = |n: u32| format!("{head}tenants:\n{}{}", tenant("acme", "1"), tenant(&format!("t{n}"), "2"));
    let mut seen = std::collections::BTreeMap::new();
    let mut note = async |world: &World| {
        world.revision().await;
        let table = world.holdfast.admin_get("/v1/table").await;
        let digest = table["digest"].as_str().unwrap().to_owned();
        let known = seen.entry(table["revision"].as_u64().unwrap()).or_insert_with(|| digest.clone());
        assert_eq!(*known, digest, "one revision, one table");
    };
    note(&world).await;
    for round in 0..3 {
        assert!(world.offer(&text(10 * round)).await);
        note(&world).await;
        world.holdfast.proc.limit_files(Some(0));
        assert!(!world.offer(&text(10 * round + 1)).await);
        note(&world).await;
        if round == 1 {
            world.holdfast.proc.limit_files(None);
            served(&world.holdfast, "t11", INFER).await;
            note(&world).await;
        }
        world.holdfast.proc.kill9();
        world.holdfast.restart().await;
        served(&world.holdfast, &format!("t{}", 10 * round + 1), INFER).await;
        note(&world).await;
    }
    assert!(seen.len() >= 7, "{seen:?}");
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), (1..=seen.len() as u64).collect::<Vec<_>>(), "without a hole");
}

#[tokio::test]
async fn a_store_that_is_put_away_takes_changes_when_it_is_back() {
    let mut world = World::new().await;
    let (store, away) = (world.holdfast.state_path().join("table.redb"), world.holdfast.state_path().join("away"));
    std::fs::rename(&store, &away).unwrap();
    let more = format!("{}tenants:\n{}{}", world.head, tenant("acme", "1"), tenant("globex", "2"));
    assert!(!world.offer(&more).await, "nobody would find it again after a restart");
    let told = store_is(&world.holdfast, false).await;
    assert!(told["error"].as_str().unwrap().contains("put it back"), "{told}");
    assert_eq!(world.status("acme").await, 200);
    std::fs::rename(&away, &store).unwrap();
    assert_eq!(served(&world.holdfast, "globex", INFER).await, "2");
    store_is(&world.holdfast, true).await;
}

#[tokio::test]
async fn a_shorter_history_is_pruned_when_it_is_configured() {
    let mut world = World::new().await;
    let head = world.head.clone();
    let text = |history: &str, n: u32| {
        format!("{history}{head}tenants:\n{}{}", tenant("acme", "1"), tenant(&format!("t{n}"), "2"))
    };
    for n in 0..5 {
        assert!(world.offer(&text("", n)).await);
    }
    let floor = async |world: &World| world.holdfast.metrics().await.sum("holdfast_control_floor_revision", &[]);
    assert_eq!(floor(&world).await, 0.0, "ninety days are kept unless told otherwise");
    assert!(world.offer(&text("history: { keep: 0s, revisions: 2 }\n", 4)).await);
    let kept = (world.revision().await - 2) as f64;
    eventually("all but the last two to go", Duration::from_secs(15), async || {
        (floor(&world).await == kept).then_some(())
    })
    .await;
    assert_eq!(world.status("acme").await, 200);
    world.holdfast.restart().await;
    assert_eq!(served(&world.holdfast, "t4", INFER).await, "2", "what is left is a whole store");
    assert!(!world.offer(&text("history: { keep: 0s, revisions: 0 }\n", 4)).await, "something has to be kept");
}

#[tokio::test]
async fn a_store_that_was_changed_while_nothing_had_it_open_is_not_served() {
    let mut world = World::new().await;
    let url = world.servers[0].url();
    world.holdfast.proc.sigterm();
    assert!(world.holdfast.proc.wait_exit(Duration::from_secs(20)).await.success());
    // The same length and still a URL: nothing but the digest tells.
    let file = world.holdfast.state_path().join("table.redb");
    let mut bytes = std::fs::read(&file).unwrap();
    let changed = url.replace("127.0.0.1", "127.0.0.2");
    let places: Vec<usize> =
        bytes.windows(url.len()).enumerate().filter(|(_, w)| *w == url.as_bytes()).map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + changed.len()].copy_from_slice(changed.as_bytes());
    }
    std::fs::write(&file, bytes).unwrap();
    let mut command = std::process::Command::new(operation_support::binary());
    command.arg("serve").arg("--config").arg(world.holdfast.config_path());
    let mut proc = holdfast_testkit::Proc::start("holdfast", command);
    assert_eq!(proc.wait_exit(Duration::from_secs(20)).await.code(), Some(1), "{}", proc.output());
    assert!(proc.output().contains("restore a backup"), "{}", proc.output());
}
