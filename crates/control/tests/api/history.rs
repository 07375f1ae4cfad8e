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
}
