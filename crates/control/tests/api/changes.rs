//! Changes of single resources: conditions, races, dry runs, and what an answer says.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;

use crate::support::{Bench, STATE};

#[tokio::test]
async fn a_changed_pin_waits_and_everything_else_is_in_force_at_once() {
    let bench = Bench::new().await;
    let body = r#"{"version":"2","reason":"better","options":{"canary":[{"percent":10,"wait_ms":1000}]}}"#;
    let told = bench.ask("PUT /v1/pins/acme/screen", &[], body).await;
    assert_eq!((told.status.as_u16(), told.header("etag")), (200, "\"2\""), "{}", told.text);
    assert_eq!(told.json["revision"], 2);
    assert_eq!(told.json["pending"], json!([{ "tenant": "acme", "model": "screen", "to": "2" }]));
    let change = json!({ "kind": "pin", "name": "acme/screen", "before": "1", "after": "2" });
    assert_eq!((&told.json["changes"], &told.json["changes_total"]), (&json!([change]), &json!(1)));
    let shown = bench.get("/v1/pins/acme/screen").await;
    let expected = json!({
        "name": "acme/screen", "tenant": "acme", "model": "screen", "version": "2", "revision": 2, "in_force": "1",
        "in_force_revision": 1,
    });
    assert_eq!(shown, expected);
    assert_eq!(bench.get("/v1/pins/acme/screen?space=in_force").await["version"], "1");
    assert_eq!(bench.get("/v1/pins/acme/screen?at=1").await["version"], "1");
    let pending = bench.get("/v1/pins?pending=true").await;
    assert_eq!(pending["items"][0]["waits"], "the queue is long");
    assert_eq!((&pending["items"][0]["name"], &pending["items"][1]), (&json!("acme/screen"), &json!(null)));
    // What a GET shows may be sent back, also with what only a GET knows.
    let again = bench.ask("PUT /v1/pins/acme/screen", &[], &shown.to_string()).await;
    assert_eq!((&again.json["revision"], again.header("etag")), (&json!(null), "\"2\""), "{}", again.text);

    let made = bench.ask("PUT /v1/tenants/zeta", &[], r#"{"spec":{"subset":1}}"#).await;
    assert_eq!((made.status.as_u16(), made.header("location")), (201, "/v1/tenants/zeta"), "{}", made.text);
    assert_eq!(bench.get("/v1/tenants/zeta?space=in_force").await["spec"], json!({ "subset": 1 }));
    let first = bench.ask("PUT /v1/pins/zeta/screen", &[], r#"{"version":"3"}"#).await;
    assert_eq!((first.status.as_u16(), &first.json["pending"]), (201, &json!([])), "a first pin waits for nothing");
    let gone = bench.ask("DELETE /v1/tenants/zeta?reason=left", &[], "").await;
    assert_eq!((gone.status.as_u16(), &gone.json["changes_total"]), (200, &json!(2)), "its pin with it: {}", gone.text);
    let history = bench.get("/v1/revisions?limit=1").await;
    assert_eq!((&history["items"][0]["reason"], &history["items"][0]["author"]), (&json!("left"), &json!("ann")));
}

#[tokio::test]
async fn every_kind_can_be_made_changed_and_taken_away() {
    let bench = Bench::new().await;
    let replica = r#"{"spec":{"url":"http://127.0.0.1:9009","memory":"24GiB"}}"#;
    for (path, body, status) in [
        ("pools/side", r#"{"spec":{"protocol":"open-inference","residency":"repository"}}"#, 422),
        ("replicas/main/r3", replica, 201),
        ("replicas/main/r3", &replica.replace("24GiB", "48GiB"), 200),
        ("models/rank", r#"{"spec":{"pool":"main","idempotent":true}}"#, 200),
        ("versions/rank/2", r#"{"spec":{"size":"2GiB"}}"#, 201),
        ("tenants/acme", r#"{"spec":{"subset":1}}"#, 200),
        ("pins/globex/rank", r#"{"version":"2"}"#, 201),
    ] {
        let told = bench.ask(&format!("PUT /v1/{path}"), &[], body).await;
        assert_eq!(told.status, status, "{path}: {}", told.text);
    }
    for path in ["pins/globex/rank", "versions/rank/2", "replicas/main/r3"] {
        let told = bench.ask(&format!("DELETE /v1/{path}"), &[], "").await;
        assert_eq!(told.status, 200, "{path}: {}", told.text);
        assert_eq!(bench.ask(&format!("GET /v1/{path}"), &[], "").await.refused(), (404, "not_found"), "{path}");
    }
    let version = bench.get("/v1/versions/screen/1").await;
    assert_eq!(
        version,
        json!({ "name": "screen/1", "model": "screen", "version": "1", "revision": 1, "spec": { "size": "1GiB" } })
    );
    let listed = bench.get("/v1/replicas/main").await;
    let names: Vec<_> = listed["items"].as_array().unwrap().iter().map(|r| r["replica"].as_str().unwrap()).collect();
    assert_eq!(names, ["r1", "r2"]);
}

#[tokio::test]
async fn a_version_has_the_member_of_its_path_once() {
    let bench = Bench::new().await;
    let shown = bench.get("/v1/versions/screen/1").await;
    let told = bench.ask("PUT /v1/versions/screen/1", &[], &shown.to_string()).await;
    assert_eq!((told.status.as_u16(), &told.json["revision"]), (200, &json!(null)), "{}", told.text);
}

#[tokio::test]
async fn a_dry_run_says_the_same_and_writes_nothing() {
    for (what, headers, body) in [
        ("PUT /v1/pins/acme/screen", vec![], r#"{"version":"2"}"#.to_owned()),
        ("DELETE /v1/pins/acme/screen", vec![], String::new()),
        ("POST /v1/apply", vec![("content-type", "application/yaml")], STATE.replace("screen: \"1\"", "screen: \"3\"")),
    ] {
        let bench = Bench::new().await;
        let dry = bench.ask(&format!("{what}?dry_run=true"), &headers, &body).await;
        assert_eq!((dry.status.as_u16(), &dry.json["revision"]), (200, &json!(null)), "{what}: {}", dry.text);
        assert_eq!(dry.json["changes"][0]["name"], "acme/screen", "{what}: {}", dry.text);
        assert_eq!(bench.desk.truth().head.revision.0, 1, "{what}");
        let wet = bench.ask(what, &headers, &body).await;
        assert_eq!(wet.json["changes"], dry.json["changes"], "{what}");
        assert_eq!(wet.json["pending"], dry.json["pending"], "{what}");
    }
}

#[tokio::test]
async fn a_get_that_knows_the_revision_is_told_so() {
    let bench = Bench::new().await;
    let first = bench.ask("GET /v1/tenants/acme", &[], "").await;
    assert_eq!(first.header("etag"), "\"1\"");
    for (tag, status) in [("\"1\"", 304), ("W/\"1\"", 304), ("*", 304), ("\"2\"", 200), ("\"7\", \"1\"", 304)] {
        let again = bench.ask("GET /v1/tenants/acme", &[("if-none-match", tag)], "").await;
        assert_eq!(again.status, status, "{tag}");
        assert_eq!((again.text.is_empty(), again.header("etag")), (status == 304, "\"1\""), "{tag}");
    }
    let head = bench.ask("HEAD /v1/tenants/acme", &[], "").await;
    assert_eq!((head.status.as_u16(), head.header("etag")), (200, "\"1\""));
}

/// Of many that saw the same revision one wins, whatever others do to other resources meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_those_who_saw_the_same_revision_one_wins() {
    let bench = Arc::new(Bench::new().await);
    let noise = tokio::spawn({
        let bench = bench.clone();
        async move {
            for n in 0..40 {
                let body = format!(r#"{{"spec":{{"subset":{}}}}}"#, 1 + n % 2);
                let told = bench.ask("PUT /v1/tenants/globex", &[], &body).await;
                assert_eq!(told.status, 200, "{}", told.text);
            }
        }
    });
    for round in 0..5 {
        let (_, seen) = bench.pin("acme/screen").await;
        let tag = format!("\"{seen}\"");
        let writers = (0..4).map(|n| {
            let (bench, tag) = (bench.clone(), tag.clone());
            tokio::spawn(async move {
                let version = 1 + (n + round) % 3;
                let body = format!(r#"{{"version":"{version}","reason":"{n}"}}"#);
                (bench.ask("PUT /v1/pins/acme/screen", &[("if-match", &tag)], &body).await, version)
            })
        });
        let mut outcomes: BTreeMap<u16, usize> = BTreeMap::new();
        for writer in writers.collect::<Vec<_>>() {
            let (told, version) = writer.await.unwrap();
            // Who asks for what is there already changes nothing, and may be let through beside the one who does.
            if told.json["revision"].is_null() && told.status == 200 {
                continue;
            }
            assert!(matches!(told.status.as_u16(), 200 | 412), "{version}: {}", told.text);
            *outcomes.entry(told.status.as_u16()).or_insert(0) += 1;
        }
        assert_eq!(outcomes.get(&200), Some(&1), "round {round}: {outcomes:?}");
    }
    noise.await.unwrap();
}

#[tokio::test]
async fn a_whole_state_is_applied_against_what_its_author_saw() {
    let bench = Bench::new().await;
    let yaml = ("content-type", "application/yaml");
    let text = format!("listen: {{ data: \"127.0.0.1:7400\" }}\n{}", STATE.replace("screen: \"2\"", "screen: \"3\""));
    let stale = bench.ask("POST /v1/apply", &[yaml, ("if-match", "\"0\"")], &text).await;
    assert_eq!(stale.refused(), (412, "precondition_failed"), "{}", stale.text);
    assert_eq!((&stale.json["current"], &stale.json["seen"]), (&json!(1), &json!(0)));
    let done = bench.ask("POST /v1/apply?reason=all", &[yaml, ("if-match", "\"1\"")], &text).await;
    assert_eq!((done.status.as_u16(), &done.json["ignored"]), (200, &json!(["listen"])), "{}", done.text);
    assert_eq!(done.json["pending"], json!([{ "tenant": "globex", "model": "screen", "to": "3" }]));
    let without =
        bench.ask("POST /v1/apply?dry_run=true", &[yaml], &text[..text.find("  - { name: globex").unwrap()]).await;
    let gone: Vec<_> = without.json["changes"].as_array().unwrap().iter().filter(|c| c["after"].is_null()).collect();
    assert_eq!(gone.len(), 2, "what is not named goes: {}", without.text);
}
