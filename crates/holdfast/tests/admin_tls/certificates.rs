//! Certificates that change under a running process.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use holdfast_net::tls::Client;
use holdfast_testkit::wait::always;
use holdfast_testkit::{Authority, eventually};

use super::world::{PATIENCE, Who, World, private};

const REFUSED: &str = "holdfast_admin_certificates_refused";
const DORA: Who = Who::Token("a-token-of-dora-01");

/// A connection that is kept, of who believes this authority.
async fn connect(world: &World, authority: &Authority, own: Option<&str>) -> SendRequest<Empty<Bytes>> {
    let ca = authority.file(world.dir.join("kept.pem"));
    let own = own.map(|common| world.clients.client(common, &[]).files(world.dir.path(), "kept-own"));
    let own = own.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
    let client = Client::new(&ca, own).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", world.admin)).await.unwrap();
    let stream = client.connect("127.0.0.1", stream).await.unwrap();
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask(sender: &mut SendRequest<Empty<Bytes>>) -> u16 {
    let request = Request::get("/v1/pins").header("host", "127.0.0.1").body(Empty::new()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    let status = answer.status().as_u16();
    answer.into_body().collect().await.unwrap();
    status
}

#[tokio::test]
async fn new_certificates_are_taken_without_a_connection_lost() {
    let mut world = World::start().await;
    let before = world.metric("holdfast_admin_certificate_end_timestamp_seconds").await;
    assert!(before > 2e9, "{before}");
    let mut kept = connect(&world, &world.servers, Some("ann")).await;
    assert_eq!(ask(&mut kept).await, 200);
    // Another authority signs the server, and another one its callers.
    let (servers, clients) = (Authority::new(), Authority::new());
    let _ = servers.server(&["127.0.0.1"]).files(world.dir.path(), "own");
    let _ = clients.file(world.dir.join("clients.pem"));
    eventually("the new certificate", PATIENCE, async || {
        (world.curl("127.0.0.1", &servers, &DORA, "GET", "/v1/pins").await.0 == 200).then_some(())
    })
    .await;
    assert_eq!(world.ask(&DORA, "GET", "/v1/pins").await.0, 0, "the old authority signs nobody here any more");
    let ann = Who::Certificate(clients.client("ann", &[]));
    let old = Who::Certificate(world.clients.client("ann", &[]));
    assert_eq!(world.curl("127.0.0.1", &servers, &ann, "GET", "/v1/pins").await.0, 200);
    assert_eq!(world.curl("127.0.0.1", &servers, &old, "GET", "/v1/pins").await.0, 0);
    assert_eq!(ask(&mut kept).await, 200, "the old connection lives on");
    // But what its caller may do is looked up at each request.
    private(&world.file("tokens"), "dora operator a-token-of-dora-01\n");
    eventually("ann to be nobody", PATIENCE, async || (ask(&mut kept).await == 403).then_some(())).await;
    world.servers = servers;
    assert_eq!(world.metric(REFUSED).await, 0.0);
}

#[tokio::test]
async fn rubbish_leaves_the_certificates_that_were_in_force_and_raises_an_alarm() {
    let world = World::start().await;
    let own = world.servers.server(&["127.0.0.1"]);
    let other = world.servers.server(&["127.0.0.1"]);
    let expired = world.servers.expired_server(&["127.0.0.1"]);
    let rubbish: [&dyn Fn(); 5] = [
        &|| std::fs::write(world.file("own.pem"), "rubbish").unwrap(),
        &|| std::fs::write(world.file("own.key"), &other.key).unwrap(),
        &|| drop(expired.files(world.dir.path(), "own")),
        &|| std::fs::remove_file(world.file("own.key")).unwrap(),
        &|| std::fs::write(world.file("clients.pem"), vec![0xff; 2 << 20]).unwrap(),
    ];
    for (number, spoil) in rubbish.iter().enumerate() {
        spoil();
        eventually(&format!("rubbish {number} to be refused"), PATIENCE, async || {
            (world.metric(REFUSED).await == 1.0).then_some(())
        })
        .await;
        assert_eq!(world.ask(&DORA, "GET", "/v1/pins").await.0, 200, "{number}");
        let ann = Who::Certificate(world.clients.client("ann", &[]));
        assert_eq!(world.ask(&ann, "GET", "/v1/pins").await.0, 200, "{number}");
        let _ = own.files(world.dir.path(), "own");
        let _ = world.clients.file(world.file("clients.pem"));
        eventually("good ones to be taken", PATIENCE, async || (world.metric(REFUSED).await == 0.0).then_some(()))
            .await;
    }
    let (_, alarms) = world.ask(&DORA, "GET", "/v1/alarms").await;
    // Within a minute they are one alarm, with their number.
    let told: serde_json::Value = serde_json::from_str(&alarms).unwrap();
    let refused =
        told["alarms"].as_array().unwrap().iter().filter(|alarm| alarm["kind"] == "admin_certificates_refused");
    let times: u64 = refused.map(|alarm| alarm["times"].as_u64().unwrap_or(1)).sum();
    assert!(times >= rubbish.len() as u64, "{alarms}");
    assert!(!alarms.contains("PRIVATE KEY") && !world.proc.output().contains("PRIVATE KEY"));
    let well = std::time::Duration::from_millis(500);
    always("it answers", well, async || world.ask(&DORA, "GET", "/v1/pins").await.0 == 200).await;
}
