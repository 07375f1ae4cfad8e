//! A gateway in front of one stub replica, for tests of the bytes between a client and a replica.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use holdfast_testkit::raw::{RawAnswer, RawClient};
use holdfast_testkit::script::Script;
use holdfast_testkit::stub::{StubOptions, StubRequest};
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Stub, eventually};
use http::Method;

/// The path that the tests post to.
pub const INFER: &str = "/v2/models/screen/infer";
/// A small request body.
pub const BODY: &str = r#"{"id":"a","inputs":[]}"#;

/// The gateway and its replica.
pub struct Rig {
    pub gateway: Holdfast,
    pub stub: Stub,
}

/// What is different from a plain rig: lines of the configuration, at its top level and of its pool.
#[derive(Default)]
pub struct Differs {
    /// Whole top-level sections.
    pub top: &'static str,
    /// Fields of the pool, one line in flow style each, indented by four spaces.
    pub pool: &'static str,
    /// Fields of the replica, each beginning with a comma.
    pub replica: &'static str,
    /// Fields of the tenant, each beginning with a comma.
    pub tenant: &'static str,
    /// How the stub treats its connections.
    pub stub: StubOptions,
}

impl Rig {
    /// With a replica that answers everything correctly.
    pub async fn plain() -> Self {
        Self::with(Differs::default(), |_| None).await
    }

    /// With another configuration, and a replica that answers by `script` where that has an answer to an inference.
    pub async fn with(
        differs: Differs,
        script: impl Fn(&StubRequest) -> Option<Script> + Send + Sync + 'static,
    ) -> Self {
        let correct = V2::loaded(&[("screen", "1")]);
        let stub = Stub::start_with(differs.stub, move |request| {
            let special = if request.path.contains("/infer") { script(request) } else { None };
            special.unwrap_or_else(|| correct.answer(request))
        })
        .await;
        let config = config(&stub.url(), &differs);
        let gateway = start(&config).await;
        Self { gateway, stub }
    }

    /// A raw connection to the data port.
    pub async fn raw(&self) -> RawClient {
        RawClient::connect(self.gateway.data.addr()).await
    }

    /// One inference over the ordinary client; the status.
    pub async fn infer(&self) -> u16 {
        let sent = self.gateway.data.send(Method::POST, INFER, &TENANT, Bytes::from_static(BODY.as_bytes())).await;
        sent.unwrap_or_else(|e| panic!("no answer: {e}")).status.as_u16()
    }
}

/// The header that names the tenant.
pub const TENANT: [(&str, &str); 1] = [("x-tenant", "acme")];

/// The configuration of a gateway whose only replica is at `url`.
pub fn config(url: &str, differs: &Differs) -> String {
    format!(
        "auth: {{ trusted_header: x-tenant }}\n\
         {top}\n\
         pools:\n\
         \x20 - name: pool\n\
         \x20   protocol: open-inference\n\
         \x20   residency: static\n\
         {pool}\n\
         \x20   replicas:\n\
         \x20     - {{ name: r1, url: \"{url}\", holds: [{{ model: screen, version: \"1\" }}]{replica} }}\n\
         models:\n\
         \x20 - {{ name: screen, pool: pool, versions: [{{ version: \"1\" }}] }}\n\
         tenants:\n\
         \x20 - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }}{tenant} }}\n",
        top = differs.top,
        pool = differs.pool,
        replica = differs.replica,
        tenant = differs.tenant,
    )
}

/// Starts a gateway and waits until its model can be served.
pub async fn start(config: &str) -> Holdfast {
    let gateway = Holdfast::start(Path::new(env!("CARGO_BIN_EXE_holdfast")), config).await;
    eventually("the model to be ready", Duration::from_secs(15), async || {
        let ready = gateway.data.get("/v2/models/screen/ready", &TENANT).await;
        (ready.status.as_u16() == 200).then_some(())
    })
    .await;
    gateway
}

/// An inference as raw bytes, with further field lines, each ending in CR LF.
pub fn post(fields: &str) -> String {
    let length = BODY.len();
    format!(
        "POST {INFER} HTTP/1.1\r\nhost: gateway\r\nx-tenant: acme\r\n{fields}content-length: {length}\r\n\r\n{BODY}"
    )
}

/// A head without its blank line's company: the fields say how a body follows.
pub fn head(line: &str, fields: &str) -> String {
    format!("{line} HTTP/1.1\r\nhost: gateway\r\nx-tenant: acme\r\n{fields}\r\n")
}

/// The answer is an error in the protocol's shape, of this status and kind.
#[track_caller]
pub fn assert_error(answer: &RawAnswer, status: u16, kind: &str) {
    assert_eq!((answer.status, answer.header("x-holdfast-error")), (status, kind), "{}", answer.text());
    assert_eq!(answer.header("content-type"), "application/json");
    let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    assert!(json["error"].is_string(), "the protocol's error shape: {}", answer.text());
}

/// Resident memory of a process, in bytes.
pub fn rss(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Threads of a process that run or wait for a processor.
pub fn running_threads(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let ids = threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    // The state follows the name, which is in brackets: proc(5).
    let runs = |id: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{id}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('R'))
    };
    ids.filter(runs).collect()
}
