//! Roll-outs by command, in real processes: all pins or none, shares of live traffic, a version that does not prove itself, and the way back once the
//! old version is not kept any more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod operation_support;

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_testkit::{Holdfast, ModelServer, TempDir, eventually};
use operation_support::{ask, binary, model_server, one_pool, repository, served, tenant};
use serde_json::{Value, json};

const INFER: &str = "/v2/models/screen/infer";
const LIMIT: Duration = Duration::from_secs(60);
const WAIT: [&str; 3] = ["--wait", "--timeout", "2m"];
/// So many that both servers have some of them, whatever the hash says.
const TENANTS: usize = 8;

struct World {
    holdfast: Holdfast,
    servers: Vec<ModelServer>,
    _repository: TempDir,
    head: String,
}

impl World {
    /// Two servers, one model with three versions, and tenants that are pinned to version 1 on one replica each.
    async fn new(rollouts: &str, versions: Option<&str>) -> Self {
        let repository = repository(&["screen"], &["1", "2", "3"]);
        let servers = vec![model_server(&repository, "r1", &[]).await, model_server(&repository, "r2", &[]).await];
        let all: Vec<&ModelServer> = servers.iter().collect();
        let mut pool = one_pool(&all, &["1", "2", "3"]);
        if let Some(versions) = versions {
            let (before, _) = pool.split_once("versions: [").unwrap();
            pool = format!("{before}versions: {versions} }}\n");
        }
        let head = format!("truth: store\nrollouts: {rollouts}\n{pool}tenants:\n");
        let holdfast = Holdfast::start(binary(), &format!("{head}{}", tenants("1"))).await;
        for at in 0..TENANTS {
            assert_eq!(served(&holdfast, &format!("t{at}"), INFER).await, "1");
        }
        Self { holdfast, servers, _repository: repository, head }
    }

    async fn run(&self, args: &[&str]) -> (i32, String) {
        let output = self.holdfast.cli(args).await;
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap_or(-1), text)
    }

    async fn done(&self, args: &[&str]) -> String {
        let (code, text) = self.run(args).await;
        assert_eq!(code, 0, "{args:?}: {text}");
        text
    }

    async fn pin(&self, tenant: &str) -> Value {
        self.holdfast.admin_get(&format!("/v1/pins/{tenant}/screen")).await
    }

    async fn rollout(&self, id: u64) -> Value {
        self.holdfast.admin_get(&format!("/v1/rollouts/{id}")).await
    }

    /// The version that judges a request of this tenant.
    async fn version(&self, tenant: &str) -> String {
        let answer = self.holdfast.infer(tenant, INFER, &ask("coffee")).await.expect(200);
        answer.header("x-holdfast-version").to_owned()
    }

    /// Loads that servers have begun so far.
    async fn loads(&self) -> u64 {
        let mut sum = 0;
        for server in &self.servers {
            sum += server.stats().await["loads"]["started"].as_u64().unwrap();
        }
        sum
    }
}

fn tenants(version: &str) -> String {
    (0..TENANTS).map(|at| tenant(&format!("t{at}"), version)).collect()
}

#[tokio::test]
async fn an_atomic_change_flips_all_pins_under_one_revision_or_none() {
    let world = World::new("{ tries: 1 }", None).await;
    let dir = TempDir::new();
    let file = dir.join("state.yaml");
    let name = file.to_str().unwrap();
    std::fs::write(&file, format!("{}{}", world.head, tenants("2"))).unwrap();
    let apply = [&["apply", "-f", name, "--yes", "--atomic"][..], &WAIT].concat();

    // One server cannot load the version: pins of tenants of the other one are ready, and stay.
    world.servers[1].faults(&json!({"load_fails": "the weights are torn"})).await;
    let (code, told) = world.run(&apply).await;
    assert!(code == 1 && told.contains("the weights are torn"), "{told}");
    let stats = world.servers[0].stats().await;
    let other: BTreeSet<&str> =
        stats["held"].as_array().unwrap().iter().filter_map(|h| h["version"].as_str()).collect();
    assert!(stats["held"].to_string().contains("screen-2") || other.contains("2"), "some were ready: {stats}");
    for at in 0..TENANTS {
        let pin = world.pin(&format!("t{at}")).await;
        assert_eq!((&pin["version"], &pin["in_force"]), (&json!("2"), &json!("1")), "{pin}");
    }

    world.servers[1].faults(&json!({})).await;
    let told = world.done(&apply).await;
    assert!(told.contains("in force on every live gateway"), "{told}");
    let mut revisions = BTreeSet::new();
    for at in 0..TENANTS {
        let pin = world.pin(&format!("t{at}")).await;
        assert_eq!(pin["in_force"], "2", "{pin}");
        revisions.insert(pin["in_force_revision"].as_u64().unwrap());
        assert_eq!(world.version(&format!("t{at}")).await, "2");
    }
    assert_eq!(revisions.len(), 1, "all under one revision");
}

#[tokio::test]
async fn a_canary_sends_its_share_and_goes_back_or_on_by_command() {
    let world = World::new("{ tries: 1 }", None).await;
    let told = world.done(&["pin", "set", "t0", "screen", "2", "--canary", "50%:20m"]).await;
    assert!(told.contains("1 pin on the way"), "{told}");
    let seen = async || {
        let mut seen = BTreeSet::new();
        for _ in 0..40 {
            seen.insert(world.version("t0").await);
        }
        seen
    };
    let both = BTreeSet::from(["1".to_owned(), "2".to_owned()]);
    eventually("both versions to be seen", LIMIT, async || (seen().await == both).then_some(())).await;
    assert_eq!(world.pin("t0").await["in_force"], "1", "the pin itself stays");
    assert_eq!(world.version("t1").await, "1", "nobody else is in it");
    let shown = world.rollout(1).await;
    assert_eq!((&shown["phase"], &shown["pins"][0]["share"]), (&json!("canary"), &json!(50)), "{shown}");
    let (code, told) = world.run(&["rollout", "abort", "1"]).await;
    assert!(code == 1 && told.contains("50 % of a pin's traffic"), "{told}");
    let _ = world.done(&["rollout", "pause", "1"]).await;
    assert_eq!(world.rollout(1).await["paused"], true);
    assert_eq!(seen().await, both, "a pause leaves the share as it is");
    let begun = world.loads().await;
    let _ = world.done(&["rollout", "resume", "1"]).await;
    let _ = world.done(&["rollout", "revert", "1"]).await;
    let one = BTreeSet::from(["1".to_owned()]);
    eventually("the share to have ended", LIMIT, async || (seen().await == one).then_some(())).await;
    assert_eq!(world.loads().await, begun, "the way back loads nothing");

    let set = [&["pin", "set", "t0", "screen", "2", "--canary", "10%:100ms,50%:100ms"][..], &WAIT].concat();
    let told = world.done(&set).await;
    assert!(told.contains("in force on every live gateway"), "{told}");
    assert_eq!(seen().await, BTreeSet::from(["2".to_owned()]));
}

#[tokio::test]
async fn a_version_that_does_not_prove_itself_never_flips_and_the_roll_out_says_why() {
    let golden =
        json!([{"input": ask("coffee"), "output": {"outputs": [{"name": "label", "data": ["no such label"]}]}}]);
    let digest = format!("blake3:{}", "0".repeat(64));
    let versions = format!(
        "[{{ version: \"1\", size: 2GiB }}, {{ version: \"2\", size: 2GiB, golden: {golden} }}, {{ version: \"3\", size: 2GiB, digest: \"{digest}\" }}]"
    );
    let world = World::new("{ tries: 1 }", Some(&versions)).await;
    for (version, why) in [("2", "known question"), ("3", "declared is")] {
        let (code, told) = world.run(&[&["pin", "set", "t0", "screen", version][..], &WAIT].concat()).await;
        assert!(code == 1 && told.contains("has failed") && told.contains(why), "{version}: {told}");
        let pin = world.pin("t0").await;
        assert_eq!((&pin["version"], &pin["in_force"]), (&json!(version), &json!("1")), "{pin}");
        assert_eq!(world.version("t0").await, "1");
    }
    let (first, second) = (world.rollout(1).await, world.rollout(2).await);
    assert!(first["phase"] == "failed" && second["phase"] == "failed", "{first} {second}");
    assert!(first["pins"][0]["words"].as_str().unwrap().contains("known question"), "{first}");
}

#[tokio::test]
async fn after_its_time_a_way_back_is_called_cold_and_has_to_be_confirmed() {
    let world = World::new("{ retain: 200ms }", None).await;
    let _ = world.done(&[&["pin", "set", "t0", "screen", "2"][..], &WAIT].concat()).await;
    let over = eventually("the roll-out to be over", LIMIT, async || {
        let rollout = world.rollout(1).await;
        (rollout["over"] == true).then_some(rollout)
    })
    .await;
    assert_eq!(over["phase"], "done", "{over}");

    // By the roll-out itself, and by the table: nobody goes back cold without knowing.
    let (code, told) = world.run(&["rollout", "revert", "1"]).await;
    assert!(code == 1 && told.contains("loaded anew") && told.contains("confirmed"), "{told}");
    let dry = world.done(&["table", "revert", "--dry-run"]).await;
    assert!(dry.contains("t0/screen: in force 2 -> 1"), "{dry}");
    assert!(dry.contains("cold redeployment: t0/screen to 1, which is not kept for it any more"), "{dry}");
    let (code, told) = world.run(&["table", "revert"]).await;
    assert!(code == 2 && told.contains("--yes") && told.contains("cold redeployment"), "{told}");
    assert_eq!(world.version("t0").await, "2", "nothing has moved");
    let _ = world.done(&["rollout", "revert", "1", "--confirm"]).await;
    eventually("the pin to be back", LIMIT, async || (world.version("t0").await == "1").then_some(())).await;

    // The stream of a roll-out that is over ends with it.
    let ended = eventually("the roll-out to be over again", LIMIT, async || {
        let rollout = world.rollout(1).await;
        (rollout["over"] == true).then_some(rollout)
    })
    .await;
    assert_eq!(ended["pins"][0]["cold"], true, "{ended}");
    let accept = [("accept", "text/event-stream")];
    let stream = world.holdfast.admin.get("/v1/rollouts/1/events", &accept).await.expect(200);
    assert_eq!(stream.header("content-type"), "text/event-stream");
    let text = stream.text();
    assert!(text.starts_with("event: progress\n") && text.contains("\n\nevent: end\ndata: "), "{text}");
    let (code, told) = world.run(&["rollout", "show", "1", "--follow"]).await;
    assert!(code == 1 && told.contains("roll-out 1 has gone back"), "{told}");

    let _ = world.done(&[&["pin", "set", "t1", "screen", "2"][..], &WAIT].concat()).await;
    eventually("the time to be over", LIMIT, async || (world.rollout(2).await["over"] == true).then_some(())).await;
    let told = world.done(&[&["table", "revert", "--yes"][..], &WAIT].concat()).await;
    assert!(told.contains("cold redeployment: t1/screen to 1"), "{told}");
    assert_eq!(world.version("t1").await, "1");
}

#[tokio::test]
async fn while_it_is_kept_a_way_back_is_not_called_cold() {
    let world = World::new("{ retain: 1h }", None).await;
    let _ = world.done(&[&["pin", "set", "t0", "screen", "2"][..], &WAIT].concat()).await;
    let begun = world.loads().await;
    let dry = world.done(&["table", "revert", "--dry-run"]).await;
    assert!(dry.contains("t0/screen: in force 2 -> 1") && !dry.contains("cold"), "{dry}");
    let answer = world.holdfast.admin.post("/v1/revert?dry_run=true", &[], &json!({})).await.expect(200).json();
    assert_eq!((&answer["cold"], &answer["cold_total"]), (&json!([]), &json!(0)), "{answer}");
    let told = world.done(&[&["table", "revert"][..], &WAIT].concat()).await;
    assert!(told.contains("in force on every live gateway"), "{told}");
    assert_eq!((world.version("t0").await, world.loads().await), ("1".to_owned(), begun), "nothing is loaded");
}

#[tokio::test]
async fn a_revert_by_command_is_what_is_desired_and_only_a_file_that_names_the_version_asks_for_it_again() {
    let world = World::new("{ retain: 1h }", None).await;
    let _ = world.done(&[&["pin", "set", "t0", "screen", "2"][..], &WAIT].concat()).await;
    let back = world.done(&["rollout", "revert", "1"]).await;
    assert!(back.contains("roll-out 1"), "{back}");
    let pin = world.pin("t0").await;
    assert_eq!(pin["version"], "1", "desired as soon as it is answered: {pin}");
    eventually("the way back", LIMIT, async || (world.pin("t0").await["in_force"] == "1").then_some(())).await;
    let history = world.done(&["table", "history"]).await;
    assert!(history.contains("roll-out 1 reverted") && history.contains("pin t0/screen: 1"), "{history}");
    let diff = world.done(&["table", "diff", "1"]).await;
    assert!(diff.contains("nothing is different"), "{diff}");

    // A state that differs elsewhere moves what it says and nothing more.
    let dir = TempDir::new();
    let file = dir.join("state.yaml");
    let name = file.to_str().unwrap();
    let state = |pins: &[(usize, &str)]| {
        let version = |at: usize| pins.iter().find(|(of, _)| *of == at).map_or("1", |(_, version)| *version);
        let all: String = (0..TENANTS).map(|at| tenant(&format!("t{at}"), version(at))).collect();
        std::fs::write(&file, format!("{}{all}", world.head)).unwrap();
    };
    state(&[(1, "2")]);
    let told = world.done(&[&["apply", "-f", name, "--yes"][..], &WAIT].concat()).await;
    assert!(told.contains("~ pin t1/screen: \"1\" -> \"2\"") && !told.contains("t0/screen"), "{told}");
    assert_eq!((world.version("t0").await, world.version("t1").await), ("1".to_owned(), "2".to_owned()));

    // One that still names the version that was taken back shows it first.
    state(&[(0, "2"), (1, "2")]);
    let dry = world.done(&["apply", "-f", name, "--dry-run"]).await;
    assert!(dry.contains("~ pin t0/screen: \"1\" -> \"2\"") && dry.contains("1 difference"), "{dry}");
    let _ = world.done(&[&["apply", "-f", name, "--yes"][..], &WAIT].concat()).await;
    assert_eq!(world.version("t0").await, "2");
}

/// Each server has room for two versions.
#[tokio::test]
async fn after_its_time_a_version_gives_its_room_away_and_a_way_back_loads_it_anew_if_that_is_confirmed() {
    let versions: Vec<String> = ["1", "2", "3"].map(|v| format!("{{ version: \"{v}\", size: 12GiB }}")).into();
    let world = World::new("{ retain: 200ms }", Some(&format!("[{}]", versions.join(", ")))).await;
    let dir = TempDir::new();
    let file = dir.join("state.yaml");
    std::fs::write(&file, format!("{}{}", world.head, tenants("2"))).unwrap();
    let apply = ["apply", "-f", file.to_str().unwrap(), "--yes", "--atomic"];
    let _ = world.done(&[&apply[..], &WAIT].concat()).await;
    let all_over = async || {
        eventually("every roll-out to be over", LIMIT, async || {
            let running = world.holdfast.admin_get("/v1/rollouts?running=true").await;
            running["items"].as_array().is_some_and(Vec::is_empty).then_some(())
        })
        .await;
    };
    all_over().await;

    // Somebody else needs the room: the version that is not kept any more is unloaded for it.
    let _ = world.done(&[&["pin", "set", "t0", "screen", "3"][..], &WAIT].concat()).await;
    let mut held = Vec::new();
    for server in &world.servers {
        held.push(server.stats().await["held"].to_string());
    }
    let has = |version: &str| held.iter().filter(|held| held.contains(version)).count();
    assert_eq!((has("screen-3"), has("screen-1"), has("screen-2")), (1, 1, 2), "{held:?}");
    let _ = world.done(&[&["pin", "set", "t0", "screen", "2"][..], &WAIT].concat()).await;
    all_over().await;

    let begun = world.loads().await;
    let (code, told) = world.run(&["rollout", "revert", "1"]).await;
    assert!(code == 1 && told.contains("has to be loaded anew, which is to be confirmed"), "{told}");
    assert_eq!((world.pin("t1").await["version"].as_str(), world.loads().await), (Some("2"), begun));
    let _ = world.done(&["rollout", "revert", "1", "--confirm"]).await;
    assert_eq!(world.pin("t1").await["version"], "1");
    for at in 1..TENANTS {
        let tenant = format!("t{at}");
        eventually("the pin to be back", LIMIT, async || (world.version(&tenant).await == "1").then_some(())).await;
    }
    assert!(world.loads().await > begun, "it was loaded anew");
}

#[tokio::test]
async fn while_it_waits_a_command_tells_why_a_load_fails() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let world = World::new("{ tries: 100 }", None).await;
    for server in &world.servers {
        server.faults(&json!({"load_fails": "the weights are torn"})).await;
    }
    let mut command = tokio::process::Command::new(binary());
    command.args(["pin", "set", "t0", "screen", "2", "--wait", "--timeout", "10m"]);
    command.env("HOLDFAST_ADMIN", format!("http://{}", world.holdfast.admin.addr()));
    let mut child = command.stdout(std::process::Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut told = Vec::new();
    let words = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            told.push(line);
            if told.iter().any(|line| line.contains("pre-warm") && line.contains("the weights are torn")) {
                return true;
            }
        }
        false
    };
    let seen = tokio::time::timeout(2 * LIMIT, words).await;
    assert!(matches!(seen, Ok(true)), "{told:#?}");
    for server in &world.servers {
        server.faults(&json!({})).await;
    }
    let _ = world.done(&["rollout", "abort", "1"]).await;
    assert_eq!(world.pin("t0").await["version"], "1", "an abort takes the wish back");
    assert!(!child.wait().await.unwrap().success());
}
