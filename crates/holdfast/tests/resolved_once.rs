//! One submission has one resolution: whatever is tried again, and whatever flips meanwhile, the version is the one of the first try.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use fleet::{INFER, PATIENCE, binary, config, pin_of, probe, receipt, text};
use holdfast_testkit::http::{Answer, Client};
use holdfast_testkit::stub::StubRequest;
use holdfast_testkit::v2_stub::{V2, infer_answer};
use holdfast_testkit::{Holdfast, Script, Stub, eventually};
use serde_json::json;
use tokio::sync::watch;

/// Two replicas that hold versions 1 and 2 of `screen`. Whoever asks with `x-wants: NAME` has a first try that breaks off, on whichever of the
/// two it comes to: at once, or for `x-wants: held...` when `released` is at least 1.
struct Rig {
    gateway: Holdfast,
    stubs: Vec<Stub>,
    config: serde_json::Value,
    release: watch::Sender<u64>,
}

impl Rig {
    async fn start() -> Self {
        let (release, released) = watch::channel(0);
        let tried = Arc::new(Mutex::new(BTreeSet::<String>::new()));
        let mut stubs = Vec::new();
        for _ in 0..2 {
            let v2 = V2::loaded(&[("screen-1", "1"), ("screen-2", "2")]);
            let (tried, released) = (tried.clone(), released.clone());
            stubs.push(Stub::start(move |request| answer(request, &v2, &tried, &released)).await);
        }
        let urls: Vec<String> = stubs.iter().map(Stub::url).collect();
        let mut config = config(&urls, 2, json!([{"name": "acme", "subset": 2, "pins": {"screen": "1"}}]));
        config["models"][0]["idempotent"] = json!(true);
        // What breaks off says nothing about a replica here.
        config["pools"][0]["health"] = json!({"interval": "500ms", "timeout": "500ms", "fall": 1000, "ease_in": "0s"});
        let gateway = Holdfast::start(binary(), &text(&config)).await;
        fleet::wait_held(&gateway, "1", 2).await;
        Self { gateway, stubs, config, release }
    }

    /// The inferences that replicas got of this request, by the name in their path.
    fn asked(&self, wants: &str) -> Vec<String> {
        let all = self.stubs.iter().flat_map(Stub::requests);
        all.filter(|request| request.header("x-wants") == wants).map(|request| request.path).collect()
    }

    /// The answer is of this version, after one retry; its version was looked up once, and it is counted once.
    async fn assert_resolved_once(&self, answer: &Answer, wants: &str, version: &str) {
        assert_eq!(
            (answer.status.as_u16(), answer.header("x-holdfast-version")),
            (200, version),
            "{wants}: {answer:?}"
        );
        assert!(answer.text().contains(&format!("screen-{version}/{version}")), "what served: {answer:?}");
        let told = receipt(&self.gateway, answer).await;
        assert_eq!((&told["retries"], &told["version"]), (&json!(1), &json!(version)), "{told:#}");
        assert_eq!(told["revision"].to_string(), answer.header("x-holdfast-revision"), "{told:#}");
        let stages = told["stages"].as_array().unwrap();
        assert_eq!(stages.iter().filter(|stage| stage["stage"] == "resolved").count(), 1, "{told:#}");
        assert_eq!(told["attempts"].as_array().unwrap().len(), 2, "{told:#}");
        assert_eq!(self.asked(wants), vec![format!("/v2/models/screen-{version}/infer"); 2]);
    }
}

fn answer(request: &StubRequest, v2: &V2, tried: &Mutex<BTreeSet<String>>, released: &watch::Receiver<u64>) -> Script {
    let wants = request.header("x-wants");
    let Some(name) = request.path.strip_prefix("/v2/models/").and_then(|path| path.strip_suffix("/infer")) else {
        return v2.answer(request);
    };
    if !wants.is_empty() && tried.lock().unwrap().insert(wants.to_owned()) {
        let broken = Script::close();
        return if wants.starts_with("held") { broken.once_at_least(1, released.clone()) } else { broken };
    }
    Script::json(200, &infer_answer(request, name, name.strip_prefix("screen-").unwrap()))
}

#[tokio::test]
async fn a_retry_after_a_flip_goes_to_the_version_of_its_first_try() {
    let mut rig = Rig::start().await;
    let (data, before) = (rig.gateway.data.addr(), rig.gateway.admin_get("/v1/table").await["revision"].clone());
    let waiting: Vec<_> = ["held-1", "held-2", "held-3"]
        .map(|wants| {
            tokio::spawn(async move {
                let fields = [("x-tenant", "acme"), ("x-wants", wants)];
                (wants, Client::new(data).post(INFER, &fields, &probe()).await)
            })
        })
        .into();
    eventually("the first tries", PATIENCE, async || {
        ["held-1", "held-2", "held-3"].iter().all(|wants| rig.asked(wants).len() == 1).then_some(())
    })
    .await;
    rig.config["tenants"][0]["pins"]["screen"] = json!("2");
    let changed = text(&rig.config);
    rig.gateway.edit_config(|_| changed);
    rig.gateway.proc.sighup();
    eventually("the flip", PATIENCE, async || {
        let table = rig.gateway.admin_get("/v1/table").await;
        (pin_of(&table, "acme") == "2").then_some(())
    })
    .await;
    let after = rig.gateway.infer("acme", INFER, &probe()).await.expect(200);
    assert_eq!(after.header("x-holdfast-version"), "2", "all others have moved");
    rig.release.send_replace(1);
    for waiting in waiting {
        let (wants, answer) = waiting.await.unwrap();
        assert_eq!(answer.header("x-holdfast-revision"), before.to_string(), "{wants} is of the table that it met");
        rig.assert_resolved_once(&answer, wants, "1").await;
    }
    // One that fails once afterwards is of the new version in both tries.
    let fields = [("x-tenant", "acme"), ("x-wants", "late")];
    let answer = rig.gateway.data.post(INFER, &fields, &probe()).await;
    rig.assert_resolved_once(&answer, "late", "2").await;
}

#[tokio::test]
async fn retries_are_no_resolutions_of_their_own() {
    let rig = Rig::start().await;
    for number in 0..20 {
        let wants = format!("once-{number}");
        let answer = rig.gateway.data.post(INFER, &[("x-tenant", "acme"), ("x-wants", &wants)], &probe()).await;
        rig.assert_resolved_once(&answer, &wants, "1").await;
    }
    let metrics = rig.gateway.metrics().await;
    assert_eq!(metrics.sum("holdfast_routed_total", &[("rule", "pin"), ("outcome", "ok")]), 20.0);
    assert_eq!(metrics.sum("holdfast_routed_total", &[]), 20.0);
}
