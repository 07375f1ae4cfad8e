use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;
use crate::outcome::{Endpoint, Timing};

fn options() -> MetricsOptions {
    MetricsOptions { tenants: 2, series: 50, commit: "abc", ..MetricsOptions::default() }
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn route(metrics: &GatewayMetrics, name: &str) -> RouteHandles {
    let (model, version) = (ModelName::parse("screen").unwrap(), Version::parse("1").unwrap());
    metrics.route(&tenant(name), &model, &version)
}

fn outcome(status: u16, error: Option<FailureKind>) -> Outcome {
    let upstream = (status == 200).then_some(Duration::from_millis(3));
    let timing = Timing { total: Duration::from_micros(4_030), wait: Duration::from_millis(1), upstream };
    Outcome { endpoint: Endpoint::Infer, status, error, attempts: 1, bytes_in: 1024, bytes_out: 200, timing }
}

fn shown(metrics: &GatewayMetrics) -> String {
    let mut out = String::new();
    metrics.render(&mut out);
    out
}

#[track_caller]
fn assert_shows(metrics: &GatewayMetrics, lines: &[&str]) {
    let out = shown(metrics);
    for line in lines {
        assert!(out.lines().any(|shown| shown == *line), "{line} is not in\n{out}");
    }
}

#[test]
fn a_finished_request_counts_everywhere_once() {
    let metrics = GatewayMetrics::new(&options());
    let acme = route(&metrics, "acme");
    metrics.finish(Some(&acme), &outcome(200, None));
    metrics.finish(Some(&acme), &outcome(503, Some(FailureKind::NoHolder)));
    metrics.finish(Some(&metrics.unresolved(&tenant("acme"))), &outcome(404, Some(FailureKind::UnknownModel)));
    metrics.finish(None, &outcome(401, Some(FailureKind::Unauthenticated)));
    assert_shows(
        &metrics,
        &[
            r#"holdfast_requests_total{tenant="acme",model="screen",version="1",endpoint="infer",status="200"} 1"#,
            r#"holdfast_requests_total{tenant="acme",model="screen",version="1",endpoint="infer",status="503"} 1"#,
            r#"holdfast_requests_total{tenant="acme",model="",version="",endpoint="infer",status="404"} 1"#,
            r#"holdfast_requests_total{tenant="",model="",version="",endpoint="infer",status="401"} 1"#,
            r#"holdfast_request_duration_seconds_count{model="screen",version="1"} 2"#,
            r#"holdfast_upstream_duration_seconds_count{model="screen",version="1"} 1"#,
            r#"holdfast_upstream_duration_seconds_sum{model="screen",version="1"} 0.003000000"#,
            r#"holdfast_gateway_overhead_seconds_bucket{model="screen",version="1",le="0.00005"} 1"#,
            r#"holdfast_gateway_overhead_seconds_count{model="screen",version="1"} 2"#,
            r#"holdfast_errors_total{kind="no_holder"} 1"#,
            r#"holdfast_errors_total{kind="unknown_model"} 1"#,
            r#"holdfast_errors_total{kind="unauthenticated"} 1"#,
            r#"holdfast_errors_total{kind="draining"} 0"#,
        ],
    );
    let usage = metrics.usage_of(&tenant("acme")).unwrap();
    assert_eq!((usage.requests, usage.errors, usage.bytes_in, usage.bytes_out), (3, 2, 3072, 600));
    assert_eq!(usage.upstream_nanos, 3_000_000);
    assert_eq!(shown(&metrics).matches("holdfast_errors_total{").count(), FailureKind::ALL.len());
}

#[test]
fn tenants_over_the_bound_share_a_name_but_not_an_account() {
    let metrics = GatewayMetrics::new(&options());
    let routes = ["a", "b", "c", "d"].map(|name| route(&metrics, name));
    routes.iter().for_each(|route| metrics.finish(Some(route), &outcome(200, None)));
    metrics.finish(Some(&route(&metrics, "a")), &outcome(200, None));
    assert_shows(
        &metrics,
        &[
            r#"holdfast_requests_total{tenant="a",model="screen",version="1",endpoint="infer",status="200"} 2"#,
            r#"holdfast_requests_total{tenant="b",model="screen",version="1",endpoint="infer",status="200"} 1"#,
            r#"holdfast_requests_total{tenant="other",model="screen",version="1",endpoint="infer",status="200"} 2"#,
        ],
    );
    let requests: Vec<u64> = metrics.usage(None, 10).iter().map(|usage| usage.requests).collect();
    assert_eq!(requests, [2, 1, 1, 1]);
}

#[test]
fn what_no_route_holds_is_forgotten_and_its_name_is_free_again() {
    let metrics = GatewayMetrics::new(&options());
    let (kept, gone) = (route(&metrics, "kept"), route(&metrics, "gone"));
    for route in [&kept, &gone] {
        metrics.finish(Some(route), &outcome(200, None));
    }
    drop(gone);
    metrics.forget_unused();
    assert!(shown(&metrics).contains(r#"tenant="gone""#), "its last value is still to be scraped");
    metrics.forget_unused();
    assert!(!shown(&metrics).contains(r#"tenant="gone""#));
    metrics.finish(Some(&route(&metrics, "next")), &outcome(200, None));
    assert_shows(
        &metrics,
        &[
            r#"holdfast_requests_total{tenant="kept",model="screen",version="1",endpoint="infer",status="200"} 1"#,
            r#"holdfast_requests_total{tenant="next",model="screen",version="1",endpoint="infer",status="200"} 1"#,
            r#"holdfast_request_duration_seconds_count{model="screen",version="1"} 3"#,
        ],
    );
    assert_eq!(metrics.usage_of(&tenant("gone")).map(|usage| usage.requests), Some(1), "an account is never forgotten");
}

#[test]
fn threads_that_share_a_route_count_exactly() {
    let metrics = GatewayMetrics::new(&options());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let route = route(&metrics, "acme");
                for i in 0..5_000 {
                    let _in_flight = metrics.in_flight.track();
                    metrics.finish(Some(&route), &outcome(if i % 5 == 0 { 503 } else { 200 }, None));
                }
            });
        }
    });
    assert_shows(
        &metrics,
        &[
            r#"holdfast_requests_total{tenant="acme",model="screen",version="1",endpoint="infer",status="200"} 16000"#,
            r#"holdfast_requests_total{tenant="acme",model="screen",version="1",endpoint="infer",status="503"} 4000"#,
            r#"holdfast_request_duration_seconds_count{model="screen",version="1"} 20000"#,
            "holdfast_in_flight 0",
        ],
    );
}

#[test]
fn revisions_invariants_and_the_build_are_shown() {
    let metrics = GatewayMetrics::new(&options());
    metrics.collect(Collected::OldestInFlightRevision, |sink| sink.sample(&[], 41.0));
    metrics.invariant_violated(Invariant::Pin1);
    metrics.config_taken(Revision(3));
    metrics.config_refused(Revision(4));
    let build = format!(r#"holdfast_build_info{{version="{}",commit="abc"}} 1"#, env!("CARGO_PKG_VERSION"));
    assert_shows(
        &metrics,
        &[
            "holdfast_table_oldest_in_flight_revision 41",
            r#"holdfast_invariant_violations_total{id="PIN-1"} 1"#,
            r#"holdfast_invariant_violations_total{id="ACCT-1"} 0"#,
            "holdfast_config_revision 3",
            "holdfast_config_failed_revision 4",
            "holdfast_config_error 1",
            r#"holdfast_config_reload_total{outcome="refused"} 1"#,
            &build,
        ],
    );
    metrics.config_taken(Revision(5));
    assert_shows(
        &metrics,
        &["holdfast_config_revision 5", "holdfast_config_failed_revision 4", "holdfast_config_error 0"],
    );
}

/// Everything that has a value at all, with names as naughty as the types allow.
fn everything() -> GatewayMetrics {
    let metrics = GatewayMetrics::new(&options());
    metrics.finish(Some(&route(&metrics, "acme")), &outcome(200, None));
    let naughty = ["a\"b", "c\\d", "e\nf", "\r\t\0", "\u{202e}\u{1f600}", "{x=\"y\"} 1", "", &"\u{e9}".repeat(200)];
    for name in naughty {
        metrics.alarms.get([name]).inc();
        metrics.wrong_version.get(["pool", name]).inc();
        metrics.load_seconds.get([name]).observe(Duration::from_secs(3));
        metrics.connections.get([name]).set(1);
    }
    metrics.loads.get(["pool", "done"]).inc();
    for what in Collected::ALL {
        let labels = what.labels().len();
        let values = move |sink: &mut Sink<'_>| (0..9).for_each(|i| sink.sample(&vec![naughty_name(i); labels], 1.0));
        if labels > 0 {
            metrics.collect(what, values);
        }
    }
    metrics
}

fn naughty_name(i: usize) -> &'static str {
    ["a", "\"", "\\", "\n", "\\n", "\\\"", "\u{7f}", "}", "="].get(i).copied().unwrap_or_default()
}

#[test]
fn promtool_takes_the_exposition() {
    let out = shown(&everything());
    let spawned = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = spawned.unwrap_or_else(|e| panic!("promtool ({e}): `make test` installs it"));
    promtool.stdin.take().unwrap().write_all(out.as_bytes()).unwrap();
    let done = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.trim().is_empty(), "{said}\n{out}");
}

#[test]
fn every_line_is_a_comment_or_one_sample() {
    for line in shown(&everything()).lines().filter(|line| !line.starts_with("# ")) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok() && !series.is_empty(), "{line}");
        assert!(line.starts_with("holdfast_") || line.starts_with("process_"), "{line}");
    }
}

#[test]
fn names_are_unique_and_keep_to_the_conventions() {
    let out = shown(&everything());
    let types: Vec<(&str, &str)> =
        out.lines().filter_map(|line| line.strip_prefix("# TYPE ")).filter_map(|rest| rest.split_once(' ')).collect();
    let names: BTreeSet<&str> = types.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), types.len());
    for (name, kind) in types {
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        assert_eq!(kind == "histogram", name.ends_with("_seconds") && !name.contains("time"), "{name}");
    }
}
