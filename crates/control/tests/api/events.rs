//! Roll-outs followed as server-sent events.

use std::time::Duration;

use holdfast_control::api::{Body, Role};
use holdfast_decide::rollout::{Phase, Stage};
use http_body_util::BodyExt;
use serde_json::Value as Json;

use crate::support::Bench;

/// The next event: its name, its number, its data.
async fn event(body: &mut Body) -> Option<(String, Json)> {
    let frame = tokio::time::timeout(Duration::from_secs(10), body.frame()).await.expect("an event in time")?;
    let text = String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap();
    assert!(text.ends_with("\n\n"), "{text:?}");
    let line = |name: &str| text.lines().find_map(|l| l.strip_prefix(name)).map(str::to_owned);
    Some((line("event: ")?, serde_json::from_str(&line("data: ")?).unwrap()))
}

async fn open(bench: &Bench) -> Body {
    let answer =
        bench.open(Role::Viewer, "GET /v1/rollouts/1/events", &[("accept", "text/event-stream")], "").await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    answer.into_body()
}

#[tokio::test]
async fn every_move_is_told_and_the_end_is_the_end() {
    let bench = Bench::new().await;
    bench.fleet.put(1, Phase::PreWarm, Stage::Warming);
    let mut body = open(&bench).await;
    let (name, data) = event(&mut body).await.unwrap();
    assert_eq!(
        (name.as_str(), &data["phase"], &data["pins"][0]["stage"]),
        ("progress", &"pre_warm".into(), &"warming".into())
    );
    bench.fleet.put(1, Phase::Canary, Stage::Canary);
    assert_eq!(event(&mut body).await.unwrap().1["phase"], "canary");
    // Another roll-out, and the mere passing of time, are no news of this one.
    bench.fleet.put(2, Phase::PreWarm, Stage::Warming);
    bench.fleet.put(1, Phase::Canary, Stage::Canary);
    assert!(tokio::time::timeout(Duration::from_millis(400), body.frame()).await.is_err());
    bench.fleet.put(1, Phase::Done, Stage::Done);
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    let text = String::from_utf8(frame.to_vec()).unwrap();
    assert!(text.contains("event: progress\nid: 3\n") && text.contains("\n\nevent: end\ndata: {"), "{text}");
    assert!(body.frame().await.is_none(), "the stream is over");
    let mut late = open(&bench).await;
    assert_eq!(event(&mut late).await.unwrap().1["phase"], "done");
    assert!(late.frame().await.is_none());
}

#[tokio::test]
async fn streams_are_bounded_and_a_dropped_one_gives_its_place_back() {
    let bench = Bench::new().await;
    bench.fleet.put(1, Phase::PreWarm, Stage::Warming);
    let mut all = Vec::new();
    for _ in 0..64 {
        all.push(open(&bench).await);
    }
    let told = bench.ask("GET /v1/rollouts/1/events", &[], "").await;
    assert_eq!((told.refused(), told.header("retry-after")), ((503, "unavailable"), "1"));
    event(all.first_mut().unwrap()).await.unwrap();
    all.truncate(0);
    drop(open(&bench).await);
}
