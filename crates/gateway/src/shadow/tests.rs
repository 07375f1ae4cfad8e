//! Copies over real connections.

mod world;

use std::time::Duration;

use serde_json::json;

use holdfast_config::ResourceKind;
use holdfast_testkit::raw::RawClient;
use holdfast_testkit::stub::StubRequest;
use holdfast_testkit::{Metrics, Script, Step, eventually};
use holdfast_types::Revision;

use super::*;
use world::{INFER, LONG, World, agreeing, is_copy, other, scored};

#[tokio::test]
async fn answers_that_agree_and_answers_that_differ_are_counted() {
    let world = World::new("", "").await;
    for _ in 0..3 {
        world.ask("acme").await;
    }
    world.comes_to([3, 0, 0, 0, 0]).await;
    world.says(other(|| Script::json(200, &scored("v2", 0.6))));
    let id = world.ask("acme").await;
    world.comes_to([3, 1, 0, 0, 0]).await;
    world.says(other(|| Script::json(500, &json!({ "error": "no" }))));
    world.ask("acme").await;
    world.comes_to([3, 2, 0, 0, 0]).await;
    let differences = world.report().differences;
    let value = Difference {
        kind: Kind::Value,
        output: Some("score".to_owned()),
        datatype: Some("FP32"),
        index: Some(0),
        magnitude: Some(Magnitude::Large),
    };
    assert_eq!(differences[0], Noted { request: id, difference: value });
    assert_eq!((differences.len(), differences[1].difference.kind), (2, Kind::Status(500)));
    // The copy is the request, marked, and for the other version.
    let requests = world.stub.requests();
    let copy = requests.iter().find(|request| is_copy(request)).unwrap();
    assert_eq!((copy.path.as_str(), copy.header("x-holdfast-tenant")), ("/v2/models/screen-v2/infer", "acme"));
    assert_eq!(copy.body, json!({ "inputs": [] }).to_string().as_bytes());
    assert!(requests.iter().all(|r| is_copy(r) == r.path.contains("screen-v2/infer")), "live requests are not marked");
}

#[tokio::test]
async fn only_what_the_pin_sends_to_the_old_version_is_copied() {
    let world = World::new("", "").await;
    let named = |version| format!("/v2/models/screen/versions/{version}/infer");
    let forged = [("x-tenant", "acme"), ("x-holdfast-shadow", "1")];
    for version in ["v1", "v2"] {
        drop(world.client.post(&named(version), &forged, &json!({ "inputs": [] })).await.expect(200));
    }
    drop(world.client.get("/v2/models/screen", &forged).await.expect(200));
    world.ask("globex").await;
    world.ask("acme").await;
    world.comes_to([1, 0, 0, 0, 0]).await;
    assert_eq!(world.copies(), 1, "the mark cannot be forged either");
}

#[tokio::test]
async fn a_share_is_copied_by_the_clients_own_ids() {
    let world = World::new("", "").await;
    world.order(300);
    let is_ordered = || world.shadows().plan.load().values().all(|order| order.share == 300).then_some(());
    eventually("the share", LONG, async || is_ordered()).await;
    let mut chosen = 0;
    for n in 0..60 {
        let id = format!("order-{}", n / 2);
        let fields = [("x-tenant", "acme"), ("x-request-id", id.as_str())];
        drop(world.client.post(INFER, &fields, &json!({ "inputs": [] })).await.expect(200));
        chosen += u64::from(is_shadowed("acme", "screen", id.as_bytes(), 300));
    }
    assert!(chosen > 0 && chosen < 60 && chosen.is_multiple_of(2), "{chosen}");
    world.comes_to([chosen, 0, 0, 0, 0]).await;
}

#[tokio::test]
async fn copies_that_hang_delay_nobody_and_end_at_their_deadline() {
    let world = World::new("", "timeouts: { request: 3s }").await;
    world.says(other(Script::never));
    for _ in 0..8 {
        world.ask("acme").await;
    }
    // All clients have their answers, and no copy has come to an end by an answer.
    assert_eq!(world.outcomes()[..3], [0, 0, 0]);
    // Four are at the replica until their deadline; the others find no place there in time.
    world.comes_to([0, 0, 4, 4, 0]).await;
    assert_eq!(world.copies(), 4);
    assert!(world.report().differences.iter().all(|noted| noted.difference.kind == Kind::NoAnswer));
    world.says(agreeing);
    world.ask("acme").await;
    world.comes_to([1, 0, 4, 4, 0]).await;
}

#[tokio::test]
async fn a_server_that_dies_under_a_copy_has_failed_and_is_not_asked_again() {
    let world = World::new("", "").await;
    world.says(other(|| Script::json(200, &scored("v2", 0.5)).cut_at(60, Step::Reset)));
    world.ask("acme").await;
    world.comes_to([0, 0, 1, 0, 0]).await;
    world.says(other(Script::close));
    world.ask("acme").await;
    world.comes_to([0, 0, 2, 0, 0]).await;
    assert_eq!(world.copies(), 2, "each was sent once");
    // Not even the health of the replica is touched by it.
    let pool = world.gateway.driver.fleet.pools().pop().unwrap();
    assert!(pool.replicas[0].usable() && pool.replicas[0].in_service());
}

#[tokio::test]
async fn what_finds_no_room_is_dropped_and_counted() {
    let world = World::new("", "timeouts: { request: 3s }").await;
    world.says(other(Script::never));
    let many = (QUEUE + RUNNING + 100) as u64;
    for _ in 0..many {
        world.ask("acme").await;
    }
    world.comes_to([0, 0, 4, many - 4, 0]).await;
}

#[tokio::test]
async fn a_full_room_and_a_full_queue_drop_at_once() {
    let world = World::new("", "").await;
    let all = world.shadows().room.take(ROOM - 10).unwrap();
    world.ask("acme").await;
    eventually("the drop", LONG, async || (world.outcomes() == [0, 0, 0, 1, 0]).then_some(())).await;
    drop(all);
    let queue = world.shadows().queue.get().unwrap().clone();
    let places = queue.try_reserve_many(QUEUE).unwrap();
    world.ask("acme").await;
    eventually("the drop", LONG, async || (world.outcomes() == [0, 0, 0, 2, 0]).then_some(())).await;
    drop(places);
    world.ask("acme").await;
    world.comes_to([1, 0, 0, 2, 0]).await;
}

#[tokio::test]
async fn a_withdrawn_order_ends_copies_at_once_and_its_totals_go_on() {
    let world = World::new("", "").await;
    world.ask("acme").await;
    world.comes_to([1, 0, 0, 0, 0]).await;
    world.says(other(Script::never));
    world.ask("acme").await;
    eventually("the copy to be under way", LONG, async || (world.copies() == 2).then_some(())).await;
    assert_eq!(world.gateway.driver.fleet.in_flight(), 1, "it is counted where it is");
    world.reorder(0).await;
    eventually("the copy to end", LONG, async || (world.outcomes() == [1, 0, 0, 1, 0]).then_some(())).await;
    eventually("no totals", LONG, async || world.control.status.borrow().shadowed.is_empty().then_some(())).await;
    eventually("nothing in flight", LONG, async || (world.gateway.driver.fleet.in_flight() == 0).then_some(())).await;
    world.ask("acme").await;
    assert_eq!((world.copies(), world.outcomes()), (2, [1, 0, 0, 1, 0]));
    world.says(agreeing);
    world.reorder(1000).await;
    world.ask("acme").await;
    world.comes_to([2, 0, 0, 1, 0]).await;
}

#[tokio::test]
async fn a_copy_answered_for_another_version_differs_and_raises_the_alarm() {
    let world = World::new("", "").await;
    world.says(other(|| Script::json(200, &scored("v3", 0.5))));
    world.ask("acme").await;
    world.comes_to([0, 1, 0, 0, 0]).await;
    assert_eq!(world.report().differences[0].difference.kind, Kind::WrongVersion);
    let mut text = String::new();
    world.gateway.metrics.render(&mut text);
    assert_eq!(Metrics::parse(&text).unwrap().sum("holdfast_wrong_version_total", &[]), 1.0);
    // It is quarantined there: the next copy has nowhere to go, and the pinned version goes on.
    world.ask("acme").await;
    world.comes_to([0, 1, 0, 1, 0]).await;
    assert_eq!(world.copies(), 1);
}

#[tokio::test]
async fn a_version_that_is_gone_is_not_blamed() {
    let world = World::new("", "").await;
    world.says(other(|| Script::json(404, &json!({ "error": "Model screen-v2 not found" }))));
    world.ask("acme").await;
    world.comes_to([0, 0, 0, 1, 0]).await;
}

#[tokio::test]
async fn a_replica_that_live_traffic_needs_gets_no_copies() {
    // Half of two places is one.
    let world = World::new(", concurrency: 2", "").await;
    world.ask("acme").await;
    world.comes_to([1, 0, 0, 0, 0]).await;
    let (tell, told) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let holds = tell.clone();
    let seen = told.clone();
    world.says(move |version, request| {
        if request.header("x-holdfast-tenant") == "globex" && holds.swap(false, Relaxed) {
            seen.store(true, Relaxed);
            return Script::never();
        }
        agreeing(version, request)
    });
    let mut held = RawClient::connect(world.address).await;
    held.write(format!("POST {INFER} HTTP/1.1\r\nhost: h\r\nx-tenant: globex\r\ncontent-length: 2\r\n\r\n{{}}")).await;
    eventually("a request in flight", LONG, async || told.load(Relaxed).then_some(())).await;
    world.ask("acme").await;
    eventually("the drop", LONG, async || (world.outcomes() == [1, 0, 0, 1, 0]).then_some(())).await;
    held.reset();
    eventually("its end", LONG, async || (world.gateway.driver.fleet.in_flight() == 0).then_some(())).await;
    world.ask("acme").await;
    world.comes_to([2, 0, 0, 1, 0]).await;
}

#[tokio::test]
async fn a_copy_takes_no_place_of_a_request() {
    let world = World::new(", concurrency: 2", "").await;
    world.says(other(Script::never));
    world.ask("acme").await;
    eventually("the copy to be under way", LONG, async || (world.copies() == 1).then_some(())).await;
    // With the copy there, two requests at once are as many as without it.
    world.says(|version, request| agreeing(version, request).after(Duration::from_millis(50)));
    let (first, second) = tokio::join!(world.ask("globex"), world.ask("globex"));
    assert_ne!(first, second);
    world.reorder(0).await;
    eventually("the copy to end", LONG, async || (world.outcomes() == [0, 0, 0, 1, 0]).then_some(())).await;
}

#[tokio::test]
async fn long_answers_are_compared_as_they_pass_and_too_long_ones_are_not() {
    let world = World::new("", "").await;
    let long = |version: &str, values: usize| {
        let data = json!(vec![0.25; values]);
        let mut answer = scored(version, 0.5);
        answer["outputs"][0]["data"] = data;
        answer.to_string()
    };
    let ask = async || {
        drop(world.client.post(INFER, &[("x-tenant", "acme")], &json!({ "inputs": [] })).await.expect(200));
    };
    // Over `answer_head`, in chunks: it streams through.
    world.says(move |version, _| {
        let text = long(version, 2_000);
        let (head, tail) = text.split_at(text.len() / 2);
        let script = Script::raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        let chunk = |part: &str| format!("{:x}\r\n{part}\r\n", part.len());
        script.then_send(chunk(head)).then_send(chunk(tail)).then_send("0\r\n\r\n")
    });
    ask().await;
    world.comes_to([1, 0, 0, 0, 0]).await;
    world.says(move |version, _| {
        Script::with_headers(200, &[], long(version, 2_000 + usize::from(version == "v2")).as_bytes())
    });
    ask().await;
    world.comes_to([1, 1, 0, 0, 0]).await;
    assert_eq!(world.report().differences[0].difference.kind, Kind::Length);
    let copies = world.copies();
    world.says(move |version, _| Script::with_headers(200, &[], long(version, 300_000).as_bytes()));
    ask().await;
    world.comes_to([1, 1, 0, 0, 1]).await;
    assert_eq!(world.copies(), copies, "nobody is asked what will not be compared");
    world.says(move |version, _| {
        Script::with_headers(200, &[], long(version, if version == "v1" { 1 } else { 300_000 }).as_bytes())
    });
    ask().await;
    world.comes_to([1, 1, 0, 0, 2]).await;
}

#[tokio::test]
async fn what_streams_fails_or_is_left_is_not_compared() {
    let world = World::new("", "").await;
    // Over `limits.buffer`.
    let large = json!({ "inputs": ["x".repeat(5_000)] });
    drop(world.client.post(INFER, &[("x-tenant", "acme")], &large).await.expect(200));
    world.comes_to([0, 0, 0, 0, 1]).await;
    world.says(|_, _| Script::json(422, &json!({ "error": "no" })));
    drop(world.client.post(INFER, &[("x-tenant", "acme")], &json!({})).await.expect(422));
    world.comes_to([0, 0, 0, 0, 2]).await;
    world.says(|_, _| Script::never());
    let mut leaving = RawClient::connect(world.address).await;
    leaving.write(format!("POST {INFER} HTTP/1.1\r\nhost: h\r\nx-tenant: acme\r\ncontent-length: 2\r\n\r\n{{}}")).await;
    eventually("it to be asked", LONG, async || (world.gateway.driver.fleet.in_flight() == 1).then_some(())).await;
    leaving.reset();
    world.comes_to([0, 0, 0, 0, 3]).await;
    assert_eq!(world.copies(), 0);
}

#[tokio::test]
async fn totals_survive_another_table_and_a_flip_ends_the_copying() {
    let world = World::new("", "").await;
    world.ask("acme").await;
    world.comes_to([1, 0, 0, 0, 0]).await;
    world.edit(Revision(2), ResourceKind::Tenant, "later", json!({ "name": "later", "subset": 1 })).await;
    world.ask("acme").await;
    world.comes_to([2, 0, 0, 0, 0]).await;
    world.edit(Revision(3), ResourceKind::Pin, "acme/screen", json!("v2")).await;
    let answer = world.client.post(INFER, &[("x-tenant", "acme")], &json!({ "inputs": [] })).await.expect(200);
    assert_eq!((answer.header("x-holdfast-version"), answer.header("x-holdfast-revision")), ("v2", "3"));
    world.comes_to([2, 0, 0, 0, 0]).await;
    assert_eq!(world.copies(), 2, "what the new version answered is not copied to it");
}

#[tokio::test]
async fn an_order_for_what_the_table_does_not_have_copies_nothing() {
    let world = World::new("", "").await;
    world.order_for("v9", 1000);
    eventually("the order", LONG, async || (!world.shadows().any()).then_some(())).await;
    world.ask("acme").await;
    world.comes_to([0; 5]).await;
}

#[tokio::test]
async fn a_kept_connection_that_ends_says_nothing_of_the_version() {
    let world = World::new("", "").await;
    world.ask("acme").await;
    world.comes_to([1, 0, 0, 0, 0]).await;
    // The second copy goes over the connection of the first, which ends instead of an answer.
    world.says(other(Script::close));
    world.ask("acme").await;
    world.comes_to([1, 0, 0, 1, 0]).await;
    let copies: Vec<StubRequest> = world.stub.requests().into_iter().filter(is_copy).collect();
    assert_eq!(copies.len(), 2);
    assert_eq!(copies[0].connection, copies[1].connection);
}

#[tokio::test]
async fn differences_are_kept_up_to_a_bound_and_past_totals_too() {
    let world = World::new("", "").await;
    world.says(other(|| Script::json(200, &scored("v2", 0.7))));
    let mut ids = Vec::new();
    for n in 1..=20 {
        ids.push(world.ask("acme").await);
        world.comes_to([0, n, 0, 0, 0]).await;
    }
    let noted: Vec<String> = world.report().differences.into_iter().map(|noted| noted.request).collect();
    assert_eq!(noted, ids[..16]);
    for rollout in 100..100 + PAST as u64 + 1 {
        let (table, mut orders) =
            (world.gateway.tables.load().clone(), world.control.view.borrow().orders.shadow.to_vec());
        orders[0].rollout = RolloutId(rollout);
        world.shadows().follow(&table, &orders.into(), &world.gateway.metrics);
    }
    let state = world.shadows().state.lock();
    assert_eq!((state.past.len(), state.ordered.len()), (PAST, 1));
    assert!(state.past.iter().all(|course| course.rollout != world::ROLLOUT), "the oldest went first");
}
