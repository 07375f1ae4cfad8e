//! What the tests of running a gateway share: sample models on disk, model servers over them, a pool of them in a configuration.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "each test file uses its part")]

pub mod world;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use holdfast_model_server::{Layout, write_sample_repository};
use holdfast_testkit::raw::RawClient;
use holdfast_testkit::{Holdfast, ModelServer, TempDir, eventually};
use serde_json::{Value, json};

/// The command under test.
pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_holdfast"))
}

/// A folder of sample models, one file for each model and version.
pub fn repository(models: &[&str], versions: &[&str]) -> TempDir {
    let dir = TempDir::new();
    write_sample_repository(dir.path(), Layout::Names, models, versions).unwrap();
    dir
}

/// A model server over a repository, that answers and loads without delay unless `more` says otherwise.
pub async fn model_server(repository: &TempDir, name: &str, more: &[&str]) -> ModelServer {
    let folder = repository.path().to_str().unwrap();
    let mut args = vec!["--repository", folder, "--name", name];
    if !more.contains(&"--load-time") {
        args.extend(["--load-time", "10ms"]);
    }
    args.extend(more);
    ModelServer::start(binary(), &args).await
}

/// A request that the sample models understand.
pub fn ask(text: &str) -> Value {
    json!({ "inputs": [{ "name": "text", "shape": [1], "datatype": "BYTES", "data": [text] }] })
}

/// `versions:` of a model, as the configuration wants them.
pub fn versions(names: &[&str]) -> String {
    let rows = names.iter().map(|v| format!("{{ version: \"{v}\", size: 2GiB }}"));
    format!("[{}]", rows.collect::<Vec<_>>().join(", "))
}

/// One pool `main` with these servers, probed often, and one model `screen` with these versions.
pub fn one_pool(servers: &[&ModelServer], names: &[&str]) -> String {
    let replicas = servers.iter().enumerate();
    let replicas =
        replicas.map(|(i, s)| format!("      - {{ name: r{}, url: \"{}\", memory: 24GiB }}\n", i + 1, s.url()));
    format!(
        "auth: {{ trusted_header: x-tenant }}\npools:\n  - name: main\n    protocol: open-inference\n    residency: repository\n    \
         health: {{ interval: 200ms, timeout: 200ms }}\n    replicas:\n{}models:\n  \
         - {{ name: screen, pool: main, versions: {} }}\n",
        replicas.collect::<String>(),
        versions(names)
    )
}

/// Waits until a tenant's request is answered with 200, and gives the version that judged it.
pub async fn served(holdfast: &Holdfast, tenant: &str, path: &str) -> String {
    eventually("a request to be served", Duration::from_secs(15), async || {
        let answer = holdfast.infer(tenant, path, &ask("coffee")).await;
        (answer.status == 200).then(|| answer.header("x-holdfast-version").to_owned())
    })
    .await
}

/// A tenant's line.
pub fn tenant(name: &str, version: &str) -> String {
    format!("  - {{ name: {name}, subset: 1, pins: {{ screen: \"{version}\" }} }}\n")
}

/// Sends requests many at a time on one connection, and counts the answers by status.
pub async fn pipeline(addr: SocketAddr, requests: impl IntoIterator<Item = Vec<u8>>) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    let mut client = RawClient::connect(addr).await;
    let requests: Vec<Vec<u8>> = requests.into_iter().collect();
    for batch in requests.chunks(50) {
        client.write(batch.concat()).await;
        for request in batch {
            let method = String::from_utf8_lossy(request).split(' ').next().unwrap_or_default().to_owned();
            let answer = client
                .answer(&method)
                .await
                .unwrap_or_else(|e| panic!("{e} in answer to {}", String::from_utf8_lossy(request).escape_debug()));
            *counts.entry(answer.status).or_insert(0) += 1;
            if answer.header("connection").eq_ignore_ascii_case("close") {
                panic!("the connection is over after {}", String::from_utf8_lossy(request).escape_debug());
            }
        }
    }
    counts
}

/// The lines of a log file, each of which has to be one JSON object.
pub fn json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {}", line.escape_debug()));
    text.lines().map(parse).inspect(|line: &Value| assert!(line.is_object(), "{line}")).collect()
}
