//! `decide()` over tables of 100 and of 100,000 tenants.

use std::hint::black_box;
use std::sync::Arc;

use holdfast_decide::{Ask, ModelInput, PoolInput, Snapshot, TableInput, TenantInput, Unavailable, decide};
use holdfast_types::{ModelName, PoolName, ReplicaName, Revision, TenantId, Version, Weight};

/// Different tenants that ask. Few enough for every route to have been made in the warm-up, spread over the whole table.
const ASKING: usize = 100;

pub(crate) fn run(tenants: usize, count: u32) {
    let table = Snapshot::build(Revision(1), input(tenants)).expect("the table can be built");
    let names: Vec<String> = (0..ASKING).map(|at| format!("tenant-{}", at * (tenants / ASKING))).collect();
    crate::laps(count, |lap| {
        let tenant = &names[lap as usize % ASKING];
        let decision =
            decide(&table, &Ask { tenant: black_box(tenant), model: "screen", version: None, submission: b"" });
        assert!(black_box(decision).is_ok());
    });
}

fn input(tenants: usize) -> TableInput {
    let model = ModelName::parse("screen").expect("a name");
    let versions: Vec<Version> = (0..400).map(|v| Version::parse(&format!("{v}")).expect("a version")).collect();
    let replica = |r| (ReplicaName::parse(&format!("r{r}")).expect("a name"), Weight(1));
    let upstream = |v: &Version| (v.clone(), Arc::from(format!("screen-{v}")), Arc::from(""));
    let tenant = |t: usize| TenantInput {
        name: TenantId::parse(&format!("tenant-{t}")).expect("a name"),
        subset: 2,
        unavailable: Unavailable::Wait,
        pins: vec![(model.clone(), versions[t % versions.len()].clone())],
        allow: Vec::new(),
    };
    TableInput {
        pools: vec![PoolInput { name: PoolName::parse("p").expect("a name"), members: (0..10).map(replica).collect() }],
        models: vec![ModelInput {
            name: model.clone(),
            pool: 0,
            idempotent: false,
            versions: versions.iter().map(upstream).collect(),
        }],
        tenants: (0..tenants).map(tenant).collect(),
        ..TableInput::default()
    }
}
