//! Names and plans that the tests share.

use std::time::Duration;

use holdfast_decide::rollout::*;
use holdfast_types::{GatewayName, ModelName, PoolName, ReplicaName, TenantId, Version};

pub(crate) const fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

pub(crate) fn r(ix: usize) -> ReplicaName {
    ReplicaName::parse(&format!("r{ix}")).unwrap()
}

pub(crate) fn g(ix: usize) -> GatewayName {
    GatewayName::parse(&format!("g{ix}")).unwrap()
}

pub(crate) fn v(name: &str) -> Version {
    Version::parse(name).unwrap()
}

pub(crate) fn artifact(version: &str) -> Artifact {
    Artifact { pool: pool(), model: model(), version: v(version) }
}

fn pool() -> PoolName {
    PoolName::parse("screening").unwrap()
}

fn model() -> ModelName {
    ModelName::parse("screen").unwrap()
}

pub(crate) fn side(version: &str, order: &[usize], subset: usize) -> SidePlan {
    SidePlan { pool: pool(), version: v(version), order: order.iter().map(|ix| r(*ix)).collect(), subset }
}

pub(crate) fn pin(tenant: usize, old: Option<SidePlan>, new: SidePlan) -> PinPlan {
    PinPlan { tenant: TenantId::parse(&format!("t{tenant}")).unwrap(), model: model(), old, new }
}

/// One pin from version 1 on r0 and r1 to version 2 on r2 and r3; r1 and r0 step in for version 2.
pub(crate) fn one_pin(options: Options) -> Plan {
    let pins = vec![pin(0, Some(side("1", &[0, 1, 2], 2)), side("2", &[2, 3, 1, 0], 2))];
    Plan { id: RolloutId(7), pins, options }
}

/// A second pin from version 1 to version 2, in other orders.
pub(crate) fn two_pins(options: Options) -> Plan {
    let mut plan = one_pin(options);
    plan.pins.push(pin(1, Some(side("1", &[3, 2], 1)), side("2", &[1, 0, 2], 1)));
    plan
}
