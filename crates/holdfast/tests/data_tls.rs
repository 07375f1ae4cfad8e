//! TLS on the data port: clients that are known by certificates, and certificates that are taken anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use holdfast_net::tls;
use holdfast_testkit::stub::StubRequest;
use holdfast_testkit::{Authority, Proc, Script, Signed, Stub, TempDir, eventually, free_port, serve_in};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(20);
const INFER: &str = "/v2/models/screen/infer";

struct World {
    _proc: Proc,
    servers: Authority,
    clients: Authority,
    data: u16,
    admin: u16,
    dir: TempDir,
    _stub: Stub,
}

/// Names of fields that clients forge: the gateway's own, and those by which proxies tell of a certificate.
const FORGED: [&str; 8] = [
    "x-tenant",
    "X-Holdfast-Tenant",
    "x_holdfast_tenant",
    "x-holdfast-subject",
    "X-Forwarded-Client-Cert",
    "Client-Cert",
    "client-cert-chain",
    "x_forwarded_client_cert",
];

/// What a server is told that it could take for an identity, besides the gateway's own.
fn names_of(request: &StubRequest) -> Vec<String> {
    let fields = request.headers.iter().filter(|(_, value)| value == "initech");
    fields.map(|(name, _)| format!("{name}: initech")).collect()
}

/// What came of a request: status (0: none), the answer's head and body.
struct Told {
    status: u16,
    text: String,
}

impl World {
    async fn start() -> Self {
        Self::with(false).await
    }

    /// `required`: whether who has no certificate is not let in.
    async fn with(required: bool) -> Self {
        let stub = Stub::start(|request| match request.path.ends_with("/infer") {
            true => Script::json(
                200,
                &json!({"model_name": "screen", "model_version": "1", "fields": names_of(request), "tenant": request.header("x-holdfast-tenant"), "outputs": []}),
            ),
            false => Script::json(200, &json!({"name": "screen", "ready": true, "versions": ["1"]})),
        })
        .await;
        let (dir, servers, clients) = (TempDir::new(), Authority::new(), Authority::new());
        let _ = servers.file(dir.join("ca.pem"));
        let _ = servers.server(&["127.0.0.1"]).files(dir.path(), "own");
        let _ = clients.file(dir.join("clients.pem"));
        let (data, admin) = (free_port(), free_port());
        let config = json!({
            "listen": {
                "data": format!("127.0.0.1:{data}"), "admin": format!("127.0.0.1:{admin}"),
                "data_tls": {"certificates": dir.join("own.pem"), "key": dir.join("own.key"), "clients": dir.join("clients.pem"), "required": required},
            },
            "auth": {"keys": true, "certificates": [
                {"name": "uri=spiffe://prod/acme", "tenant": "acme"},
                {"name": "uri=spiffe://prod/tenant/{tenant}"},
                {"name": "dns=globex.example.org", "tenant": "globex"},
            ]},
            "truth": "file",
            "pools": [{"name": "p", "protocol": "open-inference", "residency": "static",
                "replicas": [{"name": "r1", "url": stub.url(), "holds": [{"model": "screen", "version": "1"}]}]}],
            "models": [{"name": "screen", "pool": "p", "versions": [{"version": "1"}]}],
            "tenants": [{"name": "acme", "subset": 1, "pins": {"screen": "1"}}, {"name": "globex", "subset": 1, "pins": {"screen": "1"}}],
        });
        let proc = start(&dir, &config);
        let world = Self { _proc: proc, servers, clients, data, admin, dir, _stub: stub };
        let acme = world.client(&["spiffe://prod/acme"]);
        eventually("the model to be served", PATIENCE, async || {
            (world.ask(Some(&acme), &[]).await.status == 200).then_some(())
        })
        .await;
        world
    }

    fn client(&self, names: &[&str]) -> Signed {
        self.clients.client("somebody", names)
    }

    async fn ask(&self, who: Option<&Signed>, more: &[&str]) -> Told {
        self.ask_believing(&self.servers, who, more).await
    }

    async fn ask_believing(&self, ca: &Authority, who: Option<&Signed>, more: &[&str]) -> Told {
        let ca = ca.file(self.dir.join("believed.pem"));
        let mut command = tokio::process::Command::new("curl");
        command
            .args(["-s", "-i", "-m", "15", "-d", "{\"inputs\":[]}", "-H", "content-type: application/json", "--cacert"])
            .arg(ca);
        // An answer that comes before the request's end is lost on some clients of HTTP/2.
        if !more.contains(&"--http2") {
            command.arg("--http1.1");
        }
        if let Some(who) = who {
            let (certificate, key) = who.files(self.dir.path(), "caller");
            command.arg("--cert").arg(certificate).arg("--key").arg(key);
        }
        let output = command.args(more).arg(format!("https://127.0.0.1:{}{INFER}", self.data)).output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let status = text.lines().next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0);
        Told { status, text }
    }

    async fn metric(&self, name: &str) -> f64 {
        let client = holdfast_testkit::http::Client::new(([127, 0, 0, 1], self.admin).into());
        let text = client.get("/metrics", &[]).await.expect(200).text();
        holdfast_testkit::Metrics::parse(&text).unwrap().value(name, &[]).unwrap()
    }
}

fn start(dir: &TempDir, config: &Value) -> Proc {
    serve_in(Path::new(env!("CARGO_BIN_EXE_holdfast")), dir, config)
}

#[tokio::test]
async fn a_certificate_names_its_tenant_and_no_header_beside_it_does() {
    let world = World::start().await;
    for (names, tenant) in [
        (&["spiffe://prod/acme"][..], "acme"),
        (&["spiffe://prod/tenant/globex"], "globex"),
        (&["Globex.Example.org"], "globex"),
        (&["spiffe://other/x", "globex.example.org"], "globex"),
    ] {
        let own = world.client(names);
        for more in [&[][..], &["--http2"]] {
            let forged = FORGED.iter().flat_map(|name| ["-H".to_owned(), format!("{name}: initech")]);
            let more: Vec<String> = more.iter().map(|word| (*word).to_owned()).chain(forged).collect();
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            let told = world.ask(Some(&own), &more).await;
            assert!(
                told.status == 200 && told.text.contains(&format!("\"tenant\":\"{tenant}\"")),
                "{names:?} {more:?} {}",
                told.text
            );
            assert!(!told.text.contains("initech"), "{more:?} {}", told.text);
            assert_eq!(told.text.starts_with("HTTP/2"), more.first() == Some(&"--http2"), "{}", told.text);
        }
    }
}

#[tokio::test]
async fn who_proves_nobody_is_refused() {
    let world = World::start().await;
    for names in [
        &["spiffe://prod/other"][..],
        &["example.org"],
        &["spiffe://prod/acme", "globex.example.org"],
        &["spiffe://prod/tenant/a/b"],
    ] {
        let told = world.ask(Some(&world.client(names)), &[]).await;
        assert!(told.status == 401 && told.text.contains("unauthenticated"), "{names:?} {}", told.text);
    }
    // Another trust domain, however much of the name is right.
    for foreign in ["spiffe://PROD/acme", "spiffe://prod.evil/acme", "spiffe://other/tenant/acme", "https://prod/acme"]
    {
        assert_eq!(world.ask(Some(&world.client(&[foreign])), &[]).await.status, 401, "{foreign}");
    }
    // A tenant that nobody has entered.
    assert_eq!(world.ask(Some(&world.client(&["spiffe://prod/tenant/initech"])), &[]).await.status, 403);
    // Without a certificate, and with a header that is no proof.
    let bare = world.ask(None, &["-H", "x-tenant: acme"]).await;
    assert!(bare.status == 401, "{}", bare.text);
    // A key beside a certificate is what counts, good or bad.
    let acme = world.client(&["spiffe://prod/acme"]);
    assert_eq!(world.ask(Some(&acme), &["-H", "authorization: Bearer hfk_nothing"]).await.status, 401);
    // Signed by others, or over: there is no connection, so no answer.
    let strangers = Authority::new().client("x", &["spiffe://prod/acme"]);
    assert_eq!(world.ask(Some(&strangers), &[]).await.status, 0);
    assert_eq!(world.ask(Some(&world.clients.expired_client("x", &["spiffe://prod/acme"])), &[]).await.status, 0);
    // In the clear nobody is answered.
    let clear = holdfast_testkit::http::Client::new(([127, 0, 0, 1], world.data).into());
    let told = clear.send(http::Method::GET, "/livez", &[], bytes::Bytes::new()).await;
    assert!(told.is_err(), "{told:?}");
    assert_eq!(world.ask(Some(&acme), &[]).await.status, 200);
}

#[tokio::test]
async fn certificates_are_taken_anew_and_bad_ones_change_nothing() {
    let world = World::start().await;
    let acme = world.client(&["spiffe://prod/acme"]);
    // Another authority signs the server's certificate from now on, and another one the clients'.
    let (servers, clients) = (Authority::new(), Authority::new());
    let _ = servers.server(&["127.0.0.1"]).files(world.dir.path(), "own");
    let _ = clients.file(world.dir.join("clients.pem"));
    let other = clients.client("x", &["spiffe://prod/acme"]);
    eventually("the new certificates", PATIENCE, async || {
        (world.ask_believing(&servers, Some(&other), &[]).await.status == 200).then_some(())
    })
    .await;
    assert_eq!(
        world.ask_believing(&servers, Some(&acme), &[]).await.status,
        0,
        "who signed it is not believed any more"
    );
    assert!(world.metric("holdfast_data_certificate_end_timestamp_seconds").await > 1.0e9);
    std::fs::write(world.dir.join("own.pem"), "no certificate").unwrap();
    eventually("the bad file to be seen", PATIENCE, async || {
        (world.metric("holdfast_data_certificates_refused").await > 0.0).then_some(())
    })
    .await;
    assert_eq!(world.ask_believing(&servers, Some(&other), &[]).await.status, 200);
}

#[tokio::test]
async fn where_a_certificate_is_required_nobody_comes_in_without() {
    let world = World::with(true).await;
    assert_eq!(world.ask(None, &[]).await.status, 0);
    assert_eq!(world.ask(None, &["-H", "authorization: Bearer hfk_nothing"]).await.status, 0);
    assert_eq!(world.ask(Some(&world.client(&["spiffe://prod/acme"])), &[]).await.status, 200);
    let client = holdfast_testkit::http::Client::new(([127, 0, 0, 1], world.admin).into());
    let text = client.get("/metrics", &[]).await.expect(200).text();
    let metrics = holdfast_testkit::Metrics::parse(&text).unwrap();
    assert!(metrics.sum("holdfast_connections_refused_total", &[("reason", "tls")]) >= 2.0);
}

#[tokio::test]
async fn a_connection_outlives_the_certificates_that_it_was_made_with() {
    let world = World::start().await;
    let acme = world.client(&["spiffe://prod/acme"]);
    let ca = world.servers.file(world.dir.join("kept-ca.pem"));
    let (certificate, key) = acme.files(world.dir.path(), "kept");
    let client = tls::Client::new(&ca, Some((&certificate, &key))).unwrap();
    let socket = TcpStream::connect(("127.0.0.1", world.data)).await.unwrap();
    let mut kept = client.connect("127.0.0.1", socket).await.unwrap();
    assert!(exchange(&mut kept).await.contains("\"tenant\":\"acme\""));
    let (servers, clients) = (Authority::new(), Authority::new());
    let _ = servers.server(&["127.0.0.1"]).files(world.dir.path(), "own");
    let _ = clients.file(world.dir.join("clients.pem"));
    let other = clients.client("x", &["spiffe://prod/acme"]);
    eventually("the new certificates", PATIENCE, async || {
        (world.ask_believing(&servers, Some(&other), &[]).await.status == 200).then_some(())
    })
    .await;
    assert!(exchange(&mut kept).await.contains("\"tenant\":\"acme\""), "what runs is not cut");
    let socket = TcpStream::connect(("127.0.0.1", world.data)).await.unwrap();
    assert!(client.connect("127.0.0.1", socket).await.is_err(), "who comes anew believes the wrong one");
}

/// One request on a connection that stays open, and its whole answer.
async fn exchange(stream: &mut tls::Secured) -> String {
    let body = "{\"inputs\":[]}";
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut text = String::new();
    while !text.trim_end().ends_with('}') {
        let mut piece = [0; 4096];
        let read = stream.read(&mut piece).await.unwrap();
        assert_ne!(read, 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    text
}
