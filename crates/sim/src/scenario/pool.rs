//! The world `pool`: tenants before a shared pool that serves so many requests a second, with a fair queue ([`holdfast_quota::fair`]) or, to compare, one
//! queue for all.

use std::collections::VecDeque;

use holdfast_quota::fair::{Bounds, FairQueue, Witness};

use super::{Ask, Broken, Knob, Report, Series, Set, World, knob};
use crate::chance::Chance;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

const KNOBS: &[Knob] = &[
    knob("capacity", 1_000, 1, 1_000_000, "requests that the pool serves in a second"),
    knob("tenants", 20, 1, 10_000, "quiet tenants"),
    knob("rate", 20, 1, 1_000_000, "requests per second of each of them, a Poisson process"),
    knob("noisy", 1, 0, 1_000, "noisy tenants beside them"),
    knob("noisy_rate", 5_000, 1, 10_000_000, "requests per second of each of those"),
    knob("noisy_from_s", 10, 0, 3_600, "from when on they are noisy"),
    knob("noisy_s", 15, 0, 3_600, "for how long"),
    knob("weight", 1, 1, 1_000, "weight of a quiet tenant"),
    knob("noisy_weight", 1, 1, 1_000, "weight of a noisy one"),
    knob("heavy_tail", 1, 0, 1, "1: a request in twenty costs 8, else each costs 1"),
    knob("each", 200, 1, 1_000_000, "requests of one tenant that may wait"),
    knob("fair", 1, 0, 1, "0: one queue for all, to compare"),
    knob("seconds", 35, 2, 3_600, "how long"),
];

/// See the module.
pub static WORLD: World = World {
    name: "pool",
    about: "tenants before a shared pool with a fair queue",
    knobs: KNOBS,
    at_most: &[],
    figures: &[
        ("quiet_p99_ms", "the wait that 99 of 100 requests of quiet tenants do not pass while there is noise"),
        ("quiet_refused", "requests of quiet tenants for which there was no room"),
        ("noisy_share", "of the capacity: what the noisy tenants got while they were noisy"),
        ("used", "of the capacity: what was served while there was noise"),
        ("behind", "by how much a waiting tenant was behind its part in the worst interval, in costs"),
        ("behind_bound", "by how much it may be"),
    ],
    promises: &["FAIR-1"],
    run: simulate,
};

/// The largest cost of a request.
const LARGEST: u64 = 8;

struct Item {
    tenant: usize,
    cost: u64,
    came: u64,
}

/// Either queue.
enum Queues {
    Fair(FairQueue<usize, Item>),
    One(VecDeque<Item>, Vec<usize>),
}

#[derive(Clone, Default)]
struct Second {
    quiet: u64,
    noisy: u64,
    slowest: u64,
}

struct Pool<'a> {
    set: &'a Set,
    chance: Chance,
    queues: Queues,
    witnesses: Vec<Witness>,
    seconds: Vec<Second>,
    waits: Vec<u64>,
    refused: u64,
    broken: Option<Broken>,
    /// The noise, unless that act is left out.
    noise: std::ops::Range<u64>,
}

fn simulate(ask: &Ask<'_>) -> Report {
    let mut pool = Pool::new(ask);
    pool.play();
    pool.report()
}

impl<'a> Pool<'a> {
    fn new(ask: &Ask<'a>) -> Self {
        let set = ask.set;
        let (quiet, noisy) = (set.count("tenants"), set.count("noisy"));
        let bounds = Bounds { each: set.count("each"), all: usize::MAX };
        let from = set.get("noisy_from_s") * SECOND;
        let weights: Vec<u32> = (0..quiet + noisy).map(|t| weight(set, t)).collect();
        let total = weights.iter().sum();
        let keys = u32::try_from(weights.len()).unwrap_or(u32::MAX);
        Self {
            set,
            chance: Chance::new(ask.seed),
            queues: match set.get("fair") {
                0 => Queues::One(VecDeque::new(), vec![0; weights.len()]),
                _ => Queues::Fair(FairQueue::new(bounds)),
            },
            witnesses: weights.iter().map(|weight| Witness::new(*weight, total, keys, LARGEST)).collect(),
            seconds: vec![Second::default(); set.count("seconds") + 1],
            waits: Vec::new(),
            refused: 0,
            broken: None,
            noise: if ask.without.contains(&0) { 0..0 } else { from..from + set.get("noisy_s") * SECOND },
        }
    }

    /// One server that takes a request's cost of its capacity; arrivals in the order of their times.
    fn play(&mut self) {
        let (quiet, noisy) = (self.set.count("tenants"), self.set.count("noisy"));
        let end = self.set.get("seconds") * SECOND;
        let (slow, fast) = (self.set.get("rate") * quiet as u64, self.set.get("noisy_rate") * noisy as u64);
        let mut next = [self.chance.exponential(SECOND / slow.max(1)), self.noise.start];
        let mut free = 0u64;
        loop {
            let class = usize::from(fast > 0 && next[1] < next[0] && self.noise.contains(&next[1]));
            let at = next[class];
            free = self.serve(free, at.min(end));
            if at >= end {
                return;
            }
            let tenant = match class {
                0 => usize::try_from(self.chance.below(quiet as u64)).unwrap_or(0),
                _ => quiet + usize::try_from(self.chance.below(noisy as u64)).unwrap_or(0),
            };
            self.comes(at, tenant);
            let mean = SECOND / [slow, fast][class].max(1);
            next[class] = at + self.chance.exponential(mean);
        }
    }

    fn comes(&mut self, at: u64, tenant: usize) {
        let dear = self.set.get("heavy_tail") == 1 && self.chance.one_in(20);
        let item = Item { tenant, cost: if dear { LARGEST } else { 1 }, came: at };
        let (weight, each, cost) = (weight(self.set, tenant), self.set.count("each"), item.cost);
        let taken = match &mut self.queues {
            Queues::Fair(queue) => queue.push(tenant, weight, cost, item).is_ok(),
            Queues::One(queue, waiting) if waiting[tenant] < each => {
                waiting[tenant] += 1;
                queue.push_back(item);
                true
            }
            Queues::One(..) => false,
        };
        self.refused += u64::from(!taken && tenant < self.set.count("tenants"));
    }

    /// Serves what waits until then; says from when on the server is free.
    fn serve(&mut self, mut free: u64, until: u64) -> u64 {
        let unit = SECOND / self.set.get("capacity").max(1);
        while free < until {
            let waits: Vec<bool> = self.waiting();
            let next = match &mut self.queues {
                Queues::Fair(queue) => queue.pop().map(|(_, item)| item),
                Queues::One(queue, waiting) => queue.pop_front().inspect(|item| waiting[item.tenant] -= 1),
            };
            let Some(item) = next else { return until };
            let begun = free.max(item.came);
            free = begun + unit * item.cost;
            self.served(begun, &item, &waits);
        }
        free
    }

    fn waiting(&self) -> Vec<bool> {
        match &self.queues {
            Queues::Fair(queue) => (0..self.witnesses.len()).map(|t| queue.waiting(&t) > 0).collect(),
            Queues::One(_, waiting) => waiting.iter().map(|n| *n > 0).collect(),
        }
    }

    fn served(&mut self, at: u64, item: &Item, waits: &[bool]) {
        for (tenant, witness) in self.witnesses.iter_mut().enumerate() {
            if self.set.get("fair") == 1
                && let Err(by) = witness.served(tenant == item.tenant, item.cost, waits[tenant])
            {
                let what = format!("FAIR-1: tenant {tenant} is behind its part by {by} more than it may be");
                self.broken.get_or_insert(Broken { at: at / MS, what });
            }
        }
        let quiet = item.tenant < self.set.count("tenants");
        let wait = at - item.came;
        let last = self.seconds.len() - 1;
        let second = &mut self.seconds[usize::try_from(at / SECOND).unwrap_or(0).min(last)];
        match quiet {
            true => (second.quiet, second.slowest) = (second.quiet + item.cost, second.slowest.max(wait)),
            false => second.noisy += item.cost,
        }
        if quiet && self.noise.contains(&item.came) {
            self.waits.push(wait);
        }
    }

    fn report(mut self) -> Report {
        self.waits.sort_unstable();
        let p99 = self.waits.get(self.waits.len() * 99 / 100).copied().unwrap_or(0);
        let second = |ns: u64| usize::try_from(ns / SECOND).unwrap_or(0);
        let noise = second(self.noise.start)..second(self.noise.end).min(self.set.count("seconds"));
        let during = self.seconds.get(noise).unwrap_or_default();
        let capacity = self.set.get("capacity") as f64 * during.len().max(1) as f64;
        let sum = |of: fn(&Second) -> u64| during.iter().map(of).sum::<u64>() as f64;
        let parts = |t: usize| u64::from(weight(self.set, t));
        let (all, keys) = ((0..self.witnesses.len()).map(parts).sum::<u64>(), self.witnesses.len() as u64);
        let bound = (0..self.witnesses.len()).map(|t| LARGEST * (parts(t) * (keys + 1) + all) / all.max(1)).max();
        let figures = vec![
            ("quiet_p99_ms", p99 as f64 / MS as f64),
            ("quiet_refused", self.refused as f64),
            ("noisy_share", sum(|s| s.noisy) / capacity),
            ("used", sum(|s| s.quiet + s.noisy) / capacity),
            ("behind", self.witnesses.iter().map(Witness::worst).max().unwrap_or(0) as f64),
            ("behind_bound", bound.unwrap_or(0) as f64),
        ];
        let end = self.set.count("seconds");
        let of = |name, value: fn(&Second) -> f64| Series {
            name,
            values: self.seconds.iter().take(end).map(value).collect(),
        };
        Report {
            broken: self.broken,
            figures,
            series: vec![
                of("quiet tenants, cost/s", |s| s.quiet as f64),
                of("noisy tenants, cost/s", |s| s.noisy as f64),
                of("longest wait of the quiet, ms", |s| s.slowest as f64 / MS as f64),
            ],
            acts: vec!["the noise".to_owned()],
            log: Vec::new(),
        }
    }
}

fn weight(set: &Set, tenant: usize) -> u32 {
    let name = if tenant < set.count("tenants") { "weight" } else { "noisy_weight" };
    u32::try_from(set.get(name)).unwrap_or(1)
}
