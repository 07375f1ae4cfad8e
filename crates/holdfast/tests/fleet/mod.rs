//! A small fleet for tests: model servers over one repository of sample models, and a gateway in front of them.
//!
//! The configuration is a JSON value, which YAML can read, so that a test changes one field of it and writes it anew.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod scripted;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use holdfast_model_server::{Layout, PROBE, write_sample_repository};
use holdfast_testkit::http::Answer;
use holdfast_testkit::{Holdfast, ModelServer, TempDir, eventually};
use serde_json::{Value, json};

/// Long enough for a busy machine that is several times slower than a desk; what holds is seen at once.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The one model of most tests.
pub const INFER: &str = "/v2/models/screen/infer";

/// The program under test.
pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_holdfast"))
}

/// A repository with the versions `1` to `count` of `screen`.
pub fn samples(layout: Layout, count: usize) -> TempDir {
    let dir = TempDir::new();
    let names: Vec<String> = (1..=count).map(|v| v.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    write_sample_repository(dir.path(), layout, &["screen"], &names).expect("the samples can be written");
    dir
}

/// Writes a model of a repository a second time, under another name.
pub fn copy_model(repository: &TempDir, from: &str, to: &str) {
    let (from_dir, to_dir) = (repository.path().join(from), repository.path().join(to));
    std::fs::create_dir(&to_dir).expect("a new folder");
    let text = std::fs::read_to_string(from_dir.join("model.json")).expect("a model");
    std::fs::write(to_dir.join("model.json"), text.replace(from, to)).expect("the copy can be written");
}

/// Has a version take this long to load, whatever the server's flags say.
pub fn load_takes(repository: &TempDir, version: &str, time: &str) {
    let file = repository.path().join(format!("screen-{version}")).join("model.json");
    let mut model: Value = serde_json::from_slice(&std::fs::read(&file).expect("a model")).expect("JSON");
    model["load_time"] = json!(time);
    std::fs::write(file, model.to_string()).expect("the model can be written");
}

/// A model server over a repository.
pub async fn server(repository: &TempDir, more: &[&str]) -> ModelServer {
    let path = repository.path().to_str().expect("a path in UTF-8");
    let mut args = vec!["--repository", path, "--load-time", "50ms"];
    // Later flags may not be repeated: a test that names the load time has it its way.
    if more.contains(&"--load-time") {
        args.truncate(2);
    }
    args.extend(more);
    ModelServer::start(binary(), &args).await
}

/// A configuration of one pool with these replicas (named `r1`, `r2`, ...) and the versions `1` to `count` of `screen`, each of 2 GiB.
pub fn config(urls: &[String], count: usize, tenants: Value) -> Value {
    let replicas = urls.iter().enumerate().map(|(i, url)| json!({"name": format!("r{}", i + 1), "url": url}));
    let versions = (1..=count).map(|v| json!({"version": v.to_string(), "size": "2GiB"}));
    json!({
        "auth": {"trusted_header": "x-tenant"},
        "log": {"access": "errors"},
        "workers": 2,
        "pools": [{
            "name": "main",
            "protocol": "open-inference",
            "residency": "repository",
            // Without ease-in, so that replicas of equal load are equal.
            "health": {"interval": "500ms", "timeout": "500ms", "ease_in": "0s"},
            "replicas": replicas.collect::<Vec<_>>(),
        }],
        "models": [{"name": "screen", "pool": "main", "versions": versions.collect::<Vec<_>>()}],
        "tenants": tenants,
    })
}

/// The text of a configuration.
pub fn text(config: &Value) -> String {
    let sections = config.as_object().expect("sections");
    sections.iter().map(|(name, section)| format!("{name}: {section}\n")).collect()
}

/// Model servers and a gateway.
pub struct Fleet {
    /// The gateway. First, so that it ends first.
    pub gateway: Holdfast,
    /// The replicas `r1`, `r2`, ... in order.
    pub servers: Vec<ModelServer>,
    /// The configuration.
    pub config: Value,
    /// The models on disk.
    pub repository: TempDir,
}

impl Fleet {
    /// Starts `replicas` servers with these flags, and a gateway whose configuration `shape` may still change.
    pub async fn start(
        (replicas, flags): (usize, &[&str]),
        versions: usize,
        tenants: Value,
        shape: impl FnOnce(&mut Value),
    ) -> Self {
        let repository = samples(Layout::Names, versions);
        let mut servers = Vec::new();
        for _ in 0..replicas {
            servers.push(server(&repository, flags).await);
        }
        let urls: Vec<String> = servers.iter().map(ModelServer::url).collect();
        let mut config = config(&urls, versions, tenants);
        shape(&mut config);
        let gateway = Holdfast::start(binary(), &text(&config)).await;
        Self { gateway, servers, config, repository }
    }

    /// Writes a changed configuration, and asks for it to be read.
    pub fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.config);
        let text = text(&self.config);
        self.gateway.edit_config(|_| text);
        self.gateway.proc.sighup();
    }

    /// Pins `screen` to a version for the tenant of this number in the configuration.
    pub fn pin(&mut self, tenant: usize, version: &str) {
        self.edit(|config| config["tenants"][tenant]["pins"]["screen"] = json!(version));
    }

    /// An inference as this tenant.
    pub async fn infer(&self, tenant: &str) -> Answer {
        self.gateway.infer(tenant, INFER, &probe()).await
    }

    /// Waits until exactly so many replicas show the version.
    pub async fn wait_held(&self, version: &str, replicas: usize) {
        wait_held(&self.gateway, version, replicas).await;
    }

    /// Row of a replica in `/v1/replicas`.
    pub async fn replica(&self, name: &str) -> Value {
        replica(&self.gateway, name).await
    }

    /// How often the version's work began, over all servers that answer.
    pub async fn executions(&self) -> u64 {
        let mut sum = 0;
        for server in &self.servers {
            sum += executions(&server.stats().await);
        }
        sum
    }

    /// The revision in force.
    pub async fn revision(&self) -> u64 {
        self.gateway.admin_get("/v1/table").await["revision"].as_u64().expect("a revision")
    }

    /// Waits until the tenant's pin in force is this version; returns the revision seen with it.
    pub async fn wait_pin(&self, tenant: &str, version: &str) -> u64 {
        eventually(&format!("{tenant} to be pinned to {version}"), PATIENCE, async || {
            let table = self.gateway.admin_get("/v1/table").await;
            (pin_of(&table, tenant) == version).then(|| table["revision"].as_u64().expect("a revision"))
        })
        .await
    }
}

/// A tenant's pin of `screen` in `/v1/table`.
pub fn pin_of(table: &Value, tenant: &str) -> String {
    let rows = table["tenants"].as_array().expect("tenants");
    let row = rows.iter().find(|t| t["tenant"] == tenant).unwrap_or_else(|| panic!("no {tenant} in {table}"));
    row["pins"]["screen"].as_str().unwrap_or_default().to_owned()
}

/// Row of a replica in `/v1/replicas`.
pub async fn replica(gateway: &Holdfast, name: &str) -> Value {
    let all = gateway.admin_get("/v1/replicas").await;
    let rows = all["replicas"].as_array().expect("replicas");
    rows.iter().find(|r| r["replica"] == name).unwrap_or_else(|| panic!("no {name} in {all}")).clone()
}

/// Names of the replicas that show a version of `screen`, in order.
pub async fn holders(gateway: &Holdfast, version: &str) -> Vec<String> {
    let all = gateway.admin_get("/v1/replicas").await;
    let rows = all["replicas"].as_array().expect("replicas").iter();
    let holds = |r: &Value| {
        let held = r["holds"].as_array().expect("holdings");
        held.iter().any(|h| h["version"] == version && h["shown"] == true)
    };
    rows.filter(|r| holds(r)).filter_map(|r| r["replica"].as_str().map(str::to_owned)).collect()
}

/// Waits until exactly so many replicas show the version.
pub async fn wait_held(gateway: &Holdfast, version: &str, replicas: usize) {
    eventually(&format!("{replicas} holders of version {version}"), PATIENCE, async || {
        (holders(gateway, version).await.len() == replicas).then_some(())
    })
    .await;
}

/// The subset of a tenant's key for `screen`, as `/v1/explain` tells it.
pub async fn subset(gateway: &Holdfast, tenant: &str) -> Vec<String> {
    let told = gateway.admin_get(&format!("/v1/explain?tenant={tenant}&model=screen")).await;
    let members = told["subset"].as_array().unwrap_or_else(|| panic!("no subset in {told}"));
    members.iter().filter_map(|m| m["replica"].as_str().map(str::to_owned)).collect()
}

/// One tenant `acme`, pinned to version 1 of `screen`, that may name the others up to `count`.
pub fn acme(subset: usize, count: usize) -> Value {
    let allow: Vec<String> = (2..=count).map(|v| v.to_string()).collect();
    json!([{"name": "acme", "subset": subset, "pins": {"screen": "1"}, "allow": {"screen": allow}}])
}

/// The path of an inference by a version of `screen`.
pub fn path(version: &str) -> String {
    format!("/v2/models/screen/versions/{version}/infer")
}

/// An inference as `acme` by a version of `screen`, with a budget in milliseconds.
pub async fn ask_within(gateway: &Holdfast, version: &str, budget: &str) -> Answer {
    let headers = [("x-tenant", "acme"), ("x-request-timeout-ms", budget)];
    gateway.data.post(&path(version), &headers, &probe()).await
}

/// A count of loads in the servers' own statistics, over all of them.
pub async fn loads(servers: &[ModelServer], field: &str) -> u64 {
    let mut sum = 0;
    for server in servers {
        sum += server.stats().await["loads"][field].as_u64().expect("a count");
    }
    sum
}

/// The request that tells versions apart.
pub fn probe() -> Value {
    texts(&[PROBE])
}

/// A request for the judgement of texts.
pub fn texts(texts: &[&str]) -> Value {
    json!({"id": "7", "inputs": [{"name": "text", "datatype": "BYTES", "shape": [texts.len()], "data": texts}]})
}

/// What each version says to [`probe`], asked of a server of its own.
pub async fn judgements(versions: usize) -> BTreeMap<String, Value> {
    let repository = samples(Layout::Names, versions);
    let server = server(&repository, &["--load-all", "--memory", "1TiB"]).await;
    let mut all = BTreeMap::new();
    for version in (1..=versions).map(|v| v.to_string()) {
        let path = format!("/v2/models/screen-{version}/infer");
        let answer = eventually("the reference server to hold everything", PATIENCE, async || {
            Some(server.http.post(&path, &[], &probe()).await).filter(|a| a.status == 200)
        })
        .await;
        all.insert(version, answer.json()["outputs"].clone());
    }
    all
}

/// Executions in the statistics of a model server.
pub fn executions(stats: &Value) -> u64 {
    let all = stats["executions"].as_array().expect("executions");
    all.iter().filter_map(|e| e["count"].as_u64()).sum()
}

/// The receipt of an answer: it is there a moment after the answer's last byte.
pub async fn receipt(gateway: &Holdfast, answer: &Answer) -> Value {
    let path = format!("/v1/receipts/{}", answer.header("x-holdfast-request-id"));
    eventually("the receipt", PATIENCE, async || {
        let told = gateway.admin.get(&path, &[]).await;
        (told.status == 200).then(|| told.json())
    })
    .await
}

/// The answer came without a wait for anything but a connection; where it asked for a holder, it was told at once that there is none. Who waits
/// for a holder gets one, or has all of the default budget of 30 s, far more than a question takes.
pub async fn assert_not_kept_waiting(gateway: &Holdfast, answer: &Answer) {
    let told = receipt(gateway, answer).await;
    let waits = told["waits"].as_array().expect("waits");
    let at_once = |wait: &Value| wait["ended"] != "ready" && wait["took_us"].as_u64().is_some_and(|us| us < 10_000_000);
    assert!(waits.iter().all(|wait| wait["for"] == "connection" || at_once(wait)), "{told:#}");
}

/// Whether an answer is a refusal of this kind that tells when to come back.
pub fn is_shed(answer: &Answer, kind: &str) -> bool {
    let after = answer.header("retry-after").parse::<u64>().unwrap_or(0);
    answer.status == 503 && answer.header("x-holdfast-error") == kind && after >= 1
}
