//! Ids, units, time as integers, the closed list of failure kinds, invariant ids.
//!
//! Everything here is plain data that the other crates agree on. Nothing reads a clock, draws a random number or does IO; there is no
//! dependency beyond std.

mod failure;
mod grpc;
mod id;
mod invariant;
mod units;

pub use failure::{Failure, FailureKind, Side};
pub use grpc::GrpcCode;
pub use id::{
    ArmName, ExperimentName, GatewayName, IdError, MAX_ID_LEN, ModelName, PlanName, PoolName, ReplicaName, RuleName,
    TenantId, Version,
};
pub use invariant::Invariant;
pub use units::{Bytes, BytesError, Mono, Revision, Weight};
