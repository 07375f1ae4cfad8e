//! Tokens of those who are nobody: thousands of them, public vectors, and a bound on each address.

use std::path::PathBuf;

use holdfast_testkit::jwks::encode;
use holdfast_testkit::{Jwks, Signer};
use serde_json::{Value, json};

use super::fixture::{Rig, assert_refused, claims, claims_of, one, simple};

#[tokio::test]
async fn forged_and_expired_tokens_by_the_thousand() {
    let signer = Signer::ec();
    let jwks = Jwks::start(&[signer.jwk("k1")]).await;
    let rig = Rig::of(&jwks.url(), "").await;
    let good = signer.token("k1", &claims());
    rig.serves(&good).await;
    let executed = rig.stub.executions();
    let parts: Vec<&str> = good.split('.').collect();
    let mut sent = 0;
    for at in 0..good.len() {
        // Another character in every place: of the header, the payload and the signature.
        let other = if good.as_bytes()[at] == b'A' { "B" } else { "A" };
        let mut forged = good.clone();
        forged.replace_range(at..=at, other);
        assert_refused(&rig.infer(&forged).await, 401, "unauthenticated");
        // And the token cut there.
        assert_refused(&rig.infer(&good[..at]).await, 401, "unauthenticated");
        sent += 2;
    }
    let now = holdfast_testkit::jwks::now();
    for number in 0..1_500_u64 {
        let mut claims = claims_of(&format!("u{number}"));
        claims["exp"] = json!(now - 31 - number);
        assert_refused(&rig.infer(&signer.token("k1", &claims)).await, 401, "unauthenticated");
        let forged = format!("{}.{}.{}", parts[0], encode(claims.to_string().as_bytes()), parts[2]);
        assert_refused(&rig.infer(&forged).await, 401, "unauthenticated");
        sent += 2;
    }
    assert!(sent > 3_000, "{sent}");
    assert_eq!(rig.stub.executions(), executed, "none of them reached the replica");
    rig.good(&good).await;
    assert!(jwks.fetches() <= 3, "{}", jwks.fetches());
}

/// Names that strangers choose become no label: of keys, issuers, tenants and users; nor those that a good key names without need.
#[tokio::test]
async fn names_in_tokens_add_no_series() {
    let (signer, _jwks, rig) = simple("").await;
    let forger = Signer::ed();
    let names = |number: usize| {
        let name = format!("n{number}");
        let (mut strange, mut foreign, mut user) = (claims_of(&name), claims_of(&name), claims_of(&name));
        strange["iss"] = json!(format!("https://{name}.example"));
        foreign["tenant"] = json!(name);
        user["plan"] = json!(name);
        [
            (forger.token(&name, &claims()), 401),
            (forger.token("k1", &strange), 401),
            (signer.token("k1", &foreign), 403),
            (signer.token("k1", &user), 200),
        ]
    };
    let ask = async |number| {
        for (token, status) in names(number) {
            let _ = rig.infer(&token).await.expect(status);
        }
    };
    ask(0).await;
    let before = rig.gateway.metrics().await.names();
    for number in 1..250 {
        ask(number).await;
    }
    let after = rig.gateway.metrics().await.names();
    let added: Vec<_> = after.difference(&before).collect();
    assert!(added.is_empty(), "{added:?}");
}

#[tokio::test]
async fn headers_that_bring_or_ask_for_something() {
    let (signer, jwks, rig) = simple("").await;
    let forger = Signer::ed();
    let requests = jwks.requests();
    let url = jwks.url().replace("jwks.json", "stolen.json");
    let claims = claims().to_string();
    for header in [
        json!({ "alg": "EdDSA", "kid": "k1", "jwk": forger.jwk("k1") }),
        json!({ "alg": "EdDSA", "kid": "k1", "jku": url }),
        json!({ "alg": "EdDSA", "kid": "k1", "x5u": url }),
        json!({ "alg": "EdDSA", "kid": "k1", "x5c": ["AAAA"] }),
        json!({ "alg": "EdDSA", "kid": "../../../../dev/null" }),
        json!({ "alg": "EdDSA", "kid": "k1' OR '1'='1" }),
        json!({ "alg": "none", "kid": "k1" }),
        json!({ "alg": "nOnE", "kid": "k1" }),
        json!({ "alg": "HS256", "kid": "k1" }),
        json!({ "alg": "EdDSA", "kid": "k1", "crit": ["exp"] }),
        json!({ "alg": "EdDSA", "kid": "k1", "b64": false }),
        json!({ "alg": "ES256", "kid": "k1" }),
    ] {
        for who in [&signer, &forger] {
            let token = who.token_of(&header.to_string(), &claims);
            assert_refused(&rig.infer(&token).await, 401, "unauthenticated");
        }
        let unsigned = signer.token_of(&header.to_string(), &claims);
        let unsigned = &unsigned[..=unsigned.rfind('.').unwrap()];
        assert_refused(&rig.infer(unsigned).await, 401, "unauthenticated");
    }
    let twice = claims.replace("\"tenant\":\"acme\"", "\"tenant\":\"globex\",\"tenant\":\"acme\"");
    assert_ne!(twice, claims);
    assert_refused(&rig.infer(&signer.token_of(r#"{"alg":"EdDSA","kid":"k1"}"#, &twice)).await, 401, "unauthenticated");
    let header = r#"{"alg":"none","kid":"k1","alg":"EdDSA"}"#;
    assert_refused(&rig.infer(&signer.token_of(header, &claims)).await, 401, "unauthenticated");
    let long = signer.token("k1", &claims_of(&"u".repeat(11_000)));
    assert_refused(&rig.infer(&long).await, 401, "unauthenticated");
    // Nothing but the key set was ever asked for: an unknown key costs one fetch of it at most.
    assert!(jwks.requests() - requests <= 1, "{}", jwks.requests() - requests);
    assert_eq!(jwks.requests(), jwks.fetches());
}

#[tokio::test]
async fn bad_tokens_of_an_address_are_bounded_before_they_are_checked() {
    let signer = Signer::ed();
    let jwks = Jwks::start(&[signer.jwk("k1")]).await;
    let rig = Rig::start(&one(&jwks.url(), "", "bad_tokens: { rate: 1, burst: 20 }")).await;
    let good = signer.token("k1", &claims());
    rig.serves(&good).await;
    let forger = Signer::ed();
    let mut limited = 0;
    for number in 0..300 {
        let answer = rig.infer(&forger.token("k1", &claims_of(&format!("f{number}")))).await;
        if answer.status == 429 {
            assert_refused(&answer, 429, "rate_limited");
            limited += 1;
        } else {
            assert_refused(&answer, 401, "unauthenticated");
        }
    }
    assert!(limited >= 200, "{limited}");
    assert!(rig.tokens("limited").await >= 200.0);
    assert!(rig.tokens("signature").await <= 60.0, "what is over the bound is not checked");
    // A token that is remembered as good is none of them.
    rig.good(&good).await;
}

/// Thirty of the public vectors, over HTTP: none has claims, so whatever its signature is none names anybody. That signatures of all 401 are judged
/// rightly is a test of the verifier.
#[tokio::test]
async fn public_vectors_name_nobody() {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    let folder = std::env::var_os("HOLDFAST_VECTORS").map_or(beside, PathBuf::from).join("wycheproof");
    let Ok(text) = std::fs::read(folder.join("json_web_signature_test.json")) else {
        eprintln!("SKIPPED: there are no wycheproof vectors in {}; set HOLDFAST_VECTORS", folder.display());
        return;
    };
    let vectors: Value = serde_json::from_slice(&text).unwrap();
    let groups = vectors["testGroups"].as_array().unwrap();
    let own = Signer::ed();
    let mut keys = vec![own.jwk("own")];
    let mut seen = std::collections::BTreeSet::new();
    for group in groups.iter().filter_map(|group| group.get("public")) {
        if seen.insert(group["kid"].as_str().unwrap_or_default().to_owned()) {
            keys.push(group.clone());
        }
    }
    let jwks = Jwks::start(&keys).await;
    let rig = Rig::of(&jwks.url(), "").await;
    let good = own.token("own", &claims());
    rig.serves(&good).await;
    let executed = rig.stub.executions();
    let tests = groups.iter().flat_map(|group| group["tests"].as_array().unwrap());
    let tokens: Vec<&str> = tests.filter_map(|test| test["jws"].as_str()).filter(|token| token.is_ascii()).collect();
    let step = tokens.len() / 30;
    for token in tokens.iter().step_by(step).take(30) {
        assert_refused(&rig.infer(token).await, 401, "unauthenticated");
    }
    assert_eq!(rig.stub.executions(), executed);
    rig.good(&good).await;
}
