//! API keys: made by the command line, shown once, listed without a secret, replaced by a second one, ended and revoked.

use serde_json::{Value, json};

use super::fixture::{PATIENCE, Rig, assert_refused, config};
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Stub, eventually};

/// A gateway whose truth is the store, so that the table can be changed by command.
async fn rig() -> Rig {
    let correct = V2::loaded(&[("screen", "1")]);
    let stub = Stub::start(move |request| correct.answer(request)).await;
    let text = format!("truth: store\n{}", config("keys: true, bad_tokens: { rate: 1, burst: 30 }", &stub.url()));
    let gateway = Holdfast::start(std::path::Path::new(env!("CARGO_BIN_EXE_holdfast")), &text).await;
    Rig { gateway, stub }
}

async fn create(rig: &Rig, more: &[&str]) -> Value {
    rig.gateway.cli_json(&[&["key", "create"], more].concat()).await
}

/// Waits until a key is served, or is refused.
async fn becomes(rig: &Rig, key: &str, status: u16) {
    eventually(&format!("the key to get {status}"), PATIENCE, async || {
        let answer = rig.infer(key).await;
        (answer.status == status).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_key_from_its_making_to_its_end() {
    let rig = rig().await;
    let made =
        create(&rig, &["acme", "--user", "batch", "--plan", "gold", "--scope", "infer", "--note", "nightly job"]).await;
    let first = made["key"].as_str().unwrap().to_owned();
    assert!(first.starts_with("hfk_") && first.len() == 81, "{first}");
    becomes(&rig, &first, 200).await;
    let seen = rig.stub.requests();
    let last = seen.iter().rev().find(|r| r.path.ends_with("/infer")).unwrap();
    assert_eq!((last.header("x-holdfast-tenant"), last.header("authorization")), ("acme", ""));
    let answer = rig.infer(&first).await.expect(200);
    let path = format!("/v1/receipts/{}", answer.header("x-holdfast-request-id"));
    let receipt = eventually("the receipt", PATIENCE, async || {
        let told = rig.gateway.admin.get(&path, &[]).await;
        (told.status == 200).then(|| told.json())
    })
    .await;
    assert_eq!(receipt["who"]["issuer"], json!(&first[..16]));
    assert_eq!((&receipt["who"]["user"], &receipt["who"]["scopes"]), (&json!("batch"), &json!(["infer"])));

    // The secret is nowhere: not in the table, its history, the listing, the receipts or the log.
    let secret = &first[17..];
    for path in ["/v1/tenants", "/v1/tenants/acme", "/v1/table/revisions", "/v1/receipts", "/v1/table"] {
        let told = rig.gateway.admin.get(path, &[]).await.text();
        assert!(!told.contains(secret), "{path}: {told}");
    }
    assert!(!rig.gateway.proc.output().contains(secret));
    let listed = rig.gateway.cli_json(&["key", "list", "acme"]).await;
    assert_eq!(listed["keys"].as_array().unwrap().len(), 1);
    assert_eq!((&listed["keys"][0]["note"], &listed["keys"][0]["hash"]), (&json!("nightly job"), &Value::Null));

    // A second one beside it; then the first goes.
    let second = create(&rig, &["acme"]).await["key"].as_str().unwrap().to_owned();
    becomes(&rig, &second, 200).await;
    rig.good(&first).await;
    let done = rig.gateway.cli(&["key", "revoke", "acme", &first[..16]]).await;
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    becomes(&rig, &first, 401).await;
    rig.good(&second).await;
    assert!(!rig.gateway.cli(&["key", "revoke", "acme", &first[..16]]).await.status.success());
    let whole = rig.gateway.cli(&["key", "revoke", "acme", &second]).await;
    assert_eq!(whole.status.code(), Some(2), "a whole key is not put into a history");
    // Another tenant's key is that tenant's, and one that is made up is nobody's.
    let other = create(&rig, &["globex"]).await["key"].as_str().unwrap().to_owned();
    becomes(&rig, &other, 200).await;
    let mixed = format!("{}{}", &second[..17], &other[17..]);
    assert_refused(&rig.infer(&mixed).await, 401, "unauthenticated");
    assert!(!rig.gateway.cli(&["key", "create", "nobody"]).await.status.success());
    // What else is changed of the tenant stays.
    let spec = rig.gateway.admin_get("/v1/tenants/acme").await;
    assert_eq!(spec["spec"]["subset"], json!(1));
}

#[tokio::test]
async fn a_key_ends_and_guesses_are_bounded() {
    let rig = rig().await;
    let key = create(&rig, &["acme", "--expires-in", "4s"]).await["key"].as_str().unwrap().to_owned();
    let stays = create(&rig, &["acme", "--expires-in", "90d"]).await["key"].as_str().unwrap().to_owned();
    becomes(&rig, &key, 401).await;
    becomes(&rig, &stays, 200).await;
    let mut limited = 0;
    for number in 0..200 {
        let answer = rig.infer(&format!("hfk_{number:012x}_{:064x}", number)).await;
        limited += u32::from(answer.status == 429);
        assert!(answer.status == 429 || answer.status == 401);
    }
    assert!(limited >= 100, "{limited}");
    rig.good(&stays).await;
    // They outlive a restart: they are in the table.
    let mut rig = rig;
    rig.gateway.restart().await;
    becomes(&rig, &stays, 200).await;
}
