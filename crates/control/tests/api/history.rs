//! Revisions, differences, and the way back.

use serde_json::json;

use crate::support::Bench;

#[tokio::test]
async fn what_was_changed_can_be_read_compared_and_reverted() {
    let bench = Bench::new().await;
    for (path, version) in [("acme/screen", "2"), ("acme/screen", "3"), ("globex/screen", "1")] {
        let told = bench
            .ask(&format!("PUT /v1/pins/{path}"), &[], &format!(r#"{{"version":"{version}","reason":"try"}}"#))
            .await;
        assert_eq!(told.status, 200, "{}", told.text);
    }
    let history = bench.get("/v1/revisions?limit=2").await;
    assert_eq!((&history["head"], &history["desired"], &history["in_force"]), (&json!(4), &json!(4), &json!(1)));
    let listed: Vec<_> = history["items"].as_array().unwrap().iter().map(|r| r["revision"].as_u64().unwrap()).collect();
    assert_eq!((listed, &history["next"]), (vec![4, 3], &json!("3")));
    let rest = bench.get("/v1/revisions?limit=2&after=3").await;
    assert_eq!((rest["items"][1]["author"].as_str(), &rest["next"]), (Some("file"), &json!(null)));

    let shown = bench.ask("GET /v1/revisions/3", &[], "").await;
    assert_eq!(shown.header("etag"), "\"3\"");
    assert_eq!((&shown.json["author"], &shown.json["reason"]), (&json!("ann"), &json!("try")));
    assert_eq!(
        shown.json["edits"][0],
        json!({ "space": "desired", "kind": "pin", "name": "acme/screen", "value": "3" })
    );
    let (mut path, mut seen) = ("/v1/revisions/1?limit=5".to_owned(), 0);
    loop {
        let page = bench.get(&path).await;
        seen += page["edits"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/revisions/1?limit=5&after={next}");
    }
    assert_eq!(seen, 28, "pool, 2 replicas, 2 models, 4 versions, 2 tenants, 3 pins, in both spaces");

    let diff = bench.get("/v1/diff?from=1&to=4").await;
    let expected = json!([
        { "space": "desired", "kind": "pin", "name": "acme/screen", "before": "1", "after": "3" },
        { "space": "desired", "kind": "pin", "name": "globex/screen", "before": "2", "after": "1" },
    ]);
    assert_eq!(diff["items"], expected);
    let first = bench.get("/v1/diff?from=1&to=4&limit=1").await;
    let second = bench.get(&format!("/v1/diff?from=1&to=4&limit=1&after={}", first["next"].as_str().unwrap())).await;
    assert_eq!((&first["items"][0], &second["items"][0]), (&expected[0], &expected[1]));
    assert_eq!(bench.get("/v1/diff?from=1&to=4&space=in_force").await["items"], json!([]));

    let back = bench.ask("POST /v1/revert", &[], r#"{"to":1}"#).await;
    assert_eq!(
        (back.status.as_u16(), &back.json["to"], &back.json["revision"]),
        (200, &json!(1), &json!(5)),
        "{}",
        back.text
    );
    assert_eq!(
        (bench.pin("acme/screen").await.0, bench.pin("globex/screen").await.0),
        ("1".to_owned(), "2".to_owned())
    );
    assert_eq!(bench.get("/v1/revisions/5").await["reason"], "back to revision 1");
    assert_eq!(bench.get("/v1/pins?pending=true").await["items"], json!([]));
}

#[tokio::test]
async fn a_revert_names_every_pin_that_cannot_go_back_and_may_leave_them_out() {
    let bench = Bench::new().await;
    for (pin, version) in [("acme/screen", "3"), ("globex/screen", "3")] {
        bench.ask(&format!("PUT /v1/pins/{pin}"), &[], &format!(r#"{{"version":"{version}"}}"#)).await;
    }
    let gone = bench.ask("DELETE /v1/versions/screen/1", &[], "").await;
    assert_eq!(gone.status, 200, "{}", gone.text);
    let first = json!({
        "pin": "acme/screen", "version": "1", "reason": "version 1 of model screen is not in the catalogue any more",
    });
    for path in ["/v1/revert", "/v1/revert?dry_run=true"] {
        let refused = bench.ask(&format!("POST {path}"), &[], r#"{"to":1}"#).await;
        assert_eq!(refused.refused(), (422, "gone"));
        assert_eq!((&refused.json["gone"], &refused.json["gone_total"]), (&json!([first]), &json!(1)));
        let detail = refused.json["detail"].as_str().unwrap();
        assert!(
            detail.starts_with("1 of 2 pins cannot go back to revision 1:\n  acme/screen to 1: version 1"),
            "{detail}"
        );
        assert!(detail.contains("--skip-gone"), "{detail}");
    }
    assert_eq!((bench.pin("acme/screen").await.0, bench.pin("globex/screen").await.0), ("3".into(), "3".into()));
    let back = bench.ask("POST /v1/revert", &[], r#"{"to":1,"skip_gone":true}"#).await;
    assert_eq!((back.status.as_u16(), &back.json["skipped"]), (200, &json!([first])), "{}", back.text);
    assert_eq!((&back.json["changes_total"], &back.json["changes"][0]["name"]), (&json!(1), &json!("globex/screen")));
    assert_eq!((bench.pin("acme/screen").await.0, bench.pin("globex/screen").await.0), ("3".into(), "2".into()));
    // Where nothing can go back, nothing is different.
    bench.ask("PUT /v1/pins/globex/screen", &[], r#"{"version":"3"}"#).await;
    assert_eq!(bench.ask("DELETE /v1/versions/screen/2", &[], "").await.status, 200);
    let refused = bench.ask("POST /v1/revert", &[], r#"{"to":1}"#).await;
    assert_eq!((refused.refused(), &refused.json["gone_total"]), ((422, "gone"), &json!(2)));
    let none = bench.ask("POST /v1/revert", &[], r#"{"to":1,"skip_gone":true}"#).await;
    assert_eq!(
        (&none.json["revision"], &none.json["changes"], &none.json["skipped_total"]),
        (&json!(null), &json!([]), &json!(2))
    );
    let wrong = bench.ask("POST /v1/revert", &[], r#"{"to":1,"skip_gone":"yes"}"#).await;
    assert_eq!(wrong.refused().0, 422);
}

#[tokio::test]
async fn gateways_say_what_they_have_in_force() {
    let bench = Bench::new().await;
    bench.fleet.node("g1", 1, true);
    bench.fleet.node("g2", 0, false);
    let told = bench.get("/v1/nodes").await;
    assert_eq!(told["in_force"], 1);
    let expected = json!({
        "gateway": "g1", "live": true, "silent_ms": 3, "in_force": 1, "oldest": 1, "refused": null, "replicas_total": 0,
        "replicas_in_service": 0,
    });
    assert_eq!((&told["items"][0], &told["items"][1]["live"]), (&expected, &json!(false)));
    // No gateway speaks to a control plane that follows: that is no fleet without gateways.
    bench.fleet.follows.store(true, std::sync::atomic::Ordering::Relaxed);
    let refused = bench.ask("GET /v1/nodes", &[], "").await;
    assert_eq!((refused.refused(), refused.header("retry-after")), ((503, "follows"), "1"));
}
