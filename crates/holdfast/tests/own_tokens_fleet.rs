//! Tokens of a fleet: gateways take one another's, go on giving them when no control plane is there, and hear of what is revoked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;
mod fleet_of;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use bytes::Bytes;
use fleet::{INFER, probe};
use fleet_of::{Member, More, Roles, Shape};
use holdfast_identity::api_key;
use holdfast_identity::base64;
use holdfast_testkit::eventually;
use http::Method;
use serde_json::{Value, json};

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The key of all tests here: as it is shown, its prefix, its hash.
fn key() -> (String, String, String) {
    let (shown, prefix, hash) = api_key::make([7; 38]);
    (shown, prefix, format!("blake3:{}", hash.to_hex()))
}

fn auth(_: &str, content: &mut Value) {
    content["auth"] =
        json!({"keys": true, "tokens": {"issuer": "https://gw.example", "publish": "1s", "rotate": "1h"}});
}

fn control(content: &mut Value) {
    auth("control", content);
    let (_, prefix, hash) = key();
    content["tenants"][0]["keys"] = json!([{"prefix": prefix, "hash": hash}]);
}

async fn token(gateway: &Member) -> Option<Value> {
    let (shown, prefix, _) = key();
    let form = format!("grant_type=client_credentials&client_id={prefix}&client_secret={shown}");
    let fields = [("content-type", "application/x-www-form-urlencoded")];
    let answer = gateway.data.send(Method::POST, "/oauth/token", &fields, Bytes::from(form)).await.ok()?;
    (answer.status == 200).then(|| answer.json())
}

async fn status(gateway: &Member, token: &Value) -> u16 {
    let bearer = format!("Bearer {}", token["access_token"].as_str().unwrap());
    gateway.data.post(INFER, &[("authorization", &bearer)], &probe()).await.status.as_u16()
}

async fn becomes(gateway: &Member, token: &Value, wanted: u16) {
    let words = format!("the token to get {wanted}");
    eventually(&words, PATIENCE, async || (status(gateway, token).await == wanted).then_some(())).await;
}

#[tokio::test]
async fn tokens_of_one_gateway_are_taken_by_all_with_and_without_a_control_plane() {
    let shape = Shape { controls: 1, gateways: 2, load: "50ms" };
    let mut fleet = Roles::start_of(shape, More { control, gateway: auth, ..More::default() }).await;
    let given = eventually("a token", PATIENCE, async || token(&fleet.gateways[0]).await).await;
    for gateway in &fleet.gateways {
        becomes(gateway, &given, 200).await;
        gateway.wait_saved().await;
        let saved = gateway.dir.join("state").join("tokens.keys");
        let mode = eventually("the keys to be saved", PATIENCE, async || std::fs::metadata(&saved).ok()).await;
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    }

    fleet.controls[0].proc.kill9();
    fleet.gateways[0].restart().await;
    let alone = eventually("a token without a control plane", PATIENCE, async || token(&fleet.gateways[0]).await).await;
    for gateway in &fleet.gateways {
        becomes(gateway, &alone, 200).await;
        becomes(gateway, &given, 200).await;
    }

    // The one that comes back has the keys that there were, and what it is told reaches all.
    fleet.controls[0].restart().await;
    let payload = given["access_token"].as_str().unwrap().split('.').nth(1).unwrap();
    let claims: Value = serde_json::from_slice(&base64::decode(payload.as_bytes()).unwrap()).unwrap();
    let revoked = eventually("the revocation", PATIENCE, async || {
        let told = fleet.controls[0].admin.post("/v1/tokens/revoke", &[], &json!({"token": claims["jti"]})).await;
        (told.status == 200).then(|| told.json())
    })
    .await;
    assert_eq!(revoked["revoked"], json!({"token": claims["jti"]}));
    for gateway in &fleet.gateways {
        becomes(gateway, &given, 401).await;
        assert_eq!(status(gateway, &alone).await, 200);
    }
}
