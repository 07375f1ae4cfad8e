//! The section `auth`: who may sign tokens, and what contradicts itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::time::Duration;

use holdfast_config::{Auth, JwksSource, Source, load};
use holdfast_identity::{Algorithm, Pointer, TenantFrom};

const GOOD: &str = "\
auth:
  jwt:
    - issuer: https://id.example
      jwks_url: https://id.example/jwks.json
      algorithms: [RS256, EdDSA]
      audiences: [holdfast]
      claims: { tenant: /app/tenant }
    - { issuer: local, jwks_file: keys.json, algorithms: [ES256], audiences: [holdfast], tenant: acme }
";

fn good(text: &str) -> (Auth, Vec<String>) {
    let loaded = load(&Source::text("t.yaml", text)).unwrap_or_else(|faults| panic!("{faults}"));
    (loaded.config.auth.unwrap(), loaded.warnings.listed.iter().map(|w| w.path.clone()).collect())
}

/// The faults of the good text with one part replaced: line, column, path, and a part of the reason.
fn refused(from: &str, to: &str, expected: &[(u32, u32, &str, &str)]) {
    assert!(GOOD.contains(from), "{from}");
    let text = GOOD.replacen(from, to, 1);
    let faults = load(&Source::text("t.yaml", &text)).err().unwrap_or_else(|| panic!("no fault in:\n{text}"));
    assert_eq!(faults.listed.len(), expected.len(), "{text}\n{faults}");
    for (fault, (line, column, path, reason)) in faults.listed.iter().zip(expected) {
        assert_eq!((fault.line, fault.column, fault.path.as_str()), (*line, *column, *path), "{fault}");
        assert!(fault.reason.contains(reason), "{reason:?} is not in: {fault}");
    }
}

#[test]
fn issuers_and_their_defaults() {
    let (auth, warnings) = good(GOOD);
    assert_eq!(warnings, ["pools", "tenants"]);
    let [first, second] = auth.jwt.as_slice() else { panic!("{:?}", auth.jwt) };
    assert_eq!(&*first.rules.issuer, "https://id.example");
    assert_eq!(first.algorithms, [Algorithm::Rs256, Algorithm::EdDsa]);
    assert_eq!(first.rules.tenant, TenantFrom::Claim(Pointer::parse("/app/tenant").unwrap()));
    assert_eq!(first.rules.user, Pointer::parse("sub"));
    assert_eq!(
        (first.rules.leeway, first.refresh, first.keep),
        (30_000, Duration::from_secs(300), Duration::from_secs(86_400))
    );
    assert!(matches!(&first.keys, JwksSource::Url(url, None) if url.is_secure && url.port == 443));
    assert_eq!(second.keys, JwksSource::File("keys.json".into()));
    assert!(matches!(&second.rules.tenant, TenantFrom::Fixed(tenant) if tenant.as_str() == "acme"));
    assert_eq!((auth.cache, auth.bad_tokens.rate, auth.bad_tokens.burst), (10_000, 10, 100));
    // Anybody may reach a gateway that checks tokens.
    let open = format!("listen: {{ data: \"0.0.0.0:7400\" }}\n{GOOD}");
    assert!(load(&Source::text("t.yaml", &open)).is_ok());
}

#[test]
fn what_is_allowed_but_hardly_meant() {
    let (_, warnings) = good(&GOOD.replacen("audiences: [holdfast]", "audiences: []", 1));
    assert!(warnings.contains(&"auth.jwt[0].audiences".to_owned()), "{warnings:?}");
    let (_, warnings) = good(&GOOD.replace("https://id.example/jwks.json", "http://id.example/jwks.json"));
    assert!(warnings.contains(&"auth.jwt[0].jwks_url".to_owned()), "{warnings:?}");
    let (_, warnings) = good(&GOOD.replace("https://id.example/jwks.json", "http://127.0.0.1:9/jwks.json"));
    assert_eq!(warnings, ["pools", "tenants"]);
    let claims = "claims: { tenant: /app/tenant }";
    let (_, warnings) = good(&GOOD.replace(claims, "claims: { tenant: /app/tenant, plan: plan }"));
    assert!(warnings.contains(&"auth.jwt[0].claims.plan".to_owned()), "it is only shown: {warnings:?}");
    let listed = "claims: { tenant: /app/tenant, plan: plan }\n      plans: [free, gold]";
    let (auth, warnings) = good(&GOOD.replace(claims, listed));
    assert_eq!(warnings, ["pools", "tenants"], "which plans there are, the table says");
    assert_eq!(auth.jwt[0].rules.plans, ["free".into(), "gold".into()]);
    let (_, warnings) = good(&format!("{}plans: [{{ name: gold }}]\n", GOOD.replace(claims, listed)));
    assert_eq!(warnings, ["pools", "tenants", "auth.jwt[0].plans[0]"].map(str::to_owned));
}

#[test]
fn plans_are_chosen_by_a_claim() {
    let claims = "claims: { tenant: /app/tenant }";
    let at = (8, 14, "auth.jwt[0].plans", "without claims.plan");
    refused(claims, "claims: { tenant: /app/tenant }\n      plans: [gold]", &[at]);
}

#[test]
fn every_fault_has_its_place() {
    let why = "stands without trusted_header";
    refused("auth:\n", "auth:\n  trusted_user_header: x-user\n", &[(2, 24, "auth.trusted_user_header", why)]);
    refused(
        "auth:\n",
        "auth:\n  trusted_header: x-tenant\n",
        &[(2, 19, "auth.trusted_header", "stands beside jwt, keys or certificates")],
    );
    refused(
        "issuer: local",
        "issuer: https://id.example",
        &[(8, 17, "auth.jwt[1].issuer", "name of auth.jwt[0] already")],
    );
    refused("issuer: https://id.example\n", "issuer: \"\"\n", &[(3, 15, "auth.jwt[0].issuer", "is empty")]);
    refused("RS256, EdDSA", "RS256, HS256", &[(5, 27, "auth.jwt[0].algorithms[1]", "\"HS256\" is not known here")]);
    refused("RS256, EdDSA", "none", &[(5, 20, "auth.jwt[0].algorithms[0]", "not known")]);
    refused("[RS256, EdDSA]", "[]", &[(5, 19, "auth.jwt[0].algorithms", "at least 1")]);
    refused("      algorithms: [RS256, EdDSA]\n", "", &[(3, 7, "auth.jwt[0].algorithms", "is missing")]);
    refused("      audiences: [holdfast]\n", "", &[(3, 7, "auth.jwt[0].audiences", "is missing")]);
    refused("      jwks_url: https://id.example/jwks.json\n", "", &[(3, 7, "auth.jwt[0]", "where its keys are")]);
    refused(
        "jwks_file: keys.json,",
        "jwks_file: k, jwks_url: https://a/b,",
        &[(8, 35, "auth.jwt[1].jwks_file", "stands beside")],
    );
    refused(
        "jwks_file: keys.json,",
        "jwks_file: k, authorities: a,",
        &[(8, 51, "auth.jwt[1].authorities", "with https")],
    );
    refused("https://id.example/jwks.json", "https://u:p@id.example/", &[(4, 17, "auth.jwt[0].jwks_url", "user name")]);
    refused("/app/tenant", "/app~2", &[(7, 25, "auth.jwt[0].claims.tenant", "JSON Pointer")]);
    refused("      claims: { tenant: /app/tenant }\n", "", &[(3, 7, "auth.jwt[0]", "whose its tokens are")]);
    refused("tenant: acme", "tenant: acme, claims: { tenant: t }", &[(8, 98, "auth.jwt[1].tenant", "stands beside")]);
    refused("tenant: acme", "tenant: ac me", &[(8, 98, "auth.jwt[1].tenant", "has the character")]);
    refused("tenant: acme", "tenant: acme, keep: 1m", &[(8, 110, "auth.jwt[1].keep", "is less than refresh")]);
    refused("tenant: acme", "tenant: acme, leeway: 1h", &[(8, 112, "auth.jwt[1].leeway", "")]);
    refused("tenant: acme", "tenant: acme, isuer: x", &[(8, 104, "auth.jwt[1].isuer", "no field")]);
}

#[test]
fn the_settings_of_a_process_keep_it() {
    // What does not route is carried to each table, and read again with it.
    let split = holdfast_config::split(&Source::text("t.yaml", GOOD)).unwrap_or_else(|faults| panic!("{faults}"));
    let config = holdfast_config::Frame::new(split.rest).load(&holdfast_config::Resources::default()).unwrap().config;
    assert_eq!(config.auth.as_ref(), Some(&good(GOOD).0));
}
