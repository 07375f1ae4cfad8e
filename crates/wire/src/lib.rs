//! The link between control planes and gateways over gRPC: a transport of [`holdfast_plane::View`] and [`holdfast_plane::Status`].
//!
//! A gateway holds one stream. It says what it has; the control plane answers with the whole table or with what leads there, then with each
//! change as it comes, and the gateway's status says which revision is in force. Nothing is taken on trust: a delta must build upon exactly
//! what is held, the digest of what comes out is computed again, and an older revision is refused ([`held`]). In doubt the gateway asks for
//! the whole table. A stream that brings nothing for the poll interval is compared by a call of its own.
//!
//! * [`server`]: the control plane's side. * [`follower`]: the gateway's side. * [`saved`]: a gateway's last good table on disk.
//! * [`seats`]: who starts loads where, asked of control planes and of other gateways. * [`proto`]: the messages, of `proto/holdfast/control/v1/control.proto`. Neighbouring releases work together: fields are only added, and
//!   what is not known is passed over. `tests/golden` has messages as each release wrote them.
//!
//! A table and the orders that go with it come into force together: the orders are in the table's last part.

pub mod auth;
mod error;
mod figures;
pub mod follower;
pub mod held;
mod incoming;
mod parts;
#[expect(missing_docs, reason = "what is written for each message is in the protocol's definition")]
#[allow(clippy::all, reason = "generated")]
pub mod proto {
    //! The messages and the service, as they are generated from the protocol's definition.
    tonic::include_proto!("holdfast.control.v1");
}
pub mod saved;
mod saved_tokens;
pub mod seats;
pub mod server;
pub mod words;

pub use error::WireError;
pub use tonic::async_trait;

/// A longer message is refused. Tables come in parts; orders and statuses are one message each.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;
