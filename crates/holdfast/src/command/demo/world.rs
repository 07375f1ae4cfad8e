//! The demo's processes and files: sample models, model servers, a gateway, its configuration. All of it ends with its owner.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_model_server::{Layout, write_sample_repository};
use http::Method;
use serde_json::Value;

use super::calls::Calls;
use crate::command::Failure;

/// The model.
pub const MODEL: &str = "screen";
/// Its versions.
pub const VERSIONS: [&str; 7] = ["1", "2", "3", "4", "5", "6", "7"];
/// Each tenant, and the version that it pins.
pub const TENANTS: [(&str, &str); 4] = [("acme", "1"), ("globex", "2"), ("initech", "3"), ("umbrella", "4")];
/// The model servers.
pub const REPLICAS: [&str; 3] = ["r1", "r2", "r3"];
/// How many of them serve each tenant.
pub const SUBSET: usize = 2;
/// How long a model server takes to load a version.
pub const LOAD_TIME: Duration = Duration::from_millis(800);
/// Time for a process to come up, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// A child process; killed and collected when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The demo's folder; removed when it is dropped, unless it is to be kept.
struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// See the module. Processes come before the folder, so that they have ended when it goes.
pub struct World {
    gateway: Option<Process>,
    servers: Vec<(&'static str, u16, Process)>,
    pins: Vec<(&'static str, &'static str)>,
    data: String,
    admin: Calls,
    folder: Folder,
}

fn failed(what: &str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::failed(format!("{what}: {error}"))
}

impl World {
    /// Starts everything and waits until every pinned version is held where it should be.
    pub async fn start(keep: bool) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("holdfast-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(failed("the demo's folder cannot be made"))?;
        let folder = Folder { path, keep };
        write_sample_repository(&folder.path.join("models"), Layout::Names, &[MODEL], &VERSIONS)
            .map_err(failed("the sample models cannot be written"))?;
        let mut servers = Vec::new();
        for name in REPLICAS {
            servers.push((name, 0, start_server(&folder.path, name, 0)?));
        }
        for (name, port, _) in &mut servers {
            *port = wait_for_port(&folder.path.join(format!("{name}.port"))).await?;
        }
        let [data, admin] = [free_port()?, free_port()?].map(|port| format!("127.0.0.1:{port}"));
        let pins = TENANTS.to_vec();
        let mut world = Self {
            gateway: None,
            servers,
            pins,
            admin: Calls::new(&admin)?.with("content-type", "application/json")?,
            data,
            folder,
        };
        world.write_config()?;
        let config = world.folder.path.join("holdfast.yaml");
        let arguments = [OsStr::new("serve"), OsStr::new("--config"), config.as_os_str()];
        world.gateway = Some(start_process(&world.folder.path, "gateway", &arguments)?);
        world.wait_until_warm().await?;
        Ok(world)
    }

    fn config_text(&self) -> String {
        let replicas = self.servers.iter();
        let replicas = replicas.map(|(name, port, _)| {
            format!("      - {{ name: {name}, url: \"http://127.0.0.1:{port}\", memory: 16GiB }}\n")
        });
        let versions = VERSIONS.map(|v| format!("      - {{ version: \"{v}\", size: 2GiB }}\n")).concat();
        let tenants = self.pins.iter().map(|(tenant, version)| {
            format!(
                "  - {{ name: {tenant}, subset: {SUBSET}, pins: {{ {MODEL}: \"{version}\" }}, allow: {{ {MODEL}: [\"5\", \"6\"] }} }}\n"
            )
        });
        format!(
            "listen: {{ data: \"{data}\", admin: \"{admin}\" }}\nstate: \"{state}\"\nlog: {{ file: \"{log}\" }}\n\
             auth: {{ trusted_header: x-tenant }}   # a stand-in for real authentication, on loopback only\n\
             pools:\n  - name: screening\n    protocol: open-inference\n    residency: repository\n    \
             health: {{ interval: 250ms, timeout: 250ms, fall: 2, out_of_service_after: 1s, ease_in: 1s }}\n    \
             replicas:\n{replicas}models:\n  - name: {MODEL}\n    pool: screening\n    idempotent: true\n    \
             versions:\n{versions}tenants:\n{tenants}",
            data = self.data,
            admin = self.admin.authority(),
            state = self.folder.path.join("state").display(),
            log = self.folder.path.join("access.log").display(),
            replicas = replicas.collect::<String>(),
            tenants = tenants.collect::<String>(),
        )
    }

    fn write_config(&self) -> Result<(), Failure> {
        let file = self.folder.path.join("holdfast.yaml");
        let beside = file.with_extension("new");
        let written = std::fs::write(&beside, self.config_text()).and_then(|()| std::fs::rename(&beside, &file));
        written.map_err(failed("the configuration cannot be written"))
    }

    /// Sets another pin, as `holdfast pin set` does.
    pub async fn pin(&mut self, tenant: &str, version: &'static str) -> Result<(), Failure> {
        let (path, body) = (format!("/v1/pins/{tenant}/{MODEL}"), serde_json::json!({ "version": version }));
        let told = self.admin.send(Method::PUT, &path, body.to_string(), Duration::from_secs(5)).await;
        let told = told.map_err(|e| Failure::failed(format!("the pin cannot be set: {e}")))?;
        if !told.status.is_success() {
            let words = String::from_utf8_lossy(&told.body).into_owned();
            return Err(Failure::failed(format!("the pin is refused: {words}")));
        }
        for (name, pinned) in &mut self.pins {
            if *name == tenant {
                *pinned = version;
            }
        }
        Ok(())
    }

    /// Kills a model server, as a machine that loses its power would.
    pub fn kill(&mut self, replica: &str) {
        self.servers.retain(|(name, ..)| *name != replica);
    }

    /// Starts a model server again where it was. It holds nothing.
    pub fn start_again(&mut self, replica: &'static str, port: u16) -> Result<(), Failure> {
        let process = start_server(&self.folder.path, replica, port)?;
        self.servers.push((replica, port, process));
        Ok(())
    }

    /// The port of a model server.
    pub fn port_of(&self, replica: &str) -> Option<u16> {
        self.servers.iter().find(|(name, ..)| *name == replica).map(|(_, port, _)| *port)
    }

    /// What the gateway knows, by its admin port.
    pub async fn ask_admin(&self, path: &str) -> Result<Value, Failure> {
        let told = self.admin.send(Method::GET, path, String::new(), Duration::from_secs(5)).await;
        let told = told.map_err(|e| Failure::failed(format!("the admin port does not answer: {e}")))?;
        serde_json::from_slice(&told.body).map_err(|e| Failure::failed(format!("{path} is no JSON: {e}")))
    }

    /// The replicas that hold a version now.
    pub async fn holders(&self, version: &str) -> Result<Vec<String>, Failure> {
        let told = self.ask_admin("/v1/replicas").await?;
        let replicas = told["replicas"].as_array().cloned().unwrap_or_default();
        let holds = |replica: &Value| {
            let held = replica["holds"].as_array().cloned().unwrap_or_default();
            held.iter().any(|h| h["version"] == version && h["shown"] == true)
        };
        let holders = replicas.iter().filter(|replica| holds(replica));
        Ok(holders.filter_map(|r| r["replica"].as_str().map(str::to_owned)).collect())
    }

    /// Waits until every replica that should hold a pinned version does.
    pub async fn wait_until_warm(&self) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Ok(ready) = self.ask_admin("/readyz?verbose").await
                && ready["missing"].as_array().is_some_and(Vec::is_empty)
                && self.all_pins_held().await?
            {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(Failure::failed("the pinned versions are not loaded in time"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn all_pins_held(&self) -> Result<bool, Failure> {
        for (_, version) in &self.pins {
            if self.holders(version).await?.len() < SUBSET.min(self.servers.len()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Where clients connect.
    pub fn data(&self) -> &str {
        &self.data
    }

    /// The files of the models.
    pub fn models(&self) -> PathBuf {
        self.folder.path.join("models")
    }

    /// What there is to see.
    pub fn introduction(&self) -> String {
        let tenants = TENANTS.map(|(tenant, version)| format!("{tenant} pins {MODEL} {version}")).join(", ");
        format!(
            "The gateway listens on http://{}, its admin port on http://{}.\n{tenants}; {SUBSET} of {} replicas serve each.",
            self.data,
            self.admin.authority(),
            REPLICAS.len()
        )
    }

    /// A failure with the place of the files, if they stay.
    pub fn failed(&self, scene: &str, why: &str) -> Failure {
        let hint = if self.folder.keep {
            format!("the files are in {}", self.folder.path.display())
        } else {
            "run it with --keep to look at its files".to_owned()
        };
        Failure::failed(format!("{scene}: did not come out as told: {why}\n{hint}"))
    }

    /// What a person may do now.
    pub fn what_next(&self) -> String {
        let folder = self.folder.path.display();
        if !self.folder.keep {
            return "What to try next:\n  holdfast demo --keep          keeps the configuration, the models and the logs\n  \
                    holdfast schema               what a configuration may say\n  \
                    holdfast model-server --help  the faults that a model server can be told to have"
                .to_owned();
        }
        let servers = self.servers.iter().map(|(name, port, _)| {
            format!(
                "  holdfast model-server --repository {folder}/models --name {name} --listen 127.0.0.1:{port} --load-time 1s &\n"
            )
        });
        format!(
            "What to try next, with the files in {folder}:\n{}  holdfast serve --config {folder}/holdfast.yaml &\n  \
             export HOLDFAST_ADMIN=http://{}\n  holdfast table show\n  holdfast replica list\n  \
             holdfast explain --tenant acme --model {MODEL}\n  holdfast pin set acme {MODEL} 2 --wait\n  holdfast table history",
            servers.collect::<String>(),
            self.admin.authority()
        )
    }
}

/// A port that is free now. The gateway keeps its addresses over the whole demo, so they are chosen before it starts.
fn free_port() -> Result<u16, Failure> {
    let bound = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(failed("there is no free port"))
}

fn start_server(folder: &Path, name: &str, port: u16) -> Result<Process, Failure> {
    let (models, port_file) = (folder.join("models"), folder.join(format!("{name}.port")));
    let (listen, load_time) = (format!("127.0.0.1:{port}"), format!("{}ms", LOAD_TIME.as_millis()));
    let flags = ["model-server", "--name", name, "--listen", &listen, "--memory", "16GiB", "--load-time", &load_time];
    let mut arguments: Vec<&OsStr> = flags.iter().map(OsStr::new).collect();
    arguments.extend([
        OsStr::new("--repository"),
        models.as_os_str(),
        OsStr::new("--port-file"),
        port_file.as_os_str(),
    ]);
    start_process(folder, name, &arguments)
}

fn start_process(folder: &Path, name: &str, arguments: &[&OsStr]) -> Result<Process, Failure> {
    let program = std::env::current_exe().map_err(failed("this program cannot be found"))?;
    let log = File::create(folder.join(format!("{name}.log"))).map_err(failed("a log cannot be made"))?;
    let errors = log.try_clone().map_err(failed("a log cannot be made"))?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).stdout(log).stderr(errors);
    command.spawn().map(Process).map_err(failed("a process cannot be started"))
}

async fn wait_for_port(file: &Path) -> Result<u16, Failure> {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        if let Some(port) = text.trim().rsplit(':').next().and_then(|port| port.parse().ok()) {
            return Ok(port);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(Failure::failed("a model server does not come up"))
}
