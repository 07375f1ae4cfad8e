//! A decision takes no memory: it is made for every request, and the table has all that it needs. Only the first one for a route ranks the replicas, and
//! the table keeps what it finds.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;

use holdfast_decide::{
    Ask, ModelInput, PoolInput, Refusal, Snapshot, Split, TableInput, TenantInput, Unavailable, decide,
};
use holdfast_types::{ModelName, PoolName, ReplicaName, Revision, TenantId, Version, Weight};

fn table() -> Snapshot {
    let model = ModelName::parse("screen").unwrap();
    let version = |name: &str| Version::parse(name).unwrap();
    let members = ["r1", "r2", "r3"].map(|name| (ReplicaName::parse(name).unwrap(), Weight(1)));
    let upstream = |v: &str| (version(v), Arc::from(format!("screen-{v}")), Arc::from(""));
    let input = TableInput {
        pools: vec![PoolInput { name: PoolName::parse("p").unwrap(), members: members.to_vec() }],
        models: vec![ModelInput {
            name: model.clone(),
            pool: 0,
            idempotent: false,
            versions: ["1", "2", "3"].map(upstream).to_vec(),
        }],
        tenants: vec![TenantInput {
            name: TenantId::parse("acme").unwrap(),
            subset: 2,
            unavailable: Unavailable::Wait,
            pins: vec![(model.clone(), version("1"))],
            allow: vec![(model, version("2"))],
        }],
        ..TableInput::default()
    };
    Snapshot::build(Revision(1), input).unwrap()
}

fn ask<'a>(tenant: &'a str, model: &'a str, version: Option<&'a str>) -> Ask<'a> {
    Ask { tenant, model, version, submission: b"a submission" }
}

#[test]
fn a_decision_allocates_nothing_whatever_it_is() {
    let plain = table();
    let split = Split {
        tenant: TenantId::parse("acme").unwrap(),
        model: ModelName::parse("screen").unwrap(),
        version: Version::parse("3").unwrap(),
        percent: 50,
    };
    let in_part = plain.with_splits(&[split]).unwrap();
    type Row<'a> = (Ask<'a>, Result<(), Refusal>);
    let rows: [Row; 6] = [
        (ask("acme", "screen", None), Ok(())),
        (ask("acme", "screen", Some("1")), Ok(())),
        (ask("acme", "screen", Some("2")), Ok(())),
        (ask("acme", "screen", Some("9")), Err(Refusal::VersionNotAllowed)),
        (ask("acme", "fraud", None), Err(Refusal::UnknownModel)),
        (ask("nobody", "screen", None), Err(Refusal::UnknownTenant)),
    ];
    for table in [&plain, &in_part] {
        for (ask, told) in &rows {
            let _ = black_box(decide(table, ask));
            let mut got = Ok(());
            let took = allocation_counter::measure(|| got = black_box(decide(table, ask)).map(|_| ()));
            assert_eq!((&got, took.count_total), (told, 0), "{:?}", ask.version);
        }
    }
}
