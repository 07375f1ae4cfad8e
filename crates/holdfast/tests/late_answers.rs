//! Answers that come late, over a connection that serves the next request by then: told apart by ids, tags and shapes, or told of.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fleet;

use std::time::Duration;

use bytes::Bytes;
use fleet::scripted::{ask, before, scripted};
use fleet::{INFER, PATIENCE, probe};
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Script, Step, Stub, eventually};
use http::Method;
use serde_json::json;

const JSON: (&str, &str) = ("content-type", "application/json");

/// A gateway before a stub with these scripts. Seldom polled, so that nothing is mended by chance.
async fn rig(scripts: Vec<Script>) -> (Stub, Holdfast) {
    let stub = scripted(scripts).await;
    let gateway = polling(&stub, "60s").await;
    (stub, gateway)
}

async fn polling(stub: &Stub, interval: &str) -> Holdfast {
    let health = json!({"interval": interval, "timeout": "1s", "fall": 1000, "ease_in": "0s"});
    before(stub, &["acme", "evil"], health).await
}

/// In the coding that HTTP calls deflate, as it is.
fn deflated(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    let block = [[0x78, 0x01, 0x01].as_slice(), &length.to_le_bytes(), &(!length).to_le_bytes(), bytes].concat();
    [block, (b << 16 | a).to_be_bytes().to_vec()].concat()
}

/// As a late answer to another question would be, on a connection that is used again too early.
#[tokio::test]
async fn what_has_not_the_shape_of_an_inferences_answer_is_none() {
    let metadata = json!({"name": "screen-1", "versions": ["1"], "platform": "x", "inputs": [], "outputs": []});
    let spaces = " ".repeat(600_000);
    let wrong = [
        "{}".to_owned(),
        metadata.to_string(),
        json!({"name": "screen-1", "ready": true}).to_string(),
        json!({"error": "out of luck"}).to_string(),
        json!({"model_name": "screen-1", "model_version": "1", "parameters": {"outputs": []}}).to_string(),
        // Passed on before it was known.
        format!(r#"{{"model_name":"screen-1","model_version":"1","parameters":[{spaces}]}}"#),
    ];
    let right = [
        r#"{"outputs":[]}"#.to_owned(),
        r#"{"OUTPUTS":[],"parameters":{"name":"x"}}"#.to_owned(),
        r#"{"name":"mine","model_name":"screen-1","outputs":[]}"#.to_owned(),
    ];
    let scripts = wrong.iter().chain(&right).map(|body| Script::with_headers(200, &[JSON], body.as_bytes()));
    let (stub, gateway) = rig(scripts.collect()).await;
    for number in 0..wrong.len() {
        let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
        match ask(&gateway, "evil", number).await {
            Ok(answer) => {
                let _ = answer.clone().expect(502);
                assert_eq!(answer.header("x-holdfast-error"), "upstream_error", "answer {number}: {answer:?}");
            }
            Err(cut) => assert!(number == wrong.len() - 1 && cut.starts_with("body:"), "answer {number}: {cut}"),
        }
        let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
        let asked: Vec<_> = stub.requests().into_iter().filter(|r| r.path.ends_with("/infer")).collect();
        let [.., refused, next] = &asked[..] else { panic!("two at least") };
        assert_ne!(refused.connection, next.connection, "answer {number}: the connection was used again");
    }
    for number in wrong.len()..wrong.len() + right.len() {
        let _ = ask(&gateway, "acme", number).await.unwrap().expect(200);
    }
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_wrong_version_total", &[]), 0.0, "it says nothing of the version");
}

/// A second answer that a server gives late, on a connection that serves the next request by then, is the answer of nobody who has sent an id.
#[tokio::test]
async fn an_answer_with_the_id_of_another_request_is_refused_and_its_connection_closed() {
    let answer = |id: &str| {
        let body = json!({"id": id, "model_name": "screen-1", "model_version": "1", "outputs": []});
        Script::json(200, &body)
    };
    let late = json!({"id": "first", "model_name": "screen-1", "model_version": "1", "outputs": [{"name": "secret"}]});
    let late = late.to_string();
    let length = late.len();
    let twice = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{late}");
    // The late answer is ahead of the own one, as it would be read on a connection that is used again too early.
    let given: Vec<String> = (3..19).map(|n| n.to_string()).collect();
    let scripts = [answer("mine"), Script::raw(twice), answer("made-up")];
    let (stub, gateway) = rig(scripts.into_iter().chain(given.iter().map(|id| answer(id))).collect()).await;
    let send = async |wants: &str, id: Option<&str>| {
        let mut body = probe();
        match id {
            Some(id) => body["id"] = id.into(),
            None => drop(body.as_object_mut().unwrap().remove("id")),
        }
        let fields = [("x-tenant", "acme"), ("x-wants", wants)];
        gateway.data.send(Method::POST, INFER, &fields, Bytes::from(body.to_string())).await.unwrap()
    };
    // Who has not given many ids back makes them up, for all that is known; nor does it help to send the same one again and again.
    let _ = send("2", Some("mine")).await.expect(200);
    for _ in 0..30 {
        let _ = send("0", Some("mine")).await.expect(200);
    }
    let _ = send("2", Some("mine")).await.expect(200);
    for id in &given {
        let _ = send(id, Some(id)).await.expect(200);
    }
    let refused = send("1", Some("second")).await.expect(502);
    assert_eq!(refused.header("x-holdfast-error"), "upstream_error", "{refused:?}");
    assert!(refused.json()["error"].as_str().unwrap().contains("id of another request"), "{refused:?}");
    assert!(!refused.text().contains("secret"), "{refused:?}");
    let closed = stub.requests().into_iter().find(|r| r.header("x-wants") == "1").unwrap().connection;
    let used_again = |closed| stub.requests().into_iter().rfind(|r| r.connection == closed).unwrap();
    assert_eq!(used_again(closed).header("x-wants"), "1", "the connection was used again");
    // Tensors behind the JSON of a request are none of it.
    let json = json!({"id": "second", "inputs": []}).to_string();
    let (length, body) = (json.len().to_string(), [json.as_bytes(), b"\x00\x01{\"id\":\"first\"}"].concat());
    let fields = [("x-tenant", "acme"), ("x-wants", "1"), ("inference-header-content-length", length.as_str())];
    let binary = gateway.data.send(Method::POST, INFER, &fields, Bytes::from(body)).await.unwrap();
    assert_eq!(binary.status, 502, "{binary:?}");
    // Nor does a coding hide what was asked.
    let fields = [("x-tenant", "acme"), ("x-wants", "1"), ("content-encoding", "deflate")];
    for (id, status) in [("second", 502), ("first", 200)] {
        let packed = deflated(json!({"id": id, "inputs": []}).to_string().as_bytes());
        let coded = gateway.data.send(Method::POST, INFER, &fields, Bytes::from(packed)).await.unwrap();
        assert_eq!(coded.status, status, "{id}: {coded:?}");
    }
    // Without an id a server may make one up.
    for (wants, id) in [("0", Some("mine")), ("2", None), ("1", Some("first"))] {
        let _ = send(wants, id).await.expect(200);
    }
    assert_eq!(used_again(closed).header("x-wants"), "1", "the connection was used again");
    let metrics = gateway.metrics().await;
    assert!(metrics.sum("holdfast_alarms_total", &[("kind", "anothers_answer")]) >= 1.0);
    assert_eq!(metrics.sum("holdfast_upstream_attempts_total", &[("outcome", "bad_answer")]), 3.0);
    assert_eq!(metrics.sum("holdfast_wrong_version_total", &[]), 0.0, "it takes the version from nobody");
}

/// A server that gives the gateway's own id back has each of its answers compared: refusals, those to requests without an id, and metadata.
#[tokio::test]
async fn an_answer_with_the_tag_of_another_request_is_refused_whatever_it_is() {
    let v2 = V2::loaded(&[("screen-1", "1")]);
    let stub = Stub::start(move |request| {
        let tag = match request.header("x-wants") {
            "another" | "another-400" => "f00f00f00",
            _ => request.header("x-holdfast-request-id"),
        };
        let fields = [JSON, ("x-holdfast-request-id", tag)];
        let answer =
            |status, body: &serde_json::Value| Script::with_headers(status, &fields, body.to_string().as_bytes());
        let judgement = json!({"model_name": "screen-1", "model_version": "1", "outputs": [{"name": "secret"}]});
        match (request.path.rsplit('/').next(), request.header("x-wants")) {
            (Some("infer"), "400" | "another-400") => answer(400, &json!({"error": "secret"})),
            (Some("infer"), _) => answer(200, &judgement),
            (Some("1" | "screen-1"), "another") => answer(200, &json!({"name": "screen-1", "platform": "secret"})),
            _ => v2.answer(request),
        }
    })
    .await;
    let gateway = polling(&stub, "60s").await;
    let ask = async |method: Method, path: &str, wants: &str| {
        let fields = [("x-tenant", "acme"), ("x-wants", wants)];
        let body = if method == Method::POST { "{\"inputs\":[]}" } else { "" };
        gateway.data.send(method, path, &fields, Bytes::from_static(body.as_bytes())).await.unwrap()
    };
    // Not before it is known that the server gives them back: another gateway before it would tell its own.
    for wants in ["another", "another-400"] {
        assert_ne!(ask(Method::POST, INFER, wants).await.status, 502);
    }
    for _ in 0..16 {
        let answer = ask(Method::POST, INFER, "").await.expect(200);
        assert_ne!(answer.header("x-holdfast-request-id"), "", "the client has it as ever");
    }
    let metadata = INFER.strip_suffix("/infer").unwrap();
    for (method, path, wants) in
        [(Method::POST, INFER, "another"), (Method::POST, INFER, "another-400"), (Method::GET, metadata, "another")]
    {
        let refused = ask(method, path, wants).await;
        assert_eq!((refused.status.as_u16(), refused.header("x-holdfast-error")), (502, "upstream_error"), "{wants}");
        assert!(!refused.text().contains("secret"), "{refused:?}");
    }
    let _ = ask(Method::POST, INFER, "400").await.expect(400);
    let metrics = gateway.metrics().await;
    assert!(metrics.sum("holdfast_alarms_total", &[("kind", "anothers_answer")]) >= 3.0);
}

/// Some servers say so before they close a connection on which nothing has come for long; a request may just have been sent over it.
#[tokio::test]
async fn that_a_server_has_waited_too_long_is_no_answer_to_a_request_over_a_kept_connection() {
    let bored = || Script::with_headers(408, &[JSON], br#"{"error":"no request"}"#);
    let (stub, gateway) = rig(vec![bored()]).await;
    let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
    let failed = ask(&gateway, "acme", 0).await.unwrap().expect(502);
    assert_eq!(failed.header("x-holdfast-error"), "upstream_error", "{failed:?}");
    // Over a new one it is what the server says of this request.
    let _ = ask(&gateway, "acme", 0).await.unwrap().expect(408);
    assert_eq!(stub.executions(), 3, "it may have been taken all the same: nothing is asked twice");
}

/// It cannot be taken back, where no id told what it was; but it is told of.
#[tokio::test]
async fn a_server_that_answers_more_often_than_it_is_asked_is_told_of() {
    let json = r#"{"model_name":"screen-1","model_version":"1","outputs":[]}"#;
    let answer =
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{json}", json.len());
    let later = |more: &str| Script::raw(answer.clone()).then(Step::Pause(Duration::from_millis(30))).then_send(more);
    let v2 = V2::loaded(&[("screen-1", "1")]);
    let scripts = [later("HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n"), later(&answer)];
    let stub = Stub::start(move |request| match request.header("x-wants").parse::<usize>() {
        Ok(number) => scripts[number].clone(),
        Err(_) => v2.answer(request),
    })
    .await;
    let gateway = polling(&stub, "1s").await;
    let strays = async || gateway.metrics().await.sum("holdfast_alarms_total", &[("kind", "stray_answer")]);
    // That it has waited long enough is no answer.
    let _ = ask(&gateway, "acme", 0).await.unwrap().expect(200);
    let first = stub.requests().into_iter().find(|r| r.header("x-wants") == "0").unwrap();
    eventually("its connection to be closed", PATIENCE, async || {
        let _ = gateway.infer("acme", INFER, &probe()).await;
        let last = stub.requests().into_iter().rfind(|r| r.path.ends_with("/infer")).unwrap();
        (last.connection != first.connection).then_some(())
    })
    .await;
    assert_eq!(strays().await, 0.0);
    let _ = ask(&gateway, "acme", 1).await.unwrap().expect(200);
    eventually("the alarm", PATIENCE, async || (strays().await >= 1.0).then_some(())).await;
}
