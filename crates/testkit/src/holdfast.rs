//! `holdfast serve` as a child process, on ports and folders of its own.

use crate::http::{Answer, Client};
use crate::metrics::Metrics;
use crate::proc::{Proc, free_port};
use crate::temp::{TempDir, write_atomically};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Time from the start of the process to `/livez` on both ports.
const START: Duration = Duration::from_mins(1);

/// A running gateway with its control plane.
///
/// The two ports, the state folder and the configuration file stay the same over [`Holdfast::restart`].
#[derive(Debug)]
pub struct Holdfast {
    /// The process. Before `dir`, so that it has ended when its folder is removed.
    pub proc: Proc,
    /// Client of the data port.
    pub data: Client,
    /// Client of the admin port.
    pub admin: Client,
    binary: PathBuf,
    env: Vec<(String, String)>,
    config: String,
    dir: TempDir,
}

/// Starts `BINARY serve` in a folder with this configuration, as it is but for `state`, and waits for nothing.
///
/// # Panics
/// When the file cannot be written or the process not be started.
pub fn serve_in(binary: &Path, dir: &TempDir, config: &Value) -> Proc {
    let sections = config.as_object().into_iter().flatten().map(|(name, section)| format!("{name}: {section}\n"));
    let text: String = sections.chain([format!("state: {}\n", dir.join("state").display())]).collect();
    let file = dir.join("holdfast.yaml");
    std::fs::write(&file, text).expect("the configuration can be written");
    let mut command = Command::new(binary);
    command.arg("serve").arg("--config").arg(file).current_dir(dir.path());
    Proc::start("serve", command)
}

impl Holdfast {
    /// Starts `BINARY serve --config FILE` and waits for `/livez` on both ports. Pass `Path::new(env!("CARGO_BIN_EXE_holdfast"))`.
    ///
    /// `config` is the configuration without `listen` and `state`: those two are put before it, and `truth: file` if it names no truth.
    ///
    /// # Panics
    /// When the process ends or does not come up.
    pub async fn start(binary: &Path, config: &str) -> Self {
        Self::start_with(binary, config, &[]).await
    }

    /// Like [`Holdfast::start`], with variables added to the child's environment.
    ///
    /// # Panics
    /// When the process ends or does not come up.
    pub async fn start_with(binary: &Path, config: &str, env: &[(&str, &str)]) -> Self {
        let dir = TempDir::new();
        let data = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let admin = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let env: Vec<_> = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        write_config(&dir, data, admin, config);
        let mut holdfast = Self {
            proc: Proc::start("holdfast", command(binary, &dir, &env)),
            data: Client::new(data),
            admin: Client::new(admin),
            binary: binary.to_owned(),
            env,
            config: config.to_owned(),
            dir,
        };
        holdfast.wait_live().await;
        holdfast
    }

    /// Ends the process if it runs, starts it again on the same ports, folder and configuration, and waits for it.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn restart(&mut self) {
        self.proc.kill9();
        self.proc = Proc::start("holdfast", command(&self.binary, &self.dir, &self.env));
        self.wait_live().await;
    }

    /// Waits for `/livez` on both ports.
    ///
    /// # Panics
    /// When the process ends, or after a minute.
    pub async fn wait_live(&mut self) {
        let (data, admin) = (Client::new(self.data.addr()), Client::new(self.admin.addr()));
        self.proc
            .ready("/livez", START, async || (ok(&data, "/livez").await && ok(&admin, "/livez").await).then_some(()))
            .await;
    }

    /// Waits for `/readyz` on the data port.
    ///
    /// # Panics
    /// When the process ends, or after `timeout`.
    pub async fn wait_ready(&mut self, timeout: Duration) {
        let data = &self.data;
        self.proc.ready("/readyz", timeout, async || ok(data, "/readyz").await.then_some(())).await;
    }

    /// The configuration file.
    #[must_use]
    pub fn config_path(&self) -> PathBuf {
        self.dir.join("holdfast.yaml")
    }

    /// The state folder named by the configuration.
    #[must_use]
    pub fn state_path(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// Replaces the configuration by what `edit` makes of it (the part that was given to `start`). The file changes in one step.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn edit_config(&mut self, edit: impl FnOnce(&str) -> String) {
        self.config = edit(&self.config);
        write_config(&self.dir, self.data.addr(), self.admin.addr(), &self.config);
    }

    /// GET on the admin port, expecting 200 and JSON.
    ///
    /// # Panics
    /// Otherwise; the message shows the answer.
    pub async fn admin_get(&self, path: &str) -> Value {
        self.admin.get(path, &[]).await.expect(200).json()
    }

    /// A scrape of `/metrics`.
    ///
    /// # Panics
    /// When a line does not parse.
    pub async fn metrics(&self) -> Metrics {
        let answer = self.admin.get("/metrics", &[]).await.expect(200);
        Metrics::parse(&answer.text()).unwrap_or_else(|e| panic!("/metrics: {e}"))
    }

    /// POST to the data port as `tenant`, by the development header `x-tenant`.
    ///
    /// # Panics
    /// When no complete answer comes.
    pub async fn infer(&self, tenant: &str, path: &str, body: &Value) -> Answer {
        self.data.post(path, &[("x-tenant", tenant)], body).await
    }

    /// Runs the command line against this server (`HOLDFAST_ADMIN` is set) and waits for its end.
    ///
    /// # Panics
    /// When it cannot be started.
    pub async fn cli(&self, args: &[&str]) -> Output {
        let mut command = tokio::process::Command::new(&self.binary);
        command.args(args).env("HOLDFAST_ADMIN", format!("http://{}", self.admin.addr()));
        command.kill_on_drop(true).output().await.unwrap_or_else(|e| panic!("cannot run {args:?}: {e}"))
    }

    /// [`Holdfast::cli`] with `--output json`, expecting exit code 0.
    ///
    /// # Panics
    /// On another exit code, or when the output is no JSON.
    pub async fn cli_json(&self, args: &[&str]) -> Value {
        let mut args = args.to_vec();
        args.extend(["--output", "json"]);
        let output = self.cli(&args).await;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{args:?}: {}\n{out}\n{err}", output.status);
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{args:?} printed no JSON ({e}): {out}"))
    }
}

async fn ok(client: &Client, path: &str) -> bool {
    let answer = client.send(http::Method::GET, path, &[], bytes::Bytes::new()).await;
    answer.is_ok_and(|a| a.status == http::StatusCode::OK)
}

fn command(binary: &Path, dir: &TempDir, env: &[(String, String)]) -> Command {
    let mut command = Command::new(binary);
    command.arg("serve").arg("--config").arg(dir.join("holdfast.yaml")).current_dir(dir.path());
    command.envs(env.iter().map(|(k, v)| (k, v)));
    command
}

fn write_config(dir: &TempDir, data: SocketAddr, admin: SocketAddr, config: &str) {
    let state = dir.join("state");
    let head = format!("listen: {{ data: \"{data}\", admin: \"{admin}\" }}\nstate: \"{}\"\n", state.display());
    // Tests edit the file, unless they say that they go another way.
    let truth = if config.lines().any(|line| line.starts_with("truth:")) { "" } else { "truth: file\n" };
    write_atomically(&dir.join("holdfast.yaml"), &format!("{head}{truth}{config}"));
}
