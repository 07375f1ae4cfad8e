//! Clients with tokens and API keys leave at every moment of a limited request; each counter of a limit, in this process or leased from a store, is where
//! it was (ACCT-1). The limits fill so slowly that one token that is lost would be seen.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use holdfast_identity::api_key;
use holdfast_testkit::jwks::{Mode, now};
use holdfast_testkit::raw::RawClient;
use holdfast_testkit::script::Script;
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, Jwks, RedisServer, Signer, Stub, eventually};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;

const INFER: &str = "/v2/models/screen/infer";
const PATIENCE: Duration = Duration::from_secs(30);
/// A request that the replica never answers.
const HANGS: &str = r#"{"inputs":[],"id":"hangs"}"#;
const QUICK: &str = r#"{"inputs":[]}"#;
/// Requests and bytes that may be used in a month.
const REQUESTS: u64 = 1_000;
const BYTES: u64 = 1 << 20;

struct Rig {
    gateway: Holdfast,
    jwks: Jwks,
    signer: Signer,
    _stub: Stub,
    /// Tokens of two users and an API key.
    proofs: Vec<String>,
}

impl Rig {
    async fn start(limits: &str, plan: &str) -> Self {
        let correct = V2::loaded(&[("screen", "1")]);
        let stub = Stub::start(move |request| match request.body.windows(5).any(|bytes| bytes == b"hangs") {
            true => Script::never(),
            false => correct.answer(request),
        })
        .await;
        let signer = Signer::ec();
        let jwks = Jwks::start(&[signer.jwk("k1")]).await;
        let (key, prefix, hash) = api_key::make([7; 38]);
        let config = format!(
            "auth: {{ keys: true, bad_tokens: {{ rate: 0 }}, jwt: [{{ issuer: local, jwks_url: \"{}\", algorithms: [ES256], audiences: [], \
             tenant: acme, cooldown: 1s, timeout: 20s }}] }}\nlimits: {{ {limits} }}\npools:\n  - {{ name: p, protocol: open-inference, \
             residency: static, replicas: [{{ name: r1, url: \"{}\", holds: [{{ model: screen, version: \"1\" }}] }}] }}\nmodels:\n  \
             - {{ name: screen, pool: p, versions: [{{ version: \"1\" }}] }}\nplans:\n  - {{ name: standard, {plan} }}\ntenants:\n  \
             - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }}, plan: standard, keys: [{{ prefix: \"{prefix}\", hash: \"blake3:{}\", user: batch }}] }}\n",
            jwks.url(),
            stub.url(),
            hash.to_hex(),
        );
        let gateway = Holdfast::start(Path::new(env!("CARGO_BIN_EXE_holdfast")), &config).await;
        let proofs = vec![token(&signer, "k1", "u1"), token(&signer, "k1", "u2"), key];
        let rig = Self { gateway, jwks, signer, _stub: stub, proofs };
        // Readiness has no limit, and needs somebody: keys and replica are there then.
        eventually("the model to be ready", PATIENCE, async || {
            let fields = [("authorization", format!("Bearer {}", rig.proofs[0]))];
            let fields = fields.each_ref().map(|(name, value)| (*name, value.as_str()));
            let ready = rig.gateway.data.get("/v2/models/screen/ready", &fields).await;
            (ready.status == 200).then_some(())
        })
        .await;
        rig
    }

    /// The rows of the tenant's limits, and those of all together.
    async fn rows(&self) -> Vec<Value> {
        let told = self.gateway.admin_get("/v1/limits?tenant=acme").await;
        let rows = [&told["tenants"][0]["limits"], &told["global"]];
        rows.into_iter().flat_map(|rows| rows.as_array().cloned().unwrap_or_default()).collect()
    }

    /// Waits until so many requests run, by every limit that counts them.
    async fn run(&self, count: u64) {
        let mut seen = Vec::new();
        let waited = holdfast_testkit::wait::try_eventually(PATIENCE, async || {
            seen = self.rows().await;
            let mut running = seen.iter().filter_map(|row| row["running"].as_u64());
            running.all(|running| running == count).then_some(())
        });
        assert!(waited.await.is_some(), "{count} should run: {seen:#?}");
    }

    async fn idle(&self) {
        self.run(0).await;
        eventually("nothing to be in flight", PATIENCE, async || {
            let metrics = self.gateway.metrics().await;
            (metrics.sum("holdfast_in_flight", &[]) == 0.0).then_some(())
        })
        .await;
    }

    /// A client that has sent its head and this much of its body.
    async fn come(&self, proof: &str, body: &str, sent: usize) -> RawClient {
        let mut client = RawClient::connect(self.gateway.data.addr()).await;
        let length = body.len();
        let head = format!(
            "POST {INFER} HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {proof}\r\ncontent-length: {length}\r\n\r\n{}",
            &body[..sent]
        );
        client.write(head).await;
        client
    }

    async fn infer(&self, proof: &str) -> u16 {
        let bearer = format!("Bearer {proof}");
        let fields = [("authorization", bearer.as_str())];
        let answer = self.gateway.data.send(http::Method::POST, INFER, &fields, Bytes::from_static(QUICK.as_bytes()));
        answer.await.expect("an answer").status.as_u16()
    }
}

fn token(signer: &Signer, kid: &str, user: &str) -> String {
    signer.token(kid, &json!({ "iss": "local", "sub": user, "exp": now() + 3_600 }))
}

fn leave(clients: Vec<RawClient>, resets: bool) {
    for client in clients {
        if resets {
            client.reset();
        }
    }
}

/// Requests on one HTTP/2 connection that are given up by their streams' end.
async fn leave_h2(rig: &Rig) {
    let stream = TcpStream::connect(rig.gateway.data.addr()).await.unwrap();
    let (sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let driver = tokio::spawn(driver);
    let mut sent = Vec::new();
    for proof in &rig.proofs {
        let request =
            http::Request::post(format!("http://g{INFER}")).header("authorization", format!("Bearer {proof}"));
        let request = request.body(Full::new(Bytes::from_static(HANGS.as_bytes()))).unwrap();
        let mut sender = sender.clone();
        sent.push(tokio::spawn(async move { sender.send_request(request).await.map(drop) }));
    }
    rig.run(sent.len() as u64).await;
    sent.iter().for_each(tokio::task::JoinHandle::abort);
    rig.idle().await;
    driver.abort();
}

#[tokio::test]
async fn every_counter_of_a_limit_is_where_it_was_after_clients_have_left() {
    let scope = format!("{{ requests: {REQUESTS}/30d, bytes: {BYTES}/30d, concurrency: 50 }}");
    let rig = Rig::start(&format!("global: {scope}"), &format!("user: {scope}, tenant: {scope}")).await;
    let left = async || {
        let rows = rig.rows().await;
        let rows = rows.iter().filter(|row| row["scope"] != "user" && row["available"].is_u64());
        let rows: Vec<_> =
            rows.map(|row| (row["limit"].as_str().unwrap().to_owned(), row["available"].as_u64().unwrap())).collect();
        assert_eq!(rows.len(), 4, "requests and bytes, of the tenant and of all: {rows:?}");
        rows
    };
    let mut sent = 0;
    for resets in [false, true] {
        // Within the body: nothing was sent to a replica, so everything comes back.
        let mut clients = Vec::new();
        for part in 0..4 {
            for proof in &rig.proofs {
                clients.push(rig.come(proof, HANGS, part * 5).await);
            }
        }
        rig.run(clients.len() as u64).await;
        leave(clients, resets);
        rig.idle().await;
        // While the replica works: what runs ends, and what was used is used.
        let mut clients = Vec::new();
        for proof in rig.proofs.iter().chain(&rig.proofs) {
            clients.push(rig.come(proof, HANGS, HANGS.len()).await);
        }
        rig.run(clients.len() as u64).await;
        eventually("the replica to have them", PATIENCE, async || {
            let at = rig.gateway.metrics().await.sum("holdfast_replica_in_flight", &[]);
            (at == clients.len() as f64).then_some(())
        })
        .await;
        sent += clients.len() as u64;
        leave(clients, resets);
        rig.idle().await;
        for (limit, available) in left().await {
            let (most, used) = if limit == "bytes" { (BYTES, sent * HANGS.len() as u64) } else { (REQUESTS, sent) };
            // Of a month one byte comes back in some seconds.
            let grown = if limit == "bytes" { 60 } else { 1 };
            let expected = most - used..=(most - used + grown).min(most);
            assert!(expected.contains(&available), "{limit}: {available} is left, not {expected:?}");
        }
    }
    leave_h2(&rig).await;
    for proof in &rig.proofs {
        assert_eq!(rig.infer(proof).await, 200);
    }
    let metrics = rig.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_invariant_violations_total", &[]), 0.0);
    assert_eq!(metrics.sum("holdfast_requests_total", &[("status", "429")]), 0.0);
}

#[tokio::test]
async fn who_leaves_while_its_tokens_key_is_fetched_leaves_nothing_behind() {
    let scope = format!("{{ requests: {REQUESTS}/30d, concurrency: 50 }}");
    let rig = Rig::start("", &format!("user: {scope}, tenant: {scope}")).await;
    rig.jwks.set_mode(Mode::Hang);
    let asked = rig.jwks.requests();
    let mut clients = Vec::new();
    for user in 0..8 {
        let unknown = token(&Signer::ec(), "k2", &format!("u{user}"));
        clients.push(rig.come(&unknown, HANGS, HANGS.len()).await);
    }
    let in_flight = async || rig.gateway.metrics().await.sum("holdfast_in_flight", &[]);
    eventually("all to wait for the keys", PATIENCE, async || {
        (rig.jwks.requests() > asked && in_flight().await == 8.0).then_some(())
    })
    .await;
    for (index, client) in clients.into_iter().enumerate() {
        leave(vec![client], index % 2 == 0);
    }
    rig.idle().await;
    let rows = rig.rows().await;
    let requests = rows.iter().find(|row| row["scope"] == "tenant" && row["limit"] == "requests").unwrap();
    assert_eq!(requests["available"], REQUESTS, "nobody was admitted: {rows:#?}");
    // The keys come, and a good token is good.
    rig.jwks.set_mode(Mode::Serve);
    let good = token(&rig.signer, "k1", "new");
    eventually("a good token to be served", PATIENCE, async || (rig.infer(&good).await == 200).then_some(())).await;
}

/// Whether the one limit in the store has all it can hold: its level, in parts of a token, and what has come since it was last looked at.
const IS_FULL: &str = "local keys = redis.call('KEYS', '*:limit:*')
if #keys ~= 1 then return 0 end
local kept = redis.call('HMGET', keys[1], 'l', 't', 'k', 'p', 'b')
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
return tonumber(kept[1]) + (now - tonumber(kept[2])) * tonumber(kept[3]) >= tonumber(kept[4]) * tonumber(kept[5])";

/// A lease of one token at a time, in a book that is kept by the gateway: what came is held, was spent, or went unused. Tokens go back after a second and
/// their lease ends after five, so that how many come depends on how fast this machine is; how many are spent does not.
#[tokio::test]
async fn what_is_leased_from_a_store_comes_back_when_a_client_leaves() {
    const ROUNDS: usize = 24;
    let redis = RedisServer::start().await;
    // The longest deadline there is: the token of an answer that is late would be lost.
    let store = format!("store: \"{}\", store_within: 1s", redis.url());
    let rig = Rig::start(&store, "tenant: { requests: 20/s, concurrency: 50 }").await;
    let spent = async || {
        let told = rig.gateway.admin_get("/v1/limits").await["store"].clone();
        assert_eq!((&told["up"], &told["failures"]), (&json!(true), &json!(0)), "{told:#}");
        let rows = rig.rows().await;
        let shared = &rows.iter().find(|row| row["limit"] == "requests").unwrap()["shared"];
        assert_eq!(shared["alone"], false, "{rows:#?}");
        let [received, held, unused] = ["received", "held", "unused"].map(|name| shared[name].as_u64().unwrap());
        received - held - unused
    };
    eventually("the store to be reached", PATIENCE, async || {
        (rig.gateway.admin_get("/v1/limits").await["store"]["up"] == true).then_some(())
    })
    .await;
    // A limit comes into a new store empty. Those who leave must not find it so.
    eventually("a first request to be served", PATIENCE, async || {
        (rig.infer(&rig.proofs[0]).await == 200).then_some(())
    })
    .await;
    eventually("the limit to be full", PATIENCE, async || {
        (redis.command(&["EVAL", IS_FULL, "0"]) == ":1").then_some(())
    })
    .await;
    assert_eq!(spent().await, 1);
    for round in 0..ROUNDS {
        let client = rig.come(&rig.proofs[round % 3], HANGS, 7).await;
        rig.run(1).await;
        assert_eq!(spent().await, 2, "it runs with a token");
        leave(vec![client], round % 2 == 0);
        rig.idle().await;
        assert_eq!(spent().await, 1, "its token is back after round {round}");
    }
    for round in 0..ROUNDS {
        let served = async || (rig.infer(&rig.proofs[round % 3]).await == 200).then_some(());
        eventually("a request to be served", PATIENCE, served).await;
        assert_eq!(spent().await, round as u64 + 2, "who is served has spent one");
    }
}
