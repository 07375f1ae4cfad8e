//! The world `hot`: events of many keys over partitions, of which one key gets hot. It is found by [`holdfast_quota::hot`]; then it is spread over sub-keys,
//! or, if its events need an order, gets a partition of its own.

use holdfast_placement::hash::{Purpose, stable_hash};
use holdfast_quota::hot::{Notice, Order, Remedy, Rules, Watch, remedy};
use holdfast_types::Mono;

use super::{Ask, Broken, Knob, Report, Series, Set, World, knob};
use crate::chance::Chance;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// The hot key's number.
const HOT: u64 = 0;

const KNOBS: &[Knob] = &[
    knob("partitions", 20, 1, 10_000, "partitions, each of which takes one event after the other"),
    knob("capacity", 100, 1, 1_000_000, "events that a partition takes in a second"),
    knob("keys", 500, 1, 1_000_000, "keys beside the hot one"),
    knob("rate", 800, 1, 1_000_000, "their events per second in all, a Poisson process"),
    knob("hot_rate", 250, 0, 1_000_000, "events per second of the hot key"),
    knob("hot_from_s", 10, 0, 3_600, "from when on it is hot"),
    knob("hot_s", 40, 0, 3_600, "for how long"),
    knob("ordered", 0, 0, 1, "1: events of a key are taken in the order in which they came"),
    knob("remedy", 1, 0, 1, "0: it is told of, and nothing is done"),
    knob("seconds", 60, 2, 3_600, "how long"),
];

const RULES: Rules = Rules {
    room: 64,
    window: std::time::Duration::from_secs(1),
    hot_permille: 100,
    cold_permille: 50,
    windows: 2,
    least: 100,
};

/// See the module.
pub static WORLD: World = World {
    name: "hot",
    about: "events of many keys over partitions, of which one key gets hot",
    knobs: KNOBS,
    at_most: &[],
    figures: &[
        ("alerts", "times that a key was told of as hot"),
        ("alert_s", "how long after the key got hot; 0: never"),
        ("late_p99_ms", "the wait that 99 of 100 events of other keys do not pass in the last ten seconds of the heat"),
        ("hot_late_p99_ms", "the same of the hot key"),
        ("busiest", "of 1: the part of the busiest shared partition in those ten seconds"),
        ("parts", "partitions that took events of the hot key in those ten seconds"),
    ],
    promises: &["ORDER"],
    run: simulate,
};

struct Hot<'a> {
    set: &'a Set,
    chance: Chance,
    watch: Watch,
    /// When each partition has taken what it has; the last is the hot key's own.
    free: Vec<u64>,
    /// Of each, in one second.
    capacity: Vec<u64>,
    taken: Vec<u64>,
    remedy: Option<Remedy>,
    /// When the last event of the hot key was taken.
    last: u64,
    heat: std::ops::Range<u64>,
    waits: [Vec<u64>; 2],
    parts: Vec<bool>,
    alerts: Vec<u64>,
    series: Vec<(f64, f64)>,
    broken: Option<Broken>,
    log: Vec<String>,
}

fn simulate(ask: &Ask<'_>) -> Report {
    let set = ask.set;
    let from = set.get("hot_from_s") * SECOND;
    let partitions = set.count("partitions");
    let mut capacity = vec![set.get("capacity"); partitions];
    capacity.push(0);
    let mut world = Hot {
        set,
        chance: Chance::new(ask.seed),
        watch: Watch::new(RULES),
        free: vec![0; partitions + 1],
        capacity,
        taken: vec![0; partitions + 1],
        remedy: None,
        last: 0,
        heat: if ask.without.contains(&0) { 0..0 } else { from..from + set.get("hot_s") * SECOND },
        waits: [Vec::new(), Vec::new()],
        parts: vec![false; partitions + 1],
        alerts: Vec::new(),
        series: vec![(0.0, 0.0); set.count("seconds")],
        broken: None,
        log: Vec::new(),
    };
    world.play();
    world.report(ask.log)
}

impl Hot<'_> {
    fn play(&mut self) {
        let end = self.set.get("seconds") * SECOND;
        let (rate, hot) = (self.set.get("rate"), self.set.get("hot_rate"));
        let mut next = [self.chance.exponential(SECOND / rate.max(1)), self.heat.start];
        loop {
            let class = usize::from(hot > 0 && next[1] < next[0] && self.heat.contains(&next[1]));
            let at = next[class];
            if at >= end || self.broken.is_some() {
                return;
            }
            let key = match class {
                0 => 1 + self.chance.below(self.set.get("keys")),
                _ => HOT,
            };
            self.comes(at, key);
            next[class] = at + self.chance.exponential(SECOND / [rate, hot][class].max(1));
        }
    }

    fn comes(&mut self, at: u64, key: u64) {
        let hash = stable_hash(Purpose::LimiterKey, &[key.to_le_bytes()]);
        for notice in self.watch.add(Mono(at), hash, 1) {
            self.told(at, notice);
        }
        let partition = self.place(key);
        // An ordered key that moves waits for what it has left where it was.
        let ordered = self.set.get("ordered") == 1 && key == HOT;
        let begins = self.free[partition].max(at).max(if ordered { self.last } else { 0 });
        let ends = begins + SECOND / self.capacity[partition].max(1);
        self.free[partition] = ends;
        if key == HOT {
            if ordered && ends < self.last {
                self.broken = Some(Broken { at: at / MS, what: "ORDER: an event overtakes one before it".to_owned() });
            }
            self.last = self.last.max(ends);
        }
        self.counts(at, ends, key, partition);
    }

    fn told(&mut self, at: u64, notice: Notice) {
        self.log.push(format!("{:>8.3} s  {notice:?}", at as f64 / SECOND as f64));
        let hot = stable_hash(Purpose::LimiterKey, &[HOT.to_le_bytes()]);
        let Notice::Hot { key, permille } = notice else {
            // Sub-keys stay as they are until the key is looked at again: back and forth would cost more than a few of them.
            return;
        };
        self.alerts.push(at);
        if self.set.get("remedy") == 0 || key != hot {
            return;
        }
        let order = if self.set.get("ordered") == 1 { Order::Kept } else { Order::None };
        // What it has of the whole traffic of a second or so.
        let all = self.set.get("rate") + self.set.get("hot_rate");
        let chosen = remedy(order, all * (permille + 100) / 1_000, self.set.get("capacity"));
        if let (Remedy::Dedicate(capacity), Some(own)) = (chosen, self.capacity.last_mut()) {
            *own = capacity;
        }
        self.remedy = Some(chosen);
    }

    fn place(&mut self, key: u64) -> usize {
        let shared = self.free.len() as u64 - 1;
        let sub = match self.remedy {
            Some(Remedy::Dedicate(_)) if key == HOT => return self.free.len() - 1,
            Some(Remedy::Salt(over)) if key == HOT => self.chance.below(over),
            _ => 0,
        };
        let hash = stable_hash(Purpose::Slot, &[key.to_le_bytes(), sub.to_le_bytes()]);
        usize::try_from(hash % shared.max(1)).unwrap_or(0)
    }

    /// The last ten seconds of the heat.
    fn late(&self) -> std::ops::Range<u64> {
        let end = self.heat.end.min(self.set.get("seconds") * SECOND);
        end.saturating_sub(10 * SECOND)..end
    }

    fn counts(&mut self, at: u64, ends: u64, key: u64, partition: usize) {
        let wait = ends - at;
        if self.late().contains(&at) {
            self.waits[usize::from(key == HOT)].push(wait);
            self.taken[partition] += 1;
            self.parts[partition] |= key == HOT;
        }
        if let Some(second) = self.series.get_mut(usize::try_from(at / SECOND).unwrap_or(0)) {
            let ms = wait as f64 / MS as f64;
            *second = if key == HOT { (second.0, second.1.max(ms)) } else { (second.0.max(ms), second.1) };
        }
    }

    fn report(mut self, log: bool) -> Report {
        let p99 = |waits: &mut Vec<u64>| {
            waits.sort_unstable();
            let at = (waits.len() * 99 / 100).min(waits.len().saturating_sub(1));
            waits.get(at).map_or(0.0, |wait| *wait as f64 / MS as f64)
        };
        let [mut others, mut hot] = std::mem::take(&mut self.waits);
        let all = self.taken.iter().sum::<u64>().max(1);
        let shared = self.taken.len() - 1;
        let busiest = self.taken[..shared].iter().max().copied().unwrap_or(0);
        let first = self.alerts.iter().find(|at| **at >= self.heat.start);
        let alert = first.map_or(0.0, |at| (at - self.heat.start) as f64 / SECOND as f64);
        let figures = vec![
            ("alerts", self.alerts.len() as f64),
            ("alert_s", alert),
            ("late_p99_ms", p99(&mut others)),
            ("hot_late_p99_ms", p99(&mut hot)),
            ("busiest", busiest as f64 / all as f64),
            ("parts", self.parts.iter().filter(|part| **part).count() as f64),
        ];
        let of = |name, value: fn(&(f64, f64)) -> f64| Series { name, values: self.series.iter().map(value).collect() };
        Report {
            broken: self.broken,
            figures,
            series: vec![of("slowest of other keys, ms", |s| s.0), of("slowest of the hot key, ms", |s| s.1)],
            acts: vec![format!("{:>8.3} s  a key gets hot", self.heat.start as f64 / SECOND as f64)],
            log: if log { self.log } else { Vec::new() },
        }
    }
}
