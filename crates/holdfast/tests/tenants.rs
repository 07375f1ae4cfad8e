//! Texts that clients choose: whatever they are, they are refused as the client's fault, make no second tenant, and harm no log.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod operation_support;

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_testkit::metrics::promtool_check;
use holdfast_testkit::raw::{RawAnswer, RawClient};
use holdfast_testkit::{Holdfast, ModelServer, TempDir, eventually};
use operation_support::{ask, binary, json_lines, model_server, one_pool, repository, served, tenant};

const INFER: &str = "/v2/models/screen/infer";

struct World {
    holdfast: Holdfast,
    logs: TempDir,
    _server: ModelServer,
    _repository: TempDir,
}

impl World {
    async fn new() -> Self {
        let (repository, logs) = (repository(&["screen"], &["1", "2"]), TempDir::new());
        let server = model_server(&repository, "r1", &[]).await;
        let access = logs.join("access.log");
        let config = format!(
            "log: {{ level: debug, file: \"{}\" }}\n{}tenants:\n{}",
            access.display(),
            one_pool(&[&server], &["1", "2"]),
            tenant("acme", "1")
        );
        let holdfast = Holdfast::start(binary(), &config).await;
        assert_eq!(served(&holdfast, "acme", INFER).await, "1");
        Self { holdfast, logs, _server: server, _repository: repository }
    }

    /// Sends one request head as it is, with a body that is a good one.
    async fn raw(&self, path: &[u8], fields: &[(&str, &[u8])]) -> RawAnswer {
        let body = ask("coffee").to_string();
        let mut bytes = [b"POST ", path, b" HTTP/1.1\r\n"].concat();
        let length = body.len().to_string();
        let own = [("content-type", b"application/json".as_slice()), ("content-length", length.as_bytes())];
        for (name, value) in fields.iter().chain(&own) {
            bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        if !fields.iter().any(|(name, _)| *name == "host") {
            bytes.extend(b"host: h\r\n");
        }
        bytes.extend([b"\r\n", body.as_bytes()].concat());
        let mut client = RawClient::connect(self.holdfast.data.addr()).await;
        client.write(&bytes).await;
        let answer = client.answer("POST").await;
        answer.unwrap_or_else(|e| panic!("{e} in answer to {}", String::from_utf8_lossy(&bytes).escape_debug()))
    }

    /// Nobody but acme was counted, logged or charged, and every page is still well-formed.
    async fn only_acme(&self) {
        let text = self.holdfast.admin.get("/metrics", &[]).await.expect(200).text();
        assert_eq!(promtool_check(&text), Ok(()));
        let metrics = self.holdfast.metrics().await;
        let labels: BTreeSet<&str> =
            metrics.0.iter().filter_map(|s| s.labels.get("tenant")).map(String::as_str).collect();
        assert!(labels.iter().all(|label| ["acme", ""].contains(label)), "{labels:?}");
        for label in ["model", "version"] {
            let about_models = metrics.0.iter().filter(|s| s.name != "holdfast_build_info");
            let names: BTreeSet<&str> = about_models.filter_map(|s| s.labels.get(label)).map(String::as_str).collect();
            assert!(names.iter().all(|name| ["", "screen", "1", "2"].contains(name)), "{label}: {names:?}");
        }
        let usage = self.holdfast.admin_get("/v1/usage").await;
        let charged: Vec<&str> =
            usage["usage"].as_array().unwrap().iter().filter_map(|row| row["tenant"].as_str()).collect();
        assert_eq!(charged, ["acme"]);
        for line in json_lines(&self.logs.join("access.log")) {
            assert!(line["tenant"].is_null() || line["tenant"] == "acme", "{line}");
        }
    }
}

/// Texts of the kinds that have broken other programs.
fn naughty() -> Vec<Vec<u8>> {
    let texts = [
        "",
        " ",
        "\t",
        "undefined",
        "null",
        "NULL",
        "nil",
        "None",
        "NaN",
        "Infinity",
        "-1",
        "0",
        "1e309",
        "true",
        "latest",
        "LATEST",
        "Latest",
        "hasOwnProperty",
        "__proto__",
        "constructor",
        "CON",
        "aux.txt",
        ".",
        "..",
        "...",
        "-",
        "_",
        "-rf",
        "--help",
        "a b",
        "a,b",
        "a;b",
        "a=b",
        "a&b=c",
        "a?b",
        "a#b",
        "a/b",
        "a\\b",
        "a:b",
        "a|b",
        "a\"b",
        "a'b",
        "`id`",
        "$(id)",
        "${HOME}",
        "${jndi:ldap://h/a}",
        "{{7*7}}",
        "%s%n%x",
        "%00",
        "%0d%0aset-cookie:a=b",
        "%",
        "%zz",
        "1; DROP TABLE tenants--",
        "' OR '1'='1",
        "<script>alert(1)</script>",
        "<!--#exec cmd=\"id\"-->",
        "../../etc/passwd",
        "..%2f..%2fetc",
        "file:///etc/passwd",
        "http://169.254.169.254/",
        "Ω≈ç√∫",
        "ąęćź",
        "田中さん",
        "😀",
        "\u{1f469}\u{200d}\u{1f467}",
        "ﷺ",
        "\u{202e}txt.exe",
        "a\u{200b}b",
        "a\u{ad}b",
        "\u{feff}acme",
        "ａｃｍｅ",
        "аcme",
        "cafe\u{301}",
        "café",
        "ACME",
        "Acme",
        "acme.",
        "acme ",
        " acme",
        "acme\t",
        "acme,acme",
        "Z͑ͫ̓a̴l̢g͟o",
    ];
    let mut all: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    all.extend([
        vec![0],
        vec![0x7f],
        vec![0x1b, b'[', b'2', b'J'],
        vec![0xff, 0xfe],
        vec![0xc0, 0xaf],
        b"a\x00b".to_vec(),
    ]);
    all.extend([b"x".repeat(129), b"x".repeat(5_000)]);
    all
}

fn encoded(text: &[u8]) -> String {
    text.iter().map(|byte| format!("%{byte:02X}")).collect()
}

fn is_refused(answer: &RawAnswer, what: &str, text: &[u8]) {
    let shown = String::from_utf8_lossy(text).escape_debug().to_string();
    assert!((400..500).contains(&answer.status), "{what} {shown:?}: {} {}", answer.status, answer.text());
    assert!(!answer.header("x-holdfast-error").is_empty(), "{what} {shown:?}: {:?}", answer.headers);
    let body: serde_json::Value =
        serde_json::from_slice(&answer.body).unwrap_or_else(|e| panic!("{what} {shown:?}: {e}"));
    assert!(body["error"].is_string(), "{what} {shown:?}: {body}");
    for (name, value) in &answer.headers {
        let is_plain = value.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        assert!(is_plain && !name.eq_ignore_ascii_case("set-cookie"), "{what} {shown:?}: {name}: {value:?}");
    }
}

#[tokio::test]
async fn naughty_texts_as_tenant_model_or_version_are_the_clients_fault() {
    let world = World::new().await;
    for text in naughty() {
        // White space around a field's value is not part of it (RFC 9110, section 5.5).
        if text.trim_ascii() != b"acme" {
            let answer = world.raw(INFER.as_bytes(), &[("x-tenant", &text)]).await;
            is_refused(&answer, "tenant", &text);
        }
        let acme = [("x-tenant", b"acme".as_slice())];
        let model = format!("/v2/models/{}/infer", encoded(&text));
        is_refused(&world.raw(model.as_bytes(), &acme).await, "model", &text);
        if ![b"1".as_slice()].contains(&&*text) {
            let version = format!("/v2/models/screen/versions/{}/infer", encoded(&text));
            is_refused(&world.raw(version.as_bytes(), &acme).await, "version", &text);
        }
    }
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "1");
    world.only_acme().await;
}

#[tokio::test]
async fn naughty_texts_in_other_fields_never_fail_the_gateway_and_every_log_line_stays_one() {
    let world = World::new().await;
    let fields = [
        "x-request-timeout-ms",
        "x-holdfast-request-id",
        "x-request-id",
        "traceparent",
        "user-agent",
        "cookie",
        "accept",
        "accept-encoding",
        "host",
        "x-holdfast-tenant",
        "x-holdfast-version",
        "x-forwarded-for",
        "content-type",
        "inference-header-content-length",
    ];
    for text in naughty() {
        for name in fields {
            let answer = world.raw(INFER.as_bytes(), &[("x-tenant", b"acme"), (name, &text)]).await;
            let shown = String::from_utf8_lossy(&text).escape_debug().to_string();
            assert!(answer.status < 500, "{name} {shown:?}: {} {}", answer.status, answer.text());
            if answer.status == 200 {
                assert_eq!(answer.header("x-holdfast-version"), "1", "{name} {shown:?}");
            }
        }
    }
    world.only_acme().await;
    for line in world.holdfast.proc.output().lines() {
        let Some(line) = line.strip_prefix("err| ") else { continue };
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    }
    let is_plain = |text: &str| text.chars().all(|c| c == '\n' || !c.is_control());
    let access = std::fs::read_to_string(world.logs.join("access.log")).unwrap();
    assert!(is_plain(&access) && is_plain(&world.holdfast.proc.output()), "control characters in a log");
}

#[tokio::test]
async fn one_tenant_has_one_spelling() {
    let world = World::new().await;
    for other in
        ["Acme", "ACME", "acmE", "аcme", "ａｃｍｅ", "acme\u{200b}", "\u{feff}acme", "acmé", "acme\u{301}", "acme."]
    {
        let answer = world.raw(INFER.as_bytes(), &[("x-tenant", other.as_bytes())]).await;
        let is_id = other.is_ascii();
        assert_eq!(answer.status, if is_id { 403 } else { 401 }, "{other:?}: {}", answer.text());
        assert_eq!(answer.header("x-holdfast-version"), "", "{other:?}: nothing was resolved");
    }
    for name in ["X-Tenant", "x-tenant", "X-TENANT"] {
        assert_eq!(world.raw(INFER.as_bytes(), &[(name, b"acme")]).await.status, 200, "a field's name has no case");
    }
    for path in ["/v2/models/Screen/infer", "/v2/models/SCREEN/infer", "/V2/models/screen/infer"] {
        assert_eq!(world.raw(path.as_bytes(), &[("x-tenant", b"acme")]).await.status, 404, "{path}");
    }
    let encoded = world.raw(b"/v2/models/%73creen/infer", &[("x-tenant", b"acme")]).await;
    assert_eq!(
        (encoded.status, encoded.header("x-holdfast-model")),
        (200, "screen"),
        "an encoded letter is that letter"
    );
    world.only_acme().await;
}

#[tokio::test]
async fn a_request_of_nobody_is_refused_and_makes_no_tenant() {
    let world = World::new().await;
    let nobody: [&[(&str, &[u8])]; 9] = [
        &[],
        &[("x-tenant", b"")],
        &[("x-tenant", b" ")],
        &[("x-tenant", b" \t ")],
        &[("x-tenant", b","), ("x-tenant", b"")],
        &[("x-tenant", b"acme"), ("x-tenant", b"")],
        &[("x-tenant", b"acme"), ("X-Tenant", b"acme")],
        &[("x-tenant", b"acme,globex")],
        &[("x-tenant", b"[\"acme\"]")],
    ];
    for fields in nobody {
        let answer = world.raw(INFER.as_bytes(), fields).await;
        assert_eq!((answer.status, answer.header("x-holdfast-error")), (401, "unauthenticated"), "{fields:?}");
        // There is no token that could be wrong.
        assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"holdfast\"", "{fields:?}");
        assert_eq!(answer.header("x-holdfast-version"), "", "{fields:?}");
    }
    let counted = eventually("the refusals to be counted", Duration::from_secs(5), async || {
        let metrics = world.holdfast.metrics().await;
        let counted = metrics.sum("holdfast_requests_total", &[("tenant", ""), ("status", "401")]);
        (counted >= nobody.len() as f64).then_some(metrics)
    })
    .await;
    assert_eq!(counted.sum("holdfast_errors_total", &[("kind", "unauthenticated")]), nobody.len() as f64);
    world.only_acme().await;
}
