//! A desk on a store of its own, roll-outs to order, and requests that need no network.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use holdfast_config::{Source, Truth as Owner, split};
use holdfast_control::api::{Api, Body, Caller, Fleet, FleetError, Later, NodeView, Role, RolloutView};
use holdfast_control::desk::{Desk, DeskSettings, Frame};
use holdfast_decide::rollout::{Command, Phase, PinProgress, Progress, Refusal, RolloutId, Stage, Waiting};
use holdfast_plane::Status;
use holdfast_store::{Embedded, EmbeddedOptions, Store};
use holdfast_testkit::TempDir;
use holdfast_types::{GatewayName, ModelName, Revision, TenantId, Version};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value as Json;
use tokio::sync::watch;

/// One pool, two models, two tenants.
pub const STATE: &str = r#"
pools:
  - name: main
    protocol: open-inference
    residency: repository
    replicas:
      - { name: r1, url: "http://127.0.0.1:9001", memory: 24GiB }
      - { name: r2, url: "http://127.0.0.1:9002", memory: 24GiB }
models:
  - { name: screen, pool: main, versions: [{ version: "1", size: 1GiB }, { version: "2", size: 1GiB }, { version: "3", size: 1GiB }] }
  - { name: rank, pool: main, versions: [{ version: "1", size: 1GiB }] }
tenants:
  - { name: acme, subset: 2, pins: { screen: "1", rank: "1" } }
  - { name: globex, subset: 1, pins: { screen: "2" } }
"#;

pub struct Bench {
    pub api: Arc<Api>,
    pub desk: Arc<Desk>,
    pub fleet: Arc<FakeFleet>,
    _dir: TempDir,
}

impl Bench {
    /// With [`STATE`] at revision 1.
    pub async fn new() -> Self {
        Self::owned_by(Owner::Store).await
    }

    pub async fn owned_by(owner: Owner) -> Self {
        let dir = TempDir::new();
        let store = Embedded::open(&dir.join("table.redb"), EmbeddedOptions::default()).await.unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let settings = DeskSettings { owner, ..DeskSettings::default() };
        let desk = Desk::open(store, Frame::default(), settings).await.unwrap();
        let file = split(&Source::text("state", STATE)).unwrap();
        desk.adopt_file(file, Frame::default(), 1, BTreeMap::new(), None).await.unwrap();
        let fleet = Arc::new(FakeFleet::default());
        let api = Arc::new(Api::new(desk.clone(), fleet.clone()));
        Self { api, desk, fleet, _dir: dir }
    }

    /// As an admin.
    pub async fn ask(&self, what: &str, headers: &[(&str, &str)], body: &str) -> Told {
        self.ask_as(Role::Admin, what, headers, body).await
    }

    /// `what` is `METHOD PATH`. A body is JSON if the headers do not say otherwise.
    pub async fn ask_as(&self, role: Role, what: &str, headers: &[(&str, &str)], body: &str) -> Told {
        Told::of(self.open(role, what, headers, body).await.expect("a path of the API")).await
    }

    /// The answer before its body is read.
    pub async fn open(&self, role: Role, what: &str, headers: &[(&str, &str)], body: &str) -> Option<Response<Body>> {
        let (method, path) = what.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path);
        if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "content-type") {
            request = request.header("content-type", "application/json");
        }
        if !body.is_empty() {
            request = request.header("content-length", body.len());
        }
        let request =
            headers.iter().filter(|(_, v)| !v.is_empty()).fold(request, |r, (name, value)| r.header(*name, *value));
        let request = request.body(Full::new(Bytes::copy_from_slice(body.as_bytes()))).unwrap();
        let caller = Caller { name: "ann".into(), role };
        self.api.respond(&caller, request).await
    }

    /// A GET that is answered with 200.
    pub async fn get(&self, path: &str) -> Json {
        let told = self.ask(&format!("GET {path}"), &[], "").await;
        assert_eq!(told.status, StatusCode::OK, "{path}: {}", told.text);
        told.json
    }

    /// The version that is desired for a pin, and the revision that made it so.
    pub async fn pin(&self, name: &str) -> (String, u64) {
        let told = self.get(&format!("/v1/pins/{name}")).await;
        (told["version"].as_str().unwrap().to_owned(), told["revision"].as_u64().unwrap())
    }
}

/// A whole answer.
#[derive(Debug)]
pub struct Told {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
    pub json: Json,
}

impl Told {
    async fn of(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let json = serde_json::from_str(&text).unwrap_or(Json::Null);
        Self { status: parts.status, headers: parts.headers, text, json }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("")
    }

    /// Status and the code of the problem, which has the shape of one.
    pub fn refused(&self) -> (u16, &str) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        for member in ["type", "title", "detail"] {
            assert!(self.json[member].is_string(), "{member}: {}", self.text);
        }
        let code = self.json["code"].as_str().unwrap();
        assert_eq!(self.json["status"], self.status.as_u16(), "{}", self.text);
        assert_eq!(self.json["type"], format!("urn:holdfast:problem:{code}"), "{}", self.text);
        (self.status.as_u16(), code)
    }
}

/// Roll-outs and gateways that a test makes up.
pub struct FakeFleet {
    rollouts: Mutex<BTreeMap<u64, RolloutView>>,
    pub commands: Mutex<Vec<(u64, Command, String)>>,
    pub refuses: Mutex<Option<Refusal>>,
    moved: watch::Sender<u64>,
    pub nodes: Mutex<Vec<NodeView>>,
    pub follows: std::sync::atomic::AtomicBool,
}

impl Default for FakeFleet {
    fn default() -> Self {
        Self {
            rollouts: Mutex::default(),
            commands: Mutex::default(),
            follows: std::sync::atomic::AtomicBool::new(false),
            refuses: Mutex::default(),
            moved: watch::Sender::new(0),
            nodes: Mutex::default(),
        }
    }
}

impl FakeFleet {
    /// A roll-out of one pin of `acme` at a phase.
    pub fn put(&self, id: u64, phase: Phase, stage: Stage) {
        let pin = PinProgress {
            tenant: TenantId::parse("acme").unwrap(),
            model: ModelName::parse("screen").unwrap(),
            old: Some(Version::parse("1").unwrap()),
            new: Version::parse("2").unwrap(),
            stage,
            share: 0,
            back: false,
            cold: false,
            since: Duration::from_millis(5),
            waiting_for: vec![Waiting::Time(Duration::from_secs(id))],
            words: None,
        };
        let progress = Progress {
            id: RolloutId(id),
            phase,
            paused: false,
            since: Duration::from_millis(self.rollouts.lock().unwrap().len() as u64),
            pins: vec![pin],
            waiting_for: Vec::new(),
            words: None,
        };
        let over = stage.is_final();
        let (author, reason) = ("ann".to_owned(), "because".to_owned());
        let view = RolloutView { progress: Arc::new(progress), over, author, reason, created_ms: 7, back: None };
        self.rollouts.lock().unwrap().insert(id, view);
        self.moved.send_modify(|n| *n += 1);
    }

    pub fn node(&self, name: &str, in_force: u64, live: bool) {
        let mut status = Status::of(GatewayName::parse(name).unwrap());
        status.in_force = Revision(in_force);
        status.oldest = Revision(in_force);
        self.nodes.lock().unwrap().push(NodeView { status: Arc::new(status), live, silent_ms: 3 });
    }
}

impl Fleet for FakeFleet {
    fn rollouts(&self, before: Option<RolloutId>, limit: usize) -> Later<'_, Vec<RolloutView>> {
        let all = self.rollouts.lock().unwrap();
        let below = all.range(..before.map_or(u64::MAX, |id| id.0)).rev();
        let found = below.take(limit).map(|(_, view)| view.clone()).collect();
        Box::pin(async move { Ok(found) })
    }

    fn rollout(&self, id: RolloutId) -> Later<'_, RolloutView> {
        let found = self.rollouts.lock().unwrap().get(&id.0).cloned();
        Box::pin(async move { found.ok_or(FleetError::NotFound) })
    }

    fn command(&self, id: RolloutId, command: Command, author: &str) -> Later<'_, ()> {
        self.commands.lock().unwrap().push((id.0, command, author.to_owned()));
        let refusal = self.refuses.lock().unwrap().clone();
        let is_there = self.rollouts.lock().unwrap().contains_key(&id.0);
        Box::pin(async move {
            match refusal {
                _ if !is_there => Err(FleetError::NotFound),
                Some(refusal) => Err(FleetError::Refused(refusal)),
                None => Ok(()),
            }
        })
    }

    fn moved(&self) -> watch::Receiver<u64> {
        self.moved.subscribe()
    }

    fn waits(&self) -> BTreeMap<Arc<str>, String> {
        BTreeMap::from([("acme/screen".into(), "the queue is long".to_owned())])
    }

    fn follows(&self) -> bool {
        self.follows.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn nodes(&self) -> Vec<NodeView> {
        self.nodes.lock().unwrap().clone()
    }
}
