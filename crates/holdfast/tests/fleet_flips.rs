//! Twenty changes of a pin over a whole fleet in real processes, under steady traffic, while a leader, a gateway and a replica die.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;
mod fleet_of;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use fleet::{INFER, PATIENCE, judgements, probe};
use fleet_of::{Member, Roles, Shape};
use holdfast_testkit::eventually;
use holdfast_testkit::http::Client;
use holdfast_testkit::load::{Load, Record, Report, Target};
use serde_json::Value;

/// What happens beside a change.
const LEADER_DIES: [usize; 2] = [4, 16];
const GATEWAY_DIES: usize = 8;
const REPLICA_DIES: usize = 12;
const CHANGES: usize = 20;

/// A client that goes round the gateways, one request after the other, and insists on the revision that it has seen.
async fn wander(
    gateways: Vec<Client>,
    judgements: BTreeMap<String, Value>,
    dead: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
) -> usize {
    let (mut seen, mut answers) = (0u64, 0);
    for at in (0..gateways.len()).cycle() {
        if stop.load(Relaxed) {
            return answers;
        }
        // The last one is the one that dies.
        if at + 1 == gateways.len() && dead.load(Relaxed) {
            continue;
        }
        let least = seen.to_string();
        let fields = [("x-tenant", "acme"), ("x-holdfast-min-revision", least.as_str())];
        let body = probe().to_string().into();
        let Ok(answer) = gateways[at].send(http::Method::POST, INFER, &fields, body).await else {
            assert!(at + 1 == gateways.len(), "only one gateway dies");
            continue;
        };
        // A replica that dies takes its connections with it.
        if answer.status == 502 && answer.header("x-holdfast-error") == "upstream_error" {
            continue;
        }
        assert_eq!(answer.status, 200, "{answer:?}");
        let revision: u64 = answer.header("x-holdfast-revision").parse().unwrap();
        assert!(revision >= seen, "{revision} after {seen}: the client went back");
        assert_eq!(answer.json()["outputs"], judgements[answer.header("x-holdfast-version")]);
        (seen, answers) = (revision, answers + 1);
    }
    answers
}

/// All answers of one gateway: successes outside of `excused`, judged by the version that they name, under revisions that never go back.
fn check(
    report: &Report,
    judgements: &BTreeMap<String, Value>,
    excused: impl Fn(&Record) -> bool,
    by: &mut BTreeMap<u64, String>,
) {
    for r in &report.0 {
        if r.status != 200 {
            assert!(excused(r), "{} {} at {:?}", r.status, r.error, r.due);
            continue;
        }
        let body: Value = serde_json::from_slice(&r.body).unwrap();
        assert_eq!(body["outputs"], judgements[&r.version], "what {} says", r.version);
        let version = by.entry(r.revision.unwrap()).or_insert_with(|| r.version.clone());
        assert_eq!(*version, r.version, "one version under revision {:?}, on every gateway", r.revision);
    }
    let mut done: Vec<(Duration, u64)> = report.0.iter().filter_map(|r| Some((r.done, r.revision?))).collect();
    done.sort_unstable();
    let mut newest = 0;
    let newest_by: Vec<(Duration, u64)> = done
        .iter()
        .map(|(at, revision)| {
            (*at, {
                newest = newest.max(*revision);
                newest
            })
        })
        .collect();
    for r in report.0.iter().filter(|r| r.status == 200) {
        let before = newest_by.partition_point(|(at, _)| *at < r.due);
        let seen = before.checked_sub(1).map_or(0, |at| newest_by[at].1);
        assert!(r.revision.unwrap() >= seen, "{:?} after {seen} had been seen", r.revision);
    }
}

fn load(gateway: &Member) -> Load {
    Load::start(Client::new(gateway.address()), 30, vec![Target::new("acme", INFER, &probe())])
}

#[tokio::test]
async fn twenty_changes_with_deaths_among_them_cost_no_answer_and_no_wrong_one() {
    let mut fleet = Roles::start(Shape { controls: 2, gateways: 3, load: "2s" }).await;
    let judgements = judgements(3).await;
    let desk = fleet.desk().await;
    fleet.wait_pin("1").await;
    let begun = Instant::now();
    let loads: Vec<Load> = fleet.gateways.iter().map(load).collect();
    let (dead, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let clients = fleet.gateways.iter().map(|g| Client::new(g.address())).collect();
    let wanderer = tokio::spawn(wander(clients, judgements.clone(), dead.clone(), stop.clone()));

    let (mut gateway_dead, mut replica_dead) = (Duration::ZERO..Duration::ZERO, Duration::ZERO..Duration::ZERO);
    for (change, version) in ["2", "3", "1"].into_iter().cycle().take(CHANGES).enumerate() {
        fleet.pin(&desk, version).await;
        if LEADER_DIES.contains(&change) {
            let leader = fleet.leader().await;
            fleet.controls[leader].start_again();
        }
        if change == GATEWAY_DIES {
            gateway_dead.start = begun.elapsed();
            dead.store(true, Relaxed);
            fleet.gateways[2].restart().await;
            fleet.gateways[2].wait_ready().await;
            gateway_dead.end = begun.elapsed();
            dead.store(false, Relaxed);
        }
        if change == REPLICA_DIES {
            replica_dead.start = begun.elapsed();
            fleet.servers[0].restart().await;
            replica_dead.end = begun.elapsed() + Duration::from_secs(2);
        }
        fleet.wait_pin(version).await;
    }
    eventually("some more traffic", PATIENCE, async || {
        let last = begun.elapsed();
        loads
            .iter()
            .all(|load| load.count(|r| r.done + Duration::from_secs(1) > last && r.status == 200) > 5)
            .then_some(())
    })
    .await;
    stop.store(true, Relaxed);
    assert!(wanderer.await.unwrap() > 200);

    let mut versions = BTreeMap::new();
    for (at, load) in loads.into_iter().enumerate() {
        let report = load.stop().await;
        let within = |r: &Record, time: &Range<Duration>| r.done >= time.start && r.due <= time.end;
        let excused = |r: &Record| {
            (at == 2 && within(r, &gateway_dead)) || (r.error == "upstream_error" && within(r, &replica_dead))
        };
        check(&report, &judgements, excused, &mut versions);
    }
    let changes = versions.values().fold((0, ""), |(n, last), now| (n + usize::from(now != last), now));
    assert!(changes.0 >= CHANGES / 2, "traffic has met most of the changes: {versions:?}");
}
