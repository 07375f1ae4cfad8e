//! Answers that readers would not agree on, and what they say of the replica: refused, without harm to those who asked for something else.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod fleet;

use std::time::{Duration, Instant};

use fleet::scripted::{ask, before, scripted};
use fleet::{INFER, PATIENCE, probe};
use holdfast_testkit::http::Answer;
use holdfast_testkit::{Holdfast, Script, Step, Stub, eventually};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const JSON: (&str, &str) = ("content-type", "application/json");

/// A gateway before a stub with these scripts, for three tenants.
async fn rig(scripts: Vec<Script>) -> (Stub, Holdfast) {
    let stub = scripted(scripts).await;
    // Seldom polled, so that nothing is mended by chance.
    let health = json!({"interval": "60s", "timeout": "1s", "fall": 1, "ease_in": "0s"});
    let gateway = before(&stub, &["acme", "evil", "third"], health).await;
    (stub, gateway)
}

#[tokio::test]
async fn an_answer_that_is_not_utf8_is_refused_and_takes_the_version_from_nobody() {
    let answers: [&[u8]; 4] = [
        b"{\"model_name\":\"screen-1\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"caf\xe9\",\"data\":[1]}]}",
        b"{\"model_name\":\"screen-1\",\"outputs\":[{\"name\":\"x\",\"data\":[\"\xed\xa0\x80\"]}]}",
        b"{\"id\":\"\xff\",\"model_name\":\"screen-1\",\"outputs\":[]}",
        b"{\"model_name\":\"screen-1\",\"parameters\":{\"\xc3\":1},\"outputs\":[]}",
    ];
    let (stub, gateway) = rig(answers.map(|body| Script::with_headers(200, &[JSON], body)).into()).await;
    for number in 0..answers.len() {
        let answer = ask(&gateway, "evil", number).await.unwrap().expect(502);
        assert_eq!(answer.header("x-holdfast-error"), "upstream_error", "answer {number}: {answer:?}");
        // It may be what the request said.
        let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
    }
    assert_eq!(stub.executions(), 2 * answers.len(), "no answer that came is asked for again");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_upstream_attempts_total", &[("outcome", "bad_answer")]), answers.len() as f64);
    assert_eq!(metrics.sum("holdfast_wrong_version_total", &[]), 0.0);
}

#[tokio::test]
async fn a_long_answer_that_is_not_utf8_in_the_end_is_cut() {
    let long = |end: &[u8]| {
        let mut body = br#"{"model_name":"screen-1","model_version":"1","outputs":[{"name":"x","data":[""#.to_vec();
        // Longer than what is held, and odd, so that characters of two bytes are cut by chunks.
        body.extend("é".repeat(300_000).as_bytes());
        body.extend(end);
        body.extend(b"\"]}]}");
        let chunks = body.chunks(65_537).map(|c| [format!("{:x}\r\n", c.len()).as_bytes(), c, b"\r\n"].concat());
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        Script::raw([head.to_vec(), chunks.collect::<Vec<_>>().concat(), b"0\r\n\r\n".to_vec()].concat())
    };
    let (_stub, gateway) = rig(vec![long("\u{1f600}".as_bytes()), long(b"\xe9"), long(b"\xc3")]).await;
    let whole = ask(&gateway, "acme", 0).await.unwrap().expect(200);
    assert!(whole.text().ends_with("é\u{1f600}\"]}]}"));
    for number in [1, 2] {
        let cut = ask(&gateway, "acme", number).await.unwrap_err();
        assert!(cut.starts_with("body:"), "{cut}");
        let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
    }
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_wrong_version_total", &[]), 0.0);
}

#[tokio::test]
async fn tensors_behind_json_that_names_no_model_are_refused() {
    let tail = r#"{"model_name":"screen-2","model_version":"2","outputs":[]}"#;
    for (json, status) in [
        ("{}", 502),
        (r#"{"outputs":[]}"#, 502),
        (r#"{"model_version":"1","outputs":[]}"#, 502),
        (r#"{"model_name":"","model_version":"1"}"#, 502),
        // It is a tensor of bytes, as far as anybody can tell.
        (r#"{"model_name":"screen-1","outputs":[]}"#, 200),
    ] {
        let length = json.len().to_string();
        let fields = [("content-type", "application/octet-stream"), ("inference-header-content-length", &length)];
        let body = format!("{json}{tail}");
        // The tail may come late, and the answer may be long.
        let long = format!("{body}{}", " ".repeat(600_000));
        let late = |text: &str| {
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{}: {length}\r\n\r\n", text.len(), fields[1].0);
            Script::raw(head + json).then(Step::Pause(Duration::from_millis(20))).then_send(&text[json.len()..])
        };
        let scripts = vec![Script::with_headers(200, &fields, body.as_bytes()), late(&body), late(&long)];
        for number in 0..scripts.len() {
            // Each anew: a wrong answer quarantines.
            let (_stub, gateway) = rig(scripts.clone()).await;
            let answer = ask(&gateway, "acme", number).await.unwrap();
            assert_eq!(answer.status, status, "{json}, script {number}: {answer:?}");
            let error = if status == 200 { "" } else { "wrong_version_served" };
            assert_eq!(answer.header("x-holdfast-error"), error, "{json}, script {number}");
        }
    }
    // Without the header an answer need not name anything.
    let (_stub, gateway) = rig(vec![Script::with_headers(200, &[JSON], br#"{"outputs":[]}"#)]).await;
    let _ = ask(&gateway, "acme", 0).await.unwrap().expect(200);
}

/// 429 with this `Retry-After`.
fn pause(retry_after: &str) -> Script {
    Script::with_headers(429, &[("retry-after", retry_after)], b"")
}

fn retry_after(answer: &Answer) -> u64 {
    assert_eq!((answer.status.as_u16(), answer.header("x-holdfast-error")), (503, "overloaded"), "{answer:?}");
    answer.header("retry-after").parse().unwrap()
}

#[tokio::test]
async fn a_pause_that_one_tenant_is_asked_for_is_no_other_tenants() {
    let (stub, gateway) = rig(vec![pause("60")]).await;
    let begun = Instant::now();
    assert_eq!(retry_after(&ask(&gateway, "evil", 0).await.unwrap()), 60);
    let member = async |tenant: &str| {
        let told = gateway.admin_get(&format!("/v1/explain?tenant={tenant}&model=screen")).await;
        told["subset"].as_array().unwrap().first().unwrap().clone()
    };
    let (left_alone, asked_for_none) = (member("evil").await, member("acme").await);
    assert_eq!((&left_alone["cooling"], &asked_for_none["cooling"]), (&json!(true), &json!(false)), "{left_alone}");
    let seconds = left_alone["pause_seconds"].as_u64().unwrap();
    assert!((50..=60).contains(&seconds) && asked_for_none.get("pause_seconds").is_none(), "{left_alone}");
    assert!(left_alone["why"].as_str().unwrap().contains("asked for a pause"), "{left_alone}");
    let asked = stub.executions();
    // It is left alone for this tenant, who is told what the replica said.
    let again = gateway.infer("evil", INFER, &probe()).await;
    assert!((55..=60).contains(&retry_after(&again)), "{again:?}");
    let told = gateway.admin_get("/v1/explain?tenant=evil&model=screen").await["now"].as_str().unwrap().to_owned();
    assert!(told.contains("503 overloaded, retry after"), "{told}");
    assert_eq!(stub.executions(), asked, "a request that is shed is not sent");
    for n in 0..20 {
        let answer = gateway.infer("acme", INFER, &probe()).await;
        assert_eq!(answer.status, 200, "request {n}: {answer:?}");
    }
    // Not for as long as it asked for: what one answer says must not take a replica away for long.
    eventually("the tenant to be served again", PATIENCE * 2, async || {
        (gateway.infer("evil", INFER, &probe()).await.status == 200).then_some(())
    })
    .await;
    let took = begun.elapsed();
    assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(45), "{took:?} where a minute was asked for");
}

#[tokio::test]
async fn a_replica_that_asks_two_tenants_for_a_pause_is_left_alone_by_all() {
    let (stub, gateway) = rig(vec![pause("2")]).await;
    for tenant in ["evil", "acme"] {
        assert_eq!(retry_after(&ask(&gateway, tenant, 0).await.unwrap()), 2);
    }
    let asked = stub.executions();
    assert_eq!(retry_after(&gateway.infer("third", INFER, &probe()).await), 1, "it was asked for nothing itself");
    assert_eq!(stub.executions(), asked, "it was not sent");
    for tenant in ["evil", "acme", "third"] {
        eventually("all to be served again", PATIENCE, async || {
            (gateway.infer(tenant, INFER, &probe()).await.status == 200).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn the_pause_that_clients_are_told_is_bounded() {
    for (asked, told) in [("100000", 60), ("60", 60), ("7", 7), ("0", 1), ("soon", 1)] {
        let (_stub, gateway) = rig(vec![pause(asked)]).await;
        assert_eq!(retry_after(&ask(&gateway, "acme", 0).await.unwrap()), told, "{asked}");
    }
}

#[tokio::test]
async fn of_a_wrong_name_logs_and_alarms_show_the_beginning_and_metrics_nothing() {
    let name = format!("canary{}", "x".repeat(122));
    let body = format!("{{\"model_name\":\"{name}\"}}");
    let (_stub, gateway) = rig(vec![Script::with_headers(200, &[JSON], body.as_bytes())]).await;
    let answer = ask(&gateway, "acme", 0).await.unwrap().expect(502);
    assert!(!answer.text().contains("canary"), "{answer:?}");
    let alarms = gateway.admin_get("/v1/alarms").await.to_string();
    assert!(alarms.contains(&name[..64]) && !alarms.contains(&name[..65]), "{alarms}");
    let logged =
        eventually("the log", PATIENCE, async || Some(gateway.proc.output()).filter(|log| log.contains("canary")))
            .await;
    assert!(logged.contains(&name[..64]) && !logged.contains(&name[..65]), "{logged}");
    let metrics = gateway.admin.get("/metrics", &[]).await.expect(200).text();
    assert!(metrics.contains("holdfast_wrong_version_total") && !metrics.contains("canaryx"));
}

#[tokio::test]
async fn what_a_server_says_of_its_own_failure_is_its_operators_business() {
    let trace = "Traceback (most recent call last): /srv/models/secret.py of screen-1";
    let text = |status| Script::with_headers(status, &[("content-type", "text/plain")], trace.as_bytes());
    let scripts = vec![
        // As MLServer does for a wrong shape.
        text(500).then(Step::Close),
        text(500),
        Script::json(500, &json!({"detail": trace})),
        Script::json(500, &json!({"error": "screen-1 cannot reshape"})),
    ];
    let (stub, gateway) = rig(scripts).await;
    for number in 0..4 {
        for _ in 0..5 {
            let answer = ask(&gateway, "evil", number).await.unwrap().expect(502);
            assert_eq!(answer.header("x-holdfast-error"), "upstream_error");
            let said = answer.json()["error"].as_str().unwrap().to_owned();
            let told = if number == 3 { "screen cannot reshape" } else { "answered 500" };
            assert!(said.contains(told) && !said.contains("secret"), "{said}");
        }
        // One failure would eject, and the next poll is far away.
        let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
    }
    assert_eq!(stub.executions(), 4 * 6, "nothing is asked twice");
}

#[tokio::test]
async fn a_kept_connection_that_breaks_takes_the_replica_from_nobody() {
    let (stub, gateway) = rig(vec![Script::close()]).await;
    for _ in 0..5 {
        // Answered over a connection that is kept, so that the next request meets a used one.
        let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
        let answer = ask(&gateway, "evil", 0).await.unwrap().expect(502);
        assert_eq!(answer.header("x-holdfast-error"), "upstream_error");
    }
    let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
    assert_eq!(stub.executions(), 11, "nothing is asked twice");
    // Whether the server is well is asked at once.
    eventually("polls beside those of the start", PATIENCE, async || {
        (stub.count(|request| request.path.ends_with("/repository/index")) > 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_connection_over_which_a_server_has_failed_is_not_used_again() {
    for (status, again) in [(500, false), (503, true), (429, true), (400, true)] {
        let scripts = vec![Script::json(status, &json!({"error": "out of luck"}))];
        let (stub, gateway) = rig(scripts).await;
        let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
        let _ = ask(&gateway, "evil", 0).await.unwrap();
        let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
        let asked: Vec<_> = stub.requests().into_iter().filter(|r| r.path.ends_with("/infer")).collect();
        let used: Vec<u64> = asked.iter().map(|request| request.connection).collect();
        assert_eq!(used[0], used[1], "{status}: connections are kept");
        assert_eq!(used[2] == used[1], again, "{status}: {used:?}");
    }
}

/// The name, then so much that it is passed on as it comes.
fn long(end: &str) -> String {
    let spaces = " ".repeat(600_000);
    format!(r#"{{"model_name":"screen-1","model_version":"1","outputs":[{spaces}{end}"#)
}

#[tokio::test]
async fn the_connection_of_a_long_answer_serves_the_next_request() {
    let body = long("]}");
    let whole = Script::with_headers(200, &[JSON], body.as_bytes());
    // In pieces, the last of them one byte.
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    let pause = || Step::Pause(Duration::from_millis(5));
    let (most, last) = body.split_at(body.len() - 1);
    let pieces = Script::raw(head + most).then(pause()).then_send(last);
    let chunks =
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let (stub, gateway) = rig(vec![whole, pieces, Script::raw(chunks)]).await;
    for number in [0, 0, 0, 1, 1, 1, 2, 0] {
        let answer = ask(&gateway, "acme", number).await.unwrap().expect(200);
        assert!(answer.text().starts_with(r#"{"model_name":"screen","#) && answer.text().ends_with(" ]}"));
        let path = format!("/v1/receipts/{}", answer.header("x-holdfast-request-id"));
        let told = eventually("the receipt", PATIENCE, async || {
            let told = gateway.admin.get(&path, &[]).await;
            (told.status == 200).then(|| told.json())
        })
        .await;
        let stages: Vec<_> = told["stages"].as_array().unwrap().iter().map(|stage| stage["stage"].clone()).collect();
        assert!(stages.contains(&json!("answer_begun")), "it is passed on as it comes: {told:#}");
        assert!(stages.contains(&json!("answer_complete")), "script {number}: {told:#}");
    }
    let asked = stub.requests().into_iter().filter(|request| request.path.ends_with("/infer"));
    let used: std::collections::BTreeSet<u64> = asked.map(|request| request.connection).collect();
    assert_eq!(used.len(), 1, "connections {used:?}");
}

#[tokio::test]
async fn a_long_answer_whose_json_does_not_end_is_cut_and_its_connection_closed() {
    let (stub, gateway) = rig(vec![Script::with_headers(200, &[JSON], long("").as_bytes())]).await;
    for _ in 0..2 {
        let cut = ask(&gateway, "acme", 0).await.unwrap_err();
        assert!(cut.starts_with("body:"), "{cut}");
        let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
    }
    let asked: Vec<_> = stub.requests().into_iter().filter(|request| request.path.ends_with("/infer")).collect();
    let used: Vec<u64> = asked.iter().map(|request| request.connection).collect();
    assert_ne!(used[0], used[1], "{used:?}");
    assert_ne!(used[2], used[3], "{used:?}");
    let metrics = gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_wrong_version_total", &[]), 0.0);
}

/// HTTP/1.0 has no other end of such an answer than that of the connection, so an orderly one would make a whole answer of it.
#[tokio::test]
async fn a_cut_answer_to_http_10_ends_in_a_reset() {
    let whole = long(r#"],"id":"x"}"#);
    let (_stub, gateway) =
        rig([long(""), whole].map(|body| Script::with_headers(200, &[JSON], body.as_bytes())).into()).await;
    let ask = async |number: usize| {
        let mut client = TcpStream::connect(gateway.data.addr()).await.unwrap();
        let body = probe().to_string();
        let head = format!(
            "POST {INFER} HTTP/1.0\r\nx-tenant: acme\r\nx-wants: {number}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        client.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.map(|_| answer).map_err(|error| error.kind())
    };
    assert_eq!(ask(0).await, Err(std::io::ErrorKind::ConnectionReset));
    assert!(ask(1).await.unwrap().ends_with(br#""id":"x"}"#));
}

/// A status is no reason to pass the judgement of another version on. What a client can make a server repeat takes the version from nobody.
#[tokio::test]
async fn a_refusal_that_names_another_version_is_not_passed_on() {
    let of = |version: &str| format!(r#"{{"model_name":"screen-1","model_version":"{version}","outputs":[]}}"#);
    let bodies = [of("2"), of("1"), r#"{"error":"no such input"}"#.to_owned(), "no".to_owned()];
    let scripts = bodies.map(|body| Script::with_headers(400, &[JSON], body.as_bytes()));
    let (stub, gateway) = rig(scripts.into()).await;
    let withheld = ask(&gateway, "evil", 0).await.unwrap().expect(502);
    assert_eq!(withheld.header("x-holdfast-error"), "upstream_error", "{withheld:?}");
    for number in 1..4 {
        let refused = ask(&gateway, "evil", number).await.unwrap().expect(400);
        assert_eq!(refused.header("x-holdfast-version"), "1");
    }
    let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
    assert_eq!(stub.executions(), 5, "none of them is asked for again");
}

/// One after the other, so that the first meets a kept connection and the others a new one.
#[tokio::test]
async fn what_one_tenant_makes_a_server_do_takes_the_replica_from_nobody() {
    let odd = |status: u16| Script::with_headers(status, &[JSON], b"{}");
    let (stub, gateway) = rig(vec![Script::close(), odd(302), odd(999), odd(500)]).await;
    for number in [0, 0, 0, 1, 1, 2, 2, 3, 3] {
        let answer = ask(&gateway, "evil", number).await.unwrap().expect(502);
        assert_eq!(answer.header("x-holdfast-error"), "upstream_error");
    }
    let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
    assert_eq!(stub.executions(), 10, "nothing is asked twice");
    // What two tenants meet in a row is the replica's.
    for tenant in ["evil", "third"] {
        let _ = ask(&gateway, tenant, 3).await.unwrap().expect(502);
    }
    let shed = gateway.infer("acme", INFER, &probe()).await.expect(503);
    assert_eq!(shed.header("x-holdfast-error"), "no_holder");
}

#[tokio::test]
async fn interim_answers_without_an_end_are_cut_off() {
    let json = r#"{"model_name":"screen-1","model_version":"1","outputs":[]}"#;
    let end =
        format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{json}", json.len());
    let after = |count: usize| Script::raw(format!("{}{end}", "HTTP/1.1 100 Continue\r\n\r\n".repeat(count)));
    let (_stub, gateway) = rig(vec![after(1_000), after(100_000)]).await;
    let _ = ask(&gateway, "evil", 0).await.unwrap().expect(200);
    let cut = ask(&gateway, "evil", 1).await.unwrap().expect(502);
    assert_eq!(cut.header("x-holdfast-error"), "upstream_error");
    let _ = gateway.infer("acme", INFER, &probe()).await.expect(200);
}
