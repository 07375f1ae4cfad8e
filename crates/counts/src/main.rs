//! The work whose instructions are counted: `holdfast-counts NAME LAPS [FIFO]`, to be run by `scripts/counts/run.sh`.
//!
//! Each kind of work is warmed up first. Then its laps run inside [`measured_laps`], by whose name the counting is switched on and off, so that
//! neither the start of the process nor the making of tables is counted. All work is the same in every run: what a program has of time and
//! chance comes from the script.
#![allow(
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a program for measurements may stop at what is wrong"
)]

mod admit;
mod answer;
mod choose;
mod decide;
mod floor;
mod ping;
mod record;
mod request;

use std::process::ExitCode;

// What the product allocates with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, laps, more) = match arguments.as_slice() {
        [name, laps, more @ ..] => (*name, laps.parse().unwrap_or(0), more),
        _ => ("", 0, &[][..]),
    };
    match (name, laps, more) {
        (_, 0, _) => return usage(),
        ("decide-100", _, []) => decide::run(100, laps),
        ("decide-100000", _, []) => decide::run(100_000, laps),
        ("choose", _, []) => choose::run(laps),
        ("answer", _, []) => answer::run(laps),
        ("admit", _, []) => admit::run(false, laps),
        ("admit-all", _, []) => admit::run(true, laps),
        ("record", _, []) => record::run(laps),
        ("direct", _, []) => ping::run(laps),
        ("floor", _, []) => floor::run(laps),
        ("request", _, [fifo]) => request::run(laps, fifo),
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: holdfast-counts decide-100|decide-100000|choose|answer|admit|admit-all|record|direct|floor LAPS, or request LAPS FIFO"
    );
    ExitCode::from(2)
}

/// Where instructions are counted. Never inlined, since the counting goes by its name.
#[inline(never)]
fn measured_laps(work: &mut dyn FnMut()) {
    work();
}

/// Warms up with a tenth of the laps, at least a hundred, then measures all of them. `lap` is told its number.
fn laps(count: u32, mut lap: impl FnMut(u32)) {
    (0..(count / 10).max(100)).for_each(&mut lap);
    measured_laps(&mut || (0..count).for_each(&mut lap));
}
