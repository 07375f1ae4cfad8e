//! Limits in a Redis cluster and in a ring of plain nodes, all of them real: slots that move, nodes that die, and no call that is wrong because of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use holdfast_bank::access::Access;
use holdfast_bank::{Down, Limits, Options, Stores};
use holdfast_quota::lease::{Answer, Ask, Rules};
use holdfast_quota::limit::Limit;
use holdfast_testkit::{RedisCluster, RedisServer, eventually};

const PATIENCE: Duration = Duration::from_secs(60);
/// When a limit was first asked for: by then each is full.
const NOW: u64 = 4_000_000_000_000_000;

fn stores(urls: &[String]) -> Arc<Stores> {
    let options = Options {
        url: urls[0].clone(),
        access: Access::default(),
        namespace: "test".into(),
        within: Duration::from_secs(5),
        gateways: 1,
        seed: 3,
        keeps: "limits",
    };
    let stores = Stores::new(options, &urls[1..]).unwrap();
    tokio::spawn(stores.clone().run());
    stores
}

struct Asker {
    stores: Arc<Stores>,
    limits: Limits,
    order: u64,
}

impl Asker {
    async fn start(urls: &[String]) -> Self {
        let stores = stores(urls);
        eventually("connections", PATIENCE, async || stores.state().up.then_some(())).await;
        Self { stores, limits: Limits::new(Rules::default()), order: 0 }
    }

    async fn ask(&mut self, name: &str, slot: u64, want: u64) -> Result<Answer, Down> {
        self.order += 1;
        let ask = Ask {
            gateway: 3,
            order: self.order,
            want,
            whole: true,
            held: 0,
            offered: want,
            gateways: 1,
            returned: 0,
            alone: None,
        };
        let told = self.limits.ask(&self.stores, (name, slot), Limit::per_second(1_000, 1_000), ask, Some(NOW)).await?;
        Ok(told.expect("a newer order"))
    }
}

/// RL-04: three levels of a thousand tenants, and no CROSSSLOT, no MOVED, and nothing that is let pass instead.
#[tokio::test]
async fn a_cluster_counts_the_limits_of_a_thousand_tenants() {
    let cluster = RedisCluster::start(3).await;
    let mut asker = Asker::start(&[cluster.nodes[0].url()]).await;
    for tenant in 0..1_000u64 {
        for (at, level) in ["tenant", "model", "endpoint"].into_iter().enumerate() {
            let name = format!("{level}:t{tenant}:requests");
            // The first call of a node may hear that it has to connect to another one.
            let mut first = None;
            eventually("tokens", PATIENCE, async || {
                first = asker.ask(&name, tenant * 3 + at as u64, 600).await.ok();
                first.map(drop)
            })
            .await;
            assert_eq!(first.unwrap().tokens, 600, "{name}");
            assert_eq!(asker.ask(&name, tenant * 3 + at as u64, 600).await.unwrap().tokens, 400, "{name}");
        }
    }
    for node in &cluster.nodes {
        let keys: u64 = node.command(&["DBSIZE"]).trim_start_matches(':').parse().unwrap();
        assert!(keys > 500, "every node has its part: {keys}");
    }
    let state = asker.stores.state();
    assert!(state.up && state.gateways == 1 && state.connects >= 3, "{state:?}");
}

/// RS-06: a slot that moves is followed key by key, and what was used stays used.
#[tokio::test]
async fn a_slot_that_moves_is_followed() {
    let cluster = RedisCluster::start(3).await;
    let mut asker = Asker::start(&[cluster.nodes[0].url()]).await;
    let (name, slot) = ("tenant:acme:requests", 5);
    let keys = [format!("holdfast:test:{{{slot}}}:limit:{name}"), format!("holdfast:test:{{{slot}}}:born")];
    eventually("tokens", PATIENCE, async || asker.ask(name, slot, 100).await.ok()).await;
    let from = cluster.node_of(&keys[1]);
    let to = (from + 1) % 3;
    let (hash_slot, port) = (cluster.slot_of(&keys[0]), cluster.nodes[to].port().to_string());
    let says = |node: usize, words: &[&str]| cluster.nodes[node].command(words);
    assert_eq!(says(to, &["CLUSTER", "SETSLOT", &hash_slot, "IMPORTING", &cluster.id(from)]), "+OK");
    assert_eq!(says(from, &["CLUSTER", "SETSLOT", &hash_slot, "MIGRATING", &cluster.id(to)]), "+OK");
    assert_eq!(asker.ask(name, slot, 100).await.unwrap().tokens, 100, "its keys have not moved yet");
    let mut moves = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
    moves.extend(keys.iter().map(String::as_str));
    assert_eq!(says(from, &moves), "+OK");
    // ASK: the keys are there, the slot is not.
    let asked =
        eventually("the other node to be connected to", PATIENCE, async || asker.ask(name, slot, 100).await.ok()).await;
    let left = 1_000 - 300 - asked.there;
    assert!((asked.tokens, left) == (100, 0), "{asked:?}");
    for node in [to, from, (from + 2) % 3] {
        assert_eq!(says(node, &["CLUSTER", "SETSLOT", &hash_slot, "NODE", &cluster.id(to)]), "+OK");
    }
    // MOVED.
    assert_eq!(
        asker.ask(name, slot, 900).await.unwrap().tokens,
        700,
        "nothing was forgotten, and nothing was counted twice"
    );
}

#[tokio::test]
async fn a_node_that_dies_takes_its_slots_only_until_others_have_them() {
    let mut cluster = RedisCluster::start(3).await;
    let mut asker = Asker::start(&[cluster.nodes[0].url()]).await;
    let base = |slot: u64| format!("holdfast:test:{{{slot}}}:born");
    let mut places = Vec::new();
    for slot in 0..64 {
        eventually("tokens", PATIENCE, async || asker.ask("tenant:a:requests", slot, 10).await.ok()).await;
        places.push(cluster.node_of(&base(slot)));
    }
    cluster.nodes[2].proc.kill9();
    let lost: Vec<u64> = (0..64).filter(|slot| places[*slot as usize] == 2).collect();
    eventually("it to be missed", PATIENCE, async || (!asker.stores.state().up).then_some(())).await;
    for slot in 0..64 {
        let told = asker.ask("tenant:a:requests", slot, 10).await;
        assert_eq!(told.is_err(), lost.contains(&slot), "slot {slot}: {told:?}");
    }
    // Somebody gives its slots to the others: they are followed without a call that hears of it from the one that is gone.
    for slot in &lost {
        let hash_slot = cluster.slot_of(&base(*slot));
        for node in [0, 1] {
            let told = cluster.nodes[node].command(&["CLUSTER", "SETSLOT", &hash_slot, "NODE", &cluster.id(0)]);
            assert_eq!(told, "+OK");
        }
    }
    for slot in 0..64 {
        eventually("tokens", PATIENCE, async || asker.ask("tenant:a:requests", slot, 10).await.ok()).await;
    }
}

#[tokio::test]
async fn a_ring_of_plain_nodes_shares_the_slots() {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(RedisServer::start().await);
    }
    let urls: Vec<String> = nodes.iter().map(RedisServer::url).collect();
    let mut asker = Asker::start(&urls).await;
    let mut turned = Asker::start(&[urls[2].clone(), urls[0].clone(), urls[1].clone()]).await;
    for slot in 0..64 {
        let name = format!("tenant:t{slot}:requests");
        assert_eq!(asker.ask(&name, slot, 600).await.unwrap().tokens, 600);
        // Another gateway that names the nodes in another order; it is another process, so its orders are others.
        turned.order = asker.order;
        assert_eq!(turned.ask(&name, slot, 600).await.unwrap().tokens, 400, "it is the same limit");
    }
    let size = |node: &RedisServer| node.command(&["DBSIZE"]).trim_start_matches(':').parse::<u64>().unwrap();
    // Of each slot since when it is there, and of each limit what is used.
    assert!(nodes.iter().all(|node| size(node) > 64), "{:?}", nodes.iter().map(size).collect::<Vec<_>>());
    nodes[1].proc.kill9();
    eventually("it to be missed", PATIENCE, async || (!asker.stores.state().up).then_some(())).await;
    let mut served = 0;
    for slot in 0..64 {
        served += u32::from(asker.ask("tenant:b:requests", slot, 10).await.is_ok());
    }
    assert!((20..64).contains(&served), "the others go on: {served} of 64 slots");
}
