//! A fleet in real processes for tests: PostgreSQL, control planes, gateways, model servers.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::{Frame, ResourceKind};
use holdfast_control::desk::{Ask, Desk, DeskSettings, What};
use holdfast_model_server::Layout;
use holdfast_plane::Edit;
use holdfast_store::{Postgres, PostgresOptions};
use holdfast_testkit::http::{Answer, Client};
use holdfast_testkit::{
    Authority, Cut, Deaf, Metrics, ModelServer, PostgresServer, Proc, TempDir, eventually, free_port,
};
use serde_json::{Value, json};

use super::fleet::{INFER, PATIENCE, binary, config, pin_of, probe, samples, server, text};

/// What gateways must know.
const SECRET: &str = "the-secret-of-this-very-fleet";
/// Versions of the one model.
const VERSIONS: usize = 3;

/// How large a fleet is.
pub struct Shape {
    pub controls: usize,
    pub gateways: usize,
    /// How long a model server takes to load a version.
    pub load: &'static str,
}

/// What else is otherwise than in most tests.
pub struct More {
    pub servers: usize,
    pub versions: usize,
    /// Flags of the model servers.
    pub flags: &'static [&'static str],
    /// Changes a control plane's configuration.
    pub control: fn(&mut Value),
    /// Changes the configuration of the gateway of this name.
    pub gateway: fn(&str, &mut Value),
    /// Whether gateways reach one another.
    pub peers: bool,
    /// Whether gateways come to control planes over a way that can be made deaf.
    pub deaf: bool,
    /// How long a silent gateway is waited for.
    pub lease: &'static str,
}

impl Default for More {
    fn default() -> Self {
        Self {
            servers: 2,
            versions: VERSIONS,
            flags: &[],
            control: |_| (),
            gateway: |_, _| (),
            peers: true,
            deaf: false,
            lease: "2s",
        }
    }
}

/// The whole fleet. Gateways go first, the store last.
pub struct Roles {
    pub gateways: Vec<Member>,
    pub controls: Vec<Member>,
    pub servers: Vec<ModelServer>,
    pub postgres: PostgresServer,
    more: More,
    /// Of each control plane, where the fleet is one that can be cut: its way to the store.
    pub ways: Vec<Cut>,
    /// Of each control plane, if gateways can be made deaf: their way to it.
    pub links: Vec<Deaf>,
    secure: Option<Secure>,
    pub repository: TempDir,
}

/// Who signs the certificates of a fleet that speaks TLS to its store and to its gateways.
struct Secure {
    servers: Authority,
    gateways: Authority,
}

/// A process of the fleet. Its folder, configuration and ports stay the same over restarts.
pub struct Member {
    pub proc: Proc,
    role: &'static str,
    /// Of a gateway.
    pub data: Client,
    pub admin: Client,
    /// Where gateways come to; of a control plane.
    links: u16,
    pub dir: TempDir,
}

impl Member {
    /// Where its configuration is.
    pub fn config_path(&self) -> PathBuf {
        self.dir.join("holdfast.yaml")
    }

    /// Its admin port.
    pub fn admin_url(&self) -> String {
        format!("http://{}", self.admin.addr())
    }

    /// Changes a resource by the admin port.
    pub async fn put(&self, path: &str, value: &Value) -> Answer {
        self.admin.put(path, &[], value).await
    }

    /// Puts something into the file of its key that is none.
    pub fn spoil_key(&self) {
        std::fs::write(self.dir.join("own.key"), "rubbish").unwrap();
    }
}

impl Roles {
    /// Starts everything, and waits until all of it is ready.
    pub async fn start(shape: Shape) -> Self {
        Self::start_with(shape, More::default(), None).await
    }

    /// The same with TLS to the store and to gateways, who have to show certificates.
    pub async fn start_secure(shape: Shape) -> Self {
        Self::start_with(shape, More::default(), Some(Secure { servers: Authority::new(), gateways: Authority::new() }))
            .await
    }

    /// The same with a way to the store for each control plane that can be cut.
    pub async fn start_apart(shape: Shape) -> Self {
        let mut fleet = Self::start_with(Shape { controls: 0, gateways: 0, ..shape }, More::default(), None).await;
        for _ in 0..shape.controls {
            fleet.ways.push(Cut::to(fleet.postgres.port()).await);
            fleet.add_control().await;
        }
        fleet.add_gateways(shape.gateways).await;
        fleet
    }

    /// The same, of another kind.
    pub async fn start_of(shape: Shape, more: More) -> Self {
        Self::start_with(shape, more, None).await
    }

    async fn start_with(shape: Shape, more: More, secure: Option<Secure>) -> Self {
        let repository = samples(Layout::Names, more.versions);
        let mut servers = Vec::new();
        let flags: Vec<&str> = ["--load-time", shape.load].iter().chain(more.flags).copied().collect();
        for _ in 0..more.servers {
            servers.push(server(&repository, &flags).await);
        }
        let postgres = match &secure {
            None => PostgresServer::start().await,
            Some(secure) => PostgresServer::start_with_tls(&secure.servers.server(&["127.0.0.1"]), None).await,
        };
        let (gateways, controls) = (Vec::new(), Vec::new());
        let (ways, links) = (Vec::new(), Vec::new());
        let mut fleet = Self { gateways, controls, servers, postgres, more, ways, links, secure, repository };
        for _ in 0..shape.controls {
            fleet.add_control().await;
        }
        fleet.add_gateways(shape.gateways).await;
        fleet
    }

    async fn add_control(&mut self) {
        let control = self.control();
        control.wait_ready().await;
        if self.more.deaf {
            self.links.push(Deaf::to(control.links).await);
        }
        self.controls.push(control);
    }

    async fn add_gateways(&mut self, count: usize) {
        for number in 1..=count {
            let gateway = self.gateway(&format!("g{number}")).await;
            gateway.wait_ready().await;
            self.gateways.push(gateway);
        }
    }

    fn control(&self) -> Member {
        let (dir, links) = (TempDir::new(), free_port());
        let urls: Vec<String> = self.servers.iter().map(ModelServer::url).collect();
        let tenants = json!([{"name": "acme", "subset": 2, "pins": {"screen": "1"}}]);
        let mut content = config(&urls, self.more.versions, tenants);
        (self.more.control)(&mut content);
        let (password, secret) = (dir.join("password"), dir.join("secret"));
        std::fs::write(&password, PostgresServer::PASSWORD).unwrap();
        std::fs::write(&secret, SECRET).unwrap();
        let port = self.ways.get(self.controls.len()).map_or(self.postgres.port(), Cut::port);
        let url = format!("postgresql://holdfast@127.0.0.1:{port}/postgres");
        content["store"] = json!({"postgres": url, "password_file": password});
        content["control"] =
            json!({"listen": format!("127.0.0.1:{links}"), "secret_file": secret, "lease": self.more.lease});
        if let Some(secure) = &self.secure {
            let (certificates, key) = secure.servers.server(&["127.0.0.1"]).files(dir.path(), "own");
            let gateways = secure.gateways.file(dir.join("gateways.pem"));
            content["control"]["tls"] = json!({"certificates": certificates, "key": key, "gateways": gateways});
            content["store"]["tls"] = json!({"authorities": secure.servers.file(dir.join("servers.pem"))});
        }
        Member::start("control", dir, links, content)
    }

    /// Starts a gateway, and waits until it lives.
    pub async fn gateway(&self, name: &str) -> Member {
        self.gateway_with(name, SECRET).await
    }

    /// The same, with a secret of its own.
    pub async fn gateway_with(&self, name: &str, secret: &str) -> Member {
        let tls = self.secure.as_ref().map(|secure| (&secure.servers, Some(&secure.gateways)));
        self.gateway_by(name, secret, tls).await
    }

    /// A gateway of a secure fleet that believes another authority.
    pub async fn gateway_that_believes(&self, servers: &Authority) -> Member {
        let own = self.secure.as_ref().map(|secure| &secure.gateways);
        self.gateway_by("misled", SECRET, Some((servers, own))).await
    }

    /// A gateway of a secure fleet whose certificate somebody else has signed; or who has none.
    pub async fn gateway_signed_by(&self, name: &str, own: Option<&Authority>) -> Member {
        self.gateway_by(name, SECRET, self.secure.as_ref().map(|secure| (&secure.servers, own))).await
    }

    async fn gateway_by(&self, name: &str, secret: &str, tls: Option<(&Authority, Option<&Authority>)>) -> Member {
        let dir = TempDir::new();
        let file = dir.join("secret");
        std::fs::write(&file, secret).unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let port = |(at, control): (usize, &Member)| self.links.get(at).map_or(control.links, Deaf::port);
        let urls: Vec<String> =
            self.controls.iter().enumerate().map(port).map(|port| format!("{scheme}://127.0.0.1:{port}")).collect();
        let mut content = json!({
            "auth": {"trusted_header": "x-tenant", "trusted_user_header": "x-user"},
            "log": {"access": "errors"},
            "workers": 1,
            "gateway": {"name": name, "control": urls, "secret_file": file, "poll": "1s", "start_within": "1s"},
        });
        if let Some((servers, own)) = tls {
            content["gateway"]["tls"] = json!({"authorities": servers.file(dir.join("servers.pem"))});
            if let Some(own) = own {
                let (certificates, key) = own.both(name, &["127.0.0.1"]).files(dir.path(), "own");
                content["gateway"]["tls"]["certificates"] = json!(certificates);
                content["gateway"]["tls"]["key"] = json!(key);
                content["gateway"]["tls"]["peers"] = json!(own.file(dir.join("peers.pem")));
            }
        }
        let peer =
            if self.more.peers { json!({"peer": SocketAddr::from(([127, 0, 0, 1], free_port()))}) } else { json!({}) };
        let mut content = merged(content, peer);
        (self.more.gateway)(name, &mut content);
        let gateway = Member::start("gateway", dir, 0, content);
        gateway.wait_live().await;
        gateway
    }

    /// Puts other certificates into the files of a secure fleet's processes.
    pub fn certify(&self) {
        let Some(Secure { servers, gateways }) = &self.secure else { panic!("a fleet without certificates") };
        for control in &self.controls {
            let _ = servers.server(&["127.0.0.1"]).files(control.dir.path(), "own");
        }
        for gateway in &self.gateways {
            let _ = gateways.both("anew", &["127.0.0.1"]).files(gateway.dir.path(), "own");
        }
    }

    /// Control planes believe these servers, too, beside those of the secure fleet.
    pub fn believe_also(&self, others: &Authority) {
        let Some(Secure { servers, .. }) = &self.secure else { panic!("a fleet without certificates") };
        let both = format!("{}{}", servers.pem(), others.pem());
        for control in &self.controls {
            std::fs::write(control.dir.join("servers.pem"), &both).unwrap();
        }
    }

    /// A desk of the test's own over the same store: what an admin API would ask.
    pub async fn desk(&self) -> Arc<Desk> {
        let store = Postgres::open(PostgresOptions::new(self.postgres.url())).await.unwrap();
        Desk::open(Arc::new(store), Frame::default(), DeskSettings::default()).await.unwrap()
    }

    /// Pins `acme` to a version; returns the revision in which that is desired.
    pub async fn pin(&self, desk: &Arc<Desk>, version: &str) -> u64 {
        desk.change(pin_ask(version)).await.unwrap().revision.unwrap().0
    }

    /// Waits until `acme` is pinned to the version on every gateway, and answered by it.
    pub async fn wait_pin(&self, version: &str) {
        for gateway in &self.gateways {
            eventually(&format!("{version} to be in force and served"), PATIENCE, async || {
                let table = gateway.try_get("/v1/table").await?.json();
                let served = gateway.infer("acme").await;
                (pin_of(&table, "acme") == version && served.header("x-holdfast-version") == version).then_some(())
            })
            .await;
        }
    }

    /// The control plane that leads.
    pub async fn leader(&self) -> usize {
        eventually("one to lead", PATIENCE, async || {
            for (index, control) in self.controls.iter().enumerate() {
                if control.ready().await["leads"] == true {
                    return Some(index);
                }
            }
            None
        })
        .await
    }
}

/// Pins `acme` to a version.
pub fn pin_ask(version: &str) -> Ask {
    ask(vec![(ResourceKind::Pin, "acme/screen", json!(version))])
}

/// A tenant that is not there yet, pinned to version 1: in force at once, since nothing served its pin before.
pub fn tenant_ask(name: &str) -> Ask {
    let pin = format!("{name}/screen");
    ask(vec![(ResourceKind::Tenant, name, json!({"subset": 1})), (ResourceKind::Pin, &pin, json!("1"))])
}

/// A change of these resources.
pub fn ask(edits: Vec<(ResourceKind, &str, Value)>) -> Ask {
    let edit = |(kind, name, value): (ResourceKind, &str, Value)| Edit {
        kind,
        name: name.into(),
        value: Some(Arc::new(value)),
    };
    Ask {
        base: None,
        author: "test".to_owned(),
        reason: String::new(),
        at_ms: 1,
        what: What::Edits(edits.into_iter().map(edit).collect()),
        dry_run: false,
        options: None,
        retired: Default::default(),
        term: None,
    }
}

impl Member {
    fn start(role: &'static str, dir: TempDir, links: u16, mut content: Value) -> Self {
        let [data, admin] = [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        content["listen"]["data"] = json!(data);
        content["listen"]["admin"] = json!(admin);
        content["state"] = json!(dir.join("state"));
        std::fs::write(dir.join("holdfast.yaml"), text(&content)).unwrap();
        let proc = Proc::start(role, command(role, &dir));
        Self { proc, role, data: Client::new(data), admin: Client::new(admin), links, dir }
    }

    /// Starts it again, after it has ended.
    pub fn start_again(&mut self) {
        self.proc.kill9();
        self.proc = Proc::start(self.role, command(self.role, &self.dir));
    }

    /// Starts it again, and waits until it lives.
    pub async fn restart(&mut self) {
        self.start_again();
        self.wait_live().await;
    }

    /// A resource of the admin port, if it answers.
    pub async fn try_get(&self, path: &str) -> Option<Answer> {
        self.admin.send(http::Method::GET, path, &[], bytes::Bytes::new()).await.ok()
    }

    /// A resource of the admin port.
    pub async fn get(&self, path: &str) -> Answer {
        self.admin.get(path, &[]).await
    }

    /// What it says of itself.
    pub async fn ready(&self) -> Value {
        self.try_ready().await.unwrap_or_default()
    }

    /// What it says of itself, if it answers.
    pub async fn try_ready(&self) -> Option<Value> {
        Some(self.try_get("/readyz?verbose").await?.json())
    }

    async fn wait_live(&self) {
        eventually(&format!("{} to live", self.role), PATIENCE, async || {
            self.try_get("/livez").await.filter(|answer| answer.status == 200)
        })
        .await;
    }

    /// Waits until it is ready.
    pub async fn wait_ready(&self) {
        eventually(&format!("{} to be ready", self.role), PATIENCE * 2, async || {
            self.try_get("/readyz").await.filter(|answer| answer.status == 200)
        })
        .await;
    }

    /// Where clients come to.
    pub fn address(&self) -> SocketAddr {
        self.data.addr()
    }

    /// An inference.
    pub async fn infer(&self, tenant: &str) -> Answer {
        self.data.post(INFER, &[("x-tenant", tenant)], &probe()).await
    }

    /// An inference that waits for a version no longer than so many milliseconds.
    pub async fn infer_within(&self, tenant: &str, ms: &str) -> Answer {
        self.data.post(INFER, &[("x-tenant", tenant), ("x-request-timeout-ms", ms)], &probe()).await
    }

    /// The revision in force.
    pub async fn revision(&self) -> u64 {
        self.get("/v1/table").await.json()["revision"].as_u64().unwrap()
    }

    /// `holdfast_table_stale_time_seconds`.
    pub async fn stale_metric(&self) -> f64 {
        let text = self.get("/metrics").await.text();
        Metrics::parse(&text).unwrap().value("holdfast_table_stale_time_seconds", &[]).unwrap()
    }

    /// Waits until its table is on disk.
    pub async fn wait_saved(&self) {
        let file = self.dir.join("state").join("last-good.table");
        eventually("the table to be saved", PATIENCE, async || file.exists().then_some(())).await;
    }
}

fn merged(mut content: Value, listen: Value) -> Value {
    content["listen"] = listen;
    content
}

fn command(role: &str, dir: &TempDir) -> Command {
    let mut command = Command::new(binary());
    command.arg(role).arg("--config").arg(dir.join("holdfast.yaml")).current_dir(dir.path());
    command
}

/// Long enough to see that something does not happen.
pub const WHILE: Duration = Duration::from_secs(1);
