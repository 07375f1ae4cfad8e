//! `holdfast sim lease`.

use holdfast_quota::lease::Sharing;
use holdfast_sim::lease::Scenario;
use holdfast_sim::{Row, rows};
use serde_json::{Value, json};

use super::super::Failure;
use crate::cli::{Output, SimLeaseArgs, Waiting};
use crate::output::{self, counted};

/// Simulates, and prints what came of it.
pub fn run(args: &SimLeaseArgs) -> Result<(), Failure> {
    let rows = rows(&scenarios(args), args.seeds, args.seed);
    match args.output {
        Output::Json => output::say(&told(args, &rows).to_string()),
        Output::Table => print(args, &rows),
    }
    let broken: u64 = rows.iter().map(|row| row.broken).sum();
    if broken == 0 {
        return Ok(());
    }
    let runs = counted(usize::try_from(broken).unwrap_or(usize::MAX), "run");
    Err(Failure::failed(format!("RATE-1 does not hold: {runs} passed the limit by more than the bound")))
}

fn scenarios(args: &SimLeaseArgs) -> Vec<Scenario> {
    let of = |chunk: &u32| {
        let worked = Scenario::worked().through(args.gateways);
        let turns_from = if args.waiting == Waiting::Turns { worked.turns_from } else { u32::MAX };
        let sharing = Sharing { chunk: *chunk, fraction: args.fraction_percent };
        let (limit, offered, seconds) = (args.limit, args.offered, args.seconds);
        Scenario { limit, offered, seconds, sharing, turns_from, ..worked }
    };
    args.chunk_percent.iter().map(of).collect()
}

/// As many decimals as say something.
fn short(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

fn told(args: &SimLeaseArgs, rows: &[Row]) -> Value {
    let row = |(row, chunk): (&Row, &u32)| {
        json!({
            "chunk": row.chunk,
            "chunk_percent": f64::from(*chunk) / 100.0,
            "gateways": row.gateways,
            "seeds": row.seeds,
            "worst_second_mean": short(row.worst_second_mean),
            "worst_second_min": row.worst_second_spread.0,
            "worst_second_max": row.worst_second_spread.1,
            "store_calls_per_second_mean": short(row.store_calls_per_second_mean),
            "store_calls_per_second_min": short(row.store_calls_per_second_spread.0),
            "store_calls_per_second_max": short(row.store_calls_per_second_spread.1),
            "over_admission_worst": row.over_admission_worst,
            "over_admission_bound": row.over_admission_bound,
            "events": row.events,
            "fairness_least_mean": short(row.fairness_mean.0),
            "fairness_most_mean": short(row.fairness_mean.1),
        })
    };
    let rows: Vec<Value> = rows.iter().zip(&args.chunk_percent).map(row).collect();
    json!({
        "limit": args.limit, "offered": args.offered, "gateways": args.gateways, "seconds": args.seconds,
        "seed": args.seed, "rows": rows,
    })
}

fn print(args: &SimLeaseArgs, rows: &[Row]) {
    let SimLeaseArgs { limit, offered, seconds, seeds, seed, .. } = args;
    let seeds = counted(usize::try_from(*seeds).unwrap_or(usize::MAX), "run");
    let gateways = counted(usize::try_from(args.gateways).unwrap_or(usize::MAX), "gateway");
    output::say(&format!(
        "{limit} a second, offered {offered} through {gateways}, {seconds} s; {seeds} from seed {seed}: mean (least-most)\n"
    ));
    let head = ["chunk", "worst second", "store calls/s", "over the limit", "bound", "least served", "most served"];
    let line = |row: &Row| {
        let (worst, calls, fair) = (row.worst_second_spread, row.store_calls_per_second_spread, row.fairness_mean);
        vec![
            row.chunk.to_string(),
            format!("{:.1} ({}-{})", row.worst_second_mean, worst.0, worst.1),
            format!("{:.1} ({:.1}-{:.1})", row.store_calls_per_second_mean, calls.0, calls.1),
            row.over_admission_worst.to_string(),
            row.over_admission_bound.to_string(),
            format!("{:.0} %", fair.0 * 100.0),
            format!("{:.0} %", fair.1 * 100.0),
        ]
    };
    output::say(&output::table(&head, rows.iter().map(line)));
}
