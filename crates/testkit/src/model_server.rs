//! `holdfast model-server` as a child process.

use crate::http::Client;
use crate::proc::Proc;
use crate::temp::TempDir;
use crate::wait::try_eventually;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const START: Duration = Duration::from_mins(1);

/// A running model server of our own.
#[derive(Debug)]
pub struct ModelServer {
    /// The process.
    pub proc: Proc,
    /// Client of its port.
    pub http: Client,
    binary: PathBuf,
    args: Vec<String>,
    dir: TempDir,
}

impl ModelServer {
    /// Starts `BINARY model-server --listen 127.0.0.1:0 --port-file FILE ARGS...` and waits until it is live.
    ///
    /// # Panics
    /// When the process ends or does not come up.
    pub async fn start(binary: &Path, args: &[&str]) -> Self {
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        let dir = TempDir::new();
        let (proc, addr) = launch(binary, &args, &dir, "127.0.0.1:0").await;
        Self { proc, http: Client::new(addr), binary: binary.to_owned(), args, dir }
    }

    /// Ends the process if it runs and starts it again on the same port: it holds only what its arguments load.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn restart(&mut self) {
        self.proc.kill9();
        let listen = self.addr().to_string();
        let (proc, _) = launch(&self.binary, &self.args, &self.dir, &listen).await;
        self.proc = proc;
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.http.addr()
    }

    /// Its address as a URL, for `replicas: [{url: ...}]`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.addr())
    }

    /// Replaces its faults.
    ///
    /// # Panics
    /// When it refuses them.
    pub async fn faults(&self, faults: &Value) {
        let _ = self.http.post("/control/faults", &[], faults).await.expect(200);
    }

    /// What it has counted.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn stats(&self) -> Value {
        self.http.get("/control/stats", &[]).await.expect(200).json()
    }
}

async fn launch(binary: &Path, args: &[String], dir: &TempDir, listen: &str) -> (Proc, SocketAddr) {
    let port_file = dir.join("port");
    let _ = std::fs::remove_file(&port_file);
    let mut command = Command::new(binary);
    command.args(["model-server", "--listen", listen, "--port-file"]).arg(&port_file).args(args);
    let mut proc = Proc::start("model-server", command);
    let addr = proc.ready("its port file", START, async || read_port(&port_file)).await;
    let client = Client::new(addr);
    let live = try_eventually(START, async || {
        let answer = client.send(http::Method::GET, "/v2/health/live", &[], bytes::Bytes::new()).await;
        answer.is_ok_and(|a| a.status.is_success()).then_some(())
    })
    .await;
    assert!(live.is_some(), "the model server at {addr} is not live after {START:?}");
    (proc, addr)
}

/// The file holds a port, or an address that ends with one.
fn read_port(file: &Path) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(file).ok()?;
    let port = text.trim().rsplit(':').next()?.parse().ok()?;
    Some(SocketAddr::from(([127, 0, 0, 1], port)))
}
