//! The public vectors of C2SP/wycheproof for signed tokens and for key sets, all of them.
//!
//! Shared secrets (HS256 and its kin) are never accepted here, so a vector that is valid with one is refused, and four vectors are of keys whose own `alg`
//! is not the token's; with that member taken away they are accepted. Both kinds are counted, so that nothing hides among them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_macros,
    reason = "tests"
)]

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_identity::{Algorithm, Compact, KeySet, Source};
use serde_json::{Value, json};

/// Valid vectors of RFC 7520 with a key that names another algorithm (PS256 for a token of PS384) or one that there is not (ES521).
const OTHER_ALG: [u64; 4] = [346, 347, 350, 351];

fn vectors(file: &str) -> Option<Value> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors");
    let folder = std::env::var_os("HOLDFAST_VECTORS").map_or(beside, PathBuf::from).join("wycheproof");
    let Ok(text) = std::fs::read(folder.join(file)) else {
        eprintln!("SKIPPED: there is no {file} in {}; set HOLDFAST_VECTORS", folder.display());
        return None;
    };
    Some(serde_json::from_slice(&text).unwrap())
}

/// Whether a token's signature is accepted under these keys.
fn accepts(keys: &Value, token: &str) -> bool {
    let document = if keys.get("keys").is_some() { keys.clone() } else { json!({ "keys": [keys] }) };
    let read = KeySet::read(document.to_string().as_bytes(), &Algorithm::ALL, &Arc::new(Source::default()), None);
    let Ok((keys, _)) = read else { return false };
    Compact::parse(token.as_bytes()).is_ok_and(|token| keys.verify(&token).is_ok())
}

struct Case<'v> {
    id: u64,
    is_valid: bool,
    keys: &'v Value,
    token: &'v str,
}

fn cases(vectors: &Value) -> Vec<Case<'_>> {
    let groups = vectors["testGroups"].as_array().unwrap().iter();
    let cases = groups.flat_map(|group| {
        let keys = group.get("public").unwrap_or(&group["private"]);
        group["tests"].as_array().unwrap().iter().map(move |test| Case {
            id: test["tcId"].as_u64().unwrap(),
            is_valid: test["result"] == "valid",
            keys,
            token: test["jws"].as_str().unwrap(),
        })
    });
    cases.collect()
}

fn is_shared_secret(keys: &Value) -> bool {
    let all = keys["keys"].as_array().map_or(std::slice::from_ref(keys), Vec::as_slice);
    all.iter().any(|key| key["kty"] == "oct")
}

#[test]
fn signed_tokens() {
    let Some(vectors) = vectors("json_web_signature_test.json") else { return };
    let (mut accepted, mut refused, mut secrets, mut others) = (0, 0, 0, 0);
    for case in cases(&vectors) {
        let (id, verdict) = (case.id, accepts(case.keys, case.token));
        if !case.is_valid {
            assert!(!verdict, "{id} is invalid");
            refused += 1;
        } else if is_shared_secret(case.keys) {
            assert!(!verdict, "{id} is signed with a shared secret");
            secrets += 1;
        } else if OTHER_ALG.contains(&id) {
            assert!(!verdict, "{id}: the key is for another algorithm");
            let mut keys = case.keys.clone();
            keys.as_object_mut().unwrap().remove("alg");
            assert!(accepts(&keys, case.token), "{id} is good without the key's own algorithm");
            others += 1;
        } else {
            assert!(verdict, "{id} is valid");
            accepted += 1;
        }
    }
    assert_eq!((accepted, refused, secrets, others), (32, 355, 10, 4));
}

#[test]
fn key_sets() {
    let Some(vectors) = vectors("json_web_key_test.json") else { return };
    let (mut accepted, mut refused, mut secrets) = (0, 0, 0);
    for case in cases(&vectors) {
        let (id, verdict) = (case.id, accepts(case.keys, case.token));
        if case.is_valid && !is_shared_secret(case.keys) {
            assert!(verdict, "{id} is valid");
            accepted += 1;
        } else {
            assert!(!verdict, "{id} is invalid, or signed with a shared secret");
            *(if case.is_valid { &mut secrets } else { &mut refused }) += 1;
        }
    }
    assert_eq!((accepted, refused, secrets), (1, 21, 4));
}
