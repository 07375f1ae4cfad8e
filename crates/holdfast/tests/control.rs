//! The control plane by its command line and its API, as a running process: pins set and waited for, history, the way back, files applied.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod operation_support;

use std::time::Duration;

use holdfast_testkit::http::Client;
use holdfast_testkit::{Holdfast, ModelServer, Proc, TempDir, eventually, free_port};
use http::Method;
use operation_support::{binary, model_server, one_pool, repository, served, tenant};
use serde_json::{Value, json};

const INFER: &str = "/v2/models/screen/infer";
const LIMIT: Duration = Duration::from_secs(30);

struct World {
    holdfast: Holdfast,
    servers: Vec<ModelServer>,
    _repository: TempDir,
    text: String,
}

/// Two servers, one model with three versions, two tenants.
async fn world() -> World {
    world_with(&["screen"], &[]).await
}

/// The same with these models in the repository, and servers that are told more. One load that fails is the end of a roll-out.
async fn world_with(models: &[&str], more: &[&str]) -> World {
    let repository = repository(models, &["1", "2", "3"]);
    let servers = vec![model_server(&repository, "r1", more).await, model_server(&repository, "r2", more).await];
    let all: Vec<&ModelServer> = servers.iter().collect();
    let text = format!(
        "truth: store\nrollouts: {{ tries: 1 }}\n{}tenants:\n{}{}",
        one_pool(&all, &["1", "2", "3"]),
        tenant("acme", "1"),
        tenant("globex", "2")
    );
    let holdfast = Holdfast::start(binary(), &text).await;
    assert_eq!(served(&holdfast, "acme", INFER).await, "1");
    World { holdfast, servers, _repository: repository, text }
}

impl World {
    /// Runs a command and gives its code and everything that it printed.
    async fn run(&self, args: &[&str]) -> (i32, String) {
        let output = self.holdfast.cli(args).await;
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap_or(-1), text)
    }

    /// Writes a file with these tenants beside what the gateway was started with.
    fn file(&self, dir: &TempDir, tenants: &str) -> String {
        let file = dir.join("state.yaml");
        let (head, _) = self.text.split_once("tenants:\n").unwrap();
        std::fs::write(&file, format!("{head}tenants:\n{tenants}")).unwrap();
        file.to_str().unwrap().to_owned()
    }

    async fn faults(&self, faults: Value) {
        for server in &self.servers {
            server.faults(&faults).await;
        }
    }

    async fn done(&self, args: &[&str]) -> String {
        let (code, text) = self.run(args).await;
        assert_eq!(code, 0, "{args:?}: {text}");
        text
    }
}

#[tokio::test]
async fn a_pin_is_set_waited_for_and_taken_back() {
    let world = world().await;
    let set = ["pin", "set", "acme", "screen", "2", "--wait", "--timeout", "60s", "--reason", "better"];
    let told = world.done(&set).await;
    assert!(told.contains("1 change, 1 pin on the way") && told.contains("in force on every live gateway"), "{told}");
    assert!(told.contains("roll-out"), "a line for each step: {told}");
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "2", "at once, since it was waited for");
    let again = world.done(&set).await;
    assert!(again.contains("nothing is different"), "{again}");

    let history = world.done(&["table", "history"]).await;
    assert!(history.contains("better") && history.contains("loopback") && history.contains("activation"), "{history}");
    let diff = world.done(&["table", "diff", "1"]).await;
    assert!(diff.contains("~ desired   pin acme/screen: \"1\" -> \"2\""), "{diff}");
    assert!(diff.contains("~ in_force  pin acme/screen"), "{diff}");
    let back = world.done(&["table", "revert", "--wait", "--timeout", "60s"]).await;
    assert!(back.contains("pins in force at ") && back.contains(": acme/screen: in force 2 -> 1"), "{back}");
    assert!(back.contains("in force on every live gateway"), "{back}");
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "1");
    let rollouts = world.holdfast.cli_json(&["rollout", "list"]).await;
    assert!(
        rollouts["items"].as_array().is_some_and(|all| all.len() == 1),
        "the way back is that of the same roll-out: {rollouts}"
    );
    let id = rollouts["items"][0]["rollout"].to_string();
    assert!(world.done(&["rollout", "show", &id]).await.contains("acme"));
    let nodes = world.holdfast.cli_json(&["node", "list"]).await;
    assert_eq!(nodes["items"].as_array().map(Vec::len), Some(1), "{nodes}");
    assert_eq!((&nodes["items"][0]["live"], &nodes["items"][0]["in_force"]), (&json!(true), &nodes["in_force"]));
}

#[tokio::test]
async fn a_wait_ends_well_only_if_what_is_desired_is_in_force() {
    let world = world().await;
    world.faults(json!({ "load_fails": "the weights are torn" })).await;
    let (code, told) = world.run(&["pin", "set", "acme", "screen", "3", "--wait", "--timeout", "60s"]).await;
    assert!(code == 1 && told.contains("roll-out 1 has failed") && told.contains("the weights are torn"), "{told}");
    // Nothing is different from what is desired; but that is not in force, so it is asked for again, and fails again.
    let dir = TempDir::new();
    let file = world.file(&dir, &format!("{}{}", tenant("acme", "3"), tenant("globex", "2")));
    let apply = ["apply", "-f", &file, "--yes", "--wait", "--timeout", "60s"];
    let (code, told) = world.run(&apply).await;
    assert!(code == 1 && told.contains("0 differences"), "{told}");
    assert!(told.contains("roll-out 2 has failed") && told.contains("the weights are torn"), "{told}");
    // Without a word that it is meant, nothing is asked for.
    for more in [&[][..], &["--dry-run"]] {
        let told = world.done(&[&["apply", "-f", &file], more].concat()).await;
        assert!(told.contains("0 differences") && !told.contains("\"3\" is asked for again"), "{told}");
        assert!(told.contains("! pin acme/screen: \"3\" with --yes is asked for again"), "{told}");
    }
    let rollouts = world.holdfast.cli_json(&["rollout", "list"]).await;
    assert_eq!(rollouts["items"].as_array().map(Vec::len), Some(2), "{rollouts}");
    // Back at what is in force there is nothing to wait for.
    world.faults(json!({})).await;
    let file = world.file(&dir, &format!("{}{}", tenant("acme", "1"), tenant("globex", "2")));
    let told = world.done(&["apply", "-f", &file, "--yes", "--wait", "--timeout", "60s"]).await;
    assert!(told.contains("in force on every live gateway"), "{told}");
}

#[tokio::test]
async fn a_wait_that_is_over_says_what_it_waited_for_and_how_the_change_is_stopped() {
    let world = world().await;
    world.faults(json!({ "load_hangs": true })).await;
    let (code, told) = world.run(&["pin", "set", "acme", "screen", "3", "--wait", "--timeout", "3s"]).await;
    assert!(code == 1 && told.contains("not in force after 3s: acme/screen"), "{told}");
    assert!(told.contains("waiting for screen/3 on r"), "the cause: {told}");
    assert!(told.contains("the change goes on; `holdfast rollout abort 1` stops it"), "{told}");
    let listed = world.done(&["rollout", "list", "--running"]).await;
    assert!(listed.contains("acme/screen") && listed.contains("1 -> 3") && !listed.contains("paused"), "{listed}");
    let _ = world.done(&["rollout", "pause", "1"]).await;
    let listed = world.done(&["rollout", "list"]).await;
    assert!(listed.contains("(paused)"), "{listed}");
    let _ = world.done(&["rollout", "abort", "1"]).await;
}

#[tokio::test]
async fn a_wait_outlives_a_restart_of_the_server() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let mut world = world_with(&["screen"], &["--load-time", "2s"]).await;
    let mut command = tokio::process::Command::new(binary());
    command.args(["pin", "set", "acme", "screen", "3", "--wait", "--timeout", "60s"]);
    command.env("HOLDFAST_ADMIN", format!("http://{}", world.holdfast.admin.addr()));
    let mut waits = command.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(waits.stdout.take().unwrap()).lines();
    let (mut told, mut is_killed) = (Vec::new(), false);
    while let Some(line) = tokio::time::timeout(LIMIT, lines.next_line()).await.unwrap().unwrap() {
        if !is_killed && line.contains("roll-out 1: ") {
            world.holdfast.proc.kill9();
            is_killed = true;
        }
        let is_silent = line.contains("the server does not answer; the change goes on");
        told.push(line);
        if is_silent {
            world.holdfast.restart().await;
        }
    }
    let status = waits.wait().await.unwrap();
    assert!(status.success(), "{told:#?}");
    assert_eq!(told.iter().filter(|line| line.contains("does not answer")).count(), 1, "{told:#?}");
    assert!(told.last().is_some_and(|line| line.contains("in force on every live gateway")), "{told:#?}");
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "3");
}

#[tokio::test]
async fn a_way_back_is_shown_and_more_than_one_pin_is_asked_about() {
    let world = world().await;
    let wait = ["--wait", "--timeout", "60s"];
    let _ = world.done(&[&["pin", "set", "acme", "screen", "2"][..], &wait].concat()).await;
    // The roll-out that still keeps version 1 is not the one of this change.
    let told = world.done(&[&["pin", "set", "acme", "screen", "3"][..], &wait].concat()).await;
    assert!(!told.contains("roll-out 1:") && told.contains("roll-out 2:"), "{told}");
    let dry = world.done(&["table", "revert", "--dry-run"]).await;
    assert!(dry.contains("pins in force at ") && dry.contains(": acme/screen: in force 3 -> 2"), "{dry}");
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "3", "only shown");
    let _ = world.done(&[&["pin", "set", "globex", "screen", "3"][..], &wait].concat()).await;
    let (code, told) = world.run(&["table", "revert", "1"]).await;
    assert!(code == 2 && told.contains("--yes") && told.contains("globex/screen: in force 3 -> 2"), "{told}");
    let told = world.done(&[&["table", "revert", "1", "--yes"][..], &wait].concat()).await;
    assert!(
        told.contains("pins in force at 1:\n  acme/screen: in force 3 -> 1\n  globex/screen: in force 3 -> 2"),
        "{told}"
    );
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "1");

    let _ = world.done(&["pin", "remove", "globex", "screen", "--wait", "--reason", "has left"]).await;
    assert!(!world.done(&["pin", "list"]).await.contains("globex"), "it is gone at once");
    let (code, told) = world.run(&["pin", "remove", "globex", "screen"]).await;
    assert!(code == 1 && told.contains("404"), "{told}");
    let history = world.done(&["table", "history"]).await;
    let gone = history.lines().find(|line| line.contains("has left")).unwrap();
    assert!(gone.contains("  1        - pin globex/screen"), "one change, not one of each space: {history}");
    assert!(history.contains("pin acme/screen: 2"), "{history}");
    eventually("roll-outs that only keep the old version", LIMIT, async || {
        let all = world.done(&["rollout", "list"]).await;
        let running = world.done(&["rollout", "list", "--running"]).await;
        (all.contains("acme/screen") && !running.contains("screen")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_is_exported_is_applied_without_a_difference() {
    let world = world_with(&["screen", "other"], &[]).await;
    let _ = world.done(&["pin", "set", "acme", "screen", "3", "--wait", "--timeout", "60s"]).await;
    let dir = TempDir::new();
    let file = dir.join("exported.yaml");
    let name = file.to_str().unwrap();
    let _ = world.done(&["table", "export", "--file", name]).await;
    let told = world.done(&["apply", "-f", name, "--dry-run"]).await;
    assert!(told.contains("0 differences"), "{told}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.starts_with('{') && text.contains("\ntenants:\n") && text.contains("screen: \"3\"\n"), "{text}");
    assert_eq!(world.done(&["table", "export"]).await, text);
    let json = dir.join("exported.json");
    let _ = world.done(&["table", "export", "--file", json.to_str().unwrap()]).await;
    let state: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(state["tenants"][0]["pins"]["screen"], "3", "what is desired now: {state}");
    assert_eq!(world.holdfast.cli_json(&["table", "export"]).await, state);
    let told = world.done(&["apply", "-f", json.to_str().unwrap(), "--dry-run"]).await;
    assert!(told.contains("0 differences"), "{told}");
    let (code, told) = world.run(&["table", "export", "--file", name]).await;
    assert!(code == 1 && told.contains("cannot be written"), "{told}");

    // A file that is not taken is at least told of.
    std::fs::write(world.holdfast.config_path(), {
        let text = std::fs::read_to_string(world.holdfast.config_path()).unwrap();
        text.replace("name: globex", "name: initech")
    })
    .unwrap();
    world.holdfast.proc.sighup();
    eventually("a warning that names what differs", LIMIT, async || {
        let output = world.holdfast.proc.output();
        (output.contains("the store is the truth") && output.contains("pin acme/screen")).then_some(())
    })
    .await;
    let _ = world.servers[0].http.post("/v2/repository/models/other-1/load", &[], &json!({})).await.expect(200);
    eventually("what no version is called", LIMIT, async || {
        world.done(&["replica", "list"]).await.contains("no version is called so:\nother-1 on r1").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_file_is_shown_before_it_is_applied() {
    let world = world().await;
    let dir = TempDir::new();
    let file = dir.join("state.yaml");
    let name = file.to_str().unwrap();
    std::fs::write(&file, format!("{}{}", world.text, tenant("initech", "3"))).unwrap();
    let dry = world.done(&["apply", "-f", name, "--dry-run"]).await;
    assert!(dry.contains("+ tenant initech") && dry.contains("+ pin initech/screen: \"3\""), "{dry}");
    let (code, told) = world.run(&["apply", "-f", name]).await;
    assert!(code == 2 && told.contains("--yes"), "nobody can be asked: {told}");
    assert_eq!(world.holdfast.admin_get("/v1/tenants").await["items"].as_array().map(Vec::len), Some(2));
    let told = world.done(&["apply", "-f", name, "--yes", "--wait", "--timeout", "60s"]).await;
    assert!(told.contains("in force on every live gateway"), "{told}");
    assert_eq!(served(&world.holdfast, "initech", INFER).await, "3");
    assert!(world.done(&["apply", "-f", name, "--yes"]).await.contains("0 differences"));
    std::fs::write(&file, world.text.replace("screen: \"1\"", "scren: \"1\"")).unwrap();
    let (code, told) = world.run(&["apply", "-f", name, "--yes"]).await;
    assert!(code == 2 && told.contains("state.yaml:") && told.contains("screen"), "{told}");
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_its_reason_and_code() {
    let world = world().await;
    for (args, code, words) in [
        (&["pin", "set", "acme", "screen", "9"][..], 1, "422"),
        (&["pin", "set", "nobody", "screen", "1"], 1, "nobody"),
        (&["pin", "set", "acme", "screen", "latest"], 1, "latest"),
        (&["pin", "set", "acme", "screen"], 2, "VERSION"),
        (&["pin", "set", "acme", "screen", "2", "--canary", "200%:1s"], 2, "percent"),
        (&["pin", "remove", "acme", "screen", "--canary", "10%:1s"], 2, "--canary"),
        (&["pin", "remove", "acme", "screen", "--shadow", "5%/1/0%/1s"], 2, "--shadow"),
        (&["table", "revert", "999"], 1, "999"),
        (&["table", "diff", "1", "999"], 1, "999"),
        (&["rollout", "show", "999"], 1, "no such roll-out"),
        (&["rollout", "abort", "999"], 1, "404"),
        (&["apply", "-f", "/nowhere.yaml"], 2, "nowhere"),
    ] {
        let (status, told) = world.run(args).await;
        assert!(status == code && told.contains(words), "{args:?}: {status} {told}");
    }
}

#[tokio::test]
async fn roles_hold_on_a_running_port() {
    let dir = TempDir::new();
    let tokens = dir.join("tokens");
    std::fs::write(&tokens, "vera viewer the-token-of-vera-1\nolaf operator the-token-of-olaf-1\n").unwrap();
    std::fs::set_permissions(&tokens, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let repository = repository(&["screen"], &["1", "2"]);
    let server = model_server(&repository, "r1", &[]).await;
    let text = format!("{}tenants:\n{}", one_pool(&[&server], &["1", "2"]), tenant("acme", "1"));
    let (data, port) = (free_port(), free_port());
    let head = format!(
        "listen: {{ data: \"127.0.0.1:{data}\", admin: {{ address: \"127.0.0.1:{port}\", tokens_file: \"{}\" }} }}\nstate: \"{}\"\n",
        tokens.display(),
        dir.join("state").display()
    );
    let file = dir.join("c.yaml");
    std::fs::write(&file, format!("{head}{text}")).unwrap();
    let mut command = std::process::Command::new(binary());
    command.arg("serve").arg(file);
    let mut proc = Proc::start("holdfast", command);
    let admin = Client::new(([127, 0, 0, 1], port).into());
    proc.ready("the admin port", LIMIT, async || {
        let answer = admin.send(http::Method::GET, "/livez", &[], bytes::Bytes::new()).await;
        answer.is_ok_and(|a| a.status == 200).then_some(())
    })
    .await;
    let put = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        admin.put("/v1/pins/acme/screen", &headers, &json!({ "version": "2" })).await
    };
    assert_eq!(put("the-token-of-vera-1").await.status, 403);
    assert_eq!(put("the-token-of-nobody").await.status, 401);
    assert_eq!(put("the-token-of-olaf-1").await.status, 200);
    let vera = [("authorization", "Bearer the-token-of-vera-1")];
    let told: Value = admin.get("/v1/revisions?limit=5", &vera).await.expect(200).json();
    assert!(told["items"].as_array().unwrap().iter().any(|r| r["author"] == "olaf"), "{told}");
    eventually("the new version", Duration::from_secs(60), async || {
        let pin = admin.get("/v1/pins/acme/screen", &vera).await.expect(200).json();
        (pin["in_force"] == "2").then_some(())
    })
    .await;
}

#[test]
fn manual_pages_are_written_for_each_command() {
    let dir = TempDir::new();
    let run = |args: &[&str]| std::process::Command::new(binary()).args(args).output().unwrap();
    let whole = run(&["man"]);
    assert!(whole.status.success() && String::from_utf8_lossy(&whole.stdout).contains(".TH holdfast"));
    let written = run(&["man", dir.path().to_str().unwrap()]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    for page in ["holdfast.1", "holdfast-pin-set.1", "holdfast-apply.1", "holdfast-rollout-abort.1"] {
        assert!(dir.join(page).exists(), "{page}");
    }
}

#[tokio::test]
async fn memory_is_planned_from_what_is_in_force_as_from_the_file() {
    let world = world().await;
    let url = format!("http://{}", world.holdfast.admin.addr());
    let live = world.holdfast.cli_json(&["plan", "residency", "--admin", &url]).await;
    let file = world.holdfast.config_path();
    let told = world.holdfast.cli_json(&["plan", "residency", "--config", file.to_str().unwrap()]).await;
    assert_eq!(live, told);
    assert_eq!(live["pools"][0]["keys"].as_array().unwrap().len(), 2, "{live}");
    let nobody = format!("http://127.0.0.1:{}", free_port());
    let (code, text) = world.run(&["plan", "residency", "--admin", &nobody]).await;
    assert_eq!(code, 1, "{text}");
}

#[tokio::test]
async fn a_revert_leaves_out_what_has_left_the_catalogue_if_it_is_told_to() {
    let world = world().await;
    let wait = ["--wait", "--timeout", "60s"];
    for (tenant, version) in [("acme", "2"), ("globex", "3")] {
        let _ = world.done(&[&["pin", "set", tenant, "screen", version][..], &wait].concat()).await;
    }
    let gone = world.holdfast.admin.send(Method::DELETE, "/v1/versions/screen/1", &[], bytes::Bytes::new()).await;
    assert_eq!(gone.unwrap().status, 200);
    let (code, told) = world.run(&["table", "revert", "1", "--yes"]).await;
    let named = "acme/screen to 1: version 1 of model screen is not in the catalogue any more";
    assert!(code == 1 && told.contains("1 of 2 pins cannot go back to revision 1") && told.contains(named), "{told}");
    let told = world.done(&[&["table", "revert", "1", "--skip-gone"][..], &wait].concat()).await;
    assert!(told.contains(&format!("skipped: {named}")) && told.contains("globex/screen: in force 3 -> 2"), "{told}");
    assert_eq!(served(&world.holdfast, "globex", INFER).await, "2");
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "2", "as it was");
}

/// After a change that failed, the way back without a number leads further than its author may think: it says where.
#[tokio::test]
async fn a_way_back_after_a_failure_says_what_is_in_force_and_what_is_given_up() {
    let world = world().await;
    let wait = ["--wait", "--timeout", "60s"];
    let _ = world.done(&[&["pin", "set", "acme", "screen", "2"][..], &wait].concat()).await;
    world.faults(json!({ "load_fails": "the weights are torn" })).await;
    let (code, told) = world.run(&[&["pin", "set", "acme", "screen", "3"][..], &wait].concat()).await;
    assert!(code == 1 && told.contains("has failed"), "{told}");
    world.faults(json!({})).await;
    let words = "acme/screen: in force 2 -> 1 (desired was 3, which is given up)";
    let dry = world.done(&["table", "revert", "--dry-run"]).await;
    assert!(dry.contains(words), "{dry}");
    let dry = world.holdfast.cli_json(&["table", "revert", "--dry-run"]).await;
    let expected = json!([{ "pin": "acme/screen", "in_force": "2", "desired": "3", "to": "1" }]);
    assert_eq!((&dry["moves"], &dry["moves_total"]), (&expected, &json!(1)), "{dry}");
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "2", "only shown");
    let told = world.done(&[&["table", "revert"][..], &wait].concat()).await;
    assert!(told.contains(words) && told.contains("in force on every live gateway"), "{told}");
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "1");
}

#[tokio::test]
async fn who_does_not_wait_is_told_what_to_follow_and_who_makes_a_key_that_it_is_of_no_use() {
    let world = world().await;
    // A roll-out nearly always begins within the moment that is waited for it.
    let mut named = None;
    for version in ["2", "1", "3", "1", "2", "3"] {
        let told = world.holdfast.cli_json(&["pin", "set", "acme", "screen", version]).await;
        assert!(told["revision"].is_u64(), "{told}");
        named = told["rollout"].as_u64();
        if named.is_some() {
            break;
        }
    }
    let id = named.expect("the number of a roll-out");
    let shown = world.done(&["rollout", "show", &id.to_string()]).await;
    assert!(shown.contains(&format!("roll-out {id}: ")) && shown.contains("acme"), "{shown}");
    let told = world.done(&["pin", "set", "globex", "screen", "3"]).await;
    assert!(told.contains("roll-out") && told.contains("holdfast rollout "), "{told}");

    let made = world.holdfast.cli(&["key", "create", "acme"]).await;
    let (out, err) = (String::from_utf8_lossy(&made.stdout), String::from_utf8_lossy(&made.stderr));
    assert!(made.status.success() && out.starts_with("hfk_") && out.lines().count() == 1, "{out}{err}");
    assert!(err.contains("warning: ") && err.contains("does not say keys: true"), "{err}");
    let made = world.holdfast.cli_json(&["key", "create", "acme"]).await;
    assert!(made["warnings"].to_string().contains("does not say keys: true"), "{made}");
}

#[tokio::test]
async fn a_start_says_where_the_file_and_the_store_differ() {
    let mut world = world().await;
    let _ = world.done(&["pin", "set", "acme", "screen", "2", "--wait", "--timeout", "60s"]).await;
    world.holdfast.restart().await;
    let told = eventually("the warning", LIMIT, async || {
        world
            .holdfast
            .proc
            .output()
            .lines()
            .find(|line| line.contains("the file and the store differ"))
            .map(str::to_owned)
    })
    .await;
    assert!(told.contains("pin acme/screen (store 2, file 1)") && told.contains("holdfast apply -f FILE"), "{told}");
    assert!(!told.contains("globex"), "{told}");
    assert_eq!(served(&world.holdfast, "acme", INFER).await, "2");
}
