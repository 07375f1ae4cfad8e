//! The world `lease`: one limit that many gateways share by leases ([`crate::lease`]), and a store that goes away.

use std::time::Duration;

use holdfast_quota::lease::Sharing;

use super::{Ask, Broken, Knob, Report, Series, World, knob};
use crate::lease::{Run, Scenario, run};

const KNOBS: &[Knob] = &[
    knob("limit", 1_000, 1, 10_000_000, "tokens per second, and the burst"),
    knob("offered", 1_600, 1, 10_000_000, "requests per second in all"),
    knob("gateways", 4, 1, 1_000, "gateways; 4 have 40, 30, 20 and 10 %, others equal parts"),
    knob("seconds", 10, 4, 3_600, "how long"),
    knob("chunk_permyriad", 250, 1, 10_000, "a chunk, in ten thousandths of the limit per second"),
    knob("fraction_permyriad", 4_000, 1, 100_000, "the most that all hold together, in the same"),
    knob("delay_us", 0, 0, 1_000_000, "the way to the store, in microseconds"),
    knob("away_from_ms", 0, 0, 3_600_000, "from when the store answers nobody"),
    knob("away_ms", 0, 0, 3_600_000, "for how long"),
    knob("loses", 0, 0, 1, "1: it comes back without its bucket"),
];

/// See the module.
pub static WORLD: World = World {
    name: "lease",
    about: "one limit that many gateways share by leases from a store",
    knobs: KNOBS,
    at_most: &[],
    figures: &[
        ("worst_second", "the most admitted in a second from the fourth on"),
        ("calls_per_second", "calls to the store"),
        ("over", "tokens by which burst + rate x time was passed in the worst interval"),
        ("alone", "of the limit: admitted per whole second while the store was away"),
        ("after", "of the limit: the most admitted in a second after it was back"),
        ("least_served", "of the mean: what the gateway that fares worst gets of what it is offered"),
    ],
    promises: &["RATE-1"],
    run: simulate,
};

fn simulate(ask: &Ask<'_>) -> Report {
    let set = ask.set;
    // The outage is the one act there is.
    let (from, ms) = (set.get("away_from_ms"), set.get("away_ms"));
    let away = if ask.without.contains(&0) { 0..0 } else { from..from + ms };
    let small = |name: &str| u32::try_from(set.get(name)).unwrap_or(u32::MAX);
    let scenario = Scenario {
        limit: set.get("limit"),
        offered: set.get("offered"),
        seconds: set.get("seconds"),
        sharing: Sharing { chunk: small("chunk_permyriad"), fraction: small("fraction_permyriad") },
        delay: Duration::from_micros(set.get("delay_us")),
        away,
        loses: set.get("loses") == 1,
        ..Scenario::worked().through(small("gateways"))
    };
    let run = run(&scenario, ask.seed);
    let broken = run.broken.map(|broken| Broken {
        at: broken.at.0 / 1_000_000,
        what: format!("RATE-1: the bound was passed by {}", broken.by),
    });
    Report {
        broken,
        figures: figures(&scenario, &run),
        series: vec![Series { name: "admitted/s", values: run.admitted.iter().map(|n| *n as f64).collect() }],
        acts: if ms > 0 { vec![format!("the store is away from {from} ms on, for {ms} ms")] } else { Vec::new() },
        log: Vec::new(),
    }
}

fn figures(scenario: &Scenario, run: &Run) -> Vec<(&'static str, f64)> {
    let limit = scenario.limit as f64;
    let second = |ms: u64| usize::try_from(ms / 1_000).unwrap_or(0);
    let (from, to) = (second(scenario.away.start + 999), second(scenario.away.end));
    let whole = run.admitted.get(from..to).unwrap_or_default();
    let alone = whole.iter().sum::<u64>() as f64 / (whole.len().max(1) as f64 * limit);
    let after = run.admitted.iter().skip(to.max(3)).max().copied().unwrap_or(0) as f64 / limit;
    vec![
        ("worst_second", run.worst_second() as f64),
        ("calls_per_second", run.calls as f64 / scenario.seconds.max(1) as f64),
        ("over", run.over as f64),
        ("alone", alone),
        ("after", after),
        ("least_served", run.fairness().0 as f64 / 100.0),
    ]
}
