//! `holdfast plan fairshare`.

use holdfast_quota::shares::{floors, lent};
use serde_json::json;

use super::chart::Chart;
use super::figure::{number, percent};
use super::refusal::{Refusal, positive};
use super::{Report, output};
use crate::cli::FairshareArgs;

/// Tenants of one pool.
const MOST: usize = 10_000;

/// Plans.
pub fn plan(args: &FairshareArgs) -> Result<Report, Refusal> {
    let (weights, capacity) = (&args.weights, args.capacity);
    positive("--capacity", capacity as f64)?;
    let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let given: Vec<u64> = weights.iter().map(|w| u64::from(*w)).collect();
    if weights.contains(&0) || weights.len() > MOST {
        return Err(Refusal::new("--weights", list(&given), format!("are 1 to {MOST} weights of 1 and more")));
    }
    if !args.demands.is_empty() && args.demands.len() != weights.len() {
        let reason = format!("are {} demands for {} weights", args.demands.len(), weights.len());
        return Err(Refusal::new("--demands", list(&args.demands), reason));
    }
    let saturating = vec![u64::MAX; weights.len()];
    let demands = if args.demands.is_empty() { &saturating } else { &args.demands };
    let (floor, got) = (floors(capacity, weights), lent(capacity, weights, demands));
    let mut chart = Chart::new("requests per second");
    let mut rows = Vec::new();
    let mut tenants = Vec::new();
    for (index, (((weight, demand), floor), got)) in weights.iter().zip(demands).zip(&floor).zip(&got).enumerate() {
        let name = format!("tenant {}", index + 1);
        let asks = (*demand != u64::MAX).then_some(*demand);
        let borrowed = got.saturating_sub(*floor);
        chart.bar(&name, *got as f64, number(*got as f64, 0));
        rows.push(vec![
            name,
            weight.to_string(),
            number(*floor as f64, 0),
            asks.map_or("all it can".to_owned(), |asks| number(asks as f64, 0)),
            number(*got as f64, 0),
            number(borrowed as f64, 0),
        ]);
        tenants.push(json!({ "weight": weight, "floor": floor, "demand": asks, "share": got, "borrowed": borrowed }));
    }
    let used: u64 = got.iter().sum();
    let text = format!(
        "capacity {}/s, weights {}\n\n{}\n\nFloors are what a tenant gets whatever others do; what is idle is lent by weight to whoever can use it. {} of the capacity is used.",
        number(capacity as f64, 0),
        list(&given),
        output::table(&["tenant", "weight", "floor", "asks for", "gets", "borrowed"], rows),
        percent(used as f64 / capacity as f64, 1)
    );
    let json = json!({
        "capacity": capacity, "weights": weights, "floors": floor, "shares": got, "tenants": tenants,
        "idle": capacity.saturating_sub(used),
    });
    Ok(Report { text, json, chart, warnings: Vec::new() })
}
