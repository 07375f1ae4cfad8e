//! Receipts: for each of the last requests the whole decision, to be looked at over the admin port. In memory only, a fixed number of them.
//!
//! What happens on the way is noted in a journal that the request owns (`journal`). When the request ends it goes, with the facts that the access record
//! has too, into the ring of the worker that served it (`store`), whose lock nobody else takes but who asks for a receipt. It becomes words only
//! when it is asked for (`show`). No payload, header value or query is in it; of texts of model servers there are none.

mod journal;
mod packed;
mod show;
mod store;

use std::sync::Arc;

use bytes::Bytes;

use holdfast_identity::Subject;
use holdfast_telemetry::Outcome;
use holdfast_types::{ModelName, Mono, PoolName, ReplicaName, Revision, TenantId, Version};

pub use journal::Journal;
pub use show::{list, one};
pub use store::Receipts;

/// What a route is called by those who look at its requests. Shared by all of them, and holds no replica alive.
#[derive(Debug)]
pub struct RouteFacts {
    /// The tenant.
    pub tenant: TenantId,
    /// The model.
    pub model: ModelName,
    /// The version.
    pub version: Version,
    /// The pool.
    pub pool: PoolName,
    /// How many members make the subset.
    pub subset: u8,
    /// Its members, in the order of preference, and then the former holders of its key.
    pub members: Box<[ReplicaName]>,
}

/// One request that has ended.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// The request's id.
    pub id: Bytes,
    /// When its head was read.
    pub begun: Mono,
    /// When it ended.
    pub ended: Mono,
    /// The route, its reason and its revision, once there was one.
    pub resolved: Option<(Arc<RouteFacts>, &'static str, Revision)>,
    /// The replica that was asked last.
    pub replica: Option<ReplicaName>,
    /// The method.
    pub method: &'static str,
    /// The client's address.
    pub client: Option<Arc<str>>,
    /// Whom its token named.
    pub subject: Option<Arc<Subject>>,
    /// When the model server's answer was complete.
    pub answered: Option<Mono>,
    /// How it ended.
    pub outcome: Outcome,
    /// What happened on the way.
    pub journal: Box<Journal>,
}
