//! What the tests of this crate share: one good configuration.
#![allow(dead_code, reason = "each test file uses its part")]

/// Uses every section. Line numbers matter to the golden table.
pub(crate) const GOOD: &str = r#"listen: { data: "127.0.0.1:7400", admin: "127.0.0.1:7401" }
state: ./data
truth: store
auth: { trusted_header: x-tenant }
limits: { body: 64MiB, headers: 100 }
timeouts: { request: 30s, drain: 10s }
stamps: [model, version]
loads: { fleet: 16 }
metrics: { tenants: 1000 }
log: { level: info }
workers: 2
pools:
  - name: screening
    protocol: open-inference
    residency: repository
    upstream: { model: "{model}-{version}", version: "" }
    health: { interval: 2s, timeout: 1s }
    replicas:
      - { name: r1, url: "http://127.0.0.1:9001", memory: 24GiB }
      - { name: r2, url: "http://127.0.0.1:9002", memory: 24GiB, weight: 0 }
  - name: fixed
    protocol: open-inference
    residency: static
    replicas:
      - { name: s1, url: "http://[::1]:9003", holds: [{ model: rank, version: a }] }
models:
  - name: screen
    pool: screening
    versions:
      - { version: "1", size: 2GiB }
      - { version: "2", size: 2GiB, golden: [{ input: { x: 1 }, output: { y: 2 } }] }
  - name: rank
    pool: fixed
    versions: [{ version: a }]
tenants:
  - { name: acme, subset: 2, pins: { screen: "1" }, allow: { screen: ["2"] } }
  - { name: globex, pins: { rank: a }, unavailable: shed }
"#;

/// The good configuration with one piece of text changed. The piece must be there exactly once.
pub(crate) fn good_but(from: &str, to: &str) -> String {
    assert_eq!(GOOD.matches(from).count(), 1, "{from:?} must be there once");
    GOOD.replacen(from, to, 1)
}
