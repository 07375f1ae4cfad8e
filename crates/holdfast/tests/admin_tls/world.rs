//! A process with TLS on its admin port, and callers of all kinds.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use holdfast_testkit::{Authority, Proc, Signed, TempDir, eventually, free_port};
use serde_json::{Value, json};

/// Long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The program under test.
pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_holdfast"))
}

/// How a caller shows who it is.
#[derive(Debug)]
pub enum Who {
    Nobody,
    Token(&'static str),
    Certificate(Signed),
}

/// `holdfast serve` with TLS on its admin port. Its one replica is not there: nothing is ever warm.
pub struct World {
    pub proc: Proc,
    /// Signs certificates of servers.
    pub servers: Authority,
    /// Signs certificates of clients.
    pub clients: Authority,
    pub admin: u16,
    pub dir: TempDir,
}

/// Who is who.
const TOKENS: &str = "\
ann   admin     cert:cn=ann
ci    operator  cert:uri=spiffe://prod/ci
bob   viewer    cert:email=bob@example.org
dora  operator  a-token-of-dora-01
";

impl World {
    pub async fn start() -> Self {
        let dir = TempDir::new();
        let (servers, clients) = (Authority::new(), Authority::new());
        let _ = servers.file(dir.join("ca.pem"));
        let _ = servers.server(&["127.0.0.1"]).files(dir.path(), "own");
        let _ = clients.file(dir.join("clients.pem"));
        std::fs::write(dir.join("dora.token"), "a-token-of-dora-01\n").unwrap();
        private(&dir.join("tokens"), TOKENS);
        let [data, admin, nowhere] = [free_port(), free_port(), free_port()];
        let config = json!({
            "listen": {
                "data": format!("127.0.0.1:{data}"),
                "admin": {
                    "address": format!("127.0.0.1:{admin}"),
                    "tokens_file": dir.join("tokens"),
                    "tls": {
                        "certificates": dir.join("own.pem"),
                        "key": dir.join("own.key"),
                        "clients": dir.join("clients.pem"),
                    },
                },
            },
            "auth": {"trusted_header": "x-tenant"},
            "pools": [{
                "name": "main",
                "protocol": "open-inference",
                "residency": "repository",
                "replicas": [{"name": "r1", "url": format!("http://127.0.0.1:{nowhere}")}],
            }],
            "models": [{"name": "screen", "pool": "main", "versions": [
                {"version": "1", "size": "1GiB"}, {"version": "2", "size": "1GiB"},
            ]}],
            "tenants": [{"name": "acme", "subset": 1, "pins": {"screen": "1"}}],
        });
        let proc = start_role("serve", &dir, &config);
        let world = Self { proc, servers, clients, admin, dir };
        eventually("the gateway to live", PATIENCE, async || {
            (world.ask(&Who::Nobody, "GET", "/livez").await.0 == 200).then_some(())
        })
        .await;
        world
    }

    /// A file of the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Asks by `curl`; gives the status (0: there was no answer) and the body. What is put pins version 2.
    pub async fn ask(&self, who: &Who, method: &str, path: &str) -> (u16, String) {
        self.curl("127.0.0.1", &self.servers, who, method, path).await
    }

    /// The same, of this host name and believing this authority.
    pub async fn curl(&self, host: &str, ca: &Authority, who: &Who, method: &str, path: &str) -> (u16, String) {
        curl(&self.dir, self.admin, host, ca, who, method, path).await
    }

    /// A value of the metrics page.
    pub async fn metric(&self, name: &str) -> f64 {
        let (status, text) = self.ask(&Who::Token("a-token-of-dora-01"), "GET", "/metrics").await;
        assert_eq!(status, 200);
        holdfast_testkit::Metrics::parse(&text).unwrap().value(name, &[]).unwrap()
    }

    /// Runs a command against this admin port, with these variables alone.
    pub fn command(&self, args: &[&str], environment: &[(&str, &str)]) -> (i32, String) {
        let mut command = Command::new(binary());
        command.env_clear().env("HOLDFAST_ADMIN", format!("https://127.0.0.1:{}", self.admin));
        let output = command.envs(environment.iter().copied()).args(args).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }
}

/// Starts `holdfast ROLE` with this configuration.
pub fn start_role(role: &str, dir: &TempDir, config: &Value) -> Proc {
    let sections = config.as_object().unwrap().iter().map(|(name, section)| format!("{name}: {section}\n"));
    let text: String = sections.chain([format!("state: {}\n", dir.join("state").display())]).collect();
    std::fs::write(dir.join("holdfast.yaml"), text).unwrap();
    let mut command = Command::new(binary());
    command.arg(role).arg("--config").arg(dir.join("holdfast.yaml")).current_dir(dir.path());
    Proc::start(role, command)
}

/// Writes a file that is its owner's alone.
pub fn private(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// See [`World::ask`].
pub async fn curl(
    dir: &TempDir,
    port: u16,
    host: &str,
    ca: &Authority,
    who: &Who,
    method: &str,
    path: &str,
) -> (u16, String) {
    let ca = ca.file(dir.join("believed.pem"));
    let mut command = tokio::process::Command::new("curl");
    command.args(["-s", "-m", "15", "-w", "\n%{http_code}", "-X", method, "--cacert"]).arg(ca);
    match who {
        Who::Nobody => {}
        Who::Token(token) => {
            command.arg("-H").arg(format!("authorization: Bearer {token}"));
        }
        Who::Certificate(signed) => {
            let (certificate, key) = signed.files(dir.path(), "caller");
            command.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
    }
    if method == "PUT" {
        command.args(["-H", "content-type: application/json", "-d", r#"{"version":"2"}"#]);
    }
    let output =
        command.arg(format!("https://{host}:{port}{path}")).output().await.expect("curl, which `make test` installs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, code) = text.rsplit_once('\n').unwrap_or_default();
    (code.parse().unwrap_or(0), body.to_owned())
}
