//! A gateway that gives tokens, in front of one stub replica, and what asks it for them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use holdfast_identity::base64;
use holdfast_testkit::http::Answer;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Stub, eventually};
use http::Method;
use serde_json::{Value, json};

const INFER: &str = "/v2/models/screen/infer";
/// Long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(40);
/// Who signs.
pub const ISSUER: &str = "https://gateway.example";

pub struct Rig {
    pub gateway: Holdfast,
    _stub: Stub,
}

/// An API key.
pub struct Key {
    pub id: String,
    pub secret: String,
}

impl Rig {
    /// `tokens` is what the section has beside the issuer.
    pub async fn start(tokens: &str) -> Self {
        Self::start_with(tokens, "bad_tokens: { rate: 0 }, ").await
    }

    /// The same with something beside the section.
    pub async fn start_with(tokens: &str, beside: &str) -> Self {
        let rig = Self::of(&format!("{beside}keys: true, tokens: {{ issuer: \"{ISSUER}\", {tokens} }}")).await;
        rig.has_keys().await;
        rig
    }

    /// Without the section.
    pub async fn off() -> Self {
        Self::of("keys: true").await
    }

    async fn of(auth: &str) -> Self {
        let correct = V2::loaded(&[("screen", "1")]);
        let stub = Stub::start(move |request| correct.answer(request)).await;
        let url = stub.url();
        let text = format!(
            "truth: store\nauth: {{ {auth} }}\npools:\n  - {{ name: pool, protocol: open-inference, residency: static, replicas: [ {{ name: r1, url: \"{url}\", \
             holds: [ {{ model: screen, version: \"1\" }} ] }} ] }}\nmodels:\n  - {{ name: screen, pool: pool, versions: [ {{ version: \"1\" }} ] }}\n\
             tenants:\n  - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }} }}\n"
        );
        let gateway = Holdfast::start(Path::new(env!("CARGO_BIN_EXE_holdfast")), &text).await;
        Self { gateway, _stub: stub }
    }

    async fn has_keys(&self) {
        eventually("keys", PATIENCE, async || (!self.key_set().await.is_empty()).then_some(())).await;
    }

    /// Ends it without a word, and starts it again.
    pub async fn restart(&mut self) {
        self.gateway.restart().await;
        self.has_keys().await;
    }

    /// The names of the published keys.
    pub async fn key_set(&self) -> Vec<String> {
        let set = self.gateway.data.get("/.well-known/jwks.json", &[]).await.expect(200).json();
        set["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
    }

    /// A new API key of `acme`, once the gateway knows it.
    pub async fn key(&self, more: &[&str]) -> Key {
        let made = self.gateway.cli_json(&[&["key", "create", "acme"], more].concat()).await;
        let secret = made["key"].as_str().unwrap().to_owned();
        let key = Key { id: secret[..16].to_owned(), secret };
        self.becomes(&key.secret, 200).await;
        key
    }

    /// What a key gets.
    pub async fn token(&self, key: &Key) -> Value {
        let client = (key.id.clone(), key.secret.clone());
        let answer = self.ask(&[("grant_type", "client_credentials")], Some(&client)).await.expect(200);
        assert_eq!((answer.header("cache-control"), answer.header("pragma")), ("no-store", "no-cache"));
        answer.json()
    }

    /// Asks for a token with this form, and this client by HTTP Basic.
    pub async fn ask(&self, form: &[(&str, &str)], client: Option<&(String, String)>) -> Answer {
        let body: Vec<String> =
            form.iter().map(|(name, value)| format!("{name}={}", value.replace(' ', "+"))).collect();
        let basic = client.map(|(id, secret)| format!("Basic {}", padded(&format!("{id}:{secret}"))));
        let mut fields = vec![("content-type", "application/x-www-form-urlencoded")];
        fields.extend(basic.as_deref().map(|basic| ("authorization", basic)));
        self.gateway.data.send(Method::POST, "/oauth/token", &fields, Bytes::from(body.join("&"))).await.unwrap()
    }

    /// The form is refused so.
    pub async fn refused(&self, form: &[(&str, &str)], status: u16, error: &str) {
        let answer = self.ask(form, None).await;
        self.is(&answer, status, error);
    }

    /// An answer is a refusal as RFC 6749 (5.2) has it.
    #[track_caller]
    pub fn is(&self, answer: &Answer, status: u16, error: &str) {
        let told = answer.json();
        assert_eq!((answer.status.as_u16(), told["error"].as_str()), (status, Some(error)), "{told}");
        assert!(told["error_description"].is_string() && answer.header("cache-control") == "no-store", "{told}");
    }

    pub async fn infer(&self, token: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        self.gateway.data.post(INFER, &[("authorization", &bearer)], &json!({ "inputs": [] })).await
    }

    /// Waits until a token or a key gets this status.
    pub async fn becomes(&self, token: &str, status: u16) {
        eventually(&format!("the token to get {status}"), PATIENCE, async || {
            (self.infer(token).await.status == status).then_some(())
        })
        .await;
    }

    /// Has PyJWT check a token by the published keys; gives its claims.
    pub async fn py_jwt(&self, token: &str) -> Value {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let venv = std::env::var_os("HOLDFAST_TOKENS_VENV").map_or_else(|| root.join(".venv-tokens"), PathBuf::from);
        let python = venv.join("bin/python");
        assert!(
            python.exists(),
            "PyJWT is not installed: `make test` or scripts/need-tokens.sh installs it into .venv-tokens"
        );
        let set = self.gateway.data.get("/.well-known/jwks.json", &[]).await.expect(200).text();
        let code = "import json,sys,jwt; t,s,i=sys.argv[1:]; k=jwt.get_unverified_header(t)['kid']; \
                    key=next(k2 for k2 in jwt.PyJWKSet.from_json(s).keys if k2.key_id==k); \
                    print(json.dumps(jwt.decode(t,key.key,algorithms=['EdDSA'],audience='holdfast',issuer=i)))";
        let output =
            tokio::process::Command::new(python).args(["-c", code, token, &set, ISSUER]).output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Base64 with padding.
fn padded(text: &str) -> String {
    let mut out = base64::encode(text.as_bytes()).replace('-', "+").replace('_', "/");
    while !out.len().is_multiple_of(4) {
        out.push('=');
    }
    out
}

fn part(token: &str, number: usize) -> Value {
    serde_json::from_slice(&base64::decode(token.split('.').nth(number).unwrap().as_bytes()).unwrap()).unwrap()
}

/// A token's header.
pub fn header(token: &str) -> Value {
    part(token, 0)
}

/// A token's claims.
pub fn claims(token: &str) -> Value {
    part(token, 1)
}
