//! What the tests of the link share: a control plane of a few lines, tables with their digests, settings that do not dawdle.
#![allow(dead_code, clippy::unwrap_used, reason = "each test takes what it needs, and a test may fail loudly")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use holdfast_config::ResourceKind;
use holdfast_plane::{ControlEnd, Edit, Entries, GatewayEnd, Orders, Status, Table, View};
use holdfast_testkit::eventually;
use holdfast_types::{GatewayName, Revision};
use holdfast_wire::WireError;
use holdfast_wire::auth::Secret;
use holdfast_wire::follower::{Follower, FollowerSettings};
use holdfast_wire::server::{Plane, ServerSettings, serve};

pub const SOON: Duration = Duration::from_secs(20);
pub const SECRET: &str = "a-secret-that-both-roles-know";

/// A table with the digest of its content, from scratch.
pub fn table(revision: u64, entries: Entries) -> Arc<Table> {
    let content: Vec<_> =
        entries.iter().map(|((kind, name), value)| ((kind.as_str(), name.clone()), value.to_string())).collect();
    let digest = holdfast_digest::of_space(content.iter().map(|(key, value)| (key, value.as_bytes())));
    Arc::new(Table { revision: Revision(revision), digest: digest.to_string().into(), entries })
}

pub fn pins(of: &[(&str, &str)]) -> Entries {
    of.iter().map(|(name, version)| ((ResourceKind::Pin, Arc::from(*name)), Arc::new(json!(version)))).collect()
}

pub fn edit(kind: ResourceKind, name: &str, value: Option<Value>) -> Edit {
    Edit { kind, name: name.into(), value: value.map(Arc::new) }
}

/// The table that an edit makes, under the next revision.
pub fn edited(from: &Table, edits: impl IntoIterator<Item = Edit>) -> Arc<Table> {
    let mut entries = from.entries.clone();
    edits.into_iter().for_each(|edit| entries.apply(edit));
    table(from.revision.0 + 1, entries)
}

/// What a fleet's control plane has, over restarts of its servers.
#[derive(Default)]
pub struct Truth {
    view: Mutex<View>,
    ends: Mutex<BTreeMap<GatewayName, GatewayEnd>>,
    /// Gateways that are not told of changes: push is broken for them.
    pub deaf: Mutex<BTreeSet<GatewayName>>,
    /// Why gateways are sent on, if they are.
    pub refuses: Mutex<Option<&'static str>>,
    /// Why it cannot vouch for its table, if it cannot.
    pub doubts: Mutex<Option<&'static str>>,
    /// How often a gateway has asked for the whole, to compare it with what it has.
    compared: AtomicU64,
}

impl Truth {
    pub fn new(table: Arc<Table>) -> Arc<Self> {
        let truth = Arc::new(Self::default());
        truth.tell(table);
        truth
    }

    pub fn view(&self) -> View {
        self.view.lock().unwrap().clone()
    }

    pub fn tell(&self, table: Arc<Table>) {
        self.change(|view| view.table = table);
    }

    pub fn order(&self, orders: Orders) {
        self.change(|view| view.orders = Arc::new(orders));
    }

    pub fn change(&self, change: impl FnOnce(&mut View)) {
        let mut view = self.view.lock().unwrap();
        change(&mut view);
        for end in self.ends.lock().unwrap().values() {
            end.view.send_replace(view.clone());
        }
    }

    /// Waits until the only gateway has compared what it has with what there is now, and has taken in what came of it: it asks again only then.
    pub async fn compared(&self) {
        let seen = self.compared.load(Ordering::Relaxed);
        let again = async || (self.compared.load(Ordering::Relaxed) >= seen + 2).then_some(());
        eventually("a comparison", SOON, again).await;
    }

    /// Whether the gateway has said goodbye.
    pub fn has_left(&self, gateway: &str) -> bool {
        self.ends.lock().unwrap().get(&name(gateway)).is_some_and(|end| end.status.borrow().left)
    }

    pub fn status(&self, gateway: &str) -> Option<Arc<Status>> {
        let ends = self.ends.lock().unwrap();
        let end = ends.get(&name(gateway))?;
        let open = end.status.has_changed().is_ok();
        let status = end.status.borrow().clone();
        open.then_some(status)
    }
}

impl Plane for Truth {
    fn view(&self, _: &GatewayName) -> View {
        self.compared.fetch_add(1, Ordering::Relaxed);
        self.view.lock().unwrap().clone()
    }

    fn takes(&self) -> Result<(), &'static str> {
        self.refuses.lock().unwrap().map_or(Ok(()), Err)
    }

    fn vouches(&self) -> Result<(), &'static str> {
        self.doubts.lock().unwrap().map_or(Ok(()), Err)
    }

    fn attach(&self, end: GatewayEnd) {
        if self.deaf.lock().unwrap().contains(&end.gateway) {
            // Never told of anything: an empty table tells nothing.
            end.view.send_replace(View::default());
            std::mem::forget(end);
            return;
        }
        let view = self.view.lock().unwrap();
        end.view.send_replace(view.clone());
        self.ends.lock().unwrap().insert(end.gateway.clone(), end);
    }
}

pub fn name(of: &str) -> GatewayName {
    GatewayName::parse(of).unwrap()
}

/// A control plane's server, with a runtime of its own so that it can be killed in the middle of anything.
pub struct Server {
    pub addr: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), WireError>>,
}

impl Server {
    pub fn start(truth: &Arc<Truth>) -> Self {
        Self::with(truth, server_settings(), "127.0.0.1:0".parse().unwrap())
    }

    pub fn with(truth: &Arc<Truth>, settings: ServerSettings, addr: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind(addr).unwrap();
        listener.set_nonblocking(true).unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (truth, stopped) = (truth.clone(), async { stopped.await.unwrap_or(()) });
        let serving = runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            serve(listener, settings, truth, stopped).await
        });
        Self { addr, runtime: Some(runtime), stop: Some(stop), serving }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Everything of it is gone at once; its sockets are closed.
    pub fn kill(mut self) -> SocketAddr {
        let runtime = self.runtime.take().unwrap();
        // A runtime may not be ended within another one.
        std::thread::spawn(move || runtime.shutdown_timeout(Duration::from_secs(5))).join().unwrap();
        self.addr
    }

    /// Lets it end by itself.
    pub async fn stop(mut self) -> Result<(), WireError> {
        drop(self.stop.take());
        let ended = (&mut self.serving).await.unwrap();
        self.runtime.take().unwrap().shutdown_background();
        ended
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub fn server_settings() -> ServerSettings {
    ServerSettings { secrets: vec![Secret::new(SECRET).unwrap()], ..ServerSettings::default() }
}

pub fn follower_settings(urls: Vec<String>) -> FollowerSettings {
    let ms = Duration::from_millis;
    FollowerSettings {
        secret: Some(Secret::new(SECRET).unwrap()),
        pause_min: ms(20),
        pause_max: ms(200),
        ..FollowerSettings::new(name("g1"), urls)
    }
}

/// A gateway that takes every table into force at once.
pub struct Gateway {
    pub follower: Follower,
    pub end: ControlEnd,
}

impl Gateway {
    pub fn start(settings: FollowerSettings) -> Self {
        let (follower, end) = Follower::start(settings, None).unwrap();
        Self { follower, end }
    }

    pub fn view(&self) -> View {
        self.end.view.borrow().clone()
    }

    /// Waits until the gateway has this table, and takes it into force.
    pub async fn has(&self, table: &Arc<Table>) {
        let what = format!("revision {}", table.revision);
        let got = eventually(&what, SOON, async || {
            let view = self.view();
            (view.table.revision == table.revision).then_some(view.table)
        })
        .await;
        assert_eq!((&got.digest, &got.entries), (&table.digest, &table.entries));
        self.end.status.send_modify(|status| {
            let mut now = (**status).clone();
            (now.in_force, now.oldest) = (table.revision, table.revision);
            *status = Arc::new(now);
        });
    }
}
