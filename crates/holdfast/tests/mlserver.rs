//! The gateway before three real MLServer processes with scikit-learn models: pins checked by predictions, cold loads, death, outside changes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use std::time::Duration;

use fleet::{binary, holders, text};
use holdfast_testkit::http::{Answer, Client};
use holdfast_testkit::load::{Load, Target};
use holdfast_testkit::{Cut, Holdfast, MlServer, TempDir, eventually, mlserver};
use serde_json::{Value, json};

const INFER: &str = "/v2/models/digits/infer";
/// Python takes its time on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Three interpreters at a time are enough.
static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The request that the models' known predictions belong to.
fn question() -> Value {
    let expected = mlserver::digits_expected();
    let rows = expected["inputs"].as_array().unwrap();
    let data: Vec<Value> = rows.iter().flat_map(|row| row.as_array().unwrap().clone()).collect();
    let shape = [rows.len(), data.len() / rows.len()];
    json!({"id": "q", "inputs": [{"name": "predict", "datatype": "FP32", "shape": shape, "data": data}]})
}

fn prediction(version: &str) -> Value {
    mlserver::digits_expected()["predictions"][version].clone()
}

/// Asserts that an answer is the version's own, by what it predicts.
fn check(answer: &Answer, version: &str) {
    let body = answer.json();
    assert_eq!(body["outputs"][0]["data"], prediction(version), "version {version}");
    assert_eq!((&body["model_name"], &body["model_version"]), (&json!("digits"), &json!(version)));
    assert_eq!(answer.header("x-holdfast-version"), version);
}

async fn three() -> [MlServer; 3] {
    let models = mlserver::digits();
    let (a, b, c) = tokio::join!(MlServer::start(&models), MlServer::start(&models), MlServer::start(&models));
    a.load("digits-1").await;
    b.load("digits-2").await;
    c.load("digits-3").await;
    [a, b, c]
}

async fn gateway(urls: [String; 3], subset: usize, idempotent: bool) -> Holdfast {
    let replicas = urls.iter().enumerate();
    let replicas = replicas.map(|(i, url)| json!({"name": format!("r{}", i + 1), "url": url, "memory": "1GiB"}));
    let versions = ["1", "2", "3", "4"].map(|v| json!({"version": v, "size": "10MiB"}));
    let tenant = |name: &str, version: &str| json!({"name": name, "subset": subset, "pins": {"digits": version}});
    let mut tenants = vec![tenant("acme", "1"), tenant("globex", "2"), tenant("initech", "3")];
    tenants[0]["allow"] = json!({"digits": ["4"]});
    let config = json!({
        "auth": {"trusted_header": "x-tenant"},
        "pools": [{
            "name": "digits", "protocol": "open-inference", "residency": "repository",
            "upstream": {"model": "{model}-{version}", "version": "", "answer": "required"},
            "health": {"interval": "500ms", "timeout": "500ms", "ease_in": "0s"},
            "replicas": replicas.collect::<Vec<_>>(),
        }],
        "models": [{"name": "digits", "pool": "digits", "versions": versions, "idempotent": idempotent}],
        "tenants": tenants,
    });
    Holdfast::start(binary(), &text(&config)).await
}

#[tokio::test]
async fn each_tenant_gets_the_predictions_of_its_own_version_from_real_servers() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let servers = three().await;
    let ways = ways(&servers).await;
    let urls = ways.each_ref().map(|way| format!("http://127.0.0.1:{}", way.port()));
    let gateway = gateway(urls, 1, false).await;
    for (tenant, version) in [("acme", "1"), ("globex", "2"), ("initech", "3")] {
        for _ in 0..5 {
            check(&gateway.infer(tenant, INFER, &question()).await.expect(200), version);
        }
    }
    wrong_shapes_take_no_replica_away(&gateway).await;
    held_nowhere_is_loaded(&gateway).await;
    tritons_client(&gateway).await;
    curl(&gateway).await;
    outside_changes_are_seen(&gateway, &servers, &ways).await;
}

/// A wrong shape is answered by a 500 with the trace of the server's program, and after it the connection is closed.
async fn wrong_shapes_take_no_replica_away(gateway: &Holdfast) {
    let wrong = json!({"inputs": [{"name": "predict", "datatype": "FP32", "shape": [7, 9], "data": [1, 2, 3]}]});
    for _ in 0..14 {
        let answer = gateway.infer("acme", INFER, &wrong).await.expect(502);
        assert_eq!(answer.header("x-holdfast-error"), "upstream_error");
        assert!(!answer.json()["error"].as_str().unwrap().contains("Traceback"), "{answer:?}");
    }
    check(&gateway.infer("acme", INFER, &question()).await.expect(200), "1");
}

async fn held_nowhere_is_loaded(gateway: &Holdfast) {
    assert_eq!(holders(gateway, "4").await, Vec::<String>::new());
    let path = "/v2/models/digits/versions/4/infer";
    let answer = gateway.infer("acme", path, &question()).await.expect(200);
    check(&answer, "4");
    assert_eq!(answer.header("x-holdfast-reason"), "explicit");
    assert_eq!(holders(gateway, "4").await, [answer.header("x-holdfast-replica")]);
    let refused = gateway.infer("globex", path, &question()).await.expect(403);
    assert_eq!(refused.header("x-holdfast-error"), "version_not_allowed");
}

async fn tritons_client(gateway: &Holdfast) {
    let inputs = mlserver::digits().join("expected.json");
    let address = gateway.data.addr().to_string();
    for (tenant, version) in [("acme", "1"), ("globex", "2")] {
        let output =
            mlserver::python("triton_client_check.py", &[&address, tenant, "digits", inputs.to_str().unwrap()]).await;
        let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(output.status.success(), "{seen}");
        assert_eq!(seen["predictions"], prediction(version), "{tenant}");
        assert_eq!((&seen["model_name"], &seen["model_version"]), (&json!("digits"), &json!(version)));
        assert_eq!((&seen["live"], &seen["ready"], &seen["model_ready"]), (&json!(true), &json!(true), &json!(true)));
        assert_eq!((&seen["metadata"]["name"], &seen["metadata"]["versions"]), (&json!("digits"), &json!([version])));
    }
}

async fn curl(gateway: &Holdfast) {
    let dir = TempDir::new();
    std::fs::write(dir.join("question.json"), question().to_string()).unwrap();
    for http2 in ["--http1.1", "--http2-prior-knowledge"] {
        let output = tokio::process::Command::new("curl")
            .args(["--silent", "--show-error", "--fail", http2, "--header", "x-tenant: globex"])
            .args(["--header", "content-type: application/json", "--data-binary"])
            .arg(format!("@{}", dir.join("question.json").display()))
            .arg(format!("http://{}{INFER}", gateway.data.addr()))
            .output()
            .await
            .expect("curl");
        assert!(output.status.success(), "{http2}: {}", String::from_utf8_lossy(&output.stderr));
        let body: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(body["outputs"][0]["data"], prediction("2"), "{http2}");
    }
}

/// Ways to the servers that count polls.
async fn ways(servers: &[MlServer; 3]) -> [Cut; 3] {
    let [a, b, c] =
        servers.each_ref().map(|server| Cut::counting(server.http.addr().port(), "POST /v2/repository/index"));
    tokio::join!(a, b, c).into()
}

async fn outside_changes_are_seen(gateway: &Holdfast, servers: &[MlServer; 3], ways: &[Cut; 3]) {
    let before = holders(gateway, "4").await;
    let (at, free) = (0..3).map(|i| (i, format!("r{}", i + 1))).find(|(_, name)| !before.contains(name)).unwrap();
    servers[at].load("digits-4").await;
    seen_by_the_next_poll(gateway, &ways[at], &free, true).await;
    let unload = "/v2/repository/models/digits-4/unload";
    let _ = servers[at].http.post(unload, &[], &Value::Null).await.expect(200);
    seen_by_the_next_poll(gateway, &ways[at], &free, false).await;
    // What a tenant needs is loaded again, by a request at the latest.
    let home = gateway.infer("acme", INFER, &question()).await.expect(200).header("x-holdfast-replica").to_owned();
    let at = home[1..].parse::<usize>().unwrap() - 1;
    let _ = servers[at].http.post("/v2/repository/models/digits-1/unload", &[], &Value::Null).await.expect(200);
    check(&gateway.infer("acme", INFER, &question()).await.expect(200), "1");
}

/// One poll may have been under way while somebody else loaded or unloaded. Once the second one after it has begun, what the first one said is known.
async fn seen_by_the_next_poll(gateway: &Holdfast, way: &Cut, replica: &str, holds: bool) {
    let changed = way.seen();
    eventually("what somebody else has changed to be seen", PATIENCE, async || {
        let polls = way.seen() - changed;
        let is_seen = holders(gateway, "4").await.iter().any(|name| name == replica) == holds;
        assert!(is_seen || polls < 3, "not seen by the {polls} polls after it");
        is_seen.then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_death_of_a_real_server_under_load_costs_no_wrong_answer() {
    // What was executing there may have run, and is not sent again unasked: as many errors as requests were in flight, and some that met the close.
    let errors = death_under_load(false).await;
    assert!(errors <= 20, "{errors}");
}

#[tokio::test]
async fn the_death_of_a_real_server_is_felt_by_nobody_where_requests_may_run_twice() {
    assert_eq!(death_under_load(true).await, 0);
}

/// A server dies by kill -9 while three tenants send requests. How many were not served; the others were by their own version.
async fn death_under_load(idempotent: bool) -> usize {
    let _alone = ONE_AT_A_TIME.lock().await;
    let mut servers = three().await;
    let gateway = gateway(servers.each_ref().map(MlServer::url), 2, idempotent).await;
    for version in ["1", "2", "3"] {
        eventually(&format!("two holders of {version}"), PATIENCE, async || {
            (holders(&gateway, version).await.len() >= 2).then_some(())
        })
        .await;
    }
    let pins = [("acme", "1"), ("globex", "2"), ("initech", "3")];
    let targets = pins.iter().map(|(tenant, _)| Target::new(tenant, INFER, &question())).collect();
    let load = Load::start(Client::new(gateway.data.addr()), 60, targets);
    tokio::time::sleep(Duration::from_secs(1)).await;
    servers[0].proc.kill9();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let report = load.stop().await;
    let mut served = 0;
    for r in &report.0 {
        let version = pins.iter().find(|(tenant, _)| *tenant == r.tenant).unwrap().1;
        assert_eq!(r.version, version, "{} {}", r.status, r.error);
        match r.status {
            200 => {
                let body: Value = serde_json::from_slice(&r.body).unwrap();
                assert_eq!(body["outputs"][0]["data"], prediction(version), "{}", r.tenant);
                served += 1;
            }
            // In flight at the replica that died: it may have been executed.
            502 => assert_eq!(r.error, "upstream_error"),
            _ => assert_eq!((r.status, r.error.as_str()), (503, "no_holder")),
        }
    }
    for (tenant, version) in pins {
        check(&gateway.infer(tenant, INFER, &question()).await.expect(200), version);
    }
    report.0.len() - served
}
