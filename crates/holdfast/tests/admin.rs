//! The command line and the admin port: what they tell, in which form, with which exit code, and to whom.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod operation_support;

use std::process::{Command, Output};
use std::time::Duration;

use holdfast_testkit::http::Client;
use holdfast_testkit::raw::RawClient;
use holdfast_testkit::{Holdfast, ModelServer, Proc, TempDir, eventually, free_port};
use http::Method;
use operation_support::{binary, model_server, one_pool, repository, served, tenant};
use serde_json::Value;

const INFER: &str = "/v2/models/screen/infer";

fn run(args: &[&str]) -> Output {
    Command::new(binary()).args(args).env_remove("HOLDFAST_ADMIN").output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn world() -> (Holdfast, ModelServer, TempDir) {
    let repository = repository(&["screen"], &["1", "2", "3"]);
    let server = model_server(&repository, "r1", &[]).await;
    let config = format!(
        "{}tenants:\n{}  - {{ name: globex, subset: 1, pins: {{ screen: \"2\" }}, allow: {{ screen: [\"3\"] }} }}\n",
        one_pool(&[&server], &["1", "2", "3"]),
        tenant("acme", "1")
    );
    let holdfast = Holdfast::start(binary(), &config).await;
    assert_eq!(served(&holdfast, "acme", INFER).await, "1");
    assert_eq!(served(&holdfast, "globex", INFER).await, "2");
    (holdfast, server, repository)
}

#[test]
fn check_tells_every_fault_with_its_place() {
    let dir = TempDir::new();
    let file = dir.join("c.yaml");
    let good = "auth: { trusted_header: x-tenant }\npools:\n  - name: p\n    protocol: open-inference\n    \
                residency: repository\n    replicas: [{ name: r1, url: \"http://127.0.0.1:9001\", memory: 24GiB }]\nmodels:\n  \
                - { name: screen, pool: p, versions: [{ version: \"1\", size: 2GiB }] }\ntenants:\n  \
                - { name: acme, subset: 1, pins: { screen: \"1\" } }\n";
    std::fs::write(&file, good).unwrap();
    let path = file.to_str().unwrap();
    let checked = run(&["check", path]);
    assert_eq!(checked.status.code(), Some(0), "{}", err(&checked));
    assert!(
        out(&checked).ends_with("c.yaml: good, for `holdfast serve` (1 pool, 1 model, 1 tenant)\n"),
        "{}",
        out(&checked)
    );
    let checked: Value = serde_json::from_slice(&run(&["check", path, "--output", "json"]).stdout).unwrap();
    assert_eq!((&checked["ok"], &checked["total"]), (&Value::Bool(true), &Value::from(0)), "{checked}");

    std::fs::write(&file, good.replace("pool: p,", "pool: q,").replace("screen: \"1\"", "scren: \"1\"")).unwrap();
    let checked = run(&["check", path]);
    assert_eq!(checked.status.code(), Some(2));
    let told = err(&checked);
    assert!(told.contains("c.yaml:8:") && told.contains("c.yaml:10:") && told.contains("screen"), "{told}");
    let checked = run(&["check", path, "--output", "json"]);
    assert_eq!(checked.status.code(), Some(2));
    let told: Value = serde_json::from_slice(&checked.stdout).unwrap();
    let faults = told["faults"].as_array().unwrap();
    assert_eq!((told["total"].as_u64(), &told["ok"]), (Some(2), &Value::Bool(false)), "{told}");
    assert_eq!((faults[0]["line"].as_u64(), faults[0]["path"].as_str()), (Some(8), Some("models[0].pool")), "{told}");
    assert_eq!(faults[1]["nearest"], "screen", "{told}");
    assert!(faults.iter().all(|f| f["column"].is_u64() && f["reason"].is_string() && f["file"].is_string()), "{told}");

    let missing = run(&["check", dir.join("none.yaml").to_str().unwrap()]);
    assert_eq!(missing.status.code(), Some(2), "{}", err(&missing));
    assert!(err(&missing).contains("none.yaml"));
}

#[test]
fn what_needs_no_gateway_works_without_one() {
    let schema: Value = serde_json::from_slice(&run(&["schema"]).stdout).unwrap();
    assert!(schema["properties"]["tenants"].is_object(), "{schema}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let completions = run(&["completions", shell]);
        assert!(completions.status.success() && out(&completions).contains("model-server"), "{shell}");
    }
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    for command in ["serve", "check", "schema", "explain", "replica", "table", "pin", "demo", "model-server"] {
        assert!(out(&help).contains(command), "{command}");
    }
    assert!(out(&help).contains("pin list --admin http://") && out(&help).contains("HOLDFAST_ADMIN"), "{}", out(&help));
    for group in ["pin", "table", "rollout", "node", "replica", "key", "experiment", "limits"] {
        let help = out(&run(&[group, "--help"]));
        assert!(help.contains("--admin URL behind its other words"), "{group}: {help}");
    }
    assert!(out(&run(&["--version"])).starts_with("holdfast "));
    let help = run(&["model-server", "--help"]);
    for key in ["stream_chunks", "wrong_weights_rate", "limit=", "/control/stats"] {
        assert!(out(&help).contains(key), "{key}");
    }
    for wrong in [
        &["serve", "a", "--config", "b"][..],
        &["serve"],
        &["nothing"],
        &["check"],
        &["explain"],
        &["table"],
        &["completions", "none"],
        &[],
    ] {
        let output = run(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {}", err(&output));
        assert!(output.stdout.is_empty(), "{wrong:?}");
    }
}

#[tokio::test]
async fn explain_says_what_a_request_would_get_and_why() {
    let (holdfast, _server, _repository) = world().await;
    let told = holdfast.cli_json(&["explain", "--tenant", "acme", "--model", "screen"]).await;
    assert_eq!((&told["version"], &told["reason"]), (&Value::from("1"), &Value::from("pin")), "{told}");
    assert_eq!((&told["subset"][0]["replica"], &told["subset"][0]["holds"]), (&Value::from("r1"), &Value::from(true)));
    assert!(told["now"].as_str().unwrap().contains("r1"), "{told}");
    let by_header = holdfast.cli_json(&["explain", "--header", "X-Tenant: globex", "--model", "screen"]).await;
    assert_eq!(by_header["version"], "2", "{by_header}");
    let named = ["explain", "--tenant", "globex", "--model", "screen", "--version", "3"];
    let named = holdfast.cli_json(&named).await;
    assert_eq!((&named["version"], &named["reason"]), (&Value::from("3"), &Value::from("explicit")));
    assert!(named["now"].as_str().unwrap().contains("load"), "held nowhere yet: {named}");

    let refused = [
        ("acme", "screen", Some("3"), "version_not_allowed"),
        ("acme", "screen", Some("latest"), "bad_request"),
        ("acme", "rank", None, "unknown_model"),
    ];
    for (tenant, model, version, kind) in refused {
        let mut args = vec!["explain", "--tenant", tenant, "--model", model];
        args.extend(version.iter().flat_map(|v| ["--version", v]));
        let told = holdfast.cli_json(&args).await;
        assert_eq!(told["error"], kind, "{told}");
    }
    let nobody = holdfast.cli(&["explain", "--tenant", "nobody", "--model", "screen"]).await;
    assert_eq!(nobody.status.code(), Some(1), "{}", out(&nobody));
    assert!(out(&nobody).contains("forbidden") && err(&nobody).contains("no tenant \"nobody\""), "{}", err(&nobody));
    let plain = holdfast.cli(&["explain", "--tenant", "acme", "--model", "screen"]).await;
    let plain = out(&plain);
    assert!(plain.contains("SUBSET") && plain.contains("would be sent to r1"), "{plain}");
    // What is no id names nobody, and is not repeated.
    for (tenant, model) in
        [("a&tenant=acme", "screen"), ("acme", "s%00\n/"), ("a%00", "screen"), ("", "screen"), ("acme", "")]
    {
        let refused = holdfast.cli(&["explain", "--tenant", tenant, "--model", model]).await;
        assert!(refused.status.code() == Some(1) && err(&refused).contains("is no id"), "{}", err(&refused));
    }
    for query in
        ["tenant=acme%00&model=screen", "tenant=acme&model=a%00", "tenant=%0a&model=screen", "tenant=-a&model=screen"]
    {
        let refused = holdfast.admin.get(&format!("/v1/explain?{query}"), &[]).await;
        assert_eq!((refused.status.as_u16(), refused.json()["status"].as_u64()), (400, Some(400)), "{query}");
    }
    let nobody = holdfast.cli(&["explain", "--model", "screen"]).await;
    assert_eq!(nobody.status.code(), Some(2), "neither a tenant nor its header");
    assert!(err(&nobody).contains("give --tenant or --header") && nobody.stdout.is_empty(), "{}", err(&nobody));
    let malformed = holdfast.cli(&["explain", "--header", "x-tenant", "--model", "screen"]).await;
    assert_eq!(malformed.status.code(), Some(2), "{}", err(&malformed));
}

#[tokio::test]
async fn listings_say_the_same_for_people_and_programs() {
    let (holdfast, _server, _repository) = world().await;
    let replicas = holdfast.cli_json(&["replica", "list"]).await;
    assert_eq!(replicas["replicas"][0]["up"], true, "{replicas}");
    let plain = out(&holdfast.cli(&["replica", "list"]).await);
    assert!(plain.contains("screen/1") && plain.contains("screen/2") && plain.contains("24"), "{plain}");

    let table = holdfast.cli_json(&["table", "show"]).await;
    let revision = table["revision"].as_u64().unwrap();
    let plain = out(&holdfast.cli(&["table", "show"]).await);
    assert!(plain.contains(&revision.to_string()) && plain.contains("globex"), "{plain}");

    let pins = holdfast.cli_json(&["pin", "list"]).await;
    assert_eq!(pins["revision"], revision);
    assert_eq!(pins["tenants"][1]["pins"]["screen"], "2", "{pins}");
    let plain = out(&holdfast.cli(&["pin", "list"]).await);
    assert_eq!(plain.lines().count(), 3, "a head and two pins: {plain}");
}

#[tokio::test]
async fn a_listing_of_thousands_is_whole() {
    let repository = repository(&["screen"], &["1"]);
    let server = model_server(&repository, "r1", &[]).await;
    let tenants: String = (0..2_500).map(|n| tenant(&format!("t{n:04}"), "1")).collect();
    let config = format!("{}tenants:\n{tenants}", one_pool(&[&server], &["1"]));
    let holdfast = Holdfast::start(binary(), &config).await;
    let pins = holdfast.cli_json(&["pin", "list"]).await;
    let names: Vec<&str> = pins["tenants"].as_array().unwrap().iter().map(|t| t["tenant"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2_500);
    assert!(names.is_sorted() && names[2_499] == "t2499", "each once, in order");
    for limit in ["0", "1", "1000", "99999", "-1", "x"] {
        let page = holdfast.admin_get(&format!("/v1/table?limit={limit}&after=t2000")).await;
        assert!(page["tenants"].as_array().unwrap().len() <= 1_000, "limit={limit}");
    }
}

#[tokio::test]
async fn a_wrong_address_is_told_as_what_it_is() {
    for (admin, code, says) in [
        ("http://127.0.0.1:1", 1, "is it running"),
        ("127.0.0.1:7401", 2, "is not a URL"),
        ("https://127.0.0.1:7401", 2, "--ca-file"),
        ("http://127.0.0.1", 2, "is not a URL"),
        ("http://127.0.0.1:port", 2, "is not a URL"),
        ("http://[::1]:1", 1, "is it running"),
        ("", 2, "is not a URL"),
    ] {
        for command in [&["table", "show"][..], &["replica", "list"], &["pin", "list"]] {
            let output = run(&[command, &["--admin", admin]].concat());
            assert_eq!(output.status.code(), Some(code), "{admin:?} {command:?}: {}", err(&output));
            assert!(err(&output).contains(says) && output.stdout.is_empty(), "{admin:?}: {}", err(&output));
        }
    }
}

/// A gateway whose admin port is on every address and asks for a token.
async fn with_token(dir: &TempDir, token: &str) -> (Proc, u16) {
    let (data, admin) = (free_port(), free_port());
    std::fs::write(dir.join("token"), format!("{token}\n")).unwrap();
    let config = format!(
        "listen: {{ data: \"127.0.0.1:{data}\", admin: {{ address: \"0.0.0.0:{admin}\", token_file: \"{}\" }} }}\n\
         state: \"{}\"\nauth: {{ trusted_header: x-tenant }}\n",
        dir.join("token").display(),
        dir.join("state").display()
    );
    let file = dir.join("c.yaml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(binary());
    command.arg("serve").arg("--config").arg(file);
    (Proc::start("holdfast", command), admin)
}

#[tokio::test]
async fn an_admin_port_beyond_loopback_asks_for_its_token() {
    let (dir, token) = (TempDir::new(), "0123456789abcdef-token");
    let (mut proc, port) = with_token(&dir, token).await;
    let admin = Client::new(([127, 0, 0, 1], port).into());
    proc.ready("the admin port", Duration::from_secs(20), async || {
        let answer = admin.send(Method::GET, "/livez", &[], bytes::Bytes::new()).await;
        answer.is_ok_and(|a| a.status == 200).then_some(())
    })
    .await;
    assert_eq!(admin.get("/readyz", &[]).await.status, 200, "probes need no token");
    let bearer = format!("Bearer {token}");
    for path in
        ["/metrics", "/v1/table", "/v1/replicas", "/v1/usage", "/v1/alarms", "/v1/explain?tenant=a&model=b", "/x"]
    {
        let refused = [
            None,
            Some(""),
            Some("Bearer "),
            Some("Bearer 0123456789abcdef-tokeN"),
            Some("Bearer 0123456789abcdef-token1"),
            Some("Basic 0123456789abcdef-token"),
            Some(token),
        ];
        for shown in refused {
            let fields: Vec<(&str, &str)> = shown.iter().map(|value| ("authorization", *value)).collect();
            let answer = admin.get(path, &fields).await;
            assert_eq!(answer.status, 401, "{path} {shown:?}");
            assert!(answer.header("www-authenticate").starts_with("Bearer"), "{path}");
            assert_eq!(answer.json()["status"], 401, "{path}");
        }
        assert_ne!(admin.get(path, &[("authorization", &bearer)]).await.status, 401, "{path}");
    }
    let url = format!("http://127.0.0.1:{port}");
    let file = dir.join("token");
    let file = file.to_str().unwrap();
    let shown = run(&["table", "show", "--admin", &url, "--admin-token-file", file, "--output", "json"]);
    assert_eq!(shown.status.code(), Some(0), "{}", err(&shown));
    let refused = run(&["table", "show", "--admin", &url]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains("401") && err(&refused).contains("token"), "{}", err(&refused));
    let missing = run(&["table", "show", "--admin", &url, "--admin-token-file", "/nowhere/token"]);
    assert_eq!(missing.status.code(), Some(2), "{}", err(&missing));
    assert!(!proc.output().contains(token), "the token is in no log");
}

#[tokio::test]
async fn an_admin_port_without_protection_does_not_start() {
    let dir = TempDir::new();
    let (mut proc, _) = with_token(&dir, "short").await;
    assert_eq!(proc.wait_exit(Duration::from_secs(10)).await.code(), Some(2));
    eventually("the reason", Duration::from_secs(5), async || proc.output().contains("16 characters").then_some(()))
        .await;
    let checked = run(&["check", dir.join("c.yaml").to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(2), "check refuses what serve refuses");
    let told = err(&checked);
    assert!(told.contains("listen.admin.token_file") && told.contains("16 characters"), "{told}");
    std::fs::remove_file(dir.join("token")).unwrap();
    let checked = run(&["check", dir.join("c.yaml").to_str().unwrap(), "--output", "json"]);
    let told: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!((&told["ok"], &told["faults"][0]["path"]), (&false.into(), &"listen.admin.token_file".into()), "{told}");
    let file = dir.join("open.yaml");
    std::fs::write(&file, "listen: { admin: \"0.0.0.0:7401\" }\n").unwrap();
    let checked = run(&["check", file.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(2));
    assert!(err(&checked).contains("token"), "{}", err(&checked));
}

#[tokio::test]
async fn what_the_admin_port_shows_cannot_be_written_and_it_knows_what_it_has() {
    let (holdfast, _server, _repository) = world().await;
    let before = holdfast.admin_get("/v1/table").await["revision"].clone();
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
        for (path, status) in [("/v1/table", 405), ("/v1/replicas", 405), ("/metrics", 405), ("/nothing", 404)] {
            let answer = holdfast.admin.send(method.clone(), path, &[], "{}".into()).await.unwrap();
            assert_eq!(answer.status, status, "{method} {path}");
        }
    }
    for path in ["/", "/v1", "/v1/table/", "/v1/tables", "//v1/table", "/v1/%74able", "/metrics/x", "/v1/../metrics"] {
        let answer = holdfast.admin.get(path, &[]).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("content-type")),
            (404, "application/problem+json"),
            "{path}"
        );
        assert_eq!(answer.json()["status"], 404);
    }
    let explained = holdfast.admin.get("/v1/explain?tenant=%zz&model=%", &[]).await;
    assert!(explained.status.as_u16() < 500, "{explained:?}");
    assert_eq!(holdfast.admin_get("/v1/table").await["revision"], before);
}

/// Whoever begins heads and does not end them shuts the port to nobody, not even to who comes from the same address.
#[tokio::test]
async fn half_sent_heads_do_not_shut_the_admin_port() {
    let (holdfast, _server, _repository) = world().await;
    let mut half = Vec::new();
    for n in 0..300 {
        let Ok(mut client) = RawClient::try_connect(holdfast.admin.addr()).await else { panic!("connection {n}") };
        client.write("GET /metrics HTTP/1.1\r\nhost: a\r\nx-never: ").await;
        half.push(client);
    }
    for path in ["/readyz", "/metrics", "/v1/table", "/v1/pins"] {
        // A connection of its own each time, as a tool's.
        let asked = Client::new(holdfast.admin.addr()).get(path, &[]).await;
        assert_eq!(asked.status, 200, "{path}");
    }
    let told = holdfast.cli(&["table", "show"]).await;
    assert_eq!(told.status.code(), Some(0), "{}", err(&told));
    let open = holdfast.metrics().await.sum("holdfast_connections", &[("listener", "admin")]);
    assert!(open <= 64.0, "{open} connections of one address");
    // Those that are left have their time.
    let (mut ended, all) = (0, half.len());
    for client in &mut half {
        ended += usize::from(client.closes_within(Duration::from_secs(15)).await);
    }
    assert_eq!(ended, all);
}

/// Streams of events keep their connections: they may not be all that an address has.
#[tokio::test]
async fn streams_of_events_leave_connections_for_requests() {
    let repository = repository(&["screen"], &["1", "2"]);
    let server = model_server(&repository, "r1", &[]).await;
    let pool = one_pool(&[&server], &["1", "2"]);
    let holdfast = Holdfast::start(binary(), &format!("truth: store\n{pool}tenants:\n{}", tenant("acme", "1"))).await;
    assert_eq!(served(&holdfast, "acme", INFER).await, "1");
    let set = holdfast.cli(&["pin", "set", "acme", "screen", "2", "--wait"]).await;
    assert_eq!(set.status.code(), Some(0), "{}", err(&set));
    let rollouts = holdfast.admin_get("/v1/rollouts").await;
    let id = rollouts["items"][0]["rollout"].as_u64().expect("its number");
    let mut streams = Vec::new();
    let mut statuses = Vec::new();
    for _ in 0..70 {
        let Ok(mut client) = RawClient::try_connect(holdfast.admin.addr()).await else { continue };
        client.write(format!("GET /v1/rollouts/{id}/events HTTP/1.1\r\nhost: {}\r\n\r\n", holdfast.admin.addr())).await;
        // The body of a stream has no end: only its head is read.
        statuses.push(client.answer("HEAD").await.map_or(0, |answer| answer.status));
        streams.push(client);
    }
    assert_eq!(statuses.iter().filter(|s| **s == 200).count(), 16, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|s| **s == 429).count(), 54, "{statuses:?}");
    for path in ["/readyz", "/metrics", "/v1/table", "/v1/pins"] {
        let asked = Client::new(holdfast.admin.addr()).get(path, &[]).await;
        assert_eq!(asked.status, 200, "{path}");
    }
    let refused = Client::new(holdfast.admin.addr()).get(&format!("/v1/rollouts/{id}/events"), &[]).await;
    assert_eq!((refused.status.as_u16(), refused.header("content-type")), (429, "application/problem+json"));
    assert_eq!((refused.header("retry-after"), &refused.json()["code"]), ("1", &"too_many_streams".into()));
    drop(streams);
    eventually("a place for a stream", Duration::from_secs(30), async || {
        let mut client = RawClient::connect(holdfast.admin.addr()).await;
        client.write(format!("GET /v1/rollouts/{id}/events HTTP/1.1\r\nhost: {}\r\n\r\n", holdfast.admin.addr())).await;
        client.answer("HEAD").await.is_ok_and(|answer| answer.status == 200).then_some(())
    })
    .await;
}
