//! The future of a connection is dropped after every number of polls, so at every point where it can wait; whatever its request held is
//! given back in that moment.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Poll;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Handle;

use holdfast_config::{Frame, Source, split};
use holdfast_decide::rollout::RolloutId;
use holdfast_net::{DrainHandle, Tasks};
use holdfast_plane::{Shadowing, View};
use holdfast_telemetry::{AccessLog, AuditLog, MetricsOptions};
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Metrics, Script, Step, Stub, TempDir, eventually};
use holdfast_types::{ModelName, Revision, TenantId, Version};

use super::*;
use crate::receipts::Receipts;
use crate::residency::Driver;
use crate::stage::blame::Blame;
use crate::table::Tables;
use crate::worker::Worker;

/// More polls than any of these requests takes.
const MANY: usize = 300;
const SECOND: Duration = Duration::from_secs(1);

struct World {
    gateway: Arc<Gateway>,
    home: Arc<Home>,
    begun: Arc<AtomicUsize>,
    /// How often a load was under way when its request was dropped.
    left_loads: AtomicUsize,
    stub: Stub,
    _state: TempDir,
}

impl World {
    /// A gateway without listeners. Of the model `screen`, version `v1` is pinned; all others are loaded by the request that names them.
    async fn new() -> Self {
        let names: Vec<(String, String)> = (0..=MANY).map(|n| (format!("screen-v{n}"), format!("v{n}"))).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|(name, version)| (&**name, &**version)).collect();
        let v2 = V2::unloaded(&pairs);
        let stub = Stub::start(move |request| {
            let pause = Step::Pause(Duration::from_millis(2));
            if request.path.ends_with("/load") {
                return v2.answer(request).after(Duration::from_millis(5));
            }
            if !request.path.ends_with("/infer") {
                return v2.answer(request);
            }
            // A long answer in pieces: its head is held, the rest passes through.
            let name = request.path.split('/').nth(3).unwrap_or_default();
            let version = name.trim_start_matches("screen-");
            let head = format!("{{\"model_name\":\"{name}\",\"model_version\":\"{version}\",\"outputs\":[");
            let length = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", head.len() + 4 * 1_024 + 2);
            let script = Script::raw(length).then(pause.clone()).then_send(head);
            let spaces = || b" ".repeat(1_024);
            let script = (0..4).fold(script, |script, _| script.then(pause.clone()).then_send(spaces()));
            script.then(pause).then_send("]}")
        })
        .await;
        let state = TempDir::new();
        let versions = pairs.iter().map(|(_, version)| format!("{{ version: {version}, size: 1MiB }}"));
        let allow = pairs.iter().skip(2).map(|(_, version)| (*version).to_owned());
        let text = format!(
            "state: \"{}\"\nauth: {{ trusted_header: x-tenant }}\nlimits: {{ answer_head: 1KiB }}\npools:\n  - name: p\n    \
             protocol: open-inference\n    residency: repository\n    connections: {{ warm: 0 }}\n    \
             replicas: [{{ name: r1, url: \"{}\", memory: 1GiB }}]\nmodels:\n  \
             - {{ name: screen, pool: p, versions: [{}] }}\ntenants:\n  \
             - {{ name: acme, subset: 1, pins: {{ screen: v1 }}, allow: {{ screen: [{}] }} }}\n",
            state.path().display(),
            stub.url(),
            versions.collect::<Vec<_>>().join(", "),
            allow.collect::<Vec<_>>().join(", "),
        );
        let taken = split(&Source::text("test.yaml", &text)).unwrap_or_else(|faults| panic!("{faults}"));
        let told =
            holdfast_plane::Table { revision: Revision(1), entries: taken.resources.into(), ..Default::default() };
        let view = View { table: Arc::new(told), ..View::default() };
        let tasks = Tasks::new(Handle::current());
        let metrics = Arc::new(GatewayMetrics::new(&MetricsOptions::default()));
        let driver = Driver::new(vec![tasks.clone()], tasks.clone(), metrics.clone());
        driver.run();
        let tables = Tables::start(&view, Frame::new(taken.rest), driver.clone(), metrics.clone()).unwrap();
        let (_, drain) = DrainHandle::new();
        let streams = crate::stream::Streams::new(metrics.registry());
        let tokens_given = crate::tokens::Given::new(metrics.registry());
        let gateway = Arc::new(Gateway {
            streams,
            tokens_given,
            tables,
            driver,
            metrics,
            access: AccessLog::off(),
            audit: AuditLog::off().0,
            exposures: holdfast_telemetry::ExposureLog::off(),
            receipts: Receipts::new(10, 1),
            standing: crate::standing::Standing::local(),
            drain,
            blame: Blame::default(),
            store: None,
            attempts: crate::limits::AddressAttempts::default(),
            submissions: None,
            results: None,
            data_entrance: holdfast_net::tls::Entrance::default(),
        });
        Self {
            gateway,
            home: Arc::new(Home { worker: Arc::new(Worker::new(0)), tasks, _held: Box::new(()) }),
            begun: Arc::default(),
            left_loads: AtomicUsize::new(0),
            stub,
            _state: state,
        }
    }

    /// Serves one connection for at most so many polls, then drops it. Tells whether it came to its end before that.
    async fn polled(&self, times: usize, request: String) -> (bool, String) {
        // Small, so that every write waits for its reader.
        let (client, server) = duplex(256);
        let client = tokio::spawn(talk(client, request));
        let state = Arc::new(ConnState::default());
        let service = service_fn(|request: Request<Incoming>| {
            self.begun.fetch_add(1, Relaxed);
            let id = self.home.worker.request_id();
            let exchange = Exchange::begin(self.gateway.clone(), id, None, state.begin());
            let asked = AskedHow { is_h1: true, is_head: false };
            answer(flow::enter(Box::new(exchange), request), asked, self.home.clone(), state.clone())
        });
        let is_over = {
            let mut serving = pin!(http1::Builder::new().serve_connection(TokioIo::new(server), service));
            let mut left = times;
            let polling = std::future::poll_fn(|cx| {
                if left == 0 {
                    return Poll::Ready(false);
                }
                left -= 1;
                match serving.as_mut().poll(cx) {
                    Poll::Ready(_) => Poll::Ready(true),
                    Poll::Pending if left == 0 => Poll::Ready(false),
                    Poll::Pending => Poll::Pending,
                }
            });
            tokio::time::timeout(20 * SECOND, polling).await.expect("the connection goes on")
        };
        self.nothing_is_held(times);
        self.left_loads.fetch_add(self.gateway.driver.report().loads_in_flight as usize, Relaxed);
        (is_over, client.await.unwrap())
    }

    fn nothing_is_held(&self, polls: usize) {
        let Gateway { driver, metrics, .. } = &*self.gateway;
        assert_eq!(metrics.in_flight.get(), 0, "after {polls} polls");
        assert_eq!(metrics.waiting_requests.get(), 0, "after {polls} polls");
        assert_eq!(driver.fleet.in_flight(), 0, "after {polls} polls");
        assert_eq!(driver.report().waiting, 0, "after {polls} polls");
    }

    fn ended(&self) -> f64 {
        let mut text = String::new();
        self.gateway.metrics.render(&mut text);
        Metrics::parse(&text).unwrap().sum("holdfast_requests_total", &[])
    }

    /// Drops the same request after 0, 1, 2, ... polls, until it is answered; gives how many that were and the whole answer.
    async fn at_every_poll(&self, request: impl Fn(usize) -> String) -> (usize, String) {
        for polls in 0..MANY {
            if let (true, answer) = self.polled(polls, request(polls)).await {
                assert_eq!(
                    self.ended(),
                    self.begun.load(Relaxed) as f64,
                    "each request is counted once, however it ended"
                );
                return (polls, answer);
            }
        }
        panic!("no answer after {MANY} polls");
    }
}

/// Sends a request in two pieces and reads the answer meanwhile, until the server ends the connection.
async fn talk(stream: DuplexStream, request: String) -> String {
    let (mut read, mut write) = tokio::io::split(stream);
    let (first, rest) = request.split_at(request.len() - 10);
    let writing = async {
        for piece in [first, rest] {
            if write.write_all(piece.as_bytes()).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let mut answer = String::new();
    let reading = read.read_to_string(&mut answer);
    let _ = tokio::join!(writing, reading);
    answer
}

fn request(tenant: &str, path: &str) -> String {
    let body = format!("{{\"inputs\":[{}]}}", " ".repeat(600));
    format!(
        "POST {path} HTTP/1.1\r\nhost: h\r\nx-tenant: {tenant}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn an_inference_can_be_dropped_at_any_poll() {
    let world = World::new().await;
    eventually("the pinned version", 10 * SECOND, async || {
        let (_, answer) = world.polled(MANY, request("acme", "/v2/models/screen/infer")).await;
        answer.starts_with("HTTP/1.1 200").then_some(())
    })
    .await;
    let (polls, answer) = world.at_every_poll(|_| request("acme", "/v2/models/screen/infer")).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"model_name\":\"screen\""), "{answer}");
    assert!(polls > 8, "only {polls} polls: the answer did not come in pieces");
    // Two are there for polls and proofs, and one is kept: that of the request which was not dropped.
    eventually("broken connections to be closed", 10 * SECOND, async || {
        (world.stub.open_connections() <= 3).then_some(())
    })
    .await;
    let opened = world.stub.connections();
    let (_, answer) = world.polled(MANY, request("acme", "/v2/models/screen/infer")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(world.stub.connections(), opened, "the kept connection serves again");
}

#[tokio::test]
async fn an_inference_that_is_to_be_copied_can_be_dropped_at_any_poll() {
    let world = World::new().await;
    eventually("the pinned version", 10 * SECOND, async || {
        let (_, answer) = world.polled(MANY, request("acme", "/v2/models/screen/infer")).await;
        answer.starts_with("HTTP/1.1 200").then_some(())
    })
    .await;
    let shadowing = Shadowing {
        rollout: RolloutId(1),
        pin: 0,
        tenant: TenantId::parse("acme").unwrap(),
        model: ModelName::parse("screen").unwrap(),
        version: Version::parse("v2").unwrap(),
        share: 1000,
    };
    let (tables, before) = (&world.gateway.tables, world.begun.load(Relaxed) as u64);
    tables.shadows.follow(&tables.load().clone(), &[shadowing].into(), &world.gateway.metrics);
    let (_, answer) = world.at_every_poll(|_| request("acme", "/v2/models/screen/infer")).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The other version is held by nobody, so the one copy that was asked for is dropped; the rest had no answer to compare with.
    eventually("each request to count once", 10 * SECOND, async || {
        let report = tables.shadow_report(RolloutId(1)).pop()?;
        let counted = report.dropped + report.not_comparable == world.begun.load(Relaxed) as u64 - before;
        (counted && report.dropped == 1 && report.not_comparable > 8 && tables.shadows.is_idle()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_request_that_waits_for_a_load_can_be_dropped_at_any_poll() {
    let world = World::new().await;
    // Another version each time, so that each time there is a load to wait for.
    let cold = |polls: usize| request("acme", &format!("/v2/models/screen/versions/v{}/infer", polls + 2));
    let (polls, answer) = world.at_every_poll(cold).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(polls > 8 && world.left_loads.load(Relaxed) > 0, "no request was dropped while it waited");
    eventually("all loads to end", 10 * SECOND, async || {
        (world.gateway.driver.report().loads_in_flight == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_refusal_can_be_dropped_at_any_poll() {
    let world = World::new().await;
    let (_, answer) = world.at_every_poll(|_| request("nobody", "/v2/models/screen/infer")).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}
