//! Readiness does not wait for loads, and says what is missing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use fleet::{Fleet, PATIENCE, acme};
use holdfast_testkit::eventually;
use serde_json::{Value, json};

/// What `/readyz?verbose` names as missing: replica, model and version of each.
fn missing(told: &Value) -> Vec<[String; 3]> {
    let rows = told["missing"].as_array().unwrap_or_else(|| panic!("{told}")).iter();
    rows.map(|row| ["replica", "model", "version"].map(|field| row[field].as_str().unwrap_or_default().to_owned()))
        .collect()
}

#[tokio::test]
async fn a_gateway_whose_loads_hang_is_ready_and_names_what_is_missing() {
    let flags = ["--load-time", "20ms", "--fault", "load_hangs=true"];
    let fleet = Fleet::start((2, &flags), 2, acme(2, 2), |config| {
        config["pools"][0]["loads"] = json!({"timeout": "1s"});
    })
    .await;
    let wanted = ["r1", "r2"].map(|replica| [replica, "screen", "1"].map(str::to_owned));
    let told = eventually("both loads to be missed", PATIENCE, async || {
        let answer = fleet.gateway.admin.get("/readyz?verbose", &[]).await.expect(200);
        // The load balancer asks the data port.
        let plain = fleet.gateway.data.get("/readyz", &[]).await.expect(200);
        assert_eq!(plain.json()["ready"], true);
        Some(answer.json()).filter(|told| missing(told) == wanted)
    })
    .await;
    assert_eq!((&told["ready"], &told["draining"]), (&json!(true), &json!(false)));
    assert_eq!(told["missing"][0]["pool"], "main", "{told}");
    // What only may be asked for is not missing.
    assert!(!told["missing"].to_string().contains(r#""version":"2""#), "{told}");
    // The cause is said once there is one.
    eventually("the first load to be given up", PATIENCE, async || {
        let told = fleet.gateway.admin.get("/readyz?verbose", &[]).await.expect(200).json();
        let causes = told["missing"].as_array().unwrap();
        (causes.iter().all(|row| row["why"].as_str().is_some_and(|why| !why.is_empty()))).then_some(())
    })
    .await;
    // A load that is overdue keeps its place until the server says that it has ended.
    for server in &fleet.servers {
        server.faults(&json!({})).await;
        let _ = server.http.post("/v2/repository/models/screen-1/unload", &[], &json!({})).await.expect(200);
    }
    eventually("nothing to be missing", PATIENCE * 4, async || {
        let told = fleet.gateway.admin.get("/readyz?verbose", &[]).await.expect(200).json();
        missing(&told).is_empty().then_some(())
    })
    .await;
    fleet.wait_held("1", 2).await;
}
