//! What arms have shown, as JSON: for who asks, and for the file that it survives a restart in. The file is there whole or not at all.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use holdfast_assign::stats::Sums;
use holdfast_assign::window::{Series, Sketch, Window};
use holdfast_types::Revision;

use super::{Name, Shown};

/// The form of the file.
const FORM: u64 = 1;

/// An arm with its windows.
pub fn arm(name: &Name, shown: &Shown) -> Value {
    json!({
        "experiment": &*name.0, "arm": &*name.1, "bucket_version": shown.bucket_version, "since_revision": shown.since.0,
        "windows": shown.series.windows().map(window).collect::<Vec<_>>(),
    })
}

fn window(window: &Window) -> Value {
    let people: Map<String, Value> =
        window.people.iter().map(|(how, count)| (how.to_string(), (*count).into())).collect();
    let outcomes: Map<String, Value> =
        window.outcomes.iter().map(|(metric, values)| (metric.to_string(), sums(values))).collect();
    json!({
        "start_ms": window.start, "people": people, "requests": window.requests, "errors": window.errors,
        "latency_us": sums(&window.latency), "latency_slots": window.sketch.slots().collect::<Vec<_>>(), "outcomes": outcomes,
    })
}

fn sums(sums: &Sums) -> Value {
    json!({ "count": sums.count, "mean": sums.mean, "squares": sums.squares() })
}

/// What a file has. One of windows of another width is none: they cannot be put together.
///
/// # Errors
/// It cannot be read or is damaged, in words.
pub fn read(file: &Path, width: u64) -> Result<Vec<(Name, Shown)>, String> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let all: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    if all["form"] != FORM {
        return Err("it is of another release".to_owned());
    }
    if all["window_ms"] != width {
        return Err("its windows are of another length".to_owned());
    }
    let arms = all["arms"].as_array().ok_or("it has no arms")?;
    arms.iter().map(|arm| arm_of(arm).ok_or_else(|| "an arm is damaged".to_owned())).collect()
}

fn arm_of(arm: &Value) -> Option<(Name, Shown)> {
    let name = (arm["experiment"].as_str()?.into(), arm["arm"].as_str()?.into());
    let windows = arm["windows"].as_array()?.iter().map(window_of).collect::<Option<Vec<_>>>()?;
    let shown = Shown {
        bucket_version: u32::try_from(arm["bucket_version"].as_u64()?).ok()?,
        since: Revision(arm["since_revision"].as_u64()?),
        series: Series::of(windows),
    };
    Some((name, shown))
}

fn window_of(window: &Value) -> Option<Window> {
    let people = window["people"].as_object()?.iter().map(|(how, count)| Some((how.as_str().into(), count.as_u64()?)));
    let outcomes =
        window["outcomes"].as_object()?.iter().map(|(metric, sums)| Some((metric.as_str().into(), sums_of(sums)?)));
    let slot = |slot: &Value| Some((u16::try_from(slot[0].as_u64()?).ok()?, slot[1].as_u64()?));
    let slots = window["latency_slots"].as_array()?.iter().map(slot).collect::<Option<Vec<_>>>()?;
    Some(Window {
        start: window["start_ms"].as_u64()?,
        people: people.collect::<Option<_>>()?,
        requests: window["requests"].as_u64()?,
        errors: window["errors"].as_u64()?,
        latency: sums_of(&window["latency_us"])?,
        sketch: Sketch::of(slots),
        outcomes: outcomes.collect::<Option<_>>()?,
    })
}

fn sums_of(sums: &Value) -> Option<Sums> {
    Sums::of(sums["count"].as_u64()?, sums["mean"].as_f64()?, sums["squares"].as_f64()?)
}

/// What one gateway has of one arm.
#[derive(Clone, Debug)]
pub struct ArmResults {
    /// The arm.
    pub arm: String,
    /// Under which bucket version.
    pub bucket_version: u32,
    /// Its windows.
    pub windows: Vec<Window>,
}

impl ArmResults {
    /// All arms of an answer of `/v1/results`. None: it is none.
    #[must_use]
    pub fn all(told: &Value) -> Option<Vec<Self>> {
        let one = |arm: &Value| {
            let ((_, name), shown) = arm_of(arm)?;
            let windows = shown.series.windows().cloned().collect();
            Some(Self { arm: name.to_string(), bucket_version: shown.bucket_version, windows })
        };
        told["arms"].as_array()?.iter().map(one).collect()
    }
}

/// Replaces the file.
///
/// # Errors
/// The disk's.
pub fn write(file: &Path, width: u64, all: &[(Name, Shown)]) -> io::Result<()> {
    let arms: Vec<Value> = all.iter().map(|(name, shown)| arm(name, shown)).collect();
    let text = json!({ "form": FORM, "window_ms": width, "arms": arms }).to_string();
    let part = file.with_extension("part");
    let mut made = std::fs::File::create(&part)?;
    made.write_all(text.as_bytes())?;
    made.sync_all()?;
    std::fs::rename(&part, file)
}
