//! What a decision costs, and how it grows with the number of tenants: `cargo run --release -p holdfast-decide --example cost`.
//!
//! Prints, for each size: the time to build the table, bytes per tenant (as the process sees them), nanoseconds of one decision over Zipf-like
//! traffic, and the time of one changed pin. An example and not a test: figures are compared within one run, never asserted.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_macros)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use holdfast_decide::{Ask, ModelInput, PinChange, PoolInput, Snapshot, TableInput, TenantInput, Unavailable, decide};
use holdfast_types::{ModelName, PoolName, ReplicaName, Revision, TenantId, Version, Weight};

const DECISIONS: usize = 2_000_000;

fn input(tenants: usize, replicas: usize) -> TableInput {
    let model = ModelName::parse("screen").unwrap();
    let versions: Vec<Version> = (0..400).map(|v| Version::parse(&format!("{v}")).unwrap()).collect();
    let upstream = |v: &Version| (v.clone(), Arc::from(format!("screen-{v}")), Arc::from(""));
    TableInput {
        pools: vec![PoolInput {
            name: PoolName::parse("p").unwrap(),
            members: (0..replicas).map(|r| (ReplicaName::parse(&format!("r{r}")).unwrap(), Weight(1))).collect(),
        }],
        models: vec![ModelInput {
            name: model.clone(),
            pool: 0,
            idempotent: false,
            versions: versions.iter().map(upstream).collect(),
        }],
        tenants: (0..tenants)
            .map(|t| TenantInput {
                name: TenantId::parse(&format!("tenant-{t}")).unwrap(),
                subset: 2,
                unavailable: Unavailable::Wait,
                pins: vec![(model.clone(), versions[t % versions.len()].clone())],
                allow: Vec::new(),
            })
            .collect(),
        ..TableInput::default()
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap() * 4096
}

fn main() {
    println!(
        "{:>10} {:>9} {:>10} {:>14} {:>12} {:>12}",
        "tenants", "replicas", "build ms", "bytes/tenant", "decide ns", "one pin us"
    );
    for (tenants, replicas) in [(100, 10), (100, 1_000), (100_000, 60), (1_000_000, 60)] {
        // The first table leaves the memory of its input free for that of the second: what is added by the second is the table alone.
        let first = Snapshot::build(Revision(1), input(tenants, replicas)).unwrap();
        let (memory, parts) = (resident(), input(tenants, replicas));
        let begun = Instant::now();
        let table = Snapshot::build(Revision(1), parts).unwrap();
        let build = begun.elapsed();
        let bytes = resident().saturating_sub(memory) / tenants;
        drop(first);
        // Few tenants have most of the traffic: half of it goes to a sixteenth of them.
        let names: Vec<String> = (0..4_096)
            .map(|i| format!("tenant-{}", (((i as f64 + 0.5) / 4_096.0).powi(4) * tenants as f64) as usize))
            .collect();
        let ask = |name| Ask { tenant: name, model: "screen", version: None, submission: b"" };
        for name in &names {
            black_box(decide(&table, &ask(name)).is_ok());
        }
        let begun = Instant::now();
        for i in 0..DECISIONS {
            let name = &names[i.wrapping_mul(0x9e37_79b9) % names.len()];
            black_box(decide(&table, &ask(name)).is_ok());
        }
        let each = begun.elapsed().as_nanos() as f64 / DECISIONS as f64;
        let change = PinChange {
            tenant: TenantId::parse("tenant-7").unwrap(),
            model: ModelName::parse("screen").unwrap(),
            version: Version::parse("399").unwrap(),
        };
        let begun = Instant::now();
        for revision in 0..100 {
            black_box(table.with_pins(Revision(revision), std::slice::from_ref(&change)).unwrap());
        }
        let pin = begun.elapsed().as_micros() as f64 / 100.0;
        println!("{tenants:>10} {replicas:>9} {:>10} {bytes:>14} {each:>12.0} {pin:>12.1}", build.as_millis());
    }
}
