//! Two control planes over one PostgreSQL.

use std::sync::Arc;
use std::time::Duration;

use holdfast_control::rollouts::{Link, Settings};
use holdfast_decide::rollout::Command;
use holdfast_store::{Postgres, PostgresOptions, Store};
use holdfast_testkit::{PostgresServer, eventually};

use crate::gateway::Gateways;
use crate::support::*;

async fn open(server: &PostgresServer) -> Arc<dyn Store> {
    let options = PostgresOptions { deadline: PATIENCE, ..PostgresOptions::new(server.url()) };
    Arc::new(Postgres::open(options).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_one_goes_on_when_the_leader_loses_its_connection() {
    let server = PostgresServer::start().await;
    let world = Gateways::new();
    let mut planes = Vec::new();
    for number in 0..2 {
        // The first one gives the other its turn.
        let lead = if number == 0 { Duration::from_secs(600) } else { Duration::from_millis(20) };
        let settings = Settings { lead, ..settings() };
        let mut plane = Plane::start(open(&server).await, settings, &world).await;
        if number == 0 {
            plane.seed(&table(3, 1, 2)).await;
        }
        // Each gateway has a link to both.
        for name in ["g0", "g1"] {
            let _task = plane.gateway(name, Link::Remote { lease: Duration::from_secs(120) }).await;
        }
        plane.drive();
        if number == 0 {
            eventually("the first one to lead", PATIENCE, async || plane.rollouts.leads().then_some(())).await;
        }
        planes.push(plane);
    }
    let (first, other) = (0, 1);
    assert!(planes[first].rollouts.leads() && !planes[other].rollouts.leads(), "one leads");
    planes[other].desk.refresh().await.unwrap();
    world.change(|world| _ = world.idle.insert("g0".to_owned()));
    planes[other].pin(&["t0/m0".to_owned()], "2", None).await;
    eventually("the roll-out to wait", PATIENCE, async || {
        (!planes[first].rollouts.orders().prepare.is_empty()).then_some(())
    })
    .await;
    assert!(planes[other].rollouts.command(1, Command::Pause, "bob").await.is_err(), "only the leader takes commands");
    let holders = "select pid from pg_locks where locktype = 'advisory' and granted limit 1";
    let pid = server.sql(holders);
    let _ = server.sql(&format!("select pg_terminate_backend({pid})"));
    eventually("the other one to go on", PATIENCE, async || {
        let goes_on = planes[other].rollouts.leads() && !planes[other].rollouts.orders().prepare.is_empty();
        (goes_on && !planes[first].rollouts.leads()).then_some(())
    })
    .await;
    world.change(|world| world.idle.clear());
    for plane in &planes {
        eventually("the flip", PATIENCE, async || (plane.in_force("t0/m0") == "2").then_some(())).await;
        assert_eq!(plane.steps().await.len(), 1);
    }
    planes[0].settled("the end").await;
    planes[0].nothing_broken();
    // What failed for the leader is asked for again at the other one.
    world.change(|world| _ = world.failing.insert("3".to_owned(), "no room".to_owned()));
    planes[other].pin(&["t0/m0".to_owned()], "3", None).await;
    planes[other].at(2, "failed").await;
    world.change(|world| world.failing.clear());
    planes[first].desk.refresh().await.unwrap();
    let asked = planes[first].pin(&["t0/m0".to_owned()], "3", None).await;
    assert!(asked.revision.is_some() && asked.changes.is_empty(), "{asked:?}");
    eventually("another try", PATIENCE, async || (planes[other].in_force("t0/m0") == "3").then_some(())).await;
}
