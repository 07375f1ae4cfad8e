//! A gateway on the test's runtime, clients before it, a stub for the model servers behind it.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use holdfast_config::{Frame, ResourceKind, Source, split};
use holdfast_decide::rollout::Artifact;
use holdfast_net::{DrainHandle, Tasks};
use holdfast_plane::{Edit, GatewayEnd, Orders, View, Want, pair};
use holdfast_telemetry::{AccessLog, MetricsOptions};
use holdfast_testkit::http::Client;
use holdfast_testkit::stub::StubRequest;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::wait::try_eventually;
use holdfast_testkit::{Metrics, Script, Stub, TempDir, eventually};
use holdfast_types::{GatewayName, PoolName, ReplicaName, Revision, Version};

use super::super::*;
use crate::connection::serve_connection;
use crate::server::Gateway;
use crate::stage::blame::Blame;
use crate::table::Tables;
use crate::worker::Worker;

pub(super) const LONG: Duration = Duration::from_secs(20);
pub(super) const ROLLOUT: RolloutId = RolloutId(7);
pub(super) const INFER: &str = "/v2/models/screen/infer";

/// What the stub says to an inference of this version.
pub(super) type Says = Arc<Mutex<Box<dyn Fn(&str, &StubRequest) -> Script + Send>>>;

pub(super) struct World {
    pub(super) gateway: Arc<Gateway>,
    pub(super) control: GatewayEnd,
    pub(super) address: SocketAddr,
    pub(super) client: Client,
    pub(super) stub: Stub,
    pub(super) says: Says,
    _drain: DrainHandle,
    _state: TempDir,
}

/// A correct answer with this score.
pub(super) fn scored(version: &str, score: f64) -> Value {
    json!({
        "model_name": format!("screen-{version}"), "model_version": version,
        "outputs": [{ "name": "score", "datatype": "FP32", "shape": [1], "data": [score] }],
    })
}

pub(super) fn agreeing(version: &str, _: &StubRequest) -> Script {
    Script::json(200, &scored(version, 0.5))
}

/// Version 1 says 0.5; version 2 what this says.
pub(super) fn other(
    script: impl Fn() -> Script + Send + 'static,
) -> impl Fn(&str, &StubRequest) -> Script + Send + 'static {
    move |version, request| if version == "v1" { agreeing(version, request) } else { script() }
}

pub(super) fn is_copy(request: &StubRequest) -> bool {
    request.header("x-holdfast-shadow") == "1"
}

impl World {
    /// A gateway whose only replica holds two versions of `screen`. `acme` pins the first and may name the second; `globex` pins it, too.
    pub(super) async fn new(replica: &str, more: &str) -> Self {
        let says: Says = Arc::new(Mutex::new(Box::new(agreeing)));
        let (saying, v2) = (says.clone(), V2::unloaded(&[("screen-v1", "v1"), ("screen-v2", "v2")]));
        let stub = Stub::start(move |request| match request.path.split('/').collect::<Vec<_>>().as_slice() {
            [.., name, "infer"] => saying.lock()(name.trim_start_matches("screen-"), request),
            _ => v2.answer(request),
        })
        .await;
        let state = TempDir::new();
        let text = format!(
            "state: \"{}\"\nauth: {{ trusted_header: x-tenant }}\nlimits: {{ answer_head: 1KiB, buffer: 4KiB }}\n{more}\npools:\n  \
             - name: p\n    protocol: open-inference\n    residency: repository\n    connections: {{ warm: 0 }}\n    health: {{ ease_in: 0s }}\n    \
             replicas: [{{ name: r1, url: \"{}\", memory: 1GiB{replica} }}]\nmodels:\n  \
             - {{ name: screen, pool: p, versions: [{{ version: v1, size: 1MiB }}, {{ version: v2, size: 1MiB }}] }}\ntenants:\n  \
             - {{ name: acme, subset: 1, pins: {{ screen: v1 }}, allow: {{ screen: [v2] }} }}\n  \
             - {{ name: globex, subset: 1, pins: {{ screen: v1 }} }}\n",
            state.path().display(),
            stub.url(),
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
        let (drain_handle, drain) = DrainHandle::new();
        let (control, link) = pair(GatewayName::parse("g1").unwrap(), view);
        tables.run(link, drain.clone(), &tasks);
        let streams = crate::stream::Streams::new(metrics.registry());
        let tokens_given = crate::tokens::Given::new(metrics.registry());
        let gateway = Arc::new(Gateway {
            streams,
            tokens_given,
            tables,
            driver,
            metrics,
            access: AccessLog::off(),
            audit: holdfast_telemetry::AuditLog::off().0,
            exposures: holdfast_telemetry::ExposureLog::off(),
            receipts: crate::receipts::Receipts::new(10, 1),
            drain,
            blame: Blame::default(),
            store: None,
            attempts: crate::limits::AddressAttempts::default(),
            submissions: None,
            results: None,
            data_entrance: holdfast_net::tls::Entrance::default(),
            standing: crate::standing::Standing::local(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (serving, group, worker) = (gateway.clone(), tasks.clone(), Arc::new(Worker::new(0)));
        tasks.spawn(async move {
            while let Ok((stream, peer)) = listener.accept().await {
                let (worker, tasks) = (worker.clone(), group.clone());
                let home = Arc::new(crate::stream::Home { worker, tasks, _held: Box::new(()) });
                group.spawn(serve_connection(serving.clone(), home, stream, peer));
            }
        });
        let client = Client::new(address);
        let world = Self { gateway, control, address, client, stub, says, _drain: drain_handle, _state: state };
        world.order(1000);
        world.warm().await;
        world
    }

    /// Waits until the replica holds both versions and the order has come.
    pub(super) async fn warm(&self) {
        eventually("both versions to be held", LONG, async || {
            let pool = self.gateway.driver.fleet.pools().pop()?;
            let mut cells = pool.versions.iter().map(|v| self.gateway.driver.fleet.cell(pool.replicas[0].ix, v.ix));
            cells.all(|cell| cell.is_some_and(|cell| cell.holds())).then_some(())
        })
        .await;
        eventually("the order to have come", LONG, async || self.shadows().any().then_some(())).await;
    }

    /// Orders so many of a thousand requests to be copied.
    pub(super) fn order(&self, share: u16) {
        self.order_for("v2", share);
    }

    /// The same, to be copied to another version.
    pub(super) fn order_for(&self, version: &str, share: u16) {
        let (model, version) = (ModelName::parse("screen").unwrap(), Version::parse(version).unwrap());
        let pool = PoolName::parse("p").unwrap();
        let artifact = Artifact { pool, model: model.clone(), version: version.clone() };
        let tenant = TenantId::parse("acme").unwrap();
        let shadowing = Shadowing { rollout: ROLLOUT, pin: 3, tenant, model, version, share };
        let orders = Orders {
            wants: [Want { replica: ReplicaName::parse("r1").unwrap(), artifact, place: 0 }].into(),
            shadow: if share > 0 { [shadowing].into() } else { [].into() },
            ..Orders::default()
        };
        self.control.view.send_modify(|view| view.orders = Arc::new(orders));
    }

    /// One edit of the table, once it is in force.
    pub(super) async fn edit(&self, revision: Revision, kind: ResourceKind, name: &str, value: Value) {
        self.control.view.send_modify(|view| {
            let mut entries = view.table.entries.clone();
            entries.apply(Edit { kind, name: name.into(), value: Some(Arc::new(value)) });
            view.table = Arc::new(holdfast_plane::Table { revision, entries, ..(*view.table).clone() });
        });
        let plan = self.shadows().plan.load_full();
        eventually("the edit", LONG, async || {
            let in_force = self.gateway.tables.load().told.revision == revision;
            (in_force && !Arc::ptr_eq(&plan, &self.shadows().plan.load_full())).then_some(())
        })
        .await;
    }

    pub(super) fn says(&self, says: impl Fn(&str, &StubRequest) -> Script + Send + 'static) {
        *self.says.lock() = Box::new(says);
    }

    pub(super) fn shadows(&self) -> &Arc<Shadows> {
        &self.gateway.tables.shadows
    }

    /// A request by this tenant, which gets its 200 from version 1.
    pub(super) async fn ask(&self, tenant: &str) -> String {
        let answer = self.client.post(INFER, &[("x-tenant", tenant)], &json!({ "inputs": [] })).await.expect(200);
        assert_eq!(answer.header("x-holdfast-version"), "v1");
        assert_eq!(answer.json()["outputs"][0]["data"], json!([0.5]));
        answer.header("x-holdfast-request-id").to_owned()
    }

    pub(super) fn copies(&self) -> usize {
        self.stub.count(is_copy)
    }

    pub(super) fn report(&self) -> ShadowReport {
        self.gateway.tables.shadow_report(ROLLOUT).pop().expect("there is a report")
    }

    /// Agreed, differed, failed, dropped, not comparable.
    pub(super) fn outcomes(&self) -> [u64; 5] {
        let ShadowReport { agreed, differed, failed, dropped, not_comparable, .. } = self.report();
        [agreed, differed, failed, dropped, not_comparable]
    }

    /// Waits for these outcomes; then nothing is held any more, and metrics and status say the same.
    pub(super) async fn comes_to(&self, want: [u64; 5]) {
        let came = try_eventually(LONG, async || (self.outcomes() == want).then_some(())).await;
        assert!(came.is_some(), "{:?} where {want:?} was to come", self.outcomes());
        let Gateway { driver, metrics, .. } = &*self.gateway;
        eventually("everything to be given back", LONG, async || {
            (driver.fleet.in_flight() == 0 && self.shadows().is_idle()).then_some(())
        })
        .await;
        assert_eq!(metrics.in_flight.get(), 0);
        let mut text = String::new();
        metrics.render(&mut text);
        let metrics = Metrics::parse(&text).unwrap();
        for (outcome, want) in ["agreed", "differed", "failed", "dropped", "not_comparable"].into_iter().zip(want) {
            assert_eq!(metrics.sum("holdfast_shadow_total", &[("outcome", outcome)]), want as f64, "{outcome}");
        }
        assert_eq!(self.outcomes(), want, "each request counts once");
        let [agreed, differed, failed, ..] = want;
        self.told(agreed + differed + failed, differed + failed).await;
    }

    /// Waits until the status has these totals.
    pub(super) async fn told(&self, compared: u64, differed: u64) {
        let want = [Shadowed { rollout: ROLLOUT, pin: 3, compared, differed }];
        eventually("the status", LONG, async || (self.control.status.borrow().shadowed == want).then_some(())).await;
    }

    /// Another order, once it is in force.
    pub(super) async fn reorder(&self, share: u16) {
        self.order(share);
        eventually("the new order", LONG, async || (self.shadows().any() == (share > 0)).then_some(())).await;
    }
}
