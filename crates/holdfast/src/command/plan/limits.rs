//! `holdfast plan limits`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

use holdfast_quota::limit::{Allowance, Limit};
use holdfast_quota::replay::{Replay, Tally};
use holdfast_types::Mono;
use serde_json::json;

use super::chart::Chart;
use super::figure::{number, percent, round, things};
use super::refusal::{Refusal, amount};
use super::{Report, output};
use crate::cli::LimitsArgs;

/// Tenants of one file.
const MOST_TENANTS: usize = 100_000;
/// Tenants of a table and a chart.
const SHOWN: usize = 20;

/// Plans.
pub fn plan(args: &LimitsArgs) -> Result<Report, Refusal> {
    let usual = allowance("--limit", &args.limit)?;
    let mut own = BTreeMap::new();
    for given in &args.tenants {
        let form = || Refusal::new("--tenant", given, "is not of the form TENANT=RATE or TENANT=RATE:BURST");
        let (tenant, limit) = given.rsplit_once('=').ok_or_else(form)?;
        own.insert(tenant.to_owned(), allowance("--tenant", limit)?);
    }
    let tallies = replay(args, |tenant| own.get(tenant).copied().unwrap_or(usual))?;
    if let Some(unknown) = own.keys().find(|tenant| !tallies.contains_key(*tenant)) {
        return Err(Refusal::new("--tenant", unknown, "is not in the traffic"));
    }
    Ok(report(args, tallies))
}

/// RATE or RATE:BURST, a second's tokens and the burst, which is a second's tokens if it is left out.
fn allowance(field: &str, given: &str) -> Result<Allowance, Refusal> {
    let wrong = || Refusal::new(field, given, "is not a rate and a burst as whole numbers, RATE or RATE:BURST");
    let (rate, burst) = given.split_once(':').unwrap_or((given, given));
    let [rate, burst] = [rate, burst].map(|text| text.trim().parse::<u64>().map_err(|_| wrong()));
    Ok(Allowance::of(Limit::per_second(rate?, burst?)))
}

/// Feeds the file's lines to a bucket for each tenant.
fn replay(args: &LimitsArgs, of: impl Fn(&str) -> Allowance) -> Result<BTreeMap<String, Tally>, Refusal> {
    let name = args.traffic.display();
    let whole = |reason: String| Refusal::new("--traffic", name.to_string(), reason);
    let file = File::open(&args.traffic).map_err(|e| whole(e.to_string()))?;
    let mut buckets: BTreeMap<String, Replay> = BTreeMap::new();
    let (mut first, mut last) = (None, 0.0);
    for (number, line) in (1u64..).zip(BufReader::new(file).lines()) {
        let line = line.map_err(|e| whole(e.to_string()))?;
        let at = |reason: &str| Refusal::new("--traffic", format!("{name}:{number}"), reason);
        // What some spreadsheets write before the first line.
        let line = if number == 1 { line.trim_start_matches('\u{feff}') } else { &line };
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [time, tenant, cost] = fields[..] else {
            if line.trim().is_empty() {
                continue;
            }
            return Err(at("is not of the form TIME,TENANT,COST"));
        };
        // A first line without any number is a heading.
        if number == 1 && time.parse::<f64>().is_err() && cost.parse::<f64>().is_err() {
            continue;
        }
        let time = time.parse().map_err(|_| at("has no time in seconds"))?;
        let time = amount("", time).map_err(|e| at(&e.reason))?;
        let cost: u64 = cost.parse().map_err(|_| at("has no cost as a whole number"))?;
        if tenant.is_empty() {
            return Err(at("names no tenant"));
        }
        if time < last {
            return Err(at("is before the line above: times do not fall"));
        }
        last = time;
        let now = Mono(((time - *first.get_or_insert(time)) * 1e9) as u64);
        if !buckets.contains_key(tenant) {
            if buckets.len() >= MOST_TENANTS {
                return Err(at("names one tenant more than 100000"));
            }
            buckets.insert(tenant.to_owned(), Replay::new(of(tenant), now));
        }
        if let Some(bucket) = buckets.get_mut(tenant) {
            bucket.offer(now, cost);
        }
    }
    if buckets.is_empty() {
        return Err(whole("has no request".to_owned()));
    }
    Ok(buckets.into_iter().map(|(tenant, replay)| (tenant, replay.tally())).collect())
}

fn share(tally: &Tally) -> f64 {
    if tally.requests == 0 { 0.0 } else { tally.refused as f64 / tally.requests as f64 }
}

fn report(args: &LimitsArgs, tallies: BTreeMap<String, Tally>) -> Report {
    let mut all: Vec<(String, Tally)> = tallies.into_iter().collect();
    all.sort_by(|a, b| b.1.refused.cmp(&a.1.refused).then(a.0.cmp(&b.0)));
    let sum = |of: fn(&Tally) -> u64| all.iter().fold(0u64, |sum, (_, t)| sum.saturating_add(of(t)));
    let (requests, refused, never) = (sum(|t| t.requests), sum(|t| t.refused), sum(|t| t.never));
    let mut chart = Chart::new("part of requests that would have been refused");
    for (tenant, tally) in all.iter().take(SHOWN) {
        chart.bar(tenant, share(tally), percent(share(tally), 1));
    }
    let rows = all.iter().take(SHOWN).map(|(tenant, tally)| {
        vec![
            tenant.clone(),
            number(tally.requests as f64, 0),
            number(tally.refused as f64, 0),
            percent(share(tally), 1),
            number(tally.refused_cost as f64, 0),
            format!("{} ms", number(tally.longest_wait.as_secs_f64() * 1_000.0, 1)),
        ]
    });
    let head = ["tenant", "requests", "refused", "part", "their cost", "longest wait"];
    let shown = if all.len() > SHOWN { format!(" The {SHOWN} with most refusals:") } else { String::new() };
    let text = format!(
        "limit {}: {} of {} of {} would have been refused.{shown}\n\n{}",
        args.limit,
        number(refused as f64, 0),
        things(requests, "request"),
        things(all.len() as u64, "tenant"),
        output::table(&head, rows)
    );
    let tenants = all.iter().map(|(tenant, tally)| {
        json!({
            "tenant": tenant, "requests": tally.requests, "cost": tally.cost, "refused": tally.refused,
            "refused_share": round(share(tally), 4), "refused_cost": tally.refused_cost, "never": tally.never,
            "longest_wait_ms": round(tally.longest_wait.as_secs_f64() * 1_000.0, 3),
        })
    });
    let json = json!({
        "limit": args.limit, "requests": requests, "refused": refused, "tenants": tenants.collect::<Vec<_>>(),
    });
    let helpless = (never > 0).then(|| {
        let those = output::counted(usize::try_from(never).unwrap_or(usize::MAX), "request");
        format!("no waiting helps {those}: the cost is above the burst, or nothing is allowed")
    });
    Report { text, json, chart, warnings: helpless.into_iter().collect() }
}
