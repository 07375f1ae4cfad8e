//! Experiments, rules and overrides through whole processes and real model servers: who gets which version, and that nobody moves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;
mod fleet_of;

use std::collections::BTreeMap;

use fleet::{Fleet, INFER, PATIENCE, acme, judgements, loads, path, probe};
use fleet_of::{Member, More, Roles, Shape};
use holdfast_testkit::http::{Answer, Client};
use holdfast_testkit::jwks::now;
use holdfast_testkit::{Holdfast, Jwks, Signer, eventually};
use serde_json::{Value, json};

/// Users by what experiment `ab` gives them at 50 % and equal weights, as `assign/vectors/check.py` has it.
const CONTROL: [&str; 3] = ["u0", "u2", "u5"];
const NEW: [&str; 3] = ["u1", "u10", "u13"];
const OUT: [&str; 3] = ["u3", "u4", "u6"];

fn experiment(name: &str, coverage: f64, control: &str, new: &str) -> Value {
    json!({
        "name": name, "model": "screen", "status": "running", "coverage": coverage,
        "arms": [{"name": "control", "version": control}, {"name": "new", "version": new}],
    })
}

async fn ask(client: &Client, user: &str) -> Answer {
    client.post(INFER, &[("x-tenant", "acme"), ("x-user", user)], &probe()).await
}

/// Version, reason and arm of an answer, once there is one.
async fn served(client: &Client, user: &str) -> [String; 3] {
    let answer = eventually(&format!("{user} to be served"), PATIENCE, async || {
        Some(ask(client, user).await).filter(|answer| answer.status == 200)
    })
    .await;
    ["version", "reason", "experiment"].map(|stamp| answer.header(&format!("x-holdfast-{stamp}")).to_owned())
}

/// What each user gets.
async fn all(client: &Client, users: usize) -> BTreeMap<String, [String; 3]> {
    let mut all = BTreeMap::new();
    for user in (0..users).map(|n| format!("u{n}")) {
        let got = served(client, &user).await;
        all.insert(user, got);
    }
    all
}

const USERS: usize = 40;

/// Checks what some users get: those of the arms their arm, everybody else the pin.
fn check(got: &BTreeMap<String, [String; 3]>, [control, new, pin]: [&str; 3]) {
    for (users, want) in [
        (CONTROL, [control, "experiment", "ab=control"]),
        (NEW, [new, "experiment", "ab=new"]),
        (OUT, [pin, "pin", ""]),
    ] {
        users.iter().for_each(|user| assert_eq!(got[*user], want, "{user}"));
    }
}

#[tokio::test]
async fn a_user_has_one_arm_on_every_gateway_over_flips_restarts_and_without_a_control_plane() {
    let more = More {
        control: |config| {
            config["experiments"] = json!([experiment("ab", 50.0, "1", "2")]);
            config["rollouts"] = json!({"retain": "0s"});
        },
        ..More::default()
    };
    let mut fleet = Roles::start_of(Shape { controls: 1, gateways: 2, load: "50ms" }, more).await;
    let desk = fleet.desk().await;
    let data = |gateway: &Member| Client::new(gateway.address());
    let before = all(&data(&fleet.gateways[0]), USERS).await;
    check(&before, ["1", "2", "1"]);
    assert_eq!(all(&data(&fleet.gateways[1]), USERS).await, before, "the other gateway");

    // The pin leaves the version that an arm has: the roll-out collects what it left, but not that.
    fleet.pin(&desk, "3").await;
    fleet.wait_pin("3").await;
    let control = &fleet.controls[0];
    eventually("the roll-out to be over", PATIENCE, async || {
        let told = control.get("/v1/rollouts").await.json();
        (told["items"][0]["over"] == true).then_some(())
    })
    .await;
    let begun = loads(&fleet.servers, "started").await;
    for gateway in &fleet.gateways {
        let now = all(&data(gateway), USERS).await;
        check(&now, ["1", "2", "3"]);
        for (user, [version, reason, arm]) in &before {
            let same = if reason == "pin" { ["3", "pin", ""] } else { [version.as_str(), reason, arm] };
            assert_eq!(now[user], same, "{user}");
        }
    }
    assert_eq!(loads(&fleet.servers, "started").await, begun, "nothing had to be loaded again");

    // A gateway that is killed has the same arms; so it has when no control plane answers.
    let after = all(&data(&fleet.gateways[0]), USERS).await;
    fleet.gateways[0].wait_saved().await;
    fleet.gateways[0].restart().await;
    fleet.gateways[0].wait_ready().await;
    assert_eq!(all(&data(&fleet.gateways[0]), USERS).await, after, "after a restart");
    fleet.gateways[0].wait_saved().await;
    fleet.controls[0].proc.kill9();
    fleet.gateways[0].restart().await;
    fleet.gateways[0].wait_ready().await;
    for gateway in &fleet.gateways {
        assert_eq!(all(&data(gateway), USERS).await, after, "without a control plane");
    }
}

/// A store is the truth, and the user is named by a header.
fn by_api(config: &mut Value) {
    config["truth"] = json!("store");
    config["auth"]["trusted_user_header"] = json!("x-user");
}

async fn put(gateway: &Holdfast, experiment: &Value) -> Answer {
    let mut spec = experiment.clone();
    let name = spec.as_object_mut().unwrap().remove("name").unwrap();
    let path = format!("/v1/experiments/{}", name.as_str().unwrap());
    gateway.admin.put(&path, &[], &json!({"spec": spec, "reason": "try"})).await
}

#[tokio::test]
async fn a_ramp_moves_nobody_between_arms_and_an_edit_that_would_is_refused() {
    let mut fleet = Fleet::start((2, &[]), 3, acme(2, 1), by_api).await;
    let with = |coverage: f64, weights: [u64; 2]| {
        let mut experiment = experiment("ab", coverage, "2", "3");
        (0..2).for_each(|arm| experiment["arms"][arm]["weight"] = json!(weights[arm]));
        experiment
    };
    // As a draft it is for nobody, and its versions are loaded.
    let mut draft = with(100.0, [1, 1]);
    draft["status"] = json!("draft");
    let made = put(&fleet.gateway, &draft).await.expect(201).json();
    assert_eq!(made["changes"][0]["kind"], "experiment");
    fleet.wait_held("2", 2).await;
    fleet.wait_held("3", 2).await;
    assert_eq!(served(&fleet.gateway.data, "u0").await, ["1", "pin", ""]);

    let mut first: BTreeMap<String, String> = BTreeMap::new();
    for (round, coverage) in [100.0, 20.0, 60.0, 100.0].into_iter().enumerate() {
        let _ = put(&fleet.gateway, &with(coverage, [1, 1])).await.expect(200);
        let (mut is_in, mut arms) = (0, [0, 0]);
        let revision = fleet.gateway.admin_get("/v1/revisions?limit=1").await["head"].to_string();
        for user in (0..60).map(|n| format!("u{n}")) {
            let fields =
                [("x-tenant", "acme"), ("x-user", user.as_str()), ("x-holdfast-min-revision", revision.as_str())];
            let answer = fleet.gateway.data.post(INFER, &fields, &probe()).await.expect(200);
            let arm = answer.header("x-holdfast-experiment").to_owned();
            if arm.is_empty() {
                assert_eq!((answer.header("x-holdfast-version"), answer.header("x-holdfast-reason")), ("1", "pin"));
                continue;
            }
            is_in += 1;
            arms[usize::from(arm == "ab=new")] += 1;
            assert_eq!(*first.entry(user.clone()).or_insert_with(|| arm.clone()), arm, "{user} at {coverage} %");
        }
        match round {
            0 | 3 => assert!(is_in == 60 && arms.iter().all(|arm| *arm > 15), "{is_in} {arms:?}"),
            1 => assert!((3..=25).contains(&is_in), "{is_in}"),
            _ => assert!((25..=50).contains(&is_in), "{is_in}"),
        }
    }

    // Everybody has been given an arm: other weights would move people, under this bucket version.
    let refused = put(&fleet.gateway, &with(100.0, [1, 3])).await.expect(422).json();
    let told = refused.to_string();
    assert!(told.contains("experiments[ab].arms") && told.contains("10000 of 10000 have been given"), "{told}");
    let _ = put(&fleet.gateway, &with(30.0, [1, 1])).await.expect(200);
    let shown = fleet.gateway.admin_get("/v1/experiments/ab").await;
    assert_eq!(shown["spec"]["given"][0]["to"], 10_000, "{shown}");
    let refused = put(&fleet.gateway, &with(100.0, [1, 3])).await;
    assert_eq!(refused.status, 422, "also when all of them are not in just now");

    // The history outlives the process, and an export has it.
    fleet.gateway.restart().await;
    assert_eq!(put(&fleet.gateway, &with(100.0, [1, 3])).await.status, 422);
    let export = fleet.gateway.cli(&["table", "export", "--output", "json"]).await;
    let export: Value = serde_json::from_slice(&export.stdout).unwrap();
    assert_eq!(export["experiments"][0]["given"], shown["spec"]["given"]);
    let list = fleet.gateway.cli(&["experiment", "list"]).await;
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(list.contains("ab") && list.contains("30 %") && list.contains("control=2 new=3"), "{list}");
    let show = fleet.gateway.cli(&["experiment", "show", "ab"]).await;
    let show = String::from_utf8_lossy(&show.stdout).into_owned();
    assert!(show.contains("1 of 2") && show.contains("0-5000 (0-10000 in)"), "{show}");

    // With a higher bucket version everything may change.
    let mut anew = with(100.0, [0, 1]);
    anew["bucket_version"] = json!(2);
    let _ = put(&fleet.gateway, &anew).await.expect(200);
    for user in CONTROL.iter().chain(&OUT) {
        eventually("everybody to be in the one arm", PATIENCE, async || {
            (served(&fleet.gateway.data, user).await == ["3", "experiment", "ab=new"]).then_some(())
        })
        .await;
    }
    let gone = fleet.gateway.admin.send(http::Method::DELETE, "/v1/experiments/ab", &[], bytes::Bytes::new()).await;
    assert_eq!(gone.unwrap().status, 200);
    eventually("the pin to decide again", PATIENCE, async || {
        (served(&fleet.gateway.data, "u0").await == ["1", "pin", ""]).then_some(())
    })
    .await;
}

/// User, scopes, path, further fields: version, reason, arm.
type Row<'r> = (&'r str, &'r str, &'r str, &'r [(&'r str, &'r str)], [&'r str; 3]);

/// A token of somebody.
fn token(signer: &Signer, user: &str, scope: &str) -> String {
    let now = now();
    let claims = json!({
        "iss": "https://id.example", "aud": "holdfast", "tenant": "acme", "sub": user, "plan": "gold", "scope": scope,
        "iat": now, "exp": now + 3_600,
    });
    format!("Bearer {}", signer.token("k1", &claims))
}

#[tokio::test]
async fn an_override_comes_before_what_is_named_before_an_arm_before_a_rule_before_the_pin() {
    let signer = Signer::ed();
    let jwks = Jwks::start(&[signer.jwk("k1")]).await;
    let url = jwks.url();
    let tenants = json!([{
        "name": "acme", "subset": 2, "pins": {"screen": "1"}, "allow": {"screen": ["4"]},
        "rules": [
            {"name": "beta", "model": "screen", "version": "5", "target": [{"field": "header:x-client", "begins": "beta/"}]},
            {"name": "staff", "model": "screen", "version": "4", "target": [{"field": "scope:staff", "present": true}]},
        ],
    }]);
    let fleet = Fleet::start((2, &[]), 6, tenants, |config| {
        config["experiments"] = json!([experiment("ab", 50.0, "2", "3")]);
        config["auth"] = json!({
            "override_scope": "versions:any",
            "jwt": [{"issuer": "https://id.example", "jwks_url": url, "algorithms": ["EdDSA"], "audiences": ["holdfast"],
                     "claims": {"tenant": "tenant", "plan": "plan"}}],
        });
    })
    .await;
    let judgements = judgements(6).await;
    let send = async |user: &str, scope: &str, path: &str, more: &[(&str, &str)]| {
        let bearer = token(&signer, user, scope);
        let fields: Vec<(&str, &str)> =
            [("authorization", bearer.as_str())].into_iter().chain(more.iter().copied()).collect();
        fleet.gateway.data.post(path, &fields, &probe()).await
    };
    eventually("a token to be served", PATIENCE, async || {
        (send("u3", "", INFER, &[]).await.status == 200).then_some(())
    })
    .await;
    let (admin, beta) = ("openid versions:any", ("x-client", "beta/7"));
    let (named, wanted) = ("x-holdfast-version", "x-holdfast-override");
    let v4 = path("4");
    let rows: [Row<'_>; 15] = [
        ("u0", "", INFER, &[], ["2", "experiment", "ab=control"]),
        ("u1", "", INFER, &[], ["3", "experiment", "ab=new"]),
        ("u3", "", INFER, &[], ["1", "pin", ""]),
        ("u1", "staff", INFER, &[beta], ["3", "experiment", "ab=new"]),
        ("u3", "", INFER, &[beta], ["5", "rule", ""]),
        ("u3", "staff", INFER, &[], ["4", "rule", ""]),
        ("u3", "staff", INFER, &[beta], ["5", "rule", ""]),
        ("u1", "", &v4, &[], ["4", "explicit", ""]),
        ("u1", "", INFER, &[(named, "4")], ["4", "explicit", ""]),
        ("u1", "", &v4, &[(named, "4")], ["4", "explicit", ""]),
        ("u3", "staff", INFER, &[beta, (named, "1")], ["1", "explicit", ""]),
        ("u1", admin, INFER, &[(wanted, "6")], ["6", "override", ""]),
        ("u3", admin, INFER, &[beta, (wanted, "3")], ["3", "override", ""]),
        ("u1", admin, &v4, &[(wanted, "1")], ["1", "override", ""]),
        ("u1", admin, INFER, &[], ["3", "experiment", "ab=new"]),
    ];
    for (user, scope, path, more, want) in rows {
        let answer = eventually(&format!("{user} {scope} {path} {more:?}"), PATIENCE, async || {
            Some(send(user, scope, path, more).await).filter(|answer| answer.status != 503)
        })
        .await
        .expect(200);
        let got = ["version", "reason", "experiment"].map(|stamp| answer.header(&format!("x-holdfast-{stamp}")));
        assert_eq!(got, want, "{user} {scope} {path} {more:?}");
        assert_eq!(answer.json()["outputs"], judgements[want[0]], "what that version says");
    }
    for (scope, path, more, status, kind) in [
        ("", INFER, &[(wanted, "6")][..], 403, "forbidden"),
        ("versions", INFER, &[(wanted, "1")], 403, "forbidden"),
        (admin, INFER, &[(wanted, "7")], 403, "version_not_allowed"),
        (admin, INFER, &[(wanted, "latest")], 400, "bad_request"),
        (admin, INFER, &[(wanted, "1"), (wanted, "2")], 400, "bad_request"),
        ("", INFER, &[(named, "3")], 403, "version_not_allowed"),
        ("", INFER, &[(named, "")], 400, "bad_request"),
        ("", &v4, &[(named, "1")], 400, "bad_request"),
        ("", INFER, &[(named, "4"), (named, "4")], 400, "bad_request"),
    ] {
        let answer = send("u1", scope, path, more).await;
        let got = (answer.status.as_u16(), answer.header("x-holdfast-error"));
        assert_eq!(got, (status, kind), "{scope} {path} {more:?}: {}", answer.text());
    }

    // Each person's arm is told once: not what was overridden, named, ruled or pinned.
    let told = eventually("the exposures", PATIENCE, async || {
        let folder = std::fs::read_dir(fleet.gateway.state_path().join("exposures")).ok()?;
        let texts = folder.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        let lines: Vec<Value> =
            texts.collect::<String>().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (lines.len() >= 2).then_some(lines)
    })
    .await;
    let mut arms: Vec<[&str; 4]> = told
        .iter()
        .map(|line| ["arm", "version", "key", "subject"].map(|member| line[member].as_str().unwrap()))
        .collect();
    arms.sort_unstable();
    let [control, new] = ["ac769d753a896eef", "0adcd8c813bb314f"];
    assert_eq!(arms, [["control", "2", "user", control], ["new", "3", "user", new]]);

    // It is told by the receipt, by the metrics and beforehand.
    let answer = send("u1", "", INFER, &[]).await;
    let receipt = format!("/v1/receipts/{}", answer.header("x-holdfast-request-id"));
    let told = eventually("the receipt", PATIENCE, async || {
        let told = fleet.gateway.admin.get(&receipt, &[]).await;
        (told.status == 200).then(|| told.json())
    })
    .await;
    assert_eq!((&told["reason"], &told["experiment"]), (&json!("experiment"), &json!("ab=new")), "{told}");
    let metrics = fleet.gateway.metrics().await;
    let routed =
        |rule: &str, outcome: &str| metrics.sum("holdfast_routed_total", &[("rule", rule), ("outcome", outcome)]);
    assert!(routed("experiment:ab/new", "ok") >= 3.0 && routed("experiment:ab/control", "ok") >= 1.0);
    assert!(routed("rule:acme/beta", "ok") >= 2.0 && routed("rule:acme/staff", "ok") >= 1.0);
    assert!(routed("override", "ok") >= 3.0 && routed("explicit", "ok") >= 4.0 && routed("pin", "ok") >= 1.0);
    let told = fleet.gateway.cli_json(&["explain", "--tenant", "acme", "--model", "screen", "--user", "u1"]).await;
    assert_eq!((&told["version"], &told["experiment"]), (&json!("3"), &json!("ab=new")));
    assert!(told["steps"].to_string().contains("ab gives arm new (version 3) by the user"), "{told}");
    let told = fleet
        .gateway
        .cli_json(&["explain", "--tenant", "acme", "--model", "screen", "--user", "u3", "--header", "x-client: beta/7"])
        .await;
    assert_eq!((&told["version"], &told["reason"]), (&json!("5"), &json!("rule")), "{told}");
    assert!(told["steps"].to_string().contains("ab gives no arm: coverage"), "{told}");
}
