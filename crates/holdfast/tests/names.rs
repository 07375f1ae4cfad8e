//! A replica that is known by name: its addresses change while the gateway runs, and the name service says nothing, or nothing good.
//!
//! The process under test has `/etc/hosts` and `/etc/resolv.conf` of its own, in a mount namespace. Where none can be made the test says so and ends.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests")]

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use holdfast_testkit::v2_stub::{V2, infer_answer};
use holdfast_testkit::{Holdfast, Script, Stub, TempDir, eventually};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Mutex;

const NAME: &str = "replica.holdfast.test";
const INFER: &str = "/v2/models/screen/infer";
/// Names are looked up again after 30 s.
const PATIENCE: Duration = Duration::from_secs(150);

/// A program that is just being written cannot be started, and another test's new process may hold it open.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// The files that the process sees in place of the machine's.
struct Names {
    dir: TempDir,
}

impl Names {
    /// None: this machine lets nobody have a mount namespace. What the hosts do not answer is asked of `server`.
    fn new(server: Ipv4Addr) -> Option<Self> {
        let made = Command::new("unshare").args(["-rm", "true"]).status();
        if !made.is_ok_and(|status| status.success()) {
            return None;
        }
        let this = Self { dir: TempDir::new() };
        let servers = format!("nameserver {server}\noptions timeout:1 attempts:1\n");
        std::fs::write(this.dir.join("resolv.conf"), servers).unwrap();
        std::fs::write(this.dir.join("nsswitch.conf"), "hosts: files dns\n").unwrap();
        this.set("");
        Some(this)
    }

    /// The file is written in place: it is what is mounted.
    fn set(&self, line: &str) {
        std::fs::write(self.dir.join("hosts"), format!("127.0.0.1 localhost\n{line}\n")).unwrap();
    }

    /// A program that starts Holdfast among these names, as the same process.
    fn program(&self) -> std::path::PathBuf {
        let path = self.dir.join("holdfast-among-names");
        let binds = ["hosts", "resolv.conf", "nsswitch.conf"].map(|file| {
            let from = self.dir.join(file);
            format!("if [ -e /etc/{file} ]; then mount --bind '{}' /etc/{file} || exit 9; fi", from.display())
        });
        let inner = format!("{}; exec \"$0\" \"$@\"", binds.join("; "));
        let inner = inner.replace('\'', "'\\''");
        let script =
            format!("#!/bin/sh\nexec unshare -rm sh -c '{inner}' '{}' \"$@\"\n", env!("CARGO_BIN_EXE_holdfast"));
        std::fs::write(&path, script).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

/// Another address with the same port, which leads to a stub.
async fn other_address(at: SocketAddr, to: SocketAddr) -> Arc<AtomicU64> {
    let taken = Arc::new(AtomicU64::new(0));
    let (listener, counted) = (TcpListener::bind(at).await.unwrap(), taken.clone());
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            counted.fetch_add(1, SeqCst);
            tokio::spawn(async move {
                let Ok(mut far) = TcpStream::connect(to).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    taken
}

async fn start(names: &Names, port: u16) -> Holdfast {
    let config = json!({
        "auth": {"trusted_header": "x-tenant"},
        "workers": 1,
        "pools": [{
            "name": "pool", "protocol": "open-inference", "residency": "static",
            "connections": {"warm": 0, "connect": "5s"},
            "health": {"interval": "2s", "timeout": "2s", "fall": 1000},
            "replicas": [{"name": "r1", "url": format!("http://{NAME}:{port}"), "holds": [{"model": "screen", "version": "1"}]}],
        }],
        "models": [{"name": "screen", "pool": "pool", "versions": [{"version": "1"}]}],
        "tenants": [{"name": "acme", "subset": 1, "pins": {"screen": "1"}}],
    });
    let sections = config.as_object().unwrap().iter().map(|(name, value)| format!("{name}: {value}\n"));
    let gateway = Holdfast::start(Path::new(&names.program()), &sections.collect::<String>()).await;
    eventually("the model to be ready", PATIENCE, async || {
        let ready = gateway.data.get("/v2/models/screen/ready", &[("x-tenant", "acme")]).await;
        (ready.status.as_u16() == 200).then_some(())
    })
    .await;
    gateway
}

async fn infer(gateway: &Holdfast) -> u16 {
    gateway.infer("acme", INFER, &json!({"id": "a", "inputs": []})).await.status.as_u16()
}

async fn failing(gateway: &Holdfast) -> f64 {
    gateway.metrics().await.sum("holdfast_replica_name_failing_time_seconds", &[("replica", "r1")])
}

/// One whose answers end their connections: every request has to open one.
async fn closing(model: &'static str) -> Stub {
    let v2 = V2::loaded(&[(model, "1")]);
    Stub::start(move |request| {
        if !request.path.ends_with("/infer") {
            return v2.answer(request);
        }
        let fields = [("content-type", "application/json"), ("connection", "close")];
        let body = infer_answer(request, model, "1").to_string();
        Script::with_headers(200, &fields, body.as_bytes())
    })
    .await
}

/// What a name service says when it does not say where something is (RFC 1035, 4.1.1, and 4.2.1 for silence). None: nothing.
const FAILURES: [(&str, Option<u8>); 4] =
    [("SERVFAIL", Some(2)), ("NXDOMAIN", Some(3)), ("REFUSED", Some(5)), ("silence", None)];

/// A name service at this address that answers each question with this code and nothing else. None: this port is not for this user.
async fn name_service(at: Ipv4Addr, code: Option<u8>) -> Option<Arc<AtomicU64>> {
    let socket = UdpSocket::bind((at, 53)).await.ok()?;
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    tokio::spawn(async move {
        let mut message = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut message).await {
            counted.fetch_add(1, SeqCst);
            let Some(code) = code.filter(|_| length > 3) else { continue };
            // The question again, as an answer, with recursion available and the code.
            message[2] |= 0x80;
            message[3] = 0x80 | code;
            let _ = socket.send_to(&message[..length], from).await;
        }
    });
    Some(asked)
}

#[tokio::test]
async fn every_way_in_which_a_look_up_fails_keeps_the_last_addresses() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let tried = FAILURES.iter().enumerate().map(|(n, (kind, code))| async move {
        let at = Ipv4Addr::new(127, 0, 0, 11 + u8::try_from(n).unwrap());
        let (Some(names), Some(asked)) = (Names::new(at), name_service(at, *code).await) else {
            eprintln!("no mount namespace, or no name service, can be made here: {kind} is not tried");
            return;
        };
        let stub = closing("screen").await;
        names.set(&format!("127.0.0.1 {NAME}"));
        let gateway = start(&names, stub.addr().port()).await;
        assert_eq!((infer(&gateway).await, failing(&gateway).await), (200, 0.0), "{kind}");
        names.set("");
        eventually(&format!("a look-up that fails by {kind}"), PATIENCE, async || {
            assert_eq!(infer(&gateway).await, 200, "{kind}");
            (asked.load(SeqCst) > 0 && failing(&gateway).await > 0.0).then_some(())
        })
        .await;
        for _ in 0..20 {
            assert_eq!(infer(&gateway).await, 200, "{kind}");
        }
        let told: Value = gateway.admin_get("/v1/replicas").await;
        assert_eq!(told["replicas"].as_array().map(Vec::len), Some(1), "{kind}: {told}");
    });
    futures_util::future::join_all(tried).await;
}

#[tokio::test]
async fn a_name_that_is_not_found_keeps_its_last_addresses_and_follows_the_next() {
    let _alone = ONE_AT_A_TIME.lock().await;
    // Nobody answers there.
    let Some(names) = Names::new(Ipv4Addr::new(127, 0, 0, 7)) else {
        eprintln!("no mount namespace can be made here: names that change are not tried");
        return;
    };
    let (first, second) = (closing("screen").await, closing("screen").await);
    let port = first.addr().port();
    let moved = other_address(SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), port)), second.addr()).await;
    names.set(&format!("127.0.0.1 {NAME}"));
    let gateway = start(&names, port).await;
    assert_eq!((infer(&gateway).await, failing(&gateway).await), (200, 0.0));

    // It is gone from the name service, which does not answer: what is known stays in use, and its age is told.
    names.set("");
    eventually("a look-up that fails", PATIENCE, async || {
        assert_eq!(infer(&gateway).await, 200);
        (failing(&gateway).await > 0.0).then_some(())
    })
    .await;
    for _ in 0..20 {
        assert_eq!(infer(&gateway).await, 200);
    }
    assert_eq!(moved.load(SeqCst), 0);

    // It comes back at another address: new connections go there, and only there.
    names.set(&format!("127.0.0.2 {NAME}"));
    eventually("the other address to be used", PATIENCE, async || {
        assert_eq!(infer(&gateway).await, 200);
        (moved.load(SeqCst) > 0 && second.executions() > 0).then_some(())
    })
    .await;
    assert_eq!(failing(&gateway).await, 0.0);
    let before = first.executions();
    for _ in 0..10 {
        assert_eq!(infer(&gateway).await, 200);
    }
    assert_eq!(first.executions(), before, "the former address is asked no more");
    let told: Value = gateway.admin_get("/v1/replicas").await;
    assert_eq!(told["replicas"].as_array().map(Vec::len), Some(1), "{told}");
}
