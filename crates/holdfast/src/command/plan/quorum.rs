//! `holdfast plan quorum`.

use holdfast_quorum::availability::{Group, availability, grouped, independent, unavailability};
use holdfast_quorum::latency::{Fleet, Latency};
use holdfast_quorum::shape::{MAX_REPLICAS, Quorum, ShapeError};
use serde_json::{Value, json};

use super::chart::Chart;
use super::figure::{number, percent, round, things};
use super::refusal::{Refusal, amount, count, share};
use super::{Report, output};
use crate::cli::QuorumArgs;

/// Said with every availability.
const ASSUMES: [&str; 3] = [
    "replicas fail independently, but for --groups; shared faults (a region, a release, power) make real figures worse",
    "the guarantee is per key: nothing is said of two keys together",
    "a time is that of all replicas being up",
];

/// A planner's input, checked.
struct Input {
    a: f64,
    n: u32,
    up: Vec<f64>,
    shapes: Vec<Quorum>,
    latency: Option<(Latency, Vec<f64>)>,
}

/// Plans.
pub fn plan(args: &QuorumArgs) -> Result<Report, Refusal> {
    let input = check(args)?;
    let rows: Vec<Value> = input.shapes.iter().map(|shape| told(&input, *shape)).collect();
    let depths = depths(&input);
    let mut json = json!({
        "n": input.n, "a": input.a, "unavailability": depths, "quorums": rows, "assumes": ASSUMES,
        "groups": args.groups, "group_a": (!args.groups.is_empty()).then_some(args.group_a),
    });
    // Who asks for one shape finds its figures without looking into a list.
    if let ([only], Some(members)) = (rows.as_slice(), json.as_object_mut()) {
        members
            .extend(only.as_object().cloned().unwrap_or_default().into_iter().filter(|(k, _)| k != "unavailability"));
    }
    let warnings = input.shapes.iter().flat_map(|shape| warnings(*shape)).collect();
    Ok(Report { text: text(&input), json, chart: chart(&input), warnings })
}

fn check(args: &QuorumArgs) -> Result<Input, Refusal> {
    let n = count("--n", args.n, MAX_REPLICAS)?;
    let a = share("--a", args.a)?;
    let shapes = match (args.r, args.w) {
        (Some(r), Some(w)) => vec![shape(n, r, w)?],
        _ => even_and_neighbours(n),
    };
    let up = if args.groups.is_empty() { independent(n, a) } else { in_groups(args, n, a)? };
    Ok(Input { a, n, up, shapes, latency: latency(args, n)? })
}

fn shape(n: u32, r: u32, w: u32) -> Result<Quorum, Refusal> {
    Quorum::new(n, r, w).map_err(|error| {
        let (field, value) = match error {
            ShapeError::Replicas(_) => ("--n", n),
            ShapeError::Reads { .. } => ("--r", r),
            ShapeError::Writes { .. } => ("--w", w),
        };
        Refusal::new(field, value, error.to_string())
    })
}

/// The shapes with the least overlap around the even one: for read-heavy, for even, for write-heavy traffic.
fn even_and_neighbours(n: u32) -> Vec<Quorum> {
    let even = n / 2 + 1;
    let reads = [even.saturating_sub(1), even, even + 1];
    let shapes = reads.into_iter().filter_map(|r| Quorum::new(n, r, (n + 1).saturating_sub(r)).ok());
    shapes.collect()
}

fn in_groups(args: &QuorumArgs, n: u32, a: f64) -> Result<Vec<f64>, Refusal> {
    let up = share("--group-a", args.group_a)?;
    let all = args.groups.iter().fold(0u32, |sum, g| sum.saturating_add(*g));
    if all != n || args.groups.contains(&0) {
        let given = args.groups.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        return Err(Refusal::new(
            "--groups",
            given,
            format!("are {} in groups of 1 and more, not {n}", things(all.into(), "replica")),
        ));
    }
    let groups: Vec<Group> = args.groups.iter().map(|replicas| Group { replicas: *replicas, up }).collect();
    Ok(grouped(&groups, a))
}

/// A quantile is found by some dozens of sums over all pairs; more replicas than this would take minutes.
const MOST_WITH_LATENCY: u32 = 50;

fn latency(args: &QuorumArgs, n: u32) -> Result<Option<(Latency, Vec<f64>)>, Refusal> {
    if args.latency.is_empty() {
        return Ok(None);
    }
    count("--n", n, MOST_WITH_LATENCY)?;
    let given = args.latency.join(",");
    let point = |text: &String| {
        let (percent, ms) = text.split_once(':')?;
        Some((percent.trim().parse::<f64>().ok()? / 100.0, ms.trim().parse::<f64>().ok()?))
    };
    let points: Option<Vec<(f64, f64)>> = args.latency.iter().map(point).collect();
    let points = points.ok_or_else(|| Refusal::new("--latency", &given, "is not of the form PERCENT:MS,..."))?;
    for (_, ms) in &points {
        amount("--latency", *ms)?;
    }
    let latency = Latency::new(&points).map_err(|e| Refusal::new("--latency", &given, e.to_string()))?;
    for distance in &args.distances {
        amount("--distances", *distance)?;
    }
    match args.distances.len() {
        0 => Ok(Some((latency, vec![0.0; n as usize]))),
        many if many == n as usize => Ok(Some((latency, args.distances.clone()))),
        many => {
            let given = args.distances.iter().map(f64::to_string).collect::<Vec<_>>().join(",");
            Err(Refusal::new(
                "--distances",
                given,
                format!("are {} for {}", things(many as u64, "distance"), things(n.into(), "replica")),
            ))
        }
    }
}

/// For each k: the chance that fewer than k are up, and how many times that of k - 1 it is.
fn depths(input: &Input) -> Vec<Value> {
    let depth = |k: u32| {
        let (down, before) = (unavailability(&input.up, k), unavailability(&input.up, k - 1));
        json!({
            "k": k, "availability": availability(&input.up, k), "unavailability": down,
            "unavailability_percent": round(down * 100.0, 4), "ratio": (before > 0.0).then(|| round(down / before, 1)),
        })
    };
    (1..=input.n).map(depth).collect()
}

fn told(input: &Input, shape: Quorum) -> Value {
    let down = |k| unavailability(&input.up, k);
    let times = |k| {
        input.latency.as_ref().map(|(latency, distances)| {
            let fleet = Fleet { latency, distances };
            let [p50, p99, mean] = [fleet.quantile(k, 0.5), fleet.quantile(k, 0.99), fleet.mean(k)];
            json!({ "p50": round(p50, 3), "p99": round(p99, 3), "mean": round(mean, 3) })
        })
    };
    let cut = shape.n() - shape.n() / 2;
    let side = |replicas: u32| {
        let may = shape.side(replicas);
        json!({ "side": replicas, "reads": may.reads, "writes": may.writes })
    };
    json!({
        "r": shape.r(), "w": shape.w(), "overlap": shape.overlap(),
        "losses_tolerated": { "writes": shape.losses_for_writes(), "reads": shape.losses_for_reads() },
        "unavailability": { "writes": down(shape.w()), "reads": down(shape.r()) },
        "availability": { "writes": availability(&input.up, shape.w()), "reads": availability(&input.up, shape.r()) },
        "partition": [side(cut), side(shape.n() - cut)],
        "diverges_when_cut": shape.diverges_when_cut(),
        "latency_ms": input.latency.as_ref().map(|_| json!({ "write": times(shape.w()), "read": times(shape.r()) })),
    })
}

fn warnings(shape: Quorum) -> Vec<String> {
    let (n, r, w) = (shape.n(), shape.r(), shape.w());
    let mut all = Vec::new();
    if !shape.reads_meet_writes() {
        all.push(format!(
            "R + W = {} does not pass N = {n}: a read may miss the last acknowledged write; only where staleness is cheap, never for a revoked token",
            r + w
        ));
    }
    if shape.diverges_when_cut() {
        all.push(format!("W = {w} of {n}: both sides of a cut may take writes, and diverge"));
    }
    all
}

fn text(input: &Input) -> String {
    let rows = input.shapes.iter().map(|shape| {
        let down = |k| percent(unavailability(&input.up, k), 4);
        let mut row = vec![
            format!("({},{})", shape.r(), shape.w()),
            shape.overlap().to_string(),
            format!("{}/{}", shape.losses_for_writes(), shape.losses_for_reads()),
            down(shape.w()),
            down(shape.r()),
            sides(*shape),
        ];
        if let Some((latency, distances)) = &input.latency {
            let fleet = Fleet { latency, distances };
            let times = |k| [0.5, 0.99].map(|q| number(fleet.quantile(k, q), 1)).join(" / ");
            row.extend([times(shape.w()), times(shape.r())]);
        }
        row
    });
    let mut head = vec!["(R,W)", "overlap", "losses W/R", "writes down", "reads down", "cut in two"];
    if input.latency.is_some() {
        head.extend(["write p50 / p99 ms", "read p50 / p99 ms"]);
    }
    let title = format!("N = {}, a = {}\n", input.n, input.a);
    let notes: Vec<String> = ASSUMES.iter().map(|note| format!("- {note}")).collect();
    format!("{title}\n{}\n\n{}", output::table(&head, rows), notes.join("\n"))
}

/// What the sides of the evenest cut may do.
fn sides(shape: Quorum) -> String {
    let larger = shape.n() - shape.n() / 2;
    let side = |replicas: u32| {
        let may = shape.side(replicas);
        let what = match (may.reads, may.writes) {
            (true, true) => "reads, writes",
            (true, false) => "reads",
            (false, true) => "writes",
            (false, false) => "refuses",
        };
        format!("{replicas}: {what}")
    };
    format!("{} | {}", side(larger), side(shape.n() - larger))
}

fn chart(input: &Input) -> Chart {
    let mut chart =
        Chart::new("unavailability by the number k that must be up (bars: powers of ten above one in a billion)");
    let mut before = 0.0;
    for k in 1..=input.n.min(20) {
        let down = unavailability(&input.up, k);
        let times = if before > 0.0 { format!(", {} times", number(down / before, 1)) } else { String::new() };
        chart.bar(format!("k = {k}"), (down.max(1e-9).log10() + 9.0).max(0.0), format!("{}{times}", percent(down, 4)));
        before = down;
    }
    chart
}
