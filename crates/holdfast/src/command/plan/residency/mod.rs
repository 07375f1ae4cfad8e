//! `holdfast plan residency`.

mod found;
mod input;
mod live;
mod real;
mod solve;

use holdfast_placement::layouts::{Case, Overflow};
use serde_json::{Value, json};

use super::chart::Chart;
use super::figure::{gigabytes, number, percent, round, things};
use super::refusal::{Refusal, count};
use super::{Report, output};
use crate::cli::{ResidencyArgs, Solve};
use crate::output::counted;
use found::{Found, Laid, find, gb, replication};
use input::{Pool, Source};

/// Scores of keys for the chance of an overflow.
const WORK: u64 = 5_000_000;

/// Plans.
pub fn plan(args: &ResidencyArgs) -> Result<Report, Refusal> {
    match (input::read(args)?, args.solve) {
        (Source::Invented(asked), Some(Solve::Replicas)) => solve::invented(args, &asked),
        (Source::Real(asked), Some(Solve::Replicas)) => solve::real(args, &asked),
        (Source::Invented(asked), None) => invented(args, asked.case, &asked.pool(asked.case.replicas, 0)?),
        (Source::Real(asked), None) => Ok(real(&asked.pools()?, first(args, u32::MAX)?)),
    }
}

/// Copies of everything before anybody gets more.
fn first(args: &ResidencyArgs, most: u32) -> Result<usize, Refusal> {
    Ok(count("--copies", args.copies.unwrap_or(1), most.min(solve::MOST_COPIES))? as usize)
}

/// What random layouts do with each k.
struct Chances {
    layouts: u32,
    by_k: Vec<(u32, Overflow)>,
}

fn chances(args: &ResidencyArgs, case: Case) -> Result<Chances, Refusal> {
    let mut ks: Vec<u32> = (1..=3).chain(args.k).filter(|k| *k <= case.replicas).collect();
    ks.sort_unstable();
    ks.dedup();
    let scores = (u64::from(case.versions) * u64::from(case.replicas)).max(1);
    let layouts = u32::try_from(WORK / scores).unwrap_or(u32::MAX).clamp(1, args.layouts);
    let sizes: Vec<usize> = ks.iter().map(|k| *k as usize).collect();
    let found = case.overflow(&sizes, layouts);
    let found = found.map_err(|e| Refusal::new("--replicas", case.replicas, e.to_string()))?;
    Ok(Chances { layouts, by_k: ks.into_iter().zip(found).collect() })
}

fn needed(case: Case, k: u32) -> u64 {
    u64::from(case.versions).saturating_mul(case.size.0).saturating_mul(u64::from(k))
}

fn memory(case: Case) -> u64 {
    u64::from(case.replicas).saturating_mul(case.memory.0)
}

fn invented(args: &ResidencyArgs, case: Case, pool: &Pool) -> Result<Report, Refusal> {
    let chances = chances(args, case)?;
    let first = first(args, case.replicas)?;
    let found = find(pool, first);
    let (full, memory) = (needed(case, 1), memory(case));
    let mean = memory as f64 / full as f64;
    let slots = case.memory.0 / case.size.0;
    let rows = chances.by_k.iter().map(|(k, overflow)| {
        let fits = needed(case, *k) <= memory;
        vec![
            k.to_string(),
            gigabytes(needed(case, *k)),
            if fits { "fits" } else { "does not fit" }.to_owned(),
            percent(overflow.any, 1),
            percent(overflow.one, 1),
        ]
    });
    let head = ["k", "needed", "on average", "layouts that overflow", "replicas that overflow"];
    let text = format!(
        "{} x {} = {} per full copy; {} x {} = {}\n\
         mean replication at most {}; {} a replica\n\n{}\n\nOver {}. One layout of invented names:\n\n{}",
        things(case.versions.into(), "version"),
        gigabytes(case.size.0),
        gigabytes(full),
        things(case.replicas.into(), "replica"),
        gigabytes(case.memory.0),
        gigabytes(memory),
        number(mean, 1),
        things(slots, "version"),
        output::table(&head, rows),
        counted(chances.layouts as usize, "layout"),
        laid(pool, &found)
    );
    let mut json = json!({
        "versions": case.versions, "size_bytes": case.size.0, "replicas": case.replicas, "replica_memory_bytes": case.memory.0,
        "full_copy_bytes": full, "full_copy_gb": gb(full), "memory_bytes": memory, "memory_gb": gb(memory),
        "mean_replication": round(mean, 2), "versions_per_replica": slots, "layouts": chances.layouts,
        "by_k": chances.by_k.iter().map(|(k, overflow)| of_k(case, *k, *overflow)).collect::<Vec<_>>(),
        "pools": [found::json(pool, &found)],
    });
    // Who asks for one k finds its figures without looking into a list.
    let asked = chances.by_k.iter().find(|(k, _)| Some(*k) == args.k).map(|(k, overflow)| of_k(case, *k, *overflow));
    if let (Some(Value::Object(asked)), Some(members)) = (asked, json.as_object_mut()) {
        members.extend(asked);
    }
    let asked = chances.by_k.iter().filter(|(k, _)| Some(*k) == args.k || args.k.is_none());
    let over = asked.filter(|(k, o)| needed(case, *k) > memory || o.any > 0.0).map(|(k, o)| warning(case, *k, *o));
    let warnings = over.chain(short(pool, &found, first)).collect();
    Ok(Report { text, json, chart: chart(&[(pool, &found)]), warnings })
}

fn of_k(case: Case, k: u32, overflow: Overflow) -> Value {
    let on_average = needed(case, k) <= memory(case);
    json!({
        "k": k, "needed_bytes": needed(case, k), "needed_gb": gb(needed(case, k)), "fits_on_average": on_average,
        "fits": on_average && overflow.any <= 0.0, "overflow_chance": round(overflow.any, 4),
        "replica_overflow_chance": round(overflow.one, 4),
    })
}

fn warning(case: Case, k: u32, overflow: Overflow) -> String {
    let (needed, memory) = (needed(case, k), memory(case));
    if needed > memory {
        return format!("k = {k} needs {} of {} and does not fit", gigabytes(needed), gigabytes(memory));
    }
    format!("k = {k} fits on average, but {} of layouts overflow some replica", percent(overflow.any, 1))
}

fn real(pools: &[Pool], first: usize) -> Report {
    let found: Vec<(&Pool, Found)> = pools.iter().map(|pool| (pool, find(pool, first))).collect();
    let text: Vec<String> = found
        .iter()
        .map(|(pool, found)| {
            let mean = replication(found).map_or("not known".to_owned(), |mean| number(mean, 1));
            let memory = found.given.fit.memory.map_or("not known".to_owned(), |memory| gigabytes(memory.0));
            format!(
                "pool {}: {} over {}; {} per full copy, memory {memory}: mean replication at most {mean}\n\n{}",
                pool.name,
                counted(pool.keys.len(), "pinned key"),
                counted(pool.replicas.len(), "replica"),
                gigabytes(found.full_copy.0),
                laid(pool, found)
            )
        })
        .collect();
    let over = found.iter().flat_map(|(pool, found)| {
        found.given.fit.overflows().map(|(replica, over)| {
            let name = pool.replicas.get(replica as usize).map_or("", String::as_str);
            format!("pool {}: {name} is to hold {} more than it has", pool.name, gigabytes(over.0))
        })
    });
    let short = found.iter().filter_map(|(pool, found)| short(pool, found, first));
    let warnings = over.chain(short).collect();
    let json = json!({ "pools": found.iter().map(|(pool, found)| found::json(pool, found)).collect::<Vec<_>>() });
    let drawn: Vec<(&Pool, &Found)> = found.iter().map(|(pool, found)| (*pool, found)).collect();
    Report { text: text.join("\n\n"), json, chart: chart(&drawn), warnings }
}

/// Who has fewer copies than were to come first.
fn short(pool: &Pool, found: &Found, first: usize) -> Option<String> {
    let short = found.proposed.short_of(first.min(pool.replicas.len()));
    let keys = match short {
        0 => return None,
        1 => "1 key has".to_owned(),
        many => format!("{} keys have", number(many as f64, 0)),
    };
    let why = "the next replica in its order has no room";
    Some(format!("pool {}: {keys} fewer than {first} copies as proposed: {why}", pool.name))
}

/// The layout as it is and as it could be, the proposed k, and what losses do.
fn laid(pool: &Pool, found: &Found) -> String {
    let row = |name: &str, laid: &Laid| {
        let alone = laid.alone.iter().filter(|keys| !keys.is_empty()).count();
        vec![
            name.to_owned(),
            gigabytes(laid.fit.needed.0),
            laid.fit.overflows().count().to_string(),
            laid.to_warm().to_string(),
            number(laid.loads, 2),
            format!("{} on {}", laid.alone_total(), counted(alone, "replica")),
        ]
    };
    let head = ["layout", "needed", "overflowing", "loads to warm", "cold loads/s", "keys that one loss leaves"];
    let rows = [row("as given", &found.given), row("proposed", &found.proposed)];
    let counts = found.proposed.counts();
    let ks: Vec<String> = counts.iter().map(|(k, keys)| format!("{k} for {keys}")).collect();
    let mut out = format!("{}\n\nproposed k: {}", output::table(&head, rows), ks.join(", "));
    let mut heavy: Vec<(usize, &input::Key)> = found.proposed.ks.iter().copied().zip(&pool.keys).collect();
    heavy.sort_by(|a, b| b.1.rate.total_cmp(&a.1.rate));
    let heavy = heavy
        .iter()
        .take(5)
        .map(|(k, key)| vec![key.label.clone(), number(key.rate, 1), key.k.to_string(), k.to_string()]);
    out.push_str(&format!("\n\n{}", output::table(&["busiest key", "requests/s", "k", "proposed"], heavy)));
    for (name, laid) in [("as given", &found.given), ("proposed", &found.proposed)] {
        out.push_str(&format!("\n\n{name}: {}", losses(pool, laid)));
    }
    out
}

/// Which single loss leaves a pinned key without a holder that is certain.
fn losses(pool: &Pool, laid: &Laid) -> String {
    let Some((worst, keys)) = laid.worst_loss() else {
        return "no loss of one replica leaves a pinned version without a holder".to_owned();
    };
    let named = |index: usize| pool.replicas.get(index).map_or("", String::as_str);
    let label = |key: &usize| pool.keys.get(*key).map_or("", |key| key.label.as_str());
    let lost: Vec<&str> = keys.iter().take(3).map(label).collect();
    let all: Vec<&str> =
        (0..laid.alone.len()).filter(|i| laid.alone.get(*i).is_some_and(|k| !k.is_empty())).map(named).collect();
    let (shown, more) = (all.iter().take(5).copied().collect::<Vec<_>>().join(", "), all.len().saturating_sub(5));
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let over = laid.fit.overflows().count();
    let uncertain = match over {
        0 => String::new(),
        _ => format!(
            "{} to hold more than fits, and cannot be relied on for any of it. So ",
            if over == 1 { "1 replica is".to_owned() } else { format!("{over} replicas are") }
        ),
    };
    format!(
        "{uncertain}the loss of {shown}{more} leaves a pinned version without a holder; of {} most: {} ({}{})",
        named(worst),
        counted(keys.len(), "key"),
        lost.join(", "),
        if keys.len() > 3 { ", ..." } else { "" }
    )
}

/// How full replicas are, proposed: how many of them in each tenth.
fn chart(pools: &[(&Pool, &Found)]) -> Chart {
    let mut chart = Chart::new("replicas by how full the proposed layout makes them");
    let mut tenths = [0u32; 11];
    for replica in pools.iter().flat_map(|(_, found)| &found.proposed.fit.replicas) {
        let Some(memory) = replica.memory.filter(|m| m.0 > 0) else { continue };
        let tenth = (u128::from(replica.needed.0) * 10).div_ceil(u128::from(memory.0)).max(1) - 1;
        if let Some(count) = tenths.get_mut(usize::try_from(tenth).unwrap_or(10).min(10)) {
            *count += 1;
        }
    }
    for (tenth, count) in tenths.iter().enumerate() {
        let label = if tenth < 10 { format!("to {} %", (tenth + 1) * 10) } else { "over 100 %".to_owned() };
        chart.bar(label, f64::from(*count), count.to_string());
    }
    chart
}
