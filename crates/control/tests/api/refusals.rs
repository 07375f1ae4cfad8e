//! What is refused, with which status and which code; and who may do what.

use holdfast_config::Truth as Owner;
use holdfast_control::api::{Role, document};
use holdfast_decide::rollout::{Artifact, Command, Phase, Refusal, Stage};
use holdfast_types::{ModelName, PoolName, Version};

use crate::support::{Bench, STATE};

const JSON: (&str, &str) = ("content-type", "application/json");

/// The request, its headers and body; status, code and some words of the answer.
type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str, u16, &'a str, &'a str);

#[tokio::test]
async fn each_bad_request_is_told_what_is_wrong() {
    let bench = Bench::new().await;
    bench.fleet.put(1, Phase::PreWarm, Stage::Warming);
    let (good, pin) = (r#"{"version":"2"}"#, "PUT /v1/pins/acme/screen");
    let long = format!(r#"{{"version":"2","reason":"{}"}}"#, "x".repeat(1025));
    let huge = format!(r#"{{"version":"2","reason":"{}"}}"#, "x".repeat(140_000));
    let cases: &[Case<'_>] = &[
        // Paths and queries.
        ("GET /v1/tenants/none", &[], "", 404, "not_found", "there is no tenant none"),
        ("GET /v1/tenants/a%zz", &[], "", 400, "bad_request", "percent-encoded"),
        ("GET /v1/tenants/a%2Fb", &[], "", 400, "bad_request", "the name of the tenant has the character '/'"),
        ("GET /v1/tenants/%C3%A4", &[], "", 400, "bad_request", "ASCII"),
        ("GET /v1/pins/acme/none", &[], "", 404, "not_found", "there is no pin acme/none"),
        ("GET /v1/versions/screen/latest", &[], "", 400, "bad_request", "latest"),
        ("GET /v1/tenants?limit=0", &[], "", 400, "bad_request", "limit is \"0\""),
        ("GET /v1/tenants?limit=1001", &[], "", 400, "bad_request", "at most 1000"),
        ("GET /v1/tenants?limit=+5", &[], "", 400, "bad_request", "whole number"),
        ("GET /v1/tenants?limit=5&limit=6", &[], "", 400, "bad_request", "twice"),
        ("GET /v1/tenants?sort=name", &[], "", 400, "bad_request", "known: limit, after, at, space"),
        ("GET /v1/tenants?space=served", &[], "", 400, "bad_request", "desired or in_force"),
        ("GET /v1/tenants?after=a/b", &[], "", 400, "bad_request", "after"),
        ("GET /v1/tenants?at=99", &[], "", 404, "not_found", "the oldest that is kept is 1, the newest"),
        ("GET /v1/pins?pending=true&at=1", &[], "", 400, "bad_request", "desired now"),
        ("GET /v1/revisions?after=9223372036854775808", &[], "", 400, "bad_request", "whole number"),
        ("GET /v1/rollouts?after=0", &[], "", 400, "bad_request", "whole number from 1"),
        ("GET /v1/revisions/9223372036854775808", &[], "", 400, "bad_request", "number of a revision"),
        ("GET /v1/revisions/x", &[], "", 400, "bad_request", "number of a revision"),
        ("GET /v1/revisions/99", &[], "", 404, "not_found", "revision 99"),
        ("GET /v1/revisions/1?after=pin", &[], "", 400, "bad_request", "what \"next\""),
        ("GET /v1/diff?from=1", &[], "", 400, "bad_request", "lacks to"),
        ("GET /v1/diff?from=1&to=99", &[], "", 404, "not_found", "revision 99"),
        ("GET /v1/rollouts/2", &[], "", 404, "not_found", "no such roll-out"),
        ("GET /v1/rollouts?pin=acme", &[], "", 400, "bad_request", "TENANT/MODEL"),
        // Methods and types.
        ("POST /v1/tenants", &[], "{}", 405, "method_not_allowed", "GET, HEAD"),
        ("PATCH /v1/tenants/acme", &[], "{}", 405, "method_not_allowed", "DELETE, GET, HEAD, PUT"),
        ("GET /v1/apply", &[], "", 405, "method_not_allowed", "POST"),
        ("GET /v1/tenants", &[("accept", "text/html")], "", 406, "not_acceptable", "application/json"),
        ("GET /v1/tenants", &[("accept", "application/json;q=0")], "", 406, "not_acceptable", "application/json"),
        ("GET /v1/rollouts/1/events", &[("accept", "application/json")], "", 406, "not_acceptable", "event-stream"),
        (pin, &[("content-type", "text/plain")], good, 415, "unsupported_media_type", "application/json"),
        (pin, &[("content-type", "")], good, 415, "unsupported_media_type", "application/json"),
        ("POST /v1/rollouts/1/abort", &[("content-type", "text/plain")], "{}", 415, "unsupported_media_type", "json"),
        // Bodies.
        (pin, &[JSON], "", 422, "invalid", "version: is missing"),
        (pin, &[], "{", 400, "bad_request", "no JSON"),
        (pin, &[], "[]", 422, "invalid", "not a JSON object"),
        (pin, &[], r#"{"version":"1","version":"2"}"#, 400, "bad_request", "twice"),
        (pin, &[], r#"{"version":2}"#, 422, "invalid", "version: is not text"),
        (pin, &[], r#"{"version":"latest"}"#, 422, "invalid", "version: is \"latest\""),
        (pin, &[], r#"{"version":"2","why":"so"}"#, 422, "invalid", "why: is not known here"),
        (pin, &[], r#"{"version":"2","tenant":"globex"}"#, 422, "invalid", "the path says \"acme\""),
        (pin, &[], r#"{"version":"2","options":{"canary":[{"percent":5}]}}"#, 422, "invalid", "wait_ms"),
        (pin, &[], r#"{"version":"2","options":{"kanary":[]}}"#, 422, "invalid", "kanary"),
        (pin, &[], r#"{"version":"9"}"#, 422, "invalid", "screen"),
        (pin, &[], &long, 422, "invalid", "reason"),
        (pin, &[], &huge, 413, "too_large", "131072"),
        ("PUT /v1/pins/nobody/screen", &[], good, 422, "invalid", "nobody"),
        ("PUT /v1/pins/glubex/screen", &[], good, 422, "invalid", "no tenant \"glubex\"; the nearest is \"globex\""),
        ("PUT /v1/tenants/acme", &[], r#"{"spec":{"subset":"many"}}"#, 422, "invalid", "subset"),
        ("PUT /v1/tenants/acme", &[], r#"{"spec":{"pins":{}}}"#, 422, "invalid", "pins"),
        ("PUT /v1/tenants/acme", &[], r#"{"spec":[]}"#, 422, "invalid", "spec: is not an object"),
        ("DELETE /v1/models/screen", &[], "", 422, "invalid", "screen"),
        ("DELETE /v1/pins/acme/none", &[], "", 404, "not_found", "no pin acme/none"),
        ("POST /v1/revert", &[], r#"{"to":"1"}"#, 422, "invalid", "to: is not a revision"),
        ("POST /v1/revert", &[], r#"{"to":99}"#, 404, "not_found", "99"),
        ("POST /v1/apply", &[], "{}", 422, "invalid", "names no pool"),
        ("POST /v1/apply", &[], r#"{"tenants":[{"name":"a","pins":{"x":"1"}}]}"#, 422, "invalid", "line 1"),
        ("POST /v1/apply?options=x", &[JSON], "{}", 400, "bad_request", "options"),
        ("POST /v1/rollouts/1/revert", &[], r#"{"confirmed":"yes"}"#, 422, "invalid", "confirmed"),
        ("POST /v1/rollouts/1/abort", &[], r#"{"confirmed":true}"#, 422, "invalid", "confirmed: is not known"),
        ("POST /v1/rollouts/2/abort", &[], "", 404, "not_found", "no such roll-out"),
        // Conditions.
        (pin, &[("if-match", "\"7\"")], good, 412, "precondition_failed", "is at revision 1"),
        (pin, &[("if-match", "7")], good, 400, "bad_request", "entity tags"),
        (pin, &[("if-none-match", "*")], good, 412, "precondition_failed", "is at revision 1"),
        (pin, &[("if-none-match", "\"1\"")], good, 400, "bad_request", "\"*\" only"),
        (pin, &[], r#"{"version":"2","revision":7}"#, 412, "precondition_failed", "is at revision 1"),
        ("PUT /v1/pins/globex/rank", &[("if-match", "*")], r#"{"version":"1"}"#, 412, "precondition_failed", "no pin"),
        ("DELETE /v1/pins/acme/none", &[("if-match", "*")], "", 412, "precondition_failed", "no pin"),
    ];
    for (what, headers, body, status, code, words) in cases {
        let told = bench.ask(what, headers, body).await;
        assert_eq!(told.refused(), (*status, *code), "{what} {headers:?} {body:.60}: {}", told.text);
        let detail = told.json["detail"].as_str().unwrap();
        assert!(detail.contains(words), "{what} {headers:?} {body:.60}: {detail:?} has no {words:?}");
        if *status == 405 {
            assert_eq!(told.header("allow"), *words, "{what}");
        }
        if *status == 422 {
            assert!(told.json["faults"][0]["reason"].is_string(), "{what}: {}", told.text);
        }
    }
    assert_eq!(bench.desk.truth().head.revision.0, 1, "what is refused changes nothing");
}

#[tokio::test]
async fn a_fault_of_a_text_has_its_line() {
    let bench = Bench::new().await;
    let text = STATE.replace("rank: \"1\"", "rnak: \"1\"");
    let told = bench.ask("POST /v1/apply", &[("content-type", "application/yaml")], &text).await;
    assert_eq!(told.refused(), (422, "invalid"));
    let fault = &told.json["faults"][0];
    assert_eq!((fault["line"].as_u64(), fault["path"].as_str()), (Some(13), Some("tenants[0].pins.rnak")), "{fault}");
    assert_eq!(fault["nearest"], "rank", "{fault}");
}

#[tokio::test]
async fn each_role_may_what_the_document_says_and_no_more() {
    let bench = Bench::new().await;
    let document = document();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let Some(role) = operation["x-role"].as_str().and_then(Role::parse) else { continue };
            let path = path.split('/').map(|p| if p.starts_with('{') { "1" } else { p }).collect::<Vec<_>>().join("/");
            let what = format!("{} {path}", method.to_uppercase());
            for has in Role::ALL {
                // No body says what it is, so that nothing is changed.
                let headers = [("content-type", "text/plain"), ("if-match", "\"99\""), ("accept", "image/png")];
                let told = bench.ask_as(has, &what, &headers, "").await;
                let may = told.refused() != (403, "forbidden");
                assert_eq!(may, has >= role, "{has:?} {what}: {}", told.text);
            }
        }
    }
    assert!(bench.ask_as(Role::Viewer, "PUT /v1/pins/acme/screen", &[], "{}").await.text.contains("operator"));
    let changed = bench.ask_as(Role::Operator, "PUT /v1/pins/acme/screen", &[], r#"{"version":"2"}"#).await;
    assert_eq!(changed.status, 200, "{}", changed.text);
}

#[tokio::test]
async fn where_the_file_is_the_truth_every_change_is_refused() {
    let bench = Bench::owned_by(Owner::File).await;
    for (what, body) in [
        ("PUT /v1/pins/acme/screen", r#"{"version":"2"}"#),
        ("DELETE /v1/tenants/acme", ""),
        ("POST /v1/revert", r#"{"to":1}"#),
    ] {
        let told = bench.ask(what, &[], body).await;
        assert_eq!(told.refused(), (409, "truth_is_file"), "{what}: {}", told.text);
    }
    let yaml = [("content-type", "application/yaml")];
    assert_eq!(bench.ask("POST /v1/apply", &yaml, STATE).await.refused(), (409, "truth_is_file"));
    assert_eq!(bench.get("/v1/pins/acme/screen").await["version"], "1");
}

#[tokio::test]
async fn a_roll_out_is_told_and_says_why_not() {
    let bench = Bench::new().await;
    bench.fleet.put(4, Phase::Canary, Stage::Canary);
    for (what, body, command) in [
        ("abort", "", Command::Abort),
        ("pause", "{}", Command::Pause),
        ("resume", "", Command::Resume),
        ("revert", "", Command::Revert { confirmed: false }),
        ("revert", r#"{"confirmed":true}"#, Command::Revert { confirmed: true }),
    ] {
        let told = bench.ask_as(Role::Operator, &format!("POST /v1/rollouts/4/{what}"), &[], body).await;
        assert_eq!((told.status.as_u16(), &told.json["phase"]), (200, &"canary".into()), "{what}: {}", told.text);
        assert_eq!(bench.fleet.commands.lock().unwrap().pop(), Some((4, command, "ann".to_owned())));
    }
    let artifact = Artifact {
        pool: PoolName::parse("main").unwrap(),
        model: ModelName::parse("screen").unwrap(),
        version: Version::parse("1").unwrap(),
    };
    for (refusal, name, words) in [
        (Refusal::Active, "active", "revert it"),
        (Refusal::Shared(10), "shared", "10 % of a pin's traffic"),
        (Refusal::Cold(vec![artifact]), "cold", "screen/1"),
        (Refusal::Busy, "busy", "ask again"),
    ] {
        *bench.fleet.refuses.lock().unwrap() = Some(refusal);
        let told = bench.ask("POST /v1/rollouts/4/abort", &[], "").await;
        assert_eq!(told.refused(), (409, "refused"));
        assert_eq!(told.json["refusal"], name);
        assert!(told.json["detail"].as_str().unwrap().contains(words), "{}", told.text);
    }
    for (what, refusal, words) in [
        ("pause", Refusal::Nothing, "it is paused already"),
        ("resume", Refusal::Nothing, "it is not paused"),
        ("resume", Refusal::Over, "it has ended: there is nothing to resume"),
    ] {
        *bench.fleet.refuses.lock().unwrap() = Some(refusal);
        let told = bench.ask(&format!("POST /v1/rollouts/4/{what}"), &[], "").await;
        assert_eq!((told.refused(), &told.json["detail"]), ((409, "refused"), &words.into()));
    }
}
