//! The link over real sockets: tables, deltas, deletions, refusals, servers that go and come.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;

use holdfast_config::ResourceKind::{Pin, Tenant, Version};
use holdfast_decide::rollout::Artifact;
use holdfast_plane::{Orders, View, Want};
use holdfast_testkit::eventually;
use holdfast_testkit::wait::always;
use holdfast_types::{ModelName, PoolName, ReplicaName, Revision};
use holdfast_wire::auth::Secret;
use holdfast_wire::follower::{Follower, Freshness};
use holdfast_wire::server::{ServerSettings, serve};
use support::*;

fn orders() -> Orders {
    let artifact = Artifact {
        pool: PoolName::parse("cpu").unwrap(),
        model: ModelName::parse("screen").unwrap(),
        version: holdfast_types::Version::parse("2").unwrap(),
    };
    let want = Want { replica: ReplicaName::parse("r1").unwrap(), artifact, place: 3 };
    Orders { wants: Arc::new([want]), ..Orders::default() }
}

#[tokio::test]
async fn first_the_whole_table_then_what_changes_and_the_status_comes_back() {
    let first = table(7, pins(&[("acme/screen", "1"), ("beta/screen", "1")]));
    let truth = Truth::new(first.clone());
    let server = Server::start(&truth);
    let gateway = Gateway::start(follower_settings(vec![server.url()]));
    gateway.has(&first).await;
    // A change, a deletion and an addition in one.
    let edits = [
        edit(Pin, "acme/screen", Some(json!("2"))),
        edit(Pin, "beta/screen", None),
        edit(Tenant, "c", Some(json!({}))),
    ];
    let second = edited(&first, edits);
    let told = Instant::now();
    truth.change(|view| (view.table, view.orders) = (second.clone(), Arc::new(orders())));
    gateway.has(&second).await;
    println!("a change was in force after {:?}", told.elapsed());
    assert_eq!(*gateway.view().orders, orders(), "the orders come with their table");
    eventually("the status", SOON, async || {
        truth.status("g1").filter(|status| status.in_force == Revision(8) && status.oldest == Revision(8))
    })
    .await;
    truth.order(Orders::default());
    eventually("orders alone", SOON, async || (*gateway.view().orders == Orders::default()).then_some(())).await;
    let fresh = gateway.follower.freshness();
    assert_eq!(*fresh.borrow(), Freshness::Current { control: server.url().into() });
}

#[tokio::test]
async fn a_deletion_while_the_link_is_down_is_not_missed() {
    let first = table(1, pins(&[("a/m", "1"), ("b/m", "1"), ("c/m", "1")]));
    let truth = Truth::new(first.clone());
    let server = Server::start(&truth);
    let gateway = Gateway::start(follower_settings(vec![server.url()]));
    gateway.has(&first).await;
    let addr = server.kill();
    let fresh = gateway.follower.freshness();
    eventually("doubt", SOON, async || fresh.borrow().is_stale().then_some(())).await;
    assert_eq!(gateway.view().table.revision, Revision(1), "what the gateway has is not taken from it");
    let second = edited(&first, [edit(Pin, "b/m", None)]);
    let third = edited(&second, [edit(Pin, "c/m", None), edit(Pin, "d/m", Some(json!("1")))]);
    truth.tell(second);
    truth.tell(third.clone());
    // The new process remembers no table of the past: the whole one is sent.
    let server = Server::with(&truth, server_settings(), addr);
    gateway.has(&third).await;
    eventually("confirmation", SOON, async || (!fresh.borrow().is_stale()).then_some(())).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_older_revision_is_refused_until_there_is_a_later_one() {
    let (old, new) = (table(4, pins(&[("a/m", "old")])), table(9, pins(&[("a/m", "new")])));
    let truth = Truth::new(new.clone());
    let server = Server::start(&truth);
    let gateway = Gateway::start(follower_settings(vec![server.url()]));
    gateway.has(&new).await;
    // As of a control plane whose store was put back.
    truth.change(|view| (view.table, view.orders) = (old.clone(), Arc::new(orders())));
    let fresh = gateway.follower.freshness();
    eventually("doubt", SOON, async || {
        matches!(&*fresh.borrow(), Freshness::Stale { why, .. } if why.contains("older")).then_some(())
    })
    .await;
    let addr = server.kill();
    let server = Server::with(&truth, server_settings(), addr);
    let still = Duration::from_millis(600);
    always("the newer table stays", still, async || {
        let view = gateway.view();
        view.table.revision == Revision(9) && *view.orders == Orders::default()
    })
    .await;
    let later = table(10, pins(&[("a/m", "old")]));
    truth.tell(later.clone());
    gateway.has(&later).await;
    assert_eq!(*gateway.view().orders, orders());
    drop(server);
}

#[tokio::test]
async fn another_content_under_the_same_revision_is_refused() {
    let first = table(4, pins(&[("a/m", "1")]));
    let truth = Truth::new(first.clone());
    let server = Server::start(&truth);
    let gateway = Gateway::start(follower_settings(vec![server.url()]));
    gateway.has(&first).await;
    truth.tell(table(4, pins(&[("a/m", "2")])));
    let fresh = gateway.follower.freshness();
    eventually("doubt", SOON, async || {
        matches!(&*fresh.borrow(), Freshness::Stale { why, .. } if why.contains("another content")).then_some(())
    })
    .await;
    assert_eq!(gateway.view().table.entries, first.entries);
}

#[tokio::test]
async fn the_next_control_plane_is_taken_when_one_dies() {
    let first = table(1, pins(&[("a/m", "1")]));
    let truth = Truth::new(first.clone());
    let (one, two) = (Server::start(&truth), Server::start(&truth));
    let gateway = Gateway::start(follower_settings(vec![one.url(), two.url()]));
    gateway.has(&first).await;
    one.kill();
    let second = edited(&first, [edit(Version, "m/2", Some(json!({"digest": "x"})))]);
    truth.tell(second.clone());
    gateway.has(&second).await;
    eventually("the second one", SOON, async || {
        (*gateway.follower.freshness().borrow() == Freshness::Current { control: two.url().into() }).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_control_plane_that_lags_behind_keeps_no_gateway() {
    let tables = [9, 4, 10].map(|revision| table(revision, pins(&[("a/m", &format!("v{revision}"))])));
    let truths = tables.clone().map(Truth::new);
    let [one, two, three] = truths.each_ref().map(Server::start);
    let mut settings = follower_settings([&one, &two, &three].map(Server::url).to_vec());
    settings.poll = Duration::from_millis(300);
    let gateway = Gateway::start(settings);
    gateway.has(&tables[0]).await;
    one.kill();
    gateway.has(&tables[2]).await;
}

#[tokio::test]
async fn a_wrong_secret_gets_nothing_and_the_right_one_is_not_shown() {
    let truth = Truth::new(table(1, pins(&[("a/m", "1")])));
    let server = Server::start(&truth);
    for secret in [None, Some(Secret::new("a-secret-that-nobody-knows").unwrap())] {
        let settings = follower_settings(vec![server.url()]);
        let gateway = Gateway::start(holdfast_wire::follower::FollowerSettings { secret, ..settings });
        let fresh = gateway.follower.freshness();
        eventually("the refusal", SOON, async || {
            matches!(&*fresh.borrow(), Freshness::Stale { why, .. } if why.contains("secret")).then_some(())
        })
        .await;
        assert_eq!(gateway.view().table.revision, Revision(0));
        assert!(truth.status("g1").is_none());
    }
    assert!(!format!("{:?}", follower_settings(vec![])).contains(SECRET));
}

#[tokio::test]
async fn nobody_is_served_without_any_secret_unless_it_is_said() {
    let bind = || tokio::net::TcpListener::bind("127.0.0.1:0");
    let truth = Truth::new(table(1, pins(&[])));
    let refused = serve(bind().await.unwrap(), ServerSettings::default(), truth.clone(), std::future::pending()).await;
    assert!(matches!(refused, Err(holdfast_wire::WireError::Open)));
    let open = ServerSettings { open: true, ..ServerSettings::default() };
    serve(bind().await.unwrap(), open, truth, std::future::ready(())).await.unwrap();
    for (urls, what) in
        [(vec![], "no control plane"), (vec!["host:1"], "does not begin"), (vec!["https://h"], "who signs")]
    {
        let urls = urls.into_iter().map(str::to_owned).collect();
        let error = Follower::start(follower_settings(urls), None).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[tokio::test]
async fn a_link_that_brings_nothing_is_healed_by_comparing() {
    let first = table(1, pins(&[("a/m", "1")]));
    let truth = Truth::new(first.clone());
    truth.deaf.lock().unwrap().insert(name("g1"));
    let server = Server::start(&truth);
    let mut settings = follower_settings(vec![server.url()]);
    settings.poll = Duration::from_millis(300);
    let gateway = Gateway::start(settings);
    gateway.has(&first).await;
    let second = edited(&first, [edit(Pin, "a/m", None), edit(Pin, "b/m", Some(json!("2")))]);
    truth.tell(second.clone());
    gateway.has(&second).await;
    // The link is given up as broken; once push works again, it is push that brings the next.
    truth.deaf.lock().unwrap().clear();
    eventually("a link that is told", SOON, async || truth.status("g1")).await;
    let third = edited(&second, [edit(Pin, "c/m", Some(json!("3")))]);
    truth.tell(third.clone());
    gateway.has(&third).await;
}

#[tokio::test]
async fn a_hundred_thousand_tenants_come_over() {
    let tenants = (0..100_000).map(|n| {
        let value = json!({"pool": "cpu", "subset": 2, "weight": n % 7, "note": "a tenant of the usual size"});
        ((Tenant, Arc::from(format!("tenant-{n}"))), Arc::new(value))
    });
    let first = table(1, tenants.collect());
    let truth = Truth::new(first.clone());
    let server = Server::start(&truth);
    let started = Instant::now();
    let gateway = Gateway::start(follower_settings(vec![server.url()]));
    gateway.has(&first).await;
    println!("100,000 tenants, whole: {:?}", started.elapsed());
    let second = edited(&first, [edit(Tenant, "tenant-5", None)]);
    let started = Instant::now();
    truth.tell(second.clone());
    gateway.has(&second).await;
    println!("100,000 tenants, a delta of one: {:?} (with a comparison of all)", started.elapsed());
}

#[tokio::test]
async fn orders_that_come_before_the_table_is_known_to_be_the_same_are_taken_once_it_is() {
    let first = table(3, pins(&[("a/m", "1")]));
    let truth = Truth::new(first.clone());
    let one = Server::start(&truth);
    // The second one tells a gateway nothing before it has written it down, as one with leases does.
    let late = Truth::new(Arc::default());
    let two = Server::start(&late);
    let mut settings = follower_settings(vec![one.url(), two.url()]);
    settings.poll = Duration::from_millis(50);
    let gateway = Gateway::start(settings);
    gateway.has(&first).await;
    one.kill();
    eventually("the gateway at the second one", SOON, async || late.status("g1")).await;
    for round in 0..20 {
        let told = if round % 2 == 0 { orders() } else { Orders::default() };
        late.change(|view| *view = View { table: first.clone(), orders: Arc::new(told.clone()), ..View::default() });
        eventually("the orders", Duration::from_millis(700), async || (*gateway.view().orders == told).then_some(()))
            .await;
        late.change(|view| *view = View::default());
        // A comparison that falls between takes the agreement back.
        late.compared().await;
    }
}

#[tokio::test]
async fn a_gateway_that_leaves_in_order_says_so_and_one_that_dies_does_not() {
    let first = table(3, pins(&[("a/m", "1")]));
    let truth = Truth::new(first.clone());
    let server = Server::start(&truth);
    let gateway = Gateway::start(follower_settings(vec![server.url()]));
    gateway.has(&first).await;
    eventually("the status", SOON, async || truth.status("g1")).await;
    assert!(!truth.has_left("g1"));
    let goodbye = gateway.follower.goodbye();
    // As a process does it: what the gateway held is dropped, or it is not.
    goodbye.say(SOON).await;
    assert!(truth.has_left("g1"), "it is taken note of by the time that the word is said");
    drop(gateway);

    let gateway = Gateway::start(follower_settings(vec![server.url()]));
    gateway.has(&first).await;
    let Gateway { follower, end } = gateway;
    let goodbye = follower.goodbye();
    drop(end);
    goodbye.say(SOON).await;
    assert!(truth.has_left("g1"), "also if its end is dropped first");

    let gateway = Gateway::start(follower_settings(vec![server.url()]));
    gateway.has(&first).await;
    eventually("the status", SOON, async || truth.status("g1")).await;
    drop(gateway);
    eventually("the end of the link", SOON, async || truth.status("g1").is_none().then_some(())).await;
    assert!(!truth.has_left("g1"));

    // Without a control plane there is nobody to be told, and nothing to be waited for.
    let addr = server.kill();
    let gateway = Gateway::start(follower_settings(vec![format!("http://{addr}")]));
    gateway.follower.goodbye().say(SOON).await;
}
