//! Changed pins of many tenants on their way into force in real processes: warmed on real model servers, flipped, and in force at every gateway.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_model_server::{Layout, write_sample_repository};
use holdfast_testkit::http::Client;
use holdfast_testkit::{Deaf, ModelServer, PostgresServer, Proc, TempDir, eventually, free_port};
use http::Method;
use serde_json::{Value, json};

use super::line;

const LONG: Duration = Duration::from_secs(60);
const GATEWAYS: usize = 3;

pub async fn run(tenants: usize) {
    println!("# changed pins of {tenants} tenants, loads of no time");
    let repository = TempDir::new();
    write_sample_repository(repository.path(), Layout::Names, &["screen"], &["1", "2", "3"]).unwrap();
    let mut servers = Vec::new();
    for _ in 0..2 {
        let args = ["--repository", repository.path().to_str().unwrap(), "--load-time", "0ms"];
        servers.push(ModelServer::start(&program(), &args).await);
    }
    let urls: Vec<String> = servers.iter().map(ModelServer::url).collect();
    in_one_process(&urls, tenants).await;
    in_a_fleet(&urls, tenants).await;
}

/// The program beside this one.
fn program() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let program = own.parent().and_then(Path::parent).unwrap().join("holdfast");
    assert!(program.exists(), "build the program first, with the same profile");
    program
}

/// What is desired: every tenant at this version.
fn desired(urls: &[String], tenants: usize, version: &str) -> Value {
    let replicas: Vec<_> = urls
        .iter()
        .enumerate()
        .map(|(n, url)| json!({"name": format!("r{n}"), "url": url, "memory": "64GiB"}))
        .collect();
    let versions: Vec<_> = ["1", "2", "3"].map(|v| json!({"version": v, "size": "1GiB"})).to_vec();
    let rows: Vec<_> =
        (0..tenants).map(|n| json!({"name": format!("t{n}"), "subset": 2, "pins": {"screen": version}})).collect();
    json!({
        "pools": [{
            "name": "main", "protocol": "open-inference", "residency": "repository",
            "health": {"interval": "500ms", "timeout": "500ms"}, "replicas": replicas,
        }],
        "models": [{"name": "screen", "pool": "main", "versions": versions}],
        "tenants": rows,
    })
}

struct Member {
    proc: Proc,
    admin: Client,
    _dir: TempDir,
}

fn start(role: &str, mut config: Value) -> Member {
    let dir = TempDir::new();
    let [data, admin] = [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    config["listen"] = json!({"data": data, "admin": admin});
    config["state"] = json!(dir.join("state"));
    config["auth"] = json!({"trusted_header": "x-tenant"});
    config["log"] = json!({"access": "off"});
    let sections = config.as_object().unwrap().iter().map(|(name, section)| format!("{name}: {section}\n"));
    std::fs::write(dir.join("holdfast.yaml"), sections.collect::<String>()).unwrap();
    let mut command = Command::new(program());
    command.arg(role).arg("--config").arg(dir.join("holdfast.yaml")).current_dir(dir.path());
    Member { proc: Proc::start(role, command), admin: Client::new(admin), _dir: dir }
}

impl Member {
    async fn ready(&mut self) {
        let admin = &self.admin;
        self.proc
            .ready("/readyz", LONG, async || {
                let answer = admin.send(Method::GET, "/readyz", &[], Bytes::new()).await;
                answer.is_ok_and(|answer| answer.status == 200).then_some(())
            })
            .await;
    }

    async fn get(&self, path: &str) -> Option<Value> {
        Some(self.admin.send(Method::GET, path, &[], Bytes::new()).await.ok()?.json())
    }

    /// Whether this tenant's pin is in force here, at the version.
    async fn serves(&self, tenant: usize, version: &str) -> Option<()> {
        let before = tenant.checked_sub(1).map_or(String::new(), |n| format!("t{n}"));
        let page = self.get(&format!("/v1/table?after={before}&limit=1")).await?;
        let row = page["tenants"].as_array()?.first()?.clone();
        (row["pins"]["screen"] == version).then_some(())
    }
}

async fn warm(control: &Member) {
    eventually("nothing to be pending", LONG, async || {
        let pending = control.get("/v1/pins?pending=true&limit=1").await?;
        pending["items"].as_array().filter(|items| items.is_empty()).map(|_| ())
    })
    .await;
}

/// Applies the state, and waits until every gateway has all of it in force.
async fn applied(what: &str, control: &Member, gateways: &[&Member], state: &Value, version: &str) {
    let begin = Instant::now();
    let fields = [("content-type", "application/json")];
    let told = control.admin.send(Method::POST, "/v1/apply", &fields, state.to_string().into()).await.unwrap();
    assert_eq!(told.status, 200, "{}", told.text());
    line(&format!("{what}: taken, written down and answered"), begin.elapsed());
    warm(control).await;
    let count = state["tenants"].as_array().unwrap().len();
    for gateway in gateways {
        // Pins of one change that are ready flip together.
        for tenant in [0, count - 1] {
            eventually("the pin in force", LONG, async || gateway.serves(tenant, version).await).await;
        }
    }
    line(&format!("{what}: in force at every gateway"), begin.elapsed());
}

async fn in_one_process(urls: &[String], tenants: usize) {
    let mut one = start("serve", desired(urls, tenants, "1"));
    one.ready().await;
    held(&one).await;
    applied("in one process", &one, &[&one], &desired(urls, tenants, "2"), "2").await;
}

async fn in_a_fleet(urls: &[String], tenants: usize) {
    let postgres = PostgresServer::start().await;
    let links = free_port();
    let files = TempDir::new();
    std::fs::write(files.join("password"), PostgresServer::PASSWORD).unwrap();
    let mut config = desired(urls, tenants, "1");
    let url = format!("postgresql://holdfast@127.0.0.1:{}/postgres", postgres.port());
    config["store"] = json!({"postgres": url, "password_file": files.join("password")});
    config["control"] = json!({"listen": format!("127.0.0.1:{links}"), "open": true});
    let mut control = start("control", config);
    control.ready().await;
    let mut gateways = Vec::new();
    let way = Deaf::to(links).await;
    for number in 0..GATEWAYS {
        let url = format!("http://127.0.0.1:{}", way.port());
        let section = json!({"name": format!("g{number}"), "control": [url], "poll": "1s"});
        let mut gateway = start("gateway", json!({"gateway": section, "workers": 1}));
        gateway.ready().await;
        gateways.push(gateway);
    }
    for gateway in &gateways {
        held(gateway).await;
    }
    let all: Vec<&Member> = gateways.iter().collect();
    applied(&format!("PostgreSQL and {GATEWAYS} gateways"), &control, &all, &desired(urls, tenants, "2"), "2").await;
    told("one change, answered to in force at 3 gateways", &control, &all, 50).await;
    way.deafen();
    told("the same while nothing can be pushed, with `gateway.poll: 1s`", &control, &all, 10).await;
}

/// Changes of one tenant that are in force at once, one after the other: how long after the answer every gateway has each of them in force.
async fn told(what: &str, control: &Member, gateways: &[&Member], count: usize) {
    let mut took = Vec::new();
    for number in 0..count {
        let unavailable = if number % 2 == 0 { "shed" } else { "wait" };
        let spec = json!({"spec": {"subset": 2, "unavailable": unavailable}});
        let done = control.admin.put("/v1/tenants/t0", &[], &spec).await.expect(200).json();
        let (begin, revision) = (Instant::now(), done["revision"].as_u64().unwrap());
        for gateway in gateways {
            eventually("the revision in force", LONG, async || {
                let table = gateway.get("/v1/table?limit=1").await?;
                (table["revision"].as_u64()? >= revision).then_some(())
            })
            .await;
        }
        took.push(begin.elapsed());
    }
    took.sort_unstable();
    line(&format!("{what}: median of {count}"), took[count / 2]);
    line(&format!("{what}: the most"), took[count - 1]);
}

/// Waits until both servers hold version 1, so that only what changes is measured.
async fn held(gateway: &Member) {
    eventually("version 1 to be held", LONG, async || {
        let told = gateway.get("/v1/replicas").await?;
        let rows = told["replicas"].as_array()?;
        rows.iter().all(|row| row["holds"].to_string().contains("\"shown\":true")).then_some(())
    })
    .await;
}
