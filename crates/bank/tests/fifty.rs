//! Fifty gateways on one limit of 1,000/s that are offered 1,600: their real holders and the real script in a real Redis, at a time that is made up, so that
//! nothing depends on how fast this machine is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use holdfast_bank::access::Access;
use holdfast_bank::{Limits, Options, Stores};
use holdfast_quota::lease::{Answer, Ask, Effect, Event, Holder, Rules, Sharing, Terms, Verdict, over_admission_bound};
use holdfast_quota::limit::Limit;
use holdfast_quota::rate1::Witness;
use holdfast_testkit::{Random, RedisServer, eventually};
use holdfast_types::Mono;

const GATEWAYS: usize = 50;
const RATE: u64 = 1_000;
/// In milliseconds, of which the first are not counted: the bucket comes empty, and shares are found.
const LENGTH: u64 = 15_000;
const WARM: u64 = 5_000;
/// How long a request waits for the store at most.
const PATIENCE: u64 = 7;

struct Gateway {
    holder: Holder,
    /// Requests that wait for an answer of the store, by when they came.
    waiting: VecDeque<u64>,
    admitted: u64,
}

struct World {
    store: Arc<Stores>,
    limits: Limits,
    limit: Limit,
    gateways: Vec<Gateway>,
    witness: Witness,
    calls: u64,
    admitted: u64,
    /// When each arrives at the store.
    asks: VecDeque<(u64, usize, Ask)>,
    answers: VecDeque<(u64, usize, Answer)>,
}

const BEGUN: u64 = 1_700_000_000_000_000;

fn mono(ms: u64) -> Mono {
    Mono((BEGUN + ms * 1_000) * 1_000)
}

impl World {
    /// A request, or one that has waited.
    fn offer(&mut self, ms: u64, at: usize, came: u64) {
        let gateway = &mut self.gateways[at];
        let mut effects = Vec::new();
        let verdict = match came == ms {
            true => gateway.holder.spend(mono(ms), 1, &mut effects),
            false => gateway.holder.spend_again(mono(ms), 1, &mut effects),
        };
        match verdict {
            Verdict::Pass => {
                self.witness.admitted(mono(ms), 1).expect("never more than burst, rate and bound");
                if ms >= WARM {
                    gateway.admitted += 1;
                    self.admitted += 1;
                }
            }
            Verdict::Ordered(_) if ms < came + PATIENCE => gateway.waiting.push_back(came),
            _ => {}
        }
        self.send(ms, at, effects);
    }

    fn send(&mut self, ms: u64, at: usize, effects: Vec<Effect>) {
        self.asks.extend(effects.into_iter().map(|Effect::Ask(ask)| (ms + 1, at, ask)));
    }

    async fn store(&mut self, ms: u64) {
        while let Some((_, at, ask)) = self.asks.pop_front_if(|(due, ..)| *due <= ms) {
            self.calls += u64::from(ms >= WARM);
            let name = ("tenant:acme:requests", 5);
            let told = self.limits.ask(&self.store, name, self.limit, ask, Some(BEGUN + ms * 1_000)).await;
            let answer = told.expect("the store answers").expect("orders come in order");
            self.answers.push_back((ms + 1, at, answer));
        }
    }

    fn answered(&mut self, ms: u64) {
        while let Some((_, at, answer)) = self.answers.pop_front_if(|(due, ..)| *due <= ms) {
            let mut effects = Vec::new();
            self.gateways[at].holder.apply(mono(ms), Event::Answer(answer), &mut effects);
            self.send(ms, at, effects);
            for came in std::mem::take(&mut self.gateways[at].waiting) {
                self.offer(ms, at, came);
            }
        }
    }

    fn tick(&mut self, ms: u64) {
        for at in 0..self.gateways.len() {
            let mut effects = Vec::new();
            let holder = &mut self.gateways[at].holder;
            if holder.wakes_at().is_some_and(|wakes| wakes <= mono(ms)) {
                holder.apply(mono(ms), Event::Tick, &mut effects);
            }
            self.send(ms, at, effects);
        }
    }
}

#[tokio::test]
async fn fifty_gateways_share_a_limit_fairly_with_few_calls() {
    let redis = RedisServer::start().await;
    // Its time is made up, so it may take as long as it likes.
    let (url, within) = (redis.url(), Duration::from_secs(120));
    let options = Options {
        url,
        access: Access::default(),
        namespace: "test".into(),
        within,
        gateways: 1,
        seed: 1,
        keeps: "limits",
    };
    let store = Stores::new(options, &[]).unwrap();
    tokio::spawn(store.clone().run());
    eventually("a connection", Duration::from_secs(30), async || store.state().up.then_some(())).await;
    let limit = Limit::per_second(RATE, RATE);
    let bound = over_admission_bound(RATE, GATEWAYS as u32, Sharing::default());
    let gateway = |at: usize| {
        let holder = Holder::new(at as u64 + 1, Terms::new(limit, GATEWAYS as u32), mono(0));
        Gateway { holder, waiting: VecDeque::new(), admitted: 0 }
    };
    let mut world = World {
        store,
        limits: Limits::new(Rules::default()),
        limit,
        gateways: (0..GATEWAYS).map(gateway).collect(),
        witness: Witness::new(limit, bound, mono(0)),
        calls: 0,
        admitted: 0,
        asks: VecDeque::new(),
        answers: VecDeque::new(),
    };
    let mut chance = Random(11);
    for ms in 0..LENGTH {
        world.answered(ms);
        for at in 0..GATEWAYS {
            // 32 in a second at each.
            if chance.below(1_000) < 32 {
                world.offer(ms, at, ms);
            }
        }
        world.tick(ms);
        world.store(ms).await;
    }
    let seconds = (LENGTH - WARM) / 1_000;
    let (calls, admitted) = (world.calls / seconds, world.admitted / seconds);
    let each: Vec<u64> = world.gateways.iter().map(|gateway| gateway.admitted / seconds).collect();
    let (least, most) = (each.iter().min().unwrap(), each.iter().max().unwrap());
    println!("{calls} calls a second, {admitted}/s admitted, by gateway {least} to {most}/s, bound {bound}");
    assert!(calls < 200, "{calls} calls a second");
    assert!((900..=RATE + bound / seconds).contains(&admitted), "{admitted}/s are admitted");
    let even = RATE / GATEWAYS as u64;
    assert!(*least >= even * 6 / 10 && *most <= even * 14 / 10, "{each:?}");
}
