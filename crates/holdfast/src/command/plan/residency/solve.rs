//! How many replicas it takes.
//!
//! Three numbers, for three meanings of "fits": all copies in all memory together; one layout of invented names, with the copies of each key where it hashes
//! to; and nearly all such layouts, which is what can be bought before the names are known. A replica more takes keys from others and gives them none, so
//! each number is found by doubling and halving.

use holdfast_placement::fit::{Fit, Pin, fit};
use holdfast_types::Bytes;
use serde_json::{Value, json};

use super::super::Report;
use super::super::figure::{gigabytes, number, percent, round, things};
use super::super::output;
use super::super::refusal::{Refusal, count, positive, share};
use super::found::{self, find};
use super::input::{Invented, Pool, most_replicas};
use super::real::Real;
use super::{chart, laid};
use crate::cli::ResidencyArgs;

/// Copies of each version where nothing is said, as a tenant's `subset`.
const COPIES: u32 = 2;
/// The most copies: as many as a route's order has at least.
pub const MOST_COPIES: u32 = 15;
/// The chance of an overflow that is borne where nothing is said.
const CHANCE: f64 = 0.05;
/// Layouts that a chance is taken over at least.
const LEAST_LAYOUTS: u32 = 20;

/// What has to hold.
struct Terms {
    copies: u32,
    chance: f64,
    layouts: u32,
    bears: Option<f64>,
}

/// How many replicas it takes.
struct Solved {
    reserve: Bytes,
    /// All memory together would do.
    on_average: u32,
    /// The first layout of invented names fits.
    one_layout: u32,
    /// All but a stated part of the layouts fit.
    likely: u32,
    /// Over how many layouts that was counted.
    layouts: u32,
    /// No replica gets more requests than it bears.
    traffic: Option<u32>,
}

impl Solved {
    fn replicas(&self) -> u32 {
        self.likely.max(self.one_layout).max(self.traffic.unwrap_or(0))
    }

    fn json(&self, terms: &Terms) -> Value {
        json!({
            "replicas": self.replicas(), "on_average": self.on_average, "one_layout": self.one_layout, "likely": self.likely,
            "traffic": self.traffic, "copies": terms.copies, "reserve_bytes": self.reserve.0, "chance": terms.chance,
            "layouts": self.layouts, "bears": terms.bears,
        })
    }

    fn table(&self, terms: &Terms) -> String {
        let copies = match terms.copies {
            1 => "its copy".to_owned(),
            many => format!("its {many} copies"),
        };
        let layouts = things(self.layouts.into(), "layout");
        let mut rows = vec![
            (
                self.on_average,
                "on average: all copies fit into all memory together, and some replica overflows".to_owned(),
            ),
            (self.one_layout, format!("in one layout each key has {copies}, where it hashes to")),
            (
                self.likely,
                format!("so in all but {} of {layouts}, with other names of replicas", percent(terms.chance, 1)),
            ),
        ];
        if let (Some(traffic), Some(bears)) = (self.traffic, terms.bears) {
            rows.push((traffic, format!("no replica gets more than {} requests/s", number(bears, 0))));
        }
        let rows = rows.into_iter().map(|(many, what)| vec![number(f64::from(many), 0), what]);
        output::table(&["replicas", "until"], rows)
    }
}

fn terms(args: &ResidencyArgs) -> Result<Terms, Refusal> {
    Ok(Terms {
        copies: count("--copies", args.copies.unwrap_or(COPIES), MOST_COPIES)?,
        chance: share("--chance", args.chance.unwrap_or(CHANCE))?,
        layouts: count("--layouts", args.layouts, 10_000)?,
        bears: args.bears.map(|bears| positive("--bears", bears)).transpose()?,
    })
}

/// For equal versions on equal replicas.
pub fn invented(args: &ResidencyArgs, asked: &Invented) -> Result<Report, Refusal> {
    let terms = terms(args)?;
    let (size, memory) = (asked.case.size, asked.case.memory);
    if size.0.saturating_mul(2) > memory.0 {
        let reason =
            format!("has no room for a version of {} and another one, as a pin that changes needs", gigabytes(size.0));
        return Err(Refusal::new("--memory", args.memory.clone().unwrap_or_default(), reason));
    }
    let solved = solve(&terms, terms.copies, asked.most(), &|replicas, set| asked.pool(replicas, set))?;
    let mut pool = asked.pool(solved.replicas(), 0)?;
    for key in &mut pool.keys {
        key.k = terms.copies as usize;
    }
    let found = find(&pool, terms.copies as usize);
    let text = format!(
        "{} x {}, {} of each, on replicas of {}; room for one version stays free on each\n\n{}\n\n\
         So {}; with one more, a loss of one leaves every key all its copies. With them, in one layout of invented names:\n\n{}",
        things(asked.case.versions.into(), "version"),
        gigabytes(size.0),
        if terms.copies == 1 { "1 copy".to_owned() } else { format!("{} copies", terms.copies) },
        gigabytes(memory.0),
        solved.table(&terms),
        things(solved.replicas().into(), "replica"),
        laid(&pool, &found)
    );
    let json = json!({
        "versions": asked.case.versions, "size_bytes": size.0, "replica_memory_bytes": memory.0,
        "solved": solved.json(&terms), "pools": [found::json(&pool, &found)],
    });
    Ok(Report { text, json, chart: chart(&[(&pool, &found)]), warnings: Vec::new() })
}

/// For each pool of a configuration: how many replicas are to be added.
pub fn real(args: &ResidencyArgs, asked: &Real) -> Result<Report, Refusal> {
    let terms = terms(args)?;
    let (mut text, mut told, mut drawn) = (Vec::new(), Vec::new(), Vec::new());
    for (index, pool) in asked.pools()?.iter().enumerate() {
        let has = u32::try_from(pool.replicas.len()).unwrap_or(u32::MAX);
        let keys = u32::try_from(pool.keys.len()).unwrap_or(u32::MAX);
        let most = most_replicas(pool.keys.len()).max(has);
        let grown = |replicas: u32, set| asked.grown(index, replicas.saturating_sub(has), set);
        let solved = solve(&terms, has.max(terms.copies), most, &grown)?;
        let grown = grown(solved.replicas(), 0)?;
        let found = find(&grown, terms.copies as usize);
        let added = solved.replicas().saturating_sub(has);
        text.push(format!(
            "pool {}: {} on {}; room for one version stays free on each\n\n{}\n\nSo {}; with one more, a loss of one leaves every key all its copies. With them:\n\n{}",
            pool.name,
            things(keys.into(), "pinned key"),
            things(has.into(), "replica"),
            solved.table(&terms),
            if added == 0 { "nothing has to be added".to_owned() } else { format!("{} more", things(added.into(), "replica")) },
            laid(&grown, &found)
        ));
        let mut json = found::json(&grown, &found);
        if let Some(members) = json.as_object_mut() {
            members.insert("solved".to_owned(), solved.json(&terms));
            members.insert("replicas_now".to_owned(), json!(has));
        }
        told.push(json);
        drawn.push((grown, found));
    }
    let drawn: Vec<(&Pool, &found::Found)> = drawn.iter().map(|(pool, found)| (pool, found)).collect();
    Ok(Report { text: text.join("\n\n"), json: json!({ "pools": told }), chart: chart(&drawn), warnings: Vec::new() })
}

type Grown<'a> = &'a dyn Fn(u32, u32) -> Result<Pool, Refusal>;

fn solve(terms: &Terms, from: u32, most: u32, grown: Grown<'_>) -> Result<Solved, Refusal> {
    let reserve = grown(from, 0)?.sizes.into_iter().max().unwrap_or_default();
    let copies = terms.copies as usize;
    let none = |what: &str| {
        Refusal::new("--solve", "replicas", format!("has no answer up to {}: {what}", things(most.into(), "replica")))
    };
    let average = |replicas| {
        let pool = grown(replicas, 0)?;
        let (fit, free) = (fit_of(&pool, copies), reserve.0.saturating_mul(replicas.into()));
        Ok(fit.memory.is_none_or(|memory| fit.needed.0.saturating_add(free) <= memory.0))
    };
    let on_average =
        least(from, most, average)?.ok_or_else(|| none("all copies do not fit into all memory together"))?;
    let fits = |replicas, set| Ok(has_room(&fit_of(&grown(replicas, set)?, copies), reserve));
    let one_layout = least(from, most, |replicas| fits(replicas, 0))?;
    let one_layout = one_layout.ok_or_else(|| none("some replica overflows"))?;
    let many = |replicas: u32| {
        let scores = grown(replicas, 0).map_or(1, |pool| pool.keys.len() as u64).max(1) * u64::from(replicas);
        let layouts = u32::try_from(super::WORK / scores).unwrap_or(u32::MAX);
        layouts.clamp(LEAST_LAYOUTS.min(terms.layouts), terms.layouts)
    };
    let likely = |replicas| {
        let layouts = many(replicas);
        let bearable = (f64::from(layouts) * terms.chance) as u32;
        let mut over = 0;
        for set in 0..layouts {
            over += u32::from(!fits(replicas, set)?);
            if over > bearable {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let likely = least(from, most, likely)?.ok_or_else(|| none("too many layouts overflow some replica"))?;
    let traffic = match terms.bears {
        None => None,
        Some(bears) => {
            let borne = |replicas| Ok(busiest(&grown(replicas, 0)?, copies) <= bears);
            Some(least(from, most, borne)?.ok_or_else(|| none("a replica gets more requests than --bears"))?)
        }
    };
    Ok(Solved { reserve, on_average, one_layout, likely, layouts: many(likely), traffic })
}

fn fit_of(pool: &Pool, copies: usize) -> Fit {
    let pins = pool.keys.iter().map(|key| Pin { version: key.version, order: &key.order, k: copies });
    let pins: Vec<Pin<'_>> = pins.collect();
    fit(&pool.memories, &pool.sizes, &pins)
}

/// Whether every replica has room for what hashes to it, and for one version more.
fn has_room(fit: &Fit, reserve: Bytes) -> bool {
    let has = |needed: Bytes, memory: Option<Bytes>| memory.is_none_or(|m| needed.0.saturating_add(reserve.0) <= m.0);
    fit.short.is_empty() && fit.replicas.iter().all(|replica| has(replica.needed, replica.memory))
}

/// What the busiest replica gets in a second of the proposed layout, each key's holders taking even parts of it.
fn busiest(pool: &Pool, copies: usize) -> f64 {
    let found = find(pool, copies);
    let mut got = vec![0.0; pool.replicas.len()];
    for (key, k) in pool.keys.iter().zip(&found.proposed.ks) {
        for replica in key.order.iter().take(*k) {
            if let Some(sum) = got.get_mut(*replica as usize) {
                *sum += key.rate / *k as f64;
            }
        }
    }
    round(got.into_iter().fold(0.0, f64::max), 6)
}

/// The least number for which it holds, where it holds for all larger ones: more and more by half, then halves of what lies between.
fn least(from: u32, most: u32, holds: impl Fn(u32) -> Result<bool, Refusal>) -> Result<Option<u32>, Refusal> {
    if from > most || holds(from)? {
        return Ok((from <= most).then_some(from));
    }
    let (mut low, mut high) = (from, from);
    loop {
        high = high.saturating_add(high / 2 + 1).min(most);
        if holds(high)? {
            break;
        }
        if high == most {
            return Ok(None);
        }
        low = high;
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(Some(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_is_found() {
        for (from, most, bound, found) in [
            (1, 100, 1, Some(1)),
            (1, 100, 37, Some(37)),
            (5, 100, 2, Some(5)),
            (1, 100, 100, Some(100)),
            (1, 36, 37, None),
            (9, 8, 1, None),
        ] {
            assert_eq!(least(from, most, |n| Ok(n >= bound)).unwrap(), found, "{bound}");
        }
    }
}
