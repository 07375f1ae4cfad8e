//! The truth of the routing table: what is desired and what is in force, as revisions of small resources, in one of two backends.
//!
//! [`Store`] is the one trait. [`Embedded`] keeps everything in one redb file and needs no other service; [`Postgres`] keeps it in a
//! schema of a PostgreSQL database, for several control planes. Both pass one contract suite (`tests/contract`).
//!
//! * Every change is one [`Header`] on one number line: who, when, why, against which revision, and which edits. A change of what is
//!   desired is compared with what its author saw; what changed since is named in the [`Conflict`].
//! * The state at every retained revision can be read, in pages. Every revision has a digest of either space ([`digest`]).
//! * Small records for state machines are compared and set one by one, alone or in one transaction with a change.
//! * Every call has a deadline and every queue a bound. An error says whether to try again and whether the change may have happened.
//!
//! The time of a change is an argument: the store reads no wall clock.

mod api;
pub mod backup;
mod embedded;
mod error;
mod files;
mod json;
mod key;
mod layer;
mod limits;
mod model;
mod postgres;
mod seal;
mod stored;

pub use api::{Fut, Leader, Store, Watch};
pub use embedded::{Embedded, EmbeddedOptions};
pub use error::{Applied, Conflict, Error, ErrorKind, Result};
pub use holdfast_digest as digest;
pub use holdfast_digest::Digest;
pub use json::Json;
pub use key::{Key, Place, Space};
pub use layer::{Call, Layer};
pub use limits::*;
pub use model::*;
pub use postgres::{Postgres, PostgresOptions, PostgresTls};
