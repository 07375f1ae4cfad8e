//! What gateways keep outside of themselves: the limits that they share, in Redis or Valkey (one script, one hash for each limit, the store's own clock); and
//! the ledger of submissions, there (`ledger`) or in one file (`file`).
//!
//! | what goes wrong | what happens |
//! |---|---|
//! | no answer in time | the connection is dropped with everything that is on it, and the call has failed; it is never sent again, for it may have been done |
//! | the script is not known | it is sent along, once |
//! | calls fail | none is made until a connection has answered again; connecting waits longer each time, by chance differently in each gateway |
//! | the store has lost its data | limits come back empty |
//!
//! No caller waits for the store but for its own call, and for that no longer than the deadline. What a failed call means is
//! `holdfast_quota::lease::Holder`'s business.

mod ask;
mod connection;
pub mod file;
pub mod ledger;

pub use ask::{Limits, MAX_PARTS};
pub use connection::{Options, State, Store};

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Down {
    /// There is no connection that has answered, so nothing was sent.
    #[error("the store is not there")]
    Away,
    /// No answer within the deadline; it may have been done.
    #[error("the store did not answer in time")]
    Late,
    /// The store answered, but not what was asked.
    #[error("the store answered: {0}")]
    Answered(String),
}
