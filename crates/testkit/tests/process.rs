//! The starters of the two commands, against a stand-in program that keeps to their command lines.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use holdfast_testkit::{Holdfast, ModelServer, TempDir, mlserver};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

/// Serves HTTP on each address it is told: those of the configuration, or that of `--listen` with its port written to `--port-file`.
/// Answers every GET with its own arguments; `/metrics` with one sample.
const STAND_IN: &str = r#"
import http.server, json, os, re, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = b'up{port="x"} 1\n' if self.path == "/metrics" else json.dumps(sys.argv[1:]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

def serve(address):
    host, port = address.rsplit(":", 1)
    server = http.server.ThreadingHTTPServer((host, int(port)), Handler)
    threading.Thread(target=server.serve_forever).start()
    return server.server_address[1]

args = sys.argv[1:]
if args[0] == "serve":
    config = open(args[args.index("--config") + 1]).read()
    if "broken: true" in config:
        sys.exit("the configuration is broken")
    for address in re.findall(r'"(127\.0\.0\.1:\d+)"', config):
        serve(address)
elif args[0] == "model-server":
    port = serve(args[args.index("--listen") + 1])
    with open(args[args.index("--port-file") + 1], "w") as file:
        file.write(f"{port}\n")
else:
    print(json.dumps({"args": args, "admin": os.environ["HOLDFAST_ADMIN"]}))
"#;

fn stand_in(dir: &TempDir) -> PathBuf {
    let file = dir.join("stand-in");
    std::fs::write(&file, format!("#!{}\n{STAND_IN}", mlserver::venv().join("bin/python").display())).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file
}

#[tokio::test]
async fn the_starters_keep_to_the_command_lines() {
    let dir = TempDir::new();
    let binary = stand_in(&dir);

    let mut server = ModelServer::start(&binary, &["--name", "r1"]).await;
    let (first, addr) = (server.proc.pid(), server.addr());
    server.restart().await;
    assert_ne!(server.proc.pid(), first);
    assert_eq!(server.addr(), addr);
    let args = server.http.get("/", &[]).await.expect(200).json();
    assert_eq!((&args[0], &args[5], &args[6]), (&"model-server".into(), &"--name".into(), &"r1".into()));

    let mut holdfast = Holdfast::start(&binary, "truth: store\n").await;
    assert_ne!(holdfast.data.addr(), holdfast.admin.addr());
    assert_eq!(holdfast.admin_get("/v1/table").await[0], "serve");
    assert_eq!(holdfast.metrics().await.value("up", &[]), Some(1.0));
    let seen = holdfast.cli_json(&["pin", "list"]).await;
    assert_eq!(seen["args"], serde_json::json!(["pin", "list", "--output", "json"]));
    assert_eq!(seen["admin"], format!("http://{}", holdfast.admin.addr()));

    holdfast.edit_config(|text| text.replace("store", "file"));
    let written = std::fs::read_to_string(holdfast.config_path()).unwrap();
    assert!(written.contains("truth: file") && written.contains("listen:") && written.contains("state:"), "{written}");
    holdfast.proc.sigterm();
    let _ = holdfast.proc.wait_exit(Duration::from_secs(5)).await;
    holdfast.restart().await;
    holdfast.wait_ready(Duration::from_secs(5)).await;

    let broken = async move { Holdfast::start(&binary, "broken: true\n").await.data.addr() };
    let local = tokio::task::LocalSet::new();
    let message = local
        .run_until(async { tokio::task::spawn_local(broken).await })
        .await
        .unwrap_err()
        .into_panic()
        .downcast::<String>()
        .unwrap();
    assert!(message.contains("ended (exit status: 1) before /livez"), "{message}");
}
