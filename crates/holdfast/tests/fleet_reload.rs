//! A copy that one gateway loads anew on its server is proved anew by the others before they use it, though nothing that they look at by themselves
//! has told them: they are told of the load before it begins.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;
mod fleet_of;

use fleet::{PATIENCE, judgements, probe};
use fleet_of::{Member, More, Roles, Shape, ask};
use holdfast_config::ResourceKind;
use holdfast_testkit::eventually;
use serde_json::{Value, json};

/// Nobody waits for a copy that is wrong. Milliseconds.
const SOON: &str = "2000";

/// One server, which nobody polls by itself within the time of a test.
fn unwatched(config: &mut Value) {
    config["pools"][0]["health"] = json!({"interval": "30m", "timeout": "5s", "ease_in": "0s"});
}

/// How version 1 stands on the server, for a gateway: its state, and why.
async fn stands(gateway: &Member) -> Option<(String, String)> {
    let told = gateway.try_get("/v1/replicas").await?.json();
    let held = told["replicas"][0]["holds"].as_array()?.iter().find(|held| held["version"] == "1")?.clone();
    Some((held["state"].as_str()?.to_owned(), held["why"].as_str().unwrap_or_default().to_owned()))
}

/// Puts other weights under the name of version 1: those of version 2.
fn swap_weights(fleet: &Roles) {
    let file = |version: u32| fleet.repository.join(&format!("screen-{version}")).join("model.json");
    let other = std::fs::read_to_string(file(2)).unwrap();
    let other = other.replace("screen-2", "screen-1").replace(r#""version": "2""#, r#""version": "1""#);
    assert!(other.contains("screen-1") && other.contains(r#""version": "1""#), "{other}");
    std::fs::write(file(1), other).unwrap();
}

#[tokio::test]
async fn a_copy_that_its_owner_loads_anew_is_proved_anew_by_the_others() {
    let more = More { servers: 1, control: unwatched, ..More::default() };
    let fleet = Roles::start_of(Shape { controls: 1, gateways: 2, load: "500ms" }, more).await;
    let known = judgements(2).await;
    let desk = fleet.desk().await;
    let golden = json!([{"input": probe(), "output": {"outputs": known["1"]}}]);
    let version = json!({"size": "2GiB", "golden": golden});
    let done = desk.change(ask(vec![(ResourceKind::Version, "screen/1", version)])).await.unwrap().revision.unwrap().0;
    for gateway in &fleet.gateways {
        eventually("version 1 to be proved and served", PATIENCE, async || {
            let answer = gateway.infer("acme").await;
            let served = answer.status == 200 && answer.json()["outputs"] == known["1"];
            (served && gateway.revision().await >= done && stands(gateway).await?.0 == "held").then_some(())
        })
        .await;
    }
    // Once both have their seats, the server has its owner, and keeps it.
    let owner = eventually("one of them to own the server", PATIENCE, async || {
        let mut owner = None;
        for (at, gateway) in fleet.gateways.iter().enumerate() {
            let seat = gateway.ready().await["seat"].clone();
            (seat["seats"] == json!(["g1", "g2"]) && seat["lease_left_ms"].as_u64()? > 0).then_some(())?;
            owner = owner.or_else(|| (seat["owns"] == json!(["main/r1"])).then_some(at));
        }
        owner
    })
    .await;
    let (owner, other) = (&fleet.gateways[owner], &fleet.gateways[1 - owner]);

    // The server drops its copy without a word, and what lies under the name is something else by now. The owner meets that with its next request.
    swap_weights(&fleet);
    let begun = fleet.servers[0].stats().await["loads"]["started"].as_u64().unwrap();
    let _ = fleet.servers[0].http.post("/v2/repository/models/screen-1/unload", &[], &json!({})).await.expect(200);
    assert_eq!(stands(other).await.unwrap().0, "held", "the other one has not looked");
    eventually("the owner to load it anew", PATIENCE, async || {
        let answer = owner.infer_within("acme", SOON).await;
        assert!(answer.status != 200 || answer.json()["outputs"] == known["1"], "{answer:?}");
        (fleet.servers[0].stats().await["loads"]["started"].as_u64().unwrap() > begun).then_some(())
    })
    .await;
    for (who, gateway) in [("the owner", owner), ("the other one", other)] {
        eventually(&format!("{who} to find the other weights out"), PATIENCE, async || {
            let (state, why) = stands(gateway).await?;
            (state == "quarantined" && why.contains("known question")).then_some(())
        })
        .await;
        let answer = gateway.infer_within("acme", SOON).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("x-holdfast-error")),
            (503, "no_holder"),
            "{who}: {answer:?}"
        );
    }
}
