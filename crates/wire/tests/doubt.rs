//! A control plane that cannot vouch for its table: the gateway says so, keeps the link, and moves once another one leads.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail loudly")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use holdfast_testkit::eventually;
use holdfast_testkit::wait::always;
use holdfast_wire::follower::{FollowerSettings, Freshness};
use holdfast_wire::server::ServerSettings;
use support::*;

const DOUBT: &str = "its store gives no answer";
/// Many polls of the gateway.
const WHILE: Duration = Duration::from_millis(600);

fn server(truth: &Arc<Truth>) -> Server {
    let settings = ServerSettings { keep_alive: Duration::from_millis(50), ..server_settings() };
    Server::with(truth, settings, "127.0.0.1:0".parse().unwrap())
}

fn gateway(servers: &[&Server]) -> Gateway {
    let urls = servers.iter().map(|server| server.url()).collect();
    Gateway::start(FollowerSettings { poll: Duration::from_millis(100), ..follower_settings(urls) })
}

async fn is_current(gateway: &Gateway, server: &Server) {
    let (fresh, url) = (gateway.follower.freshness(), server.url());
    eventually("a table that is current", SOON, async || {
        let is = matches!(&*fresh.borrow(), Freshness::Current { control } if **control == *url);
        is.then_some(())
    })
    .await;
}

async fn is_doubted(gateway: &Gateway) {
    let fresh = gateway.follower.freshness();
    eventually("a table that is in doubt", SOON, async || {
        let is = matches!(&*fresh.borrow(), Freshness::Stale { why, .. } if **why == *DOUBT);
        is.then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_doubt_is_told_over_the_link_and_so_is_its_end() {
    let truth = Truth::new(table(1, pins(&[("a/m", "1")])));
    let server = server(&truth);
    let gateway = gateway(&[&server]);
    gateway.has(&truth.view().table).await;
    is_current(&gateway, &server).await;
    *truth.doubts.lock().unwrap() = Some(DOUBT);
    is_doubted(&gateway).await;
    // What is told is taken all the same: it is the latest that is known. But it is no more current for that.
    truth.tell(edited(&truth.view().table, [edit(holdfast_config::ResourceKind::Pin, "a/m", Some("2".into()))]));
    gateway.has(&truth.view().table).await;
    let fresh = gateway.follower.freshness();
    always("in doubt", WHILE, async || fresh.borrow().is_stale()).await;
    assert!(truth.status("g1").is_some(), "the link is kept");
    *truth.doubts.lock().unwrap() = None;
    is_current(&gateway, &server).await;
}

#[tokio::test]
async fn the_link_is_kept_until_another_one_leads() {
    let first = table(1, pins(&[("a/m", "1")]));
    let (cut_off, other) = (Truth::new(first.clone()), Truth::new(first.clone()));
    *other.refuses.lock().unwrap() = Some("another control plane leads");
    let (one, two) = (server(&cut_off), server(&other));
    let gateway = gateway(&[&one, &two]);
    gateway.has(&first).await;
    is_current(&gateway, &one).await;
    *cut_off.doubts.lock().unwrap() = Some(DOUBT);
    is_doubted(&gateway).await;
    let stays = async || cut_off.status("g1").is_some() && other.status("g1").is_none();
    always("the link stays while nobody leads", WHILE, stays).await;
    // One that does not know either is no better.
    (*other.refuses.lock().unwrap(), *other.doubts.lock().unwrap()) = (None, Some(DOUBT));
    always("the link stays while nobody knows that he leads", WHILE, stays).await;

    other.tell(edited(&first, [edit(holdfast_config::ResourceKind::Pin, "a/m", Some("2".into()))]));
    *other.doubts.lock().unwrap() = None;
    is_current(&gateway, &two).await;
    gateway.has(&other.view().table).await;
    eventually("the old link to end", SOON, async || cut_off.status("g1").is_none().then_some(())).await;
    let moved = gateway.follower.freshness();
    always("it stays there", WHILE, async || matches!(&*moved.borrow(), Freshness::Current { .. })).await;
}
