//! Tokens that the gateways sign themselves: given for API keys, taken by every gateway, over restarts and changes of keys, until they are revoked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod own_tokens_support;

use holdfast_testkit::eventually;
use http::{Method, StatusCode};
use own_tokens_support::{ISSUER, PATIENCE, Rig, claims, header};
use serde_json::json;

#[tokio::test]
async fn a_key_gets_a_token_that_is_taken_and_says_what_it_is() {
    let rig = Rig::start("access: 5m, refresh: 1h").await;
    let key = rig.key(&["--user", "batch", "--scope", "infer", "--scope", "more"]).await;
    let given = rig.token(&key).await;
    assert_eq!(
        (&given["token_type"], &given["expires_in"], &given["scope"]),
        (&json!("Bearer"), &json!(300), &json!("infer more"))
    );
    let access = given["access_token"].as_str().unwrap();
    assert_eq!((&header(access)["typ"], &header(access)["alg"]), (&json!("at+jwt"), &json!("EdDSA")));
    let said = claims(access);
    for (name, value) in [
        ("iss", json!(ISSUER)),
        ("aud", json!("holdfast")),
        ("sub", json!("batch")),
        ("tenant", json!("acme")),
        ("client_id", json!(key.id)),
    ] {
        assert_eq!(said[name], value, "{name}");
    }
    assert_eq!(said["exp"].as_u64().unwrap() - said["iat"].as_u64().unwrap(), 300);
    let answer = rig.infer(access).await.expect(200);
    let path = format!("/v1/receipts/{}", answer.header("x-holdfast-request-id"));
    let receipt = eventually("the receipt", PATIENCE, async || {
        let told = rig.gateway.admin.get(&path, &[]).await;
        (told.status == 200).then(|| told.json())
    })
    .await;
    assert_eq!((&receipt["who"]["user"], &receipt["who"]["issuer"]), (&json!("batch"), &json!(ISSUER)));
    // A refresh token is another type of token, and an access token is no refresh token.
    let refresh = given["refresh_token"].as_str().unwrap();
    assert_eq!(rig.infer(refresh).await.status, 401);
    rig.refused(&[("grant_type", "refresh_token"), ("refresh_token", access)], 400, "invalid_grant").await;
    // Both ways to say who one is, a part of the scopes, and a refresh with and without the key.
    let by_form = [("client_id", &*key.id), ("client_secret", &*key.secret)];
    let less =
        rig.ask(&[&[("grant_type", "client_credentials"), ("scope", "infer")], &by_form[..]].concat(), None).await;
    assert_eq!(less.expect(200).json()["scope"], "infer");
    for own in [&[][..], &by_form] {
        let asked = [&[("grant_type", "refresh_token"), ("refresh_token", refresh)], own].concat();
        let further = rig.ask(&asked, None).await.expect(200).json();
        assert!(further.get("refresh_token").is_none(), "a session has an end");
        let _ = rig.infer(further["access_token"].as_str().unwrap()).await.expect(200);
    }
    let set = rig.gateway.data.get("/.well-known/jwks.json", &[]).await.expect(200);
    assert!(set.header("cache-control").starts_with("public, max-age="), "{:?}", set.headers);
    assert!(!set.text().contains("seed") && set.json()["keys"][0]["kid"] == header(access)["kid"], "{}", set.text());
}

#[tokio::test]
async fn an_independent_library_takes_the_tokens_by_the_published_keys() {
    let rig = Rig::start("access: 5m").await;
    let key = rig.key(&[]).await;
    let given = rig.token(&key).await;
    let told = rig.py_jwt(given["access_token"].as_str().unwrap()).await;
    assert_eq!((&told["tenant"], &told["client_id"]), (&json!("acme"), &json!(key.id)), "{told}");
}

#[tokio::test]
async fn what_proves_nobody_gets_no_token() {
    let rig = Rig::start("access: 5m").await;
    let key = rig.key(&["--scope", "infer"]).await;
    let other = rig.key(&[]).await;
    let by = |id: &str, secret: &str| Some((id.to_owned(), secret.to_owned()));
    let wrong = format!("{}0", &key.secret[..key.secret.len() - 1]);
    let wrong = if wrong == key.secret { format!("{}1", &key.secret[..key.secret.len() - 1]) } else { wrong };
    for client in [by(&key.id, &wrong), by(&other.id, &key.secret), by(&key.id, ""), by("", &key.secret), None] {
        let answer = rig.ask(&[("grant_type", "client_credentials")], client.as_ref()).await;
        rig.is(&answer, 401, "invalid_client");
        assert!(answer.header("www-authenticate").starts_with("Basic realm="), "{:?}", answer.headers);
    }
    let good = by(&key.id, &key.secret);
    for (form, error) in [
        (&[("grant_type", "password"), ("username", "a")][..], "unsupported_grant_type"),
        (&[("scope", "infer")], "invalid_request"),
        (&[("grant_type", "client_credentials"), ("scope", "infer all")], "invalid_scope"),
        (&[("grant_type", "client_credentials"), ("client_secret", "x"), ("client_id", "y")], "invalid_request"),
        (&[("grant_type", "refresh_token"), ("refresh_token", "a.b.c")], "invalid_grant"),
    ] {
        let answer = rig.ask(form, good.as_ref()).await;
        rig.is(&answer, 400, error);
    }
    // A refresh token of another key, a body of another kind, one that is too long, other methods.
    let given = rig.token(&other).await;
    let form = [("grant_type", "refresh_token"), ("refresh_token", given["refresh_token"].as_str().unwrap())];
    let answer = rig.ask(&form, good.as_ref()).await;
    rig.is(&answer, 400, "invalid_grant");
    let answer = rig.gateway.data.post("/oauth/token", &[], &json!({"grant_type": "client_credentials"})).await;
    rig.is(&answer, 400, "invalid_request");
    let long = "a".repeat(40_000);
    let answer = rig.ask(&[("grant_type", "client_credentials"), ("x", &long)], good.as_ref()).await;
    rig.is(&answer, 400, "invalid_request");
    assert_eq!(rig.gateway.data.get("/oauth/token", &[]).await.status, 405);
}

#[tokio::test]
async fn who_tries_too_often_is_told_to_wait() {
    let rig = Rig::start_with("access: 5m", "bad_tokens: { rate: 1, burst: 5 }, ").await;
    let key = rig.key(&[]).await;
    let none = Some((key.id.clone(), "no".to_owned()));
    let limited = eventually("the bound", PATIENCE, async || {
        let answer = rig.ask(&[("grant_type", "client_credentials")], none.as_ref()).await;
        (answer.status == 429).then_some(answer)
    })
    .await;
    assert!(!limited.header("retry-after").is_empty() && limited.header("cache-control") == "no-store");
}

#[tokio::test]
async fn a_key_that_is_revoked_gets_no_further_token() {
    let rig = Rig::start("access: 5m").await;
    let key = rig.key(&[]).await;
    let given = rig.token(&key).await;
    let form = [("grant_type", "refresh_token"), ("refresh_token", given["refresh_token"].as_str().unwrap())];
    let _ = rig.ask(&form, None).await.expect(200);
    let _ = rig.gateway.cli_json(&["key", "revoke", "acme", &key.id]).await;
    eventually("the refresh to be refused", PATIENCE, async || {
        let answer = rig.ask(&form, None).await;
        (answer.status == 400).then(|| rig.is(&answer, 400, "invalid_grant"))
    })
    .await;
    let own = Some((key.id.clone(), key.secret.clone()));
    let answer = rig.ask(&[("grant_type", "client_credentials")], own.as_ref()).await;
    rig.is(&answer, 401, "invalid_client");
}

#[tokio::test]
async fn what_is_revoked_is_not_taken_though_it_is_remembered() {
    let rig = Rig::start("access: 5m").await;
    let key = rig.key(&[]).await;
    let (first, second) = (rig.token(&key).await, rig.token(&key).await);
    let access = |given: &serde_json::Value| given["access_token"].as_str().unwrap().to_owned();
    for given in [&first, &second] {
        let _ = rig.infer(&access(given)).await.expect(200);
        let _ = rig.infer(&access(given)).await.expect(200);
    }
    let jti = claims(&access(&first))["jti"].as_str().unwrap().to_owned();
    let _ = rig.gateway.cli_json(&["token", "revoke", "--token", &jti, "--reason", "it was lost"]).await;
    rig.becomes(&access(&first), 401).await;
    let _ = rig.infer(&access(&second)).await.expect(200);
    let _ = rig.gateway.cli_json(&["token", "revoke", "--key", &key.id]).await;
    rig.becomes(&access(&second), 401).await;
    let form = [("grant_type", "refresh_token"), ("refresh_token", second["refresh_token"].as_str().unwrap())];
    rig.refused(&form, 400, "invalid_grant").await;
    // The key itself is good, and what it gets after that second is good.
    eventually("a token of later", PATIENCE, async || {
        let later = access(&rig.token(&key).await);
        (rig.infer(&later).await.status == 200).then_some(())
    })
    .await;
    // Over a restart, too.
    let mut rig = rig;
    rig.restart().await;
    rig.becomes(&access(&first), 401).await;
    assert_eq!(rig.infer(&access(&second)).await.status, 401);
}

#[tokio::test]
async fn keys_outlive_a_crash_while_they_change() {
    let mut rig = Rig::start("access: 5m, publish: 1s, rotate: 1h").await;
    let key = rig.key(&[]).await;
    let old = rig.token(&key).await["access_token"].as_str().unwrap().to_owned();
    let before = rig.key_set().await;
    assert_eq!(before.len(), 1);
    let _ = rig.gateway.cli_json(&["token", "rotate"]).await;
    rig.restart().await;
    eventually("both keys to be published", PATIENCE, async || (rig.key_set().await.len() == 2).then_some(())).await;
    assert!(rig.key_set().await.contains(&before[0]));
    rig.becomes(&old, 200).await;
    eventually("the new key to sign", PATIENCE, async || {
        let given = rig.token(&key).await["access_token"].as_str().unwrap().to_owned();
        (header(&given)["kid"] != before[0].as_str()).then_some(())
    })
    .await;
    rig.restart().await;
    rig.becomes(&old, 200).await;
    // A key that somebody else may have is taken away at once.
    let _ = rig.gateway.cli_json(&["token", "rotate", "--at-once"]).await;
    rig.becomes(&old, 401).await;
    assert_eq!(rig.key_set().await.len(), 1);
    let new = rig.token(&key).await["access_token"].as_str().unwrap().to_owned();
    let _ = rig.infer(&new).await.expect(200);
}

#[tokio::test]
async fn keys_follow_one_another_by_themselves_and_processes_die_at_any_time() {
    let mut rig = Rig::start("access: 10s, refresh: 1m, publish: 1s, rotate: 10s").await;
    let key = rig.key(&[]).await;
    let first = rig.key_set().await;
    let kids = async |rig: &Rig| rig.key_set().await.len();
    for round in 0..3 {
        rig.restart().await;
        // Whatever a token is signed by is published, and the token is taken.
        let given = rig.token(&key).await["access_token"].as_str().unwrap().to_owned();
        let kid = header(&given)["kid"].as_str().unwrap().to_owned();
        assert!(rig.key_set().await.contains(&kid), "round {round}");
        let taken = rig.infer(&given).await;
        assert!(
            taken.status == 200 || claims(&given)["exp"].as_u64().unwrap() <= holdfast_testkit::jwks::now(),
            "{}",
            taken.text()
        );
    }
    eventually("a second key", PATIENCE, async || (kids(&rig).await >= 2).then_some(())).await;
    assert!(rig.key_set().await.contains(&first[0]), "the first one is published while its tokens live");
}

#[tokio::test]
async fn without_the_section_there_is_nothing() {
    let rig = Rig::off().await;
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let body = bytes::Bytes::from_static(b"grant_type=client_credentials");
    let answer = rig.gateway.data.send(Method::POST, "/oauth/token", &form, body).await.unwrap();
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(rig.gateway.data.get("/.well-known/jwks.json", &[]).await.status, 404);
    let told = rig.gateway.cli(&["token", "rotate"]).await;
    assert!(!told.status.success() && String::from_utf8_lossy(&told.stderr).contains("auth.tokens"), "{told:?}");
}
