//! The version that served is the version that was asked for, or the answer does not pass: wrong names, late ones, missing ones, lies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fleet::{Fleet, INFER, PATIENCE, binary, config, holders, is_shed, judgements, probe, samples, text, texts};
use holdfast_model_server::Layout;
use holdfast_testkit::raw::{RawClient, RawError};
use holdfast_testkit::v2_stub::{V2, infer_answer};
use holdfast_testkit::{Holdfast, Script, Stub, eventually};
use http::Method;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

fn acme(subset: usize) -> Value {
    json!([{"name": "acme", "subset": subset, "pins": {"screen": "1"}, "allow": {"screen": ["2"]}}])
}

/// A gateway before stubs that hold `screen-1`.
async fn before_stubs(stubs: &[&Stub]) -> Holdfast {
    let urls: Vec<String> = stubs.iter().map(|s| s.url()).collect();
    let config = config(&urls, 1, json!([{"name": "acme", "subset": stubs.len(), "pins": {"screen": "1"}}]));
    let gateway = Holdfast::start(binary(), &text(&config)).await;
    fleet::wait_held(&gateway, "1", stubs.len()).await;
    gateway
}

#[tokio::test]
async fn a_replica_that_serves_another_version_now_and_then_is_found_out_and_kept_out() {
    let fleet = Fleet::start((2, &[]), 2, acme(2), |_| {}).await;
    let judgements = judgements(2).await;
    fleet.wait_held("1", 2).await;
    let _ = fleet.gateway.infer("acme", "/v2/models/screen/versions/2/infer", &probe()).await.expect(200);
    // Both hold version 2, so that the wrong answer is a real one.
    for (server, name) in fleet.servers.iter().zip(["r1", "r2"]) {
        let _ = server.http.post("/v2/repository/models/screen-2/load", &[], &json!({})).await.expect(200);
        eventually("version 2 everywhere", PATIENCE, async || {
            holders(&fleet.gateway, "2").await.contains(&name.to_owned()).then_some(())
        })
        .await;
    }
    fleet.servers[0].faults(&json!({"wrong_version_rate": 0.2})).await;
    let (mut refused, mut served) = (0, 0);
    for _ in 0..200 {
        let answer = fleet.infer("acme").await;
        assert_eq!(answer.header("x-holdfast-version"), "1");
        if answer.status == 502 {
            assert_eq!(answer.header("x-holdfast-error"), "wrong_version_served", "{answer:?}");
            refused += 1;
            continue;
        }
        assert_eq!(answer.expect(200).json()["outputs"], judgements["1"]);
        served += 1;
    }
    assert_eq!(refused, 1, "one wrong answer is enough");
    assert_eq!(served, 199, "the other replica serves meanwhile");
    let row = fleet.replica("r1").await;
    let held = row["holds"].as_array().unwrap().iter().find(|h| h["version"] == "1").unwrap().clone();
    assert_eq!((&held["state"], &held["shown"]), (&json!("quarantined"), &json!(false)), "{row}");
    assert!(held["why"].as_str().unwrap().contains("screen-2"), "{held}");
    let metrics = fleet.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_wrong_version_total", &[("replica", "r1")]), 1.0);
    assert_eq!(metrics.sum("holdfast_quarantined", &[("replica", "r1"), ("version", "1")]), 1.0);
    assert_eq!(metrics.sum("holdfast_invariant_violations_total", &[("id", "PIN-1")]), 1.0);
    let alarms = fleet.gateway.admin_get("/v1/alarms").await;
    assert_eq!(alarms["alarms"][0]["kind"], "wrong_version_served", "{alarms}");
}

#[tokio::test]
async fn an_answer_that_names_another_model_does_not_pass() {
    let v2 = V2::loaded(&[("screen-1", "1")]);
    let stub = Stub::start(move |request| match request.path.ends_with("/infer") {
        true => Script::json(200, &infer_answer(request, "screen-9", "1")),
        false => v2.answer(request),
    })
    .await;
    let gateway = before_stubs(&[&stub]).await;
    let answer = gateway.infer("acme", INFER, &probe()).await.expect(502);
    assert_eq!(answer.header("x-holdfast-error"), "wrong_version_served");
    assert!(!answer.text().contains("screen-9"), "{}", answer.text());
    let next = gateway.infer("acme", INFER, &probe()).await;
    assert!(is_shed(&next, "no_holder"), "no other replica of the subset: {next:?}");
    let retry: u64 = next.header("retry-after").parse().unwrap();
    assert!((15..=30).contains(&retry), "until it is asked for a proof again: {next:?}");
    let told = gateway.admin_get("/v1/explain?tenant=acme&model=screen").await;
    assert!(told["now"].as_str().unwrap().contains("at once 503 no_holder, retry after"), "{told}");
    let member = &told["subset"][0];
    assert_eq!((&member["state"], &member["reason"]), (&json!("quarantined"), &json!("quarantined")), "{told}");
    assert_eq!(member["usable"], false, "the replica is up, but of no use for this version: {told}");
    assert!((10..=30).contains(&member["retry_in_seconds"].as_u64().unwrap()), "{told}");
    assert_eq!(stub.executions(), 1);
}

#[tokio::test]
async fn a_missing_version_is_judged_by_the_policy_of_the_pool() {
    let repository = samples(Layout::Versions, 1);
    let server = fleet::server(&repository, &["--layout", "versions", "--load", "screen"]).await;
    // Another model for each policy, all of them the same one upstream.
    let policies = ["if_present", "required", "none"];
    let pools = policies.iter().map(|policy| {
        json!({
            "name": policy, "protocol": "open-inference", "residency": "static",
            "upstream": {"model": "screen", "version": "{version}", "answer": policy},
            "replicas": [{"name": "r1", "url": server.url(), "holds": [{"model": policy, "version": "1"}]}],
        })
    });
    let models = policies.iter().map(|p| json!({"name": p, "pool": p, "versions": [{"version": "1"}]}));
    let mut all = config(&[], 1, json!([{"name": "acme", "pins": {"if_present": "1", "required": "1", "none": "1"}}]));
    all["pools"] = pools.collect();
    all["models"] = models.collect();
    let gateway = Holdfast::start(binary(), &text(&all)).await;
    let ask = async |policy: &str| gateway.infer("acme", &format!("/v2/models/{policy}/infer"), &probe()).await;
    for policy in policies {
        eventually("the first poll", PATIENCE, async || (ask(policy).await.status == 200).then_some(())).await;
    }
    server.faults(&json!({"omit_version": true})).await;
    let named = ask("if_present").await.expect(200).json();
    assert_eq!((&named["model_name"], named.get("model_version")), (&json!("if_present"), None));
    let _ = ask("none").await.expect(200);
    let refused = ask("required").await.expect(502);
    assert_eq!(refused.header("x-holdfast-error"), "wrong_version_served");
    server.faults(&json!({"wrong_version_rate": 1})).await;
    assert_eq!(ask("if_present").await.expect(502).header("x-holdfast-error"), "wrong_version_served");
    let _ = ask("none").await.expect(200);
}

/// One request over HTTP/2 without TLS; the body's bytes, or what ended it.
async fn over_h2(addr: std::net::SocketAddr, body: &Value) -> (u16, Result<Bytes, String>) {
    let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let (executor, io) = (hyper_util::rt::TokioExecutor::new(), hyper_util::rt::TokioIo::new(stream));
    let (mut send, driver) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let driver = tokio::spawn(driver);
    let request = http::Request::post(format!("http://{addr}{INFER}"))
        .header("x-tenant", "acme")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let response = send.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.map(|b| b.to_bytes()).map_err(|e| e.to_string());
    driver.abort();
    (status, body)
}

#[tokio::test]
async fn an_answer_that_contradicts_itself_at_its_end_is_cut_and_never_ends_well() {
    let fleet = Fleet::start((2, &[]), 1, acme(2), |config| {
        config["models"][0]["versions"] = json!([{"version": "1", "size": "2GiB"}]);
        config["tenants"][0]["allow"] = json!({});
    })
    .await;
    fleet.wait_held("1", 2).await;
    for server in &fleet.servers {
        server.faults(&json!({"late_mismatch": true})).await;
    }
    let body = probe().to_string();
    let mut h1 = RawClient::connect(fleet.gateway.data.addr()).await;
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nhost: x\r\nx-tenant: acme\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    h1.write(format!("{head}{body}")).await;
    match h1.answer("POST").await {
        Err(RawError::Cut(_)) => {}
        other => panic!("{other:?}"),
    }
    let (status, end) = over_h2(fleet.gateway.data.addr(), &probe()).await;
    assert!(status == 200 && end.is_err(), "{status} {end:?}");
    let metrics = fleet.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_wrong_version_total", &[]), 2.0, "each replica was found out once");
    assert_eq!(metrics.sum("holdfast_quarantined", &[]), 2.0);
    assert_eq!(metrics.sum("holdfast_errors_total", &[("kind", "wrong_version_served")]), 2.0);
    let next = fleet.infer("acme").await;
    assert!(is_shed(&next, "no_holder"), "{next:?}");
}

#[tokio::test]
async fn binary_answers_keep_their_bytes_under_a_json_part_of_another_length() {
    let fleet = Fleet::start((1, &[]), 1, acme(1), |config| config["tenants"][0]["allow"] = json!({})).await;
    fleet.wait_held("1", 1).await;
    let mut asked = probe();
    asked["parameters"] = json!({"binary_data_output": true});
    let direct = fleet.servers[0].http.post("/v2/models/screen-1/infer", &[], &asked).await.expect(200);
    let through = fleet.gateway.infer("acme", INFER, &asked).await.expect(200);
    let split = |answer: &holdfast_testkit::http::Answer| {
        let length: usize = answer.header("inference-header-content-length").parse().unwrap();
        (answer.body.slice(..length), answer.body.slice(length..))
    };
    let ((direct_json, direct_data), (json, data)) = (split(&direct), split(&through));
    assert_eq!(data, direct_data);
    assert!(!data.is_empty());
    let expected = String::from_utf8(direct_json.to_vec()).unwrap().replace("\"screen-1\"", "\"screen\"");
    assert_eq!(String::from_utf8(json.to_vec()).unwrap(), expected);
    assert_eq!(through.header("content-type"), "application/octet-stream");
    assert_eq!(through.header("content-length"), through.body.len().to_string());

    // The same the other way: binary inputs.
    let json = br#"{"inputs":[{"name":"text","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":17}}]}"#;
    let body = [json.as_slice(), b"\x0d\0\0\0version probe"].concat();
    let length = json.len().to_string();
    let headers = [("x-tenant", "acme"), ("inference-header-content-length", length.as_str())];
    let answer = fleet.gateway.data.send(Method::POST, INFER, &headers, body.into()).await.unwrap().expect(200);
    assert_eq!(answer.json()["outputs"], judgements(1).await["1"]);
}

#[tokio::test]
async fn a_long_answer_streams_through_byte_for_byte_but_for_its_names() {
    let fleet = Fleet::start((1, &[]), 1, acme(1), |config| config["tenants"][0]["allow"] = json!({})).await;
    fleet.wait_held("1", 1).await;
    let words = ["embargo", "books", "version probe", "a garden \u{1F331}"];
    let all: Vec<&str> = (0..20_000).map(|n| words[n % 4]).collect();
    let asked = texts(&all);
    let direct = fleet.servers[0].http.post("/v2/models/screen-1/infer", &[], &asked).await.expect(200);
    assert!(direct.body.len() > 256 * 1024, "{}", direct.body.len());
    let expected = direct.text().replacen("\"screen-1\"", "\"screen\"", 1);
    for pieces in [json!({}), json!({"stream_chunks": {"bytes": 50_000, "every": "5ms"}})] {
        fleet.servers[0].faults(&pieces).await;
        let through = fleet.gateway.infer("acme", INFER, &asked).await.expect(200);
        assert!(through.text() == expected, "{} bytes against {}", through.body.len(), expected.len());
    }
    let metrics = fleet.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_in_flight", &[]), 0.0);
    assert_eq!(metrics.sum("holdfast_replica_in_flight", &[]), 0.0);
}

#[tokio::test]
async fn an_answer_that_is_no_whole_json_object_is_no_answer() {
    for body in ["", "  ", "{\"model_name\":\"screen-1\",\"outputs\":[", "{}{\"model_name\":\"screen-2\"}"] {
        let v2 = V2::loaded(&[("screen-1", "1")]);
        let stub = Stub::start(move |request| match request.path.ends_with("/infer") {
            true => Script::with_headers(200, &[("content-type", "application/json")], body.as_bytes()),
            false => v2.answer(request),
        })
        .await;
        let gateway = before_stubs(&[&stub]).await;
        let answer = gateway.data.post(INFER, &[("x-tenant", "acme")], &probe()).await;
        assert_eq!(answer.status, 502, "{body:?}: {answer:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_compressed_against_the_request_is_refused() {
    let v2 = V2::loaded(&[("screen-1", "1")]);
    let stub = Stub::start(move |request| match request.path.ends_with("/infer") {
        true => Script::with_headers(
            200,
            &[("content-type", "application/json"), ("content-encoding", "gzip")],
            b"\x1f\x8b",
        ),
        false => v2.answer(request),
    })
    .await;
    let gateway = before_stubs(&[&stub]).await;
    let headers = [("x-tenant", "acme"), ("accept-encoding", "gzip, br")];
    let answer = gateway.data.post(INFER, &headers, &probe()).await.expect(502);
    assert_eq!(answer.header("x-holdfast-error"), "upstream_error");
    let sent = stub.requests().into_iter().find(|r| r.path.ends_with("/infer")).unwrap();
    assert!(["", "identity"].contains(&sent.header("accept-encoding")), "{sent:?}");
}

#[tokio::test]
async fn only_a_version_with_the_declared_digest_and_known_answers_is_shown() {
    let reference = Fleet::start((1, &["--load-all"]), 4, acme(1), |_| {}).await;
    let digest = async |version: &str| {
        let path = format!("/v2/models/screen-{version}");
        eventually("the reference to hold it", PATIENCE, async || {
            let answer = reference.servers[0].http.get(&path, &[]).await;
            (answer.status == 200).then(|| answer.json()["parameters"]["digest"].clone())
        })
        .await
    };
    let known = judgements(4).await;
    let golden =
        |version: &str| json!([{"input": probe(), "output": {"outputs": known[version]}, "tolerance": 0.0001}]);
    let all = json!(["1", "2", "3", "4"]);
    let (first, third) = (digest("1").await, digest("3").await);
    let fleet = Fleet::start(
        (1, &[]),
        4,
        json!([{"name": "acme", "pins": {"screen": "1"}, "allow": {"screen": all}}]),
        |config| {
            config["models"][0]["versions"] = json!([
                {"version": "1", "size": "2GiB", "digest": first, "golden": golden("1")},
                {"version": "2", "size": "2GiB", "golden": golden("1")},
                {"version": "3", "size": "2GiB", "digest": third},
                {"version": "4", "size": "2GiB", "digest": third},
            ]);
        },
    )
    .await;
    let ask = async |version: &str| {
        let path = format!("/v2/models/screen/versions/{version}/infer");
        fleet.gateway.infer("acme", &path, &probe()).await
    };
    for version in ["1", "3"] {
        assert_eq!(ask(version).await.expect(200).json()["outputs"], known[version]);
    }
    for (version, why) in [("2", "known question"), ("4", "declared is")] {
        let answer = ask(version).await;
        assert!(is_shed(&answer, "no_holder"), "{version}: {answer:?}");
        let row = fleet.replica("r1").await;
        let held = row["holds"].as_array().unwrap().iter().find(|h| h["version"] == version).unwrap().clone();
        assert_eq!(held["state"], "quarantined", "{held}");
        assert!(held["why"].as_str().unwrap().contains(why), "{held}");
    }
    let stats = fleet.servers[0].stats().await;
    let asked = stats["executions"].as_array().unwrap().iter().find(|e| e["version"] == "4");
    assert!(asked.is_none(), "no request reached weights that are not the declared ones: {stats}");
    let metrics = fleet.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_alarms_total", &[("kind", "verification_failed")]), 2.0);
}

#[tokio::test]
async fn a_declared_digest_that_the_server_does_not_tell_is_no_proof() {
    let v2 = Arc::new(V2::unloaded(&[("screen-1", "1")]));
    let answering = v2.clone();
    let stub = Stub::start(move |request| answering.answer(request)).await;
    let mut config = config(&[stub.url()], 1, json!([{"name": "acme", "pins": {"screen": "1"}}]));
    config["models"][0]["versions"][0]["digest"] = json!(format!("sha256:{}", "ab".repeat(32)));
    let gateway = Holdfast::start(binary(), &text(&config)).await;
    let answer = gateway.infer("acme", INFER, &probe()).await;
    assert!(is_shed(&answer, "no_holder"), "{answer:?}");
    assert_eq!(v2.names_loaded(), ["screen-1"]);
    assert_eq!(stub.executions(), 0);
}

#[tokio::test]
async fn weights_under_a_lying_label_are_found_by_the_known_answers() {
    let known = judgements(2).await;
    let fleet = Fleet::start((2, &["--load", "screen-2", "--fault", "wrong_weights_rate=1"]), 2, acme(2), |config| {
        config["models"][0]["versions"][0]["golden"] = json!([{"input": probe(), "output": {"outputs": known["1"]}}]);
    })
    .await;
    fleet.servers[1].faults(&json!({})).await;
    fleet.wait_held("1", 1).await;
    for _ in 0..20 {
        let answer = fleet.infer("acme").await.expect(200);
        assert_eq!(answer.json()["outputs"], known["1"]);
        assert_eq!(answer.header("x-holdfast-replica"), "r2");
    }
    eventually("the liar in quarantine", PATIENCE, async || {
        let metrics = fleet.gateway.metrics().await;
        (metrics.sum("holdfast_quarantined", &[("replica", "r1"), ("version", "1")]) == 1.0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_replica_that_says_ready_and_then_does_not_know_the_version_costs_nobody_an_error() {
    let known = judgements(1).await;
    let fleet = Fleet::start((2, &[]), 1, acme(2), |config| config["tenants"][0]["allow"] = json!({})).await;
    fleet.wait_held("1", 2).await;
    fleet.servers[0].faults(&json!({"ready_lies": true})).await;
    for n in 0..60 {
        let answer = fleet.infer("acme").await;
        assert_eq!(answer.expect(200).json()["outputs"], known["1"], "request {n}");
    }
    fleet.servers[0].faults(&json!({})).await;
    eventually("the replica to serve again", Duration::from_secs(15), async || {
        let answer = fleet.infer("acme").await.expect(200);
        (answer.header("x-holdfast-replica") == "r1").then_some(())
    })
    .await;
}

/// A fleet of one server whose version 1 is proved by a known answer.
async fn proved_fleet(interval: &str) -> Fleet {
    let known = judgements(2).await;
    let fleet = Fleet::start((1, &["--load-all"]), 2, acme(1), |config| {
        let golden = json!([{"input": probe(), "output": {"outputs": known["1"]}, "tolerance": 0.0001}]);
        config["models"][0]["versions"][0]["golden"] = golden;
        config["pools"][0]["health"]["interval"] = json!(interval);
    })
    .await;
    fleet.wait_held("1", 1).await;
    assert_eq!(fleet.infer("acme").await.status, 200);
    fleet
}

async fn wait_quarantined(fleet: &Fleet) {
    eventually("the version in quarantine", PATIENCE, async || {
        let row = fleet.replica("r1").await;
        let held = row["holds"].as_array().unwrap().iter().find(|h| h["version"] == "1").cloned()?;
        (held["state"] == "quarantined").then_some(())
    })
    .await;
    assert!(is_shed(&fleet.infer("acme").await, "no_holder"));
}

#[tokio::test]
async fn a_server_that_comes_back_with_other_weights_is_proved_before_its_first_answer() {
    // Seldom asked: it is the end of a kept connection that tells.
    let mut fleet = proved_fleet("60s").await;
    let file = fleet.repository.path().join("screen-1/model.json");
    let mut model: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    for bias in model["bias"].as_array_mut().unwrap() {
        *bias = json!(bias.as_f64().unwrap() + 7.0 * (bias.as_f64().unwrap() - 0.3));
    }
    model["weights"] = json!({});
    std::fs::write(&file, model.to_string()).unwrap();
    fleet.servers[0].restart().await;
    assert!(is_shed(&fleet.infer("acme").await, "no_holder"));
    wait_quarantined(&fleet).await;
}

#[tokio::test]
async fn a_proof_that_is_changed_by_a_reload_is_asked_for_before_the_next_answer() {
    let mut fleet = proved_fleet("500ms").await;
    let before = fleet.revision().await;
    fleet.edit(|config| {
        config["models"][0]["versions"][0]["golden"][0]["output"] =
            json!({"outputs": [{"name": "label", "data": ["no such"]}]});
    });
    eventually("the reload", PATIENCE, async || {
        let answer = fleet.infer("acme").await;
        let revision: u64 = answer.header("x-holdfast-revision").parse().unwrap();
        assert!(revision == before || answer.status != 200, "{answer:?}");
        (revision > before).then_some(())
    })
    .await;
    wait_quarantined(&fleet).await;
}

#[tokio::test]
async fn a_quarantine_outlasts_a_new_name_of_the_server() {
    let mut fleet = Fleet::start((1, &["--load-all"]), 2, acme(1), |_| {}).await;
    fleet.wait_held("1", 1).await;
    fleet.servers[0].faults(&json!({"wrong_version_rate": 1})).await;
    assert_eq!(fleet.infer("acme").await.expect(502).header("x-holdfast-error"), "wrong_version_served");
    fleet.edit(|config| config["pools"][0]["replicas"][0]["name"] = json!("renamed"));
    eventually("the version in quarantine under the new name", PATIENCE, async || {
        let all = fleet.gateway.admin_get("/v1/replicas").await;
        let row = all["replicas"].as_array()?.iter().find(|r| r["replica"] == "renamed")?.clone();
        let held = row["holds"].as_array()?.iter().find(|h| h["version"] == "1").cloned()?;
        (held["state"] == "quarantined").then_some(())
    })
    .await;
    assert!(is_shed(&fleet.infer("acme").await, "no_holder"));
}

#[tokio::test]
async fn a_declaration_that_is_corrected_is_proved_at_once() {
    let mut fleet = Fleet::start((1, &["--load-all"]), 2, acme(1), |config| {
        let known = json!({"outputs": [{"name": "label", "data": ["no such"]}]});
        config["models"][0]["versions"][0]["golden"] = json!([{"input": probe(), "output": known}]);
    })
    .await;
    wait_quarantined(&fleet).await;
    let known = judgements(1).await;
    fleet.edit(|config| {
        config["models"][0]["versions"][0]["golden"][0]["output"] = json!({"outputs": known["1"]});
    });
    eventually("the version to be served", PATIENCE, async || (fleet.infer("acme").await.status == 200).then_some(()))
        .await;
}
