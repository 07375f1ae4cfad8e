//! The repository API: index, load, unload, memory, and who owns a load.

use std::time::Duration;

use holdfast_model_server::options::Wish;
use holdfast_model_server::{Error, Layout, Options, PROBE, Span, start, write_sample_repository};
use holdfast_types::Bytes;
use http::StatusCode;

use crate::client::{Bench, Folder, one_text, request, send, verdict};

const GIB: u64 = 1 << 30;
/// Longer than any test: a load that takes it is ended by something else.
const AN_HOUR: Span = Span(Duration::from_secs(3600));

#[tokio::test]
async fn the_index_follows_loads_and_unloads() {
    let bench = Bench::new(|_| {}).await;
    assert_eq!(bench.index("").await.len(), 6);
    assert_eq!(bench.index("{}").await[0], "rank-1:1 UNAVAILABLE");
    assert_eq!(bench.index(r#"{"ready":true}"#).await, Vec::<String>::new());
    let answer = bench.load("screen-2").await;
    assert_eq!((answer.status, answer.body.len()), (StatusCode::OK, 0));
    assert_eq!(bench.index(r#"{"ready":true}"#).await, ["screen-2:2 READY"]);
    assert_eq!(bench.load("screen-2").await.status, StatusCode::OK);
    assert_eq!(bench.post("/v2/repository/models/screen-2/unload", "{}").await.status, StatusCode::OK);
    assert_eq!(bench.index("").await[5], "screen-2:2 UNAVAILABLE unloaded");
    let answer = bench.post("/v2/models/screen-2/infer", one_text("x")).await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
    assert_eq!(answer.error(), "Request for unknown model: 'screen-2' has no available versions");
    let stats = bench.server.stats();
    assert_eq!(
        (stats.loads.started, stats.loads.finished, stats.unloads),
        (1, 1, 1),
        "a held model loads no second time"
    );
}

#[tokio::test]
async fn a_load_that_does_not_fit_loads_nothing() {
    let bench = Bench::new(|options| options.memory = Bytes(5 * GIB)).await;
    for name in ["screen-1", "screen-2"] {
        assert_eq!(bench.load(name).await.status, StatusCode::OK);
    }
    let answer = bench.load("rank-1").await;
    assert_eq!(answer.status, StatusCode::INSUFFICIENT_STORAGE);
    assert_eq!(answer.error(), "failed to load 'rank-1', does not fit: needs 2GiB, 1GiB free");
    let stats = bench.server.stats();
    assert_eq!((stats.memory.used, stats.memory.free, stats.held.len()), (4 * GIB, GIB, 2));
    assert_eq!((stats.loads.refused, stats.loads.started), (1, 2));
    bench.post("/v2/repository/models/screen-1/unload", "").await;
    assert_eq!(bench.load("rank-1").await.status, StatusCode::OK);
}

#[tokio::test]
async fn loads_run_side_by_side_are_seen_and_an_unload_cancels_one() {
    let bench = Bench::new(|options| options.load_time = AN_HOUR).await;
    let unload = async {
        bench.until("two loads", |stats| stats.loads.in_flight == 2).await;
        assert!(bench.index("").await.contains(&"screen-1:1 LOADING".to_owned()));
        let answer = bench.judge("x").await;
        assert_eq!(answer.error(), "Request for unknown model: 'screen-1' has no available versions");
        let answer = bench.post("/v2/models/screen-1/versions/1/infer", one_text("x")).await;
        assert_eq!((answer.status, answer.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, Some("1")));
        assert!(answer.error().contains("version 1 is not at ready state"));
        assert_eq!(bench.get("/v2/models/screen-1/versions/1/ready").await.status, StatusCode::BAD_REQUEST);
        for name in ["screen-1", "rank-1"] {
            bench.post(&format!("/v2/repository/models/{name}/unload"), "").await;
        }
    };
    // The third joins the first: no load is carried out twice.
    let (one, two, three, ()) =
        tokio::join!(bench.load("screen-1"), bench.load("rank-1"), bench.load("screen-1"), unload);
    for answer in [one, two, three] {
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
        assert!(answer.error().contains("load cancelled"));
    }
    let stats = bench.until("the end of both", |stats| stats.loads.in_flight == 0).await;
    assert_eq!((stats.loads.started, stats.loads.cancelled, stats.loads.max_in_flight), (2, 2, 2));
    assert_eq!((stats.memory.used, stats.unloads, stats.cancels), (0, 0, 0));
}

/// Asks for a load and leaves once it is under way.
async fn leave_mid_load(bench: &Bench) {
    let asked = send(bench.server.address(), request("POST", "/v2/repository/models/screen-1/load", ""));
    tokio::select! {
        answer = asked => panic!("{answer:?}"),
        _ = bench.until("the load", |stats| stats.loads.in_flight == 1) => {}
    }
    bench.until("the cancel", |stats| stats.cancels == 1).await;
}

#[tokio::test]
async fn a_load_goes_on_when_its_client_leaves() {
    let bench = Bench::new(|options| options.load_time = Span(Duration::from_millis(100))).await;
    leave_mid_load(&bench).await;
    let stats = bench.until("the model", |stats| stats.held.len() == 1).await;
    assert_eq!((stats.loads.finished, stats.loads.cancelled), (1, 0));
}

#[tokio::test]
async fn a_load_can_be_made_to_end_with_its_client() {
    let change = |options: &mut Options| (options.load_time, options.loads_end_with_client) = (AN_HOUR, true);
    let bench = Bench::new(change).await;
    leave_mid_load(&bench).await;
    let stats = bench.until("the end", |stats| stats.loads.in_flight == 0).await;
    assert_eq!((stats.loads.cancelled, stats.memory.used), (1, 0));
}

#[tokio::test]
async fn with_versions_in_folders_a_load_takes_what_is_on_disk() {
    let bench = Bench::with_layout(Layout::Versions, |_| {}).await;
    assert_eq!(bench.load("screen").await.status, StatusCode::OK);
    let ready = bench.index(r#"{"ready":true}"#).await;
    assert_eq!(ready, ["screen:1 READY", "screen:10 READY", "screen:2 READY"]);
    std::fs::remove_dir_all(bench.folder.join("screen/10")).unwrap();
    assert_eq!(bench.load("screen").await.status, StatusCode::OK);
    let answer = bench.post("/v2/models/screen/infer", one_text(PROBE)).await;
    assert_eq!(verdict(&answer), ("hit".to_owned(), "2".to_owned()));
    assert_eq!(bench.server.stats().memory.used, 4 * GIB);
    assert_eq!(bench.load("screen/versions/2").await.status, StatusCode::NOT_FOUND, "no load of one version");
}

#[tokio::test]
async fn a_faulty_model_is_shown_with_its_fault() {
    let bench = Bench::new(|_| {}).await;
    std::fs::write(bench.folder.join("rank-1/model.json"), "{}").unwrap();
    assert!(bench.index("").await[0].starts_with("rank-1: UNAVAILABLE \"rank-1\" is not a model file: missing field"));
    let answer = bench.load("rank-1").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(bench.load("rank-2").await.status, StatusCode::OK, "others are not held back");
}

#[tokio::test]
async fn what_is_held_from_the_start() {
    let wishes = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Wish>>();
    let bench = Bench::new(|options| options.load = wishes(&["screen-1", "rank:2"])).await;
    assert_eq!(bench.index(r#"{"ready":true}"#).await, ["rank-2:2 READY", "screen-1:1 READY"]);
    let change = |options: &mut Options| options.load = wishes(&["screen:1", "screen:10"]);
    let bench = Bench::with_layout(Layout::Versions, change).await;
    assert_eq!(bench.index(r#"{"ready":true}"#).await, ["screen:1 READY", "screen:10 READY"]);
    let folder = Folder::new();
    write_sample_repository(&folder.0, Layout::Names, &["screen"], &["1", "2"]).unwrap();
    let options = Options { load_all: true, memory: Bytes(3 * GIB), ..Options::new(&folder.0) };
    assert!(matches!(start(options).await, Err(Error::DoesNotFit { free: Bytes(GIB), .. })));
    let options = Options { load: wishes(&["screen:3"]), ..Options::new(&folder.0) };
    assert!(start(options).await.is_err_and(|why| why.to_string().contains("\"screen:3\"")));
}
