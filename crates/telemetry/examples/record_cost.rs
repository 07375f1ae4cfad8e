//! What counting costs: nanoseconds for each operation that a request may do, on this machine.
//!
//! `cargo run --release -p holdfast-telemetry --example record_cost`

use bytes::Bytes;
use std::hint::black_box;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use holdfast_telemetry::{
    AccessLog, AccessOptions, AccessRecord, AccessSink, Clock, Counter, Endpoint, GatewayMetrics, Histogram, LATENCY,
    MetricsOptions, Outcome, Timing, Wall,
};
use holdfast_types::{IdError, ModelName, ReplicaName, Revision, TenantId, Version};

const ROUNDS: u32 = 1_000_000;

/// The median of five runs, in nanoseconds for each round.
fn measure(name: &str, mut operation: impl FnMut(u64)) -> io::Result<()> {
    let mut runs: Vec<f64> = (0..5)
        .map(|_| {
            let start = Instant::now();
            (0..u64::from(ROUNDS)).for_each(&mut operation);
            start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS)
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    writeln!(io::stdout(), "{name:<48} {:>8.1} ns", runs.get(2).copied().unwrap_or_default())
}

fn outcome() -> Outcome {
    let timing = Timing {
        total: Duration::from_micros(1_500),
        wait: Duration::ZERO,
        upstream: Some(Duration::from_micros(1_480)),
    };
    Outcome { endpoint: Endpoint::Infer, status: 200, error: None, attempts: 1, bytes_in: 1024, bytes_out: 200, timing }
}

struct Names {
    tenant: TenantId,
    model: ModelName,
    version: Version,
    replica: ReplicaName,
}

impl Names {
    fn new() -> Result<Self, IdError> {
        Ok(Self {
            tenant: TenantId::parse("acme")?,
            model: ModelName::parse("screen")?,
            version: Version::parse("1")?,
            replica: ReplicaName::parse("r1")?,
        })
    }

    fn record(&self, request_id: &Bytes) -> AccessRecord {
        AccessRecord {
            ended: Clock::now(),
            request_id: request_id.clone(),
            tenant: Some(self.tenant.clone()),
            model: Some(self.model.clone()),
            version: Some(self.version.clone()),
            revision: Some(Revision(7)),
            reason: Some("pin"),
            replica: Some(self.replica.clone()),
            method: "POST",
            client: Some("127.0.0.1:4711".into()),
            outcome: outcome(),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let names = Names::new()?;
    let metrics = GatewayMetrics::new(&MetricsOptions::default());

    let counter = Counter::default();
    measure("Counter::inc", |_| black_box(&counter).inc())?;
    let histogram = Histogram::new(&LATENCY);
    measure("Histogram::observe_nanos", |i| black_box(&histogram).observe_nanos(black_box(i * 97)))?;
    measure("Gauge::track and drop", |_| drop(black_box(metrics.in_flight.track())))?;
    measure("Clock::now", |_| {
        black_box(Clock::now());
    })?;
    measure("Clock::wall_millis", |_| {
        black_box(Clock::wall_millis());
    })?;
    measure("Family::get (one label)", |_| drop(black_box(metrics.evictions.get(["screening"]))))?;

    let route = metrics.route(&names.tenant, &names.model, &names.version);
    let ended = outcome();
    measure("GatewayMetrics::finish", |_| metrics.finish(Some(&route), black_box(&ended)))?;

    let request_id = Bytes::from_owner(*b"0123456789abcdef0123456789abcdef");
    measure("AccessRecord: build and drop", |_| drop(black_box(names.record(&request_id))))?;
    let (record, wall, mut line) = (names.record(&request_id), Wall::read(), String::new());
    measure("AccessRecord::push_line (writer thread)", |_| {
        line.clear();
        black_box(&record).push_line(wall, &mut line);
    })?;
    for (name, queue) in [("AccessLog::record, to /dev/null", 1 << 16), ("AccessLog::record, queue always full", 1)] {
        let options = AccessOptions { sink: AccessSink::File("/dev/null".into()), queue, ..AccessOptions::default() };
        let dropped = Counter::default();
        let (log, writer) = AccessLog::start(options, dropped.clone())?;
        measure(name, |_| log.record(names.record(&request_id)))?;
        writer.shutdown(Duration::from_secs(10));
        let share = dropped.get() as f64 / f64::from(ROUNDS * 5) * 100.0;
        writeln!(io::stdout(), "    {share:.1} % dropped (the loop offers records faster than any gateway does)")?;
    }
    Ok(())
}
