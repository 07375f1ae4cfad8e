//! A control plane in a test: store, desk, gateways, and the driver as a task that can be dropped.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::{Frame, ResourceKind, Source, split};
use holdfast_control::desk::{Ask, Desk, DeskError, DeskSettings, Done, RolloutOptions, What};
use holdfast_control::rollouts::{Head, Link, Rollouts, Sessions, Settings};
use holdfast_decide::rollout::Options;
use holdfast_plane::{Edit, View, pair};
use holdfast_store::{Embedded, EmbeddedOptions, Header, Purpose, Store};
use holdfast_telemetry::Clock;
use holdfast_testkit::{TempDir, eventually};
use holdfast_types::GatewayName;
use tokio::task::JoinHandle;

use crate::gateway::Gateways;

/// Long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(3);

/// Quick enough for a test.
pub fn settings() -> Settings {
    let ms = Duration::from_millis;
    let options = Options {
        loads: 64,
        tries: 2,
        load: ms(20_000),
        warm: ms(30_000),
        prepare: ms(20_000),
        drain: ms(20_000),
        retain: ms(0),
        retry: ms(50),
        ..Options::default()
    };
    Settings { options, batch: ms(2), lead: ms(20), ..Settings::default() }
}

/// `models` models with versions 1 to 4, all tenants pinned to version 1 of all of them.
pub fn table(replicas: usize, models: usize, tenants: usize) -> String {
    let mut text =
        "pools:\n  - name: gpu\n    protocol: open-inference\n    residency: repository\n    replicas:\n".to_owned();
    for r in 0..replicas {
        writeln!(text, "      - {{ name: r{r}, url: \"http://127.0.0.1:{}\" }}", 9001 + r).unwrap();
    }
    text.push_str("models:\n");
    for m in 0..models {
        let versions: Vec<String> = (1..=4).map(|v| format!("{{ version: \"{v}\", size: 1MiB }}")).collect();
        writeln!(text, "  - {{ name: m{m}, pool: gpu, versions: [{}] }}", versions.join(", ")).unwrap();
    }
    text.push_str("tenants:\n");
    for t in 0..tenants {
        let pins: Vec<String> = (0..models).map(|m| format!("m{m}: \"1\"")).collect();
        writeln!(text, "  - {{ name: t{t}, subset: 2, pins: {{ {} }} }}", pins.join(", ")).unwrap();
    }
    text
}

pub async fn embedded(dir: &TempDir) -> Arc<dyn Store> {
    let options = EmbeddedOptions { deadline: PATIENCE, ..EmbeddedOptions::default() };
    Arc::new(Embedded::open(&dir.join("store"), options).await.unwrap())
}

/// A control plane with its gateways.
pub struct Plane {
    pub store: Arc<dyn Store>,
    pub desk: Arc<Desk>,
    pub sessions: Arc<Sessions>,
    pub gateways: Arc<Gateways>,
    pub rollouts: Arc<Rollouts>,
    pub settings: Settings,
    tasks: Vec<JoinHandle<()>>,
    driver: Option<JoinHandle<()>>,
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.tasks.iter().chain(&self.driver).for_each(JoinHandle::abort);
    }
}

impl Plane {
    pub async fn start(store: Arc<dyn Store>, settings: Settings, gateways: &Arc<Gateways>) -> Self {
        let desk = Desk::open(store.clone(), Frame::default(), DeskSettings::default()).await.unwrap();
        let sessions = Sessions::new(store.clone(), Arc::new(Clock::now));
        let rollouts = Rollouts::new(desk.clone(), sessions.clone(), settings.clone(), Arc::new(Clock::now));
        let follow = tokio::spawn(desk.clone().follow(std::future::pending()));
        let gateways = gateways.clone();
        Self { store, desk, sessions, gateways, rollouts, settings, tasks: vec![follow], driver: None }
    }

    pub async fn seed(&self, text: &str) {
        let parts = split(&Source::text("t.yaml", text)).unwrap_or_else(|faults| panic!("{faults}"));
        self.ask(What::Whole(parts.resources), None).await;
    }

    pub async fn ask(&self, what: What, options: Option<RolloutOptions>) -> Done {
        self.try_ask(what, options).await.unwrap()
    }

    pub async fn try_ask(&self, what: What, options: Option<RolloutOptions>) -> Result<Done, DeskError> {
        self.desk.change(Self::an_ask(what, options)).await
    }

    fn an_ask(what: What, options: Option<RolloutOptions>) -> Ask {
        Ask {
            base: None,
            author: "ann".to_owned(),
            reason: "better".to_owned(),
            at_ms: 1_700_000_000_000,
            what,
            dry_run: false,
            options,
            retired: Default::default(),
            term: None,
        }
    }

    /// What it would be.
    pub async fn dry_pin(&self, names: &[String], version: &str) -> Done {
        let what = What::Edits(names.iter().map(|name| pin_edit(name, version)).collect());
        self.desk.change(Ask { dry_run: true, ..Self::an_ask(what, None) }).await.unwrap()
    }

    /// Has the pins desired at a version.
    pub async fn pin(&self, names: &[String], version: &str, options: Option<RolloutOptions>) -> Done {
        self.try_pin(names, version, options).await.unwrap()
    }

    pub async fn try_pin(
        &self,
        names: &[String],
        version: &str,
        options: Option<RolloutOptions>,
    ) -> Result<Done, DeskError> {
        self.try_ask(What::Edits(names.iter().map(|name| pin_edit(name, version)).collect()), options).await
    }

    /// Takes pins away.
    pub async fn unpin(&self, names: &[String]) {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        self.without(ResourceKind::Pin, &names).await;
    }

    /// Takes resources away.
    pub async fn without(&self, kind: ResourceKind, names: &[&str]) {
        let gone = |name: &&str| Edit { kind, name: (*name).into(), value: None };
        self.ask(What::Edits(names.iter().map(gone).collect()), None).await;
    }

    /// Has the pins desired at a version by somebody.
    pub async fn pin_as(&self, author: &str, reason: &str, names: &[String], version: &str) -> Done {
        let what = What::Edits(names.iter().map(|name| pin_edit(name, version)).collect());
        let (author, reason) = (author.to_owned(), reason.to_owned());
        self.desk.change(Ask { author, reason, ..Self::an_ask(what, None) }).await.unwrap()
    }

    pub async fn gateway(&mut self, name: &str, link: Link) -> JoinHandle<()> {
        let name = GatewayName::parse(name).unwrap();
        let (end, control) = pair(name.clone(), View::default());
        self.sessions.attach(end, link).await.unwrap();
        tokio::spawn(self.gateways.clone().run(name, control))
    }

    pub async fn gateways(&mut self, many: usize) {
        for n in 0..many {
            let task = self.gateway(&format!("g{n}"), Link::Local).await;
            self.tasks.push(task);
        }
    }

    pub fn drive(&mut self) {
        self.driver = Some(tokio::spawn(self.rollouts.clone().run(std::future::pending())));
    }

    /// The driver is dropped where it is, and another one takes its place.
    pub async fn kill(&mut self) {
        self.stop().await;
        self.drive_anew();
    }

    /// The driver is dropped where it is.
    pub async fn stop(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.abort();
            let _ = driver.await;
        }
    }

    pub fn drive_anew(&mut self) {
        let (desk, sessions) = (self.desk.clone(), self.sessions.clone());
        self.rollouts = Rollouts::new(desk, sessions, self.settings.clone(), Arc::new(Clock::now));
        self.drive();
    }

    /// The process ends, with the gateways in it, and another one has the store. Replicas go on.
    pub async fn restart(self, gateways: usize) -> Self {
        let (store, settings, world) = (self.store.clone(), self.settings.clone(), self.gateways.clone());
        drop(self);
        // What was stopped lets go of what it holds when it is next looked at.
        tokio::task::yield_now().await;
        let mut next = Self::start(store, settings, &world).await;
        next.gateways(gateways).await;
        next.drive();
        next
    }

    pub fn in_force(&self, name: &str) -> String {
        let truth = self.desk.truth();
        truth.in_force.get(ResourceKind::Pin, name).and_then(|v| v.as_str()).unwrap_or_default().to_owned()
    }

    pub fn desired(&self, name: &str) -> String {
        let truth = self.desk.truth();
        truth.desired.get(ResourceKind::Pin, name).and_then(|v| v.as_str()).unwrap_or_default().to_owned()
    }

    /// The share of the pin's traffic that another version has, in force.
    pub fn split(&self, name: &str) -> Option<(String, u64)> {
        let truth = self.desk.truth();
        let split = truth.in_force.get(ResourceKind::Split, name)?;
        Some((split["version"].as_str()?.to_owned(), split["percent"].as_u64()?))
    }

    /// Waits until nothing is pending and nothing runs.
    pub async fn settled(&self, what: &str) -> Vec<Head> {
        self.settled_within(what, PATIENCE).await
    }

    /// The same, in another time.
    pub async fn settled_within(&self, what: &str, most: Duration) -> Vec<Head> {
        eventually(what, most, async || {
            let heads = self.rollouts.list().await.ok()?;
            let done = self.desk.truth().pending.is_empty() && heads.iter().all(Head::is_over);
            done.then_some(heads)
        })
        .await
    }

    /// Waits until the roll-out's stages are these and nothing else.
    pub async fn at(&self, id: u64, stage: &str) -> Head {
        eventually(&format!("roll-out {id} at {stage}"), PATIENCE, async || {
            let head = self.rollouts.list().await.ok()?.into_iter().find(|h| h.id == id)?;
            head.stages.keys().eq([stage]).then_some(head)
        })
        .await
    }

    /// Every step that came into force, in order, with the revision. Each once.
    pub async fn steps(&self) -> Vec<Header> {
        let all = self.store.history(None, 1_000).await.unwrap();
        let mut steps: Vec<Header> = all.into_iter().filter(|h| h.purpose == Purpose::Activation).collect();
        steps.reverse();
        let mut reasons: Vec<&String> = steps.iter().map(|h| &h.reason).collect();
        reasons.sort();
        reasons.dedup();
        assert_eq!(reasons.len(), steps.len(), "a step came into force twice: {steps:#?}");
        steps
    }

    pub fn nothing_broken(&self) {
        let world = self.gateways.world.lock().unwrap();
        assert!(world.broken.is_empty(), "{:#?}", world.broken);
    }
}

fn pin_edit(name: &str, version: &str) -> Edit {
    Edit { kind: ResourceKind::Pin, name: name.into(), value: Some(Arc::new(version.into())) }
}

pub fn names(tenants: usize, models: usize) -> Vec<String> {
    (0..tenants).flat_map(|t| (0..models).map(move |m| format!("t{t}/m{m}"))).collect()
}

/// A control plane that drives roll-outs of three tenants' pins, before two gateways.
pub async fn driven(settings: Settings) -> (Plane, TempDir) {
    let dir = TempDir::new();
    let mut plane = Plane::start(embedded(&dir).await, settings, &Gateways::new()).await;
    plane.seed(&table(3, 2, 2)).await;
    plane.gateways(2).await;
    plane.drive();
    (plane, dir)
}

/// The same, that keeps what a roll-out leaves for so long.
pub async fn retaining(retain: Duration) -> (Plane, TempDir) {
    let mut settings = settings();
    settings.options.retain = retain;
    driven(settings).await
}
