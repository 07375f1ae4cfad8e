//! Who may open a socket, and how it is told to those who may not.

use holdfast_testkit::raw::RawClient;
use holdfast_testkit::{Jwks, Signer, eventually};
use serde_json::json;

use crate::rig::{PATIENCE, Rig, Ws, handshake};

async fn status(rig: &Rig, request: &str) -> (u16, String) {
    let mut client = RawClient::connect(rig.gateway.data.addr()).await;
    client.write(request).await;
    let answer = client.answer("GET").await.expect("an answer");
    (answer.status, answer.header("x-holdfast-error").to_owned())
}

#[tokio::test]
async fn only_a_handshake_of_a_proved_tenant_opens_a_socket() {
    let rig = Rig::start("", "user: {}").await;
    let good = handshake("acme");
    assert_eq!(status(&rig, &good).await.0, 101);
    for (from, to, code, kind) in [
        ("upgrade: WebSocket", "x-other: 1", 426, "bad_request"),
        ("sec-websocket-version: 13", "sec-websocket-version: 8", 426, "bad_request"),
        ("sec-websocket-version: 13", "x-other: 13", 426, "bad_request"),
        ("connection: keep-alive, Upgrade", "connection: keep-alive", 400, "bad_request"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "short", 400, "bad_request"),
        ("sec-websocket-key", "sec-websocket-kee", 400, "bad_request"),
        ("GET /v1/stream", "POST /v1/stream", 405, "bad_request"),
        ("GET /v1/stream", "GET /v1/streams", 404, "bad_request"),
        ("x-tenant: acme", "x-tenant: nobody", 403, "forbidden"),
        ("x-tenant: acme", "x-tenant: acme\r\nx-tenant: bolt", 401, "unauthenticated"),
        ("x-tenant: acme", "x-other: acme", 401, "unauthenticated"),
    ] {
        let request = good.replace(from, to);
        assert_ne!(request, good, "{from}");
        assert_eq!(status(&rig, &request).await, (code, kind.to_owned()), "{from} -> {to}");
    }
    let mut plain = RawClient::connect(rig.gateway.data.addr()).await;
    plain.write("GET /v1/stream HTTP/1.1\r\nhost: g\r\nx-tenant: acme\r\n\r\n").await;
    let answer = plain.answer("GET").await.unwrap();
    let told = [answer.header("upgrade"), answer.header("connection"), answer.header("sec-websocket-version")];
    assert_eq!((answer.status, told), (426, ["websocket", "upgrade", "13"]));
    // The connection is still one of HTTP.
    plain.write("GET /livez HTTP/1.1\r\nhost: g\r\n\r\n").await;
    assert_eq!(plain.answer("GET").await.unwrap().status, 200);
    rig.settled().await;
}

#[tokio::test]
async fn the_first_frame_may_come_with_the_handshake() {
    let rig = Rig::start("", "user: {}").await;
    let mut client = RawClient::connect(rig.gateway.data.addr()).await;
    let text = json!({ "id": 1, "model": "screen", "input": { "inputs": [] } }).to_string();
    client.write([handshake("acme").into_bytes(), crate::rig::frame(0x81, text.as_bytes())].concat()).await;
    assert_eq!(client.answer("GET").await.unwrap().status, 101);
    client.write(crate::rig::frame(0x88, &[3, 0xe8])).await;
    let rest = client.rest().await.unwrap();
    assert_eq!(crate::rig::close_codes(&rest), [1000]);
    rig.settled().await;
}

#[tokio::test]
async fn without_the_section_there_is_nothing_at_the_path() {
    let rig = Rig::start("", "user: {}").await;
    let mut config = String::new();
    let mut rig = rig;
    rig.gateway.edit_config(|text| {
        config = text.lines().filter(|line| !line.starts_with("stream:")).collect::<Vec<_>>().join("\n");
        config.clone()
    });
    rig.gateway.restart().await;
    assert_eq!(status(&rig, &handshake("acme")).await, (404, "bad_request".to_owned()));
}

#[tokio::test]
async fn a_user_has_so_many_sockets_and_so_many_handshakes() {
    let rig = Rig::start("sockets_per_user: 2, opens_per_minute: 4", "user: {}").await;
    let open = async |user: &str| Ws::try_open(&rig.gateway, &[("x-tenant", "acme"), ("x-user", user)]).await;
    let (first, second) = (open("u").await.ok().unwrap(), open("u").await.ok().unwrap());
    let refused = open("u").await.map(|_| ()).expect_err("two are open");
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "1"));
    assert!(open("v").await.is_ok(), "another user");
    first.leave().await;
    second.leave().await;
    rig.becomes("holdfast_stream_sockets", &[], 0.0).await;
    // Two more are free in this minute; on a slow machine a quarter of one may have passed already.
    let mut opened = 2;
    let refused = loop {
        match open("u").await {
            Ok(socket) => socket.leave().await,
            Err(refused) => break refused,
        }
        opened += 1;
        rig.becomes("holdfast_stream_sockets", &[], 0.0).await;
    };
    assert!(opened >= 4, "{opened}");
    assert_eq!(refused.status().as_u16(), 429);
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=15).contains(&wait), "{wait}");
    rig.settled().await;
}

#[tokio::test]
async fn a_token_that_expires_ends_its_socket_idle_or_not() {
    let signer = Signer::ed();
    let jwks = Jwks::start(&[signer.jwk("k1")]).await;
    let top = format!(
        "auth: {{ bad_tokens: {{ rate: 0 }}, jwt: [{{ issuer: \"https://id.example\", jwks_url: \"{}\", algorithms: [EdDSA], audiences: [holdfast], \
         claims: {{ tenant: tenant }}, leeway: 0s }}] }}",
        jwks.url()
    );
    let rig = Rig::with(&top, "ping: 2s", "user: {}").await;
    let token = |user: &str, seconds: u64| {
        let now = holdfast_testkit::jwks::now();
        let claims = json!({ "iss": "https://id.example", "aud": "holdfast", "tenant": "acme", "sub": user, "iat": now, "exp": now + seconds });
        format!("Bearer {}", signer.token("k1", &claims))
    };
    let open = async |token: String| Ws::try_open(&rig.gateway, &[("authorization", &token)]).await;
    // Each of them is read from the moment that it is there, so that it answers pings. On a slow machine a token may be over before its socket is there.
    let open_in_time =
        async |user: &str| eventually("a socket in time", PATIENCE, async || open(token(user, 4)).await.ok()).await;
    let mut idle = open_in_time("a").await;
    let idle = tokio::spawn(async move { idle.rest().await });
    let mut busy = open_in_time("b").await;
    busy.ask(1, "screen").await;
    let busy = tokio::spawn(async move { busy.rest().await });
    let mut long = open(token("long", 3_600)).await.ok().unwrap();
    let both = async { (idle.await.unwrap(), busy.await.unwrap()) };
    let ((frames, code), (served, busy)) = tokio::select! {
        both = both => both,
        heard = long.hear() => panic!("{heard:?}"),
    };
    assert_eq!((frames.len(), code, served.len(), busy), (0, Some(1008), 1, Some(1008)));
    long.ask(1, "screen").await;
    assert_eq!(long.frame().await["status"], 200, "the others stay");
    let refused = open(token("late", 0)).await.map(|_| ()).expect_err("expired");
    assert_eq!(refused.status().as_u16(), 401);
    long.leave().await;
    rig.settled().await;
}
