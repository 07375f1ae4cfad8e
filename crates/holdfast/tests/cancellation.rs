//! Clients leave at every moment of a request; nothing of them stays behind, and the gateway goes on serving.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod operation_support;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use holdfast_testkit::http::Client;
use holdfast_testkit::{Holdfast, Metrics, ModelServer, eventually};
use operation_support::{ask, binary, model_server, repository, served, versions};

/// Clients in all, and at a time.
const CLIENTS: u64 = 480;
const AT_A_TIME: usize = 60;
/// Versions that only a load can bring, one client group each.
const COLD: [&str; 8] = ["2", "3", "4", "5", "6", "7", "8", "9"];

/// Where a client leaves.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// Within the head.
    Head,
    /// Within a body that is read whole.
    SmallBody,
    /// Within a body that streams through.
    LargeBody,
    /// While its version is loaded.
    Load,
    /// While the replica judges.
    Upstream,
    /// Within the answer.
    Answer,
}

const MOMENTS: [Moment; 6] =
    [Moment::Head, Moment::SmallBody, Moment::LargeBody, Moment::Load, Moment::Upstream, Moment::Answer];

/// A small generator: the same moments in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn config(slow: &ModelServer, streams: &ModelServer, loads: &ModelServer) -> String {
    let pool = |name: &str, server: &ModelServer| {
        format!(
            "  - name: {name}\n    protocol: open-inference\n    residency: repository\n    connections: {{ idle: 300ms, warm: 0 }}\n    \
             health: {{ interval: 200ms, timeout: 200ms, fall: 100 }}\n    \
             replicas: [{{ name: {name}-1, url: \"{}\", memory: 24GiB }}]\n",
            server.url()
        )
    };
    let all: Vec<&str> = std::iter::once("1").chain(COLD).collect();
    let allow: Vec<String> = COLD.iter().map(|v| format!("\"{v}\"")).collect();
    format!(
        "auth: {{ trusted_header: x-tenant }}\nlimits: {{ buffer: 8KiB, answer_head: 1KiB }}\npools:\n{}{}{}models:\n  \
         - {{ name: slow, pool: slow, versions: {one} }}\n  - {{ name: stream, pool: stream, versions: {one} }}\n  \
         - {{ name: cold, pool: cold, versions: {} }}\ntenants:\n  \
         - {{ name: acme, subset: 1, pins: {{ slow: \"1\", stream: \"1\", cold: \"1\" }}, allow: {{ cold: [{}] }} }}\n",
        pool("slow", slow),
        pool("stream", streams),
        pool("cold", loads),
        versions(&all),
        allow.join(", "),
        one = versions(&["1"]),
    )
}

fn target(moment: Moment, draw: &mut Draw) -> String {
    match moment {
        Moment::Load => {
            let version = COLD[usize::try_from(draw.below(COLD.len() as u64)).unwrap()];
            format!("/v2/models/cold/versions/{version}/infer")
        }
        Moment::Answer => "/v2/models/stream/infer".to_owned(),
        _ => "/v2/models/slow/infer".to_owned(),
    }
}

/// The bytes that one client sends before it leaves, and how long it stays after that.
struct Visit {
    bytes: Vec<u8>,
    stay: Duration,
    /// It has seen the beginning of the answer.
    reads: bool,
    resets: bool,
}

fn visit(moment: Moment, draw: &mut Draw) -> Visit {
    let body = ask(&"coffee ".repeat(if matches!(moment, Moment::LargeBody) { 20_000 } else { 40 })).to_string();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: h\r\nx-tenant: acme\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        target(moment, draw),
        body.len()
    );
    let whole = format!("{head}{body}").into_bytes();
    let within = |draw: &mut Draw, from: usize, to: usize| from + draw.below((to - from) as u64) as usize;
    let sent = match moment {
        Moment::Head => within(draw, 1, head.len()),
        Moment::SmallBody | Moment::LargeBody => within(draw, head.len(), whole.len()),
        _ => whole.len(),
    };
    Visit {
        bytes: whole[..sent].to_vec(),
        stay: Duration::from_millis(draw.below(80)),
        reads: matches!(moment, Moment::Answer),
        resets: draw.below(2) == 0,
    }
}

async fn leave_h1(addr: SocketAddr, visit: Visit) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    // A server that has already refused may close: that is an end like any other.
    let _ = stream.write_all(&visit.bytes).await;
    if visit.reads {
        let _ = stream.read(&mut [0; 64]).await;
    }
    tokio::time::sleep(visit.stay).await;
    if visit.resets {
        let _ = stream.set_zero_linger();
    }
}

/// Four requests on one connection: all are left, half of them by the end of their stream, half by the end of the connection.
async fn leave_h2(addr: SocketAddr, mut draw: Draw) {
    let stream = TcpStream::connect(addr).await.unwrap();
    let (sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let driver = tokio::spawn(driver);
    let mut streams = JoinSet::new();
    for moment in [Moment::Load, Moment::Upstream, Moment::Answer, Moment::Answer] {
        let uri = format!("http://h{}", target(moment, &mut draw));
        let request = Request::post(uri).header("x-tenant", "acme");
        let request = request.body(Full::new(Bytes::from(ask("coffee").to_string()))).unwrap();
        let (mut sender, stay) = (sender.clone(), Duration::from_millis(draw.below(120)));
        streams.spawn(async move {
            let reading = async {
                let Ok(mut answer) = sender.send_request(request).await else { return };
                while let Some(Ok(_)) = answer.frame().await {}
            };
            // Dropping the exchange resets its stream.
            let _ = tokio::time::timeout(stay, reading).await;
        });
    }
    streams.join_next().await;
    streams.join_next().await;
    driver.abort();
    streams.shutdown().await;
}

async fn all_leave(addr: SocketAddr) {
    let mut running = JoinSet::new();
    for client in 0..CLIENTS {
        while running.len() >= AT_A_TIME {
            running.join_next().await.unwrap().unwrap();
        }
        let mut draw = Draw(client * 7919 + 17);
        if client % 8 == 7 {
            running.spawn(leave_h2(addr, draw));
        } else {
            let moment = MOMENTS[usize::try_from(draw.below(MOMENTS.len() as u64)).unwrap()];
            running.spawn(leave_h1(addr, visit(moment, &mut draw)));
        }
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap();
    }
}

/// Everything that is still counted, by name; empty when nothing of any client is left.
fn left_over(metrics: &Metrics, replicas: &Value, stats: &[Value]) -> Vec<String> {
    let mut left = Vec::new();
    let mut note = |what: &str, value: f64| {
        if value != 0.0 {
            left.push(format!("{what} = {value}"));
        }
    };
    for gauge in ["holdfast_in_flight", "holdfast_waiting_requests", "holdfast_replica_in_flight"] {
        note(gauge, metrics.sum(gauge, &[]));
    }
    note("connections", metrics.sum("holdfast_connections", &[("listener", "data")]));
    note("loads", metrics.sum("holdfast_loads_in_flight", &[]));
    note("load queue", metrics.sum("holdfast_load_queue", &[]));
    note("waiting", replicas["waiting"].as_f64().unwrap());
    for replica in replicas["replicas"].as_array().unwrap() {
        for count in ["in_flight", "connections", "loads_in_flight"] {
            note(&format!("{} {count}", replica["replica"]), replica[count].as_f64().unwrap());
        }
        let held = replica["holds"].as_array().unwrap().iter();
        note("in flight by version", held.map(|h| h["in_flight"].as_f64().unwrap()).sum());
    }
    for server in stats {
        note("at a model server", server["requests"]["in_flight"].as_f64().unwrap());
        note("loads at a model server", server["loads"]["in_flight"].as_f64().unwrap());
    }
    left
}

async fn settled(holdfast: &Holdfast, servers: &[&ModelServer]) {
    let mut left = Vec::new();
    let waited = holdfast_testkit::wait::try_eventually(Duration::from_secs(30), async || {
        let mut stats = Vec::new();
        for server in servers {
            stats.push(server.stats().await);
        }
        left = left_over(&holdfast.metrics().await, &holdfast.admin_get("/v1/replicas").await, &stats);
        left.is_empty().then_some(())
    });
    assert!(waited.await.is_some(), "left behind: {left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_at_any_moment_leave_nothing_behind() {
    let repository = repository(&["slow", "stream", "cold"], &["1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    let slow = model_server(&repository, "slow-1", &["--fault", "infer_delay=60ms"]).await;
    let chunks = r#"stream_chunks={"bytes":120,"every":"25ms"}"#;
    let streams = model_server(&repository, "stream-1", &["--fault", chunks]).await;
    let loads = model_server(&repository, "cold-1", &["--load-time", "150ms"]).await;
    let servers = [&slow, &streams, &loads];
    let mut holdfast = Holdfast::start(binary(), &config(&slow, &streams, &loads)).await;
    for model in ["slow", "stream", "cold"] {
        assert_eq!(served(&holdfast, "acme", &format!("/v2/models/{model}/infer")).await, "1");
    }
    // The test's own client keeps connections: it is replaced, so that every count has to be zero.
    let addr = holdfast.data.addr();
    holdfast.data = Client::new(addr);
    settled(&holdfast, &servers).await;

    all_leave(addr).await;
    settled(&holdfast, &servers).await;

    let metrics = holdfast.metrics().await;
    let left = metrics.sum("holdfast_requests_total", &[("status", "499")]);
    assert!(left > CLIENTS as f64 / 4.0, "only {left} requests were counted as left by their clients");
    assert_eq!(metrics.sum("holdfast_invariant_violations_total", &[]), 0.0);
    for server in [&slow, &streams] {
        let stats = server.stats().await;
        assert!(stats["cancels"].as_u64().unwrap() > 0, "the model server saw nobody leave: {stats}");
    }
    for path in ["/v2/models/slow/infer", "/v2/models/stream/infer", "/v2/models/cold/infer"] {
        assert_eq!(served(&holdfast, "acme", path).await, "1");
    }
    for version in COLD {
        let path = format!("/v2/models/cold/versions/{version}/infer");
        assert_eq!(served(&holdfast, "acme", &path).await, version);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_nobody_waits_for_any_more_ends_and_the_next_request_finds_the_version() {
    let repository = repository(&["cold"], &["1", "2"]);
    let server = model_server(&repository, "r1", &["--load-time", "300ms"]).await;
    let config = format!(
        "auth: {{ trusted_header: x-tenant }}\npools:\n  - {{ name: p, protocol: open-inference, residency: repository, replicas: \
         [{{ name: r1, url: \"{}\", memory: 24GiB }}] }}\nmodels:\n  - {{ name: cold, pool: p, versions: {} }}\ntenants:\n  \
         - {{ name: acme, subset: 1, pins: {{ cold: \"1\" }}, allow: {{ cold: [\"2\"] }} }}\n",
        server.url(),
        versions(&["1", "2"])
    );
    let holdfast = Holdfast::start(binary(), &config).await;
    assert_eq!(served(&holdfast, "acme", "/v2/models/cold/infer").await, "1");
    let path = "/v2/models/cold/versions/2/infer";
    let body = ask("coffee");
    let leaves = tokio::time::timeout(Duration::from_millis(100), holdfast.infer("acme", path, &body));
    assert!(leaves.await.is_err(), "the load takes longer than this client stays");
    eventually("nobody to wait", Duration::from_secs(10), async || {
        let metrics = holdfast.metrics().await;
        (metrics.sum("holdfast_waiting_requests", &[]) == 0.0 && metrics.sum("holdfast_in_flight", &[]) == 0.0)
            .then_some(())
    })
    .await;
    assert_eq!(served(&holdfast, "acme", path).await, "2");
    let stats = server.stats().await;
    assert_eq!(stats["loads"]["started"], 2, "one load for each version, none of them twice: {stats}");
}
