//! TLS on the admin port, in real processes: who is believed and who is who, certificates that change, and strangers at the door.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod attacks;
mod certificates;
mod world;

use std::process::Command;

use holdfast_testkit::{Authority, TempDir, eventually, free_port};
use serde_json::json;
use world::{PATIENCE, Who, World, binary};

#[tokio::test]
async fn a_caller_is_known_by_a_token_or_a_certificate() {
    let world = World::start().await;
    let strangers = Authority::new();
    let client = |common: &str, names: &[&str]| Who::Certificate(world.clients.client(common, names));
    let ann = client("ann", &[]);
    let ci = client("build machine", &["spiffe://prod/ci"]);
    let bob = client("Bob B.", &["bob@example.org"]);
    for (who, get, pin, pool) in [
        (&ann, 200, 200, 404),
        (&ci, 200, 200, 403),
        (&bob, 200, 403, 403),
        (&Who::Token("a-token-of-dora-01"), 200, 200, 403),
        (&client("mallory", &[]), 403, 403, 403),
        // One name of an operator and one of a viewer: nobody knows which is meant.
        (&client("x", &["spiffe://prod/ci", "bob@example.org"]), 403, 403, 403),
        (&Who::Nobody, 401, 401, 401),
        (&Who::Token("a-token-of-nobody-1"), 401, 401, 401),
    ] {
        assert_eq!(world.ask(who, "GET", "/v1/pins").await.0, get, "{who:?}");
        assert_eq!(world.ask(who, "GET", "/v1/alarms").await.0, get, "{who:?}: the gateway's own pages");
        assert_eq!(world.ask(who, "PUT", "/v1/pins/acme/screen").await.0, pin, "{who:?}");
        assert_eq!(world.ask(who, "DELETE", "/v1/pools/nowhere").await.0, pool, "{who:?}");
        assert_eq!(world.ask(who, "GET", "/livez").await.0, 200, "{who:?}");
    }
    let (_, history) = world.ask(&ann, "GET", "/v1/revisions").await;
    assert!(history.contains("\"author\":\"ann\""), "who is known by a certificate has a name: {history}");
    // These come to no request at all.
    for who in [
        Who::Certificate(strangers.client("ann", &[])),
        Who::Certificate(world.clients.expired_client("ann", &[])),
        Who::Certificate(world.servers.server(&["127.0.0.1"])),
    ] {
        assert_eq!(world.ask(&who, "GET", "/livez").await.0, 0, "{who:?}");
    }
    // A server that is not believed is told nothing, nor one of another name.
    assert_eq!(world.curl("127.0.0.1", &strangers, &Who::Token("a-token-of-dora-01"), "GET", "/v1/pins").await.0, 0);
    assert_eq!(
        world.curl("localhost", &world.servers, &Who::Token("a-token-of-dora-01"), "GET", "/v1/pins").await.0,
        0
    );
}

#[tokio::test]
async fn commands_go_over_tls() {
    let world = World::start().await;
    let (ca, other) = (world.file("ca.pem"), Authority::new().file(world.dir.join("other.pem")));
    let (certificate, key) = world.clients.client("ann", &[]).files(world.dir.path(), "ann");
    let [ca, other, certificate, key] = [&ca, &other, &certificate, &key].map(|path| path.to_str().unwrap());
    let token = world.file("dora.token");
    let own = ["--client-cert", certificate, "--client-key", key];
    let (code, text) = world.command(&["pin", "list", "--ca-file", ca, own[0], own[1], own[2], own[3]], &[]);
    assert!(code == 0 && text.contains("acme"), "{text}");
    let environment = [("HOLDFAST_CA_FILE", ca), ("HOLDFAST_CLIENT_CERT", certificate), ("HOLDFAST_CLIENT_KEY", key)];
    let (code, text) = world.command(&["node", "list"], &environment);
    assert!(code == 0 && text.contains("local"), "{text}");
    let backup = world.dir.join("all.backup");
    let (code, text) = world.command(&["backup", backup.to_str().unwrap()], &environment);
    assert!(code == 0 && backup.exists(), "{text}");
    let (code, text) =
        world.command(&["pin", "list", "--ca-file", ca, "--admin-token-file", token.to_str().unwrap()], &[]);
    assert!(code == 0 && text.contains("acme"), "{text}");

    let (code, text) = world.command(&["pin", "list"], &[]);
    assert!(code == 2 && text.contains("--ca-file"), "{text}");
    let (code, text) = world.command(&["pin", "list", "--ca-file", other], &environment[1..]);
    assert!(code == 1 && text.contains("UnknownIssuer"), "{text}");
    let (code, text) = world.command(&["pin", "list", "--ca-file", key], &[]);
    assert!(code == 2 && text.contains("no certificate"), "{text}");
    let (code, text) = world.command(&["pin", "list", "--ca-file", ca], &[]);
    assert!(code == 1 && text.contains("401"), "{text}");
}

#[tokio::test]
async fn what_cannot_be_used_is_told_before_anything_starts() {
    let (dir, servers) = (TempDir::new(), Authority::new());
    let good = servers.server(&["127.0.0.1"]);
    let (certificate, key) = good.files(dir.path(), "good");
    let (expired, expired_key) = servers.expired_server(&["127.0.0.1"]).files(dir.path(), "expired");
    let (_, other_key) = servers.server(&["127.0.0.1"]).files(dir.path(), "other");
    let rubbish = dir.join("rubbish");
    std::fs::write(&rubbish, "rubbish").unwrap();
    let check = |tls: serde_json::Value, more: &str| {
        let file = dir.join("holdfast.yaml");
        let admin = json!({"address": "127.0.0.1:0", "tls": tls});
        let text = format!("auth: {{ trusted_header: x-tenant }}\nlisten: {{ admin: {admin} }}\n{more}");
        std::fs::write(&file, text).unwrap();
        let output = Command::new(binary()).arg("check").arg(&file).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    assert_eq!(check(json!({"certificates": certificate, "key": key}), "").0, Some(0));
    for (tls, why) in [
        (json!({"certificates": expired, "key": expired_key}), "until a time that is over"),
        (json!({"certificates": certificate, "key": other_key}), "good.pem"),
        (json!({"certificates": rubbish, "key": key}), "no certificate"),
        (json!({"certificates": certificate, "key": rubbish}), "no private key"),
        (json!({"certificates": certificate, "key": dir.join("nowhere")}), "cannot be read"),
        (json!({"certificates": certificate, "key": key, "clients": certificate}), "tokens_file"),
    ] {
        let (code, text) = check(tls.clone(), "");
        assert!(code == Some(2) && text.contains("listen.admin.tls") && text.contains(why), "{tls}: {code:?} {text}");
        assert!(!text.contains("PRIVATE KEY"), "{text}");
    }
    // The data port's certificates are looked into as well.
    let data = |tls: serde_json::Value| {
        let file = dir.join("data.yaml");
        std::fs::write(&file, format!("auth: {{ trusted_header: x-tenant }}\nlisten: {{ data_tls: {tls} }}\n"))
            .unwrap();
        let output = Command::new(binary()).arg("check").arg(&file).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    assert_eq!(data(json!({"certificates": certificate, "key": key})).0, Some(0));
    for (certificates, key) in
        [(&certificate, &other_key), (&certificate, &rubbish), (&rubbish, &key), (&expired, &expired_key)]
    {
        let (code, text) = data(json!({"certificates": certificates, "key": key}));
        assert!(code == Some(2) && text.contains("listen.data_tls"), "{code:?} {text}");
    }
}

#[tokio::test]
async fn a_control_plane_has_the_same_door() {
    let (dir, servers) = (TempDir::new(), Authority::new());
    let (certificate, key) = servers.server(&["127.0.0.1"]).files(dir.path(), "own");
    let [port, nowhere] = [free_port(), free_port()];
    let config = json!({
        "listen": {"admin": {"address": format!("127.0.0.1:{port}"), "tls": {"certificates": certificate, "key": key}}},
        "store": {"postgres": format!("postgresql://u@127.0.0.1:{nowhere}/d")},
        "control": {"listen": "127.0.0.1:0", "open": true},
    });
    let process = world::start_role("control", &dir, &config);
    let reached = eventually("the control plane to live", PATIENCE, async || {
        let (code, body) = world::curl(&dir, port, "127.0.0.1", &servers, &Who::Nobody, "GET", "/livez").await;
        (code == 200).then_some(body)
    });
    assert!(reached.await.contains("true"));
    assert!(process.output().contains(&format!("admin on https://127.0.0.1:{port}")), "{}", process.output());
}
