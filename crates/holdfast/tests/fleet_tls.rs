//! A fleet whose processes speak TLS to one another and to their store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;
mod fleet_of;

use fleet::PATIENCE;
use fleet_of::{Roles, Shape};
use holdfast_testkit::{Authority, eventually};

#[tokio::test]
async fn a_fleet_over_tls_does_what_a_fleet_does_and_takes_no_strangers() {
    let mut fleet = Roles::start_secure(Shape { controls: 2, gateways: 2, load: "50ms" }).await;
    let secure =
        "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'holdfast'";
    assert_eq!(fleet.postgres.sql(secure), "t", "a connection to the store in the clear");
    let desk = fleet.desk().await;
    fleet.wait_pin("1").await;
    fleet.pin(&desk, "2").await;
    fleet.wait_pin("2").await;

    let others = Authority::new();
    for (stranger, why) in [
        (fleet.gateway_that_believes(&others).await, "UnknownIssuer"),
        (fleet.gateway_signed_by("unsigned", None).await, ""),
        (fleet.gateway_signed_by("foreign", Some(&others)).await, ""),
    ] {
        eventually("to have been refused", PATIENCE, async || {
            let told = stranger.ready().await;
            let said = told["stale_why"].as_str().unwrap_or_default().to_owned();
            (!said.contains("has answered") && said.contains(why)).then_some(())
        })
        .await;
        assert_eq!(stranger.infer("acme").await.status, 503, "nothing is known there");
    }
    let leader = fleet.leader().await;
    let told = fleet.controls[leader].ready().await;
    assert_eq!(told["gateways"].as_array().map(Vec::len), Some(2), "{told}");

    fleet.controls[leader].proc.kill9();
    fleet.pin(&desk, "3").await;
    fleet.wait_pin("3").await;
}
