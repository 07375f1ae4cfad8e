//! Files that a configuration names: where they are looked for, and what `check` says of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use holdfast_testkit::proc::free_port;
use holdfast_testkit::{Proc, Signer, TempDir, eventually};
use serde_json::{Value, json};

const BINARY: &str = env!("CARGO_BIN_EXE_holdfast");

/// A good file for an issuer whose keys are beside it, and two pins of 3 GB for one replica.
fn config(listen: &str, memory: &str) -> String {
    format!(
        "{listen}state: ./data
auth:
  jwt:
    - issuer: local
      jwks_file: keys/set.json
      algorithms: [ES256]
      audiences: []
      tenant: acme
pools:
  - name: first
    protocol: open-inference
    residency: static
    replicas: [{{ name: s1, url: \"http://127.0.0.1:9\", holds: [] }}]
  - name: screening
    protocol: open-inference
    residency: repository
    memory: guaranteed
    replicas:
      - {{ name: r1, url: \"http://127.0.0.1:10\", memory: {memory} }}
models:
  - {{ name: screen, pool: screening, versions: [{{ version: \"1\", size: 3GB }}, {{ version: \"2\", size: 3GB }}] }}
tenants:
  - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }} }}
  - {{ name: globex, subset: 1, pins: {{ screen: \"2\" }} }}
"
    )
}

fn check(from: &Path, file: &Path, more: &[&str]) -> Output {
    Command::new(BINARY).arg("check").arg(file).args(more).current_dir(from).output().unwrap()
}

fn told(from: &Path, file: &Path) -> Value {
    serde_json::from_slice(&check(from, file, &["--output", "json"]).stdout).unwrap()
}

#[test]
fn check_looks_into_files_beside_the_configuration_and_says_where_they_are_named() {
    let (dir, elsewhere) = (TempDir::new(), TempDir::new());
    let (file, keys) = (dir.join("holdfast.yaml"), dir.join("keys/set.json"));
    std::fs::create_dir(dir.join("keys")).unwrap();
    std::fs::write(&file, config("", "8GB")).unwrap();
    let faults = |told: &Value| {
        let faults = told["faults"].as_array().unwrap().clone();
        assert_eq!(told["total"], faults.len(), "{told}");
        faults
    };
    for (content, reason) in
        [(None, "No such file"), (Some("{}"), "no list of keys"), (Some("nonsense"), "no JSON object")]
    {
        if let Some(content) = content {
            std::fs::write(&keys, content).unwrap();
        }
        let found = faults(&told(elsewhere.path(), &file));
        assert_eq!((&found[0]["path"], &found[0]["line"]), (&json!("auth.jwt[0].jwks_file"), &json!(5)), "{found:?}");
        assert_eq!(found[0]["column"], 18, "{found:?}");
        assert!(found[0]["reason"].as_str().unwrap().contains(reason), "{found:?}");
        assert_eq!(found.len(), 1);
    }
    let signer = Signer::ec();
    std::fs::write(&keys, json!({ "keys": [signer.jwk("a"), { "kty": "oct", "k": "AA", "kid": "b" }] }).to_string())
        .unwrap();
    let good = told(elsewhere.path(), &file);
    assert_eq!((&good["ok"], &good["total"]), (&json!(true), &json!(0)), "{good}");
    let warned = good["warnings"].to_string();
    assert!(
        warned.contains("\"b\\\") would not be used") || warned.contains("(\\\"b\\\") would not be used"),
        "{warned}"
    );

    // Both pins are on the one replica.
    std::fs::write(&file, config("", "4GB")).unwrap();
    let found = faults(&told(elsewhere.path(), &file));
    let place = (&found[0]["path"], &found[0]["line"], &found[0]["column"]);
    assert_eq!(place, (&json!("pools[1].memory"), &json!(17), &json!(13)), "{found:?}");
    assert!(found[0]["reason"].as_str().unwrap().contains("do not fit"), "{found:?}");
    let text = check(elsewhere.path(), &file, &[]);
    let text = String::from_utf8_lossy(&text.stderr).into_owned();
    assert!(text.contains("holdfast.yaml:17:13: pools[1].memory: ") && text.contains("memory: guaranteed"), "{text}");
}

#[tokio::test]
async fn a_gateway_keeps_its_state_beside_its_file_wherever_it_is_started() {
    let (dir, elsewhere) = (TempDir::new(), TempDir::new());
    std::fs::create_dir(dir.join("keys")).unwrap();
    std::fs::write(dir.join("keys/set.json"), json!({ "keys": [Signer::ec().jwk("a")] }).to_string()).unwrap();
    let (data, admin) = (free_port(), free_port());
    let listen = format!("listen: {{ data: \"127.0.0.1:{data}\", admin: \"127.0.0.1:{admin}\" }}\n");
    std::fs::write(dir.join("holdfast.yaml"), config(&listen, "8GB")).unwrap();
    let mut command = Command::new(BINARY);
    command.arg("serve").arg(dir.join("holdfast.yaml")).current_dir(elsewhere.path());
    let gateway = Proc::start("holdfast", command);
    eventually("the store beside the file", Duration::from_secs(20), async || {
        dir.join("data/table.redb").exists().then_some(())
    })
    .await;
    eventually("the keys to be read", Duration::from_secs(20), async || {
        gateway.output().contains("the issuer's keys").then_some(())
    })
    .await;
    assert!(!gateway.output().contains("cannot be fetched"), "{}", gateway.output());
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}
