//! A load that its server never ends, after nobody wants it any more: it keeps a slot, so everybody who meets that is told which it is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod operation_support;

use std::time::Duration;

use holdfast_testkit::{Holdfast, eventually};
use operation_support::{binary, model_server, one_pool, repository, served, tenant};
use serde_json::{Value, json};

const INFER: &str = "/v2/models/screen/infer";
const LIMIT: Duration = Duration::from_secs(60);

async fn replica(holdfast: &Holdfast) -> Value {
    holdfast.admin_get("/v1/replicas").await["replicas"][0].clone()
}

#[tokio::test]
async fn a_hung_load_of_an_aborted_roll_out_is_named_by_everything_that_it_keeps_waiting() {
    let repository = repository(&["screen"], &["1", "2", "3"]);
    let server = model_server(&repository, "r1", &[]).await;
    let pool = one_pool(&[&server], &["1", "2", "3"]);
    let pool =
        pool.replace("residency: repository\n", "residency: repository\n    loads: { per_replica: 1, timeout: 2s }\n");
    let holdfast = Holdfast::start(binary(), &format!("truth: store\n{pool}tenants:\n{}", tenant("acme", "1"))).await;
    assert_eq!(served(&holdfast, "acme", INFER).await, "1");
    server.faults(&json!({ "load_hangs": true })).await;
    let _ = holdfast.cli_json(&["pin", "set", "acme", "screen", "2"]).await;
    let load = eventually("the load", LIMIT, async || {
        let loads = replica(&holdfast).await["loads"].clone();
        loads.as_array().filter(|loads| loads.len() == 1).map(|loads| loads[0].clone())
    })
    .await;
    assert_eq!((&load["model"], &load["version"]), (&json!("screen"), &json!("2")), "{load}");
    // Too late if it has failed of its own accord: nobody wants the version then either.
    let _ = holdfast.cli(&["rollout", "abort", "1"]).await;
    let _ = holdfast.cli_json(&["pin", "set", "acme", "screen", "1"]).await;
    server.faults(&json!({})).await;

    let load = eventually("the load to be over its time, and nobody's", LIMIT, async || {
        let load = replica(&holdfast).await["loads"][0].clone();
        (load["wanted"] == false && load["overdue_seconds"].is_u64()).then_some(load)
    })
    .await;
    assert_eq!(
        (&load["version"], replica(&holdfast).await["loads_in_flight"].as_u64()),
        (&json!("2"), Some(1)),
        "{load}"
    );
    let alarm = eventually("the alarm", LIMIT, async || {
        let alarms = holdfast.admin_get("/v1/alarms").await;
        let all = alarms["alarms"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|alarm| alarm["kind"] == "load_overdue")
    })
    .await;
    assert_eq!((&alarm["replica"], &alarm["version"]), (&json!("main/r1"), &json!("screen/2")), "{alarm}");
    let listed = holdfast.cli(&["replica", "list"]).await;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("loading:\nscreen/2 on r1: for ") && listed.contains("over its time for "), "{listed}");

    // What waits for the slot says so, where its author looks.
    let _ = holdfast.cli_json(&["pin", "set", "acme", "screen", "3"]).await;
    eventually("the roll-out to say what it waits for", LIMIT, async || {
        let page = holdfast.admin_get("/v1/rollouts?limit=1&pin=acme/screen").await;
        let id = page["items"][0]["rollout"].as_u64()?;
        let shown = holdfast.cli(&["rollout", "show", &id.to_string()]).await;
        String::from_utf8_lossy(&shown.stdout).contains("the load of screen/2").then_some(())
    })
    .await;
    assert_eq!(served(&holdfast, "acme", INFER).await, "1", "what is in force is served all the while");
}
