//! `holdfast sim`.

mod lease;
mod play;
mod timeline;
mod yaml;

use std::io::IsTerminal;

use holdfast_sim::scenario::{Fault, Report, Scenario, World};
use serde_json::{Value, json};

use super::Failure;
use crate::cli::{Output, SimCommand, SimListArgs, SimRunArgs};
use crate::output;
use play::{Played, Wrong, play};

/// The scenarios that come with the binary, in the order of the list.
const SHIPPED: &[&str] = &[
    include_str!("../../../../sim/scenarios/cache-node-loss.yaml"),
    include_str!("../../../../sim/scenarios/cache-node-loss-modulo.yaml"),
    include_str!("../../../../sim/scenarios/cache-join.yaml"),
    include_str!("../../../../sim/scenarios/cache-flapping.yaml"),
    include_str!("../../../../sim/scenarios/pin-flip.yaml"),
    include_str!("../../../../sim/scenarios/replica-crash.yaml"),
    include_str!("../../../../sim/scenarios/hot-key-salted.yaml"),
    include_str!("../../../../sim/scenarios/hot-key-dedicated.yaml"),
    include_str!("../../../../sim/scenarios/hot-key-left-alone.yaml"),
    include_str!("../../../../sim/scenarios/lease-outage.yaml"),
    include_str!("../../../../sim/scenarios/lease-hoarding.yaml"),
    include_str!("../../../../sim/scenarios/tombstone-race.yaml"),
    include_str!("../../../../sim/scenarios/noisy-tenant.yaml"),
    include_str!("../../../../sim/scenarios/noisy-tenant-one-queue.yaml"),
    include_str!("../../../../sim/scenarios/partition.yaml"),
    include_str!("../../../../sim/scenarios/stale-read.yaml"),
    include_str!("../../../../sim/scenarios/revoked-token.yaml"),
    include_str!("../../../../sim/scenarios/spike-and-sustained.yaml"),
    include_str!("../../../../sim/scenarios/cache-outage-arms.yaml"),
    include_str!("../../../../sim/scenarios/cache-outage-shaped.yaml"),
    include_str!("../../../../sim/scenarios/cache-outage-generic.yaml"),
    include_str!("../../../../sim/scenarios/growth.yaml"),
    include_str!("../../../../sim/scenarios/region-loss.yaml"),
    include_str!("../../../../sim/scenarios/region-loss-at-once.yaml"),
    include_str!("../../../../sim/scenarios/everything.yaml"),
];

/// Simulates, and prints what came of it.
pub fn run(what: &SimCommand) -> Result<(), Failure> {
    match what {
        SimCommand::Lease(args) => lease::run(args),
        SimCommand::List(args) => list(args),
        SimCommand::Show { scenario } => {
            let (_, text) = find(scenario)?;
            output::say(text.trim_end());
            Ok(())
        }
        SimCommand::Run(args) => run_all(args),
    }
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn shipped() -> Result<Vec<(Scenario, String)>, Failure> {
    let read = |text: &&str| {
        let scenario = yaml::scenario(text).map_err(|all| Failure::failed(lines("shipped", &all)))?;
        Ok((scenario, (*text).to_owned()))
    };
    SHIPPED.iter().map(read).collect()
}

/// A scenario by its name or in a file, and its text.
fn find(name: &str) -> Result<(Scenario, String), Failure> {
    let all = shipped()?;
    let names: Vec<String> = all.iter().map(|(s, _)| s.name.clone()).collect();
    if let Some(found) = all.into_iter().find(|(s, _)| s.name == name) {
        return Ok(found);
    }
    let text = std::fs::read_to_string(name).map_err(|error| {
        Failure::wrong(format!("{name:?} is no scenario ({}), and no file that can be read: {error}", names.join(", ")))
    })?;
    let scenario = yaml::scenario(&text).map_err(|all| Failure::wrong(lines(name, &all)))?;
    Ok((scenario, text))
}

/// A line for each fault of a scenario.
fn lines(name: &str, faults: &[Fault]) -> String {
    let line = |fault: &Fault| match fault.field.as_str() {
        "" => format!("{name}: {}", fault.why),
        field => format!("{name}: {field}: {}", fault.why),
    };
    faults.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn list(args: &SimListArgs) -> Result<(), Failure> {
    let all = shipped()?;
    if args.output == Output::Json {
        let row = |(s, _): &(Scenario, String)| json!({ "name": s.name, "about": s.about, "world": s.world.name });
        let worlds: Vec<Value> = holdfast_sim::scenario::WORLDS.iter().map(|world| world_told(world)).collect();
        let scenarios: Vec<Value> = all.iter().map(row).collect();
        output::say(&json!({ "scenarios": scenarios, "worlds": worlds }).to_string());
        return Ok(());
    }
    let rows = all.iter().map(|(s, _)| vec![s.name.clone(), s.world.name.to_owned(), s.about.clone()]);
    output::say(&output::table(&["scenario", "world", "about"], rows));
    if args.worlds {
        for world in holdfast_sim::scenario::WORLDS {
            output::say(&format!("\n{}: {}; looks at {}\n", world.name, world.about, world.promises.join(", ")));
            let row = |k: &holdfast_sim::scenario::Knob| {
                vec![k.name.to_owned(), k.default.to_string(), format!("{}-{}", k.least, k.most), k.about.to_owned()]
            };
            output::say(&output::table(&["set", "default", "range", "about"], world.knobs.iter().map(row)));
            let rows = world.figures.iter().map(|(name, about)| vec![(*name).to_owned(), (*about).to_owned()]);
            output::say(&format!("\n{}", output::table(&["figure", "about"], rows)));
        }
    }
    Ok(())
}

fn world_told(world: &World) -> Value {
    let knob = |k: &holdfast_sim::scenario::Knob| json!({ "name": k.name, "default": k.default, "least": k.least, "most": k.most, "about": k.about });
    let figure = |(name, about): &(&str, &str)| json!({ "name": name, "about": about });
    json!({
        "name": world.name, "about": world.about, "promises": world.promises,
        "knobs": world.knobs.iter().map(knob).collect::<Vec<_>>(),
        "figures": world.figures.iter().map(figure).collect::<Vec<_>>(),
    })
}

fn run_all(args: &SimRunArgs) -> Result<(), Failure> {
    let mut scenarios = Vec::new();
    for name in &args.scenarios {
        scenarios.push(find(name)?.0);
    }
    if args.all {
        scenarios = shipped()?.into_iter().map(|(s, _)| s).collect();
    }
    for (name, value) in &args.set {
        for scenario in &mut scenarios {
            scenario.set(name, *value).map_err(|fault| Failure::wrong(lines(&scenario.name, &[fault])))?;
        }
    }
    for scenario in &scenarios {
        let faults = scenario.at_odds();
        if !faults.is_empty() {
            return Err(Failure::wrong(lines(&scenario.name, &faults)));
        }
    }
    let mut wrong = Vec::new();
    for scenario in &scenarios {
        let progress = Progress::new(args, &scenario.name);
        let played = play(scenario, args.seed, args.seeds, &|done| progress.told(done));
        progress.ends();
        let report = match (&played.wrong, &played.first) {
            (Some(wrong), _) => wrong.report.clone(),
            (None, Some(first)) if !args.log => first.clone(),
            (None, _) => scenario.run(args.seed, &std::collections::BTreeSet::new(), args.log),
        };
        plot(args, scenario, &report)?;
        match args.output {
            Output::Json => output::say(&told(args, scenario, &played).to_string()),
            Output::Table => print(args, scenario, &played, &report),
        }
        wrong.extend(played.wrong.as_ref().map(|w| format!("{} (seed {})", scenario.name, w.seed)));
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!("not as expected: {}", wrong.join(", "))))
}

fn plot(args: &SimRunArgs, scenario: &Scenario, report: &Report) -> Result<(), Failure> {
    let Some(path) = &args.plot else { return Ok(()) };
    let title = format!("{}: {}", scenario.name, scenario.about);
    let written = std::fs::write(path, timeline::svg(&title, &report.series));
    written.map_err(|e| Failure::failed(format!("--plot {}: {e}", path.display())))
}

/// How far it is, on a terminal.
struct Progress {
    name: String,
    seeds: u64,
    shown: bool,
}

impl Progress {
    fn new(args: &SimRunArgs, name: &str) -> Self {
        Self { name: name.to_owned(), seeds: args.seeds, shown: std::io::stderr().is_terminal() }
    }

    fn told(&self, done: u64) {
        if self.shown {
            output::progress(&format!("{}: {done} of {}", self.name, self.seeds));
        }
    }

    fn ends(&self) {
        if self.shown {
            output::progress("");
        }
    }
}

fn short(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

fn told(args: &SimRunArgs, scenario: &Scenario, played: &Played) -> Value {
    let figure = |(name, least, sum, most): &(&'static str, f64, f64, f64)| {
        let range = scenario.ranges.iter().find(|r| r.figure == *name);
        json!({
            "name": name, "least": short(*least), "mean": short(sum / played.runs.max(1) as f64), "most": short(*most),
            "expected": range.map(|r| [r.least, r.most]),
        })
    };
    let wrong = |w: &Wrong| json!({ "seed": w.seed, "what": w.how.what, "at_ms": w.how.at, "shortened": w.shortened.what, "acts": w.acts, "of_acts": w.of, "log": w.log });
    json!({
        "scenario": scenario.name, "world": scenario.world.name, "seed": args.seed, "seeds": args.seeds, "runs": played.runs,
        "passed": played.wrong.is_none(), "promises": scenario.promises,
        "figures": played.figures.iter().map(figure).collect::<Vec<_>>(),
        "wrong": played.wrong.as_ref().map(wrong),
    })
}

fn print(args: &SimRunArgs, scenario: &Scenario, played: &Played, report: &Report) {
    let verdict = if played.wrong.is_none() { "as expected" } else { "NOT AS EXPECTED" };
    let runs = output::counted(usize::try_from(played.runs).unwrap_or(usize::MAX), "run");
    output::say(&format!("{}: {verdict}; {runs} from seed {}; {}\n", scenario.name, args.seed, scenario.about));
    let row = |(name, least, sum, most): &(&'static str, f64, f64, f64)| {
        let range = scenario.ranges.iter().find(|r| r.figure == *name);
        let mean = sum / played.runs.max(1) as f64;
        vec![
            (*name).to_owned(),
            format!("{} ({}-{})", short(mean), short(*least), short(*most)),
            range.map(|r| format!("{} to {}", r.least, r.most)).unwrap_or_default(),
        ]
    };
    output::say(&output::table(&["figure", "mean (least-most)", "expected"], played.figures.iter().map(row)));
    if !scenario.promises.is_empty() && played.wrong.is_none() {
        output::say(&format!("held in every step: {}", scenario.promises.join(", ")));
    }
    let seed = played.wrong.as_ref().map_or(args.seed, |w| w.seed);
    output::say(&format!("\nseed {seed}, by second\n{}\n", timeline::lines(&report.series)));
    if let Some(wrong) = &played.wrong {
        output::say(&format!("seed {}: {}", wrong.seed, wrong.how.what));
        if wrong.how.at > 0 {
            output::say(&format!("at {:.3} s", wrong.how.at as f64 / 1_000.0));
        }
        let of = output::counted(wrong.of, "act");
        let so =
            if wrong.shortened.what == wrong.how.what { String::new() } else { format!(" ({})", wrong.shortened.what) };
        match (wrong.of, wrong.acts.as_slice()) {
            (0, _) => {}
            (_, []) => output::say(&format!("none of its {of} is needed for that{so}")),
            (_, acts) => output::say(&format!("with these of {of}{so}:\n{}", acts.join("\n"))),
        }
        output::say(&format!("{}\n", wrong.log.join("\n")));
    } else if args.log {
        output::say(&report.log.join("\n"));
    }
}
