//! What claims must be, one fault at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use holdfast_identity::claims::{self, SCOPES};
use holdfast_identity::{Compact, Pointer, Rules, Shown, Subject, TenantFrom, Why};
use holdfast_types::TenantId;
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: u64 = 1_800_000_000;

fn pointer(text: &str) -> Pointer {
    Pointer::parse(text).unwrap()
}

fn rules() -> Rules {
    Rules {
        issuer: "https://id.example".into(),
        audiences: vec!["holdfast".into(), "inference".into()],
        leeway: 30_000,
        required: vec![pointer("sub")],
        types: vec![],
        tenant: TenantFrom::Claim(pointer("tenant")),
        tenants: vec![],
        user: Some(pointer("sub")),
        plan: Some(pointer("/app/plan")),
        plans: vec!["gold".into()],
        device: Some(pointer("https://id.example/device")),
        scopes: Some(pointer("scope")),
        shown: ["ring", "/app/beta", "/app/level"].into_iter().filter_map(Shown::parse).collect(),
    }
}

fn good() -> Value {
    json!({
        "iss": "https://id.example", "aud": "holdfast", "exp": NOW + 60, "nbf": NOW - 60, "iat": NOW - 60, "sub": "u-1",
        "tenant": "acme", "app": { "plan": "gold" }, "https://id.example/device": "d7", "scope": "infer admin",
    })
}

fn judge(rules: &Rules, claims: &Value) -> Result<Subject, Why> {
    let (_, claims) = claims::read(claims.to_string().as_bytes()).map_err(|refused| refused.why)?;
    rules.judge(Some("JWT"), &claims, NOW * 1000).map(|(subject, _)| subject).map_err(|refused| refused.why)
}

fn with(member: &str, value: Value) -> Value {
    let mut claims = good();
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(member)),
        value => claims[member] = value,
    }
    claims
}

#[test]
fn a_good_token_names_its_subject() {
    let subject = judge(&rules(), &good()).unwrap();
    assert_eq!((subject.tenant.as_str(), subject.user.as_deref()), ("acme", Some("u-1")));
    assert_eq!((subject.plan.as_deref(), subject.device.as_deref()), (Some("gold"), Some("d7")));
    assert_eq!(subject.chosen(), Some("gold"));
    let none = Rules { plans: vec!["Gold".into()], ..rules() };
    let shown = judge(&none, &good()).unwrap();
    assert_eq!(
        (shown.plan.as_deref(), shown.chosen()),
        (Some("gold"), None),
        "one that may not be chosen is only shown"
    );
    assert!(subject.may("infer") && subject.may("admin") && !subject.may("adm") && !subject.may(""));
}

#[test]
fn times_have_a_small_leeway_and_any_form_of_number() {
    let now = NOW as f64;
    for (member, value, want) in [
        ("exp", json!(NOW - 4), Ok(())),
        ("exp", json!(NOW - 600), Err(Why::Expired)),
        ("exp", json!(NOW - 30), Err(Why::Expired)),
        ("exp", json!(now + 60.336), Ok(())),
        ("exp", json!(now - 29.999), Ok(())),
        ("exp", json!(now - 30.001), Err(Why::Expired)),
        ("exp", json!(1.0e300), Ok(())),
        ("exp", json!(u64::MAX), Ok(())),
        ("exp", json!(i64::MIN), Err(Why::Expired)),
        ("exp", json!(-1.0e300), Err(Why::Expired)),
        ("exp", json!(0), Err(Why::Expired)),
        ("exp", json!((NOW + 60).to_string()), Err(Why::Claims)),
        ("exp", json!([NOW + 60]), Err(Why::Claims)),
        ("exp", json!(true), Err(Why::Claims)),
        ("exp", json!({}), Err(Why::Claims)),
        ("exp", Value::Null, Err(Why::Claims)),
        ("nbf", json!(NOW + 4), Ok(())),
        ("nbf", json!(NOW + 30), Ok(())),
        ("nbf", json!(now + 30.0001), Err(Why::NotYet)),
        ("nbf", json!(NOW + 3600), Err(Why::NotYet)),
        ("nbf", json!(1.0e300), Err(Why::NotYet)),
        ("nbf", json!("0"), Err(Why::Claims)),
        ("nbf", Value::Null, Ok(())),
        ("iat", json!(NOW + 4), Ok(())),
        ("iat", json!(NOW + 600), Err(Why::NotYet)),
        ("iat", json!("0"), Err(Why::Claims)),
        ("iat", Value::Null, Ok(())),
    ] {
        assert_eq!(judge(&rules(), &with(member, value.clone())).map(drop), want, "{member} {value}");
    }
    let text = good().to_string().replace(&(NOW + 60).to_string(), "1.80000006e9");
    let (_, claims) = claims::read(text.as_bytes()).unwrap();
    assert!(rules().judge(None, &claims, NOW * 1000).is_ok(), "an exponent");
    // A null is a member all the same, and no time.
    let text = good().to_string().replace(&(NOW + 60).to_string(), "null");
    let (_, claims) = claims::read(text.as_bytes()).unwrap();
    assert_eq!(rules().judge(None, &claims, NOW * 1000).map_err(|r| r.why).err(), Some(Why::Claims));
}

#[test]
fn who_says_it_and_for_whom() {
    for (member, value, want) in [
        ("iss", json!("https://id.example/"), Err(Why::Issuer)),
        ("iss", json!("HTTPS://id.example"), Err(Why::Issuer)),
        ("iss", json!(["https://id.example"]), Err(Why::Issuer)),
        ("iss", Value::Null, Err(Why::Issuer)),
        ("aud", json!("inference"), Ok(())),
        ("aud", json!(["x", "inference"]), Ok(())),
        ("aud", json!(["x", "y"]), Err(Why::Audience)),
        ("aud", json!([]), Err(Why::Audience)),
        ("aud", json!(["holdfast", 7]), Err(Why::Audience)),
        ("aud", json!({ "holdfast": true }), Err(Why::Audience)),
        ("aud", json!("holdfast inference"), Err(Why::Audience)),
        ("aud", Value::Null, Err(Why::Audience)),
        ("sub", Value::Null, Err(Why::Claims)),
    ] {
        assert_eq!(judge(&rules(), &with(member, value.clone())).map(drop), want, "{member} {value}");
    }
    let open = Rules { audiences: vec![], ..rules() };
    assert_eq!(judge(&open, &with("aud", Value::Null)).map(drop), Ok(()));
    let typed = Rules { types: vec!["at+jwt".into()], ..rules() };
    let (_, claims) = claims::read(good().to_string().as_bytes()).unwrap();
    for (typ, is_good) in
        [(Some("at+jwt"), true), (Some("application/AT+JWT"), true), (Some("JWT"), false), (None, false)]
    {
        assert_eq!(typed.judge(typ, &claims, NOW * 1000).is_ok(), is_good, "{typ:?}");
    }
}

#[test]
fn a_tenant_is_an_id_or_nobody() {
    let zero_width = "ac\u{200b}me";
    for bad in [
        json!(""),
        json!(" "),
        json!("acme "),
        json!(null),
        json!(7),
        json!(["acme"]),
        json!({ "name": "acme" }),
        json!(true),
        json!("../acme"),
        json!("acme/screen"),
        json!("ac\u{0}me"),
        json!("\u{ff41}cme"),
        json!("caf\u{e9}"),
        json!("cafe\u{301}"),
        json!(zero_width),
        json!("b\u{fc}cher.example"),
        json!("a".repeat(129)),
    ] {
        assert_eq!(judge(&rules(), &with("tenant", bad.clone())).map(drop), Err(Why::Tenant), "{bad}");
    }
    for id in ["acme", "Acme", "xn--bcher-kva.example"] {
        assert_eq!(judge(&rules(), &with("tenant", json!(id))).unwrap().tenant.as_str(), id, "byte by byte");
    }
    let fixed = Rules { tenant: TenantFrom::Fixed(TenantId::parse("globex").unwrap()), ..rules() };
    assert_eq!(judge(&fixed, &good()).unwrap().tenant.as_str(), "globex", "no claim changes a fixed tenant");
    let bound = Rules { tenants: vec![TenantId::parse("globex").unwrap()], ..rules() };
    assert_eq!(judge(&bound, &good()).map(drop), Err(Why::Tenant), "an issuer speaks for its own tenants only");
    assert!(judge(&bound, &with("tenant", json!("globex"))).is_ok());
}

#[test]
fn names_and_scopes_are_bounded() {
    for (member, value, want) in [
        ("sub", json!(12_345), Ok(())),
        ("sub", json!(1.5), Err(Why::Claims)),
        ("sub", json!(""), Err(Why::Claims)),
        ("sub", json!("a\nb"), Err(Why::Claims)),
        ("sub", json!(["a"]), Err(Why::Claims)),
        ("sub", json!("u".repeat(257)), Err(Why::Claims)),
        ("scope", Value::Null, Ok(())),
        ("scope", json!(["infer", "admin"]), Ok(())),
        ("scope", json!(["infer", 7]), Err(Why::Claims)),
        ("scope", json!(vec!["s"; SCOPES + 1]), Err(Why::Claims)),
        ("scope", json!(7), Err(Why::Claims)),
    ] {
        assert_eq!(judge(&rules(), &with(member, value.clone())).map(drop), want, "{member} {value}");
    }
    assert_eq!(judge(&rules(), &with("sub", json!(12_345))).unwrap().user.as_deref(), Some("12345"));
}

#[test]
fn pointers() {
    let claims = json!({ "a": { "b/c": { "~": 1 } }, "a.b": 2, "/x": 3, "n": null });
    let claims = claims.as_object().unwrap();
    let found = |text: &str| {
        let rules = Rules { required: vec![pointer(text)], audiences: vec![], ..rules() };
        let mut all = good().as_object().unwrap().clone();
        all.extend(claims.clone());
        rules.judge(None, &all, NOW * 1000).is_ok()
    };
    assert!(found("a") && found("/a") && found("/a/b~1c/~0") && found("a.b") && found("/~1x"));
    assert!(!found("/a/b") && !found("b") && !found("n") && !found("/a/b~1c/~0/x"));
    for bad in ["", "/a~", "/a~2", "/~~0"] {
        assert_eq!(Pointer::parse(bad), None, "{bad}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(token in proptest::collection::vec(any::<u8>(), 0..200), claims in ".{0,200}") {
        let _ = Compact::parse(&token);
        let _ = claims::read(claims.as_bytes());
    }

    #[test]
    fn a_token_is_accepted_only_within_its_time(exp in -100i64..100, nbf in -100i64..100) {
        let at = |offset: i64| json!(NOW.checked_add_signed(offset).unwrap());
        let mut claims = good();
        claims["exp"] = at(exp);
        claims["nbf"] = at(nbf);
        prop_assert_eq!(judge(&rules(), &claims).is_ok(), exp > -30 && nbf <= 30);
    }
}

/// What is no short text, whole number or truth value is not there: a target that asks for it does not hold, and the token is good all the same.
#[test]
fn claims_for_targets_are_kept_by_their_names() {
    let mut claims = with("ring", json!("canary"));
    claims["app"] = json!({"plan": "gold", "beta": true, "level": 7});
    let subject = judge(&rules(), &claims).unwrap();
    let told = ["ring", "/app/beta", "/app/level", "plan", "beta"].map(|name| subject.claim(name).map(str::to_owned));
    assert_eq!(told, [Some("canary".into()), Some("true".into()), Some("7".into()), None, None]);
    for other in [json!(null), json!([1]), json!({}), json!(1.5), json!("x".repeat(257))] {
        let subject = judge(&rules(), &with("ring", other.clone())).unwrap();
        assert_eq!(subject.claim("ring"), None, "{other}");
    }
}
