//! The routing table as one immutable snapshot, the decision over it, and the roll-out of a change.
//!
//! A [`Snapshot`] holds everything that routes, under one [`Revision`](holdfast_types::Revision). A request takes one pointer to it, calls [`decide_for()`] once, and keeps only the
//! [`Route`] that comes back. The decision is a pure function of the snapshot and the [`Ask`]; it does not allocate once the route has been
//! used before, and it knows nothing of replicas' health or of what they hold: that is the dispatcher's, after the decision.
//!
//! How a changed pin gets there, on many gateways and through crashes, is [`rollout`]. Which region clients are sent to is [`regions`]. What a request is promised is checked by [`witness`].
//!
//! Invariants: PIN-2 rests on `decide` being called once per submission, ROUTE-1 on a snapshot never changing.

mod ask;
mod caller;
mod choices;
mod decision;
mod explain;
mod input;
mod paged;
pub mod regions;
pub mod rollout;
mod route;
mod snapshot;
pub mod witness;

pub use ask::Ask;
pub use caller::{Caller, Facts, Field, Kept, KeyFrom, Nobody, Sticky, subject};
pub use choices::{ArmFacts, Cause, ExperimentInput, RuleInput};
pub use decision::{Decision, Refusal, Replayed, decide, decide_for, is_shadowed, replay};
pub use explain::{Step, explain, explain_for};
pub use input::{BuildError, ModelInput, PoolInput, TableInput, TenantInput};
pub use paged::{Keyed, Paged};
pub use route::{Reason, Route, Unavailable};
pub use snapshot::{Catalogue, ModelEntry, PinChange, PoolEntry, Snapshot, Split, TenantEntry, VersionEntry};
