use std::sync::Arc;
use std::time::Duration;

use holdfast_config::Results as Config;
use holdfast_decide::{ArmFacts, KeyFrom};
use holdfast_telemetry::{GatewayMetrics, MetricsOptions};
use holdfast_testkit::TempDir;
use holdfast_types::Revision;

use super::told::parse;
use super::*;

fn open(dir: &TempDir, arms: u32) -> Arc<Results> {
    let metrics = GatewayMetrics::new(&MetricsOptions::default());
    let config = Config { window: Duration::from_secs(86_400), arms, metrics: 2, ..Config::default() };
    Results::open(&config, dir.path(), metrics.registry())
}

fn arm(name: &str, bucket_version: u32) -> ArmFacts {
    ArmFacts {
        experiment: "ab".into(),
        bucket_version,
        arm: name.into(),
        number: u64::from(bucket_version),
        sticky: None,
    }
}

/// Arm, bucket version, people, outcomes by metric.
type Row = (String, u32, u64, Vec<(String, u64)>);

fn shown(results: &Results) -> Vec<Row> {
    let all = results.all(|_| true);
    let rows = all.iter().map(|((_, arm), shown)| {
        let series = || shown.series.windows();
        let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
        for (metric, sums) in series().flat_map(|window| window.outcomes.iter()) {
            *outcomes.entry(metric.to_string()).or_default() += sums.count;
        }
        let people = series().map(holdfast_assign::window::Window::everybody).sum();
        (arm.to_string(), shown.bucket_version, people, outcomes.into_iter().collect())
    });
    rows.collect()
}

#[tokio::test]
async fn what_is_kept_survives_a_restart_and_a_damaged_file_begins_anew() {
    let dir = TempDir::new();
    let results = open(&dir, 8);
    for subject in [1, 2, 2, 1, 3] {
        results.person(&arm("new", 1), Revision(5), KeyFrom::User, subject << 60);
    }
    assert_eq!(results.outcome(&arm("new", 1), (Revision(5), Revision(5)), "click", 1.0), "counted");
    assert_eq!(results.outcome(&arm("new", 1), (Revision(5), Revision(4)), "click", 1.0), "old", "of another table");
    let want = vec![("new".to_owned(), 1, 3, vec![("click".to_owned(), 1)])];
    assert_eq!(shown(&results), want);
    results.save().await;
    let again = open(&dir, 8);
    assert_eq!((shown(&again), again.told("ab")), (want, results.told("ab")));
    assert_eq!(again.outcome(&arm("new", 1), (Revision(9), Revision(6)), "click", 0.0), "counted");
    std::fs::write(dir.join(FILE), "{\"form\":1,").unwrap();
    assert_eq!(shown(&open(&dir, 8)), vec![]);
}

#[test]
fn a_higher_bucket_version_begins_anew_and_what_is_of_the_one_before_counts_for_nothing() {
    let dir = TempDir::new();
    let results = open(&dir, 8);
    let outcome =
        |bucket, table, under| results.outcome(&arm("new", bucket), (Revision(table), Revision(under)), "m", 1.0);
    assert_eq!(outcome(1, 5, 5), "counted");
    assert_eq!(outcome(2, 9, 9), "counted");
    assert_eq!(outcome(2, 9, 8), "old");
    assert_eq!(outcome(1, 5, 5), "full", "a gateway's other worker may have the older table for a moment");
    assert_eq!(shown(&results), vec![("new".to_owned(), 2, 0, vec![("m".to_owned(), 1)])]);
}

#[test]
fn arms_and_metrics_are_bounded() {
    let dir = TempDir::new();
    let results = open(&dir, 2);
    let outcome = |name: &str, metric: &str| results.outcome(&arm(name, 1), (Revision(1), Revision(1)), metric, 1.0);
    for (name, metric, want) in [
        ("a", "x", "counted"),
        ("a", "y", "counted"),
        ("a", "z", "full"),
        ("b", "z", "counted"),
        ("c", "x", "full"),
        ("b", "x", "counted"),
    ] {
        assert_eq!(outcome(name, metric), want, "{name} {metric}");
    }
    results.forget(u64::MAX);
    assert_eq!((shown(&results), outcome("c", "x")), (vec![], "counted"), "what is forgotten makes room");
}

#[test]
fn bodies() {
    let good = parse(&r#"{"id": "o-1", "values": {"click": 1, "spent.eur": -2.5}}"#.into()).unwrap();
    assert_eq!(good.id.as_deref(), Some("o-1"));
    assert_eq!(good.values, [("click".to_owned(), 1.0), ("spent.eur".to_owned(), -2.5)]);
    let many = (0..17).map(|n| format!("\"m{n}\": 1")).collect::<Vec<_>>().join(",");
    for bad in [
        "",
        "[]",
        "{}",
        r#"{"values": {}}"#,
        r#"{"values": {"click": "1"}}"#,
        r#"{"values": {"click": 1e13}}"#,
        r#"{"values": {"click": 1e400}}"#,
        r#"{"values": {"Click": 1}}"#,
        r#"{"values": {"": 1}}"#,
        r#"{"values": {"click": 1}, "id": ""}"#,
        r#"{"values": {"click": 1}, "id": 7}"#,
        r#"{"values": {"click": 1}, "arm": "new"}"#,
        &format!("{{\"values\": {{{many}}}}}"),
    ] {
        let failure = parse(&bad.to_owned().into()).unwrap_err();
        assert_eq!(failure.http_status(), 400, "{bad}");
    }
}
