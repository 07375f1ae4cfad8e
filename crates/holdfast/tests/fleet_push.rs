//! How a change comes to the gateways of a fleet in real processes: told to all of them at once, asked for where telling fails, and under requests that
//! are on their way.
//!
//! By cause, not by the clock: a gateway that asks every ten minutes has what it has because it was told; one to which nothing can be told has it
//! because it has asked. How long either takes is measured by `make bench-control` (docs/benchmarks.md).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;
mod fleet_of;

use std::time::{Duration, Instant};

use fleet::{INFER, PATIENCE, judgements, probe};
use fleet_of::{Member, More, Roles, Shape, WHILE, tenant_ask};
use holdfast_testkit::eventually;
use holdfast_testkit::http::Client;
use holdfast_testkit::wait::always;
use serde_json::json;

/// Nobody asks within the time of a test.
const NEVER: &str = "10m";
const NEVER_ASKS: Duration = Duration::from_secs(600);

/// How often gateways have come to control planes so far.
fn comings(fleet: &Roles) -> usize {
    fleet.controls.iter().map(|control| control.proc.output().matches("a gateway has come").count()).sum()
}

/// Waits until the gateway has at least this revision in force.
async fn has(gateway: &Member, revision: u64) {
    eventually("the gateway to have the revision in force", PATIENCE * 2, async || {
        (gateway.revision().await >= revision).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_change_is_told_to_every_gateway_that_would_not_ask_for_it() {
    let more = More { gateway: |_, content| content["gateway"]["poll"] = json!(NEVER), ..More::default() };
    let begun = Instant::now();
    let fleet = Roles::start_of(Shape { controls: 2, gateways: 3, load: "50ms" }, more).await;
    let (desk, judgements) = (fleet.desk().await, judgements(3).await);
    fleet.wait_pin("1").await;
    let came = comings(&fleet);

    // What is in force at once, and two pins that are rolled out.
    let done = desk.change(tenant_ask("late")).await.unwrap().revision.unwrap().0;
    for gateway in &fleet.gateways {
        has(gateway, done).await;
        eventually("the new tenant to be served", PATIENCE, async || {
            (gateway.infer("late").await.status == 200).then_some(())
        })
        .await;
    }
    for version in ["2", "3"] {
        let desired = fleet.pin(&desk, version).await;
        let activated = eventually("the activation", PATIENCE * 2, async || {
            let _ = desk.refresh().await;
            let in_force = desk.truth().head.in_force.0;
            (in_force > desired).then_some(in_force)
        })
        .await;
        for gateway in &fleet.gateways {
            has(gateway, activated).await;
            let answer = gateway.infer("acme").await;
            assert_eq!((answer.status.as_u16(), answer.header("x-holdfast-version")), (200, version));
            assert_eq!(answer.json()["outputs"], judgements[version]);
        }
    }
    // A link that is made anew compares what is held; a gateway that has waited for so long asks. Neither was.
    assert_eq!(comings(&fleet), came, "no link was made anew");
    assert!(begun.elapsed() < NEVER_ASKS, "nobody can have asked yet");
}

#[tokio::test]
async fn where_telling_fails_a_gateway_has_the_change_when_it_asks() {
    let more = More {
        gateway: |name, content| content["gateway"]["poll"] = json!(if name == "g1" { "1s" } else { NEVER }),
        deaf: true,
        ..More::default()
    };
    let fleet = Roles::start_of(Shape { controls: 1, gateways: 2, load: "50ms" }, more).await;
    let desk = fleet.desk().await;
    fleet.wait_pin("1").await;
    let [asks, waits] = &fleet.gateways[..] else { panic!("two gateways") };

    // From now on nothing that the control plane says of itself arrives; what it is asked, it answers.
    fleet.links[0].deafen();
    let done = desk.change(tenant_ask("late")).await.unwrap().revision.unwrap().0;
    has(asks, done).await;
    eventually("the new tenant to be served", PATIENCE, async || {
        (asks.infer("late").await.status == 200).then_some(())
    })
    .await;
    eventually("something to have been lost", PATIENCE, async || (fleet.links[0].lost() > 0).then_some(())).await;
    // Asking is what has brought it: who does not ask does not know of it, whatever else the two say to one another.
    always("the other one knows nothing of it", WHILE, async || {
        waits.revision().await < done && waits.infer("late").await.status != 200
    })
    .await;
    assert_eq!(asks.ready().await["ready"], true);

    // A gateway that hears nothing makes a new link by itself. What is told over it arrives again.
    fleet.links[0].mend();
    has(waits, done).await;
    fleet.pin(&desk, "2").await;
    fleet.wait_pin("2").await;
}

/// Requests that are with a model server while a pin moves on every gateway. How long that takes nobody promises on a slow machine: if they were
/// answered before, there is another round, in which they take longer.
#[tokio::test]
async fn a_request_in_flight_ends_where_it_began_on_every_gateway() {
    let fleet = Roles::start(Shape { controls: 1, gateways: 2, load: "50ms" }).await;
    fleet.wait_pin("1").await;
    for (takes, from, to) in [("5s", "1", "2"), ("20s", "2", "3"), ("50s", "3", "1")] {
        if crossed(&fleet, takes, from, to).await {
            return;
        }
    }
    panic!("no request was on its way while the pin moved");
}

/// One round: whether all requests were on their way until the pin had moved everywhere.
async fn crossed(fleet: &Roles, takes: &str, from: &str, to: &str) -> bool {
    let (desk, judgements) = (fleet.desk().await, judgements(3).await);
    let faults = async |faults: serde_json::Value| {
        for server in &fleet.servers {
            server.faults(&faults).await;
        }
    };
    faults(json!({"infer_delay": takes})).await;
    let asked: Vec<_> = fleet.gateways.iter().map(|gateway| tokio::spawn(slow(gateway.address()))).collect();
    eventually("the requests at the servers", PATIENCE, async || {
        let mut sum = 0;
        for server in &fleet.servers {
            sum += server.stats().await["requests"]["in_flight"].as_u64().unwrap();
        }
        (sum == 2 || asked.iter().any(|asked| asked.is_finished())).then_some(())
    })
    .await;
    // Those that come now are answered at once.
    faults(json!({})).await;
    fleet.pin(&desk, to).await;
    fleet.wait_pin(to).await;
    let crossed = !asked.iter().any(|asked| asked.is_finished());
    for (asked, gateway) in asked.into_iter().zip(&fleet.gateways) {
        let answer = asked.await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.header("x-holdfast-version")), (200, from), "{answer:?}");
        assert_eq!(answer.json()["outputs"], judgements[from]);
        let now = gateway.infer("acme").await;
        assert_eq!(now.header("x-holdfast-version"), to);
        let [then, now] = [&answer, &now].map(|a| a.header("x-holdfast-revision").parse::<u64>().unwrap());
        assert!(then < now, "{then} and {now}: it was answered under the revision under which it came");
    }
    crossed
}

async fn slow(gateway: std::net::SocketAddr) -> holdfast_testkit::http::Answer {
    let headers = [("x-tenant", "acme"), ("x-request-timeout-ms", "120000")];
    Client::new(gateway).post(INFER, &headers, &probe()).await
}
