//! Messages and their answers.

use std::time::Duration;

use holdfast_testkit::{Holdfast, ModelServer, TempDir, eventually};
use serde_json::{Value, json};

use crate::rig::{Heard, PATIENCE, Rig, Ws, binary, message};

fn ask(id: u64, model: &str, text: &str) -> Value {
    let inputs = json!([{ "name": "text", "shape": [1], "datatype": "BYTES", "data": [text] }]);
    json!({ "id": id, "model": model, "input": { "inputs": inputs } })
}

/// A gateway before real model servers: `screen` on two, `slow` on one that takes its time.
async fn real() -> (Holdfast, Vec<ModelServer>, TempDir) {
    let repository = TempDir::new();
    let models = ["screen", "slow"];
    holdfast_model_server::write_sample_repository(
        repository.path(),
        holdfast_model_server::Layout::Names,
        &models,
        &["1", "2"],
    )
    .unwrap();
    let folder = repository.path().to_str().unwrap();
    let mut servers = Vec::new();
    for (name, delay) in [("a", "infer_delay=20ms"), ("b", "infer_delay=20ms"), ("s", "infer_delay=700ms")] {
        let args = ["--repository", folder, "--name", name, "--load-time", "10ms", "--fault", delay];
        servers.push(ModelServer::start(binary(), &args).await);
    }
    let url = |at: usize| servers[at].url();
    let pool = |name: &str, replicas: String| {
        format!(
            "  - {{ name: {name}, protocol: open-inference, residency: repository, health: {{ interval: 200ms, timeout: 200ms }}, retries: {{ attempts: 2 }}, replicas: [{replicas}] }}\n"
        )
    };
    let replica = |name: &str, at: usize| format!("{{ name: {name}, url: \"{}\", memory: 24GiB }}", url(at));
    let versions = "[{ version: \"1\", size: 1GiB }, { version: \"2\", size: 1GiB }]";
    let config = format!(
        "auth: {{ trusted_header: x-tenant }}\nstream: {{ concurrency: 64 }}\npools:\n{}{}models:\n  \
         - {{ name: screen, pool: fast, idempotent: true, versions: {versions} }}\n  - {{ name: slow, pool: late, versions: {versions} }}\ntenants:\n  \
         - {{ name: acme, subset: 2, pins: {{ screen: \"1\", slow: \"1\" }}, allow: {{ screen: [\"2\"] }} }}\n",
        pool("fast", format!("{}, {}", replica("a", 0), replica("b", 1))),
        pool("late", replica("s", 2)),
    );
    let gateway = Holdfast::start(binary(), &config).await;
    for model in models {
        let path = format!("/v2/models/{model}/infer");
        eventually("a model to be served", PATIENCE, async || {
            let answer = gateway.infer("acme", &path, &ask(0, model, "coffee")["input"]).await;
            (answer.status == 200).then_some(())
        })
        .await;
    }
    (gateway, servers, repository)
}

#[tokio::test]
async fn messages_are_answered_by_id_out_of_order_with_what_an_answer_over_http_says() {
    let (gateway, _servers, _repository) = real().await;
    let mut socket = Ws::of(&gateway, "acme").await;
    socket.say(&ask(1, "slow", "coffee")).await;
    socket
        .say(&json!({ "id": "two", "model": "screen", "version": "2", "input": ask(0, "", "coffee")["input"] }))
        .await;
    let (first, second) = (socket.frame().await, socket.frame().await);
    assert_eq!((&first["id"], &second["id"]), (&json!("two"), &json!(1)), "the slow one does not hold the other up");
    for (frame, model, version, reason) in [(&first, "screen", "2", "explicit"), (&second, "slow", "1", "pin")] {
        assert_eq!(frame["status"], 200, "{frame}");
        assert_eq!(
            (&frame["output"]["model_name"], &frame["output"]["model_version"]),
            (&json!(model), &json!(version))
        );
        let stamps = &frame["stamps"];
        assert_eq!(
            [&stamps["model"], &stamps["version"], &stamps["reason"]],
            [&json!(model), &json!(version), &json!(reason)]
        );
        assert!(stamps["revision"].is_u64() && stamps["replica"].is_string(), "{stamps}");
        let id = stamps["request_id"].as_str().unwrap();
        let receipt = eventually("the receipt", PATIENCE, async || {
            let told = gateway.admin.get(&format!("/v1/receipts/{id}"), &[]).await;
            (told.status == 200).then(|| told.json())
        })
        .await;
        assert_eq!((&receipt["method"], &receipt["version"]), (&json!("MESSAGE"), &json!(version)), "{receipt:#}");
    }
    socket.leave().await;
}

#[tokio::test]
async fn a_replica_that_dies_in_the_middle_costs_no_message_its_answer() {
    let (gateway, mut servers, _repository) = real().await;
    let mut socket = Ws::of(&gateway, "acme").await;
    let mut answered = vec![false; 400];
    let (mut sent, mut heard, mut errors) = (0u64, 0, Vec::new());
    while heard < answered.len() {
        while sent < answered.len() as u64 && sent - heard as u64 <= 40 {
            socket.say(&ask(sent, "screen", "coffee")).await;
            sent += 1;
        }
        if heard == 100 {
            servers[0].proc.kill9();
        }
        let frame = socket.frame().await;
        let id = usize::try_from(frame["id"].as_u64().unwrap()).unwrap();
        assert!(!std::mem::replace(&mut answered[id], true), "{id} is answered twice");
        match frame["error"]["kind"].as_str() {
            None => assert_eq!(frame["output"]["model_version"], "1", "{frame}"),
            Some(kind) => errors.push(kind.to_owned()),
        }
        heard += 1;
    }
    // The model says that it may be asked twice, so what was at the dead replica is asked of the other one.
    assert_eq!(errors, Vec::<String>::new());
    assert_eq!(gateway.metrics().await.sum("holdfast_invariant_violations_total", &[]), 0.0);
    socket.leave().await;
}

#[tokio::test]
async fn what_a_message_may_not_have_is_an_error_with_its_id_and_the_socket_goes_on() {
    let rig = Rig::start("ladder: { violations: 1000 }", "user: {}").await;
    let mut socket = Ws::of(&rig.gateway, "acme").await;
    let mut refused = async |message: Value, kind: &str, status: u16| {
        let id = message["id"].clone();
        socket.say(&message).await;
        let frame = socket.frame().await;
        assert_eq!((&frame["error"]["kind"], &frame["error"]["status"]), (&json!(kind), &json!(status)), "{frame}");
        assert_eq!(frame["id"], id, "{frame}");
        assert!(frame["error"]["message"].as_str().is_some_and(|words| !words.is_empty()), "{frame}");
        frame
    };
    let of = |more: Value| {
        let mut whole = message(1, "screen");
        more.as_object().unwrap().iter().for_each(|(name, value)| whole[name] = value.clone());
        whole
    };
    let _ = refused(of(json!({ "model": "nothing" })), "unknown_model", 404).await;
    let _ = refused(of(json!({ "version": "8" })), "version_not_allowed", 403).await;
    let _ = refused(of(json!({ "type": "nothing" })), "bad_request", 400).await;
    let _ = refused(of(json!({ "surprise": 1 })), "bad_request", 400).await;
    let _ = refused(of(json!({ "input": "text" })), "bad_request", 400).await;
    let _ = refused(of(json!({ "timeout_ms": 0 })), "bad_request", 400).await;
    let _ = refused(json!({ "model": "screen", "input": {} }), "bad_request", 400).await;
    let _ = refused(json!([1, 2]), "bad_request", 400).await;
    let late =
        refused(of(json!({ "input": { "inputs": [], "id": "hangs" }, "timeout_ms": 50 })), "upstream_timeout", 504)
            .await;
    assert_eq!(late["stamps"]["version"], "1", "it was resolved: {late}");

    // An id is in use while its message is served.
    let hangs = of(json!({ "id": "h", "input": { "inputs": [], "id": "hangs" }, "timeout_ms": 20_000 }));
    socket.say(&hangs).await;
    socket.ask("h", "screen").await;
    let twice = socket.frame().await;
    assert_eq!((&twice["id"], &twice["error"]["kind"]), (&json!("h"), &json!("bad_request")), "{twice}");
    socket.ask(7, "screen").await;
    assert_eq!(socket.frame().await["output"]["model_version"], "1");
    let other = Ws::of(&rig.gateway, "bolt").await;
    let mut other = other;
    other.ask(1, "other").await;
    assert_eq!(other.frame().await["error"]["kind"], "not_pinned", "another tenant has other pins");
    drop(socket);
    other.leave().await;
    rig.settled().await;
}

#[tokio::test]
async fn more_messages_than_may_be_served_at_a_time_wait_and_pings_are_answered_meanwhile() {
    let rig = Rig::start("concurrency: 2", "user: {}").await;
    let mut socket = Ws::of(&rig.gateway, "acme").await;
    let hangs =
        |id: u64| json!({ "id": id, "model": "screen", "input": { "inputs": [], "id": "hangs" }, "timeout_ms": 1_500 });
    let infers =
        || rig.stub.count(|request| request.path.ends_with("/infer") && request.body.windows(5).any(|b| b == b"hangs"));
    for id in 0..3 {
        socket.say(&hangs(id)).await;
    }
    eventually("two to be served", PATIENCE, async || (infers() == 2).then_some(())).await;
    let frames = [socket.frame().await, socket.frame().await, socket.frame().await];
    assert!(frames.iter().all(|frame| frame["error"]["kind"] == "upstream_timeout"), "{frames:?}");
    assert_eq!(infers(), 3, "the third was served once there was room");
    socket.ask(9, "screen").await;
    assert_eq!(socket.frame().await["id"], 9);
    socket.leave().await;
    rig.settled().await;
}

#[tokio::test]
async fn a_large_answer_comes_whole_or_is_an_error() {
    let rig = Rig::start("answer: 1MiB", "user: {}").await;
    let mut socket = Ws::of(&rig.gateway, "acme").await;
    socket.say(&json!({ "id": 1, "model": "screen", "input": { "inputs": [], "id": "large" } })).await;
    let frame = socket.frame().await;
    assert_eq!(frame["error"]["kind"], "too_large", "{frame}");
    socket.leave().await;
    let rig = Rig::start("answer: 4MiB", "user: {}").await;
    let mut socket = Ws::of(&rig.gateway, "acme").await;
    socket.say(&json!({ "id": 1, "model": "screen", "input": { "inputs": [], "id": "large" } })).await;
    let frame = socket.frame().await;
    assert_eq!(frame["output"]["outputs"][0]["data"][0].as_str().map(str::len), Some(2_000_000));
    match tokio::time::timeout(Duration::from_millis(200), socket.hear()).await {
        Err(_) => {}
        Ok(Heard::Frame(frame)) => panic!("{frame}"),
        Ok(other) => panic!("{other:?}"),
    }
    socket.leave().await;
    rig.settled().await;
}

#[tokio::test]
async fn an_answer_of_another_version_is_never_passed_on() {
    let rig = Rig::start("", "user: {}").await;
    let mut socket = Ws::of(&rig.gateway, "acme").await;
    socket.say(&json!({ "id": 1, "model": "screen", "input": { "inputs": [], "id": "lies" } })).await;
    let frame = socket.frame().await;
    assert_eq!((&frame["error"]["kind"], &frame["error"]["status"]), (&json!("wrong_version_served"), &json!(502)));
    assert!(frame.get("output").is_none(), "{frame}");
    rig.becomes("holdfast_invariant_violations_total", &[("id", "PIN-1")], 1.0).await;
    socket.leave().await;
    rig.settled().await;
}

#[tokio::test]
async fn what_the_ledger_may_know_is_not_resolved_as_if_it_were_new() {
    let top = "auth: { trusted_header: x-tenant, trusted_user_header: x-user }\nledger: {}";
    let rig = Rig::with(top, "", "user: {}").await;
    let mut socket = Ws::of(&rig.gateway, "acme").await;
    let mut whole = message(1, "screen");
    whole["submission"] = json!("s-1");
    socket.say(&whole).await;
    let refused = socket.frame().await;
    assert_eq!((&refused["id"], &refused["error"]["kind"]), (&json!(1), &json!("bad_request")), "{refused}");
    assert_eq!(rig.stub.executions(), 0);
    socket.ask(2, "screen").await;
    assert_eq!(socket.frame().await["status"], 200, "one without a key is nobody's retry");
    socket.leave().await;
    rig.settled().await;
}
