//! A client that insists on a revision of the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;

use fleet::{Fleet, INFER, PATIENCE, probe};
use holdfast_testkit::eventually;
use holdfast_testkit::http::Client;
use serde_json::json;

#[tokio::test]
async fn who_insists_on_a_revision_is_answered_under_it_or_told_that_it_is_not_there() {
    let mut fleet = Fleet::start(
        (2, &["--load-time", "1s"]),
        2,
        json!([{"name": "acme", "subset": 2, "pins": {"screen": "1"}}]),
        |_| {},
    )
    .await;
    fleet.wait_held("1", 2).await;
    let now = fleet.revision().await;
    let ask = async |revision: &str, budget: &str| {
        let fields = [("x-tenant", "acme"), ("x-holdfast-min-revision", revision), ("x-request-timeout-ms", budget)];
        fleet.gateway.data.post(INFER, &fields, &probe()).await
    };
    assert_eq!(ask(&now.to_string(), "5000").await.expect(200).header("x-holdfast-version"), "1");
    let late = ask("999999", "300").await;
    assert_eq!(
        (late.status.as_u16(), late.header("x-holdfast-error"), late.header("retry-after")),
        (503, "no_holder", "1")
    );
    for wrong in ["", "-1", "+1", "0x1", "1 2", "1,2", "99999999999999999999"] {
        assert_eq!(ask(wrong, "300").await.status, 400, "{wrong:?}");
    }
    let waits = {
        let (data, next) = (fleet.gateway.data.addr(), (now + 1).to_string());
        tokio::spawn(async move {
            let fields = [("x-tenant", "acme"), ("x-holdfast-min-revision", next.as_str())];
            Client::new(data).post(INFER, &fields, &probe()).await
        })
    };
    fleet.pin(0, "2");
    let answer = waits.await.unwrap().expect(200);
    assert_eq!(
        answer.header("x-holdfast-version"),
        "2",
        "it was here before the flip and insisted on what comes after"
    );
}

/// A refusal that was not served under any table is one like all others: stamped, counted by its endpoint, with a receipt that says who asked for what.
#[tokio::test]
async fn who_is_refused_for_its_revision_is_stamped_counted_and_has_a_receipt() {
    let tenants = json!([{"name": "acme", "subset": 1, "pins": {"screen": "1"}}]);
    let fleet = Fleet::start((1, &[]), 1, tenants, |config| config["log"]["access"] = json!("all")).await;
    fleet.wait_held("1", 1).await;
    let late = [("x-tenant", "acme"), ("x-holdfast-min-revision", "999999"), ("x-request-timeout-ms", "300")];
    let wrong = [("x-tenant", "acme"), ("x-holdfast-min-revision", "soon")];
    for (fields, status, least, waits) in [(&late[..], 503, 290_000, 1), (&wrong[..], 400, 0, 0)] {
        let answer = fleet.gateway.data.post(INFER, fields, &probe()).await.expect(status);
        let id = answer.header("x-holdfast-request-id");
        assert_eq!(id.len(), 28, "{answer:?}");
        // Nothing was resolved: there is nothing else to stamp.
        for stamp in ["model", "version", "revision", "reason", "replica", "experiment"] {
            assert_eq!(answer.header(&format!("x-holdfast-{stamp}")), "", "{stamp}: {answer:?}");
        }
        let path = format!("/v1/receipts/{id}");
        let told = eventually("the receipt", PATIENCE, async || {
            let told = fleet.gateway.admin.get(&path, &[]).await;
            (told.status == 200).then(|| told.json())
        })
        .await;
        assert_eq!((&told["method"], &told["endpoint"]), (&json!("POST"), &json!("infer")), "{told:#}");
        assert_eq!(told["asked"], json!({"tenant": "acme", "model": "screen", "version": null}), "{told:#}");
        assert_eq!(told["waits"].as_array().unwrap().len(), waits, "{told:#}");
        let (wait, own) = (told["wait_us"].as_u64().unwrap(), told["gateway_us"].as_u64().unwrap());
        let total = told["total_us"].as_u64().unwrap();
        assert!(wait >= least && own <= total - wait, "what was waited is no work of the gateway: {told:#}");
        let logged = format!("\"request_id\":\"{id}\"");
        let record = eventually("the access record", PATIENCE, async || {
            fleet.gateway.proc.output().lines().find(|line| line.contains(&logged)).map(str::to_owned)
        })
        .await;
        assert!(record.contains("\"method\":\"POST\"") && record.contains("\"endpoint\":\"infer\""), "{record}");
    }
    // What no table can mend is told at once, and first.
    let insists = ("x-holdfast-min-revision", "999999");
    for (tenant, path, status) in [("", INFER, 401), ("acme", "/v2/models/screen/x", 404), ("a b", INFER, 401)] {
        let begun = std::time::Instant::now();
        let fields = [("x-tenant", tenant), insists, ("x-request-timeout-ms", "55000")];
        let answer = fleet.gateway.data.post(path, &fields, &probe()).await.expect(status);
        assert_ne!(answer.header("x-holdfast-request-id"), "", "{answer:?}");
        assert!(begun.elapsed().as_secs() < 30, "{path} was not waited for");
    }
    let fields = [("x-tenant", "acme"), insists, ("x-request-timeout-ms", "none")];
    let _ = fleet.gateway.data.post(INFER, &fields, &probe()).await.expect(400);
}
