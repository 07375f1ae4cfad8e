//! A fleet in real processes: control planes over one PostgreSQL, gateways that follow them, model servers behind. What dies, and what goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod fleet;
mod fleet_of;

use fleet::{PATIENCE, judgements};
use fleet_of::{More, Roles, Shape, WHILE};
use holdfast_testkit::eventually;
use holdfast_testkit::wait::always;
use serde_json::json;

/// What is not pushed is found by comparing, which here nobody does for an hour.
#[tokio::test]
async fn a_changed_pin_is_pushed_to_all_gateways() {
    let more = More { gateway: |_, config| config["gateway"]["poll"] = json!("1h"), ..More::default() };
    let fleet = Roles::start_of(Shape { controls: 1, gateways: 3, load: "100ms" }, more).await;
    let judgements = judgements(3).await;
    let desk = fleet.desk().await;
    fleet.wait_pin("1").await;
    for version in ["2", "3", "1"] {
        let revision = fleet.pin(&desk, version).await;
        let activated = eventually("the activation", PATIENCE, async || {
            let _ = desk.refresh().await;
            let in_force = desk.truth().head.in_force.0;
            (in_force > revision).then_some(in_force)
        })
        .await;
        for gateway in &fleet.gateways {
            eventually("the gateway to have the revision in force", PATIENCE, async || {
                (gateway.revision().await >= activated).then_some(())
            })
            .await;
            let answer = gateway.infer("acme").await;
            assert_eq!((answer.status.as_u16(), answer.header("x-holdfast-version")), (200, version));
            assert_eq!(answer.json()["outputs"], judgements[version]);
        }
    }
}

#[tokio::test]
async fn whoever_leads_may_die_while_a_pin_changes() {
    let mut fleet = Roles::start(Shape { controls: 2, gateways: 3, load: "1500ms" }).await;
    let desk = fleet.desk().await;
    fleet.wait_pin("1").await;
    fleet.pin(&desk, "2").await;
    fleet.wait_pin("2").await;

    // The next one is on its way when the leader dies.
    fleet.pin(&desk, "3").await;
    let leader = fleet.leader().await;
    eventually("the roll-out to be on its way", PATIENCE, async || {
        let told = fleet.controls[leader].ready().await;
        (told["pending_pins"] == 1).then_some(())
    })
    .await;
    fleet.controls[leader].proc.kill9();
    let other = 1 - leader;
    eventually("the other one to lead", PATIENCE, async || {
        (fleet.controls[other].ready().await["leads"] == true).then_some(())
    })
    .await;
    for gateway in &fleet.gateways {
        assert_eq!(gateway.infer("acme").await.header("x-holdfast-version"), "2");
    }
    fleet.wait_pin("3").await;
    for gateway in &fleet.gateways {
        eventually("the gateway to be current again", PATIENCE, async || {
            (gateway.ready().await["stale"] == false).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_gateway_that_dies_holds_a_roll_out_up_for_its_lease_and_no_longer() {
    let mut fleet = Roles::start(Shape { controls: 1, gateways: 2, load: "500ms" }).await;
    let desk = fleet.desk().await;
    fleet.wait_pin("1").await;
    fleet.pin(&desk, "2").await;
    let dead = fleet.gateways.remove(1);
    drop(dead);
    fleet.wait_pin("2").await;
    let gateways = fleet.controls[0].ready().await["gateways"].clone();
    let leased = gateways.as_array().unwrap().iter().filter(|g| g["leased"] == true).count();
    assert_eq!(leased, 1, "{gateways}");
}

/// One that is stopped in order says so. Its lease would be longer than any test.
#[tokio::test]
async fn a_gateway_that_is_stopped_in_order_holds_no_roll_out_up() {
    let more = More { lease: "1h", ..More::default() };
    let mut fleet = Roles::start_of(Shape { controls: 1, gateways: 2, load: "10ms" }, more).await;
    let desk = fleet.desk().await;
    fleet.wait_pin("1").await;
    let mut stopped = fleet.gateways.remove(1);
    stopped.proc.sigterm();
    assert_eq!(stopped.proc.wait_exit(PATIENCE).await.code(), Some(0), "{}", stopped.proc.output());
    fleet.pin(&desk, "2").await;
    fleet.wait_pin("2").await;
    // It comes back under the same name, and is waited for as before.
    stopped.restart().await;
    stopped.wait_ready().await;
    fleet.gateways.push(stopped);
    fleet.wait_pin("2").await;
    fleet.pin(&desk, "3").await;
    fleet.wait_pin("3").await;
}

#[tokio::test]
async fn without_any_control_plane_gateways_serve_on_and_say_so() {
    let mut fleet = Roles::start(Shape { controls: 1, gateways: 1, load: "50ms" }).await;
    fleet.wait_pin("1").await;
    let answer = fleet.gateways[0].infer("acme").await;
    assert_eq!((answer.status.as_u16(), answer.header("x-holdfast-stale")), (200, ""));
    assert_eq!(fleet.gateways[0].stale_metric().await, 0.0);
    for (asked, path, right) in [
        (&fleet.gateways[0], "/v1/pins", "asked of a control plane"),
        (&fleet.controls[0], "/v1/explain", "asked of a gateway"),
    ] {
        let told = asked.get(path).await;
        let detail = told.json()["detail"].to_string();
        assert!(told.status == 404 && detail.contains(right), "{path}: {detail}");
    }
    let revision = fleet.gateways[0].revision().await;
    fleet.gateways[0].wait_saved().await;

    fleet.controls[0].proc.kill9();
    let gateway = &fleet.gateways[0];
    eventually("the table to be called stale", PATIENCE, async || {
        let answer = gateway.infer("acme").await;
        assert_eq!((answer.status.as_u16(), answer.header("x-holdfast-version")), (200, "1"));
        (!answer.header("x-holdfast-stale").is_empty()).then_some(())
    })
    .await;
    let told = gateway.ready().await;
    assert!(told["stale"] == true && told["ready"] == true && told["stale_why"].is_string(), "{told}");
    assert!(gateway.stale_metric().await > 0.0);

    // A new process has only what was saved.
    fleet.gateways[0].restart().await;
    let gateway = &fleet.gateways[0];
    eventually("the saved table to be served", PATIENCE, async || {
        (gateway.revision().await == revision && gateway.infer("acme").await.status == 200).then_some(())
    })
    .await;

    // And a later control plane takes over where the first one was.
    fleet.controls[0].restart().await;
    let gateway = &fleet.gateways[0];
    eventually("the table to be current", PATIENCE, async || (gateway.ready().await["stale"] == false).then_some(()))
        .await;
    assert_eq!(gateway.infer("acme").await.header("x-holdfast-stale"), "");
}

#[tokio::test]
async fn a_gateway_without_a_table_lives_and_is_not_ready() {
    let mut fleet = Roles::start(Shape { controls: 1, gateways: 0, load: "50ms" }).await;
    fleet.controls[0].proc.kill9();
    let gateway = fleet.gateway("late").await;
    let answer = gateway.get("/readyz?verbose").await;
    let told = answer.json();
    assert_eq!((answer.status.as_u16(), &told["ready"], &told["revision"]), (503, &json!(false), &json!(0)));
    assert_eq!(answer.header("retry-after"), "1", "every 503 has one");
    // Nothing is known yet, so nobody is told that there is no such tenant.
    let refused = gateway.infer("acme").await;
    assert_eq!((refused.status.as_u16(), refused.header("x-holdfast-error")), (503, "no_holder"));
    fleet.controls[0].restart().await;
    eventually("the first table", PATIENCE, async || (gateway.infer("acme").await.status == 200).then_some(())).await;
    assert_eq!(gateway.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn while_the_store_is_down_traffic_goes_on_and_changes_are_refused() {
    let mut fleet = Roles::start(Shape { controls: 1, gateways: 1, load: "50ms" }).await;
    let desk = fleet.desk().await;
    fleet.wait_pin("1").await;
    fleet.postgres.kill9();
    eventually("the control plane to say that its store is down", PATIENCE, async || {
        let told = fleet.controls[0].ready().await;
        (told["ready"] == false && told["store"]["up"] == false).then_some(())
    })
    .await;
    let gateway = &fleet.gateways[0];
    always("traffic goes on", WHILE, async || {
        let answer = gateway.infer("acme").await;
        answer.status == 200 && answer.header("x-holdfast-version") == "1"
    })
    .await;
    eventually("the gateway to say that nobody vouches for its table", PATIENCE, async || {
        let told = gateway.ready().await;
        let why = told["stale_why"].as_str().unwrap_or_default().to_owned();
        (told["stale"] == true && why.contains("does not know whether it leads")).then_some(())
    })
    .await;
    let told = fleet.controls[0].ready().await;
    assert_eq!(told["gateways"].as_array().map(Vec::len), Some(1), "the link is kept: {told}");
    let refused = desk.change(fleet_of::pin_ask("2")).await.unwrap_err();
    assert!(refused.to_string().contains("the store cannot be reached"), "{refused}");

    // A control plane that is started meanwhile waits.
    fleet.controls[0].proc.kill9();
    fleet.controls[0].start_again();
    eventually("it to live and wait", PATIENCE, async || {
        let told = fleet.controls[0].try_ready().await?;
        (told["ready"] == false).then_some(())
    })
    .await;
    eventually("it to say what it waits for", PATIENCE, async || {
        fleet.controls[0].proc.output().contains("waits for the store").then_some(())
    })
    .await;
    fleet.postgres.restart().await;
    fleet.controls[0].wait_ready().await;
    let desk = fleet.desk().await;
    fleet.pin(&desk, "2").await;
    fleet.wait_pin("2").await;
}

#[tokio::test]
async fn a_control_plane_whose_store_went_back_takes_nothing_from_a_gateway() {
    let mut fleet = Roles::start(Shape { controls: 1, gateways: 1, load: "50ms" }).await;
    let desk = fleet.desk().await;
    fleet.pin(&desk, "2").await;
    fleet.wait_pin("2").await;
    let revision = fleet.gateways[0].revision().await;
    fleet.controls[0].proc.kill9();
    // The store is lost, and begins anew from the file, which pins version 1.
    drop(desk);
    let _ = fleet.postgres.sql("drop schema holdfast cascade");
    fleet.controls[0].start_again();
    fleet.controls[0].wait_ready().await;
    let gateway = &fleet.gateways[0];
    eventually("the older table to be refused", PATIENCE, async || {
        let told = gateway.ready().await;
        let why = told["stale_why"].as_str().unwrap_or_default().to_owned();
        why.contains("older than what is held").then_some(())
    })
    .await;
    let answer = gateway.infer("acme").await;
    assert_eq!((answer.status.as_u16(), answer.header("x-holdfast-version")), (200, "2"));
    assert_eq!(gateway.revision().await, revision);
}

#[tokio::test]
async fn a_stopped_leader_hands_over_in_order() {
    let mut fleet = Roles::start(Shape { controls: 2, gateways: 1, load: "50ms" }).await;
    fleet.wait_pin("1").await;
    let leader = fleet.leader().await;
    // Who follows hears no gateways, and says so instead of listing none.
    let refused = eventually("the other one to follow", PATIENCE, async || {
        fleet.controls[1 - leader].try_get("/v1/nodes").await.filter(|told| told.status == 503)
    })
    .await;
    assert_eq!(refused.json()["code"], "follows", "{refused:?}");
    assert_eq!(fleet.controls[leader].get("/v1/nodes").await.json()["items"][0]["gateway"], "g1");
    fleet.controls[leader].proc.sigterm();
    let ended = fleet.controls[leader].proc.wait_exit(PATIENCE).await;
    assert!(ended.success(), "{}", fleet.controls[leader].proc.output());
    eventually("the other one to lead and to have the gateway", PATIENCE, async || {
        let told = fleet.controls[1 - leader].ready().await;
        (told["leads"] == true && told["gateways"][0]["leased"] == true).then_some(())
    })
    .await;
    assert_eq!(fleet.gateways[0].infer("acme").await.status, 200);
}

#[tokio::test]
async fn a_gateway_with_another_secret_is_refused() {
    let fleet = Roles::start(Shape { controls: 1, gateways: 0, load: "50ms" }).await;
    let gateway = fleet.gateway_with("stranger", "not-the-secret-of-this-fleet").await;
    eventually("the refusal", PATIENCE, async || {
        let told = gateway.ready().await;
        let why = told["stale_why"].as_str().unwrap_or_default().to_owned();
        why.contains("the shared secret is not the right one").then_some(())
    })
    .await;
    assert_eq!(gateway.infer("acme").await.status, 503);
    assert_eq!(fleet.controls[0].ready().await["gateways"], json!([]));
    assert!(!gateway.proc.output().contains("not-the-secret-of-this-fleet"));
}
