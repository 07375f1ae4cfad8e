//! `holdfast plan lease`.

use holdfast_quota::lease::{Sharing, chunk, chunk_nanos, over_admission_bound};
use serde_json::{Value, json};

use super::chart::Chart;
use super::figure::{number, percent, round, things};
use super::refusal::{Refusal, count, positive, share};
use super::{Report, output};
use crate::cli::LeaseArgs;

/// Chunks beside the own one, as the worked case has them.
const BESIDE: [u64; 3] = [1, 25, 100];
const MOST_GATEWAYS: u32 = 100_000;

/// What one size of a lease comes to.
struct Row {
    chunk: u64,
    bound: u64,
    share: f64,
    wait_ms: f64,
    calls: f64,
}

struct Input<'a> {
    args: &'a LeaseArgs,
    sharing: Sharing,
    messages: f64,
    own: Row,
    beside: Vec<Row>,
}

/// Plans.
pub fn plan(args: &LeaseArgs) -> Result<Report, Refusal> {
    let input = check(args)?;
    Ok(Report { text: text(&input), json: told(&input), chart: chart(&input), warnings: warnings(&input) })
}

fn check(args: &LeaseArgs) -> Result<Input<'_>, Refusal> {
    positive("--limit", args.limit as f64)?;
    count("--gateways", args.gateways, MOST_GATEWAYS)?;
    let messages = args.messages.map_or(Ok(args.limit as f64), |m| positive("--messages", m))?;
    let parts = |field, value| share(field, value).map(|value| (value * 10_000.0).round() as u32);
    let sharing = Sharing { chunk: parts("--part", args.part)?, fraction: parts("--fraction", args.fraction)? };
    let size = match args.chunk {
        Some(0) => return Err(Refusal::new("--chunk", 0, "must be more than 0")),
        Some(given) if given > args.limit => {
            return Err(Refusal::new("--chunk", given, "is more than the limit makes in a second"));
        }
        Some(given) => given,
        None => chunk(args.limit, args.gateways, sharing),
    };
    let row = |size: u64, bound: u64| Row {
        chunk: size,
        bound,
        share: bound as f64 / args.limit as f64,
        wait_ms: chunk_nanos(size, args.limit) as f64 / 1e6,
        calls: messages / size as f64,
    };
    let held = |size: u64| size.saturating_mul(u64::from(args.gateways));
    let bound =
        if args.chunk.is_some() { held(size) } else { over_admission_bound(args.limit, args.gateways, sharing) };
    let beside = BESIDE.into_iter().filter(|other| *other != size && *other <= args.limit);
    let beside = beside.map(|other| row(other, held(other))).collect();
    Ok(Input { args, sharing, messages, own: row(size, bound), beside })
}

/// What one gateway enforces while the store is down: a fraction, never rounded to none.
fn alone(input: &Input<'_>) -> f64 {
    input.args.limit as f64 / f64::from(input.args.gateways)
}

fn row_json(row: &Row) -> Value {
    json!({
        "chunk": row.chunk, "bound": row.bound, "bound_share": round(row.share, 4), "wait_ms": round(row.wait_ms, 6),
        "store_calls_per_second": round(row.calls, 3),
    })
}

fn told(input: &Input<'_>) -> Value {
    let args = input.args;
    let mut all = json!({
        "limit": args.limit, "gateways": args.gateways, "messages": input.messages, "part": args.part, "fraction": args.fraction,
        "unleased_store_calls_per_second": input.messages, "shareable": input.sharing.is_shareable(args.limit, args.gateways),
        "limit_per_gateway_without_store": round(alone(input), 3), "beside": input.beside.iter().map(row_json).collect::<Vec<_>>(),
    });
    if let (Some(members), Value::Object(own)) = (all.as_object_mut(), row_json(&input.own)) {
        members.extend(own);
    }
    all
}

fn text(input: &Input<'_>) -> String {
    let mut rows: Vec<(&Row, &str)> = input.beside.iter().map(|row| (row, "")).collect();
    rows.push((&input.own, "*"));
    rows.sort_by_key(|(row, _)| row.chunk);
    let lines = rows.into_iter().map(|(row, mark)| {
        vec![
            format!("{}{mark}", number(row.chunk as f64, 0)),
            number(row.bound as f64, 0),
            percent(row.share, 1),
            format!("{} ms", round(row.wait_ms, 3)),
            number(row.calls, 0),
        ]
    });
    let head = ["chunk", "passed once by", "of the limit", "wait after nothing", "granted calls/s"];
    let how = match input.args.chunk {
        Some(_) => "as given".to_owned(),
        None => format!(
            "{} of the limit per second, at least 1, at most {} of it over all gateways",
            percent(input.args.part, 1),
            percent(input.args.fraction, 0)
        ),
    };
    format!(
        "limit {}/s over {}: chunk {}; {} messages/s, each a store call without leases\n\n{}\n\n* {how}\n\
         While the store is down each gateway enforces {}/s.\n\
         Granted calls are those of whole chunks; partial grants and refusals come on top.",
        number(input.args.limit as f64, 0),
        crate::output::counted(input.args.gateways as usize, "gateway"),
        number(input.own.chunk as f64, 0),
        number(input.messages, 0),
        output::table(&head, lines),
        number(alone(input), if alone(input).fract() > 0.0 { 3 } else { 0 }),
    )
}

fn warnings(input: &Input<'_>) -> Vec<String> {
    let args = input.args;
    let mut all = Vec::new();
    if !input.sharing.is_shareable(args.limit, args.gateways) {
        let gateways = args.gateways;
        all.push(format!(
            "a limit of {}/s is too small for {} to share: its tokens go from one to the next, with two store calls for each",
            args.limit,
            things(gateways.into(), "gateway")
        ));
    }
    if input.own.share > args.fraction {
        all.push(format!(
            "gateways may hold {} of the limit together: large chunks hoard",
            percent(input.own.share, 1)
        ));
    }
    all
}

fn chart(input: &Input<'_>) -> Chart {
    let mut rows: Vec<&Row> = input.beside.iter().chain([&input.own]).collect();
    rows.sort_by_key(|row| row.chunk);
    let mut chart = Chart::new("passed once by, as a part of the limit per second");
    for row in rows {
        chart.bar(format!("chunk {}", number(row.chunk as f64, 0)), row.share, percent(row.share, 1));
    }
    chart
}
