//! A gateway whose tenants are proved by tokens, in front of one stub replica.

use std::path::Path;
use std::time::Duration;

use holdfast_testkit::http::Answer;
use holdfast_testkit::jwks::now;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Jwks, Signer, Stub, eventually};
use serde_json::{Value, json};

pub const INFER: &str = "/v2/models/screen/infer";
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The issuer of all tokens here.
pub const ISSUER: &str = "https://id.example";

pub struct Rig {
    pub gateway: Holdfast,
    pub stub: Stub,
}

impl Rig {
    /// `auth` is the section's content in flow style.
    pub async fn start(auth: &str) -> Self {
        let correct = V2::loaded(&[("screen", "1")]);
        let stub = Stub::start(move |request| correct.answer(request)).await;
        let config = config(auth, &stub.url());
        let gateway = Holdfast::start(Path::new(env!("CARGO_BIN_EXE_holdfast")), &config).await;
        let rig = Self { gateway, stub };
        eventually("the replica to be proven", PATIENCE, async || {
            let told = rig.gateway.admin_get("/v1/replicas").await.to_string();
            told.contains("\"1\"").then_some(())
        })
        .await;
        rig
    }

    /// With one issuer whose keys are at this URL, and these further fields of it.
    pub async fn of(url: &str, more: &str) -> Self {
        Self::start(&one(url, more, "bad_tokens: { rate: 0 }")).await
    }

    pub async fn infer(&self, token: &str) -> Answer {
        self.infer_with(&[("authorization", &format!("Bearer {token}"))]).await
    }

    /// It is served.
    pub async fn good(&self, token: &str) {
        let _ = self.infer(token).await.expect(200);
    }

    pub async fn infer_with(&self, fields: &[(&str, &str)]) -> Answer {
        self.gateway.data.post(INFER, fields, &json!({ "inputs": [] })).await
    }

    /// Waits until a good token is served: keys and replica are there.
    pub async fn serves(&self, token: &str) {
        eventually("a good token to be served", PATIENCE, async || {
            let answer = self.infer(token).await;
            (answer.status == 200).then_some(())
        })
        .await;
    }

    pub async fn tokens(&self, outcome: &str) -> f64 {
        self.gateway.metrics().await.sum("holdfast_tokens_total", &[("outcome", outcome)])
    }
}

/// The section's content with one issuer.
pub fn one(url: &str, more: &str, beside: &str) -> String {
    let algorithms = "[RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA]";
    format!(
        "{beside}, jwt: [{{ issuer: \"{ISSUER}\", jwks_url: \"{url}\", algorithms: {algorithms}, audiences: [holdfast], \
         claims: {{ tenant: tenant, plan: plan }}, {more} }}]"
    )
}

pub fn config(auth: &str, url: &str) -> String {
    format!(
        "auth: {{ {auth} }}\npools:\n  - name: pool\n    protocol: open-inference\n    residency: static\n    replicas:\n      \
         - {{ name: r1, url: \"{url}\", holds: [{{ model: screen, version: \"1\" }}] }}\nmodels:\n  \
         - {{ name: screen, pool: pool, versions: [{{ version: \"1\" }}] }}\ntenants:\n  \
         - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }} }}\n  - {{ name: globex, subset: 1, pins: {{ screen: \"1\" }} }}\n"
    )
}

/// Good claims.
pub fn claims() -> Value {
    let now = now();
    json!({ "iss": ISSUER, "aud": "holdfast", "tenant": "acme", "sub": "user-1", "plan": "gold", "iat": now, "exp": now + 3_600 })
}

/// The same for another user, so that the token is another one.
pub fn claims_of(user: &str) -> Value {
    let mut claims = claims();
    claims["sub"] = json!(user);
    claims
}

/// A key, its server, and a gateway that knows both.
pub async fn simple(more: &str) -> (Signer, Jwks, Rig) {
    let signer = Signer::ed();
    let jwks = Jwks::start(&[signer.jwk("k1")]).await;
    let rig = Rig::of(&jwks.url(), more).await;
    rig.serves(&signer.token("k1", &claims_of("first"))).await;
    (signer, jwks, rig)
}

/// A refusal in the protocol's shape, from which no version can be learned.
#[track_caller]
pub fn assert_refused(answer: &Answer, status: u16, kind: &str) {
    assert_eq!((answer.status.as_u16(), answer.header("x-holdfast-error")), (status, kind), "{}", answer.text());
    assert!(answer.json()["error"].is_string(), "{}", answer.text());
    for stamp in ["x-holdfast-version", "x-holdfast-model", "x-holdfast-revision", "x-holdfast-reason"] {
        assert_eq!(answer.header(stamp), "", "{stamp}");
    }
    let challenge = answer.header("www-authenticate");
    assert_eq!(challenge.starts_with("Bearer realm="), status == 401, "{challenge}");
    assert_eq!(answer.header("retry-after").is_empty(), status == 401, "{:?}", answer.headers);
}
