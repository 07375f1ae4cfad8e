//! HTTP server and client plumbing: listeners, connection limits, strict framing, replica connection pools, drain.
//!
//! Nothing here knows tenants, models or versions. The server side hands requests to a service and keeps the connection honest; the client
//! side keeps connections to one replica and says, when a request fails, whether the replica can have begun it.

mod admission;
mod bound;
mod client;
mod conn;
mod crowd;
mod drain;
mod fetch;
mod guard;
mod keep;
mod listener;
mod patience;
mod resolve;
mod room;
mod seat;
mod serve;
mod socket;
mod tap;
mod tasks;
pub mod tls;
mod turns;
mod watched;

pub use admission::{Admission, AdmissionLimits, ConnPermit, Refused};
pub use bound::Bound;
pub use client::{Checkout, Connector, ReplicaConn, ReplicaPool, SendError};
pub use conn::{ConnState, Offer, RequestGuard};
pub use crowd::{Answering, Conduct, Crowd, Place};
pub use drain::{Drain, DrainHandle};
pub use fetch::{Fetch, FetchError, Fetched};
pub use listener::{Listener, bind};
pub use resolve::Target;
pub use seat::Seat;
pub use serve::{ServeOptions, serve};
pub use socket::Socket;
pub use tap::{Tap, Tapped};
pub use tasks::Tasks;
