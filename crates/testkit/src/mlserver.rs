//! A real MLServer with scikit-learn models.
//!
//! `make test` installs it into a virtual environment and trains the models. A test that needs it fails when it is not there: a test
//! that skips itself proves nothing.

use crate::http::Client;
use crate::proc::{Proc, free_port};
use crate::temp::TempDir;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Python and scikit-learn take seconds to import on a busy machine.
const START: Duration = Duration::from_secs(90);
const VARIABLE: &str = "HOLDFAST_MLSERVER_VENV";
const FOLDER: &str = ".venv-mlserver";

/// A running MLServer; no model is loaded at its start.
#[derive(Debug)]
pub struct MlServer {
    /// The process.
    pub proc: Proc,
    /// Client of its REST port.
    pub http: Client,
    grpc: u16,
    _dir: TempDir,
}

impl MlServer {
    /// Starts MLServer over the model folders in `repository` and waits until it is ready.
    ///
    /// # Panics
    /// When it is not installed, ends, or does not come up.
    pub async fn start(repository: &Path) -> Self {
        let dir = TempDir::new();
        let (http, grpc) = (free_port(), free_port());
        let mut command = Command::new(venv().join("bin/mlserver"));
        command.arg("start").arg(repository).current_dir(dir.path());
        // Settings come from the environment, so that several servers can share one folder of models.
        command.envs([
            ("MLSERVER_HOST", "127.0.0.1".to_owned()),
            ("MLSERVER_HTTP_PORT", http.to_string()),
            ("MLSERVER_GRPC_PORT", grpc.to_string()),
            ("MLSERVER_METRICS_PORT", free_port().to_string()),
            ("MLSERVER_METRICS_DIR", dir.path().display().to_string()),
            ("MLSERVER_LOAD_MODELS_AT_STARTUP", "false".to_owned()),
            ("MLSERVER_PARALLEL_WORKERS", "0".to_owned()),
        ]);
        let mut proc = Proc::start("mlserver", command);
        let http = Client::new(SocketAddr::from(([127, 0, 0, 1], http)));
        proc.ready("/v2/health/ready", START, async || {
            let answer = http.send(http::Method::GET, "/v2/health/ready", &[], bytes::Bytes::new()).await;
            answer.is_ok_and(|a| a.status.is_success()).then_some(())
        })
        .await;
        Self { proc, http, grpc, _dir: dir }
    }

    /// Its REST address as a URL, for `replicas: [{url: ...}]`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.http.addr())
    }

    /// Its gRPC address.
    #[must_use]
    pub fn grpc_addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.grpc))
    }

    /// Loads a model by name, directly.
    ///
    /// # Panics
    /// When it refuses.
    pub async fn load(&self, name: &str) {
        let _ = self.http.post(&format!("/v2/repository/models/{name}/load"), &[], &Value::Null).await.expect(200);
    }
}

/// The virtual environment: `HOLDFAST_MLSERVER_VENV`, else `.venv-mlserver` in this folder or one above it.
///
/// # Panics
/// When there is none, with the command that makes it.
#[must_use]
pub fn venv() -> PathBuf {
    let found = match std::env::var_os(VARIABLE) {
        Some(path) => Some(PathBuf::from(path)),
        None => upward(FOLDER),
    };
    let installed = found.filter(|path| path.join("bin/mlserver").is_file());
    installed.unwrap_or_else(|| {
        panic!("MLServer is not installed: `make test` installs it into {FOLDER}; {VARIABLE} can name another place")
    })
}

/// A program of the virtual environment.
///
/// # Panics
/// When it is not there.
#[must_use]
pub fn tool(name: &str) -> PathBuf {
    let found = match std::env::var_os(VARIABLE) {
        Some(path) => Some(PathBuf::from(path)),
        None => upward(FOLDER),
    };
    let found = found.map(|venv| venv.join("bin").join(name)).filter(|tool| tool.is_file());
    found.unwrap_or_else(|| panic!("{name} is not installed: `make test` installs it into {FOLDER}"))
}

/// The folder with the trained models `digits-1` to `digits-4`.
///
/// # Panics
/// When they have not been trained, with the command that does it.
#[must_use]
pub fn digits() -> PathBuf {
    let folder = venv().join("digits");
    assert!(
        folder.join("expected.json").is_file(),
        "no trained models in {}: `make test` trains them",
        folder.display()
    );
    folder
}

/// What the trained models answer: `{"inputs": [[64 numbers], ...], "predictions": {"1": [label, ...], ...}}`.
///
/// # Panics
/// When the models have not been trained.
#[must_use]
pub fn digits_expected() -> Value {
    let file = digits().join("expected.json");
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// Runs a script of the project's `scripts` folder with the environment's Python.
///
/// # Panics
/// When it cannot be started.
pub async fn python(script: &str, args: &[&str]) -> Output {
    let file = upward(&format!("scripts/{script}")).unwrap_or_else(|| panic!("scripts/{script} is not there"));
    let mut command = tokio::process::Command::new(venv().join("bin/python"));
    command.arg(file).args(args).kill_on_drop(true);
    command.output().await.unwrap_or_else(|e| panic!("cannot run {script}: {e}"))
}

/// `name` in the working folder or the nearest folder above it that has it.
fn upward(name: &str) -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    here.ancestors().map(|folder| folder.join(name)).find(|path| path.exists())
}
