//! A token, or a key, chooses the limits of its user among the plans that the operator lets it choose.

use std::path::Path;

use holdfast_identity::api_key;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Jwks, Signer, Stub, eventually};
use serde_json::json;

use super::fixture::{PATIENCE, Rig, claims_of, config, one};

const PLANS: &str = "plans:
  - { name: free, user: { requests: 2/30d } }
  - { name: gold, user: { requests: 5/30d }, tenant: { requests: 1/30d } }
  - { name: huge, user: { requests: 1000000/s } }
";

async fn rig(signer: &Signer) -> (Jwks, Rig, String) {
    let jwks = Jwks::start(&[signer.jwk("k1")]).await;
    let correct = V2::loaded(&[("screen", "1")]);
    let stub = Stub::start(move |request| correct.answer(request)).await;
    let (key, prefix, hash) = api_key::make([9; 38]);
    let keys =
        format!("keys: [{{ prefix: \"{prefix}\", hash: \"blake3:{}\", user: batch, plan: gold }}]", hash.to_hex());
    let auth = one(&jwks.url(), "plans: [free, gold, none]", "keys: true, bad_tokens: { rate: 0 }");
    let own = format!("name: acme, subset: 1, limits: {{ user: {{ requests: 3/30d }} }}, {keys},");
    let text = config(&auth, &stub.url()).replacen("name: acme, subset: 1,", &own, 1);
    let gateway = Holdfast::start(Path::new(env!("CARGO_BIN_EXE_holdfast")), &format!("{text}{PLANS}")).await;
    let rig = Rig { gateway, stub };
    let ready = format!("Bearer {}", signer.token("k1", &claims_of("ready")));
    eventually("the model to be ready", PATIENCE, async || {
        let told = rig.gateway.data.get("/v2/models/screen/ready", &[("authorization", &ready)]).await;
        (told.status == 200).then_some(())
    })
    .await;
    (jwks, rig, key)
}

/// How many requests are served until one is refused, at most so many.
async fn served(rig: &Rig, token: &str, most: u32) -> u32 {
    for count in 0..most {
        let answer = rig.infer(token).await;
        if answer.status != 200 {
            assert_eq!((answer.status.as_u16(), answer.header("x-holdfast-limit")), (429, "user-requests"));
            return count;
        }
    }
    most
}

#[tokio::test]
async fn a_users_plan_is_one_that_may_be_chosen_and_the_tenant_stays_under_its_own() {
    let signer = Signer::ec();
    let (_jwks, mut rig, key) = rig(&signer).await;
    let token = |user: &str, plan: Option<&str>, tenant: &str| {
        let mut claims = claims_of(user);
        claims["tenant"] = json!(tenant);
        claims["plan"] = plan.into();
        if plan.is_none() {
            claims.as_object_mut().unwrap().remove("plan");
        }
        signer.token("k1", &claims)
    };
    let gold = token("b", Some("gold"), "acme");
    for (token, count, why) in [
        (&token("a", Some("free"), "acme"), 2, "the plan that it chooses"),
        (&gold, 5, "of that plan only what it says of users"),
        (&key, 5, "a key chooses as well"),
        (&token("c", Some("huge"), "acme"), 3, "nobody lets it choose that one"),
        (&token("d", Some("none"), "acme"), 3, "there is no such plan"),
        (&token("e", None, "acme"), 3, "it chooses none"),
        (&token("f", Some("free"), "globex"), 2, "a tenant without limits of its own"),
        (&token("g", Some("huge"), "globex"), 9, "and nobody's limits there"),
        (&token("b", Some("free"), "acme"), 2, "each plan of a user counts by itself"),
    ] {
        assert_eq!(served(&rig, token, 9).await, count, "{why}");
    }
    let listed = rig.gateway.cli(&["limits", "list", "--tenant", "acme"]).await;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("who chooses gold") && !listed.contains("who chooses huge"), "{listed}");
    // A plan changes, and what was used stays used.
    rig.gateway.edit_config(|text| text.replace("requests: 5/30d", "requests: 7/30d"));
    eventually("the plan to be changed", PATIENCE, async || {
        let told = rig.gateway.admin_get("/v1/limits?tenant=acme").await.to_string();
        told.contains("\"amount\":7").then_some(())
    })
    .await;
    assert_eq!(served(&rig, &gold, 9).await, 2, "five of seven were used");
}
