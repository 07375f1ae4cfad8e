//! The configuration of a running gateway: taken whole or not at all, at once, and visible which one is in force.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod operation_support;

use std::fmt::Write;
use std::time::Duration;

use holdfast_testkit::http::Client;
use holdfast_testkit::temp::write_atomically;
use holdfast_testkit::wait::always;
use holdfast_testkit::{Proc, TempDir, eventually};
use operation_support::world::{INFER, World};
use operation_support::{ask, binary, model_server, served, tenant};

#[tokio::test]
async fn a_changed_file_is_taken_by_itself_and_one_revision_is_told_everywhere() {
    let mut world = World::new().await;
    let before = world.revision().await;
    let added = format!("{}tenants:\n{}{}", world.head, tenant("acme", "1"), tenant("globex", "2"));
    world.holdfast.edit_config(|_| added);
    assert_eq!(served(&world.holdfast, "globex", INFER).await, "2");
    let after = world.revision().await;
    assert!(after > before, "{before} then {after}");

    let removed = format!("{}tenants:\n{}", world.head, tenant("acme", "1"));
    world.holdfast.edit_config(|_| removed);
    eventually("the removed tenant to be refused", Duration::from_secs(10), async || {
        (world.status("globex").await == 403).then_some(())
    })
    .await;
    let table = world.holdfast.admin_get("/v1/table").await;
    assert_eq!(table["tenants_total"], 1, "{table}");
    always("refused from then on", Duration::from_millis(300), async || world.status("globex").await == 403).await;
    assert!(world.revision().await > after);
}

#[tokio::test]
async fn tenants_models_replicas_and_pools_come_and_go_by_a_signal() {
    let mut world = World::new().await;
    let (second, other) = (world.servers[1].url(), model_server(&world.repository, "o1", &[]).await);
    let more = format!(
        "{}  - {{ name: rank, pool: other, versions: [{{ version: \"1\", size: 2GiB }}] }}\ntenants:\n{}  \
         - {{ name: globex, subset: 1, pins: {{ rank: \"1\", screen: \"3\" }} }}\n",
        world.head.replace(
            "models:\n",
            &format!(
                "  - name: other\n    protocol: open-inference\n    residency: repository\n    \
                 replicas: [{{ name: o1, url: \"{}\", memory: 24GiB }}]\nmodels:\n",
                other.url()
            )
        ),
        tenant("acme", "1"),
    );
    assert!(world.offer(&more).await, "a pool, a model and a tenant are added");
    assert_eq!(served(&world.holdfast, "globex", "/v2/models/rank/infer").await, "1");
    assert_eq!(served(&world.holdfast, "globex", INFER).await, "3");
    let replicas = world.holdfast.admin_get("/v1/replicas").await;
    let names: Vec<&str> =
        replicas["replicas"].as_array().unwrap().iter().map(|r| r["replica"].as_str().unwrap()).collect();
    assert_eq!(names, ["r1", "r2", "o1"]);

    let line = format!("      - {{ name: r2, url: \"{second}\", memory: 24GiB }}\n");
    assert!(world.head.contains(&line));
    let fewer = format!("{}tenants:\n{}", world.head.replace(&line, ""), tenant("acme", "1"));
    assert!(world.offer(&fewer).await, "a replica, a pool, a model and a tenant are removed");
    let gone = world.holdfast.infer("globex", "/v2/models/rank/infer", &ask("coffee")).await;
    assert_eq!((gone.status.as_u16(), gone.header("x-holdfast-error")), (403, "forbidden"));
    let gone = world.holdfast.infer("acme", "/v2/models/rank/infer", &ask("coffee")).await;
    assert_eq!((gone.status.as_u16(), gone.header("x-holdfast-error")), (404, "unknown_model"));
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "1");
    let replicas = world.holdfast.admin_get("/v1/replicas").await;
    assert_eq!(replicas["replicas"].as_array().unwrap().len(), 1, "{replicas}");
    let metrics = world.holdfast.metrics().await;
    assert_eq!(metrics.matching("holdfast_replica_up", &[("replica", "o1")]).count(), 0, "gone from the metrics too");
}

#[tokio::test]
async fn any_fault_leaves_the_last_good_configuration_in_force_and_is_seen_everywhere() {
    let mut world = World::new().await;
    let good = format!("{}tenants:\n{}", world.head, tenant("acme", "1"));
    let revision = world.revision().await;
    let faults = [
        ("not YAML", "pools: [".to_owned()),
        ("binary", "\u{0}\u{1}\u{2}".to_owned()),
        ("an unknown field", format!("{good}tenant: []\n")),
        ("a pin that does not exist", format!("{good}{}", tenant("globex", "9"))),
        ("latest", format!("{good}{}", tenant("globex", "latest"))),
        ("the same tenant twice", format!("{good}{}", tenant("acme", "2"))),
        ("the same tenant in capitals", format!("{good}{}", tenant("ACME", "2"))),
        ("one bad URL among good ones", good.replacen("http://", "ftp://", 1)),
        ("a golden file that is not there", good.replacen("size: 2GiB", "size: 2GiB, golden: no-such.json", 1)),
        ("a bound without a number", format!("{good}limits: {{ body: .nan }}\n")),
    ];
    for (what, text) in &faults {
        assert!(!world.offer(text).await, "{what} was taken");
        let table = world.holdfast.admin_get("/v1/table").await;
        assert_eq!(table["revision"], revision, "{what}");
        let failed = &table["config"]["failed"];
        assert!(failed["revision"].as_u64() > table["config"]["revision"].as_u64(), "{what}: {table}");
        assert!(failed["faults"].as_str().unwrap().contains("holdfast.yaml"), "{what}: where the fault is: {failed}");
        assert!(failed["age_seconds"].as_u64().unwrap() < 60, "{what}: {failed}");
        let ready = world.holdfast.data.get("/readyz?verbose", &[]).await.expect(200).json();
        assert!(ready["config_error"].is_string(), "{what}: {ready}");
        assert_eq!(world.status("acme").await, 200, "{what}");
        assert_eq!(world.status("globex").await, 403, "{what}: nothing of it is in force");
    }
    let metrics = world.holdfast.metrics().await;
    assert_eq!(metrics.sum("holdfast_config_error", &[]), 1.0);
    assert!(metrics.sum("holdfast_config_reload_total", &[("outcome", "refused")]) >= faults.len() as f64);
    assert_eq!(metrics.sum("holdfast_config_revision", &[]), 1.0, "the first one is in force");
    assert!(metrics.sum("holdfast_config_failed_revision", &[]) > 1.0);
    std::fs::remove_file(world.holdfast.config_path()).unwrap();
    world.holdfast.proc.sighup();
    eventually("the missing file to be noticed", Duration::from_secs(10), async || {
        let refused = world.holdfast.metrics().await.sum("holdfast_config_reload_total", &[("outcome", "refused")]);
        (refused > metrics.sum("holdfast_config_reload_total", &[("outcome", "refused")])).then_some(())
    })
    .await;
    assert_eq!(world.status("acme").await, 200);
    // What is wrong stays wrong: nothing flips to and fro.
    always("the same table", Duration::from_secs(2), async || {
        world.holdfast.admin_get("/v1/table").await["revision"] == revision
    })
    .await;

    assert!(world.offer(&format!("{good}{}", tenant("globex", "2"))).await);
    assert_eq!(served(&world.holdfast, "globex", INFER).await, "2");
    let table = world.holdfast.admin_get("/v1/table").await;
    assert!(table["config"]["failed"].is_null(), "{table}");
}

/// Each of these is a valid file to start with, and on a running gateway nearly always an accident.
#[tokio::test]
async fn a_file_emptied_of_its_pools_is_refused_and_the_last_good_table_serves() {
    let mut world = World::new().await;
    let good = format!("{}tenants:\n{}", world.head, tenant("acme", "1"));
    let revision = world.revision().await;
    let auth = good.lines().next().unwrap().to_owned();
    for (what, text) in [("no bytes", ""), ("a comment", "# later\n"), ("no pools", &auth)] {
        if text.is_empty() {
            // Without the lines that the test kit puts before every other.
            let before = world.decided().await;
            std::fs::write(world.holdfast.config_path(), "").unwrap();
            world.holdfast.proc.sighup();
            let decided = async || (world.decided().await > before).then_some(());
            eventually("a decision", Duration::from_secs(15), decided).await;
        } else {
            assert!(!world.offer(text).await, "{what} was taken");
        }
        let metrics = world.holdfast.metrics().await;
        assert_eq!(metrics.sum("holdfast_config_error", &[]), 1.0, "{what}");
        let table = world.holdfast.admin_get("/v1/table").await;
        assert_eq!(table["revision"], revision, "{what}");
        assert!(table["config"]["failed"]["faults"].as_str().unwrap().contains("emptied"), "{what}: {table}");
        let ready = world.holdfast.data.get("/readyz?verbose", &[]).await.expect(200).json();
        assert!(ready["config_error"].as_str().unwrap().contains("emptied"), "{what}: {ready}");
        assert_eq!(world.status("acme").await, 200, "{what}");
        assert_eq!(world.holdfast.admin_get("/v1/replicas").await["replicas"].as_array().unwrap().len(), 2, "{what}");
    }
    assert_eq!(world.holdfast.metrics().await.sum("holdfast_config_revision", &[]), 1.0, "the first one is in force");
    assert!(world.offer(&format!("{good}{}", tenant("globex", "2"))).await);
    assert_eq!(served(&world.holdfast, "globex", INFER).await, "2");
    assert_eq!(world.holdfast.metrics().await.sum("holdfast_config_error", &[]), 0.0);
}

#[tokio::test]
async fn a_file_a_thousand_times_larger_is_taken_and_one_with_duplicates_is_refused() {
    let mut world = World::new().await;
    let generated = |count: usize| {
        let mut text = format!("{}tenants:\n{}", world.head, tenant("acme", "1"));
        for number in 0..count {
            let _ = write!(text, "{}", tenant(&format!("t{number}"), "2"));
        }
        text
    };
    let files = [2, 10, 1_000, 10_000].map(|count| (count, generated(count)));
    let most = files[3].1.clone();
    for (count, text) in files {
        assert!(world.offer(&text).await, "{count} tenants");
        let table = world.holdfast.admin_get("/v1/table?limit=2").await;
        assert_eq!(table["tenants_total"], count + 1);
        assert_eq!(table["tenants"].as_array().unwrap().len(), 2, "one page");
        assert_eq!(served(&world.holdfast, &format!("t{}", count - 1), INFER).await, "2");
    }
    let doubled = format!("{most}{}", tenant("t77", "2"));
    assert!(!world.offer(&doubled).await, "a duplicate is no small matter");
    let failed = world.holdfast.admin_get("/v1/table?limit=1").await;
    let told = failed["config"]["failed"]["faults"].as_str().unwrap().to_owned();
    assert!(told.contains("t77") && told.len() < 100_000, "{told}");
    let all_twice = format!("{most}{}", &most[most.find("  - { name: t0").unwrap()..]);
    assert!(!world.offer(&all_twice).await, "everything twice");
    let ready = world.holdfast.data.get("/readyz", &[]).await;
    assert_eq!(ready.status, 200);
    assert_eq!(world.status("t9999").await, 200, "the last good one is served");
}

#[tokio::test]
async fn what_needs_a_restart_is_named_and_all_else_is_in_force() {
    let mut world = World::new().await;
    let changed = format!("workers: 3\nlog: {{ level: debug }}\n{}tenants:\n{}", world.head, tenant("globex", "1"));
    assert!(world.offer(&changed).await);
    let table = world.holdfast.admin_get("/v1/table").await;
    assert_eq!(table["config"]["restart_needed"], serde_json::json!(["workers", "log"]), "{table}");
    assert_eq!(served(&world.holdfast, "globex", INFER).await, "1");
    let unrelated = format!("{changed}{}", tenant("acme", "2"));
    assert!(world.offer(&unrelated).await);
    let table = world.holdfast.admin_get("/v1/table").await;
    assert_eq!(table["config"]["restart_needed"], serde_json::json!(["workers", "log"]), "still: {table}");
    let shown = String::from_utf8(world.holdfast.cli(&["table", "show"]).await.stdout).unwrap();
    assert!(shown.contains("needs a restart         workers, log"), "{shown}");
    world.holdfast.restart().await;
    let table = world.holdfast.admin_get("/v1/table").await;
    assert_eq!(table["config"]["restart_needed"], serde_json::json!([]), "{table}");
    // Every section that the documentation says is read at the start.
    let limits = ["store_within: 7ms", "store_namespace: other", "store_gateways: 2"];
    let each = [
        ("rollouts", "rollouts: { tries: 5 }".to_owned()),
        ("metrics", "metrics: { tenants: 7 }".to_owned()),
        ("audit", "audit: { enabled: false }".to_owned()),
        ("exposures", "exposures: { enabled: false }".to_owned()),
        ("results", "results: { keep: 7 }".to_owned()),
        ("receipts", "receipts: { keep: 7 }".to_owned()),
        ("route_token", "route_token: { lifetime: 7m }".to_owned()),
        ("ledger", "ledger: { keep: 7m }".to_owned()),
    ];
    let each = each.into_iter().chain(limits.map(|field| ("limits.store", format!("limits: {{ {field} }}"))));
    for (name, section) in each {
        let listen = changed.replace("workers: 3\n", &format!("workers: 3\n{section}\n"));
        assert!(world.offer(&listen).await, "{section}");
        let table = world.holdfast.admin_get("/v1/table").await;
        assert_eq!(table["config"]["restart_needed"], serde_json::json!([name]), "{section}: {table}");
    }
}

#[tokio::test]
async fn numbers_that_are_none_or_out_of_range_are_refused_with_their_place() {
    let dir = TempDir::new();
    let fields = [
        ("workers", ["workers: ", ""]),
        ("limits.body", ["limits: { body: ", " }"]),
        ("limits.connections", ["limits: { connections: ", " }"]),
        ("limits.headers", ["limits: { headers: ", " }"]),
        ("timeouts.request", ["timeouts: { request: ", " }"]),
        ("loads.fleet", ["loads: { fleet: ", " }"]),
        ("metrics.tenants", ["metrics: { tenants: ", " }"]),
    ];
    for (path, [before, after]) in fields {
        for value in [".nan", ".inf", "-.inf", "NaN", "-0.5", "1e308", "1e400", "-1", "[]", "{}", "true"] {
            let file = dir.join("c.yaml");
            std::fs::write(&file, format!("{before}{value}{after}\n")).unwrap();
            let output = std::process::Command::new(binary()).arg("check").arg(&file).output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{path} {value}: {told}");
            assert!(told.contains("c.yaml:1:") && told.contains(path), "{path} {value}: {told}");
        }
    }
}

#[tokio::test]
async fn a_restart_serves_what_was_in_force_also_when_a_replica_is_missing() {
    let mut world = World::new().await;
    let before = world.revision().await;
    world.servers[1].proc.kill9();
    world.servers[0].proc.kill9();
    world.holdfast.restart().await;
    assert_eq!(world.holdfast.data.get("/readyz", &[]).await.status, 200, "it is up and says what it can");
    let fields = [("x-tenant", "acme"), ("x-request-timeout-ms", "500")];
    let refused = world.holdfast.data.post(INFER, &fields, &ask("coffee")).await;
    assert_eq!(refused.header("x-holdfast-version"), "1", "resolved all the same");
    assert!(matches!(refused.status.as_u16(), 502..=504), "{refused:?}");
    world.servers[0].restart().await;
    world.servers[1].restart().await;
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "1");
    assert_eq!(world.revision().await, before, "the same file is the same revision");
}

#[tokio::test]
async fn a_start_with_a_broken_piece_says_which_and_ends() {
    let mut world = World::new().await;
    let path = world.holdfast.config_path();
    let run = || {
        let mut command = std::process::Command::new(binary());
        command.arg("serve").arg("--config").arg(&path);
        Proc::start("holdfast", command)
    };
    let good = std::fs::read_to_string(&path).unwrap();
    let ends = async |mut proc: Proc, code: i32, says: &str| {
        let status = proc.wait_exit(Duration::from_secs(10)).await;
        eventually(says, Duration::from_secs(5), async || proc.output().contains(says).then_some(())).await;
        assert_eq!(status.code(), Some(code), "{}", proc.output());
    };
    ends(run(), 1, "in use by another process").await;
    // Which one, where the system tells.
    let holder = world.holdfast.proc.pid();
    if std::fs::read_to_string("/proc/locks").is_ok_and(|locks| locks.contains(&format!(" {holder} "))) {
        ends(run(), 1, &format!("process {holder} has it")).await;
    }
    let other = TempDir::new();
    let mut elsewhere = std::process::Command::new(binary());
    elsewhere.arg("serve").arg("--config").arg(&path).env("HOLDFAST__STATE", other.path());
    ends(Proc::start("holdfast", elsewhere), 1, "cannot listen on").await;
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "1", "the first one goes on");
    world.holdfast.proc.kill9();
    std::fs::write(&path, "pools: [").unwrap();
    ends(run(), 2, "holdfast.yaml:1").await;
    std::fs::remove_file(&path).unwrap();
    ends(run(), 2, "holdfast.yaml").await;
    std::fs::write(&path, good).unwrap();
    let store = world.holdfast.state_path().join("table.redb");
    let whole = std::fs::read(&store).unwrap();
    for (bytes, says) in
        [(&b"{\"format\":1,"[..], "damaged"), (&whole[..whole.len() / 3], "damaged"), (&[], "is empty")]
    {
        std::fs::write(&store, bytes).unwrap();
        ends(run(), 1, says).await;
        assert_eq!(std::fs::read(&store).unwrap(), bytes, "what is damaged is left as it is");
    }
    std::fs::remove_file(&store).unwrap();
    let mut holdfast = world.holdfast;
    holdfast.restart().await;
    assert_eq!(served(&holdfast, "acme", INFER).await, "1", "without the saved state the file decides");
}

#[tokio::test]
async fn an_edit_while_the_gateway_starts_is_noticed() {
    let dir = TempDir::new();
    let (data, admin) = (holdfast_testkit::free_port(), holdfast_testkit::free_port());
    let text = |input: &str, tenants: &str| {
        format!(
            "truth: file\nlisten: {{ data: \"127.0.0.1:{data}\", admin: \"127.0.0.1:{admin}\" }}\nstate: \"{}\"\n\
             auth: {{ trusted_header: x-tenant }}\n\
             pools:\n  - name: main\n    protocol: open-inference\n    residency: repository\n    \
             replicas: [{{ name: r1, url: \"http://127.0.0.1:{}\" }}]\n\
             models:\n  - name: screen\n    pool: main\n    versions:\n      \
             - {{ version: \"1\", size: 1GiB, golden: [{{ input: {input}, output: {{ y: 1 }} }}] }}\n\
             tenants:\n{tenants}",
            dir.join("state").display(),
            holdfast_testkit::free_port(),
        )
    };
    // The start is at this file when somebody opens it for writing, so it has read the configuration and is not done.
    let pipe = dir.join("question.json");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let path = dir.join("holdfast.yaml");
    write_atomically(&path, &text("question.json", &tenant("acme", "1")));
    let mut command = std::process::Command::new(binary());
    command.arg("serve").arg("--config").arg(&path);
    let mut proc = Proc::start("holdfast", command);
    let again = pipe.clone();
    let opened = tokio::task::spawn_blocking(move || std::fs::File::options().write(true).open(pipe));
    let mut question = opened.await.unwrap().unwrap();
    write_atomically(&path, &text("{ x: 1 }", &format!("{}{}", tenant("acme", "1"), tenant("globex", "1"))));
    // The same words for whoever reads them once more.
    write_atomically(&again, "{\"x\": 1}");
    std::io::Write::write_all(&mut question, b"{\"x\": 1}").unwrap();
    drop(question);
    let client = Client::new(([127, 0, 0, 1], admin).into());
    proc.ready("the edit", Duration::from_secs(15), async || {
        let table = client.send(http::Method::GET, "/v1/table", &[], bytes::Bytes::new()).await.ok()?;
        (table.json()["tenants_total"] == 2).then_some(())
    })
    .await;
}
