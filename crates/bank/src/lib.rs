//! What gateways keep outside of themselves: the limits that they share, in Redis or Valkey (one script, one hash for each limit, the store's own clock); and
//! the ledger of submissions, there (`ledger`) or in one file (`file`).
//!
//! | what goes wrong | what happens |
//! |---|---|
//! | no answer in time | the connection is dropped with everything that is on it, and the call has failed; it is never sent again, for it may have been done |
//! | the script is not known | it is sent along, once |
//! | calls fail | none is made until a connection has answered again; connecting waits longer each time, by chance differently in each gateway |
//! | the store wants another password, or shows another certificate | there is no connection, and why is said once; it is read anew for the next |
//! | a slot of a cluster moves | the call that hears of it was not done, and is made once more where the slot is |
//! | the store has lost its data | limits come back empty |
//!
//! No caller waits for the store but for its own call, and for that no longer than the deadline. What a failed call means is
//! `holdfast_quota::lease::Holder`'s business.

pub mod access;
mod ask;
mod cluster;
mod connection;
pub mod file;
pub mod ledger;
mod ring;

pub use ask::{Limits, MAX_PARTS};
pub use connection::{Options, State, Store};
pub use ring::Stores;

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
    /// It was not done: the slot is at another node of the cluster from now on.
    #[error("the slot has moved to {0}")]
    Moved(String),
    /// It was not done: the slot is about to move to another node, which has this key already.
    #[error("the key has moved to {0}")]
    Asks(String),
}
