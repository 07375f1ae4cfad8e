//! A leader that is cut off from the store without a word: what its gateways say of their table, and where they go.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;
mod fleet_of;

use fleet::PATIENCE;
use fleet_of::{Roles, Shape};
use holdfast_testkit::eventually;

#[tokio::test]
async fn gateways_leave_a_leader_that_is_cut_off_as_soon_as_another_one_leads() {
    let fleet = Roles::start_apart(Shape { controls: 2, gateways: 2, load: "50ms" }).await;
    let desk = fleet.desk().await;
    fleet.wait_pin("1").await;
    let leader = fleet.leader().await;
    fleet.ways[leader].cut();
    for gateway in &fleet.gateways {
        eventually("the gateway to say that nobody vouches for its table", PATIENCE, async || {
            (gateway.ready().await["stale"] == true).then_some(())
        })
        .await;
        let answer = gateway.infer("acme").await;
        assert_eq!((answer.status.as_u16(), answer.header("x-holdfast-version")), (200, "1"), "it serves on");
    }
    // The server ends the session of who is silent; then the other one leads, and has the gateways.
    let other = &fleet.controls[1 - leader];
    eventually("the other one to lead and to have the gateways", PATIENCE * 2, async || {
        let told = other.ready().await;
        (told["leads"] == true && told["gateways"].as_array().is_some_and(|all| all.len() == 2)).then_some(())
    })
    .await;
    for gateway in &fleet.gateways {
        eventually("the table to be current", PATIENCE, async || {
            (gateway.ready().await["stale"] == false).then_some(())
        })
        .await;
    }
    fleet.pin(&desk, "2").await;
    fleet.wait_pin("2").await;
    // The one that was cut off comes back, and finds itself led.
    fleet.ways[leader].mend();
    eventually("it to follow", PATIENCE * 2, async || {
        (fleet.controls[leader].ready().await["standing"] == "follows").then_some(())
    })
    .await;
    fleet.pin(&desk, "3").await;
    fleet.wait_pin("3").await;
}

#[tokio::test]
async fn while_nobody_else_leads_the_link_is_kept_and_the_table_is_stale() {
    let fleet = Roles::start_apart(Shape { controls: 1, gateways: 1, load: "50ms" }).await;
    fleet.wait_pin("1").await;
    let gateway = &fleet.gateways[0];
    eventually("the table to be current", PATIENCE, async || (gateway.ready().await["stale"] == false).then_some(()))
        .await;
    fleet.ways[0].cut();
    eventually("clients to be told", PATIENCE, async || {
        let answer = gateway.infer("acme").await;
        assert_eq!((answer.status.as_u16(), answer.header("x-holdfast-version")), (200, "1"));
        (!answer.header("x-holdfast-stale").is_empty()).then_some(())
    })
    .await;
    let told = gateway.ready().await;
    assert!(told["stale_why"].as_str().is_some_and(|why| why.contains("does not know whether it leads")), "{told}");
    assert!(told["ready"] == true && gateway.stale_metric().await > 0.0);
    let told = fleet.controls[0].ready().await;
    assert_eq!(told["gateways"].as_array().map(Vec::len), Some(1), "{told}");
    fleet.ways[0].mend();
    eventually("the table to be current again", PATIENCE * 2, async || {
        (gateway.ready().await["stale"] == false).then_some(())
    })
    .await;
    assert_eq!(gateway.infer("acme").await.header("x-holdfast-stale"), "");
    let came = fleet.controls[0].proc.output().matches("a gateway has come").count();
    assert_eq!(came, 1, "the link was never lost");
}
