//! The cases of the Autobahn suite, as kosoku has them, against an echo behind the gateway: both of its sides, the one towards the client and the one towards the
//! model server, are in the way of each case.
//!
//! kosoku knows a host and a port and nothing else, so a small relay gives its handshakes a path and a tenant. Left out are groups 9 (large messages, minutes of them) and 12 and 13
//! (compression, which is not offered). `make test` installs it beside MLServer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "stream/echo.rs"]
#[allow(dead_code, reason = "each test file uses its part")]
mod echo;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use holdfast_testkit::{Holdfast, TempDir, eventually, mlserver};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// Of the whole run, on a busy machine.
const LIMIT: Duration = Duration::from_secs(115);

/// A good message, and a frame that breaks a rule behind it. The strict answer has the message's echo before the close; here the socket is closed once the fault is seen, which is
/// before the model server has said anything.
const NON_STRICT: [&str; 10] = ["3.2", "3.3", "3.4", "4.1.3", "4.1.4", "4.1.5", "4.2.3", "4.2.4", "4.2.5", "5.15"];

/// Gives each handshake the path and the tenant.
async fn relay(gateway: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut all = tokio::task::JoinSet::new();
        while let Ok((mut client, _)) = listener.accept().await {
            all.spawn(async move {
                let mut head = Vec::new();
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    if client.read_buf(&mut head).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let Some(line) = head.windows(2).position(|end| end == b"\r\n") else { return };
                let first = b"GET /v1/echo HTTP/1.1\r\nx-tenant: acme";
                let mut server = TcpStream::connect(gateway).await.unwrap();
                server.write_all(&[&first[..], &head[line..]].concat()).await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    addr
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cases_of_the_public_suite_pass_through_the_gateway() {
    let echo = echo::Echo::start().await;
    let config = format!(
        "auth: {{ trusted_header: x-tenant }}\nstream: {{ message: 64MiB, answer: 64MiB, fragments: 1000000, buffer: 16MiB, sockets_per_user: 1000, opens_per_minute: 1000000, \
         routes: [{{ path: /v1/echo, model: screen, upstream: /echo }}] }}\npools:\n  - {{ name: p, protocol: open-inference, residency: static, \
         replicas: [{{ name: r1, url: \"http://{}\", holds: [{{ model: screen, version: \"1\" }}] }}] }}\nmodels:\n  \
         - {{ name: screen, pool: p, versions: [{{ version: \"1\" }}] }}\ntenants:\n  - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }} }}\n",
        echo.addr
    );
    let gateway = Holdfast::start(Path::new(env!("CARGO_BIN_EXE_holdfast")), &config).await;
    eventually("the replica to be proven", Duration::from_secs(20), async || {
        let ready = gateway.data.get("/v2/models/screen/ready", &[("x-tenant", "acme")]).await;
        (ready.status == 200).then_some(())
    })
    .await;
    let dir = TempDir::new();
    let mut run = tokio::process::Command::new(mlserver::tool("kosoku"));
    run.args(["--parallelism", "8", "--exclude", "9.*", "--exclude", "12.*", "--exclude", "13.*", "--outdir"]);
    run.arg(dir.path()).arg(relay(gateway.data.addr()).await.to_string()).kill_on_drop(true);
    let output = tokio::time::timeout(LIMIT, run.output()).await.expect("the run to end in time").unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let report = std::fs::read(dir.path().join("index.json")).unwrap_or_else(|why| panic!("{why}: {told}"));
    let report: Value = serde_json::from_slice(&report).unwrap();
    let cases = report.as_object().and_then(|agents| agents.values().next()).and_then(Value::as_object).unwrap();
    let mut counts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (case, result) in cases {
        for verdict in [&result["behavior"], &result["behaviorClose"]] {
            counts.entry(verdict.as_str().unwrap()).or_default().push(case);
        }
    }
    assert!(cases.len() >= 240, "only {} cases: {told}", cases.len());
    let non_strict = counts.remove("NON-STRICT").unwrap_or_default();
    let unknown: Vec<_> = non_strict.into_iter().filter(|case| !NON_STRICT.contains(case)).collect();
    assert_eq!(unknown, Vec::<&str>::new(), "{told}");
    let others: BTreeMap<_, _> =
        counts.into_iter().filter(|(verdict, _)| !["OK", "INFORMATIONAL"].contains(verdict)).collect();
    assert_eq!(others, BTreeMap::new(), "{told}");
    assert!(!gateway.proc.output().contains("panicked"));
}
