//! A real Redis of our own, on a free port of the loopback address, that keeps nothing on disk.
//!
//! `make test` installs Debian's package. A test that needs it fails when it is not there: a test that skips itself proves nothing.

use crate::certificates::{Authority, Signed};
use crate::proc::{Proc, free_port};
use crate::temp::TempDir;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

/// A running Redis server.
#[derive(Debug)]
pub struct RedisServer {
    /// The process.
    pub proc: Proc,
    port: u16,
    more: Vec<String>,
    secure: Option<Secure>,
}

/// A port with TLS beside the one of the test's own.
#[derive(Debug)]
struct Secure {
    port: u16,
    folder: TempDir,
}

impl RedisServer {
    /// Starts one.
    ///
    /// # Panics
    /// When Redis is not installed or does not come up.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts one with more options, such as `--cluster-enabled yes`.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub async fn start_with(options: &[&str]) -> Self {
        let (port, more) = (free_port(), options.iter().map(|&word| word.to_owned()).collect::<Vec<_>>());
        Self { proc: launch(port, &more).await, port, more, secure: None }
    }

    /// Starts one with a second port that speaks TLS only, with this certificate; it asks clients for certificates of the authority.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub async fn start_with_tls(server: &Signed, authority: &Authority) -> Self {
        let (folder, port) = (TempDir::new(), free_port());
        let (certificate, key) = server.files(folder.path(), "server");
        let clients = authority.file(folder.path().join("clients.pem"));
        let file = |path: &std::path::Path| path.display().to_string();
        let options = [
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &file(&certificate),
            "--tls-key-file",
            &file(&key),
            "--tls-ca-cert-file",
            &file(&clients),
            "--tls-auth-clients",
            "yes",
        ];
        Self { secure: Some(Secure { port, folder }), ..Self::start_with(&options).await }
    }

    /// Where it listens with TLS.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn secure_url(&self) -> String {
        format!("rediss://localhost:{}", self.secure.as_ref().expect("a port with TLS").port)
    }

    /// The folder with its certificate, for others.
    ///
    /// # Panics
    /// When it has none.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        self.secure.as_ref().expect("a port with TLS").folder.path()
    }

    /// The port of the test's own.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Starts it again on the same port, empty, after a kill or while it runs.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn restart(&mut self) {
        self.proc.kill9();
        self.proc = launch(self.port, &self.more).await;
    }

    /// Runs a command, bypassing the code under test, and gives the answer's first line, or a bulk string's content.
    ///
    /// # Panics
    /// When there is no answer.
    #[must_use]
    pub fn command(&self, words: &[&str]) -> String {
        ask(self.port, words).unwrap_or_else(|e| panic!("{words:?}: {e}"))
    }

    /// A figure of `INFO`, such as `cmdstat_evalsha`'s calls.
    ///
    /// # Panics
    /// When there is no answer.
    #[must_use]
    pub fn info(&self, section: &str, key: &str) -> Option<String> {
        let told = self.command(&["INFO", section]);
        told.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':').map(str::to_owned))
    }
}

/// Redis servers that are one cluster, each with a part of the slots.
#[derive(Debug)]
pub struct RedisCluster {
    /// The nodes, all of them masters.
    pub nodes: Vec<RedisServer>,
    _folder: TempDir,
}

/// Hash slots of a cluster.
const HASH_SLOTS: usize = 16_384;

impl RedisCluster {
    /// Starts one of so many nodes, which serves what slots it has when nodes are gone.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn start(count: usize) -> Self {
        let folder = TempDir::new();
        let mut nodes = Vec::new();
        let mut buses = Vec::new();
        for at in 0..count {
            let (bus, file) = (free_port().to_string(), folder.path().join(format!("node{at}.conf")));
            let file = file.display().to_string();
            let options = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-config-file", &file];
            let options = [&options[..], &["--cluster-require-full-coverage", "no"]].concat();
            nodes.push(RedisServer::start_with(&options).await);
            buses.push(bus);
        }
        let part = HASH_SLOTS.div_ceil(count);
        for (at, node) in nodes.iter().enumerate() {
            let (first, last) = (at * part, ((at + 1) * part).min(HASH_SLOTS) - 1);
            let told = node.command(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            assert_eq!(told, "+OK");
            for (other, bus) in nodes.iter().zip(&buses) {
                let _ = node.command(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string(), bus]);
            }
        }
        let cluster = Self { nodes, _folder: folder };
        cluster.settled(count).await;
        cluster
    }

    /// Waits until every node knows of so many and of all slots.
    async fn settled(&self, count: usize) {
        for node in &self.nodes {
            crate::wait::eventually("the cluster to be one", Duration::from_secs(60), async || {
                let told = node.command(&["CLUSTER", "INFO"]);
                let says = |line: String| told.lines().any(|known| known == line);
                let all = says("cluster_state:ok".to_owned()) && says(format!("cluster_known_nodes:{count}"));
                (all && says(format!("cluster_slots_assigned:{HASH_SLOTS}"))).then_some(())
            })
            .await;
        }
    }

    /// The node that a key is at, by its place among them.
    ///
    /// # Panics
    /// When the cluster does not say.
    #[must_use]
    pub fn node_of(&self, key: &str) -> usize {
        let told = self.nodes.iter().position(|node| !node.command(&["GET", key]).starts_with("-MOVED"));
        told.expect("a node has it")
    }

    /// The hash slot of a key.
    #[must_use]
    pub fn slot_of(&self, key: &str) -> String {
        self.nodes[0].command(&["CLUSTER", "KEYSLOT", key]).trim_start_matches(':').to_owned()
    }

    /// A node's id.
    #[must_use]
    pub fn id(&self, node: usize) -> String {
        self.nodes[node].command(&["CLUSTER", "MYID"])
    }
}

async fn launch(port: u16, more: &[String]) -> Proc {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.args(more);
    let mut proc = Proc::start("redis", command);
    proc.ready("PING", Duration::from_secs(20), async || ask(port, &["PING"]).ok()).await;
    proc
}

fn ask(port: u16, words: &[&str]) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut text = format!("*{}\r\n", words.len());
    words.iter().for_each(|word| text.push_str(&format!("${}\r\n{word}\r\n", word.len())));
    stream.write_all(text.as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let line = line.trim_end().to_owned();
    let Some(length) = line.strip_prefix('$').and_then(|n| n.parse::<usize>().ok()) else { return Ok(line) };
    let mut bulk = vec![0; length];
    reader.read_exact(&mut bulk)?;
    Ok(String::from_utf8_lossy(&bulk).into_owned())
}
