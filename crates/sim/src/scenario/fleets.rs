//! The world `fleet`: a whole fleet ([`crate::fleet`]) under steady traffic, with flips and failures at stated times, or at random.

use std::collections::BTreeSet;

use super::{Ask, Broken, Knob, Report, Series, World, knob};
use crate::fleet::{Act, MS, SECOND, Setup, Tally, acts, run};

const KNOBS: &[Knob] = &[
    knob("gateways", 3, 1, 50, "gateways"),
    knob("replicas", 4, 1, 1_000, "replicas of one pool"),
    knob("room", 4, 1, 100, "versions that fit into a replica"),
    knob("tenants", 6, 1, 10_000, "tenants, each with one pin"),
    knob("versions", 3, 1, 10_000, "versions of the model; all begin at the first"),
    knob("subset", 2, 1, 16, "the largest subset of a key"),
    knob("rate", 200, 1, 100_000, "submissions per second"),
    knob("traffic_at_s", 1, 1, 3_600, "when the first one comes; until then the fleet loads what is pinned"),
    knob("service_ms", 20, 1, 10_000, "the longest time of an inference"),
    knob("load_ms", 2_000, 1, 600_000, "the longest time of a load"),
    knob("retries", 3, 0, 100, "how often a client tries again"),
    knob("seconds", 40, 5, 3_600, "how long there is traffic"),
    knob("flips", 0, 0, 1_000, "pins that move, one after the other"),
    knob("flip_at_s", 10, 1, 3_600, "when the first one does"),
    knob("flip_every_s", 2, 1, 600, "when the next one does"),
    knob("crashes", 0, 0, 1_000, "replicas that die, one after the other"),
    knob("crash_at_s", 12, 1, 3_600, "when the first one does"),
    knob("crash_every_s", 15, 1, 600, "when the next one does"),
    knob("crash_s", 5, 1, 600, "how long each is gone"),
    knob("random", 0, 0, 1, "1: everything that can happen does, at random times"),
];

/// See the module.
pub static WORLD: World = World {
    name: "fleet",
    about: "gateways, replicas with memory, control planes with roll-outs, clients that try again",
    knobs: KNOBS,
    at_most: &[],
    figures: &[
        ("answered", "answers that clients got"),
        ("failed", "submissions that clients gave up"),
        ("retried", "refusals after which clients tried again"),
        ("flips", "steps that came into force"),
        ("slowest_ms", "the longest time that a submission took, retries included"),
        ("newest_late", "of 1: answers of the last 5 seconds by the version pinned in force"),
        ("loads", "loads that began"),
        ("wrong", "answers that named another version; none reaches a client"),
    ],
    promises: &["PIN-1", "PIN-2", "PIN-3", "ROUTE-1", "LOAD-1", "LOAD-2", "ACCT-1"],
    run: simulate,
};

fn setup(ask: &Ask<'_>) -> Setup {
    let (set, service) = (ask.set, ask.set.get("service_ms") * MS);
    let random = set.get("random") == 1;
    Setup {
        gateways: set.count("gateways"),
        replicas: set.count("replicas"),
        room: set.get("room"),
        tenants: set.count("tenants"),
        versions: u32::try_from(set.get("versions")).unwrap_or(1),
        subset: u8::try_from(set.get("subset")).unwrap_or(1),
        rate: set.get("rate"),
        traffic_from: set.get("traffic_at_s") * SECOND,
        service: service / 4..service,
        load: set.get("load_ms") * MS / 4..set.get("load_ms") * MS,
        budget: 10 * SECOND,
        delay: MS / 5..2 * MS,
        retries: u32::try_from(set.get("retries")).unwrap_or(3),
        leaves: if random { 40 } else { 0 },
        names: if random { 12 } else { 0 },
        lost: if random { 12 } else { 0 },
        span: set.get("seconds") * SECOND,
        retain: 6 * SECOND,
        loads: (1, 8),
        lease: 6 * SECOND,
        alone: 60 * SECOND,
        peers: true,
        mistake: None,
    }
}

fn planned(ask: &Ask<'_>, setup: &Setup) -> Vec<(u64, Act)> {
    let (set, seed) = (ask.set, usize::try_from(ask.seed).unwrap_or(0));
    if set.get("random") == 1 {
        return acts(setup, ask.seed);
    }
    let at =
        |what: &str, nth: u64| (set.get(&format!("{what}_at_s")) + nth * set.get(&format!("{what}_every_s"))) * SECOND;
    let flips = (0..set.get("flips")).map(|nth| {
        let (tenant, version) = (usize::try_from(nth).unwrap_or(0), u32::try_from(nth + ask.seed).unwrap_or(0));
        let version = 1 + version % setup.versions.saturating_sub(1).max(1);
        (at("flip", nth), Act::Flip { tenant, version, bits: u8::try_from((ask.seed + nth) % 2).unwrap_or(0) * 4 })
    });
    let ms = set.get("crash_s") * 1_000;
    let crashes = (0..set.get("crashes")).map(|nth| {
        let replica = seed.wrapping_add(usize::try_from(nth).unwrap_or(0));
        (at("crash", nth), Act::ReplicaDies { replica, ms })
    });
    let mut all: Vec<(u64, Act)> = flips.chain(crashes).collect();
    all.sort_by_key(|(at, _)| *at);
    all
}

fn kept(all: &[(u64, Act)], without: &BTreeSet<usize>) -> Vec<(u64, Act)> {
    all.iter().enumerate().filter(|(ix, _)| !without.contains(ix)).map(|(_, act)| *act).collect()
}

fn simulate(ask: &Ask<'_>) -> Report {
    let setup = setup(ask);
    let all = planned(ask, &setup);
    let outcome = run(&setup, ask.seed, &kept(&all, ask.without), ask.log);
    let told = |(at, act): &(u64, Act)| format!("{:>8.3} s  {act:?}", *at as f64 / SECOND as f64);
    Report {
        broken: outcome.broken.map(|(at, what)| Broken { at: at / MS, what }),
        figures: figures(&outcome.tally, ask.set.count("seconds")),
        series: series(&outcome.tally, ask.set.count("seconds")),
        acts: all.iter().map(told).collect(),
        log: outcome.log,
    }
}

fn figures(tally: &Tally, seconds: usize) -> Vec<(&'static str, f64)> {
    let within = || tally.seconds.iter().take(seconds);
    let late = || within().skip(seconds.saturating_sub(5));
    let answered = late().map(|s| s.answered).sum::<u64>();
    let newest = late().map(|s| s.newest).sum::<u64>();
    vec![
        ("answered", tally.answered() as f64),
        ("failed", tally.failed() as f64),
        ("retried", tally.seconds.iter().map(|s| s.retried).sum::<u64>() as f64),
        ("flips", tally.flips as f64),
        ("slowest_ms", within().map(|s| s.slowest).max().unwrap_or(0) as f64 / MS as f64),
        ("newest_late", newest as f64 / answered.max(1) as f64),
        ("loads", tally.seconds.iter().map(|s| s.loads).sum::<u64>() as f64),
        ("wrong", tally.wrong as f64),
    ]
}

fn series(tally: &Tally, seconds: usize) -> Vec<Series> {
    let of = |name, value: fn(&crate::fleet::Second) -> f64| Series {
        name,
        values: tally.seconds.iter().take(seconds).map(value).collect(),
    };
    vec![
        of("answered/s", |s| s.answered as f64),
        of("failed or tried again/s", |s| (s.failed + s.retried) as f64),
        of("loads begun/s", |s| s.loads as f64),
        of("slowest answer, ms", |s| s.slowest as f64 / MS as f64),
    ]
}
