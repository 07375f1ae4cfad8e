//! A child process that ends with its owner.
//!
//! The child's two outputs are read by threads of their own into one bounded buffer, whatever the test is doing, so a chatty child never
//! blocks on a full pipe. The buffer's end is printed when the owner is dropped by a panic.

use crate::wait::try_eventually;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Lines of output kept per child.
const KEPT_LINES: usize = 2_000;
/// Bytes kept of one line.
const KEPT_LINE_BYTES: usize = 4_096;
/// Lines shown when a test fails.
const SHOWN_LINES: usize = 60;

/// A running child process and what it has printed.
#[derive(Debug)]
pub struct Proc {
    name: String,
    child: Child,
    output: Arc<Mutex<VecDeque<String>>>,
}

impl Proc {
    /// Starts `command` with no input and captured output. `name` marks its lines in a failure report.
    ///
    /// # Panics
    /// When the program cannot be started.
    #[must_use]
    pub fn start(name: &str, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {name} ({command:?}): {e}"));
        let output = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(pipe) = child.stdout.take() {
            capture(pipe, "out", &output);
        }
        if let Some(pipe) = child.stderr.take() {
            capture(pipe, "err", &output);
        }
        Self { name: name.to_owned(), child, output }
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The last lines of both outputs, in the order read, each with `out|` or `err|` before it.
    #[must_use]
    pub fn output(&self) -> String {
        let lines = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().cloned().collect::<Vec<_>>().join("\n")
    }

    /// Ends the process at once (SIGKILL) and collects it.
    pub fn kill9(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks the process to end (SIGTERM). Does not wait.
    pub fn sigterm(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Sends SIGHUP.
    pub fn sighup(&self) {
        self.signal(rustix::process::Signal::HUP);
    }

    /// Freezes the process (SIGSTOP): its sockets stay open and nothing answers.
    pub fn freeze(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// Lets a frozen process go on (SIGCONT).
    pub fn thaw(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    /// Lets the process write files up to a length only, as a full disk does and also for root; `None`: as long as it likes. The process has to
    /// handle SIGXFSZ, which ends it otherwise.
    ///
    /// # Panics
    /// When the system refuses.
    #[cfg(target_os = "linux")]
    pub fn limit_files(&self, bytes: Option<u64>) {
        use rustix::process::{Pid, Resource, Rlimit, prlimit};
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(pid, Resource::Fsize, limit).unwrap_or_else(|e| panic!("no limit for {}: {e}", self.name));
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        // The child is not collected before drop or wait, so the id still names it, or its remains.
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Waits until the process has ended by itself.
    ///
    /// # Panics
    /// When it has not ended after `timeout`.
    pub async fn wait_exit(&mut self, timeout: Duration) -> ExitStatus {
        let child = &mut self.child;
        match try_eventually(timeout, async || child.try_wait().ok().flatten()).await {
            Some(status) => status,
            None => panic!("{} (pid {}) has not ended after {timeout:?}", self.name, self.pid()),
        }
    }

    /// The exit status if the process has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits until `probe` answers, and fails at once, with the child's output, if the child ends first.
    ///
    /// # Panics
    /// When the child ends, or after `timeout`.
    pub async fn ready<T, F>(&mut self, what: &str, timeout: Duration, mut probe: F) -> T
    where
        F: AsyncFnMut() -> Option<T>,
    {
        let child = &mut self.child;
        let outcome = try_eventually(timeout, async || {
            if let Ok(Some(status)) = child.try_wait() {
                return Some(Err(status));
            }
            probe().await.map(Ok)
        })
        .await;
        match outcome {
            Some(Ok(value)) => value,
            Some(Err(status)) => panic!("{} ended ({status}) before {what}", self.name),
            None => panic!("{} (pid {}): timed out after {timeout:?} waiting for {what}", self.name, self.pid()),
        }
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        self.kill9();
        if !std::thread::panicking() {
            return;
        }
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        eprintln!("---- last output of {} (pid {}) ----", self.name, self.pid());
        for line in lines.iter().skip(lines.len().saturating_sub(SHOWN_LINES)) {
            eprintln!("{line}");
        }
    }
}

fn capture(pipe: impl Read + Send + 'static, label: &'static str, output: &Arc<Mutex<VecDeque<String>>>) {
    let output = Arc::clone(output);
    // The thread ends when the child's end of the pipe closes.
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            line.truncate(KEPT_LINE_BYTES);
            let text = format!("{label}| {}", String::from_utf8_lossy(&line).trim_end());
            let mut lines = output.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() == KEPT_LINES {
                lines.pop_front();
            }
            lines.push_back(text);
        }
    });
}

/// First and one-past-last port that [`free_port`] hands out: below the range from which Linux takes the ports of outgoing connections, so
/// that no connection of a parallel test can take a port between this call and the child's bind.
const PORTS: std::ops::Range<u16> = 15_000..31_000;
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);

/// A loopback TCP port that is free now and is not handed out twice by this process.
///
/// # Panics
/// When no port of the range is free.
#[must_use]
pub fn free_port() -> u16 {
    let size = PORTS.end - PORTS.start;
    // Test processes start at different places of the range.
    let start = u16::try_from(std::process::id() % 250).unwrap_or(0) * 64;
    for _ in 0..size {
        let port = PORTS.start + (start.wrapping_add(NEXT_PORT.fetch_add(1, Ordering::Relaxed))) % size;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port in {PORTS:?}");
}

/// Listens on a free loopback port. Another process may take a port between the question and the bind: then the next one is tried.
///
/// # Panics
/// When no socket can be bound.
pub(crate) async fn listen() -> tokio::net::TcpListener {
    for _ in 0..50 {
        if let Ok(listener) = tokio::net::TcpListener::bind(("127.0.0.1", free_port())).await {
            return listener;
        }
    }
    panic!("no loopback port stays free until it is bound");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Proc {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Proc::start("sh", command)
    }

    #[tokio::test]
    async fn captures_both_outputs_and_the_status() {
        let mut child = sh("echo one; echo two >&2; exit 3");
        let status = child.wait_exit(Duration::from_secs(5)).await;
        assert_eq!(status.code(), Some(3));
        crate::eventually("both lines", Duration::from_secs(5), async || {
            let output = child.output();
            (output.contains("out| one") && output.contains("err| two")).then_some(())
        })
        .await;
    }

    #[tokio::test]
    async fn sigterm_reaches_the_child() {
        let mut child = sh("trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done");
        child.ready("the trap", Duration::from_secs(5), async || Some(())).await;
        crate::eventually("the trap", Duration::from_secs(5), async || child.output().contains("up").then_some(()))
            .await;
        child.sigterm();
        assert_eq!(child.wait_exit(Duration::from_secs(5)).await.code(), Some(7));
    }

    #[tokio::test]
    async fn drop_ends_the_child() {
        let child = sh("sleep 60");
        let pid = child.pid();
        drop(child);
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }

    #[tokio::test]
    #[should_panic(expected = "before readiness")]
    async fn a_child_that_ends_early_fails_at_once() {
        sh("exit 1").ready("readiness", Duration::from_secs(60), async || None::<()>).await;
    }

    #[test]
    fn ports_are_distinct() {
        let ports: std::collections::BTreeSet<u16> = (0..50).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 50);
    }
}
