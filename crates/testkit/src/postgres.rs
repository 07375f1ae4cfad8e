//! A real PostgreSQL of our own: a private cluster in a folder that goes away with it, on a free port of the loopback address.
//!
//! `make test` installs Debian's package. A test that needs it fails when it is not there: a test that skips itself proves nothing.
//! `initdb` and `postgres` refuse to run as root; then they run as the package's user `postgres`.

use crate::certificates::{Authority, Signed};
use crate::proc::{Proc, free_port};
use crate::temp::TempDir;
use crate::wait::{eventually, try_eventually};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// A recovery after a kill waits for the old processes to be gone.
const START: Duration = Duration::from_secs(60);
const USER: &str = "holdfast";
const OWNER: &str = "postgres";
/// What it says when it is told to read its files anew.
const RELOADED: &str = "reloading configuration files";

/// A running PostgreSQL server.
#[derive(Debug)]
pub struct PostgresServer {
    /// The postmaster.
    pub proc: Proc,
    port: u16,
    bin: PathBuf,
    dir: TempDir,
    /// Settings of this server's own, each `NAME=VALUE`.
    settings: Vec<String>,
}

impl PostgresServer {
    /// The password of [`PostgresServer::url`]: not a word that appears elsewhere, so that a test can look for it in what is printed.
    pub const PASSWORD: &str = "Tr0ub4dor-and-3";

    /// Makes a cluster and starts it.
    ///
    /// # Panics
    /// When PostgreSQL is not installed or does not come up.
    pub async fn start() -> Self {
        Self::start_with(|_| Vec::new()).await
    }

    /// The same, which speaks TLS beside cleartext. With `clients`, who signs their certificates, it asks for one of everybody who comes over TLS,
    /// and takes nobody without.
    ///
    /// # Panics
    /// As [`PostgresServer::start`].
    pub async fn start_with_tls(server: &Signed, clients: Option<&Authority>) -> Self {
        Self::start_with(|dir| {
            let (certificate, key) = server.files(dir, "server");
            // It takes no key that others may read.
            std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
            let mut settings = vec![
                "ssl=on".to_owned(),
                format!("ssl_cert_file={}", certificate.display()),
                format!("ssl_key_file={}", key.display()),
            ];
            for file in [&certificate, &key] {
                own(file.as_path());
            }
            if let Some(clients) = clients {
                let file = clients.file(dir.join("clients.pem"));
                settings.push(format!("ssl_ca_file={}", file.display()));
                let rules = "hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n";
                std::fs::write(dir.join("data").join("pg_hba.conf"), rules).unwrap();
            }
            settings
        })
        .await
    }

    /// `settings` may put files into the folder once there is a cluster in it.
    async fn start_with(settings: impl FnOnce(&Path) -> Vec<String>) -> Self {
        let (dir, bin, port) = (TempDir::new(), bin(), free_port());
        own(dir.path());
        let secret = dir.join("password");
        std::fs::write(&secret, Self::PASSWORD).unwrap_or_else(|e| panic!("cannot write the password file: {e}"));
        let mut init = as_owner(&bin.join("initdb"));
        init.arg("-D").arg(dir.join("data")).arg(format!("--pwfile={}", secret.display()));
        init.args(["-U", USER, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]);
        let done = run(&mut init);
        assert!(done.status.success(), "initdb failed: {}", String::from_utf8_lossy(&done.stderr));
        let settings = settings(dir.path());
        let proc = launch(&bin, &dir, port, &settings).await;
        Self { proc, port, bin, dir, settings }
    }

    /// Shows another certificate to whoever comes from now on. For a server that speaks TLS.
    ///
    /// # Panics
    /// When it does not take it.
    pub async fn certify(&self, server: &Signed) {
        // Over the files that are there, so that owner and mode stay.
        let _ = server.files(self.dir.path(), "server");
        // It says so before it reads them, and takes no connection in between.
        let before = self.proc.output().matches(RELOADED).count();
        self.proc.sighup();
        let told = async || (self.proc.output().matches(RELOADED).count() > before).then_some(());
        eventually("PostgreSQL to read its files anew", START, told).await;
    }

    /// Ends every connection of clients that is open.
    ///
    /// # Panics
    /// When SQL fails.
    pub fn end_connections(&self) {
        let others = "pid <> pg_backend_pid() and backend_type = 'client backend'";
        let _ = self.sql(&format!("select pg_terminate_backend(pid) from pg_stat_activity where {others}"));
    }

    /// Where it listens, with user and password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{}/postgres", Self::PASSWORD, self.port)
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Runs SQL with `psql`, bypassing the code under test, and gives what it printed: rows in lines, columns with `|` between them.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn sql(&self, sql: &str) -> String {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d"]).arg(self.url()).args(["-c", sql]);
        let done = run(&mut psql);
        assert!(done.status.success(), "psql failed: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim_end().to_owned()
    }

    /// Freezes the server, all of its processes: connections are accepted by the kernel and nothing answers.
    pub fn freeze(&self) {
        self.proc.freeze();
        self.signal_children(Signal::STOP);
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        self.signal_children(Signal::CONT);
        self.proc.thaw();
    }

    /// Ends all of its processes at once (SIGKILL), as when the machine dies.
    pub fn kill9(&mut self) {
        // The postmaster first: it would start its helpers again.
        self.proc.freeze();
        self.signal_children(Signal::KILL);
        self.proc.kill9();
    }

    /// Ends one connection's process at once (SIGKILL). The server then restarts all of them by itself.
    ///
    /// # Panics
    /// When there is no such process.
    pub fn kill9_backend(&self, pid: &str) {
        let pid = pid.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.unwrap_or_else(|| panic!("no process id"));
        kill_process(pid, Signal::KILL).unwrap_or_else(|e| panic!("cannot kill {pid:?}: {e}"));
    }

    /// Starts it again on the same port, over the same data, after [`PostgresServer::kill9`] or while it runs.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn restart(&mut self) {
        self.kill9();
        self.proc = launch(&self.bin, &self.dir, self.port, &self.settings).await;
    }

    fn signal_children(&self, signal: Signal) {
        let list = format!("/proc/{0}/task/{0}/children", self.proc.pid());
        let list = std::fs::read_to_string(list).unwrap_or_default();
        for pid in list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            // One that has ended since needs no signal.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.kill9();
    }
}

async fn launch(bin: &Path, dir: &TempDir, port: u16, settings: &[String]) -> Proc {
    let data = dir.join("data");
    let started = try_eventually(START, async || {
        let mut command = as_owner(&bin.join("postgres"));
        command.arg("-D").arg(&data).args(["-p", &port.to_string()]).current_dir(dir.path());
        // The folder goes away with the test: what survives a kill is in the kernel's memory, and syncing it would only cost time.
        for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=32MB"] {
            command.args(["-c", setting]);
        }
        for setting in settings {
            command.args(["-c", setting]);
        }
        let mut proc = Proc::start("postgres", command);
        let up = try_eventually(START, async || match proc.exited() {
            Some(_) => Some(false),
            None => proc.output().contains("ready to accept connections").then_some(true),
        });
        // It ends at once while processes of a killed server still hold its shared memory.
        (up.await == Some(true)).then_some(proc)
    });
    started.await.unwrap_or_else(|| panic!("postgres over {} has not come up after {START:?}", data.display()))
}

/// The folder of the newest installed version's programs.
fn bin() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
    let bin = newest.map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")));
    let found = bin.filter(|bin| bin.join("initdb").exists());
    found.unwrap_or_else(|| panic!("PostgreSQL is not installed under /usr/lib/postgresql; `make test` installs it"))
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn own(folder: &Path) {
    if is_root() {
        let done = run(Command::new("chown").arg(OWNER).arg(folder));
        assert!(done.status.success(), "cannot chown {}: {}", folder.display(), String::from_utf8_lossy(&done.stderr));
    }
}

/// The program, as a user that PostgreSQL accepts. `setpriv` becomes the program, so the child's id is the program's.
fn as_owner(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", OWNER, "--regid", OWNER, "--init-groups"]).arg(program);
    command
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_written_survives_a_kill() {
        let mut server = PostgresServer::start().await;
        let _ = server.sql("create table t (n int); insert into t values (7)");
        server.restart().await;
        assert_eq!(server.sql("select n from t"), "7");
        server.freeze();
        server.thaw();
        assert_eq!(server.sql("select count(*), max(n) from t"), "1|7");
    }
}
