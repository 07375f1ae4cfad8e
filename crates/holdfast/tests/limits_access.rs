//! A gateway whose shared limits are in a Redis with TLS and passwords: it says why it cannot reach it, never a word of the secret, and needs no restart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Authority, Holdfast, RedisServer, Stub, eventually};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);
const PASSWORD: &str = "correct-horse-battery";

async fn store(gateway: &Holdfast) -> Value {
    gateway.admin_get("/v1/limits").await["store"].clone()
}

#[tokio::test]
async fn limits_are_shared_by_tls_with_a_password_that_nobody_sees() {
    let authority = Authority::new();
    let redis = RedisServer::start_with_tls(&authority.server(&["localhost"]), &authority).await;
    let (certificates, key) = authority.client("gate", &["gate.example"]).files(redis.folder(), "own");
    let authorities = authority.file(redis.folder().join("authorities.pem"));
    let stub_answers = V2::loaded(&[("screen", "1")]);
    let stub = Stub::start(move |request| stub_answers.answer(request)).await;
    let config = format!(
        "auth: {{ trusted_header: x-tenant }}\nlimits:\n  store: \"{}\"\n  store_within: 1s\n  store_access: {{ user: gate, password_env: THE_PASSWORD, \
         authorities: \"{}\", certificates: \"{}\", key: \"{}\" }}\npools:\n  - {{ name: p, protocol: open-inference, residency: static, \
         replicas: [{{ name: r1, url: \"{}\", holds: [{{ model: screen, version: \"1\" }}] }}] }}\nmodels:\n  \
         - {{ name: screen, pool: p, versions: [{{ version: \"1\" }}] }}\nplans:\n  - {{ name: standard, tenant: {{ requests: 100/s }} }}\n\
         tenants:\n  - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }}, plan: standard }}\n",
        redis.secure_url(),
        authorities.display(),
        certificates.display(),
        key.display(),
        stub.url(),
    );
    let environment = [("THE_PASSWORD", PASSWORD)];
    let gateway = Holdfast::start_with(Path::new(env!("CARGO_BIN_EXE_holdfast")), &config, &environment).await;
    let mut told = Value::Null;
    eventually("to be refused", PATIENCE, async || {
        told = store(&gateway).await;
        told["why"].as_str().is_some_and(|why| why.contains("authentication failed")).then_some(())
    })
    .await;
    assert_eq!(told["up"], false, "there is no such user yet: {told}");
    // Nobody is shut out meanwhile.
    eventually("a request to be served", PATIENCE, async || {
        let served =
            gateway.data.post("/v2/models/screen/infer", &[("x-tenant", "acme")], &json!({ "inputs": [] })).await;
        (served.status == 200).then_some(())
    })
    .await;
    let password = format!(">{PASSWORD}");
    let made =
        redis.command(&["ACL", "SETUSER", "gate", "on", &password, "~holdfast:default:*", "+@all", "-@dangerous"]);
    assert_eq!(made, "+OK");
    eventually("the store to be reached", PATIENCE, async || {
        told = store(&gateway).await;
        (told["up"] == true && told["why"].is_null()).then_some(())
    })
    .await;
    eventually("a limit to be leased", PATIENCE, async || {
        let served =
            gateway.data.post("/v2/models/screen/infer", &[("x-tenant", "acme")], &json!({ "inputs": [] })).await;
        let rows = gateway.admin_get("/v1/limits?tenant=acme").await["tenants"][0]["limits"].clone();
        (served.status == 200 && rows[0]["shared"]["alone"] == false).then_some(())
    })
    .await;
    let shown = [gateway.proc.output(), gateway.admin_get("/v1/limits").await.to_string()];
    assert!(shown.iter().all(|text| !text.contains(PASSWORD)), "{shown:#?}");
}
