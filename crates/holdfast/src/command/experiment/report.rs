//! `holdfast experiment report`: what the arms of an experiment have shown at the gateways, put together and analysed.

use serde_json::{Value, json};

use holdfast_assign::analysis::{Comparison, Cost, Excluded, Metric, Ratio, Terms, compare, cost, is_out, ratios};
use holdfast_assign::window::{Series, Sketch, Window};
use holdfast_config::instant;
use holdfast_gateway::ArmResults;
use holdfast_telemetry::utc;

use super::plot::{self, Curve};
use super::words::{number, p, signed, span};
use super::{bucket, coverage, items, status, text, weight};
use crate::admin::{Admin, encoded};
use crate::cli::{AdminArgs, Output, ReportArgs};
use crate::command::{Failure, run_to_end};
use crate::output;

/// Quantiles of latency that are told.
const QUANTILES: [f64; 3] = [0.5, 0.95, 0.99];

/// An arm with its windows of all gateways.
struct Arm {
    name: String,
    version: String,
    share: u64,
    windows: Vec<Window>,
}

/// Everything that is told.
struct Report {
    name: String,
    spec: Value,
    width: u64,
    arms: Vec<Arm>,
    excluded: Vec<Excluded>,
    terms: Terms,
}

/// Asks, analyses and prints.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let is_part = |value: f64| value > 0.0 && value < 1.0;
    if !is_part(args.alpha) || !args.effect.is_finite() || args.effect <= 0.0 {
        return Err(Failure::wrong("--alpha is above 0 and below 1, and --effect above 0"));
    }
    let (spec, told) = run_to_end(1, ask(args))?;
    let report = Report::new(args, spec, &told)?;
    if let Some(path) = &args.plot {
        let svg = report.svg(args.metric.as_deref())?;
        std::fs::write(path, svg).map_err(|e| Failure::failed(format!("--plot {}: {e}", path.display())))?;
    }
    match args.admin.output {
        Output::Json => output::say(&report.json().to_string()),
        Output::Table => output::say(&report.text()),
    }
    Ok(())
}

async fn ask(args: &ReportArgs) -> Result<(Value, Vec<Value>), Failure> {
    let told = Admin::new(&args.admin)?.get(&format!("/v1/experiments/{}", encoded(&args.name))).await?;
    let own = [args.admin.admin.clone()];
    let from = if args.from.is_empty() { &own[..] } else { &args.from };
    let mut all = Vec::new();
    for url in from {
        let admin = AdminArgs { admin: url.clone(), ..args.admin.clone() };
        all.push(Admin::new(&admin)?.get(&format!("/v1/results?experiment={}", encoded(&args.name))).await?);
    }
    Ok((told["spec"].clone(), all))
}

impl Report {
    fn new(args: &ReportArgs, spec: Value, told: &[Value]) -> Result<Self, Failure> {
        let strange = || Failure::failed("a gateway's results cannot be read: it is of another release");
        let mut widths: Vec<u64> = told.iter().filter_map(|one| one["window_ms"].as_u64()).collect();
        widths.sort_unstable();
        widths.dedup();
        let [width] = widths[..] else {
            return Err(Failure::failed("the gateways have windows of different lengths (`results.window`)"));
        };
        let bucket_version = spec["bucket_version"].as_u64().unwrap_or(1);
        let mut shown = Vec::new();
        for one in told {
            shown.extend(ArmResults::all(one).ok_or_else(strange)?);
        }
        let arm = |arm: &Value| {
            let name = text(&arm["name"]);
            let own = shown.iter().filter(|one| one.arm == name && u64::from(one.bucket_version) == bucket_version);
            let windows = Series::of(own.flat_map(|one| one.windows.iter().cloned())).windows().cloned().collect();
            Arm { version: text(&arm["version"]), share: share(&spec, arm), windows, name }
        };
        let arms: Vec<Arm> = items(&spec["arms"]).map(arm).collect();
        let excluded = items(&spec["exclude"]).filter_map(|one| {
            Some(Excluded { from: instant(one["from"].as_str()?)?, to: instant(one["to"].as_str()?)? })
        });
        let (excluded, others) = (excluded.collect(), arms.len().saturating_sub(1));
        let terms = Terms { alpha: args.alpha, effect: args.effect, others };
        Ok(Self { name: args.name.clone(), spec, width, arms, excluded, terms })
    }

    /// The windows of an arm that are not left out.
    fn kept<'r>(&self, arm: &'r Arm) -> Vec<&'r Window> {
        arm.windows.iter().filter(|window| !is_out(window, self.width, &self.excluded)).collect()
    }

    fn metrics(&self) -> Vec<Metric> {
        Metric::all(self.arms.iter().flat_map(|arm| &arm.windows))
    }

    /// Each arm against the first, by a metric.
    fn compared(&self, metric: &Metric) -> Vec<(&Arm, Comparison)> {
        let Some((first, others)) = self.arms.split_first() else { return Vec::new() };
        let first = self.kept(first);
        let one = |arm| Some((arm, compare(&first, &self.kept(arm), metric, self.width, &self.terms)?));
        others.iter().filter_map(one).collect()
    }

    fn ratios(&self) -> Vec<Ratio> {
        let (windows, shares): (Vec<_>, Vec<_>) = self.arms.iter().map(|arm| (self.kept(arm), arm.share)).unzip();
        ratios(&windows, &shares)
    }

    fn costs(&self) -> Vec<(Metric, Cost)> {
        let all: Vec<&Window> = self.arms.iter().flat_map(|arm| &arm.windows).collect();
        let one = |metric: Metric| (cost(&all, &metric, self.width, &self.excluded), metric);
        self.metrics().into_iter().map(one).map(|(cost, metric)| (metric, cost)).collect()
    }

    fn svg(&self, wanted: Option<&str>) -> Result<String, Failure> {
        let metrics = self.metrics();
        let found = match wanted {
            Some(name) => metrics.iter().find(|metric| word(metric) == name),
            None => metrics.iter().find(|metric| matches!(metric, Metric::Outcome(_))).or(metrics.first()),
        };
        let known: Vec<String> = metrics.iter().map(word).collect();
        let metric = found.ok_or_else(|| Failure::wrong(format!("--metric is one of {}", known.join(", "))))?;
        let compared = self.compared(metric);
        let names: Vec<String> =
            compared.iter().map(|(arm, _)| format!("{} less {}", arm.name, self.first())).collect();
        let curves = compared.iter().zip(&names).map(|((_, one), name)| Curve { name, looks: &one.looks });
        let curves: Vec<Curve<'_>> = curves.collect();
        let times = compared.iter().flat_map(|(_, one)| one.looks.iter().map(|(time, _)| *time));
        let (from, to) = times.fold((u64::MAX, 0), |(from, to), time| (from.min(time), to.max(time)));
        let ends = if from > to { [String::new(), String::new()] } else { [utc(from), utc(to)] };
        let sure = 100.0 * (1.0 - self.terms.alpha);
        let title = format!("{}: {} by arm over time, with its {sure} % confidence sequence", self.name, word(metric));
        Ok(plot::svg(&title, &curves, &ends[0], &ends[1]))
    }

    fn first(&self) -> &str {
        self.arms.first().map_or("", |arm| &arm.name)
    }

    fn text(&self) -> String {
        let spec = &self.spec;
        let mut out = format!(
            "{}: model {}, {}, {} in, bucket version {}, windows of {}",
            self.name,
            text(&spec["model"]),
            status(spec),
            coverage(spec),
            bucket(spec),
            span(self.width as f64)
        );
        let head = ["arm", "version", "people", "requests", "errors", "mean ms", "p50 ms", "p95 ms", "p99 ms"];
        let row = |arm: &Arm| {
            let all = joined(&self.kept(arm));
            let ms = |micros: Option<f64>| micros.map_or_else(|| "-".to_owned(), |us| number(us / 1_000.0));
            let mut row = vec![arm.name.clone(), arm.version.clone(), all.everybody().to_string()];
            row.extend([all.requests.to_string(), all.errors.to_string()]);
            row.push(ms((all.latency.count > 0).then_some(all.latency.mean)));
            row.extend(QUANTILES.map(|part| ms(all.sketch.quantile(part))));
            row
        };
        out.push_str(&format!("\n\n{}", output::table(&head, self.arms.iter().map(row))));
        out.push_str(&format!("\n\n{}", self.differences()));
        out.push_str(&format!("\n\n{}", self.people()));
        if !self.excluded.is_empty() {
            out.push_str(&format!("\n\n{}", self.left_out()));
        }
        out
    }

    fn differences(&self) -> String {
        let head = ["metric", "arm", "values", self.first(), "arm's", "difference", "interval", "p", ""];
        let rows = self.metrics().into_iter().flat_map(|metric| {
            self.compared(&metric).into_iter().map(move |(arm, one)| {
                let (unit, name) = unit(&metric);
                let values = format!("{} + {}", one.first.count, one.second.count);
                let interval = one.looks.last().map_or_else(
                    || "too little to say".to_owned(),
                    |(_, look)| format!("{} to {}", signed(look.low / unit), signed(look.high / unit)),
                );
                let difference = signed((one.second.mean - one.first.mean) / unit);
                let means = [one.first.mean / unit, one.second.mean / unit].map(number);
                let [first, second] = means;
                vec![
                    name,
                    arm.name.clone(),
                    values,
                    first,
                    second,
                    difference,
                    interval,
                    p((!one.looks.is_empty()).then_some(one.p)),
                    verdict(&one).into(),
                ]
            })
        });
        let rows: Vec<Vec<String>> = rows.collect();
        let sure = 100.0 * (1.0 - self.terms.alpha);
        format!(
            "{}\nIntervals hold at all looks together with {sure} %, for all arms of one metric.",
            output::table(&head, rows)
        )
    }

    fn people(&self) -> String {
        let row = |one: &Ratio| {
            let counts: Vec<String> = one.counts.iter().map(u64::to_string).collect();
            let told = match (one.is_impossible, one.p) {
                (true, _) => "somebody is in an arm that has no share",
                (_, Some(p)) if p < 0.001 => "not the people that it should have: do not read the differences",
                _ => "",
            };
            vec![one.reason.as_deref().unwrap_or("all").to_owned(), counts.join(" : "), p(one.p), told.to_owned()]
        };
        output::table(&["people by", "in the arms", "p", ""], self.ratios().iter().map(row))
    }

    fn left_out(&self) -> String {
        let row = |(metric, cost): &(Metric, Cost)| {
            vec![
                unit(metric).1,
                cost.windows.to_string(),
                format!("{} ({:.1} %)", cost.values, 100.0 * cost.share),
                cost.wider.map_or_else(|| "-".to_owned(), |wider| format!("{:.1} %", 100.0 * wider)),
                cost.delay.map_or_else(|| "-".to_owned(), span),
            ]
        };
        let head = ["left out", "windows", "values", "standard error more", "expected delay"];
        output::table(&head, self.costs().iter().map(row))
    }

    fn json(&self) -> Value {
        let arm = |arm: &Arm| {
            let all = joined(&self.kept(arm));
            let quantiles: Vec<Value> =
                QUANTILES.iter().map(|part| json!([part, all.sketch.quantile(*part)])).collect();
            json!({
                "arm": arm.name, "version": arm.version, "share": arm.share, "people": all.everybody(), "requests": all.requests,
                "errors": all.errors, "latency_us": {"mean": all.latency.mean, "quantiles": quantiles},
            })
        };
        let compared = self.metrics().into_iter().flat_map(|metric| {
            self.compared(&metric).into_iter().map(move |(arm, one)| {
                let last = one.looks.last().map(|(_, look)| json!([look.low, look.high]));
                json!({
                    "metric": word(&metric), "arm": arm.name, "values": [one.first.count, one.second.count],
                    "means": [one.first.mean, one.second.mean], "difference": one.second.mean - one.first.mean,
                    "interval": last, "p": one.p, "looks": one.looks.len(), "found": one.is_found, "torn": one.is_torn,
                })
            })
        });
        let ratio =
            |one: &Ratio| json!({"by": one.reason, "counts": one.counts, "p": one.p, "impossible": one.is_impossible});
        let cost = |(metric, one): &(Metric, Cost)| {
            json!({
                "metric": word(metric), "windows": one.windows, "values": one.values, "share": one.share,
                "delay_ms": one.delay, "standard_error_more": one.wider,
            })
        };
        json!({
            "experiment": self.name, "window_ms": self.width, "alpha": self.terms.alpha, "effect": self.terms.effect,
            "arms": self.arms.iter().map(arm).collect::<Vec<_>>(),
            "comparisons": compared.collect::<Vec<_>>(),
            "people": self.ratios().iter().map(ratio).collect::<Vec<_>>(),
            "left_out": self.costs().iter().map(cost).collect::<Vec<_>>(),
        })
    }
}

fn joined(windows: &[&Window]) -> Window {
    let mut all = Window { sketch: Sketch::default(), ..Window::default() };
    windows.iter().for_each(|window| all.join(window));
    all
}

/// The share of an arm in all that was given, in proportion; by its weight where nothing else is said.
fn share(spec: &Value, arm: &Value) -> u64 {
    let mut from = 0;
    let covered = (spec["coverage"].as_f64().unwrap_or(100.0) * 100.0).round() as u64;
    let given = items(&spec["given"]).map(|segment| {
        let to = segment["to"].as_u64().unwrap_or(0);
        let people = to.min(covered.max(1)).saturating_sub(from);
        from = to;
        let own = items(&segment["arms"]).filter(|one| one["name"] == arm["name"]);
        let places = own.map(|one| one["to"].as_u64().unwrap_or(0).saturating_sub(one["from"].as_u64().unwrap_or(0)));
        people * places.sum::<u64>()
    });
    if items(&spec["given"]).next().is_some() { given.sum() } else { weight(arm) }
}

fn word(metric: &Metric) -> String {
    match metric {
        Metric::Errors => "errors".to_owned(),
        Metric::Latency => "latency".to_owned(),
        Metric::Outcome(name) => name.clone(),
    }
}

/// By what a value is divided to be told, and what it is then.
fn unit(metric: &Metric) -> (f64, String) {
    match metric {
        Metric::Latency => (1_000.0, "latency ms".to_owned()),
        other => (1.0, word(other)),
    }
}

const fn verdict(one: &Comparison) -> &'static str {
    match (one.is_torn, one.is_found, one.looks.is_empty()) {
        (true, ..) => "changes over time",
        (_, true, _) => "differs",
        (_, _, true) => "",
        _ => "no difference found",
    }
}
