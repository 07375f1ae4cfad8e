//! Shared limits by leases: gateways take small chunks of tokens from a shared bucket and spend them locally.
//!
//! Two machines, both synchronous: [`Holder`] is a gateway's side of one limit, [`Bank`] the store's. A holder asks, the bank grants what is there up to a
//! chunk. What a holder has and has on order together never passes one chunk (or one request, if that is larger), so all holders together pass the limit by at
//! most [`over_admission_bound`], once.
//!
//! | what goes wrong | what happens |
//! |---|---|
//! | nothing is granted | the holder asks again after a chunk's time, or the bank's longer hint |
//! | an answer is lost or late | its tokens are lost, never counted twice; an order that is older than the last is not looked at |
//! | the store is down, hangs or is slow | each holder goes by its part of the limit, from a bucket of its own that starts with what it holds |
//! | the store comes back | the time in which all were alone makes no tokens; who was alone while others were not is charged |
//! | the store has lost the bucket | it comes back empty |
//! | a gateway dies | its tokens are lost, its place is free when its lease ends; a holder that was only silent drops its tokens before that |
//! | a limit is too small to share | one chunk is out at a time: its holder owns the limit until it is spent, which the bank is told at once |

mod bank;
mod holder;
mod purse;
mod size;
mod terms;

pub use bank::{Answer, Ask, Bank, Event as BankEvent, GatewayId, Rules};
pub use holder::{Effect, Event, Holder, Verdict};
pub use purse::Leased;
pub use size::{Sharing, chunk, chunk_nanos, over_admission_bound, over_admission_bound_alone};
pub use terms::Terms;
