//! One submission, one resolution, over retries by the client: by route token and by key, across flips, restarts and the ledger's troubles.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

#[path = "submissions/fixture.rs"]
mod fixture;
mod fleet;
#[path = "submissions/keys.rs"]
mod keys;
#[path = "submissions/moves.rs"]
mod moves;
#[path = "submissions/sticky.rs"]
mod sticky;
#[path = "submissions/store.rs"]
mod store;
#[path = "submissions/tokens.rs"]
mod tokens;
