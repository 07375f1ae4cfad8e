//! Gateways in front of a server that holds all versions, whose pins move at once; and what is looked at in an answer.

use std::path::Path;
use std::time::Duration;

use holdfast_testkit::http::Answer;
use holdfast_testkit::{Holdfast, Script, Stub, eventually};
use serde_json::{Value, json};

use super::fleet::{binary, text};

pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server that is whatever version it is asked for.
pub async fn server() -> Stub {
    Stub::start(|request| {
        let path = request.path.split('?').next().unwrap_or_default();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        match parts.as_slice() {
            ["v2", "models", name, "versions", version, "infer"] => Script::json(
                200,
                &json!({"model_name": name, "model_version": version, "outputs": [{"name": "x", "datatype": "INT32", "shape": [1], "data": [1]}]}),
            ),
            ["v2", "models", name, "versions", version] => Script::json(200, &json!({"name": name, "versions": [version]})),
            _ => Script::json(200, &json!({"ready": true})),
        }
    })
    .await
}

/// Two models in three versions; two tenants whose users are believed.
pub fn config(server: &Stub, more: &Value) -> Value {
    let versions = || (1..=3).map(|v| json!({"version": v.to_string()})).collect::<Vec<_>>();
    let holds: Vec<Value> = ["screen", "fraud"]
        .iter()
        .flat_map(|model| (1..=3).map(move |v| json!({"model": model, "version": v.to_string()})))
        .collect();
    let tenant = |name: &str| json!({"name": name, "subset": 1, "pins": {"screen": "1", "fraud": "1"}, "allow": {"screen": ["2"]}});
    let mut config = json!({
        "auth": {"trusted_header": "x-tenant", "trusted_user_header": "x-user"},
        "log": {"access": "errors"},
        "pools": [{"name": "p", "protocol": "open-inference", "residency": "static",
            "replicas": [{"name": "r1", "url": server.url(), "holds": holds}]}],
        "models": [{"name": "screen", "pool": "p", "versions": versions()}, {"name": "fraud", "pool": "p", "versions": versions()}],
        "tenants": [tenant("acme"), tenant("globex")],
    });
    for (name, section) in more.as_object().unwrap() {
        config[name] = section.clone();
    }
    config
}

/// One gateway and its server.
pub struct One {
    pub gateway: Holdfast,
    pub config: Value,
    pub server: Stub,
}

impl One {
    pub async fn start(more: Value) -> Self {
        let server = server().await;
        let config = config(&server, &more);
        let gateway = start(&config).await;
        Self { gateway, config, server }
    }

    pub async fn ask(&self, fields: &[(&str, &str)]) -> Answer {
        ask(&self.gateway, fields).await
    }
}

pub async fn start(config: &Value) -> Holdfast {
    let binary: &Path = binary();
    let gateway = Holdfast::start(binary, &text(config)).await;
    serves(&gateway).await;
    gateway
}

/// Waits until the gateway has proved what its server holds.
pub async fn serves(gateway: &Holdfast) {
    eventually("the model to be served", PATIENCE, async || (ask(gateway, &[]).await.status == 200).then_some(()))
        .await;
}

/// An inference of `screen`, as `acme` if no other tenant is named.
pub async fn ask(gateway: &Holdfast, fields: &[(&str, &str)]) -> Answer {
    ask_at(gateway, "/v2/models/screen/infer", fields).await
}

pub async fn ask_at(gateway: &Holdfast, path: &str, fields: &[(&str, &str)]) -> Answer {
    let mut fields = fields.to_vec();
    if !fields.iter().any(|(name, _)| *name == "x-tenant") {
        fields.push(("x-tenant", "acme"));
    }
    gateway.data.post(path, &fields, &json!({"inputs": []})).await
}

pub fn version_of(answer: &Answer) -> &str {
    answer.header("x-holdfast-version")
}

/// Version, revision and reason, of an answer that the named version gave.
#[track_caller]
pub fn resolved(answer: &Answer) -> (String, String, String) {
    assert_eq!(answer.status, 200, "{:?} {}", answer.headers, answer.text());
    assert_eq!(answer.json()["model_version"], version_of(answer), "what served is what is stamped");
    let field = |name: &str| answer.header(name).to_owned();
    (field("x-holdfast-version"), field("x-holdfast-revision"), field("x-holdfast-reason"))
}

/// A refusal: status, kind, and a part of its words.
#[track_caller]
pub fn refused(answer: &Answer, status: u16, kind: &str, words: &str) {
    let text = answer.text();
    assert!(
        answer.status == status && answer.header("x-holdfast-error") == kind && text.contains(words),
        "{} {text}",
        answer.status
    );
}
