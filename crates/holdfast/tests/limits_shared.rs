//! Limits over three real gateways and one real Redis: the bound, the calls, and what happens when the store hangs, dies, is flushed and comes back.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "tests"
)]

use std::path::Path;
use std::time::Duration;

use holdfast_quota::limit::Limit;
use holdfast_quota::rate1::Witness;
use holdfast_testkit::http::Client;
use holdfast_testkit::load::{Load, Report, Target};
use holdfast_testkit::v2_stub::V2;
use holdfast_testkit::{Holdfast, RedisServer, Stub, eventually};
use holdfast_types::Mono;
use serde_json::{Value, json};

const INFER: &str = "/v2/models/screen/infer";
const PATIENCE: Duration = Duration::from_secs(20);
const RATE: u64 = 100;

struct Fleet {
    redis: RedisServer,
    gateways: Vec<Holdfast>,
    _stub: Stub,
}

impl Fleet {
    /// Three gateways whose tenant has 100 requests a second in all.
    async fn start() -> Self {
        Self::with(&format!("{RATE}/s")).await
    }

    /// Three gateways whose tenant has this limit.
    async fn with(limit: &str) -> Self {
        let redis = RedisServer::start().await;
        let correct = V2::loaded(&[("screen", "1")]);
        let stub = Stub::start(move |request| correct.answer(request)).await;
        let (url, store) = (stub.url(), redis.url());
        // The deadline is for a machine on which others build.
        let config = format!(
            "auth: {{ trusted_header: x-tenant }}\nlimits: {{ store: \"{store}\", store_within: 100ms }}\npools:\n  - {{ name: p, protocol: open-inference, \
             residency: static, replicas: [{{ name: r1, url: \"{url}\", holds: [{{ model: screen, version: \"1\" }}] }}] }}\nmodels:\n  \
             - {{ name: screen, pool: p, versions: [{{ version: \"1\" }}] }}\nplans:\n  - {{ name: standard, tenant: {{ requests: {limit} }} }}\n\
             tenants:\n  - {{ name: acme, subset: 1, pins: {{ screen: \"1\" }}, plan: standard }}\n"
        );
        let mut gateways = Vec::new();
        for _ in 0..3 {
            gateways.push(Holdfast::start(Path::new(env!("CARGO_BIN_EXE_holdfast")), &config).await);
        }
        for gateway in &gateways {
            eventually("the model to be ready", PATIENCE, async || {
                let ready = gateway.data.get("/v2/models/screen/ready", &[("x-tenant", "acme")]).await;
                (ready.status.as_u16() == 200).then_some(())
            })
            .await;
        }
        let fleet = Self { redis, gateways, _stub: stub };
        fleet.wait("every gateway to know of three", |store| store["gateways"] == 3 && store["up"] == true).await;
        fleet
    }

    async fn wait(&self, what: &str, is: impl Fn(&Value) -> bool) {
        for gateway in &self.gateways {
            eventually(what, PATIENCE, async || is(&limits(gateway).await["store"]).then_some(())).await;
        }
    }

    /// Calls of the store so far.
    async fn calls(&self) -> u64 {
        let mut sum = 0;
        for gateway in &self.gateways {
            sum += limits(gateway).await["store"]["calls"].as_u64().unwrap();
        }
        sum
    }

    /// Offers half as much again and more than the limit, in unequal parts, and says what came of it.
    fn offer(&self) -> Vec<Load> {
        let target = || vec![Target::new("acme", INFER, &json!({ "inputs": [] }))];
        let parts = [80, 50, 30];
        let loads = self.gateways.iter().zip(parts);
        loads.map(|(gateway, part)| Load::start(Client::new(gateway.data.addr()), part, target())).collect()
    }
}

async fn limits(gateway: &Holdfast) -> Value {
    gateway.admin_get("/v1/limits?tenant=acme").await
}

async fn stop(loads: Vec<Load>) -> Vec<Report> {
    let mut reports = Vec::new();
    for load in loads {
        reports.push(load.stop().await);
    }
    reports
}

/// The answers' times in order; nothing but 200 and 429 was answered.
fn admitted(reports: &[Report]) -> Vec<Duration> {
    let records = || reports.iter().flat_map(|report| &report.0);
    let other: Vec<_> =
        records().filter(|r| !matches!(r.status, 200 | 429)).map(|r| (r.status, r.error.clone())).collect();
    assert!(other.is_empty(), "never anything else because of the store: {other:?}");
    let mut times: Vec<Duration> = records().filter(|r| r.status == 200).map(|r| r.done).collect();
    times.sort_unstable();
    times
}

/// RATE-1 over every interval. An answer is later than its admission by up to what the slowest took, so the clock that is looked at may be wrong by that.
fn witness(times: &[Duration], reports: &[Report], extra: u64) -> u64 {
    let late = reports.iter().map(|r| r.latency(1.0)).max().unwrap_or_default();
    let extra = extra + RATE * u64::try_from(late.as_millis()).unwrap() / 1_000 + 1;
    let mut witness = Witness::new(Limit::per_second(RATE, RATE), extra, Mono::ZERO);
    for time in times {
        let told = witness.admitted(Mono(u64::try_from(time.as_nanos()).unwrap()), 1);
        assert!(told.is_ok(), "{told:?} at {time:?}, {} in all, extra {extra}", times.len());
    }
    witness.worst()
}

async fn wait_admitted(loads: &[Load], more: usize) {
    let count = || loads.iter().map(|load| load.count(|record| record.status == 200)).sum::<usize>();
    let begun = count();
    let patience = PATIENCE + 4 * Duration::from_secs(more as u64 / RATE);
    eventually("requests to be admitted", patience, async || (count() >= begun + more).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_share_one_limit() {
    let fleet = Fleet::start().await;
    let before = limits(&fleet.gateways[0]).await;
    let row = &before["tenants"][0]["limits"][0];
    let loads = fleet.offer();
    wait_admitted(&loads, 500).await;
    let row_now = limits(&fleet.gateways[0]).await["tenants"][0]["limits"][0].clone();
    assert_eq!(row_now["shared"]["gateways"], 3, "{row} {row_now}");
    let bound = row_now["over_admission_bound"].as_u64().expect("a bound");
    assert!((1..=40).contains(&bound), "{row_now}");
    let reports = stop(loads).await;
    let times = admitted(&reports);
    let worst = witness(&times, &reports, bound);
    let per_gateway: Vec<usize> = reports.iter().map(|r| r.count(|record| record.status == 200)).collect();
    assert!(per_gateway.iter().all(|count| *count > 40), "nobody is left out: {per_gateway:?}");
    let calls = fleet.calls().await;
    println!("admitted {} (per gateway {per_gateway:?}), bound {bound}, passed by {worst}, calls {calls}", times.len());
}

/// What is printed of a phase.
struct Phase {
    name: &'static str,
    length: Duration,
    offered: usize,
    admitted: usize,
    /// Most in any one second.
    most: usize,
    worst: u64,
    calls: u64,
}

impl Phase {
    fn print(&self) {
        let second = self.length.as_secs_f64().max(0.001);
        println!(
            "| {} | {second:.1} | {:.0} | {:.1} | {} | {} | {:.1} |",
            self.name,
            self.offered as f64 / second,
            self.admitted as f64 / second,
            self.most,
            self.worst,
            self.calls as f64 / second,
        );
    }
}

/// The most of these times that lie in one second.
/// What one gateway has spent of a limit that is too small for all to hold some of it keeps no other from the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_too_small_to_share_is_had_at_every_gateway() {
    let fleet = Fleet::with("4/s, burst: 4").await;
    let body = json!({ "inputs": [] });
    // Nobody asks twice, and the lease of who has spent the one token lasts for five seconds: each has to get the next one before that, not because of it.
    let before = Duration::from_secs(4);
    for gateway in &fleet.gateways {
        eventually("a token that another gateway does not hold", before, async || {
            let answer = gateway.data.post(INFER, &[("x-tenant", "acme")], &body).await;
            assert!(matches!(answer.status.as_u16(), 200 | 429), "{:?}", answer.headers);
            (answer.status == 200).then_some(())
        })
        .await;
    }
}

fn most_in_a_second(times: &[Duration]) -> usize {
    let mut first = 0;
    let count = |(last, time): (usize, &Duration)| {
        while *time - times[first] > Duration::from_secs(1) {
            first += 1;
        }
        last + 1 - first
    };
    times.iter().enumerate().map(count).max().unwrap_or_default()
}

/// A phase lasts until 250 requests more were admitted; with `PHASE_SECONDS`, for figures, until as many were as the limit gives in that time.
async fn last(loads: &[Load]) {
    let seconds: Option<u64> = std::env::var("PHASE_SECONDS").ok().and_then(|text| text.parse().ok());
    let more = seconds.map_or(250, |seconds| seconds * RATE);
    wait_admitted(loads, usize::try_from(more).unwrap()).await;
}

/// RL-05, RL-07, RL-08, RL-02: hangs, dies, comes back empty, is flushed: no 5xx, nobody shut out, nothing unlimited, no spike. Prints the table of
/// docs/limits.md.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_may_hang_die_and_forget() {
    let mut fleet = Fleet::start().await;
    let bound = 3 * 3;
    let mut phases = Vec::new();
    for name in ["well", "stopped", "goes on", "killed", "started again", "flushed", "well again"] {
        let (loads, calls) = (fleet.offer(), fleet.calls().await);
        match name {
            "stopped" => fleet.redis.proc.freeze(),
            "goes on" => fleet.redis.proc.thaw(),
            "killed" => fleet.redis.proc.kill9(),
            "started again" => fleet.redis.restart().await,
            "flushed" => drop(fleet.redis.command(&["FLUSHALL"])),
            _ => {}
        }
        let is_up = !matches!(name, "stopped" | "killed");
        fleet.wait(name, |store| store["up"] == is_up).await;
        last(&loads).await;
        let calls = fleet.calls().await - calls;
        let reports = stop(loads).await;
        let times = admitted(&reports);
        // A phase begins with what the one before has left: a full bucket at most, and each gateway's own.
        let worst = witness(&times, &reports, bound + 3 * 3 + RATE / 2);
        let length = reports.iter().flat_map(|report| &report.0).map(|record| record.done).max().unwrap_or_default();
        let offered = reports.iter().map(|report| report.0.len()).sum();
        phases.push(Phase {
            name,
            length,
            offered,
            admitted: times.len(),
            most: most_in_a_second(&times),
            worst,
            calls,
        });
    }
    println!(
        "| the store | seconds | offered/s | admitted/s | most in a second | over burst + rate x time | calls/s |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    phases.iter().for_each(Phase::print);
    for gateway in &fleet.gateways {
        let store = limits(gateway).await["store"].clone();
        assert!(store["admitted_alone"].as_u64().unwrap() > 0 && store["failures"].as_u64().unwrap() > 0, "{store}");
    }
}
