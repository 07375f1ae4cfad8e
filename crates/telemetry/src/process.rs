//! Metrics of the process itself, under the names that all Prometheus client libraries use for them (so without the product's prefix).
//!
//! Read from `/proc` when scraped; where there is none, the samples are absent.

use std::fs;

use crate::clock::Clock;
use crate::registry::{Kind, Registry, Sink};

/// Clock ticks in a second as `/proc` counts them: Linux's USER_HZ, 100 on every architecture that has 64-bit atomics.
const TICKS: f64 = 100.0;

pub(crate) fn register(registry: &Registry) {
    let started = Clock::wall_millis() as f64 / 1000.0;
    registry.collector(
        "process_start_time_seconds",
        "When the process started, in seconds since 1970.",
        Kind::Gauge,
        &[],
        Box::new(move |sink| sink.sample(&[], started)),
    );
    registry.collector(
        "process_resident_memory_bytes",
        "Resident memory.",
        Kind::Gauge,
        &[],
        Box::new(|sink| maybe(sink, resident_bytes(&read("/proc/self/status")))),
    );
    registry.collector(
        "process_open_fds",
        "Open file descriptors.",
        Kind::Gauge,
        &[],
        Box::new(|sink| maybe(sink, open_fds())),
    );
    registry.collector(
        "process_cpu_seconds_total",
        "User and system CPU time spent.",
        Kind::Counter,
        &[],
        Box::new(|sink| maybe(sink, cpu_seconds(&read("/proc/self/stat")))),
    );
}

fn maybe(sink: &mut Sink<'_>, value: Option<f64>) {
    if let Some(value) = value {
        sink.sample(&[], value);
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn resident_bytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some((kib * 1024) as f64)
}

fn open_fds() -> Option<f64> {
    // The listing itself holds one descriptor.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    // The second field is the program's name in parentheses and may hold anything, parentheses too (proc_pid_stat(5)).
    let (_, fields) = stat.rsplit_once(')')?;
    // utime and stime are fields 14 and 15; the first after the name is field 3.
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read_as_they_are_written() {
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t   12345 kB\nRssAnon:\t 1 kB\n"), Some(12_641_280.0));
        let stat = "42 (a (b) 1 2) S 1 42 42 0 -1 4194560 100 0 0 0 250 150 0 0 20 0 3 0 99 1 2";
        assert_eq!(cpu_seconds(stat), Some(4.0));
        for nothing in ["", "42 (x) S", "VmRSS: x kB"] {
            assert_eq!((resident_bytes(nothing), cpu_seconds(nothing)), (None, None));
        }
    }
}
