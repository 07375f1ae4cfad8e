//! Which version judges a request, and where: pins, explicit versions, refusals, placement by name.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use std::collections::BTreeMap;

use fleet::{Fleet, INFER, PATIENCE, binary, config, holders, judgements, probe, subset, text};
use holdfast_testkit::{Holdfast, eventually};
use serde_json::{Value, json};

fn tenants() -> Value {
    json!([
        {"name": "acme", "subset": 2, "pins": {"screen": "1"}, "allow": {"screen": ["3"]}},
        {"name": "globex", "subset": 1, "pins": {"screen": "2"}},
        {"name": "initech", "subset": 2, "pins": {"screen": "3"}},
        {"name": "unpinned", "pins": {}},
    ])
}

#[tokio::test]
async fn every_tenant_is_judged_by_its_own_version_and_the_stamps_say_so() {
    let fleet = Fleet::start((3, &[]), 3, tenants(), |_| {}).await;
    let judgements = judgements(3).await;
    let revision = fleet.revision().await.to_string();
    for round in 0..10 {
        for (tenant, version) in [("acme", "1"), ("globex", "2"), ("initech", "3")] {
            let answer = fleet.infer(tenant).await.expect(200);
            let body = answer.json();
            assert_eq!(body["outputs"], judgements[version], "{tenant}, round {round}");
            assert_eq!((&body["model_name"], &body["model_version"]), (&json!("screen"), &json!(version)));
            assert_eq!(body["id"], "7");
            let stamps = ["model", "version", "revision", "reason"].map(|s| answer.header(&format!("x-holdfast-{s}")));
            assert_eq!(stamps, ["screen", version, revision.as_str(), "pin"], "{tenant}");
            assert!(subset(&fleet.gateway, tenant).await.iter().any(|r| r == answer.header("x-holdfast-replica")));
            assert_eq!(answer.header("x-holdfast-request-id").len(), 28, "{answer:?}");
            assert_eq!(answer.header("x-holdfast-error"), "");
        }
    }
}

#[tokio::test]
async fn a_client_may_name_its_pin_and_what_it_is_allowed_and_nothing_else() {
    let fleet = Fleet::start((2, &[]), 3, tenants(), |_| {}).await;
    let judgements = judgements(3).await;
    let ask = async |version: &str| {
        let path = format!("/v2/models/screen/versions/{version}/infer");
        fleet.gateway.infer("acme", &path, &probe()).await
    };
    for version in ["1", "3"] {
        let answer = ask(version).await.expect(200);
        assert_eq!(answer.json()["outputs"], judgements[version]);
        assert_eq!(answer.header("x-holdfast-version"), version);
        assert_eq!(answer.header("x-holdfast-reason"), "explicit");
    }
    let before = fleet.executions().await;
    for version in ["2", "4", "01", "1x"] {
        let answer = ask(version).await.expect(403);
        assert_eq!(answer.header("x-holdfast-error"), "version_not_allowed", "{version}");
        assert_eq!(answer.header("x-holdfast-version"), "", "an unresolved request has no version");
    }
    assert_eq!(fleet.executions().await, before);
}

/// What is asked about a version follows the rules of what is asked of it.
#[tokio::test]
async fn metadata_and_readiness_of_a_named_version_are_for_whom_its_answers_are_for() {
    let fleet = Fleet::start((2, &[]), 3, tenants(), |_| {}).await;
    fleet.wait_held("3", 2).await;
    let get = async |tenant: &str, rest: &str| {
        fleet.gateway.data.get(&format!("/v2/models/screen{rest}"), &[("x-tenant", tenant)]).await
    };
    for (tenant, rest, version, reason) in [
        ("acme", "", "1", "pin"),
        ("initech", "", "3", "pin"),
        ("acme", "/versions/1", "1", "explicit"),
        ("acme", "/versions/3", "3", "explicit"),
        ("globex", "/versions/2", "2", "explicit"),
    ] {
        let metadata = get(tenant, rest).await.expect(200);
        let body = metadata.json();
        assert_eq!((&body["name"], &body["versions"]), (&json!("screen"), &json!([version])), "{tenant} {rest}");
        let ready = get(tenant, &format!("{rest}/ready")).await.expect(200);
        for answer in [&metadata, &ready] {
            let stamps = ["version", "reason"].map(|stamp| answer.header(&format!("x-holdfast-{stamp}")));
            assert_eq!(stamps, [version, reason], "{tenant} {rest}");
        }
        assert!(!metadata.text().contains("screen-"), "the server's own name: {}", metadata.text());
    }
    for (tenant, rest, status, kind) in [
        ("acme", "/versions/2", 403, "version_not_allowed"),
        ("acme", "/versions/9", 403, "version_not_allowed"),
        ("globex", "/versions/3", 403, "version_not_allowed"),
        ("unpinned", "/versions/1", 403, "version_not_allowed"),
        ("unpinned", "", 404, "not_pinned"),
        ("nobody", "/versions/1", 403, "forbidden"),
        ("acme", "/versions/latest", 400, "bad_request"),
        ("acme", "/versions/", 400, "bad_request"),
    ] {
        for rest in [rest.to_owned(), format!("{rest}/ready")] {
            let answer = get(tenant, &rest).await.expect(status);
            assert_eq!(
                (answer.header("x-holdfast-error"), answer.header("x-holdfast-version")),
                (kind, ""),
                "{tenant} {rest}"
            );
        }
    }
}

#[tokio::test]
async fn what_cannot_be_resolved_is_refused_by_kind_and_never_judged_by_something_else() {
    let fleet = Fleet::start((1, &[]), 3, tenants(), |_| {}).await;
    let _ = fleet.infer("acme").await.expect(200);
    let before = fleet.executions().await;
    let v = |rest: &str| format!("/v2/models/screen/versions/{rest}");
    for (tenant, path, status, kind) in [
        ("acme", "/v2/models/scren/infer".to_owned(), 404, "unknown_model"),
        ("acme", "/v2/models/screen-1/infer".to_owned(), 404, "unknown_model"),
        ("acme", "/v2/models/SCREEN/infer".to_owned(), 404, "unknown_model"),
        ("unpinned", INFER.to_owned(), 404, "not_pinned"),
        ("unpinned", v("1/infer"), 403, "version_not_allowed"),
        ("nobody", INFER.to_owned(), 403, "forbidden"),
        ("acme", v("latest/infer"), 400, "bad_request"),
        ("acme", v("LATEST/infer"), 400, "bad_request"),
        ("acme", v("/infer"), 400, "bad_request"),
        ("acme", v("1%2F..%2F2/infer"), 400, "bad_request"),
        ("acme", "/v2/models//infer".to_owned(), 400, "bad_request"),
        ("", INFER.to_owned(), 401, "unauthenticated"),
    ] {
        let answer = fleet.gateway.infer(tenant, &path, &probe()).await;
        let seen = (answer.status.as_u16(), answer.header("x-holdfast-error"));
        assert_eq!(seen, (status, kind), "{tenant} {path}: {}", answer.text());
        for stamp in ["x-holdfast-version", "x-holdfast-model", "x-holdfast-revision"] {
            assert_eq!(answer.header(stamp), "", "{tenant} {path}");
        }
        assert!(answer.json()["error"].as_str().unwrap().starts_with(kind), "{}", answer.text());
        assert_ne!(answer.header("x-holdfast-request-id"), "");
    }
    for latest in ["latest", "LATEST", ""] {
        let fields = [("x-tenant", "acme"), ("x-holdfast-version", latest)];
        let answer = fleet.gateway.data.post(INFER, &fields, &probe()).await;
        let seen = (answer.status.as_u16(), answer.header("x-holdfast-error"), answer.header("x-holdfast-version"));
        assert_eq!(seen, (400, "bad_request", ""), "{latest}: {}", answer.text());
    }
    assert_eq!(fleet.executions().await, before, "nothing of this reached a model");
}

/// A gateway before replicas that need not be there: placement is a matter of names.
async fn placed(replicas: &[(String, u16)], tenants: usize) -> (Holdfast, BTreeMap<String, Vec<String>>) {
    let urls: Vec<String> = replicas.iter().map(|(_, port)| format!("http://127.0.0.1:{port}")).collect();
    let all: Vec<Value> =
        (0..tenants).map(|t| json!({"name": format!("t{t}"), "subset": 2, "pins": {"screen": "1"}})).collect();
    let mut config = config(&urls, 1, json!(all));
    config["pools"][0]["health"] = json!({"interval": "1h", "timeout": "1s", "out_of_service_after": "1d"});
    for (at, (name, _)) in replicas.iter().enumerate() {
        config["pools"][0]["replicas"][at]["name"] = json!(name);
    }
    let gateway = Holdfast::start(binary(), &text(&config)).await;
    let mut subsets = BTreeMap::new();
    for t in 0..tenants {
        let tenant = format!("t{t}");
        subsets.insert(tenant.clone(), subset(&gateway, &tenant).await);
    }
    (gateway, subsets)
}

fn members(count: u16) -> Vec<(String, u16)> {
    (0..count).map(|i| (format!("replica-{i:02}"), 14_000 + i)).collect()
}

#[tokio::test]
async fn placement_follows_names_not_the_order_of_the_file_nor_addresses() {
    let (_first, before) = placed(&members(8), 60).await;
    let mut shuffled = members(8);
    shuffled.reverse();
    shuffled.rotate_left(3);
    for (at, (_, port)) in shuffled.iter_mut().enumerate() {
        *port = 14_500 + u16::try_from(at).unwrap();
    }
    let (_second, after) = placed(&shuffled, 60).await;
    assert_eq!(before, after);
    let used: std::collections::BTreeSet<&String> = before.values().flatten().collect();
    assert_eq!(used.len(), 8, "every replica has keys");
}

#[tokio::test]
async fn a_new_replica_takes_about_its_share_of_keys_and_moves_no_other() {
    const TENANTS: usize = 300;
    let (_ten, before) = placed(&members(10), TENANTS).await;
    let (_eleven, after) = placed(&members(11), TENANTS).await;
    let newcomer = "replica-10".to_owned();
    let moved = before.iter().filter(|(tenant, old)| after[*tenant] != **old).count();
    let taken = after.values().filter(|s| s.contains(&newcomer)).count();
    // Two of eleven replicas serve a key: 2/11 of 300 keys are 54.5, with a standard deviation of 6.7.
    assert!((30..=82).contains(&taken), "{taken} keys went to the new replica");
    for (tenant, old) in before.iter().filter(|(tenant, old)| after[*tenant] != **old) {
        assert!(after[tenant].contains(&newcomer), "{tenant} moved from {old:?} to {:?}", after[tenant]);
    }
    assert_eq!(moved, taken);
}

#[tokio::test]
async fn a_replica_that_is_added_while_serving_gets_its_keys_within_a_reload() {
    let mut fleet = Fleet::start(
        (3, &[]),
        1,
        json!(
            (0..20).map(|t| json!({"name": format!("t{t}"), "subset": 1, "pins": {"screen": "1"}})).collect::<Vec<_>>()
        ),
        |config| drop(config["pools"][0]["replicas"].as_array_mut().unwrap().pop()),
    )
    .await;
    let _ = fleet.infer("t0").await.expect(200);
    let before = fleet.revision().await;
    let url = fleet.servers[2].url();
    fleet.edit(|config| {
        config["pools"][0]["replicas"].as_array_mut().unwrap().push(json!({"name": "r3", "url": url}));
    });
    eventually("the next table", PATIENCE, async || (fleet.revision().await > before).then_some(())).await;
    assert_eq!(fleet.replica("r3").await["pool"], "main");
    // Nobody waits for it: its keys are served where they were until it holds the version.
    eventually("the new replica to be ready", PATIENCE, async || {
        for t in 0..20 {
            let _ = fleet.infer(&format!("t{t}")).await.expect(200);
        }
        holders(&fleet.gateway, "1").await.contains(&"r3".to_owned()).then_some(())
    })
    .await;
    let mut served = BTreeMap::<String, usize>::new();
    for t in 0..20 {
        let answer = fleet.infer(&format!("t{t}")).await.expect(200);
        *served.entry(answer.header("x-holdfast-replica").to_owned()).or_default() += 1;
    }
    assert!(served.get("r3").is_some_and(|n| (1..=15).contains(n)), "{served:?}");
}

#[tokio::test]
async fn a_replica_at_a_new_address_keeps_its_keys() {
    let tenants = (0..12).map(|t| json!({"name": format!("t{t}"), "subset": 1, "pins": {"screen": "1"}}));
    let mut fleet = Fleet::start((4, &[]), 1, json!(tenants.collect::<Vec<_>>()), |config| {
        // The fourth server is the new home of r2.
        drop(config["pools"][0]["replicas"].as_array_mut().unwrap().pop());
    })
    .await;
    let mut before = Vec::new();
    for t in 0..12 {
        before.push(fleet.infer(&format!("t{t}")).await.expect(200).header("x-holdfast-replica").to_owned());
    }
    assert!(before.iter().any(|r| r == "r2"), "{before:?}");
    let url = fleet.servers[3].url();
    fleet.edit(|config| config["pools"][0]["replicas"][1]["url"] = json!(url));
    // Nothing else is loaded or asked while the table changes.
    for n in 0..50 {
        let t = n % 12;
        let answer = fleet.infer(&format!("t{t}")).await.expect(200);
        assert_eq!(answer.header("x-holdfast-replica"), before[t], "t{t} during the change");
    }
    eventually("r2 at its new address", PATIENCE, async || {
        let rows = fleet.gateway.admin_get("/v1/replicas").await;
        let of_r2: Vec<&Value> = rows["replicas"].as_array()?.iter().filter(|r| r["replica"] == "r2").collect();
        (of_r2.len() == 1 && of_r2[0]["url"] == json!(fleet.servers[3].url())).then_some(())
    })
    .await;
    for (t, was) in before.iter().enumerate() {
        let answer = fleet.infer(&format!("t{t}")).await.expect(200);
        assert_eq!(answer.header("x-holdfast-replica"), was, "t{t}");
    }
    let executed = fleet::executions(&fleet.servers[3].stats().await);
    assert!(executed >= before.iter().filter(|r| *r == "r2").count() as u64, "{executed}");
}

#[tokio::test]
async fn what_is_gone_from_the_file_is_gone_after_one_reload_and_a_bad_file_changes_nothing() {
    let mut fleet = Fleet::start((3, &[]), 3, tenants(), |_| {}).await;
    let _ = fleet.infer("globex").await.expect(200);
    let before = fleet.revision().await;
    fleet.edit(|config| {
        drop(config["tenants"].as_array_mut().unwrap().remove(1));
        config["tenants"][0]["allow"] = json!({});
        drop(config["pools"][0]["replicas"].as_array_mut().unwrap().remove(0));
    });
    let after = eventually("the reload", PATIENCE, async || {
        let table = fleet.gateway.admin_get("/v1/table").await;
        (table["tenants_total"] == 3).then(|| table["revision"].as_u64().unwrap())
    })
    .await;
    assert!(after > before);
    let explicit = "/v2/models/screen/versions/3/infer";
    assert_eq!(fleet.infer("globex").await.expect(403).header("x-holdfast-error"), "forbidden");
    let refused = fleet.gateway.infer("acme", explicit, &probe()).await.expect(403);
    assert_eq!(refused.header("x-holdfast-error"), "version_not_allowed");
    for _ in 0..10 {
        assert_ne!(fleet.infer("acme").await.expect(200).header("x-holdfast-replica"), "r1");
    }

    fleet.edit(|config| config["tenants"][0]["pins"]["screen"] = json!("latest"));
    let failed = eventually("the refusal", PATIENCE, async || {
        let table = fleet.gateway.admin_get("/v1/table").await;
        table["config"]["failed"]["faults"].as_str().map(str::to_owned)
    })
    .await;
    assert!(failed.contains("latest") && failed.contains("tenants[0].pins.screen"), "{failed}");
    assert_eq!(fleet.revision().await, after, "the table in force is as it was");
    let _ = fleet.infer("acme").await.expect(200);
    assert_eq!(fleet.gateway.metrics().await.sum("holdfast_config_error", &[]), 1.0);
}

#[tokio::test]
async fn a_running_split_of_a_pin_is_told_by_the_table_and_by_explain() {
    let fleet = Fleet::start((1, &[]), 4, tenants(), |config| config["truth"] = json!("store")).await;
    fleet.wait_held("1", 1).await;
    let explained =
        async |more: &str| fleet.gateway.admin_get(&format!("/v1/explain?tenant=acme&model=screen{more}")).await;
    let row = async || {
        let table = fleet.gateway.admin_get("/v1/table").await;
        table["tenants"].as_array().unwrap().iter().find(|row| row["tenant"] == "acme").unwrap().clone()
    };
    assert_eq!((explained("").await.get("split"), row().await.get("split")), (None, None));
    let output = fleet.gateway.cli(&["pin", "set", "acme", "screen", "4", "--canary", "10%:1h"]).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let split = json!({"version": "4", "percent": 10});
    let told = eventually("the first share", PATIENCE, async || {
        Some(explained("").await).filter(|told| told.get("split") == Some(&split))
    })
    .await;
    let steps = told["steps"].as_array().unwrap();
    let at = |stage: &str| steps.iter().position(|step| step["stage"] == stage).unwrap();
    assert!(at("version") < at("split") && at("split") < at("decision"), "{told:#}");
    let said = steps[at("split")]["outcome"].as_str().unwrap();
    assert!(said.starts_with("10 % of the pin's submissions go to version 4"), "{said}");
    assert_eq!(explained("&version=1").await["split"], split, "it runs, whatever a client names");
    let row = row().await;
    assert_eq!((&row["split"], &row["pins"]), (&json!({"screen": split}), &json!({"screen": "1"})), "the pin stays");
}
