//! A real Redis of our own, on a free port of the loopback address, that keeps nothing on disk.
//!
//! `make test` installs Debian's package. A test that needs it fails when it is not there: a test that skips itself proves nothing.

use crate::proc::{Proc, free_port};
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
}

impl RedisServer {
    /// Starts one.
    ///
    /// # Panics
    /// When Redis is not installed or does not come up.
    pub async fn start() -> Self {
        let port = free_port();
        Self { proc: launch(port).await, port }
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
        self.proc = launch(self.port).await;
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

async fn launch(port: u16) -> Proc {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
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
