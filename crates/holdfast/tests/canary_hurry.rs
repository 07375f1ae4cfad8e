//! A canary of one version, back, a canary of another, back, in a hurry and under traffic: nobody is judged by a version that the table of that
//! revision does not name.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use std::collections::{BTreeMap, BTreeSet};

use fleet::{Fleet, INFER, judgements, probe};
use holdfast_testkit::eventually;
use holdfast_testkit::http::Client;
use holdfast_testkit::load::{Load, Target};
use serde_json::{Value, json};

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

impl Fleet {
    async fn set(&self, version: &str, more: &[&str]) {
        let mut args = vec!["pin", "set", "acme", "screen", version];
        args.extend(more);
        let output = self.gateway.cli(&args).await;
        let told = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(output.status.success(), "{args:?}: {told}");
    }

    /// Pin and share in force of the one tenant.
    async fn row(&self) -> (u64, Value, Value) {
        let table = self.gateway.admin_get("/v1/table").await;
        let row = table["tenants"][0].clone();
        (table["revision"].as_u64().unwrap(), row["pins"]["screen"].clone(), row["split"]["screen"]["version"].clone())
    }
}

/// Waits until a share of this version is in force (none: no share at all), and has judged somebody.
async fn shared(fleet: &Fleet, running: &Load, version: Option<&str>) {
    let what = format!("a share of {version:?}");
    let since = eventually(&what, PATIENCE, async || {
        let (revision, pin, split) = fleet.row().await;
        (pin == "1" && split.as_str() == version).then_some(revision)
    })
    .await;
    let wanted = version.unwrap_or("1");
    eventually("answers by it", PATIENCE, async || {
        (running.count(|r| r.revision >= Some(since) && r.version == wanted) >= 5).then_some(())
    })
    .await;
}

/// The versions that each revision's own table has in force, asked of the history. Revision 1 has the pin alone.
async fn allowed(fleet: &Fleet, revisions: &BTreeSet<u64>) -> BTreeMap<u64, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    for revision in revisions {
        let path = format!("/v1/diff?from=1&to={revision}&space=in_force");
        let items = fleet.gateway.admin_get(&path).await["items"].as_array().unwrap().clone();
        let after = |kind: &str| items.iter().find(|item| item["kind"] == kind).map(|item| &item["after"]);
        let pin = after("pin").unwrap_or(&json!("1")).as_str().unwrap().to_owned();
        let split = after("split").and_then(|split| split["version"].as_str()).map(str::to_owned);
        all.insert(*revision, std::iter::once(pin).chain(split).collect());
    }
    all
}

#[tokio::test]
async fn canaries_back_and_forth_in_a_hurry_judge_nobody_by_a_version_that_is_not_in_force() {
    let tenants = json!([{"name": "acme", "subset": 2, "pins": {"screen": "1"}}]);
    let fleet = Fleet::start((2, &["--load-time", "100ms"]), 3, tenants, |config| {
        config["truth"] = json!("store");
    })
    .await;
    fleet.wait_held("1", 2).await;
    let judgements = judgements(3).await;
    let target = Target::new("acme", INFER, &probe());
    let running = Load::start(Client::new(fleet.gateway.data.addr()), 100, vec![target]);
    for version in ["2", "3", "2"] {
        fleet.set(version, &["--canary", "50%:1h"]).await;
        shared(&fleet, &running, Some(version)).await;
        fleet.set("1", &[]).await;
        shared(&fleet, &running, None).await;
    }
    // Nobody waits for anything: each overtakes the one before it wherever that is.
    for version in ["2", "3", "2", "3"] {
        fleet.set(version, &["--canary", "50%:1h"]).await;
        fleet.set("1", &[]).await;
    }
    fleet.set("3", &["--canary", "50%:1h"]).await;
    shared(&fleet, &running, Some("3")).await;
    let report = running.stop().await;

    let revisions: BTreeSet<u64> = report.0.iter().filter_map(|r| r.revision).collect();
    let allowed = allowed(&fleet, &revisions).await;
    let mut seen = BTreeSet::new();
    for r in &report.0 {
        assert_eq!(r.status, 200, "{}: {}", r.error, String::from_utf8_lossy(&r.body));
        let may = &allowed[&r.revision.unwrap()];
        assert!(may.contains(&r.version), "{} under revision {:?}, which has {may:?}", r.version, r.revision);
        let body: Value = serde_json::from_slice(&r.body).unwrap();
        assert_eq!(body["outputs"], judgements[&r.version], "what {} says", r.version);
        seen.insert(r.version.clone());
    }
    assert_eq!(seen.len(), 3, "all three have judged somebody");
    assert!(allowed.values().any(|may| may.len() == 1) && allowed.values().any(|may| may.len() == 2), "{allowed:?}");
}
