//! How fast the control plane is: `make bench-control`, or `cargo run --release -p holdfast --example control_speed` after a build of the program.
//!
//! A table of many tenants on its way into a gateway in this process, over the real link and from the real file; and changed pins of a thousand
//! tenants on their way into force in real processes. Prints figures and judges nothing but that what came out is right.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measuring tool"
)]

mod apply;
mod content;
mod table;

use std::time::{Duration, Instant};

/// Tenants of the large table.
const TENANTS: usize = 100_000;
/// Tenants whose pins are changed at once.
const APPLIED: usize = 1_000;
/// Repeats of what is short.
const REPEATS: usize = 50;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let wants = |part: &str| words.is_empty() || words.iter().any(|word| word == part);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        if wants("table") {
            table::run(TENANTS, REPEATS).await;
        }
        if wants("apply") {
            apply::run(APPLIED).await;
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
}

/// The time that a step takes.
fn timed<T>(step: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    (step(), begin.elapsed())
}

/// A line of one figure.
fn line(what: &str, took: Duration) {
    println!("{what:<72} {:>12}", shown(took));
}

/// A line of many: the median and the largest.
fn lines(what: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let (median, most) = (took[took.len() / 2], took[took.len() - 1]);
    println!("{what:<72} {:>12}  (most {})", shown(median), shown(most));
}

fn shown(took: Duration) -> String {
    let micros = took.as_secs_f64() * 1e6;
    match micros {
        m if m < 1_000.0 => format!("{m:.0} µs"),
        m if m < 1_000_000.0 => format!("{:.2} ms", m / 1e3),
        m => format!("{:.2} s", m / 1e6),
    }
}
