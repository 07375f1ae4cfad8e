//! The world `dedicated`: tenants before a shared pool. One has spikes, one is heavy for long; who of them gets a pool of its own is decided by
//! [`holdfast_quota::dedicate`].

use std::time::Duration;

use holdfast_quota::dedicate::{Notice, Rules, Watch};
use holdfast_types::Mono;

use super::{Ask, Broken, Knob, Report, Series, Set, World, knob};
use crate::chance::Chance;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// The number of the tenant that has spikes, and of the one that is heavy for long; quiet ones come after them.
const SPIKY: u64 = 0;
const HEAVY: u64 = 1;

const KNOBS: &[Knob] = &[
    knob("capacity", 200, 1, 1_000_000, "requests that the shared pool serves in a second"),
    knob("tenants", 20, 1, 10_000, "quiet tenants"),
    knob("rate", 4, 1, 1_000_000, "requests per second of each of them, a Poisson process"),
    knob("spikes", 3, 0, 100, "how often one tenant has a spike"),
    knob("spike_rate", 800, 1, 10_000_000, "its requests per second then"),
    knob("spike_s", 12, 1, 3_600, "how long a spike is"),
    knob("apart_s", 120, 1, 3_600, "from one to the next; the first comes after 30 s"),
    knob("heavy_rate", 110, 0, 10_000_000, "requests per second of the tenant that is heavy for long"),
    knob("heavy_from_s", 60, 0, 86_400, "from when on it is"),
    knob("heavy_s", 300, 0, 86_400, "for how long"),
    knob("window_s", 10, 1, 3_600, "how long a window is"),
    knob("windows", 8, 1, 64, "windows that are looked at"),
    knob("high_windows", 6, 1, 64, "how many of them have to be high; 1: two, for one is a spike"),
    knob("high_permille", 300, 1, 1_000, "a window is high with so many thousandths of the capacity"),
    knob("low_permille", 100, 0, 1_000, "and low with less than so many"),
    knob("ceiling", 4, 0, 1_000, "the most dedicated pools"),
    knob("move_s", 5, 0, 3_600, "how long a change of the table takes"),
    knob("seconds", 520, 10, 86_400, "how long"),
];

/// See the module.
pub static WORLD: World = World {
    name: "dedicated",
    about: "tenants before a shared pool, one with spikes and one that is heavy for long",
    knobs: KNOBS,
    at_most: &[("high_windows", "windows"), ("low_permille", "high_permille")],
    figures: &[
        ("spiky_moves", "how often the tenant with spikes was given a pool of its own"),
        ("heavy_moves", "how often the heavy one was"),
        ("promoted_after_s", "how long after it got heavy; 0: never"),
        ("demoted_after_s", "how long after it was not any more it went back; 0: never"),
        (
            "others_p99_ms",
            "the wait in the shared pool that 99 of 100 requests do not pass in the last minute of the heavy time",
        ),
        ("most_pools", "the most dedicated pools at one time"),
        ("alerts", "what a person was told"),
    ],
    promises: &["CEILING"],
    run: simulate,
};

struct Shared<'a> {
    set: &'a Set,
    chance: Chance,
    watch: Watch,
    /// When the shared pool has served what it has.
    free: u64,
    /// From when on the heavy and the spiky tenant are elsewhere.
    away: [Option<u64>; 2],
    spikes: Vec<std::ops::Range<u64>>,
    heavy: std::ops::Range<u64>,
    moves: [u64; 2],
    promoted: Option<u64>,
    demoted: Option<u64>,
    waits: Vec<u64>,
    most: usize,
    alerts: u64,
    broken: Option<Broken>,
    series: Vec<(u64, u64)>,
    log: Vec<String>,
}

fn simulate(ask: &Ask<'_>) -> Report {
    let set = ask.set;
    let small = |name: &str| u32::try_from(set.get(name)).unwrap_or(u32::MAX);
    let rules = Rules {
        window: Duration::from_secs(set.get("window_s")),
        capacity: set.get("capacity"),
        high_permille: set.get("high_permille"),
        low_permille: set.get("low_permille"),
        windows: small("windows"),
        high_windows: small("high_windows"),
        ceiling: set.count("ceiling"),
    };
    let from = set.get("heavy_from_s") * SECOND;
    let acts: Vec<std::ops::Range<u64>> = (0..set.get("spikes"))
        .map(|nth| 30 * SECOND + nth * set.get("apart_s") * SECOND)
        .map(|at| at..at + set.get("spike_s") * SECOND)
        .chain(std::iter::once(from..from + set.get("heavy_s") * SECOND))
        .collect();
    let kept = |ix: usize| if ask.without.contains(&ix) { 0..0 } else { acts[ix].clone() };
    let mut shared = Shared {
        set,
        chance: Chance::new(ask.seed),
        watch: Watch::new(rules),
        free: 0,
        away: [None; 2],
        spikes: (0..acts.len() - 1).map(kept).collect(),
        heavy: kept(acts.len() - 1),
        moves: [0; 2],
        promoted: None,
        demoted: None,
        waits: Vec::new(),
        most: 0,
        alerts: 0,
        broken: None,
        series: vec![(0, 0); set.count("seconds")],
        log: Vec::new(),
    };
    shared.play();
    let told = |(ix, act): (usize, &std::ops::Range<u64>)| {
        let what = if ix + 1 == acts.len() { "a tenant gets heavy" } else { "a spike" };
        format!("{:>8.3} s  {what}", act.start as f64 / SECOND as f64)
    };
    let acts = acts.iter().enumerate().map(told).collect();
    shared.report(acts, ask.log)
}

impl Shared<'_> {
    fn play(&mut self) {
        let end = self.set.get("seconds") * SECOND;
        let quiet = self.set.get("rate") * self.set.get("tenants");
        let rates = [self.set.get("spike_rate"), self.set.get("heavy_rate"), quiet];
        let mut next: [u64; 3] = [0; 3];
        for (at, rate) in next.iter_mut().zip(rates) {
            *at = SECOND.checked_div(rate).map_or(end, |mean| self.chance.exponential(mean));
        }
        while let Some((class, at)) = next.iter().copied().enumerate().min_by_key(|(_, at)| *at) {
            if at >= end {
                return;
            }
            let tenant = match class {
                0 => self.spikes.iter().any(|spike| spike.contains(&at)).then_some(SPIKY),
                1 => self.heavy.contains(&at).then_some(HEAVY),
                _ => Some(2 + self.chance.below(self.set.get("tenants"))),
            };
            if let Some(tenant) = tenant {
                self.comes(at, tenant);
            }
            next[class] = at + self.chance.exponential(SECOND / rates[class].max(1));
        }
    }

    fn comes(&mut self, at: u64, tenant: u64) {
        for notice in self.watch.used(Mono(at), tenant, 1) {
            self.told(at, notice);
        }
        self.most = self.most.max(self.watch.dedicated());
        if self.most > self.set.count("ceiling") {
            let what = format!("CEILING: there are {} dedicated pools", self.most);
            self.broken.get_or_insert(Broken { at: at / MS, what });
        }
        let second = usize::try_from(at / SECOND).unwrap_or(0);
        let place = usize::try_from(tenant).ok().and_then(|ix| self.away.get(ix).copied()).flatten();
        if place.is_some_and(|from| from <= at) {
            if let Some(series) = self.series.get_mut(second) {
                series.1 += 1;
            }
            return;
        }
        // A tenant's limit is what keeps a spike small: it may have as much waiting as the pool serves in a second.
        let unit = SECOND / self.set.get("capacity").max(1);
        let begins = self.free.max(at);
        if begins - at > SECOND && tenant == SPIKY {
            return;
        }
        self.free = begins + unit;
        let late = self.heavy.end.saturating_sub(60 * SECOND)..self.heavy.end;
        if late.contains(&at) {
            self.waits.push(begins - at);
        }
        if let Some(series) = self.series.get_mut(second) {
            series.0 += 1;
        }
    }

    fn told(&mut self, at: u64, notice: Notice) {
        self.alerts += 1;
        self.log.push(format!("{:>8.3} s  {notice:?}", at as f64 / SECOND as f64));
        let (tenant, to) = match notice {
            Notice::Promote { tenant, .. } => (tenant, Some(at + self.set.get("move_s") * SECOND)),
            Notice::Demote { tenant } => (tenant, None),
            Notice::Full { .. } => return,
        };
        let Some(ix) = usize::try_from(tenant).ok().filter(|ix| *ix < 2) else { return };
        self.away[ix] = to;
        self.moves[ix] += u64::from(to.is_some());
        match (tenant, to) {
            (HEAVY, Some(_)) => self.promoted = self.promoted.or(Some(at)),
            (HEAVY, None) => self.demoted = Some(at),
            _ => {}
        }
    }

    fn report(mut self, acts: Vec<String>, log: bool) -> Report {
        self.waits.sort_unstable();
        let p99 = self.waits.get(self.waits.len() * 99 / 100).copied().unwrap_or(0);
        let since = |at: Option<u64>, from: u64| at.map_or(0.0, |at| at.saturating_sub(from) as f64 / SECOND as f64);
        let figures = vec![
            ("spiky_moves", self.moves[0] as f64),
            ("heavy_moves", self.moves[1] as f64),
            ("promoted_after_s", since(self.promoted, self.heavy.start)),
            ("demoted_after_s", since(self.demoted, self.heavy.end)),
            ("others_p99_ms", p99 as f64 / MS as f64),
            ("most_pools", self.most as f64),
            ("alerts", self.alerts as f64),
        ];
        let of = |name, value: fn(&(u64, u64)) -> u64| Series {
            name,
            values: self.series.iter().map(|second| value(second) as f64).collect(),
        };
        Report {
            broken: self.broken,
            figures,
            series: vec![of("shared pool, requests/s", |s| s.0), of("dedicated pools, requests/s", |s| s.1)],
            acts,
            log: if log { self.log } else { Vec::new() },
        }
    }
}
