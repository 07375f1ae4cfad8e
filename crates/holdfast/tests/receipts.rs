//! Receipts: for every kind of end the whole decision, by the id that the client was told; a bounded number of them, and nothing that the client sent.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fleet;

use fleet::{Fleet, INFER, PATIENCE, probe};
use holdfast_testkit::eventually;
use holdfast_testkit::http::Answer;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

const VERSION_2: &str = "/v2/models/screen/versions/2/infer";

/// A tenant that waits for loads and one that does not.
async fn fleet(flags: &[&str], shape: impl FnOnce(&mut Value)) -> Fleet {
    let tenants = json!([
        {"name": "acme", "subset": 2, "pins": {"screen": "1"}, "allow": {"screen": ["2"]}},
        {"name": "hasty", "subset": 2, "pins": {"screen": "1"}, "allow": {"screen": ["2"]}, "unavailable": "shed"},
    ]);
    let fleet = Fleet::start((2, flags), 2, tenants, shape).await;
    fleet.wait_held("1", 2).await;
    fleet
}

async fn receipt(fleet: &Fleet, answer: &Answer) -> Value {
    fleet::receipt(&fleet.gateway, answer).await
}

fn assert_has(receipt: &Value, expected: &Value) {
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&receipt[key], value, "{key}: {receipt:#}");
    }
}

fn stages(receipt: &Value) -> Vec<&str> {
    let stages = receipt["stages"].as_array().unwrap();
    let times: Vec<u64> = stages.iter().map(|stage| stage["at_us"].as_u64().unwrap()).collect();
    assert!(times.is_sorted(), "{receipt:#}");
    stages.iter().map(|stage| stage["stage"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_served_request_tells_who_what_where_and_when() {
    let fleet = fleet(&[], |_| {}).await;
    let answer = fleet.infer("acme").await.expect(200);
    let told = receipt(&fleet, &answer).await;
    let replica = answer.header("x-holdfast-replica");
    assert_has(
        &told,
        &json!({
            "tenant": "acme", "model": "screen", "version": "1", "reason": "pin", "pool": "main", "endpoint": "infer",
            "status": 200, "retries": 0, "picks": 1, "replica": replica,
            "bytes_in": probe().to_string().len(), "bytes_out": answer.body.len(),
        }),
    );
    assert_eq!(told["revision"].to_string(), answer.header("x-holdfast-revision"));
    // The first request of a worker may have to connect.
    let waits = told["waits"].as_array().unwrap();
    assert!(waits.iter().all(|w| w["for"] == "connection" && w["ended"] == "ready"), "{told:#}");
    let waited: u64 = waits.iter().map(|w| w["took_us"].as_u64().unwrap()).sum();
    assert_eq!(told["wait_us"], waited, "{told:#}");
    let subset = told["subset"].as_array().unwrap();
    assert_eq!(subset.len(), 2);
    assert!(subset.iter().all(|m| m["holds"] == true && m["usable"] == true && m["in_flight"] == 0), "{told:#}");
    assert_eq!((&told["attempts"][0]["replica"], &told["attempts"][0]["ended"]), (&json!(replica), &json!("answered")));
    assert_eq!(stages(&told), ["accepted", "resolved", "body_read", "sent", "answer_complete", "ended"]);
    assert_eq!(told["stages"][5]["at_us"], told["total_us"]);
    assert!(!told.to_string().contains("version probe"), "no payload: {told}");
    let args = ["receipt", answer.header("x-holdfast-request-id")];
    let mut printed = fleet.gateway.cli_json(&args).await;
    // The wall clock is asked anew each time, and rounded to milliseconds.
    printed["time"] = told["time"].clone();
    assert_eq!(printed, told);
    let table = String::from_utf8(fleet.gateway.cli(&args).await.stdout).unwrap();
    for part in
        ["tenant      acme", "holds true", "attempt ", "stage       resolved", &format!("replica     {replica}")]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[tokio::test]
async fn a_retried_request_tells_each_attempt() {
    let fleet = fleet(&[], |config| config["models"][0]["idempotent"] = json!(true)).await;
    fleet.servers[0].faults(&json!({"error_rate": 1, "error_status": 500})).await;
    let told = eventually("a request that fails at the first replica", PATIENCE, async || {
        let answer = fleet.infer("acme").await.expect(200);
        Some(receipt(&fleet, &answer).await).filter(|told| told["retries"] == 1)
    })
    .await;
    let attempts = told["attempts"].as_array().unwrap();
    let ends: Vec<_> =
        attempts.iter().map(|a| (a["replica"].as_str().unwrap(), a["ended"].as_str().unwrap())).collect();
    assert_eq!(ends, [("r1", "server_error"), ("r2", "answered")], "{told:#}");
    assert_has(&told, &json!({"replica": "r2", "status": 200, "picks": 2}));
    let tried = told["subset"].as_array().unwrap().iter().find(|m| m["replica"] == "r1").unwrap();
    assert_eq!(tried["usable"], false, "it was asked before: {told:#}");
}

#[tokio::test]
async fn a_cold_load_and_a_shed_request_tell_why_they_waited_or_did_not() {
    let fleet = fleet(&["--load-time", "300ms"], |_| {}).await;
    let shed = fleet.gateway.infer("hasty", VERSION_2, &probe()).await.expect(503);
    let told = receipt(&fleet, &shed).await;
    assert_has(
        &told,
        &json!({"tenant": "hasty", "version": "2", "status": 503, "error": "no_holder", "reason": "explicit", "attempts": []}),
    );
    assert!(told["detail"].as_str().unwrap().contains("(shed)"), "{told:#}");
    assert!(told["subset"].as_array().unwrap().iter().all(|m| m["holds"] == false), "{told:#}");
    assert_eq!(stages(&told), ["accepted", "resolved", "body_read", "ended"]);
    let cold = fleet.gateway.infer("acme", VERSION_2, &probe()).await.expect(200);
    let told = receipt(&fleet, &cold).await;
    let waits = told["waits"].as_array().unwrap();
    assert!(
        waits.iter().any(|w| w["for"] == "holder" && w["ended"] == "ready" && w["took_us"].as_u64() > Some(10_000)),
        "{told:#}"
    );
    assert!(told["picks"].as_u64() >= Some(2) && told["wait_us"].as_u64() > Some(10_000), "{told:#}");
}

#[tokio::test]
async fn refused_requests_tell_what_they_asked_for() {
    let fleet = fleet(&[], |_| {}).await;
    let refused = fleet.gateway.infer("acme", "/v2/models/screen/versions/9/infer", &probe()).await;
    let told = receipt(&fleet, &refused).await;
    assert_eq!(told["status"], refused.status.as_u16());
    assert_eq!(told["asked"], json!({"tenant": "acme", "model": "screen", "version": "9"}));
    assert_eq!(told["error"], refused.header("x-holdfast-error"));
    assert_eq!(stages(&told), ["accepted", "ended"]);
    let nobody = fleet.gateway.infer("nobody", INFER, &probe()).await.expect(403);
    assert_eq!(receipt(&fleet, &nobody).await["asked"]["tenant"], "nobody");
    let unnamed = fleet.gateway.data.post(INFER, &[], &probe()).await.expect(401);
    let told = receipt(&fleet, &unnamed).await;
    assert_eq!((&told["asked"]["tenant"], &told["asked"]["model"]), (&Value::Null, &json!("screen")));
    let of = async |query: &str| {
        let page = fleet.gateway.admin_get(&format!("/v1/receipts?{query}")).await;
        let page = page["receipts"].as_array().unwrap().clone();
        page.iter().map(|r| r["status"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let status = u64::from(refused.status.as_u16());
    assert_eq!((of("").await, of("limit=2").await), (vec![401, 403, status], vec![401, 403]));
    assert_eq!((of("tenant=acme").await, of("tenant=ac").await), (vec![status], vec![]));
}

#[tokio::test]
async fn a_client_that_left_has_a_receipt_too() {
    let fleet = fleet(&[], |_| {}).await;
    for server in &fleet.servers {
        server.faults(&json!({"hang": true})).await;
    }
    let body = probe().to_string();
    let head = format!("POST {INFER} HTTP/1.1\r\nhost: h\r\nx-tenant: acme\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut client = tokio::net::TcpStream::connect(fleet.gateway.data.addr()).await.unwrap();
    client.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    eventually("the request to be at a replica", PATIENCE, async || {
        let mut held = 0;
        for server in &fleet.servers {
            held += server.stats().await["requests"]["in_flight"].as_u64()?;
        }
        (held == 1).then_some(())
    })
    .await;
    drop(client);
    let told = eventually("the receipt", PATIENCE, async || {
        let page = fleet.gateway.admin_get("/v1/receipts?tenant=acme&limit=1").await;
        page["receipts"].as_array()?.first().cloned()
    })
    .await;
    assert_has(&told, &json!({"status": 499, "bytes_out": 0}));
    assert_eq!(told["attempts"][0]["ended"], "the request ended first", "{told:#}");
    assert_eq!(stages(&told), ["accepted", "resolved", "body_read", "sent", "ended"]);
}

#[tokio::test]
async fn only_the_last_are_kept_and_probes_are_none() {
    let fleet = fleet(&[], |config| {
        config["receipts"] = json!({"keep": 5});
        config["workers"] = json!(1);
    })
    .await;
    let mut answers = Vec::new();
    for _ in 0..8 {
        answers.push(fleet.infer("acme").await.expect(200));
        let _ = fleet.gateway.data.get("/livez", &[]).await.expect(200);
    }
    receipt(&fleet, answers.last().unwrap()).await;
    let kept = fleet.gateway.admin_get("/v1/receipts").await;
    let kept: Vec<_> =
        kept["receipts"].as_array().unwrap().iter().map(|r| r["request_id"].as_str().unwrap().to_owned()).collect();
    let last: Vec<_> = answers.iter().rev().take(5).map(|a| a.header("x-holdfast-request-id").to_owned()).collect();
    assert_eq!(kept, last);
    let gone = answers[0].header("x-holdfast-request-id");
    let told = fleet.gateway.admin.get(&format!("/v1/receipts/{gone}"), &[]).await.expect(404);
    assert_eq!(told.header("content-type"), "application/problem+json");
    let output = fleet.gateway.cli(&["receipt", gone]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no receipt"), "{output:?}");
}

#[tokio::test]
async fn what_is_kept_on_disk_is_found_after_a_restart() {
    let mut fleet = fleet(&[], |config| config["receipts"] = json!({"keep": 10, "disk": {"max_size": "2MiB"}})).await;
    let answer = fleet.infer("acme").await.expect(200);
    let refused = fleet.gateway.infer("nobody", INFER, &probe()).await;
    let told = receipt(&fleet, &answer).await;
    let told_refused = receipt(&fleet, &refused).await;
    // So many others that the ring has neither any more.
    for _ in 0..40 {
        let _ = fleet.infer("acme").await.expect(200);
    }
    let kept = receipt(&fleet, &answer).await;
    assert_has(
        &kept,
        &json!({"tenant": "acme", "version": "1", "status": 200, "subset": told["subset"], "stages": told["stages"]}),
    );
    // In order, and then killed: what was written is there.
    fleet.gateway.proc.sigterm();
    assert!(fleet.gateway.proc.wait_exit(PATIENCE).await.success());
    fleet.gateway.restart().await;
    fleet.gateway.proc.kill9();
    fleet.gateway.restart().await;
    for (answer, told) in [(&answer, &told), (&refused, &told_refused)] {
        let id = answer.header("x-holdfast-request-id");
        let mut found = fleet.gateway.cli_json(&["receipt", id]).await;
        found["time"] = told["time"].clone();
        assert_eq!(found, *told);
    }
    let lost = fleet.gateway.metrics().await.value("holdfast_receipts_lost_total", &[]);
    assert_eq!(lost, Some(0.0));
    let unknown = fleet.gateway.admin.get("/v1/receipts/nobody-has-this", &[]).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn a_disk_that_takes_no_receipts_costs_no_request() {
    let fleet = fleet(&[], |config| config["receipts"] = json!({"disk": {}})).await;
    let _ = fleet.infer("acme").await.expect(200);
    // As a full disk: no file of this process may grow.
    fleet.gateway.proc.limit_files(Some(0));
    let lost = async || fleet.gateway.metrics().await.value("holdfast_receipts_lost_total", &[]).unwrap_or_default();
    eventually("receipts to be lost, and counted", PATIENCE, async || {
        let answer = fleet.infer("acme").await;
        assert_eq!(answer.status, 200);
        (lost().await > 0.0).then_some(())
    })
    .await;
    fleet.gateway.proc.limit_files(None);
    let (folder, mut asked) = (fleet.gateway.state_path().join("receipts"), Vec::new());
    eventually("receipts to be written again", PATIENCE, async || {
        let answer = fleet.infer("acme").await.expect(200);
        asked.push(answer.header("x-holdfast-request-id").to_owned());
        let files =
            std::fs::read_dir(&folder).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        let written: String = files.collect();
        asked.iter().any(|id| written.contains(id)).then_some(())
    })
    .await;
}
