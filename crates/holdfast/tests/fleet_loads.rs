//! Loads over all gateways of a fleet (LOAD-1): many versions that nobody holds are asked for through every gateway at once, while control planes
//! and gateways die, stop and come back. Model servers count their own loads.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;
mod fleet_of;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use fleet::{PATIENCE, path, probe};
use fleet_of::{More, Roles, Shape};
use holdfast_testkit::eventually;
use holdfast_testkit::http::Client;
use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

const SERVERS: usize = 3;
const VERSIONS: usize = 16;
const TENANTS: usize = 6;
/// The bounds: loads on a server, and in the fleet.
const BOUNDS: (u64, u64) = (2, 4);
/// The longest time for all of a storm.
const STORM: Duration = Duration::from_secs(90);

fn shape(config: &mut Value) {
    let all: Vec<String> = (1..=VERSIONS).map(|v| v.to_string()).collect();
    let tenant = |n| json!({"name": format!("t{n}"), "subset": 1, "pins": {}, "allow": {"screen": all}});
    config["tenants"] = (0..TENANTS).map(tenant).collect();
    config["loads"] = json!({"fleet": BOUNDS.1});
    config["pools"][0]["loads"] = json!({"per_replica": BOUNDS.0, "timeout": "20s"});
}

async fn start(peers: bool) -> Roles {
    let flags = &["--memory", "100GiB"];
    let more = More { servers: SERVERS, versions: VERSIONS, flags, control: shape, peers, ..More::default() };
    let fleet = Roles::start_of(Shape { controls: 2, gateways: 3, load: "2s" }, more).await;
    seated(&fleet, &[0, 1, 2]).await;
    fleet
}

/// Waits until these gateways, and no others, sit and have a lease.
async fn seated(fleet: &Roles, gateways: &[usize]) {
    let names: Vec<String> = gateways.iter().map(|g| format!("g{}", g + 1)).collect();
    eventually("the gateways to have their seats", PATIENCE * 3, async || {
        for gateway in gateways {
            let seat = fleet.gateways[*gateway].try_ready().await?["seat"].clone();
            let lease = seat["lease_left_ms"].as_u64()? > 0;
            (lease && seat["seats"] == json!(names)).then_some(())?;
        }
        Some(())
    })
    .await;
}

/// Looks again and again at how many loads are in flight over all servers at one moment.
struct Watch {
    most: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Watch {
    fn over(fleet: &Roles) -> Self {
        let (most, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let clients: Vec<Client> = fleet.servers.iter().map(|server| Client::new(server.addr())).collect();
        let (seen, stopped) = (most.clone(), stop.clone());
        let task = tokio::spawn(async move {
            while !stopped.load(SeqCst) {
                let (first, second) = (counts(&clients).await, counts(&clients).await);
                // What has not changed between two looks at all was so at one moment between them.
                if first == second {
                    seen.fetch_max(first.iter().map(|c| c.1).sum(), SeqCst);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self { most, stop, task }
    }

    /// The most that were seen.
    async fn end(self) -> u64 {
        self.stop.store(true, SeqCst);
        self.task.await.unwrap();
        self.most.load(SeqCst)
    }
}

/// Loads begun, and in flight, by server.
async fn counts(clients: &[Client]) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for client in clients {
        let loads = client.get("/control/stats", &[]).await.json()["loads"].clone();
        all.push((loads["started"].as_u64().unwrap(), loads["in_flight"].as_u64().unwrap()));
    }
    all
}

/// Asks for each of these versions as each tenant, through each of these gateways at once, until all have answered by it.
async fn storm(fleet: &Roles, gateways: &[usize], versions: RangeInclusive<usize>) -> JoinSet<()> {
    let mut all = JoinSet::new();
    for gateway in gateways {
        let address = fleet.gateways[*gateway].address();
        for tenant in 0..TENANTS {
            for version in versions.clone() {
                all.spawn(until_served(address, format!("t{tenant}"), version.to_string()));
            }
        }
    }
    all
}

async fn until_served(gateway: SocketAddr, tenant: String, version: String) {
    let client = Client::new(gateway);
    let (until, path) = (Instant::now() + STORM, path(&version));
    let mut last = String::new();
    while Instant::now() < until {
        let headers = [("x-tenant", tenant.as_str()), ("x-request-timeout-ms", "5000")];
        let asked = client.send(http::Method::POST, &path, &headers, probe().to_string().into()).await;
        if let Ok(answer) = asked {
            let status = answer.status.as_u16();
            last = format!("{status}: {}", answer.text());
            assert!([200, 503, 504].contains(&status), "{last}");
            if status == 200 {
                assert_eq!(answer.header("x-holdfast-version"), version);
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("{version} for {tenant} by {gateway} is not served: {last}");
}

async fn calm(mut storm: JoinSet<()>) {
    while let Some(ended) = storm.join_next().await {
        ended.unwrap();
    }
}

/// How many loads there may be at once as seats are taken now: each gateway's part, and on no server of its own more than that may have.
async fn able(fleet: &Roles) -> u64 {
    let mut able = 0;
    for gateway in &fleet.gateways {
        let seat = gateway.ready().await["seat"].clone();
        let owns = seat["owns"].as_array().unwrap().len() as u64;
        able += seat["loads"].as_u64().unwrap().min(owns * BOUNDS.0);
    }
    able
}

/// No server ever had more loads than it may have, nor was anything loaded twice.
async fn within_bounds(fleet: &Roles, most: u64) {
    let mut begun = 0;
    for server in &fleet.servers {
        let stats = server.stats().await;
        let loads = &stats["loads"];
        assert!(loads["max_in_flight"].as_u64().unwrap() <= BOUNDS.0, "on one server: {loads}");
        begun += loads["started"].as_u64().unwrap();
        let held: BTreeSet<String> =
            stats["held"].as_array().unwrap().iter().map(|h| format!("{}/{}", h["model"], h["version"])).collect();
        assert_eq!(loads["started"].as_u64().unwrap(), held.len() as u64, "each version is loaded once");
    }
    assert!(begun > 0);
    assert!(most <= BOUNDS.1, "{most} loads in the fleet at one moment");
}

#[tokio::test]
async fn loads_stay_within_their_bounds_with_and_without_a_control_plane() {
    let mut fleet = start(true).await;
    let able = able(&fleet).await;
    let watch = Watch::over(&fleet);
    calm(storm(&fleet, &[0, 1, 2], 1..=5).await).await;

    // Half of the next storm has a control plane.
    let next = storm(&fleet, &[0, 1, 2], 6..=10).await;
    fleet.controls.iter_mut().for_each(|control| control.proc.kill9());
    calm(next).await;
    calm(storm(&fleet, &[0, 1, 2], 11..=13).await).await;
    let most = watch.end().await;
    within_bounds(&fleet, most).await;
    assert!(most >= able.min(2), "{most} loads at once were seen, {able} may be");
}

#[tokio::test]
async fn loads_stay_within_their_bounds_when_a_gateway_stops_goes_on_or_dies() {
    let mut fleet = start(true).await;
    let watch = Watch::over(&fleet);
    // It stops in the middle of its loads, for longer than its lease lasts, and goes on as if nothing had been.
    let first = storm(&fleet, &[0, 1, 2], 1..=3).await;
    let second = storm(&fleet, &[1, 2], 4..=5).await;
    fleet.gateways[0].proc.freeze();
    seated(&fleet, &[1, 2]).await;
    calm(second).await;
    fleet.gateways[0].proc.thaw();
    calm(first).await;
    seated(&fleet, &[0, 1, 2]).await;

    let third = storm(&fleet, &[0, 1], 6..=9).await;
    fleet.gateways[2].proc.kill9();
    calm(third).await;
    seated(&fleet, &[0, 1]).await;
    fleet.gateways[2].restart().await;
    seated(&fleet, &[0, 1, 2]).await;
    calm(storm(&fleet, &[0, 1, 2], 10..=11).await).await;
    let most = watch.end().await;
    within_bounds(&fleet, most).await;
}

/// Gateways that cannot reach one another are told by the control plane what others want.
#[tokio::test]
async fn what_another_gateway_has_to_load_is_told_it_by_the_control_plane_if_need_be() {
    let fleet = start(false).await;
    let watch = Watch::over(&fleet);
    calm(storm(&fleet, &[0, 1, 2], 1..=3).await).await;
    let most = watch.end().await;
    within_bounds(&fleet, most).await;
}

fn one_at_a_time(config: &mut Value) {
    shape(config);
    config["pools"][0]["replicas"][0]["memory"] = json!("3GiB");
    config["pools"][0]["memory"] = json!("overcommit");
    config["pools"][0]["thrash_window"] = json!("100ms");
}

/// Only the owner of a server unloads from it, and not what another gateway uses (LOAD-2).
#[tokio::test]
async fn what_one_gateway_uses_is_not_evicted_by_another() {
    let more = More { servers: 1, versions: VERSIONS, control: one_at_a_time, ..More::default() };
    let fleet = Roles::start_of(Shape { controls: 1, gateways: 2, load: "100ms" }, more).await;
    seated(&fleet, &[0, 1]).await;
    let owns = fleet.gateways[0].ready().await["seat"]["owns"] == json!(["main/r1"]);
    let (owner, other) = if owns { (0, 1) } else { (1, 0) };
    for gateway in [other, owner] {
        until_served(fleet.gateways[gateway].address(), "t0".to_owned(), "1".to_owned()).await;
    }
    fleet.servers[0].faults(&json!({"infer_delay": "4s"})).await;
    let address = fleet.gateways[other].address();
    let slow = tokio::spawn(until_served(address, "t0".to_owned(), "1".to_owned()));
    eventually("the request at the server", PATIENCE, async || {
        (fleet.servers[0].stats().await["requests"]["in_flight"] == 1).then_some(())
    })
    .await;
    // Room for version 2 has to be made of version 1, of which the owner has no use.
    let next = tokio::spawn(until_served(fleet.gateways[owner].address(), "t0".to_owned(), "2".to_owned()));
    while !slow.is_finished() {
        let stats = fleet.servers[0].stats().await;
        assert!(stats["unloads"] == 0 || stats["requests"]["in_flight"] == 0, "{stats}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    slow.await.unwrap();
    fleet.servers[0].faults(&json!({})).await;
    next.await.unwrap();
    assert_eq!(fleet.servers[0].stats().await["unloads"], 1);
    // Through the other gateway version 2 is there now, and version 1 is not.
    until_served(address, "t0".to_owned(), "2".to_owned()).await;
}
