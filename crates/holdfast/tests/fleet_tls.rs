//! A fleet whose processes speak TLS to one another and to their store.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;
mod fleet_of;

use fleet::PATIENCE;
use fleet_of::{Roles, Shape};
use holdfast_testkit::{Authority, eventually};
use serde_json::json;

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

#[tokio::test]
async fn certificates_are_renewed_while_all_runs_and_gateways_vote_by_them() {
    let mut fleet = Roles::start_secure(Shape { controls: 1, gateways: 2, load: "50ms" }).await;
    fleet.wait_pin("1").await;
    let says = async |member: &fleet_of::Member, words: &str| {
        eventually(words, PATIENCE, async || member.proc.output().contains(words).then_some(())).await;
    };
    fleet.gateways[0].spoil_key();
    says(&fleet.gateways[0], "stay as they were").await;
    let told = fleet.gateways[0].ready().await;
    assert_eq!(told["stale"], false, "what was read before is in force: {told}");
    fleet.certify();
    for member in fleet.gateways.iter().chain(&fleet.controls) {
        says(member, "were read anew").await;
    }
    let desk = fleet.desk().await;
    fleet.pin(&desk, "2").await;
    fleet.wait_pin("2").await;
    fleet.controls[0].proc.kill9();
    for gateway in &fleet.gateways {
        eventually("a lease by the vote of the other", PATIENCE * 3, async || {
            let told = gateway.try_ready().await?;
            let lease = told["seat"]["lease_left_ms"].as_u64()?;
            // Longer than a lease of the control plane's could last.
            (told["stale_seconds"].as_f64()? > 12.0 && lease > 0).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn the_stores_authority_is_replaced_while_a_control_plane_runs() {
    let fleet = Roles::start_secure(Shape { controls: 1, gateways: 1, load: "50ms" }).await;
    fleet.wait_pin("1").await;
    let (next, control) = (Authority::new(), &fleet.controls[0]);
    fleet.believe_also(&next);
    eventually("the certificates to be read anew", PATIENCE, async || {
        let output = control.proc.output();
        output.contains("the certificates of the connection to the store were read anew").then_some(())
    })
    .await;

    // The server shows a certificate that the control plane did not believe when it was started, and every connection has to be made again.
    fleet.postgres.certify(&next.server(&["127.0.0.1"])).await;
    fleet.postgres.end_connections();
    eventually("a change to be taken", PATIENCE, async || {
        let answer = control.put("/v1/pins/acme/screen", &json!({"version": "2"})).await;
        (answer.status == 200).then_some(())
    })
    .await;
    fleet.wait_pin("2").await;
    let secure = "select count(*) > 0, bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) where application_name = 'holdfast'";
    assert_eq!(fleet.postgres.sql(secure), "t|t", "a connection to the store in the clear");
}
