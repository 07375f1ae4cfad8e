//! Canaries with a condition, through whole processes: nothing is promoted without data, what is worse goes back at once, and says why.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;
mod fleet_of;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fleet::{INFER, PATIENCE, binary, pin_of, text};
use fleet_of::{More, Roles, Shape};
use holdfast_testkit::http::Client;
use holdfast_testkit::wait::always;
use holdfast_testkit::{Holdfast, Script, Stub, eventually};
use serde_json::{Value, json};

const NO_WORSE: &str = "canary.error_rate <= baseline.error_rate + 0.01";

/// A server that is whatever version it is asked for, of which version 2 can be made to fail.
async fn server(fails: Arc<AtomicBool>) -> Stub {
    Stub::start(move |request| {
        let path = request.path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match parts.as_slice() {
            ["v2", "models", _, "versions", "2", "infer"] if fails.load(Relaxed) => {
                Script::json(500, &json!({"error": "it is broken"}))
            }
            ["v2", "models", name, "versions", version, "infer"] => Script::json(
                200,
                &json!({"model_name": name, "model_version": version, "outputs": [{"name": "x", "datatype": "INT32", "shape": [1], "data": [1]}]}),
            ),
            ["v2", "models", name, "versions", version] => Script::json(200, &json!({"name": name, "versions": [version]})),
            _ => Script::json(200, &json!({"ready": true})),
        }
    })
    .await
}

/// Two tenants on version 1.
fn config(server: &Stub) -> Value {
    let holds: Vec<Value> = (1..=2).map(|v| json!({"model": "screen", "version": v.to_string()})).collect();
    let tenant = |name: &str| json!({"name": name, "subset": 1, "pins": {"screen": "1"}});
    json!({
        "truth": "store",
        "auth": {"trusted_header": "x-tenant"},
        "log": {"access": "errors"},
        "pools": [{"name": "p", "protocol": "open-inference", "residency": "static",
            "replicas": [{"name": "r1", "url": server.url(), "holds": holds}]}],
        "models": [{"name": "screen", "pool": "p", "versions": [{"version": "1"}, {"version": "2"}]}],
        "tenants": [tenant("acme"), tenant("globex")],
    })
}

/// Some answers to `acme`; their versions.
async fn answers(data: &Client, count: usize) -> Vec<String> {
    let mut versions = Vec::new();
    for _ in 0..count {
        let answer = data.post(INFER, &[("x-tenant", "acme")], &json!({"inputs": []})).await;
        versions.push(answer.header("x-holdfast-version").to_owned());
    }
    versions
}

/// Pin and share in force of `acme`.
async fn in_force(gateway: &Holdfast) -> (String, u64) {
    let table = gateway.admin_get("/v1/table").await;
    let row = table["tenants"].as_array().unwrap().iter().find(|row| row["tenant"] == "acme").unwrap();
    (pin_of(&table, "acme"), row["split"]["screen"]["percent"].as_u64().unwrap_or(0))
}

async fn set(gateway: &Holdfast, canary: &str, condition: &str, samples: &str) -> (bool, String) {
    let args = ["pin", "set", "acme", "screen", "2", "--canary", canary, "--while", condition, "--samples", samples];
    let output = gateway.cli(&args).await;
    let told = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (output.status.success(), told)
}

/// The newest roll-out, with its pins.
async fn newest(gateway: &Holdfast) -> Value {
    let all = gateway.admin_get("/v1/rollouts").await;
    let ids = all["items"].as_array().unwrap().iter().map(|row| row["rollout"].as_u64().unwrap());
    gateway.admin_get(&format!("/v1/rollouts/{}", ids.max().unwrap())).await
}

#[tokio::test]
async fn a_canary_waits_for_data_goes_on_while_it_is_no_worse_and_goes_back_at_once_when_it_is() {
    let fails = Arc::new(AtomicBool::new(false));
    let server = server(fails.clone()).await;
    let gateway = Holdfast::start(binary(), &text(&config(&server))).await;
    eventually("version 1 to be served", PATIENCE, async || (answers(&gateway.data, 1).await == ["1"]).then_some(()))
        .await;

    // What can never be judged is refused when it is asked for, and changes nothing.
    for (condition, why) in
        [("canary.errors", "neither true nor false"), ("canary.p96_ms < 1.0", ""), ("tenant == 1", "tenant")]
    {
        let (done, told) = set(&gateway, "50%:1s", condition, "20").await;
        assert!(!done && told.contains(why), "{condition}: {told}");
    }
    let alone = gateway.cli(&["pin", "set", "acme", "screen", "2", "--while", NO_WORSE]).await;
    assert_eq!(alone.status.code(), Some(2), "a condition without a canary");
    assert_eq!(gateway.admin_get("/v1/pins/acme/screen").await["version"], "1");

    // No data: the share stays what it is, however long it has waited, and it is said what for.
    let (done, told) = set(&gateway, "50%:100ms,90%:100ms", NO_WORSE, "20").await;
    assert!(done, "{told}");
    let why = eventually("the first share to wait for data", PATIENCE, async || {
        let rollout = newest(&gateway).await;
        let waits = rollout["pins"][0]["waiting_for"].as_array()?.iter().find(|one| one["for"] == "condition")?.clone();
        (in_force(&gateway).await == ("1".to_owned(), 50)).then_some(waits)
    })
    .await;
    assert!(why["words"].as_str().unwrap().contains("of 20 answers of the canary"), "{why}");
    // Fifteen times as long as the share was to wait.
    let stays = async || in_force(&gateway).await == ("1".to_owned(), 50);
    always("no data is no good news", Duration::from_millis(1_500), stays).await;

    // Data: the next share, which is measured by itself; and then version 2 breaks.
    eventually("the second share", PATIENCE, async || {
        let _ = answers(&gateway.data, 10).await;
        (in_force(&gateway).await.1 == 90).then_some(())
    })
    .await;
    fails.store(true, Relaxed);
    eventually("the canary to go back", PATIENCE, async || {
        let _ = answers(&gateway.data, 10).await;
        (in_force(&gateway).await == ("1".to_owned(), 0)).then_some(())
    })
    .await;
    assert!(answers(&gateway.data, 20).await.iter().all(|version| version == "1"));
    let back = newest(&gateway).await;
    assert_eq!(back["pins"][0]["back"], true);
    assert!(back["back"]["reason"].as_str().unwrap().contains("canary of acme/screen"), "{}", back["back"]);
    let shown = gateway.cli(&["rollout", "show", &back["rollout"].to_string()]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.lines().next().unwrap().contains("(back: canary of acme/screen"), "{shown}");
    assert!(gateway.metrics().await.sum("holdfast_control_rollout_alarms_total", &[]) >= 1.0);
    let history = gateway.admin_get("/v1/revisions?limit=20").await;
    let rows = history["items"].as_array().unwrap();
    let why =
        rows.iter().find(|row| row["author"] == "holdfast").unwrap_or_else(|| panic!("nobody says why: {history}"));
    let words = why["reason"].as_str().unwrap();
    assert!(
        words.contains("canary of acme/screen") && words.contains("does not hold") && words.contains("error_rate"),
        "{words}"
    );

    // Nobody else was touched, and what went back does not come again by itself.
    let other = gateway.data.post(INFER, &[("x-tenant", "globex")], &json!({"inputs": []})).await.expect(200);
    assert_eq!(other.header("x-holdfast-version"), "1");
    assert_eq!(in_force(&gateway).await, ("1".to_owned(), 0));

    // Mended and asked for again, it goes all the way.
    fails.store(false, Relaxed);
    let (done, told) = set(&gateway, "50%:100ms", NO_WORSE, "20").await;
    assert!(done, "{told}");
    eventually("the pin to move", PATIENCE, async || {
        let _ = answers(&gateway.data, 10).await;
        (in_force(&gateway).await.0 == "2").then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_all_gateways_of_a_fleet_measure_is_judged_together() {
    let more = More { control: |config| config["rollouts"] = json!({"retain": "0s"}), ..More::default() };
    let fleet = Roles::start_of(Shape { controls: 1, gateways: 2, load: "50ms" }, more).await;
    fleet.wait_pin("1").await;
    // It breaks by the sum of both: each gateway alone is sent fewer.
    let options = json!({"canary": [{"percent": 50, "wait_ms": 3_600_000}], "while": "canary.requests < 40 && baseline.requests < 1000000", "samples": 1});
    let set = fleet.controls[0].put("/v1/pins/acme/screen", &json!({"version": "2", "options": options})).await;
    assert!(set.status.is_success(), "{}", set.text());
    let split = async |gateway: &fleet_of::Member| {
        let table = gateway.get("/v1/table").await.json();
        table["tenants"][0]["split"]["screen"]["percent"].as_u64().unwrap_or(0)
    };
    for gateway in &fleet.gateways {
        eventually("the share to be in force", PATIENCE, async || (split(gateway).await == 50).then_some(())).await;
    }
    let (mut canaries, mut all, mut since) = ([0_u32; 2], 0, Instant::now());
    eventually("the canary to go back everywhere", PATIENCE * 2, async || {
        if canaries == [39; 2] && since.elapsed() > PATIENCE / 4 {
            // The control plane may have lost the lead for a moment, and then measures anew.
            (canaries, since) = ([0; 2], Instant::now());
        }
        for (gateway, canaries) in fleet.gateways.iter().zip(&mut canaries) {
            // So few to each that one alone would not break it.
            if *canaries < 39 {
                let answer = gateway.infer("acme").await;
                let is_canary = u32::from(answer.header("x-holdfast-version") == "2");
                (*canaries, all) = (*canaries + is_canary, all + is_canary);
            }
        }
        let [first, second] = [split(&fleet.gateways[0]).await, split(&fleet.gateways[1]).await];
        (first == 0 && second == 0).then_some(())
    })
    .await;
    assert!(all >= 40, "{canaries:?}");
    fleet.wait_pin("1").await;
}
