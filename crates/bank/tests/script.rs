//! The script beside the machine that it was made from, over the same random histories, in a real Redis; and what happens when the store does not do its part.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use holdfast_bank::access::Access;
use holdfast_bank::{Down, Limits, Options, Stores};
use holdfast_quota::lease::{Ask, Bank, BankEvent, Rules};
use holdfast_quota::limit::Limit;
use holdfast_testkit::{Random, RedisServer, eventually};
use holdfast_types::Mono;

const PATIENCE: Duration = Duration::from_secs(20);

async fn connected(redis: &RedisServer, seed: u64) -> Arc<Stores> {
    let (url, within) = (redis.url(), Duration::from_millis(500));
    let options = Options {
        url,
        namespace: "test".into(),
        within,
        gateways: 1,
        seed,
        keeps: "limits",
        access: Access::default(),
    };
    let store = Stores::new(options, &[]).unwrap();
    tokio::spawn(store.clone().run());
    eventually("a connection", PATIENCE, async || store.state().up.then_some(())).await;
    store
}

fn ask(chance: &mut Random, gateway: u64, order: u64) -> Ask {
    let alone = (chance.below(12) == 0).then(|| (Duration::from_millis(chance.below(3_000)), chance.below(200)));
    Ask {
        gateway,
        order,
        want: chance.below(40),
        whole: chance.below(20) == 0,
        held: chance.below(10),
        offered: chance.below(60),
        gateways: 1 + u32::try_from(chance.below(9)).unwrap(),
        returned: chance.below(4) * chance.below(2),
        alone,
    }
}

#[tokio::test]
async fn the_script_is_the_machine() {
    let redis = RedisServer::start().await;
    let store = connected(&redis, 1).await;
    let rules = Rules { most_gateways: 6, ..Rules::default() };
    let limits = Limits::new(rules);
    let rates = [(40, 40), (100, 250), (1_000, 1_000), (4, 20), (50_000, 80_000), (1_000, 30), (1, 5)];
    let mut granted = 0;
    for seed in 0..60 {
        let mut chance = Random(seed);
        let name = format!("tenant:t{seed}:requests");
        let limit = |(rate, burst): (u64, u64)| Limit::per_second(rate, burst);
        let mut of = limit(rates[usize::try_from(seed).unwrap() % rates.len()]);
        // Each history has a slot of its own, so that it is the first to be there.
        let mut micros = 1_700_000_000_000_000 + seed * 1_000_000_000;
        let _ = redis.command(&["DEL", &format!("holdfast:test:{{{}}}:born", seed % 64)]);
        let mut bank = Bank::after_loss(of, rules, Mono(micros * 1_000));
        let mut orders = [0u64; 8];
        for step in 0..120 {
            micros += [0, 1, 700, 20_000, 300_000, 6_000_000]
                [usize::try_from(chance.below(if step == 0 { 1 } else { 6 })).unwrap()];
            if step > 0 && chance.below(25) == 0 {
                of = limit(rates[usize::try_from(chance.below(7)).unwrap()]);
                bank.apply(Mono(micros * 1_000), BankEvent::Limit(of));
            }
            let gateway = chance.below(8);
            let last = &mut orders[usize::try_from(gateway).unwrap()];
            // Now and then an order comes twice.
            *last += u64::from(chance.below(15) > 0 || *last == 0);
            let ask = ask(&mut chance, gateway, *last);
            let expected = bank.apply(Mono(micros * 1_000), BankEvent::Ask(ask));
            let told = limits.ask(&store, (&name, seed), of, ask, Some(micros)).await.unwrap();
            assert_eq!(told, expected, "seed {seed}, step {step}: {ask:?}");
            granted += told.map_or(0, |answer| answer.tokens);
        }
    }
    assert!(granted > 10_000, "the histories grant something: {granted}");
}

/// A gateway of an earlier release has written five numbers of itself.
#[tokio::test]
async fn what_an_earlier_release_wrote_is_read() {
    let redis = RedisServer::start().await;
    let store = connected(&redis, 5).await;
    let (limits, mut chance) = (Limits::new(Rules::default()), Random(5));
    let plain =
        |chance: &mut Random, order| Ask { want: 1, held: 0, returned: 0, alone: None, ..ask(chance, 7, order) };
    let at = |micros: u64| Some(1_700_000_000_000_000 + micros);
    let first = plain(&mut chance, 2);
    assert!(limits.ask(&store, ("small", 3), Limit::per_second(4, 20), first, at(0)).await.unwrap().is_some());
    let five = format!("2 1 {} 0 0", at(0).unwrap());
    let _ = redis.command(&["HSET", "holdfast:test:{3}:limit:small", "g:7", &five]);
    // An order that is too late has the record written again, if the limit is another one.
    let late = plain(&mut chance, 1);
    assert_eq!(limits.ask(&store, ("small", 3), Limit::per_second(5, 20), late, at(1)).await.unwrap(), None);
    let next = plain(&mut chance, 3);
    assert!(limits.ask(&store, ("small", 3), Limit::per_second(5, 20), next, at(2)).await.unwrap().is_some());
}

/// RL-02: what the store forgets is sent again once, and no caller notices.
#[tokio::test]
async fn a_flushed_script_is_loaded_once_and_a_flushed_limit_comes_back_empty() {
    let redis = RedisServer::start().await;
    let store = connected(&redis, 2).await;
    let limits = Limits::new(Rules::default());
    let of = Limit::per_second(1_000, 1_000);
    let ask = |order, want| Ask {
        gateway: 7,
        order,
        want,
        whole: false,
        held: 0,
        offered: want,
        gateways: 1,
        returned: 0,
        alone: None,
    };
    let at = |micros: u64| Some(1_700_000_000_000_000 + micros);
    let tokens = async |order, micros| {
        let answer = limits.ask(&store, ("tenant:a:requests", 3), of, ask(order, 25), at(micros)).await;
        answer.unwrap().unwrap().tokens
    };
    let _ = redis.command(&["FLUSHALL"]);
    assert_eq!(tokens(1, 0).await, 0, "a store that is new has nothing yet");
    assert_eq!(tokens(2, 2_000_000).await, 25);
    let failures = store.state().failures;
    let _ = redis.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(tokens(3, 2_000_001).await, 25);
    let _ = redis.command(&["FLUSHALL"]);
    assert_eq!(tokens(4, 2_000_002).await, 0, "lost, it comes back empty");
    assert_eq!(tokens(5, 2_010_002).await, 10, "and fills by its rate");
    // A limit that is first seen later was full by then.
    let answer = limits.ask(&store, ("tenant:b:requests", 3), of, ask(1, 25), at(9_000_000)).await;
    assert_eq!(answer.unwrap().unwrap().tokens, 25);
    assert_eq!(store.state().failures, failures, "nobody noticed");
}

/// RL-05, RS-01: a store that hangs costs its deadline once; then calls fail at once until a connection has answered again.
#[tokio::test]
async fn a_store_that_hangs_costs_its_deadline_once_and_is_found_again() {
    let redis = RedisServer::start().await;
    let store = connected(&redis, 3).await;
    let limits = Limits::new(Rules::default());
    let of = Limit::per_second(1_000, 1_000);
    let order = std::cell::Cell::new(0);
    let call = async || {
        order.set(order.get() + 1);
        let ask = Ask {
            gateway: 7,
            order: order.get(),
            want: 1,
            whole: false,
            held: 0,
            offered: 1,
            gateways: 1,
            returned: 0,
            alone: None,
        };
        limits.ask(&store, ("tenant:a:requests", 1), of, ask, None).await
    };
    assert!(call().await.is_ok());
    redis.proc.freeze();
    // The beat may have found it first.
    assert!(matches!(call().await, Err(Down::Late | Down::Away)));
    for _ in 0..1_000 {
        assert_eq!(call().await, Err(Down::Away), "nothing is sent");
    }
    redis.proc.thaw();
    eventually("the store again", PATIENCE, async || call().await.ok()).await;
    let mut redis = redis;
    redis.proc.kill9();
    eventually("the loss", PATIENCE, async || call().await.err()).await;
    redis.restart().await;
    eventually("the store again", PATIENCE, async || call().await.ok()).await;
    assert!(store.state().connects >= 3);
}

#[tokio::test]
async fn gateways_are_counted_by_the_store() {
    let redis = RedisServer::start().await;
    let one = connected(&redis, 11).await;
    eventually("one gateway", PATIENCE, async || (one.gateways() == 1).then_some(())).await;
    let two = connected(&redis, 12).await;
    eventually("two", PATIENCE, async || (one.gateways() == 2 && two.gateways() == 2).then_some(())).await;
}
