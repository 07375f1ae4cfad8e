//! The audit log of a running gateway: every answer is found by its id, over kills and restarts; what is tampered with is found; what is lost is counted
//! and told, and costs no request.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fleet;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use fleet::{Fleet, INFER, PATIENCE, binary, probe};
use holdfast_testkit::http::Answer;
use holdfast_testkit::{Holdfast, TempDir, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn fleet(shape: impl FnOnce(&mut Value)) -> Fleet {
    let tenants = json!([{"name": "acme", "subset": 2, "pins": {"screen": "1"}, "allow": {"screen": ["2"]}}]);
    let fleet = Fleet::start((2, &["--load-all", "--memory", "1TiB"]), 2, tenants, shape).await;
    fleet.wait_held("1", 2).await;
    fleet
}

fn folder(gateway: &Holdfast) -> PathBuf {
    gateway.state_path().join("audit")
}

fn id(answer: &Answer) -> String {
    answer.header("x-holdfast-request-id").to_owned()
}

/// The record of a request, once it is in the log.
async fn record(gateway: &Holdfast, id: &str) -> Value {
    let config = gateway.config_path();
    eventually("the record", PATIENCE, async || {
        let found = gateway.cli_json(&["audit", "find", "--request-id", id, "--config", config.to_str()?]).await;
        found["records"].as_array()?.first().cloned()
    })
    .await
}

async fn verify(gateway: &Holdfast, folder: &Path) -> (Output, Value) {
    let output = gateway.cli(&["audit", "verify", "--output", "json", "--folder", folder.to_str().unwrap()]).await;
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (output, report)
}

async fn verified(gateway: &Holdfast) -> Value {
    let (output, report) = verify(gateway, &folder(gateway)).await;
    assert_eq!((output.status.code(), &report["whole"]), (Some(0), &json!(true)), "{report}");
    report
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    all.sort();
    all
}

fn hex(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

#[tokio::test]
async fn an_answer_is_found_by_its_id_with_digests_and_without_a_payload() {
    let fleet = fleet(|_| {}).await;
    let gateway = &fleet.gateway;
    let body = probe().to_string();
    let answer = fleet.infer("acme").await.expect(200);
    let told = record(gateway, &id(&answer)).await;
    let expected = json!({
        "kind": "answer", "tenant": "acme", "model": "screen", "version": "1", "reason": "pin", "status": 200,
        "bytes_in": body.len(), "bytes_out": answer.body.len(), "input": hex(body.as_bytes()),
        "verdict": hex(&answer.body), "whole": true, "replica": answer.header("x-holdfast-replica"),
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&told[key], value, "{key}: {told}");
    }
    assert_eq!(told["revision"].to_string(), answer.header("x-holdfast-revision"));
    let explicit = gateway.infer("acme", "/v2/models/screen/versions/2/infer", &probe()).await.expect(200);
    assert_eq!(record(gateway, &id(&explicit)).await["version"], "2");
    // A model server's own refusal is an answer of that version, too. What the gateway refuses by itself is none.
    let refused = gateway.infer("acme", INFER, &json!({"inputs": "none"})).await;
    assert!((400..500).contains(&refused.status.as_u16()) && refused.header("x-holdfast-error").is_empty());
    assert_eq!(record(gateway, &id(&refused)).await["status"], refused.status.as_u16());
    let _ = gateway.infer("nobody", INFER, &probe()).await.expect(403);
    let folder = folder(gateway);
    let by = async |more: &[&str]| {
        let mut args = vec!["audit", "find", "--folder", folder.to_str().unwrap()];
        args.extend(more);
        gateway.cli_json(&args).await["records"].as_array().unwrap().len()
    };
    assert_eq!((by(&[]).await, by(&["--version", "2"]).await, by(&["--tenant", "nobody"]).await), (3, 1, 0));
    assert_eq!(
        (by(&["--until", "2020-01-01"]).await, by(&["--since", "2020-01-01", "--model", "screen"]).await),
        (0, 3)
    );
    let text: String = files(&folder).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let answer_text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(!text.contains("inputs") && !text.contains("outputs") && !text.contains(&answer_text[..40]), "{text}");
    assert_eq!(verified(gateway).await["answers"], 3);
    let wrong = gateway.cli(&["audit", "find", "--since", "yesterday"]).await;
    assert_eq!(wrong.status.code(), Some(2));
    let none = gateway.cli(&["audit", "verify", "--folder", "/nowhere"]).await;
    assert_eq!(none.status.code(), Some(2), "{none:?}");
}

#[tokio::test]
async fn a_body_that_streams_through_has_its_digest_too() {
    let fleet = fleet(|config| config["limits"] = json!({"buffer": "1KiB", "answer_head": "1KiB"})).await;
    let texts: Vec<String> = (0..2_000).map(|n| format!("a text of some length, number {n}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let body = fleet::texts(&texts);
    let answer = fleet.gateway.infer("acme", INFER, &body).await.expect(200);
    assert!(answer.body.len() > 8_192, "{}", answer.body.len());
    let told = record(&fleet.gateway, &id(&answer)).await;
    let body = body.to_string();
    assert_eq!(told["input"], hex(body.as_bytes()), "{told}");
    assert_eq!((&told["verdict"], &told["whole"]), (&json!(hex(&answer.body)), &json!(true)));
    assert_eq!((&told["bytes_in"], &told["bytes_out"]), (&json!(body.len()), &json!(answer.body.len())));
}

#[tokio::test]
async fn a_kill_leaves_a_whole_chain_and_a_word_about_what_may_be_missing() {
    let mut fleet = fleet(|config| config["audit"] = json!({"max_file_size": "4KiB"})).await;
    let mut ids = Vec::new();
    for round in 0..3 {
        for _ in 0..15 {
            ids.push(id(&fleet.infer("acme").await.expect(200)));
        }
        record(&fleet.gateway, ids.last().unwrap()).await;
        // As a crash in the middle of a line leaves it.
        if round == 1 {
            fleet.gateway.proc.kill9();
            let last = files(&folder(&fleet.gateway)).pop().unwrap();
            let text = fs::read_to_string(&last).unwrap();
            let line = text.lines().last().unwrap();
            fs::write(&last, format!("{text}{}", &line[..line.len() / 2])).unwrap();
        }
        fleet.gateway.restart().await;
        fleet.wait_held("1", 2).await;
    }
    let report = eventually("the last start to be in the log", PATIENCE, async || {
        let report = verified(&fleet.gateway).await;
        (report["gaps_total"] == 3).then_some(report)
    })
    .await;
    assert_eq!(report["answers"], ids.len(), "{report}");
    let gaps = report["gaps"].as_array().unwrap();
    assert!(gaps.iter().all(|gap| gap["why"] == "unclean_stop"), "{report}");
    assert!(gaps[1]["torn_bytes"].as_u64() > Some(100) && gaps[0]["torn_bytes"] == 0, "{report}");
    assert!(files(&folder(&fleet.gateway)).len() > 3);
    for id in &ids {
        record(&fleet.gateway, id).await;
    }
}

#[tokio::test]
async fn an_orderly_stop_leaves_nothing_out() {
    let mut fleet = fleet(|_| {}).await;
    let mut ids = Vec::new();
    for _ in 0..50 {
        ids.push(id(&fleet.infer("acme").await.expect(200)));
    }
    fleet.gateway.proc.sigterm();
    assert!(fleet.gateway.proc.wait_exit(PATIENCE).await.success());
    let report = verified(&fleet.gateway).await;
    assert_eq!((&report["answers"], &report["gaps_total"]), (&json!(50), &json!(0)), "{report}");
    fleet.gateway.restart().await;
    record(&fleet.gateway, &ids[49]).await;
    assert_eq!(verified(&fleet.gateway).await["gaps_total"], 0);
}

#[tokio::test]
async fn what_is_tampered_with_is_found() {
    let fleet = fleet(|config| config["audit"] = json!({"max_file_size": "4KiB"})).await;
    let mut last = String::new();
    for _ in 0..40 {
        last = id(&fleet.infer("acme").await.expect(200));
    }
    record(&fleet.gateway, &last).await;
    let (gateway, original) = (&fleet.gateway, folder(&fleet.gateway));
    let all = files(&original);
    assert!(all.len() >= 3, "{all:?}");
    let name = all[1].file_name().unwrap().to_str().unwrap().to_owned();
    let tampered = async |change: &dyn Fn(&Path)| {
        let copy = TempDir::new();
        for entry in fs::read_dir(&original).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, copy.join(path.file_name().unwrap().to_str().unwrap())).unwrap();
        }
        assert_eq!(verify(gateway, copy.path()).await.0.status.code(), Some(0));
        change(copy.path());
        let (output, report) = verify(gateway, copy.path()).await;
        assert_eq!((output.status.code(), &report["whole"]), (Some(1), &json!(false)), "{report}");
        report["breaks"][0].clone()
    };
    let found = tampered(&|at| {
        let text = fs::read_to_string(at.join(&name)).unwrap();
        fs::write(at.join(&name), text.replacen("\"version\":\"1\"", "\"version\":\"2\"", 1)).unwrap();
    })
    .await;
    assert_eq!((&found["file"], &found["line"]), (&json!(name), &json!(1)), "{found}");
    let found = tampered(&|at| {
        let text = fs::read_to_string(at.join(&name)).unwrap();
        let kept: String =
            text.split_inclusive('\n').enumerate().filter(|(n, _)| *n != 2).map(|(_, line)| line).collect();
        fs::write(at.join(&name), kept).unwrap();
    })
    .await;
    assert_eq!((&found["file"], &found["line"]), (&json!(name), &json!(3)), "{found}");
    tampered(&|at| fs::remove_file(at.join(&name)).unwrap()).await;
    tampered(&|at| fs::remove_file(at.join(all[0].file_name().unwrap())).unwrap()).await;
    let found = tampered(&|at| fs::remove_file(at.join(all.last().unwrap().file_name().unwrap())).unwrap()).await;
    assert_eq!(found["file"], "head", "{found}");
}

#[tokio::test]
async fn retention_removes_whole_files_and_the_rest_is_whole() {
    let fleet = fleet(|config| config["audit"] = json!({"max_file_size": "4KiB", "max_total_size": "12KiB"})).await;
    let mut last = String::new();
    for _ in 0..80 {
        last = id(&fleet.infer("acme").await.expect(200));
    }
    record(&fleet.gateway, &last).await;
    let report = verified(&fleet.gateway).await;
    assert!(report["first"].as_u64() > Some(10) && report["answers"].as_u64() < Some(60), "{report}");
    assert_eq!(report["removed"][0]["why"], "size");
}

#[tokio::test]
async fn a_disk_that_takes_nothing_costs_counted_records_and_no_request() {
    let repository = fleet::samples(holdfast_model_server::Layout::Names, 1);
    let server = fleet::server(&repository, &["--load-all", "--memory", "1TiB"]).await;
    let place = TempDir::new();
    let at = place.join("audit");
    // Where the folder should be there is a file: what a folder that may not be written is to everybody, root included.
    fs::write(&at, b"").unwrap();
    let mut config = fleet::config(&[server.url()], 1, json!([{"name": "acme", "pins": {"screen": "1"}}]));
    config["audit"] = json!({"folder": at.to_str().unwrap()});
    let gateway = Holdfast::start(binary(), &fleet::text(&config)).await;
    fleet::wait_held(&gateway, "1", 1).await;
    for _ in 0..20 {
        let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
    }
    eventually("the loss to be counted", PATIENCE, async || {
        let lost = gateway.metrics().await.sum("holdfast_audit_lost_total", &[("reason", "write_failed")]);
        (lost == 20.0).then_some(())
    })
    .await;
    fs::remove_file(&at).unwrap();
    let answer = gateway.infer("acme", INFER, &probe()).await.expect(200);
    eventually("the log to recover", PATIENCE, async || (!files_or_none(&at).is_empty()).then_some(())).await;
    let report = eventually("the record", PATIENCE, async || {
        let (_, report) = verify(&gateway, &at).await;
        (report["answers"] == 1).then_some(report)
    })
    .await;
    assert_eq!((&report["whole"], &report["gaps"][0]["count"]), (&json!(true), &json!(20)), "{report}");
    let args = ["audit", "find", "--request-id", &id(&answer), "--folder", at.to_str().unwrap()];
    assert_eq!(gateway.cli_json(&args).await["gaps"][0]["why"], "write_failed");
}

fn files_or_none(folder: &Path) -> Vec<PathBuf> {
    if folder.is_dir() { files(folder) } else { Vec::new() }
}

/// A limit on the size of files is a full disk: writes fail in the middle of a piece.
#[tokio::test]
async fn a_disk_that_fills_up_loses_whole_records_and_says_how_many() {
    let repository = fleet::samples(holdfast_model_server::Layout::Names, 1);
    let server = fleet::server(&repository, &["--load-all", "--memory", "1TiB"]).await;
    let place = TempDir::new();
    let program = place.join("holdfast");
    // The limit's signal would end the process, which a full disk does not.
    fs::write(&program, format!("#!/bin/sh\ntrap '' XFSZ\nexec {} \"$@\"\n", binary().display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let config = fleet::config(&[server.url()], 1, json!([{"name": "acme", "pins": {"screen": "1"}}]));
    let gateway = Holdfast::start(&program, &fleet::text(&config)).await;
    fleet::wait_held(&gateway, "1", 1).await;
    let limit = |bytes: &str| {
        let mut command = std::process::Command::new("prlimit");
        let done = command.args(["--pid", &gateway.proc.pid().to_string(), &format!("--fsize={bytes}")]).status();
        assert!(done.expect("prlimit of util-linux").success());
    };
    let first = id(&gateway.infer("acme", INFER, &probe()).await.expect(200));
    record(&gateway, &first).await;
    let size = fs::metadata(&files(&folder(&gateway))[0]).unwrap().len();
    limit(&format!("{}:unlimited", size + 300));
    for _ in 0..59 {
        let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
    }
    let lost = eventually("the loss to be counted", PATIENCE, async || {
        let metrics = gateway.metrics().await;
        let lost = metrics.sum("holdfast_audit_lost_total", &[]);
        let all = lost + metrics.sum("holdfast_audit_records_total", &[]);
        (lost == 59.0 && all == 60.0).then_some(lost)
    })
    .await;
    verified(&gateway).await;
    limit("unlimited:unlimited");
    let next = id(&gateway.infer("acme", INFER, &probe()).await.expect(200));
    record(&gateway, &next).await;
    let report = verified(&gateway).await;
    let gap = &report["gaps"][0];
    assert_eq!((gap["why"].as_str(), gap["count"].as_f64()), (Some("write_failed"), Some(lost)), "{report}");
    assert_eq!(report["answers"].as_f64(), Some(61.0 - lost), "{report}");
}

#[tokio::test]
async fn off_means_no_file_at_all() {
    let fleet = fleet(|config| config["audit"] = json!({"enabled": false})).await;
    let _ = fleet.infer("acme").await.expect(200);
    assert!(!folder(&fleet.gateway).exists());
}

#[tokio::test]
async fn an_answer_whose_client_left_is_recorded_as_cut() {
    let fleet = fleet(|_| {}).await;
    for server in &fleet.servers {
        server.faults(&json!({"stream_chunks": {"bytes": 100, "every": "5s"}})).await;
    }
    let body = probe().to_string();
    let head = format!("POST {INFER} HTTP/1.1\r\nhost: h\r\nx-tenant: acme\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut client = tokio::net::TcpStream::connect(fleet.gateway.data.addr()).await.unwrap();
    client.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut begun = [0; 15];
    client.read_exact(&mut begun).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200 OK");
    drop(client);
    let folder = folder(&fleet.gateway);
    let told = eventually("the record", PATIENCE, async || {
        let found = fleet.gateway.cli_json(&["audit", "find", "--folder", folder.to_str()?]).await;
        found["records"].as_array()?.first().cloned()
    })
    .await;
    assert_eq!(told["whole"], false, "{told}");
}
