//! Key sets with good and odd keys, and what becomes of keys that go.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use holdfast_identity::cache::Found;
use holdfast_identity::{
    Algorithm, Cache, Compact, Digest, KeySet, Proof, Reject, Skipped, Source, Subject, Why, base64,
};
use holdfast_testkit::Signer;
use holdfast_types::{Mono, TenantId};
use serde_json::{Value, json};

fn read(keys: &Value, before: Option<&KeySet>) -> Result<(KeySet, Vec<Skipped>), &'static str> {
    let document = json!({ "keys": keys }).to_string();
    KeySet::read(document.as_bytes(), &Algorithm::ALL, &Arc::new(Source::default()), before)
}

fn verdict(keys: &KeySet, token: &str) -> Result<(), Why> {
    let token = Compact::parse(token.as_bytes()).map_err(|refused| refused.why)?;
    keys.verify(&token).map(drop).map_err(|refused: Reject| refused.why)
}

#[test]
fn one_odd_key_does_not_weaken_or_break_the_others() {
    let (good, other, twin) = (Signer::ec(), Signer::rsa(), Signer::ed());
    let mut encrypts = other.jwk("encrypts");
    encrypts["use"] = json!("enc");
    let mut small = other.jwk("small");
    small["n"] = json!(base64::encode(&[0xc1; 128]));
    let keys = json!([
        good.jwk("good"),
        { "kty": "EC2", "kid": "unknown-type" },
        { "kty": "oct", "kid": "secret", "k": "AAAA" },
        encrypts,
        small,
        twin.jwk("twin"),
        other.jwk("twin"),
        { "kty": "OKP", "crv": "Ed448", "kid": "curve", "x": "AAAA" },
        "no object",
        { "kid": 7 },
    ]);
    let (keys, skipped) = read(&keys, None).unwrap();
    assert_eq!(keys.keys().len(), 1);
    assert_eq!(skipped.iter().map(|s| s.index).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let claims = json!({});
    assert_eq!(verdict(&keys, &good.token("good", &claims)), Ok(()));
    assert_eq!(verdict(&keys, &twin.token("twin", &claims)), Err(Why::UnknownKey), "an ambiguous name is no name");
    assert_eq!(verdict(&keys, &other.token("good", &claims)), Err(Why::Algorithm));
    assert_eq!(verdict(&keys, &Signer::ec().token("good", &claims)), Err(Why::Signature));
    assert_eq!(verdict(&keys, &good.token("../../etc/passwd", &claims)), Err(Why::UnknownKey));
    for none in [json!([]), json!([{ "kty": "oct", "k": "AAAA" }]), json!({}), json!(null)] {
        assert!(read(&none, None).is_err(), "{none}");
    }
    assert!(read(&json!(vec![good.jwk("a"); 300]), None).is_err(), "the number of keys is bounded");
}

#[test]
fn a_token_without_a_kid_needs_exactly_one_fitting_key() {
    let (ec, rsa) = (Signer::ec(), Signer::rsa());
    let token = ec.token_of(r#"{"alg":"ES256"}"#, "{}");
    let (one, _) = read(&json!([ec.jwk("a"), rsa.jwk("b")]), None).unwrap();
    assert_eq!(verdict(&one, &token), Ok(()));
    let (two, _) = read(&json!([ec.jwk("a"), Signer::ec().jwk("b")]), None).unwrap();
    assert_eq!(verdict(&two, &token), Err(Why::UnknownKey));
}

#[test]
fn a_public_key_is_never_a_shared_secret() {
    let rsa = Signer::rsa();
    let jwk = rsa.jwk("a");
    let (keys, _) = read(&json!([jwk]), None).unwrap();
    let bytes = base64::decode(jwk["n"].as_str().unwrap().as_bytes()).unwrap();
    for secret in [jwk.to_string().into_bytes(), bytes] {
        for alg in ["HS256", "HS384", "HS512", "RS256", "ES256"] {
            let header = json!({ "alg": alg, "kid": "a" }).to_string();
            let signed = format!("{}.e30", base64::encode(header.as_bytes()));
            let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &secret);
            let tag = aws_lc_rs::hmac::sign(&key, signed.as_bytes());
            assert!(verdict(&keys, &format!("{signed}.{}", base64::encode(tag.as_ref()))).is_err(), "{alg}");
        }
    }
}

#[test]
fn configuration_and_key_decide_which_algorithm() {
    let rsa = Signer::rsa();
    let token = rsa.token("a", &json!({}));
    let document = |jwk: Value| json!({ "keys": [jwk] }).to_string();
    let source = Arc::new(Source::default());
    let with = |jwk: Value, allowed: &[Algorithm]| KeySet::read(document(jwk).as_bytes(), allowed, &source, None);
    let (keys, _) = with(rsa.jwk("a"), &[Algorithm::Rs256, Algorithm::Es256]).unwrap();
    assert_eq!(verdict(&keys, &token), Ok(()));
    let (keys, _) = with(rsa.jwk("a"), &[Algorithm::Ps256]).unwrap();
    assert_eq!(verdict(&keys, &token), Err(Why::Algorithm));
    assert!(with(rsa.jwk("a"), &[Algorithm::Es256]).is_err());
    let mut named = rsa.jwk("a");
    named["alg"] = json!("PS256");
    let (keys, _) = with(named.clone(), &Algorithm::ALL).unwrap();
    assert_eq!(verdict(&keys, &token), Err(Why::Algorithm));
    named["alg"] = json!("ES256");
    assert!(with(named, &Algorithm::ALL).is_err(), "an algorithm of another type of key");
}

#[test]
fn a_key_that_goes_takes_what_it_proved_with_it() {
    let (stays, goes) = (Signer::ed(), Signer::ed());
    let (before, _) = read(&json!([stays.jwk("a"), goes.jwk("b")]), None).unwrap();
    let subject = |name: &str| {
        Arc::new(Subject {
            issuer: "i".into(),
            tenant: TenantId::parse("acme").unwrap(),
            user: Some(name.into()),
            plan: None,
            chooses: false,
            device: None,
            shown: Box::default(),
            scopes: Box::default(),
        })
    };
    let mut cache = Cache::new(64);
    let (first, second) = (Digest::of(b"first"), Digest::of(b"second"));
    for (digest, key) in [(first, &before.keys()[0]), (second, &before.keys()[1])] {
        key.source.set_usable_until(Mono(1_000));
        cache.put(digest, Proof { subject: subject("u"), until: 500, key: key.clone() });
    }
    assert!(matches!(cache.find(&first, Mono(1), 499), Found::Good(_)));
    assert!(matches!(cache.find(&first, Mono(1_000), 499), Found::Stale), "the issuer is away for too long");
    assert!(matches!(cache.find(&first, Mono(999), 499), Found::Good(_)), "it is back");
    // The same name with another key, and the other key as it was.
    let (after, _) = read(&json!([stays.jwk("a"), Signer::ed().jwk("b")]), Some(&before)).unwrap();
    before.followed_by(&after);
    assert!(Arc::ptr_eq(&before.keys()[0], &after.keys()[0]) && !after.keys()[0].is_gone());
    assert!(matches!(cache.find(&second, Mono(1), 499), Found::Over));
    assert!(matches!(cache.find(&second, Mono(1), 499), Found::Nothing));
    assert!(matches!(cache.find(&first, Mono(1), 499), Found::Good(_)));
    assert!(matches!(cache.find(&first, Mono(1), 500), Found::Over), "never past its end");
    assert!(cache.is_empty());
}

#[test]
fn the_cache_is_bounded_and_keeps_what_is_used() {
    let key = read(&json!([Signer::ed().jwk("a")]), None).unwrap().0.keys()[0].clone();
    key.source.set_usable_until(Mono::ZERO.after(Duration::from_secs(9)));
    let subject = Arc::new(Subject {
        issuer: "i".into(),
        tenant: TenantId::parse("acme").unwrap(),
        user: None,
        plan: None,
        chooses: false,
        device: None,
        shown: Box::default(),
        scopes: Box::default(),
    });
    let mut cache = Cache::new(256);
    let hot = Digest::of(b"hot");
    let proof = Proof { subject, until: u64::MAX, key };
    cache.put(hot, proof.clone());
    for number in 0..10_000u32 {
        assert!(matches!(cache.find(&hot, Mono(1), 1), Found::Good(_)), "{number}");
        cache.put(Digest::of(&number.to_le_bytes()), proof.clone());
    }
    assert_eq!(cache.len(), 256);
}
