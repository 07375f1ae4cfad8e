//! A pin moves: the new version is warm first, then all requests move at once, and nothing of the old version comes after.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fleet::{Fleet, INFER, PATIENCE, holders, judgements, pin_of, probe, subset};
use holdfast_model_server::{Layout, write_sample_repository};
use holdfast_testkit::http::Client;
use holdfast_testkit::load::{Load, Record, Report, Target};
use holdfast_testkit::wait::always;
use holdfast_testkit::{Holdfast, TempDir, eventually};
use serde_json::{Value, json};

fn acme(subset: usize) -> Value {
    json!([{"name": "acme", "subset": subset, "pins": {"screen": "1"}}])
}

fn load(fleet: &Fleet, per_second: u32, tenants: &[&str]) -> Load {
    let targets = tenants.iter().map(|t| Target::new(t, INFER, &probe())).collect();
    Load::start(Client::new(fleet.gateway.data.addr()), per_second, targets)
}

/// Waits until the load has so many more answers for a tenant under a revision, or a later one.
async fn answered(running: &Load, count: usize, tenant: &str, revision: u64) {
    let later = |r: &Record| r.tenant == tenant && r.revision >= Some(revision);
    let wanted = running.count(later) + count;
    eventually("answers under the new revision", PATIENCE, async || (running.count(later) >= wanted).then_some(()))
        .await;
}

/// Every answer is a success, is what its version says, and each revision has one version of it.
fn check(report: &Report, tenant: &str, judgements: &BTreeMap<String, Value>) -> BTreeMap<u64, String> {
    let mut versions = BTreeMap::<u64, String>::new();
    for r in report.0.iter().filter(|r| r.tenant == tenant) {
        assert_eq!(r.status, 200, "{} {}", r.error, String::from_utf8_lossy(&r.body));
        let body: Value = serde_json::from_slice(&r.body).unwrap();
        assert_eq!(body["outputs"], judgements[&r.version], "what {} says", r.version);
        let version = versions.entry(r.revision.unwrap()).or_insert_with(|| r.version.clone());
        assert_eq!(*version, r.version, "one version of {tenant} under revision {:?}", r.revision);
    }
    versions
}

/// No request that began after another had been answered under a revision is answered under an older one.
fn check_order(report: &Report) {
    let mut answered: Vec<(Duration, u64)> = report.0.iter().map(|r| (r.done, r.revision.unwrap())).collect();
    answered.sort_unstable();
    let mut newest = 0;
    let newest_by: Vec<(Duration, u64)> = answered
        .into_iter()
        .map(|(at, revision)| {
            newest = newest.max(revision);
            (at, newest)
        })
        .collect();
    for r in &report.0 {
        let before = newest_by.partition_point(|(at, _)| *at < r.due);
        let seen = before.checked_sub(1).map_or(0, |at| newest_by[at].1);
        assert!(r.revision.unwrap() >= seen, "{:?} after {seen} had been seen", r.revision);
    }
}

#[tokio::test]
async fn a_flip_under_load_fails_nothing_and_waits_until_the_subset_is_warm() {
    let mut fleet = Fleet::start((3, &["--load-time", "1500ms"]), 2, acme(2), |_| {}).await;
    fleet.wait_held("1", 2).await;
    let judgements = judgements(2).await;
    let running = load(&fleet, 200, &["acme"]);
    fleet.pin(0, "2");
    eventually("the pin to be pending", PATIENCE, async || {
        let table = fleet.gateway.admin_get("/v1/table").await;
        let pending = &table["pending"][0];
        let waits = (pending["to"] == "2") && !pending["waiting_for"].as_array()?.is_empty();
        assert!(waits || pin_of(&table, "acme") == "1" || holders(&fleet.gateway, "2").await.len() >= 2);
        waits.then_some(())
    })
    .await;
    let table = eventually("the flip", PATIENCE, async || {
        let table = fleet.gateway.admin_get("/v1/table").await;
        (pin_of(&table, "acme") == "2").then_some(table)
    })
    .await;
    let (holders, members) = (holders(&fleet.gateway, "2").await, subset(&fleet.gateway, "acme").await);
    assert!(members.len() == 2 && members.iter().all(|m| holders.contains(m)), "{members:?}, {holders:?}");
    assert_eq!(table["pending"], json!([]));
    answered(&running, 100, "acme", table["revision"].as_u64().unwrap()).await;
    let report = running.stop().await;
    let versions = check(&report, "acme", &judgements);
    check_order(&report);
    assert!(versions.values().any(|v| v == "1") && versions.values().any(|v| v == "2"), "{versions:?}");
}

#[tokio::test]
async fn revisions_never_go_back_on_a_connection_nor_over_many_flips() {
    let mut fleet = Fleet::start((2, &[]), 2, acme(2), |_| {}).await;
    fleet.wait_held("1", 2).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut watchers = Vec::new();
    let newest: Vec<Arc<AtomicU64>> = (0..4).map(|_| Arc::default()).collect();
    for newest in newest.clone() {
        let (stop, addr) = (stop.clone(), fleet.gateway.data.addr());
        watchers.push(tokio::spawn(async move {
            // One request at a time, so one connection.
            let client = Client::new(addr);
            let mut seen = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let answer = client.post(INFER, &[("x-tenant", "acme")], &probe()).await.expect(200);
                let revision = answer.header("x-holdfast-revision").parse::<u64>().unwrap();
                newest.store(revision, Ordering::Relaxed);
                seen.push(revision);
            }
            seen
        }));
    }
    let mut at = fleet.revision().await;
    for round in 0..6 {
        let version = if round % 2 == 0 { "2" } else { "1" };
        fleet.pin(0, version);
        let now = fleet.wait_pin("acme", version).await;
        assert!(now > at, "{now} after {at}");
        at = now;
        let seen = async || newest.iter().all(|n| n.load(Ordering::Relaxed) >= at).then_some(());
        eventually("every watcher to see the revision", PATIENCE, seen).await;
    }
    stop.store(true, Ordering::Relaxed);
    for watcher in watchers {
        let seen = watcher.await.unwrap();
        assert!(seen.is_sorted() && seen.iter().collect::<BTreeSet<_>>().len() > 4, "{seen:?}");
    }
}

#[tokio::test]
async fn back_and_forth_in_a_hurry_serves_only_what_the_table_names_and_loads_nothing_twice() {
    let mut fleet = Fleet::start((2, &["--load-time", "100ms"]), 3, acme(2), |_| {}).await;
    fleet.wait_held("1", 2).await;
    let judgements = judgements(3).await;
    let running = load(&fleet, 150, &["acme"]);
    for version in ["2", "1", "3", "1", "2"] {
        fleet.pin(0, version);
        let revision = fleet.wait_pin("acme", version).await;
        answered(&running, 1, "acme", revision).await;
    }
    // Overtaken by the next change before it is warm, if it is slow enough; never half done.
    for version in ["3", "1", "3", "2"] {
        fleet.pin(0, version);
    }
    eventually("the last word", PATIENCE, async || {
        let table = fleet.gateway.admin_get("/v1/table").await;
        (pin_of(&table, "acme") == "2" && table["pending"] == json!([])).then_some(())
    })
    .await;
    let report = running.stop().await;
    let versions = check(&report, "acme", &judgements);
    check_order(&report);
    assert!(versions.len() >= 5, "{versions:?}");
    for server in &fleet.servers {
        let stats = server.stats().await;
        assert_eq!((&stats["loads"]["started"], &stats["unloads"]), (&json!(3), &json!(0)), "a way back is no load");
    }
}

#[tokio::test]
async fn a_version_that_cannot_be_loaded_is_never_flipped_to_and_the_table_says_why() {
    let mut fleet = Fleet::start((2, &[]), 2, acme(2), |_| {}).await;
    fleet.wait_held("1", 2).await;
    for server in &fleet.servers {
        server.faults(&json!({"load_fails": "the weights are torn"})).await;
    }
    let running = load(&fleet, 50, &["acme"]);
    fleet.pin(0, "2");
    let pending = eventually("the reason", PATIENCE, async || {
        let table = fleet.gateway.admin_get("/v1/table").await;
        assert_eq!(pin_of(&table, "acme"), "1");
        let pending = table["pending"][0].clone();
        pending["obstacles"].as_array().is_some_and(|o| o.len() == 2).then_some(pending)
    })
    .await;
    assert_eq!(pending["waiting_for"].as_array().unwrap().len(), 2, "{pending}");
    for obstacle in pending["obstacles"].as_array().unwrap() {
        assert!(obstacle["why"].as_str().unwrap().contains("the weights are torn"), "{pending}");
        assert!(obstacle["failures"].as_u64().unwrap() >= 1, "{pending}");
    }
    let shown = fleet.gateway.cli(&["table", "show"]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("MISSING ON"), "{shown}");
    assert!(shown.contains("screen/2 on r1: ") && shown.contains("the weights are torn"), "{shown}");
    // Three tries, then that is that: the pin waits, with the server's words, and nothing is loaded any more.
    let why = async |rollout: &str| {
        eventually("the words of the failure", PATIENCE, async || {
            let table = fleet.gateway.admin_get("/v1/table").await;
            assert_eq!(pin_of(&table, "acme"), "1");
            let why = table["pending"][0]["why"].as_str().unwrap_or_default().to_owned();
            (why.contains(rollout) && why.contains("the weights are torn")).then_some(())
        })
        .await;
    };
    why("roll-out 1 failed").await;
    let shown = fleet.gateway.cli(&["table", "show"]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("held back: screen of acme: roll-out 1 failed"), "{shown}");
    let line = shown.lines().find(|line| line.contains("held back") && line.starts_with("acme")).unwrap();
    assert_eq!(line.split_whitespace().take(5).collect::<Vec<_>>(), ["acme", "screen", "2", "held", "back"], "{shown}");
    assert!(!shown.to_lowercase().contains("on its way"), "nothing moves any more: {shown}");
    let started = async || {
        let mut all = Vec::new();
        for server in &fleet.servers {
            all.push(server.stats().await["loads"]["started"].as_u64().unwrap());
        }
        all
    };
    let tried = started().await;
    assert!(tried.iter().any(|n| *n > 3), "{tried:?}: version 1, and three tries of version 2");
    // Asked for again in vain: it is tried again, and fails again.
    fleet.gateway.proc.sighup();
    why("roll-out 2 failed").await;
    let tried = started().await;
    for server in &fleet.servers {
        server.faults(&json!({})).await;
    }
    always("nothing is tried unasked, and the old pin stays", Duration::from_secs(5), async || {
        pin_of(&fleet.gateway.admin_get("/v1/table").await, "acme") == "1" && started().await == tried
    })
    .await;
    fleet.edit(|_| {});
    let _ = fleet.wait_pin("acme", "2").await;
    let report = running.stop().await;
    assert_eq!(report.count(|r| r.status == 200), report.0.len(), "{:?}", report.outcomes());
}

#[tokio::test]
async fn a_restart_before_the_flip_keeps_the_old_pin_and_then_flips() {
    let mut fleet = Fleet::start((2, &["--load-time", "100ms"]), 2, acme(2), |_| {}).await;
    fleet.wait_held("1", 2).await;
    for server in &fleet.servers {
        server.faults(&json!({"load_hangs": true})).await;
    }
    fleet.pin(0, "2");
    eventually("the pin to be pending", PATIENCE, async || {
        let table = fleet.gateway.admin_get("/v1/table").await;
        (table["pending"][0]["to"] == "2").then_some(())
    })
    .await;
    let before = fleet.revision().await;
    fleet.gateway.restart().await;
    let table = fleet.gateway.admin_get("/v1/table").await;
    assert_eq!((pin_of(&table, "acme").as_str(), &table["pending"][0]["to"]), ("1", &json!("2")), "{table}");
    assert_eq!(table["revision"].as_u64().unwrap(), before, "the same table has the same number: {table}");
    fleet.wait_held("1", 2).await;
    for _ in 0..10 {
        assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-version"), "1");
    }
    for server in &mut fleet.servers {
        server.restart().await;
    }
    let _ = fleet.wait_pin("acme", "2").await;
    let flipped = fleet.revision().await;
    fleet.gateway.restart().await;
    let table = fleet.gateway.admin_get("/v1/table").await;
    assert_eq!(pin_of(&table, "acme"), "2", "what was flipped stays flipped");
    assert_eq!(table["revision"].as_u64().unwrap(), flipped);
    let _ = fleet.infer("acme").await.expect(200);
}

#[tokio::test]
async fn several_pins_that_move_at_once_do_not_mix() {
    let names = ["acme", "globex", "initech", "umbrella"];
    let tenants: Vec<Value> = names.iter().map(|n| json!({"name": n, "subset": 2, "pins": {"screen": "1"}})).collect();
    let mut fleet = Fleet::start((3, &["--load-time", "100ms"]), 4, json!(tenants), |_| {}).await;
    let judgements = judgements(4).await;
    for name in names {
        let _ = fleet.infer(name).await.expect(200);
    }
    let running = load(&fleet, 200, &names);
    let wanted = [("acme", "2"), ("globex", "3"), ("initech", "4")];
    fleet.edit(|config| {
        for (at, (_, version)) in wanted.iter().enumerate() {
            config["tenants"][at]["pins"]["screen"] = json!(version);
        }
    });
    for (tenant, version) in wanted {
        let revision = fleet.wait_pin(tenant, version).await;
        answered(&running, 15, tenant, revision).await;
    }
    let report = running.stop().await;
    check_order(&report);
    for (tenant, version) in wanted {
        let versions: BTreeSet<String> = check(&report, tenant, &judgements).into_values().collect();
        assert_eq!(versions, BTreeSet::from(["1".to_owned(), version.to_owned()]), "{tenant}");
    }
    let untouched = check(&report, "umbrella", &judgements);
    assert!(untouched.values().all(|v| v == "1"), "{untouched:?}");
}

#[tokio::test]
async fn requests_go_to_a_new_holder_only_once_it_holds() {
    let mut fleet = Fleet::start((3, &["--load-time", "1s"]), 1, acme(1), |_| {}).await;
    fleet.wait_held("1", 1).await;
    let judgements = judgements(1).await;
    let running = load(&fleet, 100, &["acme"]);
    fleet.edit(|config| config["tenants"][0]["subset"] = json!(3));
    fleet.wait_held("1", 3).await;
    answered(&running, 50, "acme", fleet.revision().await).await;
    for server in &fleet.servers {
        eventually("all three to serve", PATIENCE, async || {
            (fleet::executions(&server.stats().await) > 0).then_some(())
        })
        .await;
    }
    let report = running.stop().await;
    let _ = check(&report, "acme", &judgements);
    let metrics = fleet.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_upstream_attempts_total", &[("outcome", "not_loaded")]), 0.0);
}

#[tokio::test]
async fn a_version_that_leaves_the_file_together_with_its_last_pin_serves_until_the_flip() {
    let mut fleet = Fleet::start((2, &["--load-time", "1s"]), 2, acme(2), |_| {}).await;
    fleet.wait_held("1", 2).await;
    let judgements = judgements(2).await;
    let running = load(&fleet, 100, &["acme"]);
    fleet.edit(|config| {
        config["tenants"][0]["pins"]["screen"] = json!("2");
        config["models"][0]["versions"] = json!([{"version": "2", "size": "2GiB"}]);
    });
    let _ = fleet.wait_pin("acme", "2").await;
    fleet.wait_held("1", 0).await;
    let report = running.stop().await;
    let _ = check(&report, "acme", &judgements);
    check_order(&report);
    let gone = fleet.gateway.infer("acme", "/v2/models/screen/versions/1/infer", &probe()).await.expect(403);
    assert_eq!(gone.header("x-holdfast-error"), "version_not_allowed");
    for server in &fleet.servers {
        eventually("the old version to be unloaded", PATIENCE, async || {
            (server.stats().await["unloads"] == 1).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_version_that_is_gone_from_the_file_stays_pinned_over_a_restart_until_the_flip() {
    let mut fleet = Fleet::start((2, &[]), 2, acme(2), |_| {}).await;
    fleet.wait_held("1", 2).await;
    for server in &fleet.servers {
        server.faults(&json!({"load_hangs": true})).await;
    }
    fleet.edit(|config| {
        config["tenants"][0]["pins"]["screen"] = json!("2");
        config["models"][0]["versions"] = json!([{"version": "2", "size": "2GiB"}]);
    });
    eventually("the pin to be pending", PATIENCE, async || {
        let table = fleet.gateway.admin_get("/v1/table").await;
        (table["pending"][0]["to"] == "2").then_some(())
    })
    .await;
    // Twice: what was kept once is kept again.
    for _ in 0..2 {
        fleet.gateway.restart().await;
        let table = fleet.gateway.admin_get("/v1/table").await;
        assert_eq!((pin_of(&table, "acme").as_str(), &table["pending"][0]["to"]), ("1", &json!("2")), "{table}");
    }
    fleet.wait_held("1", 2).await;
    for _ in 0..10 {
        assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-version"), "1");
    }
    for server in &mut fleet.servers {
        server.restart().await;
    }
    let _ = fleet.wait_pin("acme", "2").await;
    let gone = fleet.gateway.infer("acme", "/v2/models/screen/versions/1/infer", &probe()).await.expect(403);
    assert_eq!(gone.header("x-holdfast-error"), "version_not_allowed");
}

#[tokio::test]
async fn a_reload_that_moves_a_model_and_changes_its_pin_is_refused_and_works_in_two_steps() {
    let mut fleet = Fleet::start((2, &[]), 2, acme(1), |config| {
        let mut other = config["pools"][0].clone();
        other["name"] = json!("other");
        other["replicas"] = json!([config["pools"][0]["replicas"].as_array_mut().unwrap().pop().unwrap()]);
        config["pools"].as_array_mut().unwrap().push(other);
    })
    .await;
    fleet.wait_held("1", 1).await;
    let before = fleet.revision().await;
    for versions in [json!([{"version": "2", "size": "2GiB"}]), fleet.config["models"][0]["versions"].clone()] {
        fleet.edit(|config| {
            config["tenants"][0]["pins"]["screen"] = json!("2");
            config["models"][0]["pool"] = json!("other");
            config["models"][0]["versions"] = versions;
        });
        let faults = eventually("the refusal", PATIENCE, async || {
            let table = fleet.gateway.admin_get("/v1/table").await;
            assert_eq!((pin_of(&table, "acme"), table["revision"].as_u64()), ("1".to_owned(), Some(before)), "{table}");
            table["config"]["failed"]["faults"].as_str().map(str::to_owned)
        })
        .await;
        assert!(faults.contains("change the pins first"), "{faults}");
        assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-version"), "1");
    }
    fleet.edit(|config| config["models"][0]["pool"] = json!("main"));
    let flipped = fleet.wait_pin("acme", "2").await;
    fleet.edit(|config| config["models"][0]["pool"] = json!("other"));
    eventually("the move", PATIENCE, async || (fleet.revision().await > flipped).then_some(())).await;
    assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-version"), "2");
}

#[tokio::test]
async fn a_name_upstream_goes_to_another_version_only_when_the_first_is_unloaded() {
    let repository = TempDir::new();
    write_sample_repository(repository.path(), Layout::Names, &["screen"], &["2", "1-1"]).unwrap();
    let servers = vec![fleet::server(&repository, &["--load-time", "300ms"]).await];
    let tenant = |pins: Value| json!([{"name": "acme", "subset": 1, "pins": pins}]);
    let versions = |names: &[&str]| names.iter().map(|v| json!({"version": v, "size": "2GiB"})).collect::<Vec<_>>();
    let mut config = fleet::config(&[servers[0].url()], 0, tenant(json!({"screen": "1-1"})));
    config["models"][0]["versions"] = json!(versions(&["1-1", "2"]));
    // The server calls what it serves by the first of the two names.
    config["pools"][0]["upstream"] = json!({"answer": "none"});
    let gateway = Holdfast::start(fleet::binary(), &fleet::text(&config)).await;
    let mut fleet = Fleet { gateway, servers, config, repository };
    assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-version"), "1-1");

    let renamed = json!({"name": "screen-1", "pool": "main", "versions": versions(&["1"])});
    let plain = json!({"name": "screen", "pool": "main", "versions": versions(&["2"])});
    let failed = async |fleet: &Fleet| fleet.gateway.admin_get("/v1/table").await["config"]["failed"].clone();
    fleet.edit(|config| {
        config["models"] = json!([plain, renamed]);
        config["tenants"] = tenant(json!({"screen": "2", "screen-1": "1"}));
    });
    let refused =
        eventually("the refusal", PATIENCE, async || Some(failed(&fleet).await).filter(|f| f.is_object())).await;
    let why = refused["faults"].as_str().unwrap();
    assert!(why.contains("\"screen-1-1\"") && why.contains("until the changed pins have flipped"), "{why}");
    assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-version"), "1-1");

    fleet.edit(|config| {
        config["models"] = json!([plain]);
        config["tenants"] = tenant(json!({"screen": "2"}));
    });
    let _ = fleet.wait_pin("acme", "2").await;
    fleet.config["models"] = json!([plain, renamed]);
    fleet.config["tenants"] = tenant(json!({"screen": "2", "screen-1": "1"}));
    let other = "/v2/models/screen-1/infer";
    let answer = eventually("the name to be free", PATIENCE, async || {
        fleet.edit(|_| {});
        Some(fleet.gateway.infer("acme", other, &probe()).await).filter(|answer| answer.status == 200)
    })
    .await;
    assert_eq!(answer.header("x-holdfast-version"), "1");
    assert_eq!(fleet.servers[0].stats().await["unloads"], 1, "the old one was unloaded before the new one was loaded");
    always("it stays", Duration::from_secs(1), async || {
        fleet.gateway.infer("acme", other, &probe()).await.status == 200
    })
    .await;
}

#[tokio::test]
async fn where_pins_are_guaranteed_a_changed_one_needs_room_beside_the_one_in_force() {
    let mut fleet = Fleet::start((1, &[]), 2, acme(1), |config| {
        config["pools"][0]["memory"] = json!("guaranteed");
        config["pools"][0]["replicas"][0]["memory"] = json!("3GiB");
    })
    .await;
    fleet.wait_held("1", 1).await;
    fleet.pin(0, "2");
    let refused = eventually("the refusal", PATIENCE, async || {
        let table = fleet.gateway.admin_get("/v1/table").await;
        assert_eq!(pin_of(&table, "acme"), "1");
        table["config"]["failed"]["faults"].as_str().map(str::to_owned)
    })
    .await;
    assert!(refused.contains("r1: in force 2GiB + new 2GiB = 4GiB of 3GiB"), "{refused}");
    assert_eq!(fleet.infer("acme").await.expect(200).header("x-holdfast-version"), "1");
    fleet.edit(|config| config["pools"][0]["replicas"][0]["memory"] = json!("4GiB"));
    let _ = fleet.wait_pin("acme", "2").await;
}
