//! One submission has one resolution (PIN-2): the signed token of a resolution that a client may send back with a retry, what a ledger keeps of a
//! submission that has a key, and what follows from both. [`sticky`] are tokens of the same secrets, of people and not of submissions.
//!
//! Pure: bytes, times and secrets are arguments. Where a ledger keeps its records, and who waits for it, is the gateway's business.

mod bytes;
pub mod key;
pub mod record;
pub mod rule;
pub mod sticky;
pub mod token;

pub use key::{Key, KeyError};
pub use record::Record;
pub use rule::{Asked, Ledger, Next, OnFailure, Refused, next};
pub use token::{BadToken, Claim, Secret, Secrets};
