//! Tokens of an independent maker, and whom they name.

use std::path::{Path, PathBuf};

use holdfast_testkit::{Jwks, Signer, eventually};
use serde_json::{Value, json};

use super::fixture::{ISSUER, PATIENCE, Rig, assert_refused, claims, claims_of, one, simple};

/// What PyJWT makes.
async fn made() -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let venv = std::env::var_os("HOLDFAST_TOKENS_VENV").map_or_else(|| root.join(".venv-tokens"), PathBuf::from);
    let python = venv.join("bin/python");
    assert!(
        python.is_file(),
        "PyJWT is not installed: `make test` or scripts/need-tokens.sh installs it into .venv-tokens"
    );
    let script = root.join("scripts/make_tokens.py");
    let output = tokio::process::Command::new(python).arg(script).arg(ISSUER).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn tokens_made_by_pyjwt() {
    let made = made().await;
    let jwks = Jwks::start(made["jwks"]["keys"].as_array().unwrap()).await;
    let rig = Rig::of(&jwks.url(), "leeway: 30s").await;
    let (mut good, mut bad) = (0, 0);
    for one in made["tokens"].as_array().unwrap() {
        let (name, token) = (one["name"].as_str().unwrap(), one["token"].as_str().unwrap());
        let answer = rig.infer(token).await;
        if one["good"] == true {
            assert_eq!(answer.status, 200, "{name}: {}", answer.text());
            assert_eq!(answer.header("x-holdfast-version"), "1", "{name}");
            good += 1;
        } else {
            eprintln!("{name}: {}", answer.header("www-authenticate"));
            assert_refused(&answer, 401, "unauthenticated");
            bad += 1;
        }
    }
    assert_eq!((good, bad), (50, 80));
    assert_eq!(rig.stub.executions(), 50, "nothing that was refused reached the replica");
    assert!(
        (2..=4).contains(&jwks.fetches()),
        "the first, and one in each pause for bad signatures: {}",
        jwks.fetches()
    );
}

#[tokio::test]
async fn a_token_names_its_tenant_and_nothing_else_does() {
    let (signer, _jwks, rig) = simple("").await;
    let bearer = format!("Bearer {}", signer.token("k1", &claims()));
    let forged = [
        ("authorization", bearer.as_str()),
        ("x-tenant", "globex"),
        ("x-holdfast-tenant", "globex"),
        ("X_Holdfast_Tenant", "globex"),
        ("x-holdfast-user", "root"),
        ("x-forwarded-user", "root"),
    ];
    let answer = rig.infer_with(&forged).await.expect(200);
    let seen = rig.stub.requests();
    let seen = seen.iter().rev().find(|r| r.path.ends_with("/infer")).unwrap();
    assert_eq!(seen.header("x-holdfast-tenant"), "acme");
    assert_eq!(
        seen.headers.iter().filter(|(name, _)| name.to_lowercase().replace('_', "-") == "x-holdfast-tenant").count(),
        1
    );
    assert_eq!(seen.header("authorization"), "", "a replica could use the token itself");
    assert_eq!(seen.header("x-holdfast-user"), "");

    // The receipt says who.
    let path = format!("/v1/receipts/{}", answer.header("x-holdfast-request-id"));
    let receipt = eventually("the receipt", PATIENCE, async || {
        let told = rig.gateway.admin.get(&path, &[]).await;
        (told.status == 200).then(|| told.json())
    })
    .await;
    let who =
        json!({ "issuer": ISSUER, "tenant": "acme", "user": "user-1", "plan": "gold", "device": null, "scopes": [] });
    assert_eq!((&receipt["who"], &receipt["tenant"]), (&who, &json!("acme")));
    let told = rig.gateway.cli(&["receipt", answer.header("x-holdfast-request-id")]).await;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let line = format!("who         issuer {ISSUER}, plan gold, tenant acme, user user-1");
    assert!(told.lines().any(|is| is == line), "{told}");

    // Without a token, every name that a client gives itself is nothing.
    for fields in [
        &[][..],
        &[("x-tenant", "acme")],
        &[("x-holdfast-tenant", "acme")],
        &[("authorization", "Basic YWNtZTphY21l")],
        &[("authorization", "Bearer ")],
        &[("proxy-authorization", bearer.as_str())],
        &[("authorization", bearer.as_str()), ("authorization", bearer.as_str())],
    ] {
        assert_refused(&rig.infer_with(fields).await, 401, "unauthenticated");
    }
    let bare = rig.infer_with(&[]).await;
    assert_eq!(bare.header("www-authenticate"), "Bearer realm=\"holdfast\"");
    let ready = rig.gateway.data.get("/v2/models/screen/ready", &[]).await;
    assert_refused(&ready, 401, "unauthenticated");
    // Health needs nobody.
    assert_eq!(rig.gateway.data.get("/v2/health/live", &[]).await.status, 200);
    assert_eq!(rig.stub.executions(), 2);
    assert!(rig.tokens("absent").await >= 6.0 && rig.tokens("verified").await >= 1.0);
}

/// A request that insists on a revision is looked at before it is entered. Its token is looked at once all the same, so that a bad one counts once
/// against its address.
#[tokio::test]
async fn who_insists_on_a_revision_is_asked_once_who_it_is() {
    let (signer, _jwks, rig) = simple("").await;
    let forged = Signer::ed().token("k1", &claims());
    let send = async |token: &str, revision: &str| {
        let bearer = format!("Bearer {token}");
        let fields = [("authorization", bearer.as_str()), ("x-holdfast-min-revision", revision), BUDGET];
        rig.infer_with(&fields).await
    };
    // The first bad one has the keys fetched; those after it fall into the pause.
    assert_refused(&send(&forged, "1").await, 401, "unauthenticated");
    let all = async || {
        let metrics = rig.gateway.metrics().await;
        let of = |outcome| metrics.sum("holdfast_tokens_total", &[("outcome", outcome)]);
        [of("signature"), of("cached") + of("verified"), of("absent")]
    };
    for (token, revision, status, rise) in [
        (forged.as_str(), "1", 401, [1.0, 0.0, 0.0]),
        (&forged, "999999", 401, [1.0, 0.0, 0.0]),
        (&signer.token("k1", &claims()), "1", 200, [0.0, 1.0, 0.0]),
        ("", "1", 401, [0.0, 0.0, 1.0]),
    ] {
        let before = all().await;
        let answer = send(token, revision).await;
        assert_eq!(answer.status, status, "{}", answer.text());
        let risen: Vec<f64> = all().await.iter().zip(before).map(|(now, before)| now - before).collect();
        assert_eq!(risen, rise, "{token} {revision}");
    }
    // A good one waits for its table.
    let late = send(&signer.token("k1", &claims_of("late")), "999999").await;
    assert_eq!((late.status.as_u16(), late.header("x-holdfast-error")), (503, "no_holder"), "{}", late.text());
}

const BUDGET: (&str, &str) = ("x-request-timeout-ms", "300");

#[tokio::test]
async fn a_verified_token_is_found_again_and_a_tenant_needs_its_place() {
    let (signer, _jwks, rig) = simple("tenants: [acme, stranger]").await;
    let token = signer.token("k1", &claims());
    for _ in 0..50 {
        rig.good(&token).await;
    }
    assert!(rig.tokens("cached").await >= 40.0);
    assert!(
        rig.tokens("verified").await
            <= 2.0 + f64::from(u32::try_from(std::thread::available_parallelism().unwrap().get()).unwrap())
    );
    for (tenant, status, kind) in [
        ("Acme", 401, "unauthenticated"),
        ("globex", 401, "unauthenticated"),
        ("", 401, "unauthenticated"),
        ("stranger", 403, "forbidden"),
    ] {
        let mut claims = claims();
        claims["tenant"] = json!(tenant);
        let answer = rig.infer(&signer.token("k1", &claims)).await;
        assert_eq!((answer.status.as_u16(), answer.header("x-holdfast-error")), (status, kind), "{tenant:?}");
    }
    let metrics = rig.gateway.metrics().await;
    assert_eq!(metrics.matching("holdfast_requests_total", &[("tenant", "Acme")]).count(), 0);
    assert_eq!(metrics.matching("holdfast_requests_total", &[("tenant", "stranger")]).count(), 0);
}

#[tokio::test]
async fn a_token_ends_also_where_it_is_remembered() {
    let (signer, _jwks, rig) = simple("leeway: 0s").await;
    let mut claims = claims_of("short");
    claims["exp"] = json!(holdfast_testkit::jwks::now() + 3);
    let token = signer.token("k1", &claims);
    rig.good(&token).await;
    eventually("the token to end", PATIENCE, async || {
        let answer = rig.infer(&token).await;
        (answer.status == 401).then(|| assert_refused(&answer, 401, "unauthenticated"))
    })
    .await;
    assert!(rig.tokens("expired").await >= 1.0);
}

#[tokio::test]
async fn issuers_come_and_go_with_a_reload() {
    let (first, second) = (Signer::ed(), Signer::ec());
    let (one_jwks, two_jwks) = (Jwks::start(&[first.jwk("a")]).await, Jwks::start(&[second.jwk("b")]).await);
    let other = "https://other.example";
    let both = format!(
        "{}, {{ issuer: \"{other}\", jwks_url: \"{}\", algorithms: [ES256], audiences: [], tenant: globex }}]",
        one(&one_jwks.url(), "", "bad_tokens: { rate: 0 }").strip_suffix(']').unwrap(),
        two_jwks.url()
    );
    let mut rig = Rig::start(&both).await;
    let mut foreign = claims();
    foreign["iss"] = json!(other);
    let (ours, theirs) = (first.token("a", &claims()), second.token("b", &foreign));
    rig.serves(&ours).await;
    rig.serves(&theirs).await;
    let seen = rig.stub.requests();
    let last = seen.iter().rev().find(|r| r.path.ends_with("/infer")).unwrap();
    assert_eq!(last.header("x-holdfast-tenant"), "globex", "no claim passes a fixed tenant by");
    // One issuer's key signs nothing of another.
    assert_refused(&rig.infer(&second.token("b", &claims())).await, 401, "unauthenticated");
    let before = one_jwks.fetches();
    rig.gateway.edit_config(|text| text.replace(&both, &one(&one_jwks.url(), "", "bad_tokens: { rate: 0 }")));
    eventually("the other issuer to be gone", PATIENCE, async || {
        let answer = rig.infer(&theirs).await;
        (answer.status == 401).then_some(())
    })
    .await;
    rig.good(&ours).await;
    assert_eq!(one_jwks.fetches(), before, "what has not changed keeps its keys");
}
